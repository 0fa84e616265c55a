"""What a frontier does with hosts and leases that another process has left: one that died, or the
owner of a shard before. And how it gives a shard up.

Rule: each step is one write, so a crash in here loses nothing. A lease that was left open may still
be fetched: its host rests as after the longest fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.groups import AddressGroups
from crawler.frontier.hosts import HostScheduler, LongestHosts
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import HostRecord, OpenRecord, UrlEvent, UrlState, decode_open
from crawler.frontier.staging import WriteBatch, all_records, slices
from crawler.model.types import Candidate, HostKey

_DROPPED: Final = (
    *(keys.HOST, keys.ADDRESS, keys.QUEUED, keys.OPEN, keys.DEAD, keys.REFUSED),
    *(keys.ARRIVED, keys.UNDECIDED, keys.ADMITTED_KEYS, keys.DOMAIN, keys.PATTERN),
    *(keys.GONE, keys.DATED, keys.SPILLED, keys.SEED_TALLY, keys.LISTED, keys.QUEUE),
)
"""The records of a shard, but those with a date, which have it first. The keys of its URLs stay in
the runs, too: the other owner has them, but for those that `SeenSet.forget` is told of."""

_UNNOTED: Final = 2
"""Requests under a lease before the rest that follows more is noted with it (`Loop.note_aside`)."""


class Recovery:
    """Files hosts and puts leases back, of a whole frontier or of a shard."""

    def __init__(
        self,
        batch: WriteBatch,
        scheduler: HostScheduler,
        longest: LongestHosts,
        limits: FrontierLimits,
        groups: AddressGroups,
    ) -> None:
        self._batch = batch
        self._scheduler = scheduler
        self._longest = longest
        self._limits = limits
        self._groups = groups

    def recover(self, now: float) -> int:
        """File the active hosts of a dead process again, and put back its leases. Returns how many
        these are."""
        for markers in slices(self._batch, keys.ACTIVE, self._limits.recovered_slice):
            for key, _ in markers:
                host = HostKey(keys.name_of(key))
                self._longest.note(host, self._scheduler.refile(host, now))
            self._batch.commit()
        for _ in self._scheduler.end_waits(now):
            self._batch.commit()
        return sum(self._put_back_leases(keys.OPEN, now, self._scheduler.put_back))

    def take_in(self, shard: bytes, now: float) -> Iterator[None]:
        """Put the leases of a shard back and then file its hosts, all of which the store has as
        empty. Yields after each step, which is to be committed; meanwhile URLs are leased, of the
        shard those of hosts that are filed. Raises ConfigError if they have more levels than the
        setting."""
        for hosts in slices(self._batch, keys.HOST + shard, self._limits.recovered_slice):
            for key, _ in hosts:
                host = HostKey(keys.name_in_shard(key))
                self._batch.forget_host(host)
                record = self._batch.peek(host)
                self._batch.check_levels(len(record.queue_ends))
                self._count_levels(record, 1)
                for counted in (self._batch.totals, self._batch.totals_of(shard)):
                    counted.waiting += record.waiting()
            yield
        for addresses in slices(self._batch, keys.ADDRESS + shard, self._limits.recovered_slice):
            for key, packed in addresses:
                self._groups.take_in(key, packed, now)
            yield
        # No host is filed yet: one that was leased now would be taken for a lost lease, and one of
        # which another lease is still to be put back would not rest as long as that asks for.
        for _ in self._put_back_leases(keys.OPEN + shard, now, self._scheduler.put_first):
            yield
        for hosts in slices(self._batch, keys.HOST + shard, self._limits.recovered_slice):
            for key, _ in hosts:
                host = HostKey(keys.name_in_shard(key))
                record = self._scheduler.file(host)
                self._longest.note(host, record)
            yield

    def drop(self, shard: bytes, *, is_counted: bool) -> Iterator[None]:
        """Delete all records of a shard. Yields after each step, which is to be committed."""
        size = self._limits.recovered_slice
        for hosts in slices(self._batch, keys.HOST + shard, size):
            for key, _ in hosts:
                host = HostKey(keys.name_in_shard(key))
                record = self._batch.peek(host)
                if is_counted:
                    self._count_levels(record, -1)
                self._scheduler.drop_host(host, record)
                self._longest.forget(host)
                self._batch.delete(key)
            yield
        for prefix in _DROPPED:
            for records in slices(self._batch, prefix + shard, size):
                self._batch.delete_all([key for key, _ in records])
                yield
        for records in slices(self._batch, keys.LATER, size):
            self._batch.delete_all([key for key, _ in records if keys.shard_in(key) == shard])
            yield
        self._scheduler.end_drop(shard)

    def _count_levels(self, record: HostRecord, times: int) -> None:
        for level, ends in enumerate(record.queue_ends):
            self._batch.totals.levels[level] += times * len(ends)

    def _put_back_leases(
        self, prefix: bytes, now: float, put_back: Callable[[Candidate], None]
    ) -> Iterator[int]:
        """Put the leases whose keys begin with *prefix* back. Yields how many, after each step,
        which is written. *put_back* does that with a URL."""
        newest = self._newest_leases(prefix)
        for leases in slices(self._batch, prefix, self._limits.recovered_slice):
            for key, packed in leases:
                lost = decode_open(packed)
                is_newest = lost.taken_at == newest[lost.candidate.host]
                self._end_lost(key, lost, now, may_be_fetching=is_newest)
                put_back(lost.candidate)
            self._batch.commit()
            yield len(leases)

    def _newest_leases(self, prefix: bytes) -> dict[HostKey, float]:
        """Return when each host was leased last. All its earlier open leases were released, or the
        last one could not have been taken."""
        opened = (decode_open(packed) for _, packed in all_records(self._batch, prefix))
        return {lost.candidate.host: lost.taken_at for lost in opened}

    def _end_lost(self, key: bytes, lost: OpenRecord, now: float, *, may_be_fetching: bool) -> None:
        record = self._batch.host(lost.candidate.host)
        # A rest that ends after the lease began was set by its release, and is kept.
        if may_be_fetching and (lost.is_bundled or record.rest_until <= lost.taken_at):
            if lost.pace is not None:
                record.pace = lost.pace
                record.note_trouble(lost.asked_s, now)
            until = self._rest_after(lost.taken_at, record, now)
            record.rest_until = max(until, lost.rest_until, record.rest_until)
            if record.address:
                host = lost.candidate.host
                self._groups.note_rest(record.address, host, record.rest_until, now)
        self._batch.delete(key)
        self._batch.count(keys.shard_in(key), UrlState.LEASED, UrlEvent.LOSE)

    def _rest_after(self, taken_at: float, record: HostRecord, now: float) -> float:
        """Return until when a host rests after a fetch that the death of its process cut off. The
        fetch counts as the longest possible one, so that the gap after it is kept in any case; its
        answer as one that asked for the longest time that the host ever asked for."""
        limits, pace = self._limits, record.pace
        longest_s = min(now - taken_at, limits.longest_fetch_s)
        asked_s = record.remembered_s(now, limits.max_retry_after_s)
        gap_s = max(pace.gap_s, pace.crawl_delay_s, limits.min_gap_s)
        requests = min(limits.most_requests, _UNNOTED)
        own_s = min(limits.gap_factor * longest_s, requests * limits.max_gap_s)
        worst = taken_at + longest_s + max(own_s, asked_s)
        return max(worst, now + min(requests * gap_s, limits.max_rest_s))

"""The write batch of the frontier: changes are staged here and written at once.

Rule: reads see staged changes. Nothing reaches the store before `commit`, which writes all of it or
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import DurableStore, ReadableStore
from crawler.frontier.records import (
    DeadLetter,
    FrontierTotals,
    HostRecord,
    QueueEnds,
    UrlEvent,
    UrlState,
    decode_host,
    decode_totals,
    encode,
)
from crawler.frontier.shards import Shards
from crawler.model.types import ConfigError, HostKey, StoreFull, StoreUnavailable

_SLICE: Final = 10_000  # records of one scan


def all_records(store: ReadableStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield all pairs whose key begins with *prefix*, one byte, in order of key, in bounded
    memory."""
    return records_between(store, prefix, keys.prefix_end(prefix))


def records_between(
    store: ReadableStore, begin: bytes, stop: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs with begin <= key < stop, in order of key, in bounded memory."""
    for found in _slices_between(store, begin, stop, _SLICE):
        yield from found


def slices(store: ReadableStore, prefix: bytes, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield the pairs whose key begins with *prefix* in lists of *size*. What was yielded may be
    deleted meanwhile: it is not scanned again, which for a store that keeps tombstones grows with
    the square."""
    return _slices_between(store, prefix, keys.prefix_end(prefix), size)


def _slices_between(
    store: ReadableStore, begin: bytes, stop: bytes, size: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    while found := store.scan(begin, stop, size):
        yield found
        begin = found[-1][0] + b"\0"


class WriteBatch:
    """Staged changes over a store, and the records of hosts used lately, one object each."""

    def __init__(
        self, store: DurableStore, levels: int, known_hosts: int, shards: Shards | None = None
    ) -> None:
        """*known_hosts* as of FrontierLimits. *shards*: of the crawl; None: one."""
        self._store = store
        self.shards = shards or Shards()
        # Of a frontier that has some of the shards. Of others there may be records: of those that
        # come, which are loaded step by step, and of those that go.
        self.here: set[bytes] | None = None if shards is None else set()
        self._levels = levels
        self._known_hosts = known_hosts
        self._staged: dict[bytes, bytes | None] = {}
        self._hosts: dict[HostKey, HostRecord] = {}  # in the order in which they were read
        self._active: set[HostKey] = set()
        self._changed: set[HostKey] = set()  # written by the next commit
        self._failure: StoreUnavailable | None = None
        self.totals = self._read_totals()
        self._of_shards: dict[bytes, FrontierTotals] = {}  # if there are several
        self._touched: set[bytes] = set()  # of these, written by the next commit

    @property
    def is_empty(self) -> bool:
        return not (self._staged or self._changed)

    def has(self, shard: bytes) -> bool:
        """Return whether *shard* is here, whole."""
        return self.here is None or shard in self.here

    def get(self, key: bytes) -> bytes | None:
        if key in self._staged:
            return self._staged[key]
        return self._store.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to *limit* pairs with start <= key < stop, in order of key."""
        staged = [key for key in self._staged if start <= key < stop]
        if not staged:
            return self._store.scan(start, stop, limit)
        found = dict(self._store.scan(start, stop, limit + len(staged)))
        for key in staged:
            value = self._staged[key]
            if value is None:
                found.pop(key, None)
            else:
                found[key] = value
        return sorted(found.items())[:limit]

    def put(self, key: bytes, value: bytes) -> None:
        self._staged[key] = value

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        """Stage *changes*: so the batch is an OrderedStore, whose writes the next commit makes."""
        self._staged.update(changes)

    def put_at_once(self, key: bytes, value: bytes) -> None:
        """Write one record now, and nothing that is staged: that may be some megabytes. If it
        cannot be written now, it is staged."""
        if self._failure is None and key not in self._staged:
            with suppress(StoreUnavailable):
                self._store.write({key: value})
                return
        self._staged[key] = value

    def put_all(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._staged.update(pairs)

    def delete(self, key: bytes) -> None:
        self._staged[key] = None

    def delete_all(self, names: Iterable[bytes]) -> None:
        self._staged.update(dict.fromkeys(names))

    def host(self, host: HostKey) -> HostRecord:
        """Return the record of *host* to be changed in place; the next commit writes it."""
        self._changed.add(host)
        return self._hosts.get(host) or self.peek(host)

    def peek(self, host: HostKey) -> HostRecord:
        """Return the record of *host*, or a new one; changes to it are not written."""
        known = self._hosts.get(host)
        if known is None:
            packed = self.get(self.key(keys.HOST, host))  # it may be deleted, and not committed
            known = decode_host(packed) if packed else HostRecord([])
            if len(known.queue_ends) < self._levels:
                missing = self._levels - len(known.queue_ends)
                known.queue_ends += [QueueEnds() for _ in range(missing)]
            self._hosts[host] = known
        return known

    def pin_record(self, host: HostKey) -> None:
        """Keep the record in memory while its host is active."""
        self._active.add(host)

    def unpin_record(self, host: HostKey) -> None:
        self._active.discard(host)

    def forget_host(self, host: HostKey) -> None:
        """Forget the record of *host*, which was deleted in the store."""
        self._hosts.pop(host, None)
        self._active.discard(host)
        self._changed.discard(host)

    def key(self, prefix: bytes, name: str) -> bytes:
        """Return the key of a host or a domain in its shard."""
        return keys.in_shard(prefix, self.shards.of(name), name)

    def next_number(self, shard: bytes) -> int:
        return self.next_numbers(shard, 1)[0]

    def next_numbers(self, shard: bytes, count: int) -> range:
        first = keys.number_in(shard, self.totals.next_number)
        self.totals.next_number += count
        if self.shards.are_several:
            self.totals_of(shard)
        return range(first, first + count)

    def keep_letter(self, letter: DeadLetter) -> None:
        number = self.next_number(self.shards.of(letter.candidate.host))
        self.put(keys.numbered(keys.DEAD, number), encode(letter))

    def count(self, shard: bytes, state: UrlState, event: UrlEvent, urls: int = 1) -> None:
        """Count that *event* moved *urls* of *shard* out of *state*."""
        self.totals.count(state, event, urls)
        if self.shards.are_several:
            self.totals_of(shard).count(state, event, urls)

    def count_seen(self, shard: bytes, urls: int) -> None:
        self.totals.seen += urls
        if self.shards.are_several:
            self.totals_of(shard).seen += urls

    def totals_of(self, shard: bytes) -> FrontierTotals:
        """Return the counters of one of several shards, to be changed and written by the next
        commit."""
        self._touched.add(shard)
        known = self._of_shards.get(shard)
        if known is None:
            packed = self._store.get(keys.TOTALS + shard)
            known = decode_totals(packed) if packed else FrontierTotals()
            self._of_shards[shard] = known
        return known

    def count_again(self, shard: bytes, again: int, by_worth: int) -> None:
        """Count pages of *shard* that are visited again, and those of them without a date."""
        for totals in (self.totals, self.totals_of(shard))[: 1 + self.shards.are_several]:
            totals.again += again
            totals.by_worth += by_worth

    def count_spilled(
        self, shard: bytes, spilled: int, *, capped: int = 0, domains: int = 0, sampled_out: int = 0
    ) -> None:
        """Count URLs of *shard* that wait for a budget, of these *capped* in all, the domains that
        have such, and URLs that are not kept."""
        totals = self.totals
        counted = (totals, self.totals_of(shard)) if self.shards.are_several else (totals,)
        for each in counted:
            each.spilled += spilled
            each.capped += capped
            each.spilled_domains += domains
            each.sampled_out += sampled_out

    def count_listed(self, shard: bytes, urls: int, done: int, queues: int, active: int) -> None:
        """Count URLs of *shard* in the table of URLs, those of them that are done, the hosts that
        have any, and those of which some are not done."""
        totals = self.totals
        counted = (totals, self.totals_of(shard)) if self.shards.are_several else (totals,)
        for each in counted:
            each.listed += urls
            each.listed_done += done
            each.queues += queues
            each.active_queues += active

    def take_in_totals(self, shard: bytes) -> None:
        """Count what a shard has that was written into the store, and use no number of it again."""
        taken = self.totals_of(shard)
        self.totals.add(taken)
        self.totals.next_number = max(self.totals.next_number, taken.next_number)
        self.totals.clock = max(self.totals.clock, taken.clock)
        self.totals.worth = self.totals.worth or taken.worth

    def drop_totals(self, shard: bytes, *, is_counted: bool) -> None:
        """Delete the counters of a shard, which count no more, if they did."""
        if is_counted:
            self.totals.add(self.totals_of(shard), -1)
        self._of_shards.pop(shard, None)
        self._touched.discard(shard)
        self.delete(keys.TOTALS + shard)

    def sync(self) -> None:
        """Make what was committed survive a power cut. May run in a thread. Raises
        StoreUnavailable."""
        self._store.sync()

    def check_levels(self, begun: int) -> None:
        """Raise ConfigError if the records have more levels than the setting."""
        if begun > self._levels:
            raise ConfigError(
                f"this crawl was begun with {begun - 1} levels, the setting has {self._levels - 1}:"
                " CRAWLER_LEVEL_SHARES may grow between runs, not shrink"
            )

    def _read_totals(self) -> FrontierTotals:
        packed = self._store.get(keys.TOTALS)
        totals = decode_totals(packed) if packed else FrontierTotals()
        self.check_levels(len(totals.levels))
        totals.levels += [0] * (self._levels - len(totals.levels))
        return totals

    def commit(self) -> None:
        """Write all staged changes. Raises StoreFull; then they stay staged, and the next commit
        writes them. Raises StoreUnavailable; from then on memory may be ahead of the disk, so every
        later commit raises it too."""
        if self._failure is not None:
            raise self._failure
        if self.is_empty:
            return
        for host in self._changed:
            self._staged[self.key(keys.HOST, host)] = encode(self._hosts[host])
        self._staged[keys.TOTALS] = encode(self.totals)
        for shard in self._touched:
            of_shard = self._of_shards[shard]
            of_shard.next_number, of_shard.clock = self.totals.next_number, self.totals.clock
            of_shard.worth = self.totals.worth
            self._staged[keys.TOTALS + shard] = encode(of_shard)
        try:
            self._store.write(self._staged)
        except StoreFull:
            raise
        except StoreUnavailable as broken:
            self._failure = broken
            self._staged, self._changed = {}, set()
            raise
        self._staged, self._changed, self._touched = {}, set(), set()
        self.drop_records()

    def drop_records(self) -> None:
        """Drop the records that were read first, if there are twice as many as are to be kept, and
        more. Those of active hosts are kept."""
        if len(self._hosts) <= 2 * self._known_hosts + len(self._active):
            return
        names = list(self._hosts)
        for name in names[: len(names) - self._known_hosts]:
            if name not in self._active:
                del self._hosts[name]

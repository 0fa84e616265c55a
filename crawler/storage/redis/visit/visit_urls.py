"""Where one URL of a shared crawl is.

Rule: as in visit.py. A host's queue is looked through up to a bound, which the answer tells; what
else has no order to look it up by is scanned to its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from crawler.core.types import Candidate, Claim
from crawler.scheduler.records import DeadLetter, RefusedRecord
from crawler.storage.inspection import Leased, Named, Owned, Unsearched, Waiting
from crawler.storage.redis import keys
from crawler.storage.redis.claims import buckets_of, read_filed
from crawler.storage.redis.ops import shard_of
from crawler.storage.redis.shard_records import (
    ShardLease,
    read_later,
    read_lease,
    read_refused,
    read_waiting,
)
from crawler.storage.redis.visit.revival import dead_letters
from crawler.storage.redis.visit.visit import SLICE, Visit
from crawler.storage.redis.visit.visit_hosts import host_record
from crawler.storage.redis.visit.workers import everybody

MOST_LOOKED_AT: Final = 100_000
"""Waiting URLs of a host: 10 MB, and a second."""
_OVERLAP: Final = 10
"""While a queue is looked through its head is leased, and the rest moves up. Its host rests after
each, so ten are more than will be."""


class Search:
    """For one URL."""

    def __init__(self, visit: Visit, it: Named) -> None:
        self._visit = visit
        self._it = it
        self._shard = shard_of(it.domain, len(visit.shards))

    def is_seen(self) -> bool:
        """Buckets may be split while we look."""
        signed = int.from_bytes(self._it.key.to_bytes(8), signed=True)
        buckets = 0
        while buckets != (now := self._buckets()):
            buckets = now
            bucket = keys.seen(self._visit.name, self._shard, bucket_of(signed, buckets))
            if self._visit.ask(bucket, "SISMEMBER", signed):
                return True
        return False

    def waiting(self) -> Waiting | Unsearched | None:
        host = self._it.host
        record = host_record(self._visit, self._shard, host)
        room = MOST_LOOKED_AT
        unsearched = 0
        for front in record.fronts if record else ():
            key = keys.queue(self._visit.name, self._shard, front, host)
            length = self._visit.ask(key, "LLEN")
            with self._visit.reading(key):
                for ahead, body in self._queue(key, room):
                    candidate = read_waiting(body, host, front)
                    if candidate.key == self._it.key:
                        return Waiting(candidate, ahead, is_urgent=front == keys.URGENT)
            unsearched += max(0, length - room)
            room = max(0, room - length)
        return Unsearched(unsearched) if unsearched else None

    def leased(self) -> Leased | None:
        for session, lease in self._leases():
            if lease.candidate.key == self._it.key:
                return Leased(lease.taken_at, self._worker_of(session))
        return None

    def later(self) -> Candidate | None:
        key = keys.later(self._visit.name, self._shard)
        with self._visit.reading(key):
            for found in self._visit.scored(key, match=f"*{escaped(self._it.host)}*"):
                for entry, when in found:
                    candidate = read_later(entry, when)
                    if candidate.key == self._it.key:
                        return candidate
        return None

    def dead(self) -> DeadLetter | None:
        letters = (letter for _, letter in dead_letters(self._visit, self._shard))
        return next((each for each in letters if each.candidate.key == self._it.key), None)

    def refused(self) -> RefusedRecord | None:
        key = keys.refused_urls(self._visit.name, self._shard)
        with self._visit.reading(key):
            for found in self._visit.pairs(key):
                for _, packed in found:
                    candidate, rule, at = read_refused(packed)
                    if candidate.key == self._it.key:
                        return RefusedRecord(candidate, rule, at)
        return None

    def owned(self, is_it: Callable[[str], bool]) -> Owned | None:
        """A claim is filed under its digest, so all may have to be looked at."""
        for shard in self._visit.shards:
            for claim in self._claims(shard):
                if is_it(claim.url):
                    return Owned(claim.at, claim.record)
        return None

    def _claims(self, shard: int) -> Iterator[Claim]:
        """Of its host, perhaps of others."""
        name, host = self._visit.name, self._it.host.encode()
        total = int(self._visit.ask(keys.totals(name, shard), "HGET", "claims") or 0)
        buckets = [keys.claims(name, shard, bucket) for bucket in range(buckets_of(total))]
        files: dict[bytes, bytes] = {}
        with self._visit.reading(buckets[0]):
            for filed in self._visit.lists(buckets):
                if host in filed:
                    files = files or self._files(shard)
                    yield read_filed(filed, files)

    def _files(self, shard: int) -> dict[bytes, bytes]:
        key = keys.files(self._visit.name, shard)
        return {number: file for found in self._visit.pairs(key) for number, file in found}

    def _buckets(self) -> int:
        totals = keys.totals(self._visit.name, self._shard)
        return int(self._visit.ask(totals, "HGET", "buckets") or 1)

    def _queue(self, key: str, most: int) -> Iterator[tuple[int, bytes]]:
        """Up to *most* entries with how many are before them, some twice."""
        for begin in range(0, most, SLICE - _OVERLAP):
            found = self._visit.ask(key, "LRANGE", begin, min(begin + SLICE, most) - 1)
            yield from enumerate(found, begin)
            if len(found) < SLICE:
                return

    def _leases(self) -> Iterator[tuple[str, ShardLease]]:
        """With their sessions."""
        name = self._visit.name
        for sessions in self._visit.scored(keys.sessions(name, self._shard)):
            for session, _ in sessions:
                key = keys.leases(name, self._shard, session.decode())
                with self._visit.reading(key):
                    for found in self._visit.pairs(key):
                        for _, packed in found:
                            yield session.decode(), read_lease(packed)

    def _worker_of(self, session: str) -> str:
        """Its last life's, if it began another since."""
        named = {worker.session: worker.name for worker in everybody(self._visit)}
        return named.get(session) or session.rpartition(".")[0] or session


def bucket_of(key: int, buckets: int) -> int:
    """As in lua/add.lua: linear hashing by the last nine digits."""
    half = 1 << buckets.bit_length() - 1
    bucket = int(str(abs(key))[-9:]) % (half * 2)
    return bucket - half if bucket >= buckets else bucket


def escaped(text: str) -> str:
    """What MATCH of Redis takes for itself."""
    return "".join(f"\\{char}" if char in "*?[]\\^" else char for char in text)

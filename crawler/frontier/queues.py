"""The queues of the frontier on disk: of URLs per host and level, of hosts, and by time.

Rule: the numbers of a queue are consecutive, so its head is found by its number and no search
crosses deleted entries (measured: 8-18 ms a refill over tombstones, 32 us here).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from crawler.frontier import records as keys
from crawler.frontier.records import (
    FrontEntry,
    HostEvent,
    HostPlace,
    HostRecord,
    decode_entry,
    encode,
    next_place,
)
from crawler.frontier.staging import WriteBatch
from crawler.model.types import Candidate, HostKey, Standing


class UrlQueues:
    """Waiting URLs: a FIFO per host and level. The callers count them, by why each moves."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch

    def append(self, host: HostKey, level: int, arrived: Sequence[Candidate]) -> None:
        """Append *arrived*, all of *host* and *level*, to their queue."""
        ends = self._batch.host(host).queue_ends[level]
        numbers = range(ends.tail, ends.tail + len(arrived))
        names = keys.all_numbered(keys.url_queue(host, level), numbers)
        self._batch.put_all(zip(names, map(encode, arrived), strict=True))
        ends.tail += len(arrived)

    def put_back(self, candidate: Candidate) -> None:
        """Put *candidate* before the head of its queue."""
        host, level = candidate.host, candidate.level
        ends = self._batch.host(host).queue_ends[level]
        ends.head -= 1
        self._batch.put(keys.queued_url(host, level, ends.head), encode(candidate))

    def head(self, host: HostKey, record: HostRecord, level: int, limit: int) -> deque[bytes]:
        """Return up to *limit* packed URLs from the front of the queue, and leave them in it.
        Finds only what earlier calls committed."""
        ends = record.queue_ends[level]
        stop = min(ends.tail, ends.head + limit)
        found = self._batch.scan(
            keys.queued_url(host, level, ends.head), keys.queued_url(host, level, stop), limit
        )
        return deque(packed for _, packed in found)

    def drop_head(self, host: HostKey, record: HostRecord, level: int) -> None:
        """Remove the first URL of the queue."""
        ends = record.queue_ends[level]
        self._batch.delete(keys.queued_url(host, level, ends.head))
        ends.head += 1


class FrontQueue:
    """The front tier: a FIFO of hosts, not URLs, per standing and level. A host that is filed again
    leaves a stale entry behind, which has an older generation than its record."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch

    def levels_with_entries(self, standing: Standing) -> list[int]:
        """Return the levels with entries of hosts of *standing*, stale entries among them."""
        fronts = self._batch.totals.fronts()[standing]
        return [level for level, ends in enumerate(fronts) if len(ends)]

    def put(self, host: HostKey, record: HostRecord, level: int, *, first: bool = False) -> None:
        """Put *host* at the end, or *first*, of the queue of its standing and *level*. O(1)."""
        record.place = next_place(record.place, HostEvent.FILE)
        record.level = level
        record.generation += 1
        standing = record.pace.standing
        ends = self._batch.totals.fronts()[standing][level]
        entry = FrontEntry(host, record.generation)
        if first:
            ends.head -= 1
            self._batch.put(keys.front(standing, level, ends.head), encode(entry))
        else:
            self._batch.put(keys.front(standing, level, ends.tail), encode(entry))
            ends.tail += 1

    def take(self, standing: Standing, level: int) -> HostKey | None:
        """Remove the next entry and return its host, or None if the entry was stale. Call it only
        for levels that `levels_with_entries` returns. O(1)."""
        ends = self._batch.totals.fronts()[standing][level]
        key = keys.front(standing, level, ends.head)
        packed = self._batch.get(key)
        self._batch.delete(key)
        ends.head += 1
        if packed is None:
            return None
        entry = decode_entry(packed)
        record = self._batch.peek(entry.host)
        fresh = record.place is HostPlace.FRONT and record.generation == entry.generation
        return entry.host if fresh else None


class TimedQueue:
    """Entries by the time at which they are due: hosts at rest, and later URLs.

    Due entries are removed in slices, oldest first, and the time of the next one is known without a
    read. An entry is always put at a time after the last slice."""

    def __init__(self, batch: WriteBatch, prefix: bytes) -> None:
        self._batch = batch
        self._prefix = prefix
        # Reads begin here, behind the tombstones of entries already taken.
        self._from = prefix
        self._next: float | None = None
        self._read_next()

    @property
    def next_at(self) -> float | None:
        """When the first entry is due, or None; may be early, never late."""
        return self._next

    def put(self, when: float, suffix: bytes, value: bytes) -> None:
        key = keys.timed(self._prefix, when, suffix)
        self._batch.put(key, value)
        self._from = min(self._from, key)
        if self._next is None or when < self._next:
            self._next = when

    def take_due(self, now: float, limit: int) -> list[tuple[bytes, bytes]]:
        """Remove and return up to *limit* entries with time <= *now*."""
        if self._next is None or self._next > now:
            return []
        stop = keys.due_end(self._prefix, now)
        found = self._batch.scan(self._from, stop, limit)
        for key, _ in found:
            self._batch.delete(key)
        if len(found) == limit:
            self._from = found[-1][0] + b"\0"
            self._next = keys.time_of(found[-1][0])
        else:
            self._from = stop
            self._read_next()
        return found

    def _read_next(self) -> None:
        first = self._batch.scan(self._from, keys.prefix_end(self._prefix), 1)
        self._next = keys.time_of(first[0][0]) if first else None

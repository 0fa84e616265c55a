"""The queues of the frontier: of URLs per host and level, of hosts, and by time.

Rule: the numbers of a queue are consecutive, so its head is found by its number and no search
crosses deleted entries (measured: 8-18 ms a refill over tombstones, 32 us here).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.records import (
    ArrivedUrls,
    FrontEntry,
    HostEvent,
    HostPlace,
    HostRecord,
    decode_entry,
    encode,
    join_urls,
    next_place,
    pack_urls,
    split_urls,
)
from crawler.frontier.staging import WriteBatch
from crawler.model.types import Candidate, HostKey, Standing

QueueName = tuple[HostKey, int]
"""Host and level."""

Chunk = tuple[int, bytes]
"""The number of its last URL, and the packed URLs."""

_STEP: Final = 200  # hosts of one step of a flush: 2 ms


class UrlQueues:
    """Waiting URLs: a FIFO per host and level. The callers count them, by why each moves.

    New URLs are in memory, and on disk in the entries of their commits, until a flush writes them
    as chunks, all of a queue together. A chunk has the number of its last URL as its key. Chunks
    may overlap: a URL is in the first chunk that ends at its number or later.
    """

    def __init__(self, batch: WriteBatch, chunk_urls: int) -> None:
        self._batch = batch
        self._chunk_urls = chunk_urls
        self._new: dict[QueueName, NewUrls] = {}
        self._flushing: dict[QueueName, NewUrls] = {}  # a flush is writing them
        # The ends of the chunks from which the heads in memory were read.
        self._head_chunks: dict[QueueName, deque[int]] = {}
        self.new_urls = 0  # URLs in memory that no flush has begun to write

    def append(
        self, record: HostRecord, queue: QueueName, urls: Sequence[Candidate], *, is_new: bool
    ) -> None:
        """Append *urls* to *queue*, whose host has *record*, which `counted_host` has returned.
        *is_new*: this call admits them."""
        host, level = queue
        ends = record.queue_ends[level]
        for at in range(0, len(urls), self._chunk_urls):
            some = urls[at : at + self._chunk_urls] if len(urls) > self._chunk_urls else urls
            arrived = ArrivedUrls(host, level, ends.tail, len(some), pack_urls(some), is_new)
            ends.tail += len(some)
            self._batch.note_queued(arrived)
            self._keep(queue, arrived)

    def replay(self, arrived: ArrivedUrls, entry: int) -> None:
        """Append *arrived*, of *entry* of an earlier run, to its queue in memory, if no flush has
        stored it."""
        if self._batch.peek(arrived.host).stored_to < entry:
            ends = self._batch.counted_host(arrived.host).queue_ends[arrived.level]
            ends.tail = max(ends.tail, arrived.end)
            self._keep((arrived.host, arrived.level), arrived)

    def _keep(self, queue: QueueName, arrived: ArrivedUrls) -> None:
        known = self._new.get(queue)
        if known is None:
            self._new[queue] = NewUrls(queue, arrived)
        else:
            known.parts.append(arrived)
        self.new_urls += arrived.count

    def put_back(self, candidate: Candidate) -> None:
        """Put *candidate* before the head of its queue."""
        host, level = candidate.host, candidate.level
        record = self._batch.host(host)
        ends = record.queue_ends[level]
        self._store_below(host, record, level, ends.head)
        ends.head -= 1
        self._batch.put(keys.chunk(host, level, ends.head), join_urls(1, [encode(candidate)]))
        head_chunks = self._head_chunks.get((host, level))
        if head_chunks is not None:
            head_chunks.appendleft(ends.head)

    def read(self, host: HostKey, level: int, first: int, stop: int) -> list[bytes]:
        """Return the packed URLs with the numbers *first* to *stop* - 1, and leave them in the
        queue."""
        found: list[bytes] = []
        for last, urls in self._chunks(host, level, first, stop):
            found += urls[first + len(found) - last - 1 :]
        for arrivals in (self._flushing, self._new):
            if first + len(found) < stop and (host, level) in arrivals:
                found += arrivals[host, level].read(first + len(found), stop)
        del found[stop - first :]
        return found

    def read_head(
        self, host: HostKey, record: HostRecord, level: int, first: int, stop: int
    ) -> list[bytes]:
        """Return as `read` the next URLs of a head, which begins where the queue does. `drop_head`
        will remove them, `end_head` ends the reading."""
        chunks = self._head_chunks.setdefault((host, level), deque())
        if first == record.queue_ends[level].head:
            chunks.clear()
        ends = (last for last, _ in self._chunks(host, level, first, stop))
        chunks.extend(last for last in ends if not chunks or last > chunks[-1])
        return self.read(host, level, first, stop)

    def drop_head(self, host: HostKey, record: HostRecord, level: int) -> None:
        """Remove the first URL of the queue, which is in its head."""
        ends = record.queue_ends[level]
        ends.head += 1
        chunks = self._head_chunks[host, level]
        while chunks and chunks[0] < ends.head:
            self._batch.delete(keys.chunk(host, level, chunks.popleft()))

    def end_head(self, host: HostKey, level: int) -> None:
        self._head_chunks.pop((host, level), None)

    def replace_front(
        self, host: HostKey, record: HostRecord, level: int, stop: int, urls: Sequence[bytes]
    ) -> None:
        """Put packed *urls*, of the head being read, in the place of all URLs that have a number
        below *stop*."""
        ends = record.queue_ends[level]
        self._store_below(host, record, level, stop)
        chunks = self._head_chunks[host, level]
        while chunks and chunks[0] < stop:
            self._batch.delete(keys.chunk(host, level, chunks.popleft()))
        ends.head = stop - len(urls)
        if urls:
            self._batch.put(keys.chunk(host, level, stop - 1), join_urls(len(urls), urls))
            chunks.appendleft(stop - 1)

    def replace_end(
        self, host: HostKey, record: HostRecord, level: int, first: int, urls: Sequence[bytes]
    ) -> None:
        """Put packed *urls* in the place of all URLs that have number *first* or a higher one."""
        ends = record.queue_ends[level]
        self._store_below(host, record, level, ends.tail)
        stored = list(self._chunks(host, level, first, ends.tail))
        for last, _ in stored:
            self._batch.delete(keys.chunk(host, level, last))
        if stored:
            last, before = stored[0]
            kept = before[: max(0, first - last - 1 + len(before))]
            if kept:
                self._batch.put(keys.chunk(host, level, first - 1), join_urls(len(kept), kept))
        ends.tail = first + len(urls)
        if urls:
            self._batch.put(keys.chunk(host, level, ends.tail - 1), join_urls(len(urls), urls))

    def _store_below(self, host: HostKey, record: HostRecord, level: int, number: int) -> None:
        """Write the new URLs of *host* as chunks, ahead of a flush, if any of *level* has a lower
        number: a chunk that is to replace them must not be replaced by that flush."""
        arrivals, queue = (self._flushing, self._new), (host, level)
        if all(queue not in each or each[queue].first >= number for each in arrivals):
            return
        for other in range(len(record.queue_ends)):
            for waiting in arrivals:
                urls = waiting.pop((host, other), None)
                if urls is not None:
                    self._put_chunks(record, urls.queue, urls.chunks(self._chunk_urls))
                    if waiting is self._new:
                        self.new_urls -= sum(each.count for each in urls.parts)
        record.stored_to = self._batch.end_entry()

    def begin_flush(self) -> Flush:
        """Return the flush of all new URLs. One at a time."""
        assert not self._flushing, "the flush before is not over"
        self._flushing, self._new, self.new_urls = self._new, {}, 0
        new = sorted(self._flushing.values(), key=lambda urls: urls.queue)
        return Flush(self, new, self._batch.end_entry(), self._chunk_urls)

    def apply_flush(
        self, host: HostKey, chunks: Iterable[tuple[NewUrls, list[Chunk]]], last_entry: int
    ) -> None:
        """Stage the *chunks* of a flush that are of *host*: all new URLs up to *last_entry*."""
        record = self._batch.host(host)
        for urls, packed in chunks:
            # If not, they were stored ahead of the flush.
            if self._flushing.get(urls.queue) is urls:
                del self._flushing[urls.queue]
                self._put_chunks(record, urls.queue, packed)
        record.stored_to = max(record.stored_to, last_entry)

    def _put_chunks(self, record: HostRecord, queue: QueueName, chunks: Iterable[Chunk]) -> None:
        head_chunks = self._head_chunks.get(queue)
        for last, packed in chunks:
            if last < record.queue_ends[queue[1]].head:
                continue  # all its URLs were taken already
            self._batch.put(keys.chunk(*queue, last), packed)
            if head_chunks is not None:  # some of its URLs may be in the head
                head_chunks.append(last)

    def _chunks(
        self, host: HostKey, level: int, first: int, stop: int
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the chunks that have the URLs with the numbers *first* to *stop* - 1: the number of
        the last URL, and the packed URLs."""
        end = keys.chunk(host, level, keys.LAST_NUMBER)
        while first < stop:
            found = self._batch.scan(keys.chunk(host, level, first), end, 1)
            if not found:
                return
            last = keys.number_of(found[0][0])
            yield last, split_urls(found[0][1])
            first = last + 1


class NewUrls:
    """URLs of one queue that are in no chunk yet: parts with consecutive numbers."""

    def __init__(self, queue: QueueName, arrived: ArrivedUrls) -> None:
        self.queue = queue
        self.parts = [arrived]

    @property
    def first(self) -> int:
        return self.parts[0].first

    def read(self, first: int, stop: int) -> list[bytes]:
        """Return the packed URLs with numbers from *first*, to *stop* - 1 or some more."""
        found: list[bytes] = []
        begin = bisect_right(self.parts, first, key=lambda part: part.end)
        for part in islice(self.parts, begin, None):
            if part.first >= stop:
                break
            urls = split_urls(join_urls(part.count, [part.packed]))
            found += urls[max(0, first - part.first) :]
        return found

    def chunks(self, most: int) -> Iterator[Chunk]:
        """Yield the URLs in chunks of about *most*."""
        parts: list[bytes] = []
        count = 0
        for part in self.parts:
            parts.append(part.packed)
            count += part.count
            if count >= most:
                yield part.end - 1, join_urls(count, parts)
                parts, count = [], 0
        if parts:
            yield self.parts[-1].end - 1, join_urls(count, parts)


class Flush:
    """New URLs on their way into chunks: `run`, perhaps in a thread, then the steps of `apply`."""

    def __init__(
        self, queues: UrlQueues, new: list[NewUrls], last_entry: int, chunk_urls: int
    ) -> None:
        """*new*: in order of host; all of entries up to *last_entry*."""
        self._queues = queues
        self._new = new
        self._chunk_urls = chunk_urls
        self._chunks: list[tuple[NewUrls, list[Chunk]]] = []
        self.last_entry = last_entry

    def run(self) -> None:
        self._chunks = [(urls, list(urls.chunks(self._chunk_urls))) for urls in self._new]

    def apply(self) -> Iterator[None]:
        """Yield after each step, whose changes are staged. A step has all chunks of its hosts."""
        hosts = groupby(self._chunks, key=lambda pair: pair[0].queue[0])
        for number, (host, chunks) in enumerate(hosts, 1):
            self._queues.apply_flush(host, chunks, self.last_entry)
            if number % _STEP == 0:
                yield
        yield


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

"""The queues of the frontier: of URLs per host and level, of hosts, and by time.

Rule: the numbers of a queue are consecutive, so its head is found by its number and no search
crosses deleted entries (measured: 8-18 ms a refill over tombstones, 32 us here).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.records import (
    FrontEntry,
    HostEvent,
    HostPlace,
    HostRecord,
    QueueEnds,
    decode_entry,
    encode,
    join_urls,
    next_place,
    split_urls,
)
from crawler.frontier.staging import WriteBatch
from crawler.model.types import Candidate, HostKey, Standing
from crawler.policy.priority import DOUBLING, NO_CASH, SEED_CASH

QueueName = tuple[HostKey, int]
"""Host and level."""

_READ_CHUNKS: Final = 4  # in one scan: a head has one to four
_FRONT_WINDOW: Final = 128  # entries of a front queue read at once; a read of 32 takes 40 to 200 us


class UrlQueues:
    """Waiting URLs: a FIFO per host and level. Here they are counted by level; the callers count
    them by why each moves.

    They are in chunks, each with the number of its last URL as its key. Chunks may overlap: a URL
    is in the first chunk that ends at its number or later.
    """

    def __init__(self, batch: WriteBatch, chunk_urls: int) -> None:
        self._batch = batch
        self._chunk_urls = chunk_urls
        self._waiting = batch.totals.levels
        # The ends of the chunks from which the heads in memory were read.
        self._head_chunks: dict[QueueName, deque[int]] = {}

    def append(self, record: HostRecord, queue: QueueName, urls: Sequence[Candidate]) -> None:
        """Append *urls* to *queue*, whose host has *record*, to be changed."""
        host, level = queue
        ends = record.queue_ends[level]
        if len(urls) > self._chunk_urls:
            for at in range(0, len(urls), self._chunk_urls):
                self.append(record, queue, urls[at : at + self._chunk_urls])
            return
        ends.tail += len(urls)
        self._waiting[level] += len(urls)
        self._batch.put(self._chunk(host, level, ends.tail - 1), encode(urls))

    def put_first(self, queue: QueueName, urls: Sequence[Candidate]) -> None:
        """Put *urls*, a chunk at most, before the head of *queue*."""
        host, level = queue
        ends = self._batch.host(host).queue_ends[level]
        last = ends.head - 1
        ends.head -= len(urls)
        self._waiting[level] += len(urls)
        self._batch.put(self._chunk(host, level, last), encode(urls))
        head_chunks = self._head_chunks.get(queue)
        if head_chunks is not None:
            head_chunks.appendleft(last)

    def read(self, host: HostKey, level: int, first: int, stop: int) -> list[bytes]:
        """Return the packed URLs with the numbers *first* to *stop* - 1, and leave them in the
        queue."""
        return self._read(host, level, first, stop, deque())

    def read_window(
        self, host: HostKey, level: int, first: int, stop: int
    ) -> tuple[list[bytes], deque[int]]:
        """Return as `read`, and the ends of the chunks, for `rewrite`."""
        chunks: deque[int] = deque()
        return self._read(host, level, first, stop, chunks), chunks

    def taken(self, host: HostKey, level: int) -> list[bytes]:
        """Return the packed URLs before the head of a queue that its first chunk still has."""
        head = self._batch.peek(host).queue_ends[level].head
        last, urls = next(self._chunks(host, level, head, head + 1), (head - 1, []))
        return urls[: max(0, head - last - 1 + len(urls))]

    def read_head(
        self, host: HostKey, record: HostRecord, level: int, first: int, stop: int
    ) -> list[bytes]:
        """Return as `read` the next URLs of a head, which begins where the queue does. `drop_head`
        will remove them, `end_head` ends the reading."""
        chunks = self._head_chunks.setdefault((host, level), deque())
        if first == record.queue_ends[level].head:
            chunks.clear()
        return self._read(host, level, first, stop, chunks)

    def _read(
        self, host: HostKey, level: int, first: int, stop: int, chunks: deque[int]
    ) -> list[bytes]:
        """Return as `read`, and add the ends of the chunks that were read to *chunks*."""
        found: list[bytes] = []
        for last, urls in self._chunks(host, level, first, stop):
            found += urls[first + len(found) - last - 1 :]
            if not chunks or last > chunks[-1]:
                chunks.append(last)
        del found[stop - first :]
        return found

    def drop_head(self, host: HostKey, record: HostRecord, level: int) -> None:
        """Remove the first URL of the queue, which is in its head."""
        ends = record.queue_ends[level]
        ends.head += 1
        self._waiting[level] -= 1
        chunks = self._head_chunks[host, level]
        while chunks and chunks[0] < ends.head:
            self._batch.delete(self._chunk(host, level, chunks.popleft()))

    def end_head(self, host: HostKey, level: int) -> None:
        self._head_chunks.pop((host, level), None)

    def replace_front(
        self, host: HostKey, record: HostRecord, level: int, stop: int, urls: Sequence[bytes]
    ) -> None:
        """Put packed *urls*, of the head being read, in the place of all URLs that have a number
        below *stop*."""
        ends = record.queue_ends[level]
        chunks = self._head_chunks[host, level]
        while chunks and chunks[0] < stop:
            self._batch.delete(self._chunk(host, level, chunks.popleft()))
        self._waiting[level] -= stop - len(urls) - ends.head
        ends.head = stop - len(urls)
        if urls:
            self._batch.put(self._chunk(host, level, stop - 1), join_urls(urls))
            chunks.appendleft(stop - 1)

    def rewrite(
        self, host: HostKey, level: int, first: int, urls: Sequence[bytes], chunks: deque[int]
    ) -> None:
        """Put packed *urls*, the next ones of the queue in another order, in their places, which
        were in *chunks*. No head of the queue is in memory."""
        stop = first + len(urls)
        for last in chunks:
            key = self._chunk(host, level, last)
            if last < stop:
                self._batch.delete(key)
            else:
                packed = self._batch.get(key)
                assert packed is not None, "it was read now"
                self._batch.put(key, join_urls(split_urls(packed)[stop - last - 1 :]))
        for at in range(0, len(urls), self._chunk_urls):
            some = urls[at : at + self._chunk_urls]
            self._batch.put(self._chunk(host, level, first + at + len(some) - 1), join_urls(some))

    def replace_end(
        self, host: HostKey, record: HostRecord, level: int, first: int, urls: Sequence[bytes]
    ) -> None:
        """Put packed *urls* in the place of all URLs that have number *first* or a higher one."""
        ends = record.queue_ends[level]
        stored = list(self._chunks(host, level, first, ends.tail))
        for last, _ in stored:
            self._batch.delete(self._chunk(host, level, last))
        if stored:
            last, before = stored[0]
            kept = before[: max(0, first - last - 1 + len(before))]
            if kept and first > ends.head:  # else all of these were taken
                self._batch.put(self._chunk(host, level, first - 1), join_urls(kept))
        self._waiting[level] += first + len(urls) - ends.tail
        ends.tail = first + len(urls)
        if urls:
            self._batch.put(self._chunk(host, level, ends.tail - 1), join_urls(urls))

    def rotate(
        self, record: HostRecord, queue: QueueName, stop: int, stay: Sequence[bytes]
    ) -> None:
        """Take the URLs with a number below *stop* from *queue*, no head of which is in memory, and
        append those that *stay*, packed."""
        host, level = queue
        ends = record.queue_ends[level]
        for last in [last for last, _ in self._chunks(host, level, ends.head, stop)]:
            if last < stop:
                self._batch.delete(self._chunk(host, level, last))
        self._waiting[level] += len(stay) - (stop - ends.head)
        ends.head = stop
        for at in range(0, len(stay), self._chunk_urls):
            some = stay[at : at + self._chunk_urls]
            ends.tail += len(some)
            self._batch.put(self._chunk(host, level, ends.tail - 1), join_urls(some))

    def _chunk(self, host: HostKey, level: int, last: int) -> bytes:
        return keys.chunk(self._batch.shards.of(host), host, level, last)

    def _chunks(
        self, host: HostKey, level: int, first: int, stop: int
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the chunks that have the URLs with the numbers *first* to *stop* - 1: the number of
        the last URL, and the packed URLs."""
        if stop - first == 1 and self._batch.peek(host).queue_ends[level].tail == stop:
            # The name of its chunk is known: a get takes a quarter of the time of a scan.
            packed = self._batch.get(self._chunk(host, level, first))
            if packed is not None:
                yield first, split_urls(packed)
            return
        end, most = self._chunk(host, level, keys.LAST_NUMBER), _READ_CHUNKS
        if stop - first > self._chunk_urls:  # all in one scan, however small they are
            most = stop - first + self._chunk_urls
            end = self._chunk(host, level, first + most)
        while first < stop:
            found = self._batch.scan(self._chunk(host, level, first), end, most)
            for key, packed in found:
                last = keys.number_of(key)
                yield last, split_urls(packed)
                first = last + 1
                if first >= stop:
                    return
            if len(found) < most:
                return


CASH_CLASSES: Final = 16
_OF_CLASS: Final = 2 * DOUBLING  # a class is worth a quarter of the one before


def cash_class(cash: int) -> int:
    """Return the class of a host by the cash of its best URL, from 0, the best."""
    return min(max((SEED_CASH - cash) // _OF_CLASS, 0), CASH_CLASSES - 1)


class FrontQueue:
    """The front tier: a FIFO of hosts, not URLs, per standing, level and class of cash. A host that
    is filed again leaves a stale entry behind, which has an older generation than its record."""

    def __init__(self, batch: WriteBatch, levels: int) -> None:
        self._batch = batch
        self._again = levels - 1  # the level of pages that are visited again
        self._ends = batch.totals.front
        # By standing and level: which classes have entries, as bits.
        self._filled = [[0] * levels for _ in Standing]
        for standing, level, cash in map(keys.front_place, self._ends):
            self._filled[standing][level] |= 1 << cash
        self._window: dict[bytes, bytes] = {}  # the next entries of each queue, as they were read
        self._shown: dict[int, int] = {}  # by place: where `upcoming` goes on

    def has_entries(self, standing: Standing) -> bool:
        """Return whether hosts of *standing* have entries, perhaps stale ones."""
        return any(self._filled[standing])

    def filled(self, standing: Standing) -> Sequence[int]:
        """Return by level whether hosts of *standing* have entries, perhaps stale ones."""
        return self._filled[standing]

    def best_class(self, standing: Standing, level: int) -> int:
        """Return the best class that has entries, or CASH_CLASSES if none has."""
        filled = self._filled[standing][level]
        return (filled & -filled).bit_length() - 1 if filled else CASH_CLASSES

    def waiting(self, standing: Standing, level: int) -> int:
        """Return the number of entries, stale ones among them."""
        places = (keys.place_in_front(standing, level, cash) for cash in range(CASH_CLASSES))
        return sum(len(self._ends[place]) for place in places if place in self._ends)

    def put(
        self,
        host: HostKey,
        record: HostRecord,
        level: int,
        *,
        cash: int | None = None,
        first: bool = False,
    ) -> None:
        """Put *host* at the end, or *first*, of the queue of its standing, *level* and *cash*, the
        most of its URLs there; None if that is not known to have changed. O(1)."""
        if level == self._again:
            record.cash = NO_CASH
        elif cash is not None:
            record.cash = cash
        elif level != record.level:
            record.cash = SEED_CASH  # perhaps: its turn will tell
        record.place = next_place(record.place, HostEvent.FILE)
        record.level = level
        record.generation += 1
        standing, cash = record.pace.standing, cash_class(record.cash)
        place = keys.place_in_front(standing, level, cash)
        ends = self._ends.setdefault(place, QueueEnds())
        self._filled[standing][level] |= 1 << cash
        entry = FrontEntry(host, record.generation)
        if first:
            ends.head -= 1
            self._batch.put(keys.front(place, ends.head), encode(entry))
        else:
            self._batch.put(keys.front(place, ends.tail), encode(entry))
            ends.tail += 1

    def take(self, standing: Standing, level: int) -> HostKey | None:
        """Remove the next entry of the best class and return its host, or None if the entry was
        stale. Call it only while entries are waiting. O(1)."""
        cash = self.best_class(standing, level)
        place = keys.place_in_front(standing, level, cash)
        ends = self._ends[place]
        key = keys.front(place, ends.head)
        if key not in self._window:
            end = keys.front(place, ends.tail)
            self._window.update(self._batch.scan(key, end, _FRONT_WINDOW))
        packed = self._window.pop(key, None)
        self._batch.delete(key)
        ends.head += 1
        if not len(ends):
            del self._ends[place]
            self._filled[standing][level] &= ~(1 << cash)
            self._shown.pop(place, None)
        if packed is None:
            return None
        entry = decode_entry(packed)
        record = self._batch.peek(entry.host)
        fresh = record.place is HostPlace.FRONT and record.generation == entry.generation
        return entry.host if fresh else None

    def upcoming(self, standing: Standing, level: int, limit: int) -> list[HostKey]:
        """Return the hosts of the next *limit* entries, perhaps stale ones, but of each entry only
        once: a queue that does not move costs nothing."""
        found: list[HostKey] = []
        for cash in range(CASH_CLASSES):
            place = keys.place_in_front(standing, level, cash)
            if place not in self._ends or len(found) >= limit:
                continue
            ends = self._ends[place]
            first = max(ends.head, self._shown.get(place, ends.head))
            stop = min(ends.tail, ends.head + limit - len(found))
            if first < stop:
                self._shown[place] = stop
                begin, end = keys.front(place, first), keys.front(place, stop)
                read = self._batch.scan(begin, end, stop - first)
                found += [decode_entry(packed).host for _, packed in read]
        return found


class TimedQueue:
    """Entries by the time at which they are due: hosts at rest, and later URLs.

    Due entries are removed in slices, oldest first, and the time of the next one is known without a
    read. An entry is always put at a time after the last slice."""

    def __init__(
        self, batch: WriteBatch, prefix: bytes, end: bytes | None = None, offset: int = 0
    ) -> None:
        """*end*: of the keys, if others have the same prefix; *offset*: of their times, so that
        they come behind these."""
        self._batch = batch
        self._prefix = prefix
        self._offset = offset
        self.begin = keys.timed(prefix, 0.0, b"", offset) if offset else prefix
        self._end = end or keys.prefix_end(prefix)
        # Reads begin here, behind the tombstones of entries already taken.
        self._from = self.begin
        self._next: float | None = None
        self._read_next()

    @property
    def next_at(self) -> float | None:
        """When the first entry is due, or None; may be early, never late."""
        return self._next

    def put(self, when: float, suffix: bytes, value: bytes) -> bytes:
        """Put an entry, and return its key."""
        key = keys.timed(self._prefix, when, suffix, self._offset)
        self._batch.put(key, value)
        self._from = min(self._from, key)
        if self._next is None or when < self._next:
            self._next = when
        return key

    def remove(self, key: bytes) -> None:
        """Remove the entry with this key."""
        self.drop(key)
        self._read_next()

    def drop(self, key: bytes) -> None:
        """Remove the entry with this key without a read: `next_at` may be early until the next
        `take_due`."""
        self._batch.delete(key)

    def read_again(self) -> None:
        """Read the time of the next entry: entries were written or deleted in the store."""
        self._from = self.begin
        self._read_next()

    def take_due(self, now: float, limit: int) -> list[tuple[bytes, bytes]]:
        """Remove and return up to *limit* entries with time <= *now*."""
        if self._next is None or self._next > now:
            return []
        stop = keys.due_end(self._prefix, now, self._offset)
        found = self._batch.scan(self._from, stop, limit)
        for key, _ in found:
            self._batch.delete(key)
        if len(found) == limit:
            self._from = found[-1][0] + b"\0"
            self._next = keys.time_of(found[-1][0], self._offset)
        else:
            self._from = stop
            self._read_next()
        return found

    def _read_next(self) -> None:
        first = self._batch.scan(self._from, self._end, 1)
        self._next = keys.time_of(first[0][0], self._offset) if first else None

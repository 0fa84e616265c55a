"""The outbox: found links that wait on this worker's disk until a shared frontier takes them.

Rule: a link is here from `put` until the `drop` after its acknowledgement. If the worker is killed
between the two, the link is sent again, which the seen test makes harmless.

There is a queue for each level and shard, because the server of one shard may be down or full. A
queue has consecutive numbers, so its head is found by its number and no search crosses dropped
links (docs/decisions/0007). Cost: a write for each call; memory for each queue, not for each link.

It is in the store of the worker, beside other records, so its keys begin with a letter that is
free in frontier/records.py.

    x e <level> <shard>      ends of a queue
    x l <level> <shard> <n>  a waiting link
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Generator, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    QueueEnds,
    decode_candidate,
    encode,
)
from crawler.model.types import Candidate

_ENDS: Final = b"xe"
_LINK: Final = b"xl"
_QUEUE: Final = Struct(">bH")  # level and shard; the urgent level is below 0
_MOST_QUEUES: Final = 1 << 24  # the number of such levels and shards
# 0.7 MB at most. Pages repeat their navigation: 50 links a host, of some 300 hosts.
_RECENT_KEYS: Final = 1 << 14
_PASSED: Final = 500  # links in one step of a pass: 5 ms

_decode_ends = msgspec.msgpack.Decoder(QueueEnds).decode


class QueueKey(NamedTuple):
    level: int
    shard: int


class OutboxBatch(NamedTuple):
    """The oldest links of one queue; they stay in the outbox until they are dropped."""

    queue: QueueKey
    first: int  # number of the first; the others follow it
    links: list[Candidate]


class Outbox:
    """Not for several threads at once. A call that raises StoreUnavailable has changed nothing and
    can be retried: after a full disk RocksDB writes again within seconds of room."""

    def __init__(self, store: OrderedStore, shard_of: Callable[[str], int]) -> None:
        """*shard_of* returns the shard of a registered domain, which never changes in a crawl."""
        self._store = store
        self._shard_of = shard_of
        # Shards of a level in the order of their turns.
        self._levels: dict[int, dict[int, QueueEnds]] = {}
        self._count = 0
        # Keys of links that are here, each at its place modulo the size; a later one replaces it.
        self._recent: list[int | None] = [None] * _RECENT_KEYS
        for name, packed in store.scan(_ENDS, _LINK, _MOST_QUEUES):
            self._install(QueueKey(*_QUEUE.unpack(name[len(_ENDS) :])), _decode_ends(packed))

    def __len__(self) -> int:
        return self._count

    def level_counts(self) -> dict[int, int]:
        """Return the number of links of each level that has any."""
        counts = {level: sum(map(len, turns.values())) for level, turns in self._levels.items()}
        return {level: count for level, count in sorted(counts.items()) if count}

    def put(self, found: Iterable[Candidate]) -> None:
        """Append *found* to their queues, all or none; when it returns they survive a kill of the
        process. Most links that are here already are skipped, and keep their first level."""
        links = [link for link in found if not self._is_here(link)]
        parts: defaultdict[QueueKey, list[Candidate]] = defaultdict(list)
        for link in links:
            parts[QueueKey(link.level, self._shard_of(link.domain))].append(link)
        changes: dict[bytes, bytes | None] = {}
        moved: dict[QueueKey, QueueEnds] = {}
        for queue, part in parts.items():
            ends = self._ends(queue)
            for name, link in zip(_names(queue, ends.tail, len(part)), part, strict=True):
                changes[name] = encode(link)
            moved[queue] = QueueEnds(ends.head, ends.tail + len(part))
        self._commit(changes, moved)
        for link in links:
            if link.needs_seen_test:
                self._recent[link.key % _RECENT_KEYS] = link.key

    def head(self, limit: int, skip: Container[int] = ()) -> OutboxBatch | None:
        """Return up to *limit* links of one queue: of the best level of any shard not *skip*, in
        the order they came. Shards of a level take turns. Returns None if there are none."""
        for level in sorted(self._levels):
            turns = self._levels[level]
            for shard, ends in turns.items():
                if len(ends) and shard not in skip:
                    turns[shard] = turns.pop(shard)
                    return self._batch(QueueKey(level, shard), ends, limit)
        return None

    def drop(self, batch: OutboxBatch) -> None:
        """Remove *batch*, which the frontier acknowledged. A second drop of it changes nothing."""
        ends = self._ends(batch.queue)
        if ends.head != batch.first:
            return
        dropped = len(batch.links)
        self._commit(
            dict.fromkeys(_names(batch.queue, batch.first, dropped)),
            {batch.queue: QueueEnds(batch.first + dropped, ends.tail)},
        )
        for link in batch.links:
            self._forget_recent(link)

    def forget(self, is_meant: Callable[[Candidate], bool]) -> Iterator[int]:
        """Remove the links that *is_meant* is true for, of all that are here. Yields how many,
        after each step. A batch that was taken before may be dropped without effect then."""
        queues = [QueueKey(level, at) for level, turns in self._levels.items() for at in turns]
        for queue in queues:
            stop = self._ends(queue).tail
            if (yield from self._has_any(queue, stop, is_meant)):
                while self._ends(queue).head < stop:
                    yield self._pass_some(queue, stop, is_meant)

    def _has_any(
        self, queue: QueueKey, stop: int, is_meant: Callable[[Candidate], bool]
    ) -> Generator[int, None, bool]:
        """Return whether *queue* has a link that is meant before number *stop*. It is only read: of
        most queues all would be written again."""
        at = self._ends(queue).head
        while at < stop:
            count = min(_PASSED, stop - at)
            if any(map(is_meant, self._batch(queue, QueueEnds(at, stop), count).links)):
                return True
            yield 0
            at = max(at + count, self._ends(queue).head)
        return False

    def _pass_some(self, queue: QueueKey, stop: int, is_meant: Callable[[Candidate], bool]) -> int:
        """Take the next links of *queue*, before number *stop*, and append those that stay. Return
        how many are gone."""
        ends = self._ends(queue)
        count = min(_PASSED, stop - ends.head)
        links = self._batch(queue, ends, count).links
        stay = [link for link in links if not is_meant(link)]
        changes: dict[bytes, bytes | None] = dict.fromkeys(_names(queue, ends.head, count))
        names = _names(queue, ends.tail, len(stay))
        changes |= {name: encode(link) for name, link in zip(names, stay, strict=True)}
        self._commit(changes, {queue: QueueEnds(ends.head + count, ends.tail + len(stay))})
        for link in links:
            if is_meant(link):
                self._forget_recent(link)
        return len(links) - len(stay)

    def _forget_recent(self, link: Candidate) -> None:
        if self._is_here(link):
            self._recent[link.key % _RECENT_KEYS] = None

    def _is_here(self, link: Candidate) -> bool:
        """Return whether *link* is here for sure. A link without a seen test is never skipped."""
        return link.needs_seen_test and self._recent[link.key % _RECENT_KEYS] == link.key

    def _batch(self, queue: QueueKey, ends: QueueEnds, limit: int) -> OutboxBatch:
        prefix = _LINK + _QUEUE.pack(*queue)
        start, stop = (keys.numbered(prefix, ends.head + n) for n in (0, limit))
        found = self._store.scan(start, stop, limit)
        return OutboxBatch(queue, ends.head, [decode_candidate(packed) for _, packed in found])

    def _ends(self, queue: QueueKey) -> QueueEnds:
        return self._levels.get(queue.level, {}).get(queue.shard, QueueEnds())

    def _commit(self, changes: dict[bytes, bytes | None], moved: dict[QueueKey, QueueEnds]) -> None:
        if not moved:
            return
        for queue, ends in moved.items():
            changes[_ENDS + _QUEUE.pack(*queue)] = encode(ends)
        self._store.write(changes)
        for queue, ends in moved.items():
            self._install(queue, ends)

    def _install(self, queue: QueueKey, ends: QueueEnds) -> None:
        self._count += len(ends) - len(self._ends(queue))
        self._levels.setdefault(queue.level, {})[queue.shard] = ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The outbox on our disk, for links that no server takes now, and its conditions."""

    outbox: Outbox
    is_full: Callable[[int], bool]  # whether the server of a shard takes no links now
    ensure_noted: Callable[[], Awaitable[bool]]
    """Awaited before any verdict while links wait on our disk: whether a shard has a note of that.
    Without it, if this process were killed, the crawl would end without them."""
    sync: Callable[[], None] | None  # makes the outbox survive a power cut; None: it need not


def _names(queue: QueueKey, first: int, count: int) -> list[bytes]:
    prefix = _LINK + _QUEUE.pack(*queue)
    return [keys.numbered(prefix, number) for number in range(first, first + count)]

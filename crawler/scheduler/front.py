"""The front tier: a FIFO of hosts per standing and level, on disk.

Rule: it holds hosts, not URLs, so one big host takes one place. A host that is filed
again leaves its older entry behind, which its generation shows to be stale.
"""

from __future__ import annotations

from crawler.core.types import HostKey, Standing
from crawler.scheduler import keys
from crawler.scheduler.books import Books
from crawler.scheduler.places import Event, Place, move
from crawler.scheduler.records import FrontEntry, HostRecord, decode_entry, encode


class Front:
    def __init__(self, books: Books) -> None:
        self._books = books

    def busy(self, standing: Standing) -> list[int]:
        """The levels with entries of such hosts, stale ones among them."""
        fronts = self._books.totals.fronts()[standing]
        return [level for level, ends in enumerate(fronts) if len(ends)]

    def file(self, host: HostKey, record: HostRecord, level: int, *, first: bool = False) -> None:
        """To the end of *level*'s queue of such hosts, or *first* of them. O(1)."""
        record.place = move(record.place, Event.FILE)
        record.level = level
        record.generation += 1
        standing = record.pace.standing
        ends = self._books.totals.fronts()[standing][level]
        entry = FrontEntry(host, record.generation)
        if first:
            ends.head -= 1
            self._books.put(keys.front(standing, level, ends.head), encode(entry))
        else:
            self._books.put(keys.front(standing, level, ends.tail), encode(entry))
            ends.tail += 1

    def take(self, standing: Standing, level: int) -> HostKey | None:
        """The next entry's host; None if the entry was stale. Call only while `busy`. O(1)."""
        ends = self._books.totals.fronts()[standing][level]
        key = keys.front(standing, level, ends.head)
        packed = self._books.get(key)
        self._books.delete(key)
        ends.head += 1
        if packed is None:
            return None
        entry = decode_entry(packed)
        record = self._books.peek(entry.host)
        fresh = record.place is Place.FRONT and record.generation == entry.generation
        return entry.host if fresh else None

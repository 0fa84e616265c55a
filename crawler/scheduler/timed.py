"""What waits for a time, on disk: hosts at rest and later URLs, ordered by when.

Rule: what has come due is moved out in slices, oldest first; the time of the next one is
known without a read. An entry is always put at a time that lies ahead of the last slice.
"""

from __future__ import annotations

from crawler.scheduler import keys
from crawler.scheduler.books import Books


class Timed:
    def __init__(self, books: Books, prefix: bytes) -> None:
        self._books = books
        self._prefix = prefix
        # Reads begin here, behind the tombstones of what was taken.
        self._from = prefix
        self._next: float | None = None
        self._look()

    @property
    def next_at(self) -> float | None:
        """When the first entry comes due; may be early, never late."""
        return self._next

    def put(self, when: float, rest: bytes, value: bytes) -> None:
        key = keys.timed(self._prefix, when, rest)
        self._books.put(key, value)
        self._from = min(self._from, key)
        if self._next is None or when < self._next:
            self._next = when

    def take_due(self, now: float, limit: int) -> list[tuple[bytes, bytes]]:
        """Remove and return up to *limit* entries with time <= *now*."""
        if self._next is None or self._next > now:
            return []
        stop = keys.until(self._prefix, now)
        found = self._books.scan(self._from, stop, limit)
        for key, _ in found:
            self._books.delete(key)
        if len(found) == limit:
            self._from = found[-1][0] + b"\0"
            self._next = keys.time_of(found[-1][0])
        else:
            self._from = stop
            self._look()
        return found

    def _look(self) -> None:
        first = self._books.scan(self._from, keys.after(self._prefix), 1)
        self._next = keys.time_of(first[0][0]) if first else None

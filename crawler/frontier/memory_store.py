"""An ordered store in memory, for tests, simulations, and crawls that end with their process."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

_MANY: Final = 1000  # new keys that are sorted with the others; fewer are put in their places


class _SortedKeys:
    """Keys that begin with the same byte. New ones are put in their places by the next scan: those
    of leases and of digests, which come in no order, are hardly ever scanned."""

    __slots__ = ("_new", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[bytes] = []
        self._new: dict[bytes, None] = {}

    def add(self, key: bytes) -> None:
        self._new[key] = None

    def remove(self, key: bytes) -> None:
        if key in self._new:
            del self._new[key]
        else:
            del self._sorted[bisect_left(self._sorted, key)]

    def between(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        """Return up to *limit* keys with start <= key < stop, in order."""
        if len(self._new) > _MANY:
            self._sorted = sorted([*self._sorted, *self._new])
        else:
            for key in self._new:
                insort(self._sorted, key)
        self._new.clear()
        first = bisect_left(self._sorted, start)
        return self._sorted[first : min(first + limit, bisect_left(self._sorted, stop, first))]


class MemoryStore:
    """Implements port.DurableStore, but nothing is on a disk."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[int, _SortedKeys] = {}  # by their first byte

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found: list[bytes] = []
        for first in range(start[0] if start else 0, stop[0] + (len(stop) > 1)):
            if first in self._keys:
                found += self._keys[first].between(start, stop, limit - len(found))
        return [(key, self._values[key]) for key in found]

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        values = self._values
        for key, value in changes.items():
            if value is None:
                if values.pop(key, None) is not None:
                    self._keys[key[0]].remove(key)
            else:
                if key not in values:
                    if key[0] not in self._keys:
                        self._keys[key[0]] = _SortedKeys()
                    self._keys[key[0]].add(key)
                values[key] = value

    def sync(self) -> None: ...

    def close(self) -> None: ...

"""An ordered store in memory, for tests and for crawls that end with their process."""

from __future__ import annotations

from bisect import bisect_left, insort


class MemoryStore:
    """Implements port.DurableStore, but nothing is on a disk."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        first = bisect_left(self._keys, start)
        found = self._keys[first : min(first + limit, bisect_left(self._keys, stop))]
        return [(key, self._values[key]) for key in found]

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value

    def sync(self) -> None: ...

    def close(self) -> None: ...

"""A store to try something out in: the records of another one, with changes that are never written
there.

Rule: the other store is only read. What is changed is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import Final

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import ReadableStore

_GONE, _THERE = b"\0", b"\1"
"""Begin what is kept of a change: the record was deleted, or what follows is it."""
_MANY: Final = 256  # records read at once of one of the two


class OverlayStore:
    """Implements port.DurableStore over one that is only read."""

    def __init__(self, below: ReadableStore, hidden: Iterable[bytes] = ()) -> None:
        """*hidden*: letters of records that are as if there were none below."""
        self._below = below
        self._hidden = frozenset(letter[0] for letter in hidden)
        self._changes = MemoryStore()
        self._changed: set[int] = set()  # the letters of these

    def get(self, key: bytes) -> bytes | None:
        changed = self._changes.get(key)
        if changed is not None:
            return changed[1:] if changed.startswith(_THERE) else None
        return None if key[0] in self._hidden else self._below.get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if start[:1] != stop[:1] and start:
            last = stop[0] - (len(stop) == 1)
            if start[0] < last:  # over several letters
                first = self.scan(start, bytes([start[0] + 1]), limit)
                rest = limit - len(first)
                return first + (self.scan(bytes([start[0] + 1]), stop, rest) if rest else [])
        if start[:1] and start[0] in self._hidden:
            below = []
        else:
            below = self._below.scan(start, stop, limit)
        if not (start and start[0] in self._changed):
            return below
        found: list[tuple[bytes, bytes]] = []
        size = max(limit, _MANY)
        while True:
            # Beyond the last record that was read of one of the two there may be others.
            end = below[-1][0] + b"\0" if len(below) == limit else stop
            changed = self._changes.scan(start, end, size)
            if not changed and not found and end == stop:
                return below
            if len(changed) == size:
                end = changed[-1][0] + b"\0"
            found += islice(_merged(below, dict(changed), end), limit - len(found))
            if len(found) == limit or end == stop:
                return found
            start = end
            below = [] if start[0] in self._hidden else self._below.scan(start, stop, limit)

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        self._changed.update(key[0] for key in changes)
        self._changes.write(
            {key: _GONE if value is None else _THERE + value for key, value in changes.items()}
        )

    def sync(self) -> None:
        """Do nothing: there is nothing to keep."""

    def close(self) -> None:
        """Do nothing: the other store is its owner's."""


def _merged(
    below: list[tuple[bytes, bytes]], changes: dict[bytes, bytes], end: bytes
) -> Iterable[tuple[bytes, bytes]]:
    """Return the records *below* before *end*, with *changes*, in order."""
    kept = (pair for pair in below if pair[0] < end and pair[0] not in changes)
    put = ((key, value[1:]) for key, value in changes.items() if value.startswith(_THERE))
    return merge(kept, put)

"""Seen: do we know this URL? Exact, on disk, with the latest answers in memory.

Rule: "seen" is said only of a key that was admitted; the memory in front never decides alone
against the store, it only spares the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from crawler.scheduler import keys
from crawler.scheduler.books import Books

# Eight of nine links were met before, most of them lately. Two generations of this many
# keys take about 5 MB and answer most questions (a guess to be measured per crawl).
RECENT: Final = 30_000


class SeenKeys:
    def __init__(self, books: Books, recent: int = RECENT) -> None:
        self._books = books
        self._limit = recent
        self._young: set[int] = set()
        self._old: set[int] = set()

    def unseen(self, asked: Sequence[int]) -> set[int]:
        """Which of *asked* were never admitted."""
        unsure = [key for key in asked if key not in self._young and key not in self._old]
        known = self._books.has([keys.numbered(keys.SEEN, key) for key in unsure])
        fresh = {key for key, seen in zip(unsure, known, strict=True) if not seen}
        self._remember(key for key in unsure if key not in fresh)
        return fresh

    def admit(self, fresh: Sequence[int]) -> None:
        for key in fresh:
            self._books.put(keys.numbered(keys.SEEN, key), b"")
        self._books.totals.seen += len(fresh)
        self._remember(fresh)

    def _remember(self, fresh: Iterable[int]) -> None:
        self._young.update(fresh)
        if len(self._young) > self._limit:
            self._old, self._young = self._young, set()

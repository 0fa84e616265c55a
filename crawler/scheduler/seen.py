"""Seen: do we know this URL? Exact, on disk, with the latest answers in memory.

Rule: "seen" is said only of a key that was admitted; the memory in front never decides alone
against the store, it only spares the question.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
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

    def unseen(self, asked: Sequence[int]) -> dict[int, bytes]:
        """Which of *asked* were never admitted, with the keys of the store that say so."""
        young, old = self._young, self._old
        unsure = [key for key in asked if key not in young and key not in old]
        names = keys.all_numbered(keys.SEEN, unsure)
        known = self._books.has(names)
        self._remember(compress(unsure, known))
        return {key: name for key, name, seen in zip(unsure, names, known, strict=True) if not seen}

    def admit(self, fresh: Mapping[int, bytes]) -> None:
        """*fresh*: of what `unseen` has given."""
        self._books.put_all(zip(fresh.values(), repeat(b"")))
        self._books.totals.seen += len(fresh)
        self._remember(fresh)

    def _remember(self, fresh: Iterable[int]) -> None:
        self._young.update(fresh)
        if len(self._young) > self._limit:
            self._old, self._young = self._young, set()

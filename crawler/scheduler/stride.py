"""Which level has the next turn: stride scheduling (Waldspurger and Weihl, 1995).

Rule: deterministic. With all levels busy, after n picks a level of share w has had
n w / sum(w) of them, off by less than one pick a level; none starves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Stride:
    def __init__(self, shares: Sequence[float]) -> None:
        self._steps = [1.0 / share for share in shares]
        self._passes = list(self._steps)
        self._last = 0.0

    def order(self, busy: Iterable[int]) -> list[int]:
        """The *busy* levels, the one whose turn it is first."""
        # A level that was idle joins at the present, or it would catch up in one burst.
        return sorted(busy, key=lambda level: (max(self._passes[level], self._last), level))

    def charge(self, level: int) -> None:
        """*level* has had a turn."""
        self._last = max(self._passes[level], self._last)
        self._passes[level] = self._last + self._steps[level]

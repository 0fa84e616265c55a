"""The one clock: wall time is read once, then it only goes forward."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time


class Clock:
    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """*not_before*: epoch seconds an earlier run has reached; the clock begins there if
        the machine's was set back since."""
        self._steady = steady
        self._offset_s = max(wall(), not_before) - steady()

    def now(self) -> float:
        """Epoch seconds. Never goes back."""
        return self._offset_s + self._steady()

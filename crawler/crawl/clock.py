"""The clock of a crawl: reads wall time once, and from then on never goes back."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, time


class Clock:
    """Epoch seconds that never go back, within a run and from one run to the next."""

    def __init__(
        self,
        not_before: float = 0.0,
        wall: Callable[[], float] = time,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """*not_before*: the epoch seconds that an earlier run reached; the clock starts there if
        the machine's clock was set back since."""
        self._steady = steady
        self._offset_s = max(wall(), not_before) - steady()

    def now(self) -> float:
        """Return epoch seconds, which never go back."""
        return self._offset_s + self._steady()

"""The clock of a crawl: reads wall time once, and from then on never goes back.

Rule: the clocks of the machine are arguments.
"""

from __future__ import annotations

from collections.abc import Callable


class Clock:
    """Epoch seconds that never go back, within a run and from one run to the next."""

    def __init__(
        self, wall: Callable[[], float], steady: Callable[[], float], not_before: float = 0.0
    ) -> None:
        """*wall*: epoch seconds; *steady*: seconds that never go back. *not_before*: the epoch
        seconds that an earlier run reached; the clock starts there if the machine's clock was set
        back since."""
        self._steady = steady
        self._offset_s = max(wall(), not_before) - steady()

    def now(self) -> float:
        """Return epoch seconds, which never go back."""
        return self._offset_s + self._steady()

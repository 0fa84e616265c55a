"""Waiting for room on a full disk.

Rule: while the disk is full nothing is leased, and what it refused is kept in memory and written
when there is room. A crawl that stops does not wait: what was acknowledged is safe.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

from crawler.model.types import StoreFull

logger = logging.getLogger(__name__)

FULL_S: Final = 2.0  # after a write was refused nothing is leased for so long
TROUBLE_OVER_S: Final = 3.0
"""A problem is over if it was not reported for so long. Each server is called once a second, and a
failed call is retried twice as often; a full disk is tried once a second."""


class WaitWarnings:
    """Logs what the crawl waits for: once when it begins, and once when it is over."""

    def __init__(self, steady: Callable[[], float] = monotonic) -> None:
        self._steady = steady
        self._last_met: dict[str, float] = {}  # by their kind
        self._checked_at = steady()

    def report(self, kind: str, text: str) -> None:
        """Log *text*, unless a trouble of the same *kind* is not over yet."""
        if kind not in self._last_met:
            logger.warning("Waiting: %s", text)
        self._last_met[kind] = self._steady()

    @property
    def awaited(self) -> str:
        """What is waited for, in words; empty: nothing."""
        return next(reversed(self._last_met), "")

    def log_recovered(self) -> None:
        """Log which troubles are over. To be called about once a second."""
        steady = self._steady()
        if (
            steady - self._checked_at > TROUBLE_OVER_S / 2
        ):  # our event loop was blocked, so no problem could be reported
            self._last_met = dict.fromkeys(self._last_met, steady)
        self._checked_at = steady
        for kind, last_met in list(self._last_met.items()):
            if steady - last_met > TROUBLE_OVER_S:
                del self._last_met[kind]
                logger.info("Going on: %s", kind)


class DiskRoom:
    """Whether the disk of the data directory has room. If not, the crawl waits and keeps its
    leases, but not at its end."""

    def __init__(
        self,
        warnings: WaitWarnings,
        disk: str,
        is_hopeless: Callable[[], bool],
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """*disk* is its name in the log. *is_hopeless* returns whether the crawl ends anyway."""
        self._warnings = warnings
        self._disk = disk
        self._is_hopeless = is_hopeless
        self._steady = steady
        self._full_at: float | None = None  # monotonic; None: never
        self._is_ending = False

    @property
    def is_full(self) -> bool:
        return self._full_at is not None and self._steady() - self._full_at < FULL_S

    @property
    def awaited(self) -> str:
        """What the crawl waits for, in words: room, or in a shared crawl its servers, too. Empty:
        nothing."""
        return self._warnings.awaited

    def wait_for_room(self, full: StoreFull) -> bool:
        """Note that the disk has no room, so that nothing is leased for FULL_S. Returns whether to
        try again: not at the end of the crawl. May be called in a thread."""
        self._full_at = self._steady()
        self._warnings.report(
            f"there is room on {self._disk}",
            f"no room on {self._disk}, so nothing is fetched: {full}",
        )
        return not self._is_ending and not self._is_hopeless()

    def report_wait(self, kind: str, text: str) -> None:
        """Say that the crawl waits for something else, *kind* in words; *text* says why. To be
        called about once a second, as long as it does."""
        self._warnings.report(kind, text)

    def log_recovered(self) -> None:
        """Log once that there is room again. To be called about once a second."""
        self._warnings.log_recovered()

    def stop_waiting(self) -> None:
        """Let nothing wait for room from now on."""
        self._is_ending = True

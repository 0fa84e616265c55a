"""What a person sees of many workers: one line on a terminal, log lines elsewhere.

Rule: as the single crawl's, and made of the same words. Showing never harms the crawl.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from crawler.core.choices import ProgressStyle
from crawler.ops.figures import many, number, plain, rate, size
from crawler.ops.logbook import shares_terminal
from crawler.ops.progress import style_of
from crawler.ops.screen import Screen
from crawler.ops.workforce_look import SharedGlance

logger = logging.getLogger(__name__)

STOPPING: Final = "Stopping: fetches under way are put back. Once more, and it ends at once."
_TOLD_CHARS: Final = 600


class WorkforceScreen:
    def __init__(self, screen: Screen, wanted: ProgressStyle, log_s: float) -> None:
        self._screen = screen
        self._style = style_of(wanted, screen.is_terminal, shares_terminal())
        self.is_line = self._style is ProgressStyle.LINE
        self._log_s = log_s
        self._log_at = 0.0

    def show(self, glance: SharedGlance, now: float) -> None:
        """As often as one likes: a log line comes when its time has come."""
        if self.is_line:
            with suppress(OSError, ValueError):  # the terminal is gone
                self._screen.draw(line(glance, self._screen.columns))
        elif self._style is ProgressStyle.LOG and now >= self._log_at:
            if self._log_at:
                logger.info("%s", sentence(glance))
            self._log_at = now + self._log_s

    def tell(self, said: str) -> None:
        """A sentence that stays."""
        if self.is_line:
            with suppress(OSError, ValueError):
                self._screen.tell(plain(said, _TOLD_CHARS))
        else:
            logger.info("%s", said)

    def end(self) -> None:
        with suppress(OSError, ValueError):
            self._screen.wipe()


def line(glance: SharedGlance, columns: int) -> str:
    """As much of *glance* as fits into *columns*, the most important first."""
    fields = [
        many(glance.pages, "page"),
        f"{rate(glance.pages_per_s)}/s",
        many(glance.workers, "worker"),
        f"{number(glance.leased)} under way",
        f"{number(glance.waiting)} waiting",
        many(glance.errors, "error"),
        size(glance.size_bytes),
    ]
    while len(text := " | ".join(fields)) >= columns:  # in the last column some terminals wrap
        fields.pop()
    return text


def sentence(glance: SharedGlance) -> str:
    """The same for a log."""
    return (
        f"{many(glance.pages, 'page')} ({rate(glance.pages_per_s)} a second) by"
        f" {many(glance.workers, 'worker')}, {many(glance.leased, 'URL')} under way,"
        f" {many(glance.waiting, 'URL')} waiting, {many(glance.errors, 'error')},"
        f" {size(glance.size_bytes)}"
    )

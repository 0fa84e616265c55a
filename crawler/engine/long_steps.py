"""What a start is busy with: steps that may take long, such as opening the index of seen URLs.

Rule: a step that takes less than a second is not mentioned. A longer one is logged when the second
is over, every five seconds, and at its end; records between these are for a bar on a terminal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Final

logger = logging.getLogger(__name__)

STEP: Final = "step"
"""The attribute of a log record that holds its `Step`."""
SHOW_AT_ONCE: Final = "at_once"
"""An attribute of log records that are shown at once, even while the log is held at the start."""
_FIRST_S: Final = 1.0
_LOGGED_S: Final = 5.0
_DRAWN_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the start at one moment."""

    what: str
    seconds: float  # since it began
    share: float | None  # done, from 0 to 1; None: unknown
    is_over: bool = False

    def __str__(self) -> str:
        share = "" if self.share is None else f", {self.share:.0%}"
        return f"{self.what}: {self.seconds:.0f} s so far{share}"


@contextmanager
def long_step(what: str, share: Callable[[], float] | None = None) -> Iterator[None]:
    """Report the step *what* while the block runs, if that takes more than a second. *share*, which
    another thread calls, returns how much of it is done, from 0 to 1; None: that is not known."""
    began, over = monotonic(), threading.Event()
    given = (what, share, began, over)
    reports = threading.Thread(target=_report, args=given, name="start", daemon=True)
    reports.start()
    try:
        yield
    finally:
        over.set()
        reports.join()


def _report(
    what: str, share: Callable[[], float] | None, began: float, over: threading.Event
) -> None:
    if over.wait(_FIRST_S):
        return
    logged = -inf
    while True:
        now = monotonic()
        step = Step(what, now - began, share() if share else None)
        level = logging.INFO if now - logged >= _LOGGED_S else logging.DEBUG
        logged = now if level == logging.INFO else logged
        logger.log(level, "%s", step, extra={STEP: step})
        if over.wait(_DRAWN_S):
            break
    took_s = monotonic() - began
    ended = Step(what, took_s, 1.0, is_over=True)
    logger.info("%s: done in %.1f s", what, took_s, extra={STEP: ended})

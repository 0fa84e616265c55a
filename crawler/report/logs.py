"""Where the log goes while a line is drawn on the terminal: into the data directory, and what
a person must know above the line.

Rule: nothing is written into a data directory before it is known to be ours, so what is
logged earlier is held back.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from pathlib import Path
from typing import Any, Final

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.logformatter import LogFormatter, LogFormatterResult
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.log import install_scrapy_root_handler
from twisted.python.failure import Failure

from crawler.report.figures import plain
from crawler.report.screen import Screen
from crawler.shared.worker.join import AT_ONCE

# A start logs some twenty lines; a list of seeds at most as many of bad lines.
_HELD: Final = 1000
_NOTICES: Final = 50  # more would only scroll by, and all of them are in the log
_NOTICE_CHARS: Final = 400
OURS: Final = ("crawler", "web")


class HeldLog(logging.Handler):
    """Keeps the log until it is known where it belongs. Bounded: the newest are kept."""

    def __init__(self) -> None:
        super().__init__()
        self._records: deque[logging.LogRecord] = deque(maxlen=_HELD)

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, AT_ONCE):
            print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr, flush=True)
        self._records.append(record)

    def let_go(self) -> None:
        """Leave the root logger, and give what was held to those who are there now."""
        logging.root.removeHandler(self)
        while self._records:
            record = self._records.popleft()
            for handler in logging.root.handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)


class Notices(logging.Handler):
    """Warnings of ours and errors of anybody, each in one line, above the line of progress."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._room = _NOTICES

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR and record.name.split(".")[0] not in OURS:
            return
        if hasattr(record, AT_ONCE):  # it was shown while the log was held
            return
        self._room -= 1
        if self._room >= 0:
            first, *_ = record.getMessage().splitlines() or [""]
            self._screen.tell(f"{record.levelname.lower()}: {plain(first, _NOTICE_CHARS)}")
        elif self._room == -1:
            self._screen.tell("more of these are in the log")


def hold_log() -> HeldLog:
    """From now on until it lets go, nothing that is logged is shown or written."""
    held = HeldLog()
    logging.root.setLevel(logging.NOTSET)  # as Scrapy does: the handlers choose
    logging.root.addHandler(held)
    return held


def write_log(settings: BaseSettings, file: Path) -> str:
    """Log into *file*, unless the *settings* (a spider's own, say) name another; its name."""
    own = Settings(settings)
    name = settings["LOG_FILE"] or str(file)
    own.set("LOG_FILE", name, priority="cmdline")
    install_scrapy_root_handler(own)
    return str(name)


def shares_terminal() -> bool:
    """Whether the log is written to a terminal, where it would tear a line apart."""
    return any(
        isinstance(handler, logging.StreamHandler) and handler.stream.isatty()
        for handler in logging.root.handlers
    )


# Scrapy's lines about each page, where somebody hears them.
#
# Rule: nothing is logged otherwise than by Scrapy; what no handler would take is not even made.


class PageLines(LogFormatter):
    """At LOG_LEVEL INFO, as here, Scrapy makes two records a page and throws both away: 50 us."""

    # Scrapy's document that None is no line; its types do not.
    def crawled(  # type: ignore[override]  # None
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        return super().crawled(request, response, spider) if _is_heard(_ENGINE) else None

    def scraped(  # type: ignore[override]  # None
        self, item: Any, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        return super().scraped(item, response, spider) if _is_heard(_SCRAPER) else None


_ENGINE = logging.getLogger("scrapy.core.engine")
_SCRAPER = logging.getLogger("scrapy.core.scraper")


def _is_heard(logger: logging.Logger) -> bool:
    """Whether any handler takes what *logger* says of a page."""
    if not logger.isEnabledFor(logging.DEBUG):
        return False
    above: logging.Logger | None = logger
    while above is not None:
        if any(handler.level <= logging.DEBUG for handler in above.handlers):
            return True
        above = above.parent if above.propagate else None
    return False

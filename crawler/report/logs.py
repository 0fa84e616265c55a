"""Write the log to the data directory, and warnings and errors above the progress line.

Rule: records are held back until the data directory is locked, as nothing may be written into the
directory of another crawl.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from scrapy import Request, Spider
from scrapy.http import Response
from scrapy.logformatter import LogFormatter, LogFormatterResult
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.log import install_scrapy_root_handler
from twisted.python.failure import Failure

from crawler.engine.long_steps import SHOW_AT_ONCE, STEP, Step
from crawler.model.types import StoreUnavailable, is_out_of_room
from crawler.report.screen import Screen, step_line
from crawler.view.formats import plain

# A start logs some twenty lines, and a list of seeds at most twenty of its bad lines.
_MAX_HELD: Final = 1000
_MAX_NOTICES: Final = 50  # more would only scroll by, and all of them are in the log
_NOTICE_CHARS: Final = 400
OUR_LOGGERS: Final = ("crawler", "web")


class HeldLog(logging.Handler):
    """Holds log records until the log file is known, and shows the steps of a start that take long
    on the terminal. Bounded: the newest are kept."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self._records: deque[logging.LogRecord] = deque(maxlen=_MAX_HELD)

    def emit(self, record: logging.LogRecord) -> None:
        step: Step | None = getattr(record, STEP, None)
        with suppress(OSError, ValueError):  # the terminal is gone
            if step is not None and step.is_over:
                self._screen.wipe()
            elif step is not None:
                self._screen.draw(step_line(step, self._screen.columns))
            elif hasattr(record, SHOW_AT_ONCE):
                self._screen.show_message(f"{record.levelname.lower()}: {record.getMessage()}")
        if step is None or record.levelno >= logging.INFO:
            self._records.append(record)

    def release_records(self) -> None:
        """Remove this handler, and pass the held records to the handlers of the root logger."""
        logging.root.removeHandler(self)
        while self._records:
            record = self._records.popleft()
            for handler in logging.root.handlers:
                if record.levelno >= handler.level:
                    handler.handle(record)


class Notices(logging.Handler):
    """Shows warnings of our loggers and all errors above the progress line, one line each."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen
        self._room = _MAX_NOTICES

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < logging.ERROR and record.name.split(".")[0] not in OUR_LOGGERS:
            return
        if hasattr(record, SHOW_AT_ONCE):  # it was shown while the log was held
            return
        self._room -= 1
        if self._room >= 0:
            first, *_ = record.getMessage().splitlines() or [""]
            self._screen.show_message(f"{record.levelname.lower()}: {plain(first, _NOTICE_CHARS)}")
        elif self._room == -1:
            self._screen.show_message("more of these are in the log")


def hold_log() -> HeldLog:
    """Hold all records from now on, until `release_records` of the handler that is returned."""
    held = HeldLog(Screen(sys.stderr))
    logging.root.setLevel(logging.NOTSET)  # as Scrapy does: the handlers choose
    logging.root.addHandler(held)
    return held


def outlast_full_disks() -> None:
    """Let the handlers of the log skip the records for which a disk has no room. Otherwise
    logging prints a traceback to stderr for each."""
    for handler in logging.root.handlers:
        if isinstance(handler, logging.StreamHandler):
            on_error = partial(_skip_if_full, handler.handleError)
            handler.handleError = on_error  # type: ignore[method-assign]  # Scrapy builds it


def _skip_if_full(
    otherwise: Callable[[logging.LogRecord], None], record: logging.LogRecord
) -> None:
    error = sys.exception()
    if not (isinstance(error, OSError) and is_out_of_room(error)):
        otherwise(record)


def write_log(settings: BaseSettings, file: Path) -> str:
    """Log to LOG_FILE of *settings*, or to *file* if that is unset, and return the file's name."""
    own = Settings(settings)
    name = settings["LOG_FILE"] or str(file)
    own.set("LOG_FILE", name, priority="cmdline")
    install_scrapy_root_handler(own)
    return str(name)


def logs_to_terminal() -> bool:
    """Return whether the log goes to a terminal, where it would break the progress line."""
    return any(
        isinstance(handler, logging.StreamHandler)
        and handler.stream is not None  # as where a process was started without a stderr
        and handler.stream.isatty()
        for handler in logging.root.handlers
    )


class PageLogFormatter(LogFormatter):
    """Scrapy's formatter without the records of each page that no handler takes: at LOG_LEVEL INFO,
    as here, Scrapy makes two a page and drops both, for 50 us."""

    # Scrapy's documentation allows None, for no record; its types do not.
    def crawled(  # type: ignore[override]  # None
        self, request: Request, response: Response, spider: Spider
    ) -> LogFormatterResult | None:
        return super().crawled(request, response, spider) if _has_handler(_ENGINE) else None

    def dropped(  # type: ignore[override]  # None
        self, item: Any, exception: BaseException, response: Any, spider: Spider
    ) -> LogFormatterResult | None:
        # What ends the crawl is logged once, not for each page that it leaves behind.
        is_put_back = isinstance(exception.__cause__, StoreUnavailable)
        return None if is_put_back else super().dropped(item, exception, response, spider)

    def scraped(  # type: ignore[override]  # None
        self, item: Any, response: Response | Failure | None, spider: Spider
    ) -> LogFormatterResult | None:
        return super().scraped(item, response, spider) if _has_handler(_SCRAPER) else None


_ENGINE = logging.getLogger("scrapy.core.engine")
_SCRAPER = logging.getLogger("scrapy.core.scraper")


def _has_handler(logger: logging.Logger) -> bool:
    """Return whether any handler takes the DEBUG records of *logger*."""
    if not logger.isEnabledFor(logging.DEBUG):
        return False
    above: logging.Logger | None = logger
    while above is not None:
        for handler in above.handlers:
            if handler.level <= logging.DEBUG:
                return True
        above = above.parent if above.propagate else None
    return False

"""What `scrapy crawl` does: a crawl with one-sentence errors, a progress line and exit statuses.

Rule: status 0: the crawl finished or was stopped on request; 1: it could not begin, no page could
be fetched, a store failed, or a second Ctrl-C ended it at once; 75: the servers of its frontier
could not be reached within CRAWLER_REDIS_WAIT_S.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import FrameType
from typing import Final

from scrapy import Spider, signals
from scrapy.crawler import Crawler, CrawlerProcessBase
from scrapy.exceptions import UsageError
from scrapy.settings import SETTINGS_PRIORITIES, BaseSettings
from scrapy.utils.conf import arglist_to_dict
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.assembly.components import added_components
from crawler.assembly.crawl import Crawl
from crawler.config.arguments import join_repeated
from crawler.content.parsing import Parsers
from crawler.data.data_dir import LOG
from crawler.model.choices import ProgressStyle
from crawler.model.types import ConfigError, CrawlerError
from crawler.report.endings import (
    FAILED,
    TRY_AGAIN,
    ending,
)
from crawler.report.extensions import Report
from crawler.report.logs import (
    HeldLog,
    Notices,
    hold_log,
    outlast_full_disks,
    write_log,
)
from crawler.report.messages import open_closed_outputs, print_error
from crawler.report.screen import Screen
from crawler.report.summary import nothing_fetched
from crawler.shared.faults import Unreachable
from crawler.spiders.web import WebSpider

logger = logging.getLogger(__name__)


_COLLECT_AFTER: Final = 50_000
"""New objects between two collections, which then look at them for 10 ms. A page makes and frees
more than Python's 700, and leaves no cycle: after 10,000 objects nearly all are of pages under way,
which took 26 us of a page, and now 4."""


def collect_less_often(crawler: Crawler) -> None:
    """Freeze the objects made until now, enable collection, and make it seldom if that is safe."""
    gc.freeze()  # with some 1,000 objects of garbage, which it would take 80 ms to find
    gc.enable()
    parsers = crawl_of(crawler).content.parsers
    if leaves_no_cycles(crawler.spidercls, crawler.settings, parsers):
        gc.set_threshold(_COLLECT_AFTER)
        gc.callbacks.append(freeze_survivors)


def freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    """Let the objects that have lived through a collection not be looked at again: what a frontier
    has in memory of hosts and URLs (the first full collection of a crawl that knows a million hosts
    held the event loop 270 ms), and the pages under way. Garbage in cycles stays from then on; what
    is made for a page has none, nor does a fetch that fails, but for that of a name with several
    addresses."""
    if phase == "stop":
        gc.freeze()


def leaves_no_cycles(spider: type[Spider], settings: BaseSettings, parsers: Parsers) -> bool:
    """Return False if a user's code may use `response.css`: answer and selector are a cycle then,
    with body, text and tree: 500 pages of 200 KB took 185 MB with Python's 700 and 1.5 GB with
    10,000. Also if a user's parser may leave a cyclic tree, as BeautifulSoup does."""
    return spider is WebSpider and not any(added_components(settings)) and parsers.are_built_in


_MAPPED_BYTES: Final = 1 << 20  # blocks that RocksDB takes for what is written
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc


def give_memory_back() -> None:
    """Let glibc give large blocks back to the system when they are freed, and keep one heap for all
    threads. By itself it raises the size from which it does so with each block that is freed, up to
    32 MB, and has a heap for each thread, of which none is used by the others: a quarter of what
    a list of a million seeds takes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * _MAPPED_BYTES)  # as glibc sets the two
        mallopt(_M_ARENA_MAX, 1)


def end_at_hangup() -> None:
    """Let SIGHUP, which a terminal sends when it is closed, end the crawl as SIGTERM does. It stays
    ignored where nohup has set it so."""
    if (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGHUP, _hang_up)


def _hang_up(_number: int, _frame: FrameType | None) -> None:
    # Kernel and shell send one each, and a second SIGTERM would end the crawl at once.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)


class EndedAtOnce(Exception):
    """A second Ctrl-C ended the process before the crawl was closed."""


def one_spider(args: Sequence[str], known: Sequence[str], command: str) -> str:
    """Return the name of the spider in *args*: of none our own, if it is among the *known*. Raises
    UsageError for anything else, with *command* as it would be right."""
    if not args and WebSpider.name in known:
        return WebSpider.name
    if len(args) != 1 or args[0].startswith("-"):
        raise UsageError(f"name one spider, for example: {command} web -a seeds=seeds.txt")
    return args[0]


def known_spider(name: str, known: Sequence[str]) -> str:
    """Return *name*. Raises ConfigError with the nearest of the *known* if it is none of them."""
    if name not in known:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise ConfigError(f"there is no spider {name}; {hint}")
    return name


class CrawlRun:
    """One run of `scrapy crawl` or `scrapy runspider`, from the first log line to the exit status.
    *spider_arguments* are as typed: NAME=VALUE."""

    def __init__(self, settings: BaseSettings, spider_arguments: Sequence[str]) -> None:
        open_closed_outputs()
        self._settings = settings
        self._given = list(spider_arguments)
        self._held: HeldLog | None = None
        self._begun: Crawl | None = None  # None: the crawl has not begun
        self._report: Report | None = None
        self._reason = ""
        if self._keeps_terminal_clear():
            settings.set("LOG_INSTALL_ROOT_HANDLER", False, priority="cmdline")
            self._held = hold_log()

    def run(
        self,
        process: CrawlerProcessBase,
        create_crawler: Callable[[], Crawler],
        opts: argparse.Namespace,
    ) -> int:
        """Run the crawl and return the exit status."""
        give_memory_back()
        end_at_hangup()
        try:
            error = self._crawl(process, create_crawler(), opts)
        except CrawlerError as refused:
            error = refused
        self._release_log()
        return self._status(error)

    def _keeps_terminal_clear(self) -> bool:
        """Return whether to keep the log off the terminal, for the progress line: not if the user
        has chosen where or how to log."""
        settings = self._settings
        style = str(settings.get("CRAWLER_PROGRESS", ProgressStyle.AUTO))
        level_chosen = settings.getpriority("LOG_LEVEL") == SETTINGS_PRIORITIES["cmdline"]
        return (
            style in (ProgressStyle.AUTO, ProgressStyle.LINE)
            and settings.getbool("LOG_ENABLED")
            and not (settings["LOG_FILE"] or level_chosen)
            and Screen(sys.stderr).is_terminal
        )

    def _crawl(
        self, process: CrawlerProcessBase, crawler: Crawler, opts: argparse.Namespace
    ) -> BaseException | None:
        """Run the crawl and return the error that ended it, or None."""
        if issubclass(crawler.spidercls, WebSpider):
            opts.spargs = arglist_to_dict(join_repeated(self._given))
        crawler.signals.connect(self._started, signals.engine_started)
        crawler.signals.connect(self._closed, signals.spider_closed)
        crawl = process.crawl(crawler, **opts.spargs)
        ended: list[BaseException | None] = []
        if isinstance(crawl, Deferred):
            crawl.addCallbacks(
                lambda _: ended.append(None), lambda failure: ended.append(failure.value)
            )
        process.start()
        if isinstance(crawl, asyncio.Future) and crawl.done() and not crawl.cancelled():
            ended.append(crawl.exception())
        return ended[0] if ended else EndedAtOnce()

    async def _started(self, sender: Crawler) -> None:
        self._begun = crawl_of(sender)
        self._report = sender.get_extension(Report)
        collect_less_often(sender)
        if self._held is not None:
            try:
                file = write_log(sender.settings, self._begun.storage.data.path / LOG)
                print(f"The log is in {file}", file=sys.stderr)
            except OSError as refused:
                print_error(f"no log can be written: {refused}")
            self._release_log()
        outlast_full_disks()
        engine = sender.engine
        if not sender.crawling and engine is not None:
            # A signal came while the engine opened, and Scrapy has only noted it.
            await engine.stop_async()

    def _closed(self, reason: str) -> None:
        self._reason = reason

    def _nothing_fetched(self) -> str:
        """Return why no page was fetched; empty if one was. Always empty for a shared crawl, as
        other workers may have fetched all and the counts may be old."""
        is_shared = self._begun is not None and self._begun.leases.shared is not None
        summary = self._report.summary if self._report is not None else None
        return nothing_fetched(summary) if summary is not None and not is_shared else ""

    def _release_log(self) -> None:
        if self._held is None:
            return
        if self._begun is None:
            logging.root.addHandler(Notices(Screen(sys.stderr)))
        self._held.release_records()
        self._held = None

    def _complain(self, error: CrawlerError | str) -> None:
        print_error(error)
        if self._settings["LOG_FILE"]:
            # A reader of the log file, such as a user of scrapyd, does not see stderr.
            logger.error("%s", error)

    def _status(self, error: BaseException | None) -> int:
        failure = self._begun.lifecycle.failure if self._begun else None
        match error:
            case None if self._begun is None or failure or self._reason in FAILED:
                self._complain(failure or ending(self._reason or "start_error"))
            case None:
                if why := self._nothing_fetched():
                    self._complain(why)
                    return 1
                return 0
            case Unreachable():
                self._complain(error)
                return TRY_AGAIN
            case CrawlerError():
                self._complain(error)
            case EndedAtOnce():
                self._complain(
                    "ended at once; the next run puts back the URLs that were being fetched"
                )
            case _:
                traceback.print_exception(error)
        return 1

"""Show the progress of a crawl: a live line on a terminal, log lines elsewhere.

Rule: no exception leaves here, as Scrapy's repeated calls end for good at the first one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from time import time
from typing import Final, Self

from msgspec.structs import replace
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.config.settings import PolitenessSettings
from crawler.engine.interactive import is_interactive
from crawler.model.choices import ProgressStyle
from crawler.model.types import HostKey
from crawler.policy.politeness import overridden
from crawler.report.end_forecast import EVERY_S, CrawlMoment, EndForecast, EndInWords, WorkAhead
from crawler.report.logs import Notices, logs_to_terminal
from crawler.report.screen import (
    ProgressFigures,
    RecentRate,
    Screen,
    progress_line,
    progress_sentence,
    round_words,
)

logger = logging.getLogger(__name__)

REDRAW_S: Final = 0.5
COMPILER: Final = "the compiler of what reads pages, once in an installation"
STOPPING: Final = "Stopping: fetches under way are put back. Once more, and it ends at once."


def style_of(wanted: ProgressStyle, is_terminal: bool, logs_to_terminal: bool) -> ProgressStyle:
    """Return *wanted*, and for AUTO a line if the log does not go to the terminal too."""
    if wanted is not ProgressStyle.AUTO:
        return wanted
    return ProgressStyle.LINE if is_terminal and not logs_to_terminal else ProgressStyle.LOG


class Progress:
    """The extension that shows progress. It begins when the spider is opened."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_interactive(crawler.settings):
            raise NotConfigured
        return cls(crawler, Screen(sys.stderr))

    def __init__(self, crawler: Crawler, screen: Screen) -> None:
        self._crawler = crawler
        self._screen = screen
        self._rate = RecentRate()
        self._end: list[Callable[[], object]] = []
        crawler.signals.connect(self._opened, signals.spider_opened)
        crawler.signals.connect(self.end, signals.spider_closed)

    def end(self) -> None:
        """Stop showing progress. May be called twice."""
        while self._end:
            with suppress(OSError, ValueError):  # the terminal is gone
                self._end.pop()()

    def _opened(self) -> None:
        self._crawl = crawl_of(self._crawler)
        self._forecast = end_forecast(self._crawl)
        self._figures()  # the first point of the rate
        report = self._crawl.settings.config.report
        match style_of(report.progress, self._screen.is_terminal, logs_to_terminal()):
            case ProgressStyle.LINE:
                self._show_line()
                self._repeat(self._log, report.progress_log_s)
            case ProgressStyle.LOG:
                self._repeat(self._note, EVERY_S)
                self._repeat(self._log, report.progress_log_s)

    def _show_line(self) -> None:
        notices = Notices(self._screen)
        logging.root.addHandler(notices)
        self._end.append(lambda: logging.root.removeHandler(notices))
        self._end.append(self._screen.wipe)
        self._crawl.lifecycle.call_at_stop(self._stopping)
        self._repeat(self._draw, REDRAW_S)

    def _repeat(self, show: Callable[[], None], interval_s: float) -> None:
        def shown() -> None:
            try:
                show()
            except (OSError, ValueError):
                self.end()  # the terminal is gone
            except Exception:
                # The next call may succeed.
                logger.debug("progress could not be shown", exc_info=True)

        call = create_looping_call(shown)
        call.start(interval_s, now=False)
        self._end.append(call.stop)

    def _note(self) -> None:
        """Let the forecast know the frontier as often as a line on a terminal does."""
        end_of(self._crawl, self._forecast)

    def _draw(self) -> None:
        self._screen.draw(progress_line(self._figures(), self._screen.columns))

    def _log(self) -> None:
        logger.info("%s", progress_sentence(self._figures()))

    def _stopping(self) -> None:
        engine = self._crawler.engine
        if self._end and engine is not None and not engine.running:  # stopped by a signal
            with suppress(OSError, ValueError):
                self._screen.show_message(STOPPING)

    def _figures(self) -> ProgressFigures:
        return figures_of(self._crawl, self._rate, self._forecast)


def figures_of(crawl: Crawl, pages_per_s: RecentRate, forecast: EndForecast) -> ProgressFigures:
    fetched, now = crawl.stats.figures, crawl.leases.clock.now()
    return ProgressFigures(
        fetched,
        crawl.leases.frontier.counts(),
        pages_per_s.at(fetched.pages, now, crawl.content.parsers.ready_s),
        end_of(crawl, forecast),
        waits_for=waits_for(crawl, now),
        round=round_words(crawl.leases.frontier.round_progress(), now),
    )


def waits_for(crawl: Crawl, now: float) -> str:
    """Return why nothing comes at the moment, in words: the compiler, our own connection, the disk,
    the servers of the frontier, or a failing host. Empty if anything does, or every host only
    rests."""
    if not crawl.content.parsers.ready_s:
        return COMPILER
    loop, room, under_way = crawl.loop, crawl.storage.room, len(crawl.loop.lives)
    if loop.silent_hosts.waits_for:
        return loop.silent_hosts.waits_for
    if not loop.uplink.charges_host():  # a fetch that probes it is no fetch of the crawl
        return "our own connection, which is down: nearly all hosts fail"
    if room.awaited and (room.is_full or crawl.stats.idle_s(now, under_way)):
        return f"the time when {room.awaited}"
    return crawl.stats.waits_for(now, under_way)


def end_forecast(crawl: Crawl) -> EndForecast:
    """Return the forecast of when *crawl* ends."""
    politeness = crawl.settings.config.politeness
    origins = crawl.selection.allowed_origins

    def settings_of(host: HostKey) -> PolitenessSettings:
        return overridden(politeness, origins.operator.of_host(host))

    frontier = crawl.leases.frontier
    return EndForecast(WorkAhead(frontier.longest_hosts, frontier.sampled_paces, settings_of))


def moment_of(crawl: Crawl) -> CrawlMoment:
    """Return the figures of *crawl* that its forecast is made of."""
    counts, fetched = crawl.leases.frontier.counts(), crawl.stats.figures
    # The result of a link comes later in a shared crawl, and that of a seed with it.
    found = counts.seen if crawl.leases.shared else fetched["links/new"]
    if not crawl.selection.allowed_origins.visits_again:  # then the crawl does not wait for them
        counts = replace(counts, later=counts.later - counts.again, again=0, levels=())
    return CrawlMoment(crawl.leases.clock.now(), counts, fetched.pages, found)


def end_of(crawl: Crawl, forecast: EndForecast) -> EndInWords:
    """Return when *crawl* ends."""
    now, arguments = crawl.leases.clock.now(), crawl.settings.arguments
    if crawl.selection.allowed_origins.operator.paused_until(now) is not None:
        return EndInWords("end unknown: the crawl is paused")
    moment, until = moment_of(crawl), crawl.settings.ends_at
    most = None if arguments is None else arguments.max_pages
    if arguments is not None and arguments.max_bytes is not None and moment.pages:
        by_bytes = moment.pages * arguments.max_bytes // max(crawl.stats.counters["bytes"], 1)
        most = by_bytes if most is None else min(most, by_bytes)
    if until is not None:  # by the machine's clock; that of the crawl may be ahead of it
        until += moment.at - time()
    return forecast.at(moment, most, until)

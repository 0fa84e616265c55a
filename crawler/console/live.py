"""What the console shows by itself, once a second: the figures of the crawl, and its latest
outcomes.

Rule: only while a page is open; without one it costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from crawler.assembly.crawl import Crawl
from crawler.console.views import OutcomesAsked, is_asked
from crawler.data.data_dir import HISTORY, OUTCOMES, folders_of_crawl
from crawler.data.history import STATES, HistorySpan, read_history
from crawler.model.counts import Counts, Figures
from crawler.model.types import CrawlerError, Outcome, decode_outcome
from crawler.report.end_forecast import CrawlMoment, EndForecast
from crawler.report.progress import end_forecast, end_of, moment_of, waits_for
from crawler.report.screen import RecentRate, round_words
from crawler.report.summary import RenderFigures, render_figures
from crawler.shared import keys
from crawler.shared.codec import WorkerRecord
from crawler.shared.faults import FAULTS
from crawler.view.formats import FAR

EVERY_S: Final = 1.0
_MAX_OUTCOMES: Final = 50  # in one event: no user can read more
_MAX_BYTES: Final = 256 * 1024  # of the outcome log, in one event


class CrawlOverview(msgspec.Struct, frozen=True):
    """The crawl at a glance. Times are epoch seconds."""

    now: float
    spider: str
    data_dir: str
    worker: str  # of a shared crawl, which serves the console
    workers: int  # whose pages, bytes and errors these are
    pages: int  # of this run
    pages_per_s: float  # of the last seconds
    bytes: int
    errors: int
    duplicates: int
    fetching: int  # URLs
    concurrency: int
    paused_until: float | None  # for ever: a year beyond any crawl
    ends: str  # when all is done, in words; empty: too early to say
    waits_for: str  # why nothing is fetched: a failing host, our connection, a full disk; or empty
    counts: Counts
    answers: dict[str, int]  # by class of status
    failures: dict[str, int]  # by kind of error
    idle_s: float = 0.0  # for how long nothing has been fetched, if it is so long that it matters
    to_fetch: int = 0  # URLs that may be fetched yet: waiting, later, undecided
    round: str = ""  # which of how many, and how far it is; empty: this run has none
    rendered: RenderFigures = RenderFigures()
    ended: str = ""  # how it ended, in a sentence; empty: it runs


class LiveEvent(msgspec.Struct, frozen=True):
    """One second of the crawl."""

    overview: CrawlOverview
    outcomes: list[Outcome]
    left_out: int  # outcomes of this second that are not among them


_decode_worker = msgspec.json.Decoder(WorkerRecord).decode


class LiveFigures:
    """The figures of a crawl, for all who look at it."""

    def __init__(self, crawl: Crawl, spider: str) -> None:
        self._crawl = crawl
        self._spider = spider
        self._rate = RecentRate()
        self._rate.at(crawl.stats.figures.pages, crawl.leases.clock.now())
        self._forecast: EndForecast | None = None
        self._latest: CrawlOverview | None = None
        self._others: list[WorkerRecord] = []
        self._by_others, self._others_fetched_at = Figures(), crawl.leases.clock.now()

    async def overview(self) -> CrawlOverview:
        """Return the figures, made anew once a second at most."""
        crawl, now = self._crawl, self._crawl.leases.clock.now()
        if self._latest is not None and 0 <= now - self._latest.now < EVERY_S / 2:
            return self._latest
        others = await self._other_workers()
        counts, own = crawl.leases.frontier.counts(), crawl.stats.figures
        by_others = sum((other.figures for other in others), Figures())
        fetched = own + by_others
        paused = crawl.selection.allowed_origins.operator.paused_until(now)
        shared = crawl.leases.shared
        self._latest = CrawlOverview(
            now=now,
            spider=self._spider,
            data_dir=str(crawl.storage.data.path),
            worker="" if shared is None else shared.worker,
            workers=1 + len(others),
            **fetched.totals,
            pages_per_s=self._rate.at(fetched.pages, now, crawl.content.parsers.ready_s),
            fetching=len(crawl.loop.lives),
            concurrency=crawl.loop.slots.limits.concurrency,
            paused_until=None if paused is None else min(paused, FAR),
            ends=self._end(),
            waits_for="" if others else waits_for(crawl, now),
            counts=counts,
            answers=own.below("status/"),
            failures=own.below("error/"),
            idle_s=self._idle_s(by_others if others else None, now),
            to_fetch=counts.to_fetch,
            round=round_words(crawl.leases.frontier.round_progress(), now),
            rendered=render_figures(fetched),
            ended="",
        )
        return self._latest

    def _idle_s(self, by_others: Figures | None, now: float) -> float:
        """Return as `idle_s`, also of the other workers, which announce what they have fetched;
        None: there are none."""
        own_s = self._crawl.stats.idle_s(now, len(self._crawl.loop.lives))
        if by_others is None:
            return own_s
        if by_others != self._by_others:
            self._by_others, self._others_fetched_at = by_others, now
        return min(own_s, now - self._others_fetched_at)

    def _end(self) -> str:
        """Return when the crawl ends, in words."""
        if self._forecast is None:  # the first look
            self._forecast = end_forecast(self._crawl)
            for moment in self._noted():
                self._forecast.note(moment)
        return str(end_of(self._crawl, self._forecast))

    def _noted(self) -> Iterator[CrawlMoment]:
        """Yield the moments of this run before now."""
        history = read_history(self._crawl.storage.data.path / HISTORY, HistorySpan.HOUR)
        columns = (map(int, history.columns[name]) for name in ("run", "pages", *STATES))
        latest = moment_of(self._crawl)
        this_run, pages_before = max(history.columns["run"], default=0), 0
        for at, run, pages, *states in zip(history.at, *columns, strict=True):
            if run != this_run:
                pages_before = pages
                continue
            counts = Counts(**dict(zip(STATES, states, strict=True)))
            found = latest.found - (latest.counts.seen - counts.seen)
            yield CrawlMoment(at, counts, pages - pages_before, found)

    async def _other_workers(self) -> list[WorkerRecord]:
        """Return what the other workers of a shared crawl that are alive announced last."""
        shared = self._crawl.leases.shared
        if shared is None:
            return []
        key, now = keys.workers(shared.nodes.name), self._crawl.leases.clock.now()
        with suppress(CrawlerError, msgspec.MsgspecError):
            packed = await shared.nodes.command(key, "HGETALL", key)
            if isinstance(packed, FAULTS):
                raise packed
            found = [_decode_worker(each) for each in packed[1::2]]
            self._others = [
                each for each in found if each.name != shared.worker and each.is_alive(now)
            ]
        return self._others

    async def events(self, asked: OutcomesAsked) -> AsyncIterator[LiveEvent]:
        """Yield an event a second, with the outcomes that are as *asked*."""
        folders = folders_of_crawl(self._crawl.storage.data.path)
        tails = [OutcomeTail(folder / OUTCOMES) for folder in folders]
        while True:
            latest = deque[Outcome](maxlen=_MAX_OUTCOMES)
            found = 0
            for outcome in chain.from_iterable(tail.read() for tail in tails):
                if is_asked(outcome, asked):
                    latest.append(outcome)
                    found += 1
            yield LiveEvent(await self.overview(), list(latest), found - len(latest))
            await asyncio.sleep(EVERY_S)


class OutcomeTail:
    """Reads what is appended to an outcome log from now on."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = _size(log)

    def read(self) -> Iterator[Outcome]:
        """Yield the outcomes since the last call: of much that was appended, the last part."""
        end = _size(self._log)
        if end <= self._at:
            return
        begin = max(self._at, end - _MAX_BYTES)
        with self._log.open("rb") as file:
            file.seek(begin)
            lines = file.read(end - begin)
        whole = lines.rfind(b"\n") + 1
        self._at = begin + whole
        for line in lines[:whole].splitlines():
            try:
                yield decode_outcome(line)
            except msgspec.MsgspecError:
                continue  # cut off at the beginning, or by a crash


def _size(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0

"""The conditions under which an operator is woken, and the alerts that the crawl sends itself.

Rule: one table, from which the rules for Prometheus are made too (scripts/write_metrics.py). An
alert is sent in the background, and what fails there is logged and changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import operator
import os
import shlex
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from math import inf, nan
from typing import Final, Self
from urllib.parse import urlsplit

import msgspec
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.engine.interactive import is_interactive
from crawler.engine.stats import Histogram
from crawler.model.program import PROGRAM
from crawler.operate.metrics import METRICS, Metric

logger = logging.getLogger(__name__)

MINUTE_S: Final = 60
_OPERATORS: Final = {">": operator.gt, "<": operator.lt}


@dataclass(frozen=True, slots=True)
class WorkerFigure:
    """A figure of one worker: its value now, or by how much it grew."""

    metric: str  # its name in METRICS
    label: str = ""  # only this value of its label; empty: the sum of all
    over_s: int = 0  # by how much it grew in so many seconds; 0: its value now

    def promql(self) -> str:
        metric = _BY_NAME[self.metric]
        name = metric.full_name + ("_count" if metric.name in _HISTOGRAMS else "")
        only = f'{{{metric.label}="{self.label}"}}' if self.label else ""
        text = f"{name}{only}"
        if self.over_s:
            text = f"increase({text}[{self.over_s // MINUTE_S}m])"
        return f"sum without ({metric.label}) ({text})" if metric.label else text


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether a figure, or a figure for each of another, is above or below a limit."""

    figure: WorkerFigure
    op: str
    limit: float
    per: WorkerFigure | None = None

    def promql(self) -> str:
        per = f" / {self.per.promql()}" if self.per is not None else ""
        return f"{self.figure.promql()}{per} {self.op} {self.limit:g}"

    def figures(self) -> Iterator[WorkerFigure]:
        yield self.figure
        if self.per is not None:
            yield self.per


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A state of the crawl that an operator is woken for."""

    name: str
    all: tuple[Comparison, ...]
    for_s: int  # it must have held for so long
    severity: str  # critical: the crawl does not go on, or will not; or warning
    summary: str
    do: str  # what to do about it, in one line

    def promql(self) -> str:
        return " and ".join(f"({each.promql()})" for each in self.all)

    def figures(self) -> Iterator[WorkerFigure]:
        return chain.from_iterable(each.figures() for each in self.all)


_BY_NAME: Final[Mapping[str, Metric]] = {metric.name: metric for metric in METRICS}
_HISTOGRAMS: Final = frozenset(metric.name for metric in METRICS if metric.type == "histogram")
_10_MIN, _15_MIN, _30_MIN = 10 * MINUTE_S, 15 * MINUTE_S, 30 * MINUTE_S

_ERRORS: Final = WorkerFigure("errors_total", over_s=_10_MIN)
_TOO_MANY: Final = WorkerFigure("errors_total", "status_429", over_s=_10_MIN)
_FETCHES: Final = WorkerFigure("fetch_seconds", over_s=_10_MIN)
_ROBOTS_FAILURES: Final = WorkerFigure("robots_failures_total", over_s=_30_MIN)
_ROBOTS_FETCHES: Final = WorkerFigure("robots_fetches_total", over_s=_30_MIN)

CONDITIONS: Final = (
    Condition(
        name="GossamerStalled",
        all=(
            Comparison(WorkerFigure("frontier_done_urls_total", over_s=_15_MIN), "<", 1),
            Comparison(WorkerFigure("frontier_urls", "waiting"), ">", 0),
            Comparison(WorkerFigure("paused"), "<", 1),
        ),
        for_s=5 * MINUTE_S,
        severity="critical",
        summary="No URL was finished in 15 minutes, though some wait.",
        do=f"{PROGRAM} frontier hosts shows why the hosts rest; if none does, look for errors at"
        " the end of crawl.log.",
    ),
    Condition(
        name="GossamerErrors",
        all=(
            Comparison(_ERRORS, ">", 0.5, per=_FETCHES),
            Comparison(_ERRORS, ">", 50),
        ),
        for_s=5 * MINUTE_S,
        severity="warning",
        summary="More than half of the fetches of 10 minutes failed.",
        do="gossamer_errors_total by reason: dns and connect point to your network or name servers,"
        f" timeout to too many fetches at once ({PROGRAM} frontier concurrency), a status to few"
        f" large hosts ({PROGRAM} frontier hosts).",
    ),
    Condition(
        name="GossamerDisk",
        all=(
            Comparison(
                WorkerFigure("disk_bytes", "free"),
                "<",
                0.05,
                per=WorkerFigure("disk_bytes", "size"),
            ),
        ),
        for_s=MINUTE_S,
        severity="critical",
        summary="Less than 5 % of the disk of the data directory is free.",
        do="Free room, move finished files of warc/ away, or set CRAWLER_ARCHIVE_URL; a full disk"
        " pauses a crawl until there is room.",
    ),
    Condition(
        name="GossamerRobots",
        all=(
            Comparison(_ROBOTS_FAILURES, ">", 0.5, per=_ROBOTS_FETCHES),
            Comparison(_ROBOTS_FAILURES, ">", 20),
        ),
        for_s=5 * MINUTE_S,
        severity="warning",
        summary="More than half of the requests for a robots.txt in 30 minutes failed.",
        do="No page of these hosts is fetched: if gossamer_errors_total says dns or connect, check"
        " your network; if most of your seeds are dead, it is as it should be.",
    ),
    Condition(
        name="GossamerTooManyRequests",
        all=(
            Comparison(_TOO_MANY, ">", 0.05, per=_FETCHES),
            Comparison(_TOO_MANY, ">", 10),
        ),
        for_s=5 * MINUTE_S,
        severity="warning",
        summary="More than 5 % of the fetches of 10 minutes were answered with 429.",
        do=f"{PROGRAM} frontier hosts --sort failures names the hosts: give them a longer rest by"
        f" {PROGRAM} frontier delay, before their webmasters write to you.",
    ),
    Condition(
        name="GossamerRedisLag",
        all=(Comparison(WorkerFigure("redis_lag_seconds"), ">", 30),),
        for_s=MINUTE_S,
        severity="critical",
        summary="Redis has not answered this worker in full for half a minute.",
        do="Look whether every server of CRAWLER_FRONTIER_URL runs, and can be reached from here;"
        " workers wait, and go on by themselves.",
    ),
    Condition(
        name="GossamerWorkerSilent",
        all=(Comparison(WorkerFigure("workers", "silent"), ">", 0),),
        for_s=5 * MINUTE_S,  # one that ends in good order counts too, until it has ended
        severity="warning",
        summary="A worker of the crawl is neither alive nor has it ended in good order.",
        do=f"{PROGRAM} frontier workers names it: start it again with its data directory; if its"
        f" disk is lost, {PROGRAM} frontier workers --forget NAME.",
    ),
)


# Looking at the conditions.

LOOK_S: Final = 15.0  # as often as Prometheus scrapes by default configurations
AGAIN_S: Final = 3600.0  # between two alerts of one condition
_FIGURES: Final = tuple(dict.fromkeys(chain.from_iterable(each.figures() for each in CONDITIONS)))


class Alert(msgspec.Struct, frozen=True):
    """What is sent, as JSON."""

    alert: str  # the name of the condition
    severity: str
    summary: str
    do: str
    value: float  # of its first comparison
    since: str  # ISO 8601, UTC
    worker: str  # empty: the crawl has only one
    data_dir: str


@dataclass(slots=True)
class Watch:
    """Looks at the conditions, as the rules of Prometheus would. Bound: the figures of half an
    hour, 15 s apart."""

    _samples: dict[WorkerFigure, deque[tuple[float, float]]] = field(
        default_factory=lambda: {figure: deque() for figure in _FIGURES}
    )
    _since: dict[str, float] = field(default_factory=dict)  # of conditions that hold
    _sent: dict[str, float] = field(default_factory=dict)

    def look(
        self, now: float, value_of: Callable[[WorkerFigure], float | None]
    ) -> list[tuple[Condition, float, float]]:
        """Return the conditions for which an alert is due, each with its value and since when it
        holds. *now* is in seconds; *value_of* returns None for a figure that there is not."""
        for figure, samples in self._samples.items():
            value = value_of(figure)
            if value is not None:
                samples.append((now, value))
            while samples and samples[0][0] < now - figure.over_s:
                samples.popleft()
        due = []
        for condition in CONDITIONS:
            if not all(self._holds(each) for each in condition.all):
                self._since.pop(condition.name, None)
                continue
            since = self._since.setdefault(condition.name, now)
            is_new = now - self._sent.get(condition.name, -inf) >= AGAIN_S
            if now - since >= condition.for_s and is_new:
                self._sent[condition.name] = now
                due.append((condition, self._value(condition.all[0]), since))
        return due

    def _holds(self, comparison: Comparison) -> bool:
        return bool(_OPERATORS[comparison.op](self._value(comparison), comparison.limit))

    def _value(self, comparison: Comparison) -> float:
        """Return nan, which no comparison holds for, if there are not enough figures."""
        value = self._figure(comparison.figure)
        if comparison.per is None:
            return value
        per = self._figure(comparison.per)
        if not per:  # PromQL divides so too
            return inf if value > 0 else nan
        return value / per

    def _figure(self, figure: WorkerFigure) -> float:
        samples = self._samples[figure]
        if not samples or (figure.over_s and len(samples) < 2):
            return nan
        return samples[-1][1] - (samples[0][1] if figure.over_s else 0.0)


def figure_of(crawl: Crawl, figure: WorkerFigure) -> float | None:
    """Return the figure of *figure*, or None if this crawl has none."""
    value = _BY_NAME[figure.metric].read(crawl)
    if isinstance(value, Histogram):
        return float(sum(value.counts))
    if isinstance(value, Mapping):
        return value.get(figure.label) if figure.label else sum(value.values())
    return value


# Sending them.

_SEND_S: Final = 30.0  # the longest time of a command or a request


class Alerts:
    """The extension that sends alerts, if a setting says where to."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_interactive(crawler.settings):
            raise NotConfigured
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._looking: asyncio.Task[None] | None = None
        crawler.signals.connect(self._open, signals.spider_opened)
        crawler.signals.connect(self._close, signals.spider_closed)

    def _open(self) -> None:
        crawl = crawl_of(self._crawler)
        settings = crawl.settings.config.operator
        if settings.alert_command or settings.alert_url:
            sender = AlertSender(settings.alert_command, settings.alert_url)
            self._looking = asyncio.ensure_future(watch(crawl, sender))

    async def _close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with suppress(asyncio.CancelledError):
                await self._looking


async def watch(crawl: Crawl, sender: AlertSender) -> None:
    """Look at the conditions for ever, and send what is due. Cancelled, it ends what it sends."""
    conditions, shared = Watch(), crawl.leases.shared
    async with asyncio.TaskGroup() as sending:
        while True:
            now = crawl.leases.clock.now()
            try:
                due = conditions.look(now, lambda figure: figure_of(crawl, figure))
            except Exception:  # of the disk, say; the next look may succeed
                logger.debug("The conditions of alerts cannot be looked at", exc_info=True)
                due = []
            for condition, value, since in due:
                alert = Alert(
                    alert=condition.name,
                    severity=condition.severity,
                    summary=condition.summary,
                    do=condition.do,
                    value=value,
                    since=datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
                    worker=shared.worker if shared is not None else "",
                    data_dir=str(crawl.storage.data.path.resolve()),
                )
                logger.warning("%s %s (%s)", alert.summary, alert.do, alert.alert)
                sending.create_task(sender.send(alert))
            await asyncio.sleep(LOOK_S)


class AlertSender:
    """Sends alerts to a command, to an HTTP address, or to both."""

    def __init__(self, command: str, url: str, most_s: float = _SEND_S) -> None:
        """*most_s*: after so many seconds a command is killed, and a request given up."""
        self._command = shlex.split(command)
        self._url = url
        self._most_s = most_s

    async def send(self, alert: Alert) -> None:
        """Send *alert* as JSON. Raises nothing: what fails is logged."""
        body = msgspec.json.encode(alert)
        ways = []
        if self._command:
            ways.append(self._attempt(self._run(body), f"to the command {self._command[0]}"))
        if self._url:  # which may have a secret in its path
            ways.append(self._attempt(self._post(body), f"to {urlsplit(self._url).hostname}"))
        await asyncio.gather(*ways)

    async def _attempt(self, way: Coroutine[object, object, str], to: str) -> None:
        try:
            async with asyncio.timeout(self._most_s):
                failure = await way
        except TimeoutError:
            failure = f"no end after {self._most_s:g} s"
        except Exception as error:  # a bug here must not end the looking
            # The text of other errors may have the whole address, which may be a secret.
            failure = str(error) if isinstance(error, OSError) else type(error).__name__
        if failure:
            logger.error("The alert could not be sent %s: %s", to, failure)

    async def _run(self, body: bytes) -> str:
        """Run the command with *body* on its standard input. Returns why it failed, or nothing."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C must reach only us
        )
        try:
            await process.communicate(body)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with what it has started
                await process.wait()
        return f"it ended with status {process.returncode}" if process.returncode else ""

    async def _post(self, body: bytes) -> str:
        """Send *body* to the address. Returns why it failed, or nothing."""
        import aiohttp  # noqa: PLC0415  # 0.2 s that most crawls do not need

        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            return "" if answer.status < 300 else f"it answered {answer.status}"

"""Read the figures of all workers from Redis, show them, and add up their summaries at the end.

Rule: reading changes nothing; while Redis is unreachable the last figures stay. A worker that was
killed is counted by its last record, which is at most one second old at that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.crawl.seed_fates import SeedFates
from crawler.data.data_dir import RUNS, SUMMARY, WARC
from crawler.data.runs import read_runs, sum_runs
from crawler.data.seed_table import sum_tables
from crawler.model.choices import ProgressStyle
from crawler.model.types import VERSION, Counts, CrawlerError
from crawler.report.end_forecast import CrawlMoment, EndForecast, EndInWords, WorkAhead
from crawler.report.endings import FAILED, ending
from crawler.report.figures import (
    many,
    number,
    plain,
    rate,
    size,
)
from crawler.report.logs import logs_to_terminal
from crawler.report.progress import style_of
from crawler.report.screen import RecentRate, Screen
from crawler.report.summary import (
    FORMAT,
    TOP_OVER_BUDGET,
    ArchiveFiles,
    BodyPauses,
    DeadUrl,
    HostPages,
    LinkFigures,
    OverBudget,
    PolitenessFigures,
    RobotsFigures,
    Summary,
    frontier_counts,
    iso_time,
    seed_figures,
    whole_crawl,
)
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import ShardTotals, WorkerRecord
from crawler.shared.faults import FAULTS, Unreachable
from crawler.shared.longest import LongestReader

RETRY_S: Final = 1.0
NO_COUNTS: Final = Counts(0, 0, 0, 0, 0, 0, 0)
_decode = msgspec.json.Decoder(WorkerRecord).decode


@dataclass(frozen=True, slots=True)
class WorkforceFigures:
    """The figures of one moment, of our workers; leased and waiting are of the whole crawl."""

    workers: int
    pages: int
    pages_per_s: float
    leased: int  # URLs, until their verdicts are sent
    waiting: int  # URLs, with those that have a date
    errors: int
    size_bytes: int
    ends: EndInWords = EndInWords()


class WorkforceReader:
    """Reads the records of the workers and the counts of the crawl from Redis."""

    def __init__(self, nodes: Nodes, politeness: PolitenessSettings) -> None:
        self._nodes = nodes
        self._before: frozenset[str] = frozenset()  # sessions of earlier runs
        self._records: dict[str, WorkerRecord] = {}  # of our workers, by session
        self._longest = LongestReader(nodes, nodes.shards)
        self._rate = RecentRate()
        self._forecast = EndForecast(WorkAhead(self._longest.longest_hosts, lambda _: politeness))
        self.counts = NO_COUNTS
        self.fault = ""  # why Redis did not answer
        self.all_records: list[WorkerRecord] = []

    async def begin(self, wait_s: float, show_message: Callable[[str], None]) -> None:
        """Connect, and note the sessions of earlier runs. Waits up to *wait_s* for a server that is
        down or loading its data. Raises CrawlerError."""
        until, shown = monotonic() + wait_s, ""
        while True:
            try:
                await self._nodes.open()
                await self._read_all()
                break
            except Unreachable as fault:
                if monotonic() > until:
                    raise
                if shown != str(fault):
                    shown = str(fault)
                    show_message(f"Waiting up to {wait_s:g} s (CRAWLER_REDIS_WAIT_S): {fault}")
                await asyncio.sleep(RETRY_S)
        self._before = frozenset(record.session for record in self.all_records)

    async def refresh(self, names: Collection[str]) -> None:
        """Read all figures again. *names*: of our workers."""
        try:
            await self._read_all()
        except CrawlerError as fault:
            self.fault = str(fault)
            return
        self.fault = ""
        for record in self.all_records:
            if record.name in names and record.session not in self._before:
                self._records[record.session] = record

    def figures(self, workers: int, now: float) -> WorkforceFigures:
        """Return the figures. *workers*: how many are running."""
        pages = sum(record.pages for record in self.session_records)
        return WorkforceFigures(
            workers=workers,
            pages=pages,
            pages_per_s=self._rate.at(pages, now),
            leased=self.counts.leased,
            waiting=self.counts.to_fetch,
            errors=sum(record.errors for record in self.session_records),
            size_bytes=sum(record.bytes for record in self.session_records),
            ends=self._forecast.at(CrawlMoment(time(), self.counts, pages, self.counts.seen)),
        )

    def pages_of(self, names: Collection[str]) -> int:
        """Return how many pages these workers have fetched in this run."""
        return sum(record.pages for record in self.session_records if record.name in names)

    @property
    def session_records(self) -> list[WorkerRecord]:
        """The last record of each session of our workers in this run."""
        return list(self._records.values())

    async def close(self) -> None:
        await self._nodes.close()

    async def _read_all(self) -> None:
        key = keys.workers(self._nodes.name)
        workers, *totals = await self._hashes(key)
        self.all_records = list(_read(workers[1::2]))
        self.counts = ShardTotals.summed(map(ShardTotals.of_reply, totals))
        await self._longest.refresh()

    async def _hashes(self, key: str) -> Sequence[Any]:
        """Read by commands that open no shard, as only workers do. Raises the first Fault."""
        name, shards = self._nodes.name, range(self._nodes.shards)
        hashes = [key, *(keys.totals(name, shard) for shard in shards)]
        replies = await asyncio.gather(
            *(self._nodes.command(each, "HGETALL", each) for each in hashes)
        )
        for reply in replies:
            if isinstance(reply, FAULTS):
                raise reply
        return replies


def _read(packed: Iterable[bytes]) -> Iterator[WorkerRecord]:
    for each in packed:
        with suppress(msgspec.MsgspecError):  # a record that this version cannot read is left out
            yield _decode(each)


logger = logging.getLogger(__name__)

_MESSAGE_CHARS: Final = 600


class WorkforceScreen:
    """Progress of many workers: one line on a terminal, log lines elsewhere."""

    def __init__(self, screen: Screen, wanted: ProgressStyle, log_s: float) -> None:
        self._screen = screen
        self._style = style_of(wanted, screen.is_terminal, logs_to_terminal())
        self.is_line = self._style is ProgressStyle.LINE
        self._log_s = log_s
        self._log_at = 0.0

    def show(self, figures: WorkforceFigures, now: float) -> None:
        """Draw the line, or log it once in the `log_s` of the constructor. May be called at any
        rate."""
        if self.is_line:
            with suppress(OSError, ValueError):  # the terminal is gone
                self._screen.draw(workers_line(figures, self._screen.columns))
        elif self._style is ProgressStyle.LOG and now >= self._log_at:
            if self._log_at:
                logger.info("%s", workers_sentence(figures))
            self._log_at = now + self._log_s

    def show_message(self, message: str) -> None:
        """Show or log one sentence."""
        if self.is_line:
            with suppress(OSError, ValueError):
                self._screen.show_message(plain(message, _MESSAGE_CHARS))
        else:
            logger.info("%s", message)

    def end(self) -> None:
        with suppress(OSError, ValueError):
            self._screen.wipe()


def workers_line(figures: WorkforceFigures, columns: int) -> str:
    """Return as much of *figures* as fits into *columns*, the most important first."""
    fields = [
        many(figures.pages, "page"),
        f"{rate(figures.pages_per_s)}/s",
        many(figures.workers, "worker"),
        f"{number(figures.leased)} under way",
        f"{number(figures.waiting)} waiting",
        many(figures.errors, "error"),
        *filter(None, [figures.ends.when]),
        size(figures.size_bytes),
    ]
    while len(text := " | ".join(fields)) >= columns:  # some terminals wrap in the last column
        fields.pop()
    return text


def workers_sentence(figures: WorkforceFigures) -> str:
    """Return the figures as a sentence for the log."""
    return (
        f"{many(figures.pages, 'page')} ({rate(figures.pages_per_s)} a second) by"
        f" {many(figures.workers, 'worker')}, {many(figures.leased, 'URL')} under way,"
        f" {many(figures.waiting, 'URL')} waiting, {many(figures.errors, 'error')},"
        f" {size(figures.size_bytes)}{f'; {figures.ends}' if figures.ends.when else ''}"
    )


# The summary of all workers adds up theirs. A session that ended without a summary (kill -9) is
# counted by its last record: pages, bytes, errors.

KILLED: Final = "killed"  # the kind of all errors of sessions without a summary
_TOP_HOSTS: Final = 10
_DEAD: Final = 5
_FINISHED: Final = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkforceRun:
    """A run by many workers when all have ended."""

    spider: str
    data_dir: Path
    began_at: float  # epoch seconds
    ended_at: float
    is_stopped: bool  # by a signal
    failure: str
    counts: Counts  # of the whole crawl
    killed: Sequence[WorkerRecord]  # of sessions without a summary


def read_summary(folder: Path, began_at: float) -> Summary | None:
    """Return the summary of the worker in *folder*, or None if it is older than *began_at*."""
    file = folder / SUMMARY
    try:
        if file.stat().st_mtime < began_at:
            return None
        return msgspec.json.decode(file.read_bytes(), type=Summary)
    except (OSError, msgspec.MsgspecError):
        return None


def summary_of_all(run: WorkforceRun, parts: Sequence[Summary], folders: Sequence[Path]) -> Summary:
    """*folders*: of all workers, of this run and earlier ones."""
    reason, ended = _end(run, parts)
    counted = sum_runs(read_runs(folder / RUNS) for folder in folders)
    duration_s = max(run.ended_at - run.began_at, 0.001)
    compiling_s = min((part.compiling_s for part in parts), default=0.0)  # at once
    counts, killed = run.counts, run.killed
    pages = _total(parts, lambda part: part.pages) + sum(record.pages for record in killed)
    return Summary(
        format=FORMAT,
        version=VERSION,
        spider=run.spider,
        reason=reason,
        ended=ended,
        unfinished=counts.left > 0,
        started_at=iso_time(run.began_at),
        duration_s=round(duration_s, 3),
        pages=pages,
        pages_per_s=round(pages / max(duration_s - compiling_s, 0.001), 3),
        bytes=_total(parts, lambda part: part.bytes) + sum(record.bytes for record in killed),
        duplicates=_total(parts, lambda part: part.duplicates),
        near_duplicates=_total(parts, lambda part: part.near_duplicates),
        not_pages=_sum(part.not_pages for part in parts),
        truncated=_sum(part.truncated for part in parts),
        unreadable=_sum(part.unreadable for part in parts),
        noindex=_total(parts, lambda part: part.noindex),
        answers=_sum(part.answers for part in parts),
        top_hosts=_top(parts),
        links=_links(parts),
        politeness=PolitenessFigures(
            _sum(part.politeness.rests for part in parts),
            _total(parts, lambda part: part.politeness.hosts_given_up),
        ),
        robots=_robots(parts),
        errors=_sum([*(part.errors for part in parts), _unnamed(killed)]),
        dead_letters=counts.dead,
        dead_letters_new=_dead(parts),
        archive=_archive(run.data_dir, folders, parts),
        frontier=frontier_counts(
            counts, _total(parts, lambda part: part.frontier.put_back_at_open)
        ),
        data_dir=str(run.data_dir),
        pauses=_pauses(parts),
        whole=whole_crawl(counted),
        runs=counted.runs,
        compiling_s=compiling_s,
        seeds=seed_figures(sum_tables(map(SeedFates.table_in, folders))),
    )


def _end(run: WorkforceRun, parts: Sequence[Summary]) -> tuple[str, str]:
    """Return the finish reason and its sentence; a failure of one worker counts first."""
    endings = {part.reason: part.ended for part in parts}
    failed = next((reason for reason in endings if reason in FAILED), None)
    if failed is not None:
        return failed, endings[failed]
    if run.failure:
        return "store_failed", ending("store_failed", run.failure)
    if run.is_stopped:
        return "shutdown", ending("shutdown")
    others = [reason for reason in endings if reason != _FINISHED]
    reason = others[0] if others else _FINISHED
    return reason, endings.get(reason, ending(reason))


def _total(parts: Iterable[Summary], figure: Callable[[Summary], int]) -> int:
    return sum(map(figure, parts))


def _sum(counted: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counted:
        total.update(each)
    return dict(sorted(total.items()))


def _top(parts: Iterable[Summary]) -> list[HostPages]:
    """Merge each worker's ten top hosts; a host is nearly always fetched by one worker."""
    total = _sum({each.host: each.pages for each in part.top_hosts} for part in parts)
    return [HostPages(*each) for each in Counter(total).most_common(_TOP_HOSTS)]


def _links(parts: Sequence[Summary]) -> LinkFigures:
    return LinkFigures(
        new=_total(parts, lambda part: part.links.new),
        seen=_total(parts, lambda part: part.links.seen),
        over_budget=_total(parts, lambda part: part.links.over_budget),
        refused=_sum(part.links.refused for part in parts),
        left=_total(parts, lambda part: part.links.left),
        top_over_budget=_over_budget(parts),
        refused_waiting=_sum(part.links.refused_waiting for part in parts),
        readmitted=_total(parts, lambda part: part.links.readmitted),
    )


def _over_budget(parts: Iterable[Summary]) -> list[OverBudget]:
    """Merge each worker's top hosts and domains over budget."""
    found: dict[tuple[str, str], OverBudget] = {}
    for each in (each for part in parts for each in part.links.top_over_budget):
        earlier = found.get((each.setting, each.name))
        links = each.links + (earlier.links if earlier else 0)
        found[each.setting, each.name] = replace(each, links=links)
    return sorted(found.values(), key=lambda each: -each.links)[:TOP_OVER_BUDGET]


def _robots(parts: Sequence[Summary]) -> RobotsFigures:
    return RobotsFigures(
        fetched=_total(parts, lambda part: part.robots.fetched),
        disallowed=_total(parts, lambda part: part.robots.disallowed),
        unreachable=_total(parts, lambda part: part.robots.unreachable),
    )


def _pauses(parts: Sequence[Summary]) -> BodyPauses:
    total_s = sum(part.pauses.total_s for part in parts)
    return BodyPauses(_total(parts, lambda part: part.pauses.times), round(total_s, 3))


def _unnamed(killed: Iterable[WorkerRecord]) -> dict[str, int]:
    errors = sum(record.errors for record in killed)
    return {KILLED: errors} if errors else {}


def _dead(parts: Iterable[Summary]) -> list[DeadUrl]:
    return [letter for part in parts for letter in part.dead_letters_new][:_DEAD]


def _archive(data_dir: Path, folders: Iterable[Path], parts: Sequence[Summary]) -> ArchiveFiles:
    sizes = [file.stat().st_size for each in folders for file in (each / WARC).glob("*.warc.gz*")]
    return ArchiveFiles(
        str(data_dir / "workers" / "*" / WARC),
        len(sizes),
        sum(sizes),
        delivered=_total(parts, lambda part: part.archive.delivered),
        store=next((part.archive.store for part in parts if part.archive.store), ""),
    )

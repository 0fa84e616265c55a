"""Read the figures of all workers from Redis, show them, and add up their summaries at the end.

Rule: reading changes nothing; while Redis is unreachable the last figures stay. A worker that was
killed is counted by its last record, which is at most one second old at that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import Final

import msgspec

from crawler.config.settings import PolitenessSettings
from crawler.data.data_dir import RUNS, SUMMARY, WARC
from crawler.data.runs import CountedRuns, read_runs
from crawler.data.seed_fates import SeedFates, SeedTable
from crawler.model.choices import ProgressStyle
from crawler.model.counts import Counts, Figures
from crawler.model.types import CrawlerError
from crawler.policy.rounds import RoundCaps, RoundProgress
from crawler.report.end_forecast import CrawlMoment, EndForecast, WorkAhead
from crawler.report.endings import FAILED, ending
from crawler.report.logs import logs_to_terminal
from crawler.report.progress import style_of
from crawler.report.screen import (
    ProgressFigures,
    RecentRate,
    Screen,
    over_budget,
    round_words,
)
from crawler.report.summary import EndedRun, Summary, archive_files, rounds_of_all, summary_of
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.faults import Unreachable
from crawler.shared.longest import LongestReader
from crawler.shared.owned.readings import read_totals
from crawler.shared.owned.rounds import read_rounds
from crawler.view.formats import (
    many,
    number,
    plain,
    rate,
    size,
)

RETRY_S: Final = 1.0
_decode = msgspec.json.Decoder(WorkerRecord).decode


class WorkforceReader:
    """Reads the records of the workers and the counts of the crawl from Redis."""

    def __init__(
        self,
        nodes: Nodes,
        politeness: PolitenessSettings,
        ends_at: float | None = None,
        rounds: RoundCaps | None = None,
    ) -> None:
        """*ends_at*: epoch seconds, at the latest; None: that is not said. *rounds*: None: the run
        has none."""
        self._nodes = nodes
        self._ends_at = ends_at
        self._before: frozenset[str] = frozenset()  # sessions of earlier runs
        self._records: dict[str, WorkerRecord] = {}  # of our workers, by session
        self._longest = LongestReader(nodes)
        self._rate = RecentRate()
        self._forecast = EndForecast(
            WorkAhead(
                self._longest.longest_hosts, self._longest.sampled_paces, lambda _: politeness
            )
        )
        self._rounds = rounds
        self._round: RoundProgress | None = None
        self.counts = Counts()
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

    def figures(self, workers: int, now: float) -> ProgressFigures:
        """Return the figures of our workers; leased and waiting are of the whole crawl. *workers*:
        how many are running."""
        fetched, counts = _fetched_by(self.session_records), self.counts
        moment = CrawlMoment(time(), counts, fetched.pages, counts.seen)
        pages_per_s = self._rate.at(fetched.pages, now)
        return ProgressFigures(
            fetched,
            counts,
            pages_per_s,
            self._forecast.at(moment, until=self._ends_at),
            workers=workers,
            round=round_words(self._round, time()),
        )

    def fetched_by(self, names: Collection[str]) -> Figures:
        """Return what these workers have fetched in this run."""
        return _fetched_by(each for each in self.session_records if each.name in names)

    @property
    def session_records(self) -> list[WorkerRecord]:
        """The last record of each session of our workers in this run."""
        return list(self._records.values())

    async def close(self) -> None:
        await self._nodes.close()

    async def _read_all(self) -> None:
        key = keys.workers(self._nodes.name)
        self.all_records = list(_read(await self._nodes.checked_command(key, "HVALS", key)))
        undecided = sum(record.outbox for record in self.all_records)
        totals = await read_totals(self._nodes)
        counted = (each.counts(0, 0) for each in totals)
        self.counts = sum(counted, Counts(undecided=undecided))
        if self._rounds is not None:
            self._round = await read_rounds(self._nodes, self._rounds)
        await self._longest.refresh()


def _fetched_by(records: Iterable[WorkerRecord]) -> Figures:
    return sum((record.figures for record in records), Figures())


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

    def show(self, figures: ProgressFigures, now: float) -> None:
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


def workers_line(figures: ProgressFigures, columns: int) -> str:
    """Return as much of *figures* as fits into *columns*, the most important first."""
    fetched, counts = figures.fetched, figures.counts
    fields = [
        many(fetched.pages, "page"),
        f"{rate(figures.pages_per_s)}/s",
        many(figures.workers, "worker"),
        f"{number(counts.leased)} under way",
        f"{number(counts.to_fetch)} waiting{over_budget(counts)}",
        many(fetched.errors, "error"),
        *filter(None, [figures.round, figures.ends.when]),
        size(fetched.bytes),
    ]
    while len(text := " | ".join(fields)) >= columns:  # some terminals wrap in the last column
        fields.pop()
    return text


def workers_sentence(figures: ProgressFigures) -> str:
    """Return the figures as a sentence for the log."""
    fetched, counts = figures.fetched, figures.counts
    return (
        f"{many(fetched.pages, 'page')} ({rate(figures.pages_per_s)} a second) by"
        f" {many(figures.workers, 'worker')}, {many(counts.leased, 'URL')} under way,"
        f" {many(counts.to_fetch, 'URL')} waiting{over_budget(counts)},"
        f" {many(fetched.errors, 'error')},"
        f" {size(fetched.bytes)}{f'; {figures.round}' if figures.round else ''}"
        f"{f'; {figures.ends}' if figures.ends.when else ''}"
    )


# The summary of all workers adds up theirs. A session that ended without a summary (kill -9) is
# counted by its last record: pages, bytes, errors.

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
    warcs, place = [folder / WARC for folder in folders], run.data_dir / "workers" / "*" / WARC
    store = next((part.archive.store for part in parts if part.archive.store), "")
    return summary_of(
        EndedRun(
            spider=run.spider,
            reason=reason,
            ended=ended,
            began_at=run.began_at,
            ended_at=run.ended_at,
            compiling_s=min((part.compiling_s for part in parts), default=0.0),  # at once
            figures=sum((part.figures for part in parts), _fetched_by(run.killed)),
            counts=run.counts,
            counted=sum((read_runs(folder / RUNS) for folder in folders), CountedRuns()),
            seeds=sum(map(SeedFates.table_in, folders), SeedTable()),
            data_dir=run.data_dir,
            archive=archive_files(place, store, warcs),
            rounds=rounds_of_all([part.rounds for part in parts]),
        )
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

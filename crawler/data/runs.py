"""What each run of a crawl has counted, and all of them together: `runs.json`.

Rule: it is replaced as a whole every ten seconds, so of a run that was killed the last ten seconds
are not counted. One that cannot be read is kept beside it, and counting begins again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

logger = logging.getLogger(__name__)

RUNS_KEPT: Final = 100
"""Runs that are listed; the figures of earlier ones are in those of the whole crawl."""
WRITE_S: Final = 10.0


class RunFigures(msgspec.Struct, frozen=True):
    """One run, in short."""

    started_at: str  # ISO 8601, UTC
    duration_s: float = 0.0  # of a run that was killed, or goes on: until it was last written
    reason: str = ""  # Scrapy's finish reason; empty: it was killed, or goes on
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    duplicates: int = 0


class CountedRuns(msgspec.Struct, frozen=True):
    """The content of the file."""

    runs: list[RunFigures] = []  # the last RUNS_KEPT, the oldest first
    number: int = 0  # of the last run
    seconds: float = 0.0  # that all runs before the last took
    before: dict[str, int] = {}  # counters of all runs before the last, as in CrawlStats
    last: dict[str, int] = {}  # counters of the last run

    @property
    def counters(self) -> dict[str, int]:
        """The counters of the whole crawl."""
        return dict(sorted((Counter(self.before) + Counter(self.last)).items()))

    @property
    def total_s(self) -> float:
        """How long all runs took together."""
        return self.seconds + (self.runs[-1].duration_s if self.runs else 0.0)

    def begun(self, started_at: str) -> CountedRuns:
        """Return these and a run that begins."""
        runs = [*self.runs, RunFigures(started_at)][-RUNS_KEPT:]
        return CountedRuns(runs, self.number + 1, self.total_s, self.counters)

    def counted(self, run: RunFigures, counters: Mapping[str, int]) -> CountedRuns:
        """Return these with what the last run has counted."""
        return replace(self, runs=[*self.runs[:-1], run], last=dict(counters))


def read_runs(file: Path) -> CountedRuns:
    """Return what *file* holds; nothing if it does not exist or cannot be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(file.read_bytes(), type=CountedRuns)
    return CountedRuns()


def open_runs(file: Path, started_at: str) -> CountedRuns:
    """Return what *file* holds, and a run that begins."""
    found = read_runs(file)
    if not found.runs and file.exists():
        aside = file.with_suffix(".damaged")
        with suppress(OSError):
            file.replace(aside)
        logger.warning("%s cannot be read: it is kept as %s, and a new one begun", file, aside.name)
    return found.begun(started_at)


def write_runs(file: Path, counted: CountedRuns) -> None:
    """Replace *file*: kill -9 leaves the old content or the new. Raises OSError."""
    draft = file.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(counted))  # without a sync, which may take long
    draft.replace(file)


def sum_runs(parts: Iterable[CountedRuns]) -> CountedRuns:
    """Return the runs of the workers of a shared crawl: each run of a worker is one."""
    parts = list(parts)
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part.counters)
    runs = sorted((run for part in parts for run in part.runs), key=lambda run: run.started_at)
    return CountedRuns(
        runs[-RUNS_KEPT:],
        sum(part.number for part in parts),
        sum(part.total_s for part in parts) - (runs[-1].duration_s if runs else 0.0),
        dict(total),
    )

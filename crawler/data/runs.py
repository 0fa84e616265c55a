"""What each run of a crawl has counted, and all of them together: `runs.json`.

Rule: it is replaced as a whole every ten seconds, so of a run that was killed the last ten seconds
are not counted. One that cannot be read is kept beside it, and counting begins again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from crawler.model.counts import TOP_HOSTS, Figures, HostChanges, Sums, add_by_key, largest

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


def _latest(some: Sequence[RunFigures], more: Sequence[RunFigures]) -> list[RunFigures]:
    return sorted([*some, *more], key=lambda run: run.started_at)[-RUNS_KEPT:]


_most_changes: Final = largest(TOP_HOSTS, "changes", "host")
_Changes: TypeAlias = Annotated[list[HostChanges], _most_changes]


class CountedRuns(Sums, msgspec.Struct, frozen=True):
    """The content of the file. Those of workers add: each run of a worker is one."""

    runs: Annotated[list[RunFigures], _latest] = []  # the last RUNS_KEPT, the oldest first
    number: int = 0  # of the last run
    seconds: float = 0.0  # that all runs before the last took
    before: dict[str, int] = {}  # counters of all runs before the last, as in CrawlStats
    last: dict[str, int] = {}  # counters of the last run
    last_s: float = 0.0  # that it took
    changes_before: _Changes = []  # of the hosts with most, in all runs before the last
    changes_last: _Changes = []

    @property
    def figures(self) -> Figures:
        """The figures of the whole crawl."""
        counters = dict(sorted(add_by_key(self.before, self.last).items()))
        return Figures(counters, top_changes=_most_changes(self.changes_before, self.changes_last))

    @property
    def total_s(self) -> float:
        """How long all runs took together."""
        return self.seconds + self.last_s

    def begun(self, started_at: str) -> CountedRuns:
        """Return these and a run that begins."""
        runs = [*self.runs, RunFigures(started_at)][-RUNS_KEPT:]
        so_far = self.figures
        return CountedRuns(
            runs,
            self.number + 1,
            self.total_s,
            so_far.counters,
            changes_before=so_far.top_changes,
        )

    def counted(self, run: RunFigures, figures: Figures) -> CountedRuns:
        """Return these with what the last run has counted."""
        runs = [*self.runs[:-1], run]
        return replace(
            self,
            runs=runs,
            last=figures.counters,
            last_s=run.duration_s,
            changes_last=figures.top_changes,
        )


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

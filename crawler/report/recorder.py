"""Records the figures of a crawl while it runs: a sample every few seconds, and what each run
counts.

Rule: no exception leaves here. A disk that is full costs figures, never the crawl.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import nan
from typing import Final

from scrapy.utils.asyncio import create_looping_call

from crawler.assembly.crawl import Crawl
from crawler.data.data_dir import HISTORY, OUTCOMES, RUNS, SEEDS
from crawler.data.history import (
    CHANGES,
    CLASSES,
    FETCH_S,
    FETCHES,
    FRESH,
    SAMPLE_S,
    STATES,
    HistoryFile,
)
from crawler.data.runs import WRITE_S, CountedRuns, RunFigures, open_runs, write_runs
from crawler.model.counts import Figures
from crawler.report.summary import iso_time

logger = logging.getLogger(__name__)

_SAMPLES_A_WRITE: Final = round(WRITE_S / SAMPLE_S)


class Recorder:
    """Writes `history.bin`, `runs.json` and `seeds.json` from its construction, when the event loop
    runs, to `end`. A sample takes 0.1 ms of the event loop."""

    def __init__(self, crawl: Crawl, started_at: float) -> None:
        self._crawl = crawl
        self._started_at = started_at
        self._folder = crawl.storage.data.path
        self._is_failing = False
        self._samples = 0
        self._history: HistoryFile | None = None
        self._counted = open_runs(self._folder / RUNS, iso_time(started_at))
        log = self._folder / OUTCOMES
        counts, is_shared = crawl.leases.frontier.counts(), crawl.leases.shared is not None
        is_new = not (log.exists() and log.stat().st_size) and (is_shared or not counts.seen)
        crawl.stats.seeds.open(self._folder / SEEDS, log, is_new=is_new)
        try:
            self._history = HistoryFile(self._folder / HISTORY, started_at)
        except OSError as refused:
            self._warn(refused)
        self._call = create_looping_call(self._record)
        self._call.start(SAMPLE_S, now=True)

    def end(self, reason: str) -> CountedRuns:
        """Write the last sample, and return what all runs have counted. *reason*: Scrapy's finish
        reason."""
        self._call.stop()
        self._samples = 0
        self._record(reason)
        if self._history is not None:
            with suppress(OSError):
                self._history.close()
        return self._counted

    def _record(self, reason: str = "") -> None:
        now = self._crawl.leases.clock.now()
        try:
            self._add_sample(now)
            if self._samples % _SAMPLES_A_WRITE == 0:
                stats, began = self._crawl.stats, self._started_at
                figures = Figures(stats.figures.counters, top_changes=stats.top_changes)
                duration_s = round(now - began, 3)
                run = RunFigures(iso_time(began), duration_s, reason, **figures.totals)
                self._counted = self._counted.counted(run, figures)
                write_runs(self._folder / RUNS, self._counted)
                self._crawl.stats.seeds.write(self._folder / SEEDS, self._folder / OUTCOMES)
            self._is_failing = False
        except OSError as refused:
            self._warn(refused)
        except Exception:
            # The next sample may succeed; Scrapy's repeated calls end for good at the first error.
            logger.debug("the figures could not be recorded", exc_info=True)
        self._samples += 1

    def _add_sample(self, now: float) -> None:
        if self._history is None:
            return
        last, counts = self._history.last, self._crawl.leases.frontier.counts()
        stats = self._crawl.stats
        fresh = stats.copies.fresh
        this_run = {
            "run": 1,
            **stats.figures.totals,
            CHANGES: stats.counters["revisits/result/changed"],
            **{name: stats.counters[f"status/{name}"] for name in CLASSES},
            FETCHES: sum(stats.fetch_s.counts),
            FETCH_S: stats.fetch_s.sum,
        }
        sample = {name: last.get(name, 0) + n for name, n in this_run.items()}
        states = {name: getattr(counts, name) for name in STATES}
        shares = {FRESH: nan if fresh is None else fresh}
        self._history.add(now, {**sample, **states, "waiting": counts.to_fetch, **shares})

    def _warn(self, refused: OSError) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.warning("The figures over time cannot be written: %s", refused)

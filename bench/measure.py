"""What a crawl costs: one process watched from its start to its end, and what two runs tell.

Rule: the pages are counted by the web that served them, the CPU seconds by the kernel.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.crawls import PROJECT


class CrawlFailed(Exception):
    """A crawl did not end well. Its log is in the message."""


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl."""

    pages: int
    cpu_s: float
    wall_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What a crawler costs a page, start-up and shut-down taken out."""

    cpu_ms_a_page: float
    pages_per_s: float
    peak_mb: float  # of the longer run, all in
    pages: int  # of the longer run


def run(command: Sequence[str], log: Path, served: Callable[[], int]) -> Run:
    """Run *command* to its end. *served* counts the pages of the web so far."""
    before, started_s = served(), time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=PROJECT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # wait4 took it from under Popen
    wall_s, pages = time.monotonic() - started_s, served() - before
    if process.returncode or not pages:
        tail = log.read_text(errors="replace")[-3_000:]
        raise CrawlFailed(f"{' '.join(command)}\nended with {process.returncode}\n{tail}")
    return Run(pages, usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss * 1024)


def slope(few: Run, many: Run) -> Cost:
    """What the pages cost that the longer run has more than the shorter one."""
    pages = many.pages - few.pages
    if pages <= 0:
        raise CrawlFailed(f"the longer run has no more pages: {few.pages}, then {many.pages}")
    return Cost(
        cpu_ms_a_page=(many.cpu_s - few.cpu_s) / pages * 1_000,
        pages_per_s=pages / (many.wall_s - few.wall_s),
        peak_mb=many.peak_bytes / 1e6,
        pages=many.pages,
    )


def middle(costs: Sequence[Cost]) -> Cost:
    """The median of each figure: one disturbed round must not decide."""
    return Cost(
        cpu_ms_a_page=median(cost.cpu_ms_a_page for cost in costs),
        pages_per_s=median(cost.pages_per_s for cost in costs),
        peak_mb=median(cost.peak_mb for cost in costs),
        pages=max(cost.pages for cost in costs),
    )

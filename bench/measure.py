"""What a crawl costs: its processes watched from start to end, and what two runs tell.

Rule: the pages are counted by the web that served them, the CPU seconds by the kernel.
"""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Timer
from typing import Final

from bench.crawls import PROJECT

LONGEST_S: Final = 3_600.0  # one that does not end must not hold up the rest for ever


class CrawlFailed(Exception):
    """A crawl did not end well. Its log is in the message."""


@dataclass(frozen=True, slots=True)
class Run:
    """One crawl, of one worker or of several."""

    pages: int
    cpu_s: float  # of the workers
    wall_s: float
    peak_bytes: int  # of the workers, added up
    redis_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a crawler costs a page, start-up and shut-down taken out."""

    cpu_ms_a_page: float
    pages_per_s: float
    peak_mb: float  # of the longer run, all in
    pages: int  # of the longer run
    redis_ms_a_page: float = 0.0  # CPU

    @property
    def pages_per_s_a_core(self) -> float:
        """What a core of the crawling machines brings; Redis has a core of its own."""
        return 1_000 / self.cpu_ms_a_page

    @property
    def all_cpu_ms_a_page(self) -> float:
        return self.cpu_ms_a_page + self.redis_ms_a_page


def run(commands: Sequence[Sequence[str]], log: Path, served: Callable[[], int]) -> Run:
    """Run *commands* to their ends. *served* counts the pages of the web so far."""
    before, started_s = served(), time.monotonic()
    with log.open("wb") as output, _started(commands, output.fileno()) as processes:
        usages = [_ended(process) for process in processes]
    wall_s, pages = time.monotonic() - started_s, served() - before
    if any(process.returncode for process in processes) or not pages:
        tail = log.read_text(errors="replace")[-3_000:]
        endings = ", ".join(str(process.returncode) for process in processes)
        raise CrawlFailed(f"{' '.join(commands[0])}\nended with {endings}\n{tail}")
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Run(pages, cpu_s, wall_s, sum(usage.ru_maxrss for usage in usages) * 1024)


@contextmanager
def _started(
    commands: Sequence[Sequence[str]], output: int
) -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []

    def end() -> None:
        for process in processes:
            process.kill()  # does nothing where it has ended

    overdue = Timer(LONGEST_S, end)
    overdue.start()
    try:
        processes += [
            subprocess.Popen(command, stdout=output, stderr=output, cwd=PROJECT)
            for command in commands
        ]
        yield processes
    finally:
        overdue.cancel()
        end()


def _ended(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)  # wait4 took it from under Popen
    return usage


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
        redis_ms_a_page=(many.redis_cpu_s - few.redis_cpu_s) / pages * 1_000,
    )


def middle(costs: Sequence[Cost]) -> Cost:
    """The median of each figure: one disturbed round must not decide."""
    return Cost(
        cpu_ms_a_page=median(cost.cpu_ms_a_page for cost in costs),
        pages_per_s=median(cost.pages_per_s for cost in costs),
        peak_mb=median(cost.peak_mb for cost in costs),
        pages=max(cost.pages for cost in costs),
        redis_ms_a_page=median(cost.redis_ms_a_page for cost in costs),
    )

"""What work costs: CPU time, peak memory of processes, and how long an event loop stands still.

Rule: processor time is counted, not wall time: a busy machine has other work too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappushpop
from pathlib import Path
from time import process_time
from typing import Final, Self

from scrapy import signals
from scrapy.crawler import Crawler

POLL_S: Final = 0.02
TICK_S: Final = 0.005
KEPT_DELAYS: Final = 50


def cpu_seconds(act: Callable[[], object], times: int = 3) -> float:
    """The least of several runs: what disturbs one, such as a compilation, seldom disturbs all. The
    garbage collector is off: a full collection goes through all that other tests have left."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return min(_once(act) for _ in range(times))
    finally:
        if was_on:
            gc.enable()


def _once(act: Callable[[], object]) -> float:
    begun = process_time()
    act()
    return process_time() - begun


@dataclass(slots=True)
class PeakMemory:
    """High-water marks, in bytes. (The figure of wait4 for a child includes its parent's memory at
    the fork.)"""

    own: int = 0
    children: dict[int, int] = field(default_factory=dict)  # by process


def peak_memory(process: subprocess.Popen[bytes], limit_s: float) -> PeakMemory:
    """Watch *process* and its children from outside until it has ended, or time is up."""
    memory, deadline = PeakMemory(), time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline:
        memory.own = max(memory.own, _high_water(process.pid))
        for child in _children(process.pid):
            # The last one counts: until it is another program, a child has its parent's.
            memory.children[child] = _high_water(child) or memory.children.get(child, 0)
        time.sleep(POLL_S)
    return memory


def _high_water(pid: int) -> int:
    return sum(
        int(line.split()[1]) * 1024 for line in _read(f"{pid}/status") if line.startswith("VmHWM")
    )


def _children(pid: int) -> list[int]:
    return [int(word) for line in _read(f"{pid}/task/{pid}/children") for word in line.split()]


def _read(name: str) -> list[str]:
    """Nothing, once it has ended."""
    try:
        return (Path("/proc") / name).read_text().splitlines()
    except OSError:
        return []


class LoopDelays:
    """An extension that writes the longest delays of the event loop, each with the moment it ended,
    to LOOP_DELAYS_FILE. A delay is processor time of the loop's thread."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        delays = cls(Path(crawler.settings["LOOP_DELAYS_FILE"]))
        crawler.signals.connect(delays.begin, signals.spider_opened)
        crawler.signals.connect(delays.end, signals.spider_closed)
        return delays

    def __init__(self, file: Path) -> None:
        self._file = file
        self._longest = [(0.0, 0.0)] * KEPT_DELAYS
        heapify(self._longest)
        self._measuring: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._measuring = asyncio.ensure_future(self._measure())

    def end(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
        self._file.write_text(json.dumps(sorted(self._longest, reverse=True)))

    async def _measure(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(TICK_S)
            late_s = time.thread_time() - before
            heappushpop(self._longest, (late_s, time.time()))

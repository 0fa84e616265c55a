"""What the embedded frontier keeps in memory of the URLs that wait, and how long it takes to open.

Rule: memory is anonymous memory, as the kernel counts it. The folder is kept where it is named, and
a second run continues there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from scrapy.dupefilters import RFPDupeFilter

from bench.figures import Figures
from bench.frontier.page import Embedded, fill
from bench.seen import keys_of

MEMORY_MB: Final = 1000
FLAT: Final = 1.5
"""Times the memory at the smallest size: what RocksDB and Python keep varies by so much."""
OPEN_S: Final = 10
BYTES_PER_URL: Final = 2 * 120
"""On disk: a waiting URL, twice while RocksDB rewrites it."""
SEEN_BYTES: Final = 2 * 8.1
MOST_SCRAPY: Final = 10_000_000
"""Fingerprints of Scrapy's dupefilter, 20 bytes and 100 of memory each."""
_MARKED: Final = 1_000_000  # keys of a call


def bytes_needed(waiting: Sequence[int], seen: int) -> float:
    return max(waiting) * BYTES_PER_URL + (max(waiting) + seen) * SEEN_BYTES


def anonymous_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def memory(folder: Path, waiting: Sequence[int], hosts: int, figures: Figures) -> list[float]:
    """Return the anonymous memory at each number of *waiting* URLs over *hosts*, in MB, the gate's
    at its fullest apart."""
    frontier, before = Embedded(folder), anonymous_bytes()
    print(f"memory of the process without URLs: {before / 1e6:.0f} MB")
    sizes: list[float] = []
    for urls in sorted(waiting):
        known = frontier.counts().waiting
        if known > urls:
            print(f"{urls:,} waiting: {folder} has {known:,} already")
            continue
        begun = time.perf_counter()
        fill(frontier, urls, hosts, known)
        took_s = time.perf_counter() - begun
        gate_mb = 1.6 * frontier.counts().seen / 1e6
        sizes.append(anonymous_bytes() / 1e6 - gate_mb)
        on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        print(f"{urls - known:,} URLs added in {took_s:.0f} s, {on_disk / urls:.0f} bytes each")
        figures.note(f"anonymous memory at {urls:,} waiting over {hosts:,} hosts, MB", sizes[-1],
                     MEMORY_MB, f"{sizes[-1]:.0f}")  # fmt: skip
    if len(sizes) > 1:
        figures.note("  growth from the first to the last", sizes[-1] / sizes[0], FLAT)
    frontier.close()
    return sizes


def mark(folder: Path, seen: int) -> int:
    """Count keys as seen until the frontier knows *seen*. Returns how many it knows."""
    frontier = Embedded(folder)
    while (known := frontier.counts().seen) < seen:
        numbers = np.arange(known, min(known + _MARKED, seen), dtype=np.uint64)
        frontier.mark_seen(keys_of(numbers).tolist(), frontier.clock)
    frontier.close()
    return known


def reopen(folder: Path, figures: Figures) -> None:
    """Time to open the frontier, in a process of its own, with nothing in the page cache."""
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
    command = [sys.executable, "-m", "bench.frontier.waiting", str(folder)]
    opened_s, ready_s, waiting, seen = map(float, subprocess.check_output(command).split())
    figures.note(f"open, {waiting:,.0f} waiting, {seen:,.0f} seen, to the first lease, s",
                 opened_s, OPEN_S)  # fmt: skip
    figures.note("  until its gate is full, in the background, s", ready_s)


def opened(folder: Path) -> None:
    """Open the frontier in *folder* and print the seconds until the first lease and until nothing
    is left to be done, its waiting URLs and its seen ones."""
    begun = time.perf_counter()
    frontier = Embedded(folder)
    leases = frontier.lease(frontier.clock + 86_400)
    opened_s = time.perf_counter() - begun
    assert leases or not frontier.counts().waiting
    counts = frontier.counts()
    frontier.work_soon()
    frontier.settle_work(frontier.clock)
    print(opened_s, time.perf_counter() - begun, counts.waiting + counts.leased, counts.seen)
    frontier.close()


def scrapy_reopen(seen: int, figures: Figures) -> None:
    """Time of Scrapy to open the dupefilter of a JOBDIR; its queues open at once."""
    with tempfile.TemporaryDirectory() as home:
        numbers = np.random.default_rng(3)
        with Path(home, "requests.seen").open("wb") as file:
            for begin in range(0, seen, _MARKED):
                count = min(_MARKED, seen - begin)
                rows = np.empty((count, 22), np.uint8)
                rows[:, :2] = (0, 20)  # the length of a fingerprint
                rows[:, 2:] = numbers.integers(0, 256, (count, 20), np.uint8)
                file.write(rows.tobytes())
        before, begun = anonymous_bytes(), time.perf_counter()
        dupefilter = RFPDupeFilter(home)
        took_s = time.perf_counter() - begun
        figures.note(f"Scrapy's JOBDIR with {seen:,} seen, s", took_s)
        grown = (anonymous_bytes() - before) / 1e6
        figures.note("  its memory, MB", grown, written=f"{grown:.0f}")
        dupefilter.close("finished")


if __name__ == "__main__":
    opened(Path(sys.argv[1]))

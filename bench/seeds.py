"""`python -m bench.seeds`: reading a long list of seeds, beside plain Scrapy.

Rule: prints each figure beside its bar, and ends with 1 where one is missed. A crawl is a process
of its own, which fetches nothing: the seconds are from the making of the spider to its last seed.
The memory is that of the process at its largest, and the bar is for what it has more than one that
reads ten lines; both have loaded what reads pages before, 25 MB. One line in 100,000 is no seed.
Scrapy keeps its requests in memory, and in a JOBDIR on disk.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.exceptions import CloseSpider
from scrapy.utils.project import get_project_settings

from bench.crawls import PROJECT
from bench.plain.crawl import SETTINGS
from crawler.assembly.build import crawl_of
from crawler.cli.crawl import give_memory_back
from crawler.content.compiling import load
from crawler.spiders.web import WebSpider

SECONDS: Final = 5.0  # for a million lines
MEMORY_MB: Final = 150.0
FEW: Final = 10
LONGEST_S: Final = 600.0
_BAD_LINES: Final = 100_000  # lines of which one is no seed
_LOOK_S: Final = 0.01
_READ: Final = "read:"
_LOOPBACK: Final = "loopback"


@dataclass(frozen=True, slots=True)
class Cost:
    """What the reading of one list cost."""

    seconds: float
    cpu_s: float  # of all threads
    rss_mb: float  # of the process at its largest
    anonymous_mb: float


class Seeds(WebSpider):
    """The spider `web`, which ends when its seeds are read, and leases none of them before."""

    begun = (0.0, 0.0)

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        begun = now()
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.begun = begun
        return spider

    async def start(self) -> AsyncIterator[Any]:
        crawl_of(self.crawler).selection.allowed_origins.wait_for_other_seeds()
        async for each in super().start():
            yield each
        _report(self.begun)
        raise CloseSpider("read")


class PlainSeeds(Spider):
    """The same with Scrapy alone."""

    name = "plain_seeds"
    seeds: str

    async def start(self) -> AsyncIterator[Any]:
        begun = now()
        assert self.crawler.engine is not None and self.crawler.engine._slot is not None
        scheduler = self.crawler.engine._slot.scheduler
        with open(self.seeds, encoding="utf-8") as lines:  # noqa: ASYNC230, PTH123 - nothing waits
            for line in lines:
                with suppress(ValueError):
                    # Yielded, each would be scheduled by the engine and fetched at once.
                    scheduler.enqueue_request(Request(line.strip()))
        _report(begun)
        raise CloseSpider("read")
        yield  # makes this an asynchronous generator


def now() -> tuple[float, float]:
    """Return the time, and the CPU time of all threads."""
    return time.perf_counter(), time.process_time()


def _report(begun: tuple[float, float]) -> None:
    seconds, cpu_s = now()
    print(f"{_READ} {seconds - begun[0]} {cpu_s - begun[1]}", flush=True)
    sys.stdin.readline()  # the memory is read before the process ends its work


def crawl(kind: str, seeds: str, folder: str, scope: str) -> None:
    """Read *seeds* in this process."""
    if kind == "ours":
        give_memory_back()
        load()  # a crawl does it beside the reading, and ten lines are read before it has ended
        settings = get_project_settings()
        own = {"CRAWLER_DATA_DIR": folder, "CRAWLER_CONTACT": "ops@w3.org", "LOG_LEVEL": "INFO"}
        settings.update(own, priority="cmdline")
        process = AsyncCrawlerProcess(settings)
        process.crawl(Seeds, seeds=seeds, scope=scope)
    else:
        more = {"JOBDIR": folder} if kind == "scrapy, on disk" else {}
        process = AsyncCrawlerProcess({**SETTINGS, **more})
        process.crawl(PlainSeeds, seeds=seeds)
    process.start()


def measured(kind: str, seeds: Path, home: Path, scope: str = "any") -> Cost:
    """Return what a process of its own needs for *seeds*."""
    with tempfile.TemporaryDirectory(dir=home) as folder, (home / "log").open("wb") as log:
        command = [sys.executable, "-m", "bench.seeds", "--crawl", kind, str(seeds), folder, scope]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=PROJECT
        )
        overdue = threading.Timer(LONGEST_S, process.kill)
        overdue.start()
        assert process.stdin is not None and process.stdout is not None
        memory = Memory(process.pid)
        memory.start()
        line = process.stdout.readline().decode()
        rss_mb, anonymous_mb = memory.end()
        process.stdin.close()
        process.stdout.read()
        process.wait()
        overdue.cancel()
    if not line.startswith(_READ):
        raise SystemExit(f"{kind} has failed:\n{(home / 'log').read_text()[-3000:]}")
    seconds, cpu_s = map(float, line.split()[1:])
    return Cost(seconds, cpu_s, rss_mb, anonymous_mb)


class Memory(threading.Thread):
    """The memory of another process at its largest."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._status = Path(f"/proc/{pid}/status")
        self._is_over = threading.Event()
        self._rss = self._anonymous = 0.0

    def run(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            self._look()

    def end(self) -> tuple[float, float]:
        """Return the MB in all, and those that no file holds."""
        self._is_over.set()
        self.join()
        self._look()
        return self._rss, self._anonymous

    def _look(self) -> None:
        with suppress(OSError):
            lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
            kb = {name: float(lines[name].split()[0]) for name in ("VmHWM", "RssAnon")}
            self._rss = kb["VmHWM"] / 1e3
            self._anonymous = max(self._anonymous, kb["RssAnon"] / 1e3)


def lines_of(count: int, of_a_host: int) -> Iterator[str]:
    """Yield *count* lines, so many of each host, those of one host not together."""
    hosts = max(1, count // of_a_host)
    for number in range(count):
        if number % _BAD_LINES == _BAD_LINES // 2:
            yield "ftp://example.com/no seed"
            continue
        host, page = number % hosts, number // hosts
        scheme = "https" if host % 3 else "http"
        path = f"articles/{page}/" if page else ""
        yield f"{scheme}://www.site{host * 7919 % hosts}.example/{path}"


def loopback_lines(count: int) -> Iterator[str]:
    """Yield *count* lines, each of another host on loopback, which its seed allows."""
    for number in range(1 << 16, count + (1 << 16)):
        yield f"http://127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:8000/"


def write(path: Path, lines: Iterable[str]) -> Path:
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=float, default=1e6)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--only", action="store_true", help="without Scrapy")
    parser.add_argument("--crawl", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crawl:
        crawl(*options.crawl)
        return 0
    missed = False
    count = int(options.lines)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        home = Path(folder)
        few = write(home / "few.txt", lines_of(FEW, 1))
        base = measured("ours", few, home)
        print(f"{FEW} lines: {base.rss_mb:.0f} MB, {base.anonymous_mb:.0f} of them anonymous\n")
        print(
            f"{'':>17} {'lines':>9} {'hosts':>9} {'s':>7} {'CPU s':>7} {'peak MB':>8}"
            f" {'anonymous':>9} {'more MB':>8}"
        )
        for of_a_host, scope in ((10, "any"), (1, "any"), (1, "host"), (1, _LOOPBACK)):
            is_loopback = scope == _LOOPBACK
            lines = loopback_lines(count) if is_loopback else lines_of(count, of_a_host)
            seeds = write(home / "seeds.txt", lines)
            kinds = ["ours"] if options.only or scope != "any" else _KINDS
            for kind in kinds:
                cost = measured(kind, seeds, home, "any" if is_loopback else scope)
                bars = ""
                if kind == "ours":
                    limit_s = SECONDS * count / 1e6
                    more_mb = cost.anonymous_mb - base.anonymous_mb
                    good = cost.seconds <= limit_s and more_mb <= MEMORY_MB
                    missed = missed or not good
                    verdict = "" if good else ", MISSED"
                    bars = f" {more_mb:>8.0f}  (bar: {limit_s:g} s, {MEMORY_MB:g} MB{verdict})"
                how = _LOOPBACK if is_loopback else f"scope={scope}"
                name = f"{kind}, {how}" if kind == "ours" else kind
                print(
                    f"{name:>17} {count:>9} {count // of_a_host:>9} {cost.seconds:>7.2f}"
                    f" {cost.cpu_s:>7.2f}"
                    f" {cost.rss_mb:>8.0f} {cost.anonymous_mb:>9.0f}{bars}",
                    flush=True,
                )
    return int(missed)


_KINDS: Final = ("ours", "scrapy, in memory", "scrapy, on disk")


if __name__ == "__main__":
    sys.exit(main())

"""Whole crawls of the same synthetic web, in turn.

Rule: all take turns round by round, so that a busy machine is busy for all. Those over Redis
get an empty server each time, with an append-only file: none would share a crawl without.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.crawls import PROJECT, Crawl, Crawlee, Ours, Plain, ScrapyRedis, Start
from bench.measure import Cost, Run, run, slope
from bench.redis_server import redis_server
from bench.web import COUNT_PATH, addresses

HOSTS: Final = 200  # more than any keeps busy at once, so no crawl waits for a host
OURS: Final = Ours("gossamer", few=1_000, many=11_000)
UNSYNCED: Final = Ours(
    "gossamer-unsynced", few=1_000, many=11_000, settings=(("CRAWLER_FSYNC", "False"),)
)
PLAIN: Final = Plain("plain-scrapy", few=150, many=600)
CRAWLEE: Final = Crawlee("crawlee", few=150, many=600)
SHARED: Final = Ours("gossamer-redis", few=600, many=3_600, shared=True)
TWO: Final = Ours("gossamer-redis-2", few=1_000, many=7_000, shared=True, workers=2)
SCRAPY_REDIS: Final = ScrapyRedis("scrapy-redis", few=100, many=400, shared=True)
CRAWLS: Final[tuple[Crawl, ...]] = (OURS, UNSYNCED, PLAIN, CRAWLEE, SHARED, TWO, SCRAPY_REDIS)
PAIRS: Final[tuple[tuple[Crawl, Crawl, float], ...]] = (
    (OURS, PLAIN, 3.0),
    (OURS, CRAWLEE, 3.0),
    (SHARED, SCRAPY_REDIS, 5.0),
)
"""Ours, its rival, and how many times the rival's pages/s a core the project promises."""
SYNCED: Final = 0.95
"""A crawl whose pages survive a power cut has so much of the pages/s of one that syncs nothing."""


@contextmanager
def web(hosts: int = HOSTS, *options: str) -> Iterator[int]:
    """The synthetic web, in a process of its own, with *options* of bench.web; its port."""
    command = [sys.executable, "-m", "bench.web", f"--hosts={hosts}", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def counter(port: int) -> Callable[[], int]:
    url = f"http://{addresses(1)[0]}:{port}{COUNT_PATH.decode()}"

    def served() -> int:
        with urllib.request.urlopen(url) as answer:
            return int(answer.read())

    return served


def one(crawl: Crawl, port: int, pages: int, hosts: int = HOSTS) -> Run:
    """One run of *crawl*, from nothing."""
    server = redis_server(append_only=True) if crawl.shared else nullcontext()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, server as redis:
        seeds = Path(folder, "seeds.txt")
        seeds.write_text("".join(f"http://{host}:{port}/\n" for host in addresses(hosts)))
        start = Start(seeds, max(1, pages), Path(folder), redis.url if redis else "")
        before_s = redis.cpu_s() if redis else 0.0
        measured = run(crawl.commands(start), Path(folder, "log"), counter(port))
        after_s = redis.cpu_s() if redis else 0.0
        return replace(measured, redis_cpu_s=after_s - before_s)


def compile_first(port: int) -> None:
    """Run a small crawl, so that numba compiles before anything is measured."""
    one(OURS, port, 10)


def race(crawls: Sequence[Crawl], rounds: int, scale: float) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {crawl.name: [] for crawl in crawls}
    with web() as port:
        compile_first(port)
        for number in range(rounds if crawls else 0):
            for crawl in crawls:
                few, many = (one(crawl, port, int(n * scale)) for n in (crawl.few, crawl.many))
                cost = slope(few, many)
                costs[crawl.name].append(cost)
                spent = f"{cost.cpu_ms_a_page:.2f} ms of CPU a page"
                print(f"round {number + 1}, {crawl.name}: {spent}", flush=True)
    return costs


def ratios(costs: dict[str, Cost]) -> dict[str, dict[str, float]]:
    """How much better ours is, beside each rival of those that were run."""
    return {
        rival.name: _ratio(costs[ours.name], costs[rival.name])
        for ours, rival, _ in (*PAIRS, (OURS, UNSYNCED, SYNCED))
        if {ours.name, rival.name} <= costs.keys()
    }


def _ratio(ours: Cost, rival: Cost) -> dict[str, float]:
    return {
        "cpu": rival.cpu_ms_a_page / ours.cpu_ms_a_page,
        "cpu_with_redis": rival.all_cpu_ms_a_page / ours.all_cpu_ms_a_page,
        "pages": ours.pages_per_s / rival.pages_per_s,
        "peak": rival.peak_mb / ours.peak_mb,
    }


def missed(costs: dict[str, Cost]) -> list[str]:
    """The promises that these costs break."""
    synced = ratios(costs).get(UNSYNCED.name)
    too_dear = synced is not None and synced["pages"] < SYNCED
    price = f"{synced['pages']:.2f}x the pages/s of {UNSYNCED.name}" if synced else ""
    return [f"{price}, promised {SYNCED:g}x"] * too_dear + [
        f"{ratio[figure]:.1f}x the pages/s a core of {rival.name} ({figure}), promised {least:g}x"
        for _, rival, least in PAIRS
        if (ratio := ratios(costs).get(rival.name))
        for figure in ("cpu", "cpu_with_redis")
        if ratio[figure] < least
    ]


def table(costs: dict[str, Cost]) -> str:
    heads = ("CPU ms a page", "Redis ms", "pages/s", "a core", "peak MB", "at pages")
    lines = [f"{'':18}" + "".join(f"{head:>15}" for head in heads)]
    for name, cost in costs.items():
        figures = f"{cost.cpu_ms_a_page:15.2f}{cost.redis_ms_a_page:15.2f}"
        figures += f"{cost.pages_per_s:15.0f}{cost.pages_per_s_a_core:15.0f}"
        figures += f"{cost.peak_mb:15.0f}{cost.pages:15}"
        lines.append(f"{name:18}{figures}")
    for rival, ratio in ratios(costs).items():
        lines.append(
            f"better than {rival}: {ratio['cpu']:.1f}x pages/s a core"
            f" ({ratio['cpu_with_redis']:.1f}x with Redis' CPU counted),"
            f" {ratio['pages']:.1f}x pages/s, {ratio['peak']:.1f}x memory"
        )
    return "\n".join(lines)

"""`make bench`: this project and plain Scrapy crawl the same synthetic web in turn.

Rule: both take turns round by round, so that a busy machine is busy for both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.crawls import PROJECT, Crawl, Ours, Plain
from bench.measure import Cost, CrawlFailed, middle, run, slope
from bench.web import COUNT_PATH, addresses

HOSTS: Final = 200  # more than either keeps busy at once, so no crawl waits for a host
OURS: Final = Ours("gossamer", few=1_000, many=4_000)
PLAIN: Final = Plain("plain-scrapy", few=200, many=800)
LEAST_RATIO: Final = 3.0  # what the project promises


@contextmanager
def web() -> Iterator[int]:
    """The synthetic web, in a process of its own; its port."""
    command = [sys.executable, "-m", "bench.web", f"--hosts={HOSTS}"]
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


def measure(crawl: Crawl, port: int, scale: float) -> Cost:
    """One round of *crawl*: a short run, then a longer one, each from nothing."""
    runs = []
    for pages in (crawl.few, crawl.many):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            seeds = Path(folder, "seeds.txt")
            seeds.write_text("".join(f"http://{host}:{port}/\n" for host in addresses(HOSTS)))
            command = crawl.command(seeds, max(1, int(pages * scale)), Path(folder, "data"))
            runs.append(run(command, Path(folder, "log"), counter(port)))
    return slope(*runs)


def report(costs: dict[str, Cost]) -> str:
    lines = [f"{'':14}{'CPU ms a page':>15}{'pages/s':>10}{'peak MB':>10}{'at pages':>10}"]
    for name, cost in costs.items():
        figures = f"{cost.cpu_ms_a_page:15.2f}{cost.pages_per_s:10.0f}{cost.peak_mb:10.0f}"
        figures += f"{cost.pages:10}"
        lines.append(f"{name:14}{figures}")
    if ratio := ratios(costs):
        figures = f"{ratio['cpu']:14.1f}x{ratio['pages']:9.1f}x{ratio['peak']:9.1f}x"
        lines.append(f"{'ours better by':14}{figures}")
    return "\n".join(lines)


def ratios(costs: dict[str, Cost]) -> dict[str, float]:
    if len(costs) < len((OURS, PLAIN)):
        return {}
    ours, plain = costs[OURS.name], costs[PLAIN.name]
    return {
        "cpu": plain.cpu_ms_a_page / ours.cpu_ms_a_page,
        "pages": ours.pages_per_s / plain.pages_per_s,
        "peak": plain.peak_mb / ours.peak_mb,
    }


def bench(crawls: Sequence[Crawl], rounds: int, scale: float) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {crawl.name: [] for crawl in crawls}
    with web() as port:
        for number in range(rounds):
            for crawl in crawls:
                cost = measure(crawl, port, scale)
                costs[crawl.name].append(cost)
                print(
                    f"round {number + 1}, {crawl.name}: {cost.cpu_ms_a_page:.2f} ms of CPU a page"
                )
    return costs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times the pages of each run")
    parser.add_argument("--only", choices=(OURS.name, PLAIN.name))
    parser.add_argument("--json", type=Path, help="write every round there")
    options = parser.parse_args()
    crawls = [crawl for crawl in (OURS, PLAIN) if options.only in (None, crawl.name)]
    try:
        rounds = bench(crawls, options.rounds, options.scale)
    except CrawlFailed as failure:
        print(failure, file=sys.stderr)
        return 2
    costs = {name: middle(each) for name, each in rounds.items()}
    print(report(costs))
    summary = {
        "medians": {name: asdict(cost) for name, cost in costs.items()},
        "ratios": ratios(costs),
        "rounds": {name: [asdict(cost) for cost in each] for name, each in rounds.items()},
    }
    if options.json:
        options.json.write_text(json.dumps(summary, indent=2))
    print(json.dumps({"ratios": summary["ratios"], "medians": summary["medians"]}))
    return int(ratios(costs).get("cpu", LEAST_RATIO) < LEAST_RATIO)


if __name__ == "__main__":
    sys.exit(main())

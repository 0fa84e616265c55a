"""`make bench`: this project beside plain Scrapy, crawlee and scrapy-redis.

Rule: whole crawls of the same synthetic web, then the shared frontiers from outside, then what
the content of a page costs, then what is stored, in small (`make bench-scale` in large). It ends
with 1 where a promise is broken that holds on every machine, with 2 where nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench import content, race, scale
from bench.frontier import rounds as frontier
from bench.frontier.clients import ClientFailed
from bench.frontier.table import OURS, THEIRS, missed, table
from bench.measure import CrawlFailed, middle
from bench.redis_server import RedisMissing

CRAWLS: Final = "crawls"
FRONTIER: Final = "frontier"
CONTENT: Final = "content"
STORES: Final = "stores"
PARTS: Final = (CRAWLS, FRONTIER, CONTENT, STORES)


def crawls(names: Sequence[str], rounds: int, scale: float) -> tuple[dict[str, Any], list[str]]:
    """Figures for the summary, and the promises that are broken."""
    chosen = [crawl for crawl in race.CRAWLS if CRAWLS in names or crawl.name in names]
    every = race.race(chosen, rounds, scale)
    costs = {name: middle(each) for name, each in every.items()}
    if costs:
        print(race.table(costs), end="\n\n")
    figures = {
        "ratios": race.ratios(costs),
        "medians": {name: asdict(cost) for name, cost in costs.items()},
        "rounds": {name: [asdict(cost) for cost in each] for name, each in every.items()},
    }
    return figures, race.missed(costs)


def frontiers(rounds: int, scale: float) -> tuple[dict[str, Any], list[str]]:
    figures = frontier.measured((OURS, THEIRS), rounds, scale)
    print(table(figures), end="\n\n")
    return {"frontier": figures}, missed(figures)


def stores() -> dict[str, Any]:
    """Their bars are of one machine, and of the large sizes: none is a promise for this one."""
    with tempfile.TemporaryDirectory(prefix="bench") as home:
        results = scale.run(scale.SMALL, Path(home))
    scale.print_table(results)
    return {"stores": results}


def contents(times: float) -> dict[str, Any]:
    costs = content.every(times)
    print(content.table(costs), end="\n\n")
    return {"content_cpu_ms": costs}


def measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    names = options.only or PARTS
    summary, broken = crawls(names, options.rounds, options.scale)
    if FRONTIER in names:
        figures, more = frontiers(options.rounds, options.scale)
        summary, broken = {**summary, **figures}, [*broken, *more]
    if CONTENT in names:
        summary = {**summary, **contents(options.scale)}
    if STORES in names:
        summary = {**summary, **stores()}
    return summary, broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="times the size of each run")
    choices = (*PARTS, *(crawl.name for crawl in race.CRAWLS))
    parser.add_argument(
        "--only", nargs="+", choices=choices, metavar="NAME", help=", ".join(choices)
    )
    parser.add_argument("--json", type=Path, help="write every round there")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended
    try:
        summary, broken = measure(options)
    except (CrawlFailed, ClientFailed, RedisMissing) as failure:
        print(failure, file=sys.stderr)
        return 2
    if options.json:
        options.json.write_text(json.dumps(summary, indent=2))
    del summary["rounds"]
    summary.pop("stores", None)  # printed as it came
    print(json.dumps(summary))
    for promise in broken:
        print(f"broken: {promise}", file=sys.stderr)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

"""What a URL of a plan costs: `python -m bench.plan`. Ten seconds, one core.

Rule: the frontier is on disk, and its hosts rest for different times, so that each URL has its own
place in time. No rules are applied: those of a crawl cost what they cost a lease.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time
from typing import Final

from msgspec.structs import replace as changed
from xxhash import xxh3_64_intdigest

from bench.figures import Figures
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import Candidate, Done, HostKey, Rest
from crawler.policy.rounds import RoundCaps
from crawler.view.local import open_read_only
from crawler.view.plan import leases_in_order, store_of_plan

HOSTS: Final = 300
PAGES: Final = 200  # of a host
START: Final = 1_800_000_000.0


def _fill(folder: Path) -> None:
    """Begin a frontier in *folder*, of which each host was fetched from once."""
    random, turns = Random(1), FrontierTurns()
    frontier = open_frontier(folder, FrontierLimits(), START, background=turns)
    for number in range(HOSTS):
        name = f"www.site-{number}.org"
        urls = [f"http://{name}/section/page-{page}.html" for page in range(PAGES)]
        found = [
            Candidate(
                *(url, xxh3_64_intdigest(url.encode()), HostKey(name), f"site-{number}.org", 1),
                cash=random.randint(300, 6_000),
            )
            for url in urls
        ]
        frontier.add(found, START, at_once=True)
        turns.end(frontier, START)
    for lease in frontier.lease(START, HOSTS):
        gap_s = random.uniform(1.0, 5.0)
        frontier.release(lease, Rest(gap_s, changed(lease.pace, gap_s=gap_s)), START)
        frontier.finish(lease, Done(), START)
    turns.end(frontier, START)
    frontier.close()


def main() -> int:
    limits, figures = replace(FrontierLimits(), rounds=RoundCaps()), Figures()
    with tempfile.TemporaryDirectory() as folder:
        _fill(Path(folder))
        below = open_read_only(Path(folder) / "frontier")
        began = process_time()
        frontier = open_frontier(
            Path(folder, "plan"),
            limits,
            START,
            store=store_of_plan(below),
            background=FrontierTurns(),
        )
        planned = sum(1 for _ in leases_in_order(frontier, START, limits))
        figures.note("a URL of a plan, us", (process_time() - began) / planned * 1e6)
        below.close()
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())

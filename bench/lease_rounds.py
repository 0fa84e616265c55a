"""What the caps of rounds cost a lease: `python -m bench.lease_rounds`. A minute, one core.

Rule: a lease is taken, released and finished in a frontier without rounds and in ones with them, in
turns of a few hundred, so that what else the machine does meets all alike. Times are those of the
processor in the thread that calls, commits among them, and the lower quartile of many turns.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from time import thread_time_ns
from types import MappingProxyType
from typing import Final

from xxhash import xxh3_64_intdigest

from bench.figures import Figures
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, Done, HostKey, Pace, Rest
from crawler.policy.rounds import RoundCaps

HOSTS: Final = 300
PAGES: Final = 300  # of a host
TURN: Final = 500  # leases between two looks at the clock
TURNS: Final = 160
COMMIT: Final = 10  # leases between two commits
MOST_US: Final = 1.0  # that caps of all and of hosts may cost a lease
START: Final = 1_800_000_000.0
_MANY: Final = 1_000_000_000
KINDS: Final = MappingProxyType(
    {
        "none": None,
        "again": None,
        "all_and_hosts": RoundCaps(urls=_MANY, per_host=_MANY),
        "with_domains": RoundCaps(urls=_MANY, per_host=_MANY, per_domain=_MANY),
    }
)
_NO_REST: Final = Rest(0.0, Pace())


class _Crawl:
    """A frontier, and the turns of its event loop."""

    def __init__(self, folder: str, caps: RoundCaps | None) -> None:
        self._turns = FrontierTurns()
        limits = replace(FrontierLimits(), rounds=caps)
        self.frontier: TwoTierFrontier = open_frontier(
            Path(folder), limits, START, background=self._turns
        )
        for number in range(HOSTS):
            name = f"www.site-{number}.org"
            urls = [f"http://{name}/page/{page}" for page in range(PAGES)]
            found = [
                Candidate(
                    url, xxh3_64_intdigest(url.encode()), HostKey(name), f"site-{number}.org", 1
                )
                for url in urls
            ]
            self.frontier.add(found, START, at_once=True)
            self._turns.end(self.frontier, START)

    def turn_us(self) -> float:
        """Return what a lease costs, in microseconds."""
        began = thread_time_ns()
        for _ in range(TURN // COMMIT):
            for _ in range(COMMIT):
                (lease,) = self.frontier.lease(START, 1)
                self.frontier.release(lease, _NO_REST, START)
                self.frontier.finish(lease, Done(), START)
            self.frontier.commit()
        return (thread_time_ns() - began) / TURN / 1_000


def lease_costs() -> dict[str, float]:
    """Return what a lease costs by kind of caps, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        crawls = {name: _Crawl(f"{folder}/{name}", caps) for name, caps in KINDS.items()}
        times: dict[str, list[float]] = {name: [] for name in KINDS}
        for turn in range(TURNS):
            names = list(KINDS) if turn % 2 else list(reversed(KINDS))
            for name in names:
                times[name].append(crawls[name].turn_us())
    return {name: quantiles(of, n=4)[0] for name, of in times.items()}


def main() -> int:
    figures = Figures()
    costs = lease_costs()
    base = costs["none"]
    figures.note("a lease without rounds, us", base)
    figures.note("the same again: what the measurement is worth, us", costs["again"] - base)
    figures.note("caps of all and of hosts, us more", costs["all_and_hosts"] - base, MOST_US)
    figures.note("and of domains, us more", costs["with_domains"] - base)
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())

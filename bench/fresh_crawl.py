"""`python -m bench.fresh_crawl [DAYS...]`: how fresh whole crawls keep their copies.

Rule: the frontier and the loop are the product's own, on a virtual clock: servers fail, refuse and
rest as in other simulated crawls (crawler/simulate/), and each robots.txt is fetched once a day.
Beside each figure is that of the policy alone (bench/revisit_world.py), which visits the same pages
from the same first visits on with the same budget, a visit of each in so many days. Weights are 1,
as in the frontier. Ends with 1 where a bar is missed. Some two minutes of one core for a crawl of
10,000 pages.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, log
from time import process_time
from typing import Any, Final
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from bench.figures import Figures
from bench.revisit_world import (
    BAYES_OF_HOSTS,
    END,
    FIRST,
    MEASURED,
    UNIFORM,
    WARM_UP,
    Floats,
    Kept,
    Visitors,
    World,
    best_visits,
    compiled,
    kept_days,
    world,
)
from crawler.config.settings import RevisitSettings
from crawler.frontier import later
from crawler.frontier import records as keys
from crawler.frontier.open import frontier_limits, open_frontier
from crawler.frontier.staging import all_records
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.choices import RevisitChoice
from crawler.policy.revisits import PRIOR_SHAPE, next_multiplier
from crawler.simulate.process import Machine, Policy
from crawler.simulate.run import CONFIG, Crash, OperatorAct, run
from crawler.simulate.run import World as Simulated
from crawler.simulate.servers import ServerParameters
from crawler.simulate.web import DAY_S, START, Web, WebParameters

Mask = NDArray[np.bool_]

ADAPTIVE: Final = Policy(
    config=replace(CONFIG, revisits=RevisitSettings(revisit=RevisitChoice.ADAPTIVE))
)
_ZERO: Final = START + DAY_S  # the pages that were visited until then are looked at
_SLOWED: Final = START + 2 * DAY_S  # from when on a host may be asked less often
_MOST_BELOW: Final = 0.02  # the policy alone, as a share of the best
_MOST_DAYS: Final = 365.0
_MOST_OFF: Final = 0.01
_MOST_LAG: Final = 0.05
_LETTERS: Final = str.maketrans("0123456789", "qrstuvwxyz")  # digits would make one pattern of all


def urls_of(of: World) -> list[str]:
    """Return a URL for each page."""
    return [
        f"http://h{host}.test/p/{str(page).translate(_LETTERS)}"
        for page, host in enumerate(of.hosts.tolist())
    ]


def simulated(of: World, cycle: float, days: float) -> Simulated:
    """Return the web of *of* and a crawl of so many *days*, with a visit of each page in *cycle*
    days. All pages are seeds, so that none is unknown because another one fails."""
    urls = urls_of(of)
    limits = replace(
        frontier_limits(CONFIG),
        max_urls_per_domain=None,
        visits_per_day=of.pages / cycle,
        usual_change_days=1 / float(of.rates.mean()),
    )
    return Simulated(
        seed=3,
        web=WebParameters(odd_robots=0.2),
        servers=ServerParameters(troubles=4.0, limited=0.4, dead=0.0, horizon_s=days * DAY_S),
        machine=Machine(concurrency=16, frontier=limits),
        edges=dict.fromkeys(urls, ()),
        changes_a_day=dict(zip(urls, of.rates.tolist(), strict=True)),
        seeds=tuple(urls),
        until=START + days * DAY_S,
    )


@dataclass(frozen=True, slots=True)
class Crawled:
    """What a crawl has kept of the pages that it had on its first day."""

    of: World  # these pages
    urls: list[str]
    visits: list[list[float]]  # of each, epoch seconds
    web: Web
    tries: float  # visits a day while it was measured, failed ones too
    tries_of: dict[str, float]  # requests a day to each host, then, with those for robots.txt

    @property
    def begun(self) -> Floats:
        """When each was visited first, in days after the first one."""
        return np.array([_day(visits[0]) for visits in self.visits])

    def kept(self, pages: Mask) -> Kept:
        """Return how fresh the copies of *pages* were; of the budget, the visits a day."""
        fresh = first = age = longest = visits = 0.0
        for page in np.nonzero(pages)[0].tolist():
            url, ats = self.urls[page], self.visits[page]
            for at, after in zip(ats, [*ats[1:], _ZERO + END * DAY_S], strict=True):
                begin, end = _day(at), min(_day(after), END)
                change = (self.web.next_change(url, at) - at) / DAY_S
                kept = kept_days(begin, end, change)
                fresh, first, age = fresh + kept[0], first + kept[1], age + kept[2]
                visits += WARM_UP < begin < END
                longest = max(longest, end - begin) if end > WARM_UP else longest
        count = pages.sum()
        means = fresh / count / MEASURED, first / count / FIRST, age / count / MEASURED
        return Kept(*means, used=visits / MEASURED, longest=longest)


def crawl(of: World, simulation: Simulated) -> Crawled:
    found = run(simulation, ADAPTIVE)
    assert not found.log.failure, found.log.failure
    visits: dict[str, list[float]] = {url: [] for url in simulation.seeds}
    tries, tries_of = 0.0, dict.fromkeys(found.web.sites, 0.0)
    for hit in found.log.hits:
        is_measured = WARM_UP < _day(hit.start) < END
        tries_of[hit.host] += is_measured / MEASURED
        if hit.url in visits:
            tries += is_measured / MEASURED
            if hit.status == 200 and not hit.error:
                visits[hit.url].append(hit.start)
    had = np.array([bool(ats) and ats[0] < _ZERO for ats in visits.values()])
    return Crawled(
        _part(of, had),
        [url for url, is_had in zip(visits, had, strict=True) if is_had],
        [ats for ats, is_had in zip(visits.values(), had, strict=True) if is_had],
        found.web,
        tries,
        tries_of,
    )


def alone(
    visitors: Visitors, of: World, begun: Floats, per_day: float, usual: float, pages: Mask
) -> Kept:
    """Return how the policy alone keeps *pages*; *usual*: the prior's mean."""
    return visitors.values(
        *(BAYES_OF_HOSTS, _part(of, pages), per_day, PRIOR_SHAPE, usual), begun=begun[pages]
    )


def _part(of: World, pages: Mask) -> World:
    return World(of.rates[pages], of.weights[pages], of.hosts[pages])


def _day(at: float) -> float:
    return (at - _ZERO) / DAY_S


def even_world(pages: int, hosts: int) -> World:
    """Return the world of bench.fresh, with weights of 1."""
    return replace(world(pages, hosts), weights=np.ones(pages))


def compare(figures: Figures, of: World, cycle: float, visitors: Visitors, name: str = "") -> None:
    """Print how fresh a crawl keeps its pages. *name*: a host that may be asked half as often as
    its pages would be visited."""
    per_day, usual, began = of.pages / cycle, float(of.rates.mean()), process_time()
    simulation = simulated(of, cycle, END + 2)
    slowed = 0
    if name:
        slowed = int(np.bincount(of.hosts).argmax())
        rest_s = DAY_S / (0.5 * (of.hosts == slowed).sum() / cycle)
        rule = f'[[rule]]\nfor = "h{slowed}.test"\ndelay_s = {rest_s:.0f}\n'
        simulation = replace(simulation, acts=(OperatorAct(_SLOWED, rule),))
    crawled = crawl(of, simulation)
    of, begun, every = crawled.of, crawled.begun, np.ones(crawled.of.pages, bool)
    took_s = process_time() - began
    of_policy, of_crawl = {}, {}
    if name:
        here = of.hosts == slowed
        for part, pages in ((name, here), ("the other hosts", ~here)):
            of_crawl[part] = crawled.kept(pages)
            made = of_crawl[part].used if pages is here else per_day - of_crawl[name].used
            of_policy[part] = alone(visitors, of, begun, made, usual, pages)
        of_policy["all"] = _mean_of(of_policy[name], of_policy["the other hosts"], here.mean())
    else:
        of_policy["all"] = alone(visitors, of, begun, per_day, usual, every)
    of_crawl["all"] = crawled.kept(every)
    best = of.fresh(best_visits(of.rates, of.weights, per_day))
    print(f"\n{of.pages:,} pages, {cycle:g} days for a visit of each{f', {name}' * bool(name)}")
    print(f"at best {best:.4f} are fresh; crawled in {took_s:.0f} s of a core")
    print(f"{'':32}{'fresh':>8}{'share':>8}{'age, d':>8}{'longest':>9}{'first':>8}{'a day':>8}")
    for part, by_policy in of_policy.items():
        for who, kept in (("policy alone", by_policy), ("crawl", of_crawl[part])):
            of_best = f"{kept.fresh / best:8.3f}" if part == "all" else " " * 8
            a_day = f"{kept.used:8.1f}" if who == "crawl" else ""
            print(
                f"{f'{part}: {who}':32}{kept.fresh:8.4f}{of_best}{kept.age:8.1f}"
                f"{kept.longest:9.0f}{kept.first:8.3f}{a_day}"
            )
    found = of_crawl["all"]
    below = (of_policy["all"].fresh - found.fresh) / best
    figures.show("share of the best, below the policy alone", f"{below:.4f}",
                 f"{_MOST_BELOW:g} or less", below <= _MOST_BELOW)  # fmt: skip
    # A slowed host may not be asked for all of its pages in a year.
    most_days = max(_MOST_DAYS, of_policy["all"].longest if name else 0.0)
    figures.note("most days between two visits", found.longest, round(most_days))
    turn = visitors.dates(UNIFORM, of, per_day, cycle)
    ages = " ".join([f"{kept.age / turn.age:.2f}" for kept in (of_policy["all"], found)])
    figures.show("age, in times of that in turn: policy alone, crawl", ages)
    off = found.used / per_day - 1
    figures.show("budget used", f"{1 + off:.4f}", f"1, {_MOST_OFF:g} more or less",
                 abs(off) <= _MOST_OFF)  # fmt: skip
    figures.show("the same with failed visits", f"{crawled.tries / per_day:.4f}")
    if name:
        figures.show("requests a day there, of those allowed",
                     f"{crawled.tries_of[f'h{slowed}.test'] * rest_s / DAY_S:.3f}")  # fmt: skip


def _mean_of(one: Kept, other: Kept, share: float) -> Kept:
    def mean(of: Callable[[Kept], float]) -> float:
        return share * of(one) + (1 - share) * of(other)

    return Kept(
        *(
            mean(lambda kept: kept.fresh),
            mean(lambda kept: kept.first),
            mean(lambda kept: kept.age),
        ),
        longest=max(one.longest, other.longest),
    )


class Thresholds:
    """What each visit gained, and the threshold then, over two processes of a crawl."""

    def __init__(self) -> None:
        self.pairs: list[tuple[float, float]] = []  # threshold, gain
        self.begun: list[int] = []  # how many there were when a process opened the frontier
        self.rewritten = 0  # later URLs whose records the last of these has changed

    def next_multiplier(self, multiplier: float, value: float) -> float:
        self.pairs.append((multiplier, value))
        return next_multiplier(multiplier, value)

    def open(self, *given: Any, store: Any, **named: Any) -> TwoTierFrontier:
        """Open a frontier, and let it say when the next visit is."""
        self.begun.append(len(self.pairs))
        before = dict(all_records(store, keys.LATER))
        frontier = open_frontier(*given, store=store, **named)
        frontier.wake_at()
        after = dict(all_records(store, keys.LATER))
        self.rewritten = len(before.items() ^ after.items())
        return frontier


def other_budget(figures: Figures, of: World, cycle: float, times: float) -> None:
    """The budget of the next start is another one: how far the threshold is from what visits gain
    between a twentieth and a tenth of the pages later."""
    found, per_day = Thresholds(), of.pages / cycle
    change_at = START + WARM_UP * DAY_S
    simulation = replace(
        simulated(of, cycle, WARM_UP + 0.15 * cycle / min(times, 1.0)),
        crashes=(Crash(0, 60.0, at=change_at, visits_per_day=per_day * times),),
    )
    with patch.object(later, "next_multiplier", found.next_multiplier):
        run(simulation, replace(ADAPTIVE, frontier=found.open))
    begin = found.begun[-1] + of.pages // 20
    logs = [
        log(gain / threshold) for threshold, gain in found.pairs[begin : begin + of.pages // 20]
    ]
    off = exp(abs(sum(logs) / len(logs))) - 1
    print()
    figures.note(f"budget x {times:g}: threshold off after 5 % of the pages", off, _MOST_LAG)
    figures.note(
        f"budget x {times:g}: records written for it", found.rewritten, 0, f"{found.rewritten}"
    )


def main() -> int:
    parser = ArgumentParser(
        prog="python -m bench.fresh_crawl",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("days", nargs="*", type=float, help="for a visit of each page (30)")
    parser.add_argument("--pages", type=int, default=10_000, help="(%(default)s)")
    parser.add_argument("--hosts", type=int, default=200, help="(%(default)s)")
    asked = parser.parse_args()
    figures, of, visitors = Figures(), even_world(asked.pages, asked.hosts), compiled()
    for cycle in asked.days or (30.0,):
        compare(figures, of, cycle, visitors)
        compare(figures, of, cycle, visitors, "a slowed host")
        for times in (2.0, 0.5):
            other_budget(figures, of, cycle, times)
    return figures.missed


if __name__ == "__main__":
    sys.exit(main())

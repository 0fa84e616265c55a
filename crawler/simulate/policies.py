"""Policies side by side: each crawls the same worlds, and a table shows what came of it.

Rule: a policy is a value (`Policy`): settings, and what makes the parts of a crawl. One that is to
be judged is added to POLICIES, by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import median
from typing import Final

from crawler.config.settings import PolitenessSettings
from crawler.frontier.open import frontier_limits
from crawler.simulate.process import Machine, Policy
from crawler.simulate.run import DEFAULT, Run, World, run
from crawler.simulate.servers import ServerParameters
from crawler.simulate.web import START, WebParameters


def _with_politeness(name: str, **settings: float) -> Policy:
    config = replace(DEFAULT.config, politeness=PolitenessSettings(**settings))  # type: ignore[arg-type]  # by their names
    return replace(DEFAULT, name=name, config=config)


POLICIES: Final[Mapping[str, Policy]] = {
    each.name: each
    for each in (
        DEFAULT,
        _with_politeness("factor-5", delay_factor=5.0),
        _with_politeness("factor-20", delay_factor=20.0),
        _with_politeness("one-second", delay_factor=0.0),
        _with_politeness("five-seconds", delay_factor=0.0, min_delay_s=5.0),
    )
}
"""The policies that the command compares, by name."""


def policy_world(seed: int, hosts: int = 20, largest: int = 400) -> World:
    """Return a world to compare policies in: limits as in a real crawl, but no budget, no crash and
    no operator."""
    random = Random(seed)
    limits = replace(frontier_limits(DEFAULT.config), budgets=None)
    return World(
        seed=seed,
        web=WebParameters(hosts=hosts, largest=largest, features=0.1, odd_robots=0.2),
        servers=ServerParameters(
            service_s=random.choice((0.03, 0.1, 0.3)), troubles=1.0, limited=0.4, dead=0.05
        ),
        machine=Machine(concurrency=16, frontier=limits),
    )


@dataclass(frozen=True, slots=True)
class CrawlSummary:
    """What came of one crawl, as its servers saw it."""

    pages: tuple[int, ...]  # with status 200, until each of TIMES_S
    requests: int
    refused: int  # answered with 429 or 503
    failed: int  # not answered
    hours: float  # until nothing was left


TIMES_S: Final = (60.0, 600.0, 3600.0)


def summary_of(found: Run) -> CrawlSummary:
    hits = found.log.hits
    good = [hit.end - START for hit in hits if hit.status == 200 and not hit.error]
    return CrawlSummary(
        pages=tuple(sum(1 for at in good if at <= until) for until in TIMES_S),
        requests=len(hits),
        refused=sum(1 for hit in hits if hit.status in (429, 503)),
        failed=sum(1 for hit in hits if hit.status is None),
        hours=(found.log.ended_at - START) / 3600.0,
    )


def compare(policies: Sequence[Policy], worlds: Iterable[World]) -> Iterator[str]:
    """Yield the lines of a table: the medians over *worlds*, for each policy."""
    of_policy: dict[str, list[CrawlSummary]] = {each.name: [] for each in policies}
    for world in worlds:
        for policy in policies:
            of_policy[policy.name].append(summary_of(run(world, policy)))
    times = "".join(f"{f'pages in {at:g} s':>18}" for at in TIMES_S)
    yield f"{'policy':16}{times}{'requests':>10}{'refused':>9}{'failed':>8}{'hours':>9}"
    for name, found in of_policy.items():
        pages = [median([each.pages[n] for each in found]) for n in range(len(TIMES_S))]
        requests = median([each.requests for each in found])
        refused = median([each.refused / max(1, each.requests) for each in found])
        failed = median([each.failed / max(1, each.requests) for each in found])
        hours = median([each.hours for each in found])
        row = "".join(f"{each:18.0f}" for each in pages)
        yield f"{name:16}{row}{requests:10.0f}{refused:9.2%}{failed:8.2%}{hours:9.2f}"

"""`python -m bench.budgets`: what budgets of domains cost, and what they keep from whom.

Rule: the frontier is the product's own, on a virtual clock; nothing depends on the machine but the
time of a link. Ends with 1 where a bar is missed. A minute of a core.

With `--published 10000` a crawl as the one that STAR's and BEAST's authors published, at a
ten-thousandth of its size, but for as many days: does the frontier find work for all of its slots?
"""

from __future__ import annotations

import random
import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np
from xxhash import xxh3_64_intdigest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, Done, HostKey, Lease, LinkSource, Pace, Rest, Standing
from crawler.policy.budgets import BudgetRules

HOUR_S: Final = 3600.0
MOST_MOVED: Final = 4.5  # URLs read and written for each one over a budget
MOST_LOST: Final = 0.01  # of the pages of others, beside a farm
MOST_TIME: Final = 1.05  # of that without budgets, where nobody else waits
_NEW_FIRST: Final = (Standing.NEW, Standing.ANSWERS)
_SITES: Final = 1000
_OTHER_SITES: Final = 0.2  # of the pages of one link to another
MOST_VOTE_US: Final = 0.5  # of a link

# Of the published crawl (H.-T. Lee, D. Leonard, X. Wang and D. Loguinov, "IRLbot: Scaling to 6
# Billion Pages and Beyond", WWW 2008).
_DAYS: Final = 41
_REQUESTS: Final = 7.6e9
_PAGES: Final = 6.3e9
_LINKS: Final = 394e9
_URLS: Final = 41e9
_HOSTS: Final = 117e6
_RANKED: Final = 10_000
LEAST_RATE: Final = 0.99  # of the published one


def url(host: str, path: int, domain: str, depth: int = 1, request: bytes = b"") -> Candidate:
    text = f"https://{host}/{path}"
    key = xxh3_64_intdigest(text.encode())
    return Candidate(text, key, HostKey(host), domain, depth, min(depth, 1), request=request)


@contextmanager
def opened(limits: FrontierLimits) -> Iterator[tuple[TwoTierFrontier, FrontierTurns]]:
    turns = FrontierTurns()
    with tempfile.TemporaryDirectory() as folder:
        frontier = open_frontier(Path(folder), limits, 0.0, background=turns, store=MemoryStore())
        yield frontier, turns
        frontier.close()


LinksOf = Callable[[Candidate], Sequence[Candidate]]


@dataclass(frozen=True, slots=True)
class Crawled:
    pages: Counter[str]  # by domain
    took_s: float
    in_hour: Counter[tuple[str, int]]  # pages by domain and hour
    waiting: int  # at the end
    spilled: int
    sampled_out: int
    moved: int  # spilled URLs that were read or written


def crawl(
    limits: FrontierLimits,
    seeds: Sequence[Candidate],
    links_of: LinksOf,
    slots: int,
    known: Sequence[tuple[LinkSource, Sequence[str]]] = (),
    *,
    until: float = float("inf"),
    fetch_s: float = 1.0,
    rest_s: float = 10.0,
) -> Crawled:
    """Crawl on a virtual clock, each host one page at a time, until nothing is left or *until*."""
    pages, in_hour = Counter[str](), Counter[tuple[str, int]]()
    ends: list[tuple[float, int, Lease]] = []
    now, free = 0.0, slots
    with opened(limits) as (frontier, turns):
        for source, domains in known:
            frontier.count_votes(frontier.votes(source, domains), now)
        frontier.add(seeds, now)
        while now < until:
            turns.end(frontier, now)
            leases = frontier.lease(now, free, _NEW_FIRST) if free else []
            free -= len(leases)
            for lease in leases:
                heappush(ends, (now + fetch_s, lease.id, lease))
            if leases:
                continue
            wake = frontier.wake_at() if free else None
            if wake is not None and wake <= now:
                wake = now + 1e-3
            times = [time for time in (ends[0][0] if ends else None, wake) if time is not None]
            if not times:
                break
            now = min(times)
            while ends and ends[0][0] <= now:
                lease = heappop(ends)[2]
                free += 1
                found = lease.candidate
                pages[found.domain] += 1
                in_hour[found.domain, int(now // HOUR_S)] += 1
                linked = links_of(found)
                if linked:
                    frontier.add(linked, now, source=LinkSource(found.domain))
                pace = Pace(gap_s=rest_s, standing=Standing.ANSWERS)
                frontier.release(lease, Rest(rest_s, pace), now)
                frontier.finish(lease, Done(), now)
        counts = frontier.counts()
        at_end = (counts.waiting, counts.spilled, counts.sampled_out, frontier.budgets.moved)
    return Crawled(pages, now, in_hour, *at_end)


def moved(arrivals: Sequence[int], rounds: int, least: int) -> tuple[float, float]:
    """Return how often a URL over its budget is read or written, and how many were fetched of those
    that the budgets allowed, if domains bring so many URLs each round."""
    rules = BudgetRules(least=least, most=least, ranked=1, hosts_per_url=1 << 40)
    over = fetched = allowed = 0
    with opened(FrontierLimits(budgets=rules)) as (frontier, turns):
        number = 0
        for hour in range(rounds):
            now = hour * HOUR_S
            for domain, urls in enumerate(arrivals):
                name = f"d{domain}.example"
                found = [url(name, number + each, name) for each in range(urls)]
                over += frontier.add(found, now, at_once=True).over_budget
                allowed += min(least, urls)
                number += urls
            # As many as budgets allow, so that the slots are never idle.
            for _ in range(2 * len(arrivals) * least):
                turns.end(frontier, now)
                due_at = frontier.budgets.next_at
                if not frontier.counts().waiting and (due_at is None or due_at > now):
                    break
                for lease in frontier.lease(now, 1):
                    fetched += 1
                    frontier.release(lease, Rest(0.0, Pace()), now)
                    frontier.finish(lease, Done(), now)
        return frontier.budgets.moved / max(over, 1), fetched / allowed


def farm_and_honest(budgets: BudgetRules | None, farm_hosts: int, hours: int) -> Crawled:
    """Crawl 1,000 sites that always have pages left, and link to each other, beside a farm whose
    hosts link to each other and that one of the sites links to. There are slots for half of the
    sites."""
    rng = random.Random(1)  # not for a secret

    def links_of(page: Candidate) -> list[Candidate]:
        if page.domain == "farm.example":
            hosts = [rng.randrange(farm_hosts) for _ in range(40)]
            return [url(f"h{each}.farm.example", 0, "farm.example") for each in hosts]
        number = int(page.url.rpartition("/")[2])
        found = [url(page.host, number * 3 + each, page.domain) for each in (1, 2, 3)]
        if rng.random() < _OTHER_SITES:
            other = f"site{rng.randrange(_SITES)}.example"
            found.append(url(other, 0, other))
        elif page.domain == "site0.example":
            found.append(url(f"h{rng.randrange(farm_hosts)}.farm.example", 0, "farm.example"))
        return found

    # Who links to whom was known before: ranks are those of the web.
    known = [
        (LinkSource(f"site{(n + each) % _SITES}.example"), [f"site{n}.example"])
        for n in range(_SITES)
        for each in range(1, 4)
    ]
    honest = [url(f"site{n}.example", 0, f"site{n}.example", 0) for n in range(_SITES)]
    return crawl(
        FrontierLimits(budgets=budgets),
        *(honest, links_of, 50, known),
        until=hours * HOUR_S,
    )


def one_host(budgets: BudgetRules | None, pages: int) -> Crawled:
    """Crawl a site of so many pages, beside which nobody waits."""

    def links_of(page: Candidate) -> list[Candidate]:
        number = int(page.url.rpartition("/")[2])
        linked = [number * 10 + each for each in range(1, 11) if number * 10 + each < pages]
        return [url(page.host, each, page.domain) for each in linked]

    return crawl(
        FrontierLimits(budgets=budgets), [url("docs.example", 0, "docs.example", 0)], links_of, 8
    )


class PublishedWeb:
    """A web without an end, in which found URLs are as many of the links, and hosts as many of the
    URLs, as in the published crawl. A new URL is of the host of one found before (Yule and Simon's
    process), so a few hosts have most; so it is with hosts and their domains."""

    def __init__(self) -> None:
        self._rng = random.Random(1)  # not for a secret
        self._host_of_url: list[int] = []
        self._urls: list[int] = []  # by host
        self._domain_of_host: list[int] = []
        self._domains = 0

    @property
    def size(self) -> tuple[int, int]:
        """How many URLs and hosts were found."""
        return len(self._host_of_url), len(self._urls)

    def new_host(self) -> Candidate:
        """Return the first page of a host; each third one is the first of its domain, too."""
        host = len(self._urls)
        if not self._domain_of_host or self._rng.random() < 1 / 3:
            self._domain_of_host.append(self._domains)
            self._domains += 1
        else:
            self._domain_of_host.append(self._rng.choice(self._domain_of_host))
        self._urls.append(0)
        return self._new(host)

    def links_of(self, page: Candidate) -> list[Candidate]:
        """Three of four to the page's own host, if it has one: not all requests bring a page."""
        rng, links = self._rng, list[Candidate]()
        if rng.random() > _PAGES / _REQUESTS:
            return links
        own = int(page.host.partition(".")[0][1:])
        for each in range(round(_LINKS / _PAGES)):
            dice = rng.random()
            if dice < _HOSTS / _LINKS:
                links.append(self.new_host())
                continue
            host = own if each % 4 else rng.choice(self._host_of_url)
            is_new = dice < _URLS / _LINKS
            # Of those that are known, the ones that were found first are linked to most.
            number = int(self._urls[host] * rng.random() ** 2)
            links.append(self._new(host) if is_new else self._candidate(host, number))
        return links

    def _new(self, host: int) -> Candidate:
        self._host_of_url.append(host)
        self._urls[host] += 1
        return self._candidate(host, self._urls[host] - 1)

    def _candidate(self, host: int, number: int) -> Candidate:
        domain = f"d{self._domain_of_host[host]}.example"
        return url(f"h{host}.{domain}", number, domain)


def published(scale: float, budgets: BudgetRules | None) -> tuple[Crawled, PublishedWeb, float]:
    """Crawl for as long as the published crawl, a *scale*-th of its requests a second at most.
    Returns also how many requests that would be."""
    web, slots = PublishedWeb(), 8
    most = _REQUESTS / scale
    crawled = crawl(
        FrontierLimits(budgets=budgets),
        [web.new_host() for _ in range(100)],
        *(web.links_of, slots),
        until=_DAYS * 24 * HOUR_S,
        fetch_s=slots * _DAYS * 24 * HOUR_S / most,
        rest_s=40.0,
    )
    return crawled, web, most


def print_published(scale: float, row: Callable[..., None]) -> None:
    ranked = max(round(_RANKED / scale), 1)
    for kind, rules in (("budgets", BudgetRules(ranked=ranked)), ("no budgets", None)):
        began = process_time()
        crawled, web, most = published(scale, rules)
        took_us = (process_time() - began) / crawled.pages.total() * 1e6
        print(f"{kind}, 1:{scale:,.0f}, {_DAYS} days; {took_us:.0f} us of CPU a request, all told")
        requests, (urls, hosts) = crawled.pages.total(), web.size
        of_days = Counter[int]()
        for (_, hour), pages in crawled.in_hour.items():
            of_days[hour // 24] += pages
        slowest = min(of_days[day] for day in range(_DAYS)) * _DAYS
        for name, done in (("requests", requests), ("those of the slowest day", slowest)):
            rate, bar = done / most, f">= {LEAST_RATE}"
            row(f"{name}, of the published ones", f"{rate:.4f}", bar, holds=rate >= LEAST_RATE)
        first = crawled.pages.most_common(1)[0][1]
        moves = crawled.moved / urls
        row("spilled URLs read or written, of the URLs found", f"{moves:.2f}", "", holds=True)
        for name, figure in (
            ("URLs found, of the published ones", f"{urls * scale / _URLS:.3f}"),
            ("hosts found, of the published ones", f"{hosts * scale / _HOSTS:.3f}"),
            ("the first domain's part of the requests", f"{first / requests:.1%}"),
            ("domains fetched from", f"{len(crawled.pages):,}"),
            ("URLs that wait at the end", f"{crawled.waiting:,}"),
            ("spilled at the end", f"{crawled.spilled:,}"),
            ("sampled out", f"{crawled.sampled_out:,}"),
        ):
            row(name, figure, "", holds=True)


def vote_us(links: int = 40, pages: int = 20_000) -> float:
    """Return what counting the links of a page takes, in us a link: half to its own domain, of the
    others most to a few that many link to."""
    rng = np.random.default_rng(1)
    drawn = np.minimum(rng.zipf(1.5, (pages, links // 2)), 1_000_000)
    domains = [[f"d{each}.example" for each in row] for row in drawn.tolist()]
    with opened(FrontierLimits(budgets=BudgetRules())) as (frontier, turns):
        took_s = 0.0
        for page, linked in enumerate(domains):
            source = f"s{page // 20}.example"
            names = [*linked, *[source] * (links // 2)]
            began = process_time()
            frontier.count_votes(frontier.votes(LinkSource(source), names), 0.0)
            took_s += process_time() - began
            if page % 20 == 19:
                began = process_time()
                frontier.budgets.stage()
                took_s += process_time() - began
                turns.end(frontier, 0.0)
    return took_s / pages / links * 1e6


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--farm-hosts", type=int, default=100_000)
    parser.add_argument("--hours", type=int, default=3, help="of the crawl beside the farm")
    parser.add_argument("--published", type=float, metavar="SCALE", help="only the published crawl")
    asked = parser.parse_args()
    failures = 0

    def row(name: str, figure: str, bar: str, *, holds: bool) -> None:
        nonlocal failures
        failures += not holds
        print(f"{name:<66}{figure:>16}  {bar}{'' if holds else '  MISSED'}", flush=True)

    if asked.published:
        print_published(asked.published, row)
        return 1 if failures else 0
    for rounds in (64, 256, 1024):
        reads, part = moved([100], rounds, 10)
        name = f"reads and writes a URL over budget, 1 domain, {rounds} rounds"
        row(name, f"{reads:.2f}", f"<= {MOST_MOVED}", holds=reads <= MOST_MOVED and part > 0.99)
    pareto = np.minimum(2000, np.random.default_rng(1).pareto(1.0, 500) * 5 + 1).astype(int)
    for rounds in (16, 64):
        reads, part = moved(pareto.tolist(), rounds, 10)
        name = f"the same of 500 domains, {rounds} rounds, {part:.3f} of what is allowed fetched"
        row(name, f"{reads:.2f}", f"<= {MOST_MOVED}", holds=reads <= MOST_MOVED and part > 0.99)
    # As many domains have a rank as there are sites, as 10,000 of the web.
    budgets = BudgetRules(ranked=_SITES)
    alone = farm_and_honest(budgets, 1, asked.hours)
    beside = farm_and_honest(budgets, asked.farm_hosts, asked.hours)
    worst = max(beside.in_hour["farm.example", hour] for hour in range(asked.hours))
    row("pages of the farm in an hour", f"{worst}", "<= 10", holds=worst <= 10)
    lost = 1 - (beside.pages.total() - beside.pages["farm.example"]) / (
        alone.pages.total() - alone.pages["farm.example"]
    )
    row("pages that the others lose", f"{lost:.2%}", "< 1 %", holds=lost < MOST_LOST)
    without = farm_and_honest(None, asked.farm_hosts, asked.hours)
    taken = without.pages["farm.example"] / without.pages.total()
    row("pages of the farm without budgets", f"{taken:.1%}", "", holds=True)
    free, bound = one_host(None, 10_000), one_host(BudgetRules(), 10_000)
    tightly = one_host(BudgetRules(most=10, ranked=1, kept_rounds=1000), 10_000)
    for name, crawled in (("the default", bound), ("10 an hour", tightly)):
        pages, longer = crawled.pages.total(), crawled.took_s / free.took_s
        row(f"pages of a site of 10,000, {name}", f"{pages:,}", "all", holds=pages == 10_000)
        row("time, of that without budgets", f"{longer:.3f}", "<= 1.05", holds=longer <= MOST_TIME)
    took_us = min(vote_us() for _ in range(3))
    row("counting a link", f"{took_us:.2f} us", "<= 0.5", holds=took_us <= MOST_VOTE_US)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

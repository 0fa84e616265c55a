"""`python -m bench.order GRAPH...`: how much of the PageRank of a web is fetched by when.

Rule: the frontier is the product's own, on a virtual clock whose tick is a fetch; a host rests for
ten. Beside it are orders that no host-wise frontier could keep exactly, each with the same slots
and rests: breadth-first, by in-degree, by cash to the last digit, and by the PageRank itself.

A graph is an .npz file with `indptr` and `indices`, its pages numbered in the order of their URLs,
as those of the Laboratory for Web Algorithmics are. It has no URLs, so hosts are inferred: where no
link of up to 2,000 numbers crosses, another one begins. Ends with 1 where a bar is missed. Two
minutes of a core for each crawl of 325,557 pages.
"""

from __future__ import annotations

import sys
import tempfile
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from time import process_time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bench.revisit_world import best_visits, world
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import Candidate, Done, HostKey, Lease, Pace, Rest, Standing
from crawler.policy.priority import DOUBLING, SEED_CASH, cash_of_links

FETCHED: Final = (0.01, 0.05, 0.10, 0.20, 0.30, 0.50)
"""Of the pages, when the share of the PageRank is looked at."""
REST: Final = 10
SEEDS: Final = 10
_NEAR: Final = 2000
_LEAST_PAGES: Final = 5  # of a host; a smaller one is a part of the one before
_ITERATIONS: Final = 60
_DAMPING: Final = 0.85
_CYCLE_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    begins: list[int]  # of the links of each page, and their number
    links: list[int]
    hosts: list[int]
    rank: NDArray[np.float64]  # PageRank; its sum is 1

    @property
    def pages(self) -> int:
        return len(self.hosts)

    def seeds(self, number: int) -> list[int]:
        """Return the pages from which crawl *number* begins."""
        degrees = np.diff(np.asarray(self.begins))
        drawn = np.random.default_rng(number).choice(np.nonzero(degrees > 3)[0], SEEDS, False)
        # From a part of cnr-2000 most of it cannot be reached, from this page all of it.
        return [*drawn.tolist()[:-1], 217_849] if self.name == "cnr-2000" else drawn.tolist()


def read_graph(file: Path) -> Graph:
    with np.load(file) as loaded:
        begins, links = loaded["indptr"].astype(np.int64), loaded["indices"].astype(np.int64)
    sources = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    hosts = _hosts(len(begins) - 1, sources, links)
    rank = _page_rank(begins, sources, links)
    return Graph(file.stem, begins.tolist(), links.tolist(), hosts.tolist(), rank)


def _hosts(pages: int, sources: NDArray[np.int64], links: NDArray[np.int64]) -> NDArray[np.int64]:
    first, last = np.minimum(sources, links), np.maximum(sources, links)
    near = (last - first <= _NEAR) & (first < last)
    crossing = np.zeros(pages + 1, np.int64)
    np.add.at(crossing, first[near] + 1, 1)
    np.add.at(crossing, last[near] + 1, -1)
    blocks = np.cumsum(np.cumsum(crossing)[:pages] == 0) - 1
    is_large = np.bincount(blocks) >= _LEAST_PAGES
    is_large[0] = True
    hosts: NDArray[np.int64] = (np.cumsum(is_large) - 1)[blocks]
    return hosts


def _page_rank(
    begins: NDArray[np.int64], sources: NDArray[np.int64], links: NDArray[np.int64]
) -> NDArray[np.float64]:
    pages = len(begins) - 1
    degrees = np.diff(begins)
    rank = np.full(pages, 1 / pages)
    for _ in range(_ITERATIONS):
        each = rank / np.maximum(degrees, 1)
        flow = np.bincount(links, weights=each[sources], minlength=pages)
        rank = (1 - _DAMPING) / pages + _DAMPING * (flow + rank[degrees == 0].sum() / pages)
    return rank


@dataclass(frozen=True, slots=True)
class Crawled:
    shares: tuple[float, ...]  # of the PageRank, when FETCHED were
    ticks: int
    fetched: list[int]  # pages, in this order


class _Account:
    """What was fetched so far, and what it was worth."""

    def __init__(self, graph: Graph) -> None:
        self._rank = graph.rank.tolist()
        self._marks = [round(part * graph.pages) for part in FETCHED]
        self._shares: list[float] = []
        self._fetched: list[int] = []
        self._worth = 0.0

    def note(self, page: int) -> None:
        self._fetched.append(page)
        self._worth += self._rank[page]
        number = len(self._shares)
        if number < len(self._marks) and len(self._fetched) >= self._marks[number]:
            self._shares.append(self._worth)

    def crawled(self, ticks: int) -> Crawled:
        missing = len(FETCHED) - len(self._shares)
        return Crawled((*self._shares, *[float("nan")] * missing), ticks, self._fetched)


def _key(page: int) -> int:
    return (page + 1) * 0x9E3779B97F4A7C15 % (1 << 64)


def by_our_frontier(
    graph: Graph, seeds: Sequence[int], slots: int, cash_of: dict[int, int] | None = None
) -> Crawled:
    """Crawl *graph* with the frontier of the product. *cash_of*: is filled with the cash with which
    each page was fetched."""
    begins, links = graph.begins, graph.links
    names = [HostKey(f"host{number}.example") for number in range(max(graph.hosts) + 1)]
    urls = [
        Candidate(f"https://{names[host]}/{page}", _key(page), names[host], names[host])
        for page, host in enumerate(graph.hosts)
    ]

    pages_of = {each.key: page for page, each in enumerate(urls)}

    def found(pages: Sequence[int], depth: int, cash: int) -> list[Candidate]:
        level = min(depth, 1)
        return [
            Candidate(each.url, each.key, each.host, each.domain, depth, level, cash=cash)
            for each in map(urls.__getitem__, pages)
        ]

    account = _Account(graph)
    ends: list[tuple[int, int, Lease]] = []
    tick, now, free = 0, 0.0, slots
    turns = FrontierTurns()
    with tempfile.TemporaryDirectory() as folder:
        frontier = open_frontier(
            Path(folder), FrontierLimits(), now, background=turns, store=MemoryStore()
        )
        frontier.add(found(seeds, 0, SEED_CASH), now)
        while True:
            turns.end(frontier, now)
            leases = frontier.lease(now, free, (Standing.NEW, Standing.ANSWERS))
            free -= len(leases)
            for lease in leases:
                heappush(ends, (tick + 1, lease.id, lease))
            if ends:
                tick = ends[0][0]
            elif (wake := frontier.wake_at()) is not None:
                tick = max(tick + (not leases), round(wake))
            else:
                break
            now = float(tick)
            while ends and ends[0][0] <= tick:
                _, _, lease = heappop(ends)
                free += 1
                page = pages_of[lease.candidate.key]
                account.note(page)
                if cash_of is not None:
                    cash_of[page] = lease.candidate.cash
                linked = links[begins[page] : begins[page + 1]]
                if linked:
                    cash = cash_of_links(lease.candidate.cash, len(linked))
                    frontier.add(found(linked, lease.candidate.depth + 1, cash), now)
                pace = Pace(gap_s=float(REST), standing=Standing.ANSWERS)
                frontier.release(lease, Rest(float(REST), pace), now)
                frontier.finish(lease, Done(), now)
        frontier.close()
    return account.crawled(tick)


Order = Callable[[int, Sequence[int], Sequence[float], Sequence[int]], float]
"""What comes first, the least: by page, and by all pages their depths, cash and links seen."""


def by_order(graph: Graph, seeds: Sequence[int], slots: int, order: Order) -> Crawled:
    """Crawl *graph* with all that waits in the order of *order*, at each moment."""
    begins, links, hosts = graph.begins, graph.links, graph.hosts
    depth, cash, linked = [0] * graph.pages, [0.0] * graph.pages, [0] * graph.pages
    waiting: list[list[tuple[float, int, int]]] = [[] for _ in range(max(hosts) + 1)]
    is_known, is_done = bytearray(graph.pages), bytearray(graph.pages)
    came: list[int] = [0] * graph.pages
    value = [0.0] * graph.pages
    offers: list[tuple[float, int, int]] = []  # of hosts: the best page, when it was found
    is_busy = bytearray(len(waiting))
    account = _Account(graph)
    ends: list[tuple[int, int]] = []
    number = tick = 0

    def best(host: int) -> tuple[float, int, int] | None:
        queue = waiting[host]
        while queue and (is_done[queue[0][2]] or queue[0][0] != value[queue[0][2]]):
            heappop(queue)
        return queue[0] if queue else None

    def put(page: int) -> None:
        value[page] = order(page, depth, cash, linked)
        heappush(waiting[hosts[page]], (value[page], came[page], page))

    def offer(host: int) -> None:
        first = best(host)
        if first is not None and not is_busy[host]:
            heappush(offers, (first[0], first[1], host))

    for page in seeds:
        is_known[page], cash[page] = 1, 1.0
        number += 1
        came[page] = number
        put(page)
        offer(hosts[page])
    while True:
        while ends and ends[0][0] <= tick:
            _, host = heappop(ends)
            is_busy[host] = 0
            offer(host)
        taken: list[int] = []
        while offers and len(taken) < slots:
            value_then, came_then, host = heappop(offers)
            first = best(host)
            if is_busy[host] or first is None or first[:2] != (value_then, came_then):
                continue
            heappop(waiting[host])
            is_done[first[2]] = is_busy[host] = 1
            taken.append(first[2])
            heappush(ends, (tick + 1 + REST, host))
        if not taken:
            if not ends:
                return account.crawled(tick)
            tick = ends[0][0]
            continue
        tick += 1
        touched: set[int] = set()
        for page in taken:
            account.note(page)
            targets = links[begins[page] : begins[page + 1]]
            part, cash[page] = cash[page] / max(len(targets), 1), 0.0
            for target in targets:
                if is_done[target]:
                    continue
                cash[target] += part
                linked[target] += 1
                if not is_known[target]:
                    number += 1
                    is_known[target], depth[target], came[target] = 1, depth[page] + 1, number
                    put(target)
                elif order(target, depth, cash, linked) < value[target]:
                    put(target)
                touched.add(hosts[target])
        for host in touched:
            offer(host)


@dataclass(frozen=True, slots=True)
class Bars:
    slots: int
    least: tuple[float, ...]  # share of the PageRank at each of FETCHED


BARS: Final = {
    "cnr-2000": Bars(4, (0.125, 0.22, 0.29, 0.41, 0.54, 0.72)),
    "uk-2007-05@100000": Bars(2, (0.295, 0.425, 0.48, 0.545, 0.60, 0.695)),
}
_BELOW_EXACT: Final = 0.005


def show_graph(graph: Graph, crawls: int, *, only_ours: bool) -> bool:
    """Print the table of *graph*, by the means of so many crawls. Returns whether bars hold."""
    bars = BARS.get(graph.name, Bars(4, ()))
    rank = graph.rank.tolist()
    orders: dict[str, Order] = {
        "breadth-first": lambda page, depth, cash, linked: depth[page],
        "by in-degree": lambda page, depth, cash, linked: -linked[page],
        "by cash, exactly": lambda page, depth, cash, linked: -cash[page],
        "by PageRank": lambda page, depth, cash, linked: -rank[page],
    }
    if only_ours:
        orders = {}
    print(f"\n{graph.name}: {graph.pages:,} pages, {bars.slots} slots, {crawls} crawls")
    print(f"{'':<20}" + "".join(f"{part:>8.0%}" for part in FETCHED) + f"{'end':>8}{'core s':>8}")
    means: dict[str, NDArray[np.float64]] = {}

    def show(name: str, crawl: Callable[[Sequence[int]], Crawled]) -> None:
        began = process_time()
        runs = [crawl(graph.seeds(number)) for number in range(crawls)]
        ends = [each.ticks * bars.slots / graph.pages for each in runs]
        means[name] = np.array([[*each.shares, end] for each, end in zip(runs, ends, strict=True)])
        figures = means[name] = means[name].mean(axis=0)
        cost = (process_time() - began) / crawls
        print(f"{name:<20}" + "".join(f"{x:8.3f}" for x in figures[:-1])
              + f"{figures[-1]:8.2f}{cost:8.0f}", flush=True)  # fmt: skip

    for name, order in orders.items():
        show(name, partial(by_order, graph, slots=bars.slots, order=order))
    show("ours", partial(by_our_frontier, graph, slots=bars.slots))
    if not bars.least:
        return True
    ours = means["ours"][:-1]
    held = bool((ours.round(3) >= bars.least).all())
    print(f"{'bars':<20}" + "".join(f"{x:8.3f}" for x in bars.least) + ("" if held else "  MISSED"))
    return held


def show_weights(graph: Graph) -> None:
    """Print how fresh later visits keep the copies of *graph*, by what pages weigh in them: the
    share of the PageRank that is fresh, with the best fixed intervals for these weights."""
    cash_of: dict[int, int] = {}
    slots = BARS[graph.name].slots if graph.name in BARS else 4
    fetched = np.array(by_our_frontier(graph, graph.seeds(0), slots, cash_of).fetched)
    count = len(fetched)
    place = np.empty(graph.pages, np.int64)
    place[fetched] = np.arange(1, count + 1)
    cash = np.array([cash_of[page] for page in fetched.tolist()]) / DOUBLING
    links = np.bincount(graph.links, minlength=graph.pages)[fetched]
    rank = graph.rank[fetched] / graph.rank[fetched].sum()
    rates = world(count).rates
    print(f"\n{graph.name}: {count:,} pages, visits of each in {_CYCLE_DAYS} days")

    def show(name: str, weights: NDArray[np.float64]) -> None:
        visits = best_visits(rates, weights, count / _CYCLE_DAYS)
        left = visits > 0
        fresh = visits[left] / rates[left] * -np.expm1(-rates[left] / visits[left])
        bits = np.corrcoef(np.log(weights), np.log(rank))[0, 1] if weights.std() else 0.0
        print(f"{name:<40}{(rank[left] * fresh).sum():8.3f}   correlation {bits:5.2f}", flush=True)

    def bounded(doublings: NDArray[np.float64], most: float = 4.0) -> NDArray[np.float64]:
        """Return the powers of 2, as those of the median page are 0."""
        return np.exp2(np.clip(doublings - np.median(doublings), -most, most))

    show("1", np.ones(count))
    show("cash, to 4 times more or less", bounded(cash, 2.0))
    show("cash, to 16 times", bounded(cash))
    show("its tenth root", bounded(cash / 10))
    show("root of the links to it", bounded(np.log2(1 + links) / 2))
    show("1 / root of its place among the fetched", bounded(-np.log2(place[fetched]) / 2))
    show("PageRank", rank)


def main() -> int:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", type=Path, metavar="GRAPH")
    parser.add_argument("--crawls", type=int, default=6)
    parser.add_argument("--only-ours", action="store_true")
    parser.add_argument("--weights", action="store_true", help="what cash says of later visits")
    options = parser.parse_args()
    if options.weights:
        for file in options.graphs:
            show_weights(read_graph(file))
        return 0
    held = [show_graph(read_graph(file), options.crawls, only_ours=options.only_ours)
            for file in options.graphs]  # fmt: skip
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())

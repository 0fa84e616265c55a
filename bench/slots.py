"""`python -m bench.slots`: fetch slots that are busy, and what a lease costs by number of hosts.

Rule: prints each figure beside its bar, and ends with 1 where one is missed. The clock of the first
part is simulated: fetches take log-normal times, a host rests ten times as long as its fetch took,
and links lead to hosts by Zipf's law. There a slot is lost while it is free although a host is due,
and textbook Mercator is measured on the same web: back queues of one host each, three for a slot.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate
from pathlib import Path
from random import Random
from statistics import median
from typing import Final, NamedTuple, Protocol

from bench.figures import Figures
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import DurableStore, FrontierLimits
from crawler.model.types import Candidate, Done, HostKey, Lease, Pace, Rest, Standing

BUSY: Final = 0.98
SCALES: Final = 1.5  # of the cost at 1e6 hosts over that at 1e4
GAP: Final = 10.0
_BACK_QUEUES: Final = 3  # of Mercator, for each slot
_ADDED: Final = 1000  # URLs of one add before the measurement
_UNDER_WAY: Final = 256
_ROUNDS: Final = 5
_STEP: Final = 7919  # a prime: the hosts come in another order than their names


def url(number: int, host: int) -> Candidate:
    name = HostKey(f"host{host}.example")
    text = f"https://{name}/articles/section-{number % 97}/page-{number}-and-a-title.html"
    key = (number + 1) * 0x9E3779B97F4A7C15 % (1 << 64)
    return Candidate(text, key, name, name, depth=3, level=number % 3)


class Ended(NamedTuple):
    """A fetch: the lease, or Mercator's own name of the host, and when its host may be fetched
    from again."""

    fetch: object
    host: str
    rest_until: float


class Crawled(Protocol):
    """A frontier, as the simulation uses it."""

    def add(self, found: list[Candidate], now: float) -> None: ...

    def lease(self, now: float, limit: int) -> list[tuple[object, str]]: ...

    def end(self, ended: Ended, now: float) -> None: ...

    def wake_at(self) -> float | None: ...

    def hosts_in_memory(self) -> int: ...


class Ours:
    """The frontier of this project. The calls of one moment are committed together."""

    def __init__(self, folder: Path, store: DurableStore | None = None) -> None:
        """*store*: its records, if they are not in *folder*."""
        self._turns = FrontierTurns()
        self.frontier = open_frontier(
            folder, FrontierLimits(), 0.0, background=self._turns, store=store
        )

    def end_turn(self, now: float) -> None:
        self.frontier.admit_arrived(now)
        self._turns.end(self.frontier, now)

    def add(self, found: list[Candidate], now: float) -> None:
        self.frontier.add(found, now)

    def lease(self, now: float, limit: int) -> list[tuple[object, str]]:
        self.end_turn(now)
        return [(each, each.candidate.host) for each in self.frontier.lease(now, limit)]

    def end(self, ended: Ended, now: float) -> None:
        assert isinstance(ended.fetch, Lease)
        gap_s = ended.rest_until - now
        self.frontier.release(ended.fetch, Rest(gap_s, _pace(gap_s)), now)
        self.frontier.finish(ended.fetch, Done(), now)

    def wake_at(self) -> float | None:
        return self.frontier.wake_at()

    def hosts_in_memory(self) -> int:
        return self.frontier.counts().hosts_active


def _pace(gap_s: float) -> Pace:
    return Pace(gap_s=gap_s, standing=Standing.ANSWERS)


class Mercator:
    """Back queues of one host each, in a heap by when it may be fetched from; one that is empty
    takes URLs from the front until one is of a host without a back queue. It remembers the rests of
    hosts that lost their queue, which the textbook does not."""

    def __init__(self, slots: int) -> None:
        self._front: deque[Candidate] = deque()
        self._back: dict[str, deque[Candidate]] = {}
        self._most = _BACK_QUEUES * slots
        self._heap: list[tuple[float, str]] = []
        self._rests: dict[str, float] = {}

    def add(self, found: list[Candidate], now: float) -> None:
        self._front.extend(found)

    def lease(self, now: float, limit: int) -> list[tuple[object, str]]:
        self._fill(now)
        leased: list[tuple[object, str]] = []
        while self._heap and self._heap[0][0] <= now and len(leased) < limit:
            host = heappop(self._heap)[1]
            leased.append((self._back[host].popleft(), host))
        return leased

    def end(self, ended: Ended, now: float) -> None:
        self._rests[ended.host] = ended.rest_until
        if self._back[ended.host]:
            heappush(self._heap, (ended.rest_until, ended.host))
        else:
            del self._back[ended.host]
            self._fill(now)

    def wake_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def hosts_in_memory(self) -> int:
        return len(self._back)

    def _fill(self, now: float) -> None:
        while self._front and len(self._back) < self._most:
            found = self._front.popleft()
            if found.host in self._back:
                self._back[found.host].append(found)
            else:
                self._back[found.host] = deque([found])
                heappush(self._heap, (max(now, self._rests.get(found.host, 0.0)), found.host))


@dataclass
class Web:
    """What is true of the hosts, whatever a frontier knows of it."""

    waiting: dict[str, int] = field(default_factory=dict)  # URLs by host
    unavailable: set[str] = field(default_factory=set)  # hosts that are fetched from, or rest
    rests: list[tuple[float, str]] = field(default_factory=list)
    due: int = 0  # hosts with waiting URLs that are available

    def add(self, found: list[Candidate]) -> None:
        for each in found:
            before = self.waiting.get(each.host, 0)
            self.waiting[each.host] = before + 1
            self.due += not before and each.host not in self.unavailable

    def lease(self, host: str) -> None:
        assert host not in self.unavailable, f"{host} is fetched from too early"
        self.unavailable.add(host)
        self.waiting[host] -= 1
        self.due -= 1

    def end_rests(self, now: float) -> None:
        while self.rests and self.rests[0][0] <= now:
            host = heappop(self.rests)[1]
            self.unavailable.remove(host)
            self.due += self.waiting[host] > 0


@dataclass(kw_only=True)
class Crawl:
    """A simulated crawl, and what became of its slots."""

    slots: int
    hosts: int
    exponent: float = 1.0
    links: int = 2  # new ones of a page
    median_s: float = 0.3
    sigma: float = 0.8
    busy_s: float = 0.0  # of slots, while all could have been busy
    possible_s: float = 0.0
    fetches: int = 0
    calls: int = 0  # of `lease`
    peak: int = 0  # hosts in memory

    def __post_init__(self) -> None:
        self._dice = Random(1)
        self._names = range(self.hosts)
        shares = (1 / (number + 1) ** self.exponent for number in self._names)
        self._shares = list(accumulate(shares))
        self._found = 0
        self._web = Web()
        self._fetches: list[tuple[float, int, object, str, float]] = []
        self.now = 0.0

    def find(self, frontier: Crawled, links: int) -> None:
        to = self._dice.choices(self._names, cum_weights=self._shares, k=links)
        found = [url(number, host) for number, host in enumerate(to, self._found)]
        self._found += links
        frontier.add(found, self.now)
        self._web.add(found)

    def run(self, frontier: Crawled, until: float, slots: int) -> None:
        """Crawl with so many *slots* until the clock shows *until*."""
        while self.now < until:
            self._fill(frontier, slots)
            upcoming = [heap[0][0] for heap in (self._fetches, self._web.rests) if heap]
            wake_at = frontier.wake_at() if len(self._fetches) < slots else None
            upcoming += [] if wake_at is None else [max(wake_at, self.now)]
            self._pass(min([*upcoming, until]), slots)
            self._web.end_rests(self.now)
            while self._fetches and self._fetches[0][0] <= self.now:
                _, _, fetch, host, took_s = heappop(self._fetches)
                rest_until = self.now + GAP * took_s
                heappush(self._web.rests, (rest_until, host))
                frontier.end(Ended(fetch, host, rest_until), self.now)
                self.find(frontier, self.links)
            self.peak = max(self.peak, frontier.hosts_in_memory())

    def _fill(self, frontier: Crawled, slots: int) -> None:
        while len(self._fetches) < slots:
            self.calls += 1
            leased = frontier.lease(self.now, slots - len(self._fetches))
            for fetch, host in leased:
                self._web.lease(host)
                self.fetches += 1
                took_s = self.median_s * self._dice.lognormvariate(0.0, self.sigma)
                ends_at = self.now + took_s
                heappush(self._fetches, (ends_at, self.fetches, fetch, host, took_s))
            wake_at = frontier.wake_at()
            if not leased and (wake_at is None or wake_at > self.now):
                return

    def _pass(self, until: float, slots: int) -> None:
        if len(self._fetches) + self._web.due >= slots:
            self.busy_s += min(len(self._fetches), slots) * (until - self.now)
            self.possible_s += slots * (until - self.now)
        self.now = until

    @property
    def busy(self) -> float:
        return self.busy_s / self.possible_s if self.possible_s else 0.0


@contextmanager
def ours(folder: Path | None) -> Iterator[Ours]:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        opened = Ours(Path(own))
        yield opened
        opened.frontier.close()


def busy_slots(figures: Figures, options: argparse.Namespace) -> None:
    slots, seconds, few = options.slots, options.seconds, max(1, options.slots // 16)
    for exponent in (0.8, 1.0, 1.2):
        print(f"\n{slots} slots, {int(options.hosts)} hosts by Zipf's law ({exponent})")
        crawl = Crawl(slots=slots, hosts=int(options.hosts), exponent=exponent)
        other = Crawl(slots=slots, hosts=int(options.hosts), exponent=exponent)
        mercator = Mercator(slots)
        other.find(mercator, options.urls)
        other.run(mercator, seconds, slots)
        with ours(options.folder) as frontier:
            for _ in range(0, options.urls, _ADDED):
                crawl.find(frontier, _ADDED)
                frontier.end_turn(0.0)
            crawl.run(frontier, seconds, slots)
            busy, full = crawl.busy, frontier.hosts_in_memory()
            crawl.run(frontier, 4 * seconds, few)
            after = frontier.hosts_in_memory()
        figures.show("slots busy with enough due hosts", f"{busy:.1%}", ">= 98 %", busy >= BUSY)
        figures.show("  beside: Mercator, 3 back queues a slot", f"{other.busy:.1%}")
        figures.show("calls of `lease` for a fetch", f"{crawl.calls / crawl.fetches:.2f}")
        figures.show("active hosts, at most", f"{crawl.peak} = {crawl.peak / slots:.1f} a slot")
        figures.show(f"  after {seconds} s", f"{full}")
        figures.show(f"  with {few} slots, {3 * seconds} s later", f"{after}")


def lease_us(frontier: Ours, fetches: int) -> tuple[float, int]:
    """Return the CPU time of a lease, its release, its finish and its share of the commits, and
    how many hosts were active at most. A turn has two fetches; each host rests for a second."""
    held: deque[Lease] = deque()
    now, peak, rounds = 1.0, 0, []
    for _ in range(_ROUNDS):
        begun = time.thread_time()
        for turn in range(fetches // _ROUNDS):
            now += 0.002
            held += frontier.frontier.lease(now)
            if len(held) > _UNDER_WAY:
                lease = held.popleft()
                frontier.frontier.release(lease, Rest(1.0, _pace(1.0)), now)
                frontier.frontier.finish(lease, Done(), now)
            if turn % 2:
                frontier.end_turn(now)
        rounds.append((time.thread_time() - begun) / (fetches // _ROUNDS) * 1e6)
        peak = max(peak, frontier.hosts_in_memory())
    return median(rounds), peak


def fill(frontier: Ours, hosts: int, urls: int) -> None:
    """Add so many *urls*, one after the other to each of the *hosts*."""
    for at in range(0, urls, _ADDED):
        numbers = range(at, at + _ADDED)
        frontier.add([url(each, each * _STEP % hosts) for each in numbers], 0.0)
        frontier.end_turn(0.0)
    frontier.frontier.mark_seen([], 0.0)  # this writes all new URLs into their queues


def cost(figures: Figures, options: argparse.Namespace) -> None:
    print("\nlease + release + finish and their commits, by waiting hosts")
    few, many = 10_000, int(options.many)
    by_urls: dict[tuple[int, int], float] = {}
    for each in (1, 10):
        for hosts in (few, many):
            with ours(options.folder) as frontier:
                fill(frontier, hosts, hosts * each)
                us, peak = lease_us(frontier, few * 9 // 10)
            by_urls[hosts, each] = us
            what = f"{hosts} hosts with {each} URL{'s' * (each > 1)} each"
            figures.show(what, f"{us:.1f} us, {peak} active")
        ratio = by_urls[many, each] / by_urls[few, each]
        figures.show("  the same, over", f"{ratio:.2f}", f"<= {SCALES}", ratio <= SCALES)
    with ours(options.folder) as frontier:
        fill(frontier, 1, many)
        begun, now = time.thread_time(), 1.0
        for _ in range(few):
            (lease,) = frontier.frontier.lease(now)
            now += 1.0
            frontier.frontier.release(lease, Rest(1.0, _pace(1.0)), now)
            frontier.frontier.finish(lease, Done(), now)
            frontier.end_turn(now)
            now += 1.0
        us = (time.thread_time() - begun) / few * 1e6
        figures.show(f"1 host with {many} URLs, a turn each", f"{us:.1f} us")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slots", type=int, default=_UNDER_WAY)
    parser.add_argument("--hosts", type=float, default=1e5)
    parser.add_argument("--urls", type=int, default=200_000, help="that wait at the beginning")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the simulated clock")
    parser.add_argument("--many", type=float, default=1e6, help="hosts of the large frontier")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured")
    parser.add_argument("--only", choices=("slots", "cost"))
    options = parser.parse_args()
    figures = Figures()
    if options.only != "cost":
        busy_slots(figures, options)
    if options.only != "slots":
        cost(figures, options)
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())

"""What a page costs in the embedded frontier: its 40 links added, its URL leased and finished.

Rule: CPU of the whole process, less what it takes to make the links. What the thread of the calls
did not use, RocksDB's threads did. Each figure is beside Scrapy's own parts in the same run.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

from scrapy.core.engine import ExecutionEngine
from scrapy.dupefilters import RFPDupeFilter
from scrapy.http import Request
from scrapy.pqueues import DownloaderAwarePriorityQueue, ScrapyPriorityQueue
from scrapy.spiders import Spider
from scrapy.squeues import FifoMemoryQueue, PickleFifoDiskQueue
from scrapy.utils.test import get_crawler
from xxhash import xxh3_64_intdigest

from bench.figures import Figures
from bench.near import settle
from crawler.frontier.port import FRONTIER, SEEN, FrontierLimits
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Added, Candidate, Done, HostFetch, HostKey, LinkSource, Rest

ADD_US: Final = 60
TURN_US: Final = 40
GROWTH: Final = 1.5
LINKS: Final = 40
AT_HOME: Final = 30
FEW_HOSTS: Final = 10_000
PAGES_A_COMMIT: Final = 2  # as they land in one turn of the event loop
_PAGES_PER_S: Final = 500  # of the simulated clock
_GAP_S: Final = 1.0
_FETCHES: Final = (HostFetch(status=200, bytes=50_000, is_page=True),)
_FILL: Final = 1000  # URLs of a call when hosts are made
_POPS: Final = 300  # each of them looks at all hosts
_TURN: Final = ("lease", "release", "finish")


def candidate(host: int, number: int) -> Candidate:
    name = f"host{host}.example"
    url = f"https://{name}/articles/section-{number % 97}/page-{number}-and-a-title.html"
    return Candidate(url, xxh3_64_intdigest(url.encode()), HostKey(name), name, depth=3, level=2)


class Links:
    """The links of pages, one in *one_in* of them new, three in four to the page's own host."""

    def __init__(self, hosts: int, one_in: int, known: int = 0) -> None:
        """*known* URLs of each host were found before."""
        self._dice = random.Random(1)
        self._found = [known] * hosts
        self._one_in = one_in

    def page(self) -> list[Candidate]:
        hosts = len(self._found)
        own, links = self._dice.randrange(hosts), []
        for at in range(LINKS):
            host = own if at < AT_HOME else self._dice.randrange(hosts)
            found = self._found[host]
            if not found or at % self._one_in == 0:
                self._found[host] = found + 1
                links.append(candidate(host, found))
            else:
                links.append(candidate(host, self._dice.randrange(found)))
        return links


class Embedded(TwoTierFrontier):
    """A frontier whose background work is done when `settle_work` is called, and which counts the
    CPU of its parts, and how URLs were decided."""

    def __init__(
        self, folder: Path, limits: FrontierLimits | None = None, now: float = 0.0
    ) -> None:
        self.cpu_s: defaultdict[str, float] = defaultdict(float)
        self.decided: Counter[str] = Counter()
        self.store = RocksStore(folder / FRONTIER)
        self._within_s = 0.0
        self._is_applying = False
        self._is_work_due = False
        super().__init__(
            self.store,
            RunFolder(folder / SEEN),
            limits or FrontierLimits(max_urls_per_domain=10_000_000),
            now,
            on_decided=self._count,
            background=self,
        )

    def commit_soon(self) -> None: ...

    def work_soon(self) -> None:
        self._is_work_due = True

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        added = super().add(found, now, at_once=at_once, source=source)
        self.decided["at once, by keys in memory"] += added.seen
        return added

    def _admit_some(self, now: float) -> bool:
        with self.timed("decide"):
            return super()._admit_some(now)

    def settle_work(self, now: float) -> None:
        """Do the background work that is due."""
        if not self._is_work_due:
            return
        self._is_work_due = False
        while (work := self.next_work(now)) is not None:
            work.run()
            self._is_applying = True
            for _ in work.apply(now):
                self.commit()
            self._is_applying = False

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the CPU of the block to *part*, less what parts within it take."""
        within, self._within_s, begun = self._within_s, 0.0, time.thread_time()
        yield
        took_s = time.thread_time() - begun
        self.cpu_s[part] += took_s - self._within_s
        self._within_s = within + took_s

    def _count(self, added: Added) -> None:
        way = "by search of the runs" if self._is_applying else "in a batch, by the gate"
        self.decided[way] += added.new + added.seen + added.over_budget

    def close(self) -> None:
        self.admit_arrived(self.clock)
        self.commit()
        super().close()


def fill(frontier: Embedded, urls: int, hosts: int, begin: int = 0) -> None:
    """Add *urls* new ones, in turns of the hosts, after the first *begin*."""
    for at in range(begin, urls, _FILL):
        ends = range(at, min(at + _FILL, urls))
        frontier.add(
            [candidate(number % hosts, number // hosts) for number in ends], frontier.clock
        )
        frontier.commit()
        frontier.settle_work(frontier.clock)
    frontier.admit_arrived(frontier.clock)
    frontier.commit()


def crawl(frontier: Embedded, links: Links, pages: int) -> None:
    timed, now = frontier.timed, frontier.clock
    for number in range(pages):
        with timed("making the links"):
            found = links.page()
        now += 1 / _PAGES_PER_S
        with timed("add"):
            frontier.add(found, now)
        with timed("lease"):
            leases = frontier.lease(now)
        for lease in leases:
            with timed("release"):
                frontier.release(lease, Rest(_GAP_S, lease.pace, fetches=_FETCHES), now)
            with timed("finish"):
                frontier.finish(lease, Done(), now)
        if number % PAGES_A_COMMIT == 0:
            with timed("commit"):
                frontier.commit()
            with timed("work"):
                frontier.settle_work(now)


def page_us(pages: int, hosts: int, one_in: int) -> dict[str, float]:
    """Return the CPU of a page by parts, in us: of *pages*, after half as many, of a frontier in
    which each of *hosts* has a URL."""
    with tempfile.TemporaryDirectory(prefix="frontier") as home:
        frontier = Embedded(Path(home))
        fill(frontier, hosts, hosts)
        links = Links(hosts, one_in, known=1)
        crawl(frontier, links, pages // 2)
        settle(frontier.store)
        frontier.cpu_s.clear()
        begun, begun_thread = time.process_time(), time.thread_time()
        crawl(frontier, links, pages)
        parts = dict(frontier.cpu_s)
        thread_s = time.thread_time() - begun_thread
        settle(frontier.store)
        del parts["making the links"]
        parts["RocksDB's threads"] = time.process_time() - begun - thread_s
        done = frontier.counts().done
        frontier.close()
    assert done == pages // 2 + pages, f"of {pages // 2 + pages} pages {done} were leased"
    return {part: cpu_s / pages * 1e6 for part, cpu_s in parts.items()}


def scrapy_add_us(pages: int, hosts: int, one_in: int) -> float:
    """Return what Scrapy's dupefilter and disk queue take for the links of a page, in us."""
    with tempfile.TemporaryDirectory(prefix="scrapy") as home:
        crawler = get_crawler(Spider, {"JOBDIR": home})
        crawler.spider = Spider("bench")
        seen = RFPDupeFilter.from_crawler(crawler)
        queue = ScrapyPriorityQueue.from_crawler(crawler, PickleFifoDiskQueue, f"{home}/queue")
        links, took_s = Links(hosts, one_in, known=1), 0.0
        for host in range(hosts):
            seen.request_seen(Request(candidate(host, 0).url))
        for _ in range(pages):
            requests = [Request(each.url) for each in links.page()]
            begun = time.process_time()
            for request in requests:
                if not seen.request_seen(request):
                    queue.push(request)
            took_s += time.process_time() - begun
        queue.close()
        seen.close("finished")
    return took_s / pages * 1e6


def scrapy_pop_us(hosts: int, pops: int = _POPS) -> float:
    """Return what Scrapy's queue by hosts takes for a pop, in us; in memory, as on disk it has a
    file open for each host."""
    crawler = get_crawler(Spider)
    crawler.spider = Spider("bench")
    downloader = SimpleNamespace(slots={}, get_slot_key=lambda request: request.meta["slot"])
    crawler.engine = cast(ExecutionEngine, SimpleNamespace(downloader=downloader))
    queue = DownloaderAwarePriorityQueue.from_crawler(crawler, FifoMemoryQueue, "")
    for host in range(hosts):
        each = candidate(host, 0)
        queue.push(Request(each.url, meta={"slot": each.host}))
    begun = time.process_time()
    for _ in range(pops):
        queue.pop()
    return (time.process_time() - begun) / pops * 1e6


def measured(pages: int, many_hosts: int, figures: Figures) -> None:
    """Print the figures for 10,000 hosts, and for *many_hosts*. The bars are of one machine, on
    which the code before took 400 and 76 us: on another one compare the ratios."""
    turn_us = {}
    few = min(FEW_HOSTS, many_hosts)
    for hosts, one_in in dict.fromkeys(((few, 9), (few, 1), (many_hosts, 9))):
        parts = page_us(pages, hosts, one_in)
        kind = "all new" if one_in == 1 else f"1 in {one_in} new"
        split = ", ".join(f"{part} {us:.0f}" for part, us in parts.items())
        print(f"\na page at {hosts:,} hosts, {kind}, us: {split}")
        turn = sum(parts[part] for part in _TURN)
        add = sum(parts.values()) - turn
        if one_in == 9:
            turn_us[hosts] = turn
        theirs = scrapy_add_us(pages // 4, hosts, one_in)
        figures.note(
            f"add of 40 links, {kind}, all CPU but the next line's, us", add, ADD_US, f"{add:.0f}"
        )
        figures.note("  times faster than Scrapy's dupefilter and disk queue", theirs / add)
        figures.note("lease + release + finish, us", turn, TURN_US, f"{turn:.0f}")
        if one_in == 9:
            pop = scrapy_pop_us(hosts, _POPS if hosts <= FEW_HOSTS else 5)
            figures.note("  times faster than a pop of Scrapy's queue by hosts", pop / turn)
    if many_hosts > few:
        growth = turn_us[many_hosts] / turn_us[few]
        figures.note(f"growth of that, {few:,} to {many_hosts:,} hosts", growth, GROWTH)


def decided(pages: int, hosts: int, figures: Figures) -> Counter[str]:
    """Crawl *pages* in simulation and print how their links were decided. Hosts are Zipf-
    distributed; one link in nine is new, and how long ago the others were found is Zipf-
    distributed, too: most recently."""
    dice = random.Random(2)
    newest: list[tuple[int, int]] = []  # all that were found, the newest last
    weights = [1 / (number + 1) for number in range(hosts)]
    found = [0] * hosts
    with tempfile.TemporaryDirectory(prefix="frontier") as home:
        frontier, now = Embedded(Path(home)), 0.0
        for number in range(pages):
            now += 1 / _PAGES_PER_S
            links = []
            for host in dice.choices(range(hosts), weights, k=LINKS):
                if not newest or not dice.randrange(9):
                    newest.append((host, found[host]))
                    found[host] += 1
                    links.append(candidate(*newest[-1]))
                else:
                    ago = int(len(newest) ** dice.random())  # as many of each order of magnitude
                    links.append(candidate(*newest[-ago]))
            frontier.add(links, now)
            for lease in frontier.lease(now):
                frontier.finish(lease, Done(), now)
            if number % PAGES_A_COMMIT == 0:
                frontier.commit()
                frontier.settle_work(now)
        frontier.admit_arrived(now)
        ways = frontier.decided
        ways["not yet"] = frontier.counts().undecided
        frontier.close()
    links_in_all = pages * LINKS
    print(f"\nhow {links_in_all:,} links of a crawl were decided")
    for way, urls in ways.items():
        figures.note(f"  {way}", urls / links_in_all, written=f"{urls / links_in_all:.2%}")
    return ways

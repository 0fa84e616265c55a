"""A worker is silent for longer than its lease while another works: it is paused, or its network is
cut. What it brings afterwards is refused, and it goes on with new leases.

Rule: the web server logs which worker asked for what, and when: each has a user agent of its own.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.harness.workers import QUICK_LEASES, Worker, Workers
from tests.servers.cuttable import CuttableNetwork
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.loopback import Ask, Reply
from tests.servers.redis import RedisServer

MIN_DELAY_S = 0.1
FACTOR = 1.0
SETTINGS = {
    **QUICK_LEASES,
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_PACED_MIN_DELAY_S": MIN_DELAY_S,  # else more is fetched than was held
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
}
SLOW_S = 1.0  # an answer, and at least as much the rest after it: 40 s and more for a host
BUSY = 0.3  # of a core: what it has begun is finished, and the connection is tried again
HELD = 3  # leases at least, so that some are under way and some are not


@dataclass(frozen=True)
class SlowAtFirst(JudgedWeb):
    """Every fourth host is slow until it is known that the silent worker goes on: what it held
    comes back after 6 to 9 s, and something must be left for it then."""

    goes_on: threading.Event = field(default_factory=threading.Event)

    def __call__(self, ask: Ask) -> Reply:
        reply = super().__call__(ask)
        is_slow = not self.goes_on.is_set() and int(ask.host.rpartition(".")[2]) % 4 == 0
        return replace(reply, wait_s=SLOW_S) if is_slow and "robots.txt" not in ask.path else reply


@pytest.fixture
def web() -> SlowAtFirst:
    return SlowAtFirst(hosts=20, pages=22, crawl_delay_s=0.2)


@pytest.fixture
def crawl(tmp_path: Path, web: SlowAtFirst) -> Iterator[Workers]:
    with (
        RedisServer() as server,
        Judge(web) as judge,
        Workers(tmp_path, server, judge, SETTINGS) as crawl,
    ):
        yield crawl


def test_a_worker_that_stands_still_for_longer_than_its_lease(
    crawl: Workers, web: SlowAtFirst
) -> None:
    still, other = crawl.start(2)
    at_work(crawl)
    held = with_leases(crawl, still, still.pause, lambda: still.send(signal.SIGCONT))
    wait_until_fetched_by_another(crawl, still, held, other)
    resumed_s = time.monotonic()
    still.send(signal.SIGCONT)
    goes_on(crawl, still, web, resumed_s)
    crawl.finish()
    refused(crawl, still, held, other, resumed_s)


def test_a_worker_whose_network_is_cut_for_longer_than_its_lease(
    crawl: Workers, web: SlowAtFirst
) -> None:
    with CuttableNetwork(crawl.server.port) as network:
        alone = crawl.new(CRAWLER_FRONTIER_URL=f"redis://127.0.0.1:{network.port}").start()
        other = crawl.new().start()
        at_work(crawl)
        held = with_leases(crawl, alone, network.cut, network.mend)
        cpu_s, at_s = alone.cpu_s(), time.monotonic()
        ended_s = wait_until_fetched_by_another(crawl, alone, held, other)
        assert alone.cpu_s() - cpu_s < BUSY * (time.monotonic() - at_s), "it waits"
        mended_s = time.monotonic()
        network.mend()
        goes_on(crawl, alone, web, mended_s)
        crawl.finish()
    refused(crawl, alone, held, other, ended_s)


def at_work(crawl: Workers) -> None:
    crawl.wait_until(lambda: all(worker.has_begun for worker in crawl.all))
    crawl.wait_for_pages(40)


def with_leases(
    crawl: Workers, worker: Worker, cut: Callable[[], None], mend: Callable[[], None]
) -> list[str]:
    """Cut off at a moment at which *worker* holds some: their URLs."""
    held: list[str] = []

    def holds_some() -> bool:
        cut()
        crawl.leases(worker.session)  # Redis has taken what was sent to it before this
        held[:] = crawl.leases(worker.session)
        if len(held) < HELD:
            mend()
        return len(held) >= HELD

    crawl.wait_until(holds_some)
    return held


def wait_until_fetched_by_another(
    crawl: Workers, worker: Worker, held: list[str], other: Worker
) -> float:
    """Wait until the leases of *worker* were returned and the pages among them were fetched by
    *other*. Return a moment at which they had been returned."""
    pages = set(held) & crawl.judge.expected()
    assert pages, held
    crawl.wait_until(lambda: not crawl.leases(worker.session))
    ended_s = time.monotonic()
    crawl.wait_until(lambda: pages <= crawl.visits_of(pages, other).keys())
    return ended_s


def refused(crawl: Workers, worker: Worker, held: list[str], other: Worker, ended_s: float) -> None:
    # What was lost is not counted for sure: the worker may have finished all that it had fetched,
    # and have had no time to tell.
    twice = {crawl.judge.url(*page) for page in crawl.repeats()}
    assert twice <= set(held), (twice, crawl.logs())
    assert set(crawl.visits_of(held, worker).values()) <= {1}
    assert set(crawl.visits_of(held, other).values()) == {1}
    late = crawl.visits_of(held, worker, ended_s)
    assert not late, "nothing was asked for under a lease that had ended"


def goes_on(crawl: Workers, worker: Worker, web: SlowAtFirst, since_s: float) -> None:
    """Wait until *worker* has fetched a page under a new lease; the rest may come quickly."""
    expected = crawl.judge.expected()
    crawl.wait_until(lambda: crawl.visits_of(expected, worker, since_s), what="it goes on")
    web.goes_on.set()

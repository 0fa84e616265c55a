"""Several workers on one web: every page is fetched once and politely, and all stop together."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.waiting import wait_until
from tests.harness.workers import BOUND_S, Worker, Workers
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer

MIN_DELAY_S = 0.05
FACTOR = 10.0
MAX_DELAY_S = 2.0
SETTINGS = {
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
    # Whoever has begun stands still until all have: that ends no fetch, and hardly any rest of a
    # host is longer for it.
    "CRAWLER_TOTAL_TIMEOUT_S": 120,
    "CRAWLER_CONNECT_TIMEOUT_S": 60,
    "CRAWLER_LEASE_S": 600,
    "CRAWLER_MAX_DELAY_S": MAX_DELAY_S,
}
ROBOTS_HOPS = 2  # where robots.txt has moved

# Two looks at all shards, a second apart, and the last page's own way: 2 to 3 s, and what a machine
# busy with other things makes of it: as long as it took to start. Who waited for a lease to end
# would take ten minutes.
SOON_S = 10.0


def patient(server: RedisServer) -> dict[str, object]:
    """A pause of a worker is no failure of its server."""
    return {**SETTINGS, "CRAWLER_FRONTIER_URL": f"{server.url}?socket_timeout=60"}


RESTING = {"CRAWLER_PACED_MIN_DELAY_S": 0.1}  # else all is fetched before the one leaves
FAR_APART = {"CRAWLER_MIN_DELAY_S": 300, "CRAWLER_MAX_DELAY_S": 300}
IDLE = 0.1  # of a core
WINDOW_S = 1.0


@pytest.mark.parametrize(
    ("count", "web"),
    [
        pytest.param(2, JudgedWeb(hosts=20, pages=15), id="two workers"),
        pytest.param(8, JudgedWeb(hosts=30, pages=15), id="eight workers"),
    ],
)
def test_every_page_once_and_no_host_has_anything_to_complain_of(
    tmp_path: Path, count: int, web: JudgedWeb
) -> None:
    with (
        RedisServer() as server,
        Judge(web) as judge,
        Workers(tmp_path, server, judge, patient(server)) as crawl,
    ):
        at_s = time.monotonic()
        workers = crawl.start_together(count)
        soon_s = SOON_S + time.monotonic() - at_s
        statuses = end_of(workers)
        assert statuses == [0] * count, crawl.logs()
        report = judge.report(MIN_DELAY_S, FACTOR, MAX_DELAY_S)
        assert not report.found, report
        assert judge.answered() == judge.expected()
        assert crawl.twice() == 0
        robots = sum(visit.path.endswith("/robots.txt") for visit in judge.visits)
        assert robots <= web.hosts * ROBOTS_HOPS * count
        last_s = max(visit.end_s for visit in judge.visits)
        assert max(worker.ended_at for worker in workers) - last_s < soon_s
        archived = [worker.archived() for worker in workers]
        expected = judge.expected()
    together = sum(archived, Counter())
    assert {url: together[url] for url in expected} == dict.fromkeys(expected, 1)
    at_work = sum(bool(expected & each.keys()) for each in archived)
    assert at_work > count / 2, "of eight on few cores the last may come when all is done"
    assert not any(worker.counted("leases/refused") for worker in workers)
    assert not any(worker.counted("leases/lost") for worker in workers)


def test_workers_join_and_leave_without_delaying_leases(tmp_path: Path) -> None:
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=20, pages=20)) as judge,
        Workers(tmp_path, server, judge, {**patient(server), **RESTING}) as crawl,
    ):
        leaving, staying = crawl.start_together(2)
        crawl.wait_for_pages(60)
        late = crawl.start_beside([leaving, staying])
        crawl.wait_for_pages(200)
        crawl.wait_until(lambda: crawl.leases(leaving.session))
        leaving.send(signal.SIGTERM)
        assert leaving.wait() == 0, crawl.logs()
        assert not crawl.leases(leaving.session), "all is given back at once"
        assert end_of([staying, late]) == [0, 0], crawl.logs()
        report = judge.report(MIN_DELAY_S, FACTOR, MAX_DELAY_S)
        assert not report.found, report
        assert judge.answered() == judge.expected()
        assert crawl.twice() <= leaving.counted("fate/put_back")
        assert late.archived().keys() & judge.expected(), "a worker that joins late gets its part"


def test_a_worker_that_waits_for_a_host_to_rest_is_idle(tmp_path: Path) -> None:
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=1, pages=10)) as judge,
        Workers(tmp_path, server, judge, {**SETTINGS, **FAR_APART}) as crawl,
    ):
        (worker,) = crawl.start(1)
        crawl.wait_until(lambda: judge.visits)
        crawl.wait_until(lambda: is_idle(worker))  # what came with the answer is done
        assert all(is_idle(worker) for _ in range(2))
        assert len(judge.visits) == 1


def is_idle(worker: Worker) -> bool:
    cpu_s, at_s = worker.cpu_s(), time.monotonic()
    time.sleep(WINDOW_S)
    return worker.cpu_s() - cpu_s < IDLE * (time.monotonic() - at_s)


def end_of(workers: list[Worker], timeout_s: float = 2 * BOUND_S) -> list[int]:
    """Their statuses; when each ended is noted as it happens."""
    wait_until(lambda: ended(workers), timeout_s)
    return [worker.wait() for worker in workers]


def ended(workers: list[Worker]) -> bool:
    return sum(worker.has_ended() for worker in workers) == len(workers)

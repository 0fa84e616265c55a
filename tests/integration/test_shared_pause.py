"""A worker that is not heard of for longer than its lease, while another works: it stands still,
or its network is cut. Whatever it then brings is refused, and it goes on with what is new.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.servers.cuttable import CuttableNetwork
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer
from tests.warc_judges import read_folder
from tests.workers import QUICK_LEASES, Worker, Workers

MIN_DELAY_S = 0.1
FACTOR = 2.0
SETTINGS = {
    **QUICK_LEASES,
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
}
BUSY = 0.3  # of a core: what it has begun is finished, and the connection is tried again
SINCE_S = 0.3  # it is seen a moment after it has happened that a lease has ended
HELD = 3  # leases at least, so that some are under way and some are not


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Workers]:
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=20, pages=25)) as judge,
        Workers(tmp_path, server, judge, SETTINGS) as crawl,
    ):
        yield crawl


def test_a_worker_that_stands_still_for_longer_than_its_lease(crawl: Workers) -> None:
    still, other = crawl.start(2)
    crawl.until_pages(40)
    held = paused_with_leases(crawl, still)
    ended_s = until_others_have(crawl, still, held)
    resumed_at = time.time()
    still.send(signal.SIGCONT)
    end_in_peace(crawl, [still, other])
    refused(crawl, still, held, ended_s, resumed_at)


def test_a_worker_whose_network_is_cut_for_longer_than_its_lease(crawl: Workers) -> None:
    with CuttableNetwork(crawl.server.port) as network:
        alone = crawl.new(CRAWLER_FRONTIER_URL=f"redis://127.0.0.1:{network.port}").start()
        other = crawl.new().start()
        crawl.until_pages(40)
        held = cut_off_with_leases(crawl, alone, network)
        cpu_s, at_s = alone.cpu_s(), time.monotonic()
        ended_s = until_others_have(crawl, alone, held)
        assert alone.cpu_s() - cpu_s < BUSY * (time.monotonic() - at_s), "it waits"
        mended_at = time.time()
        network.mend()
        end_in_peace(crawl, [alone, other])
    refused(crawl, alone, held, ended_s, mended_at)


def paused_with_leases(crawl: Workers, worker: Worker) -> list[str]:
    """At a moment at which it holds some: their URLs."""
    while True:
        worker.pause()
        time.sleep(0.1)  # what it has sent arrives
        held = crawl.leases(worker.session)
        if len(held) >= HELD:
            return held
        worker.send(signal.SIGCONT)
        time.sleep(0.05)


def cut_off_with_leases(crawl: Workers, worker: Worker, network: CuttableNetwork) -> list[str]:
    while True:
        network.cut()
        time.sleep(0.1)
        held = crawl.leases(worker.session)
        if len(held) >= HELD:
            return held
        network.mend()
        time.sleep(0.05)


def until_others_have(crawl: Workers, worker: Worker, held: list[str]) -> float:
    """Until what it holds came back, and the pages among it were fetched by the other. Returns
    when it came back."""
    pages = set(held) & crawl.judge.expected()
    assert pages, held
    crawl.until(lambda: not crawl.leases(worker.session))
    ended_s = time.monotonic()
    crawl.until(lambda: pages <= crawl.visits_of(pages, ended_s - SINCE_S).keys())
    return ended_s


def end_in_peace(crawl: Workers, workers: list[Worker]) -> None:
    assert [worker.wait() for worker in workers] == [0] * len(workers), crawl.logs()
    report = crawl.judge.report(MIN_DELAY_S, FACTOR)
    assert not report.found, report
    assert crawl.judge.answered() == crawl.judge.expected()


def refused(
    crawl: Workers, worker: Worker, held: list[str], ended_s: float, back_at: float
) -> None:
    assert worker.counted("leases/lost") + worker.counted("leases/refused") > 0, crawl.logs()
    assert crawl.twice() <= len(held)
    again = crawl.visits_of(held, ended_s - SINCE_S)
    assert set(again.values()) <= {1}, "nothing was asked for under a lease that had ended"
    assert archived_since(worker, back_at), "it goes on"


def archived_since(worker: Worker, at: float) -> list[str]:
    return [
        record.url
        for record in read_folder(worker.data / "warc").values()
        if record.kind == "response"
        and datetime.fromisoformat(record.fields["WARC-Date"]).timestamp() > at
    ]

"""kill -9 at random moments of random workers of one crawl: nothing is lost, politeness holds, and
no page is fetched again but for a lease that was returned.

Rule: most of the killed workers restart, some with an empty data directory: the leases of those are
not returned by their worker, and expire.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from tests.harness.workers import Worker, Workers
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer

KILLS = 50
WORKERS = 4
EMPTY_HANDED = 0.2  # of those that come back
MIN_DELAY_S = 0.1
# A host whose fetch was cut off rests as if that had taken the whole time-out.
FACTOR = 1.0
SETTINGS = {
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
    "CRAWLER_LEASE_S": 8,
    "CRAWLER_TOTAL_TIMEOUT_S": 3,
    "CRAWLER_CONNECT_TIMEOUT_S": 2,
    "CRAWLER_HEARTBEAT_S": 1,
}


def test_fifty_kills_of_workers_lose_no_page(tmp_path: Path) -> None:
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=20, pages=80)) as judge,
        Workers(tmp_path, server, judge, SETTINGS) as crawl,
    ):
        returned = killed_at_random(crawl, random.Random(7))
        survivors = [worker for worker in crawl.all if worker.is_up]
        assert [worker.wait() for worker in survivors] == [0] * WORKERS, crawl.logs()
        report = judge.report(MIN_DELAY_S, FACTOR)
        assert not report.found, report
        expected = judge.expected()
        assert judge.answered() == expected
        assert crawl.twice() <= returned
        archived = sum((worker.archived() for worker in crawl.all), Counter())
    assert not expected - archived.keys(), "every page is in an archive"


def killed_at_random(crawl: Workers, dice: random.Random) -> int:
    """How many leases the dead held: each of them may cost a second fetch."""
    at_work = crawl.start(WORKERS)
    held: dict[str, int] = {}
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.6))
        place = dice.randrange(WORKERS)
        worker = at_work[place]
        assert worker.is_up, f"it has ended already:\n{worker.log_text()[-2000:]}"
        worker.kill()
        # Of one that was killed before it joined, this is the life before.
        held.setdefault(worker.session, len(crawl.leases(worker.session)))
        at_work[place] = back(crawl, worker, dice)
    return sum(held.values())


def back(crawl: Workers, worker: Worker, dice: random.Random) -> Worker:
    return crawl.new().start() if dice.random() < EMPTY_HANDED else worker.start()

"""kill -9 at random moments of random workers of one crawl: nothing is lost, politeness holds, and
no page is fetched again but for a lease that was returned.

Rule: most of the killed workers restart, some with an empty data directory: the leases of those are
not returned by their worker, and expire. A Retry-After that a killed worker had not yet read is not
kept (docs/decisions/0008): of each answer that is forgiven its lease was still held at the kill.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.harness.workers import Worker, Workers
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.loopback import Visit
from tests.servers.redis import RedisServer

KILLS = 34
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
}


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that was killed, and the URLs that it held leases of."""

    agent: str
    session: str
    at_s: float
    held: tuple[str, ...]


def test_kills_of_workers_lose_no_page(tmp_path: Path) -> None:
    with (
        RedisServer() as server,
        Judge(JudgedWeb(hosts=20, pages=55)) as judge,
        Workers(tmp_path, server, judge, SETTINGS) as crawl,
    ):
        deaths = killed_at_random(crawl, random.Random(7))
        survivors = [worker for worker in crawl.all if worker.is_up]
        assert [worker.wait() for worker in survivors] == [0] * WORKERS, crawl.logs()
        report = judge.report(MIN_DELAY_S, FACTOR, unread=unread(judge, deaths))
        assert not report.found, report
        expected = judge.expected()
        assert judge.answered() == expected
        assert crawl.twice() <= returned(deaths)
        archived = sum((worker.archived() for worker in crawl.all), Counter())
    assert not expected - archived.keys(), "every page is in an archive"


def killed_at_random(crawl: Workers, dice: random.Random) -> list[Death]:
    at_work = crawl.start(WORKERS)
    deaths = []
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.2, 1.6))
        place = dice.randrange(WORKERS)
        worker = at_work[place]
        assert worker.is_up, f"it has ended already:\n{worker.log_text()[-2000:]}"
        worker.kill()
        held = tuple(crawl.leases(worker.session))
        deaths.append(Death(worker.agent, worker.session, worker.ended_at, held))
        at_work[place] = back(crawl, worker, dice)
    return deaths


def returned(deaths: list[Death]) -> int:
    """How many leases were returned: each of them may cost a second fetch. A worker that is killed
    before it joined has the session of the life before."""
    first = {death.session: death for death in reversed(deaths)}
    return sum(len(death.held) for death in first.values())


def unread(judge: Judge, deaths: list[Death]) -> list[Visit]:
    """The last request of each killed worker for each URL that it held a lease of."""
    found: dict[tuple[float, str], Visit] = {}
    began_s: dict[str, float] = {}  # by agent
    for death in deaths:
        for visit in judge.visits:
            is_own = visit.agent.startswith(f"{death.agent}/")
            url = judge.url(visit.host, visit.path)
            in_time = began_s.get(death.agent, 0.0) < visit.arrival_s < death.at_s
            if is_own and in_time and url in death.held:
                found[death.at_s, url] = visit
        began_s[death.agent] = death.at_s
    return list(found.values())


def back(crawl: Workers, worker: Worker, dice: random.Random) -> Worker:
    return crawl.new().start() if dice.random() < EMPTY_HANDED else worker.start()

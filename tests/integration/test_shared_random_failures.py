"""Random failures of a shared crawl: workers are killed and paused, their networks are cut, Redis
is killed or paused. Checked by the request log of the web and by the archives."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.harness.workers import QUICK_LEASES, Worker, Workers
from tests.servers.cuttable import CuttableNetwork
from tests.servers.judged_web import Judge, JudgedWeb
from tests.servers.redis import RedisServer

WORKERS: Final = 4
BLOWS: Final = 24
LONGEST_S: Final = 8.0  # longer than a lease
HAPPENINGS: Final = ("kill", "stop", "cut", "redis dies", "redis stands still")
MIN_DELAY_S = 0.1
FACTOR = 1.0
SETTINGS = {
    **QUICK_LEASES,
    "CRAWLER_MIN_DELAY_S": MIN_DELAY_S,
    "CRAWLER_DELAY_FACTOR": FACTOR,
    "CRAWLER_BACKOFF_BASE_S": 0.1,
}
SOON = "?socket_timeout=1&socket_connect_timeout=1"


class Fate:
    """Deals blows, and mends what they broke when its time has come."""

    def __init__(self, crawl: Workers, networks: list[CuttableNetwork], dice: random.Random):
        self._crawl = crawl
        self._networks = networks
        self._dice = dice
        self._cures: dict[str, tuple[float, Callable[[], None]]] = {}  # by whom they are for

    def strike(self) -> None:
        place = self._dice.randrange(WORKERS)
        what = self._dice.choice(HAPPENINGS)
        whom = "redis" if what.startswith("redis") else str(place)
        # Who starts waits for no more than ten seconds for Redis.
        if whom in self._cures or (what == "kill" and self._cures):
            return
        cure = self._struck(what, self._crawl.all[place], self._networks[place])
        until_s = time.monotonic() + self._dice.uniform(0.3, LONGEST_S)
        self._cures[whom] = (until_s, cure)

    def mend(self, by_s: float = float("inf")) -> None:
        for whom, (until_s, cure) in list(self._cures.items()):
            if until_s <= by_s:
                cure()
                del self._cures[whom]

    def _struck(self, what: str, worker: Worker, network: CuttableNetwork) -> Callable[[], None]:
        server = self._crawl.server
        assert worker.is_up, f"it has ended already:\n{worker.log_text()[-2000:]}"
        match what:
            case "kill":
                worker.kill()
                last = worker.session
                worker.start()
                self._crawl.wait_until(lambda: worker.session != last)
                return lambda: None
            case "stop":
                worker.pause()
                return lambda: worker.send(signal.SIGCONT)
            case "cut":
                network.cut()
                return network.mend
            case "redis dies":
                server.kill()
                return server.start
            case _:
                server.pause()
                return server.resume


def test_random_failures_lose_no_page_and_no_host_is_asked_too_often(tmp_path: Path) -> None:
    dice = random.Random(11)
    with (
        RedisServer(tmp_path / "redis") as server,
        Judge(JudgedWeb(hosts=20, pages=40)) as judge,
        Workers(tmp_path, server, judge, SETTINGS) as crawl,
        ExitStack() as opened,
    ):
        networks = [opened.enter_context(CuttableNetwork(server.port)) for _ in range(WORKERS)]
        for network in networks:
            crawl.new(CRAWLER_FRONTIER_URL=f"redis://127.0.0.1:{network.port}{SOON}").start()
        crawl.wait_until(lambda: all(worker.session for worker in crawl.all))
        fate = Fate(crawl, networks, dice)
        for _ in range(BLOWS):
            time.sleep(dice.uniform(0.2, 1.5))
            fate.mend(time.monotonic())
            fate.strike()
        fate.mend()
        crawl.finish()
        expected = judge.expected()
        archived = sum((worker.archived() for worker in crawl.all), Counter())
    assert not expected - archived.keys(), "every page is in an archive"

"""The part of workers that takes pushed URLs into one crawl, over a real Redis.

Rule: the test sets the clock and says when a worker ticks; an announcement reaches all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import redis
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from crawler.config.settings import Arguments, read_config
from crawler.crawl.allowed_origins import AllowedOrigins
from crawler.crawl.stats import CrawlStats
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierRules
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate, Standing
from crawler.policy.priority import DepthPrioritizer
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.keys import Scripts
from crawler.shared.pushed import PushedRequestReader, PushedUrls, PushRules, WorkerHooks
from crawler.shared.shard import ShardOperations, read_leases
from crawler.shared.worker.feeds import CandidateSender, PushedFeeds

KEY: Final = "web:start_urls"
TAKEN: Final = "{web:start_urls}:taken"
URGENT: Final = "t:urgent"
SHARDS: Final = 8
LEASE_S: Final = 100.0
CONFIG: Final = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
RULES: Final = FrontierRules(min_gap_s=0.0, gap_factor=0.0)
SOON: Final = "?socket_timeout=60&socket_connect_timeout=60"
OPENING: Final = (0.0, LEASE_S, keys.SCHEMA)  # after a restart nobody waits here

Turn = Callable[[Coroutine[Any, Any, Any]], Any]


def taken(client: redis.Redis) -> int:
    return max(0, client.hlen(TAKEN) - 1)


class FeedingWorkers:
    """The workers of one crawl, with one clock."""

    def __init__(self, url: str, turn: Turn) -> None:
        self.now = 0.0
        self.workers: list[FeedingWorker] = []
        self._turn = turn
        self.nodes = Nodes(Address.parse(url + SOON), Scripts(), "t", SHARDS, OPENING)
        turn(self.nodes.open())

    def add(self, scope: ScopeChoice = ScopeChoice.ANY, **rules: Any) -> FeedingWorker:
        worker = FeedingWorker(self, scope, PushRules(KEY, **rules), lambda work: self._turn(work))
        self.workers.append(worker)
        return worker

    def all_know(self, mark: int) -> bool:
        return all(worker.announced >= mark for worker in self.workers)

    def go_round(self) -> None:
        """All of them tick and announce."""
        for worker in self.workers:
            worker.tick()
            worker.announce()

    def waiting(self) -> list[str]:
        """Of servers that answer, each host's next: leased by somebody, to see them."""
        reader = ShardOperations("reader", SHARDS, RULES, 60)
        replies = self._turn(
            self.nodes.run([reader.lease(shard, {Standing.NEW: 50}) for shard in range(SHARDS)])
        )
        return sorted(
            lease.candidate.url
            for shard, reply in enumerate(replies)
            if not isinstance(reply, FAULTS)
            for lease in read_leases(reply, shard).leases
        )

    def close(self) -> None:
        self._turn(self.nodes.close())


class FeedingWorker:
    def __init__(
        self, crew: FeedingWorkers, scope: ScopeChoice, rules: PushRules, turn: Turn
    ) -> None:
        self.announced = 0
        self.may_take = True
        self.is_idle = True
        self.woken = 0
        self._turn = turn
        session = f"worker{len(crew.workers)}"
        self.doors = AllowedOrigins(
            CONFIG, Arguments(seeds="redis", scope=scope), MemoryStore(), 7, 1e9
        )
        self.doors.set_seeds([])
        self.tally = CrawlStats(MemoryStatsCollector(get_crawler()))
        delivery = CandidateSender(
            crew.nodes, ShardOperations(session, SHARDS, RULES, 60), False, lambda shard, in_s: None
        )
        self.feeding = PushedUrls(
            PushedFeeds.of(crew.nodes, delivery, "t", rules.key, session, LEASE_S),
            PushedRequestReader(
                self.doors, DepthPrioritizer(3), RequestFingerprinter().fingerprint
            ),
            rules,
            WorkerHooks(
                all_have_read=crew.all_know,
                may_take=lambda: self.may_take,
                is_idle=lambda: self.is_idle,
                wake=self._wake,
            ),
            self.tally,
            lambda: crew.now,
        )

    def tick(self) -> None:
        self._turn(self.feeding.tick())

    def announce(self) -> None:
        self.announced = self.feeding.opened_mark

    def admits(self, url: str) -> bool:
        return isinstance(self.doors.admission.candidate(url, depth=1), Candidate)

    def _wake(self) -> None:
        self.woken += 1

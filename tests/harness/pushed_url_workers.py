"""The part of workers that takes pushed URLs into the inboxes of one crawl, over a real Redis.

Rule: the test sets the clock and lets a worker tick; an announcement reaches all workers at once.
No worker owns a shard, so what was pushed stays in the inboxes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

import redis
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter
from scrapy.utils.test import get_crawler

from crawler.config.arguments import Arguments, SeedTerms
from crawler.config.settings import read_config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.engine.stats import CrawlStats
from crawler.frontier.memory_store import MemoryStore
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate
from crawler.policy.scope import SeedHosts
from crawler.policy.seed_terms import TermsOfSeeds
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.keys import URGENT_LEVEL, root
from crawler.shared.owned.inbox import unpack_links
from crawler.shared.owned.pushed_links import InboxDelivery
from crawler.shared.owned.scripts import INBOX, OwnedScripts
from crawler.shared.pushed import PushedRequestReader, PushedUrls, PushSettings, WorkerHooks
from crawler.shared.worker.feeds import PushedFeeds

KEY: Final = "web:start_urls"
TAKEN: Final = "{web:start_urls}:taken"
URGENT: Final = "t:urgent"
SHARDS: Final = 8
LEASE_S: Final = 100.0
CONFIG: Final = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
SOON: Final = "?socket_timeout=60&socket_connect_timeout=60"

RunLoop = Callable[[Coroutine[Any, Any, Any]], Any]


def taken(client: redis.Redis) -> int:
    return max(0, client.hlen(TAKEN) - 1)


class PushedUrlWorkers:
    """The workers of one crawl, with one clock."""

    def __init__(self, url: str, run_loop: RunLoop, *, is_ack_durable: bool = True) -> None:
        self.now = 0.0
        self.is_ack_durable = is_ack_durable
        self.workers: list[PushedUrlWorker] = []
        self._run_loop = run_loop
        self.nodes = Nodes(Address.parse(url + SOON), OwnedScripts(), "t", SHARDS)
        run_loop(self.nodes.open())

    def add(self, scope: ScopeChoice = ScopeChoice.ANY, **rules: Any) -> PushedUrlWorker:
        settings = PushSettings(KEY, **rules)
        worker = PushedUrlWorker(self, scope, settings, lambda work: self._run_loop(work))
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
        """Return the URLs in the inboxes whose servers answer, the urgent ones marked."""
        asks = [(shard, ("HVALS", f"{root('t', shard)}:{INBOX}")) for shard in range(SHARDS)]
        replies = self._run_loop(self.nodes.commands(asks))
        entries = [each for reply in replies if not isinstance(reply, FAULTS) for each in reply]
        assert all(each.startswith(b"p") for each in entries), "its owner is to report on them"
        return sorted(
            each.url + " now" * (each.level == URGENT_LEVEL)
            for entry in entries
            for each in unpack_links(entry)
        )

    def close(self) -> None:
        self._run_loop(self.nodes.close())


class PushedUrlWorker:
    def __init__(
        self,
        crew: PushedUrlWorkers,
        scope: ScopeChoice,
        settings: PushSettings,
        run_loop: RunLoop,
    ) -> None:
        self.announced = 0
        self.may_take = True
        self.is_idle = True
        self.woken = 0
        self._run_loop = run_loop
        session = f"worker{len(crew.workers)}"
        self.origins = AllowedOrigins(
            CONFIG, Arguments(seeds="redis", scope=scope), MemoryStore(), 7, 1e9
        )
        self.origins.set_seeds(SeedHosts(TermsOfSeeds(SeedTerms(scope=scope))))
        self.stats = CrawlStats(MemoryStatsCollector(get_crawler()))
        delivery = InboxDelivery(crew.nodes, is_ack_durable=crew.is_ack_durable)
        self.pushed_urls = PushedUrls(
            PushedFeeds.of(crew.nodes, delivery, "t", settings.key, session, LEASE_S),
            PushedRequestReader(self.origins, RequestFingerprinter().fingerprint),
            settings,
            WorkerHooks(
                all_have_read=crew.all_know,
                may_take=lambda: self.may_take,
                is_idle=lambda: self.is_idle,
                wake=self._wake,
            ),
            self.stats,
            lambda: crew.now,
        )

    def tick(self) -> None:
        self._run_loop(self.pushed_urls.tick())

    def announce(self) -> None:
        self.announced = self.pushed_urls.opened_mark

    def admits(self, url: str) -> bool:
        return isinstance(self.origins.admission.candidate(url, depth=1), Candidate)

    def _wake(self) -> None:
        self.woken += 1

"""The parts of a crawl that are built first, and those that depend on where its frontier is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from scrapy.crawler import Crawler

from crawler.archive.expire import ExpiredFiles
from crawler.assembly.crawl import EmbeddedFrontier
from crawler.config.arguments import Arguments
from crawler.config.settings import Config
from crawler.data.allowed_origins import AllowedOrigins, CurrentRules
from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom
from crawler.data.local_stores import Soft404Records
from crawler.data.operator_files import OperatorStore
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import Duplicates
from crawler.duplicates.near import NearDuplicatesIndex
from crawler.engine.lifecycle import Lifecycle
from crawler.engine.stats import CrawlStats
from crawler.engine.web_bot_auth import RequestSigner
from crawler.frontier.groups import LateAddresses
from crawler.frontier.port import Frontier, FrontierLimits, LeaseRules, OrderedStore
from crawler.frontier.rocks_store import RocksStore
from crawler.loop.life import Lives
from crawler.loop.loop import OutcomeSink
from crawler.loop.precheck import OtherWorkers, Precheck, Probes
from crawler.loop.slots import Slots
from crawler.model.clock import Clock
from crawler.page.challenge import Signatures
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.priority import Prioritizer
from crawler.policy.ranks import Ranks
from crawler.policy.robots_cache import RobotsCache, RobotsStore

if TYPE_CHECKING:  # only a shared crawl imports it: 30 ms
    from crawler.shared.owned.worker import OwnedWorker
    from crawler.shared.worker.names import SharedNames
    from crawler.urlfrontier.remote_frontier import RemoteFrontier


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseParts:
    """The parts that are built first, and that the frontier and all others need."""

    crawler: Crawler
    config: Config
    arguments: Arguments | None  # None: the spider's own code makes the start requests
    frontier_limits: FrontierLimits
    data: DataDir
    expired: ExpiredFiles  # of the archive: no record names one of theirs
    store: RocksStore
    outcomes: OutcomeLog
    room: DiskRoom
    random: Random
    prioritizer: Prioritizer
    signatures: Signatures
    signer: RequestSigner | None  # None: requests are not signed
    ranks: Ranks | None  # of domains or hosts, from outside
    slots: Slots
    lives: Lives
    stats: CrawlStats
    lifecycle: Lifecycle
    addresses: LateAddresses | None  # by which hosts are grouped; None: they are not
    fetches: bool  # False: other crawlers fetch what this worker has

    def allowed_origins(self, key_seed: int, now: float) -> AllowedOrigins:
        return AllowedOrigins(
            self.config,
            self.arguments,
            self.store,
            key_seed,
            now,
            rule_budgets=self.frontier_limits.rule_budgets,
            ranks=self.ranks,
            prioritizer=self.prioritizer,
        )

    def lease_rules(
        self, origins: AllowedOrigins, now: Callable[[], float], *, are_kept: bool = True
    ) -> LeaseRules:
        """*are_kept*: as of CurrentRules."""
        log, count = self.outcomes.append_all, self.stats.count
        return CurrentRules(origins, log, count, now, are_kept=are_kept)

    def precheck(
        self,
        origins: AllowedOrigins,
        robots_store: RobotsStore,
        pattern_stats: PatternStatsStore,
        records_store: OrderedStore,
        others: OtherWorkers | None = None,
    ) -> Precheck:
        agent, records = self.config.identity.user_agent_name, Soft404Records(records_store)
        robots = RobotsCache(robots_store, agent, self.config.robots)
        probes = Probes(records, lambda: self.random.randbytes(12).hex(), self.config.content)
        return Precheck(
            *(robots, origins.robots_candidate, pattern_stats, origins.seed_limits, probes),
            origins.overrides_of,
            others,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierParts:
    """The parts that depend on where the frontier is."""

    frontier: Frontier
    clock: Clock
    allowed_origins: AllowedOrigins
    precheck: Precheck
    duplicates: Duplicates
    near_duplicates: NearDuplicatesIndex
    put_back_count: int  # how many leases of the last run were put back
    operator_store: OperatorStore  # of the rules in force, and of what operators did
    outcomes: OutcomeSink
    embedded: EmbeddedFrontier | None = None
    shared: OwnedWorker | None = None
    remote: RemoteFrontier | None = None
    shared_names: SharedNames | None = None

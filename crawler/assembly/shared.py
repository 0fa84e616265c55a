"""The parts of a worker of a shared crawl.

Rule: it is imported only in a crawl that is shared: what it imports takes 30 ms.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time

from crawler.assembly.parts import BaseParts, FrontierParts
from crawler.config.settings import Config, read_kept
from crawler.data.allowed_origins import AllowedOrigins
from crawler.data.data_dir import SHARDS
from crawler.data.frontier_work import FrontierWork
from crawler.data.local_stores import LocalPatternStats, RobotsRecords
from crawler.frontier.port import FRONTIER
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.shards import Shards
from crawler.model.types import Claim, Lease
from crawler.policy.operator_rules import read_rules
from crawler.shared import keys
from crawler.shared.address import RedisAddress
from crawler.shared.operator_store import SharedStore
from crawler.shared.owned.worker import OwnedWorker
from crawler.shared.pushed import PushedContext, PushedRequestReader, push_settings
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.frontier import SharedFrontier
from crawler.shared.worker.join import JoinedCrawl, kept_arguments
from crawler.shared.worker.near_duplicates import NearSearch, SharedNearDuplicates
from crawler.shared.worker.patterns import SharedPatternStats
from crawler.shared.worker.robots import SharedRobots


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKnowledge:
    """Implements frontier.Knowledge."""

    duplicates: SharedDuplicates
    near_duplicates: SharedNearDuplicates
    robots: SharedRobots
    pattern_stats: SharedPatternStats
    on_robots_replaced: Callable[[str], None]
    """Called if another worker's robots.txt is used from now."""

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Read what other workers have stored about *leases*. For most of them everything is in
        this process, and no call is made."""
        for authority in await self.robots.prefetch(leases):
            self.on_robots_replaced(authority)
        await self.pattern_stats.prefetch(leases)

    def note_claim(self, lease_id: int, claim: Claim) -> None:
        self.duplicates.note_claim(lease_id)
        self.near_duplicates.note_claim(lease_id, claim)

    async def tick(self) -> None:
        self.near_duplicates.send_rows()

    def flush(self) -> None:
        self.near_duplicates.send_rows()


def shared_parts(base: BaseParts, joined: JoinedCrawl) -> FrontierParts:
    """Build the parts that depend on where the frontier is."""
    config, worker, clock = base.config, joined.base, joined.clock
    origins = base.allowed_origins(joined.format.key_seed, time())
    version, written = joined.rules
    origins.set_operator_rules(read_rules(written, len(config.frontier.level_shares)))
    shard_client, scripts = worker.shard_client(), Batcher(worker.nodes.run)
    duplicates = SharedDuplicates(shard_client, scripts)
    max_bits, commands = config.content.near_max_bits, Batcher(worker.nodes.commands)
    search = NearSearch(worker.ops, worker.settings.name, scripts, commands, max_bits)
    near_duplicates = SharedNearDuplicates(shard_client, search, max_bits)
    records, robots_bytes = RobotsRecords(base.store), config.robots.robots_max_bytes
    robots = SharedRobots(
        records, shard_client, clock.now, robots_bytes, worker.status_log.on_disk_full_for_links
    )
    pattern_stats = SharedPatternStats(config.patterns, shard_client, clock.now)
    precheck = base.precheck(origins, robots, pattern_stats, base.store)
    knowledge = SharedKnowledge(
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        robots=robots,
        pattern_stats=pattern_stats,
        on_robots_replaced=precheck.drop_robots,
    )
    frontier = SharedFrontier(
        worker,
        knowledge,
        lease_rules=base.lease_rules(origins),
        free_slots=base.slots.free_slots,
        wake=base.lifecycle.wake,
        pushing=_pushed_context(base, origins),
    )
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        allowed_origins=origins,
        precheck=precheck,
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        put_back_count=joined.put_back,
        operator_store=SharedStore(worker.nodes, worker.settings.name, version),
        outcomes=base.outcomes,
        shared=frontier,
    )


def owned_parts(base: BaseParts, joined: JoinedCrawl) -> FrontierParts:
    """Build the parts of a worker that owns shards."""
    config, worker, clock = base.config, joined.base, joined.clock
    origins = base.allowed_origins(joined.format.key_seed, time())
    version, written = joined.rules
    origins.set_operator_rules(read_rules(written, len(config.frontier.level_shares)))
    shard_client, scripts = worker.shard_client(), Batcher(worker.nodes.run)
    duplicates = SharedDuplicates(shard_client, scripts)
    max_bits, commands = config.content.near_max_bits, Batcher(worker.nodes.commands)
    search = NearSearch(worker.ops, worker.settings.name, scripts, commands, max_bits)
    near_duplicates = SharedNearDuplicates(shard_client, search, max_bits)
    work = FrontierWork(
        base.outcomes.append_all, base.room, base.lifecycle.fail, base.lifecycle.wake
    )
    folder = base.data.path / SHARDS
    shutil.rmtree(folder, ignore_errors=True)  # the shards are in Redis
    frontier = OwnedWorker(
        worker,
        joined.format,
        (duplicates, near_duplicates),
        work,
        dead_sessions=joined.dead_sessions,
        folder=folder,
        store=RocksStore(folder / FRONTIER),
        limits=base.frontier_limits,
        lease_rules=base.lease_rules(origins),
        free_slots=base.slots.free_slots,
        wake=base.lifecycle.wake,
        on_taken_in=lambda: pattern_stats.forget(),
        pushing=_pushed_context(base, origins),
    )
    pattern_stats = LocalPatternStats(
        frontier.frontier.records, config.patterns, shards=Shards(worker.settings.shards)
    )
    robots = RobotsRecords(base.store)
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        allowed_origins=origins,
        precheck=base.precheck(origins, robots, pattern_stats, base.store),
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        put_back_count=joined.put_back,
        operator_store=SharedStore(worker.nodes, worker.settings.name, version),
        outcomes=work,
        shared=frontier,
    )


def _pushed_context(base: BaseParts, origins: AllowedOrigins) -> PushedContext:
    """Return what PushedUrls needs of the crawl."""
    crawler, fingerprinter = base.crawler, base.crawler.request_fingerprinter
    assert fingerprinter is not None
    reader = PushedRequestReader(origins, base.prioritizer, fingerprinter.fingerprint)
    pushed = push_settings(crawler.settings, crawler.spider, base.arguments)
    return PushedContext(reader, pushed, base.stats)


def arguments_of_last_worker(address: RedisAddress, config: Config) -> dict[str, str]:
    """Return the arguments of the last start of the crawl, as given. Raises CrawlerError."""
    return read_kept(kept_arguments(address, config), keys.arguments(config.shared.frontier_name))

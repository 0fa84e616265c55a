"""The parts of a worker of a shared crawl.

Rule: it is imported only in a crawl that is shared: what it imports takes 30 ms.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import closing, suppress
from pathlib import Path
from time import time

import msgspec

from crawler.assembly.parts import BaseParts, FrontierParts
from crawler.config.arguments import read_kept
from crawler.config.settings import Config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.data.changes import ChangeFeed, last_number
from crawler.data.data_dir import SHARDS
from crawler.data.frontier_work import FrontierWork
from crawler.data.local_stores import LocalPatternStats, RobotsRecords
from crawler.frontier.port import FRONTIER
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.shards import Shards
from crawler.loop.precheck import OtherWorkers
from crawler.model.types import CrawlerError, HostKey
from crawler.policy.operator_rules import read_rules
from crawler.shared import keys
from crawler.shared.address import RedisAddress
from crawler.shared.changes import ChangeSender, feed_of, state_of
from crawler.shared.operator_store import SharedStore
from crawler.shared.owned.robots_results import host_of
from crawler.shared.owned.takeover import NotedRest, noted_rests
from crawler.shared.owned.worker import OwnedWorker
from crawler.shared.pushed import PushedContext, PushedRequestReader, push_settings
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.join import JoinedCrawl, asked_once, kept_arguments
from crawler.shared.worker.names import SharedNames
from crawler.shared.worker.near_duplicates import NearSearch, SharedNearDuplicates

logger = logging.getLogger(__name__)


def open_changes(
    address: RedisAddress, config: Config, joined: JoinedCrawl, folder: Path
) -> tuple[ChangeFeed, ChangeSender]:
    """Open the change feed of this worker in *folder*, and what sends it to that of the crawl.
    Raises CrawlerError."""
    worker = joined.base
    crawl, feed = worker.settings.name, feed_of(folder, worker.make_record().name)
    state = asked_once(address, config, lambda nodes: state_of(nodes, feed))
    if (last := last_number(folder)) < state.sent:
        logger.warning(
            "The change feed in %s ends at entry %d, and %d of it were sent to the one of the"
            " crawl: it is an older copy. Its numbers go on behind these",
            *(folder, last, state.sent),
        )
    changes = ChangeFeed(folder, worker.disk.wait_for_room, state.sent)
    return changes, ChangeSender(crawl, folder, feed, state, lambda: changes.last)


def shared_parts(
    base: BaseParts, joined: JoinedCrawl, changes: ChangeSender | None
) -> FrontierParts:
    """Build the parts that depend on where the frontier is."""
    config, worker, clock = base.config, joined.base, joined.clock
    origins = base.allowed_origins(joined.format.key_seed, time())
    version, written = joined.rules
    origins.set_operator_rules(read_rules(written, len(config.frontier.level_shares)))
    shard_client, scripts = worker.shard_client(), Batcher(worker.nodes.run)
    duplicates = SharedDuplicates(shard_client, scripts, is_gone=base.expired.has)
    max_bits, commands = config.content.near_max_bits, Batcher(worker.nodes.commands)
    search = NearSearch(worker.contents, worker.settings.name, scripts, commands, max_bits)
    near_duplicates = SharedNearDuplicates(shard_client, search, max_bits)
    work = FrontierWork(
        base.outcomes.append_all, base.room, base.lifecycle.fail, base.lifecycle.wake
    )

    def forget_counts() -> None:
        pattern_stats.forget()
        origins.seed_limits.forget()

    folder = base.data.path / SHARDS
    rests = _rests_of_dead(folder) if joined.dead_sessions else {}
    shutil.rmtree(folder, ignore_errors=True)  # the shards are in Redis
    frontier = OwnedWorker(
        worker,
        joined.format,
        (duplicates, near_duplicates),
        work,
        dead_sessions=joined.dead_sessions,
        rests=rests,
        folder=folder,
        store=RocksStore(folder / FRONTIER),
        limits=base.frontier_limits,
        lease_rules=base.lease_rules(origins, clock.now),
        addresses=base.addresses,
        free_slots=base.slots.free_slots,
        wake=base.lifecycle.wake,
        on_taken_in=lambda: forget_counts(),
        on_robots=lambda authority, result: precheck.take_robots_result(
            authority, result, clock.now()
        ),
        pushing=_pushed_context(base, origins),
        changes=changes,
        open_fetches=lambda: base.lives.open_fetches(base.slots.received_bytes),
        run_s=_run_s(base),
        fetches=base.fetches,
    )
    pattern_stats = LocalPatternStats(
        frontier.frontier.records, config.patterns, shards=Shards(worker.settings.shards)
    )
    origins.seed_limits.open(frontier.frontier.records, Shards(worker.settings.shards))
    owned = frontier.frontier
    others = OtherWorkers(lambda authority: not owned.owns(host_of(authority)), owned.send_robots)
    robots = RobotsRecords(base.store)
    names = None
    if config.shared.share_names:
        names = SharedNames(shard_client, worker.settings.name, worker.nodes.commands)
    precheck = base.precheck(origins, robots, pattern_stats, base.store, others)
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        allowed_origins=origins,
        precheck=precheck,
        duplicates=duplicates,
        near_duplicates=near_duplicates,
        put_back_count=joined.put_back,
        operator_store=SharedStore(worker.nodes, worker.settings.name, version),
        outcomes=work,
        shared=frontier,
        shared_names=names,
    )


def _run_s(base: BaseParts) -> float:
    """Return for how long the run has gone on, by this machine's clock."""
    now = time()
    began_at: float = getattr(base.crawler.spider, "began_at", now) if base.arguments else now
    return max(0.0, now - began_at)


def _rests_of_dead(folder: Path) -> dict[HostKey, NotedRest]:
    """Return what the last process of this worker had noted in *folder*, as far as it can be
    read."""
    if not (folder / FRONTIER).is_dir():
        return {}
    with (
        suppress(CrawlerError, msgspec.MsgspecError),
        closing(RocksStore(folder / FRONTIER)) as store,
    ):
        return noted_rests(store, time())
    return {}


def _pushed_context(base: BaseParts, origins: AllowedOrigins) -> PushedContext:
    """Return what PushedUrls needs of the crawl."""
    crawler, fingerprinter = base.crawler, base.crawler.request_fingerprinter
    assert fingerprinter is not None
    reader = PushedRequestReader(origins, fingerprinter.fingerprint)
    pushed = push_settings(crawler.settings, crawler.spider, base.arguments)
    return PushedContext(reader, pushed, base.stats)


def arguments_of_last_worker(address: RedisAddress, config: Config) -> dict[str, str]:
    """Return the arguments of the last start of the crawl, as given. Raises CrawlerError."""
    return read_kept(kept_arguments(address, config), keys.arguments(config.shared.frontier_name))

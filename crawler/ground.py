"""What a crawl stands on: a frontier in its data directory, or one in Redis that others share.

Rule: above this file nobody knows which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from crawler import rules
from crawler.clock import Clock
from crawler.core.arguments import Arguments
from crawler.core.config import Config
from crawler.core.errors import CrawlerError
from crawler.core.types import Claim, Lease
from crawler.doors import Doors
from crawler.joining import Joined, join
from crawler.policy.robots_cache import RobotsStore
from crawler.policy.yields import Yields
from crawler.scheduler.frontier import TwoTierFrontier
from crawler.scheduler.ports import Frontier, LeaseRules
from crawler.sharing import RedisAddress
from crawler.storage.digests import Digests, Duplicates
from crawler.storage.local.datadir import DataDir
from crawler.storage.local.records import Claims, RobotsRecords
from crawler.storage.local.rocks import RocksStore
from crawler.storage.local.yields import LocalYields
from crawler.storage.near.recovery import open_index
from crawler.storage.nearest import Nearest, NearPages
from crawler.storage.redis.calls import Call
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.worker.batcher import Batcher
from crawler.storage.redis.worker.last_life import Look
from crawler.storage.redis.worker.near_look import NearLook
from crawler.storage.redis.worker.shared_digests import SharedDigests
from crawler.storage.redis.worker.shared_frontier import SharedFrontier
from crawler.storage.redis.worker.shared_nearest import SharedNearest
from crawler.storage.redis.worker.shared_robots import SharedRobots
from crawler.storage.redis.worker.shared_yields import SharedYields
from crawler.tally import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What depends on where the frontier is."""

    frontier: Frontier
    clock: Clock
    doors: Doors
    digests: Duplicates
    nearest: Nearest
    robots: RobotsStore
    yields: Yields
    put_back: int  # leases of the last run
    shared: SharedFrontier | None = None
    ops: Ops | None = None  # of a shared one
    shared_robots: SharedRobots | None = None  # `robots` itself, of a shared one


def embedded(
    config: Config,
    arguments: Arguments | None,
    data: DataDir,
    store: RocksStore,
    lease_rules: Callable[[Doors], LeaseRules],
) -> Ground:
    clock = Clock()
    doors = Doors(config, arguments, store, data.format.key_seed, clock.now())
    frontier_rules = rules.frontier_rules(config, arguments)
    frontier = TwoTierFrontier(store, frontier_rules, clock.now(), lease_rules(doors))
    return Ground(
        frontier=frontier,
        clock=Clock(not_before=frontier.clock),
        doors=doors,
        digests=Digests(Claims(store)),
        nearest=NearPages(open_index(data.near, store), store, config.content.near_max_bits),
        robots=RobotsRecords(store),
        yields=LocalYields(store, config.budgets),
        put_back=frontier.put_back_at_open,
    )


def shared(
    address: RedisAddress,
    config: Config,
    arguments: Arguments | None,
    data: DataDir,
    store: RocksStore,
    concurrency: int,
    tally: Tally,
    fail: Callable[[CrawlerError], None],
    look: Look,
    lease_rules: Callable[[Doors], LeaseRules],
    kept: bytes | None,
) -> Ground:
    """*kept*: arguments for the next start. Raises CrawlerError: the crawl cannot be joined."""

    def doors_of(key_seed: int) -> tuple[Doors, LeaseRules]:
        doors = Doors(config, arguments, store, key_seed, Clock().now())
        return doors, lease_rules(doors)

    joined = join(
        address,
        config,
        rules.frontier_rules(config, arguments),
        data,
        store,
        concurrency,
        tally,
        fail,
        look,
        doors_of,
        kept,
    )
    frontier, clock = joined.frontier, joined.clock
    batcher = Batcher(frontier.nodes.run)
    digests = SharedDigests(joined.ops, batcher, frontier.outgoing.tell, tally.count)
    nearest = _shared_nearest(config, joined, batcher, tally)

    def claimed(lease_id: int, claim: Claim) -> None:
        digests.claimed(lease_id)
        nearest.claimed(lease_id, claim)

    frontier.on_claimed = claimed
    frontier.outgoing.tells.count = tally.count
    robots = _shared_robots(config, frontier, store, tally, clock)
    yields = _shared_yields(config, frontier, tally, clock)
    frontier.incoming.prepare = partial(_prepare, robots, yields)
    return Ground(
        frontier=frontier,
        clock=clock,
        doors=joined.doors,
        digests=digests,
        nearest=nearest,
        robots=robots,
        yields=yields,
        shared_robots=robots,
        put_back=joined.put_back,
        shared=frontier,
        ops=joined.ops,
    )


def _shared_nearest(
    config: Config, joined: Joined, scripts: Batcher[Call], tally: Tally
) -> SharedNearest:
    frontier, max_bits = joined.frontier, config.content.near_max_bits
    name, commands = config.shared.frontier_name, Batcher(frontier.nodes.commands)
    look = NearLook(joined.ops, name, scripts, commands, max_bits)
    nearest = SharedNearest(joined.ops, look, frontier.outgoing.tell, tally.count, max_bits)
    nearest.is_full = frontier.outgoing.full
    frontier.on_tick.append(nearest.tick)
    frontier.on_end = nearest.tell
    return nearest


def _shared_robots(
    config: Config, frontier: SharedFrontier, store: RocksStore, tally: Tally, clock: Clock
) -> SharedRobots:
    robots = SharedRobots(
        RobotsRecords(store),
        config.shared.frontier_shards,
        frontier.nodes.run,
        frontier.outgoing.tell,
        tally.count,
        clock.now,
        config.robots.robots_max_bytes,
    )
    robots.is_full = frontier.outgoing.full
    robots.paused = frontier.paused
    return robots


def _shared_yields(
    config: Config, frontier: SharedFrontier, tally: Tally, clock: Clock
) -> SharedYields:
    yields = SharedYields(
        config.budgets,
        config.shared.frontier_shards,
        frontier.nodes.run,
        frontier.outgoing.tell,
        tally.count,
        clock.now,
    )
    yields.is_full = frontier.outgoing.full
    return yields


async def _prepare(robots: SharedRobots, yields: SharedYields, leases: Sequence[Lease]) -> None:
    """Of most leases all is known here: then neither asks."""
    await robots.enrich(leases)
    await yields.enrich(leases)

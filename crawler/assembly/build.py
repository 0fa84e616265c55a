"""The one place that chooses implementations: settings and arguments in, the parts of a crawl out.

Rule: Scrapy builds `Assembly` as the last of its extensions, before the engine and all that asks
for a part of the crawl; what `parts_of(crawler)` gives is whole.
"""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Self

from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from crawler.archive.replay import Replay
from crawler.assembly.crawl import Lifecycle, Parts
from crawler.config.settings import (
    Arguments,
    Config,
    encode_kept,
    read_config,
    read_kept,
    to_keep,
)
from crawler.content.crawl_archive import Keeping
from crawler.content.feed_export import make_pages_items
from crawler.content.parsing import Parsers
from crawler.crawl import rules
from crawler.crawl.allowed_origins import Doors, RulesOfThisStart
from crawler.crawl.body_memory import BodyMemory
from crawler.crawl.clock import Clock
from crawler.crawl.group_commit import GroupCommit
from crawler.crawl.in_flight import (
    Flights,
    Landing,
    Ledger,
    Reservations,
)
from crawler.crawl.interactive import is_errand
from crawler.crawl.precheck import Clearance, Probes
from crawler.crawl.slots import SlotRules, Slots
from crawler.crawl.stats import Tally
from crawler.data import data_dir as datadir
from crawler.data.data_dir import DataDir, PassingDir, refuse_other_kind
from crawler.data.outcomes import OutcomeLog
from crawler.data.records import Claims, LocalYields, RobotsRecords, Soft404Records
from crawler.duplicates.exact import Digests, Duplicates
from crawler.duplicates.index.index import open_index
from crawler.duplicates.near import Nearest, NearPages
from crawler.frontier.port import Frontier, LeaseRules
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.page import Exchanges
from crawler.model.types import (
    Claim,
    ConfigError,
    CrawlerError,
    Lease,
    StoreFull,
)
from crawler.policy.patterns import Yields
from crawler.policy.politeness import Uplink, UplinkRules
from crawler.policy.priority import Prioritizer
from crawler.policy.robots_cache import RobotsCache, RobotsStore
from crawler.shared import keys
from crawler.shared.address import RedisAddress, redis_address
from crawler.shared.client import Call
from crawler.shared.pushed import Judge, feed, push_rules
from crawler.shared.shard import Ops
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDigests
from crawler.shared.worker.frontier import SharedFrontier
from crawler.shared.worker.join import Joined, join, kept_arguments
from crawler.shared.worker.membership import Look
from crawler.shared.worker.near_duplicates import NearLook, SharedNearest
from crawler.shared.worker.patterns import SharedYields
from crawler.shared.worker.robots import SharedRobots

# What a crawl stands on: a frontier in its data directory, or one in Redis that others share.
#
# Rule: above this file nobody knows which.


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


logger = logging.getLogger(__name__)

OTHER_FILES: Final = 512
"""Open files of a crawl beside its fetches: databases, archive, connections kept alive (guess)."""


class Assembly:
    """The extension that builds the crawl: Scrapy makes it before the engine, and keeps it."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Raises CrawlerError: the crawl cannot begin."""
        return cls(_assemble(crawler))

    def __init__(self, parts: Parts) -> None:
        self.parts = parts


def parts_of(crawler: Crawler) -> Parts:
    """The parts of *crawler*'s crawl. Other extensions ask when the spider is opened."""
    assembly = crawler.get_extension(Assembly)
    assert assembly is not None, "crawler.addon.Addon names it among the extensions"
    return assembly.parts


def _assemble(crawler: Crawler) -> Parts:
    make_pages_items()
    given = read_config({name: crawler.settings[name] for name in crawler.settings})
    replay = _replay(given, data_dir(crawler.settings, given))
    config = rules.in_force(given)
    # Spiders other than `web` have no arguments of ours, and go where their requests say.
    arguments = getattr(crawler.spider, "arguments", None)
    given_as_text = getattr(crawler.spider, "given", None)
    kept = encode_kept(to_keep(given_as_text)) if given_as_text is not None else None
    address = redis_address(crawler.settings, config)
    with ExitStack() as opened:
        data = _data(crawler, config)
        opened.callback(data.close)
        refuse_other_kind(data, is_shared=address is not None)
        store = RocksStore(data.frontier if address is None else data.worker)
        opened.callback(store.close)
        random = Random()
        keeping = Keeping(config, data, random)
        if address is None:
            keeping.claim_unfinished(store)
        tally, lifecycle = Tally(crawler.stats), Lifecycle(crawler)
        outcomes = OutcomeLog(data.outcomes, lambda full: keeping.waits_for_room(full))
        opened.callback(outcomes.close)

        def lease_rules(doors: Doors) -> LeaseRules:
            return RulesOfThisStart(doors, outcomes, tally, time.time)

        ground = (
            embedded(config, arguments, data, store, lease_rules)
            if address is None
            else shared(
                *(address, config, arguments, data, store),
                crawler.settings.getint("CONCURRENT_REQUESTS"),
                *(tally, lifecycle.fail, keeping.look, lease_rules, kept),
            )
        )
        if kept is not None and address is None:
            data.keep_arguments(kept)
        opened.callback(ground.nearest.close)
        if ground.put_back:
            logger.info("Leases open when the last run ended, put back: %d", ground.put_back)
        _tell_finished(ground, data.path)
        parts = _over(
            *(crawler, config, arguments, data, store, tally, outcomes),
            *(ground, keeping, random, lifecycle),
        )
        parts.replay = replay
        if ground.shared is not None and ground.ops is not None:
            _feed(crawler, parts, ground.shared, ground.ops)
        opened.pop_all()  # from here on it is for `Parts.close`
    return parts


def _data(crawler: Crawler, config: Config) -> DataDir:
    if is_errand(crawler.settings):
        return PassingDir()
    place, identity = data_dir(crawler.settings, config), rules.identity_of_urls(config)
    return DataDir(place, identity, crawler.spider.name if crawler.spider else "")


def _replay(config: Config, data: Path) -> Replay | None:
    """Raises ConfigError: there is nothing to answer from."""
    if not config.fetch.replay:
        return None
    replay = Replay(Path(config.fetch.replay))
    if any(data.resolve() in file.resolve().parents for file in replay.files):
        raise ConfigError(
            f"CRAWLER_REPLAY is {config.fetch.replay!r}, which is in the data directory of this"
            " crawl: give it another CRAWLER_DATA_DIR, or it would answer from what it writes"
        )
    return replay


def _tell_finished(ground: Ground, data: Path) -> None:
    """Who runs a spider every day, as with Scrapy, is to know why it brings nothing new."""
    counts = ground.frontier.counts()
    open_ones = counts.waiting + counts.later + counts.leased
    if ground.shared is None and counts.done and not open_ones and not counts.refused:
        logger.warning(
            "The crawl in %s was finished, and what it has seen is not fetched again. To crawl"
            " anew, choose another CRAWLER_DATA_DIR",
            data,
        )


def _landing(
    config: Config,
    ground: Ground,
    flights: Flights,
    ledger: Ledger,
    robots: RobotsCache,
    random: Random,
    commits: GroupCommit | None,
) -> Landing:
    return Landing(
        *(ground.frontier, flights, rules.landing_rules(config), ledger),
        *(robots.give_up, random, ground.clock.now, commits),
    )


def _group_commit(
    config: Config,
    store: RocksStore,
    outcomes: OutcomeLog,
    keeping: Keeping,
    fail: Callable[[CrawlerError], None],
) -> GroupCommit | None:
    """None: what a power cut takes does not matter."""
    if not config.archive.fsync:
        return None

    def sync_verdicts() -> None:
        try:
            store.sync()
            outcomes.sync()
        except StoreFull as full:
            # The verdicts of a shared crawl are in Redis: it waits for room here.
            if not keeping.waits_for_room(full):
                raise

    commits = GroupCommit(
        config.archive.fsync_every_s,
        keeping.sync,
        keeping.unsynced_bytes,
        sync_verdicts,
        fail,
    )
    keeping.wait_for(commits.room)
    return commits


def _probes(config: Config, store: RocksStore, random: Random) -> Probes:
    return Probes(Soft404Records(store), lambda: random.randbytes(12).hex(), config.content)


def _clearance(robots: RobotsCache, doors: Doors, ground: Ground, probes: Probes) -> Clearance:
    clearance = Clearance(robots, doors.robots, ground.yields, probes)
    if ground.shared_robots is not None:
        ground.shared_robots.replaced = clearance.learned_elsewhere
    return clearance


def _feed(crawler: Crawler, parts: Parts, frontier: SharedFrontier, ops: Ops) -> None:
    """Let seeds be pushed into Redis while it runs."""
    fingerprinter = crawler.request_fingerprinter
    assert fingerprinter is not None
    judge = Judge(parts.doors, parts.prioritizer, fingerprinter.fingerprint)
    pushed = push_rules(crawler.settings, crawler.spider, parts.arguments)
    feed(frontier, ops, judge, pushed, parts.config.shared, parts.tally)


def _over(
    crawler: Crawler,
    config: Config,
    arguments: Arguments | None,
    data: DataDir,
    store: RocksStore,
    tally: Tally,
    outcomes: OutcomeLog,
    ground: Ground,
    keeping: Keeping,
    random: Random,
    lifecycle: Lifecycle,
) -> Parts:
    probes = _probes(config, store, random)
    doors = ground.doors
    robots = RobotsCache(ground.robots, config.identity.user_agent_name, config.robots)
    # What may be refused comes first: nothing of it has to be closed again.
    prioritizer, parsers = _prioritizer(config), Parsers(config.content)
    if ground.shared is not None:
        keeping.waits_for_room = ground.shared.disk_full
    flights = Flights()
    slots = _slots(crawler, config)
    if ground.shared is not None:
        ground.shared.incoming.room = slots.room
    memory = _body_memory(config, flights, ground, tally)
    contents: list[Reservations] = [ground.digests, ground.nearest]
    ledger = Ledger(outcomes, memory, contents, ground.yields, tally)
    lifecycle.on_stop.append(keeping.stopping)
    if ground.shared is not None:
        lifecycle.on_stop.append(ground.shared.stopping)
    commits = _group_commit(config, store, outcomes, keeping, lifecycle.fail)
    return Parts(
        config=config,
        arguments=arguments,
        random=random,
        data=data,
        store=store,
        frontier=ground.frontier,
        put_back_at_open=ground.put_back,
        clock=ground.clock,
        doors=doors,
        prioritizer=prioritizer,
        robots=robots,
        clearance=_clearance(robots, doors, ground, probes),
        uplink=Uplink(UplinkRules()),
        flights=flights,
        landing=_landing(config, ground, flights, ledger, robots, random, commits),
        commits=commits,
        slots=slots,
        exchanges=Exchanges(),
        body_memory=memory,
        digests=ground.digests,
        nearest=ground.nearest,
        parsers=parsers,
        probes=probes,
        keeping=keeping,
        yields=ground.yields,
        outcomes=outcomes,
        tally=tally,
        shared=ground.shared,
        lifecycle=lifecycle,
    )


def _slots(crawler: Crawler, config: Config) -> Slots:
    """As many as there may be open files: a connection that gets none would be its host's fault."""
    slots = SlotRules(
        concurrency=crawler.settings.getint("CONCURRENT_REQUESTS"),
        max_waiting=config.fetch.max_waiting,
        slow_after_s=config.fetch.slow_after_s,
        slow_bytes=config.fetch.slow_bytes,
    )
    files = slots.most_connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < files:
        fewer = slots.with_connections(most - OTHER_FILES)
        logger.warning(
            "At most %d files can be open (ulimit -n), so CRAWLER_MAX_WAITING is %d, not %d",
            *(most, fewer.max_waiting, slots.max_waiting),
        )
        slots = fewer
    return Slots(slots)


def _body_memory(config: Config, flights: Flights, ground: Ground, tally: Tally) -> BodyMemory:
    most_bytes, is_ours = config.fetch.bodies_max_bytes, ground.frontier.may_begin
    return BodyMemory(most_bytes, flights, is_ours, tally.count)


def _prioritizer(config: Config) -> Prioritizer:
    path, levels = config.frontier.prioritizer, len(config.frontier.level_shares)
    try:
        made: Prioritizer = load_object(path)(levels)
    except (ImportError, NameError) as missing:
        raise ConfigError(f"CRAWLER_PRIORITIZER is {path!r}: {missing}") from missing
    return made


def arguments_of_last_start(settings: BaseSettings) -> dict[str, str]:
    """Of the crawl that *settings* name, as they were given. Raises CrawlerError."""
    config = read_config({name: settings[name] for name in settings})
    address = redis_address(settings, config)
    if address is None:
        path = data_dir(settings, config)
        return read_kept(datadir.kept_arguments(path), str(path / datadir.ARGUMENTS))
    return read_kept(kept_arguments(address, config), keys.arguments(config.shared.frontier_name))


def data_dir(settings: BaseSettings, config: Config) -> Path:
    """CRAWLER_DATA_DIR; if it is not set, JOBDIR: scrapyd gives each job one of its own."""
    jobs = settings["JOBDIR"]
    is_set = "CRAWLER_DATA_DIR" in settings
    return Path(jobs if jobs and not is_set else config.archive.data_dir)

"""Builds the parts of a crawl from its settings and arguments, and chooses the implementations.

Rule: Scrapy builds `Assembly` as the last of its extensions, before the engine and all users of the
crawl, so `crawl_of(crawler)` is complete. Only this file depends on where the frontier is: in the
data directory, or in a Redis that workers share.
"""

from __future__ import annotations

import logging
import resource
import time
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
from crawler.assembly.crawl import (
    Contents,
    Crawl,
    Fetching,
    Leases,
    Selection,
    Storage,
    UserSettings,
)
from crawler.config.settings import (
    Arguments,
    Config,
    arguments_to_keep,
    encode_kept,
    read_config,
    read_kept,
)
from crawler.content.crawl_archive import CrawlArchive, PreviousArchive, delivery_of
from crawler.content.feed_export import make_pages_items
from crawler.content.parsing import Parsers
from crawler.crawl import rules
from crawler.crawl.allowed_origins import AllowedOrigins, CurrentRules
from crawler.crawl.body_memory import BodyMemory
from crawler.crawl.clock import Clock
from crawler.crawl.in_flight import (
    Completion,
    CompletionSinks,
    InFlight,
    Reservations,
)
from crawler.crawl.interactive import is_interactive
from crawler.crawl.lifecycle import Lifecycle
from crawler.crawl.precheck import Precheck, Probes
from crawler.crawl.slots import SlotRules, Slots
from crawler.crawl.stats import CrawlStats
from crawler.data import data_dir as datadir
from crawler.data.data_dir import DataDir, TemporaryDataDir, refuse_other_kind
from crawler.data.outcomes import OutcomeLog
from crawler.data.records import LocalClaims, LocalPatternStats, RobotsRecords, Soft404Records
from crawler.duplicates.exact import Duplicates, LocalDuplicates
from crawler.duplicates.index.index import open_index
from crawler.duplicates.near import LocalNearDuplicates, NearDuplicatesIndex
from crawler.frontier.port import DurableStore, Frontier, LeaseRules
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    ConfigError,
    StoreFull,
    WaitsForRoom,
    never_waits,
)
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.politeness import Uplink, UplinkRules
from crawler.policy.priority import Prioritizer
from crawler.policy.robots_cache import RobotsCache, RobotsStore
from crawler.shared import keys
from crawler.shared.address import redis_address
from crawler.shared.pushed import PushedContext, PushedRequestReader, push_rules
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.frontier import SharedFrontier
from crawler.shared.worker.join import Joined, join, kept_arguments
from crawler.shared.worker.knowledge import SharedKnowledge
from crawler.shared.worker.near_duplicates import NearLook, SharedNearDuplicates
from crawler.shared.worker.patterns import SharedPatternStats
from crawler.shared.worker.robots import SharedRobots


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseParts:
    """The parts that are built first, and that the frontier and all others need."""

    crawler: Crawler
    config: Config
    arguments: Arguments | None  # None: the spider's own code makes the start requests
    data: DataDir
    store: DurableStore
    outcomes: OutcomeLog
    random: Random
    prioritizer: Prioritizer
    slots: Slots
    stats: CrawlStats
    lifecycle: Lifecycle

    def allowed_origins(self, key_seed: int, now: float) -> AllowedOrigins:
        return AllowedOrigins(self.config, self.arguments, self.store, key_seed, now)

    def lease_rules(self, origins: AllowedOrigins) -> LeaseRules:
        return CurrentRules(origins, self.outcomes, self.stats, time.time)

    def admission(
        self, origins: AllowedOrigins, robots_store: RobotsStore, yields: PatternStatsStore
    ) -> Selection:
        agent, records = self.config.identity.user_agent_name, Soft404Records(self.store)
        robots = RobotsCache(robots_store, agent, self.config.robots)
        probes = Probes(records, lambda: self.random.randbytes(12).hex(), self.config.content)
        return Selection(
            allowed_origins=origins,
            prioritizer=self.prioritizer,
            robots=robots,
            probes=probes,
            precheck=Precheck(robots, origins.robots, yields, probes),
            pattern_stats=yields,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierParts:
    """The parts that depend on where the frontier is."""

    frontier: Frontier
    clock: Clock
    admission: Selection
    digests: Duplicates
    nearest: NearDuplicatesIndex
    put_back: int  # how many leases of the last run were put back
    shared: SharedFrontier | None = None


def embedded_parts(basis: BaseParts) -> FrontierParts:
    """Build the parts of a crawl with its frontier in the data directory."""
    config, store, data = basis.config, basis.store, basis.data
    clock = Clock()
    origins = basis.allowed_origins(data.format.key_seed, clock.now())
    frontier_rules = rules.frontier_rules(config, basis.arguments)
    frontier = TwoTierFrontier(store, frontier_rules, clock.now(), basis.lease_rules(origins))
    yields = LocalPatternStats(store, config.patterns)
    return FrontierParts(
        frontier=frontier,
        clock=Clock(not_before=frontier.clock),
        admission=basis.admission(origins, RobotsRecords(store), yields),
        digests=LocalDuplicates(LocalClaims(store)),
        nearest=LocalNearDuplicates(
            open_index(data.near, store), store, config.content.near_max_bits
        ),
        put_back=frontier.put_back_at_open,
    )


def shared_parts(basis: BaseParts, joined: Joined) -> FrontierParts:
    """Build the parts of a worker of a shared crawl."""
    config, worker, clock = basis.config, joined.base, joined.clock
    origins = basis.allowed_origins(joined.key_seed, Clock().now())
    link, scripts = worker.link(), Batcher(worker.nodes.run)
    digests = SharedDuplicates(link, scripts)
    max_bits, commands = config.content.near_max_bits, Batcher(worker.nodes.commands)
    look = NearLook(worker.ops, worker.rules.name, scripts, commands, max_bits)
    nearest = SharedNearDuplicates(link, look, max_bits)
    records, robots_bytes = RobotsRecords(basis.store), config.robots.robots_max_bytes
    robots = SharedRobots(
        records, link, clock.now, robots_bytes, worker.status_log.on_disk_full_for_links
    )
    yields = SharedPatternStats(config.patterns, link, clock.now)
    admission = basis.admission(origins, robots, yields)
    knowledge = SharedKnowledge(
        digests=digests,
        nearest=nearest,
        robots=robots,
        pattern_stats=yields,
        robots_replaced=admission.precheck.learned_elsewhere,
    )
    frontier = SharedFrontier(
        worker,
        knowledge,
        lease_rules=basis.lease_rules(origins),
        room=basis.slots.room,
        wake=basis.lifecycle.wake,
        pushing=_pushing(basis, origins),
    )
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        admission=admission,
        digests=digests,
        nearest=nearest,
        put_back=joined.put_back,
        shared=frontier,
    )


def _pushing(basis: BaseParts, origins: AllowedOrigins) -> PushedContext:
    """Return what PushedUrls needs of the crawl: the reader of pushed requests, its rules and the
    stats."""
    crawler, fingerprinter = basis.crawler, basis.crawler.request_fingerprinter
    assert fingerprinter is not None
    judge = PushedRequestReader(origins, basis.prioritizer, fingerprinter.fingerprint)
    pushed = push_rules(crawler.settings, crawler.spider, basis.arguments)
    return PushedContext(judge, pushed, basis.stats)


logger = logging.getLogger(__name__)

OTHER_FILES: Final = 512
"""Open files of a crawl beside its fetches: databases, archive, connections kept alive (guess)."""


class Assembly:
    """The extension that builds and holds the crawl."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Build the crawl. Raises CrawlerError if it cannot begin."""
        return cls(_assemble(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self.crawl = crawl


def crawl_of(crawler: Crawler) -> Crawl:
    """Return the crawl of *crawler*. Other extensions may call it when the spider is opened."""
    assembly = crawler.get_extension(Assembly)
    assert assembly is not None, "crawler.addon.Addon names it among the extensions"
    return assembly.crawl


def _assemble(crawler: Crawler) -> Crawl:
    make_pages_items()
    given = read_config({name: crawler.settings[name] for name in crawler.settings})
    replay = _replay(given, data_dir(crawler.settings, given))
    config = rules.effective_settings(given)
    # Spiders other than `web` do not have these arguments; their own requests decide.
    arguments = getattr(crawler.spider, "arguments", None)
    given_as_text = getattr(crawler.spider, "given", None)
    kept = encode_kept(arguments_to_keep(given_as_text)) if given_as_text is not None else None
    address = redis_address(crawler.settings, config)
    with ExitStack() as opened:
        data = _data(crawler, config)
        opened.callback(data.close)
        refuse_other_kind(data, is_shared=address is not None)
        store = RocksStore(data.frontier if address is None else data.worker)
        opened.callback(store.close)
        random = Random()
        delivery = delivery_of(config, data, random)
        left = PreviousArchive(config, data, is_all_here=delivery is None)
        if address is None:
            left.claim_unfinished(store)
        tally, lifecycle = CrawlStats(crawler.stats), Lifecycle(crawler)
        # Parts that may raise and need no closing are built first.
        prioritizer, parsers = _prioritizer(config), Parsers(config.content)
        joined = None
        if address is not None:
            joined = join(
                *(address, config, rules.frontier_rules(config, arguments), data, store),
                crawler.settings.getint("CONCURRENT_REQUESTS"),
                *(tally, lifecycle.fail, left.look, kept),
            )
        waits_for_room = joined.base.disk.wait_for_room if joined else never_waits
        outcomes = OutcomeLog(data.outcomes, waits_for_room)
        opened.callback(outcomes.close)
        basis = BaseParts(
            crawler=crawler,
            config=config,
            arguments=arguments,
            data=data,
            store=store,
            outcomes=outcomes,
            random=random,
            prioritizer=prioritizer,
            slots=_slots(crawler, config, lifecycle),
            stats=tally,
            lifecycle=lifecycle,
        )
        ground = shared_parts(basis, joined) if joined else embedded_parts(basis)
        if kept is not None and address is None:
            data.keep_arguments(kept)
        opened.callback(ground.nearest.close)
        if ground.put_back:
            logger.info("Leases open when the last run ended, put back: %d", ground.put_back)
        _warn_if_finished(ground, data.path)
        sync = partial(_sync_verdicts, store, outcomes, waits_for_room)
        archive = CrawlArchive(config, data, delivery, waits_for_room, sync, lifecycle)
        crawl = _crawl(basis, ground, archive, parsers, replay)
        opened.pop_all()  # from here on `Crawl.close` closes all
    return crawl


def _data(crawler: Crawler, config: Config) -> DataDir:
    if is_interactive(crawler.settings):
        return TemporaryDataDir()
    place, identity = data_dir(crawler.settings, config), rules.identity_of_urls(config)
    return DataDir(place, identity, crawler.spider.name if crawler.spider else "")


def _replay(config: Config, data: Path) -> Replay | None:
    """Return the archive that a replay reads, or None. Raises ConfigError if it is missing, or in
    the data directory *data*."""
    if not config.fetch.replay:
        return None
    replay = Replay(Path(config.fetch.replay))
    if any(data.resolve() in file.resolve().parents for file in replay.files):
        raise ConfigError(
            f"CRAWLER_REPLAY is {config.fetch.replay!r}, which is in the data directory of this"
            " crawl: give it another CRAWLER_DATA_DIR, or it would answer from what it writes"
        )
    return replay


def _warn_if_finished(ground: FrontierParts, data: Path) -> None:
    """Log a warning if nothing is left to fetch: unlike with Scrapy, a spider that is run every day
    fetches nothing twice."""
    counts = ground.frontier.counts()
    open_ones = counts.waiting + counts.later + counts.leased
    if ground.shared is None and counts.done and not open_ones and not counts.refused:
        logger.warning(
            "The crawl in %s was finished, and what it has seen is not fetched again. To crawl"
            " anew, choose another CRAWLER_DATA_DIR",
            data,
        )


def _sync_verdicts(store: DurableStore, outcomes: OutcomeLog, waits_for_room: WaitsForRoom) -> None:
    """Make the changes by finished leases survive a power cut. Raises StoreUnavailable."""
    try:
        store.sync()
        outcomes.sync()
    except StoreFull as full:
        # The verdicts of a shared crawl are in Redis, so a worker may wait for room here.
        if not waits_for_room(full):
            raise


def _crawl(
    basis: BaseParts,
    ground: FrontierParts,
    archive: CrawlArchive,
    parsers: Parsers,
    replay: Replay | None,
) -> Crawl:
    config, tally = basis.config, basis.stats
    flights, is_ours = InFlight(), ground.frontier.may_begin
    memory = BodyMemory(config.fetch.bodies_max_bytes, flights, is_ours, tally.count)
    contents: list[Reservations] = [ground.digests, ground.nearest]
    sinks = CompletionSinks(basis.outcomes, memory, contents, ground.admission.pattern_stats, tally)
    completion = Completion(
        *(ground.frontier, flights, rules.completion_rules(config), sinks),
        *(ground.admission.robots.give_up, basis.random, ground.clock.now, archive.commits),
    )
    return Crawl(
        settings=UserSettings(config=config, arguments=basis.arguments),
        leases=Leases(
            frontier=ground.frontier,
            clock=ground.clock,
            in_flight=flights,
            completion=completion,
            put_back=ground.put_back,
            shared=ground.shared,
        ),
        admission=ground.admission,
        fetching=Fetching(
            slots=basis.slots,
            body_memory=memory,
            uplink=Uplink(UplinkRules()),
            random=basis.random,
            replay=replay,
        ),
        content=Contents(parsers=parsers, digests=ground.digests, nearest=ground.nearest),
        storage=Storage(
            data=basis.data, store=basis.store, outcomes=basis.outcomes, archive=archive
        ),
        stats=tally,
        lifecycle=basis.lifecycle,
    )


def _slots(crawler: Crawler, config: Config, lifecycle: Lifecycle) -> Slots:
    """Build the slots, no more than files may be open: a connection without a file would count as
    an error of its host."""
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
    return Slots(slots, lifecycle.wake)


def _prioritizer(config: Config) -> Prioritizer:
    path, levels = config.frontier.prioritizer, len(config.frontier.level_shares)
    try:
        prioritizer: Prioritizer = load_object(path)(levels)
    except (ImportError, NameError) as missing:
        raise ConfigError(f"CRAWLER_PRIORITIZER is {path!r}: {missing}") from missing
    return prioritizer


def arguments_of_last_start(settings: BaseSettings) -> dict[str, str]:
    """Return the arguments of the last start of the crawl that *settings* name, as given. Raises
    CrawlerError."""
    config = read_config({name: settings[name] for name in settings})
    address = redis_address(settings, config)
    if address is None:
        path = data_dir(settings, config)
        return read_kept(datadir.kept_arguments(path), str(path / datadir.ARGUMENTS))
    return read_kept(kept_arguments(address, config), keys.arguments(config.shared.frontier_name))


def data_dir(settings: BaseSettings, config: Config) -> Path:
    """Return CRAWLER_DATA_DIR or, if not set, JOBDIR, which scrapyd sets for each job."""
    job_dir = settings["JOBDIR"]
    is_set = "CRAWLER_DATA_DIR" in settings
    return Path(job_dir if job_dir and not is_set else config.archive.data_dir)

"""Builds the parts of a crawl from its settings and arguments, and chooses the implementations.

Rule: Scrapy builds `Assembly` as the last of its extensions, before the engine and all users of the
crawl, so `crawl_of(crawler)` is complete. Only this file depends on where the frontier is: in the
data directory, or in a Redis that workers share.
"""

from __future__ import annotations

import logging
import os
import resource
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic, time
from typing import TYPE_CHECKING, Final, Self

from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from crawler.archive.earlier_crawls import (
    FOLDER,
    EarlierCrawls,
    index_files,
    is_read,
    read_indexes,
)
from crawler.archive.replay import Replay
from crawler.assembly.crawl import (
    Contents,
    Crawl,
    EmbeddedFrontier,
    Fetching,
    Leases,
    Selection,
    Storage,
    UserSettings,
)
from crawler.assembly.parts import BaseParts, FrontierParts
from crawler.config.arguments import (
    KeptOfStart,
    arguments_to_keep,
    encode_kept,
    read_kept,
)
from crawler.config.settings import (
    KEPT_PATHS,
    MEGABYTE,
    Config,
    effective_settings,
    read_config,
    settings_to_keep,
)
from crawler.content.body_memory import BodyMemory
from crawler.content.cohorts import Cohorts
from crawler.content.compiling import cache_in
from crawler.content.crawl_archive import (
    CrawlArchive,
    PreviousArchive,
    delivery_of,
    retention_of,
)
from crawler.content.feed_export import make_pages_items
from crawler.content.missing_parts import without_missing_parts
from crawler.content.parsing import Parsers
from crawler.content.preference_sources import PreferenceSources
from crawler.content.to_capture import ArchivedBodies
from crawler.data import data_dir as datadir
from crawler.data.changes import ChangeFeed, ConsumerWatch
from crawler.data.data_dir import (
    CHANGES,
    COMPILED,
    DataDir,
    TemporaryDataDir,
    crawl_id_of,
    refuse_other_kind,
)
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.data.frontier_work import FrontierWork
from crawler.data.local_stores import LocalClaims, LocalPatternStats, RobotsRecords
from crawler.data.operator_files import (
    AUDIT,
    RULES,
    Audit,
    Credentials,
    OperatorFiles,
    RulesFile,
)
from crawler.data.outcomes import OutcomeLog
from crawler.duplicates.exact import HeldClaims, LocalDuplicates
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.near import LocalNearDuplicates
from crawler.engine.errors import CodeFaults
from crawler.engine.interactive import is_interactive
from crawler.engine.lifecycle import Lifecycle
from crawler.engine.long_steps import long_step
from crawler.engine.stats import CrawlStats
from crawler.engine.web_bot_auth import RequestSigner, open_signer
from crawler.frontier.groups import LateAddresses
from crawler.frontier.open import frontier_limits, open_frontier
from crawler.frontier.port import DurableStore
from crawler.frontier.rocks_store import RocksStore
from crawler.loop.life import Lives
from crawler.loop.links import LinkSelection
from crawler.loop.loop import Loop, loop_limits
from crawler.loop.slots import SlotLimits, Slots
from crawler.model.choices import HostUnit, OnlyChoice
from crawler.model.clock import Clock
from crawler.model.types import (
    ConfigError,
    StoreFull,
    WaitsForRoom,
)
from crawler.page.challenge import Signatures, read_signatures
from crawler.policy.admission import identity_of_urls
from crawler.policy.operator_rules import RuleBudgets, read_rules
from crawler.policy.politeness import Uplink, UplinkLimits
from crawler.policy.priority import Prioritizer
from crawler.policy.ranks import Ranks, read_ranks
from crawler.policy.silent_hosts import SilentHosts
from crawler.shared.address import redis_address

if TYPE_CHECKING:
    from crawler.shared.changes import ChangeSender
    from crawler.shared.worker.join import JoinedCrawl


def embedded_parts(base: BaseParts) -> FrontierParts:
    """Build the parts of a crawl with its frontier in the data directory."""
    config, store, data = base.config, base.store, base.data
    clock = Clock(time, monotonic)
    origins = base.allowed_origins(data.format.key_seed, clock.now())
    rules_file = RulesFile(rules_path(config, data.path))
    origins.set_operator_rules(read_rules(rules_file.read(), len(config.frontier.level_shares)))
    work = FrontierWork(
        base.outcomes.append_all, base.room, base.lifecycle.fail, base.lifecycle.wake
    )
    frontier = open_frontier(
        data.path,
        base.frontier_limits,
        clock.now(),
        lease_rules=base.lease_rules(origins, lambda: clock.now()),
        on_decided=base.stats.count_added,
        background=work,
        store=store,
        addresses=base.addresses,
    )
    clock = Clock(time, monotonic, frontier.clock)
    _log_put_back(frontier.put_back_at_open)
    pattern_stats = LocalPatternStats(frontier.records, config.patterns)
    origins.seed_limits.open(frontier.records)
    return FrontierParts(
        frontier=frontier,
        clock=clock,
        allowed_origins=origins,
        precheck=base.precheck(
            origins, RobotsRecords(frontier.records), pattern_stats, frontier.records
        ),
        duplicates=LocalDuplicates(HeldClaims(LocalClaims(frontier.records), base.expired.has)),
        near_duplicates=LocalNearDuplicates(
            FingerprintIndex(frontier.records, data.path),
            frontier.records,
            config.content.near_max_bits,
        ),
        put_back_count=frontier.put_back_at_open,
        operator_store=OperatorFiles(rules_file, Audit(data.path / AUDIT)),
        outcomes=work,
        embedded=EmbeddedFrontier(frontier, work),
    )


logger = logging.getLogger(__name__)

OTHER_FILES: Final = 512
"""Open files of a crawl beside its connections: databases, archive, console (guess)."""

MOST_IDLE: Final = 1024
"""Connections that may be open if the limit of files allows it, even if fewer fetches go on."""


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
    config = without_missing_parts(effective_settings(given))
    # Spiders other than `web` do not have these arguments; their own requests decide.
    arguments = getattr(crawler.spider, "arguments", None)
    given_as_text = getattr(crawler.spider, "given", None)
    kept = KeptOfStart(
        encode_kept(arguments_to_keep(given_as_text)) if given_as_text is not None else None,
        encode_kept(_kept_settings(crawler.settings)),
    )
    address = redis_address(crawler.settings, config)
    server = None
    if config.shared.url_frontier:
        from crawler.assembly.remote import open_server  # noqa: PLC0415  # 0.1 s, for gRPC

        server = open_server(config, arguments)
    with ExitStack() as opened:
        data = _data(crawler, config)
        opened.callback(data.close)
        own = data.frontier if address is None else data.worker
        if server is not None:
            own = data.remote
        refuse_other_kind(data, own)
        with long_step("Opening the store"):
            store = RocksStore(own)
        opened.callback(store.close)
        random = Random()
        delivery = delivery_of(config, data, random)
        retention = retention_of(config, data, is_shared=address is not None)
        previous_archive = PreviousArchive(config, data, is_complete=delivery is None)
        if own == data.frontier:
            previous_archive.claim_unfinished(store)
        stats, lifecycle = CrawlStats(crawler.stats), Lifecycle(crawler)
        cache_in(data.path / COMPILED)
        # Parts that may raise and need no closing are built first.
        prioritizer, parsers = _prioritizer(config), Parsers(config.content)
        signatures, ranks = _signatures(config), _ranks(config)
        signer = open_signer(config.identity) if replay is None else None
        limits = replace(
            frontier_limits(config, arguments), rule_budgets=RuleBudgets(), ranks=ranks
        )
        joined = None
        if address is not None:
            from crawler.shared.worker.join import join  # noqa: PLC0415  # see assembly/shared.py

            joined = join(
                address,
                config=config,
                frontier_limits=limits,
                data=data,
                store=store,
                stats=stats,
                ready_s=lambda: parsers.ready_s,
                fail=lifecycle.fail,
                find_archived=previous_archive.find_answers,
                kept=kept,
                signs_as=_signs_as(crawler, signer),
            )
        earlier = _earlier_crawls(arguments.known if arguments is not None else "", data.path)
        if earlier is not None:
            opened.callback(earlier.close)
        room = joined.base.disk if joined else _disk_room(lifecycle)
        outcomes = OutcomeLog(data.outcomes, room.wait_for_room)
        opened.callback(outcomes.close)
        changes, sender = None, None
        if config.archive.changes:
            folder = data.path / CHANGES
            if address is not None and joined is not None:
                from crawler.assembly.shared import open_changes  # noqa: PLC0415  # see there

                changes, sender = open_changes(address, config, joined, folder)
            else:
                changes = ChangeFeed(folder, room.wait_for_room)
            opened.callback(changes.close)
        base = BaseParts(
            crawler=crawler,
            config=config,
            arguments=arguments,
            frontier_limits=limits,
            data=data,
            expired=retention.expired,
            store=store,
            outcomes=outcomes,
            room=room,
            random=random,
            prioritizer=prioritizer,
            signatures=signatures,
            signer=signer,
            ranks=ranks,
            slots=_slots(crawler, config, lifecycle),
            lives=Lives(),
            stats=stats,
            lifecycle=lifecycle,
            addresses=LateAddresses() if config.politeness.host_unit is HostUnit.ADDRESS else None,
            fetches=getattr(crawler.spider, "fetches", True),
        )
        with long_step("Opening the frontier"):
            if server is not None:
                from crawler.assembly.remote import remote_parts  # noqa: PLC0415  # as above

                rules = RulesFile(rules_path(config, data.path))
                parts = remote_parts(base, server, rules)
            elif joined is None:
                parts = embedded_parts(base)
            else:
                parts = _shared_parts(base, joined, sender)
        if address is None:
            if kept.arguments is not None:
                data.keep_arguments(kept.arguments)
            data.keep_settings(kept.settings)
        opened.callback(parts.near_duplicates.close)
        if joined is not None:
            _log_put_back(joined.put_back)
        _log_what_is_left(parts, data.path)
        sync = partial(_sync_verdicts, store, outcomes, room.wait_for_room)
        crawl_id = crawl_id_of((joined or data).format.key_seed)
        archive = CrawlArchive(
            *(config, data, delivery, retention, room.wait_for_room, sync, lifecycle, changes),
            crawl_id,
        )
        crawl = _crawl(base, parts, archive, parsers, replay, changes, earlier)
        opened.pop_all()  # from here on `Crawl.close` closes all
    return crawl


def _kept_settings(settings: BaseSettings) -> dict[str, object]:
    """Return the settings to keep, in which paths lead to the same file from any directory."""
    kept = settings_to_keep(settings)
    paths = {name: str(Path(str(kept[name])).absolute()) for name in KEPT_PATHS if kept.get(name)}
    return {**kept, **paths}


def _signs_as(crawler: Crawler, signer: RequestSigner | None) -> str | None:
    """Return by what other workers recognise those that sign alike; None: no requests are sent."""
    if not getattr(crawler.spider, "fetches", True):
        return None
    return signer.signs_as if signer is not None else ""


def _shared_parts(
    base: BaseParts, joined: JoinedCrawl, changes: ChangeSender | None
) -> FrontierParts:
    from crawler.assembly.shared import shared_parts  # noqa: PLC0415  # see there

    return shared_parts(base, joined, changes)


def _data(crawler: Crawler, config: Config) -> DataDir:
    if is_interactive(crawler.settings):
        return TemporaryDataDir()
    place, identity = data_dir(crawler.settings, config), identity_of_urls(config)
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


def _earlier_crawls(known: str, data: Path) -> EarlierCrawls | None:
    """Return what the crawls that *known* names have archived, read again where that has changed;
    None if none are named. Raises CrawlerError."""
    if not known:
        return None
    indexes, folder = index_files(Path(known)), data / FOLDER
    if any(data.resolve() in index.resolve().parents for index in indexes):
        raise ConfigError(
            f"known is {known!r}, which has an index of the data directory of this crawl: name that"
            " of an earlier one"
        )
    if not is_read(folder, indexes):
        with long_step("Reading which bodies earlier crawls have archived"):
            read_indexes(folder, indexes)
    logger.info(
        "Bodies are not archived again that are in %s: %s", known, f"{len(indexes)} indexes"
    )
    return EarlierCrawls(folder)


def _disk_room(lifecycle: Lifecycle) -> DiskRoom:
    return DiskRoom(WaitWarnings(), "the disk", lambda: lifecycle.failure is not None)


def _log_put_back(leases: int) -> None:
    if leases:
        logger.info("Leases open when the last run ended, put back: %d", leases)


def _log_what_is_left(parts: FrontierParts, data: Path) -> None:
    """Log how many URLs earlier runs have left; a warning if they have left none: unlike with
    Scrapy, a spider that is run every day fetches nothing twice."""
    counts = parts.frontier.counts()
    if counts.left:
        logger.info("The crawl goes on. URLs left to do: %d", counts.left)
    elif counts.again:
        logger.info("The crawl goes on. Pages that are visited again: %d", counts.again)
    elif counts.capped:
        logger.info(
            "The crawl goes on. URLs over their budgets in all: %d of %d domains; budgets that are"
            " larger by now have room for some",
            *(counts.capped, counts.spilled_domains),
        )
    elif parts.shared is None and counts.done and not counts.refused:
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
        # The next sync makes them survive. Those of a shared crawl are in Redis.
        if not waits_for_room(full):
            raise


def _fetches_lists_again(base: BaseParts, parts: FrontierParts) -> bool:
    """Return whether seeds and sitemaps are fetched though they were seen: where pages were visited
    once, it is not known which bring links. Where nothing was, they are new, and to be marked."""
    is_only_new = base.arguments is not None and base.arguments.only is OnlyChoice.NEW
    counts = parts.frontier.counts()
    return is_only_new and counts.done > 0 and not counts.again


def _crawl(
    base: BaseParts,
    parts: FrontierParts,
    archive: CrawlArchive,
    parsers: Parsers,
    replay: Replay | None,
    changes: ChangeFeed | None,
    earlier: EarlierCrawls | None,
) -> Crawl:
    config, stats = base.config, base.stats
    is_ours, clock = parts.frontier.may_begin, parts.clock
    origins, slots = parts.allowed_origins, base.slots
    memory = BodyMemory(config.fetch.bodies_max_bytes, is_ours, stats.count)
    loop = Loop(
        frontier=parts.frontier,
        lives=base.lives,
        origins=origins,
        precheck=parts.precheck,
        links=LinkSelection(
            scope=origins,
            pattern_stats=parts.precheck.pattern_stats,
            figures=stats,
            settings=config.links,
            arguments=base.arguments,
            since=base.arguments.dated_since(clock.now()) if base.arguments else 0.0,
            lists_again=_fetches_lists_again(base, parts),
        ),
        uplink=Uplink(UplinkLimits()),
        silent_hosts=SilentHosts(),
        slots=slots,
        limits=loop_limits(config, is_shared=parts.shared is not None),
        outcomes=parts.outcomes,
        bodies=memory,
        contents=(parts.duplicates, parts.near_duplicates),
        durability=archive.group_commit,
        changes=changes,
        figures=stats,
        random=base.random,
        now=clock.now,
    )
    slots.set_concurrency(origins.operator.concurrency)
    credentials = config.operator.credentials
    consumers = None
    if changes is not None:
        most = config.archive.changes_max_lag
        sender = parts.shared.changes if parts.shared is not None else None
        consumers = ConsumerWatch(changes, sender or changes, most, base.room, base.lifecycle.wake)
    return Crawl(
        settings=UserSettings(
            config=config,
            arguments=base.arguments,
            ends_at=getattr(base.crawler.spider, "ends_at", None) if base.arguments else None,
        ),
        loop=loop,
        leases=Leases(
            frontier=parts.frontier,
            clock=clock,
            put_back_count=parts.put_back_count,
            embedded=parts.embedded,
            shared=parts.shared,
            remote=parts.remote,
            addresses=base.addresses,
        ),
        selection=Selection(
            allowed_origins=origins,
            credentials=Credentials(Path(credentials) if credentials else None, os.environ),
        ),
        fetching=Fetching(
            signatures=base.signatures,
            body_memory=memory,
            most_connections=_most_connections(slots),
            cohorts=Cohorts(slots.limits.concurrency),
            replay=replay,
            faults=CodeFaults(),
            signer=base.signer,
            shared_names=parts.shared_names,
        ),
        content=Contents(
            parsers=parsers,
            duplicates=parts.duplicates,
            near_duplicates=parts.near_duplicates,
            earlier=earlier,
            archived_bodies=ArchivedBodies(earlier, base.expired.has),
            preferences=PreferenceSources(
                *(parts.precheck.robots, config.identity.user_agent_name),
                *(config.preferences.files, config.preferences.require_preference),
            ),
        ),
        storage=Storage(
            data=base.data,
            store=base.store,
            outcomes=base.outcomes,
            archive=archive,
            room=base.room,
            consumers=consumers,
        ),
        stats=stats,
        lifecycle=base.lifecycle,
        operator_store=parts.operator_store,
    )


def rules_path(config: Config, data: Path) -> Path:
    """Return the file of the operator's rules of a crawl in *data*."""
    return Path(config.operator.rules) if config.operator.rules else data / RULES


def _signatures(config: Config) -> Signatures:
    """Return the table of challenges, with the user's rows. Raises ConfigError."""
    given = config.politeness.challenges
    if not given:
        return Signatures()
    file = f"CRAWLER_CHALLENGES: {given}"
    try:
        written = Path(given).read_bytes().decode()
    except UnicodeDecodeError as broken:
        line = broken.object.count(b"\n", 0, broken.start) + 1
        raise ConfigError(f"{file} line {line} is not UTF-8") from broken
    except OSError as refused:
        raise ConfigError(f"{file} cannot be read: {refused.strerror}") from refused
    return Signatures(read_signatures(written, file))


def _ranks(config: Config) -> Ranks | None:
    """Return the ranks from outside, or None. Raises ConfigError."""
    if not config.frontier.ranks:
        return None
    file = f"CRAWLER_RANKS: {config.frontier.ranks}"
    try:
        with (
            long_step("Reading the ranks"),
            Path(config.frontier.ranks).open("rb", buffering=0) as opened,
        ):
            ranks = read_ranks(iter(partial(opened.read, MEGABYTE), b""), file)
    except OSError as refused:
        raise ConfigError(f"{file} cannot be read: {refused.strerror}") from refused
    logger.info("%s: %s", file, f"{len(ranks):,} names")
    for note in ranks.notes:
        logger.warning("%s", note)
    return ranks


def _slots(crawler: Crawler, config: Config, lifecycle: Lifecycle) -> Slots:
    """Build the slots, no more than files may be open: a connection without a file would count as
    an error of its host."""
    slots = SlotLimits(
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
            most,
            fewer.max_waiting,
            slots.max_waiting,
        )
        slots = fewer
    return Slots(slots, lifecycle.wake)


def _most_connections(slots: Slots) -> int:
    """Return how many connections may be open at once, idle ones among them: not so many that the
    databases and the archive find no file left."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = MOST_IDLE if soft == resource.RLIM_INFINITY else soft - OTHER_FILES
    return max(slots.limits.most_connections, min(MOST_IDLE, room))


def _prioritizer(config: Config) -> Prioritizer:
    path, levels = config.frontier.prioritizer, len(config.frontier.level_shares)
    try:
        prioritizer: Prioritizer = load_object(path)(levels)
    except (ImportError, NameError) as missing:
        raise ConfigError(f"CRAWLER_PRIORITIZER is {path!r}: {missing}") from missing
    return prioritizer


def arguments_of_last_start(settings: BaseSettings, spider: str) -> dict[str, str]:
    """Return the arguments of the last start of the crawl by *spider* that *settings* name, as
    given. Raises CrawlerError."""
    config = read_config({name: settings[name] for name in settings})
    address = redis_address(settings, config)
    if address is None:
        path = data_dir(settings, config, spider)
        return read_kept(datadir.kept_file(path / datadir.ARGUMENTS), str(path / datadir.ARGUMENTS))
    from crawler.assembly.shared import arguments_of_last_worker  # noqa: PLC0415  # see there

    return arguments_of_last_worker(address, config)


def data_dir(settings: BaseSettings, config: Config, spider: str = "") -> Path:
    """Return CRAWLER_DATA_DIR or, if not set, JOBDIR, which scrapyd sets for each job. Raises
    ConfigError if it is for each *spider* another and that is not given."""
    job_dir = settings["JOBDIR"]
    is_set = "CRAWLER_DATA_DIR" in settings
    given = job_dir if job_dir and not is_set else config.archive.data_dir
    return Path(datadir.path_of_spider(given, spider))

"""Joins a shared crawl at the start of a worker: checks the Redis servers, and opens the shards.

Rule: wrong settings and unsuitable servers are refused here, before the first request. Only this
step blocks while it waits for Redis.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final, TypeAlias, TypeVar

from msgspec.structs import replace

from crawler.archive.recovery import ArchivedAnswers
from crawler.config.arguments import KeptOfStart
from crawler.config.settings import Config
from crawler.data.data_dir import DataDir
from crawler.engine.long_steps import SHOW_AT_ONCE
from crawler.engine.stats import CrawlStats
from crawler.frontier.port import DurableStore, FrontierLimits
from crawler.frontier.records import OpenRecord
from crawler.frontier.shards import shard_of
from crawler.model.choices import RedisFsync
from crawler.model.clock import Clock
from crawler.model.types import Added, ConfigError, CrawlerError, Lease
from crawler.shared import keys
from crawler.shared.address import Address, RedisAddress
from crawler.shared.client import Nodes, ServerReplicas
from crawler.shared.codec import WorkerRecord
from crawler.shared.connection import info_fields
from crawler.shared.contents import ContentCalls
from crawler.shared.crawl_format import (
    CrawlFormat,
    check_format,
    encode_format,
    identity_of_shards,
    new_format,
)
from crawler.shared.faults import (
    OutOfMemory,
    Unreachable,
)
from crawler.shared.operator_store import read_rules
from crawler.shared.owned.readings import leases_of, token_begin
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.worker.base import WorkerBase
from crawler.shared.worker.membership import (
    PeerRecord,
    WorkerNames,
)
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import WorkerSettings, refuse_eviction
from crawler.shared.worker.worker_file import (
    WorkerFile,
    is_copy,
    next_session,
    read_worker,
    refuse_other_crawl,
    write_worker,
)

logger = logging.getLogger(__name__)

MAX_LAG_S: Final = 2
"""The most for min-replicas-max-lag. A master refuses writes when its replicas last answered 3 s
ago, and checks that once a second: what a replica lacks is 4 s old at most, as long as verdicts
are delayed (VERDICT_DELAY_S)."""
RETRY_S: Final = 1.0
_NO_LEASE: Final = 0  # the id of no lease: nothing is reserved for it

FindArchived: TypeAlias = Callable[[Iterable[OpenRecord]], ArchivedAnswers]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class JoinedCrawl:
    """The parts of a worker that has joined a crawl."""

    base: WorkerBase
    clock: Clock
    format: CrawlFormat
    rules: tuple[int, str]  # of the operator: the version, and the text
    put_back: int  # leases that this worker's last session has left
    dead_sessions: Collection[str]  # of this worker


class WorkerEvents:
    """Implements status.Listener: counts, and stops the crawl at an error."""

    def __init__(self, stats: CrawlStats, fail: Callable[[CrawlerError], None]) -> None:
        self._stats = stats
        self._fail = fail

    def count(self, key: str) -> None:
        self._stats.count(key)

    def on_added(self, added: Added) -> None:
        self._stats.count_added(added)

    def on_lost(self, leases: Sequence[Lease]) -> None:
        self._stats.count("leases/lost", len(leases))

    def on_failed(self, error: CrawlerError) -> None:
        self._fail(error)


def new_nodes(address: RedisAddress, config: Config) -> Nodes:
    """Return a client, not yet connected, of the crawl at *address*."""
    shared, where = config.shared, Address.parse(address.url, address.params)
    return Nodes(where, OwnedScripts(), shared.frontier_name, shared.frontier_shards)


def join(
    address: RedisAddress,
    *,
    config: Config,
    frontier_limits: FrontierLimits,
    data: DataDir,
    store: DurableStore,
    stats: CrawlStats,
    ready_s: Callable[[], float],
    fail: Callable[[CrawlerError], None],
    find_archived: FindArchived,
    kept: KeptOfStart,
    signs_as: str | None,
) -> JoinedCrawl:
    """Join the crawl at *address*, and claim what this worker's last session had archived.
    *ready_s* returns for how long it can read pages; *find_archived* searches our archive for
    leases; *kept* is stored with the crawl; *signs_as* as in WorkerRecord. Raises CrawlerError if
    Redis does not answer, or its crawl is foreign, of another kind, or signed otherwise."""
    shared, clock = config.shared, Clock(time.time, time.monotonic)
    last = read_worker(data.path)
    shards, name = shared.frontier_shards, shared.frontier_name
    nodes = partial(new_nodes, address, config)
    wait_s = shared.redis_wait_s
    mine = None if last and _is_copy_of_live_worker(last, data, nodes, name, wait_s) else last
    worker = next_session(mine, shared.worker_name, data.path)
    levels, identity = len(frontier_limits.level_shares), identity_of_shards(config)
    ours = new_format(shards, levels, identity, data.format.spider)
    reusable, dead = _earlier_sessions(mine, data)
    outbox = Outbox(store, partial(shard_of, shards=shards))
    make_record = _record_maker(worker, stats, ready_s, signs_as)
    check = partial(refuse_other_crawl, last, data.path, name)

    before = ""

    def begin(crawl: CrawlFormat, last_record: PeerRecord) -> WorkerRecord:
        nonlocal before
        if last_record.record and last_record.record.session != worker.session:
            before = last_record.record.session
        write_worker(data.path, replace(worker, crawl=name, key_seed=crawl.key_seed, before=before))
        return replace(make_record(), outbox=len(outbox))

    is_ack_durable = shared.redis_fsync is RedisFsync.ALWAYS

    async def opened(redis: Nodes) -> tuple[CrawlFormat, int, tuple[int, str]]:
        found = await _open(
            redis,
            ours=ours,
            worker=worker,
            reusable=reusable,
            dead=dead,
            find_archived=find_archived,
            check=check,
            begin=begin,
            is_ack_durable=is_ack_durable,
            signs_as=signs_as,
        )
        if kept.arguments is not None:
            await _keep(redis, keys.arguments(name), kept.arguments)
        await _keep(redis, keys.settings(name), kept.settings)
        return *found, await read_rules(redis, keys.rules(name))

    crawl, put_back, said = _run_in_thread(nodes, opened, wait_s)
    base = WorkerBase.of(
        nodes=nodes(),
        settings=_worker_settings(config, store),
        outbox=outbox,
        listener=WorkerEvents(stats, fail),
        make_record=make_record,
        now=clock.now,
    )
    return JoinedCrawl(base, clock, crawl, said, put_back, dead)


def kept_arguments(address: RedisAddress, config: Config) -> bytes | None:
    """Return the arguments of the last start of any worker, or None. Raises CrawlerError."""
    key = keys.arguments(config.shared.frontier_name)

    async def read(redis: Nodes) -> bytes | None:
        packed = await redis.checked_command(key, "GET", key)
        return packed if isinstance(packed, bytes) else None

    return asked_once(address, config, read)


def _worker_settings(config: Config, store: DurableStore) -> WorkerSettings:
    shared = config.shared
    return WorkerSettings(
        name=shared.frontier_name,
        shards=shared.frontier_shards,
        lease_s=shared.lease_s,
        fetch_s=config.longest_turn_s,
        is_ack_durable=shared.redis_fsync is RedisFsync.ALWAYS,
        sync_outbox=store.sync if config.archive.fsync else None,
        full_bytes=shared.full_bytes,
    )


def _is_copy_of_live_worker(
    last: WorkerFile, data: DataDir, nodes: Callable[[], Nodes], name: str, wait_s: float
) -> bool:
    """Return whether *data* is a copy of the data directory of a live worker. If that worker is
    silent, this one takes its name, because its outbox belongs to that; its leases expire."""
    if not is_copy(last, data.path):
        return False
    if _run_in_thread(
        nodes, lambda redis: WorkerNames(redis, name).is_alive(last.name, last.session), wait_s
    ):
        logger.warning(
            "%s is a copy of the data directory of the worker %s, which is at work: this one takes"
            " a name of its own",
            data.path,
            last.name,
        )
        return True
    logger.info("%s was moved or copied: leases of its last session will expire", data.path)
    return False


def _earlier_sessions(
    last: WorkerFile | None, data: DataDir
) -> tuple[Collection[str], Collection[str]]:
    """Return the sessions whose name we may reuse, and those whose processes have certainly ended,
    so that their shards can be claimed at once."""
    if last is None:
        return (), ()
    # If the last session was killed before it was announced, Redis has the one before it.
    sessions = [each for each in (last.session, last.before) if each]
    return sessions, () if is_copy(last, data.path) else sessions


def _record_maker(
    worker: WorkerFile, stats: CrawlStats, ready_s: Callable[[], float], signs_as: str | None
) -> Callable[[], WorkerRecord]:
    started, machine, pid = time.time(), socket.gethostname(), os.getpid()

    def make_record() -> WorkerRecord:
        figures = stats.figures
        return WorkerRecord(
            name=worker.name,
            session=worker.session,
            host=machine,
            pid=pid,
            started=max(started, time.time() - ready_s()),
            pages=figures.pages,
            bytes=figures.bytes,
            errors=figures.errors,
            signs_as=signs_as,
        )

    return make_record


def asked_once(
    address: RedisAddress, config: Config, ask: Callable[[Nodes], Coroutine[Any, Any, T]]
) -> T:
    """Return what *ask* does with a connection to the crawl at *address*. Raises CrawlerError."""
    return _run_in_thread(partial(new_nodes, address, config), ask, config.shared.redis_wait_s)


def _run_in_thread(
    nodes: Callable[[], Nodes], work: Callable[[Nodes], Coroutine[Any, Any, T]], wait_s: float
) -> T:
    """Run *work* in a thread, because the crawl's own loop may be running in this one, and retry it
    until the servers can serve. Raises a Fault after *wait_s*, or when a signal ends the process:
    the crawl handles no signal before this has returned."""
    is_ending = threading.Event()
    with _signals_set(is_ending), ThreadPoolExecutor(1) as thread:
        waiting = partial(_until_served, nodes, work, wait_s, is_ending)
        return thread.submit(lambda: asyncio.run(waiting())).result()


@contextmanager
def _signals_set(event: threading.Event) -> Iterator[None]:
    """Let SIGINT and SIGTERM set *event* before their previous handlers run."""
    before: dict[int, Any] = {}

    def set_event(signal_number: int, frame: FrameType | None) -> None:
        event.set()
        if callable(before[signal_number]):
            before[signal_number](signal_number, frame)

    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, set_event)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _until_served(
    nodes: Callable[[], Nodes],
    work: Callable[[Nodes], Coroutine[Any, Any, T]],
    wait_s: float,
    is_ending: threading.Event,
) -> T:
    began, logged = time.monotonic(), ""
    while True:
        redis = nodes()
        try:
            await redis.open()
            done = await work(redis)
        except Unreachable as fault:
            if is_ending.is_set():
                raise Unreachable(f"ended while it waited: {fault}") from fault
            if time.monotonic() - began > wait_s:
                raise Unreachable(
                    f"{fault}. Gave up after {wait_s:g} s (CRAWLER_REDIS_WAIT_S)"
                ) from fault
            if logged != str(fault):
                logged = str(fault)
                text = "Waiting up to %g s (CRAWLER_REDIS_WAIT_S) to begin: %s"
                logger.warning(text, wait_s, logged, extra={SHOW_AT_ONCE: True})
        else:
            if logged:
                logger.warning("Going on: Redis answers", extra={SHOW_AT_ONCE: True})
            return done
        finally:
            await redis.close()
        await asyncio.sleep(RETRY_S)


async def _open(
    nodes: Nodes,
    *,
    ours: CrawlFormat,
    worker: WorkerFile,
    reusable: Collection[str],
    dead: Collection[str],
    find_archived: FindArchived,
    check: Callable[[int], None],
    begin: Callable[[CrawlFormat, PeerRecord], WorkerRecord],
    is_ack_durable: bool,
    signs_as: str | None,
) -> tuple[CrawlFormat, int]:
    """Open the crawl and announce the new session. Can be repeated after any failure. *reusable*
    and *dead* as of `_earlier_sessions`. *check* refuses another crawl's data directory by its key
    seed. *begin* stores the session before it is announced. Returns how many leases the dead
    sessions have left."""
    name = nodes.name
    names = WorkerNames(nodes, name)
    crawl = await _format(nodes, name, ours)
    check(crawl.key_seed)
    refuse_eviction(await nodes.memory())
    await _warn_without_appendonly(nodes, name)
    await warn_about_replicas(nodes, is_ack_durable)
    await nodes.open_shards()
    workers = keys.workers(name)
    await nodes.checked_command(workers, "HLEN", workers)  # raises ForeignData if it is no hash
    # Our own session is already stored if the reply to `take` was lost in an earlier attempt.
    last_record = await names.refuse_taken(worker.name, {*reusable, worker.session})
    await names.refuse_other_signature(worker.name, signs_as)
    leases = await leases_of(nodes, [token_begin(worker.name, each) for each in dead])
    # Before these URLs can be leased again, so that they are found to be archived. A claim that
    # fails is ignored: its page is fetched again as one that may be archived.
    claims, contents = find_archived(leases).claims, ContentCalls(worker.session, nodes.shards)
    await nodes.run([contents.claim(claim.digest, _NO_LEASE, claim) for claim in claims])
    me = begin(crawl, last_record)
    await names.take(me, last_record)
    try:
        # Again, with our own record there: of two that start at once, one sees the other.
        await names.refuse_other_signature(worker.name, signs_as)
    except ConfigError:
        await names.leave(me)
        raise
    return crawl, len(leases)


async def _warn_without_appendonly(nodes: Nodes, name: str) -> None:
    """Warn if a server has no append-only file. Only one is asked, because those of a cluster are
    set up alike. An error is ignored: some services do not allow this INFO."""
    key = keys.workers(name)
    info = await nodes.command(key, "INFO", "persistence")
    if isinstance(info, bytes) and info_fields(info).get("aof_enabled") == "0":
        logger.warning(
            "Redis keeps no append-only file: if it crashes, all that it learned since its last"
            " snapshot is lost, or the whole crawl. Set appendonly yes"
        )


async def warn_about_replicas(nodes: Nodes, is_ack_durable: bool) -> None:
    """Warn if the lag of replicas is not bounded as docs/sharing.md says: one that takes over lacks
    the writes that had not reached it. *is_ack_durable* means that verdicts wait for nothing more
    than the acknowledgement of their links (CRAWLER_REDIS_FSYNC=always)."""
    for server in await nodes.replicas():
        lag_s = server.config.get("min-replicas-max-lag", "")
        if is_ack_durable:
            logger.warning(
                "Redis at %s has replicas, and CRAWLER_REDIS_FSYNC is always: a page is finished"
                " before they surely have its links. Set it to everysec (docs/sharing.md)",
                server.node,
            )
        if not server.is_needed_to_write:
            logger.warning(
                "Redis at %s has replicas, but min-replicas-to-write is 0: one that takes over may"
                " lack more than the workers send again, and a master that is cut off goes on"
                " serving%s. Links can be lost and hosts asked too early. Set min-replicas-to-write"
                " 1 and min-replicas-max-lag %d (docs/sharing.md)",
                server.node,
                _served_for(server),
                MAX_LAG_S,
            )
        elif not lag_s:
            logger.info(
                "Redis at %s has replicas; its min-replicas-max-lag cannot be read. It should be"
                " %d at most (docs/sharing.md)",
                server.node,
                MAX_LAG_S,
            )
        elif int(lag_s) > MAX_LAG_S:
            logger.warning(
                "Redis at %s has min-replicas-max-lag %s: a replica that takes over may lack more"
                " than the workers send again, so that links are lost. Set it to %d"
                " (docs/sharing.md)",
                server.node,
                lag_s,
                MAX_LAG_S,
            )


def _served_for(server: ServerReplicas) -> str:
    timeout_ms = server.config.get("cluster-node-timeout", "")
    return f" (in a cluster for cluster-node-timeout, {timeout_ms} ms)" if timeout_ms else ""


async def _format(nodes: Nodes, name: str, ours: CrawlFormat) -> CrawlFormat:
    key = keys.format_key(name)
    kept = await nodes.checked_command(key, "GET", key)
    if kept is None:  # SET comes second because a full server refuses it
        await nodes.checked_command(key, "SET", key, encode_format(ours), "NX")
        kept = await nodes.checked_command(key, "GET", key)
    return check_format(kept, ours, key)


async def _keep(nodes: Nodes, key: str, packed: bytes) -> None:
    if await nodes.checked_command(key, "GET", key) == packed:
        return
    try:
        await nodes.checked_command(key, "SET", key, packed)
    except OutOfMemory as full:
        logger.warning("The arguments and settings of this start are not kept: %s", full)

"""Taking part in a crawl that others work on too: from the settings to a frontier in Redis.

Rule: what cannot be right is found here, before the first request: it is asked for at the start,
and only there does anybody wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from crawler.config.settings import Config
from crawler.crawl.clock import Clock
from crawler.crawl.stats import CrawlStats
from crawler.data.data_dir import DataDir
from crawler.frontier.port import FrontierRules
from crawler.frontier.rocks_store import RocksStore
from crawler.model.choices import RedisFsync
from crawler.model.types import Added, ConfigError, CrawlerError, Lease
from crawler.shared import keys
from crawler.shared.address import RedisAddress
from crawler.shared.client import Address, Nodes, Replicas, info_fields
from crawler.shared.codec import WorkerRecord
from crawler.shared.crawl_format import (
    CrawlFormat,
    agreed,
    encode_format,
    identity_of_shards,
    new_format,
)
from crawler.shared.faults import (
    FAULTS,
    OutOfMemory,
    Unreachable,
)
from crawler.shared.keys import Scripts
from crawler.shared.shard import Ops, shard_of
from crawler.shared.worker.frontier import WorkerBase
from crawler.shared.worker.leases import FRESH_S, UNBEGUN_S
from crawler.shared.worker.membership import Look, PeerRecord, WorkerNames, give_back
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import SharedRules, refuse_eviction
from crawler.shared.worker.worker_file import (
    WorkerFile,
    is_copy,
    next_session,
    read_worker,
    refuse_other_crawl,
    write_worker,
)

logger = logging.getLogger(__name__)

TELL_S: Final = 2.0
"""Fetches under leases that a server has forgotten are over one total time-out after the last that
could begin (FRESH_S); so long may it take until it is told of the last."""
MAX_LAG_S: Final = 2
"""Of min-replicas-max-lag. A master refuses writes when its replicas last answered 3 s ago, and
looks at that once a second: what a replica lacks is 4 s old at most. So long do verdicts wait
(SURE_S)."""
AGAIN_S: Final = 1.0
AT_ONCE: Final = "at_once"
"""Of a log record: to be shown at once, even where the log is held until the crawl has begun."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Joined:
    base: WorkerBase
    clock: Clock
    key_seed: int  # of the URLs of the crawl
    put_back: int  # leases of this worker's last life


class WorkerEvents:
    """Implements shared_frontier.Listener: counts, and stops the crawl where nothing helps."""

    def __init__(self, tally: CrawlStats, fail: Callable[[CrawlerError], None]) -> None:
        self._tally = tally
        self._fail = fail

    def count(self, key: str) -> None:
        self._tally.count(key)

    def added(self, added: Added) -> None:
        self._tally.added(added)

    def refused(self, lease: Lease) -> None:
        self._tally.count("leases/refused")

    def lost(self, leases: Sequence[Lease]) -> None:
        self._tally.count("leases/lost", len(leases))

    def failed(self, error: CrawlerError) -> None:
        self._fail(error)


def quiet_s(config: Config) -> float:
    """How long no host is asked after a restart of Redis: fetches of before it may be under way."""
    return FRESH_S + config.fetch.total_timeout_s + TELL_S


def join(
    address: RedisAddress,
    config: Config,
    frontier_rules: FrontierRules,
    data: DataDir,
    store: RocksStore,
    most_leases: int,
    tally: CrawlStats,
    fail: Callable[[CrawlerError], None],
    look: Look,
    kept: bytes | None,
) -> Joined:
    """*look*: what our archive has of leases; *kept*: arguments for the next start. Raises
    CrawlerError: it is not there, not ours, or another kind of crawl."""
    shared, clock = config.shared, Clock()
    last = read_worker(data.path)
    where = Address.parse(address.url, address.params)
    opening = (quiet_s(config), shared.lease_s, keys.SCHEMA)
    shards = shared.frontier_shards

    def nodes() -> Nodes:
        return Nodes(where, Scripts(), shared.frontier_name, shards, opening)

    name = shared.frontier_name
    wait_s = shared.redis_wait_s
    mine = None if last and _is_of_another(last, data, nodes, name, wait_s) else last
    worker = next_session(mine, shared.worker_name, data.path)
    ops = Ops(worker.session, shards, frontier_rules, shared.lease_s, UNBEGUN_S)
    levels, identity = len(frontier_rules.level_shares), identity_of_shards(config)
    ours = new_format(shards, levels, identity, data.format.spider)
    dead = _dead_sessions(mine, data)
    outbox = Outbox(store, lambda domain: shard_of(domain, shards))
    say = _sayer(worker, tally)
    check = partial(refuse_other_crawl, last, data.path, name)

    before = ""

    def begin(crawl: CrawlFormat, heard: PeerRecord) -> WorkerRecord:
        nonlocal before
        if heard.said and heard.said.session != worker.session:
            before = heard.said.session
        write_worker(data.path, replace(worker, crawl=name, key_seed=crawl.key_seed, before=before))
        return replace(say(), outbox=len(outbox))

    back = partial(give_back, look=look, now=clock.now)
    is_sure = shared.redis_fsync is RedisFsync.ALWAYS

    async def opened(there: Nodes) -> tuple[CrawlFormat, int]:
        found = await _open(there, ops, ours, worker.name, dead, back, check, begin, is_sure)
        if kept is not None:
            await _keep_arguments(there, keys.arguments(name), kept)
        return found

    crawl, put_back = _aside(nodes, opened, wait_s)
    listener, our_rules = WorkerEvents(tally, fail), _shared_rules(config, most_leases, store)
    ours_alone = nodes()
    confirm = partial(_confirm, ours_alone, name, crawl)
    base = WorkerBase.of(ours_alone, ops, our_rules, outbox, listener, say, clock.now, confirm)
    return Joined(base, clock, crawl.key_seed, put_back)


def kept_arguments(address: RedisAddress, config: Config) -> bytes | None:
    """Of the last start of any worker; None: there was none. Raises CrawlerError."""
    shared = config.shared
    where = Address.parse(address.url, address.params)
    opening = (0.0, shared.lease_s, keys.SCHEMA)  # no shard is opened for it
    key = keys.arguments(shared.frontier_name)

    def nodes() -> Nodes:
        return Nodes(where, Scripts(), shared.frontier_name, shared.frontier_shards, opening)

    async def asked(there: Nodes) -> bytes | None:
        packed = await _asked(there, key, "GET", key)
        return packed if isinstance(packed, bytes) else None

    return _aside(nodes, asked, shared.redis_wait_s)


def _shared_rules(config: Config, most_leases: int, store: RocksStore) -> SharedRules:
    shared = config.shared
    return SharedRules(
        name=shared.frontier_name,
        shards=shared.frontier_shards,
        lease_s=shared.lease_s,
        heartbeat_s=shared.heartbeat_s,
        fetch_s=config.fetch.total_timeout_s,
        most_leases=most_leases,
        is_sure=shared.redis_fsync is RedisFsync.ALWAYS,
        sync_outbox=store.sync if config.archive.fsync else None,
        full_bytes=shared.full_bytes,
    )


def _is_of_another(
    last: WorkerFile, data: DataDir, nodes: Callable[[], Nodes], name: str, wait_s: float
) -> bool:
    """Whether *data* is a copy of the data directory of a worker that lives. Of one that is
    silent the name goes on, or nobody would tell what waits on its disk; its leases end by
    themselves."""
    if not is_copy(last, data.path):
        return False
    if _aside(
        nodes, lambda there: WorkerNames(there, name).speaks(last.name, last.session), wait_s
    ):
        logger.warning(
            "%s is a copy of the data directory of the worker %s, which is at work: this one takes"
            " a name of its own",
            *(data.path, last.name),
        )
        return True
    logger.info("%s was moved or copied: leases of its last life end by themselves", data.path)
    return False


def _dead_sessions(last: WorkerFile | None, data: DataDir) -> tuple[Collection[str], str | None]:
    """Those under whose name we may come, and the one whose leases go back."""
    if last is None:
        return (), None
    # Killed before anybody heard of it, the last life left the one before in Redis.
    return {last.session, last.before}, None if is_copy(last, data.path) else last.session


def _sayer(worker: WorkerFile, tally: CrawlStats) -> Callable[[], WorkerRecord]:
    started, machine, pid = time.time(), socket.gethostname(), os.getpid()

    def say() -> WorkerRecord:
        return WorkerRecord(
            name=worker.name,
            session=worker.session,
            host=machine,
            pid=pid,
            started=started,
            pages=tally.pages,
            bytes=tally.bytes,
            errors=tally.errors,
        )

    return say


def _aside(
    nodes: Callable[[], Nodes], work: Callable[[Nodes], Coroutine[Any, Any, T]], wait_s: float
) -> T:
    """*work* in a thread, because the crawl's own loop may be running here already; again, if it
    must be, until the servers can serve. Raises a Fault after *wait_s*, or when the process is told
    to end meanwhile: no signal reaches the crawl before this has returned."""
    is_told_to_end = threading.Event()
    with _signals_set(is_told_to_end), ThreadPoolExecutor(1) as thread:
        waiting = partial(_until_served, nodes, work, wait_s, is_told_to_end)
        return thread.submit(lambda: asyncio.run(waiting())).result()


@contextmanager
def _signals_set(event: threading.Event) -> Iterator[None]:
    """Those that end a process set *event*, and then do what they did before."""
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
    is_told_to_end: threading.Event,
) -> T:
    began, said = time.monotonic(), ""
    while True:
        there = nodes()
        try:
            await there.open()
            done = await work(there)
        except Unreachable as fault:
            if is_told_to_end.is_set():
                raise Unreachable(f"ended while it waited: {fault}") from fault
            if time.monotonic() - began > wait_s:
                raise Unreachable(
                    f"{fault}. It was waited for {wait_s:g} s (CRAWLER_REDIS_WAIT_S)"
                ) from fault
            if said != str(fault):
                said = str(fault)
                text = "Waiting up to %g s (CRAWLER_REDIS_WAIT_S) to begin: %s"
                logger.warning(text, wait_s, said, extra={AT_ONCE: True})
        else:
            if said:
                logger.warning("Going on: Redis answers", extra={AT_ONCE: True})
            return done
        finally:
            await there.close()
        await asyncio.sleep(AGAIN_S)


async def _open(
    nodes: Nodes,
    ops: Ops,
    ours: CrawlFormat,
    worker: str,
    dead: tuple[Collection[str], str | None],
    back: Callable[[Nodes, Ops, str], Awaitable[int]],
    check: Callable[[int], None],
    begin: Callable[[CrawlFormat, PeerRecord], WorkerRecord],
    is_sure: bool,
) -> tuple[CrawlFormat, int]:
    """May be tried again from its beginning, wherever a server went away. *dead*: the last sessions
    of the name, and the one whose leases go *back*. *check*: is the data directory of the crawl
    with these keys? *begin*: keep the new session, before it is announced."""
    name = nodes.name
    names = WorkerNames(nodes, name)
    sessions, burial = dead
    crawl = await _format(nodes, name, ours)
    check(crawl.key_seed)
    refuse_eviction(await nodes.memory())
    await _look_at_durability(nodes, name)
    await look_at_replicas(nodes, is_sure)
    await nodes.open_shards()
    workers = keys.workers(name)
    await _asked(nodes, workers, "HLEN", workers)  # it is nobody else's
    # Our own session is there when the answer to `take` was lost.
    heard = await names.refuse_taken(worker, {*sessions, ops.session})
    put_back = await back(nodes, ops, burial) if burial else 0
    await names.take(begin(crawl, heard), heard)
    return crawl, put_back


async def _look_at_durability(nodes: Nodes, name: str) -> None:
    """Of one server; those of a cluster are set up alike. One that does not tell is not asked
    twice: some services allow no INFO of this kind."""
    key = keys.workers(name)
    told = await nodes.command(key, "INFO", "persistence")
    if isinstance(told, bytes) and info_fields(told).get("aof_enabled") == "0":
        logger.warning(
            "Redis keeps no append-only file: if it crashes, all that it learned since its last"
            " snapshot is lost, or the whole crawl. Set appendonly yes"
        )


async def look_at_replicas(nodes: Nodes, is_sure: bool) -> None:
    """A replica that takes over lacks what had not reached it: its lag must be bounded, as
    docs/sharing.md says. A server without replicas has none that could. *is_sure*: the workers send
    nothing again (CRAWLER_REDIS_FSYNC=always)."""
    for server in await nodes.replicas():
        lag_s = server.config.get("min-replicas-max-lag", "")
        if is_sure:
            logger.warning(
                "Redis at %s has replicas, and CRAWLER_REDIS_FSYNC is always: what a replica lacks"
                " when it takes over is not sent again. Set it to everysec (docs/sharing.md)",
                server.node,
            )
        if not server.is_needed_to_write:
            logger.warning(
                "Redis at %s has replicas, but min-replicas-to-write is 0: one that takes over may"
                " lack more than the workers send again, and a master that is cut off goes on"
                " serving%s. Links can be lost and hosts asked too early. Set min-replicas-to-write"
                " 1 and min-replicas-max-lag %d (docs/sharing.md)",
                *(server.node, _served_for(server), MAX_LAG_S),
            )
        elif not lag_s:
            logger.info(
                "Redis at %s has replicas; its min-replicas-max-lag cannot be read. It should be"
                " %d at most (docs/sharing.md)",
                *(server.node, MAX_LAG_S),
            )
        elif int(lag_s) > MAX_LAG_S:
            logger.warning(
                "Redis at %s has min-replicas-max-lag %s: a replica that takes over may lack more"
                " than the workers send again, so that links are lost. Set it to %d"
                " (docs/sharing.md)",
                *(server.node, lag_s, MAX_LAG_S),
            )


def _served_for(server: Replicas) -> str:
    timeout_ms = server.config.get("cluster-node-timeout", "")
    return f" (in a cluster for cluster-node-timeout, {timeout_ms} ms)" if timeout_ms else ""


async def _format(nodes: Nodes, name: str, ours: CrawlFormat) -> CrawlFormat:
    key = keys.format_key(name)
    there = await _asked(nodes, key, "GET", key)
    if there is None:  # only then: SET is refused where memory is used up
        await _asked(nodes, key, "SET", key, encode_format(ours), "NX")
        there = await _asked(nodes, key, "GET", key)
    return agreed(there, ours, key)


async def _confirm(nodes: Nodes, name: str, crawl: CrawlFormat) -> None:
    """Of a crawl that was forgotten whole: it is told again what it was begun with, unless another
    worker was faster."""
    if (await _format(nodes, name, crawl)).key_seed != crawl.key_seed:
        raise ConfigError(
            f"Redis forgot the crawl {name}, which had just begun, and another worker has begun it"
            " anew. Start this one again"
        )


async def _keep_arguments(nodes: Nodes, key: str, packed: bytes) -> None:
    if await _asked(nodes, key, "GET", key) == packed:
        return
    try:
        await _asked(nodes, key, "SET", key, packed)
    except OutOfMemory as full:
        logger.warning("The arguments of this start are not kept for the next one: %s", full)


async def _asked(nodes: Nodes, key: str, *command: Any) -> Any:
    reply = await nodes.command(key, *command)
    if isinstance(reply, FAULTS):
        raise reply
    return reply

"""Acts on a crawl in Redis, while workers run or not: what is asked for is written there, and the
workers that run, or that start next, carry it out.
"""

from __future__ import annotations

import getpass
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from crawler.config.settings import Config
from crawler.data.operator_files import Act, ActResult
from crawler.data.snapshots import Snapshot
from crawler.frontier.open import frontier_limits
from crawler.frontier.reader import RecountedCounter
from crawler.model.types import ConfigError
from crawler.operate.acts import RESULT_S, count_waiting, put_dead_letters_back
from crawler.operate.client import FrontierCheck, SeenUrls
from crawler.operate.operator import LOOKED_AT, Operator
from crawler.operate.verbs import ActAnswer, ActRequest, WaitingCount
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import ShardTotals, WorkerRecord
from crawler.shared.operator_store import SharedQueues, SharedStore
from crawler.shared.owned.readings import OUTBOXES
from crawler.shared.shard import ShardOperations, read_host
from crawler.shared.worker.join import asked_once
from crawler.view.identity import refuse_other_identity
from crawler.view.owned import OwnedCrawlReader, worker_records
from crawler.view.place import CrawlPlace, known_urls
from crawler.view.port import CrawlIdentity
from crawler.view.shared import (
    KEYS_PER_BATCH,
    RedisCrawlReader,
    decode_worker,
    open_reader,
    parts,
)


class SharedClient:
    """Implements client.CrawlClient for a crawl that workers share."""

    def __init__(self, place: CrawlPlace) -> None:
        self._place = place
        self._config = place.config

    def act(self, request: ActRequest) -> ActAnswer:
        with self._reader() as reader:
            stored = reader.format
            crawl = CrawlIdentity(reader.where, True, stored.key_seed, stored.identity)
        refuse_other_identity(crawl, self._config)
        # Before the servers are opened to write, which are opened once at a time.
        is_looked_up = request.verb == "add" and not request.again
        looked_up = request.targets[:LOOKED_AT] if is_looked_up else ()
        known = known_urls(self._place, looked_up)
        # The crawl has as many shards as at its first start, whatever the settings say now.
        shared = replace(self._config.shared, frontier_shards=stored.shards)
        config = replace(self._config, shared=shared)
        assert self._place.redis is not None
        with self._place.redis() as opened:

            async def acted(nodes: Nodes) -> ActAnswer:
                store = SharedStore(nodes, shared.frontier_name)
                acts = ActsByWorkers(nodes, store, config, known)
                levels = len(config.frontier.level_shares)
                operator = Operator(store, levels, time.time, acts)
                return await operator.act(request, getpass.getuser())

            return asked_once(opened, config, acted)

    def check(self, is_repair: bool) -> FrontierCheck:
        with self._reader() as reader:
            recount = Recount(reader)
            if is_repair:
                recount.repair(_operations(self._config, len(reader.shards)))
            else:
                recount.count()
        return FrontierCheck(recount.counted, is_repair, recount.uncounted)

    def take_over(self, index: Path) -> SeenUrls:
        raise ConfigError(
            f"{index} is not taken over: the frontier is in Redis, and this works only for a crawl"
            " with a frontier of its own"
        )

    def snapshot(self, folder: Path) -> Snapshot:
        raise ConfigError(
            f"{folder} is not made: the frontier is in Redis, which makes its own copies. Let it"
            " save one (redis-cli BGSAVE, on each server of a cluster) and copy its dump.rdb; stop"
            " the workers before, if the servers are more than one, for a copy of one moment"
        )

    def forget(self, worker: str) -> int:
        with self._reader() as reader:
            return forget(reader, worker).outbox

    @contextmanager
    def _reader(self) -> Iterator[RedisCrawlReader]:
        assert self._place.redis is not None
        with self._place.redis() as address, open_reader(address, self._config) as reader:
            yield reader


def _operations(config: Config, shards: int) -> ShardOperations:
    return ShardOperations("", shards, frontier_limits(config), config.shared.lease_s)


class ActsByWorkers:
    """Implements operator.Acts for a command: the workers that run, or that start next, look into
    the audit."""

    def __init__(self, nodes: Nodes, store: SharedStore, config: Config, known: list[str]) -> None:
        """*known*: those of the URLs to be added that the crawl has seen."""
        ops = _operations(config, config.shared.frontier_shards)
        self._queues = SharedQueues(nodes, ops, store, f"command {os.getpid()}")
        self._store = store
        self._config = config
        self._known = known

    async def count(self, request: ActRequest) -> WaitingCount:
        unit = self._config.politeness.host_unit
        return await count_waiting(self._queues, request, unit, time.time)

    async def take(self, act: Act, undone: Act | None) -> float:
        """Put dead letters back, if no worker does that already."""
        if act.verb != "retry" or await self._queues.carry_out([act], self._put_back, self._note):
            return 0.0
        return RESULT_S

    async def _put_back(self, act: Act) -> int:
        return await put_dead_letters_back(self._queues, act.targets, self._config, time.time)

    async def _note(self, act: Act, touched: int) -> None:
        await self._store.note(ActResult(act.at, act.number, touched))

    def known(self, urls: Sequence[str]) -> list[str]:
        return self._known


# A silent worker is not forgotten by itself: links may be on its disk, and as long as they are the
# crawl does not end. Only the user can know that the disk is lost.


def forget(reader: RedisCrawlReader, name: str) -> WorkerRecord:
    """Give up the links on the disk of a worker, and return its last record. If it comes back it
    adds them after all. Raises ConfigError if it is alive or unknown."""
    key = keys.workers(reader.name)
    packed = reader.ask(key, "HGET", name)
    if packed is None:
        raise ConfigError(
            f"{reader.where} has no worker {name}; scrapy frontier workers lists them"
        )
    with reader.reading(key):
        worker = decode_worker(packed)
    now = reader.now()
    if worker.is_alive(now):
        raise ConfigError(
            f"{name} is alive, last heartbeat {now - worker.at:.1f} s ago (process {worker.pid} on"
            f" {worker.host}). Stop it first: its links then stay on its disk, or are sent"
        )
    notes = [keys.outboxes(reader.name, shard) for shard in reader.shards]
    reader.link.ask([(note, ("SREM", note, name)) for note in notes])
    reader.ask(key, "HDEL", name)
    return worker


def forget_worker(reader: OwnedCrawlReader, name: str) -> WorkerRecord:
    """Give up the links on the disk of a worker, and return its last record. If it comes back it
    adds them after all. Raises ConfigError if it is alive or unknown."""
    worker = next((each for each in worker_records(reader) if each.name == name), None)
    if worker is None:
        raise ConfigError(
            f"{reader.where} has no worker {name}; scrapy frontier workers lists them"
        )
    now = reader.now()
    if worker.is_alive(now):
        raise ConfigError(
            f"{name} is alive, last heartbeat {now - worker.at:.1f} s ago (process {worker.pid} on"
            f" {worker.host}). Stop it first: its links then stay on its disk, or are sent"
        )
    reader.ask_each([("SREM", shard.key(OUTBOXES), name) for shard in reader.shards])
    reader.ask(keys.workers(reader.name), "HDEL", name)
    return worker


def check_shards(reader: OwnedCrawlReader, *, is_repair: bool) -> FrontierCheck:
    """Count what is in each shard again. Each change to a shard is a batch with a number of its
    own; so a count between two equal numbers is exact. Else the shard is not counted. Raises
    ConfigError for a repair."""
    if is_repair:
        raise ConfigError(
            f"the counters of {reader.where} are not repaired by a command, as only the owner of a"
            " shard writes to it. A worker counts again when it takes a shard over: stop all"
            " workers, start them again, and check again"
        )
    counters: list[RecountedCounter] = []
    uncounted: list[int] = []
    for shard in reader.shards:
        for _ in range(TRIES):
            before, packed = reader.ask(shard.root, "HMGET", "seq", "totals")
            totals, found = shard.read_totals(packed), shard.count_again()
            if reader.ask(shard.root, "HGET", "seq") == before:
                counters += [
                    RecountedCounter(name, getattr(totals, name), number, shard.number)
                    for name, number in found.items()
                ]
                break
        else:
            uncounted.append(shard.number)
    return FrontierCheck(counters, is_repaired=False, uncounted=uncounted)


# Counters are counted again while workers may run, by many small commands. Each script that changes
# the queues of a shard changes its totals too; so a count between two equal reads of the totals is
# exact, and is written only if they are still the same. Else the shard is not counted.

TRIES: Final = 3
_Fields = dict[bytes, bytes]


class Recount:
    """Counts the URLs of each shard again, and may repair its counters."""

    def __init__(self, reader: RedisCrawlReader) -> None:
        self._reader = reader
        self.counted: list[RecountedCounter] = []
        self.uncounted: list[int] = []
        """Shards that changed during each of TRIES counts."""

    def count(self) -> None:
        for shard in self._reader.shards:
            self._count_shard(shard, None)

    def repair(self, ops: ShardOperations) -> None:
        """Count, and write the counters that differ."""
        for shard in self._reader.shards:
            self._count_shard(shard, ops)

    def _count_shard(self, shard: int, ops: ShardOperations | None) -> None:
        """Count one shard; with *ops* write the counters that differ."""
        for _ in range(TRIES):
            before = self._totals(shard)
            found = [
                RecountedCounter(name, int(before.get(name.encode(), 0)), number, shard)
                for name, number in self._numbers(shard, before)
            ]
            if self._totals(shard) != before:
                continue
            differing = {each.name: each.counted for each in found if each.differs}
            if ops is not None and differing:
                conditions = {field: before.get(field.encode(), b"") for field in _CHANGE_FIELDS}
                (reply,) = self._reader.link.run([ops.repair(shard, conditions, differing)])
                if not reply[1]:
                    continue
            self.counted += found
            return
        self.uncounted.append(shard)

    def _totals(self, shard: int) -> _Fields:
        key = keys.totals(self._reader.name, shard)
        (reply,) = self._reader.ask_each([("HGETALL", key)])
        return dict(zip(reply[::2], reply[1::2], strict=True))

    def _numbers(self, shard: int, totals: _Fields) -> Iterator[tuple[str, int]]:
        reader, name = self._reader, self._reader.name
        buckets = [
            keys.seen(name, shard, bucket) for bucket in range(int(totals.get(b"buckets", 1)))
        ]
        sessions = {
            keys.leases(name, shard, session.decode())
            for found in reader.scored(keys.sessions(name, shard))
            for session, _ in found
        }
        waiting = dict.fromkeys(ShardTotals.read(totals).fronts, 0)
        waiting |= {at: self._sum("LLEN", names) for at, names in self._queues(shard).items()}
        yield "waiting", sum(waiting.values())
        for front, urls in sorted(waiting.items()):
            yield f"waiting:{front}", urls
        yield "later", self._sum("ZCARD", [keys.later(name, shard)])
        yield "leased", self._sum("HLEN", sorted(sessions))
        yield "seen", self._sum("SCARD", buckets)
        yield "dead", self._sum("HLEN", [keys.dead(name, shard)])

    def _queues(self, shard: int) -> dict[int, list[str]]:
        """Return the queues in the records of its hosts, by front."""
        key = keys.hosts(self._reader.name, shard)
        queues: defaultdict[int, set[str]] = defaultdict(set)  # a scan may return a host twice
        for found in self._reader.pairs(key):
            with self._reader.reading(key):
                for host, packed in found:
                    named = host.decode()
                    for at in read_host(packed).fronts:
                        queues[at].add(keys.queue(self._reader.name, shard, at, named))
        return {front: list(names) for front, names in queues.items()}

    def _sum(self, command: str, names: Sequence[str]) -> int:
        return sum(
            sum(self._reader.ask_each([(command, name) for name in part]))
            for part in parts(names, KEYS_PER_BATCH)
        )


_CHANGE_FIELDS: Final = (
    "clock",
    "offset",
    "next",
    "run",
    "adds",
    "buckets",
    "waiting",
    "later",
    "leased",
    "seen",
    "done",
    "dead",
)
"""Fields of the totals, of which at least one changes whenever a queue does."""

"""Acts on a crawl in Redis, while workers run or not: what is asked for is written there, and the
workers that run, or that start next, carry it out.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from crawler.data.operator_files import Act
from crawler.data.snapshots import Snapshot
from crawler.frontier.reader import RecountedCounter
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError
from crawler.operate.acts import RESULT_S, count_waiting
from crawler.operate.client import FrontierCheck, SeenUrls
from crawler.operate.operator import LOOKED_AT, Operator
from crawler.operate.verbs import ActAnswer, ActRequest, WaitingCount
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import ALIVE_S, WorkerRecord
from crawler.shared.operator_store import SharedStore
from crawler.shared.owned.readings import OUTBOXES
from crawler.shared.worker.join import asked_once
from crawler.view.identity import refuse_other_identity
from crawler.view.owned import OwnedCrawlReader, open_owned_reader, worker_records
from crawler.view.place import CrawlPlace, known_urls
from crawler.view.port import CrawlIdentity

TRIES: Final = 3  # of a count, while its shard changes


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
                acts = ActsByWorkers(self._place, nodes, known)
                levels = len(config.frontier.level_shares)
                operator = Operator(store, levels, time.time, acts)
                return await operator.act(request, getpass.getuser())

            return asked_once(opened, config, acted)

    def check(self, is_repair: bool) -> FrontierCheck:
        with self._reader() as reader:
            return check_shards(reader, is_repair=is_repair)

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
            return forget_worker(reader, worker).outbox

    @contextmanager
    def _reader(self) -> Iterator[OwnedCrawlReader]:
        assert self._place.redis is not None
        with self._place.redis() as address, open_owned_reader(address, self._config) as reader:
            yield reader


class ActsByWorkers:
    """Implements operator.Acts for a command: the workers that run, or that start next, look into
    the audit."""

    def __init__(self, place: CrawlPlace, nodes: Nodes, known: list[str]) -> None:
        """*known*: those of the URLs to be added that the crawl has seen."""
        self._place = place
        self._nodes = nodes
        self._known = known

    async def count(self, request: ActRequest) -> WaitingCount:
        return await asyncio.to_thread(count_waiting, self._place, request)

    async def take(self, act: Act, undone: Act | None) -> float:
        """Leave it to the workers that are alive, if there are any."""
        alive, ask = keys.announced(self._nodes.name)[1], self._nodes.checked_command
        since = int((await ask(alive, "TIME"))[0]) - ALIVE_S
        return RESULT_S if await ask(alive, "ZCOUNT", alive, since, "+inf") else 0.0

    def known(self, urls: Sequence[str]) -> list[str]:
        return self._known


# A silent worker is not forgotten by itself: links may be on its disk, and as long as they are the
# crawl does not end. Only the user can know that the disk is lost.


def forget_worker(reader: OwnedCrawlReader, name: str) -> WorkerRecord:
    """Give up the links on the disk of a worker, and return its last record. If it comes back it
    adds them after all. Raises ConfigError if it is alive or unknown."""
    worker = next((each for each in worker_records(reader) if each.name == name), None)
    if worker is None:
        raise ConfigError(
            f"{reader.where} has no worker {name}; {PROGRAM} frontier workers lists them"
        )
    now = reader.now()
    if worker.is_alive(now):
        raise ConfigError(
            f"{name} is alive, last seen {now - worker.at:.1f} s ago (process {worker.pid} on"
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

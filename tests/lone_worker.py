"""One worker's frontier over real servers, without a crawl: a test holds its leases in its hands.

Rule: what is waited for is looked at again and again; the clock only bounds it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from crawler.crawl.slots import NO_LIMIT
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierRules
from crawler.model.types import (
    Added,
    Candidate,
    Claim,
    CrawlerError,
    Lease,
    Rest,
    StoreFull,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.keys import Scripts
from crawler.shared.shard import Ops, shard_of
from crawler.shared.worker.frontier import SharedFrontier, WorkerBase
from crawler.shared.worker.leases import FRESH_S
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import SharedRules
from tests.contract.frontiers import rest

NAME: Final = "t"
FETCH_S: Final = 0.5
QUIET_S: Final = FRESH_S + FETCH_S + 0.5
BOUND_S: Final = 20.0


class Heard:
    """Implements shared_rules.Listener."""

    def __init__(self) -> None:
        self.new = 0
        self.refusals: list[Lease] = []
        self.losses: list[Lease] = []
        self.failures: list[CrawlerError] = []
        self.counted: Counter[str] = Counter()

    def count(self, key: str) -> None:
        self.counted[key] += 1

    def added(self, added: Added) -> None:
        self.new += added.new

    def refused(self, lease: Lease) -> None:
        self.refusals.append(lease)

    def lost(self, leases: Sequence[Lease]) -> None:
        self.losses += leases

    def failed(self, error: CrawlerError) -> None:
        self.failures.append(error)


class NoKnowledge:
    """Implements frontier.Knowledge: keeps what it is given."""

    def __init__(self) -> None:
        self.claims: list[tuple[int, Claim]] = []
        self.gathered: list[Callable[[], None]] = []  # each sends what is gathered

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Nothing is known."""

    def claimed(self, lease_id: int, claim: Claim) -> None:
        self.claims.append((lease_id, claim))

    async def tick(self) -> None:
        """Nothing is sent before the end."""

    def ending(self) -> None:
        for send in self.gathered:
            send()


async def confirm() -> None:
    """It is the same crawl always."""


class SmallStore(MemoryStore):
    """A disk that may be full."""

    is_full = False

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if self.is_full:
            raise StoreFull("no space left on device")
        super().write(changes)


class LoneWorker:
    def __init__(
        self,
        url: str,
        name: str = "w",
        *,
        shards: int = 2,
        full_bytes: Callable[[int], int | None] = lambda _: None,
        is_sure: bool = False,
        sync_outbox: Callable[[], None] | None = None,
        nodes: type[Nodes] = Nodes,
    ) -> None:
        rules = FrontierRules(min_gap_s=0.0, longest_fetch_s=FETCH_S)
        opening = (QUIET_S, BOUND_S, keys.SCHEMA)
        self.heard = Heard()
        self.disk = SmallStore()
        self.outbox = Outbox(self.disk, lambda domain: shard_of(domain, shards))
        self.nodes = nodes(Address.parse(url), Scripts(), NAME, shards, opening)
        base = WorkerBase.of(
            self.nodes,
            Ops(f"{name}.1", shards, rules, BOUND_S),
            SharedRules(
                name=NAME,
                shards=shards,
                lease_s=BOUND_S,
                heartbeat_s=0.5,
                fetch_s=FETCH_S,
                max_leases=16,
                is_sure=is_sure,
                full_bytes=full_bytes,
                sync_outbox=sync_outbox,
            ),
            self.outbox,
            self.heard,
            lambda: WorkerRecord(name=name, session=f"{name}.1", host="here", pid=1),
            time.time,
            confirm,
        )
        self.frontier = SharedFrontier(
            base,
            NoKnowledge(),
            lease_rules=None,
            room=lambda _: NO_LIMIT,
            wake=lambda: None,
            pushing=None,
        )

    async def add(self, *found: Candidate) -> None:
        """Until they are acknowledged."""
        self.frontier.add(found, time.time())
        await self.told()

    async def told(self) -> None:
        await until(self.frontier.outgoing.is_idle)

    async def lease(self, count: int) -> list[Lease]:
        leases: list[Lease] = []

        def is_enough() -> bool:
            leases.extend(self.frontier.lease(time.time(), count - len(leases)))
            return len(leases) == count

        await until(is_enough)
        return leases

    async def gets_none(self, seconds: float) -> None:
        """For so long nothing can be leased."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.frontier.lease(time.time(), 1) == []
            await asyncio.sleep(0.01)

    def release(self, lease: Lease, seconds: float = 0.0) -> Rest:
        told = rest(seconds)
        self.frontier.release(lease, told, time.time())
        return told


@asynccontextmanager
async def at_work(worker: LoneWorker) -> AsyncIterator[LoneWorker]:
    worker.frontier.begin()
    worker.frontier.is_over()  # all that it begins with was added
    try:
        yield worker
    finally:
        await worker.frontier.close()


async def until(is_so: Callable[[], bool], bound_s: float = BOUND_S) -> None:
    end = time.monotonic() + bound_s
    while not is_so():
        assert time.monotonic() < end, "it does not come"
        await asyncio.sleep(0.005)

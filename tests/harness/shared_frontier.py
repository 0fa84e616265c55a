"""The frontier of one worker over real servers, without a crawl: a test leases and
finishes itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierLimits
from crawler.loop.slots import NO_LIMIT
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
from crawler.shared.shard import ShardOperations, shard_of
from crawler.shared.worker.frontier import SharedFrontier, WorkerBase
from crawler.shared.worker.kept_rests import KeptRests
from crawler.shared.worker.leases import MAX_SHARD_SILENCE_S
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import FullServers, WorkerSettings
from tests.harness.frontiers import rest
from tests.harness.waiting import wait_until_async

NAME: Final = "t"
FETCH_S: Final = 0.5
QUIET_S: Final = MAX_SHARD_SILENCE_S + FETCH_S + 0.5
LEASE_S: Final = 20.0
BOUND_S: Final = 60.0  # of what takes a moment
RULES: Final = FrontierLimits(min_gap_s=0.0, longest_fetch_s=FETCH_S)


class RecordingListener:
    """Implements shared_rules.Listener."""

    def __init__(self) -> None:
        self.new = self.seen = 0
        self.refusals: list[Lease] = []
        self.losses: list[Lease] = []
        self.failures: list[CrawlerError] = []
        self.counted: Counter[str] = Counter()
        self.wakes = 0

    def count(self, key: str) -> None:
        self.counted[key] += 1

    def on_added(self, added: Added) -> None:
        self.new += added.new
        self.seen += added.seen

    def on_refused(self, lease: Lease) -> None:
        self.refusals.append(lease)

    def on_lost(self, leases: Sequence[Lease]) -> None:
        self.losses += leases

    def on_failed(self, error: CrawlerError) -> None:
        self.failures.append(error)

    def wake(self) -> None:
        self.wakes += 1


class NoKnowledge:
    """Implements frontier.Knowledge: keeps what it is given."""

    def __init__(self) -> None:
        self.claims: list[tuple[int, Claim]] = []
        self.gathered: list[Callable[[], None]] = []  # each sends what is gathered

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Nothing is known."""

    def note_claim(self, lease_id: int, claim: Claim) -> None:
        self.claims.append((lease_id, claim))

    async def tick(self) -> None:
        """Nothing is sent before the end."""

    def flush(self) -> None:
        for send in self.gathered:
            send()


async def confirm() -> None:
    """Confirm: it is always the same crawl."""


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
        limits: FrontierLimits = RULES,
        quiet_s: float = QUIET_S,
        lease_s: float = LEASE_S,
        heartbeat_s: float = 0.5,
        max_leases: int = 16,
        full_bytes: Callable[[int], int | None] = lambda _: None,
        is_sure: bool = False,
        sync_outbox: Callable[[], None] | None = None,
        nodes: type[Nodes] = Nodes,
        full_servers: type[FullServers] = FullServers,
    ) -> None:
        opening = (quiet_s, lease_s, keys.SCHEMA)
        self.session = f"{name}.1"
        self.listener = RecordingListener()
        self.disk = SmallStore()
        self.outbox = Outbox(self.disk, lambda domain: shard_of(domain, shards))
        self.nodes = nodes(Address.parse(url), Scripts(), NAME, shards, opening)
        self.knowledge = NoKnowledge()
        self.ops = ShardOperations(self.session, shards, limits, lease_s)
        base = WorkerBase.of(
            nodes=self.nodes,
            ops=self.ops,
            settings=WorkerSettings(
                name=NAME,
                shards=shards,
                lease_s=lease_s,
                heartbeat_s=heartbeat_s,
                fetch_s=FETCH_S,
                max_leases=max_leases,
                is_ack_durable=is_sure,
                full_bytes=full_bytes,
                sync_outbox=sync_outbox,
            ),
            outbox=self.outbox,
            kept_rests=KeptRests(self.disk),
            listener=self.listener,
            make_record=lambda: WorkerRecord(name=name, session=self.session, host="here", pid=1),
            now=time.time,
            confirm=confirm,
        )
        self.full_servers = full_servers(self.nodes, full_bytes)
        self.base = replace(base, full_servers=self.full_servers)
        self.frontier = SharedFrontier(
            self.base,
            self.knowledge,
            lease_rules=None,
            free_slots=lambda _: NO_LIMIT,
            wake=self.listener.wake,
            pushing=None,
        )

    async def add(self, *found: Candidate) -> None:
        """Add candidates and wait until they are acknowledged."""
        self.frontier.add(found, time.time())
        await self.wait_until_sent()

    async def wait_until_sent(self) -> None:
        async with asyncio.timeout(BOUND_S):
            await self.frontier.wait_until_durable()

    async def lease(self, count: int) -> list[Lease]:
        leases: list[Lease] = []

        def is_enough() -> bool:
            leases.extend(self.frontier.lease(time.time(), count - len(leases)))
            return len(leases) == count

        await wait_until_async(is_enough, BOUND_S)
        return leases

    async def leases_nothing_for(self, seconds: float) -> None:
        """Check for so many *seconds* that nothing can be leased."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.frontier.lease(time.time(), 1) == []
            await asyncio.sleep(0.01)

    def release(self, lease: Lease, seconds: float = 0.0) -> Rest:
        pause = rest(seconds)
        self.frontier.release(lease, pause, time.time())
        return pause


@asynccontextmanager
async def running(worker: LoneWorker) -> AsyncIterator[LoneWorker]:
    worker.frontier.begin()
    worker.frontier.is_over()  # all that it begins with was added
    try:
        yield worker
    finally:
        await worker.frontier.close()

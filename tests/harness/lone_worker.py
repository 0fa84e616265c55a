"""One worker of a shared crawl over real servers, without a crawl: a test leases and finishes
itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from crawler.data.frontier_work import FrontierWork
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierLimits
from crawler.frontier.shards import shard_of
from crawler.model.types import (
    Added,
    Candidate,
    CrawlerError,
    Done,
    Lease,
    Rest,
    Standing,
    StoreFull,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.connection import Argument
from crawler.shared.crawl_format import encode_format, new_format, read_format
from crawler.shared.faults import Unreachable
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.owned.worker import OwnedWorker
from crawler.shared.worker.base import WorkerBase
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.near_duplicates import NearSearch, SharedNearDuplicates
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import WorkerSettings
from tests.harness.frontiers import rest
from tests.harness.waiting import wait_until_async

NAME: Final = "t"
FETCH_S: Final = 0.5
LEASE_S: Final = 20.0
BOUND_S: Final = 60.0  # of what takes a moment
RULES: Final = FrontierLimits(
    min_gap_s=0.0, gap_factor=0.0, longest_fetch_s=FETCH_S, max_arrived_s=0.05, max_undecided_s=0.05
)
_sessions = count(1)


class RecordingListener:
    """Implements status.Listener."""

    def __init__(self) -> None:
        self.added = Added()
        self.losses: list[Lease] = []
        self.failures: list[CrawlerError] = []
        self.counted: Counter[str] = Counter()

    def count(self, key: str) -> None:
        self.counted[key] += 1

    def on_added(self, added: Added) -> None:
        self.added = Added(self.added.new + added.new, self.added.seen + added.seen)

    def on_lost(self, leases: Sequence[Lease]) -> None:
        self.losses += leases

    def on_failed(self, error: CrawlerError) -> None:
        self.failures.append(error)


class DeafNodes(Nodes):
    """Servers that do not answer for some shards."""

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection)
        self.deaf: set[int] = set()

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        heard = iter(await super().commands([each for each in asks if each[0] not in self.deaf]))
        fault = Unreachable("lost by the test")
        return [fault if shard in self.deaf else next(heard) for shard, _ in asks]


class SmallDisk(MemoryStore):
    """A disk that may be full."""

    def __init__(self, is_full: Callable[[], bool]) -> None:
        super().__init__()
        self._is_full = is_full

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if self._is_full():
            raise StoreFull("no space left on device")
        super().write(changes)


class LoneWorker:
    def __init__(
        self,
        url: str,
        folder: Path,
        name: str = "w",
        *,
        shards: int = 2,
        full_bytes: Callable[[int], int | None] = lambda _: None,
        is_ack_durable: bool = True,
        sync_outbox: Callable[[], None] | None = None,
        nodes: type[Nodes] = Nodes,
    ) -> None:
        """*is_ack_durable*: as of WorkerSettings."""
        self.session = f"{name}.{next(_sessions)}"
        self.listener = RecordingListener()
        self.is_disk_full = False
        self.slots = 16
        disk = SmallDisk(lambda: self.is_disk_full)
        self.outbox = Outbox(disk, partial(shard_of, shards=shards))
        self.nodes: Any = nodes(Address.parse(url), OwnedScripts(), NAME, shards)
        record = WorkerRecord(name=name, session=self.session, host="here", pid=1)
        self.base = WorkerBase.of(
            nodes=self.nodes,
            settings=WorkerSettings(
                name=NAME,
                shards=shards,
                lease_s=LEASE_S,
                fetch_s=FETCH_S,
                is_ack_durable=is_ack_durable,
                full_bytes=full_bytes,
                sync_outbox=sync_outbox,
            ),
            outbox=self.outbox,
            listener=self.listener,
            make_record=lambda: record,
            now=time.time,
        )
        self._folder = folder / self.session
        self._shards = shards

    async def begin(self) -> None:
        await self.nodes.open()
        link, scripts = self.base.shard_client(), Batcher(self.nodes.run)
        search = NearSearch(
            self.base.contents, NAME, scripts, Batcher(self.nodes.commands), max_bits=3
        )
        contents = SharedDuplicates(link, scripts), SharedNearDuplicates(link, search, 3)
        key = keys.format_key(NAME)
        ours = replace(new_format(self._shards, len(RULES.level_shares), ()), begun=False)
        await self.nodes.checked_command(key, "SET", key, encode_format(ours), "NX")
        self.frontier = OwnedWorker(
            self.base,
            read_format(await self.nodes.checked_command(key, "GET", key), key),
            contents,
            FrontierWork(lambda _: None, self.base.disk, self.listener.on_failed, lambda: None),
            dead_sessions=(),
            rests={},
            folder=self._folder,
            store=SmallDisk(lambda: self.is_disk_full),
            limits=RULES,
            lease_rules=None,
            addresses=None,
            free_slots=self._free_slots,
            wake=lambda: None,
            on_taken_in=lambda: None,
            on_robots=lambda authority, result: None,
            pushing=None,
        )
        self.frontier.begin()

    def _free_slots(self, _: Standing) -> int:
        return self.slots

    async def holds_all(self) -> None:
        """Return when this worker has all shards, and links for them are added at once."""

        def takes_links() -> bool:
            held = self.frontier.holder.held.values()
            return len(held) == self._shards and all(each.takes_links for each in held)

        await wait_until_async(takes_links, BOUND_S)

    async def add(self, *found: Candidate) -> None:
        """Add candidates and wait until they are acknowledged."""
        self.frontier.add(found, time.time())
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

    def end(self, lease: Lease, *, seconds: float = 0.0, verdict: Verdict | None = None) -> Rest:
        """Release *lease*, with a rest of so many *seconds*, and finish it."""
        pause = rest(seconds)
        self.frontier.release(lease, pause, time.time())
        self.frontier.finish(lease, verdict or Done(), time.time())
        return pause

    async def ends(self) -> None:
        """Return when this worker finds that the crawl is over."""
        await wait_until_async(self.frontier.is_over, BOUND_S)


@asynccontextmanager
async def running(worker: LoneWorker, *found: Candidate) -> AsyncIterator[LoneWorker]:
    """Run *worker*, which begins with *found*."""
    await worker.begin()
    worker.frontier.add(found, time.time())
    worker.frontier.is_over()  # as the engine asks: all that it begins with was added
    try:
        yield worker
    finally:
        await worker.frontier.close()

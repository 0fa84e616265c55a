"""What a worker says of itself and its servers: that links wait on its disk, which servers are
full, and what it waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

import xxhash

from crawler.data.disk_room import WaitWarnings
from crawler.model.program import PROGRAM
from crawler.model.types import Added, CrawlerError, Lease, StoreUnavailable
from crawler.shared.client import Call, Nodes, ServerMemory
from crawler.shared.contents import ContentCalls
from crawler.shared.faults import FAULTS, OutOfMemory, ServerRefused


class OutboxNote:
    """A note in a shard that links wait on this worker's disk. It may be in any shard whose server
    answers, because all are looked at before the end. It is removed when none wait any more."""

    def __init__(self, nodes: Nodes, contents: ContentCalls, worker: str, outbox: Sized) -> None:
        self._nodes = nodes
        self._contents = contents
        self._worker = worker
        self._outbox = outbox
        self._home = xxhash.xxh3_64_intdigest(worker.encode()) % contents.shards
        # Shards that may have it, also from the last session.
        self._places = set(range(contents.shards))
        self._is_noted = False
        self._lock = asyncio.Lock()

    async def ensure_noted(self) -> bool:
        """Write the note if links wait and it is not written. Returns False if that fails."""
        async with self._lock:
            if len(self._outbox) and not self._is_noted:
                self._is_noted = await self._note()
            return self._is_noted or not len(self._outbox)

    async def update(self) -> None:
        """Write the note again (a server may lose its last second), or remove it. To be called
        once a second."""
        async with self._lock:
            if len(self._outbox):
                self._is_noted = await self._note()
            elif self._places:
                self._is_noted = False
                calls = [self._call(shard, has_links=False) for shard in self._places]
                replies = await self._nodes.run(calls)
                pairs = zip(calls, replies, strict=True)
                self._places = {call.shard for call, reply in pairs if isinstance(reply, FAULTS)}

    def recheck_all_shards(self) -> None:
        """Let the next `update` remove the note from every shard, because one has it though no
        link waits: its removal was lost with the server's last second, or an older call that wrote
        it came late."""
        self._places = set(range(self._contents.shards))

    def _call(self, shard: int, *, has_links: bool) -> Call:
        return self._contents.note_outbox(shard, self._worker, has_links)

    async def _note(self) -> bool:
        """Write the note to the last shard, else to one of each other server until one answers."""
        asked: set[str] = set()
        for shard in (self._home, *range(self._contents.shards)):
            if (node := self._nodes.node_of(shard)) in asked:
                continue
            asked.add(node)
            self._places.add(shard)
            (reply,) = await self._nodes.run([self._call(shard, has_links=True)])
            if not isinstance(reply, FAULTS):
                self._home = shard
                return True
        return False


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of one worker of a shared crawl."""

    name: str  # of the crawl
    shards: int
    lease_s: float
    fetch_s: float  # the longest fetch
    is_ack_durable: bool  # whether what a server acknowledges is on its disk
    # Called in a thread to make the outbox survive a power cut. None: it need not.
    sync_outbox: Callable[[], None] | None = None
    full_bytes: Callable[[int], int | None]  # from maxmemory: at how many bytes a server is full


class Listener(Protocol):
    """Receives the events of a shared frontier."""

    def count(self, key: str) -> None: ...

    def on_added(self, added: Added) -> None: ...

    def on_lost(self, leases: Sequence[Lease]) -> None: ...

    def on_failed(self, error: CrawlerError) -> None: ...


class StatusLog:
    """Logs what the shared frontier waits for, and ends the crawl at an error that waiting cannot
    repair."""

    def __init__(
        self, listener: Listener, name: str, steady: Callable[[], float] = monotonic
    ) -> None:
        """*name* is that of the crawl."""
        self.is_hopeless = False
        self._listener = listener
        self._name = name
        self.wait_warnings = WaitWarnings(steady)

    def on_failed(self, error: CrawlerError) -> None:
        """End the crawl because of *error*, which waiting cannot repair."""
        self.is_hopeless = True
        self._listener.on_failed(error)

    def on_server_error(self, fault: CrawlerError) -> None:
        """Handle a fault of a server: wait, or end the crawl."""
        if isinstance(fault, StoreUnavailable):
            self.wait_warnings.report("the servers of the frontier answer", str(fault))
        else:
            self.on_failed(fault)

    def on_server_full(self, full: StoreUnavailable) -> None:
        """Log that a server has no memory for our links."""
        self.wait_warnings.report("the servers of the frontier take links", str(full))

    def on_disk_full_for_links(self, full: StoreUnavailable) -> None:
        """Log that our disk has no room for links."""
        self.wait_warnings.report(
            "there is room on this worker's disk",
            f"no room for links on this worker's disk: {full}",
        )

    def on_waiting_for_workers(self, outboxes: Mapping[str, int]) -> None:
        """Log that only links on the disks of silent workers keep the crawl from its end.
        *outboxes* holds their numbers by worker."""
        for name, links in outboxes.items():
            self.wait_warnings.report(
                f"the worker {name} is back, or its links are given up",
                f"nothing is left to fetch but what the worker {name} found ({links} links on its"
                " disk), and it is silent. Start it again with its data directory; if its"
                f" disk is lost: {PROGRAM} frontier workers --forget {name}",
            )

    def on_leases_lost(self, leases: Sequence[Lease]) -> None:
        """Log that *leases* expired before they were finished."""
        logger.warning(
            "Leases that ended before they were finished, now given to others: %d", len(leases)
        )
        self._listener.on_lost(leases)

    def log_recovered(self) -> None:
        """Log which troubles are over. To be called about once a second."""
        self.wait_warnings.log_recovered()


LOW_PART: Final = 0.95  # below this part of the mark a server is no longer full (hysteresis)


class FullServers:
    """Which servers are above their high-water mark, or do not answer while others do: links to
    them wait on the workers' disks."""

    def __init__(self, nodes: Nodes, full_bytes: Callable[[int], int | None]) -> None:
        self._nodes = nodes
        self._full_bytes = full_bytes
        self._full: set[str] = set()
        self._silent: frozenset[str] = frozenset()

    @property
    def full(self) -> list[OutOfMemory]:
        """An error for each full server, with its text for the log."""
        return [
            OutOfMemory(
                f"Redis at {node} is above its high-water mark (CRAWLER_REDIS_MAX_BYTES). New links"
                " wait on the disk of the workers"
            )
            for node in sorted(self._full)
        ]

    def is_full(self, shard: int) -> bool:
        """Return whether the server of *shard* takes no links now. O(1)."""
        if not (self._full or self._silent):
            return False
        node = self._nodes.node_of(shard)
        return node in self._full or node in self._silent

    async def refresh(self) -> None:
        """Ask each server for its memory; whether one that does not answer is full stays as it was.
        Raises ServerRefused as `refuse_eviction` does."""
        memories = await self._nodes.memory()
        refuse_eviction(memories)
        # If none answers, no link can be sent, so that none has to make way for others.
        self._silent = self._nodes.serving - memories.keys() if memories else frozenset()
        for node, memory in memories.items():
            mark = self._full_bytes(memory.max_bytes)
            if mark is not None and memory.used_bytes >= mark:
                self._full.add(node)
            elif mark is None or memory.used_bytes < LOW_PART * mark:
                self._full.discard(node)


def refuse_eviction(memories: Mapping[str, ServerMemory]) -> None:
    """Raise ServerRefused if a server would evict data of the crawl silently. It may evict what
    expires (volatile-*): such keys are hints only."""
    for node, memory in memories.items():
        if memory.max_bytes and memory.policy.startswith("allkeys"):
            raise ServerRefused(
                f"Redis at {node} has the maxmemory-policy {memory.policy}: when its memory is full"
                " it would delete parts of the crawl. Set maxmemory-policy noeviction"
            )

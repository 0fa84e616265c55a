"""The state of the whole crawl, read once a second: its totals, whether it is over, which servers
are full, and what it waits for.

Rule: a crawl is over only after looks at the queues of all shards; see `EndDetector`. A worker that
is busy reads the totals only, which is cheaper.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol, Self

import xxhash

from crawler.data.disk_room import WaitWarnings
from crawler.model.counts import Counts
from crawler.model.types import Added, CrawlerError, Lease, StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Nodes, ServerMemory
from crawler.shared.codec import ShardTotals, counts_of
from crawler.shared.faults import FAULTS, Fault, ForeignData, OutOfMemory, ServerRefused
from crawler.shared.shard import ShardOperations
from crawler.shared.worker.leases import ServerEpochs


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """The result of a look at one shard."""

    is_anything_left: bool  # whether a URL waits, has a later date, or is leased
    totals: ShardTotals
    outboxes: frozenset[str]  # workers that have links on their own disks

    @classmethod
    def of_reply(cls, reply: Sequence[Any]) -> Self:
        """Read the reply to the script `check`."""
        _, left, totals, outboxes = reply
        names = frozenset(each.decode("utf-8", "replace") for each in outboxes)
        return cls(left == 1, ShardTotals.of_reply(totals), names)


class EndDetector:
    """Decides whether the crawl is over. It looks at the queues of shards, because a counter that
    drifted would end the crawl early or never. A URL can move to a shard that was looked at already
    from one that was not; so two looks must find nothing, and agree on the URLs ever added."""

    def __init__(self) -> None:
        self._adds: int | None = None  # URLs ever added by the last look, if it found nothing
        self.is_over = False

    def check(self, shards: Sequence[ShardCheck], is_elsewhere: bool) -> None:
        """Take a look at all *shards*. *is_elsewhere* means that URLs wait in a feed, or at a
        worker that is starting."""
        if is_elsewhere or any(each.is_anything_left or each.outboxes for each in shards):
            self.reset()
            return
        adds = sum(each.totals.adds for each in shards)
        self.is_over = self._adds == adds
        self._adds = adds

    def reset(self) -> None:
        """Forget the last look, because a URL was found or added."""
        self._adds, self.is_over = None, False


class OutboxNote:
    """A note in a shard that links wait on this worker's disk. It may be in any shard whose server
    answers, because all are looked at before the end. It is removed when none wait any more."""

    def __init__(self, nodes: Nodes, ops: ShardOperations, worker: str, outbox: Sized) -> None:
        self._nodes = nodes
        self._ops = ops
        self._worker = worker
        self._outbox = outbox
        self._home = xxhash.xxh3_64_intdigest(worker.encode()) % ops.shards
        self._places = set(range(ops.shards))  # shards that may have it, also from the last session
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
                calls = [self._ops.outbox(shard, self._worker, False) for shard in self._places]
                replies = await self._nodes.run(calls)
                pairs = zip(calls, replies, strict=True)
                self._places = {call.shard for call, reply in pairs if isinstance(reply, FAULTS)}

    def recheck_all_shards(self) -> None:
        """Let the next `update` remove the note from every shard, because one has it though no
        link waits: its removal was lost with the server's last second, or an older call that wrote
        it came late."""
        self._places = set(range(self._ops.shards))

    async def _note(self) -> bool:
        """Write the note to the last shard, else to one of each other server until one answers."""
        asked: set[str] = set()
        for shard in (self._home, *range(self._ops.shards)):
            if (node := self._nodes.node_of(shard)) in asked:
                continue
            asked.add(node)
            self._places.add(shard)
            (reply,) = await self._nodes.run([self._ops.outbox(shard, self._worker, True)])
            if not isinstance(reply, FAULTS):
                self._home = shard
                return True
        return False


logger = logging.getLogger(__name__)


class Overview:
    """Totals of the whole crawl, and whether it is over, as this worker last read them."""

    def __init__(
        self,
        nodes: Nodes,
        ops: ShardOperations,
        name: str,
        server_epochs: ServerEpochs,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self._nodes = nodes
        self._steady = steady
        self._totals_commands = [(n, ("HGETALL", keys.totals(name, n))) for n in range(ops.shards)]
        self._check_calls = [ops.check(n) for n in range(ops.shards)]
        self._server_epochs = server_epochs
        self._totals: list[ShardTotals] = []
        self._answered_at = steady()  # monotonic, when all shards last answered
        self._end_detector = EndDetector()
        self.is_anything_left = True
        """Whether the last look at the shards found a URL, or none was made."""
        self.outboxes: frozenset[str] = frozenset()
        """Workers with links on their disks, by the last look."""

    @property
    def is_over(self) -> bool:
        return self._end_detector.is_over

    def mark_unfinished(self) -> None:
        """Forget the last look, because something was added."""
        self._end_detector.reset()
        self.is_anything_left = True

    def counts(self) -> Counts:
        """Return the counts of the last look that all shards answered."""
        return counts_of(self._totals)

    @property
    def silent_s(self) -> float:
        """Seconds since all shards last answered; they are asked once a second."""
        return self._steady() - self._answered_at

    async def refresh(self, is_busy: bool, is_elsewhere: Callable[[], bool]) -> Fault | None:
        """Read the totals, and if this worker is not busy, look whether the crawl is over.
        *is_elsewhere* returns whether URLs wait in a feed, or at a worker that is starting. Returns
        the first Fault, or None."""
        asked_at = self._steady()
        if is_busy:
            totals = await self._nodes.commands(self._totals_commands)
            runs = [
                each if isinstance(each, FAULTS) else ShardTotals.of_reply(each).run
                for each in totals
            ]
            fault = self._record_runs(runs, asked_at)
            if fault is None:
                self._totals = [ShardTotals.of_reply(reply) for reply in totals]
            self.mark_unfinished()
            return fault
        replies = await self._nodes.run(self._check_calls)
        runs = [each if isinstance(each, FAULTS) else each[0] for each in replies]
        fault = self._record_runs(runs, asked_at)
        if fault is None:
            self._apply_checks([ShardCheck.of_reply(reply) for reply in replies], is_elsewhere())
        return fault

    def _apply_checks(self, shards: Sequence[ShardCheck], is_elsewhere: bool) -> None:
        was_over = self.is_over
        self._totals = [each.totals for each in shards]
        self.is_anything_left = any(each.is_anything_left for each in shards)
        self.outboxes = frozenset[str]().union(*(each.outboxes for each in shards))
        self._end_detector.check(shards, is_elsewhere)
        drifted = [n for n, each in enumerate(shards) if each.totals.counts.left]
        if self.is_over and not was_over and drifted:
            logger.warning(
                "Nothing is left to fetch, but the counters of the frontier are not zero"
                " (shards %s): scrapy frontier check shows what differs, --repair corrects them",
                ", ".join(map(str, drifted[:10])),
            )

    def _record_runs(self, runs: Sequence[Any], asked_at: float) -> Fault | None:
        fault: Fault | None = None
        for shard, run in enumerate(runs):
            if isinstance(run, FAULTS):
                fault = fault or run
            else:
                # Before its totals are used: a new run may lack calls that must be sent again.
                self._server_epochs.observe(shard, run, asked_at)
        if fault is None:
            self._answered_at = self._steady()
        return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The settings of one worker of a shared crawl."""

    name: str  # of the crawl
    shards: int
    lease_s: float
    heartbeat_s: float
    fetch_s: float  # the longest fetch
    max_leases: int  # fetched at once
    is_ack_durable: bool  # whether what a server acknowledges is on its disk
    # Called in a thread to make the outbox survive a power cut. None: it need not.
    sync_outbox: Callable[[], None] | None = None
    full_bytes: Callable[[int], int | None]  # from maxmemory: at how many bytes a server is full


class Listener(Protocol):
    """Receives the events of a shared frontier."""

    def count(self, key: str) -> None: ...

    def on_added(self, added: Added) -> None: ...

    def on_refused(self, lease: Lease) -> None: ...

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
                f" disk is lost: scrapy frontier workers --forget {name}",
            )

    def on_keys_missing(self, shard: int) -> None:
        """End the crawl because the keys of *shard* no longer exist."""
        self.on_failed(
            ForeignData(
                f"Redis has lost the crawl: the key {keys.totals(self._name, shard)} is not there"
                " any more. It was removed by hand, or because of maxmemory-policy. Begin"
                " another crawl"
            )
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
    """Which servers are above their high-water mark: links to them wait on the workers' disks."""

    def __init__(self, nodes: Nodes, full_bytes: Callable[[int], int | None]) -> None:
        self._nodes = nodes
        self._full_bytes = full_bytes
        self._full: set[str] = set()

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
        """Return whether the server of *shard* is full. O(1)."""
        return bool(self._full) and self._nodes.node_of(shard) in self._full

    async def refresh(self) -> None:
        """Ask each server for its memory; one that does not answer stays as it was. Raises
        ServerRefused as `refuse_eviction` does."""
        memories = await self._nodes.memory()
        refuse_eviction(memories)
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

"""The whole crawl at a glance, once a second: what all shards say of themselves, and whether it is
over.

Rule: it is over only when every shard was asked, in one look; see ending.py. A worker that has work
asks for the totals only, which is the cheaper question.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol, Self

import xxhash

from crawler.model.types import Added, Counts, CrawlerError, Lease, StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Memory, Nodes
from crawler.shared.codec import ShardTotals
from crawler.shared.faults import FAULTS, Fault, ForeignData, OutOfMemory, Refused
from crawler.shared.shard import Ops
from crawler.shared.worker.leases import ServerEpochs

# Is the crawl over? When nothing waits, nothing is leased, and nothing is anywhere else.
#
# Rule: the queues of all shards are looked at, never their counters: one that drifted would end a
# crawl early, or never. Shards are looked at one after the other, and a URL can pass from one that
# is
# still to be looked at into one that was. So two looks must find nothing and agree on how much was
# ever added. Links on a worker's disk are noted in a shard, in any: no look misses it.


@dataclass(frozen=True, slots=True)
class ShardLook:
    """At one shard."""

    is_anything_left: bool  # a URL that waits, has a later date, or is leased
    totals: ShardTotals
    outboxes: frozenset[str]  # workers that have links on their own disks

    @classmethod
    def of_reply(cls, reply: Sequence[Any]) -> Self:
        """As the script `look` gives it."""
        _, left, totals, outboxes = reply
        names = frozenset(each.decode("utf-8", "replace") for each in outboxes)
        return cls(left == 1, ShardTotals.of_reply(totals), names)


class Ending:
    def __init__(self) -> None:
        self._adds: int | None = None  # in the last look, if it found nothing
        self.is_over = False

    def look(self, shards: Sequence[ShardLook], is_elsewhere: bool) -> None:
        """*shards*: all of them; *is_elsewhere*: something waits in a feed, or with a worker that
        is only beginning."""
        if is_elsewhere or any(each.is_anything_left or each.outboxes for each in shards):
            self.begin_again()
            return
        adds = sum(each.totals.adds for each in shards)
        self.is_over = self._adds == adds
        self._adds = adds

    def begin_again(self) -> None:
        """There is something: what was looked at before counts no more."""
        self._adds, self.is_over = None, False


class Sized(Protocol):
    def __len__(self) -> int: ...


class OutboxNote:
    """That links wait on this worker's disk, noted in a shard whose server answers: no single
    server is needed for it. Removed when none wait any more."""

    def __init__(self, nodes: Nodes, ops: Ops, worker: str, outbox: Sized) -> None:
        self._nodes = nodes
        self._ops = ops
        self._worker = worker
        self._outbox = outbox
        self._home = xxhash.xxh3_64_intdigest(worker.encode()) % ops.shards
        self._places = set(range(ops.shards))  # where it may stand: the last life left some
        self._is_noted = False
        self._lock = asyncio.Lock()

    async def is_noted(self) -> bool:
        """Whether it is, where links wait; the first time it is noted now."""
        async with self._lock:
            if len(self._outbox) and not self._is_noted:
                self._is_noted = await self._note()
            return self._is_noted or not len(self._outbox)

    async def look_after(self) -> None:
        """Once a second: noted again, because a server may lose its last second, or removed."""
        async with self._lock:
            if len(self._outbox):
                self._is_noted = await self._note()
            elif self._places:
                self._is_noted = False
                calls = [self._ops.outbox(shard, self._worker, False) for shard in self._places]
                replies = await self._nodes.run(calls)
                told = zip(calls, replies, strict=True)
                self._places = {call.shard for call, reply in told if isinstance(reply, FAULTS)}

    async def _note(self) -> bool:
        """In its usual shard, else in one of each other server until one answers."""
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
    def __init__(self, nodes: Nodes, ops: Ops, name: str, runs: ServerEpochs) -> None:
        self._nodes = nodes
        self._asks = [(n, ("HGETALL", keys.totals(name, n))) for n in range(ops.shards)]
        self._looks = [ops.look(n) for n in range(ops.shards)]
        self._runs = runs
        self._totals: list[ShardTotals] = []
        self._ending = Ending()
        self.is_anything_left = True
        """In the shards, as far as was looked."""
        self.outboxes: frozenset[str] = frozenset()
        """Workers with links on their disks, as far as was looked."""

    @property
    def is_over(self) -> bool:
        return self._ending.is_over

    def begin_again(self) -> None:
        """Something was added: it is not over, whatever the last looks have found."""
        self._ending.begin_again()
        self.is_anything_left = True

    def counts(self) -> Counts:
        """Of the last look that heard everybody."""
        return ShardTotals.summed(self._totals)

    async def look(self, is_busy: bool, is_elsewhere: Callable[[], bool]) -> Fault | None:
        """*is_busy*: this worker has something to do, so the end need not be looked for.
        *is_elsewhere*: something waits in a feed, or with a worker that is only beginning. Returns
        what was in the way."""
        asked_at = monotonic()
        if is_busy:
            totals = await self._nodes.commands(self._asks)
            runs = [
                each if isinstance(each, FAULTS) else ShardTotals.of_reply(each).run
                for each in totals
            ]
            fault = self._heard(runs, asked_at)
            if fault is None:
                self._totals = [ShardTotals.of_reply(reply) for reply in totals]
            self.begin_again()
            return fault
        replies = await self._nodes.run(self._looks)
        runs = [each if isinstance(each, FAULTS) else each[0] for each in replies]
        fault = self._heard(runs, asked_at)
        if fault is None:
            self._looked([ShardLook.of_reply(reply) for reply in replies], is_elsewhere())
        return fault

    def _looked(self, shards: Sequence[ShardLook], is_elsewhere: bool) -> None:
        was_over = self.is_over
        self._totals = [each.totals for each in shards]
        self.is_anything_left = any(each.is_anything_left for each in shards)
        self.outboxes = frozenset[str]().union(*(each.outboxes for each in shards))
        self._ending.look(shards, is_elsewhere)
        drifted = [n for n, each in enumerate(shards) if each.totals.unfinished]
        if self.is_over and not was_over and drifted:
            logger.warning(
                "Nothing is left to fetch, but counters of the frontier say that something is"
                " (shards %s): scrapy frontier check shows what differs, --repair mends it",
                ", ".join(map(str, drifted[:10])),
            )

    def _heard(self, runs: Sequence[Any], asked_at: float) -> Fault | None:
        fault: Fault | None = None
        for shard, run in enumerate(runs):
            if isinstance(run, FAULTS):
                fault = fault or run
            else:
                # Before its totals count: it may have forgotten what we are about to tell again.
                self._runs.heard(shard, run, asked_at)
        return fault


# What is in the way, told in the log: once when it begins, and once when it is over.
#
# Rule: a trouble is over when it was not met for a while. What is met every half second is one.

OVER_S: Final = 3.0
"""Each server is asked once a second, and each call tried again twice as often."""


class Troubles:
    def __init__(self, steady: Callable[[], float] = monotonic) -> None:
        self._steady = steady
        self._met_at: dict[str, float] = {}  # by their kind
        self._looked_at = steady()

    def meet(self, kind: str, text: str) -> None:
        """*kind*: what of it is told once, whatever its *text*."""
        if kind not in self._met_at:
            logger.warning("Waiting: %s", text)
        self._met_at[kind] = self._steady()

    def look(self) -> None:
        """To be called about once a second."""
        steady = self._steady()
        if steady - self._looked_at > OVER_S / 2:  # we stood still, and met nothing for that alone
            self._met_at = dict.fromkeys(self._met_at, steady)
        self._looked_at = steady
        for kind, met_at in list(self._met_at.items()):
            if steady - met_at > OVER_S:
                del self._met_at[kind]
                logger.info("Going on: %s", kind)


# What a shared frontier is told when it begins, and who hears of what comes later.


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRules:
    name: str  # of the crawl
    shards: int
    lease_s: float
    heartbeat_s: float
    fetch_s: float  # the longest fetch
    most_leases: int  # fetched at once
    is_sure: bool  # what a server acknowledges is on its disk
    # Makes what the outbox took survive a power cut at this worker, in a thread. None: it may not.
    sync_outbox: Callable[[], None] | None = None
    full_bytes: Callable[[int], int | None]  # of a server's maxmemory: where it is full


class Listener(Protocol):
    def count(self, key: str) -> None: ...

    def added(self, added: Added) -> None: ...

    def refused(self, lease: Lease) -> None: ...

    def lost(self, leases: Sequence[Lease]) -> None: ...

    def failed(self, error: CrawlerError) -> None: ...


# What the person who crawls hears of the shared frontier: what is waited for, and what ends the
# crawl.
#
# Rule: what waiting mends is told once, and the crawl waits; what no waiting mends ends it.


class StatusLog:
    def __init__(self, listener: Listener, name: str) -> None:
        """*name*: of the crawl."""
        self.is_hopeless = False
        self._listener = listener
        self._name = name
        self._troubles = Troubles()

    def failed(self, error: CrawlerError) -> None:
        """No waiting mends it."""
        self.is_hopeless = True
        self._listener.failed(error)

    def faulted(self, fault: CrawlerError) -> None:
        """Of a server."""
        if isinstance(fault, StoreUnavailable):
            self._troubles.meet("the servers of the frontier answer", str(fault))
        else:
            self.failed(fault)

    def crowded(self, full: StoreUnavailable) -> None:
        """A server has no memory for our links."""
        self._troubles.meet("the servers of the frontier take links", str(full))

    def paused(self, full: StoreUnavailable) -> None:
        """Nor has our disk room for them."""
        self._troubles.meet(
            "there is room on this worker's disk",
            f"no room for links on this worker's disk: {full}",
        )

    def disk_full(self, full: StoreUnavailable) -> None:
        """Nor for pages."""
        self._troubles.meet(
            "there is room on this worker's disk",
            f"no room on this worker's disk, so nothing is fetched: {full}",
        )

    def awaits(self, outboxes: Mapping[str, int]) -> None:
        """*outboxes*: links on the disks of silent workers. Nothing else keeps the crawl from its
        end."""
        for name, links in outboxes.items():
            self._troubles.meet(
                f"there is word of the worker {name}, or nobody waits for it any more",
                f"nothing is left to fetch but what the worker {name} found ({links} links on its"
                " disk), and it is not heard of. Start it again with its data directory; if its"
                f" disk is lost: scrapy frontier workers --forget {name}",
            )

    def gone(self, shard: int) -> None:
        """Its keys are not there any more."""
        self.failed(
            ForeignData(
                f"Redis has lost the crawl: the key {keys.totals(self._name, shard)} is not there"
                " any more. Somebody removed it, or maxmemory-policy made Redis do so. Begin"
                " another crawl"
            )
        )

    def lost(self, leases: Sequence[Lease]) -> None:
        """They ended before they were finished."""
        logger.warning(
            "Leases that ended before they were finished, now given to others: %d", len(leases)
        )
        self._listener.lost(leases)

    def look(self) -> None:
        """To be called now and then: is something over?"""
        self._troubles.look()


# Whether our own disk has room for what is fetched.
#
# Rule: where it has none the crawl waits, and holds its leases; at its end it waits no more.

FULL_S: Final = 2.0  # so long after a write that was refused nothing is leased


class WorkerDisk:
    def __init__(self, tidings: StatusLog) -> None:
        self._tidings = tidings
        self._full_at = float("-inf")  # monotonic
        self._is_ending = False

    @property
    def is_full(self) -> bool:
        return monotonic() - self._full_at < FULL_S

    def wait_for_room(self, full: StoreUnavailable) -> bool:
        """It has no room for what was fetched: nothing more is leased for a moment, and the
        leases that are held are renewed. Returns whether to try again: not at the end."""
        self._full_at = monotonic()
        self._tidings.disk_full(full)
        return not self._is_ending and not self._tidings.is_hopeless

    def ending(self) -> None:
        """Nothing waits for room from now on."""
        self._is_ending = True


# Which servers are full: above their high-water mark new links wait on the workers' disks.

LOW_PART: Final = 0.95  # of the mark: below it links flow again, so that it does not flutter


class Fullness:
    def __init__(self, nodes: Nodes, full_bytes: Callable[[int], int | None]) -> None:
        self._nodes = nodes
        self._full_bytes = full_bytes
        self._full: set[str] = set()

    @property
    def full(self) -> list[OutOfMemory]:
        """What is to be said of each."""
        return [
            OutOfMemory(
                f"Redis at {node} is above its high-water mark (CRAWLER_REDIS_MAX_BYTES). New links"
                " wait on the disk of the workers"
            )
            for node in sorted(self._full)
        ]

    def is_full(self, shard: int) -> bool:
        """O(1)."""
        return bool(self._full) and self._nodes.node_of(shard) in self._full

    async def look(self) -> None:
        """Ask each server; one that does not answer stays as it was. Raises Refused."""
        memories = await self._nodes.memory()
        refuse_eviction(memories)
        for node, memory in memories.items():
            mark = self._full_bytes(memory.max_bytes)
            if mark is not None and memory.used_bytes >= mark:
                self._full.add(node)
            elif mark is None or memory.used_bytes < LOW_PART * mark:
                self._full.discard(node)


def refuse_eviction(memories: Mapping[str, Memory]) -> None:
    """Raises Refused: a server would throw away what is known, and nobody would notice. Only what
    expires (volatile-*) may go: hints, of which none is needed."""
    for node, memory in memories.items():
        if memory.max_bytes and memory.policy.startswith("allkeys"):
            raise Refused(
                f"Redis at {node} has the maxmemory-policy {memory.policy}: when its memory is full"
                " it would throw parts of the crawl away. Set maxmemory-policy noeviction"
            )

"""Is the crawl over? When nothing waits, nothing is leased, and nothing is anywhere else.

Rule: the queues of all shards are looked at, never their counters: one that drifted would end a
crawl early, or never. Shards are looked at one after the other, and a URL can pass from one that is
still to be looked at into one that was. So two looks must find nothing and agree on how much was
ever added. Links on a worker's disk are noted in a shard, in any: no look misses it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import xxhash

from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.totals import Totals


@dataclass(frozen=True, slots=True)
class Look:
    """At one shard."""

    is_anything_left: bool  # a URL that waits, has a later date, or is leased
    totals: Totals
    outboxes: frozenset[str]  # workers that have links on their own disks

    @classmethod
    def of_reply(cls, reply: Sequence[Any]) -> Self:
        """As the script `look` gives it."""
        _, left, totals, outboxes = reply
        names = frozenset(each.decode("utf-8", "replace") for each in outboxes)
        return cls(left == 1, Totals.of_reply(totals), names)


class Ending:
    def __init__(self) -> None:
        self._adds: int | None = None  # in the last look, if it found nothing
        self.is_over = False

    def look(self, shards: Sequence[Look], is_elsewhere: bool) -> None:
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


class Nodes(Protocol):
    def node_of(self, shard: int) -> str: ...

    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


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

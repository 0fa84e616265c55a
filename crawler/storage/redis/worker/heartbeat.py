"""The heartbeat: all leases that a worker holds are renewed, shard by shard.

Rule: so slow storage expires nothing; only a worker that is not heard of loses its leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Any, Final, Protocol

from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.worker.holdings import Holdings
from crawler.storage.redis.worker.incoming import Incoming
from crawler.storage.redis.worker.runs import Runs

AGAIN_S: Final = 1.0  # after one that was not heard


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


class Heartbeat:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        incoming: Incoming,
        runs: Runs,
        every_s: float,
    ) -> None:
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._incoming = incoming
        self._runs = runs
        self._every_s = every_s
        self._at = 0.0  # of the next, monotonic

    async def work(self) -> None:
        """For ever: until cancelled. On its own, so that no hanging server delays it more than a
        reply may take."""
        while True:
            await self.beat()
            await asyncio.sleep(max(0.0, self._at - monotonic()))

    async def beat(self) -> None:
        """If it is time for one."""
        asked_at = monotonic()
        if asked_at < self._at:
            return
        shards = self._holdings.shards()
        replies = await self._nodes.run([self._ops.beat(shard) for shard in shards])
        for shard, reply in zip(shards, replies, strict=True):
            if isinstance(reply, FAULTS):
                self._incoming.suspect(shard)  # it may have told us of an end
            else:
                self._runs.heard(shard, reply[0], asked_at)
                self._answered(shard, bool(reply[1]), int(reply[2]), asked_at)
        is_whole = not any(isinstance(reply, FAULTS) for reply in replies)
        self._at = asked_at + (self._every_s if is_whole else AGAIN_S)
        if len(self._incoming):
            self._incoming.on_due()  # what could not be begun in time may be now

    def _answered(self, shard: int, has_lost: bool, held: int, asked_at: float) -> None:
        """*held*: leases of ours that the shard knows."""
        if has_lost:
            self._incoming.lose(shard, asked_at)
            return
        self._holdings.renew(shard, asked_at)
        if held > self._holdings.count(shard):
            self._incoming.suspect(shard)

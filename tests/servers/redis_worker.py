"""One worker's connection to a shared crawl, and what it tells: sent when a test says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from crawler.scheduler.rules import FrontierRules
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.connection.nodes import Nodes
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.scripts import Scripts

NAME: Final = "t"
SHARDS: Final = 8
LEASE_S: Final = 100.0
# A server that is down is found out before a test is too long.
SOON: Final = "?socket_timeout=1&socket_connect_timeout=1"


class RedisWorker:
    def __init__(self, url: str, session: str) -> None:
        opening = (0.0, LEASE_S, keys.SCHEMA)
        self.nodes = Nodes(Address.parse(f"{url}{SOON}"), Scripts(), NAME, SHARDS, opening)
        self.ops = Ops(session, SHARDS, FrontierRules(), LEASE_S)
        self.tells: list[Call] = []
        self.counted: Counter[str] = Counter()
        self.asked: list[Call] = []

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.asked += calls
        return await self.nodes.run(calls)

    def tell(self, call: Call) -> None:
        self.tells.append(call)

    def count(self, figure: str) -> None:
        self.counted[figure] += 1

    async def flush(self) -> None:
        """What it was told is told; what no server takes remains."""
        calls, self.tells = self.tells, []
        replies = await self.nodes.run(calls) if calls else []
        faulted = zip(calls, replies, strict=True)
        self.tells = [call for call, reply in faulted if isinstance(reply, FAULTS)] + self.tells


Worker = TypeVar("Worker", bound=RedisWorker)


@asynccontextmanager
async def redis_worker(url: str, session: str, kind: type[Worker]) -> AsyncIterator[Worker]:
    worker = kind(url, session)
    try:
        await worker.nodes.open()
        yield worker
    finally:
        await worker.nodes.close()

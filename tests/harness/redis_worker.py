"""The connections of workers to a shared crawl; calls that are gathered are sent when a test
flushes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

from crawler.shared.address import Address
from crawler.shared.client import Call, Nodes
from crawler.shared.contents import ContentCalls
from crawler.shared.faults import FAULTS
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.worker.batcher import ShardClient

NAME: Final = "t"
SHARDS: Final = 8
# On a busy machine an answer may take long, and no test is about that.
PATIENT: Final = "?socket_timeout=60&socket_connect_timeout=60"
# But for those in which a server stands still: it is found out before they are too long.
IMPATIENT: Final = "?socket_timeout=2&socket_connect_timeout=2"
MOMENT_S: Final = 0.15


class RedisWorker:
    def __init__(self, url: str, session: str) -> None:
        """*url* also has the time-outs."""
        self.nodes = Nodes(Address.parse(url), OwnedScripts(), NAME, SHARDS)
        self.contents = ContentCalls(session, SHARDS)
        self.unsent: list[Call] = []
        self.counted: Counter[str] = Counter()
        self.asked: list[Call] = []
        self.is_full: Callable[[int], bool] = lambda _: False  # whether a shard's server is

    def link(self) -> ShardClient:
        return ShardClient(
            contents=self.contents,
            run=self.run,
            send_later=self.send_later,
            is_full=lambda shard: self.is_full(shard),
            count=self.count,
        )

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.asked += calls
        return await self.nodes.run(calls)

    def send_later(self, call: Call) -> None:
        self.unsent.append(call)

    def count(self, figure: str) -> None:
        self.counted[figure] += 1

    async def flush(self) -> None:
        """Send what was gathered; calls that no server takes remain."""
        calls, self.unsent = self.unsent, []
        replies = await self.nodes.run(calls) if calls else []
        faulted = zip(calls, replies, strict=True)
        self.unsent = [call for call, reply in faulted if isinstance(reply, FAULTS)] + self.unsent


Worker = TypeVar("Worker", bound=RedisWorker)


@asynccontextmanager
async def redis_workers(
    url: str, kind: type[Worker], count: int = 2, patience: str = PATIENT
) -> AsyncIterator[list[Worker]]:
    """*count* workers of one crawl; their sessions are s0, s1..."""
    async with AsyncExitStack() as stack:
        workers = []
        for number in range(count):
            worker = kind(url + patience, f"s{number}")
            stack.push_async_callback(worker.nodes.close)
            await worker.nodes.open()
            workers.append(worker)
        yield workers


async def soon(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start *coroutine* and let it run for a moment."""
    task = asyncio.create_task(coroutine)
    await asyncio.wait({task}, timeout=MOMENT_S)
    return task

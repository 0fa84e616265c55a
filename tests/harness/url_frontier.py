"""A server of the URL Frontier protocol, and calls of it as a foreign client makes them.

Rule: server and client share an event loop, and time stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
import pytest

from bench.urlfrontier_dict import DictCrawls
from crawler.data.data_dir import DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.frontier.port import FrontierLimits
from crawler.model.types import CrawlerError
from crawler.urlfrontier import urlfrontier_pb2 as pb
from crawler.urlfrontier import urlfrontier_pb2_grpc as rpc
from crawler.urlfrontier.client import command, discovered, known, url_info
from crawler.urlfrontier.frontier_crawls import FrontierCrawls
from crawler.urlfrontier.port import Crawls
from crawler.urlfrontier.server import FrontierServer, ServerAccess

T = TypeVar("T")
BEGIN: Final = 1_800_000_000.0
IMPLEMENTATIONS: Final[dict[str, Callable[[Any], Crawls]]] = {
    "dict": lambda _: DictCrawls(),
    "frontier": lambda folder: frontier_crawls(folder),
}
"""What keeps the URLs, by name, of a folder for its files."""


def frontier_crawls(
    folder: Path | DataDir, clock: Callable[[], float] = lambda: BEGIN
) -> FrontierCrawls:
    """Return our own frontiers in *folder*. An error after which nothing can be kept is raised."""
    data = folder if isinstance(folder, DataDir) else DataDir(folder)

    def fail(error: CrawlerError) -> None:
        raise error

    room = DiskRoom(WaitWarnings(), str(data.path), lambda: False)
    return FrontierCrawls(data, FrontierLimits(), clock, room, fail)


OK, SKIPPED, FAIL = range(3)
_numbers = count(1)


class StandingClock:
    """Epoch seconds, which a test moves."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


class ServedFrontier:
    """A server and a channel to it. Calls are by their names in the protocol."""

    def __init__(self, loop: asyncio.AbstractEventLoop, crawls: Crawls) -> None:
        self._loop = loop
        self.clock = StandingClock()
        self.crawls = crawls
        self.server = FrontierServer(crawls, ServerAccess(), self.clock)
        self.port = self.run(self.server.start("127.0.0.1", 0))
        self.channel = self.run(_opened(self.port))
        self.stub: Any = rpc.URLFrontierStub(self.channel)
        self.crawl = "DEFAULT"

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(30):
                return await call

        return self._loop.run_until_complete(bounded())

    def begin_crawl(self) -> None:
        """Use a crawlID of its own, at a time of its own."""
        self.crawl = f"crawl-{next(_numbers)}"
        self.clock.now += 1_000

    def now(self) -> int:
        return int(self.clock.now)

    def call(self, name: str, request: Any) -> Any:
        """Return the answer of a call, or the list of a stream."""
        return self.run(self.answer(name, request))

    async def answer(self, name: str, request: Any) -> Any:
        call = getattr(self.stub, name)(request)
        return [each async for each in call] if hasattr(call, "__aiter__") else await call

    def refusal(self, name: str, request: Any) -> grpc.StatusCode:
        """Return the status of a call that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            self.call(name, request)
        return refused.value.code()

    def command(self, *arguments: str) -> int:
        """Return the exit status of a command line of our client."""
        return self.run(command(arguments))

    def put(self, *items: pb.URLItem) -> list[int]:
        """Put items by one stream, and return their statuses."""
        return [ack.status for ack in self.acks(*items)]

    def acks(self, *items: pb.URLItem) -> list[pb.AckMessage]:
        return self.run(self.stream("PutURLs", items))

    def put_batches(self, *batches: pb.DiscoveredBatch) -> list[pb.BatchAck]:
        return self.run(self.stream("PutDiscovered", batches))

    async def stream(self, name: str, messages: Any) -> list[Any]:
        """Send *messages*, and return the acknowledgements."""
        call = getattr(self.stub, name)()
        for message in messages:
            await call.write(message)
        await call.done_writing()
        return [ack async for ack in call]

    def info(self, url: str, key: str = "", **metadata: str) -> pb.URLInfo:
        texts = {name: [text] for name, text in metadata.items()}
        return url_info(url, key=key, metadata=texts, crawl_id=self.crawl)

    def discover(self, *urls: str, key: str = "") -> list[int]:
        return self.put(*[discovered(self.info(url, key)) for url in urls])

    def update(self, url: str, refetch_at: int = 0, key: str = "") -> int:
        return self.put(known(self.info(url, key), refetch_at))[0]

    def get(
        self, key: str = "", per_queue: int = 0, queues: int = 0, lease_s: int = 30
    ) -> list[str]:
        return [
            info.url for info in self.call("GetURLs", self.params(key, per_queue, queues, lease_s))
        ]

    def params(
        self, key: str = "", per_queue: int = 0, queues: int = 0, lease_s: int = 30
    ) -> pb.GetParams:
        return pb.GetParams(
            key=key,
            max_urls_per_queue=per_queue,
            max_queues=queues,
            delay_requestable=lease_s,
            crawlID=self.crawl,
        )

    def status(self, url: str, key: str = "") -> pb.URLItem:
        request = pb.URLStatusRequest(url=url, key=key, crawlID=self.crawl)
        item: pb.URLItem = self.call("GetURLStatus", request)
        return item

    def stats(self, key: str = "") -> pb.Stats:
        request = pb.QueueWithinCrawlParams(key=key, crawlID=self.crawl)
        stats: pb.Stats = self.call("GetStats", request)
        return stats

    def listed(self, **given: Any) -> list[str]:
        items = self.call("ListURLs", pb.ListUrlParams(crawlID=self.crawl, **given))
        return [item.known.info.url for item in items]

    def count(self, **given: Any) -> int:
        request = pb.CountUrlParams(crawlID=self.crawl, **given)
        return int(self.call("CountURLs", request).value)

    def queues(self, **given: Any) -> pb.QueueList:
        found: pb.QueueList = self.call("ListQueues", pb.Pagination(crawlID=self.crawl, **given))
        return found

    def set_delay(self, delay_s: int, key: str = "") -> None:
        request = pb.QueueDelayParams(key=key, delay_requestable=delay_s, crawlID=self.crawl)
        self.call("SetDelay", request)

    def block(self, key: str, until: int) -> None:
        self.call("BlockQueueUntil", pb.BlockQueueParams(key=key, time=until, crawlID=self.crawl))

    def set_limit(self, key: str, limit: int) -> None:
        request = pb.CrawlLimitParams(key=key, limit=limit, crawlID=self.crawl)
        self.call("SetCrawlLimit", request)

    def delete_queue(self, key: str) -> int:
        request = pb.QueueWithinCrawlParams(key=key, crawlID=self.crawl)
        return int(self.call("DeleteQueue", request).value)

    def delete_crawl(self, crawl: str) -> int:
        return int(self.call("DeleteCrawl", pb.DeleteCrawlMessage(value=crawl)).value)


async def _opened(port: int) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")


@contextmanager
def served_frontier(crawls: Crawls) -> Iterator[ServedFrontier]:
    loop = asyncio.new_event_loop()
    try:
        served = ServedFrontier(loop, crawls)
        yield served
        served.run(served.channel.close())
        served.run(served.server.stop(0))
        served.run(crawls.close())
    finally:
        loop.close()

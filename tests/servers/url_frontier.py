"""A URL Frontier over a dict, in a thread, which a test may stop, start again and look into."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from bench.urlfrontier_dict import DictCrawls
from crawler.urlfrontier.client import FrontierClient, metadata_of
from crawler.urlfrontier.port import Crawls
from crawler.urlfrontier.server import FrontierServer, ServerAccess

T = TypeVar("T")
NAME = "gossamer"  # the crawlID of a crawl that is given no name


class UrlFrontier:
    """Serves *crawls* on a port of loopback."""

    def __init__(self, crawls: Crawls | None = None, access: ServerAccess | None = None) -> None:
        self.crawls = crawls or DictCrawls()
        self.port = 0
        self._access = access
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: FrontierServer | None = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self) -> None:
        self._server = FrontierServer(self.crawls, self._access)
        self.port = self._run(self._server.start("127.0.0.1", self.port))

    def stop(self) -> None:
        """End all calls at once."""
        if self._server is not None:
            self._run(self._server.stop(0.0))
        self._server = None

    def look(self, read: Callable[[Crawls], T]) -> T:
        """Return what *read* does with the crawls, between two calls."""

        async def looked() -> T:
            return read(self.crawls)

        return self._run(looked())

    def book(self) -> dict[str, tuple[int, dict[str, list[str]]]]:
        """Return the date and the metadata of each URL, as a client lists them."""

        async def listed() -> dict[str, tuple[int, dict[str, list[str]]]]:
            async with FrontierClient(self.url, crawl_id=NAME) as client:
                items = [item.known async for item in client.list_urls()]
            return {
                each.info.url: (each.refetchable_from_date, metadata_of(each.info))
                for each in items
            }

        return self._run(listed())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

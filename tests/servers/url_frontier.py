"""A URL Frontier in a process of its own, as a user serves it, that can be killed and started
again."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self, TypeVar

from crawler.urlfrontier.client import FrontierClient, metadata_of
from tests.harness.fork_server import ForkedProcess, running

T = TypeVar("T")
NAME: Final = "gossamer"  # the crawlID of a crawl that is given no name


class UrlFrontier:
    """Serves on a port of loopback what it has in *folder*."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"grpc://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: ForkedProcess | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def start(self) -> None:
        command = [sys.executable, "-m", "scrapy", "frontier", "serve", f"127.0.0.1:{self.port}"]
        command += ["-s", f"CRAWLER_DATA_DIR={self._folder}"]
        log = self._folder.with_suffix(".log")
        self._process = self._running.enter_context(running(command, log))

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def ask(self, ask: Callable[[FrontierClient], Awaitable[T]]) -> T:
        """Return what *ask* does as another client."""

        async def asked() -> T:
            async with FrontierClient(self.url, crawl_id=NAME) as client:
                return await ask(client)

        return asyncio.run(asked())

    def book(self) -> dict[str, tuple[int, dict[str, list[str]]]]:
        """Return the date and the metadata of each URL."""

        async def listed(client: FrontierClient) -> dict[str, tuple[int, dict[str, list[str]]]]:
            items = [item.known async for item in client.list_urls()]
            return {
                each.info.url: (each.refetchable_from_date, metadata_of(each.info))
                for each in items
            }

        return self.ask(listed)

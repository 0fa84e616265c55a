"""The console of a crawl that runs: its operators see it and act on it through HTTP.

Rule: what serves it is imported and made when CRAWLER_HTTP asks for it, or at the first connection
to the socket in the data directory: 0.2 s of CPU that most crawls do not need.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawler.assembly.build import crawl_of
from crawler.console.connections import (
    BACKLOG,
    ConnectionLimit,
    LimitedConnection,
    ProtocolFactory,
)
from crawler.crawl.interactive import is_interactive
from crawler.frontier.rocks_store import OnlookersStore
from crawler.model.types import ConfigError
from crawler.operate.acts import FrontierActs, queues_and_store
from crawler.operate.client import SOCKET
from crawler.operate.metrics import measure_loop

if TYPE_CHECKING:
    from crawler.console.server import ApiServer
    from crawler.inspect.frontier_view import FrontierView
    from crawler.operate.operator import OperatorStore

logger = logging.getLogger(__name__)


class Console:
    """The extension that serves the console of a crawl."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if is_interactive(crawler.settings):
            raise NotConfigured
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._acts: FrontierActs | None = None
        self._store: OperatorStore | None = None
        self._server: ApiServer | None = None
        self._socket: CommandSocket | None = None
        self._making: asyncio.Task[ProtocolFactory] | None = None  # for the socket
        self._working: asyncio.Future[None] | None = None
        self._measuring: asyncio.Future[None] | None = None
        crawler.signals.connect(self._open, signals.spider_opened)
        crawler.signals.connect(self._close, signals.spider_closed)

    async def _open(self) -> None:
        """Listen, and carry out what was asked for before. A crawl goes on without its socket."""
        crawl = crawl_of(self._crawler)
        queues, self._store = queues_and_store(crawl)
        self._acts = FrontierActs(crawl, queues, self._store)
        self._working = asyncio.ensure_future(self._acts.work())
        self._measuring = asyncio.ensure_future(measure_loop(crawl.stats.loop_s))
        config = crawl.settings.config.operator
        try:
            self._socket = CommandSocket(crawl.storage.data.path, self._protocol_factory)
            await self._socket.open()
            if config.http:
                from crawler.console.server import read_tokens  # noqa: PLC0415  # see the rule

                tokens = config.http_tokens
                await self._made_server().open_port(
                    *_address_of(config.http), read_tokens(Path(tokens)) if tokens else {}
                )
        except (OSError, ConfigError) as refused:
            logger.warning("Commands and requests cannot reach this crawl: %s", refused)

    async def _protocol_factory(self, limit: ConnectionLimit) -> ProtocolFactory:
        if self._making is None:
            self._making = asyncio.ensure_future(self._made_server().protocol_factory(limit))
        return await asyncio.shield(self._making)

    def _made_server(self) -> ApiServer:
        """Return the server, made at the first call."""
        if self._server is not None:
            return self._server
        from crawler.console.live import LiveFigures  # noqa: PLC0415  # see the rule
        from crawler.console.server import ApiServer, Served  # noqa: PLC0415  # the same
        from crawler.console.views import Shown  # noqa: PLC0415  # the same
        from crawler.inspect.frontier_view import (  # noqa: PLC0415  # the same
            LocalFrontierView,
            frontier_of,
            known_urls,
        )
        from crawler.operate.metrics import exposition_of  # noqa: PLC0415  # the same
        from crawler.operate.operator import Operator  # noqa: PLC0415  # the same

        crawl, acts, store = crawl_of(self._crawler), self._acts, self._store
        assert acts is not None and store is not None and self._crawler.spider is not None  # open
        config, data = crawl.settings.config, crawl.storage.data.path
        settings, live = self._crawler.settings, LiveFigures(crawl, self._crawler.spider.name)
        frontier: FrontierView
        if crawl.leases.embedded is None:
            frontier = frontier_of(settings, config)
        else:  # to open it another time would hold the interpreter, for 40 ms at 1e7 URLs
            frontier = LocalFrontierView(data, config, OnlookersStore(crawl.storage.store))
        levels, now = len(config.frontier.level_shares), crawl.leases.clock.now
        known = partial(known_urls, frontier, config)
        operator = Operator(store, levels, now, acts.count, acts.put_back, acts.take, known)
        served = Served(
            act=operator.act,
            shown=Shown(frontier, config, settings, data),
            overview=live.overview,
            events=live.events,
            metrics=exposition_of(crawl),
            failure=lambda: crawl.lifecycle.failure,
        )
        self._server = ApiServer(data, served)
        return self._server

    async def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._server is not None:
            await self._server.close()
        for task in (self._making, self._working, self._measuring):
            if task is not None:
                task.cancel()


class CommandSocket:
    """The socket in the data directory. A connection waits until what serves it is made."""

    def __init__(
        self,
        data: Path,
        factory: Callable[[ConnectionLimit], Awaitable[ProtocolFactory]],
        limit: ConnectionLimit | None = None,
    ) -> None:
        """*data*: the data directory, which this process has locked. *factory* is called at each
        connection."""
        self._data = data
        self._factory = factory
        self._limit = limit or ConnectionLimit()
        self._listening: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. Raises OSError."""
        listening = _bound(self._data)
        self._listening = await asyncio.get_running_loop().create_unix_server(
            lambda: LimitedConnection(self._limit, lambda: self._factory(self._limit)),
            sock=listening,
            backlog=BACKLOG,
        )

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            (self._data / SOCKET).unlink(missing_ok=True)


def _bound(data: Path) -> socket.socket:
    """Return a socket that listens in the data directory. Raises OSError."""
    (data / SOCKET).unlink(missing_ok=True)  # of a process that is dead, for the directory is ours
    # A path to a socket has 107 bytes at most; that of the directory is as long as it likes.
    directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.umask(before)
    finally:
        os.close(directory)
    return listening


def _address_of(written: str) -> tuple[str, int]:
    """Return host and port of CRAWLER_HTTP."""
    host, _, port = written.rpartition(":")
    return host, int(port)

"""How operators steer a crawl that runs: its rules, their acts, and where they ask for them. It is
on in every crawl, also in one without a console.

Rule: what serves requests is imported and made when CRAWLER_HTTP asks for it, or at the first
connection to the socket in the data directory: 0.2 s of CPU that most crawls do not need.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.crawler import Crawler

from crawler.assembly.crawl import Crawl
from crawler.data import snapshots
from crawler.model.types import ConfigError, DataDirError
from crawler.operate.acts import FrontierActs
from crawler.operate.connections import CommandSocket, ConnectionLimit, ProtocolFactory
from crawler.operate.live_rules import LiveRules
from crawler.operate.metrics import exposition_of, measure_loop
from crawler.operate.operator import Operator
from crawler.view.place import place_within

if TYPE_CHECKING:
    from aiohttp import web

    from crawler.operate.server import ApiServer

logger = logging.getLogger(__name__)


class Pages(ABC):
    """An extension that shows pages of the crawl beside the verbs."""

    @abstractmethod
    def add_to(self, app: web.Application) -> None:
        """Add them to *app*, and their description to DESCRIBED in it."""

    @abstractmethod
    async def close(self) -> None:
        """End what reads the crawl."""


class Steering:
    """Carries out what the operators of one crawl ask for, from its start to its end."""

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawler = crawler
        self._crawl = crawl
        self._rules = LiveRules(crawl)
        self._acts = FrontierActs(crawl, place_within(crawl, crawler.settings), self._rules)
        self._socket = CommandSocket(crawl.storage.data.path, self._protocol_factory)
        self._pages: Pages | None = None
        self._server: ApiServer | None = None
        self._making: asyncio.Future[ProtocolFactory] | None = None  # for the socket
        self._acting: list[asyncio.Future[None]] = []
        self._listening: list[asyncio.Future[None]] = []
        self._is_ending = False

    def begin(self) -> None:
        """Carry out what was asked for before, and listen, when the event loop runs."""
        self._acting = [
            asyncio.ensure_future(self._rules.work()),
            asyncio.ensure_future(self._acts.work()),
        ]
        self._listening = [
            asyncio.ensure_future(measure_loop(self._crawl.stats.loop_s)),
            asyncio.ensure_future(self._listen()),
        ]

    def stop_acting(self) -> None:
        """Begin nothing more in the frontier, which is closed next: the next start does it."""
        self._is_ending = True
        for task in self._acting:
            task.cancel()

    async def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        if self._server is not None:
            await self._server.close()
        if self._pages is not None:
            await self._pages.close()
        for task in (self._making, *self._listening):
            if task is not None:
                task.cancel()

    async def _listen(self) -> None:
        """Listen on the socket, and on the port. A crawl goes on without them."""
        config, data = self._crawl.settings.config.operator, self._crawl.storage.data.path
        try:
            await asyncio.to_thread(snapshots.is_snapshot_wanted, data)  # what dead commands left
            await self._socket.open()
            if config.http:
                from crawler.operate.server import read_tokens  # noqa: PLC0415  # see the rule

                tokens = config.http_tokens
                await self._made_server().open_port(
                    *_address_of(config.http), read_tokens(Path(tokens)) if tokens else {}
                )
        except (OSError, ConfigError) as refused:
            logger.warning("Commands and requests cannot reach this crawl: %s", refused)

    async def _freeze(self, folder: str) -> None:
        """Copy this moment to *folder* of the data directory, for a command that waits for it."""
        embedded, data = self._crawl.leases.embedded, self._crawl.storage.data.path
        if embedded is None:
            raise ConfigError("the frontier of this crawl is not in its data directory")
        if self._is_ending:
            raise DataDirError("the crawl is ending: try again")
        copy = partial(snapshots.freeze, data, self._crawl.storage.store, folder)
        await embedded.work.run_alone(copy)
        # If the command has died meanwhile, this removes the folder.
        is_wanted = await asyncio.to_thread(snapshots.is_snapshot_wanted, data)
        logger.info("Snapshot of this moment: %s", "made" if is_wanted else "not wanted any more")

    async def _protocol_factory(self, limit: ConnectionLimit) -> ProtocolFactory:
        if self._making is None:
            self._making = asyncio.ensure_future(self._made_server().protocol_factory(limit))
        return await asyncio.shield(self._making)

    def _made_server(self) -> ApiServer:
        """Return the server, made at the first call."""
        if self._server is not None:
            return self._server
        from crawler.operate.server import ApiServer, Served, application  # noqa: PLC0415  # see the rule

        crawl = self._crawl
        self._pages = self._crawler.get_extension(Pages)  # type: ignore[type-abstract]  # a subclass of it
        levels = len(crawl.settings.config.frontier.level_shares)
        operator = Operator(crawl.operator_store, levels, crawl.leases.clock.now, self._acts)
        served = Served(
            act=operator.act,
            metrics=exposition_of(crawl),
            failure=lambda: crawl.lifecycle.failure,
            freeze=self._freeze,
            add_pages=None if self._pages is None else self._pages.add_to,
        )
        what = "HTTP API" if self._pages is None else "console"
        self._server = ApiServer(partial(application, served), what, crawl.storage.data.path)
        return self._server


def _address_of(written: str) -> tuple[str, int]:
    """Return host and port of CRAWLER_HTTP."""
    host, _, port = written.rpartition(":")
    return host, int(port)

"""What `scrapy frontier serve` does: serve frontiers to other crawlers by the URL Frontier
protocol, until it is stopped.

Rule: the data directory is locked by it, and nothing is fetched.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scrapy.settings import BaseSettings, Settings
from scrapy.utils.log import configure_logging

from crawler.assembly.build import data_dir
from crawler.config.settings import Config
from crawler.data.data_dir import FORMAT_FILE, SERVED, DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.frontier.open import frontier_limits
from crawler.model.clock import Clock
from crawler.model.types import ConfigError, CrawlerError, DataDirError
from crawler.operate.server import ApiServer, metrics_application, read_tokens
from crawler.report.messages import open_closed_outputs
from crawler.urlfrontier.frontier_crawls import FrontierCrawls, latest_time
from crawler.urlfrontier.server import FrontierServer, ServerAccess
from crawler.view.formats import many

ADDRESS: Final = "127.0.0.1:7071"
_GRACE_S: Final = 2.0  # for calls that are open at the end


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Where the frontier is served, and how."""

    address: str
    certificate: Path | None = None
    key: Path | None = None
    metrics: str | None = None


def host_and_port(given: str, option: str) -> tuple[str, int]:
    """Read HOST:PORT. Raises ConfigError."""
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 1 << 16):
        raise ConfigError(f"{option} takes HOST:PORT, such as {ADDRESS}, not {given!r}")
    return host, int(port)


def serve(settings: BaseSettings, config: Config, options: ServeOptions) -> None:
    """Serve until SIGINT or SIGTERM. Raises CrawlerError."""
    host, port = host_and_port(options.address, "serve")
    metrics = host_and_port(options.metrics, "--metrics") if options.metrics else None
    tokens = config.operator.http_tokens
    named = read_tokens(Path(tokens)) if tokens else {}
    open_closed_outputs()
    configure_logging(Settings(settings))
    data = _open(data_dir(settings, config))
    try:
        asyncio.run(_Serving(data, config, options, named).run((host, port), metrics))
    finally:
        data.close()


def _open(path: Path) -> DataDir:
    if (path / FORMAT_FILE).exists() and not (path / SERVED).exists():
        raise DataDirError(
            f"{path} holds a crawl: what is served to other crawlers has a data directory of its"
            " own, such as -s CRAWLER_DATA_DIR=served-data"
        )
    return DataDir(path)


class _Serving:
    """One run of the server."""

    def __init__(
        self, data: DataDir, config: Config, options: ServeOptions, tokens: Mapping[str, str]
    ) -> None:
        self._data, self._config = data, config
        self._access = ServerAccess(tokens, options.certificate, options.key)
        self._failure: CrawlerError | None = None
        self._stopped = asyncio.Event()

    async def run(self, address: tuple[str, int], metrics: tuple[str, int] | None) -> None:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stopped.set)
        warnings = WaitWarnings()
        room = DiskRoom(warnings, str(self._data.path), self._stopped.is_set)
        clock = Clock(time.time, time.monotonic, latest_time(self._data))
        limits = frontier_limits(self._config)
        crawls = FrontierCrawls(self._data, limits, clock.now, room, self._fail)
        server = FrontierServer(crawls, self._access, clock.now)
        scraped = ApiServer(metrics_application(server.metrics), "page of metrics")
        try:
            taken = await server.start(*address)
            if metrics is not None:
                await scraped.open_port(*metrics, self._access.tokens)
            names = crawls.names()
            served = many(len(names), "crawl")
            print(f"Serving {served} of other crawlers: grpc://{address[0]}:{taken}", flush=True)
            await self._stopped.wait()
        finally:
            await server.stop(_GRACE_S)
            await crawls.close()
            await scraped.close()
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: CrawlerError) -> None:
        self._failure = self._failure or error
        self._stopped.set()

"""What `scrapy frontier serve` does: serve frontiers to other crawlers by the URL Frontier
protocol, until it is stopped. Where workers share a crawl, it is one of them, and serves its
shards.

Rule: the data directory is locked by it, and nothing is fetched.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.exceptions import DontCloseSpider
from scrapy.settings import BaseSettings, Settings
from scrapy.utils.log import configure_logging

from crawler.assembly.build import crawl_of, data_dir
from crawler.assembly.crawl import Crawl
from crawler.cli.crawl import CrawlRun
from crawler.config.settings import Config
from crawler.data.data_dir import FORMAT_FILE, SERVED, DataDir
from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.frontier.open import frontier_limits
from crawler.model.choices import HostUnit
from crawler.model.clock import Clock
from crawler.model.types import ConfigError, CrawlerError, DataDirError
from crawler.operate.server import ApiServer, metrics_application, read_tokens
from crawler.report.messages import open_closed_outputs
from crawler.shared.address import redis_address
from crawler.spiders.web import WebSpider
from crawler.urlfrontier.frontier_crawls import FrontierCrawls, latest_time
from crawler.urlfrontier.port import Crawls
from crawler.urlfrontier.served_shards import ServedShards, ShardCrawls
from crawler.urlfrontier.server import FrontierServer, ServerAccess
from crawler.view.formats import many

ADDRESS: Final = "127.0.0.1:7071"
_GRACE_S: Final = 2.0  # for calls that are open at the end
_LOOK_S: Final = 0.1  # between two looks whether all seeds are known


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


class _Ports:
    """The ports of a server, and how long they are open."""

    def __init__(self, config: Config, options: ServeOptions) -> None:
        """Raises ConfigError."""
        self._address = host_and_port(options.address, "serve")
        self._metrics = host_and_port(options.metrics, "--metrics") if options.metrics else None
        tokens = config.operator.http_tokens
        named = read_tokens(Path(tokens)) if tokens else {}
        self._access = ServerAccess(named, options.certificate, options.key)
        self._access.credentials(self._address[0])  # raises what would end the server

    @asynccontextmanager
    async def serving(
        self, crawls: Crawls, now: Callable[[], float], what: str
    ) -> AsyncIterator[None]:
        """Serve *crawls*, and print *what* that is, and where. Raises ConfigError."""
        server = FrontierServer(crawls, self._access, now)
        scraped = ApiServer(metrics_application(server.metrics), "page of metrics")
        try:
            taken = await server.start(*self._address)
            if self._metrics is not None:
                await scraped.open_port(*self._metrics, self._access.tokens)
            print(f"Serving {what}: grpc://{self._address[0]}:{taken}", flush=True)
            yield
        finally:
            await server.stop(_GRACE_S)
            await scraped.close()


def serve(
    settings: BaseSettings, config: Config, options: ServeOptions, arguments: Sequence[str] = ()
) -> int:
    """Serve until SIGINT or SIGTERM, and return the exit status. *arguments*: of the spider `web`,
    NAME=VALUE, if workers share the crawl. Raises CrawlerError."""
    ports = _Ports(config, options)
    if config.shared.url_frontier:
        raise ConfigError(
            "CRAWLER_FRONTIER_URL is a URL Frontier: other crawlers ask it themselves"
        )
    if redis_address(settings, config) is not None:
        if config.politeness.host_unit is HostUnit.ADDRESS:
            raise ConfigError(
                "CRAWLER_HOST_UNIT=address: other crawlers look names up themselves, so hosts of"
                " one address cannot wait for each other"
            )
        return _ServingWorker(Settings(settings), arguments, ports).serve()
    if arguments:
        raise ConfigError("serve takes -a only where workers share a crawl: CRAWLER_FRONTIER_URL")
    open_closed_outputs()
    configure_logging(Settings(settings))
    data = _open(data_dir(settings, config))
    try:
        asyncio.run(_Serving(data, config).run(ports))
    finally:
        data.close()
    return 0


class ServingSpider(WebSpider):
    """The spider of a worker whose URLs other crawlers fetch."""

    fetches = False

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Self:
        spider = super().from_crawler(crawler, *args, **kwargs)
        if spider.arguments.has_rounds:
            raise ConfigError(
                "rounds count what our workers fetch: other crawlers cannot be served in them"
            )
        return spider


class _ServingWorker(CrawlRun):
    """A worker of a shared crawl, which serves its shards, and stays when the crawl is over: other
    crawlers may find more."""

    def __init__(self, settings: Settings, spider_arguments: Sequence[str], ports: _Ports) -> None:
        super().__init__(settings, spider_arguments)
        self._ports, self._process = ports, AsyncCrawlerProcess(settings)
        self._stopping = asyncio.Event()
        self._serving: asyncio.Future[None] | None = None

    def serve(self) -> int:
        return self.run(self._process, self._made_crawler, argparse.Namespace(spargs={}))

    def _made_crawler(self) -> Crawler:
        crawler = self._process.create_crawler(ServingSpider)
        crawler.signals.connect(self._stay, signals.spider_idle)
        crawler.signals.connect(self._stop_serving, signals.spider_closed)
        return crawler

    def _stay(self) -> None:
        raise DontCloseSpider

    async def _started(self, sender: Crawler) -> None:
        await super()._started(sender)
        crawl = crawl_of(sender)
        crawl.lifecycle.call_at_stop(self._stopping.set)
        self._serving = asyncio.ensure_future(self._serve(crawl))

    async def _serve(self, crawl: Crawl) -> None:
        worker = crawl.leases.shared
        assert worker is not None, "its frontier is shared"
        served = ServedShards(
            *(worker, crawl.selection.allowed_origins),
            crawl.settings.config.politeness.min_delay_s,
            lambda: crawl.lifecycle.is_stopping,
        )
        while not (crawl.selection.allowed_origins.is_complete or self._stopping.is_set()):
            await asyncio.sleep(_LOOK_S)  # until the scope is known nothing can be judged
        what = "shards of the crawl to other crawlers"
        try:
            async with self._ports.serving(ShardCrawls(served), crawl.leases.clock.now, what):
                await self._stopping.wait()
        except CrawlerError as error:
            crawl.lifecycle.fail(error)
        except OSError as error:  # what is printed cannot be written
            crawl.lifecycle.fail(ConfigError(f"nothing is served: {error}"))

    async def _stop_serving(self) -> None:
        if self._serving is not None:
            await self._serving


def _open(path: Path) -> DataDir:
    if (path / FORMAT_FILE).exists() and not (path / SERVED).exists():
        raise DataDirError(
            f"{path} holds a crawl: what is served to other crawlers has a data directory of its"
            " own, such as -s CRAWLER_DATA_DIR=served-data"
        )
    return DataDir(path)


class _Serving:
    """One run of the server of frontiers in a data directory."""

    def __init__(self, data: DataDir, config: Config) -> None:
        self._data, self._config = data, config
        self._failure: CrawlerError | None = None
        self._stopped = asyncio.Event()

    async def run(self, ports: _Ports) -> None:
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, self._stopped.set)
        warnings = WaitWarnings()
        room = DiskRoom(warnings, str(self._data.path), self._stopped.is_set)
        clock = Clock(time.time, time.monotonic, latest_time(self._data))
        limits = frontier_limits(self._config)
        crawls = FrontierCrawls(self._data, limits, clock.now, room, self._fail)
        try:
            what = f"{many(len(crawls.names()), 'crawl')} of other crawlers"
            async with ports.serving(crawls, clock.now, what):
                await self._stopped.wait()
        finally:
            await crawls.close()
        if self._failure is not None:
            raise self._failure

    def _fail(self, error: CrawlerError) -> None:
        self._failure = self._failure or error
        self._stopped.set()

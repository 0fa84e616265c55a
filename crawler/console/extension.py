"""The console of a crawl that runs: its operators see it and act on it through HTTP."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Self

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from crawler.assembly.build import crawl_of
from crawler.console.live import LiveFigures
from crawler.console.server import ApiServer, Served, read_tokens
from crawler.console.views import Shown
from crawler.crawl.interactive import is_interactive
from crawler.frontier.rocks_store import OnlookersStore
from crawler.inspect.frontier_view import FrontierView, LocalFrontierView, frontier_of
from crawler.model.types import ConfigError
from crawler.operate.acts import FrontierActs, queues_and_store
from crawler.operate.metrics import exposition_of, measure_loop
from crawler.operate.operator import Operator

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
        self._server: ApiServer | None = None
        self._working: asyncio.Future[None] | None = None
        self._measuring: asyncio.Future[None] | None = None
        crawler.signals.connect(self._open, signals.spider_opened)
        crawler.signals.connect(self._close, signals.spider_closed)

    async def _open(self, spider: Spider) -> None:
        """Listen, and carry out what was asked for before. A crawl goes on without its socket."""
        crawl = crawl_of(self._crawler)
        config, data = crawl.settings.config, crawl.storage.data.path
        queues, store = queues_and_store(crawl)
        acts = FrontierActs(crawl, queues, store)
        levels, now = len(config.frontier.level_shares), crawl.leases.clock.now
        operator = Operator(store, levels, now, acts.count, acts.put_back, acts.take)
        self._working = asyncio.ensure_future(acts.work())
        settings, live = self._crawler.settings, LiveFigures(crawl, spider.name)
        frontier: FrontierView
        if crawl.leases.embedded is None:
            frontier = frontier_of(settings, config)
        else:  # to open it another time would hold the interpreter, for 40 ms at 1e7 URLs
            frontier = LocalFrontierView(data, config, OnlookersStore(crawl.storage.store))
        shown = Shown(frontier, config, settings, data)
        self._measuring = asyncio.ensure_future(measure_loop(crawl.stats.loop_s))
        served = Served(
            act=operator.act,
            shown=shown,
            overview=live.overview,
            events=live.events,
            metrics=exposition_of(crawl),
            failure=lambda: crawl.lifecycle.failure,
        )
        self._server = ApiServer(data, served)
        try:
            await self._server.open_socket()
            if config.operator.http:
                tokens = config.operator.http_tokens
                await self._server.open_port(
                    *_address_of(config.operator.http), read_tokens(Path(tokens)) if tokens else {}
                )
        except (OSError, ConfigError) as refused:
            logger.warning("Commands and requests cannot reach this crawl: %s", refused)

    async def _close(self) -> None:
        if self._server is not None:
            await self._server.close()
        for task in (self._working, self._measuring):
            if task is not None:
                task.cancel()


def _address_of(written: str) -> tuple[str, int]:
    """Return host and port of CRAWLER_HTTP."""
    host, _, port = written.rpartition(":")
    return host, int(port)

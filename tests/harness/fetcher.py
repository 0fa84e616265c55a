"""Fetch with our download handler, in a separate process, and report the result of each fetch.

Rule: only our handler, resolver and decoder are installed, so what is seen is theirs. A JSON
list of crawls is read from stdin; one JSON object for each fetch is written to stdout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from hashlib import sha1
from typing import Any, Final

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.http import Response
from scrapy.settings.default_settings import (
    DOWNLOAD_HANDLERS_BASE,
    DOWNLOADER_MIDDLEWARES_BASE,
    SPIDER_MIDDLEWARES_BASE,
)
from scrapy.utils.asyncio import call_later
from twisted.python.failure import Failure

from crawler.download.handler import FetchHandler
from crawler.download.network import NetworkFetch
from crawler.download.port import Fetched, FetchWatch, WireRequest
from crawler.download.resolver import (
    AresLookup,
    LookupFailed,
    Resolver,
)
from crawler.download.watch import WatchParts
from crawler.engine.errors import error_of
from crawler.engine.request_meta import LEASE
from crawler.loop.life import Life
from crawler.middlewares.decode import DecodeMiddleware
from crawler.model.choices import Tls
from crawler.model.page import DownloadOptions, Exchange, ResolvedName
from tests.harness.body_memory import Leases, Memory

CAP_BYTES: Final = 2_000_000
ADMITTED: Final = "127.0.0.1"
OF_THE_PROCESS: Final = {"TWISTED_REACTOR_ENABLED", "ASYNCIO_EVENT_LOOP", "LOG_LEVEL"}
EXCHANGES: Final[dict[str, Exchange]] = {}
MEMORY: Final = Memory()
NAMES: Final = {
    "inside.example": ("127.0.0.2",),
    "two.example": ("127.0.0.2", "127.0.0.1"),
    "gone.example": (),
    "late.example": ("127.0.0.1",),
}
ASKED: Final[set[str]] = set()
"""Names that were looked up: a lease of that name has ended meanwhile."""


class Names(AresLookup):
    """A lookup of few names; localhost is looked up by the real name server."""

    async def __call__(self, name: str) -> ResolvedName:
        if name == "localhost":
            return await super().__call__(name)
        ASKED.add(name)
        if name not in NAMES:
            raise LookupFailed(None, f"no answer about {name}")
        return ResolvedName(NAMES[name], 60.0)


def options(tls: str, keepalive_s: float) -> DownloadOptions:
    return DownloadOptions(
        cap=lambda content_type, url: CAP_BYTES,
        admits=lambda ip, host, port: ip == ADMITTED,
        tls=Tls(tls),
        connect_timeout_s=4.0,
        total_timeout_s=4.0,
        keepalive_s=keepalive_s,
    )


class EndingLeases(Leases):
    """A lease has ended when the name in its request's meta was looked up."""

    def may_send(self, life: Life) -> bool:
        request = life.requests[-1]
        assert isinstance(request, Request)
        return request.meta[LEASE] not in ASKED


class RecordingFetch(NetworkFetch):
    """It keeps the exchanges of all requests, most of which have no leases."""

    async def fetch(self, request: WireRequest, watch: FetchWatch) -> Fetched:
        fetched = await super().fetch(request, watch)
        EXCHANGES[request.url] = fetched.exchanges[-1]
        return fetched


class Handler(FetchHandler):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Handler:
        chosen = options(crawler.settings["TLS"], crawler.settings["KEEPALIVE_S"])
        port = RecordingFetch(chosen, Resolver(chosen.admits, Names()))
        return cls(crawler, port, WatchParts(crawler, chosen, EndingLeases(MEMORY.lives), MEMORY))

    async def download_request(self, request: Request) -> Response:
        if LEASE in request.meta:
            MEMORY.lives.hand_out(MEMORY.leased(1)[1], request)
        return await super().download_request(request)


class Decode(DecodeMiddleware):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Decode:
        assert crawler.stats
        return cls(options("strict", 4.0), crawler.stats, MEMORY, MEMORY.lives)


class Fetches(Spider):
    name = "fetches"
    fetches: list[dict[str, Any]]
    is_cancelled = False

    async def start(self) -> AsyncIterator[Request]:
        if self.is_cancelled:
            self.cancel_when_under_way()
        for fetch in self.fetches:
            yield Request(callback=self.page, errback=self.error, dont_filter=True, **fetch)

    def cancel_when_under_way(self) -> None:
        assert self.crawler.engine
        transfers = []
        for handler in self.crawler.engine.downloader.handlers._handlers.values():
            assert isinstance(handler, Handler)
            transfers.append(handler.transfers)
        if not any(map(len, transfers)):
            call_later(0.05, self.cancel_when_under_way)
            return
        for each in transfers:
            each.cancel_all()

    def page(self, response: Response, name: str) -> None:
        assert response.request
        exchange = EXCHANGES.pop(response.request.url, None)
        assert exchange, "a page without its exchange"
        report(
            name=name,
            outcome="page",
            status=response.status,
            kind=type(response).__name__,
            flags=sorted(map(str, response.flags)),
            body=response.body[:200].decode("latin-1"),
            size=len(response.body),
            digest=sha1(response.body).hexdigest(),
            wire_bytes=len(exchange.head) + len(exchange.body),
            truncated=exchange.truncated,
            status_line=exchange.status_line.decode("latin-1"),
            headers=[
                f"{key.decode('latin-1')}={value.decode('latin-1')}"
                for key, value in exchange.headers[:5]
            ],
            request_line=exchange.request_line.decode("ascii"),
            request_headers={k.decode().lower(): v.decode() for k, v in exchange.request_headers},
            ip=exchange.ip,
            tls=exchange.tls,
        )

    def error(self, failure: Failure) -> None:
        error = failure.value
        assert error is not None
        request: Request = failure.request  # type: ignore[attr-defined]  # Scrapy adds it
        word = error_of(error, is_of_handler=True) or type(error).__name__
        report(name=request.cb_kwargs["name"], outcome=word, text=str(error)[:200])


def report(**row: Any) -> None:
    print(json.dumps(row), flush=True)


def settings(tls: str = "strict", keepalive_s: float = 4.0, **more: Any) -> dict[str, Any]:
    ours = {"http": Handler, "https": Handler}
    return {
        "TLS": tls,
        "KEEPALIVE_S": keepalive_s,
        "TWISTED_REACTOR_ENABLED": False,
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "DOWNLOAD_HANDLERS": {**dict.fromkeys(DOWNLOAD_HANDLERS_BASE), **ours},
        "DOWNLOADER_MIDDLEWARES": {**dict.fromkeys(DOWNLOADER_MIDDLEWARES_BASE), Decode: 590},
        "SPIDER_MIDDLEWARES": dict.fromkeys(SPIDER_MIDDLEWARES_BASE),
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "LOG_LEVEL": "WARNING",
        **more,
    }


def main() -> None:
    # Only these: the settings of a process count before those of its crawlers.
    common = {key: value for key, value in settings().items() if key in OF_THE_PROCESS}
    process = AsyncCrawlerProcess(common)
    for crawl in json.load(sys.stdin):
        chosen = settings(**crawl.pop("settings", {}))
        process.crawl(Crawler(Fetches, chosen), **crawl)
    process.start()


if __name__ == "__main__":
    main()

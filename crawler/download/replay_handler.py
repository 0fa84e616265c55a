"""A download handler that answers from WARC files (CRAWLER_REPLAY), without the network.

Rule: a URL that is not archived fails, is counted and is not retried. Only a missing robots.txt is
answered, by a 404, as our archives hold none. Files are read on the loop: 1 ms a page.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final, Self
from urllib.parse import urlsplit

from msgspec.structs import replace
from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError, IgnoreRequest, NotConfigured
from scrapy.http import Response

from crawler.archive.replay import Replay
from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.download.body import BodyReader, headers_of
from crawler.download.http_head import BadHead, HeadGate
from crawler.model.page import Exchange, head_fields
from crawler.model.types import DataDirError

_ROBOTS: Final = "/robots.txt"
_NO_ROBOTS: Final = b"HTTP/1.1 404 Not archived\r\nX-Crawler-Replay: missing\r\n\r\n"
_PIECE_BYTES: Final = 64 * 1024  # as much as a socket gives at once


class NotArchived(IgnoreRequest):
    """The WARC files have no answer to the request. It is not retried."""


class ReplayHandler(BaseDownloadHandler):
    """http and https."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        crawl = crawl_of(crawler)
        if crawl.fetching.replay is None:
            raise NotConfigured("CRAWLER_REPLAY is not set")
        return cls(crawler, crawl, crawl.fetching.replay)

    def __init__(self, crawler: Crawler, crawl: Crawl, recorded: Replay) -> None:
        super().__init__(crawler)
        options = crawl.download_options()
        self._head_max_bytes = options.head_max_bytes
        self._body_reader = BodyReader(
            crawler,
            options,
            crawl.loop.lives,
            crawl.fetching.body_memory,
            crawl.loop.slots,
        )
        self._crawl = crawl
        self._replay = recorded

    async def download_request(self, request: Request) -> Response:
        return await self._body_reader.with_timeout(request, self._answer)

    async def _answer(self, request: Request, limit: asyncio.Timeout) -> Response:
        begun = time.monotonic()
        exchange = self._found(request)
        head = self._mended(exchange)
        headers = headers_of(head_fields(head))
        pieces = _pieces(exchange.body)
        room = self._body_reader.max_body_bytes(request, headers, len(exchange.head))
        kept = await self._body_reader.read_body(request, headers, room, pieces, limit)
        request.meta["download_latency"] = time.monotonic() - begun
        truncated = kept.truncated or exchange.truncated
        return self._body_reader.response(
            request,
            replace(exchange, body=kept.body, truncated=truncated),
            status=int(head[9:12]),
            headers=headers,
            stop=kept.stop,
        )

    def _found(self, request: Request) -> Exchange:
        try:
            found = self._replay.find(request.url, request.method, request.body)
        except DataDirError as damaged:
            self._crawl.lifecycle.fail(damaged)
            raise
        if found is not None:
            self._count("answered")
            return found
        if urlsplit(request.url).path == _ROBOTS:
            return Exchange(
                url=request.url,
                at=time.time(),
                duration_s=0.0,
                request_head=b"",
                head=_NO_ROBOTS,
                body=b"",
                ip="",
            )
        self._count("missing")
        raise NotArchived(f"CRAWLER_REPLAY has no answer of {request.method} {request.url}")

    def _count(self, what: str) -> None:
        self._crawl.stats.count(f"replay/{what}")

    def _mended(self, exchange: Exchange) -> bytes:
        gate = HeadGate(self._head_max_bytes)
        try:
            gate.feed(exchange.head)
        except BadHead as bad:
            raise DownloadFailedError(f"{exchange.url}: {bad}") from bad
        if gate.head is None:
            raise DownloadFailedError(f"{exchange.url}: its head is not whole")
        return gate.head.clean


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _PIECE_BYTES):
        yield body[begin : begin + _PIECE_BYTES]

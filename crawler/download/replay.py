"""Answer from WARC files (CRAWLER_REPLAY), without the network.

Rule: a URL that is not archived fails, is counted and is not retried. Only a missing robots.txt is
answered, by a 404, as our archives hold none. Files are read on the loop: 1 ms a page.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace
from scrapy.exceptions import DownloadFailedError, IgnoreRequest

from crawler.archive.replay import Replay
from crawler.download.http_head import AnswerHead, BadHead, HeadGate
from crawler.download.port import Fetched, FetchWatch, WireRequest
from crawler.model.page import Exchange
from crawler.model.types import DataDirError

_ROBOTS: Final = "/robots.txt"
_NO_ROBOTS: Final = b"HTTP/1.1 404 Not archived\r\nX-Crawler-Replay: missing\r\n\r\n"
_PIECE_BYTES: Final = 64 * 1024  # as much as a socket gives at once


class NotArchived(IgnoreRequest):
    """The WARC files have no answer to the request. It is not retried."""


class ReplayFetch:
    """Answers from the archives of an earlier crawl. Implements port.FetchPort."""

    def __init__(
        self,
        recorded: Replay,
        head_max_bytes: int,
        count: Callable[[str], None],
        fail: Callable[[DataDirError], None],
    ) -> None:
        """*fail* is called for a file that cannot be read, which ends the crawl."""
        self._recorded = recorded
        self._head_max_bytes = head_max_bytes
        self._count = count
        self._fail = fail

    async def fetch(self, request: WireRequest, watch: FetchWatch) -> Fetched:
        exchange = self._found(request)
        head = self._head(exchange)
        kept = await watch.keep(_pieces(exchange.body), watch.room(head))
        truncated = kept.truncated or exchange.truncated
        exchange = replace(exchange, body=kept.body, truncated=truncated)
        return Fetched(exchanges=(exchange,), head=head)

    async def close(self) -> None:
        """Nothing is open."""

    def _found(self, request: WireRequest) -> Exchange:
        try:
            found = self._recorded.find(request.url, request.method, request.body)
        except DataDirError as damaged:
            self._fail(damaged)
            raise
        if found is not None:
            self._count("replay/answered")
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
        self._count("replay/missing")
        raise NotArchived(f"CRAWLER_REPLAY has no answer of {request.method} {request.url}")

    def _head(self, exchange: Exchange) -> AnswerHead:
        gate = HeadGate(self._head_max_bytes)
        try:
            gate.feed(exchange.head)
        except BadHead as bad:
            raise DownloadFailedError(f"{exchange.url}: {bad}") from bad
        if gate.head is None:
            raise DownloadFailedError(f"{exchange.url}: its head is not whole")
        return gate.head


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for begin in range(0, len(body), _PIECE_BYTES):
        yield body[begin : begin + _PIECE_BYTES]

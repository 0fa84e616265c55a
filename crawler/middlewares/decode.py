"""What a page says, from what was sent: asks for compressed answers and undoes them.

Rule: replaces Scrapy's HttpCompressionMiddleware, at its place (590). A body that grows over
the cap is cut, not dropped, and `Response.flags` says what was done to it. The bytes as sent
stay in the `Exchange`, and count in memory beside those that are made of them.
"""

from __future__ import annotations

from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.responsetypes import responsetypes
from scrapy.statscollectors import StatsCollector

from crawler.assembly.build import crawl_of
from crawler.crawl.body_memory import (
    FREE_BYTES,
    BodyMemory,
    BodyShare,
)
from crawler.model.page import DownloadOptions, Flag
from crawler.policy.encodings import (
    Decoded,
    codings_of,
    decoded,
)

ACCEPTED: Final = b"gzip, deflate, br, zstd"


class DecodeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        assert crawler.stats is not None  # it has them before its middlewares
        crawl = crawl_of(crawler)
        return cls(crawl.download_options(), crawler.stats, crawl.fetching.body_memory)

    def __init__(self, options: DownloadOptions, stats: StatsCollector, memory: BodyMemory) -> None:
        self._options = options
        self._stats = stats
        self._memory = memory

    def process_request(self, request: Request) -> None:
        request.headers.setdefault(b"Accept-Encoding", ACCEPTED)

    async def process_response(self, request: Request, response: Response) -> Response:
        values = response.headers.getlist(b"Content-Encoding")
        if not values or request.method == "HEAD":
            return response
        asked: int | None = request.meta.get("download_maxsize")
        room = self._options.room(response.headers.get(b"Content-Type"), response.url, asked)
        share = self._memory.share_of(request)
        result = await self._decoded(share, response.body, codings_of(values), room)
        for flag in result.flags:
            self._stats.inc_value(f"decode/{flag}")
        if Flag.UNDECODED not in result.flags:
            del response.headers[b"Content-Encoding"]
        self._stats.inc_value("decode/response_count")
        self._stats.inc_value("decode/response_bytes", len(result.body))
        return _with_body(response, result.body, [*response.flags, *result.flags])

    async def _decoded(
        self, share: BodyShare, body: bytes, codings: list[bytes], room: int
    ) -> Decoded:
        """What it grows to nobody knows before: where there is no room for the most, it waits,
        unless it turns out to be small."""
        allowed = room if self._memory.has_room(share, room) else min(room, FREE_BYTES)
        made = decoded(body, codings, allowed)
        if allowed < room and Flag.DECODED_LENGTH in made.flags:
            await self._memory.turn(share, room)
            made = decoded(body, codings, room)
        if made.body is not body:
            self._memory.add(share, len(made.body))
        return made


def _with_body(response: Response, body: bytes, flags: list[str]) -> Response:
    """As Scrapy would have made it, had it come so."""
    cls = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    if issubclass(cls, TextResponse):
        return response.replace(cls=cls, body=body, flags=flags, encoding=None)
    return response.replace(cls=cls, body=body, flags=flags)

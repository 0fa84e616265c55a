"""Ask for compressed answers and decode them, in place of Scrapy's HttpCompressionMiddleware (590).

Rule: a body that decodes to more than its limit is cut, not dropped, and `Response.flags` has it.
The bytes as sent stay in the `Exchange`; they and the decoded ones count in `BodyMemory`.
"""

from __future__ import annotations

from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.responsetypes import responsetypes
from scrapy.statscollectors import StatsCollector

from crawler.assembly.build import crawl_of
from crawler.content.body_memory import (
    FREE_BYTES,
    BodyMemory,
    BodyShare,
)
from crawler.loop.life import Lives
from crawler.model.page import DownloadOptions, Flag
from crawler.page.encodings import (
    DecodedBody,
    codings_of,
    undo_codings,
)

ACCEPTED: Final = b"gzip, deflate, br, zstd"


class DecodeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        assert crawler.stats is not None  # Scrapy sets them before it builds middlewares
        crawl = crawl_of(crawler)
        options, memory = crawl.download_options(), crawl.fetching.body_memory
        return cls(options, crawler.stats, memory, crawl.loop.lives)

    def __init__(
        self, options: DownloadOptions, stats: StatsCollector, memory: BodyMemory, lives: Lives
    ) -> None:
        self._options = options
        self._stats = stats
        self._memory = memory
        self._lives = lives

    def process_request(self, request: Request) -> None:
        request.headers.setdefault(b"Accept-Encoding", ACCEPTED)

    async def process_response(self, request: Request, response: Response) -> Response:
        values = response.headers.getlist(b"Content-Encoding")
        if not values or request.method == "HEAD":
            return response
        wanted: int | None = request.meta.get("download_maxsize")
        room = self._options.max_bytes(response.headers.get(b"Content-Type"), response.url, wanted)
        share = self._memory.share_of(self._lives.of(request))
        result = await self._decode(share, response.body, codings_of(values), room)
        for flag in result.flags:
            self._stats.inc_value(f"decode/{flag}")
        if Flag.UNDECODED not in result.flags:
            del response.headers[b"Content-Encoding"]
        self._stats.inc_value("decode/response_count")
        self._stats.inc_value("decode/response_bytes", len(result.body))
        return _with_body(response, result.body, [*response.flags, *result.flags])

    async def _decode(
        self, share: BodyShare, body: bytes, codings: list[bytes], max_bytes: int
    ) -> DecodedBody:
        """Decode *body*. As its decoded size is not known before, it waits where memory lacks room
        for the maximum, unless it turns out to be small."""
        allowed = (
            max_bytes if self._memory.has_room(share, max_bytes) else min(max_bytes, FREE_BYTES)
        )
        result = undo_codings(body, codings, allowed)
        if allowed < max_bytes and Flag.DECODED_LENGTH in result.flags:
            await self._memory.wait_for_room(share, max_bytes)
            result = undo_codings(body, codings, max_bytes)
        if result.body is not body:
            self._memory.add(share, len(result.body))
        return result


def _with_body(response: Response, body: bytes, flags: list[str]) -> Response:
    """Return the response that Scrapy would make of *body*, had it been sent uncompressed."""
    cls = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    if issubclass(cls, TextResponse):
        return response.replace(cls=cls, body=body, flags=flags, encoding=None)
    return response.replace(cls=cls, body=body, flags=flags)

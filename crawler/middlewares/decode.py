"""What a page says, from what was sent: asks for compressed answers and undoes them.

Rule: replaces Scrapy's HttpCompressionMiddleware, at its place (590). A body that grows over
the cap is cut, not dropped, and `Response.flags` says what was done to it. The bytes as sent
stay in the `Exchange`.
"""

from __future__ import annotations

from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response, TextResponse
from scrapy.responsetypes import responsetypes
from scrapy.statscollectors import StatsCollector

from crawler.core.exchange import DownloadOptions, Flag
from crawler.policy.codings import codings_of, decoded
from crawler.wiring import parts_of

ACCEPTED: Final = b"gzip, deflate, br, zstd"


class DecodeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        assert crawler.stats is not None  # it has them before its middlewares
        return cls(parts_of(crawler).download_options(), crawler.stats)

    def __init__(self, options: DownloadOptions, stats: StatsCollector) -> None:
        self._options = options
        self._stats = stats

    def process_request(self, request: Request) -> None:
        request.headers.setdefault(b"Accept-Encoding", ACCEPTED)

    def process_response(self, request: Request, response: Response) -> Response:
        values = response.headers.getlist(b"Content-Encoding")
        if not values or request.method == "HEAD":
            return response
        asked: int | None = request.meta.get("download_maxsize")
        room = self._options.room(response.headers.get(b"Content-Type"), response.url, asked)
        result = decoded(response.body, codings_of(values), room)
        for flag in result.flags:
            self._stats.inc_value(f"decode/{flag}")
        if Flag.UNDECODED not in result.flags:
            del response.headers[b"Content-Encoding"]
        self._stats.inc_value("decode/response_count")
        self._stats.inc_value("decode/response_bytes", len(result.body))
        return _with_body(response, result.body, [*response.flags, *result.flags])


def _with_body(response: Response, body: bytes, flags: list[str]) -> Response:
    """As Scrapy would have made it, had it come so."""
    cls = responsetypes.from_args(headers=response.headers, url=response.url, body=body)
    if issubclass(cls, TextResponse):
        return response.replace(cls=cls, body=body, flags=flags, encoding=None)
    return response.replace(cls=cls, body=body, flags=flags)

"""Scrapy's aiohttp handler, with a subclass that records each request and answer as sent.

Rule: one request is sent once and makes one `Exchange`. Nothing is queued, delayed or retried here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from typing import ClassVar, Final, Self, TypeVar, cast

import aiohttp
from aiohttp.client_exceptions import ClientConnectorCertificateError, ClientConnectorSSLError
from scrapy import Request
from scrapy.core.downloader.handlers._aiohttp import AiohttpDownloadHandler
from scrapy.core.downloader.handlers._base_streaming import BaseStreamingDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    UnsupportedURLSchemeError,
)
from scrapy.http import Response
from yarl import URL

from crawler.assembly.build import crawl_of
from crawler.crawl.errors import ConnectionDropped, TlsFailed
from crawler.crawl.in_flight import LEASE
from crawler.download.body import BodyReader, headers_of
from crawler.download.connection import (
    MAY_SEND,
    BareRequest,
    WireResponse,
    open_connector,
    ssl_context,
)
from crawler.download.http_head import MAX_LINES
from crawler.download.resolver import AresLookup, Resolver
from crawler.model.page import Exchange

UNASKED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""aiohttp would add these; only the headers of the request are sent."""

FOR_PROXY: Final = "Proxy-Authorization"

READ_AHEAD_BYTES: Final = 32 * 1024
"""At twice as much unread aiohttp stops reading, and the last read may be 256 KB. A body that waits
for memory holds that read twice. (With aiohttp's own 256 KB, 1.2 MB.)"""


T = TypeVar("T")


class Transfers:
    """The fetches under way, so that a stop can cancel them all. O(1) a fetch.

    A cancelled fetch fails with DownloadCancelledError, which is not counted against its host.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()
        self._cancelled: set[asyncio.Task[object]] = set()

    async def run(self, fetch: Awaitable[T]) -> T:
        """Await *fetch* in the present task, which Scrapy gave to this one request."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine that awaits runs in a task"
        self._tasks.add(task)
        try:
            return await fetch
        except asyncio.CancelledError as error:
            if task not in self._cancelled:
                raise
            raise DownloadCancelledError("the crawl stops") from error
        finally:
            self._tasks.discard(task)
            self._cancelled.discard(task)

    def cancel_all(self) -> None:
        """Cancel the fetches under way, but not those that begin later."""
        for task in self._tasks - self._cancelled:
            self._cancelled.add(task)
            task.cancel()

    def __len__(self) -> int:
        return len(self._tasks)


class AiohttpHandler(AiohttpDownloadHandler):
    """The download handler of http and https."""

    experimental: ClassVar[bool] = False  # pinned and tested: no warning in each log

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        crawl = crawl_of(crawler)
        options = crawl.download_options()
        body_reader = BodyReader(
            crawler,
            options,
            crawl.leases.in_flight,
            crawl.fetching.body_memory,
            crawl.fetching.slots,
        )
        resolver = Resolver(options.admits, AresLookup(), on_lookup=crawl.stats.count_lookup)
        handler = cls(crawler, body_reader, resolver)
        crawl.lifecycle.call_at_stop(handler.transfers.cancel_all)
        return handler

    def __init__(self, crawler: Crawler, body_reader: BodyReader, resolver: Resolver) -> None:
        # Not the parent's __init__: it opens a pool with limits and its own resolver.
        BaseStreamingDownloadHandler.__init__(self, crawler)
        self.transfers = Transfers()
        self._options = body_reader.options
        self._body_reader = body_reader
        self._resolver = resolver
        self._tls = ssl_context(body_reader.options.tls)
        # The total time is limited by the keeper, which stops the clock while a body pauses.
        connect_s = body_reader.options.connect_timeout_s
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_s)
        self._session = self._open_session(resolver)
        self._proxied: aiohttp.ClientSession | None = None

    async def download_request(self, request: Request) -> Response:
        return await self.transfers.run(self._body_reader.with_timeout(request, self._fetch))

    async def close(self) -> None:
        self.transfers.cancel_all()
        await self._session.close()
        if self._proxied is not None:
            await self._proxied.close()
        await self._resolver.close()

    async def _fetch(self, request: Request, limit: asyncio.Timeout) -> Response:
        at, start = time.time(), time.monotonic()
        response = await self._send(request)
        async with response:
            request.meta["download_latency"] = time.monotonic() - start
            reading = response.progress
            headers = headers_of(response.raw_headers)
            chunks = response.content.iter_any()
            room = reading.allow(
                self._body_reader.max_body_bytes(request, headers, reading.gate.taken)
            )
            kept = await self._body_reader.read_body(request, headers, room, chunks, limit)
        exchange = Exchange(
            url=request.url,
            at=at,
            duration_s=time.monotonic() - start,
            request_head=_request_head(response.request_info, request),
            request_body=request.body,
            head=reading.gate.raw,
            body=kept.body,
            ip=response.ip,
            tls=response.tls,
            truncated=kept.truncated or reading.cut,
        )
        return self._body_reader.response(
            request,
            exchange,
            status=response.status,
            headers=headers,
            certificate=response.certificate,
            stop=kept.stop,
        )

    async def _send(self, request: Request) -> WireResponse:
        """Send *request* and return when the head of the answer is here."""
        proxy = self._extract_proxy_url_with_creds(request)
        # Not encoded again: the seen test, robots and the archive use the URL in this form.
        url = URL(request.url, encoded=True)
        self._resolver.check_literal(url.raw_host or "", url.port or 0)
        MAY_SEND.set(partial(self._options.begin_or_put_back, request.meta.get(LEASE)))
        try:
            response = await (self._session_via_proxy() if proxy else self._session).request(
                request.method,
                url,
                data=request.body or None,
                headers=_headers_to_send(request),
                timeout=self._timeout,
                ssl=self._tls,
                allow_redirects=False,
                proxy=proxy,
            )
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise _scrapy_error(error, request.url) from error
        return cast(WireResponse, response)

    def _open_session(self, resolver: Resolver) -> aiohttp.ClientSession:
        head_max_bytes = self._options.head_max_bytes
        # The loop of a reactor may not run yet: `CrawlerProcess` and `scrapy shell` build the
        # engine before they start it.
        loop = asyncio.get_event_loop()
        return aiohttp.ClientSession(
            connector=open_connector(
                loop,
                resolver,
                local_address=self._bind_address,
                keepalive_s=self._options.keepalive_s,
                head_max_bytes=head_max_bytes,
            ),
            cookie_jar=aiohttp.DummyCookieJar(loop=loop),
            auto_decompress=False,
            request_class=BareRequest,
            response_class=WireResponse,
            skip_auto_headers=UNASKED_HEADERS,
            read_bufsize=READ_AHEAD_BYTES,
            # HeadGate has limited them; its repairs may make a line a little longer.
            max_line_size=2 * head_max_bytes,
            max_field_size=2 * head_max_bytes,
            max_headers=MAX_LINES,
        )

    def _session_via_proxy(self) -> aiohttp.ClientSession:
        """Return the session whose resolver admits any address: the user chose the proxy's."""
        if self._proxied is None:
            self._proxied = self._open_session(Resolver(lambda ip, host, port: True, AresLookup()))
        return self._proxied


def _headers_to_send(request: Request) -> list[tuple[str, str]]:
    """Return all headers except the proxy's, which `_extract_proxy_url_with_creds` has used."""
    lists = dict.items(request.headers)  # `items` would normalize each name once more
    pairs = ((name.decode(), value.decode()) for name, values in lists for value in values)
    return [pair for pair in pairs if pair[0] != FOR_PROXY]


def _request_head(info: aiohttp.RequestInfo, request: Request) -> bytes:
    """Return the head as aiohttp has written it, without the secret for a proxy."""
    is_for_proxy = info.url.scheme == "http" and request.meta.get("proxy")
    target = str(info.url) if is_for_proxy else info.url.raw_path_qs
    lines = [f"{info.method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in info.headers.items() if name != FOR_PROXY]
    return "\r\n".join((*lines, "", "")).encode("utf-8")


_SCRAPY_ERRORS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
    (TimeoutError, DownloadTimeoutError),
    (aiohttp.InvalidUrlClientError, UnsupportedURLSchemeError),
    (aiohttp.NonHttpUrlClientError, UnsupportedURLSchemeError),
    (aiohttp.ClientConnectorDNSError, CannotResolveHostError),
    (ClientConnectorSSLError, TlsFailed),
    (ClientConnectorCertificateError, TlsFailed),
    (aiohttp.ClientConnectorError, DownloadConnectionRefusedError),
    (aiohttp.ClientConnectionError, ConnectionDropped),
)
"""The first match counts, as aiohttp's errors inherit from each other."""


def _scrapy_error(error: Exception, url: str) -> Exception:
    kinds = (kind for original, kind in _SCRAPY_ERRORS if isinstance(error, original))
    return next(kinds, DownloadFailedError)(f"{url}: {error or type(error).__name__}")

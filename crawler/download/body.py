"""Read the body of an answer within its limits of bytes, time and memory; network and replay alike.

Rule: a body is cut exactly at its limit, and one that ends early keeps its bytes and the reason.
While there is no memory for more of a body, nothing of it is read, so that its server waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from functools import lru_cache
from io import BytesIO
from ipaddress import ip_address
from typing import Final

import msgspec
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.utils._download_handlers import check_stop_download

from crawler.crawl.body_memory import (
    CHECK_INTERVAL_S,
    BodyMemory,
    BodyShare,
)
from crawler.crawl.errors import FetchTimedOut
from crawler.crawl.lifecycle import receivers_of
from crawler.download.http_head import MAX_DIGITS
from crawler.loop.life import Lives
from crawler.loop.slots import Slots
from crawler.model.page import (
    STOPPED,
    DownloadOptions,
    Exchange,
    Truncated,
    header_value,
)

HTTP_1_0: Final = b"HTTP/1.0"


class KeptBody(msgspec.Struct, frozen=True):
    """What was kept of a body. Arrow: wire -> exchange."""

    body: bytes
    truncated: Truncated = Truncated.NO
    stop: StopDownload | None = None  # raised by a user's component


class BodyReader:
    """Reads the bodies of one download handler and makes the responses."""

    def __init__(
        self,
        crawler: Crawler,
        options: DownloadOptions,
        lives: Lives,
        memory: BodyMemory,
        slots: Slots,
    ) -> None:
        self.options = options
        self._crawler = crawler
        self._lives = lives
        self._memory = memory
        self._slots = slots

    def is_leased(self, request: Request) -> bool:
        """Return whether *request* is sent under a lease of the frontier."""
        return self._lives.of(request) is not None

    def timeout_s(self, request: Request) -> float:
        """Return the time from DNS lookup to last byte. A request may ask for less, not for more:
        leases, and the rest of a host whose answer was lost, rely on no longer fetch."""
        wanted: object = request.meta.get("download_timeout")  # JSON, if it was pushed
        total_s = self.options.total_timeout_s
        return wanted if isinstance(wanted, int | float) and 0 < wanted < total_s else total_s

    async def with_timeout(
        self, request: Request, fetch: Callable[[Request, asyncio.Timeout], Awaitable[Response]]
    ) -> Response:
        """Run *fetch* within the time of *request*; it passes its time limit on to `read_body`.
        Raises FetchTimedOut if no head came in time."""
        total_s = self.timeout_s(request)
        progress = self._slots.progress_of(request)
        self._slots.set_waiting(progress, for_host=True)
        try:
            async with asyncio.timeout(total_s) as limit:
                return await fetch(request, limit)
        except TimeoutError as error:
            raise FetchTimedOut(f"{request.url}: no answer in {total_s:g} s") from error
        finally:
            self._slots.set_waiting(progress, for_host=False)

    async def read_body(
        self,
        request: Request,
        headers: Headers,
        room: int,
        chunks: AsyncIterable[bytes],
        limit: asyncio.Timeout,
    ) -> KeptBody:
        """Read a body and keep *room* bytes of it. Handlers of Scrapy's signals may stop it."""
        length = declared_length(headers)
        stop = self._send(signals.headers_received, request, headers=headers, body_length=length)
        if stop:
            return KeptBody(b"", Truncated.UNSPECIFIED, stop)
        kept = BytesIO()
        try:
            why, stop = await self._read(kept, room, request, chunks, limit)
        except asyncio.CancelledError:
            if not limit.expired():
                raise
            why = Truncated.TIME
        return KeptBody(kept.getvalue(), why, stop)

    def response(
        self,
        request: Request,
        exchange: Exchange,
        *,
        status: int,
        headers: Headers,
        certificate: object = None,
        stop: StopDownload | None = None,
    ) -> Response:
        """Make Scrapy's response, and put the exchange on the fetch of its lease, if it has one."""
        body = exchange.body
        url = request.url.partition("#")[0]  # as Scrapy's handlers do
        cls = responsetypes.from_args(headers=headers, url=url, body=body)
        response = cls(
            url,
            status=status,
            body=body,
            flags=[exchange.truncated.flag] if exchange.truncated else [],
            certificate=certificate,
            ip_address=_address(exchange.ip) if exchange.ip else None,
            protocol="HTTP/1.0" if exchange.head.startswith(HTTP_1_0) else "HTTP/1.1",
        )
        response.headers = headers  # handed over: the constructor would copy them, 10 us a page
        if stop:
            _mark_stopped(response, stop)
        life = self._lives.of(request)
        if life is not None:
            life.receive(exchange)
        return response

    async def _read(
        self,
        kept: BytesIO,
        room: int,
        request: Request,
        chunks: AsyncIterable[bytes],
        limit: asyncio.Timeout,
    ) -> tuple[Truncated, StopDownload | None]:
        memory = self._memory
        share, progress = memory.share_of(request), self._slots.progress_of(request)
        async for chunk in chunks:
            progress.received_bytes += len(chunk)
            if not memory.has_room(share, len(chunk)):
                self._slots.set_waiting(progress, for_host=False)
                await self._pause(share, len(chunk), limit)
                self._slots.set_waiting(progress, for_host=True)
            memory.add(share, len(chunk))
            kept.write(chunk)
            if kept.tell() > room:
                kept.truncate(room)
                return Truncated.LENGTH, None
            if stop := self._send(signals.bytes_received, request, data=chunk):
                return Truncated.UNSPECIFIED, stop
        return Truncated.NO, None

    async def _pause(self, share: BodyShare, by_bytes: int, limit: asyncio.Timeout) -> None:
        """Wait for memory, and stop the time limit while the lease is surely ours: in a shared
        crawl no fetch may outlive its lease."""
        now_s = asyncio.get_running_loop().time
        left_s = (limit.when() or now_s()) - now_s()
        # Longer than to the next check.
        pause_s = max(self.options.total_timeout_s, 2 * CHECK_INTERVAL_S)

        def extend_limit() -> None:
            if self._memory.is_lease_safe(share):
                limit.reschedule(now_s() + pause_s)

        await self._memory.wait_for_room(share, by_bytes, extend_limit)
        limit.reschedule(min(limit.when() or now_s(), now_s() + left_s))

    def max_body_bytes(self, request: Request, headers: Headers, head_bytes: int) -> int:
        """Return how many bytes of a body may come, with framing; the head counts against them."""
        wanted: int | None = request.meta.get("download_maxsize")
        room = self.options.max_bytes(header_value(headers, b"Content-Type"), request.url, wanted)
        return max(0, room - head_bytes)

    def _send(self, signal: object, request: Request, **args: object) -> StopDownload | None:
        if not receivers_of(self._crawler.signals, signal):
            return None
        return check_stop_download(signal, self._crawler, request, **args)


_address = lru_cache(maxsize=4096)(ip_address)


def _mark_stopped(response: Response, stop: StopDownload) -> None:
    """Mark the response as Scrapy does for StopDownload, and raise that if it asks to fail."""
    response.flags.append(STOPPED)
    if stop.fail:
        stop.response = response
        raise stop


def headers_of(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return `Headers(fields)`, in a third of the time: that takes 12 us for ten fields."""
    headers = Headers()
    for name, value in fields:
        dict.setdefault(headers, name.title(), []).append(value)
    return headers


def declared_length(headers: Headers) -> int | None:
    """Return the Content-Length, or None if it is missing or no number."""
    value = header_value(headers, b"Content-Length") or b""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None

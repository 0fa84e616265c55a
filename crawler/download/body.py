"""How much of an answer is kept, how long it may take, and where it is kept for the archive.

Rule: the same for the network and a replay, which only bring chunks. A body is cut exactly where
its room ends, and whatever ended it early, its bytes so far are kept with the reason. While there
is no memory for more of it nothing is read, so that its server waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from ipaddress import ip_address
from typing import Final

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadTimeoutError, StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.utils._download_handlers import check_stop_download

from crawler.crawl.body_memory import (
    LOOK_S,
    BodyMemory,
    BodyShare,
)
from crawler.crawl.in_flight import LEASE, InFlight
from crawler.crawl.slots import Slots
from crawler.download.http_head import MAX_DIGITS
from crawler.model.page import (
    STOPPED,
    DownloadOptions,
    Exchange,
    Truncated,
)

HTTP_1_0: Final = b"HTTP/1.0"


@dataclass(frozen=True, slots=True)
class KeptBody:
    """What was kept of a body. Arrow: wire -> exchange."""

    body: bytes
    truncated: Truncated = Truncated.NO
    stop: StopDownload | None = None  # a user's component wanted no more


class BodyKeeper:
    """Of one download handler."""

    def __init__(
        self,
        crawler: Crawler,
        options: DownloadOptions,
        flights: InFlight,
        memory: BodyMemory,
        slots: Slots,
    ) -> None:
        self.options = options
        self._crawler = crawler
        self._flights = flights
        self._memory = memory
        self._slots = slots

    def timeout_s(self, request: Request) -> float:
        """From the lookup of the name to the last byte. A request may ask for less, not for more:
        leases, and the rest of a host whose answer was lost, count on no longer fetch."""
        asked: object = request.meta.get("download_timeout")  # JSON, if it was pushed
        total_s = self.options.total_timeout_s
        return asked if isinstance(asked, int | float) and 0 < asked < total_s else total_s

    async def in_time(
        self, request: Request, fetch: Callable[[Request, asyncio.Timeout], Awaitable[Response]]
    ) -> Response:
        """*fetch* with the time that *request* has, of which `keep` is to hear.
        Raises DownloadTimeoutError: by then there was no head."""
        total_s = self.timeout_s(request)
        progress = self._slots.of(request)
        self._slots.waits(progress, for_host=True)
        try:
            async with asyncio.timeout(total_s) as limit:
                return await fetch(request, limit)
        except TimeoutError as late:
            raise DownloadTimeoutError(f"{request.url}: no answer in {total_s:g} s") from late
        finally:
            self._slots.waits(progress, for_host=False)

    async def keep(
        self,
        request: Request,
        headers: Headers,
        room: int,
        chunks: AsyncIterable[bytes],
        limit: asyncio.Timeout,
    ) -> KeptBody:
        """Read a body, of which *room* bytes are kept. Users' components get Scrapy's two signals,
        and may end it."""
        length = declared_length(headers)
        stop = self._told(signals.headers_received, request, headers=headers, body_length=length)
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
        """What Scrapy gets; the exchange goes onto the flight of its lease, if there is one."""
        body = exchange.body
        cls = responsetypes.from_args(headers=headers, url=request.url, body=body)
        response = cls(
            request.url,
            status=status,
            body=body,
            flags=[exchange.truncated.flag] if exchange.truncated else [],
            certificate=certificate,
            ip_address=_address(exchange.ip) if exchange.ip else None,
            protocol="HTTP/1.0" if exchange.head.startswith(HTTP_1_0) else "HTTP/1.1",
        )
        response.headers = headers  # handed over: the constructor would copy them, 10 us a page
        if stop:
            _stopped(response, stop)
        flight = self._flights.of(request.meta.get(LEASE))
        if flight is not None:
            flight.exchange = exchange
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
        share, progress = memory.share_of(request), self._slots.of(request)
        async for chunk in chunks:
            progress.received_bytes += len(chunk)
            if not memory.has_room(share, len(chunk)):
                self._slots.waits(progress, for_host=False)
                await self._pause(share, len(chunk), limit)
                self._slots.waits(progress, for_host=True)
            memory.add(share, len(chunk))
            kept.write(chunk)
            if kept.tell() > room:
                kept.truncate(room)
                return Truncated.LENGTH, None
            if stop := self._told(signals.bytes_received, request, data=chunk):
                return Truncated.UNSPECIFIED, stop
        return Truncated.NO, None

    async def _pause(self, share: BodyShare, by_bytes: int, limit: asyncio.Timeout) -> None:
        """Its time stands still, as long as its lease surely is ours: in a shared crawl no fetch
        may outlive its lease."""
        now_s = asyncio.get_running_loop().time
        left_s = (limit.when() or now_s()) - now_s()
        pause_s = max(self.options.total_timeout_s, 2 * LOOK_S)  # to the next look at least

        def look() -> None:
            if self._memory.is_ours(share):
                limit.reschedule(now_s() + pause_s)

        await self._memory.turn(share, by_bytes, look)
        limit.reschedule(min(limit.when() or now_s(), now_s() + left_s))

    def room(self, request: Request, headers: Headers, head_bytes: int) -> int:
        """Bytes of a body that are let in, its framing included: what was sent before it counts."""
        asked: int | None = request.meta.get("download_maxsize")
        room = self.options.room(headers.get(b"Content-Type"), request.url, asked)
        return max(0, room - head_bytes)

    def _told(self, signal: object, request: Request, **what: object) -> StopDownload | None:
        return check_stop_download(signal, self._crawler, request, **what)


_address = lru_cache(maxsize=4096)(ip_address)


def _stopped(response: Response, stop: StopDownload) -> None:
    """What Scrapy promises to whoever stops a download."""
    response.flags.append(STOPPED)
    if stop.fail:
        stop.response = response
        raise stop


def headers_of(fields: Iterable[tuple[bytes, bytes]]) -> Headers:
    """`Headers(fields)`, which takes three times as long: 12 us for ten fields."""
    headers = Headers()
    for name, value in fields:
        dict.setdefault(headers, name.title(), []).append(value)
    return headers


def declared_length(headers: Headers) -> int | None:
    """Content-Length, if it is one."""
    value = headers.get(b"Content-Length") or b""
    return int(value) if value.isdigit() and len(value) <= MAX_DIGITS else None

"""Watch the fetch of one of Scrapy's requests: its lease, and the limits of its answer in bytes,
time and memory.

Rule: a body is cut exactly at its limit, and one that ends early keeps its bytes and the reason.
While there is no memory for more of a body, nothing of it is read, so that its server waits.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterable, Awaitable, Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Final, Protocol, TypeVar

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers
from scrapy.utils._download_handlers import check_stop_download

from crawler.content.body_memory import CHECK_INTERVAL_S, BodyMemory, BodyShare
from crawler.download.http_head import MAX_DIGITS, AnswerHead
from crawler.download.port import KeptBody
from crawler.engine.errors import FetchTimedOut
from crawler.engine.lifecycle import receivers_of
from crawler.loop.life import Life, Lives
from crawler.loop.slots import Slots
from crawler.model.page import DownloadOptions, Truncated, head_fields, header_value

_RETRY_AFTER: Final = re.compile(rb"\nretry-after:[ \t]*([^\r\n]*)", re.I)

T = TypeVar("T")


class FetchLoop(Protocol):
    """What a watch needs of `Loop`."""

    @property
    def lives(self) -> Lives: ...

    @property
    def slots(self) -> Slots: ...

    def may_send(self, life: Life) -> bool: ...

    def note_head(self, life: Life, status: int, retry_after: bytes | None) -> None: ...


@dataclass(frozen=True, slots=True)
class WatchParts:
    """What the watches of a crawl share."""

    crawler: Crawler
    options: DownloadOptions
    loop: FetchLoop
    memory: BodyMemory


class RequestWatch:
    """Watches the fetch of one request. Implements port.FetchWatch."""

    __slots__ = (
        *("_began_s", "_limit", "_parts", "_progress", "_request", "head", "headers", "life"),
        "stop",
    )

    def __init__(self, parts: WatchParts, request: Request) -> None:
        self.life = parts.loop.lives.of(request)
        self.head: AnswerHead | None = None  # the last one that came
        self.headers = Headers()  # of that head
        self.stop: StopDownload | None = None  # raised by a user's component
        self._parts = parts
        self._request = request
        self._progress = parts.loop.slots.progress_of(request)
        self._began_s = time.monotonic()

    def timeout_s(self) -> float:
        """Return the time from DNS lookup to last byte. A request may ask for less, not for more:
        leases, and the rest of a host whose answer was lost, rely on no longer fetch."""
        # JSON, if it was pushed.
        wanted: object = self._request.meta.get("download_timeout")
        total_s = self._parts.options.total_timeout_s
        return wanted if isinstance(wanted, int | float) and 0 < wanted < total_s else total_s

    async def in_time(self, fetch: Awaitable[T]) -> T:
        """Await *fetch* within the time of its request. Raises FetchTimedOut if no head came in
        time."""
        total_s, slots = self.timeout_s(), self._parts.loop.slots
        slots.set_waiting(self._progress, for_host=True)
        try:
            async with asyncio.timeout(total_s) as self._limit:
                return await fetch
        except TimeoutError as error:
            raise FetchTimedOut(f"{self._request.url}: no answer in {total_s:g} s") from error
        finally:
            slots.set_waiting(self._progress, for_host=False)

    def may_send(self) -> bool:
        return self.life is None or self._parts.loop.may_send(self.life)

    def note_head(self, head: AnswerHead) -> None:
        """Pass on that an answer says to wait, before anything else is done with it."""
        if self.life is None:
            return
        asked = retry_after_of(head)
        if asked is not None or head.status == 429 or head.status >= 500:
            self._parts.loop.note_head(self.life, head.status, asked)

    def room(self, head: AnswerHead) -> int:
        """Return how many bytes of the body may come; the head counts against its limit."""
        request = self._request
        request.meta["download_latency"] = time.monotonic() - self._began_s
        self.head, self.headers = head, headers_of(head_fields(head.clean))
        wanted: int | None = request.meta.get("download_maxsize")
        content_type = header_value(self.headers, b"Content-Type")
        room = self._parts.options.max_bytes(content_type, request.url, wanted)
        return max(0, room - head.taken_bytes)

    async def keep(self, pieces: AsyncIterable[bytes], room: int) -> KeptBody:
        """Read a body. Handlers of Scrapy's signals may stop it."""
        length = declared_length(self.headers)
        if self._stops(signals.headers_received, headers=self.headers, body_length=length):
            return KeptBody(b"", Truncated.UNSPECIFIED)
        kept = BytesIO()
        try:
            why = await self._read(kept, room, pieces)
        except asyncio.CancelledError:
            if not self._limit.expired():
                raise
            why = Truncated.TIME
        return KeptBody(kept.getvalue(), why)

    async def _read(self, kept: BytesIO, room: int, pieces: AsyncIterable[bytes]) -> Truncated:
        memory, progress = self._parts.memory, self._progress
        share = memory.share_of(self.life)
        async for piece in pieces:
            progress.received_bytes += len(piece)
            if not memory.has_room(share, len(piece)):
                self._parts.loop.slots.set_waiting(progress, for_host=False)
                await self._pause(share, len(piece))
                self._parts.loop.slots.set_waiting(progress, for_host=True)
            memory.add(share, len(piece))
            kept.write(piece)
            if kept.tell() > room:
                kept.truncate(room)
                return Truncated.LENGTH
            if self._stops(signals.bytes_received, data=piece):
                return Truncated.UNSPECIFIED
        return Truncated.NO

    async def _pause(self, share: BodyShare, by_bytes: int) -> None:
        """Wait for memory, and stop the time limit while the lease is surely ours: in a shared
        crawl no fetch may outlive its lease."""
        now_s, limit, memory = asyncio.get_running_loop().time, self._limit, self._parts.memory
        left_s = (limit.when() or now_s()) - now_s()
        # Longer than to the next check.
        pause_s = max(self._parts.options.total_timeout_s, 2 * CHECK_INTERVAL_S)

        def extend_limit() -> None:
            if memory.is_lease_safe(share):
                limit.reschedule(now_s() + pause_s)

        await memory.wait_for_room(share, by_bytes, extend_limit)
        limit.reschedule(min(limit.when() or now_s(), now_s() + left_s))

    def _stops(self, signal: object, **about: object) -> bool:
        """Send *signal*, and return whether a component of the user's ends the fetch."""
        crawler = self._parts.crawler
        if receivers_of(crawler.signals, signal):
            self.stop = check_stop_download(signal, crawler, self._request, **about)
        return self.stop is not None


def retry_after_of(head: AnswerHead) -> bytes | None:
    """Return the value of its last Retry-After, as written."""
    asked = _RETRY_AFTER.findall(head.clean)
    return asked[-1] if asked else None


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

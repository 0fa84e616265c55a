"""Twisted's side of the wire, behind the same `HeadGate`.

Rule: as in `wire`. Twisted's objects are Any here where its interfaces are zope's: they say
nothing to a type checker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from scrapy.core.downloader.handlers.http11 import _LenientHTTP11ClientProtocol
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionClosed, ConnectionLost
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers

from crawler.core.exchange import Truncated
from crawler.download.chunked import ChunkedBody, one_chunk
from crawler.download.head import BadHead, HeadGate
from crawler.failures import LeaseEnded

FOR_PROXY: Final = b"Proxy-Authorization"


class LeasedHeaders(Headers):
    """Of a request that is looked at once more before it is sent: what agents and pools pass on
    to a connection whole is its headers."""

    begin_or_put_back: Callable[[], bool] = lambda: True

    def copy(self) -> LeasedHeaders:
        copied = LeasedHeaders(dict(self.getAllRawHeaders()))
        copied.begin_or_put_back = self.begin_or_put_back
        return copied


class Crossing:
    """What Twisted's own response has no place for."""

    def __init__(self, request: Any, transport: Any, head_max_bytes: int) -> None:
        self.gate = HeadGate(head_max_bytes)
        self.chunked: ChunkedBody | None = None  # None: not in chunks, or not begun
        self.cut = Truncated.NO
        self.request_head = _request_head(request)
        self.abort: Callable[[], None] = transport.abortConnection
        self.ip: str = transport.getPeer().host
        # A TLS transport's handle is pyOpenSSL's connection, a plain one's a socket.
        self._handle: Any = transport.getHandle()

    @property
    def tls(self) -> str:
        """To be asked for once the server has answered: before the handshake it names the newest
        version that we speak."""
        is_tls = hasattr(self._handle, "get_protocol_version_name")
        return self._handle.get_protocol_version_name() if is_tls else ""

    def allow(self, room: int) -> int:
        """Let *room* bytes of the body in, its framing included."""
        if self.chunked is not None:
            self.chunked.room = room
        return room


class TwistedWire(_LenientHTTP11ClientProtocol):
    """One connection."""

    def __init__(self, quiescent: Callable[[Any], None], head_max_bytes: int) -> None:
        super().__init__(quiescent)  # type: ignore[no-untyped-call]  # Twisted's
        self._head_max_bytes = head_max_bytes
        self._crossing: Crossing | None = None

    def request(self, request: Any) -> Deferred[Any]:
        # Last thing: as `wire.BareRequest.send`.
        if isinstance(request.headers, LeasedHeaders) and not request.headers.begin_or_put_back():
            transport: Any = self.transport
            transport.abortConnection()
            return fail(LeaseEnded())
        crossing = Crossing(request, self.transport, self._head_max_bytes)
        self._crossing = crossing
        answered: Deferred[Any] = super().request(request)
        if self._parser is not None:
            self._parser.MAX_LENGTH = self._head_max_bytes  # of a line: the gate has measured it
        return answered.addCallback(_marked, crossing)

    def dataReceived(self, data: bytes) -> None:
        crossing = self._crossing
        if crossing is None or crossing.gate.raw:
            self._body_received(crossing, data)
            return
        if self._parser is not None:
            # Twisted sends a request again if a connection was idle before and not a byte
            # came back; it asks its parser, which sees none until the head is whole.
            self._parser._everReceivedData = True
        try:
            heads, body = crossing.gate.feed(data)
        except BadHead:
            self._giveUp(Failure())  # type: ignore[no-untyped-call]  # Twisted's
            return
        if crossing.gate.is_chunked:
            crossing.chunked = ChunkedBody()
        if heads:
            super().dataReceived(heads)  # type: ignore[no-untyped-call]  # Twisted's
        if body:
            self._body_received(crossing, body)

    def _body_received(self, crossing: Crossing | None, data: bytes) -> None:
        """Chunks are joined here, as in `wire`."""
        chunked = crossing.chunked if crossing is not None and self._parser is not None else None
        if crossing is None or chunked is None:
            super().dataReceived(data)  # type: ignore[no-untyped-call]  # Twisted's
            return
        if body := chunked.feed(data):
            super().dataReceived(one_chunk(body))  # type: ignore[no-untyped-call]  # Twisted's
        if chunked.is_over:
            super().dataReceived(one_chunk(b""))  # type: ignore[no-untyped-call]  # Twisted's
        if chunked.cut:
            crossing.cut = chunked.cut
        if chunked.cut or chunked.has_excess:
            crossing.abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        crossing = self._crossing
        if crossing is not None and self._parser is not None and not crossing.cut:
            if crossing.chunked is not None and crossing.chunked.is_whole:
                super().dataReceived(one_chunk(b""))  # type: ignore[no-untyped-call]  # Twisted's
            elif isinstance(reason.value, ConnectionLost) and not crossing.tls:
                # A body that ends with its connection is not whole if the connection broke. (With
                # TLS Twisted says the same of servers that do not say goodbye.)
                crossing.cut = Truncated.DISCONNECT
        super().connectionLost(reason)  # type: ignore[no-untyped-call]  # Twisted's


class WireFactory(Factory):
    """Makes connections for Twisted's pool, which calls it with two arguments."""

    noisy = False

    def __init__(
        self, head_max_bytes: int, quiescent: Callable[[Any], None], description: str
    ) -> None:
        self._build = partial(TwistedWire, quiescent, head_max_bytes)

    def buildProtocol(self, addr: object) -> TwistedWire:
        return self._build()


def crossing_of(response: Any) -> Crossing:
    crossing: Crossing = response.crossing
    return crossing


def _marked(response: Any, crossing: Crossing) -> Any:
    response.crossing = crossing  # as Scrapy does with addresses and certificates
    return response


def _request_head(request: Any) -> bytes:
    """As Twisted writes it (`Request.writeTo`), from the same parts, but for what is secret
    between a proxy and us."""
    lines = [b"%s %s HTTP/1.1" % (request.method, request.uri)]
    if request.bodyProducer is not None:
        lines.append(b"Content-Length: %d" % request.bodyProducer.length)
    for name, values in request.headers.getAllRawHeaders():
        if name != FOR_PROXY:
            lines += [b"%s: %s" % (name, value) for value in values]
    return b"\r\n".join((*lines, b"", b""))


class Chunks(Protocol):
    """A body as it comes, for `async for`. It holds what was not asked for yet, and lets no
    more in above HIGH_WATER_BYTES."""

    HIGH_WATER_BYTES: Final = 256 * 1024

    def __init__(self) -> None:
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._is_over = False
        self._news = asyncio.Event()
        self.cut = Truncated.NO

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> bytes:
        while not self._held:
            if self._is_over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        chunk = self._held.popleft()
        self._held_bytes -= len(chunk)
        if not self._held and self.transport is not None:
            self.transport.resumeProducing()
        return chunk

    def dataReceived(self, data: bytes) -> None:
        self._held.append(data)
        self._held_bytes += len(data)
        self._news.set()
        if self._held_bytes > self.HIGH_WATER_BYTES and self.transport is not None:
            self.transport.pauseProducing()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._is_over = True
        if not isinstance(reason.value, ResponseDone | PotentialDataLoss):
            self.cut = _why_cut(reason)
        self._news.set()

    @property
    def is_over(self) -> bool:
        return self._is_over


def _why_cut(reason: Failure) -> Truncated:
    causes = [failure.value for failure in getattr(reason.value, "reasons", ())]
    they_left = bool(causes) and isinstance(causes[0], ConnectionClosed)
    return Truncated.DISCONNECT if they_left else Truncated.UNSPECIFIED

"""Our subclasses of aiohttp's connection, request and response, which keep each head as sent.

Rule: what aiohttp parses has passed `HeadGate` and `ChunkedBody`. A body that breaks off ends with
a reason and keeps the bytes before it. Bytes that no request asked for are never the answer to the
next one. The private names of aiohttp that we use are in this file only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from ssl import SSLError
from typing import Any, Final, cast

import certifi
from aiohttp import ClientConnectionError, ClientOSError, ServerDisconnectedError, TCPConnector
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ClientRequest, ClientResponse
from aiohttp.connector import Connection
from aiohttp.http_exceptions import BadHttpMessage

from crawler.crawl.errors import LeaseEnded
from crawler.download.chunked import ChunkedBody, one_chunk
from crawler.download.http_head import BadHead, HeadGate
from crawler.model.choices import Tls
from crawler.model.page import Truncated
from crawler.model.types import IncompatibleScrapy

PRIVATE_NAMES: Final = ("_payload", "_exception")

LEAVE: Final[ContextVar[Callable[[], bool]]] = ContextVar("leave")
"""Whether the request that this task makes may still be sent. aiohttp's has no place for it."""


class Hangup(ClientConnectionError):
    """The server left without an answer, on a connection opened for this very request.

    Not one of the two errors after which aiohttp sends a request again: only a connection
    that had been idle may have died unnoticed; anything else would be a visit without a rest.
    """


@dataclass(slots=True, eq=False)
class AnswerProgress:
    """How far one answer has been read."""

    gate: HeadGate
    chunked: ChunkedBody | None = None  # None: not in chunks, or not begun
    cut: Truncated = Truncated.NO

    def allow(self, room: int) -> int:
        """Let *room* bytes of the body in, its framing included."""
        if self.chunked is not None:
            self.chunked.allow(room)
        return room


class HttpConnection(ResponseHandler):
    """One connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, head_max_bytes: int) -> None:
        super().__init__(loop)
        self._head_max_bytes = head_max_bytes
        self.reading = AnswerProgress(HeadGate(head_max_bytes))
        self.requests = 0

    @property
    def is_dead_idler(self) -> bool:
        """It was used before, and nothing came back this time."""
        return self.requests > 1 and self.reading.gate.is_untouched

    def set_response_params(self, **params: Any) -> None:
        """aiohttp announces a request. (A server may speak before the first.)"""
        if self.requests:
            self.reading = AnswerProgress(HeadGate(self._head_max_bytes))
        self.requests += 1
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self.reading.gate.raw:
            self._body_received(data)
            return
        try:
            heads, body = self.reading.gate.feed(data)
        except BadHead as bad:
            self._hang_up()
            self.set_exception(BadHttpMessage(str(bad)))
            return
        # In two steps: should the body be unreadable, the head has been delivered.
        if heads:
            super().data_received(heads)
        if self.reading.gate.is_chunked:
            self.reading.chunked = ChunkedBody()
        if body:
            self._body_received(body)

    def connection_lost(self, exc: BaseException | None) -> None:
        payload, self._payload = self._payload, None
        if payload is not None and payload.is_eof():
            payload = None
        super().connection_lost(exc)
        if payload is None:
            return
        chunked = self.reading.chunked
        if chunked is not None:
            is_cut = not chunked.is_whole
        else:
            # A body that ends with its connection is over now, unless the connection broke.
            is_cut = not payload.is_eof() or (
                isinstance(exc, OSError) and not isinstance(exc, SSLError)
            )
        if is_cut:
            self.reading.cut = Truncated.DISCONNECT
        payload.feed_eof()

    def _body_received(self, data: bytes) -> None:
        payload = self._payload
        if payload is None:
            super().data_received(data)
        elif payload.is_eof():
            if data:
                self._hang_up()  # more than announced: the next head would be found amid it
        elif self.reading.chunked is not None:
            self._chunks_received(self.reading.chunked, data)
        else:
            super().data_received(data)

    def _chunks_received(self, chunked: ChunkedBody, data: bytes) -> None:
        """aiohttp's parser gets chunks of ours: it makes an object of each of theirs (3 us), counts
        none of their framing, and gives up a body over a line that ends in LF alone."""
        body = chunked.feed(data)
        if body or not data:  # nothing: the parser goes on with what it holds
            super().data_received(one_chunk(body) if body else data)
        if chunked.is_over:
            super().data_received(one_chunk(b""))
        payload = self._payload
        if chunked.cut and payload is not None:
            self.reading.cut = chunked.cut
            payload.feed_eof()
        if chunked.cut or chunked.has_excess:
            self._hang_up()

    def _hang_up(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


class BareRequest(ClientRequest):
    """A request to which nothing is added; aiohttp sorts, each time, what it should not add."""

    async def send(self, conn: Connection) -> ClientResponse:
        """A process can stand still between any two lines, for longer than its lease: so what
        comes between the last look at that and the kernel is nothing but writing."""
        if not LEAVE.get()():
            raise LeaseEnded
        return await super().send(conn)

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        if self.method in self.POST_METHODS:  # a Content-Type would be added later
            super().update_auto_headers(skip_auto_headers)


class WireResponse(ClientResponse):
    """An answer that remembers the connection it came by; aiohttp forgets it at the end."""

    reading: AnswerProgress
    ip: str = ""
    tls: str = ""  # "TLSv1.3"
    certificate: bytes | None = None

    async def start(self, connection: Connection) -> ClientResponse:
        wire = cast(HttpConnection, connection.protocol)
        self.reading = wire.reading
        self._look_at(wire.transport)
        try:
            return await super().start(connection)
        except (ServerDisconnectedError, ClientOSError) as error:
            if wire.is_dead_idler:
                raise
            raise Hangup(str(error)) from error

    def _look_at(self, transport: asyncio.BaseTransport | None) -> None:
        if transport is None:
            return
        self.ip = (transport.get_extra_info("peername") or ("",))[0]
        ssl_object = transport.get_extra_info("ssl_object")
        if ssl_object is not None:
            self.tls = ssl_object.version() or ""
            self.certificate = ssl_object.getpeercert(binary_form=True)


def open_connector(
    loop: asyncio.AbstractEventLoop,
    resolver: AbstractResolver,
    *,
    local_address: tuple[str, int] | None,
    keepalive_s: float,
    head_max_bytes: int,
) -> TCPConnector:
    """A pool without limits: who may fetch is decided before, and a fetch never queues here.
    Its idle connections are bounded by their time."""
    connector = TCPConnector(
        loop=loop,
        resolver=resolver,
        use_dns_cache=False,  # the resolver's own cache knows the TTLs
        limit=0,
        local_addr=local_address,
        keepalive_timeout=keepalive_s,
    )
    if not hasattr(connector, "_factory"):
        raise IncompatibleScrapy("aiohttp's connector has no _factory; install aiohttp 3.14")
    wire = partial(HttpConnection, loop, head_max_bytes)
    if missing := [name for name in PRIVATE_NAMES if not hasattr(wire(), name)]:
        raise IncompatibleScrapy(f"aiohttp's ResponseHandler has no {missing[0]}; install 3.14")
    # aiohttp has no public way to say which protocol a connection speaks.
    connector._factory = cast("partial[ResponseHandler]", wire)
    return connector


# Which TLS servers we talk to.
#
# Rule: strict checks the certificate as a browser does. Lenient takes any, and speaks with
# servers too old for today's defaults: what is fetched is public, and the archive says how.

# OpenSSL 3 no longer connects to servers that lack RFC 5746; browsers still do.
LEGACY_SERVER_CONNECT: Final = 0x4
# Level 0 is where OpenSSL keeps TLS 1.0, 1.1 and keys under 112 bits of strength.
OLD_CIPHERS: Final = "DEFAULT:@SECLEVEL=0"


def ssl_context(tls: Tls) -> ssl.SSLContext:
    """A context for the standard library."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= LEGACY_SERVER_CONNECT
    if tls is Tls.STRICT:
        context.load_default_certs()
        if not has_system_store():
            context.load_verify_locations(certifi.where())
        return context
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers(OLD_CIPHERS)
    return context


def has_system_store() -> bool:
    """A slim container has none; SSL_CERT_FILE and SSL_CERT_DIR count."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile) or bool(paths.capath and any(Path(paths.capath).iterdir()))

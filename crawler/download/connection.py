"""Our subclasses of aiohttp's connection, request and response, which keep each head as sent.

Rule: aiohttp parses only what has passed `HeadGate` and `ChunkedBody`. Bytes after an answer's end
are never taken as the next answer. Private names of aiohttp are used in this file only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
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

MAY_SEND: Final[ContextVar[Callable[[], bool]]] = ContextVar("leave")
"""Whether this task may still send its request. (aiohttp's request has no field for it.)"""


class ClosedWithoutAnswer(ClientConnectionError):
    """The server closed a connection that was opened for this request, without an answer.

    Not one of the two errors after which aiohttp sends a request again: only a connection that
    was idle may have closed unnoticed; any other retry would ignore the rest of the host.
    """


@dataclass(slots=True, eq=False)
class AnswerProgress:
    """The progress of reading one answer."""

    gate: HeadGate
    chunked: ChunkedBody | None = None  # None: not chunked, or not begun
    cut: Truncated = Truncated.NO

    def allow(self, room: int) -> int:
        """Limit the body to *room* bytes, framing included, and return *room*."""
        if self.chunked is not None:
            self.chunked.allow(room)
        return room


class HttpConnection(ResponseHandler):
    """aiohttp's protocol of one connection, with our parsing of heads and chunks before its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, head_max_bytes: int) -> None:
        super().__init__(loop)
        self._head_max_bytes = head_max_bytes
        self.progress = AnswerProgress(HeadGate(head_max_bytes))
        self.requests = 0

    @property
    def is_stale(self) -> bool:
        """Whether the connection was used before, and no byte came back this time."""
        return self.requests > 1 and self.progress.gate.is_untouched

    def set_response_params(self, **params: Any) -> None:
        """aiohttp calls this before each request. (A server may send before the first.)"""
        if self.requests:
            self.progress = AnswerProgress(HeadGate(self._head_max_bytes))
        self.requests += 1
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        if self.progress.gate.raw:
            self._body_received(data)
            return
        try:
            heads, body = self.progress.gate.feed(data)
        except BadHead as bad:
            self._hang_up()
            self.set_exception(BadHttpMessage(str(bad)))
            return
        # In two steps, so that the head is delivered even if the body is unreadable.
        if heads:
            super().data_received(heads)
        if self.progress.gate.is_chunked:
            self.progress.chunked = ChunkedBody()
        if body:
            self._body_received(body)

    def connection_lost(self, exc: BaseException | None) -> None:
        payload, self._payload = self._payload, None
        if payload is not None and payload.is_eof():
            payload = None
        super().connection_lost(exc)
        if payload is None:
            return
        chunked = self.progress.chunked
        if chunked is not None:
            is_cut = not chunked.is_whole
        else:
            # A body without a length is over when its connection closes, unless by an error.
            is_cut = not payload.is_eof() or (
                isinstance(exc, OSError) and not isinstance(exc, SSLError)
            )
        if is_cut:
            self.progress.cut = Truncated.DISCONNECT
        payload.feed_eof()

    def _body_received(self, data: bytes) -> None:
        payload = self._payload
        if payload is None:
            super().data_received(data)
        elif payload.is_eof():
            if data:
                self._hang_up()  # bytes beyond the body would be read as the next head
        elif self.progress.chunked is not None:
            self._chunks_received(self.progress.chunked, data)
        else:
            super().data_received(data)

    def _chunks_received(self, chunked: ChunkedBody, data: bytes) -> None:
        """Decode chunks and pass them to aiohttp as one. Its parser makes an object of each chunk
        (3 us), does not count framing, and rejects a body over a line that ends in bare LF."""
        body = chunked.feed(data)
        if body or not data:  # without data the parser goes on with what it holds
            super().data_received(one_chunk(body) if body else data)
        if chunked.is_over:
            super().data_received(one_chunk(b""))
        payload = self._payload
        if chunked.cut and payload is not None:
            self.progress.cut = chunked.cut
            payload.feed_eof()
        if chunked.cut or chunked.has_excess:
            self._hang_up()

    def _hang_up(self) -> None:
        self.force_close()
        if self.transport is not None:
            self.transport.close()


class BareRequest(ClientRequest):
    """A request without automatic headers; aiohttp would sort their names for each request."""

    async def send(self, conn: Connection) -> ClientResponse:
        """Check the lease immediately before writing, as the process may have been stopped for
        longer than its lease at any point before."""
        if not MAY_SEND.get()():
            raise LeaseEnded
        return await super().send(conn)

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        if self.method in self.POST_METHODS:  # a Content-Type would be added later
            super().update_auto_headers(skip_auto_headers)


class WireResponse(ClientResponse):
    """An answer that keeps the data of its connection, which aiohttp drops at the end."""

    progress: AnswerProgress
    ip: str = ""
    tls: str = ""  # "TLSv1.3"
    certificate: bytes | None = None

    async def start(self, connection: Connection) -> ClientResponse:
        wire = cast(HttpConnection, connection.protocol)
        self.progress = wire.progress
        self._read_peer(wire.transport)
        try:
            return await super().start(connection)
        except (ServerDisconnectedError, ClientOSError) as error:
            if wire.is_stale:
                raise
            raise ClosedWithoutAnswer(str(error)) from error

    def _read_peer(self, transport: asyncio.BaseTransport | None) -> None:
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
    """Return a pool without limits: concurrency is decided before, and a fetch never queues here.
    Idle connections are bounded by *keepalive_s*."""
    connector = TCPConnector(
        loop=loop,
        resolver=resolver,
        use_dns_cache=False,  # the resolver's own cache obeys the TTLs
        limit=0,
        local_addr=local_address,
        keepalive_timeout=keepalive_s,
    )
    if not hasattr(connector, "_factory"):
        raise IncompatibleScrapy("aiohttp's connector has no _factory; install aiohttp 3.14")
    wire = partial(HttpConnection, loop, head_max_bytes)
    if missing := [name for name in PRIVATE_NAMES if not hasattr(wire(), name)]:
        raise IncompatibleScrapy(f"aiohttp's ResponseHandler has no {missing[0]}; install 3.14")
    # aiohttp has no public way to set the protocol class of a connection.
    connector._factory = cast("partial[ResponseHandler]", wire)
    return connector


# Strict TLS checks the certificate as a browser does. Lenient TLS takes any certificate and servers
# too old for today's defaults: the pages are public, and the archive records the TLS version.

# OpenSSL 3 no longer connects to servers that lack RFC 5746; browsers still do.
LEGACY_SERVER_CONNECT: Final = 0x4
# Level 0 is where OpenSSL keeps TLS 1.0, 1.1 and keys under 112 bits of strength.
OLD_CIPHERS: Final = "DEFAULT:@SECLEVEL=0"


@cache
def ssl_context(tls: Tls) -> ssl.SSLContext:
    """Return the context for *tls*, the same at each call: the handlers of http and https share it,
    as reading the certificates of the system takes 50 ms."""
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
    """Return whether the system has CA certificates; SSL_CERT_FILE and SSL_CERT_DIR count."""
    paths = ssl.get_default_verify_paths()
    return bool(paths.cafile) or bool(paths.capath and any(Path(paths.capath).iterdir()))

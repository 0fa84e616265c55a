"""Scrapy's Twisted handler, made to keep what crossed the wire: the fallback for aiohttp's.

Rule: as in `aiohttp_handler`, with the same heads, caps, cuts and errors. It needs the asyncio
reactor. What it cannot do: tell an address family that hangs from one that works at the same
time (addresses are tried in turn), and archive the request's header names as they were
written (Twisted capitalises names it knows). It costs about twice the time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Self

from OpenSSL import SSL
from scrapy import Request
from scrapy.core.downloader.contextfactory import _ScrapyClientContextFactory
from scrapy.core.downloader.handlers.http11 import (
    HTTP11DownloadHandler,
    _LenientHTTP11ClientProtocol,
    _RequestBodyProducer,
    _ScrapyAgent,
    _TunnelingAgent,
)
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    UnsupportedURLSchemeError,
)
from scrapy.http import Response
from scrapy.utils._download_handlers import normalize_bind_address
from scrapy.utils.defer import maybe_deferred_to_future
from scrapy.utils.httpobj import urlparse_cached
from service_identity import VerificationError
from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import TCP4ClientEndpoint, TCP6ClientEndpoint, wrapClientTLS
from twisted.internet.error import ConnectError, ConnectionClosed, ConnectionLost
from twisted.internet.error import TimeoutError as TxTimeoutError
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import TLSVersion
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, ResponseDone
from twisted.web.error import SchemeNotSupported
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer  # type: ignore[import-untyped]  # it ships no types

from crawler.assembly.build import parts_of
from crawler.crawl.errors import (
    ConnectionDropped,
    LeaseEnded,
    TlsFailed,
)
from crawler.crawl.in_flight import LEASE
from crawler.download.body import Keeper, headers_of
from crawler.download.chunked import ChunkedBody, one_chunk
from crawler.download.connection import LEGACY_SERVER_CONNECT, OLD_CIPHERS, Transfers
from crawler.download.http_head import BadHead, HeadGate
from crawler.download.resolver import AresLookup, Resolver
from crawler.model.choices import Tls
from crawler.model.page import Exchange, Truncated, head_fields
from crawler.model.types import CrawlerError

# Twisted's side of the wire, behind the same `HeadGate`.
#
# Rule: as in `wire`. Twisted's objects are Any here where its interfaces are zope's: they say
# nothing to a type checker.

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


# Where Twisted connects to, and how it checks who answers there.
#
# Rule: a connection goes to an address that was admitted, and to no other: names are resolved
# before, and not by Twisted. (Its objects are Any here: zope's interfaces say nothing to a type
# checker.)

HTTPS: Final = b"https"


@implementer(IAgentEndpointFactory)
class AdmittedEndpoints:
    """For an Agent: the addresses given, in their order."""

    def __init__(
        self,
        reactor: Any,
        ips: Sequence[str],
        tls: Any,
        timeout_s: float,
        local_address: tuple[str, int] | None,
    ) -> None:
        self._reactor = reactor
        self._ips = ips
        self._tls = tls
        self._timeout_s = timeout_s
        self._local_address = local_address

    def endpointForURI(self, uri: URI) -> Any:
        endpoint: Any = _InTurn([self._endpoint(ip, uri.port) for ip in self._ips])
        if uri.scheme != HTTPS:
            return endpoint
        return wrapClientTLS(self._tls.creatorForNetloc(uri.host, uri.port), endpoint)

    def _endpoint(self, ip: str, port: int) -> Any:
        kind = TCP6ClientEndpoint if ":" in ip else TCP4ClientEndpoint
        return kind(self._reactor, ip, port, self._timeout_s, self._local_address)


@implementer(IStreamClientEndpoint)
class _InTurn:
    """The first endpoint that lets us in."""

    def __init__(self, endpoints: Sequence[Any]) -> None:
        self._endpoints = endpoints

    def connect(self, factory: Any) -> Deferred[Any]:
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: Any) -> Any:
        *others, last = self._endpoints
        for endpoint in others:
            try:
                return await endpoint.connect(factory)
            except ConnectError:
                continue
        return await last.connect(factory)


def context_factory(tls: Tls) -> Any:
    """As `tls.ssl_context`, for pyOpenSSL; strict needs the system's certificates here."""
    if tls is Tls.STRICT:
        return _ScrapyClientContextFactory(verify_certificates=True)
    return _LenientContextFactory(method=None, tls_min_version=TLSVersion.TLSv1_0)


class _LenientContextFactory(_ScrapyClientContextFactory):
    """Twisted takes a cipher string apart into names, and so loses its security level, without
    which OpenSSL 3 speaks no TLS 1.0 and 1.1. It is set on the context, which is kept."""

    def _get_cert_options(self) -> Any:
        options = super()._get_cert_options()
        context = options.getContext()
        context.set_cipher_list(OLD_CIPHERS.encode())
        context.set_options(LEGACY_SERVER_CONNECT)
        return options


class TwistedHandler(HTTP11DownloadHandler):
    """http and https."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        parts = parts_of(crawler)
        options = parts.download_options()
        keeper = Keeper(crawler, options, parts.exchanges, parts.body_memory, parts.slots)
        handler = cls(crawler, keeper, Resolver(options.admits, AresLookup()))
        parts.lifecycle.on_stop.append(handler.transfers.cancel_all)
        return handler

    def __init__(self, crawler: Crawler, keeper: Keeper, resolver: Resolver) -> None:
        super().__init__(crawler)
        from twisted.internet import reactor  # noqa: PLC0415 - at the top it installs a wrong one

        self.transfers = Transfers()
        self._reactor = reactor
        self._options = options = keeper.options
        self._keeper = keeper
        self._resolver = resolver
        self._contextFactory = context_factory(options.tls)
        pool: Any = self._pool  # Twisted's own annotations: int seconds, and one factory class
        pool.cachedConnectionTimeout = options.keepalive_s
        pool._factory = partial(WireFactory, options.head_max_bytes)
        self._via_proxy = _ScrapyAgent(
            contextFactory=self._contextFactory,
            bindAddress=self._bind_address,
            pool=self._pool,
            crawler=crawler,
        )

    async def download_request(self, request: Request) -> Response:
        return await self.transfers.run(self._keeper.in_time(request, self._fetch))

    async def close(self) -> None:
        self.transfers.cancel_all()
        await super().close()
        await self._resolver.close()

    async def _fetch(self, request: Request, limit: asyncio.Timeout) -> Response:
        at, start = time.time(), time.monotonic()
        response = await self._send(request)
        request.meta["download_latency"] = time.monotonic() - start
        crossing = crossing_of(response)
        headers = headers_of(head_fields(crossing.gate.clean))
        chunks = Chunks()
        response.deliverBody(chunks)
        try:
            room = crossing.allow(self._keeper.room(request, headers, crossing.gate.taken))
            kept = await self._keeper.keep(request, headers, room, chunks, limit)
        finally:
            if not chunks.is_over:
                crossing.abort()
        exchange = Exchange(
            url=request.url,
            at=at,
            duration_s=time.monotonic() - start,
            request_head=crossing.request_head,
            request_body=request.body,
            head=crossing.gate.raw,
            body=kept.body,
            ip=crossing.ip,
            tls=crossing.tls,
            truncated=kept.truncated or crossing.cut or chunks.cut,
        )
        return self._keeper.response(
            request,
            exchange,
            status=response.code,
            headers=headers,
            certificate=getattr(response, "_scrapy_certificate", None),
            stop=kept.stop,
        )

    async def _send(self, request: Request) -> Any:
        """Until the head of the answer is here."""
        body = _RequestBodyProducer(request.body) if request.body else None
        try:
            agent = await self._agent(request)
            headers = LeasedHeaders(request.headers)
            headers.begin_or_put_back = partial(
                self._options.begin_or_put_back, request.meta.get(LEASE)
            )
            if isinstance(agent, _TunnelingAgent):
                headers.removeHeader(b"Proxy-Authorization")
            url, method = request.url.encode("ascii"), request.method.encode("ascii")
            answered = agent.request(method, url, headers, body)
            return await maybe_deferred_to_future(answered)
        except (CrawlerError, LeaseEnded):
            raise
        except Exception as error:  # Twisted's have no common root
            raise _in_scrapys_words(error, request.url) from error

    async def _agent(self, request: Request) -> Any:
        timeout_s = self._options.connect_timeout_s
        url = urlparse_cached(request)
        host = url.hostname or ""
        port = url.port or (443 if url.scheme == "https" else 80)
        if request.meta.get("proxy"):
            self._resolver.check_literal(host, port)
            return self._via_proxy._get_agent(request, timeout_s)
        ips = await self._resolver.addresses(host, port)
        local = normalize_bind_address(request.meta.get("bindaddress") or self._bind_address)
        tls = self._contextFactory
        endpoints = AdmittedEndpoints(self._reactor, ips, tls, timeout_s, local)
        build: Any = Agent.usingEndpointFactory  # untyped
        return build(self._reactor, endpoints, self._pool)


_WORDS: Final[tuple[tuple[type[Exception], type[Exception]], ...]] = (
    (TimeoutError, DownloadTimeoutError),
    (TxTimeoutError, DownloadTimeoutError),
    (SchemeNotSupported, UnsupportedURLSchemeError),
    (OSError, CannotResolveHostError),  # the resolver's
    (SSL.Error, TlsFailed),
    (VerificationError, TlsFailed),
    (ConnectError, DownloadConnectionRefusedError),
    (ConnectionClosed, ConnectionDropped),
)
"""First match counts."""


def _in_scrapys_words(error: Exception, url: str) -> Exception:
    causes = [error, *(failure.value for failure in getattr(error, "reasons", ()))]
    kinds = (ours for cause in causes for theirs, ours in _WORDS if isinstance(cause, theirs))
    said = "; ".join(str(cause) or type(cause).__name__ for cause in causes[-1:])
    return next(kinds, DownloadFailedError)(f"{url}: {said}")

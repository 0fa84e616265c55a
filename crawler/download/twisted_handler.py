"""Scrapy's Twisted handler, made to keep what crossed the wire: the fallback for aiohttp's.

Rule: as in `aiohttp_handler`, with the same heads, caps, cuts and errors. It needs the asyncio
reactor. What it cannot do: tell an address family that hangs from one that works at the same
time (addresses are tried in turn), and archive the request's header names as they were
written (Twisted capitalises names it knows). It costs about twice the time.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any, Final, Self

from OpenSSL import SSL
from scrapy import Request
from scrapy.core.downloader.handlers.http11 import (
    HTTP11DownloadHandler,
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
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.error import TimeoutError as TxTimeoutError
from twisted.web.client import Agent
from twisted.web.error import SchemeNotSupported

from crawler.core.errors import CrawlerError
from crawler.core.exchange import Exchange, head_fields
from crawler.download.keeper import Keeper, headers_of
from crawler.download.resolver import AresLookup, Resolver
from crawler.download.transfers import Transfers
from crawler.download.twisted_endpoints import AdmittedEndpoints, context_factory
from crawler.download.twisted_wire import Chunks, LeasedHeaders, WireFactory, crossing_of
from crawler.failures import ConnectionDropped, LeaseEnded, TlsFailed
from crawler.scheduler.flights import LEASE
from crawler.wiring import parts_of


class TwistedHandler(HTTP11DownloadHandler):
    """http and https."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        parts = parts_of(crawler)
        options = parts.download_options()
        keeper = Keeper(crawler, options, parts.exchanges, parts.body_memory, parts.slots)
        handler = cls(crawler, keeper, Resolver(options.admits, AresLookup()))
        parts.on_stop.append(handler.transfers.cancel_all)
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

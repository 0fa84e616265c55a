"""The download handler of http and https, which records each request and answer as sent.

Rule: one request is sent once and makes one `Exchange`. Nothing is queued, delayed or retried here,
but requests without a lease, if an idle connection had closed unnoticed.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Awaitable
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError, DownloadFailedError
from scrapy.http import Response
from scrapy.utils._download_handlers import normalize_bind_address

from crawler.assembly.build import crawl_of
from crawler.crawl.errors import ClosedWhileIdle, ConnectionDropped, LeaseEnded
from crawler.download.body import BodyReader, headers_of
from crawler.download.connection import (
    AnswerStream,
    Connections,
    HttpConnection,
    Server,
    Stale,
    host_field,
    ssl_context,
)
from crawler.download.http_head import AnswerHead
from crawler.download.resolver import AresLookup, Resolver
from crawler.model.page import Exchange, head_fields

FOR_PROXY: Final = b"Proxy-Authorization"
_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
_WITH_LENGTH: Final = frozenset(("POST", "PUT", "PATCH"))  # RFC 9110, 8.6: also of an empty body
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_RETRY_AFTER: Final = re.compile(rb"\nretry-after:[ \t]*([^\r\n]*)", re.I)
_UNWRITABLE: Final = re.compile(r"[\0-\x20\x7f]")  # in a request's target
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")

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


class Origin(NamedTuple):
    """What precedes the path of a URL, as a request needs it."""

    server: Server
    host: str  # the value of its Host field
    authorization: bytes  # of a user and a password in the URL


_HANDLERS: Final[WeakKeyDictionary[Crawler, HttpHandler]] = WeakKeyDictionary()


class HttpHandler(BaseDownloadHandler):
    """The download handler of http and https: one for both, so that the number of connections is
    bounded for both together."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> HttpHandler:
        known = _HANDLERS.get(crawler)
        if known is None:
            known = _HANDLERS[crawler] = cls._built(crawler)
        return known

    @classmethod
    def _built(cls, crawler: Crawler) -> HttpHandler:
        crawl = crawl_of(crawler)
        options = crawl.download_options()
        body_reader = BodyReader(
            crawler,
            options,
            crawl.loop.lives,
            crawl.fetching.body_memory,
            crawl.loop.slots,
        )
        resolver = Resolver(options.admits, AresLookup(), on_lookup=crawl.stats.count_lookup)
        crawl.loop.silent_hosts.probe_with(resolver.reaches_name_servers)
        handler = cls(crawler, body_reader, resolver)
        crawl.lifecycle.call_at_stop(handler.transfers.cancel_all)
        return handler

    def __init__(self, crawler: Crawler, body_reader: BodyReader, resolver: Resolver) -> None:
        super().__init__(crawler)
        self.transfers = Transfers()
        self._options = options = body_reader.options
        self._body_reader = body_reader
        self._resolver = resolver
        # Any address is admitted: the user chose the proxy's.
        self._proxy_resolver = Resolver(lambda ip, host, port: True, AresLookup())
        self._connections = Connections(
            resolver,
            self._proxy_resolver,
            ssl_context(options.tls),
            local_address=normalize_bind_address(crawler.settings.get("DOWNLOAD_BIND_ADDRESS")),
            connect_timeout_s=options.connect_timeout_s,
            keepalive_s=options.keepalive_s,
            most_open=options.most_connections,
            head_max_bytes=options.head_max_bytes,
        )

    async def download_request(self, request: Request) -> Response:
        return await self.transfers.run(self._body_reader.with_timeout(request, self._fetch))

    async def close(self) -> None:
        self.transfers.cancel_all()
        self._connections.close()
        await self._resolver.close()
        await self._proxy_resolver.close()

    async def _fetch(self, request: Request, limit: asyncio.Timeout) -> Response:
        at, start = time.time(), time.monotonic()
        origin, target = _destination(request.url)
        self._resolver.check_literal(origin.server.host, origin.server.port)
        server = _through_proxy(origin.server, request)
        head, recorded_head = _request_heads(request, origin, server, target)
        connection, answer, answer_head = await self._send(server, head, request)
        try:
            request.meta["download_latency"] = time.monotonic() - start
            headers = headers_of(head_fields(answer_head.clean))
            room = self._body_reader.max_body_bytes(request, headers, answer_head.taken_bytes)
            answer.limit(room)
            kept = await self._body_reader.read_body(request, headers, room, answer, limit)
        finally:
            connection.end_answer()
            self._connections.keep(server, connection)
        exchange = Exchange(
            url=request.url,
            at=at,
            duration_s=time.monotonic() - start,
            request_head=recorded_head,
            request_body=request.body,
            head=answer_head.raw,
            body=kept.body,
            ip=connection.ip,
            tls=connection.tls if server.is_tls else "",
            truncated=kept.truncated or answer.cut,
        )
        return self._body_reader.response(
            request,
            exchange,
            status=answer_head.status,
            headers=headers,
            certificate=connection.certificate if server.is_tls else None,
            stop=kept.stop,
        )

    async def _send(
        self, server: Server, head: bytes, request: Request
    ) -> tuple[HttpConnection, AnswerStream, AnswerHead]:
        """Send the request and return when the head of the answer is here."""
        connection = self._connections.idle(server)
        while True:
            if connection is None:
                connection = await self._connections.open(server)
            # Immediately before it is written, as the process may have been stopped for longer
            # than the lease at any point before.
            try:
                if not self._options.begin_or_put_back(request):
                    raise LeaseEnded
                answer = connection.send(head, request.body, partial(self._note_head, request))
                answer_head = await answer.head()
            except LeaseEnded:
                self._connections.keep(server, connection)
                raise
            except Stale as stale:
                # For the server this was a request, and its next one comes after a rest, over a
                # new connection.
                self._connections.keep_none_to(server)
                if request.method not in _IDEMPOTENT:
                    raise ConnectionDropped(f"{request.url}: closed while idle") from stale
                if self._body_reader.is_leased(request):
                    raise ClosedWhileIdle(f"{request.url}: put back") from stale
                await asyncio.sleep(self._options.min_delay_s)
                connection = None
            except DownloadFailedError as error:
                raise type(error)(f"{request.url}: {error}") from error
            except BaseException:
                connection.close()
                raise
            else:
                return connection, answer, answer_head

    def _note_head(self, request: Request, head: AnswerHead) -> None:
        """Pass on that an answer says to wait, before anything else is done with it."""
        asked = _RETRY_AFTER.findall(head.clean)
        status = head.status
        if asked or status == 429 or status >= 500:
            self._options.note_head(request, status, asked[-1] if asked else None)


def _destination(url: str) -> tuple[Origin, str]:
    """Return where *url* is fetched from, and the target of the request. Raises
    DownloadFailedError."""
    url = url.partition("#")[0]
    begin = url.find("/", 8)  # 8: past "http://" and into the host
    query = url.find("?", 8)
    if 0 <= query < begin or begin < 0:
        begin = query if query >= 0 else len(url)
    target = url[begin:]
    if not target.startswith("/"):
        target = "/" + target
    if _UNWRITABLE.search(target):
        raise DownloadFailedError(f"{url}: white space in a URL")
    try:
        return _origin(url[:begin]), target
    except ValueError as error:
        raise DownloadFailedError(f"{url}: {error}") from error


@lru_cache(maxsize=4096)
def _origin(authority: str) -> Origin:
    """Return the origin of a URL up to its path. Raises ValueError."""
    parts = urlsplit(authority)
    host, default = parts.hostname or "", _DEFAULT_PORTS[parts.scheme]
    if not host or _UNWRITABLE.search(host):
        raise ValueError("no host in this URL")
    port = default if parts.port is None else parts.port
    written = host_field(host) if port == default else f"{host_field(host)}:{port}"
    user, at, _ = parts.netloc.rpartition("@")
    secret = unquote_to_bytes(user if ":" in user else f"{user}:")  # RFC 7617: always a colon
    authorization = b"Basic " + b64encode(secret) if at else b""
    return Origin(Server(host, port, is_tls=parts.scheme == "https"), written, authorization)


def _through_proxy(server: Server, request: Request) -> Server:
    """Return *server*, reached by the proxy of *request*, if it has one."""
    written: str | None = request.meta.get("proxy")
    if not written:
        return server
    try:
        proxy = _origin(written if _SCHEME.match(written) else f"http://{written}")
    except (ValueError, KeyError) as error:
        raise DownloadFailedError("the URL of the proxy is malformed") from error
    secret = request.headers.get(FOR_PROXY) or proxy.authorization
    return Server(server.host, server.port, server.is_tls, proxy.server, secret.decode("latin-1"))


def _request_heads(
    request: Request, origin: Origin, server: Server, target: str
) -> tuple[bytes, bytes]:
    """Return the head of *request* as it is sent, and without the secret for a proxy, as it is
    recorded. Raises DownloadFailedError if a header would break it."""
    host, lines = origin.host.encode(), []
    has_authorization = not origin.authorization
    for name, values in dict.items(request.headers):  # `items` would normalize each name once more
        if name == b"Host":
            host = values[0]
        elif name not in (FOR_PROXY, b"Content-Length"):
            has_authorization |= name == b"Authorization"
            lines += [b"%b: %b" % (name, value) for value in values]
    if not has_authorization:
        lines.append(b"Authorization: " + origin.authorization)
    if request.body or request.method in _WITH_LENGTH:
        lines.append(b"Content-Length: %d" % len(request.body))
    secrets = []
    if server.proxy is not None and not server.is_tls:
        target = f"http://{origin.host}{target}"
        if server.proxy_authorization:
            secrets = [b"%b: %b" % (FOR_PROXY, server.proxy_authorization.encode("latin-1"))]
    head = [f"{request.method} {target} HTTP/1.1".encode(), b"Host: " + host, *lines]
    recorded = b"\r\n".join((*head, b"", b""))
    sent = b"\r\n".join((*head, *secrets, b"", b"")) if secrets else recorded
    ends = len(head) + len(secrets) + 1
    if sent.count(b"\n") != ends or sent.count(b"\r") != ends or b"\0" in sent:
        raise DownloadFailedError(f"{request.url}: a line break in a header of the request")
    return sent, recorded

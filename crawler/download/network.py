"""Fetch from the network, by http and https, and record each request and answer as sent.

Rule: a request is sent once. Nothing is queued, delayed or retried here, but requests without a
lease, if an idle connection had closed unnoticed.
"""

from __future__ import annotations

import asyncio
import re
import time
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from scrapy.exceptions import DownloadFailedError

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
from crawler.download.port import Fetched, FetchWatch, WireRequest
from crawler.download.resolver import AresLookup, NamePrefetch, Resolver
from crawler.engine.errors import ClosedWhileIdle, ConnectionDropped, LeaseEnded
from crawler.engine.web_bot_auth import SIGNATURE_FIELDS, ClockCheck, RequestSigner
from crawler.model.page import DownloadOptions, Exchange

FOR_PROXY: Final = b"Proxy-Authorization"
_IDEMPOTENT: Final = frozenset(("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"))
_WITH_LENGTH: Final = frozenset(("POST", "PUT", "PATCH"))  # RFC 9110, 8.6: also of an empty body
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNWRITABLE: Final = re.compile(r"[\0-\x20\x7f]")  # in a request's target
_WAITED_TOO_LONG: Final = 408  # for a request on an idle connection: RFC 9110, 15.5.9
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


class Origin(NamedTuple):
    """What precedes the path of a URL, as a request needs it."""

    server: Server
    host: str  # the value of its Host field
    authorization: bytes  # of a user and a password in the URL


class NetworkFetch:
    """Fetches over HTTP/1.1. Implements port.FetchPort: one request makes one exchange."""

    def __init__(
        self,
        options: DownloadOptions,
        resolver: Resolver,
        local_address: tuple[str, int] | None = None,
        prefetch: NamePrefetch | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        """*resolver*: of the names of hosts. *local_address*: to connect from. *prefetch* is told
        which requests go through a proxy. *signer*: of requests over https."""
        self._signer = signer
        self._clock_check = ClockCheck()
        self._resolver = resolver
        self._prefetch = prefetch
        # Any address is admitted: the user chose the proxy's.
        self._proxy_resolver = Resolver(lambda ip, host, port: True, AresLookup())
        self._min_delay_s = options.min_delay_s
        self._connections = Connections(
            resolver,
            self._proxy_resolver,
            ssl_context(options.tls),
            local_address=local_address,
            connect_timeout_s=options.connect_timeout_s,
            keepalive_s=options.keepalive_s,
            most_open=options.most_connections,
            head_max_bytes=options.head_max_bytes,
        )

    async def close(self) -> None:
        if self._prefetch is not None:
            self._prefetch.end()
        self._connections.close()
        await self._resolver.close()
        await self._proxy_resolver.close()

    async def fetch(self, request: WireRequest, watch: FetchWatch) -> Fetched:
        at, start = time.time(), time.monotonic()
        origin, target = _destination(request.url)
        self._resolver.check_literal(origin.server.host, origin.server.port)
        if self._prefetch is not None:
            self._prefetch.note_request(by_proxy=bool(request.proxy))
        server = _through_proxy(origin.server, request)
        if server.address == "" and self._prefetch is not None and self._prefetch.is_over:
            server = server._replace(address=None)  # no address is known before a fetch any more
        heads = partial(_request_heads, request, origin, server, target, self._signer)
        connection, answer, head, recorded = await self._send(server, heads, request, watch)
        if self._signer is not None and server.is_tls:
            self._clock_check.note(origin.host, head.clean, time.time())
        try:
            room = watch.room(head)
            answer.limit(room)
            kept = await watch.keep(answer, room)
        finally:
            connection.end_answer()
            self._connections.keep(server, connection)
        exchange = Exchange(
            url=request.url,
            at=at,
            duration_s=time.monotonic() - start,
            request_head=recorded,
            request_body=request.body,
            head=head.raw,
            body=kept.body,
            ip=connection.ip,
            tls=connection.tls if server.is_tls else "",
            truncated=kept.truncated or answer.cut,
        )
        certificate = connection.certificate if server.is_tls else None
        return Fetched(exchanges=(exchange,), head=head, certificate=certificate)

    async def _send(
        self,
        server: Server,
        heads: Callable[[float], tuple[bytes, bytes]],
        request: WireRequest,
        watch: FetchWatch,
    ) -> tuple[HttpConnection, AnswerStream, AnswerHead, bytes]:
        """Send the request and return when the head of the answer is here, with the request's own
        as it is recorded. *heads*: `_request_heads` at a time."""
        sent, recorded = heads(time.time())
        connection = self._connections.idle(server)
        while True:
            if connection is None:
                connection = await self._connections.open(server)
            try:
                if not watch.may_send():
                    raise LeaseEnded
                answer = connection.send(sent, request.body, watch.note_head)
                found = await answer.head()
                if found.status == _WAITED_TOO_LONG and connection.was_used:
                    connection.close()
                    raise Stale
                return connection, answer, found, recorded
            except LeaseEnded:
                self._connections.keep(server, connection)
                raise
            except Stale as stale:
                # For the server this was a request, and its next one comes after a rest, over a
                # new connection.
                self._connections.keep_none_to(server)
                if request.method not in _IDEMPOTENT:
                    raise ConnectionDropped(f"{request.url}: closed while idle") from stale
                if request.is_leased:
                    raise ClosedWhileIdle(f"{request.url}: put back") from stale
                await asyncio.sleep(self._min_delay_s)
                sent, recorded = heads(time.time())  # its signature may have expired
                connection = None
            except DownloadFailedError as error:
                raise type(error)(f"{request.url}: {error}") from error
            except BaseException:
                connection.close()
                raise


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


def _through_proxy(server: Server, request: WireRequest) -> Server:
    """Return *server*, reached by the proxy of *request*, if it has one."""
    if not request.proxy:
        return server if request.address is None else server._replace(address=request.address)
    try:
        proxy = _origin(
            request.proxy if _SCHEME.match(request.proxy) else f"http://{request.proxy}"
        )
    except (ValueError, KeyError) as error:
        raise DownloadFailedError("the URL of the proxy is malformed") from error
    given = [value for name, value in request.fields if name == FOR_PROXY]
    secret = given[-1] if given else proxy.authorization
    return Server(server.host, server.port, server.is_tls, proxy.server, secret.decode("latin-1"))


_SET_HERE: Final = frozenset((FOR_PROXY, b"Content-Length"))
_SET_BY_SIGNER: Final = _SET_HERE.union(SIGNATURE_FIELDS)


def _request_heads(
    request: WireRequest,
    origin: Origin,
    server: Server,
    target: str,
    signer: RequestSigner | None,
    now: float,
) -> tuple[bytes, bytes]:
    """Return the head of *request* as it is sent, and without the secret for a proxy, as it is
    recorded. Raises DownloadFailedError if a header would break it. With a *signer*, signatures of
    the request's own are left out: they may be copies of one for another host."""
    host, lines = b"", []
    set_here = _SET_HERE if signer is None else _SET_BY_SIGNER
    has_authorization = not origin.authorization
    for name, value in request.fields:
        if name == b"Host":
            host = host or value
        elif name not in set_here:
            has_authorization |= name == b"Authorization"
            lines.append(b"%b: %b" % (name, value))
    if not has_authorization:
        lines.append(b"Authorization: " + origin.authorization)
    if request.body or request.method in _WITH_LENGTH:
        lines.append(b"Content-Length: %d" % len(request.body))
    # A field Host of another name may lead to another site than the signature is for.
    if signer is not None and server.is_tls and host.decode("latin-1") in ("", origin.host):
        lines += signer.lines(origin.host, now)
    secrets = []
    if server.proxy is not None and not server.is_tls:
        target = f"http://{origin.host}{target}"
        if server.proxy_authorization:
            secrets = [b"%b: %b" % (FOR_PROXY, server.proxy_authorization.encode("latin-1"))]
    head = [
        f"{request.method} {target} HTTP/1.1".encode(),
        b"Host: " + (host or origin.host.encode()),
        *lines,
    ]
    recorded = b"\r\n".join((*head, b"", b""))
    sent = b"\r\n".join((*head, *secrets, b"", b"")) if secrets else recorded
    ends = len(head) + len(secrets) + 1
    if sent.count(b"\n") != ends or sent.count(b"\r") != ends or b"\0" in sent:
        raise DownloadFailedError(f"{request.url}: a line break in a header of the request")
    return sent, recorded

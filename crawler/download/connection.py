"""Connections over HTTP/1.1: send a request, read its answer as it comes, and keep a connection
whose answer is over for the next request to the same server.

Rule: `AnswerReader` decides what the bytes mean; here are futures, flow control and the pool. Bytes
after an answer's end are never taken as the next answer, and a connection is used again only if
that end is certain.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self, cast

import certifi
from aiohappyeyeballs import start_connection
from scrapy.exceptions import DownloadFailedError

from crawler.download.answer_reader import AnswerEnd, AnswerReader
from crawler.download.http_head import AnswerHead
from crawler.download.resolver import Resolver
from crawler.engine.errors import (
    AddressFound,
    ConnectionDropped,
    ConnectionFailed,
    FetchTimedOut,
    NameNotFound,
    NoFileLeft,
    TlsFailed,
)
from crawler.model.choices import Tls
from crawler.model.page import Truncated
from crawler.model.types import HTTP_OK, OUT_OF_FILES

READ_AHEAD_BYTES: Final = 64 * 1024
"""With so much unread, no more is read from the socket. The last read may bring 256 KB."""

NEXT_ADDRESS_S: Final = 0.25  # RFC 8305, section 5: before the next address is tried beside it

_FREED_S: Final = 0.05  # guess: until the loop has closed what was aborted

_MAX_CLOSING: Final = 10_000  # servers that close idle connections unnoticed, and are known for it


class Stale(Exception):
    """A connection that was idle had closed unnoticed: no byte came back, or only that the server
    has waited too long. The request may be sent again, over a new one."""


class AnswerStream:
    """The answer to one request, as it comes. It is iterated for the bytes of its body, without
    chunked framing; *cut* says then why they are not all."""

    __slots__ = (
        *("_buffered_bytes", "_connection", "_error", "_head", "_on_head", "_pieces", "_reader"),
        *("_waiting", "cut"),
    )

    def __init__(
        self,
        connection: HttpConnection,
        reader: AnswerReader,
        on_head: Callable[[AnswerHead], None] | None,
    ) -> None:
        self.cut = Truncated.NO
        self._connection = connection
        self._reader = reader
        self._on_head = on_head
        self._head: AnswerHead | None = None
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether no more of it comes."""
        return self._reader.is_over

    @property
    def may_go_on(self) -> bool:
        """Whether the next answer can follow on the same connection. Not where some of this one was
        not read, as reading may be paused."""
        return not self._pieces and self._reader.may_go_on

    async def head(self) -> AnswerHead:
        """Return the head when it is whole. Raises Stale, ConnectionDropped,
        DownloadFailedError."""
        while self._head is None:
            if self._error is not None:
                raise self._error
            await self._wait()
        return self._head

    def limit(self, room: int) -> None:
        """Limit a body in chunks to *room* bytes, framing included."""
        self._reader.limit(room)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._reader.is_over:
                raise StopAsyncIteration
            await self._wait()
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        if self._buffered_bytes > READ_AHEAD_BYTES:
            self._connection.resume_reading()
        self._buffered_bytes = 0
        return data

    def receive(self, data: bytes) -> None:
        """Take bytes as received."""
        for event in self._reader.receive(data):
            if isinstance(event, bytes):
                self._pieces.append(event)
                self._buffered_bytes += len(event)
            elif isinstance(event, AnswerHead):
                self._head = event
                if self._on_head is not None:
                    self._on_head(event)
            elif isinstance(event, AnswerEnd):
                self.cut = event.cut
            else:
                self._error = DownloadFailedError(event.refused)
        if self._waiting is not None:
            self._wake()
        if self._reader.is_spoiled:
            self._connection.close()
        elif self._buffered_bytes > READ_AHEAD_BYTES and not self._reader.is_over:
            self._connection.pause_reading()

    def connection_lost(self, error: Exception | None, *, was_used: bool) -> None:
        """Note that no more can come."""
        # While reading is paused, uvloop drops what TLS has not decoded. Many servers end TLS
        # without its last word.
        is_orderly = self._buffered_bytes <= READ_AHEAD_BYTES and (
            not isinstance(error, OSError) or isinstance(error, ssl.SSLError)
        )
        event = self._reader.end(is_orderly=is_orderly)
        if isinstance(event, AnswerEnd):
            self.cut = event.cut
        elif event is not None:
            is_stale = was_used and event.is_silent
            self._error = Stale() if is_stale else ConnectionDropped(str(error or "no answer"))
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None


class HttpConnection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self, head_max_bytes: int, on_lost: Callable[[], None]) -> None:
        """*on_lost* is called once, when the connection has ended."""
        self._on_lost = on_lost
        self.ip = ""
        self.tls = ""  # "TLSv1.3"; empty without TLS
        self.certificate: bytes | None = None
        self.idle_since = 0.0
        self.is_open = True
        self._head_max_bytes = head_max_bytes
        self._answer: AnswerStream | None = None
        self.was_used = False  # it was idle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.ip = (transport.get_extra_info("peername") or ("",))[0]
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.tls = tls.version() or ""
            self.certificate = tls.getpeercert(binary_form=True)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nothing was asked
        else:
            self._answer.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._on_lost()
        if self._answer is not None:
            self._answer.connection_lost(exc, was_used=self.was_used)

    def send(
        self, head: bytes, body: bytes = b"", on_head: Callable[[AnswerHead], None] | None = None
    ) -> AnswerStream:
        """Send a request. Its *head* ends with an empty line. *on_head* is called with the head of
        the answer in the same turn of the loop in which its last byte was read."""
        has_no_body = head.startswith((b"HEAD ", b"CONNECT "))
        reader = AnswerReader(self._head_max_bytes, has_no_body=has_no_body)
        self._answer = AnswerStream(self, reader, on_head)
        self._transport.write(head + body if body else head)
        return self._answer

    def end_answer(self) -> None:
        """Note that the answer was read; close the connection unless another can follow."""
        if self._answer is not None and not self._answer.may_go_on:
            self.close()
        self._answer = None

    def begin_idle(self, now: float) -> None:
        self.idle_since = now
        self.was_used = True  # or not: it may close unnoticed from now on

    def close(self) -> None:
        # Not an orderly end of TLS, for which a server may let us wait.
        self.is_open = False
        self._transport.abort()

    def pause_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Go on as TLS with *host*, as if nothing had been sent before."""
        self._answer = None
        loop = asyncio.get_running_loop()
        transport = await loop.start_tls(self._transport, self, context, server_hostname=host)
        if transport is None:
            raise ConnectionResetError("closed while TLS began")
        self.connection_made(transport)


class Server(NamedTuple):
    """What a connection is made to."""

    host: str
    port: int
    is_tls: bool = False
    proxy: Server | None = None  # through which it is reached
    proxy_authorization: str = ""
    address: str | None = None  # the only one; empty: none was known; None: any of the host's


class Connections:
    """Opens connections, and keeps those that are idle. How many requests go on is decided before.
    An idle one is closed after *keepalive_s*, and the oldest whenever more than *most_open* would
    be open."""

    def __init__(
        self,
        resolver: Resolver,
        proxy_resolver: Resolver,
        context: ssl.SSLContext,
        *,
        local_address: tuple[str, int] | None,
        connect_timeout_s: float,
        keepalive_s: float,
        most_open: int,
        head_max_bytes: int,
    ) -> None:
        """*proxy_resolver*: of the names of proxies, which may be inside."""
        self._resolver = resolver
        self._proxy_resolver = proxy_resolver
        self._context = context
        self._local = local_address
        self._connect_timeout_s = connect_timeout_s
        self._keepalive_s = keepalive_s
        self._most_open = most_open
        self._open_count = 0  # those being made and idle ones among them
        self._head_max_bytes = head_max_bytes
        self._idle: dict[Server, list[HttpConnection]] = {}
        self._by_age: deque[tuple[float, Server, HttpConnection]] = deque()
        self._closing: dict[Server, None] = {}  # those that closed an idle connection unnoticed
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    def idle(self, server: Server) -> HttpConnection | None:
        """Take an idle connection to *server*, if there is one."""
        waiting = self._idle.get(server)
        while waiting:
            connection = waiting.pop()
            if not waiting:
                del self._idle[server]
            if connection.is_open:
                return connection
        return None

    def keep(self, server: Server, connection: HttpConnection) -> None:
        """Keep *connection*, whose answer was read, or which was not used, if it is still open."""
        if not connection.is_open:
            return
        if self._keepalive_s <= 0 or self._is_closed or server in self._closing:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        connection.begin_idle(now)
        self._idle.setdefault(server, []).append(connection)
        self._by_age.append((now, server, connection))
        if self._sweep is None:
            self._sweep = loop.call_later(self._keepalive_s, self._close_old)

    def keep_none_to(self, server: Server) -> None:
        """Keep no connection to *server* from now on, and close those that are idle."""
        for connection in self._idle.pop(server, ()):
            connection.close()
        if len(self._closing) >= _MAX_CLOSING:
            del self._closing[next(iter(self._closing))]
        self._closing[server] = None

    async def open(self, server: Server) -> HttpConnection:
        """Connect. Raises AddressRefused, NameNotFound, ConnectionFailed, FetchTimedOut, TlsFailed,
        NoFileLeft."""
        through = server.proxy or server
        reached = f"the proxy {through.host}:{through.port}" if server.proxy else server.host
        resolver = self._proxy_resolver if server.proxy else self._resolver
        try:
            if through.address:
                resolver.check_known(through.address, through.host, through.port)
                ips = [through.address]
            else:
                ips = await resolver.addresses(through.host, through.port)
        except OSError as error:
            if _is_out_of_files():  # the look-up does not say so
                self._close_all()
                raise NoFileLeft(f"{reached}: {error}") from error
            raise NameNotFound(f"{reached}: {error}") from error
        if through.address == "":
            raise AddressFound(f"{reached} has an address by now, of which others may be asked")
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await self._connect_with_room(through, ips)
                if server.proxy is not None and server.is_tls:
                    await self._tunnel(connection, server)
        except TimeoutError as error:
            raise FetchTimedOut(
                f"{reached}: no connection in {self._connect_timeout_s:g} s"
            ) from error
        except ssl.SSLError as error:
            raise TlsFailed(f"{server.host}: {error}") from error
        except ValueError as error:  # a host that is no name for TLS
            raise DownloadFailedError(f"{server.host!r}: {error}") from error
        except (OSError, RuntimeError) as error:  # uvloop raises both
            if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
                raise NoFileLeft(f"{reached}: {error}") from error.with_traceback(None)
            # A frame of `start_connection` keeps the error, so its traceback would be a cycle.
            cause = error.with_traceback(None)
            raise ConnectionFailed(f"{reached}: {error}") from cause
        return connection

    async def _connect_with_room(self, server: Server, ips: list[str]) -> HttpConnection:
        """Connect, at the cost of idle connections where files are short."""
        while self._open_count >= self._most_open and self._close_oldest():
            pass
        try:
            return await self._connect(server, ips)
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
        self._close_all()
        await asyncio.sleep(_FREED_S)
        return await self._connect(server, ips)

    async def _connect(self, server: Server, ips: list[str]) -> HttpConnection:
        self._open_count += 1
        try:
            return await self._connected(server, ips)
        except BaseException:
            self._open_count -= 1
            raise

    async def _connected(self, server: Server, ips: list[str]) -> HttpConnection:
        loop = asyncio.get_running_loop()
        connected = await start_connection(
            [_address(ip, server.port) for ip in ips],
            local_addr_infos=[_address(*self._local)] if self._local else None,
            happy_eyeballs_delay=NEXT_ADDRESS_S,
            interleave=1,
            loop=loop,
        )
        _, connection = await loop.create_connection(
            lambda: HttpConnection(self._head_max_bytes, self._lost),
            sock=connected,
            ssl=self._context if server.is_tls else None,
            server_hostname=server.host.rstrip(".") if server.is_tls else None,
        )
        return connection

    def _lost(self) -> None:
        self._open_count -= 1

    async def _tunnel(self, connection: HttpConnection, server: Server) -> None:
        """Let a proxy connect to *server*, and begin TLS with that."""
        name = f"{host_field(server.host)}:{server.port}"
        lines = [f"CONNECT {name} HTTP/1.1", f"Host: {name}"]
        if server.proxy_authorization:
            lines.append(f"Proxy-Authorization: {server.proxy_authorization}")
        try:
            answer = connection.send("\r\n".join((*lines, "", "")).encode("latin-1"))
            status = (await answer.head()).status
            if status not in HTTP_OK:
                raise DownloadFailedError(f"the proxy answers {status}")
            if not connection.is_open:  # TLS over it would wait for ever
                raise DownloadFailedError("the proxy closes, or sends bytes before TLS begins")
            await connection.start_tls(self._context, server.host.rstrip("."))
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close all that are idle, and keep none any more."""
        self._is_closed = True
        self._close_all()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _close_old(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep = None
        before = loop.time() - self._keepalive_s
        while self._by_age and self._by_age[0][0] <= before:
            self._close_first()
        if self._by_age:
            wait_s = self._by_age[0][0] - before
            self._sweep = loop.call_later(wait_s, self._close_old)

    def _close_oldest(self) -> bool:
        """Close the connection that is idle for longest, and return whether there was one."""
        while self._by_age:
            if self._close_first():
                return True
        return False

    def _close_all(self) -> None:
        while self._by_age:
            self._close_first()

    def _close_first(self) -> bool:
        """Close the connection of the oldest entry, and return whether it was still idle."""
        since, server, connection = self._by_age.popleft()
        waiting = self._idle.get(server, [])
        # One that was used since has an entry of its own, if it is idle again.
        if connection.idle_since != since or connection not in waiting:
            return False
        waiting.remove(connection)
        if not waiting:
            del self._idle[server]
        was_open = connection.is_open
        connection.close()
        return was_open


def _is_out_of_files() -> bool:
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in OUT_OF_FILES
    return False


def host_field(host: str) -> str:
    """Return *host* as it stands in a Host field."""
    return f"[{host}]" if ":" in host else host


_AddressInfo = tuple[int, int, int, str, tuple[str, int] | tuple[str, int, int, int]]


def _address(ip: str, port: int) -> _AddressInfo:
    if ":" in ip:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, port)


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

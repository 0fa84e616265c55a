"""When a connection may be used for the next request, and what its end means for an answer."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
import uvloop
from scrapy.exceptions import DownloadFailedError

from crawler.download.chunked import MAX_LINE_BYTES
from crawler.download.connection import (
    READ_AHEAD_BYTES,
    AnswerStream,
    Connections,
    HttpConnection,
    Server,
    Stale,
    ssl_context,
)
from crawler.download.network import _destination
from crawler.download.resolver import AresLookup, Resolver
from crawler.engine.errors import ConnectionDropped
from crawler.model.choices import Tls
from crawler.model.page import Truncated
from tests.harness.commands import PATIENCE_S

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"
LARGE = READ_AHEAD_BYTES + 1


class FakeTransport(asyncio.Transport):
    """It notes what it is told, and loses its connection when it is aborted."""

    def __init__(self, protocol: HttpConnection) -> None:
        super().__init__()
        self.is_paused = self.is_aborted = False
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return self.is_aborted

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        if not self.is_aborted:
            self.is_aborted = True
            self._protocol.connection_lost(None)


def asked(request: bytes = GET) -> tuple[HttpConnection, FakeTransport, AnswerStream]:
    connection = HttpConnection(4096, lambda: None)
    transport = FakeTransport(connection)
    return connection, transport, connection.send(request)


async def read(answer: AnswerStream) -> bytes:
    return b"".join([piece async for piece in answer])


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [
        pytest.param(OK + b"Content-Length: 2\r\n\r\nab", True, id="a length"),
        pytest.param(OK + b"Content-Length: 0\r\n\r\n", True, id="no body"),
        pytest.param(OK + b"Content-Length: 3\r\n\r\nab", False, id="not whole"),
        pytest.param(OK + b"Content-Length: 1\r\n\r\nab", False, id="more than its length"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", True, id="chunks"
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n", False, id="no end of chunks"
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a" * MAX_LINE_BYTES,
            False,
            id="a trailer without an end",
        ),
        pytest.param(OK + b"\r\nab", False, id="a body that ends with its connection"),
        pytest.param(
            OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nab", False, id="the server closes"
        ),
        pytest.param(
            OK + b"Connection: keep-alive\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            False,
            id="it says so in a second line",
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False, id="HTTP/1.0"),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n",
            True,
            id="HTTP/1.0 that keeps it",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nConnection: close, keep-alive\r\nContent-Length: 0\r\n\r\n",
            False,
            id="HTTP/1.0 that closes and keeps it",
        ),
        pytest.param(
            OK + b"Connection: Keep-Alive, Close\r\nContent-Length: 0\r\n\r\n",
            False,
            id="it closes and keeps it",
        ),
        pytest.param(
            b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"0\r\n\r\n",
            False,
            id="chunks in HTTP/1.0",
        ),
        pytest.param(
            OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            False,
            id="chunks and a length",
        ),
        pytest.param(
            OK + b"content-length: 9\nTransfer-Encoding : Chunked\n\n0\r\n\r\n",
            False,
            id="chunks and a length, in an odd spelling",
        ),
        pytest.param(
            OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", False, id="chunks twice"
        ),
        pytest.param(
            OK + b"A: 1\rTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n",
            False,
            id="chunks for a reader to whom CR ends a line",
        ),
        pytest.param(
            b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", False, id="a length of no body"
        ),
        pytest.param(
            b"HTTP/1.1 204 None\r\nTransfer-Encoding: chunked\r\n\r\n",
            False,
            id="no body in chunks",
        ),
        pytest.param(
            b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n", True, id="the length of a known page"
        ),
    ],
)
def test_a_connection_is_kept_if_its_answer_is_surely_over(sent: bytes, is_kept: bool) -> None:
    async def scenario() -> None:
        connection, transport, answer = asked()
        connection.data_received(sent)
        await answer.head()
        if answer.is_over:
            await read(answer)
        connection.end_answer()
        assert (connection.is_open, transport.is_aborted) == (is_kept, not is_kept)

    asyncio.run(scenario())


def test_a_connection_of_which_not_all_was_read_is_not_kept() -> None:
    async def scenario() -> None:
        connection, transport, answer = asked()
        connection.data_received(OK + b"Content-Length: %d\r\n\r\n" % LARGE + b"a" * LARGE)
        assert answer.is_over and not transport.is_paused
        connection.end_answer()
        assert not connection.is_open

    asyncio.run(scenario())


def test_no_more_is_read_than_is_taken() -> None:
    async def scenario() -> None:
        connection, transport, answer = asked()
        connection.data_received(OK + b"Content-Length: %d\r\n\r\n" % (2 * LARGE) + b"a" * LARGE)
        assert transport.is_paused
        assert len(await anext(answer)) == LARGE
        assert not transport.is_paused

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "error", "cut"),
    [
        pytest.param(b"\r\nab", None, Truncated.NO, id="its end is that of its connection"),
        pytest.param(b"\r\nab", ConnectionResetError(), Truncated.DISCONNECT, id="a reset"),
        pytest.param(b"\r\nab", ssl.SSLError(), Truncated.NO, id="TLS without a last word"),
        pytest.param(b"\r\n" + b"a" * LARGE, None, Truncated.DISCONNECT, id="while it was paused"),
        pytest.param(b"Content-Length: 3\r\n\r\nab", None, Truncated.DISCONNECT, id="a length"),
    ],
)
def test_what_the_end_of_a_connection_means(
    sent: bytes, error: Exception | None, cut: Truncated
) -> None:
    async def scenario() -> None:
        connection, _, answer = asked()
        connection.data_received(OK + sent)
        connection.connection_lost(error)
        await read(answer)
        assert answer.cut == cut

    asyncio.run(scenario())


def used(connection: HttpConnection) -> None:
    connection.send(GET)
    connection.data_received(OK + b"Content-Length: 0\r\n\r\n")
    connection.end_answer()
    connection.begin_idle(0.0)


@pytest.mark.parametrize(
    ("before", "raised"),
    [
        pytest.param(lambda connection: None, ConnectionDropped, id="a new one"),
        pytest.param(used, Stale, id="one that was used"),
        pytest.param(
            lambda connection: connection.begin_idle(0.0), Stale, id="one that was kept unused"
        ),
    ],
)
def test_a_connection_that_closes_without_an_answer(
    before: Callable[[HttpConnection], None], raised: type[Exception]
) -> None:
    async def scenario() -> None:
        connection = HttpConnection(4096, lambda: None)
        FakeTransport(connection)
        before(connection)
        answer = connection.send(GET)
        connection.connection_lost(None)
        with pytest.raises(raised):
            await answer.head()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "host", "target", "authorization"),
    [
        pytest.param("http://a.example/b?c", "a.example", "/b?c", b"", id="a URL"),
        pytest.param("http://a.example:80?c#d", "a.example", "/?c", b"", id="no path"),
        pytest.param("https://[::1]:8443", "[::1]:8443", "/", b"", id="IPv6 and a port"),
        pytest.param("http://u:p@a.example/", "a.example", "/", b"Basic dTpw", id="a password"),
        pytest.param("http://u@a.example/", "a.example", "/", b"Basic dTo=", id="a user alone"),
    ],
)
def test_where_a_url_is_fetched_from(
    url: str, host: str, target: str, authorization: bytes
) -> None:
    origin, found = _destination(url)
    assert (origin.host, found, origin.authorization) == (host, target, authorization)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("pause_s", [0.0, 0.01], ids=["at once", "a little later"])
def test_a_proxy_that_sends_bytes_behind_its_answer_is_an_error_at_once(
    loop: Callable[[], asyncio.AbstractEventLoop], pause_s: float
) -> None:
    faults: list[object] = []

    def serve(listener: socket.socket) -> None:
        client, _ = listener.accept()
        with client, suppress(ConnectionError):
            client.recv(4096)
            client.sendall(OK + b"\r\n")
            time.sleep(pause_s)
            client.sendall(b"<html>not a tunnel" * 50)
            while client.recv(4096):
                pass  # until it is closed

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        anywhere = Resolver(lambda ip, host, port: True, AresLookup())
        connections = Connections(
            anywhere,
            anywhere,
            ssl_context(Tls.LENIENT),
            local_address=None,
            connect_timeout_s=PATIENCE_S,
            keepalive_s=4.0,
            most_open=10,
            head_max_bytes=1 << 16,
        )
        proxy = Server(*listener.getsockname())
        with pytest.raises(DownloadFailedError):
            await connections.open(Server("a.example", 443, is_tls=True, proxy=proxy))
        connections.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(scenario())
        server.join()
    assert faults == []

"""A small web on loopback addresses that keeps an exact log of its requests: the host, the path and
the times.

Rule: the log never shows a violation that did not happen. An arrival is stamped once all its bytes
are read, an end just before the answer's last bytes go to the kernel. So a gap in the log is never
shorter than the client's own, and a duration never longer, however late this thread is scheduled. A
client that disconnects earlier is not noticed at once, and on a busy machine late: the log has the
time at which it was last known to be connected.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import responses
from typing import Final, Self, cast

HEAD_END: Final = b"\r\n\r\n"
BODY_BYTES: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.I)
LARGEST_HEAD_BYTES: Final = 64 * 1024  # no client of ours sends as much
LAST_BYTES: Final = 16 * 1024  # stamped and sent as one; a fresh socket buffer takes them whole
UNASKED_S: Final = 0.05  # enough for a client to have read the answer before
SETTLED_S: Final = 2.0
PORT_TRIES: Final = 20  # a port free on one address may be taken on another
CHECK_S: Final = 0.01
CHECKS: Final = 5
"""Iterations of the loop with a check, from the one before that in which the kernel reported that a
client had disconnected, to the one in which its task is notified: so the oldest of so many checks
was before the disconnection."""
TCP_ESTABLISHED: Final = 1  # include/net/tcp_states.h

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, as it arrived."""

    host: str  # the loopback address that was called
    path: str  # with its query; a proxy is asked for a whole URL
    turn: int = 0  # how often this path was asked for before
    port: int = 0
    method: str = "GET"
    headers: Headers = ()
    body: bytes = b""
    use: int = 1  # of its connection: 1 for the first request on it


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request."""

    body: str | bytes | Callable[[], AsyncIterator[bytes]] = b""  # a callable is sent in chunks
    status: int = 200
    content_type: str | bytes = "text/html; charset=utf-8"
    headers: Headers = ()  # beside those of the type and the length
    wait_s: float = 0.0  # before the first byte
    hang: bool = False  # never answer
    close: bool = False  # close the connection instead of an answer
    unasked: bytes = b""  # sent UNASKED_S after the answer

    def header(self, name: str) -> str:
        """The value of *name*, spelt as the web spelt it; "" without one."""
        return dict(self.headers).get(name, "")


@dataclass(frozen=True, slots=True)
class Visit:
    """One line of the log. Times are seconds of one monotonic clock, but for *ended_at*."""

    host: str
    path: str
    arrival_s: float
    end_s: float
    status: int = 200  # 0: closed without an answer
    retry_after: str = ""  # as sent: seconds or a date
    ended_at: float = 0.0  # the end in epoch seconds, for dates
    cut: bool = False  # the client left before the end; that was not before *end_s*
    agent: str = ""  # as it named itself


Web = Callable[[Ask], Reply]
"""One thread makes all answers: what must wait does so by `wait_s` or in an iterator of chunks."""


class LoopbackWeb:
    """Serves a `Web` on many addresses and one port, from a thread of its own."""

    def __init__(self, web: Web, hosts: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        self.web = web
        self.hosts = tuple(hosts)
        self.tls = tls
        self.port = 0  # known once entered
        self.visits: list[Visit] = []  # in the order they ended
        self.failures: list[Exception] = []  # the web's own faults
        self.requests: Counter[tuple[str, str]] = Counter()

    def url(self, host: str, path: str = "/") -> str:
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{path}"

    def settle(self) -> None:
        """Wait until each answer that was begun is in the log, which a busy machine writes late;
        at most SETTLED_S, for some answers have no end."""
        deadline_s = time.monotonic() + SETTLED_S
        while len(self.visits) < self.requests.total() and time.monotonic() < deadline_s:
            time.sleep(0.005)

    def __enter__(self) -> Self:
        sockets = _listen(self.hosts)
        self.port = sockets[0].getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self.checks = deque([time.monotonic()], CHECKS)  # at who has left; in seconds
        self._thread = threading.Thread(target=self._run, args=(sockets,), name="loopback web")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self.failures:
            raise self.failures[0]

    def _run(self, sockets: list[socket.socket]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(sockets))

    async def _serve(self, sockets: list[socket.socket]) -> None:
        open_now: set[_Connection] = set()
        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(
                lambda: _Connection(self, open_now), sock=each, backlog=256, ssl=self.tls
            )
            for each in sockets
        ]
        checking = loop.create_task(self._check())
        await self._stopping.wait()
        checking.cancel()
        for server in servers:
            server.close()
        for connection in tuple(open_now):
            connection.leave()
        while open_now:
            await asyncio.sleep(0)

    async def _check(self) -> None:
        """Check at each iteration of the loop which clients have closed their connection."""
        while True:
            self.checks.append(time.monotonic())
            await asyncio.sleep(CHECK_S)


Routes = Mapping[str, Reply | Callable[[int], Reply | None]]
"""By path. A callable gets the count of its hits; None leaves the answer to the default."""


@dataclass(frozen=True, slots=True)
class Site:
    """One address that is served, and what was asked of it."""

    root: str
    asked: list[str]  # paths, in order of arrival

    @property
    def hits(self) -> Counter[str]:
        return Counter(self.asked)

    def url(self, path: str) -> str:
        return self.root + path


def not_here(ask: Ask) -> Reply:
    return Reply("not here", 404)


@contextmanager
def site(address: str, routes: Routes, default: Web = not_here) -> Iterator[Site]:
    """Serve *routes* on *address* at a free port; *default* answers on other paths."""
    asked: list[str] = []

    def answer(ask: Ask) -> Reply:
        asked.append(ask.path)
        route = routes.get(ask.path)
        return (route(ask.turn + 1) if callable(route) else route) or default(ask)

    with LoopbackWeb(answer, [address]) as web:
        yield Site(web.url(address, ""), asked)


def page(*links: str, text: str = "") -> Reply:
    anchors = "".join(f'<a href="{link}">{link}</a> ' for link in links)
    return Reply(f"<html><title>{text}</title><body>{text} {anchors}</body></html>")


def _listen(hosts: Sequence[str]) -> list[socket.socket]:
    for _ in range(PORT_TRIES):
        sockets: list[socket.socket] = []
        try:
            for host in hosts:
                port = sockets[0].getsockname()[1] if sockets else 0
                sockets.append(socket.create_server((host, port), backlog=256))
        except OSError:
            for each in sockets:
                each.close()
        else:
            return sockets
    raise OSError(f"no port is free on all of {hosts[0]} ... {hosts[-1]}")


class _Connection(asyncio.Protocol):
    """Answers the requests of a connection one after the other, and stamps them as they arrive."""

    def __init__(self, server: LoopbackWeb, open_now: set[_Connection]) -> None:
        self._server = server
        self._open_now = open_now
        self._unread = b""
        self._uses = 0
        self._requests: asyncio.Queue[tuple[bytes, bytes, float]] = asyncio.Queue()
        self._empty = asyncio.Event()  # nothing of ours waits for the kernel
        self._empty.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self._wire: socket.socket = transport.get_extra_info("socket")
        # Or last bytes wait for an ACK.
        self._wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host, self._port = self._transport.get_extra_info("sockname")[:2]
        self._open_now.add(self)
        self._task = asyncio.get_running_loop().create_task(self._answer_all())

    def data_received(self, data: bytes) -> None:
        arrival_s = time.monotonic()
        self._unread += data
        while HEAD_END in self._unread:
            head, _, rest = self._unread.partition(HEAD_END)
            length = BODY_BYTES.search(head)
            body_bytes = int(length[1]) if length else 0
            if len(rest) < body_bytes:
                return
            self._requests.put_nowait((head, rest[:body_bytes], arrival_s))
            self._unread = rest[body_bytes:]
        if len(self._unread) > LARGEST_HEAD_BYTES:
            self.leave()

    def pause_writing(self) -> None:
        self._empty.clear()

    def resume_writing(self) -> None:
        self._empty.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._task.cancel()
        self._open_now.discard(self)

    def leave(self) -> None:
        self._transport.abort()

    async def _answer_all(self) -> None:
        while True:
            head, body, arrival_s = await self._requests.get()
            try:
                await self._answer(self._ask(head, body), arrival_s)
            except Exception as fault:
                self._server.failures.append(fault)
                self.leave()

    def _ask(self, head: bytes, body: bytes) -> Ask:
        """Return what is asked for, and count it."""
        line, *fields = head.decode("latin-1").split("\r\n")
        method, path = line.split(" ", 2)[:2]
        pairs = (each.partition(":") for each in fields)
        headers = tuple((name, value.strip()) for name, _, value in pairs)
        requests = self._server.requests
        turn = requests[self._host, path]
        requests[self._host, path] += 1
        self._uses += 1
        return Ask(self._host, path, turn, self._port, method, headers, body, self._uses)

    async def _answer(self, ask: Ask, arrival_s: float) -> None:
        reply = self._server.web(ask)
        end_s = None
        try:
            end_s = await self._send(reply, with_body=ask.method != "HEAD")
        finally:
            self._server.visits.append(
                Visit(
                    host=ask.host,
                    path=ask.path,
                    arrival_s=arrival_s,
                    end_s=max(arrival_s, self._server.checks[0]) if end_s is None else end_s,
                    status=0 if reply.close else reply.status,
                    retry_after=reply.header("Retry-After"),
                    ended_at=time.time(),
                    cut=end_s is None,
                    agent=_agent(ask.headers),
                )
            )
        if reply.unasked:
            loop = asyncio.get_running_loop()
            loop.call_later(UNASKED_S, self._transport.write, reply.unasked)

    async def _send(self, reply: Reply, with_body: bool) -> float | None:
        """When it ended. None: the client had left."""
        if reply.hang:
            await asyncio.Event().wait()
        if reply.wait_s:
            await asyncio.sleep(reply.wait_s)
        if reply.close:
            end_s = self._send_last(b"")
            self._transport.close()
            return end_s
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        head = _head(reply, len(body) if isinstance(body, bytes) else None)
        if not with_body:
            return self._send_last(head)
        if not isinstance(body, bytes):
            return await self._send_chunks(head, body())
        answer = head + body
        first, last = answer[:-LAST_BYTES], answer[-LAST_BYTES:]
        if first:
            self._transport.write(first)
            await self._empty.wait()
        return self._send_last(last)

    async def _send_chunks(self, head: bytes, chunks: AsyncIterator[bytes]) -> float | None:
        self._transport.write(head)
        async for chunk in chunks:
            await self._empty.wait()
            self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await self._empty.wait()
        return self._send_last(b"0\r\n\r\n")

    def _send_last(self, last: bytes) -> float | None:
        end_s = time.monotonic()
        state = self._wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        if state != TCP_ESTABLISHED:
            return None
        self._transport.write(last)
        return end_s


def _agent(headers: Headers) -> str:
    return next((value for name, value in headers if name.lower() == "user-agent"), "")


def _head(reply: Reply, length: int | None) -> bytes:
    body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    status = f"HTTP/1.1 {reply.status} {responses.get(reply.status, '-')}"
    lines = [status, body, *(f"{name}: {value}" for name, value in reply.headers)]
    kind = reply.content_type
    kind = kind.encode("latin-1") if isinstance(kind, str) else kind
    return "\r\n".join(lines).encode("latin-1") + b"\r\nContent-Type: " + kind + HEAD_END

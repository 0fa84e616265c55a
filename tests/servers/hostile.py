"""A server whose every answer is wrong in its own way, with a table of them.

Rule: it sends what the table says, byte by byte, and closes. It holds no answer in memory
that it can make while sending, writes down each visit, and stops at once.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from typing import Final, Self

from tests.servers.hostile_bodies import BOMBS, CODINGS, CONTENTS, REDIRECTS, TIMES
from tests.servers.hostile_heads import CHUNKS, HEADS, LENGTHS
from tests.servers.hostile_kit import Hostile, Reset, Wait, answer

TABLE: Final[tuple[Hostile, ...]] = (
    *(*HEADS, *LENGTHS, *CHUNKS),
    *(*CODINGS, *BOMBS, *CONTENTS, *TIMES, *REDIRECTS),
)
TLS_HELLO: Final = b"\x16\x03"  # answered in plain HTTP, as plain servers do
ROBOTS: Final = b"User-agent: *\nDisallow: /deep/\n"  # where the ten thousand links lead
RST_ON_CLOSE: Final = struct.pack("ii", 1, 0)  # SO_LINGER: on, for no time at all


class HostileServer:
    """Serves a table on one loopback address, from a thread of its own. "/" links to all of it."""

    def __init__(self, table: tuple[Hostile, ...] = TABLE, address: str = "127.0.0.1") -> None:
        self.visits: Counter[str] = Counter()
        self._address = address
        self._rows = {row.path: row for row in table}
        self._port = 0

    @property
    def url(self) -> str:
        """Without a slash at the end."""
        return f"http://{self._address}:{self._port}"

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        listener = socket.create_server((self._address, 0), backlog=256)
        self._port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener,), name="hostile server")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        async with asyncio.TaskGroup() as group:
            accepting = group.create_task(self._accept(listener, group))
            await self._stopping.wait()
            accepting.cancel()
            for task in self._answering:
                task.cancel()
        listener.close()

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        self._answering: set[asyncio.Task[None]] = set()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = group.create_task(self._answer(client))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, client: socket.socket) -> None:
        with client:
            try:
                path = await _path_asked(client)
                self.visits[path] += 1
                await self._send(client, path)
                await _see_them_off(client)
            except OSError:
                return  # they left first, as they should where an answer has no end

    async def _send(self, client: socket.socket, path: str) -> None:
        loop = asyncio.get_running_loop()
        row = self._rows.get(path.partition("?")[0])
        for piece in row.send() if row else self._other(path):
            match piece:
                case Wait():
                    await asyncio.sleep(piece.seconds)
                case Reset():
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST_ON_CLOSE)
                    client.close()
                    return
                case bytes():
                    await loop.sock_sendall(client, piece)

    def _other(self, path: str) -> list[bytes]:
        if path == "/robots.txt":
            return [answer(kind=b"Content-Type: text/plain", body=ROBOTS)]
        if path != "/":
            return [answer(status=b"HTTP/1.1 404 Not Found", body=b"no such row")]
        links = "".join(f"<a href='{path}'>{path}</a>\n" for path in self._rows)
        return [answer(body=f"<html><body>{links}</body></html>".encode())]


async def _path_asked(client: socket.socket) -> str:
    asked = b""
    while not asked.endswith(b"\r\n\r\n") and not asked.startswith(TLS_HELLO):
        asked += await asyncio.get_running_loop().sock_recv(client, 65_536) or b"\r\n\r\n"
    parts = asked[:65_536].split(b" ", 2)
    return parts[1].decode("latin-1") if len(parts) > 2 else ""


async def _see_them_off(client: socket.socket) -> None:
    """Close our half, and wait until they close theirs: an early close could reset the
    connection under what is still on its way."""
    client.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(5.0):
        while await asyncio.get_running_loop().sock_recv(client, 65_536):
            pass

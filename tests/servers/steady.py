"""A well-behaved server that keeps connections open, and what can go wrong between answers.

Rule: each answer contains how often the connection was used, and each visit is logged.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections import Counter
from typing import Final, Self

from tests.servers.hostile_kit import answer

DROPS_IF_USED: Final = "/drops-if-used"  # leaves without an answer, but not a new connection
SENDS_TWO: Final = "/sends-two"  # a second answer follows that nobody asked for
UNASKED: Final = b"never asked for"
_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.I)


class SteadyServer:
    """Serves one loopback address from a thread of its own; a proxy too, as it reads any target."""

    def __init__(self, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> None:
        self.visits: Counter[str] = Counter()
        self._address = address
        self._tls = tls
        self._port = 0

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.authority}"

    @property
    def authority(self) -> str:
        return f"{self._address}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        listener = socket.create_server((self._address, 0))
        self._port = listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener,), name="steady server")
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        open_now: set[_Connection] = set()
        server = await loop.create_server(
            lambda: _Connection(self.visits, open_now), sock=listener, ssl=self._tls
        )
        await self._stopping.wait()
        server.close()
        for connection in tuple(open_now):
            connection.transport.abort()
        while open_now:
            await asyncio.sleep(0)


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, visits: Counter[str], open_now: set[_Connection]) -> None:
        self._visits = visits
        self._open_now = open_now
        self._asked = b""
        self._uses = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._open_now.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_now.discard(self)

    def data_received(self, data: bytes) -> None:
        self._asked += data
        while b"\r\n\r\n" in self._asked:
            head, _, rest = self._asked.partition(b"\r\n\r\n")
            length = _LENGTH.search(head)
            body_bytes = int(length[1]) if length else 0
            if len(rest) < body_bytes:
                return
            self._asked = rest[body_bytes:]
            self._uses += 1
            method, target, _ = head.decode("ascii").split(" ", 2)
            self._answer(method, target)

    def _answer(self, method: str, target: str) -> None:
        self._visits[target] += 1
        if target == DROPS_IF_USED and self._uses > 1:
            self.transport.close()
            return
        whole = answer(body=b"%s, use %d" % (target.encode("ascii"), self._uses))
        self.transport.write(
            whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n" if method == "HEAD" else whole
        )
        if target == SENDS_TWO:
            loop = asyncio.get_running_loop()
            loop.call_later(0.05, self.transport.write, answer(body=UNASKED))

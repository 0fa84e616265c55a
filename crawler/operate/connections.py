"""The connections that a listener of a crawl has open, and its socket in the data directory.

Rule: whatever clients do, or do not do, a listener has at most so many connections, and so many
files, and none of them is held by a client that sends no request or takes no answer.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import termios
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from sys import byteorder
from typing import Final, cast

from crawler.operate.client import SOCKET

BACKLOG: Final = 64  # connections that wait in the kernel to be accepted, at no file of ours
_MAX_EARLY: Final = 4 << 20  # twice the largest body


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one listener allows its clients (guesses)."""

    most: int = 100  # connections: the 20 that may watch, a browser's six, and room
    head_s: float = 10.0  # for the head of a request, from the connection or the last answer
    body_s: float = 10.0
    answer_s: float = 10.0  # in which a client takes something of an answer that waits for it


ProtocolFactory = Callable[[], asyncio.Protocol]


class ConnectionLimit:
    """The open connections of one listener, of which those in `idle` wait for a request, the oldest
    first."""

    def __init__(self, limits: ClientLimits | None = None) -> None:
        self.limits = limits or ClientLimits()
        self._open: dict[asyncio.BaseTransport, LimitedConnection] = {}
        self._idle: dict[LimitedConnection, None] = {}

    def add(self, connection: LimitedConnection, transport: asyncio.BaseTransport) -> bool:
        """Add *connection*, in place of the one that has been idle for longest if there is no
        room. Return False if all others are busy."""
        if len(self._open) >= self.limits.most:
            if not self._idle:
                return False
            next(iter(self._idle)).abort()
        self._open[transport] = connection
        self._idle[connection] = None
        return True

    def discard(self, connection: LimitedConnection, transport: asyncio.BaseTransport) -> None:
        self._open.pop(transport, None)
        self._idle.pop(connection, None)

    def begin(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the head of a request has come on *transport*."""
        self._note(transport, is_served=True)

    def end(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that the answer to the request on *transport* is made. When the client has taken it,
        the next one may come."""
        self._note(transport, is_served=False)

    def _note(self, transport: asyncio.BaseTransport | None, *, is_served: bool) -> None:
        connection = self._open.get(transport) if transport is not None else None
        if connection is not None:
            connection.note(is_served=is_served)

    def sort(self, connection: LimitedConnection) -> None:
        """Let *connection* wait for a request as long as a head may take, if it is not busy."""
        if connection.is_busy:
            self._idle.pop(connection, None)
            connection.allow(None)
        else:
            self._idle[connection] = None
            connection.allow(self.limits.head_s)


class LimitedConnection(asyncio.Protocol):
    """A connection within a limit. All that comes is kept until what serves it is made."""

    def __init__(
        self, limit: ConnectionLimit, factory: Callable[[], Awaitable[ProtocolFactory]]
    ) -> None:
        self._limit = limit
        self._factory = factory
        self._served: asyncio.Protocol | None = None
        self._came = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_served = False

    @property
    def is_busy(self) -> bool:
        return self._is_served or self._writing is not None

    def note(self, *, is_served: bool) -> None:
        """Note whether a request has come whose answer is not made yet."""
        self._is_served = is_served
        self._limit.sort(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass of it
        if not self._limit.add(self, transport):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(0)  # writing resumes when nothing is left
        self.allow(self._limit.limits.head_s)
        self._making = asyncio.ensure_future(self._serve())

    def data_received(self, data: bytes) -> None:
        if self._served is None:
            self._came += data
            if len(self._came) > _MAX_EARLY:
                self.abort()
        else:
            self._served.data_received(data)

    def eof_received(self) -> bool | None:
        return None if self._served is None else self._served.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._making is not None:
            self._making.cancel()
        if self._served is not None:
            self._served.connection_lost(exc)

    def pause_writing(self) -> None:
        self._wait_for_client(self._unsent_bytes())
        self._limit.sort(self)
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
            self._limit.sort(self)
        if self._served is not None:
            self._served.resume_writing()

    def _wait_for_client(self, left_bytes: int) -> None:
        """Close the connection if the client takes nothing of the *left_bytes* of its answer."""
        self._writing = asyncio.get_running_loop().call_later(
            self._limit.limits.answer_s, self._look_at_client, left_bytes
        )

    def _look_at_client(self, before_bytes: int) -> None:
        left_bytes = self._unsent_bytes()
        if left_bytes < before_bytes:
            self._wait_for_client(left_bytes)
        else:
            self.abort()

    def _unsent_bytes(self) -> int:
        """Return how much was written that the client has not taken. The kernel may keep megabytes
        of it, and asks for more only when a third of them is gone."""
        number = self._transport.get_extra_info("socket").fileno()
        in_kernel = fcntl.ioctl(number, termios.TIOCOUTQ, bytes(4))
        return self._transport.get_write_buffer_size() + int.from_bytes(in_kernel, byteorder)

    def allow(self, seconds: float | None) -> None:
        """Close the connection after *seconds*, unless this is called again; None: never."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, self.abort)

    def abort(self) -> None:
        self._forget()
        self._transport.abort()

    def _forget(self) -> None:
        self._limit.discard(self, self._transport)
        for timer in (self._timer, self._writing):
            if timer is not None:
                timer.cancel()
        self._timer = self._writing = None

    async def _serve(self) -> None:
        try:
            served = (await self._factory())()
        except BaseException:
            self.abort()
            raise
        if not self._transport.is_closing():
            self._served = served
            served.connection_made(self._transport)
            if self._came:
                served.data_received(bytes(self._came))
                self._came.clear()


class CommandSocket:
    """The socket in the data directory. A connection waits until what serves it is made."""

    def __init__(
        self,
        data: Path,
        factory: Callable[[ConnectionLimit], Awaitable[ProtocolFactory]],
        limit: ConnectionLimit | None = None,
    ) -> None:
        """*data*: the data directory, which this process has locked. *factory* is called at each
        connection."""
        self._data = data
        self._factory = factory
        self._limit = limit or ConnectionLimit()
        self._listening: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen. Raises OSError."""
        listening = _bound(self._data)
        self._listening = await asyncio.get_running_loop().create_unix_server(
            lambda: LimitedConnection(self._limit, lambda: self._factory(self._limit)),
            sock=listening,
            backlog=BACKLOG,
        )

    def close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            (self._data / SOCKET).unlink(missing_ok=True)


def _bound(data: Path) -> socket.socket:
    """Return a socket that listens in the data directory. Raises OSError."""
    (data / SOCKET).unlink(missing_ok=True)  # of a process that is dead, for the directory is ours
    # A path to a socket has 107 bytes at most; that of the directory is as long as it likes.
    directory = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            listening.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        finally:
            os.umask(before)
    finally:
        os.close(directory)
    return listening

"""A connection to a Redis server: it sends commands and returns their replies in order.

Rule: no command is sent twice. Whatever a server sends, the time and the memory that it takes are
bounded.
"""

# It is our own, on hiredis: redis-py takes more CPU, 19 MB of memory for its import, and sets no
# bound on a reply (docs/decisions/0035).

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import hiredis

from crawler.shared.address import Address
from crawler.shared.faults import ERRORS, MIN_VERSION, Fault, ServerRefused, Unreachable, fault_of

Argument: TypeAlias = bytes | str | int | float

pack_command: Final[Callable[[tuple[Argument, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]  # its stub says: a tuple of one
MAX_SILENT_TICKS: Final = 5
"""Timer ticks without a new byte until a server counts as dead. If our own event loop was blocked,
only one tick passes, so the server is not blamed for it."""
MAX_REPLY_BYTES: Final = 256 * 1024 * 1024
_MORE: Final = object()


class _Pipeline:
    """Commands that were sent together, and their replies so far."""

    __slots__ = ("count", "done", "replies")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.count = count
        self.replies: list[Any] = []
        self.done = done

    def end(self) -> None:
        if not self.done.done():  # it is cancelled if its caller was
            self.done.set_result(None)


class RedisConnection(asyncio.Protocol):
    """One connection to a Redis server; replies come in the order of the commands. A reply is
    bytes, an int, None, a list of them, or a hiredis.ReplyError. If the connection breaks, it is
    an Unreachable, and the command may have been executed."""

    def __init__(self, node: str, reply_s: float) -> None:
        self.broken: Fault | None = None
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._pipelines: deque[_Pipeline] = deque()
        self._bytes = 0  # received since the last pipeline was complete
        self._tick_s = reply_s / MAX_SILENT_TICKS
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = self._loop.create_future()

    async def ask(self, packed: Sequence[bytes]) -> list[Any]:
        """Send commands and return one reply for each. Several calls may run at once."""
        if self.broken is not None:
            return [self.broken] * len(packed)
        pipeline = self._send(packed)
        await pipeline.done
        return pipeline.replies

    def post(self, packed: bytes, on_done: Callable[[], None]) -> None:
        """Send one command before this returns, as far as the socket takes it. *on_done* is called
        when the server has carried it out."""
        if self.broken is not None:
            return
        # uvloop gathers what is written in one turn of the loop, unless that is over its limit.
        self._transport.set_write_buffer_limits(high=0)
        pipeline = self._send([packed])
        self._transport.set_write_buffer_limits()

        def end(_: asyncio.Future[None]) -> None:
            if not isinstance(pipeline.replies[0], ERRORS):
                on_done()

        pipeline.done.add_done_callback(end)

    async def close(self) -> None:
        self._break(ConnectionAbortedError("it is closed"))
        await asyncio.shield(self._closed)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        self._bytes += len(data)
        try:
            self._reader.feed(data)
            self._read_replies()
        except hiredis.HiredisError as garbage:
            self._break(garbage)
        if self._bytes > MAX_REPLY_BYTES:
            self._break(hiredis.ProtocolError("a reply without end"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc or ConnectionResetError("it was closed there"))
        if self._timer is not None:
            self._timer.cancel()
        self._closed.set_result(None)

    def _send(self, packed: Sequence[bytes]) -> _Pipeline:
        pipeline = _Pipeline(len(packed), self._loop.create_future())
        if not self._pipelines:
            self._silent_ticks = 0
        self._pipelines.append(pipeline)
        self._transport.write(b"".join(packed))
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._count_silent_tick)
        return pipeline

    def _read_replies(self) -> None:
        next_reply = self._reader.gets
        while (reply := next_reply()) is not _MORE:
            if not self._pipelines:
                unasked = hiredis.ProtocolError("a reply to no command")
                raise reply if isinstance(reply, hiredis.ReplyError) else unasked
            pipeline = self._pipelines[0]
            pipeline.replies.append(reply)
            if len(pipeline.replies) == pipeline.count:
                self._pipelines.popleft()
                self._bytes = 0
                pipeline.end()

    def _count_silent_tick(self) -> None:
        self._timer = None
        if not self._pipelines:
            return
        self._silent_ticks += 1
        if self._silent_ticks >= MAX_SILENT_TICKS:
            self._break(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._tick_s, self._count_silent_tick)

    def _break(self, error: Exception) -> None:
        if self.broken is not None:
            return
        self.broken = fault_of(error, self._node)
        self._transport.abort()
        for pipeline in self._pipelines:
            pipeline.replies.extend([self.broken] * (pipeline.count - len(pipeline.replies)))
            pipeline.end()
        self._pipelines.clear()


@dataclass(frozen=True, slots=True)
class ServerRun:
    """What a server reports of itself on a new connection. A connection ends with the run of its
    server, so all its replies are of *run_id*."""

    run_id: str
    is_cluster: bool


async def connect(address: Address) -> tuple[RedisConnection, ServerRun]:
    """Connect to *address* and authenticate. Raises a Fault."""
    connection: RedisConnection | None = None
    try:
        async with asyncio.timeout(address.connect_s):
            connection = await _open_connection(address)
            return connection, await _introduce(connection, address)
    except BaseException as error:
        if connection is None:
            is_silent = isinstance(error, TimeoutError) and address.tls is not None
        else:
            is_silent = connection.broken is not None
            await connection.close()
        if not isinstance(error, Exception):
            raise
        fault = fault_of(error, str(address))
        raise (_with_hint(fault, address) if is_silent else fault) from error


async def _open_connection(address: Address) -> RedisConnection:
    loop = asyncio.get_running_loop()

    def new_connection() -> RedisConnection:
        return RedisConnection(str(address), address.reply_s)

    if address.path:
        _, made = await loop.create_unix_connection(new_connection, address.path)
    else:
        _, made = await loop.create_connection(
            new_connection, address.host, address.port, ssl=address.tls
        )
    return made


async def _introduce(connection: RedisConnection, address: Address) -> ServerRun:
    """Authenticate, set the options of the connection, and ask which server it is."""
    commands: list[tuple[Argument, ...]] = []
    if address.credentials:
        commands.append(("AUTH", *address.credentials))
    if address.db:
        commands.append(("SELECT", address.db))
    if address.client_name:
        commands.append(("CLIENT", "SETNAME", address.client_name))
    commands.append(("INFO", "server"))
    *accepted, info = replies = await connection.ask([pack_command(each) for each in commands])
    error = next((reply for reply in replies if isinstance(reply, ERRORS)), None)
    if error is not None:
        raise fault_of(error, str(address))
    if not isinstance(info, bytes) or accepted != [b"OK"] * len(accepted):
        raise fault_of(hiredis.ProtocolError(), str(address))
    return _read_server_run(info_fields(info), str(address))


def info_fields(info: bytes) -> dict[str, str]:
    """Return the fields of a reply to INFO, whose lines are name:value."""
    lines = info.decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


def _read_server_run(fields: dict[str, str], node: str) -> ServerRun:
    version = _VERSION.match(fields.get("redis_version", ""))
    if version is None or "run_id" not in fields:
        raise fault_of(hiredis.ProtocolError(), node)
    if (int(version[1]), int(version[2])) < MIN_VERSION:
        raise ServerRefused(
            f"Redis at {node} has version {version[0]}; scripts with flags need >= 7.0"
        )
    mode = fields.get("redis_mode")
    if mode == "sentinel":
        raise ServerRefused(
            f"Redis at {node} is a Sentinel, which keeps no data. Give the master's URL"
        )
    return ServerRun(fields["run_id"], is_cluster=mode == "cluster")


def _with_hint(fault: Fault, address: Address) -> Fault:
    """Add a hint about TLS to *fault*, of a server that sent nothing. One that wants TLS closes a
    connection without it; one without TLS takes the handshake for a command and waits for its
    end."""
    if not isinstance(fault, Unreachable) or address.path:
        return fault
    if address.tls is None:
        return Unreachable(f"{fault}. If it requires TLS, write rediss:// instead of redis://")
    return Unreachable(f"{fault}. If it does not use TLS, write redis:// instead of rediss://")

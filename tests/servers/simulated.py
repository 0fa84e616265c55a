"""A network between workers and one real redis-server that fails as the test sets it, in simulated
time.

Rule: all is deterministic. The loop never waits for a timer, and a connection carries each pipeline
to the server and back before anything else happens.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakSet

import hiredis
import redis

from crawler.shared.address import node_name
from crawler.shared.client import hash_slot
from tests.servers.redis_process import HOST

FAILURES: Final = (
    "refused",  # the connection ends, and the next one is refused
    "not sent",  # the connection ends before the commands reach the server
    "not answered",  # it ends after the server has executed them
    "half answered",  # it ends in the middle of the answer
    "half executed",  # it ends after the server has executed half of them
    "silent",  # the server never gets them, and the connection stays open
    "late",  # the server executes them when their sender has given up
    "LOADING",
    "BUSY",
    "READONLY",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "MISCONF",
    "OOM",  # only for what may be refused then: links
    "MOVED",
    "half LOADING",  # every second command is answered so, the others are executed
)
LATE_S: Final = 7.0  # the client gives up after 5 s


class SimulatedLoop(asyncio.SelectorEventLoop):
    """When nothing is ready, its time moves to the next timer at once."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self.networks: dict[int, Network] = {}  # by the ports that workers connect to
        self._of_worker: ContextVar[str] = ContextVar("worker", default="")
        self._tasks: dict[str, WeakSet[asyncio.Task[Any]]] = defaultdict(WeakSet)
        super().__init__(_Selector(self._pass))
        self.set_task_factory(self._make_task)

    def begin(self, worker: str, begin: Callable[[], None]) -> None:
        """Call *begin*. The tasks that it starts, and those that they start, are of *worker*."""

        async def start() -> None:
            self._of_worker.set(worker)
            begin()

        self.run_until_complete(start())

    def kill(self, worker: str) -> None:
        """Cancel all tasks of *worker*."""
        tasks = self._tasks.pop(worker, ())
        for _ in range(100):
            for task in list(tasks):
                task.cancel()
            self.run_until_complete(asyncio.sleep(0))
        left = [task for task in tasks if not task.done()]
        assert not left, left

    def _make_task(self, _: Any, work: Any, **given: Any) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self, **given)
        self._tasks[self._of_worker.get()].add(task)
        return task

    def time(self) -> float:
        return self._now_s

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds

    async def create_connection(  # type: ignore[override]  # of its options none is used
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, Any]:
        return self.networks[port].connect(protocol_factory())


class _Selector(selectors.SelectSelector):
    def __init__(self, pass_: Callable[[float], None]) -> None:
        super().__init__()
        self._pass = pass_

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self._pass(timeout)
        assert ready or timeout is not None, "all tasks wait, and no timer is set"
        return ready


class SimulatedServer:
    """A real redis-server as its clients see it: a restart can be simulated."""

    def __init__(
        self, client: redis.Redis, port: int, refusable: set[str], now: Callable[[], float]
    ) -> None:
        """*refusable* are the scripts that a server without memory refuses, by their SHA1."""
        self.client = client
        self.refusable = {sha.encode() for sha in refusable}
        self._now = now
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._run_id = client.info("server")["run_id"].encode()
        self._restarts = 0
        self.networks: list[Network] = []
        self._checkpoint_at = float("-inf")

    def close(self) -> None:
        self._socket.close()

    def ask(self, commands: Sequence[bytes]) -> bytes:
        """Return the answer to *commands*, which are executed at the simulated time."""
        set_time = hiredis.pack_command(("SET", "now", repr(float(self._now()))))
        self._socket.sendall(set_time + b"".join(commands))
        reader, answer = hiredis.Reader(notEnoughData=Ellipsis), b""
        missing = len(commands) + 1
        while missing:
            piece = self._socket.recv(1 << 20)
            assert piece, "the real server is gone"
            answer += piece
            reader.feed(piece)
            while missing and reader.gets() is not Ellipsis:
                missing -= 1
        answer = answer.removeprefix(b"+OK\r\n")
        return answer.replace(self._run_id, self._shown_run_id())

    def checkpoint(self) -> None:
        """Write all to the disk, as every second with appendfsync everysec."""
        pipeline = self.client.pipeline(transaction=False)
        for name in self.client.keys("*"):
            pipeline.copy(name, name, destination_db=1, replace=True)
        self._forget_checkpoint()
        pipeline.execute()
        self._checkpoint_at = self._now()

    @property
    def checkpoint_age_s(self) -> float:
        return self._now() - self._checkpoint_at

    def restart(self, *, loses: bool = False) -> None:
        """Kill it and start it again. With appendfsync always it loses nothing that it has
        acknowledged; else, if it *loses*, what was written since the last checkpoint."""
        if loses:
            self.client.swapdb(0, 1)
        self._restarts += 1
        self.client.script_flush()
        for network in self.networks:
            network.cut()

    def _forget_checkpoint(self) -> None:
        self.client.swapdb(0, 1)
        self.client.flushdb()
        self.client.swapdb(0, 1)

    def _shown_run_id(self) -> bytes:
        return b"%08x" % self._restarts + self._run_id[8:]


class Network:
    """The connection of one worker. It fails at the next pipelines as `failures` describes."""

    def __init__(self, loop: SimulatedLoop, server: SimulatedServer, port: int) -> None:
        self.loop = loop
        self.server = server
        self.failures: deque[str] = deque()
        self.port = port
        self.is_refused = self.is_dead = False
        self._open: set[_Connection] = set()
        loop.networks[port] = self
        server.networks.append(self)

    def connect(self, protocol: Any) -> tuple[asyncio.Transport, Any]:
        if self.is_refused or self.is_dead:
            self.is_refused = False
            raise ConnectionRefusedError
        connection = _Connection(self, protocol)
        self._open.add(connection)
        protocol.connection_made(connection)
        return connection, protocol

    def cut(self) -> None:
        """End all connections. What is on its way is lost."""
        for connection in list(self._open):
            connection.end(ConnectionResetError("cut by the test"))

    def kill(self) -> None:
        """End all connections, and refuse others: the process at our end was killed."""
        self.is_dead = True
        self.cut()

    def ended(self, connection: _Connection) -> None:
        self._open.discard(connection)


class _Connection(asyncio.Transport):
    def __init__(self, network: Network, protocol: Any) -> None:
        super().__init__()
        self._network = network
        self._protocol = protocol
        self._reader = hiredis.Reader(notEnoughData=Ellipsis)
        self._has_ended = self._is_silent = False

    def write(self, data: Any) -> None:
        self._network.loop.call_soon(self._carry, bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: a write waits for nobody."""

    def abort(self) -> None:
        self.end(None)

    close = abort

    def is_closing(self) -> bool:
        return self._has_ended

    def end(self, error: Exception | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._network.ended(self)
            self._network.loop.call_soon(self._protocol.connection_lost, error)

    def _carry(self, data: bytes) -> None:
        if self._has_ended or self._is_silent:
            return
        self._reader.feed(data)
        commands: list[list[bytes]] = []
        while (command := self._reader.gets()) is not Ellipsis:
            commands.append(command)
        packed = [hiredis.pack_command(tuple(command)) for command in commands]
        ask, failures = self._network.server.ask, self._network.failures
        match failures.popleft() if failures else "":
            case "":
                self._receive(ask(packed))
            case "refused":
                self._network.is_refused = True
                self._break()
            case "not sent":
                self._break()
            case "not answered":
                ask(packed)
                self._break()
            case "half answered":
                answer = ask(packed)
                self._receive(answer[: len(answer) // 2])
                self._break()
            case "half executed":
                ask(packed[: len(packed) // 2])
                self._break()
            case "silent":
                self._is_silent = True
            case "late":
                self._is_silent = True
                self._network.loop.call_later(LATE_S, ask, packed)
            case "half LOADING":
                for at, each in enumerate(packed):
                    self._receive(ask([each]) if at % 2 else b"-LOADING it starts\r\n")
            case "MOVED":
                for command in commands:
                    self._receive(self._moved(command))
            case "OOM":
                for command, each in zip(commands, packed, strict=True):
                    self._receive(self._short_of_memory(command, each))
            case word:
                self._receive(b"-%s by the test\r\n" % word.encode() * len(packed))

    def _short_of_memory(self, command: list[bytes], packed: bytes) -> bytes:
        server = self._network.server
        is_refused = command[0] == b"EVALSHA" and command[1] in server.refusable
        return b"-OOM by the test\r\n" if is_refused else server.ask([packed])

    def _moved(self, command: list[bytes]) -> bytes:
        if command[0] not in (b"EVALSHA", b"HGETALL", b"HGET"):
            return self._network.server.ask([hiredis.pack_command(tuple(command))])
        key = command[3] if command[0] == b"EVALSHA" else command[1]
        node = node_name(HOST, self._network.port)
        return f"-MOVED {hash_slot(key.decode())} {node}\r\n".encode()

    def _receive(self, answer: bytes) -> None:
        if not self._has_ended and answer:
            self._protocol.data_received(answer)

    def _break(self) -> None:
        self.end(ConnectionResetError("broken by the test"))

"""The client of a Redis server or cluster: addresses, connections, and calls of scripts on shards.

Rule: of a URL, texts made here hold only host, port and path, because it may hold a password.
No command is sent twice that may have been executed.
"""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import ssl
import stat
from binascii import crc_hqx
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import hiredis

from crawler.config.kinds import (
    WANT_REDIS_URL,
    InvalidValue,
    Kind,
    Setting,
    file_of,
    flag,
    integer,
    number,
    refuse_bad_url,
    text,
)
from crawler.model.types import ConfigError
from crawler.shared import keys
from crawler.shared.codec import ShardTotals
from crawler.shared.faults import (
    ERRORS,
    FAULTS,
    OLDEST,
    Fault,
    Refused,
    Unreachable,
    fault_of,
    is_word,
)

# TLS to a Redis server, by redis-py's options. Wrong ones are refused before the first connection.

PREFIX: Final = "ssl_"
VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_FILES: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
TLS_KINDS: Final[Mapping[str, Kind[Any]]] = {
    "ssl_cert_reqs": text("none, optional or required", "word", "|".join(VERIFY)),
    "ssl_check_hostname": flag(),
    "ssl_password": text("a text", "text", r"[^\0]+"),
    **dict.fromkeys(_FILES, text("a path", "path", r"[^\0]+")),
}


def tls_context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Make a TLS context. It checks certificates and host names unless *options* switch that off.
    Raises ConfigError."""
    verify = VERIFY[options.get("ssl_cert_reqs", "required")]
    try:
        # Certificates of the system are used only if none are given, as in redis-py.
        context = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path")
        )
        # In this order: ssl refuses CERT_NONE while the host name is checked.
        context.check_hostname = verify != ssl.CERT_NONE and options.get("ssl_check_hostname", True)
        context.verify_mode = verify
        if certificate := options.get("ssl_certfile"):
            # Without a password function, ssl would ask at the terminal for that of the key.
            password = options.get("ssl_password", "")
            context.load_cert_chain(certificate, options.get("ssl_keyfile"), lambda: password)
        elif "ssl_keyfile" in options:
            raise ConfigError("TLS of Redis: ssl_keyfile is of no use without its ssl_certfile")
    except OSError as error:  # and ssl.SSLError, which is one
        raise ConfigError(f"TLS of Redis: {_which(options)} cannot be used: {error}") from None
    return context


def _which(options: Mapping[str, Any]) -> str:
    given = [f"{name} ({options[name]})" for name in _FILES if name in options]
    return " or ".join(given) or "certificates of this machine"


PORT: Final = 6379
CONNECT_S: Final = 5.0
REPLY_S: Final = 5.0  # time without a byte of a reply; a script of ours takes milliseconds
MOST_FILE_BYTES: Final = 4096
# The kinds of the options in a URL's query, where every value is text.
KINDS: Final[Mapping[str, Kind[Any]]] = {
    "db": integer("databases"),
    "username": text("a text", "text", r"[^\0]+"),
    "password": text("a text", "text", r"[^\0]+"),
    "client_name": text("a text without blanks", "text", r"[!-~]+"),
    "socket_timeout": number("seconds", least=0.01),
    "socket_connect_timeout": number("seconds", least=0.01),
    **TLS_KINDS,
}
# redis-py keeps idle connections alive with these. Ours sends often enough to notice a dead one.
IGNORED: Final = frozenset({"socket_keepalive", "health_check_interval"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One server and its credentials. `str()` is `host:port`, or the path of its socket."""

    host: str = "localhost"
    port: int = PORT
    path: str = ""  # of a socket; if set, host and port are not used
    db: int = 0
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    client_name: str = ""
    connect_s: float = CONNECT_S
    reply_s: float = REPLY_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, params: Mapping[str, object] | None = None) -> Self:
        """Parse *url*, which may be file:/path, and *params* with redis-py's names; options in the
        URL take precedence. Raises ConfigError."""
        parts = _split(_url_in(path) if (path := file_of(url)) else url)
        options = {
            name: _read(name, value)
            for name, value in {**(params or {}), **_url_options(parts)}.items()
            if name not in IGNORED
        }
        return cls(
            host=unquote(parts.hostname or "localhost"),
            port=parts.port or PORT,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            db=options.get("db", 0),
            username=options.get("username", ""),
            password=options.get("password", ""),
            client_name=options.get("client_name", ""),
            connect_s=options.get("socket_connect_timeout", CONNECT_S),
            reply_s=options.get("socket_timeout", REPLY_S),
            tls=tls_context(options) if parts.scheme == "rediss" else None,
        )

    def __str__(self) -> str:
        return self.path or node_name(self.host, self.port)

    def at(self, node: str) -> Self:
        """Return the address of another *node* ("host:port") of the same cluster."""
        host, _, port = node.rpartition(":")
        return replace(self, host=host.strip("[]"), port=int(port), path="")

    @property
    def credentials(self) -> tuple[str, ...]:
        """The arguments of AUTH; empty if there are no credentials."""
        if not self.username and not self.password:
            return ()
        return (self.username, self.password) if self.username else (self.password,)


def node_name(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _url_in(path: str) -> str:
    """Read the URL in the file at *path*. Raises ConfigError if other users may read or write the
    file, because the URL may hold a password."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            _refuse_public(os.fstat(file.fileno()).st_mode, path)
            return file.read(MOST_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{path}, which is to hold the URL of Redis: {error.strerror}") from None


def _open_nonblocking(path: str, flags: int) -> int:
    """Open *path* without waiting for a writer if it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_public(mode: int, path: str) -> None:
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}, which is to hold the URL of Redis, is no file")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{path} holds the URL of Redis, and everybody on this machine may read or write it:"
            f" chmod 600 {path}"
        )


def _split(url: str) -> SplitResult:
    try:
        refuse_bad_url(url)
    except InvalidValue as why:
        raise ConfigError(f"the URL of Redis is not shown; want {WANT_REDIS_URL} ({why})") from None
    return urlsplit(url)


def _url_options(url: SplitResult) -> dict[str, str]:
    """Return the options in a URL, by redis-py's names. For the db the query takes precedence over
    the path, for the user and password the part before the host over the query."""
    user = {"username": unquote(url.username or ""), "password": unquote(url.password or "")}
    database = {"db": "" if url.scheme == "unix" else url.path.strip("/")}
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    _refuse_bad_query(query, url.scheme)
    return _without_empty(database) | query | _without_empty(user)


def _without_empty(options: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if value}


def _refuse_bad_query(query: dict[str, str], scheme: str) -> None:
    for name in query:
        if name not in KINDS.keys() | IGNORED:
            raise ConfigError(f"the URL of Redis has an unknown option{_nearest(name)}")
        if name.startswith(PREFIX) and scheme != "rediss":
            raise ConfigError(f"the URL of Redis has {name}, but TLS is what rediss:// is for")


def _nearest(name: str) -> str:
    """Suggest a known option. The text never holds *name*: a password with a ? that is not written
    %3F would be in it."""
    nearest = difflib.get_close_matches(name.casefold(), KINDS, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(KINDS)}"


def _read(name: str, value: object) -> Any:
    kind = KINDS.get(name)
    if kind is None:
        raise ConfigError(f"{name} is no option of a connection to Redis")
    return Setting(f"{name} of Redis", name, None, replace(kind, secret=True), "").read(
        {f"{name} of Redis": value}
    )


Argument: TypeAlias = bytes | str | int | float


class Call(NamedTuple):
    """One operation on one shard: EVALSHA of *script* on the root key of *shard*."""

    shard: int
    script: str  # its file in lua/
    args: tuple[Argument, ...]


# The connection is our own because redis-py's pipeline takes 26 us of CPU for an EVALSHA of two
# arguments in sixteens, its bare connection 14, this 5 (redis 8.1, hiredis 3.5). A page has eleven.

TICKS: Final = 5
"""Timer ticks without a new byte until a server counts as dead. If our own event loop was blocked,
only one tick passes, so the server is not blamed for it."""
MOST_REPLY_BYTES: Final = 256 * 1024 * 1024
pack: Final[Callable[[tuple[Argument, ...]], bytes]] = hiredis.pack_command  # type: ignore[assignment]  # its stub says: a tuple of one
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
        self._tick_s = reply_s / TICKS
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lost = self._loop.create_future()

    async def ask(self, packed: Sequence[bytes]) -> list[Any]:
        """Send commands and return one reply for each. Several calls may run at once."""
        if self.broken is not None:
            return [self.broken] * len(packed)
        pipeline = _Pipeline(len(packed), self._loop.create_future())
        if not self._pipelines:
            self._silent_ticks = 0
        self._pipelines.append(pipeline)
        self._transport.write(b"".join(packed))
        if self._timer is None:
            self._timer = self._loop.call_later(self._tick_s, self._look)
        await pipeline.done
        return pipeline.replies

    async def close(self) -> None:
        self._break(ConnectionAbortedError("it is closed"))
        await asyncio.shield(self._lost)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class is no subclass of it

    def data_received(self, data: bytes) -> None:
        self._silent_ticks = 0
        self._bytes += len(data)
        try:
            self._reader.feed(data)
            self._read()
        except hiredis.HiredisError as garbage:
            self._break(garbage)
        if self._bytes > MOST_REPLY_BYTES:
            self._break(hiredis.ProtocolError("a reply without end"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc or ConnectionResetError("it was closed there"))
        if self._timer is not None:
            self._timer.cancel()
        self._lost.set_result(None)

    def _read(self) -> None:
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

    def _look(self) -> None:
        self._timer = None
        if not self._pipelines:
            return
        self._silent_ticks += 1
        if self._silent_ticks >= TICKS:
            self._break(TimeoutError())
        else:
            self._timer = self._loop.call_later(self._tick_s, self._look)

    def _break(self, error: Exception) -> None:
        if self.broken is not None:
            return
        self.broken = fault_of(error, self._node)
        self._transport.abort()
        for pipeline in self._pipelines:
            pipeline.replies.extend([self.broken] * (pipeline.count - len(pipeline.replies)))
            pipeline.end()
        self._pipelines.clear()


_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a server reports of itself on a new connection. A connection ends with the run of its
    server, so all its replies are of *run_id*."""

    run_id: str
    is_cluster: bool


async def connect(address: Address) -> tuple[RedisConnection, Greeting]:
    """Connect to *address* and authenticate. Raises a Fault."""
    wire: RedisConnection | None = None
    try:
        async with asyncio.timeout(address.connect_s):
            wire = await _dial(address)
            return wire, await _greet(wire, address)
    except BaseException as error:
        if wire is None:
            is_mute = isinstance(error, TimeoutError) and address.tls is not None
        else:
            is_mute = wire.broken is not None
            await wire.close()
        if not isinstance(error, Exception):
            raise
        fault = fault_of(error, str(address))
        raise (_with_hint(fault, address) if is_mute else fault) from error


async def _dial(address: Address) -> RedisConnection:
    loop = asyncio.get_running_loop()

    def wire() -> RedisConnection:
        return RedisConnection(str(address), address.reply_s)

    if address.path:
        _, made = await loop.create_unix_connection(wire, address.path)
    else:
        _, made = await loop.create_connection(wire, address.host, address.port, ssl=address.tls)
    return made


async def _greet(wire: RedisConnection, address: Address) -> Greeting:
    *admitted, info = replies = await wire.ask([pack(each) for each in _introduction(address)])
    error = next((reply for reply in replies if isinstance(reply, ERRORS)), None)
    if error is not None:
        raise fault_of(error, str(address))
    if not isinstance(info, bytes) or admitted != [b"OK"] * len(admitted):
        raise fault_of(hiredis.ProtocolError(), str(address))
    return _read_greeting(info_fields(info), str(address))


def _introduction(address: Address) -> Iterator[tuple[Argument, ...]]:
    if address.credentials:
        yield "AUTH", *address.credentials
    if address.db:
        yield "SELECT", address.db
    if address.client_name:
        yield "CLIENT", "SETNAME", address.client_name
    yield "INFO", "server"


def info_fields(info: bytes) -> dict[str, str]:
    """Return the fields of a reply to INFO, whose lines are name:value."""
    lines = info.decode("utf-8", "replace").splitlines()
    return {name: value for name, _, value in (line.partition(":") for line in lines) if value}


def _with_hint(fault: Fault, address: Address) -> Fault:
    """Add a hint about TLS to *fault*, of a server that sent nothing. One that wants TLS closes a
    connection without it; one without TLS takes the handshake for a command and waits for its
    end."""
    if not isinstance(fault, Unreachable) or address.path:
        return fault
    if address.tls is None:
        return Unreachable(f"{fault}. If it wants TLS, write rediss:// instead of redis://")
    return Unreachable(f"{fault}. If it knows no TLS, write redis:// instead of rediss://")


def _read_greeting(fields: dict[str, str], node: str) -> Greeting:
    version = _VERSION.match(fields.get("redis_version", ""))
    if version is None or "run_id" not in fields:
        raise fault_of(hiredis.ProtocolError(), node)
    if (int(version[1]), int(version[2])) < OLDEST:
        raise Refused(f"Redis at {node} has version {version[0]}; scripts with flags need >= 7.0")
    mode = fields.get("redis_mode")
    if mode == "sentinel":
        raise Refused(f"Redis at {node} is a Sentinel, which keeps no data. Give the master's URL")
    return Greeting(fields["run_id"], is_cluster=mode == "cluster")


class ScriptTexts(Protocol):
    """The texts of the operations, one of which is `open`."""

    def names(self) -> tuple[str, ...]: ...

    def text(self, name: str) -> str: ...

    def sha(self, name: str) -> str: ...


class Opening:
    """Opens the shards of one server: no other script runs on a shard before `open` has stored the
    run of the server there. If a server has lost a script it may have lost data as well, so all its
    shards are opened again."""

    def __init__(
        self, scripts: ScriptTexts, root: Callable[[int], str], open_args: tuple[Argument, ...]
    ) -> None:
        """*open_args* are the arguments of `open` behind the run. A last one is added: for how many
        seconds this client has known the shard."""
        self.served: frozenset[int] = frozenset()
        self.times_lost = 0
        self._scripts = scripts
        self._root = root
        self._open_args = open_args
        self._open: frozenset[int] = frozenset()
        self._known_since: dict[int, float] = {}  # by the clock of the loop
        self._lock = asyncio.Lock()

    def serve(self, shards: Iterable[int]) -> None:
        """Set the *shards* that the server has. One that moves away and back is opened again."""
        self.served = frozenset(shards)
        self._open &= self.served

    def lost(self) -> None:
        self._open = frozenset()
        self.times_lost += 1

    async def open(
        self, wire: RedisConnection, run_id: str, shards: Iterable[int]
    ) -> dict[int, Any]:
        """Open *shards* at the server of *wire*, whose run is *run_id*. Returns the errors of those
        that cannot be opened. O(shards) if all are open."""
        if self._open.issuperset(shards):
            return {}
        async with self._lock:
            missing = sorted(self.served.union(shards) - self._open)
            times_lost = self.times_lost
            answers = await self._ask(wire, run_id, missing) if missing else {}
            # If the run has ended or the scripts were lost meanwhile, the answers are void.
            if wire.broken is None and times_lost == self.times_lost:
                self._opened(shard for shard, error in answers.items() if error is None)
        return {shard: error for shard, error in answers.items() if error is not None}

    def _opened(self, shards: Iterable[int]) -> None:
        now_s = asyncio.get_running_loop().time()
        for shard in shards:
            self._known_since.setdefault(shard, now_s)
            self._open |= {shard}

    async def _ask(
        self, wire: RedisConnection, run_id: str, shards: Sequence[int]
    ) -> dict[int, Any]:
        """Load `open`, run it on *shards*, then load the other scripts: in this order, another
        client that finds those loaded also finds the run stored in each shard. Returns for each
        shard None if it is open, or its error."""
        first, *others = sorted(self._scripts.names(), key=lambda name: name != "open")
        loads = [pack(("SCRIPT", "LOAD", self._scripts.text(name))) for name in (first, *others)]
        opens = [self._packed_open(run_id, shard) for shard in shards]
        replies = await wire.ask([loads[0], *opens, *loads[1:]])
        errors = [reply if isinstance(reply, ERRORS) else None for reply in replies]
        opened, loaded = errors[1 : len(shards) + 1], (errors[0], *errors[len(shards) + 1 :])
        unloaded = next((error for error in loaded if error is not None), None)
        return {shard: unloaded or error for shard, error in zip(shards, opened, strict=True)}

    def _packed_open(self, run_id: str, shard: int) -> bytes:
        now_s = asyncio.get_running_loop().time()
        known_s = now_s - self._known_since.get(shard, now_s)
        asked = ("EVALSHA", self._scripts.sha("open"), 1, self._root(shard), run_id)
        return pack((*asked, *self._open_args, known_s))


PIPELINE: Final = 64
"""Commands that are sent together: with 50 URLs each, they take a server some 30 ms."""
OPENINGS: Final = 3  # attempts of one `Node.run`: a server that loses scripts faster is of no use
PATIENCE_S: Final = 0.25
"""How long calls wait for a reconnect: longer than a round trip across an ocean, and short for
calls of other servers that are sent together with them. If a connect has failed after more than
that, no call waits for the next one: it is made in the background."""

MOMENT_S: Final = 0.005  # enough if a connection is refused at once


class Node:
    """One server of a shared frontier. It connects at the first command, and reconnects at the
    first command after the connection broke. Only what was answered NOSCRIPT is sent again."""

    def __init__(self, address: Address, opening: Opening) -> None:
        self.name = str(address)
        self.host = address.host
        self.opening = opening
        self.greeting = Greeting(run_id="", is_cluster=False)  # of its last connection
        self._address = address
        self._wire: RedisConnection | None = None
        self._fault: Fault = Unreachable(f"Redis at {self.name} is not connected yet")
        self._connecting: asyncio.Task[None] | None = None
        self._hangs = False  # it did not answer in time when it was last connected to
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._wire is not None and self._wire.broken is None

    async def connected(self, patience_s: float | None = PATIENCE_S) -> RedisConnection | Fault:
        """Return the connection, or the Fault that prevents it. Waits at most *patience_s*, or if
        that is None, as long as the address allows."""
        if not self.is_connected and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            await asyncio.wait(
                {self._connecting}, timeout=MOMENT_S if patience_s and self._hangs else patience_s
            )
        if self._wire is None:
            return self._fault
        return self._wire.broken or self._wire

    async def ask(self, *command: Argument) -> Any:
        """Send a command that is no script. Returns its reply, a hiredis.ReplyError, or a Fault."""
        wire = await self.connected()
        if not isinstance(wire, RedisConnection):
            return wire
        return (await wire.ask([pack(command)]))[0]

    async def run(
        self, shards: Sequence[int], packed: Sequence[bytes], tries: int = OPENINGS
    ) -> list[Any]:
        """Send *packed* commands, one for each of *shards*. Returns replies as `ask` does."""
        wire = await self.connected()
        if not isinstance(wire, RedisConnection):
            return [wire] * len(packed)
        times_lost = self.opening.times_lost
        replies = await self._run_on(wire, shards, packed)
        again = [at for at, reply in enumerate(replies) if is_word(reply, "NOSCRIPT")]
        if again and tries > 1:
            if times_lost == self.opening.times_lost:  # else another call has noticed it before
                self.opening.lost()
            await self._run_again(again, replies, shards, packed, tries - 1)
        return replies

    async def open(self) -> list[Fault]:
        """Open all shards that the server has. Returns the faults of those that could not be."""
        wire = await self.connected(patience_s=None)
        if not isinstance(wire, RedisConnection):
            return [wire]
        served = self.opening.served
        answers = await self.opening.open(wire, self.greeting.run_id, served)
        # A shard that has moved meanwhile is opened at its new server, before its first call.
        errors = [error for error in answers.values() if not is_word(error, "MOVED")]
        return [fault_of(error, self.name) for error in errors]

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._wire is not None:
            await self._wire.close()

    async def _connect(self) -> None:
        begun_s = asyncio.get_running_loop().time()
        try:
            wire, greeting = await connect(self._address)
        except FAULTS as fault:
            self._fault, self._wire = fault, None
            self._hangs = asyncio.get_running_loop().time() - begun_s > PATIENCE_S
        else:
            if greeting.run_id != self.greeting.run_id:
                self.opening.lost()
            self._wire, self.greeting = wire, greeting
            self._hangs = False
        finally:
            self._connecting = None

    async def _run_on(
        self, wire: RedisConnection, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        closed = await self.opening.open(wire, self.greeting.run_id, shards)
        if not closed:
            return await _in_pipelines(wire, packed)
        replies = [closed.get(shard) for shard in shards]
        fine = [at for at, shard in enumerate(shards) if shard not in closed]
        put(replies, fine, await _in_pipelines(wire, [packed[at] for at in fine]))
        return replies

    async def _run_again(
        self,
        again: Sequence[int],
        replies: list[Any],
        shards: Sequence[int],
        packed: Sequence[bytes],
        tries: int,
    ) -> None:
        rest = [shards[at] for at in again], [packed[at] for at in again]
        put(replies, again, await self.run(*rest, tries))


def put(replies: list[Any], at: Sequence[int], values: Sequence[Any]) -> None:
    for place, value in zip(at, values, strict=True):
        replies[place] = value


async def _in_pipelines(wire: RedisConnection, packed: Sequence[bytes]) -> list[Any]:
    replies: list[Any] = []
    for begin in range(0, len(packed), PIPELINE):
        replies += await wire.ask(packed[begin : begin + PIPELINE])
    return replies


# The map of a cluster: 16384 hash slots, each with the "host:port" of its node.

SLOTS: Final = 16_384
NOBODY: Final = "nobody"  # the owner of a slot that no known server serves

Owners: TypeAlias = list[str]  # by hash slot
_MOVED: Final = re.compile(r"MOVED (?P<hashed>[0-9]{1,5}) (?P<host>\S*):(?P<port>[0-9]{1,5})\b")


def hash_of(key: str) -> int:
    """Return the hash slot of *key*. If it has braces, only the part between them is hashed."""
    begin = key.find("{")
    end = key.find("}", begin + 1) if begin >= 0 else -1
    return crc_hqx(key[begin + 1 : end].encode() if end > begin + 1 else key.encode(), 0) % SLOTS


def single(node: str) -> Owners:
    """Return the map in which one server has all slots."""
    return [node] * SLOTS


def read_slots(reply: Any, asked_host: str) -> Owners | None:
    """Read the reply to CLUSTER SLOTS. Returns None if it is no map, or has no server at all."""
    owners = single(NOBODY)
    try:
        for begin, end, master, *_ in reply:
            # A node that does not know its own address leaves it out: it is *asked_host*.
            host = master[0].decode() if master[0] not in {None, b"", b"?"} else asked_host
            owners[begin : end + 1] = [node_name(host, int(master[1]))] * (end + 1 - begin)
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return owners if len(owners) == SLOTS and owners != single(NOBODY) else None


def read_moved(error: str, asked_host: str) -> tuple[int, str] | None:
    """Read slot and node of an error like "MOVED 3999 127.0.0.1:6381", or return None."""
    found = _MOVED.match(error)
    if found is None or int(found["hashed"]) >= SLOTS:
        return None
    host = found["host"].strip("[]") or asked_host
    return int(found["hashed"]), node_name(host, int(found["port"]))


LOOK_EVERY_S: Final = 1.0  # the interval of reading the map, while a server is down


class Servers:
    """The servers of a frontier, and which of them has each shard. In a cluster the map is read
    again after a call has failed, and corrected by MOVED replies."""

    def __init__(
        self, address: Address, node: Callable[[Address], Node], hashes: list[int]
    ) -> None:
        """*hashes* holds the hash slot of each shard."""
        self._address = address
        self._new_node = node
        self._hashes = hashes
        self._nodes: dict[str, Node] = {}
        self._owners: Owners = single(NOBODY)
        self.of_shard = [NOBODY] * len(hashes)
        self._is_cluster = False
        self._is_doubtful = False
        self._map_read_s = 0.0

    @property
    def serving(self) -> list[Node]:
        """The servers that have shards."""
        return [node for node in self._nodes.values() if node.opening.served]

    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def of_hash(self, hashed: int) -> Node | None:
        """Return the server of a hash slot, or None if no known server has it."""
        return self._nodes.get(self._owners[hashed])

    def named(self, name: str) -> Node | None:
        return self._nodes.get(name)

    async def open(self) -> None:
        """Connect to the first server, and read the map of its cluster. Raises a Fault."""
        first = self._node(str(self._address))
        wire = await first.connected(patience_s=None)
        if not isinstance(wire, RedisConnection):
            raise wire.with_traceback(None)
        self._is_cluster = first.greeting.is_cluster
        if not self._is_cluster:
            self._set_map(single(first.name))
        elif not await self._read_map(first):
            raise Unreachable(f"Redis at {first.name} does not report the nodes of its cluster")

    def doubt(self) -> None:
        """Mark the map as doubtful, because a server failed a command."""
        self._is_doubtful = self._is_cluster

    async def look_again(self) -> None:
        """Read the map again if it is doubtful, at most once in LOOK_EVERY_S."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_doubtful or now_s - self._map_read_s < LOOK_EVERY_S:
            return
        self._map_read_s = now_s
        # Connected servers first: every call waits while another is connected to.
        for node in sorted(self._nodes.values(), key=lambda node: not node.is_connected):
            if await self._read_map(node):
                self._is_doubtful = False
                return

    def learn(self, moved: Iterable[tuple[str, Exception]]) -> None:
        """Update the map from MOVED replies, each behind the name of its server."""
        owners = self._owners.copy()
        for name, reply in moved:
            if move := read_moved(str(reply), self._nodes[name].host):
                owners[move[0]] = move[1]
        self._set_map(owners)

    async def _read_map(self, node: Node) -> bool:
        owners = read_slots(await node.ask("CLUSTER", "SLOTS"), node.host)
        if owners is not None:
            self._set_map(owners)
        return owners is not None

    def _set_map(self, owners: Owners) -> None:
        self._owners = owners
        self.of_shard = [owners[hashed] for hashed in self._hashes]
        for name in {*owners} - {NOBODY}:
            self._node(name)
        for node in self._nodes.values():
            node.opening.serve(at for at, owner in enumerate(self.of_shard) if owner == node.name)

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            is_first = name == str(self._address)
            self._nodes[name] = self._new_node(
                self._address if is_first else self._address.at(name)
            )
        return self._nodes[name]


def no_server_error() -> Fault:
    return Unreachable(
        "no server of the Redis cluster serves these keys. Start the missing ones, or let others"
        " take over what was theirs"
    )


MOVES: Final = 3  # attempts of one call: no cluster moves a key more often in so short a time


class Memory(NamedTuple):
    used_bytes: int  # as the server compares it with its limit
    max_bytes: int  # 0: it has no limit
    policy: str = ""  # maxmemory-policy


class Replicas(NamedTuple):
    """A server that has replicas, and how it is configured for them."""

    node: str  # the server, as host:port
    is_needed_to_write: bool  # min-replicas-to-write and min-replicas-max-lag are not 0
    config: dict[str, str]  # empty if our user may not read it


class Nodes:
    """The servers of a shared frontier, used by one event loop. Any number of calls may run at
    once. A server that is down does not affect calls of the others; only what was answered NOSCRIPT
    or MOVED is sent again."""

    def __init__(
        self,
        address: Address,
        scripts: ScriptTexts,
        name: str,
        shards: int,
        opening: tuple[Argument, ...],
    ) -> None:
        """All keys begin with *name*. *opening* holds the arguments of the script `open` behind
        the run of the server."""
        self.name = name
        self.shards = shards
        self._shas = {script: scripts.sha(script) for script in scripts.names()}
        self._roots = [keys.root(name, shard) for shard in range(shards)]
        self._servers = Servers(
            address,
            lambda where: Node(where, Opening(scripts, self._roots.__getitem__, opening)),
            [hash_of(root) for root in self._roots],
        )

    @property
    def single_server(self) -> bool:
        """Whether one server has all shards."""
        return len(set(self._servers.of_shard)) == 1

    def node_of(self, shard: int) -> str:
        """Return the server of *shard*, as host:port."""
        return self._servers.of_shard[shard]

    async def open(self) -> None:
        """Connect, and find out which server has which shard. Changes nothing. Raises a Fault; it
        may be called again after that."""
        await self._servers.open()

    async def open_shards(self) -> None:
        """Open all shards at the start instead of before their first calls, to find foreign data
        early. Raises a Fault, but not if it is Unreachable and some shards could be opened."""
        answers = await asyncio.gather(*(node.open() for node in self._servers.serving))
        faults = [fault for each in answers for fault in each]
        hopeless = [fault for fault in faults if not isinstance(fault, Unreachable)]
        if hopeless or all(answers):
            raise next(iter([*hopeless, *faults]), no_server_error())

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return for each call its reply, or a Fault in its place; no Fault is raised."""
        shas, roots = self._shas, self._roots
        packed = [
            pack(("EVALSHA", shas[script], 1, roots[shard], *args)) for shard, script, args in calls
        ]
        return await self._deliver([call.shard for call in calls], packed)

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands on keys of shards. Returns as `run` does."""
        packed = [pack(command) for _, command in asks]
        return await self._deliver([shard for shard, _ in asks], packed)

    async def command(self, key: str, *command: Argument) -> Any:
        """Send *command* to the server of *key*. Returns its reply, or a Fault."""
        await self._servers.look_again()
        for tries in range(MOVES, 0, -1):
            node = self._servers.of_hash(hash_of(key))
            reply = no_server_error() if node is None else await node.ask(*command)
            if node is None or not isinstance(reply, ERRORS):
                break
            if tries == 1 or not is_word(reply, "MOVED"):
                return self._fault(reply, node.name)
            self._servers.learn([(node.name, reply)])
        return reply

    async def ask_each(self, *command: Argument) -> dict[str, Any]:
        """Send *command* to each server that has shards. Returns replies or errors by host:port."""
        serving = self._servers.serving
        replies = await asyncio.gather(*(node.ask(*command) for node in serving))
        return {node.name: reply for node, reply in zip(serving, replies, strict=True)}

    async def memory(self) -> dict[str, Memory]:
        """Return the memory of each server that answers, by host:port."""
        replies = await self.ask_each("INFO", "memory")
        return {
            node: _read_memory(info_fields(reply))
            for node, reply in replies.items()
            if isinstance(reply, bytes)
        }

    async def replicas(self) -> list[Replicas]:
        """Return the replicas of each server that has some and answers."""
        infos = await self.ask_each("INFO", "replication")
        found = {node: info_fields(info) for node, info in infos.items() if isinstance(info, bytes)}
        counts = {node: int(fields.get("connected_slaves", 0)) for node, fields in found.items()}
        if not any(counts.values()):
            return []
        config = await self.ask_each("CONFIG", "GET", "*-replicas-*", "cluster-node-timeout")
        return [
            Replicas(node, "min_slaves_good_slaves" in found[node], _pairs(config[node]))
            for node, count in counts.items()
            if count and node in config
        ]

    async def close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._servers.all()))

    async def _deliver(
        self, shards: Sequence[int], packed: Sequence[bytes], moves: int = MOVES
    ) -> list[Any]:
        await self._servers.look_again()
        owners = [self._servers.of_shard[shard] for shard in shards]
        replies = await self._ask(owners, shards, packed)
        moved = self._replace_errors(owners, replies)
        if moved and moves > 1:
            rest = [shards[at] for at in moved], [packed[at] for at in moved]
            put(replies, moved, await self._deliver(*rest, moves - 1))
        return replies

    def _replace_errors(self, owners: Sequence[str], replies: list[Any]) -> list[int]:
        """Replace errors in *replies* by Faults. Returns the places of those that were MOVED."""
        failed = {at: reply for at, reply in enumerate(replies) if isinstance(reply, ERRORS)}
        for at, reply in failed.items():
            replies[at] = self._fault(reply, owners[at])
        moved = [at for at, reply in failed.items() if is_word(reply, "MOVED")]
        if moved:
            self._servers.learn((owners[at], failed[at]) for at in moved)
        return moved

    async def _ask(
        self, owners: Sequence[str], shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        """Send each command to its owner, to all servers at once."""
        parts: dict[str, list[int]] = defaultdict(list)
        for at, owner in enumerate(owners):
            parts[owner].append(at)
        if len(parts) == 1:  # this saves 20 us of asyncio tasks
            return await self._ask_one(owners[0], shards, packed)
        answers = await asyncio.gather(
            *(
                self._ask_one(owner, [shards[at] for at in part], [packed[at] for at in part])
                for owner, part in parts.items()
            )
        )
        replies: list[Any] = [None] * len(packed)
        for part, answer in zip(parts.values(), answers, strict=True):
            put(replies, part, answer)
        return replies

    async def _ask_one(
        self, owner: str, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        node = self._servers.named(owner)
        return [no_server_error()] * len(packed) if node is None else await node.run(shards, packed)

    def _fault(self, error: Exception, node: str) -> Fault:
        self._servers.doubt()
        return fault_of(error, node)


def _read_memory(fields: dict[str, str]) -> Memory:
    # maxmemory does not count the buffers of replicas and of the append-only file.
    uncounted = int(fields.get("mem_not_counted_for_evict", 0))
    used_bytes = int(fields["used_memory"]) - uncounted
    policy = fields.get("maxmemory_policy", "")
    return Memory(used_bytes, int(fields.get("maxmemory", 0)), policy)


def _pairs(reply: Any) -> dict[str, str]:
    """Read the reply to CONFIG GET: names and values in turn. Empty if it was refused."""
    if not isinstance(reply, list):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


T = TypeVar("T")


class BlockingNodes:
    """A synchronous wrapper around `Nodes` for tools and tests: it runs an event loop for each
    call. It cannot be used where a loop is running."""

    def __init__(self, nodes: Nodes) -> None:
        """Open *nodes*, which must have no other user. Raises a Fault."""
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        try:
            self._run_loop(nodes.open())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return the replies to *calls*. All are sent; raises the first Fault among the replies."""
        return _raise_first_fault(self._run_loop(self._nodes.run(calls)))

    def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands on keys of shards. Returns and raises as `run` does."""
        return _raise_first_fault(self._run_loop(self._nodes.commands(asks)))

    def command(self, key: str, *command: Argument) -> Any:
        """Send *command* to the server of *key*. Raises a Fault."""
        return _raise_first_fault([self._run_loop(self._nodes.command(key, *command))])[0]

    def ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands together, each to the server of its key. Unlike `commands` it opens
        no shard, so it changes nothing. Raises the first Fault among the replies."""
        return _raise_first_fault(self._run_loop(self._ask(asks)))

    def totals(self) -> list[ShardTotals]:
        """Return the totals of all shards. Raises a Fault."""
        shards = range(self._nodes.shards)
        replies = self.commands(
            [(n, ("HGETALL", keys.totals(self._nodes.name, n))) for n in shards]
        )
        return [ShardTotals.read(dict(zip(each[::2], each[1::2], strict=True))) for each in replies]

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run_loop(self._nodes.close())
            self._loop.close()

    async def _ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        return await asyncio.gather(*(self._nodes.command(key, *command) for key, command in asks))

    def _run_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(_after_pending_reads(work))


async def _after_pending_reads(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* after three turns of the loop, so that connections that ended since the last call
    are noticed first: the loop does not run between calls."""
    for _ in range(3):
        await asyncio.sleep(0)
    return await work


def _raise_first_fault(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, FAULTS):
            raise reply.with_traceback(None)
    return replies

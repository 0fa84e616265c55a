"""A redis-server of our own: for the workers of one machine, in the data directory.

Rule: nobody but us asks it: loopback, a random password. It dies with us, and one that was left
all the same is ended before another opens its files: the lock of the folder is held by the server
itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.config.settings import FULL_PART, SharedSettings
from crawler.data.data_dir import InheritedLock, taken_by
from crawler.model.choices import ByServer
from crawler.model.types import ConfigError, DataDirError, StoreUnavailable
from crawler.shared.address import RedisAddress
from crawler.shared.client import Address, Argument, connect, info_fields, pack
from crawler.shared.faults import FAULTS, OLDEST
from crawler.workers.die_with_parent import die_with_parent, status_text

# How a Redis of our own is set up: its redis.conf, and the file with its URL.
#
# Rule: the password is in these two files, which only their owner may read, and nowhere else; no
# path is in them, for the server's folder is where it runs.

HOST: Final = "127.0.0.1"
LOG: Final = "redis.log"
CONF: Final = "redis.conf"
URL: Final = "url"
# Not from the ephemeral range (32768 on, on Linux): while the server is down, somebody's outgoing
# connection would get its port, and one who tries again and again would meet himself.
_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 1000
_PART_OF_MEMORY: Final = 0.5  # the workers, and a copy while the file is rewritten, need the rest
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_KEPT: Final = re.compile(r"(?m)^(port|requirepass) (\S+)$")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where it listens, and who may enter."""

    port: int
    password: str

    def __repr__(self) -> str:
        return f"Door({self.port})"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}"


def saved_address(folder: Path) -> ListenAddress | None:
    """As the last server in *folder* had it."""
    try:
        kept = dict(_KEPT.findall((folder / CONF).read_text()))
        return ListenAddress(int(kept["port"]), kept["requirepass"])
    except (OSError, KeyError, ValueError):
        return None


def new_address(last: ListenAddress | None) -> ListenAddress:
    """With the password of the *last* one, and its port if that is free: what a run before has
    left may still ask there. Raises OSError."""
    password = last.password if last is not None else secrets.token_hex(32)
    if last is not None and _is_free(last.port):
        return last
    for _ in range(_PORT_TRIES):
        port = secrets.choice(_PORTS)
        if _is_free(port):
            return ListenAddress(port, password)
    raise OSError(f"no port of {HOST} from {_PORTS[0]} to {_PORTS[-1]} is free")


def write_conf(folder: Path, door: ListenAddress, shared: SharedSettings) -> None:
    """And the file with the URL. Raises OSError."""
    options = {
        "bind": HOST,
        "port": door.port,
        "requirepass": door.password,
        "dir": "./",
        "logfile": LOG,
        "pidfile": "./redis.pid",
        "daemonize": "no",
        "databases": 1,
        "appendonly": "yes",
        "appendfsync": shared.redis_fsync,
        "save": '""',  # the append-only file is all that is read again
        "maxmemory": most_bytes(shared),
        "maxmemory-policy": "noeviction",
    }
    lines = [f"{name} {value}\n" for name, value in options.items()]
    _write_secret(folder / CONF, "".join(["# Written at each start.\n", *lines]))
    _write_secret(folder / URL, f"{door.url}\n")


def most_bytes(shared: SharedSettings) -> int:
    """Its maxmemory: new links wait on the workers' disks long before."""
    if shared.redis_max_bytes is not ByServer.AUTO:
        return int(shared.redis_max_bytes / FULL_PART)
    return int(_memory_bytes() * _PART_OF_MEMORY)


def _memory_bytes() -> int:
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(there, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max": no limit of our own
        return there


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as redis-server does
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _write_secret(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)  # or its rights would be the old one's
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


# The redis-server of this machine, if it has one that is new enough.

_NAME: Final = "redis-server"
# Where systems keep servers, and not everybody's PATH looks.
_PLACES: Final = ("/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin")
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)\S*")
_TOLD_S: Final = 10.0
_OTHERWISE: Final = "or give the URL of one that runs: -s CRAWLER_FRONTIER_URL=redis://..."


def redis_program(path: str, places: Sequence[str] = _PLACES) -> str:
    """Its file. *path* as in PATH; *places* come after it. Raises ConfigError."""
    found = shutil.which(_NAME, path=os.pathsep.join([path, *places]))
    oldest = ".".join(map(str, OLDEST))
    if found is None:
        raise ConfigError(
            f"workers share a crawl through Redis, and no {_NAME} is on the PATH: install"
            f" {oldest} or newer (Debian, Ubuntu: sudo apt-get install {_NAME}), {_OTHERWISE}"
        )
    version = _VERSION.search(_told_by(found))
    if version is None:
        raise ConfigError(f"{found} does not tell its version; want {oldest} or newer")
    if (int(version[1]), int(version[2])) < OLDEST:
        told = version[0].removeprefix("v=")
        raise ConfigError(
            f"{found} has version {told}, and {oldest} or newer is needed: install that,"
            f" {_OTHERWISE}"
        )
    return found


def _told_by(program: str) -> str:
    try:
        asked = subprocess.run(  # found on the user's own PATH
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOLD_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise ConfigError(f"{program} cannot be started: {failed}") from failed
    return asked.stdout


FOLDER: Final = "redis"
_LOCK: Final = "redis.lock"
_LOOK_S: Final = 0.02
_LEFT_S: Final = 60.0  # a server that ends writes its file: seconds on a slow disk
_END_S: Final = 60.0
_QUOTED_LINES: Final = 3


class OwnRedis:
    """In *folder*. `open`, look after it with `revive`, `close`; all may be called again."""

    def __init__(self, folder: Path, shared: SharedSettings, tell: Callable[[str], None]) -> None:
        """*tell*: one sentence for the user."""
        self._folder = folder.resolve()  # as the server itself names it
        self._shared = shared
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: InheritedLock | None = None

    @property
    def address(self) -> RedisAddress:
        """The file with its URL: what workers are told on their command lines."""
        return RedisAddress(f"file:{self._folder / URL}", {})

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_up and self._process else None

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def open(self) -> None:
        """Until it answers, however much it has to read. Raises CrawlerError."""
        program = redis_program(os.environ.get("PATH", ""))
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = await self._taken()
            door = new_address(saved_address(self._folder))
            write_conf(self._folder, door, self._shared)
        except OSError as refused:
            raise DataDirError(f"{self._folder}: {refused}") from refused
        self._start(program, self._lock)
        await self._answers()

    async def revive(self) -> None:
        """Start it again at its port if it has died. Raises CrawlerError."""
        if self._lock is None or self.is_up:
            return
        self._tell(f"redis-server has died ({self._end()}); it is started again")
        self._start(redis_program(os.environ.get("PATH", "")), self._lock)
        await self._answers()

    async def close(self) -> None:
        """What it holds is on disk then."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            if not await _ended(process, _END_S):
                self._tell(f"redis-server (process {process.pid}) is still writing its file")
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _taken(self) -> InheritedLock:
        """The folder is ours: whoever was left in it has ended."""
        lock = self._folder / _LOCK
        taken = InheritedLock.take(lock)
        if taken is not None:
            return taken
        self._tell(f"A redis-server of a run before is there still ({self._folder}): it is ended")
        door = saved_address(self._folder)
        until = _now() + _LEFT_S
        while taken is None and _now() < until:
            if door is not None:
                await self._shut_down(door)
            await asyncio.sleep(_LOOK_S)
            taken = InheritedLock.take(lock)
        if taken is None:
            raise DataDirError(
                f"{self._folder} is in use by a redis-server that does not end (process"
                f" {self._pid_kept()}, started by process {taken_by(lock)}). End it, then try again"
            )
        return taken

    async def _shut_down(self, door: ListenAddress) -> None:
        """Only what is surely ours: it knows our password, and runs on our file."""
        info = await _asked(door, "INFO", "server")
        ours = str(self._folder / CONF)
        if isinstance(info, bytes) and info_fields(info).get("config_file") == ours:
            await _asked(door, "SHUTDOWN")

    def _start(self, program: str, lock: InheritedLock) -> None:
        # In a session of its own: a Ctrl-C is for us, and we end it when the workers have ended.
        self._process = subprocess.Popen(  # found on the PATH, and a file of ours
            die_with_parent([program, str(self._folder / CONF)], signal.SIGTERM),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
        )

    async def _answers(self) -> None:
        door = saved_address(self._folder)
        assert door is not None
        while self.is_up:
            if await _asked(door, "PING") == b"PONG":  # not while it reads its file
                return
            await asyncio.sleep(_LOOK_S)
        log = self._folder / LOG
        said = f"{_last_lines(log)} (all of it: {log})"
        raise StoreUnavailable(f"redis-server has ended ({self._end()}): {said}")

    def _end(self) -> str:
        status = self._process.poll() if self._process else None
        return status_text(status or 0)

    def _pid_kept(self) -> str:
        try:
            return (self._folder / "redis.pid").read_text().strip()
        except OSError:
            return "unknown"


@asynccontextmanager
async def own_redis(
    folder: Path, shared: SharedSettings, tell: Callable[[str], None]
) -> AsyncIterator[OwnRedis]:
    redis = OwnRedis(folder, shared, tell)
    try:
        await redis.open()
        yield redis
    finally:
        await redis.close()


async def _asked(door: ListenAddress, *command: Argument) -> object:
    """The reply, or what is in the way."""
    try:
        wire, _ = await connect(Address.parse(door.url))
    except FAULTS as fault:
        return fault
    try:
        return (await wire.ask([pack(command)]))[0]
    finally:
        await wire.close()


async def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    until = _now() + within_s
    while process.poll() is None:
        if _now() > until:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def _last_lines(log: Path) -> str:
    try:
        with log.open(errors="replace") as lines:
            return " ".join(line.strip() for line in deque(lines, _QUOTED_LINES))
    except OSError:
        return "it wrote no log"


def _now() -> float:
    return asyncio.get_running_loop().time()

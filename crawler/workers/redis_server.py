"""Run a redis-server in the data directory, for the workers of one machine.

Rule: it listens on loopback only, with a random password, and dies with this process. The server
holds the lock of its folder, so one that was left is ended before another opens its files. Where it
was stopped in good order, the next run has all that this one had, which only this file can know.
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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.config.settings import FULL_FRACTION, SharedSettings
from crawler.data.data_dir import InheritedLock, lock_file_pid
from crawler.data.files import sync_folder
from crawler.model.choices import AutoByServer
from crawler.model.types import ConfigError, DataDirError, StoreUnavailable
from crawler.shared.address import Address, RedisAddress
from crawler.shared.connection import Argument, connect, info_fields, pack_command
from crawler.shared.faults import FAULTS, MIN_VERSION
from crawler.shared.keys import root
from crawler.workers.die_with_parent import die_with_parent, status_text

# The password is only in redis.conf and the file with the URL, which only their owner may read.
# They hold no path, as the server runs in its folder.

HOST: Final = "127.0.0.1"
LOG: Final = "redis.log"
CONF: Final = "redis.conf"
URL: Final = "url"
STOPPED: Final = "stopped"  # has the run of a server that was stopped in good order
# Not from the ephemeral range (32768 on, on Linux): while the server is down, an outgoing
# connection could get its port, and a client that reconnects could connect to itself.
_PORTS: Final = range(20_000, 32_000)
_PORT_TRIES: Final = 1000
_PART_OF_MEMORY: Final = 0.5  # the rest is for the workers, and a copy while the file is rewritten
_CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
_KEPT: Final = re.compile(r"(?m)^(port|requirepass) (\S+)$")


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The port and the password of the server."""

    port: int
    password: str

    def __repr__(self) -> str:
        return f"ListenAddress({self.port})"

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}"


def saved_address(folder: Path) -> ListenAddress | None:
    """Return the address of the last server in *folder*, or None."""
    try:
        kept = dict(_KEPT.findall((folder / CONF).read_text()))
        return ListenAddress(int(kept["port"]), kept["requirepass"])
    except (OSError, KeyError, ValueError):
        return None


def new_address(last: ListenAddress | None) -> ListenAddress:
    """Return an address with the password of the *last* one, and its port if that is free, as
    workers of an earlier run may still use it. Raises OSError."""
    password = last.password if last is not None else secrets.token_hex(32)
    if last is not None and _is_free(last.port):
        return last
    for _ in range(_PORT_TRIES):
        port = secrets.choice(_PORTS)
        if _is_free(port):
            return ListenAddress(port, password)
    raise OSError(f"no port of {HOST} from {_PORTS[0]} to {_PORTS[-1]} is free")


def write_conf(folder: Path, address: ListenAddress, shared: SharedSettings) -> None:
    """Write redis.conf and the file with the URL. Raises OSError."""
    options = {
        "bind": HOST,
        "port": address.port,
        "requirepass": address.password,
        "dir": "./",
        "logfile": LOG,
        "pidfile": "./redis.pid",
        "daemonize": "no",
        "databases": 1,
        "appendonly": "yes",
        "appendfsync": shared.redis_fsync,
        "save": '""',  # only the append-only file is loaded at start
        "maxmemory": max_memory_bytes(shared),
        "maxmemory-policy": "noeviction",
    }
    lines = [f"{name} {value}\n" for name, value in options.items()]
    _write_secret(folder / CONF, "".join(["# Written at each start.\n", *lines]))
    _write_secret(folder / URL, f"{address.url}\n")


def max_memory_bytes(shared: SharedSettings) -> int:
    """Return maxmemory. At FULL_FRACTION of it the workers keep new links on their disks."""
    if shared.redis_max_bytes is not AutoByServer.AUTO:
        return int(shared.redis_max_bytes / FULL_FRACTION)
    return int(_memory_bytes() * _PART_OF_MEMORY)


def _memory_bytes() -> int:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max": the cgroup has no limit
        return total


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
    draft.unlink(missing_ok=True)  # else the permissions of the old file would stay
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)


_NAME: Final = "redis-server"
# Where systems install servers, which is not on every PATH.
_PLACES: Final = ("/usr/local/sbin", "/usr/sbin", "/opt/homebrew/bin")
_VERSION: Final = re.compile(r"\bv=(\d+)\.(\d+)\S*")
_VERSION_WAIT_S: Final = 10.0
_OTHERWISE: Final = "or give the URL of one that runs: -s CRAWLER_FRONTIER_URL=redis://..."


def redis_program(path: str, places: Sequence[str] = _PLACES) -> str:
    """Return the redis-server of this machine. *path*: as in PATH; *places* are searched after it.
    Raises ConfigError if there is none or it is too old."""
    found = shutil.which(_NAME, path=os.pathsep.join([path, *places]))
    oldest = ".".join(map(str, MIN_VERSION))
    if found is None:
        raise ConfigError(
            f"workers share a crawl through Redis, and no {_NAME} is on the PATH: install"
            f" {oldest} or newer (Debian, Ubuntu: sudo apt-get install {_NAME}), {_OTHERWISE}"
        )
    version = _VERSION.search(_version_output(found))
    if version is None:
        raise ConfigError(f"{found} does not report its version; want {oldest} or newer")
    if (int(version[1]), int(version[2])) < MIN_VERSION:
        have = version[0].removeprefix("v=")
        raise ConfigError(
            f"{found} has version {have}, and {oldest} or newer is needed: install that,"
            f" {_OTHERWISE}"
        )
    return found


def _version_output(program: str) -> str:
    try:
        result = subprocess.run(  # from the user's own PATH
            [program, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise ConfigError(f"{program} cannot be started: {failed}") from failed
    return result.stdout


FOLDER: Final = "redis"
_LOCK: Final = "redis.lock"
_POLL_S: Final = 0.02
_ORPHAN_WAIT_S: Final = (
    60.0  # a server that is shut down writes its file first, which takes seconds on a slow disk
)
_STOP_WAIT_S: Final = 60.0
_QUOTED_LINES: Final = 3


class OwnRedis:
    """The redis-server in *folder*. Call `open`, then `restart_if_dead` at short intervals, then
    `close`. Each may be repeated."""

    def __init__(
        self, folder: Path, shared: SharedSettings, show_message: Callable[[str], None]
    ) -> None:
        """*show_message*: shows the user one sentence."""
        self._folder = folder.resolve()  # as `config_file` of INFO has it
        self._shared = shared
        self._show_message = show_message
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: InheritedLock | None = None
        self.is_whole = False
        """Whether it has all that its last run had: that was stopped in good order."""

    @property
    def address(self) -> RedisAddress:
        """The address for the command lines of workers: the file with the URL."""
        return RedisAddress(f"file:{self._folder / URL}", {})

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_up and self._process else None

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def open(self) -> None:
        """Start the server and wait until it has loaded its data. Raises CrawlerError."""
        program = redis_program(os.environ.get("PATH", ""))
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = await self._take_folder()
            address = new_address(saved_address(self._folder))
            write_conf(self._folder, address, self._shared)
            stopped = self._take_stopped()
        except OSError as refused:
            raise DataDirError(f"{self._folder}: {refused}") from refused
        self._start(program, self._lock)
        await self._wait_until_up()
        if stopped:
            with suppress(*FAULTS):
                await self._note_whole(address, stopped)

    async def restart_if_dead(self) -> None:
        """Restart the server at its port if it has died. Raises CrawlerError."""
        if self._lock is None or self.is_up:
            return
        self._show_message(f"redis-server has died ({self._end()}); it is started again")
        self._start(redis_program(os.environ.get("PATH", "")), self._lock)
        await self._wait_until_up()

    async def close(self) -> None:
        """Stop the server, which writes its data to disk."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            run = await self._run_id()
            process.terminate()
            if not await _wait_for_end(process, _STOP_WAIT_S):
                self._show_message(
                    f"redis-server (process {process.pid}) is still writing its file"
                )
            elif run and process.returncode == 0:
                with suppress(OSError):
                    _write_secret(self._folder / STOPPED, run)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def _run_id(self) -> str:
        address = saved_address(self._folder)
        info = await _ask(address, "INFO", "server") if address is not None else None
        return info_fields(info).get("run_id", "") if isinstance(info, bytes) else ""

    def _take_stopped(self) -> str:
        """Return the last run, if it was stopped in good order, and forget it."""
        file = self._folder / STOPPED
        if not file.exists():
            return ""
        stopped = file.read_text()
        file.unlink()
        sync_folder(self._folder)
        return stopped

    async def _note_whole(self, address: ListenAddress, stopped: str) -> None:
        """Note that shards of the run *stopped* have lost nothing, before the first worker opens
        them: else hosts would rest as after the longest fetch that may be unknown. Raises a Fault.
        """
        wire, run = await connect(Address.parse(address.url))
        try:
            name, shards = self._shared.frontier_name, range(self._shared.frontier_shards)
            roots = [root(name, shard) for shard in shards]
            runs = await wire.ask([pack_command(("HGET", each, "run")) for each in roots])
            whole = [at for at, last in zip(roots, runs, strict=True) if last == stopped.encode()]
            await wire.ask([pack_command(("HSET", at, "run", run.run_id)) for at in whole])
            self.is_whole = bool(whole)
        finally:
            await wire.close()

    async def _take_folder(self) -> InheritedLock:
        """Take the lock of the folder; a server that was left in it is ended first."""
        lock = self._folder / _LOCK
        taken = InheritedLock.take(lock)
        if taken is not None:
            return taken
        self._show_message(
            f"A redis-server of an earlier run is still there ({self._folder}): it is ended"
        )
        address = saved_address(self._folder)
        until = _now() + _ORPHAN_WAIT_S
        while taken is None and _now() < until:
            if address is not None:
                await self._shut_down(address)
            await asyncio.sleep(_POLL_S)
            taken = InheritedLock.take(lock)
        if taken is None:
            raise DataDirError(
                f"{self._folder} is in use by a redis-server that does not end"
                f" (process {self._pid_kept()}, started by process {lock_file_pid(lock)}). End it,"
                " then try again"
            )
        return taken

    async def _shut_down(self, address: ListenAddress) -> None:
        """Shut the server down if it is surely ours: it has our password and our redis.conf."""
        info = await _ask(address, "INFO", "server")
        conf = str(self._folder / CONF)
        if isinstance(info, bytes) and info_fields(info).get("config_file") == conf:
            await _ask(address, "SHUTDOWN")

    def _start(self, program: str, lock: InheritedLock) -> None:
        # In its own session, as a Ctrl-C is for this process, which ends it after the workers.
        self._process = subprocess.Popen(  # redis-server from the PATH, with our file
            die_with_parent([program, str(self._folder / CONF)], signal.SIGTERM),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
        )

    async def _wait_until_up(self) -> None:
        address = saved_address(self._folder)
        assert address is not None
        while self.is_up:
            if await _ask(address, "PING") == b"PONG":  # an error while it loads its data
                return
            await asyncio.sleep(_POLL_S)
        log = self._folder / LOG
        log_end = f"{_last_lines(log)} (all of it: {log})"
        raise StoreUnavailable(f"redis-server has ended ({self._end()}): {log_end}")

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
    folder: Path, shared: SharedSettings, show_message: Callable[[str], None]
) -> AsyncIterator[OwnRedis]:
    redis = OwnRedis(folder, shared, show_message)
    try:
        await redis.open()
        yield redis
    finally:
        await redis.close()


async def _ask(address: ListenAddress, *command: Argument) -> object:
    """Return the reply to *command*, or the fault if there is none."""
    try:
        wire, _ = await connect(Address.parse(address.url))
    except FAULTS as fault:
        return fault
    try:
        return (await wire.ask([pack_command(command)]))[0]
    finally:
        await wire.close()


async def _wait_for_end(process: subprocess.Popen[bytes], within_s: float) -> bool:
    until = _now() + within_s
    while process.poll() is None:
        if _now() > until:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _last_lines(log: Path) -> str:
    try:
        with log.open(errors="replace") as lines:
            return " ".join(line.strip() for line in deque(lines, _QUOTED_LINES))
    except OSError:
        return "it wrote no log"


def _now() -> float:
    return asyncio.get_running_loop().time()

"""A redis-server of our own: for the workers of one machine, in the data directory.

Rule: nobody but us asks it: loopback, a random password. It dies with us, and one that was left
all the same is ended before another opens its files: the lock of the folder is held by the server
itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from crawler.core.errors import DataDirError, StoreUnavailable
from crawler.core.shared_settings import Shared
from crawler.ops.redis_conf import CONF, LOG, URL, Door, kept_door, new_door, write_conf
from crawler.ops.redis_program import redis_program
from crawler.ops.tied import said_status, tied
from crawler.sharing import RedisAddress
from crawler.storage.local.handed_lock import HandedLock, taken_by
from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.connection.greeting import connect, info_fields
from crawler.storage.redis.connection.wire import pack

FOLDER: Final = "redis"
_LOCK: Final = "redis.lock"
_LOOK_S: Final = 0.02
_LEFT_S: Final = 60.0  # a server that ends writes its file: seconds on a slow disk
_END_S: Final = 60.0
_QUOTED_LINES: Final = 3


class OwnRedis:
    """In *folder*. `open`, look after it with `revive`, `close`; all may be called again."""

    def __init__(self, folder: Path, shared: Shared, tell: Callable[[str], None]) -> None:
        """*tell*: one sentence for the user."""
        self._folder = folder.resolve()  # as the server itself names it
        self._shared = shared
        self._tell = tell
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: HandedLock | None = None

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
            door = new_door(kept_door(self._folder))
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

    async def _taken(self) -> HandedLock:
        """The folder is ours: whoever was left in it has ended."""
        lock = self._folder / _LOCK
        taken = HandedLock.take(lock)
        if taken is not None:
            return taken
        self._tell(f"A redis-server of a run before is there still ({self._folder}): it is ended")
        door = kept_door(self._folder)
        until = _now() + _LEFT_S
        while taken is None and _now() < until:
            if door is not None:
                await self._shut_down(door)
            await asyncio.sleep(_LOOK_S)
            taken = HandedLock.take(lock)
        if taken is None:
            raise DataDirError(
                f"{self._folder} is in use by a redis-server that does not end (process"
                f" {self._pid_kept()}, started by process {taken_by(lock)}). End it, then try again"
            )
        return taken

    async def _shut_down(self, door: Door) -> None:
        """Only what is surely ours: it knows our password, and runs on our file."""
        info = await _asked(door, "INFO", "server")
        ours = str(self._folder / CONF)
        if isinstance(info, bytes) and info_fields(info).get("config_file") == ours:
            await _asked(door, "SHUTDOWN")

    def _start(self, program: str, lock: HandedLock) -> None:
        # In a session of its own: a Ctrl-C is for us, and we end it when the workers have ended.
        self._process = subprocess.Popen(  # found on the PATH, and a file of ours
            tied([program, str(self._folder / CONF)], signal.SIGTERM),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.descriptor,),
        )

    async def _answers(self) -> None:
        door = kept_door(self._folder)
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
        return said_status(status or 0)

    def _pid_kept(self) -> str:
        try:
            return (self._folder / "redis.pid").read_text().strip()
        except OSError:
            return "unknown"


@asynccontextmanager
async def own_redis(
    folder: Path, shared: Shared, tell: Callable[[str], None]
) -> AsyncIterator[OwnRedis]:
    redis = OwnRedis(folder, shared, tell)
    try:
        await redis.open()
        yield redis
    finally:
        await redis.close()


async def _asked(door: Door, *command: Argument) -> object:
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

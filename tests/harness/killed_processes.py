"""Kill processes with `kill -9`: after so many messages of theirs, or when a file gets or loses its
name."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, Self

from tests.harness.fork_server import ForkedProcess

POLL_S: Final = 0.02  # between two checks whether the process runs, and for new folders
# Forked from a process that has imported what was preloaded: each begins in milliseconds.
SPAWN: Final = multiprocessing.get_context("forkserver")
_PRELOADED: Final[list[str]] = []
STARTS_S: Final = 60.0  # on a machine that has much else to do
UNFINISHED: Final = ".warc.gz.open"

_libc: Final = ctypes.CDLL(None, use_errno=True)
_EVENT: Final = struct.Struct("iIII")  # linux/inotify.h, as all of these
_COMES: Final = 0x100 | 0x80  # IN_CREATE, IN_MOVED_TO
_CHANGES: Final = _COMES | 0x200 | 0x40  # IN_DELETE, IN_MOVED_FROM


def preload(*modules: str) -> None:
    """Import *modules* before the first fork; called at import, as all tests share one forker."""
    _PRELOADED.extend(modules)
    SPAWN.set_forkserver_preload(_PRELOADED)


def run_until_killed(
    target: Callable[..., object], *args: object, messages: int | None = None, then_s: float = 0.0
) -> list[bytes]:
    """Run *target* with *args* and a pipe in a separate process, and return all that it sent.

    It is killed *then_s* after it has sent as many *messages*, in the middle of its work; without a
    number, when it has closed the pipe.
    """
    ours, theirs = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=target, args=(*args, theirs))
    process.start()
    theirs.close()
    try:
        incoming = _received(ours)
        received = list(incoming) if messages is None else [next(incoming) for _ in range(messages)]
        time.sleep(then_s)
    finally:
        process.kill()
        process.join()
    received += incoming
    ours.close()
    return received


def _received(pipe: Connection) -> Iterator[bytes]:
    """Yield the messages up to the end of the process; its last one may be cut off, and is left
    out."""
    try:
        while True:
            yield pipe.recv_bytes()
    except (EOFError, OSError):
        return


@dataclass(frozen=True, slots=True)
class Aim:
    """The process is killed when a file with this *suffix* appears, or disappears."""

    name: str
    where: str  # "here": beside the files that are written; or another folder that is watched
    suffix: str
    comes: bool = True
    of_the_dead: bool = False  # it belongs to a file that another left unfinished
    of_a_delivery: bool = False  # of any file


class Watch:
    """The files that appear and disappear while a process runs; the kernel reports them."""

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._missing = dict(folders)  # folders that are not there yet
        self._watched: dict[int, str] = {}  # inotify's number of a folder -> which one it is
        self._events = _call(_libc.inotify_init1, os.O_NONBLOCK | os.O_CLOEXEC)
        left = [name for where, name in self._new_names() if where == "here"]
        self._left = tuple(
            name.removesuffix(UNFINISHED) for name in left if name.endswith(UNFINISHED)
        )
        self.has_begun = False  # to write a file of its own

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._events)

    def sees(self, aim: Aim) -> bool:
        """Return whether it happens, within POLL_S."""
        seen = False
        for where, name in self._new_names():
            seen |= self._is_aimed_at(aim, where, name, comes=True)
        if not seen and select.select([self._events], [], [], POLL_S)[0]:
            for where, name, comes in self._changes():
                seen |= self._is_aimed_at(aim, where, name, comes)
        return seen

    def _new_names(self) -> list[tuple[str, str]]:
        """Begin to watch the folders that were made meanwhile, and return what is in them."""
        found = []
        for where, folder in tuple(self._missing.items()):
            if folder.is_dir():
                number = _call(_libc.inotify_add_watch, self._events, os.fsencode(folder), _CHANGES)
                self._watched[number] = where
                del self._missing[where]
                found += [(where, path.name) for path in folder.iterdir()]
        return found

    def _changes(self) -> Iterator[tuple[str, str, bool]]:
        """Yield the folder, the name, and whether the file appears or disappears."""
        events = os.read(self._events, 1 << 16)
        while events:
            number, mask, _, length = _EVENT.unpack_from(events)
            name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
            yield self._watched[number], os.fsdecode(name), bool(mask & _COMES)
            events = events[_EVENT.size + length :]

    def _is_aimed_at(self, aim: Aim, where: str, name: str, comes: bool) -> bool:
        self.has_begun |= comes and name.endswith(UNFINISHED)
        is_old = name.startswith(self._left) if self._left else False
        is_meant = name.endswith(aim.suffix) and (aim.of_a_delivery or is_old == aim.of_the_dead)
        return where == aim.where and comes == aim.comes and is_meant


def kill_on(
    process: ForkedProcess,
    aim: Aim,
    folders: Mapping[str, Path],
    then_s: float,
    patience_s: float,
) -> bool:
    """Kill *process* *then_s* after the aim is met, and say whether it was. It is killed in
    any case after *patience_s*, counted from the first file that is begun."""
    deadline = time.monotonic() + STARTS_S
    has_begun = False
    with Watch(folders) as watch:
        while process.poll() is None and time.monotonic() < deadline:
            if watch.sees(aim):
                time.sleep(then_s)
                process.kill()
                return True
            if watch.has_begun and not has_begun:
                has_begun, deadline = True, time.monotonic() + patience_s
    process.kill()
    return False


def _call(function: Callable[..., int], *arguments: object) -> int:
    result = function(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

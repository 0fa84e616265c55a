"""The real command, begun at once: forked from a process that has imported all of it before.

Rule: what runs is what `python -m scrapy` runs, with arguments, environment and outputs of its own.
Only the two seconds of CPU that its imports take are spent once, by each process of tests. How the
command starts, and what the system shows of it, is for `tests.command`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final
from warnings import catch_warnings, simplefilter

from scrapy.settings import default_settings

from tests.command import PATIENCE_S, PROJECT

LARGEST_BYTES: Final = 1 << 18  # of arguments and environment
SCRAPY: Final = [sys.executable, "-m", "scrapy"]


class Begun:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, command: list[str], told: socket.socket) -> None:
        self.args = command
        self.returncode: int | None = None
        self._told = told
        self.pid = int(told.recv(64))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._told.recv(64))
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(command: list[str], timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _begun(command, out, err) as process:
            status = process.wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


@contextmanager
def running(command: list[str], log: Path) -> Iterator[Begun]:
    """The command at work; killed in the end, should it still be."""
    with log.open("ab") as out, _begun(command, out, out) as process:
        yield process


@contextmanager
def _begun(command: list[str], out: IO[Any], err: IO[Any]) -> Iterator[Begun]:
    assert command[: len(SCRAPY)] == SCRAPY
    told, tells = socket.socketpair()
    asked = json.dumps([command[len(SCRAPY) :], dict(os.environ)]).encode()
    assert len(asked) < LARGEST_BYTES
    with tells:
        socket.send_fds(_server(), [asked], [out.fileno(), err.fileno(), tells.fileno()])
    process = Begun(command, told)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cache
def _server() -> socket.socket:
    """Ends when this process does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        # A fork copies no threads, and what they hold is held for ever.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.ready", str(its.fileno())]
        server = subprocess.Popen(command, cwd=PROJECT, env=environment, pass_fds=[its.fileno()])

    def end() -> None:
        ours.close()
        server.wait(PATIENCE_S)

    atexit.register(end)
    return ours


def _import_all() -> None:
    names = {"scrapy.cmdline", "scrapy.shell", "uvloop"}
    names |= {each.name for each in pkgutil.walk_packages(["crawler"], "crawler.")}
    for setting in vars(default_settings).values():
        if isinstance(setting, dict):
            paths = (path for pair in setting.items() for path in pair if isinstance(path, str))
            names |= {path.rpartition(".")[0] for path in paths if path.startswith("scrapy.")}
    for name in names:
        with suppress(ImportError):  # what is optional
            import_module(name)


class _Server:
    def __init__(self, asks: socket.socket) -> None:
        self._asks = asks
        self._telling: dict[int, socket.socket] = {}  # by the number of a process
        self._died, self._dies = os.pipe()
        os.set_blocking(self._dies, False)
        signal.set_wakeup_fd(self._dies, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests

    def serve(self) -> list[str] | None:
        """In each process that is asked for: its arguments. Here: None, at the end."""
        while True:
            asks = self._asks.fileno()
            ready = select.select([asks, self._died], [], [])[0]
            if self._died in ready:
                os.read(self._died, 1024)
                self._bury()
            if asks in ready:
                asked, files, *_ = socket.recv_fds(self._asks, LARGEST_BYTES, 3)
                if not asked:
                    return None
                if (arguments := self._begin(asked, files)) is not None:
                    return arguments

    def _begin(self, asked: bytes, files: list[int]) -> list[str] | None:
        out, err, tells = files
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # Arrow's thread, which minds forks
            pid = os.fork()
        if pid:
            os.close(out)
            os.close(err)
            self._telling[pid] = socket.socket(fileno=tells)
            self._telling[pid].send(str(pid).encode())
            return None
        self._close()
        os.close(tells)
        _put(os.open(os.devnull, os.O_RDONLY), 0)
        _put(out, 1)
        _put(err, 2)
        arguments, environment = json.loads(asked)
        os.environ.clear()
        os.environ.update(environment)
        return list(arguments)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._died)
        os.close(self._dies)
        for each in (self._asks, *self._telling.values()):
            each.close()

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while (died := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = died
                with self._telling.pop(pid) as telling, suppress(OSError):
                    telling.send(str(os.waitstatus_to_exitcode(status)).encode())


def _put(descriptor: int, number: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def main() -> None:
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    _import_all()
    gc.collect()
    gc.freeze()
    arguments = server.serve()
    if arguments is not None:
        sys.argv = ["scrapy", *arguments]
        runpy.run_module("scrapy", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""The real command without its two seconds of imports: forked from a process that has done them.

Rule: what runs is what `python -m scrapy` runs, with arguments, environment and outputs of its own.
How the command starts cold, and what the system shows of it, is for `tests.harness.commands`.

The server has one thread and nothing open that a child would share. It reaps a child only after its
status was delivered, so that its process id is not used again before.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final
from warnings import catch_warnings, simplefilter

from tests.harness.commands import PATIENCE_S
from tests.harness.sources import PROJECT

LARGEST_BYTES: Final = 1 << 18  # of arguments and environment
SCRAPY: Final = [sys.executable, "-m", "scrapy"]
_WAIT_FLAGS: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT


class ForkedProcess:
    """As much of `subprocess.Popen` as tests use."""

    def __init__(self, command: list[str], status: socket.socket) -> None:
        self.args = command
        self.returncode: int | None = None
        self._status = status
        self.pid = int(status.recv(64))

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._status.recv(64))
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    command: list[str],
    timeout_s: float = PATIENCE_S,
    *,
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *command* in *cwd*, where the modules of this project are found too."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _forked(command, out, err, cwd, env) as process:
            status = process.wait(timeout_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


@contextmanager
def running(command: list[str], log: Path) -> Iterator[ForkedProcess]:
    """The running command; killed on leaving, if it still runs."""
    with log.open("ab") as out, _forked(command, out, out) as process:
        yield process


@contextmanager
def _forked(
    command: list[str],
    out: IO[Any],
    err: IO[Any],
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
) -> Iterator[ForkedProcess]:
    assert command[: len(SCRAPY)] == SCRAPY
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = dict(os.environ if env is None else env)
    asked = json.dumps([command[len(SCRAPY) :], environment, str(cwd)]).encode()
    assert len(asked) < LARGEST_BYTES
    with its:
        server = _started(os.environ.get("LD_PRELOAD", ""))
        socket.send_fds(server, [asked], [out.fileno(), err.fileno(), its.fileno()])
    process = ForkedProcess(command, ours)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cache
def _started(preload: str) -> socket.socket:
    """The server with this LD_PRELOAD, which counts when a program begins. It ends with this
    process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        # A fork copies no threads, and the locks that they hold are never released.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "LD_PRELOAD": preload}
        command = [sys.executable, "-m", "tests.harness.fork_server", str(its.fileno())]
        server = subprocess.Popen(command, cwd=PROJECT, env=environment, pass_fds=[its.fileno()])

    def end() -> None:
        ours.close()
        server.wait(PATIENCE_S)

    atexit.register(end)
    return ours


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._children: dict[socket.socket, int] = {}
        self._ended: set[int] = set()
        self._wakeup, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests

    def serve(self) -> list[str] | None:
        """Return the arguments in each child that is forked, and None in the server at its end."""
        while True:
            watched = (self._requests, *self._children)
            numbers = [self._wakeup, *(each.fileno() for each in watched)]
            readable = set(select.select(numbers, [], [])[0])
            if self._wakeup in readable:
                os.read(self._wakeup, 1024)
                self._send_statuses()
            for each in watched[1:]:
                if each.fileno() in readable:
                    self._reap(each)
            if self._requests.fileno() in readable:
                asked, files, *_ = socket.recv_fds(self._requests, LARGEST_BYTES, 3)
                if not asked:
                    break
                if (arguments := self._fork(asked, files)) is not None:
                    return arguments
        for each in tuple(self._children):
            self._reap(each)
        return None

    def _fork(self, asked: bytes, files: list[int]) -> list[str] | None:
        out, err, status = files
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # Arrow's thread, which minds forks
            pid = os.fork()
        if pid:
            os.close(out)
            os.close(err)
            client = socket.socket(fileno=status)
            self._children[client] = pid
            client.send(str(pid).encode())
            return None
        self._close()
        os.close(status)
        _move(os.open(os.devnull, os.O_RDONLY), 0)
        _move(out, 1)
        _move(err, 2)
        arguments, environment, cwd = json.loads(asked)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # it may have been read from the environment of the server
        os.chdir(cwd)
        if cwd not in sys.path:
            sys.path.insert(0, cwd)
        return list(arguments)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(self._wakeup)
        os.close(self._wakes)
        for each in (self._requests, *self._children):
            each.close()

    def _send_statuses(self) -> None:
        for client, pid in self._children.items():
            if (
                pid not in self._ended
                and (end := os.waitid(os.P_PID, pid, _WAIT_FLAGS)) is not None
            ):
                self._ended.add(pid)
                status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
                with suppress(OSError):
                    client.send(str(status).encode())

    def _reap(self, client: socket.socket) -> None:
        """The client has closed its end."""
        pid = self._children.pop(client)
        client.close()
        if pid not in self._ended:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._ended.discard(pid)


def _move(descriptor: int, number: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def main() -> None:
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    import_module("tests.harness.imported")
    gc.collect()
    gc.freeze()
    arguments = server.serve()
    if arguments is not None:
        sys.argv = ["scrapy", *arguments]
        runpy.run_module("scrapy", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

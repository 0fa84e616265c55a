"""The real command, begun at once: forked from a process that has imported all of it before.

Rule: what runs is what `python -m scrapy` runs, with arguments, environment and outputs of its own.
Only the two seconds of CPU that its imports take are spent once, by each process of tests. How the
command starts, and what the system shows of it, is for `tests.command`.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final

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


def run(
    command: list[str],
    timeout_s: float = PATIENCE_S,
    *,
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run *command* in *cwd*, where the modules of this project are found too."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _begun(command, out, err, cwd, env) as process:
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
def _begun(
    command: list[str],
    out: IO[Any],
    err: IO[Any],
    cwd: Path = PROJECT,
    env: Mapping[str, str] | None = None,
) -> Iterator[Begun]:
    assert command[: len(SCRAPY)] == SCRAPY
    told, tells = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = dict(os.environ if env is None else env)
    asked = json.dumps([command[len(SCRAPY) :], environment, str(cwd)]).encode()
    assert len(asked) < LARGEST_BYTES
    with tells:
        server = _server(os.environ.get("LD_PRELOAD", ""))
        socket.send_fds(server, [asked], [out.fileno(), err.fileno(), tells.fileno()])
    process = Begun(command, told)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@cache
def _server(preload: str) -> socket.socket:
    """With this LD_PRELOAD, which counts when a program begins. Ends when this process does."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        # A fork copies no threads, and what they hold is held for ever.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "LD_PRELOAD": preload}
        command = [sys.executable, "-m", "tests.ready_server", str(its.fileno())]
        server = subprocess.Popen(command, cwd=PROJECT, env=environment, pass_fds=[its.fileno()])

    def end() -> None:
        ours.close()
        server.wait(PATIENCE_S)

    atexit.register(end)
    return ours

"""Has imported all that a crawl does, and forks for each command that `tests.ready` asks for.

Rule: one thread, and nothing open that a child would share; a process that has ended is buried when
its asker has heard of it: until then nobody else gets its number.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from typing import Final
from warnings import catch_warnings, simplefilter

from tests.ready import LARGEST_BYTES

_LOOK: Final = os.WEXITED | os.WNOHANG | os.WNOWAIT


class _Server:
    def __init__(self, asks: socket.socket) -> None:
        self._asks = asks
        self._begun: dict[socket.socket, int] = {}
        self._ended: set[int] = set()
        self._died, self._dies = os.pipe()
        os.set_blocking(self._dies, False)
        signal.set_wakeup_fd(self._dies, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests

    def serve(self) -> list[str] | None:
        """In each process that is asked for: its arguments. Here: None, at the end."""
        while True:
            watched = (self._asks, *self._begun)
            numbers = [self._died, *(each.fileno() for each in watched)]
            ready = set(select.select(numbers, [], [])[0])
            if self._died in ready:
                os.read(self._died, 1024)
                self._tell()
            for each in watched[1:]:
                if each.fileno() in ready:
                    self._bury(each)
            if self._asks.fileno() in ready:
                asked, files, *_ = socket.recv_fds(self._asks, LARGEST_BYTES, 3)
                if not asked:
                    break
                if (arguments := self._begin(asked, files)) is not None:
                    return arguments
        for each in tuple(self._begun):
            self._bury(each)
        return None

    def _begin(self, asked: bytes, files: list[int]) -> list[str] | None:
        out, err, tells = files
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # Arrow's thread, which minds forks
            pid = os.fork()
        if pid:
            os.close(out)
            os.close(err)
            telling = socket.socket(fileno=tells)
            self._begun[telling] = pid
            telling.send(str(pid).encode())
            return None
        self._close()
        os.close(tells)
        _put(os.open(os.devnull, os.O_RDONLY), 0)
        _put(out, 1)
        _put(err, 2)
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
        os.close(self._died)
        os.close(self._dies)
        for each in (self._asks, *self._begun):
            each.close()

    def _tell(self) -> None:
        for telling, pid in self._begun.items():
            if pid not in self._ended and (end := os.waitid(os.P_PID, pid, _LOOK)) is not None:
                self._ended.add(pid)
                status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
                with suppress(OSError):
                    telling.send(str(status).encode())

    def _bury(self, telling: socket.socket) -> None:
        """Whoever asked for it has closed his end."""
        pid = self._begun.pop(telling)
        telling.close()
        if pid not in self._ended:
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._ended.discard(pid)


def _put(descriptor: int, number: int) -> None:
    os.dup2(descriptor, number)
    os.close(descriptor)


def main() -> None:
    server = _Server(socket.socket(fileno=int(sys.argv[1])))
    import_module("tests.imported")
    gc.collect()
    gc.freeze()
    arguments = server.serve()
    if arguments is not None:
        sys.argv = ["scrapy", *arguments]
        runpy.run_module("scrapy", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

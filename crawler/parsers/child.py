"""One process that parses, as its parent sees it.

Rule: nothing here waits for it but what is awaited, and no event loop's own way of starting
processes is used: they do not agree about who is told of a child's death.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from crawler.core.parsed import Source
from crawler.parsers.apart_wire import (
    ANSWERS,
    BEGUN,
    LENGTH,
    MAX_ANSWER_BYTES,
    Answer,
    Question,
    framed,
)

_START_S: Final = 60.0  # Python starts in 0.2 s; on a machine that swaps, in many
_READ_BYTES: Final = 1024 * 1024


class Ended(Exception):
    """The process is no more, or never began."""


class Nonsense(Exception):
    """It says what no parser of ours would."""


class Child:
    """Not to be used again once a call has failed; always to be killed."""

    @classmethod
    def start(cls, max_bytes: int, timeout_s: float) -> Self:
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(
                _command(max_bytes, timeout_s),
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C is for us
            )
        return cls(process, ours)

    def __init__(self, process: subprocess.Popen[bytes], wire: socket.socket) -> None:
        self._process = process
        self._wire = wire
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._status: asyncio.Future[int] | None = None
        self.answered = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def answer(self, path: str, source: Source, timeout_s: float) -> Answer:
        """Raises TimeoutError, Ended, Nonsense."""
        try:
            reader, writer = self._streams or await self._greeted()
            async with asyncio.timeout(timeout_s):
                ask(writer, path, source)
                await writer.drain()
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length > MAX_ANSWER_BYTES:
                    raise Nonsense(f"its parser says more than {MAX_ANSWER_BYTES} bytes")
                answer = ANSWERS.decode(await reader.readexactly(length))
        except msgspec.MsgspecError:
            raise Nonsense("its parser's process says what is no answer") from None
        except (ConnectionError, EOFError):
            raise Ended from None
        self.answered += 1
        return answer

    def kill(self) -> asyncio.Future[int]:
        """At once. Done when it has ended; with how (below 0: by which signal)."""
        if self._status is None:
            self._process.kill()
            if self._streams is not None:
                self._streams[1].transport.abort()
            else:
                self._wire.close()
            # The kernel may take a while to give back its memory.
            loop = asyncio.get_running_loop()
            self._status = loop.run_in_executor(None, self._process.wait)
        return self._status

    async def _greeted(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Once it is up: the time it takes to begin is not the first body's."""
        self._streams = await asyncio.open_connection(sock=self._wire, limit=_READ_BYTES)
        try:
            async with asyncio.timeout(_START_S):
                begun = await self._streams[0].readexactly(len(BEGUN))
        except TimeoutError:
            raise Ended from None
        if begun != BEGUN:
            raise Ended
        return self._streams


def said_end(status: int) -> str:
    """How a process ended: an exit status, or below 0 a signal."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def ask(writer: asyncio.StreamWriter, path: str, source: Source) -> None:
    question = Question(path, msgspec.structs.replace(source, body=b""), len(source.body))
    writer.write(framed(question))
    writer.write(source.body)


def _command(max_bytes: int, timeout_s: float) -> list[str]:
    # -P: its sys.path is ours, and not the folder where we happen to be.
    child = [sys.executable, "-P", "-m", "crawler.parsers.apart_child"]
    return [*child, str(os.getpid()), str(max_bytes), str(timeout_s)]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        # One body, one processor; and each thread of theirs would count as memory.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }

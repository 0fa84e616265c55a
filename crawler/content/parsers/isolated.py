"""Parsing in processes apart: what a body does to its parser, it does not do to the crawl.

Rule: one process for each parser, one body at a time in it; so what holds up a parser, as PDFs
that loop do, holds up no other. One that takes too long, says too much or dies is replaced, and
the body it had is unreadable. They start with their first body and end with the crawl.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import msgspec

from crawler.model.page import (
    Parsed,
    Source,
    Unreadable,
)
from crawler.model.types import CrawlerError

# What the crawl and a process that parses say to each other, over one socket.
#
# Rule: a message is its length (4 bytes) and as much msgpack; a body follows its question as it is,
# so that 64 MB are not copied once more.

LENGTH: Final = struct.Struct(">I")
# Text and links at the limits of bounds.py take 33 MB at most.
MAX_ANSWER_BYTES: Final = 48 * 1024 * 1024
BEGUN: Final = b"\x01"  # the child's first word: it is up, the time of a body can begin


class ParseJob(msgspec.Struct, frozen=True, array_like=True):
    """Parse the *length* bytes that follow, by the parser at *path*."""

    path: str
    source: Source  # without its body
    length: int


class ParseReply(msgspec.Struct, frozen=True, array_like=True):
    """What came of it: *parsed*, or why not."""

    parsed: Parsed | None = None
    unreadable: str = ""  # the parser's own refusal
    fault: str = ""  # what the parser threw, by name; it is broken then
    said: str = ""


ENCODER: Final = msgspec.msgpack.Encoder()
QUESTIONS: Final = msgspec.msgpack.Decoder(ParseJob)
ANSWERS: Final = msgspec.msgpack.Decoder(ParseReply)


def framed(message: ParseJob | ParseReply) -> bytes:
    packed = ENCODER.encode(message)
    return LENGTH.pack(len(packed)) + packed


# One process that parses, as its parent sees it.
#
# Rule: nothing here waits for it but what is awaited, and no event loop's own way of starting
# processes is used: they do not agree about who is told of a child's death.

_START_S: Final = 60.0  # Python starts in 0.2 s; on a machine that swaps, in many
_READ_BYTES: Final = 1024 * 1024


class ProcessEnded(Exception):
    """The process is no more, or never began."""


class BadReply(Exception):
    """It says what no parser of ours would."""


class ParserProcess:
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

    async def answer(self, path: str, source: Source, timeout_s: float) -> ParseReply:
        """Raises TimeoutError, Ended, Nonsense."""
        try:
            reader, writer = self._streams or await self._greeted()
            async with asyncio.timeout(timeout_s):
                ask(writer, path, source)
                await writer.drain()
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length > MAX_ANSWER_BYTES:
                    raise BadReply(f"its parser says more than {MAX_ANSWER_BYTES} bytes")
                answer = ANSWERS.decode(await reader.readexactly(length))
        except msgspec.MsgspecError:
            raise BadReply("its parser's process says what is no answer") from None
        except (ConnectionError, EOFError):
            raise ProcessEnded from None
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
            raise ProcessEnded from None
        if begun != BEGUN:
            raise ProcessEnded
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
    question = ParseJob(path, msgspec.structs.replace(source, body=b""), len(source.body))
    writer.write(framed(question))
    writer.write(source.body)


def _command(max_bytes: int, timeout_s: float) -> list[str]:
    # -P: its sys.path is ours, and not the folder where we happen to be.
    child = [sys.executable, "-P", "-m", "crawler.content.parsers.isolated_child"]
    return [*child, str(os.getpid()), str(max_bytes), str(timeout_s)]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        # One body, one processor; and each thread of theirs would count as memory.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


BODIES_EACH: Final = 200  # guess: then a new process, for what a library may leak
# A body is given so many times its time where other work has the processor, or the parser sleeps.
_WAITS: Final = 5
_MEMORY_SHARE: Final = 4  # a body that takes more than this part of the memory leaves no room


class BrokenParser(CrawlerError):
    """A parser threw what it may not, or its process died. Caller: tell the user, once."""

    def __init__(self, kind: str, said: str = "") -> None:
        super().__init__(said)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """What a body may take."""

    timeout_s: float  # of processor time, to the next whole second; of real time _WAITS as much
    max_bytes: int  # of memory


class ParserProcesses:
    """The processes of one crawl, by the path of their parser. Closed by `close`."""

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        # Bodies wait here as they are; how many there may be is for those who fetch them.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._idle: dict[str, ParserProcess] = {}
        self._busy: set[ParserProcess] = set()
        self._ending: set[asyncio.Future[int]] = set()
        self._closed = False

    async def parse(self, path: str, source: Source) -> Parsed:
        """By the parser whose class is at *path*. Raises Unreadable, BrokenParser."""
        if len(source.body) > self._limits.max_bytes // _MEMORY_SHARE:
            raise Unreadable(f"{len(source.body)} bytes are too many for CRAWLER_PARSE_MAX_BYTES")
        async with self._turns[path]:
            if self._closed:
                raise Unreadable("the crawl has ended")
            return _result(await self._answer(path, source), self._limits)

    async def close(self) -> None:
        """No process is left, whatever it was doing."""
        self._closed = True
        for child in (*self._idle.values(), *self._busy):
            self._end(child)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _answer(self, path: str, source: Source) -> ParseReply:
        limits = self._limits
        child = self._idle.pop(path, None) or ParserProcess.start(
            limits.max_bytes, limits.timeout_s
        )
        self._busy.add(child)
        answer = None
        try:
            answer = await child.answer(path, source, _WAITS * limits.timeout_s)
        except TimeoutError:
            raise _too_long(limits) from None
        except BadReply as nonsense:
            raise Unreadable(str(nonsense)) from None
        except ProcessEnded:
            status = await self._end(child)
            if status == -signal.SIGXCPU:
                raise _too_long(limits) from None
            raise BrokenParser("died", said_end(status)) from None
        finally:  # also where we are cancelled: it may be in the middle of a body
            self._busy.discard(child)
            self._keep_or_end(path, child, answer)
        return answer

    def _keep_or_end(self, path: str, child: ParserProcess, answer: ParseReply | None) -> None:
        spent = child.answered >= BODIES_EACH
        if answer is None or spent or self._closed or answer.fault == MemoryError.__name__:
            self._end(child)
        else:
            self._idle[path] = child

    def _end(self, child: ParserProcess) -> asyncio.Future[int]:
        status = child.kill()
        self._ending.add(status)
        status.add_done_callback(self._ending.discard)
        return status


def _too_long(limits: ParserLimits) -> Unreadable:
    return Unreadable(f"took longer than {limits.timeout_s:g} s")


def _result(answer: ParseReply, limits: ParserLimits) -> Parsed:
    if answer.parsed is not None:
        return answer.parsed
    if answer.unreadable:
        raise Unreadable(answer.unreadable)
    if answer.fault == MemoryError.__name__:
        raise Unreadable(f"wanted more than {limits.max_bytes} bytes of memory")
    raise BrokenParser(answer.fault, answer.said)

"""Runs parsers in separate processes, so that a hostile body cannot harm the crawl.

Rule: each parser has one process, which parses one body at a time; so a body that blocks one parser
blocks no other. A process that takes too long, replies too much or dies is replaced, and its body
counts as unreadable.
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

# A message is its length (4 bytes) and then msgpack. A body follows its job without msgpack, so
# that 64 MB are not copied once more.
LENGTH: Final = struct.Struct(">I")
# Text and links at the limits of loading.py take 33 MB at most.
MAX_REPLY_BYTES: Final = 48 * 1024 * 1024
STARTED: Final = b"\x01"  # the first byte from the child: it has started, and a body can be timed


class ParseJob(msgspec.Struct, frozen=True, array_like=True):
    """The job to parse the *length* bytes that follow, by the parser at *path*."""

    path: str
    source: Source  # without its body
    length: int


class ParseReply(msgspec.Struct, frozen=True, array_like=True):
    """The result of a job: *parsed*, or why there is none."""

    parsed: Parsed | None = None
    unreadable: str = ""  # the reason with which the parser raised Unreadable
    fault: str = ""  # the name of any other exception; the parser is broken then
    message: str = ""  # the message of that exception


ENCODER: Final = msgspec.msgpack.Encoder()
JOB_DECODER: Final = msgspec.msgpack.Decoder(ParseJob)
REPLY_DECODER: Final = msgspec.msgpack.Decoder(ParseReply)


def framed(message: ParseJob | ParseReply) -> bytes:
    packed = ENCODER.encode(message)
    return LENGTH.pack(len(packed)) + packed


# asyncio's own subprocesses are not used, because event loops differ in how they report the end of
# a child.
_START_S: Final = 60.0  # Python starts in 0.2 s, but a machine that swaps takes many seconds
_READ_BYTES: Final = 1024 * 1024


class ProcessEnded(Exception):
    """The process has ended, or never started."""


class BadReply(Exception):
    """The process sent a reply that is too long or cannot be decoded."""


class ParserProcess:
    """A child process, as its parent sees it. Always kill it at the end, and do not use it again
    after a call has failed."""

    @classmethod
    def start(cls, max_bytes: int, timeout_s: float) -> Self:
        ours, child_end = socket.socketpair()
        with child_end:
            process = subprocess.Popen(
                _command(max_bytes, timeout_s),
                stdin=child_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # a Ctrl-C must reach only us
            )
        return cls(process, ours)

    def __init__(self, process: subprocess.Popen[bytes], wire: socket.socket) -> None:
        self._process = process
        self._wire = wire
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._status: asyncio.Future[int] | None = None
        self.replies = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    async def parse(self, path: str, source: Source, timeout_s: float) -> ParseReply:
        """Parse *source*. Raises TimeoutError, ProcessEnded, BadReply."""
        try:
            reader, writer = self._streams or await self._connect()
            async with asyncio.timeout(timeout_s):
                send_job(writer, path, source)
                await writer.drain()
                (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
                if length > MAX_REPLY_BYTES:
                    raise BadReply(f"its parser replied more than {MAX_REPLY_BYTES} bytes")
                answer = REPLY_DECODER.decode(await reader.readexactly(length))
        except msgspec.MsgspecError:
            raise BadReply("its parser's process sent an invalid reply") from None
        except (ConnectionError, EOFError):
            raise ProcessEnded from None
        self.replies += 1
        return answer

    def kill(self) -> asyncio.Future[int]:
        """Kill the process. The future gets its exit status when it has ended, below 0 for a
        signal."""
        if self._status is None:
            self._process.kill()
            if self._streams is not None:
                self._streams[1].transport.abort()
            else:
                self._wire.close()
            # The end may take a while, until the kernel has freed its memory.
            loop = asyncio.get_running_loop()
            self._status = loop.run_in_executor(None, self._process.wait)
        return self._status

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Wait until the process has started, so that its start does not count as parsing time."""
        self._streams = await asyncio.open_connection(sock=self._wire, limit=_READ_BYTES)
        try:
            async with asyncio.timeout(_START_S):
                begun = await self._streams[0].readexactly(len(STARTED))
        except TimeoutError:
            raise ProcessEnded from None
        if begun != STARTED:
            raise ProcessEnded
        return self._streams


def exit_description(status: int) -> str:
    """Return how a process ended, by its exit status, or a signal if *status* is below 0."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def send_job(writer: asyncio.StreamWriter, path: str, source: Source) -> None:
    question = ParseJob(path, msgspec.structs.replace(source, body=b""), len(source.body))
    writer.write(framed(question))
    writer.write(source.body)


def _command(max_bytes: int, timeout_s: float) -> list[str]:
    # -P: its sys.path is ours, without the current folder.
    child = [sys.executable, "-P", "-m", "crawler.content.parsers.isolated_child"]
    return [*child, str(os.getpid()), str(max_bytes), str(timeout_s)]


def _environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        # One processor is enough for one body, and each thread would count as memory.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


BODIES_PER_PROCESS: Final = 200  # guess: then a new process, because a library may leak memory
# The limit of real time is this multiple of the limit of processor time.
_REAL_TIME_FACTOR: Final = 5
_MEMORY_SHARE: Final = 4  # a body may take a quarter of the memory


class BrokenParser(CrawlerError):
    """A parser raised an exception that it may not raise, or its process died. Caller: log it,
    once."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """The limits of parsing one body."""

    timeout_s: float  # of processor time, rounded up; real time: _REAL_TIME_FACTOR times as long
    max_bytes: int  # of memory


class ParserProcesses:
    """The processes of one crawl, by the path of their parser. Each starts with its first body and
    ends with `close`."""

    def __init__(self, limits: ParserLimits) -> None:
        self._limits = limits
        # Bodies wait here without a limit; fetching limits how many there are.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._idle: dict[str, ParserProcess] = {}
        self._busy: set[ParserProcess] = set()
        self._ending: set[asyncio.Future[int]] = set()
        self._closed = False

    async def parse(self, path: str, source: Source) -> Parsed:
        """Parse *source* by the parser class at *path*. Raises Unreadable, BrokenParser."""
        if len(source.body) > self._limits.max_bytes // _MEMORY_SHARE:
            raise Unreadable(f"{len(source.body)} bytes are too many for CRAWLER_PARSE_MAX_BYTES")
        async with self._locks[path]:
            if self._closed:
                raise Unreadable("the crawl has ended")
            return _result(await self._run_job(path, source), self._limits)

    async def close(self) -> None:
        """Kill all processes, idle or busy."""
        self._closed = True
        for child in (*self._idle.values(), *self._busy):
            self._end(child)
        self._idle.clear()
        await asyncio.gather(*self._ending)

    async def _run_job(self, path: str, source: Source) -> ParseReply:
        limits = self._limits
        child = self._idle.pop(path, None) or ParserProcess.start(
            limits.max_bytes, limits.timeout_s
        )
        self._busy.add(child)
        answer = None
        try:
            answer = await child.parse(path, source, _REAL_TIME_FACTOR * limits.timeout_s)
        except TimeoutError:
            raise _too_long(limits) from None
        except BadReply as bad_reply:
            raise Unreadable(str(bad_reply)) from None
        except ProcessEnded:
            status = await self._end(child)
            if status == -signal.SIGXCPU:
                raise _too_long(limits) from None
            raise BrokenParser("died", exit_description(status)) from None
        finally:  # also if we are cancelled: the process may be in the middle of a body
            self._busy.discard(child)
            self._keep_or_end(path, child, answer)
        return answer

    def _keep_or_end(self, path: str, child: ParserProcess, answer: ParseReply | None) -> None:
        is_used_up = child.replies >= BODIES_PER_PROCESS
        if answer is None or is_used_up or self._closed or answer.fault == MemoryError.__name__:
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
    raise BrokenParser(answer.fault, answer.message)

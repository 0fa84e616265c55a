"""The child process that parses bodies from a socket and sends back the results.

Rule: it keeps no state, so it may be killed at any moment. It ends with the process that started
it, and limits its own memory and processor time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import sys
from typing import BinaryIO, Final

import msgspec

from crawler.content.parsers.isolated import (
    JOB_DECODER,
    LENGTH,
    STARTED,
    ParseReply,
    framed,
)
from crawler.content.parsers.loading import parser_at, within_limits
from crawler.model.page import (
    Parsed,
    Parser,
    Source,
    Unreadable,
)
from crawler.model.types import ConfigError

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_MAX_MESSAGE_CHARS: Final = 300


def main(starter: int, max_bytes: int, timeout_s: float) -> None:
    """Parse bodies until the socket is closed."""
    _end_with(starter)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, max_bytes)
    with os.fdopen(os.dup(0), "rb") as inward, os.fdopen(os.dup(0), "wb") as outward:
        _close_standard_streams()
        outward.write(STARTED)
        outward.flush()
        parsers: dict[str, Parser] = {}
        while head := inward.read(LENGTH.size):
            question = JOB_DECODER.decode(inward.read(*LENGTH.unpack(head)))
            _limit(resource.RLIMIT_CPU, math.ceil(_cpu_s() + timeout_s))
            answer = _reply(question.path, question.source, inward, question.length, parsers)
            outward.write(framed(answer))
            outward.flush()


def _reply(
    path: str, source: Source, inward: BinaryIO, length: int, parsers: dict[str, Parser]
) -> ParseReply:
    try:
        source = msgspec.structs.replace(source, body=inward.read(length))
        if path not in parsers:
            parsers[path] = parser_at(path)
        return ParseReply(_parsed(parsers[path], source))
    except Unreadable as refusal:
        return ParseReply(unreadable=_message(refusal) or "no reason given")
    except ConfigError as error:
        return ParseReply(fault="ConfigError", message=_message(error))
    except Exception as error:  # a plug-in may raise anything; the process must go on
        return ParseReply(fault=type(error).__name__, message=_message(error))


def _parsed(parser: Parser, source: Source) -> Parsed:
    parsed = parser.parse(source)
    if not isinstance(parsed, Parsed):
        raise TypeError(f"{parser.name} gave {type(parsed).__name__}, not Parsed")
    return within_limits(parsed, parser.name)


def _message(error: Exception) -> str:
    return str(error)[:_MAX_MESSAGE_CHARS]


def _close_standard_streams() -> None:
    """Discard what a library prints, which would mix with our replies or the user's terminal."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _limit(what: int, most: int) -> None:
    # A lower limit may be set already, and macOS refuses a limit of the address space.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _end_with(starter: int) -> None:
    """End this process with its parent. Linux sends a signal at once; elsewhere the end of our
    input is noticed only between two bodies."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # the parent died before prctl
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))

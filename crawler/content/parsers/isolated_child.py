"""The process that parses what may be hostile: bodies in by one socket, answers out by it.

Rule: it may be killed at any moment, and loses nothing: it holds nothing. It ends with the
process that started it, and has limits of its own on memory and processor time.
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
    BEGUN,
    LENGTH,
    QUESTIONS,
    ParseReply,
    framed,
)
from crawler.content.parsers.loading import bounded, parser_at
from crawler.model.page import (
    Parsed,
    Parser,
    Source,
    Unreadable,
)
from crawler.model.types import ConfigError

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
_MAX_SAID_CHARS: Final = 300


def main(starter: int, max_bytes: int, timeout_s: float) -> None:
    """Answer until nobody asks any more, or memory has run out once."""
    _end_with(starter)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, max_bytes)
    with os.fdopen(os.dup(0), "rb") as inward, os.fdopen(os.dup(0), "wb") as outward:
        _close_standard_streams()
        outward.write(BEGUN)
        outward.flush()
        parsers: dict[str, Parser] = {}
        while head := inward.read(LENGTH.size):
            question = QUESTIONS.decode(inward.read(*LENGTH.unpack(head)))
            _limit(resource.RLIMIT_CPU, math.ceil(_cpu_s() + timeout_s))
            answer = _answered(question.path, question.source, inward, question.length, parsers)
            outward.write(framed(answer))
            outward.flush()


def _answered(
    path: str, source: Source, inward: BinaryIO, length: int, parsers: dict[str, Parser]
) -> ParseReply:
    try:
        source = msgspec.structs.replace(source, body=inward.read(length))
        if path not in parsers:
            parsers[path] = parser_at(path)
        return ParseReply(_parsed(parsers[path], source))
    except Unreadable as refusal:
        return ParseReply(unreadable=_said(refusal) or "no reason given")
    except ConfigError as error:
        return ParseReply(fault="ConfigError", said=_said(error))
    except Exception as error:  # a parser may be anybody's; its fault must not cost the process
        return ParseReply(fault=type(error).__name__, said=_said(error))


def _parsed(parser: Parser, source: Source) -> Parsed:
    parsed = parser.parse(source)
    if not isinstance(parsed, Parsed):
        raise TypeError(f"{parser.name} gave {type(parsed).__name__}, not Parsed")
    return bounded(parsed, parser.name)


def _said(error: Exception) -> str:
    return str(error)[:_MAX_SAID_CHARS]


def _close_standard_streams() -> None:
    """Whatever a library prints would stand between our answers, or on the user's screen."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def _limit(what: int, most: int) -> None:
    # A lower limit may hold already; and macOS refuses one on the address space.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _end_with(starter: int) -> None:
    """An end of our input is noticed only between two bodies; Linux tells us at once."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:  # it died before we asked
        sys.exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))

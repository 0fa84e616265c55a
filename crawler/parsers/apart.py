"""Parsing in processes apart: what a body does to its parser, it does not do to the crawl.

Rule: one process for each parser, one body at a time in it; so what holds up a parser, as PDFs
that loop do, holds up no other. One that takes too long, says too much or dies is replaced, and
the body it had is unreadable. They start with their first body and end with the crawl.
"""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from crawler.core.errors import CrawlerError
from crawler.core.parsed import Parsed, Source, Unreadable
from crawler.parsers.apart_wire import Answer
from crawler.parsers.child import Child, Ended, Nonsense, said_end

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
class Limits:
    """What a body may take."""

    timeout_s: float  # of processor time, to the next whole second; of real time _WAITS as much
    max_bytes: int  # of memory


class Apart:
    """The processes of one crawl, by the path of their parser. Closed by `close`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Bodies wait here as they are; how many there may be is for those who fetch them.
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._idle: dict[str, Child] = {}
        self._busy: set[Child] = set()
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

    async def _answer(self, path: str, source: Source) -> Answer:
        limits = self._limits
        child = self._idle.pop(path, None) or Child.start(limits.max_bytes, limits.timeout_s)
        self._busy.add(child)
        answer = None
        try:
            answer = await child.answer(path, source, _WAITS * limits.timeout_s)
        except TimeoutError:
            raise _too_long(limits) from None
        except Nonsense as nonsense:
            raise Unreadable(str(nonsense)) from None
        except Ended:
            status = await self._end(child)
            if status == -signal.SIGXCPU:
                raise _too_long(limits) from None
            raise BrokenParser("died", said_end(status)) from None
        finally:  # also where we are cancelled: it may be in the middle of a body
            self._busy.discard(child)
            self._keep_or_end(path, child, answer)
        return answer

    def _keep_or_end(self, path: str, child: Child, answer: Answer | None) -> None:
        spent = child.answered >= BODIES_EACH
        if answer is None or spent or self._closed or answer.fault == MemoryError.__name__:
            self._end(child)
        else:
            self._idle[path] = child

    def _end(self, child: Child) -> asyncio.Future[int]:
        status = child.kill()
        self._ending.add(status)
        status.add_done_callback(self._ending.discard)
        return status


def _too_long(limits: Limits) -> Unreadable:
    return Unreadable(f"took longer than {limits.timeout_s:g} s")


def _result(answer: Answer, limits: Limits) -> Parsed:
    if answer.parsed is not None:
        return answer.parsed
    if answer.unreadable:
        raise Unreadable(answer.unreadable)
    if answer.fault == MemoryError.__name__:
        raise Unreadable(f"wanted more than {limits.max_bytes} bytes of memory")
    raise BrokenParser(answer.fault, answer.said)

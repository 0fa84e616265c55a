"""Read one answer of HTTP/1.1: its bytes go in, events come out.

Rule: pure; no socket, future or clock. Wherever reads end, the same bytes give the same events, but
that a body may come in other pieces. What is held is bounded: a head by its limit, then a line of
the framing; the bytes of a body are passed on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from crawler.download.chunked import ChunkedBody
from crawler.download.http_head import AnswerHead, BadHead, HeadGate
from crawler.model.page import Truncated

_WITHOUT_BODY: Final = frozenset((204, 304))


class AnswerState(StrEnum):
    """How far an answer has come. `ANSWER_TRANSITIONS` has all legal moves."""

    HEAD = "head"  # its head is not whole
    SIZED = "sized"  # in a body whose length is known
    CHUNKED = "chunked"  # in a body in chunks
    OPEN_ENDED = "open-ended"  # in a body that ends with its connection
    WHOLE = "whole"
    CUT = "cut"  # not all of its body came, or could be read
    FAILED = "failed"  # it has no head


class AnswerStep(StrEnum):
    WITHOUT_BODY = "without body"  # the head is whole, and no body follows
    WITH_LENGTH = "with length"  # the head is whole, as in the next two
    WITH_CHUNKS = "with chunks"
    WITHOUT_LENGTH = "without length"
    REFUSE = "refuse"  # browsers refuse the head too, or it is over a limit
    COMPLETE = "complete"  # the last byte of the body came
    BREAK = "break"  # its framing cannot be read, or is over a limit
    CLOSE = "close"  # the server has closed the connection
    LOSE = "lose"  # the connection was lost in another way


# An attribute of an Enum takes 0.1 us, and these are read for each piece of a body.
HEAD, SIZED, CHUNKED, OPEN_ENDED, WHOLE, CUT, FAILED = AnswerState

ANSWER_TRANSITIONS: Final[dict[tuple[AnswerState, AnswerStep], AnswerState]] = {
    (HEAD, AnswerStep.WITH_LENGTH): SIZED,
    (HEAD, AnswerStep.WITH_CHUNKS): CHUNKED,
    (HEAD, AnswerStep.WITHOUT_LENGTH): OPEN_ENDED,
    (HEAD, AnswerStep.WITHOUT_BODY): WHOLE,
    (HEAD, AnswerStep.REFUSE): FAILED,
    (HEAD, AnswerStep.CLOSE): FAILED,
    (HEAD, AnswerStep.LOSE): FAILED,
    (SIZED, AnswerStep.COMPLETE): WHOLE,
    (SIZED, AnswerStep.CLOSE): CUT,
    (SIZED, AnswerStep.LOSE): CUT,
    (CHUNKED, AnswerStep.COMPLETE): WHOLE,
    (CHUNKED, AnswerStep.BREAK): CUT,
    (CHUNKED, AnswerStep.CLOSE): CUT,
    (CHUNKED, AnswerStep.LOSE): CUT,
    (OPEN_ENDED, AnswerStep.CLOSE): WHOLE,
    (OPEN_ENDED, AnswerStep.LOSE): CUT,
}

_LOST: Final = frozenset((CUT, FAILED))
_ENDED: Final = _LOST | {WHOLE}


class AnswerEnd(NamedTuple):
    """The last event of an answer that has a head. *cut* says why its body is not whole."""

    cut: Truncated = Truncated.NO


class NoAnswer(NamedTuple):
    """The only event of an answer without a head: *refused* says what is wrong with it; empty: the
    connection has ended. *is_silent*: no byte came."""

    refused: str = ""
    is_silent: bool = False


AnswerEvent = AnswerHead | bytes | AnswerEnd | NoAnswer
"""One AnswerHead, the body in pieces that are not empty, one AnswerEnd; or only NoAnswer."""


_WHOLE: Final = AnswerEnd()


class AnswerReader:
    """The reader of one answer."""

    __slots__ = (
        *("_chunked", "_gate", "_has_no_body", "_left", "head", "is_over", "is_spoiled", "state"),
    )

    def __init__(self, head_max_bytes: int, *, has_no_body: bool = False) -> None:
        """*has_no_body*: whatever its head says, as after HEAD."""
        self.state = HEAD
        self.head: AnswerHead | None = None  # once it is whole
        self.is_over = False  # its last event has come
        self.is_spoiled = False  # nothing that comes on the same connection can be used
        self._gate = HeadGate(head_max_bytes)
        self._has_no_body = has_no_body
        self._left = 0  # bytes of a SIZED body to come
        self._chunked: ChunkedBody | None = None

    @property
    def may_go_on(self) -> bool:
        """Whether the next answer can follow on the same connection: the end of this one is
        certain, and the server keeps the connection."""
        if self.state is not WHOLE or self.is_spoiled or self.head is None:
            return False
        return self.head.keeps_connection and self.head.is_surely_framed

    def limit(self, room: int) -> None:
        """Limit a body in chunks, whose head has come, to *room* bytes, framing included."""
        if self._chunked is not None:
            self._chunked.allow(room)

    def receive(self, data: bytes) -> list[AnswerEvent]:
        """Take bytes as received."""
        events: list[AnswerEvent] = []
        if self.head is None and not self.is_over:
            try:
                data = self._gate.feed(data)
            except BadHead as bad:
                self._go(AnswerStep.REFUSE)
                return [NoAnswer(str(bad))]
            self.head = self._gate.head
            if self.head is None:
                return events
            events.append(self.head)
            self._begin_body(self.head)
            if self.is_over:
                events.append(_WHOLE)
        if not data:
            return events
        if self.is_over:
            self.is_spoiled = True
        elif self._chunked is not None:
            self._receive_chunks(self._chunked, data, events)
        elif self.state is SIZED:
            if len(data) > self._left:
                data = data[: self._left]
                self.is_spoiled = True
            events.append(data)
            self._left -= len(data)
            if not self._left:
                self._go(AnswerStep.COMPLETE)
                events.append(_WHOLE)
        else:
            events.append(data)
        return events

    def end(self, *, is_orderly: bool) -> AnswerEnd | NoAnswer | None:
        """Take the end of the connection, and return the last event, if it had not come.
        *is_orderly*: the server has closed it, and all that it had sent was received."""
        if self.is_over:
            return None
        if self._chunked is not None and self._chunked.is_whole:  # only trailers are missing
            self._go(AnswerStep.COMPLETE)
        else:
            self._go(AnswerStep.CLOSE if is_orderly else AnswerStep.LOSE)
        if self.head is None:
            return NoAnswer(is_silent=self._gate.is_untouched)
        return AnswerEnd(Truncated.DISCONNECT) if self.state is CUT else _WHOLE

    def _begin_body(self, head: AnswerHead) -> None:
        framing = head.framing
        if self._has_no_body or head.status in _WITHOUT_BODY:
            self._go(AnswerStep.WITHOUT_BODY)
        elif framing == b"chunked":
            self._chunked = ChunkedBody()
            self._go(AnswerStep.WITH_CHUNKS)
        elif framing:
            self._left = int(framing)
            self._go(AnswerStep.WITH_LENGTH if self._left else AnswerStep.WITHOUT_BODY)
        else:
            self._go(AnswerStep.WITHOUT_LENGTH)

    def _receive_chunks(self, chunked: ChunkedBody, data: bytes, events: list[AnswerEvent]) -> None:
        body = chunked.feed(data)
        if body:
            events.append(body)
        if chunked.cut:
            self._go(AnswerStep.BREAK)
            events.append(AnswerEnd(chunked.cut))
        elif chunked.is_over:
            self.is_spoiled = chunked.has_excess
            self._go(AnswerStep.COMPLETE)
            events.append(_WHOLE)

    def _go(self, step: AnswerStep) -> None:
        self.state = state = ANSWER_TRANSITIONS[self.state, step]
        self.is_over = state in _ENDED
        if state in _LOST:
            self.is_spoiled = True

"""Answers as events: each way that one may begin, go on and end, wherever its reads end."""

from __future__ import annotations

import tracemalloc
from http.client import HTTPResponse
from io import BytesIO
from itertools import pairwise, product
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.download.answer_reader import (
    ANSWER_TRANSITIONS,
    AnswerEnd,
    AnswerEvent,
    AnswerReader,
    AnswerState,
    AnswerStep,
    NoAnswer,
)
from crawler.download.http_head import AnswerHead
from crawler.model.page import Truncated

HEAD_MAX_BYTES: Final = 4096
OK: Final = b"HTTP/1.1 200 OK\r\n"
SIZED: Final = OK + b"Content-Length: 3\r\n\r\n"
CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n"
OPEN: Final = OK + b"\r\n"
CLOSED, LOST = True, False  # in an orderly way, or not


def events(*parts: bytes | bool, has_no_body: bool = False) -> tuple[list[Any], AnswerReader]:
    """Read *parts*. In the events a body is one piece, and a head its status."""
    reader = AnswerReader(HEAD_MAX_BYTES, has_no_body=has_no_body)
    seen: list[AnswerEvent] = []
    for part in parts:
        if isinstance(part, bytes):
            seen += reader.receive(part)
        elif (last := reader.end(is_orderly=part)) is not None:
            seen.append(last)
    joined: list[Any] = []
    for event in seen:
        if isinstance(event, bytes):
            assert event, "a piece of a body is not empty"
            before = joined.pop() if joined and isinstance(joined[-1], bytes) else b""
            joined.append(before + event)
        else:
            joined.append(event)
    return [each.status if isinstance(each, AnswerHead) else each for each in joined], reader


WHOLE: Final = AnswerEnd()
BROKEN_OFF: Final = AnswerEnd(Truncated.DISCONNECT)


@pytest.mark.parametrize(
    ("parts", "expect", "state", "may_go_on"),
    [
        pytest.param([SIZED + b"abc"], [200, b"abc", WHOLE], AnswerState.WHOLE, True, id="sized"),
        pytest.param([SIZED + b"ab"], [200, b"ab"], AnswerState.SIZED, False, id="not all of it"),
        pytest.param(
            [SIZED + b"ab", CLOSED], [200, b"ab", BROKEN_OFF], AnswerState.CUT, False, id="closed"
        ),
        pytest.param(
            [SIZED + b"abc", LOST], [200, b"abc", WHOLE], AnswerState.WHOLE, True, id="lost later"
        ),
        pytest.param(
            [SIZED + b"abcd"], [200, b"abc", WHOLE], AnswerState.WHOLE, False, id="a byte more"
        ),
        pytest.param(
            [SIZED + b"abc", b"HTTP/1.1 200 OK\r\n\r\n"],
            [200, b"abc", WHOLE],
            AnswerState.WHOLE,
            False,
            id="a second answer",
        ),
        pytest.param(
            [CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"],
            [200, b"abc", WHOLE],
            AnswerState.WHOLE,
            True,
            id="chunks",
        ),
        pytest.param(
            [CHUNKED + b"3\r\nabc\r\n0\r\nA: 1\r\n", LOST],
            [200, b"abc", WHOLE],
            AnswerState.WHOLE,
            True,
            id="only trailers are missing",
        ),
        pytest.param(
            [CHUNKED + b"3\r\nab", CLOSED],
            [200, b"ab", BROKEN_OFF],
            AnswerState.CUT,
            False,
            id="closed in a chunk",
        ),
        pytest.param(
            [CHUNKED + b"3\r\nabc\r\nx\r\n"],
            [200, b"abc", AnswerEnd(Truncated.UNSPECIFIED)],
            AnswerState.CUT,
            False,
            id="no size",
        ),
        pytest.param([OPEN + b"ab"], [200, b"ab"], AnswerState.OPEN_ENDED, False, id="open"),
        pytest.param(
            [OPEN + b"ab", CLOSED], [200, b"ab", WHOLE], AnswerState.WHOLE, True, id="open, closed"
        ),
        pytest.param(
            [OPEN + b"ab", LOST], [200, b"ab", BROKEN_OFF], AnswerState.CUT, False, id="open, lost"
        ),
        pytest.param(
            [b"HTTP/1.1 304 Same\r\nContent-Length: 3\r\n\r\n"],
            [304, WHOLE],
            AnswerState.WHOLE,
            True,
            id="a status without a body",
        ),
        pytest.param(
            [b"<html>"],
            [NoAnswer("begins with b'<html>'")],
            AnswerState.FAILED,
            False,
            id="no head",
        ),
        pytest.param(
            [CLOSED], [NoAnswer(is_silent=True)], AnswerState.FAILED, False, id="not a byte"
        ),
        pytest.param([b"H", CLOSED], [NoAnswer()], AnswerState.FAILED, False, id="one byte"),
        pytest.param([b"\r\n", LOST], [NoAnswer()], AnswerState.FAILED, False, id="an empty line"),
        pytest.param(
            [b"<", LOST], [NoAnswer("begins with b'<'")], AnswerState.FAILED, False, id="both"
        ),
    ],
)
def test_an_answer_is_these_events(
    parts: list[bytes | bool], expect: list[object], state: AnswerState, may_go_on: bool
) -> None:
    seen, reader = events(*parts)
    assert (seen, reader.state) == (expect, state)
    assert reader.may_go_on is may_go_on
    assert reader.is_over is isinstance(seen[-1], AnswerEnd | NoAnswer)


def test_an_answer_to_head_has_no_body_whatever_it_says() -> None:
    for head in (SIZED, CHUNKED, OPEN):
        seen, reader = events(head, has_no_body=True)
        assert seen == [200, WHOLE]
        assert reader.may_go_on


def test_framing_is_limited_when_the_limit_is_known() -> None:
    reader = AnswerReader(HEAD_MAX_BYTES)
    reader.receive(CHUNKED)
    reader.limit(10)
    assert reader.receive(b"1;" + b"e" * 20) == [AnswerEnd(Truncated.LENGTH)]
    assert reader.is_spoiled


@pytest.mark.parametrize(("state", "step"), list(product(AnswerState, AnswerStep)))
def test_every_move_of_an_answer_is_in_the_table_or_refused(
    state: AnswerState, step: AnswerStep
) -> None:
    reader = AnswerReader(HEAD_MAX_BYTES)
    reader.state = state
    ended = {AnswerState.WHOLE, AnswerState.CUT, AnswerState.FAILED}
    if (state, step) in ANSWER_TRANSITIONS:
        assert state not in ended
        reader._go(step)
        assert reader.state is ANSWER_TRANSITIONS[state, step]
        assert reader.is_over is (reader.state in ended)
    else:
        with pytest.raises(KeyError):
            reader._go(step)


def test_every_state_of_an_answer_is_left_or_is_its_end() -> None:
    left = {state for state, _ in ANSWER_TRANSITIONS}
    assert left | {AnswerState.WHOLE, AnswerState.CUT, AnswerState.FAILED} == set(AnswerState)
    assert set(ANSWER_TRANSITIONS.values()) == set(AnswerState) - {AnswerState.HEAD}
    assert {step for _, step in ANSWER_TRANSITIONS} == set(AnswerStep)


HEADS: Final = st.sampled_from(
    [
        *(SIZED, CHUNKED, OPEN, b"\r\n" + SIZED, OK + b"Content-Length: 0\r\n\r\n"),
        *(b"HTTP/1.1 100 Go\r\n\r\n" + CHUNKED, b"HTTP/1.0 304 Same\nConnection: keep-alive\n\n"),
        *(
            OK + b"A : 1\nTransfer-Encoding: chunked\nContent-Length: 2\n\r\n",
            b"HTTP/1.1 9\r\n\r\n",
        ),
        *(b"<html>", OK, b"", OK + b"A: " + b"x" * HEAD_MAX_BYTES),
    ]
)
BODIES: Final = st.lists(
    st.sampled_from(
        [b"3\r\nabc\r\n", b"1;x\nd\n", b"0\r\n", b"\r\n", b"A: 1\r\n", b"x", b"abc", b"", SIZED]
    ),
    max_size=8,
)


@given(
    head=HEADS,
    body=BODIES,
    cuts=st.lists(st.integers(0, 200), max_size=8),
    ending=st.sampled_from([[], [CLOSED], [LOST]]),
    has_no_body=st.booleans(),
)
def test_the_same_bytes_are_the_same_events_wherever_reads_end(
    head: bytes, body: list[bytes], cuts: list[int], ending: list[bool], has_no_body: bool
) -> None:
    sent = b"".join((head, *body))
    bounds = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    parts = [sent[a:b] for a, b in pairwise(bounds) if a < b]
    whole, reader = events(*filter(None, [sent]), *ending, has_no_body=has_no_body)
    for cut in (parts, [sent[at : at + 1] for at in range(len(sent))]):
        seen, other = events(*cut, *ending, has_no_body=has_no_body)
        if not whole or not isinstance(whole[0], NoAnswer):
            assert seen == whole
        else:  # what is wrong with a head may be known before all of it came
            assert isinstance(seen[0], NoAnswer)
            assert bool(seen[0].refused) is bool(whole[0].refused)
            assert seen[0].is_silent is whole[0].is_silent
        assert (other.head, other.state) == (reader.head, reader.state)
        assert (other.may_go_on, other.is_spoiled) == (reader.may_go_on, reader.is_spoiled)


class Wire:
    """What `http.client` reads from."""

    def __init__(self, sent: bytes) -> None:
        self._sent = sent

    def makefile(self, mode: str) -> BytesIO:
        return BytesIO(self._sent)


@given(
    body=st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    framing=st.sampled_from(["length", "chunks", "connection"]),
    status=st.sampled_from([200, 404, 503]),
    fields=st.lists(st.sampled_from([b"A: 1", b"b:2", b"Server:  x  "]), max_size=3),
)
def test_pythons_own_client_reads_the_same(
    body: list[bytes], framing: str, status: int, fields: list[bytes]
) -> None:
    whole = b"".join(body)
    sent, lines = whole, fields
    if framing == "length":
        lines = [*fields, b"Content-Length: %d" % len(whole)]
    elif framing == "chunks":
        lines = [*fields, b"Transfer-Encoding: chunked"]
        sent = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (*body, b""))
    answer = b"\r\n".join((b"HTTP/1.1 %d Word" % status, *lines, b"", sent))
    judge = HTTPResponse(Wire(answer))  # type: ignore[arg-type]  # it needs of a socket no more
    judge.begin()
    seen, _ = events(answer, CLOSED)
    assert seen == [judge.status, *filter(None, [judge.read()]), WHOLE]


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(b"", b"\r\n", id="empty lines"),
        pytest.param(b"", b"HTTP/1.1 103 Hints\r\n\r\n", id="interim answers"),
        pytest.param(OK, b"X-Line: 1\r\n", id="header lines"),
        pytest.param(OK + b"X: ", b"x", id="one header line"),
        pytest.param(CHUNKED + b"1;", b"e", id="an extension"),
        pytest.param(CHUNKED, b"1;" + b"e" * 100 + b"\r\na\r\n", id="extensions"),
        pytest.param(CHUNKED, b"1\r\na\r\n", id="tiny chunks"),
        pytest.param(CHUNKED + b"0\r\n", b"X-Trailer: 1\r\n", id="trailers"),
        pytest.param(SIZED + b"abc", b"x", id="after the end"),
        pytest.param(b"<html>", b"x", id="after no head"),
        pytest.param(OPEN, b"x", id="a body"),
    ],
)
def test_what_is_held_is_bounded_whatever_comes(first: bytes, again: bytes) -> None:
    piece_bytes, pieces = 64 * 1024, 8
    piece = again * (piece_bytes // len(again))
    reader = AnswerReader(HEAD_MAX_BYTES)
    tracemalloc.start()
    try:
        reader.receive(first)
        for _ in range(pieces):
            reader.receive(piece)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2 * piece_bytes

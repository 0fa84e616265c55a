"""Heads: what is mended, what is refused, and that it does not matter how they arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.download.http_head import (
    MAX_INTERIM,
    MAX_LINES,
    AnswerHead,
    BadHead,
    HeadGate,
    repair_head,
)

LIMIT_BYTES = 4096
OK = b"HTTP/1.1 200 OK"


def head(*lines: bytes, status: bytes = OK) -> bytes:
    return b"\r\n".join((status, *lines, b"", b""))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(head(), id="no fields at all"),
        pytest.param(head(b"A: 1", b"B:2", b"C:"), id="white space is optional"),
        pytest.param(head(b"Content-Length: 12 "), id="a length"),
        pytest.param(head(b"Transfer-Encoding: Chunked"), id="chunks"),
        pytest.param(head(b"A: \xff\xe9\t"), id="bytes that are no text"),
        pytest.param(head(status=b"HTTP/1.0 999"), id="no reason, an odd status, an old version"),
    ],
)
def test_a_head_without_fault_is_left_alone(raw: bytes) -> None:
    assert repair_head(raw) is raw


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        pytest.param(OK + b"\nA: 1\n\n", head(b"A: 1"), id="lines end in LF alone"),
        pytest.param(head(b"no colon", b"A: 1"), head(b"A: 1"), id="a line without colon goes"),
        pytest.param(head(b": 1", b"b c: 2", b"A: 1"), head(b"A: 1"), id="odd names go"),
        pytest.param(head(b"A : 1"), head(b"A: 1"), id="white space before the colon"),
        pytest.param(head(b"A: 1\r\n  2\r\n\t3"), head(b"A: 1 2 3"), id="folded lines are joined"),
        pytest.param(head(b"A: 1\0\r2"), head(b"A: 1  2"), id="NUL and CR become spaces"),
        pytest.param(head(status=b"HTTP/1.1  200  OK"), head(), id="two spaces in the status"),
        pytest.param(head(status=b"HTTP/2 200 OK"), head(), id="a version that cannot be"),
        pytest.param(head(b"Content-Length: x"), head(), id="a length that is none"),
        pytest.param(head(b"Content-Length: -1"), head(), id="a negative length"),
        pytest.param(head(b"Content-Length: " + b"9" * 19), head(), id="a length over 64 bits"),
        pytest.param(
            head(b"content-length: 7", b"Content-Length: 7"),
            head(b"Content-Length: 7"),
            id="a length twice",
        ),
        pytest.param(
            head(b"Content-Length: 7, 7"), head(b"Content-Length: 7"), id="a list of one length"
        ),
        pytest.param(
            head(b"Content-Length: 7", b"Transfer-Encoding: chunked"),
            head(b"Transfer-Encoding: chunked"),
            id="chunks override a length",
        ),
        pytest.param(
            head(b"Transfer-Encoding: gzip, chunked"),
            head(b"Transfer-Encoding: chunked"),
            id="chunks come last",
        ),
        pytest.param(
            head(b"Transfer-Encoding: gzip", b"Content-Length: 7"),
            head(),
            id="another transfer coding ends with the connection",
        ),
        pytest.param(
            head(b"Transfer-Encoding: identity", b"Content-Length: 7"),
            head(b"Content-Length: 7"),
            id="identity is no coding",
        ),
        pytest.param(
            head(b"Transfer-Encoding: \x0bchunked"),
            head(),
            id="other white space is no white space",
        ),
        pytest.param(head(b"Content-Length: \x0b7"), head(), id="nor before a length"),
    ],
)
def test_a_faulty_head_is_mended(raw: bytes, clean: bytes) -> None:
    assert repair_head(raw) == clean


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(head(status=b"HTTP/1.1 99 Low"), id="a status of two digits"),
        pytest.param(head(status=b"HTTP/1.1 099 Low"), id="a status below 100"),
        pytest.param(head(status=b"HTTP/1.1 2000 High"), id="a status of four digits"),
        pytest.param(head(status=b"HTTP/1.1 OK"), id="no status"),
        pytest.param(head(b"Content-Length: 7", b"Content-Length: 8"), id="lengths that disagree"),
        pytest.param(head(b"Content-Length: 7, 8"), id="a list of lengths that disagree"),
        pytest.param(head(b"Content-Length: 7, " + b"9" * 19), id="one of them over 64 bits"),
        pytest.param(head(*[b"A: 1"] * MAX_LINES), id="too many lines"),
    ],
)
def test_heads_that_browsers_refuse_are_refused(raw: bytes) -> None:
    with pytest.raises(BadHead):
        repair_head(raw)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"<html>", id="no head"),
        pytest.param(b"HTTX", id="another protocol, known by its first bytes"),
        pytest.param(b"\r\n" * LIMIT_BYTES, id="empty lines without end"),
        pytest.param(OK + b"\r\nA: " + b"x" * LIMIT_BYTES, id="a line without end"),
        pytest.param(head(b"A: " + b"x" * LIMIT_BYTES), id="a head that is too long, whole"),
        pytest.param(head(status=b"HTTP/1.1 101 Other") + b"x", id="another protocol from here on"),
        pytest.param(head(status=b"HTTP/1.1 100 Go") * (MAX_INTERIM + 1), id="hold the line"),
    ],
)
def test_the_gate_stays_shut(data: bytes) -> None:
    with pytest.raises(BadHead):
        HeadGate(LIMIT_BYTES).feed(data)


def test_interim_answers_go_before_the_head_that_counts() -> None:
    hints, last = head(b"Link: x", status=b"HTTP/1.1 103 Hints"), head(b"A: 1")
    gate = HeadGate(LIMIT_BYTES)
    assert gate.is_untouched
    assert gate.feed(hints) == b""
    assert gate.head is None
    assert not gate.is_untouched
    assert gate.feed(last + b"body") == b"body"
    assert gate.head == AnswerHead(last, last, 200, len(hints + last))


@pytest.mark.parametrize(
    ("field", "framing"),
    [
        pytest.param(b"A: 1", b"", id="a body that ends with the connection"),
        pytest.param(b"content-length: 12 ", b"12", id="a length"),
        pytest.param(b"Transfer-Encoding: Chunked", b"chunked", id="chunks"),
    ],
)
def test_how_the_body_is_framed(field: bytes, framing: bytes) -> None:
    gate = HeadGate(LIMIT_BYTES)
    gate.feed(head(b"B: 2", field))
    assert gate.head and gate.head.framing == framing


def test_the_head_is_kept_as_sent() -> None:
    raw = OK + b"\nno colon\nA : 1\n\n"
    gate = HeadGate(LIMIT_BYTES)
    assert gate.feed(b"\r\n" + raw) == b""
    assert gate.head == AnswerHead(raw, head(b"A: 1"), 200, len(raw) + 2)


SENT = st.sampled_from(
    [
        *(head(b"A: 1"), OK + b"\nA: 1\n\n", OK + b"\r\nA: 1\n\r\n", b"\r\n" + head(b"no colon")),
        *(
            head(status=b"HTTP/1.1 100 Go") + head(),
            OK + b"\nA: 1\n\r\n",
            head(status=b"HTTP/1.1 9 x"),
        ),
    ]
)


@given(sent=SENT, body=st.binary(max_size=8), cuts=st.lists(st.integers(0, 60)))
def test_a_head_may_arrive_in_any_pieces(sent: bytes, body: bytes, cuts: list[int]) -> None:
    whole = sent + body
    bounds = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[a:b] for a, b in pairwise(bounds)]
    assert passed(parts) == passed([whole])


def passed(parts: list[bytes]) -> tuple[AnswerHead | None, bytes] | None:
    gate, body = HeadGate(LIMIT_BYTES), b""
    for part in parts:
        if gate.head:
            body += part
            continue
        try:
            body += gate.feed(part)
        except BadHead:
            return None
    return gate.head, body


LINES = st.lists(st.binary(max_size=30) | st.sampled_from([b"Content-Length: 5", b"A: b", b" x"]))


@given(lines=LINES, status=st.sampled_from([OK, b"HTTP/1.1 200", b"HTTP/2  301\tx"]))
def test_a_repaired_head_needs_no_repair(lines: list[bytes], status: bytes) -> None:
    try:
        clean = repair_head(head(*lines, status=status))
    except BadHead:
        return
    assert repair_head(clean) is clean

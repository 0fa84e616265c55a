"""Chunks: what is taken for a body, where it ends, and that nothing passes its bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.download.chunked import (
    MAX_CHUNKS,
    MAX_LINE_BYTES,
    MAX_TRAILER_BYTES,
    ChunkedBody,
)
from crawler.model.page import Truncated
from tests.servers.hostile_kit import chunked

BODY = b"<p>text</p>"
LINE = b"x" * MAX_LINE_BYTES


def read(*parts: bytes, room: int | None = None) -> tuple[bytes, ChunkedBody]:
    body = ChunkedBody()
    if room is not None:
        body.allow(room)
    return b"".join(body.feed(part) for part in parts), body


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(chunked(BODY), id="as the standard has it"),
        pytest.param(chunked(BODY[:1], BODY[1:3], BODY[3:]), id="in several chunks"),
        pytest.param(chunked(BODY).replace(b"\r\n", b"\n"), id="lines end in LF alone"),
        pytest.param(b" 0000b \r\n" + BODY + b"\r\n0\r\n\r\n", id="with spaces and zeros"),
        pytest.param(b"B;a=b;c\r\n" + BODY + b"\r\n00;x\r\n\r\n", id="with extensions"),
        pytest.param(chunked(BODY, end=b"0\r\nX-Sum: 1\r\nY: 2\r\n\r\n"), id="with trailers"),
    ],
)
def test_a_body_is_whole(sent: bytes) -> None:
    body, state = read(sent)
    assert body == BODY
    assert (state.is_over, state.has_excess, state.cut) == (True, False, Truncated.NO)
    assert state.taken == len(sent)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(b"zz\r\n", id="a size that is a word"),
        pytest.param(b"-1\r\n", id="a negative size"),
        pytest.param(b"0x1\r\n", id="a size with a prefix"),
        pytest.param(b"\r\n", id="no size"),
        pytest.param(b"f" * 16 + b"\r\n", id="a size of 64 bits"),
        pytest.param(b"1\r\nab\r\n", id="a chunk longer than its size"),
        pytest.param(b"1;" + LINE + b"\r\na\r\n", id="an extension without end"),
        pytest.param(LINE, id="a size without end"),
    ],
)
def test_bad_chunks_end_the_body_where_they_are(end: bytes) -> None:
    body, state = read(chunked(BODY, end=end), b"never read")
    assert body in (BODY, BODY + b"a")
    assert (state.is_over, state.cut) == (False, Truncated.UNSPECIFIED)


def test_only_trailers_may_be_missing() -> None:
    assert read(chunked(BODY, end=b"0\r\n"))[1].is_whole
    assert read(chunked(BODY, end=b"0\r\nX: 1\r\n"))[1].is_whole
    assert not read(chunked(BODY, end=b"0"))[1].is_whole


def test_bytes_after_the_end_are_noticed() -> None:
    assert read(chunked(BODY) + b"more")[1].has_excess
    assert read(chunked(BODY), b"more")[1].has_excess


@pytest.mark.parametrize("bite", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(chunked(*[b"x"] * 1000), id="tiny chunks"),
        pytest.param(chunked(b"x" * 5000), id="one chunk"),
        pytest.param((b"1;" + b"e" * 100 + b"\r\nx\r\n") * 50, id="mostly extensions"),
    ],
)
def test_framing_counts_against_the_room_wherever_reads_end(sent: bytes, bite: int) -> None:
    room = len(sent) // 2
    parts = [sent[at : at + bite] for at in range(0, len(sent), bite)]
    body, state = read(*parts, room=room)
    assert (body, state.taken) == (read(sent[:room])[0], room)
    assert state.cut is Truncated.LENGTH


def test_trailers_are_bounded_and_take_nothing_from_the_body() -> None:
    endless = b"0\r\n" + b"X-Trailer: 1\r\n" * MAX_TRAILER_BYTES
    for sent, room in (
        (chunked(BODY, end=endless), None),
        (chunked(BODY, end=endless), 100),
        (chunked(BODY, end=b"0\r\n" + LINE), None),
    ):
        body, state = read(sent, b"more", room=room)
        assert body == BODY
        assert (state.is_over, state.has_excess) == (True, True)
        assert state.taken <= len(sent)


def test_chunks_are_counted() -> None:
    body, state = read(chunked(*[b"x"] * (MAX_CHUNKS + 1)))
    assert (len(body), state.cut) == (MAX_CHUNKS, Truncated.LENGTH)


PIECES = st.sampled_from(
    [
        *(b"1\r\na\r\n", b"3;x=y\r\nabc\r\n", b"2\nab\n", b"0\r\n", b"\r\n", b"T: 1\r\n"),
        *(b"1", b"\n", b"x", b"a" * 5, b"1;" + b"e" * 30),
    ]
)


@given(pieces=st.lists(PIECES, max_size=12), cuts=st.lists(st.integers(0, 80)))
def test_chunks_may_arrive_in_any_pieces(pieces: list[bytes], cuts: list[int]) -> None:
    sent = b"".join(pieces)
    bounds = [0, *sorted(min(cut, len(sent)) for cut in cuts), len(sent)]
    parts = [sent[a:b] for a, b in pairwise(bounds) if a < b]
    assert result_of(*parts) == result_of(sent)


def result_of(*parts: bytes) -> tuple[bytes, object, bool, bool]:
    body, state = read(*parts)
    return body, state.cut, state.is_over, state.is_whole

"""A body that comes in chunks (RFC 9112 7.1): read as browsers read it, and bounded.

Rule: pure; bytes in, bytes of the body out. Every byte counts, be it of the body, of a size line,
of an extension or of a trailer, so that framing cannot pass a cap.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from crawler.model.page import Truncated

MAX_LINE_BYTES: Final = 16 * 1024  # of a size line with its extensions: Chrome's kMaxLineBufLen
MAX_TRAILER_BYTES: Final = 16 * 1024  # of all trailers, which nobody reads; guess
MAX_CHUNKS: Final = 1 << 18
"""Guess: 64 MB, our highest cap, in chunks of 512 bytes are half as many. One costs up to 3 us, so
all of them less than a second, whatever their size."""
MAX_DIGITS: Final = 15  # of a size, in hex: 60 bits hold as many

_SIZE: Final = re.compile(rb"[ \t]*0*([0-9A-Fa-f]{1,%d})[ \t]*(?:;.*)?\r?" % MAX_DIGITS, re.S)
_SMALL: Final = re.compile(rb"([0-9A-Fa-f]{1,4})\r?\n")


class _Next(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    NOTHING = auto()


class ChunkedBody:
    """One body. O(1) in memory but for what a call returns; lines may end in LF alone."""

    __slots__ = (
        *("_chunks", "_left", "_line", "_next", "_trailer_bytes"),
        *("_room", "cut", "has_excess", "taken"),
    )

    def __init__(self) -> None:
        self._room: int | None = None  # bytes that may be taken; None: not known yet
        self.taken = 0  # bytes, framing included
        self.cut = Truncated.NO  # why nothing more is read, if that is not the body's own end
        self.has_excess = False  # bytes came after its end
        self._next = _Next.SIZE
        self._chunks = 0
        self._left = 0  # of the chunk that is being read
        self._line = b""  # as far as it came
        self._trailer_bytes = 0

    @property
    def is_over(self) -> bool:
        """Its end came, trailers included."""
        return self._next is _Next.NOTHING and not self.cut

    @property
    def is_whole(self) -> bool:
        """All of the body came: what may be missing is trailers."""
        return self._next is _Next.TRAILER or self.is_over

    def allow(self, room: int) -> None:
        """Take *room* bytes and no more."""
        self._room = room

    def feed(self, data: bytes) -> bytes:
        """Take bytes as they came, and return what is body among them."""
        if self._next is _Next.NOTHING:
            self.has_excess = self.has_excess or bool(data)
            return b""
        is_full = self._room is not None and self.taken + len(data) > self._room
        if is_full:
            data = data[: max(0, (self._room or 0) - self.taken)]
        self.taken += len(data)
        body = self._read(data)
        if is_full and not (self.cut or self.is_over):
            self._end(Truncated.LENGTH)
            self.has_excess = True
        return body

    def _read(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._next is _Next.DATA:
                piece = data[at : at + self._left] if at or self._left < end else data
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._next = _Next.DATA_END
            elif self._next is _Next.NOTHING:
                self.has_excess = True
                break
            else:
                if self._next is _Next.SIZE and not self._line:
                    at = self._read_whole(data, at, pieces)
                if at < end and not self.cut:
                    at = self._read_line(data, at)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_whole(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Take the chunks that are whole, in a loop that does no more: a body may come in chunks
        of one byte. Where the next thing begins."""
        while self._chunks < MAX_CHUNKS and (small := _SMALL.match(data, at)):
            begin = small.end()
            stop = begin + int(small[1], 16)
            ending = data[stop : stop + 2]
            if stop == begin or (ending != b"\r\n" and ending[:1] != b"\n"):
                break
            pieces.append(data[begin:stop])
            at = stop + (2 if ending == b"\r\n" else 1)
            self._chunks += 1
        if self._chunks >= MAX_CHUNKS:
            self._end(Truncated.LENGTH)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        """Where the next thing begins."""
        most = at + MAX_LINE_BYTES - len(self._line)
        newline = data.find(b"\n", at, most)
        if newline < 0:
            self._line += data[at:most]
            if len(self._line) >= MAX_LINE_BYTES:
                self._end(Truncated.UNSPECIFIED)
            return len(data)
        line, self._line = self._line + data[at:newline], b""
        if self._next is _Next.SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                self._end(Truncated.UNSPECIFIED)
            else:
                self._left = int(size[1], 16)
                self._chunks += 1
                self._next = _Next.DATA if self._left else _Next.TRAILER
        elif self._next is _Next.DATA_END:
            if line in (b"", b"\r"):
                self._next = _Next.SIZE
            else:
                self._end(Truncated.UNSPECIFIED)
        else:
            self._trailer_bytes += len(line) + 1
            if line in (b"", b"\r") or self._trailer_bytes > MAX_TRAILER_BYTES:
                self.has_excess = self._trailer_bytes > MAX_TRAILER_BYTES
                self._end(Truncated.NO)
        return newline + 1

    def _end(self, why: Truncated) -> None:
        # A line that is too long among the trailers takes nothing from the body.
        self.cut = Truncated.NO if self.is_whole else why
        self._next = _Next.NOTHING


def one_chunk(body: bytes) -> bytes:
    """*body* as a parser reads it without a doubt; empty: the end."""
    return b"%x\r\n%b\r\n" % (len(body), body)

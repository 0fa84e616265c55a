"""Decode a chunked body (RFC 9112 7.1) as browsers do, within limits.

Rule: no I/O. Every byte counts against the limit, of the body, a size line, an extension or a
trailer, so that framing cannot exceed it.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from crawler.model.page import Truncated

MAX_LINE_BYTES: Final = 16 * 1024  # of a size line with its extensions: Chrome's kMaxLineBufLen
MAX_TRAILER_BYTES: Final = 16 * 1024  # of all trailers, which are not used; guess
MAX_CHUNKS: Final = 1 << 18
"""Guess: 64 MB, our highest cap, in chunks of 512 bytes are half as many. A chunk costs up to 3 us,
so all of them cost less than a second, whatever their size."""
MAX_DIGITS: Final = 15  # of a size, in hex: 60 bits hold as many

_SIZE: Final = re.compile(rb"[ \t]*0*([0-9A-Fa-f]{1,%d})[ \t]*(?:;.*)?\r?" % MAX_DIGITS, re.S)
_SMALL: Final = re.compile(rb"([0-9A-Fa-f]{1,4})\r?\n")


class _Next(Enum):
    SIZE = auto()
    DATA = auto()
    DATA_END = auto()
    TRAILER = auto()
    NOTHING = auto()


# An attribute of an Enum takes 0.1 us, and a chunk would need several.
SIZE, DATA, DATA_END, TRAILER, NOTHING = _Next


class ChunkedBody:
    """The decoder of one body. O(1) memory beside what `feed` returns; lines may end in bare LF."""

    __slots__ = (
        *("_chunks", "_left", "_line", "_next", "_trailer_bytes"),
        *("_room", "cut", "has_excess", "taken"),
    )

    def __init__(self) -> None:
        self._room: int | None = None  # bytes that may be taken; None: not known yet
        self.taken = 0  # bytes, framing included
        self.cut = Truncated.NO  # why reading ended before the end of the body, if it did
        self.has_excess = False  # bytes came after its end
        self._next = SIZE
        self._chunks = 0
        self._left = 0  # of the chunk that is being read
        self._line = b""  # as far as it came
        self._trailer_bytes = 0

    @property
    def is_over(self) -> bool:
        """Whether the end of the body has come, with its trailers."""
        return self._next is NOTHING and not self.cut

    @property
    def is_whole(self) -> bool:
        """Whether all of the body has come; trailers may be missing."""
        return self._next is TRAILER or self.is_over

    def allow(self, room: int) -> None:
        """Limit the bytes to take, framing included, to *room*."""
        self._room = room

    def feed(self, data: bytes) -> bytes:
        """Take bytes as received and return the bytes of the body in them."""
        if self._next is NOTHING:
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
            if self._next is DATA:
                piece = data[at : at + self._left] if at or self._left < end else data
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._next = DATA_END
            elif self._next is NOTHING:
                self.has_excess = True
                break
            else:
                if self._next is SIZE and not self._line:
                    at = self._read_whole(data, at, pieces)
                if at < end and not self.cut:
                    at = self._read_line(data, at)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_whole(self, data: bytes, at: int, pieces: list[bytes]) -> int:
        """Take the whole chunks from *at* on and return where they end. This loop does no more, as
        a body may come in chunks of one byte."""
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
        """Take the line at *at*, as far as it is there, and return where the rest begins."""
        most = at + MAX_LINE_BYTES - len(self._line)
        newline = data.find(b"\n", at, most)
        if newline < 0:
            self._line += data[at:most]
            if len(self._line) >= MAX_LINE_BYTES:
                self.has_excess = True  # the rest of the line is to come
                self._end(Truncated.UNSPECIFIED)
            return len(data)
        line, self._line = self._line + data[at:newline], b""
        if self._next is SIZE:
            size = _SIZE.fullmatch(line)
            if size is None:
                self._end(Truncated.UNSPECIFIED)
            else:
                self._left = int(size[1], 16)
                self._chunks += 1
                self._next = DATA if self._left else TRAILER
        elif self._next is DATA_END:
            if line in (b"", b"\r"):
                self._next = SIZE
            else:
                self._end(Truncated.UNSPECIFIED)
        else:
            self._trailer_bytes += len(line) + 1
            if line in (b"", b"\r") or self._trailer_bytes > MAX_TRAILER_BYTES:
                self.has_excess = self._trailer_bytes > MAX_TRAILER_BYTES
                self._end(Truncated.NO)
        return newline + 1

    def _end(self, why: Truncated) -> None:
        # A trailer line that is too long cuts nothing off the body.
        self.cut = Truncated.NO if self.is_whole else why
        self._next = NOTHING

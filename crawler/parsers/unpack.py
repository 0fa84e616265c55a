"""Bytes that may be packed with gzip, piece by piece.

Rule: never more than a piece in memory, never more than the limit in all: 1 MB of gzip may be
1 GB of zeros.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from typing import Final

MAX_BYTES: Final = 50 * 1024 * 1024  # sitemaps.org: of one sitemap, unpacked
PIECE_BYTES: Final = 64 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"
CUT: Final = "unpacked_cut"
BROKEN: Final = "broken_gzip"

_MAX_MEMBERS: Final = 1000  # guess: a file that was appended to day by day
_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


class Unpacked:
    """The pieces of a body; what went wrong with them is in `notes` when they are through."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.is_packed = body.startswith(GZIP_MAGIC)
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[bytes]:
        left = MAX_BYTES
        for piece in self._members() if self.is_packed else self._plain():
            yield piece[:left]
            left -= len(piece)
            if left < 0:
                self.notes.append(CUT)
                return

    def head(self) -> bytes:
        """Its first piece."""
        piece = next(iter(self), b"")
        self.notes.clear()
        return piece

    def _plain(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), PIECE_BYTES):
            yield bytes(self._body[start : start + PIECE_BYTES])

    def _members(self) -> Iterator[bytes]:
        """A gzip file is one or more members; what follows them is padding."""
        slices = self._plain()  # all at once, what zlib leaves over would be copied each time
        packed = b""
        for _ in range(_MAX_MEMBERS):
            try:
                left = yield from _member(packed, slices)
            except (zlib.error, EOFError):
                break
            packed = left or next(slices, b"")
            if not packed or not GZIP_MAGIC.startswith(packed[: len(GZIP_MAGIC)]):
                return
        self.notes.append(BROKEN)


def _member(packed: bytes, slices: Iterator[bytes]) -> Generator[bytes, None, bytes]:
    """The pieces of one; what is left of the slice that it ends in. Raises zlib.error, EOFError."""
    unpacker = zlib.decompressobj(_WITH_GZIP_HEADER)
    while not unpacker.eof:
        packed = packed or next(slices, b"")
        piece = unpacker.decompress(packed, PIECE_BYTES)
        if piece:
            yield piece
        elif not packed:
            raise EOFError
        packed = unpacker.unconsumed_tail
    return unpacker.unused_data

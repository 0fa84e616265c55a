"""Gzip members one after the other, each inflated piece by piece; or records that are not
compressed.

Rule: bounded memory, whatever a member inflates to. A file is read from its start: a body may
hold anything, also bytes that look like the beginning of a member.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

from crawler.core.errors import CrawlerError

READ_BYTES: Final = 64 * 1024
INFLATE_BYTES: Final = 1024 * 1024  # of a member at once
MAX_HEAD_BYTES: Final = 64 * 1024  # of a record that is not compressed
_PLAIN: Final = b"W"  # of "WARC/1.0"; gzip begins otherwise
_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(rb".*?\r\n\r\n", re.DOTALL).match
_LENGTH: Final = re.compile(rb"(?is).*?\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n").match


class Damaged(CrawlerError):
    """From here on the file cannot be read. Caller: keep what came before."""


class Member:
    """One of them. `end`: where it ends in the file, once all its pieces are taken."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self._rest = rest
        self._read_bytes = read_bytes
        self._inflater = IgzipDecompressor(flag=DECOMP_GZIP)
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """What is left of it. Raises Damaged: it is no gzip, or ends early."""
        inflater = self._inflater
        while not inflater.eof:
            if inflater.needs_input:
                self._rest = self._rest or self._file.read(self._read_bytes)
                if not self._rest:
                    raise Damaged(f"the record at {self.offset} is cut off")
            try:
                piece = inflater.decompress(self._rest, INFLATE_BYTES)
            except IsalError as error:  # type: ignore[misc]  # isal's stub says an instance; it is a class
                raise Damaged(f"the record at {self.offset} is no gzip: {error}") from error
            self._rest = b""
            if piece:
                yield piece

    @property
    def rest(self) -> bytes:
        """What was read of the file beyond its end."""
        return self._inflater.unused_data

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


class PlainMember:
    """A record of a file that is not compressed: its head says how long it is. `end`: as above."""

    def __init__(self, file: BinaryIO, rest: bytes, read_bytes: int) -> None:
        self._file = file
        self.rest = rest
        self._read_bytes = read_bytes
        self._left: int | None = None  # None: its head is not read
        self.offset = file.tell() - len(rest)

    def pieces(self) -> Iterator[bytes]:
        """What is left of it. Raises Damaged: it has no head, or ends early."""
        if self._left is None:
            self._left = self._length()
        while self._left:
            if not self.rest:
                self._fill()
            piece, self.rest = self.rest[: self._left], self.rest[self._left :]
            self._left -= len(piece)
            yield piece

    def _length(self) -> int:
        while not (found := _HEAD(self.rest)) and len(self.rest) <= MAX_HEAD_BYTES:
            self._fill()
        if not found or found.end() > MAX_HEAD_BYTES:
            raise Damaged(f"the record at {self.offset} is no WARC record")
        length = _LENGTH(found[0])
        return found.end() + (int(length[1]) if length else 0) + len(_END)

    def _fill(self) -> None:
        read = self._file.read(self._read_bytes)
        if not read:
            raise Damaged(f"the record at {self.offset} is cut off")
        self.rest += read

    @property
    def end(self) -> int:
        return self._file.tell() - len(self.rest)


def members(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[Member | PlainMember]:
    """From where *file* stands. What a caller leaves of one is passed over. Raises Damaged, and
    OSError as *file* does."""
    rest = file.read(read_bytes)
    kind = PlainMember if rest[:1] == _PLAIN else Member
    while rest:
        member = kind(file, rest, read_bytes)
        yield member
        for _ in member.pieces():
            pass
        rest = member.rest or file.read(read_bytes)

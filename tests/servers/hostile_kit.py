"""What a hostile answer is made of, and what a crawler should make of it.

Rule: an answer is a stream of pieces, made while it is sent, so that an endless one costs the
server nothing. It is true for caps between 1.5 MB and 64 MB and for any time-out.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

import brotli  # type: ignore[import-untyped]  # it ships no types


@dataclass(frozen=True, slots=True)
class Wait:
    """Send nothing for a while."""

    seconds: float


class Reset:
    """End the connection by RST, not by FIN."""


Piece = bytes | Wait | Reset
Pieces = Callable[[], Iterable[Piece]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """The expected result of one fetch, redirects not followed."""

    outcome: str = "page"  # or the error: timeout | connect | tls | protocol
    status: int = 200
    truncated: str = ""  # of the wire: length | time | disconnect | unspecified
    body: bytes | None = None  # once decoded; None: see the sizes
    min_bytes: int = 0
    max_bytes: int | None = None  # None: the cap
    flags: frozenset[str] = field(default_factory=frozenset)  # of decoding


@dataclass(frozen=True, slots=True)
class Hostile:
    """One row: an answer with a name, and its expectation."""

    name: str
    send: Pieces
    expect: Expectation

    @property
    def path(self) -> str:
        return f"/{self.name}"


CRLF: Final = b"\r\n"
HTML: Final = b"<html><head><title>page</title></head><body><p>some text</p></body></html>"
HTML_TYPE: Final = b"Content-Type: text/html; charset=utf-8"
OK: Final = b"HTTP/1.1 200 OK"
LONG_HTML: Final = (
    b"<html><body>" + b"<p>a line of text that goes on</p>\n" * 1000 + b"</body></html>"
)


def head(*lines: bytes, status: bytes = OK) -> bytes:
    return CRLF.join((status, *lines, b"", b""))


def answer(*lines: bytes, body: bytes = HTML, status: bytes = OK, kind: bytes = HTML_TYPE) -> bytes:
    """A whole answer with a true length."""
    length = b"Content-Length: %d" % len(body)
    return head(*((kind,) if kind else ()), length, *lines, status=status) + body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in chunks) + end


def once(*pieces: Piece) -> Pieces:
    """The same pieces each time."""
    return lambda: pieces


def for_ever(start: bytes, piece: bytes, pause_s: float = 0.0) -> Pieces:
    """*start*, and then *piece* until the client has had enough."""

    def pieces() -> Iterator[Piece]:
        yield start
        for each in repeat(piece):
            yield each
            if pause_s:
                yield Wait(pause_s)

    return pieces


def page(**more: object) -> Expectation:
    """The page, whole."""
    return Expectation(**{"body": HTML, **more})  # type: ignore[arg-type]  # names are checked at run time


def error(word: str) -> Expectation:
    return Expectation(outcome=word)


def gzipped(body: bytes) -> bytes:
    return zlib.compress(body, 9, 31)


def gzip_bomb(megabytes: int) -> bytes:
    """1 kB for each megabyte of zeros. (After a full flush deflate remembers nothing, so one
    block can be repeated; the checksum at the end is never reached.)"""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + block * megabytes


def brotli_bomb(gigabytes: int) -> bytes:
    """A dozen bytes for each megabyte of zeros; from the second on all blocks are the same."""
    packer = brotli.Compressor(quality=5, lgwin=20)
    blocks = [packer.process(bytes(1 << 20)) + packer.flush() for _ in range(3)]
    assert blocks[1] == blocks[2], "this encoder's blocks are not all the same"
    bomb: bytes = blocks[0] + blocks[1] * (1024 * gigabytes)
    return bomb


def zstd_bomb(gigabytes: int, window: bytes = b"\x38") -> bytes:
    """Four bytes for each 128 KiB of zeros: blocks that say "this byte so many times"."""
    block_bytes = 1 << 17
    rle_block = (block_bytes << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00" + window + rle_block * (gigabytes * 8192)

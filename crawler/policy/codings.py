"""Content codings undone: gzip, deflate, brotli, zstd.

Rule: pure, and bounded by what comes out: never more than *room* bytes and one, whatever went
in. Damage ends a body where it is; what came before it is kept.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol, cast

import brotli  # type: ignore[import-untyped]  # it ships no types
from isal import isal_zlib

from crawler.core.exchange import Flag

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_CODINGS: Final = 3  # guess: two are seen where a proxy packs what was packed already
MAX_STREAMS: Final = 64  # guess; in a row, as gzip and zstd allow. Each costs a copy of the rest
MAX_WINDOW_LOG: Final = 23  # RFC 9659: zstd may ask for 8 MB on the web, no more
SLICES: Final = 4096  # how finely a damaged body is cut to find where the damage begins
NOT_CODED: Final = frozenset({b"", b"identity", b"none", b"utf-8", b"utf8", b"binary", b"8bit"})
"""What servers write when they mean nothing by it, or take it for the charset."""

_NOT_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a]")
_LOOKED_AT_BYTES: Final = 512
_DEFLATE: Final = 8  # the only method of zlib and gzip
_GZIP_BITS, _ZLIB_BITS, _RAW_BITS = 31, 15, -15  # zlib's way to name the three wrappings


@dataclass(frozen=True, slots=True)
class Decoded:
    """A body without its codings, as far as that went."""

    body: bytes
    flags: frozenset[Flag] = frozenset()


class Stream(Protocol):
    """One coded stream."""

    def feed(self, data: bytes, room: int) -> bytes:
        """About *room* bytes (at least 1) of what *data* and all before it hold. Raises one of
        DAMAGE."""

    @property
    def rest(self) -> bytes | None:
        """What follows the end. None: the end has not come."""


def codings_of(values: Iterable[bytes]) -> list[bytes]:
    """The codings in all Content-Encoding lines, in the order they were applied."""
    names = (name.strip().lower() for value in values for name in value.split(b","))
    return [name for name in names if name not in NOT_CODED]


def decoded(body: bytes, codings: list[bytes], room: int) -> Decoded:
    """Undo *codings*, the last one first. With one we do not know, or too many: none of them."""
    if len(codings) > MAX_CODINGS or not all(name in STREAMS for name in codings):
        return Decoded(body, frozenset({Flag.UNDECODED}))
    flags: frozenset[Flag] = frozenset()
    for name in reversed(codings):
        step = _undone(body, STREAMS[name], room) if body else Decoded(b"")
        body, flags = step.body, flags | step.flags
    return Decoded(body, flags)


def _undone(body: bytes, opened: Callable[[bytes], Stream], room: int) -> Decoded:
    try:
        made, flaw = _at_once(body, opened, room + 1)
    except DAMAGE:
        made, flaw = _until_damage(body, opened, room + 1), Flag.DECODED_BROKEN
    if len(made) > room:
        return Decoded(made[:room], frozenset({Flag.DECODED_LENGTH}))
    if flaw is None:
        return Decoded(made)
    if not made and not _NOT_TEXT.search(body[:_LOOKED_AT_BYTES]):
        # It never was coded: some servers pack, then unpack, and still say so.
        made, flaw = body[:room], Flag.DECODED_BROKEN
    return Decoded(made, frozenset({flaw}))


def _at_once(
    body: bytes, opened: Callable[[bytes], Stream], room: int
) -> tuple[bytes, Flag | None]:
    """All of it, and what is wrong with it. The usual case: one call, no copy."""
    stream = opened(body)
    made = stream.feed(body, room)
    for _ in range(MAX_STREAMS):
        rest = stream.rest
        # What follows and is no stream of the same kind is junk, which browsers ignore.
        if not rest or rest[:3] != body[:3] or len(made) >= room:
            return made, Flag.DECODED_CUT if rest is None else None
        stream = opened(rest)
        made += stream.feed(rest, room - len(made))
    return made, Flag.DECODED_BROKEN


def _until_damage(body: bytes, opened: Callable[[bytes], Stream], room: int) -> bytes:
    """What a decoder raises takes along what it has just made; in small bites that is little."""
    stream = opened(body)
    made = bytearray()
    bite = max(16, len(body) // SLICES)
    for start in range(0, len(body), bite):
        try:
            made += stream.feed(body[start : start + bite], room - len(made))
        except DAMAGE:
            break
        if len(made) >= room or stream.rest is not None:
            break
    return bytes(made)


class _Inflate:
    def __init__(self, window_bits: int) -> None:
        self._stream = isal_zlib.decompressobj(window_bits)

    def feed(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    @property
    def rest(self) -> bytes | None:
        return self._stream.unused_data if self._stream.eof else None


class _Brotli:
    def __init__(self) -> None:
        self._stream = brotli.Decompressor()

    def feed(self, data: bytes, room: int) -> bytes:
        made: bytes = self._stream.process(data, output_buffer_limit=room)
        return made

    @property
    def rest(self) -> bytes | None:
        return b"" if self._stream.is_finished() else None


class _Zstd:
    def __init__(self) -> None:
        options = {int(zstd.DecompressionParameter.window_log_max): MAX_WINDOW_LOG}
        self._stream = zstd.ZstdDecompressor(options=options)

    def feed(self, data: bytes, room: int) -> bytes:
        return self._stream.decompress(data, room)

    @property
    def rest(self) -> bytes | None:
        return self._stream.unused_data if self._stream.eof else None


def _deflate(body: bytes) -> Stream:
    """With zlib's two bytes before it, as the standard says, or without, as Microsoft's did."""
    has_method = body[0] & 0x0F == _DEFLATE
    is_zlib = has_method and int.from_bytes(body[:2], "big") % 31 == 0  # RFC 1950 2.2
    return _Inflate(_ZLIB_BITS if is_zlib else _RAW_BITS)


STREAMS: Final[dict[bytes, Callable[[bytes], Stream]]] = {
    b"gzip": lambda body: _Inflate(_GZIP_BITS),
    b"x-gzip": lambda body: _Inflate(_GZIP_BITS),
    b"deflate": _deflate,
    b"br": lambda body: _Brotli(),
    b"zstd": lambda body: _Zstd(),
}
DAMAGE: Final[tuple[type[Exception], ...]] = (
    cast("type[Exception]", isal_zlib.error),  # its stubs call it an instance
    brotli.error,
    zstd.ZstdError,
    EOFError,
    ValueError,
)

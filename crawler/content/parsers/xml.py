"""Parses XML of an unspecific type: a sitemap, a feed, a page, or text. And what is packed: a
sitemap, a feed, or a list of URLs.

Rule: the first element decides which of these it is.
"""

from __future__ import annotations

import bz2
import lzma
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from html import unescape
from itertools import chain
from typing import Final, Protocol

from msgspec.structs import replace

from crawler.content.parsers.feed import FeedParser
from crawler.content.parsers.html import HtmlParser
from crawler.content.parsers.plain import PlainParser, is_sitemap, urls
from crawler.content.parsers.sitemap import Sitemap
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Parser,
    Source,
    Unreadable,
)
from crawler.page.encodings import read_text
from crawler.page.media_type import (
    LONG_HEAD_BYTES,
    PACKED_TYPES,
    TEXT,
    XML_TYPES,
    Markup,
    markup,
    type_by_content,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# Limits of decompression: 1 MB of gzip may be 1 GB of zeros.
MAX_BYTES: Final = 50 * 1024 * 1024  # sitemaps.org: of one sitemap, decompressed
PIECE_BYTES: Final = 64 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"
CUT: Final = "unpacked_cut"
BROKEN: Final = "broken_gzip"

_MAX_MEMBERS: Final = 1000  # guess: a file to which a member is appended each day
_MAX_LAYERS: Final = 3  # guess: a packed file that is packed once more is a mistake that occurs
_MAX_WINDOW_BYTES: Final = 128 * 1024 * 1024  # xz may ask for 4 GB; zstd's own limit is as this
_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


class _Unpacker(Protocol):
    """As those of `bz2`, `lzma` and `zstd`. All of them raise one of _DAMAGE."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes: ...


class _Gunzip:
    """Implements _Unpacker: `zlib` gives what it has not unpacked yet back."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_WITH_GZIP_HEADER)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


_DAMAGE: Final = (zlib.error, lzma.LZMAError, zstd.ZstdError, OSError, ValueError, EOFError)
_PACKINGS: Final[tuple[tuple[bytes, Callable[[], _Unpacker]], ...]] = (
    (GZIP_MAGIC, _Gunzip),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\x00", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_WINDOW_BYTES)),
    (b"\x28\xb5\x2f\xfd", zstd.ZstdDecompressor),
)
_LONGEST_MAGIC: Final = max(len(magic) for magic, _ in _PACKINGS)


class UnpackedBody:
    """Iterates over the pieces of a body, decompressed if it is packed, perhaps more than once.
    Afterwards `notes` holds what was cut or broken. Only a piece is in memory at a time."""

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.notes: list[str] = []

    def __iter__(self) -> Iterator[bytes]:
        pieces = self._plain()
        for _ in range(_MAX_LAYERS):
            pieces = self._layer(pieces)
        return self._limited(pieces)

    def read(self, most_bytes: int) -> bytes:
        """Return the first bytes: at least *most_bytes*, if there are, and at most a piece more."""
        pieces, size = [], 0
        for piece in self:
            pieces.append(piece)
            size += len(piece)
            if size >= most_bytes:
                break
        return b"".join(pieces)

    def head(self) -> bytes:
        """Return the first piece; where it ends before the first element, a longer beginning."""
        head = self.read(PIECE_BYTES)
        if len(head) >= PIECE_BYTES and not markup(head).element:
            head = self.read(LONG_HEAD_BYTES)
        self.notes.clear()
        return head

    def _plain(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), PIECE_BYTES):
            yield bytes(self._body[start : start + PIECE_BYTES])

    def _layer(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield *pieces* without the packing that they begin with, if any."""
        begin = b""
        while len(begin) < _LONGEST_MAGIC and (piece := next(pieces, b"")):
            begin += piece
        pieces = chain([begin] if begin else [], pieces)
        for magic, unpacker in _PACKINGS:
            if begin.startswith(magic):
                yield from self._limited(self._members(magic, unpacker, pieces))
                return
        yield from pieces

    def _limited(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        left = MAX_BYTES
        for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left < 0:
                self._note(CUT)
                return

    def _members(
        self, magic: bytes, unpacker: Callable[[], _Unpacker], slices: Iterator[bytes]
    ) -> Iterator[bytes]:
        """Yield the pieces of all members of one packing. What follows them is padding."""
        packed = b""  # zlib would copy the whole rest of a body for each member
        for _ in range(_MAX_MEMBERS):
            try:
                left = yield from _member(unpacker(), packed, slices)
            except _DAMAGE:
                break
            packed = left or next(slices, b"")
            if not packed or not magic.startswith(packed[: len(magic)]):
                return
        self._note(BROKEN)

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


def _member(
    unpacker: _Unpacker, packed: bytes, slices: Iterator[bytes]
) -> Generator[bytes, None, bytes]:
    """Yield the pieces of one member, and return the rest of the slice in which it ends. Raises
    one of _DAMAGE."""
    while not unpacker.eof:
        is_hungry = unpacker.needs_input
        if is_hungry:
            data, packed = packed or next(slices, b""), b""
        piece = unpacker.decompress(data if is_hungry else b"", PIECE_BYTES)
        if piece:
            yield piece
        elif is_hungry and not data and not unpacker.eof:
            raise EOFError
    return unpacker.unused_data


_SITEMAPS: Final = frozenset({"urlset", "sitemapindex"})
_FEEDS: Final = frozenset({"rss", "feed"})
_TAGS: Final = re.compile(r"<[^<>]*>")


class XmlParser:
    """Implements crawler.model.page.Parser."""

    name: Final = "xml"
    types: Final = XML_TYPES
    inline_max_bytes: Final = 64 * 1024  # a sitemap of 470 URLs: 5 ms

    def parse(self, source: Source) -> Parsed:
        seen = markup(source.body)
        if seen.element in _SITEMAPS:
            return _sitemap(UnpackedBody(source.body))
        return _other(seen, source)


class PackedParser:
    """Implements crawler.model.page.Parser. It never runs inline, as a feed does not."""

    name: Final = "packed"
    types: Final = PACKED_TYPES
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        unpacked = UnpackedBody(source.body)
        head = unpacked.head()
        if markup(head).element in _SITEMAPS:
            return _sitemap(unpacked)
        kind = type_by_content(head, "")
        if kind in FeedParser.types:
            parser: Parser = FeedParser()
        elif kind == TEXT and is_sitemap(source):
            parser = PlainParser()
        else:
            raise Unreadable("packed, and neither a sitemap nor a feed within")
        within = replace(source, body=unpacked.read(MAX_BYTES), content_type="")
        parsed = parser.parse(within)
        return replace(parsed, notes=(*parsed.notes, *unpacked.notes))


def _sitemap(unpacked: UnpackedBody) -> Parsed:
    sitemap = Sitemap()
    sitemap.read(unpacked)
    return Parsed(parser="sitemap", links=sitemap.links, notes=(*sitemap.notes, *unpacked.notes))


def _other(seen: Markup, source: Source) -> Parsed:
    if seen.element in _FEEDS:
        return FeedParser().parse(source)
    if seen.element == "html" or seen.doctype == "html":
        return HtmlParser().parse(source)
    text, charset = read_text(source.body, source.content_type)
    words = unescape(_TAGS.sub(" ", text))
    return Parsed(
        parser="xml",
        text=" ".join(words.split()),
        links=tuple(Link(url, LinkKind.TEXT) for url in urls(text)),
        charset=charset,
    )

"""Parses XML of an unspecific type: a sitemap, a feed, a page, or text. And what is packed: a
sitemap, a feed, or a list of URLs.

Rule: the first element decides which of these it is.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Generator, Iterator
from html import unescape
from typing import Final

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
    GZIP_TYPES,
    LONG_HEAD_BYTES,
    TEXT,
    XML_TYPES,
    Markup,
    markup,
    type_by_content,
)

# Limits of decompression: 1 MB of gzip may be 1 GB of zeros.
MAX_BYTES: Final = 50 * 1024 * 1024  # sitemaps.org: of one sitemap, decompressed
PIECE_BYTES: Final = 64 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"
CUT: Final = "unpacked_cut"
BROKEN: Final = "broken_gzip"

_MAX_MEMBERS: Final = 1000  # guess: a file to which a member is appended each day
_WITH_GZIP_HEADER: Final = 16 + zlib.MAX_WBITS


class UnpackedBody:
    """Iterates over the pieces of a body, decompressed if it is gzip. Afterwards `notes` holds what
    was cut or broken. Only one piece is in memory at a time."""

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

    def _members(self) -> Iterator[bytes]:
        """Yield the pieces of all gzip members. What follows them is padding."""
        slices = self._plain()  # of the whole body, zlib would copy the rest for each member
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
    """Yield the pieces of one member, and return the rest of the slice in which it ends. Raises
    zlib.error, EOFError."""
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
    types: Final = GZIP_TYPES
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

"""Parses sitemaps and sitemap indexes (sitemaps.org): URLs with date and priority.

Rule: they are read piece by piece, without a tree. Declared entities end the reading, because no
sitemap needs them and XML bombs are made of them. Behind broken XML, entries are found by pattern.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator
from html import unescape
from itertools import chain
from typing import Final
from xml.parsers import expat

from crawler.content.parsers.dates import epoch
from crawler.content.parsers.loading import (
    LINKS_CUT,
    MAX_LINKS,
    MAX_WORD_CHARS,
)
from crawler.model.page import Link, LinkKind
from crawler.page.encodings import (
    UTF_8,
    declared_encoding,
    detect_unicode,
)

# For broken XML, such as a bare & in a URL or letters of another encoding. An incomplete entry is
# skipped.
_ENTRY_END: Final = re.compile(rb"</(?:\w+:)?(url|sitemap)\s*>", re.IGNORECASE)
_FIELD: Final = re.compile(
    rb"<(?:\w+:)?(loc|lastmod|priority)\s*>\s*(?:<!\[CDATA\[)?([^<>\]]*)", re.IGNORECASE
)
_LONGEST_BYTES: Final = 64 * 1024  # guess: an entry with a thousand images


def loose_entries(pieces: Iterable[bytes]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the fields of each complete entry in broken XML, in linear time."""
    rest = b""
    for piece in pieces:
        *entries, rest = _ENTRY_END.split(rest + piece)
        rest = rest[-_LONGEST_BYTES:]
        for held, name in zip(entries[::2], entries[1::2], strict=True):
            yield name.decode().lower(), _fields(held)


def _fields(held: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(held):
        fields.setdefault(name.decode().lower(), unescape(value.decode("utf-8", "replace")).strip())
    return fields


BROKEN_XML: Final = "broken_xml"

_ENTRIES: Final = {"url": LinkKind.LISTED, "sitemap": LinkKind.SITEMAP}
_ENTRY_DEPTH: Final = 2
_FIELDS: Final = frozenset({"loc", "lastmod", "priority"})
# Deeper than any extension of the format. Expat keeps each open element in memory.
_MAX_DEPTH: Final = 50
_NO_DAY: Final = re.compile(r"\d{4}(-\d\d)?")


class _EnoughLinks(Exception):
    """The sitemap has MAX_LINKS links."""


class _Bomb(Exception):
    """The sitemap declares entities or nests too deep."""


class Sitemap:
    """The links and notes of one sitemap, filled by one call of `read`."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self._listed: dict[str, Link] = {}
        self._alternates: dict[str, None] = {}
        self._depth = 0
        self._entry: dict[str, str] | None = None  # the fields of the open entry
        self._words: list[str] | None = None  # of the open field
        self._xml = expat.ParserCreate(UTF_8)  # whatever the XML declares: see as_utf_8
        self._xml.buffer_text = True
        self._xml.StartElementHandler = self._begin
        self._xml.EndElementHandler = self._end
        self._xml.EntityDeclHandler = _refuse

    @property
    def links(self) -> tuple[Link, ...]:
        """The listed pages, then the alternates that are not listed themselves."""
        others = self._alternates.keys() - self._listed.keys()
        alternates = (
            Link(url, LinkKind.ALTERNATE, "alternate") for url in self._alternates if url in others
        )
        return (*self._listed.values(), *alternates)[:MAX_LINKS]

    def read(self, pieces: Iterable[bytes]) -> None:
        try:
            self._read(as_utf_8(iter(pieces)))
        except _EnoughLinks:
            self.notes.append(LINKS_CUT)
        except _Bomb:
            self.notes.append(BROKEN_XML)

    def _read(self, pieces: Iterable[bytes]) -> None:
        before = b""
        for piece in pieces:
            try:
                self._xml.Parse(piece)
            except expat.ExpatError:
                self.notes.append(BROKEN_XML)
                # The previous piece is read again, because an entry may begin in it.
                for name, fields in loose_entries(chain((before, piece), pieces)):
                    self._take(name, fields)
                return
            before = piece
        try:
            self._xml.Parse(b"", True)
        except expat.ExpatError:
            self.notes.append(BROKEN_XML)

    def _begin(self, written: str, given: dict[str, str]) -> None:
        self._depth += 1
        name = _local_name(written)
        if self._depth == _ENTRY_DEPTH and name in _ENTRIES:
            self._entry = {}
        elif self._entry is not None and self._depth == _ENTRY_DEPTH + 1:
            self._begin_field(name, given)
        elif self._depth > _MAX_DEPTH:
            raise _Bomb

    def _begin_field(self, name: str, given: dict[str, str]) -> None:
        if name in _FIELDS:
            self._words = []
            self._xml.CharacterDataHandler = self._words.append
        elif name == "link" and given.get("rel", "alternate") == "alternate":
            self._add_alternate(given.get("href", "").strip())

    def _end(self, written: str) -> None:
        if self._entry is not None and self._depth == _ENTRY_DEPTH + 1 and self._words is not None:
            self._entry.setdefault(_local_name(written), "".join(self._words).strip())
            self._words = None
            self._xml.CharacterDataHandler = None
        elif self._entry is not None and self._depth == _ENTRY_DEPTH:
            self._take(_local_name(written), self._entry)
            self._entry = None
        self._depth -= 1

    def _take(self, name: str, fields: dict[str, str]) -> None:
        url = fields.get("loc", "")
        if not url or len(url) > MAX_WORD_CHARS or url in self._listed:
            return
        if len(self._listed) == MAX_LINKS:
            raise _EnoughLinks
        self._listed[url] = Link(
            url,
            _ENTRIES[name],
            modified=_date(fields.get("lastmod", "")),
            priority=_priority(fields.get("priority", "")),
        )

    def _add_alternate(self, url: str) -> None:
        if 0 < len(url) <= MAX_WORD_CHARS and len(self._alternates) < MAX_LINKS:
            self._alternates[url] = None


def as_utf_8(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield *pieces* in UTF-8. Expat reads no multi-byte encoding but UTF-16, and at an unknown
    encoding it raises whatever Python's codec raises."""
    first = next(pieces, b"")
    mark, bom = detect_unicode(first)
    encoding = mark if mark and not bom else declared_encoding(first)
    if encoding == UTF_8:
        yield from chain((first,), pieces)
        return
    decoder = getincrementaldecoder(encoding)("replace")
    for piece in chain((first,), pieces):
        yield decoder.decode(piece).encode()


def _local_name(written: str) -> str:
    """Return a name without its prefix; namespaces are ignored."""
    return written.rpartition(":")[2].lower()


def _date(written: str) -> float | None:
    """Return the time of a W3C Datetime, in which the day and the month are optional."""
    if _NO_DAY.fullmatch(written):
        written += "-01" if "-" in written else "-01-01"
    return epoch(written)


def _priority(written: str) -> float | None:
    try:
        given = float(written)
    except ValueError:
        return None
    return given if 0 <= given <= 1 else None


def _refuse(*_entity: object) -> None:
    raise _Bomb

"""Parses RSS and Atom feeds with feedparser: the feed, its entries, and their links.

Rule: feedparser gets bytes only, because it may open a string as a file or URL, and runs only in a
separate process, because hostile input makes it slow. Unknown encodings and invalid character
numbers, at which it raises, are removed before; the types of its results are checked, because an
element of a feed may have the name of one of its own fields.
"""

from __future__ import annotations

import re
import sys
from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from time import struct_time
from typing import Any, Final
from xml.sax import SAXException

from crawler.content.parsers.html import ScannedPage
from crawler.content.parsers.loading import LINKS_CUT, MAX_LINKS
from crawler.content.parsers.sitemap import BROKEN_XML
from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
    Source,
    Unreadable,
)
from crawler.page.encodings import read_text

_MARKED_UP: Final = frozenset({"text/html", "application/xhtml+xml"})
# The relations of a feed's own links: its page, and its further pages (RFC 5005).
_RELS: Final = frozenset({"alternate", "next", "prev-archive"})

_DECLARATION: Final = re.compile(r"\s*<\?xml\s[^>]*>")
_NUMBER: Final = re.compile(r"&#(?:[xX]0*([\da-fA-F]+)|0*(\d+));?", re.ASCII)
_LONGEST_NUMBER: Final = 7  # 1114111
_CHARACTER: Final = re.compile("[\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2

Read = Mapping[str, Any]  # feedparser's dictionaries


class FeedParser:
    """Implements crawler.model.page.Parser."""

    name: Final = "feed"
    types: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type)
        read = _read(text, source.url)
        feed: Read = read["feed"]
        entries: list[Read] = read["entries"]
        if not entries and not read.get("version"):
            raise Unreadable("no feed")
        links = [*_links_of_feed(feed), *_links_of_entries(entries)]
        return Parsed(
            parser=self.name,
            title=_text(feed.get("title_detail")),
            text="\n".join(_texts(feed, entries)),
            links=tuple(links[:MAX_LINKS]),
            language=_word(feed, "language"),
            published=_time(feed, "published_parsed"),
            modified=_time(feed, "updated_parsed"),
            charset=charset,
            notes=tuple(_notes(read, links)),
        )


def _read(text: str, url: str) -> Read:
    # The import takes 80 ms, and only the separate process needs it.
    try:
        import feedparser  # type: ignore[import-untyped]  # noqa: PLC0415  # see above; untyped
    except ImportError as missing:
        raise Unreadable("feedparser is not installed") from missing

    declaration = _DECLARATION.match(text)
    body = _NUMBER.sub(_character, text[declaration.end() :] if declaration else text).encode()
    try:
        read: Read = feedparser.parse(
            BytesIO(body),
            response_headers={"content-location": url, "content-type": "text/xml; charset=utf-8"},
            resolve_relative_uris=False,  # in HTML; feedparser still resolves those of links
            sanitize_html=False,  # we only take the text of the HTML
        )
    except MemoryError:
        raise
    except Exception as error:  # for example at a namespace with a space in it
        raise Unreadable(f"feedparser: {type(error).__name__}: {error}") from error
    return read


def _character(number: re.Match[str]) -> str:
    """Return U+FFFD for a reference to no character, as HTML does: most often one half of a
    surrogate pair that stands for an emoji."""
    hexadecimal, decimal = number.groups()
    digits = hexadecimal or decimal
    if len(digits) <= _LONGEST_NUMBER:
        code = int(digits, 16 if hexadecimal else 10)
        if code <= sys.maxunicode and _CHARACTER.match(chr(code)):
            return number[0]
    return "\ufffd"


def _all(read: Read, key: str) -> Iterator[Read]:
    found = read.get(key)
    if isinstance(found, list):
        yield from (one for one in found if isinstance(one, Mapping))


def _word(read: Read, key: str) -> str:
    found = read.get(key)
    return found if isinstance(found, str) else ""


def _links_of_feed(feed: Read) -> Iterator[Link]:
    for link in _all(feed, "links"):
        if link.get("rel") in _RELS and (url := _word(link, "href")):
            yield Link(url, LinkKind.ALTERNATE, link["rel"])


def _links_of_entries(entries: Iterable[Read]) -> Iterator[Link]:
    for entry in entries:
        if url := _word(entry, "link"):
            yield Link(url, LinkKind.ENTRY, modified=_modified(entry))
        for link in _all(entry, "links"):
            if link.get("rel") == "enclosure" and (url := _word(link, "href")):
                yield Link(url, LinkKind.MEDIA, "enclosure")


def _modified(entry: Read) -> float | None:
    updated = _time(entry, "updated_parsed")
    return _time(entry, "published_parsed") if updated is None else updated


def _texts(feed: Read, entries: Iterable[Read]) -> Iterator[str]:
    yield from filter(None, (_text(feed.get("title_detail")), _text(feed.get("subtitle_detail"))))
    for entry in entries:
        yield from filter(None, (_text(entry.get("title_detail")), _text(_body(entry))))


def _body(entry: Read) -> Read | None:
    """Return the content of *entry* where the feed has it, else its summary."""
    return next(_all(entry, "content"), None) or entry.get("summary_detail")


def _text(detail: object) -> str:
    if not isinstance(detail, Mapping):
        return ""
    value = _word(detail, "value")
    if detail.get("type") in _MARKED_UP:
        return ScannedPage(value).whole_text()
    return " ".join(value.split())


def _time(read: Read, key: str) -> float | None:
    """Return one of feedparser's times, which are UTC. `get` is not used, because it returns
    another time in place of a missing one."""
    parsed = read[key] if key in read else None  # noqa: SIM401  # see above
    try:
        return float(timegm(parsed)) if isinstance(parsed, struct_time) else None
    except (ValueError, OverflowError):
        return None


def _notes(read: Read, links: list[Link]) -> Iterator[str]:
    if isinstance(read.get("bozo_exception"), SAXException):
        yield BROKEN_XML
    if len(links) > MAX_LINKS:
        yield LINKS_CUT

"""RSS of every version and Atom: the feed, its entries, and the pages they are about.

Rule: feedparser reads it, from bytes and nothing else (told a string, it may open a file or a
URL). It is slow on hostile input, and so always in a process apart.
"""

from __future__ import annotations

from calendar import timegm
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any, Final
from xml.sax import SAXException

from crawler.core.parsed import Link, LinkKind, Parsed, Source, Unreadable
from crawler.parsers.bounds import LINKS_CUT, MAX_LINKS
from crawler.parsers.html_reader import Reader
from crawler.parsers.html_text import page_text
from crawler.parsers.sitemap import BROKEN_XML

_MARKED_UP: Final = frozenset({"text/html", "application/xhtml+xml"})
# Of the feed itself: its page, and its further pages (RFC 5005).
_RELS: Final = frozenset({"alternate", "next", "prev-archive"})

Read = Mapping[str, Any]  # feedparser's dictionaries


class FeedParser:
    """Implements core.parsed.Parser."""

    name: Final = "feed"
    types: Final = frozenset({"application/rss+xml", "application/atom+xml", "application/rdf+xml"})
    inline_max_bytes: Final = 0

    def parse(self, source: Source) -> Parsed:
        read = _read(source)
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
            language=feed.get("language", ""),
            published=_time(feed, "published_parsed"),
            modified=_time(feed, "updated_parsed"),
            charset=read.get("encoding", ""),
            notes=tuple(_notes(read, links)),
        )


def _read(source: Source) -> Read:
    # 80 ms, and only the process apart needs it.
    import feedparser  # type: ignore[import-untyped]  # noqa: PLC0415  # see above; untyped

    read: Read = feedparser.parse(
        BytesIO(source.body),
        response_headers={"content-location": source.url, "content-type": source.content_type},
        resolve_relative_uris=False,  # those in its HTML; of links, it does
        sanitize_html=False,  # of the HTML we take the text
    )
    return read


def _links_of_feed(feed: Read) -> Iterator[Link]:
    for link in feed.get("links", ()):
        if link.get("rel") in _RELS and link.get("href"):
            yield Link(link["href"], LinkKind.ALTERNATE, link["rel"])


def _links_of_entries(entries: Iterable[Read]) -> Iterator[Link]:
    for entry in entries:
        if entry.get("link"):
            yield Link(entry["link"], LinkKind.ENTRY, modified=_modified(entry))
        for enclosure in entry.get("enclosures", ()):
            if enclosure.get("href"):
                yield Link(enclosure["href"], LinkKind.MEDIA, "enclosure")


def _modified(entry: Read) -> float | None:
    updated = _time(entry, "updated_parsed")
    return _time(entry, "published_parsed") if updated is None else updated


def _texts(feed: Read, entries: Iterable[Read]) -> Iterator[str]:
    yield from filter(None, (_text(feed.get("title_detail")), _text(feed.get("subtitle_detail"))))
    for entry in entries:
        yield from filter(None, (_text(entry.get("title_detail")), _text(_body(entry))))


def _body(entry: Read) -> Read | None:
    """All of it where the feed has it, or else what it says of it."""
    contents: list[Read] = entry.get("content", [])
    return contents[0] if contents else entry.get("summary_detail")


def _text(detail: Read | None) -> str:
    if not detail:
        return ""
    value: str = detail.get("value", "")
    if detail.get("type") in _MARKED_UP:
        return page_text(Reader(value).parts, ())
    return " ".join(value.split())


def _time(read: Read, key: str) -> float | None:
    """feedparser's nine numbers are UTC. Asked for one that it has not, it gives another."""
    parsed = read[key] if key in read else None  # noqa: SIM401  # for that reason
    try:
        return float(timegm(parsed)) if parsed else None
    except (ValueError, OverflowError):
        return None


def _notes(read: Read, links: list[Link]) -> Iterator[str]:
    if isinstance(read.get("bozo_exception"), SAXException):
        yield BROKEN_XML
    if len(links) > MAX_LINKS:
        yield LINKS_CUT

"""XML of no nearer type: a sitemap, packed or not, or a feed, or a page, or just text.

Rule: its first element decides; who declares XML has said nothing yet.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Final

from crawler.core.parsed import Link, LinkKind, Parsed, Source, Unreadable
from crawler.parsers.feed import FeedParser
from crawler.parsers.html import HtmlParser
from crawler.parsers.plain import urls
from crawler.parsers.sitemap import Sitemap
from crawler.parsers.unpack import Unpacked
from crawler.policy.charset import read_text
from crawler.policy.markup import Markup, markup

_SITEMAPS: Final = frozenset({"urlset", "sitemapindex"})
_FEEDS: Final = frozenset({"rss", "feed"})
_TAGS: Final = re.compile(r"<[^<>]*>")


class XmlParser:
    """Implements core.parsed.Parser."""

    name: Final = "xml"
    types: Final = frozenset(
        {"application/xml", "text/xml", "application/gzip", "application/x-gzip"}
    )
    inline_max_bytes: Final = 64 * 1024  # a sitemap of 470 URLs: 5 ms

    def parse(self, source: Source) -> Parsed:
        unpacked = Unpacked(source.body)
        seen = markup(unpacked.head())
        if seen.element in _SITEMAPS:
            return _sitemap(unpacked)
        if unpacked.is_packed:
            raise Unreadable("packed, and no sitemap within")
        return _other(seen, source)


def _sitemap(unpacked: Unpacked) -> Parsed:
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

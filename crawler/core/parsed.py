"""What an answer says, whatever its type: the result of a parser, and what a parser is given.

Rule: values only, and such as msgpack can carry: a parser may work in a process apart.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec

from crawler.core.errors import CrawlerError


class LinkKind(StrEnum):
    """Where a link stands. The words are those of CRAWLER_FOLLOW_KINDS."""

    A = "a"
    AREA = "area"
    FRAME = "frame"
    IFRAME = "iframe"
    CANONICAL = "canonical"  # rel=canonical, of the page or of a Link header
    ALTERNATE = "alternate"  # rel=alternate: other languages, feeds
    REFRESH = "refresh"  # <meta http-equiv=refresh>
    MEDIA = "media"  # img, srcset, video, audio, source, embed, object
    LISTED = "listed"  # a page that a sitemap lists
    SITEMAP = "sitemap"  # a sitemap that a sitemap index lists
    ENTRY = "entry"  # the page that an entry of a feed is about
    TEXT = "text"  # a URL written out in text


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A link as written; relative to the base of its page."""

    url: str
    kind: LinkKind = LinkKind.A
    rel: str = ""  # its rel attribute in lower case, words with one space between
    modified: float | None = None  # epoch seconds: a sitemap's lastmod, an entry's date
    priority: float | None = None  # a sitemap's, from 0 to 1


class Source(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a parser is given. Arrow: page -> parser."""

    url: str
    content_type: str  # the header as it came; empty: none
    body: bytes  # decoded (gzip and the like of the transfer taken off), cut at the cap
    headers: tuple[tuple[bytes, bytes], ...] = ()  # as received, in their order


class Parsed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a page says. Arrow: parser -> page."""

    parser: str = ""  # the parser's own name: html, sitemap, feed, pdf, text
    title: str = ""
    text: str = ""  # what a reader came for; navigation, scripts and styles left out
    links: tuple[Link, ...] = ()  # all of them, also those that are not to be followed
    base: str = ""  # <base href>, as written; empty: the page's own URL
    canonical: str = ""  # as written
    language: str = ""  # as declared: de, en-GB
    robots: frozenset[str] = frozenset()  # words for all crawlers: noindex, nofollow
    published: float | None = None  # epoch seconds, where the page says so
    modified: float | None = None
    charset: str = ""  # the encoding the text was read with, by its WHATWG name
    notes: tuple[str, ...] = ()  # what was left out: links_cut, pages_cut, broken_xml


class Unreadable(CrawlerError):
    """The content is not what its type says, or more than a parser may take.
    Caller: store it, it has no text and no links."""


class Parser(Protocol):
    """A plug-in for some content types (docs/parsers.md). Made once a crawl, without arguments."""

    @property
    def name(self) -> str:
        """One word, for counters and columns."""

    @property
    def types(self) -> frozenset[str]:
        """Media types it takes, in lower case; `text/*` takes what no other parser does."""

    @property
    def inline_max_bytes(self) -> int:
        """A longer body is parsed in a process apart, which is killed if it takes too long or too
        much memory. 0: always. A parser for that is named by its module and class."""

    def parse(self, source: Source) -> Parsed:
        """Raises Unreadable."""

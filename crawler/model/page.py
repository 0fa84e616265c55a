"""One request and its answer, as they crossed the wire. Arrow: fetch -> content.

Rule: bytes as sent, never as understood: what an archive needs is here and in no other place.
A download handler writes it onto the flight of its lease (crawler.crawl.in_flight).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from crawler.model.choices import Tls
from crawler.model.types import HTTP_OK, Claim, CrawlerError

NO_LIMIT: Final = 1 << 40
STOPPED: Final = "download_stopped"  # Scrapy's flag for what a user's component ended
_LINE_END: Final = re.compile(rb"\r?\n")


class Truncated(StrEnum):
    """Why a body is not whole, in the words of WARC-Truncated."""

    NO = ""
    LENGTH = "length"  # our cap
    TIME = "time"  # our time-out
    DISCONNECT = "disconnect"  # the server left
    UNSPECIFIED = "unspecified"  # its chunks could not be read any further

    @property
    def flag(self) -> str:
        """The same for `Response.flags`."""
        return f"truncated_{self}"


class Flag(StrEnum):
    """What decoding did to a body, for `Response.flags`."""

    DECODED_LENGTH = "decoded_length"  # cut at the cap
    DECODED_CUT = "decoded_cut"  # ends before its coding does: what could be read is kept
    DECODED_BROKEN = "decoded_broken"  # damaged or mislabelled: what could be read is kept
    UNDECODED = "undecoded"  # in a coding we do not know, or in too many


def breakage(flags: Collection[str]) -> str:
    """Why a body with these `Response.flags` is not whole through no doing of ours, as an error
    of `Answer`. Empty: it is whole, or ended by our cap, our time-out or a user's component."""
    if Truncated.DISCONNECT.flag in flags:
        return "disconnect"
    if Truncated.UNSPECIFIED.flag in flags:
        return "" if STOPPED in flags else "protocol"
    # Codings within a body that was cut, or was damaged before, end early in consequence.
    others = {Truncated.LENGTH.flag, Truncated.TIME.flag, Flag.DECODED_LENGTH, Flag.DECODED_BROKEN}
    return "disconnect" if Flag.DECODED_CUT in flags and others.isdisjoint(flags) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and its answer. A *head* is all before the body: first line, header lines,
    empty line."""

    url: str
    at: float  # epoch seconds, before the request
    duration_s: float  # from then to the last byte
    request_head: bytes
    request_body: bytes = b""
    head: bytes
    body: bytes  # still compressed, no longer in chunks
    ip: str
    tls: str = ""  # "TLSv1.3"; empty: none
    truncated: Truncated = Truncated.NO

    @property
    def request_line(self) -> bytes:
        return _LINE_END.split(self.request_head, 1)[0]

    @property
    def request_headers(self) -> list[tuple[bytes, bytes]]:
        """In the order sent; names as sent, values without the white space around them."""
        return head_fields(self.request_head)

    @property
    def status_line(self) -> bytes:
        return _LINE_END.split(self.head, 1)[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """As `request_headers`; of the answer."""
        return head_fields(self.head)


def head_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """The header lines of a head. A line without a colon is a name without a value."""
    lines = _LINE_END.split(head)[1:]
    pairs = (line.partition(b":") for line in lines if line)
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadOptions:
    """What the download edge is told. It decides nothing itself."""

    cap: Callable[[bytes | None, str], int]  # Content-Type, URL -> bytes kept, headers included
    # address, host name, port -> may it be connected to?
    admits: Callable[[str, str, int], bool]
    # lease -> may its host still be asked? If not, its URL is put back.
    begin_or_put_back: Callable[[object], bool]
    tls: Tls = Tls.STRICT
    connect_timeout_s: float = 5.0
    total_timeout_s: float = 30.0
    # guess: fast hosts are revisited within it, and many servers close at 5 s themselves
    keepalive_s: float = 4.0
    # Chrome's limit (net::HttpStreamParser): what is longer is not sent by a web server
    head_max_bytes: int = 256 * 1024

    def room(self, content_type: bytes | None, url: str, asked: int | None = None) -> int:
        """Bytes kept of an answer. *asked*: the request's own `download_maxsize`, where as
        everywhere in Scrapy 0 is no limit."""
        return self.cap(content_type, url) if asked is None else asked or NO_LIMIT


class AddressRefused(CrawlerError):
    """A host name leads, or a URL points, to an address that must not be contacted.
    Caller: give the URL up; trying again changes nothing."""

    reason: Final = "inside_address"


# What an answer says, whatever its type: the result of a parser, and what a parser is given.
#
# Rule: values only, and such as msgpack can carry: a parser may work in a process apart.


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


# What a fetch brought, on its way through the pipelines. Arrow: fetch -> content.
#
# Rule: a stage returns a new Page with what it found out; no stage changes the one it got.


class Flaw(StrEnum):
    """Why an answer is archived, but no page: it has no columns, and nothing is a copy of it."""

    NONE = ""
    EMPTY = "empty"
    LYING_TYPE = "lying_type"  # its bytes are of another type than its header says
    SOFT_404 = "soft_404"  # status 200, and what this host says of any name it does not know


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A page with nearly the same text."""

    original: Claim
    bits: int  # of 64 that differ; 0: the same text in other bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One answer worth keeping. The item that the spider `web` yields: users' own pipelines
    see it too, and may replace it with `dataclasses.replace`."""

    url: str
    status: int
    content_type: str  # as declared; empty: not declared
    body: bytes = field(repr=False)  # decoded (gzip and the like taken off), cut at the cap
    depth: int
    lease_id: int
    # As it crossed the wire; None: nobody recorded it.
    exchange: Exchange | None = field(default=None, repr=False)
    flags: tuple[str, ...] = ()  # truncated_length, decoded_broken...
    media_type: str = ""  # what it is: as declared, or as its bytes say where nothing is
    flaw: Flaw = Flaw.NONE
    digest: bytes = b""  # SHA-1 of the body, once known
    duplicate_of: Claim | None = None
    parsed: Parsed | None = field(default=None, repr=False)  # None: nobody has read it
    title: str = ""
    text: str = field(default="", repr=False)  # what a reader came for
    simhash: int | None = None  # of its text; None: it has too little
    near: NearDuplicate | None = None
    alias_of: str = ""  # the URL it names as its canonical one, where that counts
    outlinks: tuple[Link, ...] = field(default=(), repr=False)  # to http(s), absolute; bounded
    # To be followed; a plain string is a link as from <a href>.
    links: tuple[Link | str, ...] = field(default=(), repr=False)
    archive: bool = True  # False: its author asked not to be indexed
    may_repeat: bool = False  # whoever had its URL before may have archived it, and died
    record: str = ""  # "file:offset" of its archive record, once written

    @property
    def is_answered(self) -> bool:
        """It was asked for and given: no error, no redirect."""
        return self.status in HTTP_OK

    @property
    def is_copy(self) -> bool:
        """Another page with these very bytes is stored already."""
        same = self.duplicate_of
        if same is None or same.url == self.url:
            return False
        return self.is_answered and same.status in HTTP_OK

    @property
    def is_again(self) -> bool:
        """It is stored already itself, with these very bytes: a crash came before its finish, or
        it is visited again. It counts as any page; its text is with its first record."""
        same = self.duplicate_of
        if same is None or same.url != self.url or self.flaw:
            return False
        return self.is_answered and (same.status in HTTP_OK or bool(self.alias_of))

    @property
    def is_repeat(self) -> bool:
        """Its bytes need not be archived again. A page with the bytes of an error is no copy of
        it: its text is read from a record of its own."""
        is_page = self.is_answered and not self.flaw
        return self.is_copy or self.is_again or (self.duplicate_of is not None and not is_page)


# What the columns say of one page: the row of it that people ask questions of.
#
# Rule: values only; what a page does not say is empty or None.


class ColumnsRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Arrow: content -> columns. File and offset of its record come with its place."""

    url: str  # as fetched
    host: str  # its name, whatever the unit of politeness is
    fetched_at: float  # epoch seconds, when the fetch began
    status: int
    media_type: str = ""  # text/html
    language: str = ""  # as declared: de, en-GB
    title: str = ""
    text: str = ""  # empty of an exact copy: it is with its original
    links: int = 0  # on the page, of all kinds
    canonical: str = ""  # absolute; empty: not declared
    published: float | None = None  # epoch seconds, where the page says so
    modified: float | None = None
    digest: bytes = b""  # SHA-1 of the decoded body
    simhash: int | None = None  # of its text, unsigned; None: it has too little
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # of 64 that differ from it; None: the very bytes, or no copy
    may_repeat: bool = False  # its URL may have its text in another row, too

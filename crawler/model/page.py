"""The values of one fetched page: its exchange, the result of its parser, its columns row.

Rule: values only; a stage returns a new value and changes none that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import msgspec

from crawler.model.choices import ColumnGroup, Preference, Tls, Use
from crawler.model.types import HTTP_OK, Claim, CrawlerError

NO_LIMIT: Final = 1 << 40
STOPPED: Final = "download_stopped"  # Scrapy's flag: a user's component ended it
_LINE_END: Final = re.compile(rb"\r?\n")


class Truncated(StrEnum):
    """Why a body is incomplete, in the words of WARC-Truncated."""

    NO = ""
    LENGTH = "length"  # our cap
    TIME = "time"  # our time-out
    DISCONNECT = "disconnect"  # the server closed the connection
    UNSPECIFIED = "unspecified"  # its chunked coding became unreadable

    @property
    def flag(self) -> str:
        """The reason as it stands in `Response.flags`."""
        return f"truncated_{self}"


class Flag(StrEnum):
    """What decoding did to a body, for `Response.flags`."""

    DECODED_LENGTH = "decoded_length"  # cut at the cap
    DECODED_CUT = "decoded_cut"  # the coding is cut short: what could be read is kept
    DECODED_BROKEN = "decoded_broken"  # damaged or mislabelled: what could be read is kept
    UNDECODED = "undecoded"  # in an unknown coding, or in too many


def incomplete_error(flags: Collection[str]) -> str:
    """Return the error of `Answer` for a body that these `Response.flags` call incomplete. Returns
    "" if it is whole, or was ended by our cap, our time-out or a user's component."""
    if Truncated.DISCONNECT.flag in flags:
        return "disconnect"
    if Truncated.UNSPECIFIED.flag in flags:
        return "" if STOPPED in flags else "protocol"
    # Codings in a body that was cut, or was damaged before, end early as a consequence.
    others = {Truncated.LENGTH.flag, Truncated.TIME.flag, Flag.DECODED_LENGTH, Flag.DECODED_BROKEN}
    return "disconnect" if Flag.DECODED_CUT in flags and others.isdisjoint(flags) else ""


@dataclass(init=False, repr=False, eq=False, match_args=False, kw_only=True)  # as Page below
class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer, the bytes as sent. A *head* is all before the body: first line,
    header lines, empty line. A download handler gives it to the `Life` of its lease."""

    url: str
    at: float  # epoch seconds, before the request
    duration_s: float  # from then to the last byte
    request_head: bytes
    request_body: bytes = b""
    head: bytes
    body: bytes  # still compressed, no longer in chunks
    ip: str
    tls: str = ""  # "TLSv1.3"; empty without TLS
    truncated: Truncated = Truncated.NO

    @property
    def request_line(self) -> bytes:
        return _LINE_END.split(self.request_head, 1)[0]

    @property
    def request_headers(self) -> list[tuple[bytes, bytes]]:
        """The header lines in the order sent; values are without surrounding white space."""
        return head_fields(self.request_head)

    @property
    def status_line(self) -> bytes:
        return _LINE_END.split(self.head, 1)[0]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The header lines of the answer, in the form of `request_headers`."""
        return head_fields(self.head)


def head_fields(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header lines of *head*. A line without a colon is a name with an empty value."""
    lines = head.replace(b"\r\n", b"\n").split(b"\n")[1:]
    pairs = (line.partition(b":") for line in lines if line)
    return [(name, value.strip(b" \t")) for name, _, value in pairs]


def header_value(headers: dict[bytes, list[bytes]], name: bytes) -> bytes | None:
    """Return what `get` of Scrapy's Headers does, for a *name* in capitals as they keep it, without
    bringing it into that form at each call: 1.5 us."""
    values: list[bytes] | None = dict.get(headers, name)
    return values[-1] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadOptions:
    """The limits of a fetch."""

    cap: Callable[[bytes | None, str], int]  # Content-Type, URL -> bytes kept, headers included
    # address, host name, port -> whether a connection to it is allowed
    admits: Callable[[str, str, int], bool]
    tls: Tls = Tls.STRICT
    connect_timeout_s: float = 5.0
    total_timeout_s: float = 30.0
    min_delay_s: float = 1.0  # between two requests to a host
    # guess: fast hosts are visited again within it, and many servers close at 5 s themselves
    keepalive_s: float = 4.0
    most_connections: int = 1024  # open at once, idle ones among them
    # Chrome's limit (net::HttpStreamParser): web servers send no longer heads
    head_max_bytes: int = 256 * 1024
    # time of an answer, epoch seconds -> whether the archive may not have it any more; None: none
    # has gone
    may_have_gone: Callable[[float], bool] | None = None

    def max_bytes(self, content_type: bytes | None, url: str, asked: int | None = None) -> int:
        """Return how many bytes of an answer are kept. *asked* is the request's own
        `download_maxsize`; as everywhere in Scrapy, 0 means no limit."""
        return self.cap(content_type, url) if asked is None else asked or NO_LIMIT


class AddressRefused(CrawlerError):
    """A host name resolves to, or a URL names, an address that must not be contacted. Caller: give
    the URL up; a retry changes nothing."""

    reason: Final = "inside_address"


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """The addresses of a name; empty if it does not exist or has none."""

    ips: tuple[str, ...]
    ttl_s: float


# What parsers take and return: values that msgpack can encode, for parsers in child processes.


class LinkKind(StrEnum):
    """The place of a link on its page. The words are those of CRAWLER_FOLLOW_KINDS."""

    A = "a"
    AREA = "area"
    FRAME = "frame"
    IFRAME = "iframe"
    CANONICAL = "canonical"  # rel=canonical, of the page or of a Link header
    ALTERNATE = "alternate"  # rel=alternate: other languages, feeds
    REFRESH = "refresh"  # <meta http-equiv=refresh>, or a Refresh header
    STYLE = "style"  # a style sheet, also one that another imports
    SCRIPT = "script"
    # img, srcset, poster, icon, image and use in drawings, url() in styles, og:image, and what
    # scripts make one of: data-src, data-bg...
    IMAGE = "image"
    FONT = "font"  # url() in @font-face
    MANIFEST = "manifest"  # rel=manifest: of an app, with its name and icons
    MEDIA = "media"  # video, audio, source, track, embed, object
    LISTED = "listed"  # a page that a sitemap lists
    SITEMAP = "sitemap"  # a sitemap that a sitemap index lists
    ENTRY = "entry"  # the page that an entry of a feed is about
    TEXT = "text"  # a URL written out in text


FRAMES: Final = frozenset({LinkKind.FRAME, LinkKind.IFRAME})
EMBEDDED: Final = FRAMES | {
    LinkKind.STYLE,
    LinkKind.SCRIPT,
    LinkKind.IMAGE,
    LinkKind.FONT,
    LinkKind.MEDIA,
    LinkKind.MANIFEST,
}
"""What a browser fetches without being asked to show the page."""


class Link(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A link as written, relative to the base of its page."""

    url: str
    kind: LinkKind = LinkKind.A
    rel: str = ""  # its rel attribute in lower case, words with one space between
    modified: float | None = None  # epoch seconds: a sitemap's lastmod, an entry's date
    priority: float | None = None  # a sitemap's, from 0 to 1
    text: str = ""  # what stands in it, where that was asked for; at most 256 bytes of UTF-8
    language: str = ""  # of what it leads to, as its hreflang says


class About(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a page says of itself. The fields are the columns of the group `about`."""

    author: str = ""
    description: str = ""
    site_name: str = ""
    licence: str = ""  # its URL, as written, or its name
    robots: str = ""  # of its meta tags, as written
    h1: str = ""  # the text of the first that has one


NOTHING_SAID: Final = About()


class Source(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The input of a parser. Arrow: page -> parser."""

    url: str
    content_type: str  # the header as received; empty if there is none
    body: bytes  # decoded (gzip and the like of the transfer taken off), cut at the cap
    headers: tuple[tuple[bytes, bytes], ...] = ()  # as received, in their order
    is_sitemap: bool = False  # robots.txt or an index of sitemaps names it as one
    asked: frozenset[ColumnGroup] = frozenset()  # what else is to be found: about, anchors...


class Parsed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a parser. Arrow: parser -> page."""

    parser: str = ""  # the parser's own name: html, sitemap, feed, pdf, text
    title: str = ""
    text: str = ""  # the main text, without navigation, scripts and styles
    links: tuple[Link, ...] = ()  # all of them, also those that are not to be followed
    base: str = ""  # <base href>, as written; empty: the page's own URL
    canonical: str = ""  # as written
    language: str = ""  # as declared: de, en-GB
    robots: frozenset[str] = frozenset()  # directives for all crawlers: noindex, noai
    tdm: str = ""  # of <meta name=tdm-reservation>, as written
    rsl: str = ""  # the URL of its RSL licence, as written
    published: float | None = None  # epoch seconds, where the page says so
    modified: float | None = None
    charset: str = ""  # the encoding the text was read with, by its WHATWG name
    notes: tuple[str, ...] = ()  # what was left out: links_cut, pages_cut, broken_xml
    about: About = NOTHING_SAID  # where it is asked for
    link_share: float | None = None  # of the letters of the text; None: not known
    markdown: str = ""  # the text with its structure, where that is asked for


class Unreadable(CrawlerError):
    """The content is not of its declared type, or exceeds the limits of its parser. Caller: store
    it; it has no text and no links."""


class Parser(Protocol):
    """A plug-in for some media types (docs/parsers.md). Made once a crawl, without arguments."""

    @property
    def name(self) -> str:
        """One word, for counters and columns."""

    @property
    def types(self) -> frozenset[str]:
        """Media types it parses, in lower case; `text/*` takes what no other parser does."""

    @property
    def inline_max_bytes(self) -> int:
        """The longest body that is parsed in the crawl's own process; 0: none. Longer ones are
        parsed in a child process, which imports the parser by module and class and is killed if it
        takes too long or too much memory."""

    def parse(self, source: Source) -> Parsed:
        """Parse *source*. Raises Unreadable."""


class Preferences(msgspec.Struct, frozen=True, gc=False):
    """What the publisher of a page says of its use, from all sources together."""

    train_ai: Preference = Preference.UNKNOWN
    search: Preference = Preference.UNKNOWN
    # Of what said anything, in the order read: "robots.txt", "content-usage", "rsl"...
    sources: tuple[str, ...] = ()

    def of(self, use: Use) -> Preference:
        return self.train_ai if use is Use.TRAIN_AI else self.search

    def __str__(self) -> str:
        said = f"train-ai={self.train_ai} search={self.search}"
        return f"{said} ({', '.join(self.sources)})" if self.sources else said

    @classmethod
    def read(cls, written: str) -> Preferences:
        """Return what str() has made of it, or NO_PREFERENCES for anything else."""
        found = _PREFERENCES.fullmatch(written)
        if found is None:
            return NO_PREFERENCES
        sources = tuple(found[3].split(", ")) if found[3] else ()
        return cls(Preference(found[1]), Preference(found[2]), sources)


NO_PREFERENCES: Final = Preferences()
_PREFERENCES: Final = re.compile(
    r"train-ai=(allow|disallow|unknown) search=(allow|disallow|unknown)(?: \(([^()]{1,500})\))?"
)


class Flaw(StrEnum):
    """Why an answer is archived but is no page: it has no columns, and nothing is a copy of it."""

    NONE = ""
    EMPTY = "empty"
    WRONG_TYPE = "lying_type"  # its bytes are not of the type in its header
    SOFT_404 = "soft_404"  # status 200, with the text this host sends for missing pages
    CHALLENGE = "challenge"  # a guard before the server refuses robots, or tests who asks


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """An earlier page with nearly the same text."""

    original: Claim
    bits: int  # of 64 that differ; 0: the same text in other bytes


_NOT_SHOWN: Final = frozenset(("body", "exchange", "parsed", "text", "outlinks", "links"))


_VISITS: Final = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,11}) ([0-9]{1,11}|-)")


class VisitsSoFar(msgspec.Struct, frozen=True, gc=False):
    """The visits of a page that is visited again, with this one. Times are epoch seconds."""

    visits: int
    changes: int  # found by visits after the first
    changed_at: int  # when the last one was found, or of the first visit
    next_at: int | None = None  # None: when it is worth it, or that is not known yet

    def __str__(self) -> str:
        return f"{self.visits} {self.changes} {self.changed_at} {self.next_at or '-'}"

    @classmethod
    def read(cls, written: str) -> VisitsSoFar | None:
        """Return what str() has made of it, or None for anything else."""
        found = _VISITS.fullmatch(written)
        if found is None:
            return None
        next_at = None if found[4] == "-" else int(found[4])
        return cls(int(found[1]), int(found[2]), int(found[3]), next_at)


DOM_TYPE: Final = "text/html; charset=utf-8"
"""The Content-Type of a page that a browser has rendered."""
MOST_DOM_BYTES: Final = 20_000_000
"""Of what a browser makes; a page with more stays as it was fetched."""
_RENDERED: Final = re.compile(r"([0-9]{1,9}) ([0-9]{1,9}) ([0-9]{1,9}) (quiet|busy)")


class Rendered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a browser made a page of its answer. Arrow: browser -> content."""

    ms: int  # that it took
    requests: int  # that were answered for it, beside its own
    left_out: int = 0  # that were not: robots.txt, a host that rests, a cap, an unwanted kind
    is_quiet: bool = True  # False: it was taken at its bound of time, still at work
    moved_to: str = ""  # where its scripts, or a meta refresh, wanted it to go; not gone to

    def __str__(self) -> str:
        end = "quiet" if self.is_quiet else "busy"
        return f"{self.ms} {self.requests} {self.left_out} {end}"

    @classmethod
    def read(cls, written: str) -> Rendered | None:
        """Return what str() has made of it, or None for anything else."""
        found = _RENDERED.fullmatch(written)
        if found is None:
            return None
        ms, requests, left_out = map(int, found.groups()[:3])
        return cls(ms=ms, requests=requests, left_out=left_out, is_quiet=found[4] == "quiet")


# A struct, as `msgspec.structs.replace` takes 0.1 us, of which a page has seven, and that of a
# dataclass 7. The decorator makes `dataclasses.replace` and `fields` take it as well.
@dataclass(init=False, repr=False, eq=False, match_args=False)
class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One answer worth keeping, the item of the spider `web`. Users' pipelines receive it too, and
    may replace it with `dataclasses.replace`. Arrow: fetch -> content."""

    url: str
    status: int
    content_type: str  # as declared; empty: not declared
    body: bytes  # decoded (gzip and the like taken off), cut at the cap; if rendered, the DOM
    depth: int
    lease_id: int
    seed: str = ""  # the part of the web of its seed, as Provenance has it
    round: int = 0  # in which it was fetched; 0: the run has none
    exchange: Exchange | None = None  # None if it was not recorded
    rendered: Rendered | None = None  # None: its body is what the server sent
    flags: tuple[str, ...] = ()  # truncated_length, decoded_broken...
    media_type: str = ""  # as declared, or by the bytes if nothing is declared
    flaw: Flaw = Flaw.NONE
    digest: bytes = b""  # SHA-1 of the body, once known
    duplicate_of: Claim | None = None
    # A record of an earlier crawl (`-a known=`) that has the bytes; the page is as new here.
    archived_elsewhere: Claim | None = None
    parsed: Parsed | None = None  # None: not parsed
    title: str = ""
    text: str = ""  # the main text
    simhash: int | None = None  # of its text; None: it has too little
    near: NearDuplicate | None = None
    alias_of: str = ""  # the canonical URL it names, if that is its identity
    outlinks: tuple[Link, ...] = ()  # to http(s), absolute; bounded
    links: tuple[Link | str, ...] = ()  # to be followed; a string is a link as from <a href>
    archive: bool = True  # False: its answer is not archived
    noindex: bool = False  # marked so, and respected: only its links are archived
    may_repeat: bool = False  # an earlier lease may have archived it before its process died
    is_sitemap: bool = False  # robots.txt or an index of sitemaps names it as one
    visits: VisitsSoFar | None = None  # None: it is visited once
    preferences: Preferences = NO_PREFERENCES  # of its publisher
    disallowed: Use | None = None  # a use that we require, and that they disallow: not archived
    record: str = ""  # "file:offset" of its archive record, once written

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in _NOT_SHOWN)
        return f"Page({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def sent_type(self) -> str:
        """The Content-Type that the server sent; empty: none."""
        if self.rendered is None or self.exchange is None:
            return self.content_type
        sent = [value for name, value in self.exchange.headers if name.lower() == b"content-type"]
        return sent[-1].decode("latin-1") if sent else ""  # the last, as Scrapy has it

    @property
    def is_answered(self) -> bool:
        """Whether the status is a success: no error, no redirect."""
        return self.status in HTTP_OK

    @property
    def is_list(self) -> bool:
        """Whether it lists URLs for crawlers and is no page of its own pattern: a sitemap."""
        return self.is_sitemap or (self.parsed is not None and self.parsed.parser == "sitemap")

    @property
    def is_copy(self) -> bool:
        """Whether another page with the same bytes is stored already."""
        same = self.duplicate_of
        if same is None or same.url == self.url:
            return False
        return self.is_answered and same.status in HTTP_OK

    @property
    def is_refetch(self) -> bool:
        """Whether this URL is stored already with the same bytes: a crash came before its finish,
        or it is visited again. It counts as any page; its text is with its first record."""
        same = self.duplicate_of
        if same is None or same.url != self.url or self.flaw:
            return False
        return self.is_answered and (same.status in HTTP_OK or bool(self.alias_of))

    @property
    def is_repeat(self) -> bool:
        """Whether its bytes need not be archived again. A page with the bytes of an error page is
        no copy of that one: its text is read from its own record."""
        is_page = self.is_answered and not self.flaw
        return self.is_copy or self.is_refetch or (self.duplicate_of is not None and not is_page)


class AnswerFacts(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the server said of a page. The fields are the columns of the group `answer`."""

    declared_type: str = ""  # text/html
    declared_charset: str = ""  # in the same header, as written
    charset: str = ""  # with which the text was read
    truncated: str = ""  # why the body is incomplete, one of Truncated
    etag: str = ""
    last_modified: str = ""
    server: str = ""
    robots_header: str = ""  # X-Robots-Tag; of several, with commas between


class DetectedLanguage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The language of a text. The fields are the columns of the group `language`."""

    detected_language: str = ""
    language_score: float | None = None  # how much of the text is in it, 0 to 1


class TextQuality(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Counts and shares of a text by which data sets are filtered, without a verdict. The fields
    are the columns of the group `quality`. Shares are 0 to 1; a share of nothing is 0."""

    words: int
    characters: int
    mean_word_length: float  # characters
    alphabetic_word_share: float
    stop_word_share: float
    hash_word_ratio: float
    ellipsis_word_ratio: float
    bullet_line_share: float
    ellipsis_line_share: float
    terminal_line_share: float
    short_line_share: float
    repeated_line_share: float
    repeated_character_share: float
    newline_word_ratio: float
    digit_share: float
    link_share: float | None
    curly_brackets: bool
    lorem_ipsum: bool


class Provenance(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a page was found. The fields are the columns of the group `crawl`."""

    depth: int | None = None  # hops from a seed; None: not known
    crawl_id: str = ""  # the same for all runs and workers of a crawl
    # The narrowest part of the web in which a seed's scope lies that it is in: the seed itself,
    # example.org/docs/, example.org, *.example.org. Empty: none has an end, or it is outside.
    seed: str = ""
    round: int | None = None  # in which it was fetched; None: the run had none


class ColumnsRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The row of one page; what the page does not say is empty or None. Arrow: content -> columns.
    The archive adds the file and offset of its record. That of a page marked noindex is in the
    archive itself (`PageInfo`), so a new field has a default; what of it is content,
    `content/to_capture.py` leaves out there."""

    url: str  # as fetched
    host: str  # the host name, whatever the unit of politeness is
    fetched_at: float  # epoch seconds, when the fetch began
    status: int
    media_type: str = ""  # text/html
    language: str = ""  # as declared: de, en-GB
    title: str = ""
    text: str = ""  # empty for an exact copy: the row of its original has it
    links: int = 0  # on the page, of all kinds
    canonical: str = ""  # absolute; empty: not declared
    published: float | None = None  # epoch seconds, where the page says so
    modified: float | None = None
    digest: bytes = b""  # SHA-1 of the decoded body, or of the DOM
    simhash: int | None = None  # of its text, unsigned; None: it has too little
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # of 64 that differ from it; None: the same bytes, or no copy
    may_repeat: bool = False  # another row of its URL may hold its text too
    noindex: bool = False  # marked so, and respected
    visits: VisitsSoFar | None = None  # None: it is visited once
    link_share: float | None = None  # of the letters of the text; None: not known
    # Groups that are written; None: not asked for, or there is nothing to say.
    answer: AnswerFacts | None = None
    about: About | None = None
    crawl: Provenance | None = None
    markdown: str = ""  # as the text
    rendered: Rendered | None = None  # None: its content is what the server sent
    preferences: Preferences | None = None

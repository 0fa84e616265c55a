"""Parses HTML by its tags, without a tree (docs/decisions/0011).

Rule: no markup raises an error; what cannot be read is ignored. Time and memory are linear in the
page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from html.entities import html5
from typing import Final, NamedTuple

import numpy as np

from crawler.content.parsers.dates import epoch
from crawler.content.parsers.loading import LINKS_CUT
from crawler.model.page import Link, LinkKind, Parsed, Source
from crawler.policy.encodings import read_text
from crawler.policy.links import robots_words
from crawler.policy.media_type import HTML_TYPES, media_type

# The grammar of a tag (WHATWG HTML, 13.2.5). Each expression takes linear time on any input: it is
# unambiguous and never backtracks.
SPACE: Final = " \t\n\f\r"
"""HTML's white space, which is stripped from a URL in an attribute."""

_WS: Final = r"\t\n\f\r\x20"
_NAME: Final = rf"[^{_WS}/>][^{_WS}/>=]*+"
_IS: Final = rf"[{_WS}]*+=[{_WS}]*+"
_BARE: Final = rf"""(?!["'])[^{_WS}>]*+"""
# A name with "=" must have a value, so a tag with an open quote does not end.
_ATTRIBUTE: Final = rf"""{_NAME}(?:{_IS}(?:"[^"]*+"|'[^']*+'|{_BARE})|(?!{_IS}))"""
_TAG: Final = rf"/?[A-Za-z][^{_WS}/>]*+(?:[{_WS}/]++|{_ATTRIBUTE})*+"

tag_at = re.compile(rf"{_TAG}>").match
"""Matches a whole tag, without the "<" before it. A ">" in quotes does not end it."""
_last_gap = re.compile(rf"/?[A-Za-z][^{_WS}/>]*+(?:([{_WS}/]++)|{_ATTRIBUTE})*+>").match
_name = re.compile(rf"/?([A-Za-z][^{_WS}/>]*+)").match

each_attribute = re.compile(rf"""({_NAME})(?:{_IS}(?:"([^"]*+)"|'([^']*+)'|({_BARE})))?+""").findall
"""Finds each attribute of a tag: its name, and its value in double, single or no quotes."""

# A name without semicolon before "=" is no reference: "&copy=1" is part of a query.
_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))"
).sub
_text_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{0,31}+;?)"
).sub

# No character has so long a number, and Python refuses to read more than 4,300 digits.
_LONGEST: Final = 40


def split_name(tag: str) -> tuple[str, str]:
    """Return the tag's name in lower case, and its attributes as written."""
    found = _name(tag)
    return (found[1].lower(), tag[found.end() :]) if found else ("", "")


def is_self_closing(tag: str) -> bool:
    """Whether a whole tag ends in "/>", and the slash is not the end of a bare value."""
    found = _last_gap(tag) if tag.endswith("/>") else None
    return found is not None and found.end(1) == len(tag) - 1


def attributes(written: str) -> dict[str, str]:
    """Return the attributes by name in lower case. Of two with the same name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in each_attribute(written):
        found.setdefault(name.lower(), value(double or single or bare))
    return found


def value(written: str) -> str:
    """Return an attribute's value with its references resolved."""
    return _reference(_resolved, written) if "&" in written else written


def in_text(written: str) -> str:
    """Return text with its references resolved."""
    return _text_reference(_resolved_in_text, written)


def _resolved(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _character(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _resolved_in_text(reference: re.Match[str]) -> str:
    return _character(reference[0])


def _character(reference: str) -> str:
    return _unescape(reference) if len(reference) < _LONGEST else "\ufffd"


# A page repeats the same few references.
_unescape = lru_cache(maxsize=4096)(html.unescape)


# Links are URLs as written, without white space around them. An empty URL, a fragment and a data:
# URL are no links.

# guess: a page of honest use has fewer; one with more is cut, not refused
MAX_LINKS: Final = 20_000

Attributes = dict[str, str]

# WHATWG HTML, "shared declarative refresh steps": seconds, then a URL, quoted or not.
_refresh = re.compile(
    rf"[{SPACE}]*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[{SPACE};,])[{SPACE}]*+[;,]?+[{SPACE}]*+"
    rf"(?:url[{SPACE}]*+=[{SPACE}]*+)?+(?:\"([^\"]*+)|'([^']*+)|(.*+))",
    re.IGNORECASE | re.DOTALL,
).match
_candidate = re.compile(rf"[{SPACE},]*+([^{SPACE}]++)").match
_descriptors = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+").match


class LinksFound:
    """The links of a page, in their order."""

    def __init__(self) -> None:
        self.canonical = ""  # the first, as written
        self._found: list[str | Link] = []
        # Adds the URL of an <a> without rel; its references are resolved later.
        self.plain = self._found.append

    def a(self, url: str, rel: str) -> None:
        url = url.strip(SPACE)
        if url and url[0] != "#":
            self._found.append(Link(url, LinkKind.A, _words(rel)) if rel else Link(url))

    def take(self, name: str, attrs: Attributes) -> None:
        for link in LINKING[name](attrs):
            self._found.append(link)
            if link.kind is LinkKind.CANONICAL:
                self.canonical = self.canonical or link.url

    def first(self, limit: int) -> tuple[Link, ...]:
        links: list[Link] = []
        for one in self._found:
            if isinstance(one, Link):
                links.append(one)
            elif (url := (value(one) if "&" in one else one).strip(SPACE)) and url[0] != "#":
                links.append(Link(url))
        return tuple(links[:limit])


def _to(url: str | None, kind: LinkKind, rel: str = "") -> Iterator[Link]:
    url = url.strip(SPACE) if url else ""
    if url and url[0] != "#" and url[:5].lower() != "data:":
        yield Link(url, kind, _words(rel))


def _words(rel: str) -> str:
    return " ".join(rel.lower().split())


def _place(kind: LinkKind, attribute: str) -> Callable[[Attributes], Iterator[Link]]:
    return lambda attrs: _to(attrs.get(attribute), kind, attrs.get("rel", ""))


def _media(*names: str) -> Callable[[Attributes], Iterator[Link]]:
    def read(attrs: Attributes) -> Iterator[Link]:
        for name in names:
            yield from _to(attrs.get(name), LinkKind.MEDIA)
        if "srcset" in attrs:
            for url in srcset(attrs["srcset"]):
                yield from _to(url, LinkKind.MEDIA)

    return read


def _link_of(attrs: Attributes) -> Iterator[Link]:
    """Yield a canonical or alternate link; an alternate style sheet is none."""
    words = attrs.get("rel", "").lower().split()
    if "canonical" in words:
        yield from _to(attrs.get("href"), LinkKind.CANONICAL, " ".join(words))
    elif "alternate" in words and "stylesheet" not in words:
        yield from _to(attrs.get("href"), LinkKind.ALTERNATE, " ".join(words))


def _meta(attrs: Attributes) -> Iterator[Link]:
    if attrs.get("http-equiv", "").strip(SPACE).lower() == "refresh":
        yield from _to(refresh(attrs.get("content", "")), LinkKind.REFRESH)


def _input(attrs: Attributes) -> Iterator[Link]:
    if attrs.get("type", "").strip(SPACE).lower() == "image":
        yield from _to(attrs.get("src"), LinkKind.MEDIA)


def refresh(content: str) -> str:
    """Return the URL of <meta http-equiv=refresh>; empty if it reloads the page itself."""
    found = _refresh(content)
    return next((url for url in found.groups() if url is not None), "") if found else ""


def srcset(written: str) -> Iterator[str]:
    """Yield the URLs of a srcset (WHATWG HTML, "parse a srcset attribute"), which may hold
    commas."""
    position = 0
    while found := _candidate(written, position):
        url, position = found[1], found.end()
        if url.endswith(","):
            yield url.rstrip(",")
        else:
            yield url
            described = _descriptors(written, position)
            position = described.end() if described else len(written)


LINKING: Final[dict[str, Callable[[Attributes], Iterator[Link]]]] = {
    "area": _place(LinkKind.AREA, "href"),
    "frame": _place(LinkKind.FRAME, "src"),
    "iframe": _place(LinkKind.IFRAME, "src"),
    "link": _link_of,
    "meta": _meta,
    "img": _media("src"),
    "source": _media("src"),
    "video": _media("src", "poster"),
    "audio": _media("src"),
    "embed": _media("src"),
    "object": _media("data"),
    "input": _input,
}


# Tables of elements. An element in none of them begins a new line of text.
INLINE: Final = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "blink", "cite", "code", "data"),
        *("del", "dfn", "em", "font", "i", "ins", "kbd", "label", "mark", "nobr", "q", "rb"),
        *("rp", "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub"),
        *("sup", "time", "tt", "u", "var", "wbr"),
    )
)
"""Elements that end neither a line nor a word: H<sub>2</sub>O."""

RAW: Final = frozenset(
    (
        *("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"),
        "plaintext",
    )
)
"""Elements that hold only text: up to their end tag nothing is a tag."""

FOREIGN: Final = frozenset(("svg", "math"))
"""Elements in which the rules of XML hold: a tag may close itself, and no element is RAW."""

HTML_WITHIN: Final = {
    "svg": frozenset(("foreignobject", "desc", "title")),
    "math": frozenset(("mi", "mo", "mn", "ms", "mtext", "annotation-xml")),
}
"""Elements in FOREIGN in which HTML's rules hold again (WHATWG HTML, "integration points")."""

NEVER_FOREIGN: Final = frozenset(
    (
        *("b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em"),
        *("embed", "h1", "h2", "h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing"),
        *("menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s", "small", "span", "strong"),
        *("strike", "sub", "sup", "table", "tt", "u", "ul", "var"),
    )
)
"""Elements that end a drawing or formula that was not closed (WHATWG HTML, 13.2.6.5)."""

INVISIBLE_ELEMENTS: Final = frozenset(
    (
        *("audio", "canvas", "datalist", "dialog", "math", "noscript", "object", "select", "svg"),
        *("template", "video"),
    )
)
"""Elements that a reader does not see, or not as text."""

BOILERPLATE_ELEMENTS: Final = frozenset(("aside", "footer", "header", "menu", "nav"))
"""Elements around the content, by their names."""

CONTENT: Final = frozenset(("article", "main"))
"""Elements in which a header or footer is part of the content."""

BOILERPLATE_ROLES: Final = frozenset(
    (
        *("alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu"),
        *("menubar", "navigation", "search", "toolbar"),
    )
)

END_TAG_ELEMENTS: Final = frozenset(
    (
        *("div", "section", "span", "ul", "ol", "dl", "table", "form", "article", "details"),
        *("center", "fieldset", "figure", "blockquote", "main", "p"),
    )
)
"""Elements with an end tag, so that the effect of a role or `hidden` has an end."""


NOISE_ELEMENTS: Final = BOILERPLATE_ELEMENTS | CONTENT | INVISIBLE_ELEMENTS
"""Elements whose tags are reported to Noise."""
HIDING: Final = frozenset(("hidden", "role"))
"""Attributes that may hide an element; one that has them is reported to Noise, too."""
_AS_PARTS: Final = frozenset(("header", "footer"))  # within CONTENT they are content

_hiding = re.compile("role|hidden", re.IGNORECASE).search


def hides(written: str) -> bool:
    """Whether attributes as written may hide their element."""
    return _hiding(written) is not None


class Span(NamedTuple):
    """An element without content, by the numbers of its tags."""

    name: str
    begin: int
    end: int  # the number of all tags if it is never closed

    @property
    def parts(self) -> tuple[int, int]:
        """The position among alternating words and tags."""
        return 2 * self.begin + 1, 2 * self.end + 1


# A tag, the name of its element, 1 for a start tag or -1 for an end tag, and whether it hides.
_ReportedTag = tuple[int, str, int, bool]


class Noise:
    """Finds what a page's author marked as no content: menus, footers, hidden elements.

    It counts the open elements of one name at a time, without a tree. An element that is never
    closed hides nothing, so that a forgotten end tag loses no text.
    """

    def __init__(self, *, is_xml: bool) -> None:
        self._reported: list[_ReportedTag] = []
        self._is_xml = is_xml

    def report_start(self, at: int, name: str, attrs: dict[str, str]) -> None:
        """Report the start tag of an element, unless it closes itself."""
        is_hiding = _hides(name, attrs)
        if is_hiding or name in NOISE_ELEMENTS:
            self._reported.append((at, name, 1, is_hiding))

    def report_end(self, at: int, name: str) -> None:
        """Report the end tag of an element in NOISE_ELEMENTS."""
        self._reported.append((at, name, -1, False))

    def spans(self, tags: Sequence[str]) -> Iterator[Span]:
        """Yield the elements without content in their order. *tags* are all of the page."""
        content = 0  # the number of open elements in CONTENT
        end = -1
        for number, (at, name, step, is_hiding) in enumerate(self._reported):
            if at <= end:
                continue
            if name in CONTENT:
                content = max(content + step, 0)
            if is_hiding and not (content and name in _AS_PARTS):
                end = self._end(number, tags)
                yield Span(name, at, end)

    def _end(self, number: int, tags: Sequence[str]) -> int:
        begin, name, _, _ = self._reported[number]
        opened = 0
        steps = (
            self._steps(number)
            if name in NOISE_ELEMENTS
            else self._steps_by_tags(tags, begin, name)
        )
        for at, step in steps:
            opened += step
            if not opened:
                return at
        return len(tags)

    def _steps(self, number: int) -> Iterator[tuple[int, int]]:
        reported = self._reported
        element = reported[number][1]
        for later in range(number, len(reported)):
            at, name, step, _ = reported[later]
            if name == element:
                yield at, step

    def _steps_by_tags(
        self, tags: Sequence[str], begin: int, name: str
    ) -> Iterator[tuple[int, int]]:
        step = _step(name)
        for at in range(begin, len(tags)):
            found = step(tags[at])
            if found and not (self._is_xml and is_self_closing(tags[at])):
                yield at, -1 if found[1] else 1


def _hides(name: str, attrs: dict[str, str]) -> bool:
    if name in INVISIBLE_ELEMENTS or name in BOILERPLATE_ELEMENTS:
        return True
    return name in END_TAG_ELEMENTS and (
        "hidden" in attrs or attrs.get("role", "").strip().lower() in BOILERPLATE_ROLES
    )


@lru_cache(maxsize=64)
def _step(name: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf"(/?){name}[{SPACE}/>]", re.IGNORECASE | re.ASCII).match


DECLARING: Final = frozenset(("html", "base", "meta"))

_MAX_TITLE_CHARS: Final = 1_000
# The names that state a date, the most specific first.
_PUBLISHED: Final = (
    *("article:published_time", "datepublished", "dc.date.issued", "dcterms.issued"),
    *("dcterms.created", "dc.date", "dcterms.date", "date"),
)
_MODIFIED: Final = (
    *("article:modified_time", "og:updated_time", "datemodified", "dcterms.modified"),
    *("dc.date.modified", "last-modified"),
)
_READ: Final = frozenset((*_PUBLISHED, *_MODIFIED, "content-language"))
_language = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}").match
_date_in_data = re.compile(r'"(datePublished|dateModified)"\s{0,9}:\s{0,9}"([^"]{4,40})"').findall


class Facts:
    """The declarations of a page: title, base, language, dates, and directives for crawlers.

    Of repeated declarations the first counts, but of words for crawlers all. Invalid ones are
    ignored.
    """

    def __init__(self) -> None:
        self.title = ""
        self.base = ""
        self._language = ""
        self._robots: list[str] = []
        self._declared: dict[str, str] = {}

    def take(self, name: str, attrs: dict[str, str]) -> None:
        if name == "html":
            self._language = self._language or attrs.get("lang", "") or attrs.get("xml:lang", "")
        elif name == "meta":
            self._meta(attrs)
        elif not self.base:
            self.base = attrs.get("href", "").strip(SPACE)

    def take_title(self, text: str) -> None:
        if not self.title:
            self.title = " ".join(in_text(text).split())[:_MAX_TITLE_CHARS]

    def data(self, text: str) -> None:
        """Take the dates from JSON for search engines (schema.org), without parsing it."""
        for name, date in _date_in_data(text):
            self._declared.setdefault(name.lower(), date)

    @property
    def language(self) -> str:
        for written in (self._language, self._declared.get("content-language", "")):
            if found := _language(written.strip(SPACE)):
                return found[0].replace("_", "-")
        return ""

    @property
    def robots(self) -> frozenset[str]:
        return robots_words(self._robots) - {""} if self._robots else frozenset()

    @property
    def published(self) -> float | None:
        return self._date(_PUBLISHED)

    @property
    def modified(self) -> float | None:
        return self._date(_MODIFIED)

    def _meta(self, attrs: dict[str, str]) -> None:
        content = attrs.get("content", "")
        for attribute in ("name", "property", "itemprop", "http-equiv"):
            name = attrs.get(attribute, "").strip(SPACE).lower()
            if name == "robots" and attribute == "name":
                self._robots.append(content)
            elif name in _READ:
                self._declared.setdefault(name, content)

    def _date(self, names: tuple[str, ...]) -> float | None:
        if not self._declared:
            return None
        dates = (epoch(self._declared[name]) for name in names if name in self._declared)
        return next((date for date in dates if date is not None), None)


# Marks in the words of a page. These characters are replaced in the page itself.
LINE: Final = "\0"  # the end of a line
LINK: Final = "\1"  # the beginning of a link
LINK_END: Final = "\2"  # the end of a link


def replace_marks(text: str) -> str:
    return text.replace(LINE, "\ufffd").replace(LINK, " ").replace(LINK_END, " ")


# The shape of a tag is all of it except its quoted values. A page has thousands of tags of few
# shapes, and the shape decides whether the values must be read. The caches are bounded.
MAX_CACHED_TAG_CHARS: Final = 1_000  # letters of a tag whose shape is cached
MAX_MARKED_TAG_CHARS: Final = 200
MAX_MARKED_TAGS: Final = 8_192  # guess: a page has some dozens; at the limit the cache is cleared
READ_ELEMENTS: Final = frozenset(("a",)) | LINKING.keys() | DECLARING | NOISE_ELEMENTS | RAW
"""Elements of which more than their text is used."""


class Tag(NamedTuple):
    name: str
    attrs: dict[str, str]  # its attributes; shared by a cache, so never changed
    mark: str  # replaces the tag in the text
    is_read: bool
    is_self_closing: bool


class Shape(NamedTuple):
    name: str
    mark: str
    is_read: bool
    quoted: tuple[str, ...]  # the attributes with quoted values, in their order
    others: dict[str, str]
    is_self_closing: bool


NO_TAG: Final = Tag("", {}, "", is_read=False, is_self_closing=False)
marks_of_tags: Final[dict[str, str]] = {}
"""Tags as written that only separate words, with their marks, for all pages of this process."""


def remember_mark(tag: str, mark: str) -> str:
    if len(tag) <= MAX_MARKED_TAG_CHARS:
        if len(marks_of_tags) == MAX_MARKED_TAGS:
            marks_of_tags.clear()
        marks_of_tags[tag] = mark
    return mark


def mark_of(name: str) -> str:
    return "" if name in INLINE else LINE


def tag_of(tag: str) -> Tag | None:
    """Read *tag*, which is cut at its first ">". Returns None if it does not end there."""
    return _short(tag) if len(tag) <= MAX_MARKED_TAG_CHARS else _tag_of(tag)


def _tag_of(tag: str) -> Tag | None:
    name, written = split_name(tag)
    if not name:
        return NO_TAG
    if not tag_at(tag):
        return None
    if tag[0] == "/":
        mark = LINK_END if name == "a" else mark_of(name)
        return Tag(name, {}, mark, name in NOISE_ELEMENTS, is_self_closing=False)
    is_read = name in READ_ELEMENTS or hides(written)
    attrs = attributes(written) if is_read else {}
    return Tag(name, attrs, mark_of(name), is_read, is_self_closing(tag))


_short: Final = lru_cache(maxsize=4096)(_tag_of)


@lru_cache(maxsize=4096)
def shape_of(between: tuple[str, ...]) -> Shape | None:
    """Return the shape of a tag without single quotes. *between* is the tag split at its double
    quotes, without the quoted parts. Returns None if it is no start tag, if a quote is not around a
    value, or if an attribute occurs twice."""
    example = "".join([f'{part}"{number}"' for number, part in enumerate(between[:-1])])
    example += between[-1]
    name, written = split_name(example)
    attrs = each_attribute(written)
    quoted = tuple([key.lower() for key, double, _, _ in attrs if double])
    others = {key.lower(): value(bare) for key, double, _, bare in attrs if not double}
    if len(quoted) < len(between) - 1 or len({*quoted, *others}) < len(attrs):
        return None
    if example[0] == "/" or not tag_at(example):
        return None
    keys = {*quoted, *others}
    is_read = (
        "href" in keys if name == "a" else name in READ_ELEMENTS or not HIDING.isdisjoint(keys)
    )
    return Shape(name, mark_of(name), is_read, quoted, others, is_self_closing(example))


# A cut is from "<" to the next ">", which nearly always is a tag. What is longer (a comment, a
# script, a tag with a ">" in quotes) blanks the pieces that it covers, each once, so time and
# memory are linear in the page. Those of an HTML5 tree are not: in lexbor 50 kB of
# `<p><b a=1><p><b a=2>...` take 2.9 GB and 14 s, and 170 kB of attributes in one tag 3 s
# (docs/decisions/0011-pages-are-read-by-their-tags.md). Any other "<" is part of the words.
_cut: Final = re.compile(r"<([A-Za-z/!?][^>]*>?)").split
_empty_comment: Final = re.compile(r"!---?>").match
_end_of_cdata: Final = re.compile(r"\]\]>").search
_end_of_comment: Final = re.compile(r"--!?>").search


class TagPieces:
    """A page cut at its tags. A piece is a tag, with its ">", and the words behind it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._cut = _cut(text)  # words, a tag, words, a tag, words
        self.tags = self._cut[1::2]  # empty if blanked
        self.words = self._cut[2::2]  # behind each tag
        self.marks = list(map(marks_of_tags.get, self.tags))  # None if not plain, or not cached
        self._milestone = 0, len(self._cut[0]) + 1  # a piece, and where it begins, behind "<"

    def parts(self) -> list[str]:
        """Return words and the marks of the tags between them, alternating."""
        self._cut[1::2] = self.marks
        self._cut[2::2] = self.words
        return self._cut

    def tag(self, piece: int) -> str:
        """Return the tag that begins at *piece*, wherever it ends; empty if it never ends."""
        found = tag_at(self._text, self._begin(piece))
        self._blank(piece, found)
        if found is None:
            self.tags[piece] = ""
        return found[0] if found else ""

    def comment(self, piece: int) -> None:
        begin = self._begin(piece)
        found = _empty_comment(self._text, begin)
        self._blank(piece, found or _end_of_comment(self._text, begin + len("!--")))

    def cdata(self, piece: int) -> None:
        """Read a CDATA section of XML, which holds only text."""
        begin = self._begin(piece)
        closing = _end_of_cdata(self._text, begin)
        held = self._text[begin + len("![CDATA[") : closing.start() if closing else None]
        self._blank(piece, closing)
        self.words[piece] = held.replace("&", "&amp;") + self.words[piece]

    def raw(self, piece: int, name: str) -> str:
        """Return the text of an element in RAW."""
        if self.tags[piece + 1 : piece + 2] == [f"/{name}>"]:
            held, self.words[piece] = self.words[piece], ""
            return held
        begin = self._begin(piece) + len(self.tags[piece])
        closing = _end_of(name)(self._text, begin)
        self._blank(piece, closing and tag_at(self._text, closing.start() + 1))
        return self._text[begin : closing.start() if closing else None]

    def _begin(self, piece: int) -> int:
        """Return where *piece* begins. Pieces must be passed in ascending order."""
        last, begin = self._milestone
        begin += piece - last + sum(map(len, self._cut[2 * last + 1 : 2 * piece + 1]))
        self._milestone = piece, begin
        return begin

    def _blank(self, piece: int, found: re.Match[str] | None) -> None:
        """Blank the pieces that *found* covers, or the rest of the page if it is None."""
        end = found.end() if found else len(self._text)
        last, begin, cut = piece, self._begin(piece), self._cut
        while (behind := begin + len(cut[2 * last + 1]) + len(cut[2 * last + 2])) < end:
            self.words[last] = ""
            last, begin = last + 1, behind + 1
            self.tags[last] = self.marks[last] = ""
        self.words[last] = self._text[end:behind]
        self._milestone = last + 1, behind + 1


@lru_cache(maxsize=16)
def _end_of(name: str) -> Callable[[str, int], re.Match[str] | None]:
    return re.compile(rf"</{name}[{SPACE}/>]", re.IGNORECASE | re.ASCII).search


# Matches nearly all links, but none with rel.
_link: Final = re.compile(
    r'a(?: (?!href=|rel=)[a-z-]++="[^"]*+")*+ href="([^"]*+)"(?: (?!rel=)[a-z-]++="[^"]*+")*+>'
).fullmatch


class HtmlReader:
    """Reads one page in one pass, by the constructor.

    Nine of ten tags only separate words and are cached for the life of the process. A tag that
    links, hides or declares something is read. Tags are read as by a browser's tokenizer, so broken
    markup gives what a browser shows, except for what needs a tree (docs/decisions/0011).
    """

    def __init__(self, text: str, *, is_xml: bool = False) -> None:
        self.links = LinksFound()
        self.facts = Facts()
        self._is_xml = is_xml
        self._noise = Noise(is_xml=is_xml)
        self._pieces = TagPieces(replace_marks(text))
        self._foreign = _Foreign(self._pieces.tags)
        self._read()
        spans = list(self._noise.spans(self._pieces.tags))
        self.parts = self._pieces.parts()  # words and marks, alternating
        self.noise = [span.parts for span in spans if span.end < len(self._pieces.tags)]

    def _read(self) -> None:
        tags, marks, plain_link = self._pieces.tags, self._pieces.marks, self.links.plain
        for at, mark in enumerate(marks):
            if mark is None:
                tag = tags[at]
                if tag[:2] == "a " and (found := _link(tag)):
                    plain_link(found[1])
                    marks[at] = LINK
                else:
                    marks[at] = self._mark(at, tag)

    def _mark(self, at: int, tag: str) -> str:
        """Read the tag and return its mark."""
        if tag[:3] == "!--":
            if not tag.endswith("-->"):
                self._pieces.comment(at)
            return ""
        if tag[:8] == "![CDATA[":
            if self._is_xml or self._foreign.is_foreign(at):
                self._pieces.cdata(at)
            return ""
        if '"' in tag and "'" not in tag and len(tag) < MAX_CACHED_TAG_CHARS:
            fields = tag.split('"')
            if shape := shape_of(tuple(fields[::2])):
                return self._by_shape(at, tag, fields, shape)
        return self._by_text(at, tag)

    def _by_shape(self, at: int, tag: str, fields: list[str], shape: Shape) -> str:
        if not shape.is_read:
            return remember_mark(tag, shape.mark)
        attrs = dict(zip(shape.quoted, map(value, fields[1::2]), strict=True))
        attrs = attrs | shape.others if shape.others else attrs
        return self._take(at, shape.name, attrs, is_self_closing=shape.is_self_closing)

    def _by_text(self, at: int, tag: str) -> str:
        read = tag_of(tag)
        if read is None:
            tag = self._pieces.tag(at)
            read = tag_of(tag) or NO_TAG
        if not read.is_read:
            return remember_mark(tag, read.mark)
        if tag[0] == "/":
            self._noise.report_end(at, read.name)
            return read.mark
        return self._take(at, read.name, read.attrs, is_self_closing=read.is_self_closing)

    def _take(self, at: int, name: str, attrs: Attributes, *, is_self_closing: bool) -> str:
        is_empty = is_self_closing and (self._is_xml or name in FOREIGN)
        if name == "a":
            if "href" not in attrs:
                return ""
            self.links.a(attrs["href"], attrs.get("rel", ""))
            return "" if is_empty else LINK
        if not is_empty and (name in NOISE_ELEMENTS or not HIDING.isdisjoint(attrs)):
            self._noise.report_start(at, name, attrs)
        if name in LINKING:
            self.links.take(name, attrs)
        if name in DECLARING:
            self.facts.take(name, attrs)
        if name in FOREIGN and not is_empty:
            self._foreign.begins(at)
        elif name in RAW and not is_empty and not self._foreign.is_foreign(at):
            self._raw(at, name, attrs)
        return mark_of(name)

    def _raw(self, at: int, name: str, attrs: Attributes) -> None:
        """Read an element in RAW."""
        held = self._pieces.raw(at, name)
        if name == "title":
            self.facts.take_title(held)
        elif name == "script" and attrs.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self._pieces.words[at] = held.replace("&", "&amp;") + LINE


class _Foreign:
    """Decides which tags are in a drawing or formula, outside of the HTML within it.

    Most pages never need it. A call of `holds` reads the tags since the last call, so each tag is
    read at most once, and tags outside of drawings never.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tags
        self._begins: list[int] = []  # the start tags of drawings and formulas
        self._passed = 0  # the number of these that were passed
        self._open: list[str] = []  # of FOREIGN and HTML_WITHIN, the innermost last
        self._position = 0

    def begins(self, at: int) -> None:
        self._begins.append(at)

    def is_foreign(self, at: int) -> bool:
        """Whether the tag *at* is foreign. Tags must be passed in ascending order."""
        while self._position < at and (self._open or self._passed < len(self._begins)):
            if not self._open:
                self._position = self._begins[self._passed]
            if found := _of_foreign(self._tags[self._position]):
                self._pass(found[2].lower(), is_end=bool(found[1]))
            self._position += 1
        return bool(self._open) and self._open[-1] in FOREIGN

    def _pass(self, name: str, *, is_end: bool) -> None:
        inside = self._open[-1] if self._open else ""
        tag = self._tags[self._position]
        if is_end and name not in ("br", "p"):
            self._close(name)
        elif name in FOREIGN:
            if self._begins[self._passed : self._passed + 1] == [self._position]:
                self._passed += 1
                self._push(name)
        elif name in HTML_WITHIN.get(inside, ()):
            is_html = name != "annotation-xml" or _holds_html(tag)
            if is_html and not is_self_closing(tag):
                self._push(name)
        elif inside in FOREIGN and (name in NEVER_FOREIGN or (name == "font" and _is_font(tag))):
            while self._open and self._open[-1] in FOREIGN:
                self._open.pop()

    def _push(self, name: str) -> None:
        if len(self._open) < _MAX_OPEN:
            self._open.append(name)

    def _close(self, name: str) -> None:
        if name in self._open:
            while self._open.pop() != name:
                pass


_MAX_OPEN: Final = 64  # guess: drawings are not nested; an end tag searches through so many
_of_foreign = re.compile(
    rf"(/?)({'|'.join(sorted(FOREIGN.union(*HTML_WITHIN.values(), NEVER_FOREIGN, ('font',))))})"
    rf"(?=[{SPACE}/>])",
    re.IGNORECASE | re.ASCII,
).match
_is_font = re.compile(rf"[^>]*[{SPACE}/'\"](?:color|face|size)[{SPACE}/>=]", re.IGNORECASE).match
_holds_html = re.compile(
    rf"[^>]*[{SPACE}/'\"]encoding[{SPACE}]*=[{SPACE}]*[\"']?"
    rf"(?:text/html|application/xhtml\+xml)[{SPACE}/>\"']",
    re.IGNORECASE,
).match


# Where markup does not mark the content, prose and what is between prose is kept. Only lengths
# decide, so it works in any language. How it was measured:
# docs/decisions/0014-what-of-a-page-is-its-text.md.

Line = tuple[str, int]
"""The text of a line, and how many letters of it are links."""

# Shorter lines are titles, dates, buttons: about 15 words.
PROSE_CHARS: Final = 100
# Prose of less than a third of the text is more likely what a host repeats on all pages; the page
# is about the rest: a table, a list, a product.
LEAST_PART: Final = 3
_WIDE: Final = "\u2e80"  # from here on (CJK), a letter is a word or half of one
_WIDE_END: Final = "\U00010000"


# The state after the previous line.
_SHORT: Final = 0  # a short line, with links or nothing before it
_LINKS: Final = 1
_LONE: Final = 2  # prose behind links; if links follow, it is the text of a teaser
_PROSE: Final = 3  # prose, or short lines behind it, about which the next longer line decides


def prose(lines: Sequence[Line]) -> list[str] | None:
    """Return the lines of content. Returns None if there is too little prose to decide."""
    kept: list[str] = []
    waiting: list[str] = []
    last = _SHORT
    for line, linked in lines:
        if 2 * linked > len(line):
            waiting = []
            last = _LINKS
        elif len(line) < PROSE_CHARS and not _is_prose(line):
            if last == _LONE:
                kept += waiting
                waiting, last = [line], _PROSE
            elif last == _PROSE:
                waiting.append(line)
            else:
                last = _SHORT
        elif last == _LINKS:
            waiting, last = [line], _LONE
        else:
            kept += waiting
            kept.append(line)
            waiting, last = [], _PROSE
    if last == _LONE:
        kept += waiting
    return kept if _is_enough(kept, lines) else None


def _is_enough(kept: Sequence[str], lines: Sequence[Line]) -> bool:
    return LEAST_PART * sum(map(len, kept)) >= sum([len(line) for line, _ in lines])


def _is_prose(line: str) -> bool:
    """Whether a line that looks too short is prose in a script of wide letters."""
    return 3 * len(line) >= PROSE_CHARS and not line.isascii() and _WIDE <= max(line) < _WIDE_END


# For speed, passes over the whole text run in C, and Python only handles lines.
Spans = Sequence[tuple[int, int]]

_SPACES: Final = "\t\n\r\f\v\xa0"
_SPACE: Final = ord(" ")


def page_text(parts: Sequence[str], noise: Spans) -> str:
    """Return the text of a page: each block is a line, and white space is folded. *parts* are
    alternating words and marks, and *noise* the spans without content. If they leave nothing, all
    parts are used."""
    found = lines(without_spans(parts, noise)) or lines(parts)
    kept = prose(found)
    return fold_spaces("\n".join([line for line, _ in found] if kept is None else kept))


def without_spans(parts: Sequence[str], noise: Spans) -> Sequence[str]:
    if not noise:
        return parts
    kept: list[str] = []
    position = 0
    for begin, end in noise:
        kept += parts[position:begin]
        position = end
    kept += parts[position:]
    return kept


def lines(parts: Sequence[str]) -> list[Line]:
    found: list[Line] = []
    inside = False  # a link
    for marked in filter(None, _joined(parts).split(LINE)):
        plain, linked = marked, 0
        if inside or LINK in marked or LINK_END in marked:
            plain, linked, inside = _replace_marks_of_line(marked, inside)
        if plain := plain.strip(" "):
            found.append((plain, linked))
    return found


def _joined(parts: Sequence[str]) -> str:
    text = "".join(parts)
    if "&" in text:  # a reference ends at a tag, so parts are resolved one by one
        read = list(parts)
        read[::2] = [in_text(words) if "&" in words else words for words in parts[::2]]
        text = "".join(read)
    for space in _SPACES:
        if space in text:
            text = text.replace(space, " ")
    return text


def _replace_marks_of_line(line: str, inside: bool) -> tuple[str, int, bool]:
    """Return the line without marks, how many letters of it are links, and whether it ends in
    one."""
    before, _, more = line.partition(LINK)
    link, end, behind = more.partition(LINK_END)
    if inside or not end or LINK in more or LINK_END in before or LINK_END in behind:
        return _replace_several_marks(line, inside)
    return f"{before}{link}{behind}", len(link), False  # nine lines in ten of those with links


def _replace_several_marks(line: str, inside: bool) -> tuple[str, int, bool]:
    words: list[str] = []
    linked = 0
    for number, piece in enumerate(line.split(LINK)):
        link, end, behind = piece.partition(LINK_END)
        words += (link, behind)
        if inside or number:
            linked += len(link)
            inside = not end
    return "".join(words).replace(LINK_END, ""), linked, inside


def fold_spaces(text: str) -> str:
    """Return *text* with one space in place of several."""
    data = text.encode(errors="replace")
    letters = np.frombuffer(data, np.uint8)
    spaces = letters == _SPACE
    again = spaces[1:] & spaces[:-1]
    if not again.any():
        return text
    kept: bytes = data[:1] + letters[1:][~again].tobytes()
    return kept.decode()


_DECLARATION_WITHIN: Final = 64  # letters; white space before it is an error, yet occurs


class HtmlParser:
    name: Final = "html"
    types: Final = HTML_TYPES
    # This takes 20 ms for prose, and at most 0.2 s for other content; few pages are longer.
    inline_max_bytes: Final = 512 * 1024

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type)
        read = HtmlReader(text, is_xml=_is_xml(source.content_type, text))
        facts, links = read.facts, read.links.first(MAX_LINKS + 1)
        return Parsed(
            parser=self.name,
            title=facts.title,
            text=page_text(read.parts, read.noise),
            links=links[:MAX_LINKS],
            base=facts.base,
            canonical=read.links.canonical,
            language=facts.language,
            robots=facts.robots,
            published=facts.published,
            modified=facts.modified,
            charset=charset,
            notes=(LINKS_CUT,) if len(links) > MAX_LINKS else (),
        )


def _is_xml(content_type: str, text: str) -> bool:
    """Whether the page is served or written as XML, in which every tag may close itself."""
    kind = media_type(content_type.encode("latin-1", "replace"))
    return kind.endswith(("+xml", "/xml")) or text[:_DECLARATION_WITHIN].lstrip().startswith(
        "<?xml"
    )

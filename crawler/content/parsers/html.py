"""HTML: read by its tags, without a tree (docs/decisions/0011).

Rule: markup is never an error; what cannot be read says nothing. Linear in the page.
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

# The grammar of a tag (WHATWG HTML, 13.2.5), and what its attributes and references mean.
#
# Rule: every expression is linear in what it reads, whatever that is: no part of it can be read in
# two ways, and none gives back what it has read.

SPACE: Final = " \t\n\f\r"
"""HTML's white space: what stands around a URL in an attribute is not part of it."""

_WS: Final = r"\t\n\f\r\x20"
_NAME: Final = rf"[^{_WS}/>][^{_WS}/>=]*+"
_IS: Final = rf"[{_WS}]*+=[{_WS}]*+"
_BARE: Final = rf"""(?!["'])[^{_WS}>]*+"""
# A name with "=" has a value: a tag in which a quote never ends does not end either.
_ATTRIBUTE: Final = rf"""{_NAME}(?:{_IS}(?:"[^"]*+"|'[^']*+'|{_BARE})|(?!{_IS}))"""
_TAG: Final = rf"/?[A-Za-z][^{_WS}/>]*+(?:[{_WS}/]++|{_ATTRIBUTE})*+"

tag_at = re.compile(rf"{_TAG}>").match
"""A whole tag, without the "<" before it. Not every ">" ends one: some stand in quotes."""
_last_gap = re.compile(rf"/?[A-Za-z][^{_WS}/>]*+(?:([{_WS}/]++)|{_ATTRIBUTE})*+>").match
_name = re.compile(rf"/?([A-Za-z][^{_WS}/>]*+)").match

each_attribute = re.compile(rf"""({_NAME})(?:{_IS}(?:"([^"]*+)"|'([^']*+)'|({_BARE})))?+""").findall
"""Of each attribute of a tag: its name, and its value in double, single or no quotes."""

# Without its semicolon and before "=" a name is no reference: "&copy=1" is part of a query.
_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))"
).sub
_text_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{0,31}+;?)"
).sub

# No character has a number so long, and beyond 4,300 digits Python refuses to read it.
_LONGEST: Final = 40


def named(tag: str) -> tuple[str, str]:
    """Its name in lower case, and its attributes as written."""
    found = _name(tag)
    return (found[1].lower(), tag[found.end() :]) if found else ("", "")


def is_self_closing(tag: str) -> bool:
    """Whether a whole tag ends in "/>", and the slash is not the end of a bare value."""
    found = _last_gap(tag) if tag.endswith("/>") else None
    return found is not None and found.end(1) == len(tag) - 1


def attributes(written: str) -> dict[str, str]:
    """By name, in lower case. Of two with the same name the first counts."""
    found: dict[str, str] = {}
    for name, double, single, bare in each_attribute(written):
        found.setdefault(name.lower(), value(double or single or bare))
    return found


def value(written: str) -> str:
    """That of an attribute, its references read."""
    return _reference(_meant, written) if "&" in written else written


def in_text(written: str) -> str:
    """Text with its references read."""
    return _text_reference(_meant_in_text, written)


def _meant(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _read(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _meant_in_text(reference: re.Match[str]) -> str:
    return _read(reference[0])


def _read(reference: str) -> str:
    return _unescape(reference) if len(reference) < _LONGEST else "\ufffd"


# A page has the same few again and again.
_unescape = lru_cache(maxsize=4096)(html.unescape)


# Where a page points: the elements that link, and how their attributes are read.
#
# Rule: URLs as written, but for the white space around them. What leads nowhere else (an empty URL,
# a fragment, the data itself) is no link.

# guess: a page of honest use has fewer; one with more is cut, not refused
MAX_LINKS: Final = 20_000

Given = dict[str, str]
_TOLD: Final = frozenset(("canonical", "alternate"))

# WHATWG HTML, 2.6.? "shared declarative refresh steps": seconds, then a URL, quoted or not.
_refresh = re.compile(
    rf"[{SPACE}]*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[{SPACE};,])[{SPACE}]*+[;,]?+[{SPACE}]*+"
    rf"(?:url[{SPACE}]*+=[{SPACE}]*+)?+(?:\"([^\"]*+)|'([^']*+)|(.*+))",
    re.IGNORECASE | re.DOTALL,
).match
_candidate = re.compile(rf"[{SPACE},]*+([^{SPACE}]++)").match
_descriptors = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+").match


class LinksFound:
    """In the order of the page."""

    def __init__(self) -> None:
        self.canonical = ""  # the first, as written
        self._found: list[str | Link] = []
        # Takes the URL of an <a> without rel, its references unread.
        self.plain = self._found.append

    def a(self, url: str, rel: str) -> None:
        url = url.strip(SPACE)
        if url and url[0] != "#":
            self._found.append(Link(url, LinkKind.A, _words(rel)) if rel else Link(url))

    def take(self, name: str, given: Given) -> None:
        for link in LINKING[name](given):
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


def _place(kind: LinkKind, attribute: str) -> Callable[[Given], Iterator[Link]]:
    return lambda given: _to(given.get(attribute), kind, given.get("rel", ""))


def _media(*names: str) -> Callable[[Given], Iterator[Link]]:
    def read(given: Given) -> Iterator[Link]:
        for name in names:
            yield from _to(given.get(name), LinkKind.MEDIA)
        if "srcset" in given:
            for url in srcset(given["srcset"]):
                yield from _to(url, LinkKind.MEDIA)

    return read


def _link_of(given: Given) -> Iterator[Link]:
    """Another style sheet is no other form of the page."""
    words = given.get("rel", "").lower().split()
    if "canonical" in words:
        yield from _to(given.get("href"), LinkKind.CANONICAL, " ".join(words))
    elif "alternate" in words and "stylesheet" not in words:
        yield from _to(given.get("href"), LinkKind.ALTERNATE, " ".join(words))


def _meta(given: Given) -> Iterator[Link]:
    if given.get("http-equiv", "").strip(SPACE).lower() == "refresh":
        yield from _to(refresh(given.get("content", "")), LinkKind.REFRESH)


def _input(given: Given) -> Iterator[Link]:
    if given.get("type", "").strip(SPACE).lower() == "image":
        yield from _to(given.get("src"), LinkKind.MEDIA)


def refresh(content: str) -> str:
    """Where <meta http-equiv=refresh> leads. Empty: nowhere, or to the page itself."""
    found = _refresh(content)
    return next((url for url in found.groups() if url is not None), "") if found else ""


def srcset(written: str) -> Iterator[str]:
    """The URLs of a srcset (WHATWG HTML, "parse a srcset attribute"): a comma may be a part."""
    position = 0
    while found := _candidate(written, position):
        url, position = found[1], found.end()
        if url.endswith(","):
            yield url.rstrip(",")
        else:
            yield url
            described = _descriptors(written, position)
            position = described.end() if described else len(written)


LINKING: Final[dict[str, Callable[[Given], Iterator[Link]]]] = {
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


# What the elements of HTML are to a reader.
#
# Rule: tables only. An element that stands in none begins a line of its own.

INLINE: Final = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "blink", "cite", "code", "data"),
        *("del", "dfn", "em", "font", "i", "ins", "kbd", "label", "mark", "nobr", "q", "rb"),
        *("rp", "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub"),
        *("sup", "time", "tt", "u", "var", "wbr"),
    )
)
"""Their text goes on in the line, and in the word: H<sub>2</sub>O."""

RAW: Final = frozenset(
    (
        *("iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"),
        "plaintext",
    )
)
"""They hold text only: up to their end tag nothing is a tag."""

FOREIGN: Final = frozenset(("svg", "math"))
"""In them the rules of XML hold: a tag may close itself, and no element is RAW."""

HTML_WITHIN: Final = {
    "svg": frozenset(("foreignobject", "desc", "title")),
    "math": frozenset(("mi", "mo", "mn", "ms", "mtext", "annotation-xml")),
}
"""In these of their elements HTML's rules hold again (WHATWG HTML, "integration points")."""

NEVER_FOREIGN: Final = frozenset(
    (
        *("b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em"),
        *("embed", "h1", "h2", "h3", "h4", "h5", "h6", "head", "hr", "i", "img", "li", "listing"),
        *("menu", "meta", "nobr", "ol", "p", "pre", "ruby", "s", "small", "span", "strong"),
        *("strike", "sub", "sup", "table", "tt", "u", "ul", "var"),
    )
)
"""They end a drawing or formula that was not closed (WHATWG HTML, 13.2.6.5)."""

UNSEEN: Final = frozenset(
    (
        *("audio", "canvas", "datalist", "dialog", "math", "noscript", "object", "select", "svg"),
        *("template", "video"),
    )
)
"""What a reader does not see, or not as text."""

AROUND: Final = frozenset(("aside", "footer", "header", "menu", "nav"))
"""What stands around the content, by its name."""

CONTENT: Final = frozenset(("article", "main"))
"""In here a header or footer is a part of the content."""

AROUND_BY_ROLE: Final = frozenset(
    (
        *("alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu"),
        *("menubar", "navigation", "search", "toolbar"),
    )
)

CLOSED: Final = frozenset(
    (
        *("div", "section", "span", "ul", "ol", "dl", "table", "form", "article", "details"),
        *("center", "fieldset", "figure", "blockquote", "main", "p"),
    )
)
"""They end with an end tag, so that a role or `hidden` of theirs has an end."""


# Where on a page stands what its author marked as no content: menus, footers, what is hidden.
#
# Rule: counts the open elements of one name at a time, no tree. What is never closed hides nothing,
# so that a forgotten end tag costs no text.

TELLING: Final = AROUND | CONTENT | UNSEEN
"""Elements whose start tags must be told of here."""
HIDING: Final = frozenset(("hidden", "role"))
"""Attributes that hide an element: one that has them must be told of, too."""
_AS_PARTS: Final = frozenset(("header", "footer"))  # those of an article are a part of it

_hiding = re.compile("role|hidden", re.IGNORECASE).search


def hides(written: str) -> bool:
    """Whether attributes as written may hide their element."""
    return _hiding(written) is not None


class Span(NamedTuple):
    """An element without content, by the numbers of its tags."""

    name: str
    begin: int
    end: int  # as many as there are: it is never closed

    @property
    def parts(self) -> tuple[int, int]:
        """Where it stands among words and tags in turn."""
        return 2 * self.begin + 1, 2 * self.end + 1


# A tag, the name of its element, 1 for a start tag or -1 for an end tag, and whether it hides.
_Told = tuple[int, str, int, bool]


class Noise:
    def __init__(self, *, is_xml: bool) -> None:
        self._told: list[_Told] = []
        self._is_xml = is_xml

    def begins(self, at: int, name: str, given: dict[str, str]) -> None:
        """An element that its own tag does not close."""
        is_hiding = _hides(name, given)
        if is_hiding or name in TELLING:
            self._told.append((at, name, 1, is_hiding))

    def ends(self, at: int, name: str) -> None:
        """One of TELLING."""
        self._told.append((at, name, -1, False))

    def spans(self, tags: Sequence[str]) -> Iterator[Span]:
        """One behind the other. *tags*: all of the page."""
        content = 0  # how many elements are open that hold it
        end = -1
        for number, (at, name, step, is_hiding) in enumerate(self._told):
            if at <= end:
                continue
            if name in CONTENT:
                content = max(content + step, 0)
            if is_hiding and not (content and name in _AS_PARTS):
                end = self._end(number, tags)
                yield Span(name, at, end)

    def _end(self, number: int, tags: Sequence[str]) -> int:
        begin, name, _, _ = self._told[number]
        opened = 0
        steps = self._steps(number) if name in TELLING else self._steps_by_tags(tags, begin, name)
        for at, step in steps:
            opened += step
            if not opened:
                return at
        return len(tags)

    def _steps(self, number: int) -> Iterator[tuple[int, int]]:
        told = self._told
        element = told[number][1]
        for later in range(number, len(told)):
            at, name, step, _ = told[later]
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


def _hides(name: str, given: dict[str, str]) -> bool:
    if name in UNSEEN or name in AROUND:
        return True
    return name in CLOSED and (
        "hidden" in given or given.get("role", "").strip().lower() in AROUND_BY_ROLE
    )


@lru_cache(maxsize=64)
def _step(name: str) -> Callable[[str], re.Match[str] | None]:
    return re.compile(rf"(/?){name}[{SPACE}/>]", re.IGNORECASE | re.ASCII).match


# What a page declares about itself: title, base, language, dates, and words for crawlers.
#
# Rule: of what is said twice the first counts, but words for crawlers count all. What makes no
# sense was not said.

DECLARING: Final = frozenset(("html", "base", "meta"))

_MAX_TITLE_CHARS: Final = 1_000
# The names that state a date, the most telling first.
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
    def __init__(self) -> None:
        self.title = ""
        self.base = ""
        self._language = ""
        self._robots: list[str] = []
        self._said: dict[str, str] = {}

    def take(self, name: str, given: dict[str, str]) -> None:
        if name == "html":
            self._language = self._language or given.get("lang", "") or given.get("xml:lang", "")
        elif name == "meta":
            self._meta(given)
        elif not self.base:
            self.base = given.get("href", "").strip(SPACE)

    def titled(self, text: str) -> None:
        if not self.title:
            self.title = " ".join(in_text(text).split())[:_MAX_TITLE_CHARS]

    def data(self, text: str) -> None:
        """JSON for search engines (schema.org): its dates, without reading it all."""
        for name, date in _date_in_data(text):
            self._said.setdefault(name.lower(), date)

    @property
    def language(self) -> str:
        for told in (self._language, self._said.get("content-language", "")):
            if found := _language(told.strip(SPACE)):
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

    def _meta(self, given: dict[str, str]) -> None:
        content = given.get("content", "")
        for attribute in ("name", "property", "itemprop", "http-equiv"):
            name = given.get(attribute, "").strip(SPACE).lower()
            if name == "robots" and attribute == "name":
                self._robots.append(content)
            elif name in _READ:
                self._said.setdefault(name, content)

    def _date(self, names: tuple[str, ...]) -> float | None:
        if not self._said:
            return None
        dates = (epoch(self._said[name]) for name in names if name in self._said)
        return next((date for date in dates if date is not None), None)


# Marks in the words of a page, between its reader and those who judge its lines.
#
# Rule: characters that no text has; what a page has of them is replaced.

LINE: Final = "\0"  # here a line ends,
LINK: Final = "\1"  # here a link begins,
LINK_END: Final = "\2"  # and here it ends


def unmarked(text: str) -> str:
    return text.replace(LINE, "\ufffd").replace(LINK, " ").replace(LINK_END, " ")


# Tags by their shape: all but what stands in their quotes. A page has thousands of tags, of few
# shapes, and the shape says whether the rest needs to be read.
#
# Rule: what is kept over pages is short, and bounded.

LONGEST: Final = 1_000  # letters of a tag whose shape is kept
LONGEST_KNOWN: Final = 200
MOST_KNOWN: Final = 8_192  # guess: a page has some dozens; all are met again when it is reached
READ: Final = frozenset(("a",)) | LINKING.keys() | DECLARING | TELLING | RAW
"""Elements that say something beyond their text."""


class Tag(NamedTuple):
    name: str
    given: dict[str, str]  # its attributes, for all to read
    mark: str  # what stands for it in the text
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
known: Final[dict[str, str]] = {}
"""Tags as written that only part words, and their marks: those of one page are on many others."""


def remember(tag: str, mark: str) -> str:
    if len(tag) <= LONGEST_KNOWN:
        if len(known) == MOST_KNOWN:
            known.clear()
        known[tag] = mark
    return mark


def mark_of(name: str) -> str:
    return "" if name in INLINE else LINE


def tag_of(tag: str) -> Tag | None:
    """*tag*: up to its first ">". None: it goes on behind that."""
    return _short(tag) if len(tag) <= LONGEST_KNOWN else _tag_of(tag)


def _tag_of(tag: str) -> Tag | None:
    name, written = named(tag)
    if not name:
        return NO_TAG
    if not tag_at(tag):
        return None
    if tag[0] == "/":
        mark = LINK_END if name == "a" else mark_of(name)
        return Tag(name, {}, mark, name in TELLING, is_self_closing=False)
    is_read = name in READ or hides(written)
    given = attributes(written) if is_read else {}
    return Tag(name, given, mark_of(name), is_read, is_self_closing(tag))


_short: Final = lru_cache(maxsize=4096)(_tag_of)


@lru_cache(maxsize=4096)
def shape_of(between: tuple[str, ...]) -> Shape | None:
    """*between*: a tag split at its double quotes, without what stood in them; it has no single
    ones. None: it is no start tag, not every quote is one around a value, or an attribute occurs
    twice."""
    example = "".join([f'{part}"{number}"' for number, part in enumerate(between[:-1])])
    example += between[-1]
    name, written = named(example)
    given = each_attribute(written)
    quoted = tuple([key.lower() for key, double, _, _ in given if double])
    others = {key.lower(): value(bare) for key, double, _, bare in given if not double}
    if len(quoted) < len(between) - 1 or len({*quoted, *others}) < len(given):
        return None
    if example[0] == "/" or not tag_at(example):
        return None
    keys = {*quoted, *others}
    is_read = "href" in keys if name == "a" else name in READ or not HIDING.isdisjoint(keys)
    return Shape(name, mark_of(name), is_read, quoted, others, is_self_closing(example))


# A page cut at its tags: words and tags in turn.
#
# Rule: a cut is from "<" to the next ">", which nearly always is a tag. What is longer (a comment,
# a
# script, a tag with a ">" in quotes) goes over the pieces behind it, which are blank from then on.
# Each is gone over once: time and memory are linear in the page.
# HTML5's tree is not: in lexbor 50 kB of `<p><b a=1><p><b a=2>...` take 2.9 GB and 14 s, and 170 kB
# of attributes in one tag 3 s (docs/decisions/0011-pages-are-read-by-their-tags.md).

# Any other "<" is one of the words.
_cut: Final = re.compile(r"<([A-Za-z/!?][^>]*>?)").split
_empty_comment: Final = re.compile(r"!---?>").match
_end_of_cdata: Final = re.compile(r"\]\]>").search
_end_of_comment: Final = re.compile(r"--!?>").search


class Pieces:
    """A piece is a tag, with its ">", and the words behind it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._cut = _cut(text)  # words, a tag, words, a tag, words
        self.tags = self._cut[1::2]  # empty: gone over
        self.words = self._cut[2::2]  # behind each of them
        self.marks = list(map(known.get, self.tags))  # None: not plain, or not met before
        self._milestone = 0, len(self._cut[0]) + 1  # a piece, and where it begins, behind "<"

    def parts(self) -> list[str]:
        """Words, and the marks of the tags between them, in turn."""
        self._cut[1::2] = self.marks
        self._cut[2::2] = self.words
        return self._cut

    def tag(self, piece: int) -> str:
        """The tag that begins there, wherever it ends. Empty: it never does."""
        found = tag_at(self._text, self._begin(piece))
        self._go_over(piece, found)
        if found is None:
            self.tags[piece] = ""
        return found[0] if found else ""

    def comment(self, piece: int) -> None:
        begin = self._begin(piece)
        found = _empty_comment(self._text, begin)
        self._go_over(piece, found or _end_of_comment(self._text, begin + len("!--")))

    def cdata(self, piece: int) -> None:
        """A section of XML that holds nothing but text."""
        begin = self._begin(piece)
        closing = _end_of_cdata(self._text, begin)
        held = self._text[begin + len("![CDATA[") : closing.start() if closing else None]
        self._go_over(piece, closing)
        self.words[piece] = held.replace("&", "&amp;") + self.words[piece]

    def raw(self, piece: int, name: str) -> str:
        """The text of an element that holds nothing else."""
        if self.tags[piece + 1 : piece + 2] == [f"/{name}>"]:
            held, self.words[piece] = self.words[piece], ""
            return held
        begin = self._begin(piece) + len(self.tags[piece])
        closing = _end_of(name)(self._text, begin)
        self._go_over(piece, closing and tag_at(self._text, closing.start() + 1))
        return self._text[begin : closing.start() if closing else None]

    def _begin(self, piece: int) -> int:
        """To be asked for one behind the other."""
        last, begin = self._milestone
        begin += piece - last + sum(map(len, self._cut[2 * last + 1 : 2 * piece + 1]))
        self._milestone = piece, begin
        return begin

    def _go_over(self, piece: int, found: re.Match[str] | None) -> None:
        """What was *found* to begin there; the rest of the page if that never ends."""
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


# The one pass over a page: its words, and the elements that say something beyond them.
#
# Rule: a tag that only parts words is met once in the life of a process and known from then on
# (nine
# of ten); one that links, hides or declares something is read. As a browser's tokenizer reads, so
# that broken markup gives what a browser would see, but for what only a tree knows
# (docs/decisions/0011).

# As nearly all links are written, and without rel.
_link: Final = re.compile(
    r'a(?: (?!href=|rel=)[a-z-]++="[^"]*+")*+ href="([^"]*+)"(?: (?!rel=)[a-z-]++="[^"]*+")*+>'
).fullmatch


class Reader:
    """Reads one page, at once."""

    def __init__(self, text: str, *, is_xml: bool = False) -> None:
        self.links = LinksFound()
        self.facts = Facts()
        self._is_xml = is_xml
        self._noise = Noise(is_xml=is_xml)
        self._pieces = Pieces(unmarked(text))
        self._foreign = _Foreign(self._pieces.tags)
        self._read()
        spans = list(self._noise.spans(self._pieces.tags))
        self.parts = self._pieces.parts()  # words and marks in turn
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
                    marks[at] = self._meet(at, tag)

    def _meet(self, at: int, tag: str) -> str:
        """What stands for the tag in the text."""
        if tag[:3] == "!--":
            if not tag.endswith("-->"):
                self._pieces.comment(at)
            return ""
        if tag[:8] == "![CDATA[":
            if self._is_xml or self._foreign.holds(at):
                self._pieces.cdata(at)
            return ""
        if '"' in tag and "'" not in tag and len(tag) < LONGEST:
            fields = tag.split('"')
            if shape := shape_of(tuple(fields[::2])):
                return self._by_shape(at, tag, fields, shape)
        return self._by_text(at, tag)

    def _by_shape(self, at: int, tag: str, fields: list[str], shape: Shape) -> str:
        if not shape.is_read:
            return remember(tag, shape.mark)
        given = dict(zip(shape.quoted, map(value, fields[1::2]), strict=True))
        given = given | shape.others if shape.others else given
        return self._take(at, shape.name, given, is_self_closing=shape.is_self_closing)

    def _by_text(self, at: int, tag: str) -> str:
        read = tag_of(tag)
        if read is None:
            tag = self._pieces.tag(at)
            read = tag_of(tag) or NO_TAG
        if not read.is_read:
            return remember(tag, read.mark)
        if tag[0] == "/":
            self._noise.ends(at, read.name)
            return read.mark
        return self._take(at, read.name, read.given, is_self_closing=read.is_self_closing)

    def _take(self, at: int, name: str, given: Given, *, is_self_closing: bool) -> str:
        is_empty = is_self_closing and (self._is_xml or name in FOREIGN)
        if name == "a":
            if "href" not in given:
                return ""
            self.links.a(given["href"], given.get("rel", ""))
            return "" if is_empty else LINK
        if not is_empty and (name in TELLING or not HIDING.isdisjoint(given)):
            self._noise.begins(at, name, given)
        if name in LINKING:
            self.links.take(name, given)
        if name in DECLARING:
            self.facts.take(name, given)
        if name in FOREIGN and not is_empty:
            self._foreign.begins(at)
        elif name in RAW and not is_empty and not self._foreign.holds(at):
            self._raw(at, name, given)
        return mark_of(name)

    def _raw(self, at: int, name: str, given: Given) -> None:
        """An element that holds nothing but text."""
        held = self._pieces.raw(at, name)
        if name == "title":
            self.facts.titled(held)
        elif name == "script" and given.get("type", "").endswith("ld+json"):
            self.facts.data(held)
        elif name in ("xmp", "plaintext"):
            self._pieces.words[at] = held.replace("&", "&amp;") + LINE


class _Foreign:
    """Which tags stand in a drawing or formula, outside of the HTML in it.

    Most pages need no answer. Where one is asked for, the tags since the last question are gone
    over, each once in the life of a page, and those outside of drawings not at all.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        self._tags = tags
        self._begins: list[int] = []  # the start tags of drawings and formulas
        self._met = 0  # of those
        self._open: list[str] = []  # of FOREIGN and HTML_WITHIN, the innermost last
        self._position = 0

    def begins(self, at: int) -> None:
        self._begins.append(at)

    def holds(self, at: int) -> bool:
        """Whether the tag *at* is foreign. To be asked for one behind the other."""
        while self._position < at and (self._open or self._met < len(self._begins)):
            if not self._open:
                self._position = self._begins[self._met]
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
            if self._begins[self._met : self._met + 1] == [self._position]:
                self._met += 1
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


_MAX_OPEN: Final = 64  # guess: nobody nests drawings; an end tag looks through as many
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


# Which lines of a page are its content, where its markup does not say so: the prose, and what
# stands between prose.
#
# Rule: by lengths only, so in any language. What it decides and how that was measured:
# docs/decisions/0014-what-of-a-page-is-its-text.md.

Line = tuple[str, int]
"""Its text, and how many letters of it are links."""

# Shorter lines are titles, dates, buttons: about 15 words.
PROSE_CHARS: Final = 100
# Where prose is less than this part of the text, it is more likely what the operator of a host
# writes on all pages than what this page is about: a table, a list, a product.
LEAST_PART: Final = 3
_WIDE: Final = "\u2e80"  # from here on, a letter is a word or half of one
_WIDE_END: Final = "\U00010000"


# What the line before was.
_SHORT: Final = 0  # with no prose before it, but links or nothing
_LINKS: Final = 1
_LONE: Final = 2  # prose behind links: if links follow it is the text of a teaser
_PROSE: Final = 3  # or short lines behind prose: the next longer one decides about them


def prose(lines: Sequence[Line]) -> list[str] | None:
    """What is left of *lines*. None: there is too little prose to tell by."""
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
    """Of a line that looks too short."""
    return 3 * len(line) >= PROSE_CHARS and not line.isascii() and _WIDE <= max(line) < _WIDE_END


# The words of a page as lines of text: each block is a line, white space is folded.
#
# Rule: passes over the whole text are in C, and only lines are looked at in Python. A page of which
# nothing would be left keeps all it has.

Spans = Sequence[tuple[int, int]]

_SPACES: Final = "\t\n\r\f\v\xa0"
_SPACE: Final = ord(" ")


def page_text(parts: Sequence[str], noise: Spans) -> str:
    """*parts*: words and marks in turn; *noise*: where in them there is no content."""
    found = lines(without(parts, noise)) or lines(parts)
    kept = prose(found)
    return folded("\n".join([line for line, _ in found] if kept is None else kept))


def without(parts: Sequence[str], noise: Spans) -> Sequence[str]:
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
            plain, linked, inside = _unmarked(marked, inside)
        if plain := plain.strip(" "):
            found.append((plain, linked))
    return found


def _joined(parts: Sequence[str]) -> str:
    text = "".join(parts)
    if "&" in text:  # a reference does not go on behind a tag
        read = list(parts)
        read[::2] = [in_text(words) if "&" in words else words for words in parts[::2]]
        text = "".join(read)
    for space in _SPACES:
        if space in text:
            text = text.replace(space, " ")
    return text


def _unmarked(line: str, inside: bool) -> tuple[str, int, bool]:
    """Also: how many letters of it are links, and whether it ends in one."""
    before, _, more = line.partition(LINK)
    link, end, behind = more.partition(LINK_END)
    if inside or not end or LINK in more or LINK_END in before or LINK_END in behind:
        return _of_several(line, inside)
    return f"{before}{link}{behind}", len(link), False  # nine lines in ten of those with links


def _of_several(line: str, inside: bool) -> tuple[str, int, bool]:
    words: list[str] = []
    linked = 0
    for number, piece in enumerate(line.split(LINK)):
        link, end, behind = piece.partition(LINK_END)
        words += (link, behind)
        if inside or number:
            linked += len(link)
            inside = not end
    return "".join(words).replace(LINK_END, ""), linked, inside


def folded(text: str) -> str:
    """With one space where there are several."""
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
    # 20 ms of prose, and 0.2 s of whatever else; few pages are longer.
    inline_max_bytes: Final = 512 * 1024

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type)
        read = Reader(text, is_xml=_is_xml(source.content_type, text))
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
    """As XML a page may be served or written; there every tag may close itself."""
    kind = media_type(content_type.encode("latin-1", "replace"))
    return kind.endswith(("+xml", "/xml")) or text[:_DECLARATION_WITHIN].lstrip().startswith(
        "<?xml"
    )

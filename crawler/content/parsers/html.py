"""Parses HTML: reads what `html_scan` found in one pass over the page (docs/decisions/0011).

Rule: no markup raises an error; what cannot be read is ignored. Time and memory are linear in the
page.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from html.entities import html5
from itertools import islice
from typing import Final

from msgspec.structs import replace

from crawler.content.parsers.css import css_links
from crawler.content.parsers.dates import epoch
from crawler.content.parsers.loading import LINKS_CUT
from crawler.model.choices import ColumnGroup
from crawler.model.page import NOTHING_SAID, About, Link, LinkKind, Parsed, Source
from crawler.page.encodings import UTF_8, encode_query, read_text
from crawler.page.links import MAX_LANGUAGE_CHARS, SPACE, refresh, robots_words
from crawler.page.media_type import HTML_TYPES, RSL, media_type

# A name without semicolon before "=" is no reference: "&copy=1" is part of a query.
_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]*+(?:;|(?!=)))"
).sub
_text_reference = re.compile(
    r"&(?:#[0-9]++;?|#[xX][0-9a-fA-F]++;?|[A-Za-z][A-Za-z0-9]{0,31}+;?)"
).sub

# No character has so long a number, and Python refuses to read more than 4,300 digits.
_LONGEST: Final = 40


def value(written: str) -> str:
    """Return an attribute's value with its references resolved."""
    return _reference(_resolved, written) if "&" in written else written


def in_text(written: str) -> str:
    """Return text with its references resolved."""
    return _text_reference(lambda reference: _character(reference[0]), written)


def _resolved(reference: re.Match[str]) -> str:
    name = reference[0][1:]
    return _character(reference[0]) if name[0] == "#" else html5.get(name, reference[0])


def _character(reference: str) -> str:
    return _unescape(reference) if len(reference) < _LONGEST else "\ufffd"


# A page repeats the same few references.
_unescape = lru_cache(maxsize=4096)(html.unescape)


# Links are URLs as written, without white space around them. An empty URL, a fragment and a data:
# URL are no links.

# guess: a page of honest use has fewer; one with more is cut, not refused
MAX_LINKS: Final = 20_000

Attributes = dict[str, str]

_candidate = re.compile(rf"[{SPACE},]*+([^{SPACE}]++)").match
_descriptors = re.compile(r"(?:[^,(]++|\([^)]*+\)?)*+").match


def _to(url: str | None, kind: LinkKind, rel: str = "", language: str = "") -> Iterator[Link]:
    url = url.strip(SPACE) if url else ""
    if url and url[0] != "#" and url[:5].lower() != "data:":
        yield Link(url, kind, _words(rel), language=language.strip(SPACE)[:MAX_LANGUAGE_CHARS])


def _words(rel: str) -> str:
    return " ".join(rel.lower().split())


def _place(kind: LinkKind, attribute: str) -> Callable[[Attributes], Iterator[Link]]:
    return lambda attrs: _to(attrs.get(attribute), kind, attrs.get("rel", ""))


def _places(**kinds: LinkKind) -> Callable[[Attributes], Iterator[Link]]:
    def read(attrs: Attributes) -> Iterator[Link]:
        for name, kind in kinds.items():
            yield from _to(attrs.get(name), kind)
        for url in srcset(attrs.get("srcset", "")):
            yield from _to(url, LinkKind.IMAGE)
        yield from _late(attrs, kinds.get("src", LinkKind.MEDIA))

    return read


# guess: scripts fill in the rest of a template, and other words than URLs stand in such places
_IMAGE_END: Final = r"\.(?:avif|bmp|gif|ico|jpe?g|png|svg|webp)(?:[?#]|$)"
_may_be_late = re.compile(rf"(?=[^{{}}<>]*$)[^/]*(?:/|\?\w+=|{_IMAGE_END})", re.IGNORECASE).match
_names_image = re.compile(rf"(?=[^{{}}<>]*$)[^?#]*{_IMAGE_END}", re.IGNORECASE).match


def _late(attrs: Attributes, kind: LinkKind) -> Iterator[Link]:
    """Yield the links that scripts are to load when a reader comes near: of the attributes that are
    read, those with such names."""
    for name, written in attrs.items():
        if name.startswith(("data-", "nitro-")):
            if name.endswith("set"):
                yield from _late_set(written)
            elif _may_be_late(written.strip(SPACE)):
                yield from _to(written, LinkKind.IMAGE if name == "data-poster" else kind)


def _late_set(written: str) -> Iterator[Link]:
    for url in srcset(written):
        if _may_be_late(url):
            yield from _to(url, LinkKind.IMAGE)


def _late_background(written: str) -> Iterator[Link]:
    """Yield the links of an attribute of which a script makes a background: a URL, several as in a
    srcset, or a style."""
    return css_links(written) if "url(" in written.lower() else _late_set(written)


def _drawn(attrs: Attributes) -> Iterator[Link]:
    """Yield the link of <image> or <use> in a drawing."""
    for name in ("href", "xlink:href", "src"):
        yield from _to(attrs.get(name), LinkKind.IMAGE)


_BY_REL: Final = {
    "stylesheet": LinkKind.STYLE,
    "icon": LinkKind.IMAGE,
    "apple-touch-icon": LinkKind.IMAGE,
    "apple-touch-icon-precomposed": LinkKind.IMAGE,
    "mask-icon": LinkKind.IMAGE,
    "modulepreload": LinkKind.SCRIPT,
    "manifest": LinkKind.MANIFEST,
    "canonical": LinkKind.CANONICAL,
    "alternate": LinkKind.ALTERNATE,
}
_BY_AS: Final = {
    "style": LinkKind.STYLE,
    "script": LinkKind.SCRIPT,
    "image": LinkKind.IMAGE,
    "font": LinkKind.FONT,
}


def _link_of(attrs: Attributes) -> Iterator[Link]:
    """Yield the link of <link>, if it is of a known kind; that of an alternate style sheet is a
    style."""
    words = attrs.get("rel", "").lower().split()
    kind = next((kind for word, kind in _BY_REL.items() if word in words), None)
    if kind is None and "preload" in words:
        kind = _BY_AS.get(attrs.get("as", "").strip(SPACE).lower())
    if kind is not None:
        yield from _to(attrs.get("href"), kind, " ".join(words), attrs.get("hreflang", ""))
    for url in srcset(attrs.get("imagesrcset", "")):
        yield from _to(url, LinkKind.IMAGE)


# The pictures by which others show a page.
_PREVIEWS: Final = frozenset(
    (
        *("og:image", "og:image:url", "og:image:secure_url", "twitter:image", "twitter:image:src"),
        *("image", "thumbnailurl", "msapplication-tileimage"),
    )
)


def _meta(attrs: Attributes) -> Iterator[Link]:
    if attrs.get("http-equiv", "").strip(SPACE).lower() == "refresh":
        yield from _to(refresh(attrs.get("content", "")), LinkKind.REFRESH)
    for attribute in ("property", "name", "itemprop"):
        if attrs.get(attribute, "").strip(SPACE).lower() in _PREVIEWS:
            yield from _to(attrs.get("content"), LinkKind.IMAGE)


def _frame(attrs: Attributes) -> Iterator[Link]:
    yield from _to(attrs.get("src"), LinkKind.IFRAME)
    yield from _late(attrs, LinkKind.IFRAME)


def _input(attrs: Attributes) -> Iterator[Link]:
    if attrs.get("type", "").strip(SPACE).lower() == "image":
        yield from _to(attrs.get("src"), LinkKind.IMAGE)


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
    "a": _place(LinkKind.A, "href"),
    "area": _place(LinkKind.AREA, "href"),
    "frame": _place(LinkKind.FRAME, "src"),
    "iframe": _frame,
    "link": _link_of,
    "meta": _meta,
    "script": _place(LinkKind.SCRIPT, "src"),
    "img": _places(src=LinkKind.IMAGE),
    "amp-img": _places(src=LinkKind.IMAGE),
    "image": _drawn,
    "use": _drawn,
    "source": _places(src=LinkKind.MEDIA),
    "video": _places(src=LinkKind.MEDIA, poster=LinkKind.IMAGE),
    "audio": _places(src=LinkKind.MEDIA),
    "track": _places(src=LinkKind.MEDIA),
    "embed": _places(src=LinkKind.MEDIA),
    "object": _places(data=LinkKind.MEDIA),
    "input": _input,
}


DECLARING: Final = frozenset(("html", "base", "meta"))

_MAX_CHARS: Final = 1_000  # of a title, and of each thing that the page says of itself
_MAX_SAID_CHARS: Final = 10_000  # with the white space
# The names that state a date, the most specific first.
_PUBLISHED: Final = (
    *("article:published_time", "datepublished", "dc.date.issued", "dcterms.issued"),
    *("dcterms.created", "dc.date", "dcterms.date", "date"),
)
_MODIFIED: Final = (
    *("article:modified_time", "og:updated_time", "datemodified", "dcterms.modified"),
    *("dc.date.modified", "last-modified"),
)
_AUTHOR: Final = ("author", "article:author", "dc.creator", "dcterms.creator")
_DESCRIPTION: Final = ("description", "og:description", "dc.description", "twitter:description")
_SITE_NAME: Final = ("og:site_name", "application-name", "publisher", "dc.publisher")
_LICENCE: Final = ("license", "dcterms.license", "dc.rights.license", "dc.rights", "dcterms.rights")
_READ: Final = frozenset(
    (
        *(*_PUBLISHED, *_MODIFIED, *_AUTHOR, *_DESCRIPTION, *_SITE_NAME, *_LICENCE),
        "content-language",
        "tdm-reservation",
    )
)
_language = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}").match
# The first string of a name; of an object or list behind it that of `name`, `url` or `@id`.
_said_in_data = re.compile(
    r'"(author|license)"\s{0,9}:\s{0,9}(?:"((?:[^"\\]|\\.){1,500})"'
    r'|[\[{][^\]}]{0,300}?"(?:name|url|@id)"\s{0,9}:\s{0,9}"((?:[^"\\]|\\.){1,500})")'
).finditer
_COMMONS: Final = "creativecommons.org/"
_date_in_data = re.compile(r'"(datePublished|dateModified)"\s{0,9}:\s{0,9}"([^"]{4,40})"').findall


class Facts:
    """The declarations of a page: title, base, language, dates, and directives for crawlers.

    The first of repeated declarations counts, but all words for crawlers. Invalid ones are ignored.
    """

    def __init__(self) -> None:
        self.title = ""
        self.base = ""
        self._has_base = False  # it may be empty, too: the page's own URL
        self._language = ""
        self.rsl = ""
        self._robots: list[str] = []
        self._declared: dict[str, str] = {}
        self._in_data: dict[str, str] = {}  # of JSON for search engines

    def take(self, name: str, attrs: dict[str, str]) -> None:
        if name == "html":
            self._language = self._language or attrs.get("lang", "") or attrs.get("xml:lang", "")
        elif name == "meta":
            self._meta(attrs)
        elif "href" in attrs and not self._has_base:
            self.base, self._has_base = attrs["href"].strip(SPACE), True

    def take_licence(self, attrs: dict[str, str]) -> None:
        if "license" in attrs.get("rel", "").lower().split():
            self._declared.setdefault(_LICENCE[0], attrs.get("href", ""))

    def take_rsl(self, attrs: dict[str, str]) -> None:
        """Take the URL of a <link> of RSL's type."""
        if "license" in attrs.get("rel", "").lower().split() and not self.rsl:
            self.rsl = attrs.get("href", "").strip(SPACE)

    def take_title(self, text: str) -> None:
        if not self.title:
            self.title = " ".join(in_text(text).split())[:_MAX_CHARS]

    def data(self, text: str, *, is_about: bool) -> None:
        """Take the dates from JSON for search engines (schema.org), without parsing it, and if
        *is_about* the author and the licence."""
        for name, date in _date_in_data(text):
            self._declared.setdefault(name.lower(), date)
        for found in _said_in_data(text) if is_about else ():
            written = (found[2] or found[3]).replace("\n", " ")
            try:
                said = str(json.loads(f'"{written}"', strict=False))
            except ValueError:
                continue
            # Half of a surrogate pair may be written so.
            self._in_data.setdefault(found[1], said.encode(errors="replace").decode())

    def about(self, links: list[Link], headlines: list[str]) -> About:
        """Return what the page says of itself. *links* are those of the page, *headlines* the texts
        of its first <h1>."""
        declared, data = self._declared, self._in_data
        licences = [link.url for link in links if link.rel and "license" in link.rel.split()]
        licence = licences[0] if licences else _first(declared, _LICENCE) or data.get("license", "")
        if not licence:
            commons = [link.url for link in links if _COMMONS in link.url]
            licence = next((url for url in commons if "/licenses" in url), "")
        about = (
            _first(declared, _AUTHOR) or data.get("author", ""),
            _first(declared, _DESCRIPTION),
            _first(declared, _SITE_NAME),
            licence,
            ", ".join(self._robots),
            next(filter(None, headlines), ""),
        )
        if not any(about):
            return NOTHING_SAID
        return About(
            *[said and " ".join(said[:_MAX_SAID_CHARS].split())[:_MAX_CHARS] for said in about]
        )

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
    def tdm(self) -> str:
        return self._declared.get("tdm-reservation", "").strip(SPACE)[:_MAX_CHARS]

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


def _first(declared: dict[str, str], names: tuple[str, ...]) -> str:
    """Return the first of *names* that is declared and is not empty."""
    if not declared:
        return ""
    return next((said for name in names if (said := declared.get(name, "").strip(SPACE))), "")


class ScannedPage:
    """A page that was scanned: its links and facts as written, and its text, once."""

    def __init__(
        self,
        text: str,
        *,
        is_xml: bool = False,
        asked: frozenset[ColumnGroup] = frozenset(),
    ) -> None:
        from crawler.content.parsers import html_scan  # noqa: PLC0415  # it imports numba: 0.4 s

        self._scan = html_scan
        self._page = text.replace("\0", "\ufffd").encode(errors="replace")
        self._out, self._end, numbers, self._tags = html_scan.scanned_with_tags(
            self._page, is_xml, MAX_LINKS, has_tags=ColumnGroup.MARKDOWN in asked
        )
        self._is_ascii = len(self._page) == len(text)
        self._text = text if self._is_ascii else ""
        self.canonical = ""  # the first, as written
        self.facts = Facts()
        self.links: list[Link] = []
        self._is_about = ColumnGroup.ABOUT in asked
        self._has_markdown = ColumnGroup.MARKDOWN in asked
        self._headlines: list[str] = []
        self._next_text = _no_text
        if ColumnGroup.ANCHORS in asked:
            self._next_text = partial(next, iter(html_scan.link_texts(self._out, self._end)), "")
        self._read(numbers)

    def text(self) -> str:
        """Return the lines of content."""
        return self._scan.content(self._out, self._end, is_all=False)

    def content(self) -> tuple[str, float, str]:
        """Return the lines of content, which share of them is in links, and, if asked for, the same
        lines as Markdown."""
        text, share, lines, sees_all = self._scan.chosen_lines(self._out, self._end)
        if not self._has_markdown:
            return text, share, ""
        from crawler.content.parsers.html_markdown import markdown  # noqa: PLC0415  # as above

        page = self._scan.readable(self._page)
        said = markdown(page, self._out, self._end, self._tags, lines, sees_all=sees_all)
        return text, share, said

    def about(self) -> About:
        return self.facts.about(self.links, self._headlines)

    def whole_text(self) -> str:
        """Return all lines, also of what the author marked as no content."""
        return self._scan.content(self._out, self._end, is_all=True)

    def _cut(self, begin: int, end: int) -> str:
        if self._is_ascii:
            return self._text[begin:end]
        return self._page[begin:end].decode()

    def _read(self, numbers: list[int]) -> None:
        scan, cut, text, add = self._scan, self._cut, self._text, self.links.append
        link_row, next_text, a_link = scan.LINK, self._next_text, LinkKind.A
        each = iter(numbers)
        rows = zip(each, each, each, each, strict=True)
        for what, one, two, three in rows:
            if what == link_row:
                url = text[one:two] if text else cut(one, two)
                said = next_text()
                if not three or ((url := value(url).strip(SPACE)) and url[0] != "#"):
                    add(Link(url, a_link, "", None, None, said) if said else Link(url))
            elif what == scan.IMAGE:
                url = cut(one, two)
                self.links += _to(value(url) if three else url, LinkKind.IMAGE)
            elif what == scan.TAG:
                self._take(scan.ELEMENTS[one], islice(rows, two), is_mute=bool(three))
            elif what == scan.TITLE:
                self.facts.take_title(cut(one, two))
            elif what == scan.HEADLINE:
                if self._is_about:
                    self._headlines.append(scan.headline(self._out, one, two))
            elif what == scan.SHEET:
                self._add_styles(css_links(cut(one, two)))
            elif what == scan.STYLE:
                self._add_styles(css_links(value(cut(one, two))))
            elif what == scan.BACKGROUND and three == scan.LATE:
                self._add_styles(_late_background(value(cut(one, two))))
            elif what == scan.BACKGROUND and three:
                url = value(cut(one, two)).strip(SPACE)
                self.links += _to(url if _names_image(url) else "", LinkKind.IMAGE)
            elif what == scan.BACKGROUND:
                self.links += _to(value(cut(one, two)), LinkKind.IMAGE)
            else:
                self.facts.data(cut(one, two), is_about=self._is_about)

    def _add_styles(self, links: Iterator[Link]) -> None:
        self.links += islice(links, max(0, MAX_LINKS + 1 - len(self.links)))

    def _take(self, name: str, rows: Iterable[tuple[int, int, int, int]], *, is_mute: bool) -> None:
        attrs = {
            self._scan.ATTRIBUTES[number]: value(self._cut(begin, end))
            for _, number, begin, end in rows
        }
        said = self._next_text() if name == "a" else ""
        if name in LINKING:
            for link in LINKING[name](attrs):
                self.links.append(replace(link, text=said) if said else link)
                if link.kind is LinkKind.CANONICAL and not is_mute:
                    self.canonical = self.canonical or link.url
        if name in DECLARING and not is_mute:
            self.facts.take(name, attrs)
        elif name == "link" and not is_mute:
            if self._is_about:
                self.facts.take_licence(attrs)
            if "type" in attrs and attrs["type"].strip(SPACE).lower() == RSL:
                self.facts.take_rsl(attrs)


def _no_text() -> str:
    return ""


_DECLARATION_WITHIN: Final = 64  # letters; white space before it is an error, yet occurs


class HtmlParser:
    name: Final = "html"
    types: Final = HTML_TYPES
    # This takes 2 ms, and 10 for hostile content; few pages are longer. Without numba 1 s.
    inline_max_bytes: Final = 512 * 1024

    def parse(self, source: Source) -> Parsed:
        text, charset = read_text(source.body, source.content_type)
        asked = source.asked
        page = ScannedPage(text, is_xml=_is_xml(source.content_type, text), asked=asked)
        facts = page.facts
        content, link_share, markdown = page.content()
        return Parsed(
            parser=self.name,
            title=facts.title,
            text=content,
            links=_in_charset(page.links[:MAX_LINKS], charset),
            base=facts.base,
            canonical=encode_query(page.canonical, charset),
            language=facts.language,
            robots=facts.robots,
            tdm=facts.tdm,
            rsl=facts.rsl,
            published=facts.published,
            modified=facts.modified,
            charset=charset,
            notes=(LINKS_CUT,) if len(page.links) > MAX_LINKS else (),
            about=page.about() if ColumnGroup.ABOUT in asked else NOTHING_SAID,
            link_share=link_share if ColumnGroup.QUALITY in asked else None,
            markdown=markdown,
        )


def _in_charset(links: list[Link], charset: str) -> tuple[Link, ...]:
    """Return *links* with their queries as a browser sends them for a page in *charset*."""
    if charset == UTF_8:
        return tuple(links)
    return tuple(
        link if link.url.isascii() else replace(link, url=encode_query(link.url, charset))
        for link in links
    )


def _is_xml(content_type: str, text: str) -> bool:
    """Whether the page is served or written as XML, in which every tag may close itself."""
    kind = media_type(content_type.encode("latin-1", "replace"))
    return kind.endswith(("+xml", "/xml")) or text[:_DECLARATION_WITHIN].lstrip().startswith(
        "<?xml"
    )

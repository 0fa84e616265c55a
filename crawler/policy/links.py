"""Which links of a page are followed, and which words its author has for crawlers.

Rule: pure; what a page says and what its headers say count alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from crawler.config.settings import LinkSettings
from crawler.model.page import (
    ColumnsRow,
    Link,
    LinkKind,
    Page,
    Parsed,
)
from crawler.model.url import fetch_form, split

_UNFOLLOWED: Final = frozenset({"nofollow", "ugc", "sponsored"})


def robots_words(values: Iterable[str]) -> frozenset[str]:
    """The words of robots meta tags or X-Robots-Tag headers. `none` is both of them."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return frozenset(words | {"nofollow", "noindex"} if "none" in words else words)


def robots_header(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """What X-Robots-Tag says to everybody (a value "bot: word" speaks to another)."""
    return robots_words(
        value.decode("latin-1") for name, value in headers if name.lower() == b"x-robots-tag"
    )


def with_headers(parsed: Parsed, links: Sequence[Link], words: frozenset[str]) -> Parsed:
    """*parsed*, and what the headers of its answer say. The page's own canonical counts first."""
    told = (link.url for link in links if link.kind is LinkKind.CANONICAL)
    return replace(
        parsed,
        links=(*parsed.links, *links),
        canonical=parsed.canonical or next(told, ""),
        robots=parsed.robots | words,
    )


def followed(
    links: Iterable[Link], robots: frozenset[str], rules: LinkSettings
) -> tuple[Link, ...]:
    """Those that the settings and the author of their page leave to be followed. *robots*: words
    of the page for crawlers."""
    if rules.respect_nofollow and "nofollow" in robots:
        return ()
    kinds = frozenset(rules.follow_kinds)
    return tuple(
        link
        for link in links
        if link.kind in kinds
        and not (
            link.rel and rules.respect_nofollow and not _UNFOLLOWED.isdisjoint(link.rel.split())
        )
    )


# Link headers (RFC 8288): the canonical form of what was answered, and its other forms.
#
# Rule: pure; whatever a server sends, time and memory are linear in it, and it has an end.

KINDS: Final = {"canonical": LinkKind.CANONICAL, "alternate": LinkKind.ALTERNATE}
# guess: a page in a hundred languages names each of them; headers are 64 KiB at most anyway
MAX_LINKS: Final = 200

_QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"?'
# Always found, so that no comma is passed over twice.
_next_link = re.compile(r"[\s,]*+(?:<([^>]*+)>)?+").match
_next_parameter = re.compile(
    rf"\s*+;\s*+(?:([^\s;,=]++)\s*+(?:=\s*+(?:{_QUOTED}|([^\s;,]*+)))?+)?+", re.DOTALL
).match
# Up to the comma after a link that could not be read; one in quotes is none.
_rest = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+"?)*+', re.DOTALL).match
_escaped = re.compile(r"\\(.)", re.DOTALL).sub


def link_headers(headers: Sequence[tuple[bytes, bytes]]) -> list[Link]:
    """The links of all Link headers that say canonical or alternate, as written, in their order."""
    found: list[Link] = []
    for name, value in headers:
        if name.lower() == b"link":
            for link in _links(_text(value)):
                if len(found) == MAX_LINKS:
                    return found
                found.append(link)
    return found


def _text(value: bytes) -> str:
    """A header is Latin-1; servers write UTF-8 into it, unescaped."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _links(value: str) -> Iterator[Link]:
    position, last = 0, value.rfind(">")  # behind that, a bracket closes no more
    while position <= last and (found := _next_link(value, position)):
        given, position = _parameters(value, found.end())
        yield from _link((found[1] or "").strip(), given)
        skipped = _rest(value, position)
        position = (skipped.end() if skipped else position) + 1


def _parameters(value: str, position: int) -> tuple[dict[str, str], int]:
    """By name, in lower case. Of two with the same name the first counts."""
    given: dict[str, str] = {}
    while found := _next_parameter(value, position):
        position = found.end()
        name, quoted, bare = found.groups()
        if name:
            meant = bare or "" if quoted is None else _escaped(r"\1", quoted)
            given.setdefault(name.lower(), meant)
    return given, position


def _link(target: str, given: dict[str, str]) -> Iterator[Link]:
    """One of each kind at most. With an anchor it is about something else than this answer."""
    words = given.get("rel", "").lower().split()
    if not target or "anchor" in given or "stylesheet" in words:
        return
    for word, kind in KINDS.items():
        if word in words:
            yield Link(target, kind, " ".join(words))


# The row of a page in the columns: the same of one just fetched and of one read from its archive.
#
# Rule: pure. An exact copy says nothing of its own but where it was found: its text and links are
# in
# the row of its original, and its record in the archive need not hold its bytes.

MOST: Final = 10_000
"""Links of a page that are kept with it; those with more are lists by machines. They take 15 ms."""

BASE_CHARS: Final = 4_000_000
"""What their base may add to them, all together: one of 2,000 characters would make the links of
100 KB of HTML 20 MB, of each page that is under way."""

_NOTHING: Final = Parsed()


def row_of(page: Page, fetched_at: float) -> ColumnsRow | None:
    """*fetched_at*: epoch seconds, when its fetch began. None: it is no page."""
    return described(page, fetched_at) if is_row(page) else None


def is_row(page: Page) -> bool:
    return page.is_answered and not page.flaw


def described(page: Page, fetched_at: float) -> ColumnsRow:
    """As `row_of`, of any answer."""
    is_elsewhere = page.is_copy or page.is_again
    parsed = _NOTHING if is_elsewhere else page.parsed or _NOTHING
    original, bits = _original(page)
    return ColumnsRow(
        url=page.url,
        host=split(page.url).hostname,
        fetched_at=fetched_at,
        status=page.status,
        media_type=page.media_type,
        language=parsed.language,
        title="" if is_elsewhere else page.title,
        text="" if is_elsewhere else page.text,
        links=len(parsed.links),
        canonical=_canonical(page.url, parsed),
        published=parsed.published,
        modified=parsed.modified,
        digest=page.digest,
        simhash=None if is_elsewhere else page.simhash,
        original=original,
        bits=bits,
        may_repeat=page.may_repeat and not is_elsewhere,
    )


def base_of(url: str, parsed: Parsed) -> str:
    """What the links of the page at *url* are relative to."""
    return (fetch_form(parsed.base, url) if parsed.base else None) or url


def most_kept(base: str) -> int:
    """So many of the first links of a page are kept with it."""
    return min(MOST, BASE_CHARS // len(base))


def resolved(links: Sequence[Link], base: str) -> tuple[list[Link], list[Link]]:
    """Those that lead to http(s), with absolute URLs, in their order, each once of a kind; and
    the others."""
    found: dict[tuple[str, LinkKind], Link] = {}
    others = []
    for link in links:
        url = fetch_form(link.url, base)
        if url is None:
            others.append(link)
        elif (url, link.kind) not in found:
            found[url, link.kind] = Link(url, link.kind, link.rel, link.modified, link.priority)
    return list(found.values()), others


def _original(page: Page) -> tuple[str, int | None]:
    """Its URL, and by how many bits it differs."""
    # A page with the bytes of an error page is no copy: that one has no row.
    if (page.is_copy or page.is_again) and page.duplicate_of is not None:
        return page.duplicate_of.url, None
    if page.near is not None:
        return page.near.original.url, page.near.bits
    if page.alias_of:
        return page.alias_of, None
    return "", None


def _canonical(url: str, parsed: Parsed) -> str:
    written = parsed.canonical
    return (fetch_form(written, base_of(url, parsed)) or "") if written else ""

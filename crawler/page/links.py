"""A page's links and directives for crawlers.

Rule: pure; what a page declares and what its headers declare count alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from crawler.model.page import (
    Link,
    LinkKind,
    Parsed,
)
from crawler.model.url import base_form, fetch_form, fetch_forms


def robots_words(values: Iterable[str]) -> frozenset[str]:
    """Return the directives of robots meta tags or X-Robots-Tag headers; `none` adds both."""
    words = {word.strip().lower() for value in values for word in value.split(",")}
    return frozenset(words | {"nofollow", "noindex"} if "none" in words else words)


def robots_header(headers: Sequence[tuple[bytes, bytes]]) -> frozenset[str]:
    """Return the directives of X-Robots-Tag for all crawlers ("bot: word" is for one of them)."""
    return robots_words(
        value.decode("latin-1") for name, value in headers if name.lower() == b"x-robots-tag"
    )


def with_headers(parsed: Parsed, links: Sequence[Link], words: frozenset[str]) -> Parsed:
    """Return *parsed* with what the headers of its answer declare. The page's own canonical URL
    counts first."""
    if not links and not words:
        return parsed  # as of nearly every page
    canonicals = (link.url for link in links if link.kind is LinkKind.CANONICAL)
    return replace(
        parsed,
        links=(*parsed.links, *links),
        canonical=parsed.canonical or next(canonicals, ""),
        robots=parsed.robots | words,
    )


SPACE: Final = " \t\n\f\r"
"""HTML's white space, which is stripped from a URL in an attribute."""

# WHATWG HTML, "shared declarative refresh steps": seconds, then a URL, quoted or not.
_refresh = re.compile(
    rf"[{SPACE}]*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[{SPACE};,])[{SPACE}]*+[;,]?+[{SPACE}]*+"
    rf"(?:url[{SPACE}]*+=[{SPACE}]*+)?+(?:\"([^\"]*+)|'([^']*+)|(.*+))",
    re.IGNORECASE | re.DOTALL,
).match


def refresh(content: str) -> str:
    """Return the URL of <meta http-equiv=refresh> or of a Refresh header; empty if it reloads the
    page itself."""
    found = _refresh(content)
    return next((url for url in found.groups() if url is not None), "") if found else ""


# Link headers (RFC 8288), canonical and alternate, and Refresh headers. Time and memory are linear
# in what is sent.

KINDS: Final = {"canonical": LinkKind.CANONICAL, "alternate": LinkKind.ALTERNATE}
MAX_LANGUAGE_CHARS: Final = 64  # of an hreflang; the longest real ones have 12
# guess: a page in a hundred languages names each of them; headers are 64 KiB at most anyway
MAX_LINKS: Final = 200

_QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"?'
# It matches always, so that no comma is passed twice.
_next_link = re.compile(r"[\s,]*+(?:<([^>]*+)>)?+").match
_next_parameter = re.compile(
    rf"\s*+;\s*+(?:([^\s;,=]++)\s*+(?:=\s*+(?:{_QUOTED}|([^\s;,]*+)))?+)?+", re.DOTALL
).match
# Up to the comma after a malformed link; a comma in quotes does not count.
_rest = re.compile(r'(?:[^,"]++|"(?:[^"\\]|\\.)*+"?)*+', re.DOTALL).match
_escaped = re.compile(r"\\(.)", re.DOTALL).sub


def link_headers(headers: Sequence[tuple[bytes, bytes]], url: str) -> list[Link]:
    """Return the canonical and alternate links of all Link headers, as written, in their order; and
    the target of the first Refresh header, which no base of the page at *url* changes."""
    found: list[Link] = []
    for name, value in headers:
        lower_name = name.lower()
        if lower_name == b"link":
            for link in _links(value):
                if len(found) == MAX_LINKS:
                    return found
                found.append(link)
        elif lower_name == b"refresh" and all(each.kind is not LinkKind.REFRESH for each in found):
            written = refresh(_text(value)).strip(SPACE)
            target = fetch_form(written, url) if written and written[0] != "#" else None
            if target is not None:
                found.append(Link(target, LinkKind.REFRESH))
    return found


def _text(value: bytes) -> str:
    """Decode a header. It should be Latin-1, but servers also write UTF-8 into it, unescaped."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _links(value: bytes) -> Iterator[Link]:
    for target, parameters in header_links(value):
        yield from _link(target, parameters)


def header_links(header: bytes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the links of one Link header: the target as written, perhaps empty, and the parameters
    by lower-case name, the first of each name."""
    value = _text(header)
    position, last = 0, value.rfind(">")  # no bracket closes after it
    while position <= last and (found := _next_link(value, position)):
        parameters, position = _parameters(value, found.end())
        yield (found[1] or "").strip(), parameters
        skipped = _rest(value, position)
        position = (skipped.end() if skipped else position) + 1


def _parameters(value: str, position: int) -> tuple[dict[str, str], int]:
    """Return the parameters by lower-case name, the first of each name, and where they end."""
    parameters: dict[str, str] = {}
    while found := _next_parameter(value, position):
        position = found.end()
        name, quoted, bare = found.groups()
        if name:
            text = bare or "" if quoted is None else _escaped(r"\1", quoted)
            parameters.setdefault(name.lower(), text)
    return parameters, position


def _link(target: str, parameters: dict[str, str]) -> Iterator[Link]:
    """Yield at most one link of each kind. A link with an anchor is about another resource."""
    words = parameters.get("rel", "").lower().split()
    if not target or "anchor" in parameters or "stylesheet" in words:
        return
    for word, kind in KINDS.items():
        if word in words:
            language = parameters.get("hreflang", "")[:MAX_LANGUAGE_CHARS]
            yield Link(target, kind, " ".join(words), language=language)


MAX_LINKS_KEPT: Final = 10_000
"""Most links kept with a page: 15 ms for so many. Longer lists are made by machines."""

BASE_CHARS: Final = 4_000_000
"""Most characters that the base may add to all links of a page: a base of 2,000 characters would
make those of 100 KB of HTML 20 MB, for each page under way."""


def base_of(url: str, parsed: Parsed) -> str:
    """Return the URL that the links of the page at *url* are relative to. It may be none that can
    be fetched; then only links that are whole URLs lead anywhere."""
    return base_form(parsed.base, url) if parsed.base else url


def max_links(base: str) -> int:
    """Return how many of the first links of a page are kept with it."""
    return min(MAX_LINKS_KEPT, BASE_CHARS // len(base))


def resolve_links(links: Sequence[Link], base: str) -> tuple[list[Link], list[Link]]:
    """Return the links to http(s) with absolute URLs, in their order, each once of a kind; and the
    other links."""
    found: list[Link] = []
    others = []
    urls = fetch_forms([link.url for link in links], base)
    for link, url in zip(links, urls, strict=True):
        if url is None:
            others.append(link)
        elif url is link.url:  # it was absolute
            found.append(link)
        else:
            kind, rel, modified, priority = link.kind, link.rel, link.modified, link.priority
            found.append(Link(url, kind, rel, modified, priority, link.text, link.language))
    if len(set(urls)) < len(urls):  # as of few pages
        first: dict[tuple[str, LinkKind], Link] = {}
        for link in found:
            kept = first.setdefault((link.url, link.kind), link)
            if link.text and not kept.text:  # that of an image, most often
                first[link.url, link.kind] = replace(kept, text=link.text)
        found = list(first.values())
    return found, others

"""Where a page points: the elements that link, and how their attributes are read.

Rule: URLs as written, but for the white space around them. What leads nowhere else (an empty URL,
a fragment, the data itself) is no link.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from crawler.core.parsed import Link, LinkKind
from crawler.parsers.html_tags import SPACE, value

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


def _link(given: Given) -> Iterator[Link]:
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
    "link": _link,
    "meta": _meta,
    "img": _media("src"),
    "source": _media("src"),
    "video": _media("src", "poster"),
    "audio": _media("src"),
    "embed": _media("src"),
    "object": _media("data"),
    "input": _input,
}

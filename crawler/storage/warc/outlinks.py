"""The links of a page as its metadata record has them, in the words of Heritrix.

Rule: pure; absolute URLs, each once, as many as a record may hold. `L a/@href` says how a crawler
gets there: L by a link, E it belongs to the page, R sent on, M listed, X guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from crawler.core.parsed import Link, LinkKind
from crawler.core.url import fetch_form

MOST: Final = 10_000  # guess; pages with more are lists by machines. They take 15 ms

_WAYS: Final = MappingProxyType(
    {
        LinkKind.A: "L a/@href",
        LinkKind.AREA: "L area/@href",
        LinkKind.FRAME: "E frame/@src",
        LinkKind.IFRAME: "E iframe/@src",
        LinkKind.CANONICAL: "L link/@href",
        LinkKind.ALTERNATE: "L link/@href",
        LinkKind.REFRESH: "R meta/@content",
        LinkKind.MEDIA: "E =EMBED_MISC",
        LinkKind.LISTED: "M =MANIFEST_MISC",
        LinkKind.SITEMAP: "M =MANIFEST_MISC",
        LinkKind.ENTRY: "L =NAVLINK_MISC",
        LinkKind.TEXT: "X =SPECULATIVE_MISC",
    }
)


def outlinks(links: Sequence[Link], base: str) -> str:
    """Their lines, in the order in which they stand. *base*: a URL; empty: they are absolute,
    each a fetch form."""
    lines: dict[str, None] = {}  # a set that keeps the order
    kind, way = None, ""
    for link in links[:MOST]:
        url = fetch_form(link.url, base) if base else link.url
        if link.kind is not kind:  # an enum is slow to look up, and the last one was the same
            kind, way = link.kind, _WAYS[link.kind]
        if url is not None:
            lines[f"outlink: {url} {way}\r\n"] = None
    return "".join(lines)

"""The links of a page as its metadata record has them, in the words of Heritrix.

Rule: pure; absolute URLs, each once. `L a/@href` says how a crawler gets there: L by a link, E it
belongs to the page, R sent on, M listed, X guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from crawler.core.parsed import Link, LinkKind

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


def outlink_lines(links: Sequence[Link]) -> str:
    """Of *links*, whose URLs are absolute, in the order in which they stand."""
    lines = [f"outlink: {link.url} {_WAYS[link.kind]}\r\n" for link in links]
    return "".join(dict.fromkeys(lines))  # a set that keeps the order

"""The links of a page as its metadata record has them, in the words of Heritrix.

Rule: pure; absolute URLs, each once. `L a/@href` says how a crawler gets there: L by a link, E it
belongs to the page, R sent on, M listed, X guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from crawler.core.parsed import Link, LinkKind
from crawler.storage.warc.fields import uri

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
    lines: dict[str, None] = {}  # a set that keeps the order
    kind, way = None, ""
    for link in links:
        if link.kind is not kind:  # an enum is slow to look up, and the last one was the same
            kind, way = link.kind, _WAYS[link.kind]
        lines[f"outlink: {link.url} {way}\r\n"] = None
    written = "".join(lines)
    if written.count("\n") != len(lines) or written.count("\r") != len(lines):
        # Somebody's own pipeline has put them there: none may begin a line of its own.
        return outlink_lines([replace(link, url=uri(link.url)) for link in links])
    return written

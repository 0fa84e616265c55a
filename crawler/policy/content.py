"""How much of an answer is read, by its type. At the cap the fetch stops and what came is kept.

Rule: a cap counts headers and body together, on the wire and decoded alike, so that a
decompression bomb ends at the same figure.
"""

from __future__ import annotations

from typing import Final

from crawler.core.config import Fetch
from crawler.policy.robots import MIN_BODY_BYTES

HTML: Final = "text/html"
PDF: Final = "application/pdf"
HTML_TYPES: Final = frozenset({HTML, "application/xhtml+xml"})
XML_TYPES: Final = frozenset({"application/xml", "text/xml"})
GZIP_TYPES: Final = frozenset({"application/gzip", "application/x-gzip"})
UNTOLD: Final = frozenset({"", "application/octet-stream", "binary/octet-stream"})

ROBOTS_BYTES: Final = MIN_BODY_BYTES + 64 * 1024
"""What a robots.txt is always allowed: as much as must be read of it, and headers."""


def cap_bytes(content_type: bytes | None, url: str, caps: Fetch) -> int:
    """The most bytes kept of the answer to *url* with this Content-Type header."""
    kind = media_type(content_type)
    if kind in UNTOLD:
        kind = _guessed(url, kind)
    cap = caps.other_max_bytes
    if kind in HTML_TYPES:
        cap = caps.html_max_bytes
    elif kind == PDF:
        cap = caps.pdf_max_bytes
    elif kind in XML_TYPES or (kind in GZIP_TYPES and "sitemap" in url):
        cap = caps.sitemap_max_bytes
    return max(cap, ROBOTS_BYTES) if url.endswith("/robots.txt") else cap


def media_type(content_type: bytes | None) -> str:
    """The header's type without its parameters, lower case. Empty: it has none."""
    first = (content_type or b"").partition(b";")[0].partition(b",")[0]
    kind = first.strip().lower()
    return kind.decode("ascii") if kind.isascii() and b"/" in kind else ""


def _guessed(url: str, kind: str) -> str:
    path = url.partition("?")[0].lower()
    if path.endswith(".pdf"):
        return PDF
    return kind or HTML  # no header at all: most likely a page

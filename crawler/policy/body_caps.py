"""How many bytes of an answer are kept.

Rule: a cap counts headers and body together, on the wire and decoded alike, so that a decompression
bomb ends at the same figure.
"""

from __future__ import annotations

from typing import Final

from crawler.config.settings import FetchSettings
from crawler.page.media_type import (
    HTML,
    HTML_TYPES,
    PACKED_TYPES,
    PDF,
    UNDECLARED,
    XML_TYPES,
    media_type,
)
from crawler.policy.robots import MIN_BODY_BYTES

ROBOTS_BYTES: Final = MIN_BODY_BYTES + 64 * 1024
"""The least cap of a robots.txt: as much as must be read of it, and headers."""


def cap_bytes(content_type: bytes | None, url: str, caps: FetchSettings) -> int:
    """Return the most bytes kept of the answer to *url* with this Content-Type; the fetch stops
    there."""
    kind = media_type(content_type)
    if kind in UNDECLARED:
        kind = _guess_type(url, kind)
    cap = caps.other_max_bytes
    if kind in HTML_TYPES:
        cap = caps.html_max_bytes
    elif kind == PDF:
        cap = caps.pdf_max_bytes
    elif kind in XML_TYPES or (kind in PACKED_TYPES and "sitemap" in url):
        cap = caps.sitemap_max_bytes
    return max(cap, ROBOTS_BYTES) if url.endswith("/robots.txt") else cap


def _guess_type(url: str, kind: str) -> str:
    path = url.partition("?")[0].lower()
    if path.endswith(".pdf"):
        return PDF
    return kind or HTML  # without a header it is most likely a page

"""The row of a page in the columns: the same of one just fetched and of one read from its archive.

Rule: pure. An exact copy says nothing of its own but where it was found: its text and links are in
the row of its original, and its record in the archive need not hold its bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from crawler.core.page import Page
from crawler.core.parsed import Link, LinkKind, Parsed
from crawler.core.row import Row
from crawler.core.url import fetch_form, split

MOST: Final = 10_000
"""Links of a page that are kept with it; those with more are lists by machines. They take 15 ms."""

BASE_CHARS: Final = 4_000_000
"""What their base may add to them, all together: one of 2,000 characters would make the links of
100 KB of HTML 20 MB, of each page that is under way."""

_NOTHING: Final = Parsed()


def row_of(page: Page, fetched_at: float) -> Row | None:
    """*fetched_at*: epoch seconds, when its fetch began. None: it is no page."""
    return described(page, fetched_at) if is_row(page) else None


def is_row(page: Page) -> bool:
    return page.is_answered and not page.flaw


def described(page: Page, fetched_at: float) -> Row:
    """As `row_of`, of any answer."""
    is_elsewhere = page.is_copy or page.is_again
    parsed = _NOTHING if is_elsewhere else page.parsed or _NOTHING
    original, bits = _original(page)
    return Row(
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

"""The row of a page in the columns, the same whether just fetched or read from its archive.

Rule: an exact copy has no text or links of its own: its original's row has them, and its record may
lack its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from crawler.model.page import ColumnsRow, Page, Parsed
from crawler.model.url import authority_of, fetch_form, split
from crawler.page.links import base_of

_NOTHING: Final = Parsed()


def row_of(page: Page, fetched_at: float) -> ColumnsRow | None:
    """Return the row of *page*, or None if it is no page. *fetched_at*: epoch seconds, when its
    fetch began."""
    return columns_row(page, fetched_at) if is_row(page) else None


def is_row(page: Page) -> bool:
    return page.is_answered and not page.flaw


def columns_row(page: Page, fetched_at: float) -> ColumnsRow:
    """Return a row like `row_of`, but for any answer."""
    is_stored = page.duplicate_of is not None and (page.is_copy or page.is_refetch)
    parsed = _NOTHING if is_stored else page.parsed or _NOTHING
    original, bits = _original(page, is_stored)
    return ColumnsRow(
        url=page.url,
        host=_hostname(authority_of(page.url)),
        fetched_at=fetched_at,
        status=page.status,
        media_type=page.media_type,
        language=parsed.language,
        title="" if is_stored else page.title,
        text="" if is_stored else page.text,
        links=len(parsed.links),
        canonical=_canonical(page.url, parsed),
        published=parsed.published,
        modified=parsed.modified,
        digest=page.digest,
        simhash=None if is_stored else page.simhash,
        original=original,
        bits=bits,
        may_repeat=page.may_repeat and not is_stored,
        noindex=page.noindex,
        visits=page.visits,
    )


@lru_cache(maxsize=1024)  # hosts with pages under way
def _hostname(authority: str) -> str:
    return split(f"{authority}/").hostname


def _original(page: Page, is_stored: bool) -> tuple[str, int | None]:
    """Return the URL of the original, and how many bits differ from it."""
    # A page with the bytes of an error page is no copy, as the error page has no row.
    if page.duplicate_of is not None and is_stored:
        return page.duplicate_of.url, None
    if page.near is not None:
        return page.near.original.url, page.near.bits
    if page.alias_of:
        return page.alias_of, None
    return "", None


def _canonical(url: str, parsed: Parsed) -> str:
    written = parsed.canonical
    return (fetch_form(written, base_of(url, parsed)) or "") if written else ""

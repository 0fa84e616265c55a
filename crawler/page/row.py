"""The row of a page in the columns, the same whether just fetched or read from its archive.

Rule: an exact copy has no text or links of its own: its original's row has them, and its record may
lack its bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    NO_PREFERENCES,
    AnswerFacts,
    ColumnsRow,
    Page,
    Parsed,
    Preferences,
    Provenance,
    head_fields,
)
from crawler.model.url import authority_of, fetch_form, split
from crawler.page.encodings import declared_charset
from crawler.page.links import base_of
from crawler.page.media_type import media_type

_NOTHING: Final = Parsed()


NO_GROUPS: Final[frozenset[ColumnGroup]] = frozenset()


def row_of(
    page: Page,
    fetched_at: float,
    groups: frozenset[ColumnGroup] = NO_GROUPS,
    crawl: Provenance | None = None,
) -> ColumnsRow | None:
    """Return the row of *page* with the columns of *groups*, or None if it is no page.
    *fetched_at*: epoch seconds, when its fetch began. *crawl*: how it was found."""
    return columns_row(page, fetched_at, groups, crawl) if is_row(page) else None


def is_row(page: Page) -> bool:
    return page.is_answered and not page.flaw


def columns_row(
    page: Page,
    fetched_at: float,
    groups: frozenset[ColumnGroup] = NO_GROUPS,
    crawl: Provenance | None = None,
) -> ColumnsRow:
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
        link_share=parsed.link_share,
        answer=_answer(page, parsed) if ColumnGroup.ANSWER in groups else None,
        about=parsed.about if ColumnGroup.ABOUT in groups else None,
        crawl=crawl if ColumnGroup.CRAWL in groups else None,
        markdown=parsed.markdown if ColumnGroup.MARKDOWN in groups else "",
        rendered=page.rendered if ColumnGroup.RENDERED in groups else None,
        preferences=_preferences(page) if ColumnGroup.PREFERENCES in groups else None,
    )


def _preferences(page: Page) -> Preferences | None:
    return None if page.preferences is NO_PREFERENCES else page.preferences


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


_SAID: Final = {
    b"etag": "etag",
    b"last-modified": "last_modified",
    b"server": "server",
    b"x-robots-tag": "robots_header",
}
_MOST_CHARS: Final = 1_000  # of what a header says: a head may have 256 KB


def _answer(page: Page, parsed: Parsed) -> AnswerFacts:
    """Return what the answer says. Of repeated headers the last counts, as it does for Scrapy, but
    each X-Robots-Tag."""
    said = dict.fromkeys(_SAID.values(), "")
    exchange = page.exchange
    for name, value in head_fields(exchange.head) if exchange else ():
        known = _SAID.get(name) or _SAID.get(name.lower())
        if known:
            text = value.decode("latin-1")
            before = said[known] if known == "robots_header" else ""
            said[known] = f"{before}, {text}" if before else text
    return AnswerFacts(
        _declared_type(page.sent_type),
        declared_charset(page.sent_type)[:_MOST_CHARS],
        parsed.charset,
        str(exchange.truncated) if exchange else "",
        *(text[:_MOST_CHARS] for text in said.values()),
    )


@lru_cache(maxsize=64)  # many hosts declare the same few
def _declared_type(content_type: str) -> str:
    return media_type(content_type.encode("latin-1", "replace"))[:_MOST_CHARS]


def _canonical(url: str, parsed: Parsed) -> str:
    written = parsed.canonical
    return (fetch_form(written, base_of(url, parsed)) or "") if written else ""

"""Rows made again of what a WARC file holds: after a crash, or after a parser was mended.

Rule: what the bytes say is read anew (type, text, links, language, dates, fingerprint, digest).
What only the crawl could know is kept as it was written down: whether it is a page at all, and
whose copy it is.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from hashlib import sha1
from pathlib import Path
from typing import Final

from crawler.core.exchange import head_fields
from crawler.core.page import Flaw, Near, Page
from crawler.core.parsed import Parsed, Source
from crawler.core.types import Claim
from crawler.policy.content import media_type
from crawler.policy.following import robots_header, with_headers
from crawler.policy.link_header import link_headers
from crawler.policy.rows import base_of, most_kept, resolved, row_of
from crawler.policy.simhash import fingerprint
from crawler.policy.sniff import actual_type
from crawler.storage.columns.batches import Cells, cells
from crawler.storage.warc.bodies import Room, decoded_body, status_of, values
from crawler.storage.warc.stored import Stored, captures, sha1_of

Parse = Callable[[Source, str], Awaitable[Parsed]]
"""By the parser for a media type; nothing where there is none or it cannot."""

UNREADABLE: Final = "unreadable"
"""The metadata that says why no parser could read it; most often, it took too long."""
MAY_REPEAT: Final = "may-repeat"
"""The metadata that names its own URL, where a process that died may have archived it too."""
_FLAWS: Final = frozenset(Flaw)
_OTHER_FLAW: Final = Flaw.LYING_TYPE  # in place of a word of another version


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """How pages are read a second time: as they were the first time."""

    parsing: Callable[[], AbstractAsyncContextManager[Parse]]
    room: Room
    most_bytes: int  # the most that `room` says
    near_min_words: int
    tries_unreadable: bool  # also those on which a parser gave up in the crawl


async def rows(warc: Path, content: Path, again: Again) -> AsyncGenerator[Cells, None]:
    """Of the pages in *content*, a WARC file that is, or will be, called *warc*. Raises Damaged,
    OSError."""
    async with again.parsing() as parse:
        for stored in captures(warc, content, again.most_bytes):
            page = await _page(stored, again, parse)
            row = row_of(page, stored.fetched_at)
            if row is not None:
                said = page.parsed or Parsed()
                base = base_of(page.url, said)
                outlinks, _ = resolved(said.links[: most_kept(base)], base)
                yield cells(row, outlinks, stored.place)


async def _page(stored: Stored, again: Again, parse: Parse) -> Page:
    headers = head_fields(stored.head)
    page = _told(stored, headers)
    if page.flaw or not page.is_answered or page.is_copy or page.is_again:
        return page
    body = decoded_body(stored, again.room)
    kind = actual_type(page.content_type, page.url, body).media_type
    said = Parsed(parser=stored.noted("parser"))
    if again.tries_unreadable or not stored.noted(UNREADABLE):
        said = await parse(Source(page.url, page.content_type, body, tuple(headers)), kind)
    said = with_headers(said, link_headers(headers), robots_header(headers))
    return replace(
        page,
        media_type=kind,
        digest=sha1(body, usedforsecurity=False).digest(),
        parsed=said,
        title=said.title,
        text=said.text,
        simhash=fingerprint(said.text, again.near_min_words),
    )


def _told(stored: Stored, headers: list[tuple[bytes, bytes]]) -> Page:
    """What the crawl has said of it."""
    declared = (values(headers, b"content-type") or [b""])[-1]  # the last, as Scrapy has it
    near, bits = stored.noted("near-duplicate-of"), stored.noted("near-duplicate-bits")
    # Archives of older versions have no such note, but revisits all the same.
    same = stored.noted("duplicate-of") or stored.refers_to
    flaw = stored.noted("flaw")
    return Page(
        url=stored.url,
        status=status_of(stored.head),
        content_type=declared.decode("latin-1"),
        body=b"",
        depth=0,
        lease_id=0,
        media_type=stored.noted("media-type") or media_type(declared),
        flaw=Flaw(flaw) if flaw in _FLAWS else _OTHER_FLAW,
        digest=sha1_of(stored.noted("content-digest")) or stored.payload_sha1,
        duplicate_of=Claim(b"", same) if same else None,
        alias_of=stored.noted("alias-of"),
        near=Near(Claim(b"", near), int(bits)) if near and bits.isdecimal() else None,
        may_repeat=bool(stored.noted(MAY_REPEAT)),
    )

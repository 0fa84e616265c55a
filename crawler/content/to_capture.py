"""From an exchange, or a page, to its archive record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from hashlib import sha1
from typing import Final
from urllib.parse import quote

from crawler.archive.capture import Capture
from crawler.archive.columns_companion import MAY_REPEAT, UNREADABLE
from crawler.archive.record_bytes import (
    PRINTABLE_STATUS,
    STATUS_LINE,
    labelled,
    readable_status,
)
from crawler.archive.writer import Archive
from crawler.model.page import ColumnsRow, Exchange, Link, Page, Parsed
from crawler.model.types import Claim
from crawler.policy.links import row_of
from crawler.policy.media_type import media_type

_MOST_STATUS_BYTES: Final = 1000  # longer ones are written as far as readers read one
_MOST_CHARS: Final = 200  # of what a parser says of a page it cannot read
# Archives are handed on; what opens a door is not.
_SECRETS: Final = re.compile(
    rb"(\n(?:Authorization|Proxy-Authorization|Cookie):[ \t]*+)[^\r\n]++", re.I
)


async def archive_exchange(
    exchange: Exchange | None,
    archive: Archive | None,
    duplicate_of: Claim | None = None,
    body_sha1: bytes = b"",
    metadata: Sequence[tuple[str, str]] = (),
    outlinks: Sequence[Link] = (),
    row: ColumnsRow | None = None,
    *,
    may_repeat: bool = False,
) -> str:
    """Where its record lies ("file:offset"), once it is durable. Empty: none is kept, or nobody
    saw it cross the wire. Raises StoreUnavailable. *outlinks*: absolute. *may_repeat*: there may be
    a record of it already; one that is a revisit says so by itself."""
    if archive is None or exchange is None:
        return ""
    # A revisit record has no place for "cut this time": such an answer is kept as it is.
    original = None if exchange.truncated else duplicate_of
    noted = metadata or (("fetchTimeMs", _ms(exchange)),)
    if may_repeat and original is None:
        noted = (*noted, (MAY_REPEAT, exchange.url))
    sent = exchange.status_line
    if sent != readable_status(sent) and len(sent) <= _MOST_STATUS_BYTES:
        noted = (*noted, (STATUS_LINE, quote(sent, safe=PRINTABLE_STATUS)))
    capture = Capture(
        url=exchange.url,
        fetched_at=exchange.at,
        ip=exchange.ip,
        tls=exchange.tls,
        request=_SECRETS.sub(rb"\1...", exchange.request_head) + exchange.request_body,
        head=exchange.head,
        body=exchange.body,
        body_sha1=body_sha1,
        truncated=exchange.truncated.value,
        duplicate_of=original,
        metadata=noted,
        outlinks=outlinks,
        row=row,
    )
    return str(await archive.append(capture))


async def archive_page(page: Page, archive: Archive | None, body_sha1: bytes) -> str:
    """As `archive_exchange`. *body_sha1*: of the body as it crossed the wire; empty: not known."""
    if page.exchange is None or not page.archive:
        return ""
    return await archive_exchange(
        page.exchange,
        archive,
        page.duplicate_of if page.is_repeat else None,
        body_sha1,
        tuple(_metadata(page, page.exchange, body_sha1)),
        () if page.is_again else page.outlinks,
        row_of(page, page.exchange.at),
        may_repeat=page.may_repeat,
    )


def wire_sha1(exchange: Exchange | None, body: bytes, digest: bytes) -> bytes:
    """Of the body as it is archived. *digest*: SHA-1 of *body*, the decoded one. Empty: nobody has
    it, or nobody will ask."""
    if exchange is None or not digest:
        return b""
    if body == exchange.body:
        return digest
    return sha1(exchange.body, usedforsecurity=False).digest()


def _metadata(page: Page, exchange: Exchange, body_sha1: bytes) -> Iterator[tuple[str, str]]:
    """What the record itself does not say, or only to who parses it again."""
    said, is_coded = page.parsed or Parsed(), page.digest != body_sha1 != b""
    is_declared = page.media_type == media_type(page.content_type.encode("latin-1", "replace"))
    known = (
        ("fetchTimeMs", _ms(exchange)),
        ("flaw", page.flaw),
        ("alias-of", page.alias_of),
        ("media-type", "" if is_declared else page.media_type),
        # Of the body without its codings: a revisit record has none that could be hashed again.
        ("content-digest", labelled(page.digest) if page.digest and is_coded else ""),
        ("parser", said.parser),
        (UNREADABLE, _unreadable(said)),
        ("charset", said.charset),
        ("simhash", "" if page.simhash is None else f"{page.simhash:016x}"),
    )
    yield from (pair for pair in known if pair[1])
    yield from _likeness(page)


def _likeness(page: Page) -> Iterator[tuple[str, str]]:
    if (page.is_copy or page.is_again) and page.duplicate_of is not None:
        yield "duplicate-of", page.duplicate_of.url  # also where its record is no revisit
    if page.near is not None:
        yield "near-duplicate-of", page.near.original.url
        yield "near-duplicate-bits", str(page.near.bits)


def _unreadable(said: Parsed) -> str:
    """Why; empty: it could be read."""
    notes = (note.partition(": ") for note in said.notes)
    return next((why[:_MOST_CHARS] for word, _, why in notes if word == UNREADABLE), "")


def _ms(exchange: Exchange) -> str:
    return str(round(exchange.duration_s * 1000))

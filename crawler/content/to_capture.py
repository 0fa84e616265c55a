"""Archives an exchange or a page as a record with its metadata."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from crawler.archive.capture import PAGE_INFO, Capture, Dom, PageInfo
from crawler.archive.columns_companion import (
    BESIDE,
    DEPTH,
    ELSEWHERE,
    MAY_REPEAT,
    PREFERENCES,
    RENDERED,
    ROUND,
    SEED,
    SITEMAP,
    UNREADABLE,
    VISITS,
)
from crawler.archive.earlier_crawls import EarlierCrawls
from crawler.archive.record_bytes import (
    MAX_HEAD_BYTES,
    NOT_MODIFIED_HEAD,
    PRINTABLE_STATUS,
    STATUS_LINE,
    readable_status,
    sha1_label,
    sha1_of_parts,
)
from crawler.archive.writer import Archive
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    NO_PREFERENCES,
    About,
    ColumnsRow,
    Exchange,
    Flaw,
    Link,
    Page,
    Parsed,
    Provenance,
)
from crawler.model.types import Claim
from crawler.page.media_type import media_type
from crawler.page.row import row_of

_MOST_STATUS_BYTES: Final = 1000  # a longer status line as sent is not noted in the metadata
_MOST_CHARS: Final = 200  # of the reason why a parser cannot read a page
# Archives are published, so credentials are removed.
_SECRETS: Final = re.compile(
    rb"(\n(?:Authorization|Proxy-Authorization|Cookie):[ \t]*+)[^\r\n]++", re.I
)
# Most status lines match this, and `readable_status` would return them unchanged.
_READABLE: Final = re.compile(rb"HTTP/1\.[01] \d{3}(?: [^\t\r\n]*+)?\r\n")
_NOTHING: Final = Parsed()


def _hidden(found: re.Match[bytes]) -> bytes:
    return b"%b..." % found[1]


async def archive_exchange(
    exchange: Exchange | None,
    archive: Archive | None,
    duplicate_of: Claim | None = None,
    body_sha1: bytes = b"",
    metadata: Sequence[tuple[str, str]] = (),
    outlinks: Sequence[Link] = (),
    row: ColumnsRow | None = None,
    dom: Dom | None = None,
    *,
    may_repeat: bool = False,
) -> str:
    """Archive *exchange* and return the place of its record ("file:offset"), once the record
    survives the death of this process. Returns "" if the crawl keeps no archive or the exchange is
    not known. Raises StoreUnavailable. *outlinks* are absolute. With *may_repeat* the archive may
    hold a record of it already, which is noted unless the new one is a revisit."""
    if archive is None or exchange is None:
        return ""
    # A revisit record cannot say that this answer was truncated, so it becomes a response record.
    original = None if exchange.truncated else duplicate_of
    fields = list(metadata) or [("fetchTimeMs", _ms(exchange))]
    if may_repeat and original is None:
        fields.append((MAY_REPEAT, exchange.url))
    if not _READABLE.match(exchange.head):
        sent = exchange.status_line
        if sent != readable_status(sent) and len(sent) <= _MOST_STATUS_BYTES:
            fields.append((STATUS_LINE, quote(sent, safe=PRINTABLE_STATUS)))
    capture = Capture(
        url=exchange.url,
        fetched_at=exchange.at,
        ip=exchange.ip,
        tls=exchange.tls,
        request=_SECRETS.sub(_hidden, exchange.request_head) + exchange.request_body,
        head=exchange.head,
        body=exchange.body,
        body_sha1=body_sha1,
        truncated=exchange.truncated.value,
        duplicate_of=original,
        metadata=fields,
        outlinks=outlinks,
        row=row,
        dom=dom,
    )
    return str(await archive.append(capture))


MOST_BODIES: Final = 10_000
"""Bodies that are remembered, 430 bytes each."""


class ArchivedBodies:
    """The records that have the bodies of rendered pages as sent, which are often one shell, and of
    what their scripts fetched. Bound: those of this run that were used last."""

    def __init__(
        self,
        earlier: EarlierCrawls | None,
        is_gone: Callable[[str], bool],
        most: int = MOST_BODIES,
    ) -> None:
        """*earlier*: whose records count, too. *is_gone* is called with a record of this run."""
        self._earlier = earlier
        self._is_gone = is_gone
        self._most = most
        self._claims: OrderedDict[bytes, Claim] = OrderedDict()

    def original(self, body_sha1: bytes) -> Claim | None:
        """Return a record that has the body of this SHA-1, as received; None: none is known."""
        claim = self._claims.get(body_sha1)
        if claim is not None and not self._is_gone(claim.record):
            self._claims.move_to_end(body_sha1)
            return claim
        return self._earlier.original(body_sha1) if self._earlier is not None else None

    def note(self, claim: Claim) -> None:
        """Note that the record of *claim* has the body of its digest."""
        self._claims[claim.digest] = claim
        self._claims.move_to_end(claim.digest)
        if len(self._claims) > self._most:
            self._claims.popitem(last=False)


async def archive_beside(
    exchanges: Sequence[Exchange],
    archive: Archive | None,
    bodies: ArchivedBodies,
    *,
    may_repeat: bool,
) -> None:
    """Archive what was fetched for a page beside its own answer."""
    for each in exchanges:
        noted = [("fetchTimeMs", _ms(each)), (BESIDE, "page")]
        await _archive_once(each, archive, bodies, noted, may_repeat=may_repeat)


async def _archive_once(
    exchange: Exchange,
    archive: Archive | None,
    bodies: ArchivedBodies,
    metadata: Sequence[tuple[str, str]] = (),
    outlinks: Sequence[Link] = (),
    row: ColumnsRow | None = None,
    dom: Dom | None = None,
    *,
    may_repeat: bool,
) -> str:
    """Archive *exchange* as `archive_exchange` does, as a revisit if *bodies* has its body."""
    about = (metadata, outlinks, row, dom)
    if archive is None or not exchange.body or exchange.truncated:
        return await archive_exchange(exchange, archive, None, b"", *about, may_repeat=may_repeat)
    body_sha1 = sha1_of_parts(exchange.body)
    known = bodies.original(body_sha1)
    record = await archive_exchange(
        exchange, archive, known, body_sha1, *about, may_repeat=may_repeat
    )
    if known is None:
        bodies.note(Claim(body_sha1, exchange.url, record, exchange.at, body_sha1))
    return record


async def archive_unmodified(exchange: Exchange, archive: Archive | None, stored: Claim) -> str:
    """Archive *exchange*, whose answer says that the page is as *stored*, and return the place of
    its record as `archive_exchange` does."""
    if archive is None:
        return ""
    head = quote(exchange.head[:MAX_HEAD_BYTES], safe=PRINTABLE_STATUS)
    capture = Capture(
        url=exchange.url,
        fetched_at=exchange.at,
        ip=exchange.ip,
        tls=exchange.tls,
        request=_SECRETS.sub(_hidden, exchange.request_head),
        head=exchange.head,
        not_modified_of=stored,
        metadata=[("fetchTimeMs", _ms(exchange)), (NOT_MODIFIED_HEAD, head)],
    )
    return str(await archive.append(capture))


def challenge_metadata(exchange: Exchange) -> list[tuple[str, str]]:
    """Return the metadata of an answer that is a challenge, and is archived before it is known
    what becomes of its URL."""
    return [("fetchTimeMs", _ms(exchange)), ("flaw", Flaw.CHALLENGE)]


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """Which groups of columns a crawl writes."""

    groups: frozenset[ColumnGroup] = frozenset()
    crawl_id: str = ""


async def archive_page(
    page: Page,
    archive: Archive | None,
    body_sha1: bytes,
    asked: AskedColumns,
    bodies: ArchivedBodies,
) -> str:
    """Archive *page* and return its place as `archive_exchange` does; of a page marked noindex only
    its links, and return "". *body_sha1* is that of the body as received; empty if not known. A
    rendered page is archived as it was sent, with its DOM unless the archive has that already."""
    if page.exchange is None:
        return ""
    if page.noindex and archive is not None:
        await _archive_info(page, page.exchange, archive, asked)
    if not page.archive:
        return ""
    about = (
        _metadata(page, page.exchange, body_sha1, asked),
        () if page.is_refetch else page.outlinks,
        row_of(page, page.exchange.at, asked.groups, _provenance(page, asked)),
    )
    if page.rendered is not None:
        # Another page with its DOM says nothing of the bytes that were sent.
        dom = Dom(page.body, page.digest) if page.digest and not page.is_repeat else None
        return await _archive_once(
            page.exchange, archive, bodies, *about, dom, may_repeat=page.may_repeat
        )
    return await archive_exchange(
        page.exchange,
        archive,
        page.archived_elsewhere or (page.duplicate_of if page.is_repeat else None),
        body_sha1,
        *about,
        may_repeat=page.may_repeat,
    )


_NO_CONTENT: Final = (
    *(ColumnGroup.ANSWER, ColumnGroup.CRAWL, ColumnGroup.RENDERED),
    ColumnGroup.PREFERENCES,
)


async def _archive_info(
    page: Page, exchange: Exchange, archive: Archive, asked: AskedColumns
) -> None:
    groups = asked.groups.intersection(_NO_CONTENT)
    row = row_of(page, exchange.at, groups, _provenance(page, asked))
    if row is None:
        return
    about = None
    if ColumnGroup.ABOUT in asked.groups and page.parsed is not None:
        about = About(robots=page.parsed.about.robots)
    row = replace(row, title="", text="", simhash=None, about=about)
    outlinks = tuple([replace(link, text="") if link.text else link for link in page.outlinks])
    info = Capture(
        url=PAGE_INFO + page.url,
        fetched_at=exchange.at,
        body=msgspec.json.encode(PageInfo(row, outlinks)),
        outlinks=outlinks,
        row=row,
        is_info=True,
    )
    await archive.append(info)


def _provenance(page: Page, asked: AskedColumns) -> Provenance:
    return Provenance(page.depth, asked.crawl_id, page.seed, page.round or None)


def wire_sha1(exchange: Exchange | None, body: bytes, digest: bytes) -> bytes:
    """Return the SHA-1 of the body as it is archived, given the *digest* of the decoded *body*.
    Returns b"" if there is no exchange or no digest."""
    if exchange is None or not digest:
        return b""
    if body == exchange.body:
        return digest
    return sha1(exchange.body, usedforsecurity=False).digest()


def _metadata(
    page: Page, exchange: Exchange, body_sha1: bytes, asked: AskedColumns
) -> list[tuple[str, str]]:
    """Return the metadata that the record itself does not hold, or only after parsing it again."""
    parsed = page.parsed or _NOTHING
    known = [("fetchTimeMs", _ms(exchange)), ("flaw", page.flaw), ("alias-of", page.alias_of)]
    if page.rendered is not None:
        known.append((RENDERED, str(page.rendered)))
    if page.media_type != _declared_type(page.sent_type):
        known.append(("media-type", page.media_type))
    if page.digest and page.digest != body_sha1 != b"":
        # That of the decoded body, or of the DOM, is noted: a revisit has none to compute it from.
        known.append(("content-digest", sha1_label(page.digest)))
    if page.is_sitemap:
        known.append((SITEMAP, "named"))
    known.append(("parser", parsed.parser))
    if parsed.notes:
        known.append((UNREADABLE, _unreadable(parsed)))
    known.append(("charset", parsed.charset))
    if page.simhash is not None:
        known.append(("simhash", f"{page.simhash:016x}"))
    original = page.duplicate_of
    if original is not None and (page.is_copy or page.is_refetch):
        known.append(("duplicate-of", original.url))  # also if its record is no revisit
    if page.archived_elsewhere is not None:
        known.append((ELSEWHERE, page.archived_elsewhere.url))
    if page.near is not None:
        known.append(("near-duplicate-of", page.near.original.url))
        known.append(("near-duplicate-bits", str(page.near.bits)))
    if page.preferences is not NO_PREFERENCES:
        known.append((PREFERENCES, str(page.preferences)))
    if page.visits is not None:
        known.append((VISITS, str(page.visits)))
    if ColumnGroup.CRAWL in asked.groups:
        known += [(DEPTH, str(page.depth)), (SEED, page.seed)]
        known.append((ROUND, str(page.round or "")))
    return [pair for pair in known if pair[1]]


@lru_cache(maxsize=64)  # many hosts declare the same few
def _declared_type(content_type: str) -> str:
    return media_type(content_type.encode("latin-1", "replace"))


def _unreadable(parsed: Parsed) -> str:
    """Return why the page could not be read, or ""."""
    notes = (note.partition(": ") for note in parsed.notes)
    return next((why[:_MOST_CHARS] for word, _, why in notes if word == UNREADABLE), "")


def _ms(exchange: Exchange) -> str:
    return str(round(exchange.duration_s * 1000))

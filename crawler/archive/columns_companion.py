"""The columns file beside a WARC file, written by the crawl or rebuilt from the WARC file.

Rule: a rebuild computes what the bytes say (type, text, links, language, dates, fingerprint,
digest; of a rendered page its DOM) and copies from the metadata what only the crawl knew: flaws,
and originals of copies. The row of a page marked noindex is copied as a whole, as nothing else of
it is kept.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import dataclass, replace
from hashlib import sha1
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import msgspec

from crawler.archive.capture import PAGE_INFO, PageInfo, RecordPlace, StoredCapture
from crawler.archive.earlier_crawls import FOLDER as EARLIER
from crawler.archive.earlier_crawls import folders_of
from crawler.archive.lookup import find_original, read_entry
from crawler.archive.reader import (
    ArchivedCapture,
    BodyLimit,
    captures,
    decoded_body,
    info_value,
    sha1_of,
    status_of,
    values,
    with_doms,
)
from crawler.archive.warc_file import companion_path, open_name
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    DOM_TYPE,
    ColumnsRow,
    Exchange,
    Flaw,
    Link,
    NearDuplicate,
    Page,
    Parsed,
    Preferences,
    Provenance,
    Rendered,
    Source,
    Truncated,
    VisitsSoFar,
    head_fields,
)
from crawler.model.types import Claim, StoreUnavailable
from crawler.page.links import (
    base_of,
    link_headers,
    max_links,
    resolve_links,
    robots_header,
    with_headers,
)
from crawler.page.media_type import actual_type, media_type, type_by_content
from crawler.page.row import row_of
from crawler.page.simhash import fingerprint

# Arrow takes 150 ms to import: a crawl does that in the archive's thread, at its first file.
if TYPE_CHECKING:
    from crawler.archive.columns import ColumnsFile

Parse = Callable[[Source, str], Awaitable[Parsed]]
"""Parses a source of a media type. Returns an empty Parsed if no parser can read it."""

UNREADABLE: Final = "unreadable"
"""The metadata field that says why no parser could read it; most often, it took too long."""
MAY_REPEAT: Final = "may-repeat"
"""The metadata field, with the record's own URL, of a page that a dead process may have archived
already."""
_decode_info: Final = msgspec.json.Decoder(PageInfo).decode
ELSEWHERE: Final = "original-elsewhere"
"""The metadata field of a page whose body only an earlier crawl has: the URL of its record."""
SITEMAP: Final = "sitemap"
"""The metadata field of what robots.txt or an index names as a sitemap: its content is its type."""
VISITS: Final = "visits"
"""The metadata field with the visits of a page that is visited again, by VisitsSoFar."""
CRAWL_ID: Final = "isPartOf"
"""The field of a file's first record with the id of the crawl (WARC 1.1, section 6.2)."""
BESIDE: Final = "beside"
"""The metadata field of what was fetched for a page beside its own answer, by its scripts. It is no
page, and has no row."""
RENDERED: Final = "rendered"
"""The metadata field of a page that a browser has rendered, by Rendered."""
PREFERENCES: Final = "preferences"
"""The metadata field with what its publisher says of the use of a page, by Preferences."""
DEPTH: Final = "depth"
"""The metadata field with the hops from a seed to a page."""
ROUND: Final = "round"
"""The metadata field with the round in which a page was fetched."""
SEED: Final = "seed"
"""The metadata field with the part of the web of its seed."""
_FLAWS: Final = frozenset(Flaw)
_OTHER_FLAW: Final = Flaw.WRONG_TYPE  # for a flaw of another version that is not known here


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildSettings:
    """The rules for parsing archived pages again, as in the crawl."""

    parsing: Callable[[], AbstractAsyncContextManager[Parse]]
    max_body_bytes: BodyLimit
    max_bytes: int  # the most that `max_body_bytes` returns
    near_min_words: int
    retry_unreadable: bool  # also those on which a parser gave up in the crawl
    groups: frozenset[ColumnGroup] = frozenset()  # of columns


async def rows(
    warc: Path, content: Path, rebuild_settings: RebuildSettings
) -> AsyncGenerator[tuple[ColumnsRow, list[Link], RecordPlace, RecordPlace | None], None]:
    """Yield row, links, place and, where there is one, place of the DOM of each page in *content*,
    a WARC file that is, or will be, called *warc*, in the folder of WARC files of a data directory.
    Raises DamagedFile, DataDirError, OSError."""
    earlier = folders_of(warc.parent.parent / EARLIER)
    crawl_id = info_value(content, CRAWL_ID)
    async with rebuild_settings.parsing() as parse:
        for stored, dom in with_doms(captures(warc, content, rebuild_settings.max_bytes)):
            if stored.url.startswith(PAGE_INFO):
                with suppress(msgspec.MsgspecError):  # of another program
                    info = _decode_info(stored.body)
                    yield info.row, list(info.outlinks), stored.place, None
                continue
            if stored.metadata_value(BESIDE):
                continue
            page = await _page(stored, dom, rebuild_settings, parse, earlier)
            depth = stored.metadata_value(DEPTH)
            hops = int(depth) if _is_number(depth) else None
            number = stored.metadata_value(ROUND)
            in_round = int(number) if _is_number(number) else None
            crawl = Provenance(hops, crawl_id, stored.metadata_value(SEED), in_round)
            row = row_of(page, stored.fetched_at, rebuild_settings.groups, crawl)
            if row is not None:
                parsed = page.parsed or Parsed()
                base = base_of(page.url, parsed)
                outlinks, _ = resolve_links(parsed.links[: max_links(base)], base)
                yield row, outlinks, stored.place, None if dom is None else dom.place


async def _page(
    stored: ArchivedCapture,
    dom: ArchivedCapture | None,
    rebuild_settings: RebuildSettings,
    parse: Parse,
    earlier: Sequence[Path],
) -> Page:
    """Return the page of *stored*, and its DOM; *earlier*: folders that may have the bodies that it
    lacks."""
    headers = head_fields(stored.head)
    page = _page_as_noted(stored, headers)
    if page.flaw or not page.is_answered or page.is_copy or page.is_refetch:
        return page
    if page.rendered is not None and dom is None:
        return page  # a crash has cut its DOM off
    if stored.metadata_value(ELSEWHERE):
        original = find_original(earlier, stored)
        if original is None:
            return page
        body = read_entry(original, rebuild_settings.max_bytes).body
        stored = dataclasses.replace(stored, body=body)
    if page.rendered is not None and dom is not None:
        body = dom.body
        kind = actual_type(page.content_type, page.url, body).media_type
    elif page.is_sitemap:
        body = decoded_body(stored, lambda _type, _url: rebuild_settings.max_bytes)
        kind = type_by_content(body, page.content_type)
    else:
        body = decoded_body(stored, rebuild_settings.max_body_bytes)
        kind = actual_type(page.content_type, page.url, body).media_type
    parsed = Parsed(parser=stored.metadata_value("parser"))
    if rebuild_settings.retry_unreadable or not stored.metadata_value(UNREADABLE):
        source = Source(
            *(page.url, page.content_type, body, tuple(headers), page.is_sitemap),
            rebuild_settings.groups,
        )
        parsed = await parse(source, kind)
    parsed = with_headers(parsed, link_headers(headers, page.url), robots_header(headers))
    return replace(
        page,
        media_type=kind,
        digest=sha1(body, usedforsecurity=False).digest(),
        parsed=parsed,
        title=parsed.title,
        text=parsed.text,
        simhash=fingerprint(parsed.text, rebuild_settings.near_min_words),
    )


def _page_as_noted(stored: ArchivedCapture, headers: list[tuple[bytes, bytes]]) -> Page:
    """Return the page without its content, from the head and the metadata that the crawl wrote."""
    declared = (values(headers, b"content-type") or [b""])[-1]  # the last, as Scrapy has it
    near, bits = (
        stored.metadata_value("near-duplicate-of"),
        stored.metadata_value("near-duplicate-bits"),
    )
    # Archives of older versions have revisits without this field.
    is_elsewhere = bool(stored.metadata_value(ELSEWHERE))
    rendered = Rendered.read(stored.metadata_value(RENDERED))
    is_of_content = not is_elsewhere and rendered is None
    same = stored.metadata_value("duplicate-of") or (stored.refers_to if is_of_content else "")
    flaw = stored.metadata_value("flaw")
    return Page(
        url=stored.url,
        status=status_of(stored.head),
        content_type=DOM_TYPE if rendered is not None else declared.decode("latin-1"),
        body=b"",
        depth=0,
        lease_id=0,
        exchange=Exchange(
            url=stored.url,
            at=stored.fetched_at,
            duration_s=0.0,
            request_head=b"",
            head=stored.head,
            body=b"",
            ip=stored.ip,
            truncated=_truncated(stored),
        ),
        rendered=rendered,
        media_type=stored.metadata_value("media-type") or media_type(declared),
        flaw=Flaw(flaw) if flaw in _FLAWS else _OTHER_FLAW,
        digest=sha1_of(stored.metadata_value("content-digest")) or stored.payload_sha1,
        duplicate_of=Claim(b"", same) if same else None,
        alias_of=stored.metadata_value("alias-of"),
        near=NearDuplicate(Claim(b"", near), int(bits)) if near and bits.isdecimal() else None,
        may_repeat=bool(stored.metadata_value(MAY_REPEAT)),
        is_sitemap=bool(stored.metadata_value(SITEMAP)),
        visits=VisitsSoFar.read(stored.metadata_value(VISITS)),
        preferences=Preferences.read(stored.metadata_value(PREFERENCES)),
    )


_DECIMALS: Final = 9


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdecimal() and len(written) <= _DECIMALS


def _truncated(stored: ArchivedCapture) -> Truncated:
    """Return why the answer is incomplete. That of a revisit is complete, or it were none."""
    word = "" if stored.kind == "revisit" else stored.truncated
    return Truncated(word) if word in _TRUNCATED else Truncated.UNSPECIFIED


_TRUNCATED: Final = frozenset(Truncated)

SUFFIX: Final = ".parquet"


class ColumnsCompanion:
    """Implements crawler.archive.warc_file.Companion.

    A rebuilt file is equal to the one that the crawl wrote, except for what a parser that was
    changed since then reads differently.
    """

    is_slow = True  # a rebuild parses each page again

    def __init__(self, rebuild_settings: RebuildSettings, group_bytes: int | None = None) -> None:
        self._again = rebuild_settings
        self._group_bytes = group_bytes  # of text in a row group; None: as usual
        self._file: ColumnsFile | None = None

    @property
    def suffix(self) -> str:
        return SUFFIX

    def begin(self, warc: Path) -> None:
        from crawler.archive.columns import ColumnsFile  # noqa: PLC0415  # see above

        path = companion_path(warc, SUFFIX)
        self._file = ColumnsFile(path, self._group_bytes, self._again.groups)

    def add(self, written: StoredCapture) -> None:
        row = written.capture.row
        if self._file is not None and row is not None:
            # The links and the text of a copy are in the row of its original.
            self._file.add(row, written.capture.outlinks, written.place, written.dom)

    def add_stored(self, stored: ArchivedCapture) -> None:
        raise NotImplementedError("columns are made again by `rebuild` only")

    def finish(self) -> None:
        if self._file is not None:
            self._file.finish()
            self._file = None

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()
            self._file = None

    def rebuild(self, warc: Path, content: Path) -> None:
        stop = Event()
        # Parsers need an event loop, and the loop of this thread, if any, must not be blocked.
        with ThreadPoolExecutor(1) as thread:
            try:
                thread.submit(asyncio.run, self._rebuild(warc, content, stop)).result()
            finally:
                stop.set()  # Ctrl-C is raised here, and the rebuild ends at the next page

    async def _rebuild(self, warc: Path, content: Path, stop: Event) -> None:
        from crawler.archive.columns import ColumnsFile  # noqa: PLC0415  # see above

        final = companion_path(warc, SUFFIX)
        is_marked = open_name(final).exists()
        made = ColumnsFile(final, self._group_bytes, self._again.groups)
        try:
            async with aclosing(rows(warc, content, self._again)) as found:
                async for row, outlinks, place, dom in found:
                    if stop.is_set():
                        return
                    made.add(row, outlinks, place, dom)
            made.finish()
        except OSError as error:
            raise StoreUnavailable(f"cannot read {content}: {error.strerror or error}") from error
        finally:
            made.discard(leave_mark=is_marked)  # does nothing if the file is finished

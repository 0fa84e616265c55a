"""Rows made again of what a WARC file holds: after a crash, or after a parser was mended.

Rule: what the bytes say is read anew (type, text, links, language, dates, fingerprint, digest).
What only the crawl could know is kept as it was written down: whether it is a page at all, and
whose copy it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, replace
from hashlib import sha1
from pathlib import Path
from threading import Event
from typing import Final

from crawler.archive.capture import StoredCapture
from crawler.archive.columns import GROUP_BYTES, Cells, ColumnsFile, cells
from crawler.archive.files import companion_path, open_name
from crawler.archive.reader import (
    Room,
    Stored,
    captures,
    decoded_body,
    sha1_of,
    status_of,
    values,
)
from crawler.model.page import (
    Flaw,
    NearDuplicate,
    Page,
    Parsed,
    Source,
    head_fields,
)
from crawler.model.types import Claim, StoreUnavailable
from crawler.policy.links import (
    base_of,
    link_headers,
    most_kept,
    resolved,
    robots_header,
    row_of,
    with_headers,
)
from crawler.policy.media_type import actual_type, media_type
from crawler.policy.simhash import fingerprint

Parse = Callable[[Source, str], Awaitable[Parsed]]
"""By the parser for a media type; nothing where there is none or it cannot."""

UNREADABLE: Final = "unreadable"
"""The metadata that says why no parser could read it; most often, it took too long."""
MAY_REPEAT: Final = "may-repeat"
"""The metadata that names its own URL, where a process that died may have archived it too."""
_FLAWS: Final = frozenset(Flaw)
_OTHER_FLAW: Final = Flaw.LYING_TYPE  # in place of a word of another version


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildRules:
    """How pages are read a second time: as they were the first time."""

    parsing: Callable[[], AbstractAsyncContextManager[Parse]]
    room: Room
    most_bytes: int  # the most that `room` says
    near_min_words: int
    tries_unreadable: bool  # also those on which a parser gave up in the crawl


async def rows(warc: Path, content: Path, again: RebuildRules) -> AsyncGenerator[Cells, None]:
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


async def _page(stored: Stored, again: RebuildRules, parse: Parse) -> Page:
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
        near=NearDuplicate(Claim(b"", near), int(bits)) if near and bits.isdecimal() else None,
        may_repeat=bool(stored.noted(MAY_REPEAT)),
    )


# The columns beside each WARC file.
#
# Rule: what is written while the crawl runs and what is made again from the records is the same,
# but for the text, title, links and all else that a parser mended since then reads otherwise.

SUFFIX: Final = ".parquet"


class ColumnsCompanion:
    """Implements storage.warc.companions.Companion."""

    is_slow = True  # each page is parsed again

    def __init__(self, again: RebuildRules, group_bytes: int = GROUP_BYTES) -> None:
        self._again = again
        self._group_bytes = group_bytes
        self._file: ColumnsFile | None = None

    @property
    def suffix(self) -> str:
        return SUFFIX

    def begin(self, warc: Path) -> None:
        self._file = ColumnsFile(companion_path(warc, SUFFIX), self._group_bytes)

    def add(self, written: StoredCapture) -> None:
        row = written.capture.row
        if self._file is not None and row is not None:
            # Those of a copy are with its original, as its text is.
            self._file.add(cells(row, written.capture.outlinks, written.place))

    def add_again(self, stored: Stored) -> None:
        raise NotImplementedError("a slow one is made by `rebuild`")

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
        # In a thread of its own: parsers want a loop, and here one may run that must not wait.
        with ThreadPoolExecutor(1) as thread:
            try:
                thread.submit(asyncio.run, self._rebuild(warc, content, stop)).result()
            finally:
                stop.set()  # Ctrl-C is heard here, and ends it at the next page

    async def _rebuild(self, warc: Path, content: Path, stop: Event) -> None:
        final = companion_path(warc, SUFFIX)
        is_owed = open_name(final).exists()
        made = ColumnsFile(final, self._group_bytes)
        try:
            async with aclosing(rows(warc, content, self._again)) as found:
                async for row in found:
                    if stop.is_set():
                        return
                    made.add(row)
            made.finish()
        except OSError as error:
            raise StoreUnavailable(f"cannot read {content}: {error.strerror or error}") from error
        finally:
            made.discard(leave_mark=is_owed)  # nothing, once it is finished

"""What is in an archive, file by file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from crawler.ops.archive_place import ArchivePlace, is_being_written
from crawler.ops.figures import many, number, plain, size
from crawler.ops.looks_text import table
from crawler.storage.columns.companion import SUFFIX as COLUMNS
from crawler.storage.warc.cdxj import SUFFIX as INDEX
from crawler.storage.warc.companions import beside, is_owed
from crawler.storage.warc.lookup import Entry, entries
from crawler.storage.warc.openfile import OPEN_SUFFIX

OWED: Final = "(columns to be made)"
"""The crawl, or the next one, makes them; so does scrapy archive parse."""


class FileLook(msgspec.Struct, frozen=True):
    """One WARC file."""

    file: str
    state: str  # finished | being written | unfinished
    bytes: int
    captures: int  # responses and revisits
    revisits: int
    first: str  # when the oldest was fetched, 14 digits; empty: there is none
    last: str
    beside: tuple[str, ...]  # index, columns, or that these are still to be made


class CaptureLook(msgspec.Struct, frozen=True):
    """One capture of a URL."""

    at: str  # 14 digits
    status: str
    media_type: str  # of a revisit: warc/revisit
    url: str
    record: str  # "file:offset"
    digest: str


def file_looks(place: ArchivePlace) -> Iterator[FileLook]:
    for file in place.files():
        with suppress(FileNotFoundError):  # finished or brought away since
            yield _look(file)


def capture_look(entry: Entry) -> CaptureLook:
    return CaptureLook(
        entry.timestamp, entry.status, entry.mime, entry.url, str(entry.place), entry.digest
    )


def files_text(looks: Sequence[FileLook]) -> Iterator[str]:
    head = ("file", "state", "captures", "revisits", "size", "first", "last", "beside")
    rows = [_row(look) for look in looks]
    yield from table([head, *rows], right={2, 3, 4})
    captures, taken = sum(look.captures for look in looks), sum(look.bytes for look in looks)
    yield f"{many(len(looks), 'file')}, {many(captures, 'capture')}, {size(taken)}"


def captures_text(looks: Sequence[CaptureLook]) -> Iterator[str]:
    yield from table(
        [
            (moment(look.at), look.status or "-", plain(look.media_type) or "-", look.record)
            + ((plain(look.url),) if len({each.url for each in looks}) > 1 else ())
            for look in looks
        ],
        right=set(),
    )


def moment(timestamp: str) -> str:
    """14 digits as a person reads them."""
    day, time = timestamp[:8], timestamp[8:]
    return f"{day[:4]}-{day[4:6]}-{day[6:]} {time[:2]}:{time[2:4]}:{time[4:]}"


def _look(file: Path) -> FileLook:
    size_bytes = file.stat().st_size
    captures, revisits, first, last = 0, 0, "", ""
    for entry in entries(file):
        captures += 1
        revisits += entry.is_revisit
        first = min(first or entry.timestamp, entry.timestamp)
        last = max(last, entry.timestamp)
    name = file.name.removesuffix(OPEN_SUFFIX)
    has = tuple(_beside(file.with_name(name)))
    return FileLook(name, _state(file), size_bytes, captures, revisits, first, last, has)


def _beside(warc: Path) -> Iterator[str]:
    if beside(warc, INDEX).exists():
        yield "index"
    if is_owed(warc, COLUMNS):
        yield OWED
    elif beside(warc, COLUMNS).exists():
        yield "columns"


def _state(file: Path) -> str:
    if not file.name.endswith(OPEN_SUFFIX):
        return "finished"
    return "being written" if is_being_written(file) else "unfinished"


def _row(look: FileLook) -> tuple[str, ...]:
    return (
        look.file,
        look.state,
        number(look.captures),
        number(look.revisits),
        size(look.bytes),
        moment(look.first) if look.first else "-",
        moment(look.last) if look.last else "-",
        " ".join(look.beside) or "-",
    )

"""The columns files: the table of columns, Arrow batches, and the Parquet writer.

Rule: a column's name keeps its meaning for ever; new columns come at the end. A test compares the
table with docs/columns.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.archive.capture import RecordPlace
from crawler.archive.record_bytes import SHA1_BYTES, sha1_label
from crawler.archive.warc_file import open_name
from crawler.data.files import sync_folder
from crawler.model.page import ColumnsRow, Link
from crawler.model.types import DataDirError, StoreUnavailable


class Column(NamedTuple):
    """A column of the Parquet files, and what it says in docs/columns.md."""

    name: str
    type: pa.DataType
    description: str
    nullable: bool = True
    is_dictionary: bool = False  # its values repeat, so a dictionary makes them small


TIME: Final = pa.timestamp("us", tz="UTC")
LINK: Final = pa.struct(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("rel", pa.string(), nullable=False),
    ]
)
LINKS: Final = pa.list_(pa.field("element", LINK, nullable=False))

COLUMNS: Final = (
    Column("url", pa.string(), "as fetched", nullable=False),
    Column("host", pa.string(), "its name, without a port", nullable=False, is_dictionary=True),
    Column("fetched_at", TIME, "when the fetch began", nullable=False),
    Column("status", pa.int32(), "of the answer, 200 to 299", nullable=False),
    Column("media_type", pa.string(), "what it is: `text/html`", is_dictionary=True),
    Column("language", pa.string(), "as the page declares it: `de`, `en-GB`", is_dictionary=True),
    Column("title", pa.string(), "of the page"),
    Column(
        "text",
        pa.string(),
        "what a reader came for, each block a line, the cells of a row parted by tabs; null of an"
        " exact copy",
    ),
    Column("links", pa.int32(), "how many are on the page, of all kinds", nullable=False),
    Column("outlinks", LINKS, "those that lead to http(s), in their order", nullable=False),
    Column("canonical", pa.string(), "the URL the page gives as its own"),
    Column("published", TIME, "where the page says so"),
    Column("modified", TIME, "where the page says so"),
    Column("simhash", pa.uint64(), "fingerprint of the text; null of one too short"),
    Column("digest", pa.string(), "SHA-1 of the decoded body: `sha1:` and base 32"),
    Column("original", pa.string(), "the URL it repeats, exactly or nearly"),
    Column("bits", pa.int8(), "by how many bits of 64 it differs; null of an exact copy"),
    Column("warc_file", pa.string(), "where its record lies", nullable=False, is_dictionary=True),
    Column("warc_offset", pa.int64(), "in that file, in bytes", nullable=False),
    Column("warc_length", pa.int64(), "of that record, compressed, in bytes", nullable=False),
    Column("may_repeat", pa.bool_(), "true: its text may be in another row of its `url`, too"),
)
SCHEMA: Final = pa.schema([pa.field(one.name, one.type, one.nullable) for one in COLUMNS])

# Parquet's names of the columns with a dictionary, those inside lists too.
DICTIONARY_COLUMNS: Final = [one.name for one in COLUMNS if one.is_dictionary] + [
    "outlinks.list.element.kind",
    "outlinks.list.element.rel",
]
# The minimum and maximum of a row group let a reader skip it, but not of texts and link lists.
WITH_STATISTICS: Final = [
    one.name for one in COLUMNS if one.name not in ("title", "text", "outlinks", "digest")
]


# Every value of a row can be written: half of a surrogate pair in a text becomes U+FFFD, and a time
# outside the years 1 to 9999 becomes null.
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_YEAR_1: Final = -62_135_596_800.0
_YEAR_10000: Final = 253_402_300_800.0


class Cells(NamedTuple):
    """The values of one row, in the order of the columns."""

    url: str
    host: str
    fetched_at: datetime | None
    status: int
    media_type: str | None
    language: str | None
    title: str | None
    text: str | None
    links: int
    outlinks: Sequence[Link]
    canonical: str | None
    published: datetime | None
    modified: datetime | None
    simhash: int | None
    digest: str | None
    original: str | None
    bits: int | None
    warc_file: str
    warc_offset: int
    warc_length: int
    may_repeat: bool | None


def cells_of(row: ColumnsRow, outlinks: Sequence[Link], place: RecordPlace) -> Cells:
    """Return the cells of *row*, with None for empty values. The URLs of *outlinks* are
    absolute."""
    return Cells(
        row.url,
        row.host,
        _time(row.fetched_at),
        row.status,
        row.media_type or None,
        row.language or None,
        row.title or None,
        row.text or None,
        row.links,
        outlinks,
        row.canonical or None,
        _time(row.published),
        _time(row.modified),
        row.simhash,
        sha1_label(row.digest) if len(row.digest) == SHA1_BYTES else None,
        row.original or None,
        row.bits,
        place.file,
        place.offset,
        place.length,
        row.may_repeat or None,
    )


def record_batch(rows: Sequence[Cells]) -> pa.RecordBatch:
    """Return an Arrow batch of *rows*, at least one."""
    arrays = [
        _links(values) if column.type is LINKS else _array(values, column.type)
        for column, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _links(lists: Sequence[Sequence[Link]]) -> pa.Array:
    ends, end = [0], 0
    for links in lists:
        end += len(links)
        ends.append(end)
    parts = (
        [link.url for links in lists for link in links],
        [link.kind for links in lists for link in links],
        [link.rel for links in lists for link in links],
    )
    structs = pa.StructArray.from_arrays(
        [_array(part, pa.string()) for part in parts], fields=list(LINK)
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type=LINKS)


def _array(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_storable(value) for value in values], kind)


def _storable(value: object) -> object:
    return _SURROGATE.sub("\ufffd", value) if isinstance(value, str) else value


def _time(at: float | None) -> datetime | None:
    """Return a time rounded to the microsecond as WARC-Date is, or None outside years 1 to 9999."""
    if at is None or not _YEAR_1 <= at < _YEAR_10000 - 1:
        return None
    return datetime.fromtimestamp(at, UTC)


MEGABYTE: Final = 1 << 20
# A batch takes 150 us whatever its rows are. Arrow holds the GIL while it makes an array: the texts
# of 256 rows of 12 KB take 1 ms.
BATCH_ROWS: Final = 256
BATCH_CHARS: Final = 4 * MEGABYTE
PAGE_ROWS: Final = 64  # the size of a page of Parquet is checked after so many rows
LINK_CHARS: Final = 64  # the assumed size of a link
GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16 * MEGABYTE


class ColumnsFile:
    """One Parquet file while it is being written, in bounded memory: rows become Arrow batches, and
    batches row groups. It has the name of an unfinished file until `finish`, because a Parquet file
    without its end cannot be read. Discard it after StoreUnavailable from any call."""

    def __init__(self, final: Path, group_bytes: int | None = None) -> None:
        self._final = final
        self._group_bytes = group_bytes or GROUP_BYTES
        self._rows: list[Cells] = []
        self._chars = 0  # in _rows, about
        self._batches: list[pa.RecordBatch] = []
        self._grouped_rows = 0  # in _batches
        self._grouped_bytes = 0
        try:
            self._sink = pa.OSFile(str(open_name(final)), "wb")
            self._writer = _writer(self._sink)
        except OSError as error:
            raise _unavailable(final, error) from error

    def add(self, row: ColumnsRow, outlinks: Sequence[Link], place: RecordPlace) -> None:
        self._rows.append(cells_of(row, outlinks, place))
        self._chars += len(row.text or "") + LINK_CHARS * len(outlinks)
        if len(self._rows) >= BATCH_ROWS or self._chars >= BATCH_CHARS:
            self._batch_rows()
            if self._grouped_rows >= GROUP_ROWS or self._grouped_bytes >= self._group_bytes:
                self._flush()

    def finish(self) -> None:
        """Complete and sync it, and rename it to its final name, replacing an existing file."""
        self._batch_rows()
        self._flush()
        path = open_name(self._final)
        try:
            self._writer.close()
            self._sink.close()
            _sync(path)
            path.replace(self._final)
            sync_folder(self._final.parent)
        except OSError as error:
            raise _unavailable(self._final, error) from error

    def discard(self, *, leave_mark: bool = False) -> None:
        """Remove the unfinished file; with *leave_mark*, leave it empty. Does nothing if it is
        finished."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            if leave_mark:
                os.truncate(open_name(self._final), 0)
            else:
                open_name(self._final).unlink()

    def _batch_rows(self) -> None:
        if self._rows:
            made = record_batch(self._rows)
            self._batches.append(made)
            self._grouped_rows += len(self._rows)
            self._grouped_bytes += made.nbytes
            self._rows, self._chars = [], 0

    def _flush(self) -> None:
        """Write the batches as a row group. Arrow releases the GIL while it compresses."""
        if not self._batches:
            return
        group = pa.Table.from_batches(self._batches, SCHEMA)
        self._batches, self._grouped_rows, self._grouped_bytes = [], 0, 0
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except OSError as error:
            raise _unavailable(self._final, error) from error


def _writer(sink: pa.OSFile, schema: pa.Schema = SCHEMA) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        schema,
        # For 12 KB of text: level 1 takes 36 us and leaves a third, lz4 29 us and a half, level 3
        # 56 us.
        compression="zstd",
        compression_level=1,
        use_dictionary=DICTIONARY_COLUMNS,
        write_statistics=WITH_STATISTICS,
        write_batch_size=PAGE_ROWS,
    )


def copy_rows(source: BinaryIO, final: Path, left_out: Sequence[int]) -> None:
    """Write to *final* the rows of *source*, a row group at a time, without those of the records at
    the offsets *left_out*. Raises ValueError if *source* is no whole columns file, and OSError."""
    gone = pa.array(left_out, pa.int64())
    try:
        with (
            pq.ParquetFile(source) as file,
            pa.OSFile(str(final), "wb") as sink,
            _writer(sink, file.schema_arrow) as writer,
        ):
            for number in range(file.num_row_groups):
                group = file.read_row_group(number)
                kept = group.filter(pc.invert(pc.is_in(group["warc_offset"], value_set=gone)))
                if kept.num_rows:
                    writer.write_table(kept, row_group_size=kept.num_rows)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {open_name(path)}: {error.strerror or error}")


class PageTitle(NamedTuple):
    url: str
    fetched_at: datetime
    media_type: str
    title: str


def read_titles(columns: Path) -> Iterator[PageTitle]:
    """Yield the titles of the pages in one columns file, in bounded memory. Raises DataDirError,
    FileNotFoundError."""
    try:
        with pq.ParquetFile(columns) as file:
            for batch in file.iter_batches(columns=list(PageTitle._fields)):
                for row in batch.to_pylist():
                    yield PageTitle(
                        row["url"], row["fetched_at"], row["media_type"] or "", row["title"] or ""
                    )
    except pa.ArrowException as error:
        raise DataDirError(
            f"{columns} cannot be read: {error}. Make it again: scrapy archive parse"
        ) from error

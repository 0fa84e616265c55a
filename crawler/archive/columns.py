"""The columns: what each is called, its type, and what it says.

Rule: a name keeps its meaning for ever; new columns come at the end. The table of
docs/columns.md is this one, by a test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types

from crawler.archive.capture import RecordPlace
from crawler.archive.files import open_name, sync_folder
from crawler.model.page import ColumnsRow, Link
from crawler.model.types import DataDirError, StoreUnavailable


class Column(NamedTuple):
    """One of them."""

    name: str
    type: pa.DataType
    says: str
    nullable: bool = True
    few: bool = False  # its values repeat: a dictionary makes them small


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
    Column("host", pa.string(), "its name, without a port", nullable=False, few=True),
    Column("fetched_at", TIME, "when the fetch began", nullable=False),
    Column("status", pa.int32(), "of the answer, 200 to 299", nullable=False),
    Column("media_type", pa.string(), "what it is: `text/html`", few=True),
    Column("language", pa.string(), "as the page declares it: `de`, `en-GB`", few=True),
    Column("title", pa.string(), "of the page"),
    Column("text", pa.string(), "what a reader came for; null of an exact copy"),
    Column("links", pa.int32(), "how many are on the page, of all kinds", nullable=False),
    Column("outlinks", LINKS, "those that lead to http(s), in their order", nullable=False),
    Column("canonical", pa.string(), "the URL the page gives as its own"),
    Column("published", TIME, "where the page says so"),
    Column("modified", TIME, "where the page says so"),
    Column("simhash", pa.uint64(), "fingerprint of the text; null of one too short"),
    Column("digest", pa.string(), "SHA-1 of the decoded body: `sha1:` and base 32"),
    Column("original", pa.string(), "the URL it repeats, exactly or nearly"),
    Column("bits", pa.int8(), "by how many bits of 64 it differs; null of an exact copy"),
    Column("warc_file", pa.string(), "where its record lies", nullable=False, few=True),
    Column("warc_offset", pa.int64(), "in that file, in bytes", nullable=False),
    Column("warc_length", pa.int64(), "of that record, compressed, in bytes", nullable=False),
    Column("may_repeat", pa.bool_(), "true: its text may be in another row of its `url`, too"),
)
SCHEMA: Final = pa.schema([pa.field(one.name, one.type, one.nullable) for one in COLUMNS])

# Paths as Parquet names them, inside lists too.
FEW: Final = [one.name for one in COLUMNS if one.few] + [
    "outlinks.list.element.kind",
    "outlinks.list.element.rel",
]
# Least and greatest of a row group let a reader skip it; of texts and link lists they say nothing.
WITH_STATISTICS: Final = [
    one.name for one in COLUMNS if one.name not in ("title", "text", "outlinks", "digest")
]


# Rows, turned on their side: some at once into an Arrow batch.
#
# Rule: pure, and every value that a row can hold has a place: a text that is no Unicode (half of a
# surrogate pair) gets U+FFFD there, a time outside the years 1 to 9999 counts as not said.

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_YEAR_1: Final = -62_135_596_800.0
_YEAR_10000: Final = 253_402_300_800.0
SHA1_BYTES: Final = 20
LABEL_CHARS: Final = 32
_BASE_32: Final = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", np.uint8)
_PLACES: Final = np.array([16, 8, 4, 2, 1], np.uint8)


class Cells(NamedTuple):
    """A row as it lies in the file, in the order of the columns."""

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
    digest: bytes
    original: str | None
    bits: int | None
    warc_file: str
    warc_offset: int
    warc_length: int
    may_repeat: bool | None


def cells(row: ColumnsRow, outlinks: Sequence[Link], place: RecordPlace) -> Cells:
    """What is empty is null. *outlinks*: their URLs are absolute."""
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
        row.digest,
        row.original or None,
        row.bits,
        place.file,
        place.offset,
        place.length,
        row.may_repeat or None,
    )


def batch(rows: Sequence[Cells]) -> pa.RecordBatch:
    """*rows*, at least one."""
    arrays = [
        SPECIAL[column.name](values) if column.name in SPECIAL else _array(values, column.type)
        for column, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _links(lists: Sequence[Sequence[Link]]) -> pa.Array:
    ends, end = [0], 0
    for links in lists:
        end += len(links)
        ends.append(end)
    flat = [link for links in lists for link in links]
    parts = (
        [link.url for link in flat],
        [link.kind for link in flat],
        [link.rel for link in flat],
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
    """To the microsecond, rounded as WARC-Date is."""
    if at is None or not _YEAR_1 <= at < _YEAR_10000 - 1:
        return None
    return datetime.fromtimestamp(at, UTC)


def _labels(digests: Sequence[bytes]) -> pa.Array:
    """`sha1:` and base 32, as in the WARC. All in one go: b32encode takes 3 us for one."""
    whole = b"".join(digest for digest in digests if len(digest) == SHA1_BYTES)
    fives = np.unpackbits(np.frombuffer(whole, np.uint8)).reshape(-1, 5) @ _PLACES
    text = _BASE_32[fives].tobytes().decode()
    starts = iter(range(0, len(text), LABEL_CHARS))
    return pa.array(
        [
            f"sha1:{text[(at := next(starts)) : at + LABEL_CHARS]}"
            if len(digest) == SHA1_BYTES
            else None
            for digest in digests
        ],
        pa.string(),
    )


SPECIAL: Final[dict[str, Callable[..., pa.Array]]] = {"outlinks": _links, "digest": _labels}


# One Parquet file while it is being written.
#
# Rule: bounded memory, whatever the rows hold: some rows become an Arrow batch, some batches a row
# group of the file. It has the name of an unfinished file until it is whole: a Parquet file without
# its end cannot be read at all.

MEGABYTE: Final = 1 << 20
# Arrow holds the interpreter while it makes a batch: 64 rows of 12 KB take 0.5 ms.
BATCH_ROWS: Final = 64
BATCH_CHARS: Final = MEGABYTE
LINK_CHARS: Final = 64  # counted for a link
GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16 * MEGABYTE


class ColumnsFile:
    """Rows go in, and at the end it is there under its name. StoreUnavailable from any call:
    discard it."""

    def __init__(self, final: Path, group_bytes: int = GROUP_BYTES) -> None:
        self._final = final
        self._group_bytes = group_bytes
        self._rows: list[Cells] = []
        self._chars = 0  # of these rows, about
        self._batches: list[pa.RecordBatch] = []
        self._grouped_rows = 0  # in these batches
        self._grouped_bytes = 0
        try:
            self._sink = pa.OSFile(str(open_name(final)), "wb")
            self._writer = _writer(self._sink)
        except OSError as error:
            raise _unavailable(final, error) from error

    def add(self, row: Cells) -> None:
        self._rows.append(row)
        self._chars += len(row.text or "") + LINK_CHARS * len(row.outlinks)
        if len(self._rows) >= BATCH_ROWS or self._chars >= BATCH_CHARS:
            self._turn()
            if self._grouped_rows >= GROUP_ROWS or self._grouped_bytes >= self._group_bytes:
                self._flush()

    def finish(self) -> None:
        """Forced to the disk, then called by its name, in place of one that has it."""
        self._turn()
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
        """Remove what there is of it, if it is not finished. *leave_mark*: leave it, empty."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError):
            self._sink.close()
        with suppress(OSError):
            if leave_mark:
                os.truncate(open_name(self._final), 0)
            else:
                open_name(self._final).unlink()

    def _turn(self) -> None:
        if self._rows:
            made = batch(self._rows)
            self._batches.append(made)
            self._grouped_rows += len(self._rows)
            self._grouped_bytes += made.nbytes
            self._rows, self._chars = [], 0

    def _flush(self) -> None:
        """The interpreter is free meanwhile: Arrow compresses and writes without it."""
        if not self._batches:
            return
        group = pa.Table.from_batches(self._batches, SCHEMA)
        self._batches, self._grouped_rows, self._grouped_bytes = [], 0, 0
        try:
            self._writer.write_table(group, row_group_size=group.num_rows)
        except OSError as error:
            raise _unavailable(self._final, error) from error


def _writer(sink: pa.OSFile) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        SCHEMA,
        # Of 12 KB of text: level 1 takes 36 us and leaves a third, lz4 29 us and a half, 3 56 us.
        compression="zstd",
        compression_level=1,
        use_dictionary=FEW,
        write_statistics=WITH_STATISTICS,
        write_batch_size=BATCH_ROWS,  # the size of a page is looked at after so many
    )


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return StoreUnavailable(f"cannot write {open_name(path)}: {error.strerror or error}")


# The pages of one columns file, as a list of contents needs them.


class PageTitle(NamedTuple):
    url: str
    fetched_at: datetime
    media_type: str
    title: str


def read_titles(columns: Path) -> Iterator[PageTitle]:
    """In bounded memory. Raises DataDirError, FileNotFoundError."""
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

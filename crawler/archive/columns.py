"""The columns files: the table of columns, Arrow batches, and the Parquet writer.

Rule: a column's name keeps its meaning for ever; new columns come at the end. A test compares the
table with docs/columns.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cache
from itertools import chain, pairwise
from math import modf
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import astuple

from crawler.archive.arrow import pa, pc, pq
from crawler.archive.capture import RecordPlace
from crawler.archive.record_bytes import SHA1_BYTES, sha1_label
from crawler.archive.warc_file import open_name
from crawler.data.files import sync_folder
from crawler.model.choices import ColumnGroup
from crawler.model.page import (
    NOTHING_SAID,
    About,
    AnswerFacts,
    ColumnsRow,
    DetectedLanguage,
    Link,
    Provenance,
    Rendered,
    TextQuality,
)
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable
from crawler.page.language import detect_language
from crawler.page.text_quality import LINK_SHARE, text_qualities


class Column(NamedTuple):
    """A column of the Parquet files, and what it says in docs/columns.md."""

    name: str
    type: pa.DataType
    description: str
    nullable: bool = True
    is_dictionary: bool = False  # its values repeat, so a dictionary makes them small
    group: ColumnGroup | None = None  # without which it is not there; None: it always is


TIME: Final = pa.timestamp("us", tz="UTC")
LINK: Final = pa.struct(
    [
        pa.field("url", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("rel", pa.string(), nullable=False),
    ]
)
ANCHOR: Final = pa.struct(
    [
        *LINK,
        pa.field("text", pa.string(), nullable=False),
        pa.field("language", pa.string(), nullable=False),
    ]
)
LINKS: Final = pa.list_(pa.field("element", LINK, nullable=False))
ANCHORS: Final = pa.list_(pa.field("element", ANCHOR, nullable=False))


def _answer(name: str, description: str, *, is_dictionary: bool = False) -> Column:
    return Column(name, pa.string(), description, True, is_dictionary, ColumnGroup.ANSWER)


def _about(name: str, description: str, *, is_dictionary: bool = False) -> Column:
    return Column(name, pa.string(), description, True, is_dictionary, ColumnGroup.ABOUT)


def _share(name: str, description: str) -> Column:
    # Eight digits of a share are enough.
    return Column(name, pa.float32(), description, group=ColumnGroup.QUALITY)


def _rendered(name: str, kind: pa.DataType, description: str) -> Column:
    return Column(name, kind, description, group=ColumnGroup.RENDERED)


def _preference(name: str, description: str) -> Column:
    return Column(name, pa.string(), description, True, True, ColumnGroup.PREFERENCES)


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
    # Without the group `anchors`, LINKS.
    Column("outlinks", ANCHORS, "those that lead to http(s), in their order", nullable=False),
    Column("canonical", pa.string(), "the URL the page gives as its own"),
    Column("published", TIME, "where the page says so"),
    Column("modified", TIME, "where the page says so"),
    # No number: pandas makes floats of numbers among which is null, and those have 53 bits.
    Column(
        "simhash",
        pa.string(),
        "fingerprint of the text, 16 hexadecimal digits; null of one too short",
    ),
    Column("digest", pa.string(), "SHA-1 of the decoded body: `sha1:` and base 32"),
    Column("original", pa.string(), "the URL it repeats, exactly or nearly"),
    Column("bits", pa.int8(), "by how many bits of 64 it differs; null of an exact copy"),
    Column("warc_file", pa.string(), "where its record lies", nullable=False, is_dictionary=True),
    Column("warc_offset", pa.int64(), "in that file, in bytes", nullable=False),
    Column("warc_length", pa.int64(), "of that record, compressed, in bytes", nullable=False),
    Column("may_repeat", pa.bool_(), "true: its text may be in another row of its `url`, too"),
    Column("noindex", pa.bool_(), "true: it is marked noindex, and has no title and no text here"),
    Column("visits", pa.int32(), "how often it was visited; null: it is visited once"),
    Column("changes", pa.int32(), "visits after the first that found it changed"),
    Column("changed_at", TIME, "the last of these, or the first visit"),
    Column("next_visit", TIME, "not before then; null where no date was set when this was written"),
    _answer("declared_type", "the type in Content-Type", is_dictionary=True),
    _answer("declared_charset", "the charset in Content-Type, as written", is_dictionary=True),
    _answer("charset", "with which the text was read: `utf-8`, `windows-1252`", is_dictionary=True),
    _answer(
        "truncated", "why the body is not whole: `length`, `time`, `disconnect`", is_dictionary=True
    ),
    _answer("etag", "the header, as sent"),
    _answer("last_modified", "the header, as sent"),
    _answer("server", "the header, as sent", is_dictionary=True),
    _answer("robots_header", "X-Robots-Tag, as sent", is_dictionary=True),
    _about("author", "as the page says"),
    _about("description", "as the page says"),
    _about("site_name", "as the page says", is_dictionary=True),
    _about(
        "licence", "its URL as written, or its name: by `rel`, meta, schema.org", is_dictionary=True
    ),
    _about("robots", "its robots meta tags, as written", is_dictionary=True),
    _about("h1", "the text of the first `<h1>` that has one"),
    Column(
        "detected_language",
        pa.string(),
        "of most of the first 300 characters of `text`: `de`, `zh-Hant`",
        is_dictionary=True,
        group=ColumnGroup.LANGUAGE,
    ),
    Column(
        "language_score",
        pa.float32(),
        "how much of these is in it",
        group=ColumnGroup.LANGUAGE,
    ),
    Column("words", pa.int32(), "of `text`", group=ColumnGroup.QUALITY),
    Column("characters", pa.int32(), "of `text`", group=ColumnGroup.QUALITY),
    _share("mean_word_length", "characters of a word (Gopher: 3 to 10)"),
    _share("alphabetic_word_share", "words with a letter (Gopher: 0.8 at least)"),
    _share("stop_word_share", "words that are one of Gopher's eight (Gopher: two of them)"),
    _share("hash_word_ratio", "signs `#` for each word (Gopher: 0.1 at most)"),
    _share("ellipsis_word_ratio", "ellipses for each word (Gopher: 0.1 at most)"),
    _share("bullet_line_share", "lines that begin with a bullet or `-` (Gopher: 0.9 at most)"),
    _share("ellipsis_line_share", "lines that end with an ellipsis (Gopher: 0.3 at most)"),
    _share("terminal_line_share", "lines that end as a sentence does (C4; FineWeb: 0.12 at least)"),
    _share("short_line_share", "lines of 30 characters at most (FineWeb: 0.67 at most)"),
    _share("repeated_line_share", "lines that stand before, too (Gopher: 0.3 at most)"),
    _share(
        "repeated_character_share",
        "characters in these lines (Gopher: 0.2 at most, FineWeb: 0.01)",
    ),
    _share("newline_word_ratio", "line ends for each word (FineWeb: 0.3 at most)"),
    _share("digit_share", "characters that are digits (RefinedWeb's lines of numbers)"),
    _share("link_share", "letters in links (RefinedWeb, jusText); null where not known"),
    Column(
        "curly_brackets", pa.bool_(), "whether `{` is in it (C4: none)", group=ColumnGroup.QUALITY
    ),
    Column("lorem_ipsum", pa.bool_(), "whether it begins so (C4: none)", group=ColumnGroup.QUALITY),
    Column("depth", pa.int32(), "hops from a seed", group=ColumnGroup.CRAWL),
    Column(
        "crawl_id",
        pa.string(),
        "one of all runs and workers of a crawl",
        is_dictionary=True,
        group=ColumnGroup.CRAWL,
    ),
    Column(
        "seed",
        pa.string(),
        "whose scope it is in: `example.org/docs/`, `*.example.org`; null of scope `any`",
        is_dictionary=True,
        group=ColumnGroup.CRAWL,
    ),
    Column(
        "round",
        pa.int32(),
        "in which it was fetched; null: the run had none",
        group=ColumnGroup.CRAWL,
    ),
    Column(
        "markdown",
        pa.string(),
        "`text` with its headings, lists, links, tables and code; null of an exact copy",
        group=ColumnGroup.MARKDOWN,
    ),
    _rendered("rendered", pa.bool_(), "true: the row is of the DOM that a browser has made"),
    _rendered("render_ms", pa.int32(), "that this took"),
    _rendered("render_requests", pa.int32(), "answered for it, beside its own"),
    _rendered("render_left_out", pa.int32(), "requests that were not: robots.txt, a cap, rests..."),
    _rendered("render_quiet", pa.bool_(), "false: it was still at work at its bound of time"),
    _rendered("dom_offset", pa.int64(), "of its DOM in `warc_file`; null where it is a copy"),
    _rendered("dom_length", pa.int64(), "of that record, compressed, in bytes"),
    _preference(
        "pref_train_ai",
        "whether its publisher lets it be used to train AI: `allow`, `disallow`; `unknown`: not"
        " said; null: said of no use",
    ),
    _preference("pref_search", "the same, of search"),
    _preference("pref_sources", "where they say so: `robots.txt content-usage, rsl`"),
)
NO_GROUPS: Final[frozenset[ColumnGroup]] = frozenset()


@cache
def schema_of(groups: frozenset[ColumnGroup]) -> pa.Schema:
    """Return the schema of files with these groups of columns."""
    without_anchors = {} if ColumnGroup.ANCHORS in groups else {"outlinks": LINKS}
    return pa.schema(
        [
            pa.field(one.name, without_anchors.get(one.name, one.type), one.nullable)
            for one in COLUMNS
            if one.group is None or one.group in groups
        ]
    )


# Parquet's names of the columns with a dictionary, those inside lists too.
DICTIONARY_COLUMNS: Final = [one.name for one in COLUMNS if one.is_dictionary] + [
    "outlinks.list.element.kind",
    "outlinks.list.element.rel",
    "outlinks.list.element.language",
]
# The minimum and maximum of a row group let a reader skip it, but not of texts and link lists.
WITH_STATISTICS: Final = [
    one.name
    for one in COLUMNS
    if one.name not in ("title", "text", "outlinks", "simhash", "digest")
    and (one.group in (None, ColumnGroup.LANGUAGE, ColumnGroup.CRAWL) or one.type != pa.string())
]


# Every value of a row can be written: half of a surrogate pair in a text becomes U+FFFD, and a time
# outside the years 1 to 9999 becomes null.
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_YEAR_1: Final = -62_135_596_800.0
_YEAR_10000: Final = 253_402_300_800.0

MEGABYTE: Final = 1 << 20
# A batch takes 150 us whatever its rows are; more rows would keep more strings in memory.
BATCH_ROWS: Final = 256
BATCH_LINKS: Final = 64_000
BATCH_CHARS: Final = 4 * MEGABYTE
PAGE_ROWS: Final = 64  # the size of a page of Parquet is checked after so many rows
GROUP_ROWS: Final = 10_000
GROUP_BYTES: Final = 16 * MEGABYTE


class _Texts:
    """The texts of the rows of one row group after the other, in one buffer that the next group
    uses again: Arrow returns the memory of each batch to the kernel, and to get cleared memory for
    the next costs 25 us a page."""

    def __init__(self) -> None:
        self._texts = bytearray()
        self._ends = [0]

    @property
    def count(self) -> int:
        return len(self._ends) - 1

    @property
    def bytes(self) -> int:
        return self._ends[-1]

    def add(self, text: str) -> None:
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            encoded = _storable(text).encode()
        begin = self._ends[-1]
        end = begin + len(encoded)
        self._texts[begin:end] = encoded  # an assignment beyond the end makes it longer
        self._ends.append(end)

    def take(self) -> pa.Array:
        """Return the texts, with null for empty ones. They last until the next `add`."""
        ends, self._ends = self._ends, [0]
        del self._texts[2 * GROUP_BYTES :]  # after a very long text
        is_there = pa.array([begin < end for begin, end in pairwise(ends)], pa.bool_())
        return pa.StringArray.from_buffers(
            len(ends) - 1,
            pa.array(ends, pa.int32()).buffers()[1],
            pa.py_buffer(self._texts),
            is_there.buffers()[1],
        )


class RowGroup:
    """The rows of one row group after the other, in bounded memory. Their cells become Arrow
    batches."""

    def __init__(self, groups: frozenset[ColumnGroup] = NO_GROUPS) -> None:
        schema = schema_of(groups)
        self._schema = schema
        # In the order of their columns.
        self._texts = {name: _Texts() for name in ("text", "markdown") if name in schema.names}
        self._cell_names = [name for name in schema.names if name not in self._texts]
        self._cell_schema = pa.schema([schema.field(name) for name in self._cell_names])
        self._has_anchors = ColumnGroup.ANCHORS in groups
        self._has_rendered = ColumnGroup.RENDERED in groups
        self._has_preferences = ColumnGroup.PREFERENCES in groups
        self._facts = [_FACTS[group] for group in ColumnGroup if group in groups & _FACTS.keys()]
        self._of_texts = [
            _OF_TEXTS[group] for group in ColumnGroup if group in groups & _OF_TEXTS.keys()
        ]
        not_of_rows = {"outlinks", *chain.from_iterable(names for names, _ in self._of_texts)}
        self._row_names = [name for name in self._cell_names if name not in not_of_rows]
        self._batches: list[pa.RecordBatch] = []
        self._batch_bytes = 0
        # The next batch:
        self._cells: list[tuple[object, ...]] = []
        self._texts_judged: list[str] = []
        self._link_shares: list[float | None] = []
        self._judged_chars = 0
        self._links: list[Link] = []
        self._link_ends = [0]

    @property
    def rows(self) -> int:
        return self._texts["text"].count

    @property
    def bytes(self) -> int:
        """The size of the texts and the batches."""
        return sum(texts.bytes for texts in self._texts.values()) + self._batch_bytes

    def add(
        self,
        row: ColumnsRow,
        outlinks: Sequence[Link],
        place: RecordPlace,
        dom: RecordPlace | None = None,
    ) -> None:
        """Add *row*, with null for empty values. The URLs of *outlinks* are absolute. *dom*: the
        place of its DOM. The cells are in the order of `COLUMNS`, without texts, outlinks and what
        is found in texts."""
        cells: tuple[object, ...] = (
            row.url,
            row.host,
            micros(row.fetched_at),
            row.status,
            row.media_type or None,
            row.language or None,
            row.title or None,
            row.links,
            row.canonical or None,
            micros(row.published),
            micros(row.modified),
            None if row.simhash is None else f"{row.simhash:016x}",
            sha1_label(row.digest) if len(row.digest) == SHA1_BYTES else None,
            row.original or None,
            row.bits,
            place.file,
            place.offset,
            place.length,
            row.may_repeat or None,
            row.noindex or None,
            *_visits(row),
        )
        for name, nothing in self._facts:
            facts = getattr(row, name)
            is_there = facts is not None and facts is not NOTHING_SAID
            cells += _cells_of(facts) if is_there else nothing
        if self._has_rendered:
            cells += _rendered_cells(row.rendered, dom)
        if self._has_preferences:
            said = row.preferences
            cells += (
                (None,) * 3
                if said is None
                else (said.train_ai, said.search, ", ".join(said.sources) or None)
            )
        self._cells.append(cells)
        self._texts_judged.append(row.text)
        self._link_shares.append(row.link_share)
        self._judged_chars += len(row.text)
        self._links += outlinks
        self._link_ends.append(len(self._links))
        for name, texts in self._texts.items():
            texts.add(getattr(row, name))
        is_full = len(self._links) >= BATCH_LINKS or self._judged_chars >= BATCH_CHARS
        if is_full or len(self._cells) >= BATCH_ROWS:
            self._end_batch()

    def take(self) -> pa.Table:
        """Return the rows as a table and begin the next group. Use no table after the next `add`,
        which writes over its texts."""
        self._end_batch()
        batches, self._batches, self._batch_bytes = self._batches, [], 0
        table = pa.Table.from_batches(batches, self._cell_schema)
        for name, texts in self._texts.items():
            at = self._schema.get_field_index(name)
            table = table.add_column(at, self._schema.field(at), texts.take())
        return table

    def _end_batch(self) -> None:
        if not self._cells:
            return
        cells: list[Sequence[object]] = [*zip(*self._cells, strict=True)]
        found = [*zip(self._row_names, cells, strict=True)]
        for names, columns_of in self._of_texts:
            found += zip(names, columns_of(self._texts_judged, self._link_shares), strict=True)
        columns = {"outlinks": self._link_lists()}
        for name, column in found:
            columns[name] = array_of(column, self._cell_schema.field(name).type)
        in_order = [columns[name] for name in self._cell_names]
        batch = pa.RecordBatch.from_arrays(in_order, schema=self._cell_schema)
        self._batches.append(batch)
        self._batch_bytes += batch.nbytes
        self._cells, self._links, self._link_ends = [], [], [0]
        self._texts_judged, self._link_shares, self._judged_chars = [], [], 0

    def _link_lists(self) -> pa.Array:
        links = self._links
        parts: list[list[str]] = [
            [link.url for link in links],
            [link.kind for link in links],
            [link.rel for link in links],
        ]
        if self._has_anchors:
            parts += [[link.text for link in links], [link.language for link in links]]
        arrays = [array_of(part, pa.string()) for part in parts]
        kind, of_all = (ANCHOR, ANCHORS) if self._has_anchors else (LINK, LINKS)
        structs = pa.StructArray.from_arrays(arrays, fields=list(kind))
        return pa.ListArray.from_arrays(pa.array(self._link_ends, pa.int32()), structs, type=of_all)


_FACTS: Final[Mapping[ColumnGroup, tuple[str, tuple[None, ...]]]] = {
    group: (name, (None,) * len(kind.__struct_fields__))
    for group, name, kind in (
        (ColumnGroup.ANSWER, "answer", AnswerFacts),
        (ColumnGroup.ABOUT, "about", About),
        (ColumnGroup.CRAWL, "crawl", Provenance),
    )
}
"""The field of a row with the cells of a group, and cells without anything. The groups are in the
order of their columns."""


def _cells_of(facts: msgspec.Struct) -> tuple[object, ...]:
    return tuple([None if cell == "" else cell for cell in astuple(facts)])


def _language_columns(texts: Sequence[str], _: Sequence[float | None]) -> list[Sequence[object]]:
    rows = [_cells_of(detect_language(text)) if text else (None, None) for text in texts]
    return [*zip(*rows, strict=True)]


def _quality_columns(
    texts: Sequence[str], link_shares: Sequence[float | None]
) -> list[Sequence[object]]:
    is_empty = np.array([not text for text in texts])
    found: list[Sequence[object]] = [
        pa.array(column, mask=is_empty) for column in text_qualities(texts)
    ]
    shares = [share if text else None for text, share in zip(texts, link_shares, strict=True)]
    found.insert(LINK_SHARE, shares)
    return found


# What is found in a text is found when a batch ends: tables of letter sequences, and code, that are
# in the processor's caches then take half as long.
_OF_TEXTS: Final = {
    ColumnGroup.LANGUAGE: (DetectedLanguage.__struct_fields__, _language_columns),
    ColumnGroup.QUALITY: (TextQuality.__struct_fields__, _quality_columns),
}


def _rendered_cells(rendered: Rendered | None, dom: RecordPlace | None) -> tuple[object, ...]:
    how: tuple[object, ...] = (None,) * 5
    if rendered is not None:
        how = (True, rendered.ms, rendered.requests, rendered.left_out, rendered.is_quiet)
    return *how, *((dom.offset, dom.length) if dom is not None else (None, None))


def _visits(row: ColumnsRow) -> tuple[int | None, ...]:
    so_far = row.visits
    if so_far is None:
        return None, None, None, None
    times = micros(so_far.changed_at), micros(so_far.next_at)
    return so_far.visits, so_far.changes, *times


_TEXT_ROWS: Final = 16  # read at once: a text may have 4 million characters


def array_of(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return *values* as an array, halves of surrogate pairs as U+FFFD."""
    if isinstance(values, pa.Array):
        return values.cast(kind)
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_storable(v) if isinstance(v, str) else v for v in values], kind)


def _storable(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def micros(at: float | None) -> int | None:
    """Return a time rounded to the microsecond as WARC-Date is, or None outside years 1 to 9999."""
    if at is None or not _YEAR_1 <= at < _YEAR_10000 - 1:
        return None
    part, whole = modf(at)
    return int(whole) * 1_000_000 + round(part * 1e6)


class ColumnsFile:
    """One Parquet file while it is being written, in bounded memory. It has the name of an
    unfinished file until `finish`, because a Parquet file without its end cannot be read. Discard
    it after StoreUnavailable from any call."""

    def __init__(
        self,
        final: Path,
        group_bytes: int | None = None,
        groups: frozenset[ColumnGroup] = NO_GROUPS,
    ) -> None:
        self._final = final
        self._group_bytes = group_bytes or GROUP_BYTES
        self._group = RowGroup(groups)
        try:
            self._sink = pa.OSFile(str(open_name(final)), "wb")
            self._writer = _writer(self._sink, schema_of(groups))
        except OSError as error:
            raise _unavailable(final, error) from error

    def add(
        self,
        row: ColumnsRow,
        outlinks: Sequence[Link],
        place: RecordPlace,
        dom: RecordPlace | None = None,
    ) -> None:
        self._group.add(row, outlinks, place, dom)
        if self._group.rows >= GROUP_ROWS or self._group.bytes >= self._group_bytes:
            self._flush()

    def finish(self) -> None:
        """Complete and sync it, and rename it to its final name, replacing an existing file."""
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

    def _flush(self) -> None:
        """Write the rows as a row group. Arrow releases the GIL while it compresses."""
        if not self._group.rows:
            return
        table = self._group.take()
        try:
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as error:
            raise _unavailable(self._final, error) from error


def _writer(sink: pa.OSFile, schema: pa.Schema) -> pq.ParquetWriter:
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


class PageAtPlace(NamedTuple):
    offset: int  # of its record in the WARC file
    title: str
    text: str
    language: str


def read_places(columns: Path) -> Iterator[PageAtPlace]:
    """Yield titles and texts of the pages in one columns file, in the order of their records, in
    bounded memory. Raises DataDirError, FileNotFoundError."""
    names = ["warc_offset", "title", "text", "language"]
    try:
        with pq.ParquetFile(columns) as file:
            for batch in file.iter_batches(_TEXT_ROWS, columns=names):
                for row in zip(*(batch[name].to_pylist() for name in names), strict=True):
                    yield PageAtPlace(row[0], *(each or "" for each in row[1:]))
    except pa.ArrowException as error:
        raise DataDirError(
            f"{columns} cannot be read: {error}. Make it again: {PROGRAM} archive parse"
        ) from error


class PageText(NamedTuple):
    url: str
    fetched_at: datetime
    media_type: str
    title: str
    text: str


def read_texts(columns: Path) -> Iterator[PageText]:
    """Yield types, titles and texts of what one columns file has, in bounded memory, without pages
    marked noindex. Raises DataDirError, FileNotFoundError."""
    try:
        with pq.ParquetFile(columns) as file:
            # Files of older versions lack the last.
            names = [*PageText._fields, "noindex"]
            for batch in file.iter_batches(_TEXT_ROWS, columns=names):
                marked = batch["noindex"] if "noindex" in batch.schema.names else []
                is_marked = [each.as_py() for each in marked] or [None] * batch.num_rows
                for row in range(batch.num_rows):
                    if is_marked[row]:
                        continue
                    url, at, *said = (batch[name][row].as_py() for name in PageText._fields)
                    yield PageText(url, at, *(each or "" for each in said))
    except pa.ArrowException as error:
        raise DataDirError(
            f"{columns} cannot be read: {error}. Make it again: {PROGRAM} archive parse"
        ) from error

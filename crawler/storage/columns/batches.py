"""Rows, turned on their side: some at once into an Arrow batch.

Rule: pure, and every value that a row can hold has a place: a text that is no Unicode (half of a
surrogate pair) gets U+FFFD there, a time outside the years 1 to 9999 counts as not said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

from crawler.core.parsed import Link
from crawler.core.row import Row
from crawler.storage.columns.schema import COLUMNS, LINK, LINKS, SCHEMA
from crawler.storage.warc.capture import RecordPlace

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


def cells(row: Row, outlinks: Sequence[Link], place: RecordPlace) -> Cells:
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

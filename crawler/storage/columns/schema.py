"""The columns: what each is called, its type, and what it says.

Rule: a name keeps its meaning for ever; new columns come at the end. The table of
docs/columns.md is this one, by a test.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types


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

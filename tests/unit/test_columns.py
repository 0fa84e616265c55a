"""Columns files: pyarrow and DuckDB read every row as it was written."""

from __future__ import annotations

import resource
from base64 import b32encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import randbytes
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from crawler.archive.capture import RecordPlace
from crawler.archive.columns import (
    BATCH_ROWS,
    COLUMNS,
    GROUP_BYTES,
    MEGABYTE,
    NO_GROUPS,
    ColumnsFile,
    RowGroup,
    copy_rows,
    read_texts,
    schema_of,
)
from crawler.archive.warc_file import open_name
from crawler.model.choices import ColumnGroup, Preference
from crawler.model.page import (
    About,
    AnswerFacts,
    ColumnsRow,
    DetectedLanguage,
    Link,
    LinkKind,
    Preferences,
    Provenance,
    Rendered,
    TextQuality,
    VisitsSoFar,
)
from crawler.model.types import StoreUnavailable
from crawler.page.language import detect_language
from crawler.page.text_quality import text_quality
from tests.harness.archive_judges import query, read_rows

HOUR_S: Final = 3600.0


def row(number: int, **changes: Any) -> ColumnsRow:
    given: dict[str, Any] = {
        "url": f"http://example.com/{number}",
        "host": "example.com",
        "fetched_at": 1767323045.678901 + number * HOUR_S,
        "status": 200,
        **changes,
    }
    return ColumnsRow(**given)


def place(number: int) -> RecordPlace:
    return RecordPlace("crawl-0.warc.gz", 1000 * number, 900)


FULL: Final = row(
    0,
    media_type="text/html",
    language="de",
    title="Ä title",
    text="What a reader came for.",
    links=3,
    canonical="http://example.com/one",
    published=0.0,
    modified=-1.5,
    digest=bytes(range(20)),
    simhash=2**64 - 1,
    original="http://example.com/other",
    bits=0,
    may_repeat=True,
    noindex=True,
    visits=VisitsSoFar(3, 1, 86_400, 172_800),
    answer=AnswerFacts("text/html", "UTF-8", "utf-8", "length", '"1"', "a date", "nginx", "all"),
    about=About("A. Author", "said", "A Site", "http://l.example/", "index", "Head"),
    link_share=0.5,
    crawl=Provenance(0, "abc", "a.example", 7),
    markdown="# What",
    rendered=Rendered(ms=312, requests=4, left_out=1, is_quiet=False),
    preferences=Preferences(Preference.DISALLOW, sources=("rsl", "tdmrep.json")),
)
DOM: Final = RecordPlace("crawl-0.warc.gz", 1 << 40, 700)
LINKS: Final = [
    Link("http://a.example/", LinkKind.A, "nofollow", text="to a", language="de"),
    Link("http://b.example/"),
]
ALL_GROUPS: Final = frozenset(ColumnGroup)


def in_32_bits(facts: msgspec.Struct) -> dict[str, Any]:
    return {
        name: float(np.float32(value)) if isinstance(value, float) else value
        for name, value in asdict(facts).items()
    }


def written(
    path: Path, rows: list[ColumnsRow], links: list[Link] | None = None, **how: Any
) -> Path:
    fill(ColumnsFile(path, **how), rows, links)
    return path


def fill(file: ColumnsFile, rows: list[ColumnsRow], links: list[Link] | None = None) -> None:
    for number, one in enumerate(rows):
        file.add(one, links or [], place(number), DOM if one.rendered else None)
    file.finish()


def kept(**changes: Any) -> dict[str, Any]:
    """What one row is in a table."""
    group = RowGroup(ALL_GROUPS)
    group.add(row(0, **changes), [], place(0))
    made: dict[str, Any] = group.take().to_pylist()[0]
    return made


def micros(one: dict[str, Any]) -> int:
    return round(one["fetched_at"].timestamp() * 1e6)


def test_a_full_row_is_read_as_it_was(tmp_path: Path) -> None:
    (read,) = read_rows(written(tmp_path / "x.parquet", [FULL], LINKS, groups=ALL_GROUPS))
    assert list(read) == [column.name for column in COLUMNS]
    assert read == (
        {
            "url": "http://example.com/0",
            "host": "example.com",
            "fetched_at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
            "status": 200,
            "media_type": "text/html",
            "language": "de",
            "title": "Ä title",
            "text": "What a reader came for.",
            "links": 3,
            "outlinks": [
                {
                    "url": "http://a.example/",
                    "kind": "a",
                    "rel": "nofollow",
                    "text": "to a",
                    "language": "de",
                },
                {"url": "http://b.example/", "kind": "a", "rel": "", "text": "", "language": ""},
            ],
            "canonical": "http://example.com/one",
            "published": datetime(1970, 1, 1, tzinfo=UTC),
            "modified": datetime(1969, 12, 31, 23, 59, 58, 500000, UTC),
            "simhash": "ffffffffffffffff",
            "digest": f"sha1:{b32encode(bytes(range(20))).decode()}",
            "original": "http://example.com/other",
            "bits": 0,
            "warc_file": "crawl-0.warc.gz",
            "warc_offset": 0,
            "warc_length": 900,
            "may_repeat": True,
            "noindex": True,
            "visits": 3,
            "changes": 1,
            "changed_at": datetime(1970, 1, 2, tzinfo=UTC),
            "next_visit": datetime(1970, 1, 3, tzinfo=UTC),
            "declared_type": "text/html",
            "declared_charset": "UTF-8",
            "charset": "utf-8",
            "truncated": "length",
            "etag": '"1"',
            "last_modified": "a date",
            "server": "nginx",
            "robots_header": "all",
            "author": "A. Author",
            "description": "said",
            "site_name": "A Site",
            "licence": "http://l.example/",
            "robots": "index",
            "h1": "Head",
            **in_32_bits(detect_language(FULL.text)),
            **in_32_bits(text_quality(FULL.text, FULL.link_share)),
            "depth": 0,
            "crawl_id": "abc",
            "seed": "a.example",
            "round": 7,
            "markdown": "# What",
            "rendered": True,
            "render_ms": 312,
            "render_requests": 4,
            "render_left_out": 1,
            "render_quiet": False,
            "dom_offset": 1 << 40,
            "dom_length": 700,
            "pref_train_ai": "disallow",
            "pref_search": "unknown",
            "pref_sources": "rsl, tdmrep.json",
        }
    )


def test_a_group_that_is_off_has_no_columns(tmp_path: Path) -> None:
    (read,) = read_rows(written(tmp_path / "x.parquet", [FULL], LINKS))
    assert list(read) == [column.name for column in COLUMNS if column.group is None]
    assert read["outlinks"][0] == {"url": "http://a.example/", "kind": "a", "rel": "nofollow"}
    for group, facts in (
        (ColumnGroup.ANSWER, AnswerFacts),
        (ColumnGroup.ABOUT, About),
        (ColumnGroup.LANGUAGE, DetectedLanguage),
        (ColumnGroup.QUALITY, TextQuality),
        (ColumnGroup.CRAWL, Provenance),
    ):
        path = written(tmp_path / f"{group}.parquet", [FULL], LINKS, groups=frozenset((group,)))
        (with_group,) = read_rows(path)
        assert [name for name in with_group if name not in read] == [*facts.__struct_fields__]


def test_a_missing_value_is_null(tmp_path: Path) -> None:
    (bare,) = read_rows(written(tmp_path / "x.parquet", [row(0)], groups=ALL_GROUPS))
    columns = {"url", "host", "fetched_at", "status", "links", "outlinks"}
    assert {name for name, value in bare.items() if value is None} == {
        column.name for column in COLUMNS if column.name not in columns and column.nullable
    }
    assert bare["outlinks"] == []


def test_duckdb_reads_the_same(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", [FULL, row(1)], LINKS)
    assert query(
        "SELECT url, epoch_us(fetched_at), simhash, bits, len(outlinks), outlinks[1].rel, digest"
        " FROM read_parquet($path) ORDER BY warc_offset",
        path=str(path),
    ) == [
        (one["url"], micros(one), one["simhash"], one["bits"], 2, "nofollow", one["digest"])
        for one in read_rows(path)
    ]


def test_no_reader_makes_other_numbers_of_those_in_a_file(tmp_path: Path) -> None:
    """Pandas reads numbers among which is null as floats of 53 bits; so `simhash` is text."""
    wide = {pa.int64(), pa.uint64(), pa.uint32()}
    of_files = {"dom_offset", "dom_length"}  # no file of ours has 2**53 bytes
    assert {one.name for one in COLUMNS if one.nullable and one.type in wide} == of_files
    path = written(tmp_path / "x.parquet", [FULL, row(1), row(2, simhash=2**63 + 1)])
    differing = "bit_count(xor(('0x' || simhash)::UBIGINT, 18446744073709551615::UBIGINT))"
    question = f"SELECT simhash, {differing} FROM read_parquet($path) ORDER BY warc_offset"
    assert query(question, path=str(path)) == [
        ("f" * 16, 0),
        (None, None),
        ("8000000000000001", 62),
    ]


def test_files_with_the_fingerprint_as_a_number_are_read_and_purged(tmp_path: Path) -> None:
    new = pq.read_table(written(tmp_path / "new.parquet", [row(0, simhash=1), row(1)]))
    at = new.schema.get_field_index("simhash")
    number = pa.array([2**64 - 1, None], pa.uint64())
    pq.write_table(new.set_column(at, "simhash", number), tmp_path / "old.parquet")
    assert len(list(read_texts(tmp_path / "old.parquet"))) == 2
    with (tmp_path / "old.parquet").open("rb") as old:
        copy_rows(old, tmp_path / "purged.parquet", [place(1).offset])
    (left,) = read_rows(tmp_path / "purged.parquet")
    assert left["simhash"] == 2**64 - 1


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        pytest.param("title", "a\ud800b", "a\ufffdb", id="half of a surrogate pair"),
        pytest.param("url", "http://x/\udcff", "http://x/\ufffd", id="in a URL too"),
        pytest.param("text", "a\0b", "a\0b", id="NUL is a character"),
        pytest.param("text", "\U0010ffff", "\U0010ffff", id="beyond the basic plane"),
        pytest.param("title", "a\r\nb\u2028", "a\r\nb\u2028", id="line breaks of all kinds"),
        pytest.param("published", float("nan"), None, id="a time that is no number"),
        pytest.param("published", float("inf"), None, id="the end of time"),
        pytest.param("modified", -1e300, None, id="long before the beginning"),
        pytest.param("modified", 253402300799.9999, None, id="about to be the year 10000"),
        pytest.param("published", -62135596800.0, datetime(1, 1, 1, tzinfo=UTC), id="the year 1"),
        pytest.param("digest", b"short", None, id="a digest that is no SHA-1"),
        pytest.param("simhash", 0, "0" * 16, id="a fingerprint of zeroes is one"),
        pytest.param("bits", 0, 0, id="the same text in other bytes"),
        pytest.param("h1", About(h1="a\ud800b"), "a\ufffdb", id="half of a pair in a group"),
        pytest.param("depth", Provenance(0), 0, id="a seed is no hop away"),
        pytest.param("markdown", "a\udfff", "a\ufffd", id="half of a pair in Markdown"),
        pytest.param("etag", AnswerFacts(), None, id="not sent"),
    ],
)
def test_hostile_values(name: str, given: object, expected: object) -> None:
    fields = {About: "about", Provenance: "crawl", AnswerFacts: "answer"}
    assert kept(**{fields.get(type(given), name): given})[name] == expected


def test_hostile_rows_in_a_file(tmp_path: Path) -> None:
    """Two megabytes of text that hardly shrinks as UTF-8, 100,000 links, NULs: read by DuckDB."""
    text = "\u6f22\0" * 1_000_000
    links = [Link(f"http://example.com/{number}\ud800") for number in range(100_000)]
    path = written(tmp_path / "x.parquet", [row(0, text=text, links=len(links))] * 3, links)
    question = "SELECT length(text), len(outlinks), outlinks[-1].url FROM read_parquet($path)"
    assert (
        query(question, path=str(path))
        == [(2_000_000, 100_000, "http://example.com/99999\ufffd")] * 3
    )
    assert read_rows(path)[0]["text"] == text


texts = st.text(st.characters(), max_size=20)


@given(
    rows=st.lists(
        st.builds(
            ColumnsRow,
            url=texts,
            host=texts,
            fetched_at=st.floats(0, 4e9),
            status=st.integers(0, 999),
            title=texts,
            text=texts,
            links=st.integers(0, 2**31 - 1),
            published=st.none() | st.floats(),
            modified=st.none() | st.floats(),
            digest=st.sampled_from([b"", bytes(20), b"\xff" * 20, bytes(range(20))]),
            simhash=st.none() | st.integers(0, 2**64 - 1),
            bits=st.none() | st.integers(0, 64),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_every_row_has_a_place(rows: list[ColumnsRow]) -> None:
    group = RowGroup(ALL_GROUPS)
    for one in rows:
        group.add(one, LINKS, place(0))
    made = group.take()
    made.validate(full=True)
    assert made.num_rows == len(rows)
    assert [one["digest"] for one in made.to_pylist()] == [
        f"sha1:{b32encode(one.digest).decode()}" if one.digest else None for one in rows
    ]
    for read_back, one in zip(made.to_pylist(), rows, strict=True):
        assert abs(read_back["fetched_at"].timestamp() - one.fetched_at) < 1e-6


def test_rows_are_grouped_by_size_in_their_order(tmp_path: Path) -> None:
    rows = [row(number, text="x" * 1000) for number in range(10 * BATCH_ROWS)]
    path = written(tmp_path / "x.parquet", rows, group_bytes=2 * BATCH_ROWS * 1000)
    file = pq.ParquetFile(path)
    groups = range(file.metadata.num_row_groups)
    *full, _ = (file.metadata.row_group(number).num_rows for number in groups)
    assert len(full) > 3 and all(400 < size <= 2 * BATCH_ROWS for size in full)
    assert [one["url"] for one in read_rows(path)] == [one.url for one in rows]


def test_texts_of_several_row_groups_stay_with_their_rows(tmp_path: Path) -> None:
    """Groups use one buffer: a shorter text must not show the end of a longer one, and a row
    without a text has none."""
    given = [
        row(number, text="" if number % 3 == 0 else f"{number} é" * (900 - number))
        for number in range(800)
    ]
    path = written(tmp_path / "x.parquet", given, group_bytes=500_000)
    assert pq.ParquetFile(path).metadata.num_row_groups > 2
    assert [one["text"] or "" for one in read_rows(path)] == [one.text for one in given]


def test_a_file_without_rows_has_its_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "x.parquet", [])
    assert pq.read_schema(path).equals(schema_of(NO_GROUPS))
    assert query("SELECT count(url) FROM read_parquet($path)", path=str(path)) == [(0,)]


def test_a_reader_can_leave_row_groups_out(tmp_path: Path) -> None:
    file = pq.ParquetFile(written(tmp_path / "x.parquet", [FULL]))
    group = file.metadata.row_group(0)
    properties = {
        group.column(at).path_in_schema: group.column(at).statistics
        for at in range(group.num_columns)
    }
    assert properties["fetched_at"].max == datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    assert properties["host"].min == "example.com"
    assert properties["text"] is None


def test_an_unfinished_file_is_not_found(tmp_path: Path) -> None:
    file = ColumnsFile(tmp_path / "x.parquet")
    file.add(FULL, [], place(0))
    assert list(tmp_path.glob("*.parquet")) == []
    file.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]


def test_a_file_is_replaced_in_one_go(tmp_path: Path) -> None:
    written(tmp_path / "x.parquet", [row(1)])
    file = ColumnsFile(tmp_path / "x.parquet")
    file.add(row(2), [], place(0))
    assert read_rows(tmp_path / "x.parquet")[0]["url"] == row(1).url
    file.finish()
    assert read_rows(tmp_path / "x.parquet")[0]["url"] == row(2).url


def test_a_discarded_file_leaves_nothing(tmp_path: Path) -> None:
    file = ColumnsFile(tmp_path / "x.parquet")
    file.add(FULL, [], place(0))
    file.discard()
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_an_unfinished_file_is_overwritten(tmp_path: Path) -> None:
    open_name(tmp_path / "x.parquet").write_bytes(b"x" * 100_000)
    assert len(read_rows(written(tmp_path / "x.parquet", [FULL]))) == 1


def test_a_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"cannot write .*gone/x\.parquet\.open"):
        ColumnsFile(tmp_path / "gone" / "x.parquet")


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """No file of this process can grow over that: as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(
    "group_bytes",
    [
        pytest.param(100_000, id="in a row group"),
        pytest.param(10_000_000, id="at the end"),
    ],
)
def test_a_full_disk_raises_and_leaves_nothing(tmp_path: Path, group_bytes: int) -> None:
    rows = [row(number, text=randbytes(2_000).hex()) for number in range(200)]
    file = ColumnsFile(tmp_path / "x.parquet", group_bytes)
    with small_files(150_000), pytest.raises(StoreUnavailable, match="File too large"):
        fill(file, rows)
    file.discard()
    assert list(tmp_path.iterdir()) == []


def test_memory_is_bounded_by_a_row_group(tmp_path: Path) -> None:
    """Two hundred rows of a megabyte: what Arrow holds at any moment between them."""
    file = ColumnsFile(tmp_path / "x.parquet")
    most_bytes = 0
    for number in range(200):
        file.add(row(number, text=f"{number} " * 250_000), LINKS, place(number))
        most_bytes = max(most_bytes, pa.total_allocated_bytes())
    file.finish()
    assert most_bytes < GROUP_BYTES + 8 * MEGABYTE
    assert len(read_rows(tmp_path / "x.parquet")) == 200

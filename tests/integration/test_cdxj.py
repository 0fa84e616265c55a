"""The index beside each WARC file: cdxj-indexer makes the same, and everything is found by it."""

from __future__ import annotations

import gzip
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.archive.capture import Capture
from crawler.archive.cdxj import CdxjCompanion, key_of
from crawler.archive.lookup import (
    Entry,
    entries,
    find_original,
    lookup,
    read_entry,
)
from crawler.archive.record_bytes import RANDOM_BYTES, capture_records
from crawler.archive.warc_file import companion_path
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.model.types import Claim, DataDirError, StoreUnavailable
from tests.harness.archive_judges import judged_index, judged_key
from tests.harness.captures import CUT, HOSTILE, LINKED, ORIGINAL, PAGE, RENDERED, UNCHANGED

AT: Final = 1767323045.5
MOST: Final = 1 << 20
ENTRY: Final = '{"url": "http://example.com/a", "length": "1", "offset": "2", "filename": "a"}'


def written(
    folder: Path, captures: list[Capture], run_chars: int = 1 << 20, **rules: Any
) -> list[Path]:
    """Finished files with these."""
    companion = CdxjCompanion(run_chars)
    warcs = WarcWriter(WarcSettings(folder=folder, origin="h-1", **rules), [companion])
    for capture in captures:
        warcs.append(capture)
    warcs.close()
    return sorted(folder.glob("*.warc.gz"))


def page(number: int, body: bytes = b"", **changes: Any) -> Capture:
    return replace(
        PAGE,
        url=f"http://example.com/{number}",
        fetched_at=AT + number,
        body=body or b"page %d" % number,
        **changes,
    )


VARIOUS: Final = [
    PAGE,
    CUT,
    UNCHANGED,
    replace(UNCHANGED, not_modified_of=replace(ORIGINAL, digest=b"", record="")),
    LINKED,
    RENDERED,
    replace(PAGE, duplicate_of=ORIGINAL),
    replace(PAGE, headers=[]),
    replace(PAGE, headers=[(b"Content-Type", b"")]),
    replace(PAGE, headers=[(b"CONTENT-type ", b"text/plain;charset=x"), (b"content-type", b"b")]),
    replace(PAGE, headers=[(b"Content-Type", b'text/"h\xe9\\ x')]),
    replace(PAGE, headers=[(b"X-Content-Type", b"a")]),
    replace(PAGE, head=b"HTTP/1.1 200\r\n\r\n"),
    replace(PAGE, head=b"HTTP/1.1\r\n\r\n"),
    replace(PAGE, head=b"HTTP/1.1\r\nA: b\r\n\r\n"),
    replace(PAGE, head=b"HTTP/1.1\r\n A: b\r\n\r\n"),
    replace(PAGE, head=b"HTTP/1.1\r\nA\r\n B: c\r\n\r\n"),
    replace(PAGE, head=b"hello\r\n\r\n"),
    replace(PAGE, head=b"ICY 200 OK\r\n\r\n"),
    replace(PAGE, head=b"HTTP/1.0 \xff\xfe\r\nContent-Type:\xff\r\n\r\n"),
    replace(PAGE, url="http://example.com/a b\n\xe9"),
    replace(PAGE, url="http://WWW.example.com/A"),
    replace(PAGE, fetched_at=1.9999999),
]


def test_cdxj_indexer_makes_the_same_index(tmp_path: Path) -> None:
    (warc,) = written(tmp_path, VARIOUS)
    index = companion_path(warc, ".cdxj")
    assert index.read_text(encoding="ascii") == judged_index(warc)
    index.unlink()
    CdxjCompanion().rebuild(warc, warc)
    assert index.read_text(encoding="ascii") == judged_index(warc)
    assert sorted(tmp_path.iterdir()) == [index, warc]


@given(heads=st.lists(HOSTILE, max_size=5))
def test_cdxj_indexer_makes_the_same_index_of_hostile_heads(
    tmp_path_factory: pytest.TempPathFactory, heads: list[bytes]
) -> None:
    captures = [replace(PAGE, head=head, request=b"", metadata=()) for head in heads]
    for warc in written(tmp_path_factory.mktemp("warc"), captures):
        index = companion_path(warc, ".cdxj")
        assert index.read_text(encoding="ascii") == judged_index(warc)


@pytest.mark.parametrize("run_chars", [1, 1_000, 1 << 20])
def test_an_index_is_sorted_however_little_memory_there_is(tmp_path: Path, run_chars: int) -> None:
    (warc,) = written(tmp_path, [page(number * 7 % 50) for number in range(50)], run_chars)
    assert companion_path(warc, ".cdxj").read_text(encoding="ascii") == judged_index(warc)


def test_each_file_has_its_own_index(tmp_path: Path) -> None:
    files = written(tmp_path, [page(number) for number in range(9)], max_file_bytes=1_000)
    assert len(files) > 3
    for warc in files:
        assert companion_path(warc, ".cdxj").read_text(encoding="ascii") == judged_index(warc)
    assert not list(tmp_path.glob("*.open"))


def test_every_capture_is_found_by_its_url(tmp_path: Path) -> None:
    captures = [page(number) for number in range(40)]
    written(tmp_path, captures, max_file_bytes=4_000)
    for capture in captures:
        (entry,) = lookup([tmp_path], capture.url)
        found = read_entry(entry, MOST)
        assert (found.url, found.body) == (capture.url, capture.body)
        assert found.fetched_at == pytest.approx(capture.fetched_at, abs=1e-6)
        assert found.metadata == ()  # it lies in a record of its own
    assert lookup([tmp_path], "http://example.com/40") == []
    assert lookup([tmp_path], "http://example.org/1") == []
    assert lookup([], captures[0].url) == []


@pytest.mark.parametrize("finished", [True, False])
def test_all_captures_of_a_url_come_in_the_order_of_time(tmp_path: Path, finished: bool) -> None:
    warcs = WarcWriter(WarcSettings(folder=tmp_path, origin="h-1"), [CdxjCompanion()])
    for at in (3, 1, 2):
        warcs.append(replace(PAGE, fetched_at=AT + at))
    if finished:
        warcs.close()
    found = lookup([tmp_path], "https://www.example.com/A?b=c")
    assert [each.timestamp[-2:] for each in found] == ["06", "07", "08"]
    assert [read_entry(each, MOST).body for each in found] == [PAGE.body] * 3
    if not finished:
        warcs.close()
        assert [read_entry(each, MOST).body for each in found] == [PAGE.body] * 3


def test_a_file_without_an_index_is_read(tmp_path: Path) -> None:
    (warc,) = written(tmp_path, VARIOUS)
    indexed = sorted(entries(warc), key=Entry.time_key)
    companion_path(warc, ".cdxj").unlink()
    assert sorted(entries(warc), key=Entry.time_key) == indexed
    assert len(indexed) == len(VARIOUS) + 1, "and a DOM"


def test_a_revisit_leads_to_its_original(tmp_path: Path) -> None:
    first = page(1)
    claim = Claim(sha1(first.body).digest(), first.url, "x.warc.gz:1", first.fetched_at)
    written(tmp_path, [first, page(2, first.body, duplicate_of=claim)])
    (entry,) = lookup([tmp_path], "http://example.com/2")
    assert entry.is_revisit
    revisit = read_entry(entry, MOST)
    assert (revisit.kind, revisit.body, revisit.refers_to) == ("revisit", b"", first.url)
    found = find_original([tmp_path], revisit)
    assert found is not None and read_entry(found, MOST).body == first.body
    assert find_original([], revisit) is None


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("{", id="cut"),
        pytest.param('{"length": "1", "offset": "2", "filename": "a"}', id="no URL"),
        pytest.param(ENTRY.replace('"2"', '"-2"'), id="before the beginning"),
        pytest.param(ENTRY.replace('"2"', f'"{"9" * 25}"'), id="behind any end"),
        pytest.param(ENTRY.replace('"2"', '"x"'), id="no number"),
        pytest.param(ENTRY.replace('"a"', '"../a"'), id="in another folder"),
        pytest.param(ENTRY.replace('"a"', '"\\u0000"'), id="in a file without a name"),
        pytest.param(ENTRY.replace('"a"', '""'), id="in none"),
    ],
)
def test_the_error_of_a_damaged_index_names_the_remedy(tmp_path: Path, line: str) -> None:
    (warc,) = written(tmp_path, [PAGE])
    companion_path(warc, ".cdxj").write_text(f"com,example)/a?b=c 20260102030405 {line}\n")
    with pytest.raises(DataDirError, match="archive index"):
        lookup([tmp_path], PAGE.url)


@pytest.mark.parametrize(
    "url",
    [
        *("dns:example.com", "urn:uuid:1", "ftp://example.com:21/A", "http://example.com/é"),
        *("urn:pageinfo:http://a.example/", "urn:pageinfo:http://a.example:81/B/?q=1&A=2"),
        *("urn:pageinfo:http://a.example/?q=%C3%A9", "urn:pageinfo:http://a.example/a%2fb/"),
        *("urn:dom:http://a.example/", "urn:dom:https://www.a.example/A/?b=c"),
    ],
)
def test_keys_of_what_others_archive(url: str) -> None:
    assert key_of(url) == judged_key(url)


def test_an_index_of_whatever_stands_in_a_record(tmp_path: Path) -> None:
    """Of other people's archives: a URL as it was typed, a date of its own kind."""
    record = capture_records(replace(PAGE, url="http://example.com/e"), bytes(RANDOM_BYTES))[0][0]
    for old, new in ((b"/e\r", "/é ü\r"), (b"2026-01-02T03:04:05", "2026 01 02 \u2028")):
        record = record.replace(old, new.encode())
    warc = tmp_path / "é.warc.gz"
    warc.write_bytes(gzip.compress(record))
    CdxjCompanion().rebuild(warc, warc)
    (entry,) = lookup([tmp_path], "http://example.com/é ü")
    assert (entry.url, entry.timestamp[:8]) == ("http://example.com/é ü", "20260102")
    assert read_entry(entry, MOST).body == PAGE.body


def test_the_error_of_a_wrong_index_names_the_remedy(tmp_path: Path) -> None:
    (warc,) = written(tmp_path, [PAGE])
    (entry,) = lookup([tmp_path], PAGE.url)
    warc.write_bytes(warc.read_bytes()[1:])
    with pytest.raises(DataDirError, match="archive check"):
        read_entry(entry, MOST)
    warc.unlink()
    with pytest.raises(DataDirError, match="not there"):
        read_entry(entry, MOST)


def test_an_index_of_nothing_that_can_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        CdxjCompanion().rebuild(tmp_path / "a.warc.gz", tmp_path / "a.warc.gz")
    assert list(tmp_path.iterdir()) == []

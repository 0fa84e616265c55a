"""Reading WARC files back: ours and other people's, whole, damaged and hostile."""

from __future__ import annotations

import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from crawler.archive.capture import Capture
from crawler.archive.reader import MAX_FIELDS_BYTES, DamagedFile, captures, records
from crawler.archive.writer import WarcSettings, WarcWriter
from crawler.model.page import Link
from crawler.model.types import Claim
from tests.harness.captures import PAGE, UNCHANGED

AT: Final = 1767323045.0  # 2026-01-02T03:04:05Z
MEGABYTE: Final = 1 << 20


def packed(record: bytes) -> bytes:
    return gzip.compress(record)


def whole(fields: str, block: bytes = b"") -> bytes:
    return packed(b"WARC/1.1\r\n" + fields.encode() + b"\r\n\r\n" + block + b"\r\n\r\n")


GOOD: Final = whole("WARC-Type: x\r\nContent-Length: 2", b"ab")


@pytest.mark.parametrize(
    ("content", "kept", "error"),
    [
        pytest.param(GOOD * 3, 3, "", id="whole"),
        pytest.param(b"", 0, "", id="nothing"),
        pytest.param(GOOD + bytes(40), 1, "no gzip", id="no gzip after it"),
        pytest.param(GOOD + GOOD[:-1], 1, "cut off", id="its last byte is missing"),
        pytest.param(GOOD + GOOD[:20], 1, "cut off", id="its half is missing"),
        pytest.param(GOOD + GOOD[:-8] + b"0000" + GOOD[-4:], 1, "no gzip", id="a wrong checksum"),
        pytest.param(GOOD + packed(b""), 1, "no WARC record", id="an empty member"),
        pytest.param(GOOD + packed(b"hello\r\n\r\n"), 1, "no WARC record", id="another text"),
        pytest.param(GOOD + whole("A: b"), 1, "no WARC record", id="no length"),
        pytest.param(GOOD + whole("Content-Length: -1"), 1, "no WARC record", id="below nothing"),
        pytest.param(
            GOOD + whole(f"Content-Length: {'9' * 5000}"), 1, "no WARC record", id="beyond all"
        ),
        pytest.param(
            GOOD + whole("Content-Length: 3", b"ab"), 1, "longer than it says", id="a wrong end"
        ),
        pytest.param(
            GOOD + whole("Content-Length: 99", b"ab"), 1, "shorter than it says", id="too short"
        ),
        pytest.param(
            GOOD + whole("Content-Length: 0", b"ab"), 1, "longer than it says", id="too long"
        ),
        pytest.param(
            GOOD + whole("A: " + "b" * MAX_FIELDS_BYTES + "\r\nContent-Length: 0"),
            1,
            "no WARC record",
            id="a head without end",
        ),
    ],
)
@pytest.mark.parametrize("read_bytes", [1, 7, 65536])
def test_whole_records_are_read_and_damage_is_named(
    content: bytes, kept: int, error: str, read_bytes: int
) -> None:
    offsets: list[int] = []

    def read() -> None:
        for record in records(io.BytesIO(content), read_bytes):
            record.finish()
            offsets.append(record.offset)

    if error:
        with pytest.raises(DamagedFile, match=f"the record at {len(GOOD)} .*{error}"):
            read()
    else:
        read()
    assert offsets == [number * len(GOOD) for number in range(kept)]


def test_a_record_that_inflates_to_much_more_is_read_in_bounded_memory() -> None:
    size = 300 * MEGABYTE
    begin = f"WARC/1.1\r\nContent-Length: {size}\r\n\r\n".encode()
    bomb = io.BytesIO()
    with gzip.GzipFile(fileobj=bomb, mode="wb", compresslevel=1) as file:
        file.write(begin)
        for _ in range(size // MEGABYTE):
            file.write(bytes(MEGABYTE))
        file.write(b"\r\n\r\n")
    tracemalloc.start()
    try:
        for record in records(io.BytesIO(bomb.getvalue())):
            assert record.read(10) == bytes(10)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MEGABYTE


def test_an_end_that_inflates_to_much_more_is_not_waited_for() -> None:
    much = b"WARC/1.1\r\nContent-Length: 0\r\n\r\n" + bytes(100 * MEGABYTE)
    bomb = gzip.compress(much, 1)
    del much
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFile, match="longer"):
            list(records(io.BytesIO(bomb)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MEGABYTE


def test_captures_come_back_with_all_that_was_written(tmp_path: Path) -> None:
    original = Claim(bytes(20), "http://example.com/first", "x.warc.gz:1", 5.0)
    given = [
        replace(
            PAGE,
            body=bytes(100),
            metadata=[("simhash", "00ff"), ("a", "b: c")],
            outlinks=[Link("http://example.com/d")],
        ),
        replace(PAGE, truncated="time", request=b"", metadata=()),
        replace(PAGE, body_sha1=bytes(20), duplicate_of=original),
        UNCHANGED,
    ]
    warcs = WarcWriter(WarcSettings(folder=tmp_path, origin="h-1"))
    places = [warcs.append(capture) for capture in given]
    warcs.close()
    (warc,) = tmp_path.iterdir()
    page, cut, copy, unchanged = captures(warc, warc, MEGABYTE)
    assert [one.place for one in (page, cut, copy, unchanged)] == places
    assert (page.kind, page.url, page.ip, page.body) == ("response", PAGE.url, PAGE.ip, bytes(100))
    assert page.fetched_at == pytest.approx(PAGE.fetched_at, abs=1e-6)
    assert page.metadata_value("simhash") == "00ff" and page.metadata_value("nothing") == ""
    assert page.metadata[1:] == (("a", "b: c"), ("outlink", "http://example.com/d L a/@href"))
    assert page.head.startswith(b"HTTP/1.1 200 OK\r\nServer: caf\xe9\r\n")
    assert page.head.endswith(b"\r\n\r\n")
    assert (cut.truncated, cut.metadata) == ("time", ())
    assert (copy.kind, copy.refers_to, copy.body) == ("revisit", original.url, b"")
    assert copy.profile.endswith("identical-payload-digest")
    assert unchanged.profile.endswith("server-not-modified")
    assert (unchanged.head, unchanged.refers_to) == (b"", original.url)
    (short, *_) = captures(warc, warc, 99)
    assert (len(short.body), short.body_cut, page.body_cut) == (99, True, False)


def test_files_as_others_write_them_are_read_too(tmp_path: Path) -> None:
    """WARC 1.0, names in another case, white space, whole seconds, no digests."""
    path = tmp_path / "other.warc.gz"
    block = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"
    fields = (
        "warc-type:response\r\nwarc-date:  2026-01-02T03:04:05Z \r\n"
        f"warc-target-uri: http://example.com/\r\ncontent-length: {len(block)}"
    )
    record = b"WARC/1.0\r\n" + fields.encode() + b"\r\n\r\n" + block + b"\r\n\r\n"
    path.write_bytes(packed(record) * 2)
    for one in captures(path, path, MEGABYTE):
        assert (one.url, one.body, one.fetched_at) == ("http://example.com/", b"hello", AT)
        assert one.payload_sha1 == b""


def test_a_capture_without_optional_fields(tmp_path: Path) -> None:
    warcs = WarcWriter(WarcSettings(folder=tmp_path, origin="h-1"))
    warcs.append(Capture(url="http://example.com/", fetched_at=0.0, status=204))
    warcs.close()
    (warc,) = tmp_path.iterdir()
    (one,) = captures(warc, warc, MEGABYTE)
    assert (one.ip, one.body, one.truncated, one.refers_to) == ("", b"", "", "")

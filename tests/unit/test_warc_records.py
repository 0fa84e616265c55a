"""WARC records: golden bytes, a sentence for each rule, and two outside readers for any header
bytes that a server may send."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.archive.capture import (
    Capture,
    Truncated,
)
from crawler.archive.record_bytes import (
    MAX_HEAD_BYTES,
    RANDOM_BYTES,
    capture_records,
    outlink_lines,
    response_head,
    sha1_of_parts,
    warc_date,
    warcinfo,
)
from crawler.model.page import DOM_TYPE, Link, LinkKind
from crawler.model.types import Claim
from tests.harness.archive_judges import Read, read
from tests.harness.captures import (
    CUT,
    FETCHED_AT,
    HOSTILE,
    LINKED,
    ORIGINAL,
    PAGE,
    RENDERED,
    UNCHANGED,
)

FOLDER: Final = Path(__file__).parents[1] / "data" / "warc"
RANDOM: Final = bytes(range(RANDOM_BYTES))
INFO: Final = [("software", "Gossamer/1.0"), ("operator", "a@example.com")]
NAME: Final = "crawl-20260102030405-00000-h-1.warc.gz"

GOLDEN: Final = dict(
    zip(("response", "request", "metadata"), capture_records(PAGE, RANDOM)[0], strict=True)
) | {
    "warcinfo": warcinfo(NAME, FETCHED_AT, INFO, RANDOM[:16]),
    "truncated": capture_records(CUT, RANDOM)[0][0],
    "not_modified": capture_records(UNCHANGED, RANDOM)[0][0],
    "outlinks": capture_records(LINKED, RANDOM)[0][2],
    "conversion": capture_records(RENDERED, RANDOM)[0][3],
    "revisit": capture_records(replace(PAGE, duplicate_of=ORIGINAL), RANDOM)[0][0],
}


def judged(capture: Capture) -> list[Read]:
    return read(b"".join(map(gzip.compress, capture_records(capture, RANDOM)[0])))


def answer(**changes: Any) -> Read:
    """Return the first record of PAGE with *changes*, as warcio and fastwarc read it."""
    return judged(replace(PAGE, **changes))[0]


@pytest.mark.parametrize("kind", GOLDEN)
def test_a_record_is_the_golden_one_to_the_byte(kind: str) -> None:
    assert GOLDEN[kind] == (FOLDER / f"{kind}.warc").read_bytes()


def test_warcio_and_fastwarc_read_the_golden_records() -> None:
    records = read(
        b"".join(gzip.compress(path.read_bytes()) for path in sorted(FOLDER.glob("*.warc")))
    )
    assert sorted(r.kind for r in records) == [
        *("conversion", "metadata", "metadata", "request"),
        *("response", "response", "revisit", "revisit", "warcinfo"),
    ]


def test_request_and_metadata_belong_to_the_same_capture() -> None:
    first, request, metadata = judged(PAGE)
    for record in (request, metadata):
        assert record.fields["WARC-Concurrent-To"] == first.fields["WARC-Record-ID"]
        for name in ("WARC-Date", "WARC-Target-URI", "WARC-IP-Address"):
            assert record.fields[name] == first.fields[name]
    assert request.block == PAGE.request
    assert metadata.block == b"charset-detected: utf-8\r\noutlink: http://a.example/\r\n"
    assert len({r.fields["WARC-Record-ID"] for r in (first, request, metadata)}) == 3


def test_the_dom_of_a_page_is_a_conversion_of_its_answer() -> None:
    """WARC 1.1 forbids it WARC-IP-Address and WARC-Concurrent-To."""
    assert RENDERED.dom is not None
    for capture in (RENDERED, replace(RENDERED, duplicate_of=ORIGINAL)):
        first, _, _, dom = judged(capture)
        assert (dom.kind, dom.url) == ("conversion", f"urn:dom:{first.url}")
        assert dom.fields["WARC-Refers-To"] == first.fields["WARC-Record-ID"]
        assert dom.fields["WARC-Refers-To-Target-URI"] == first.url
        date = first.fields["WARC-Date"]
        assert dom.fields["WARC-Refers-To-Date"] == dom.fields["WARC-Date"] == date
        assert not dom.fields.keys() & {"WARC-IP-Address", "WARC-Concurrent-To"}
        assert (dom.block, dom.fields["Content-Type"]) == (RENDERED.dom.body, DOM_TYPE)
        assert dom.fields["WARC-Payload-Digest"] == dom.fields["WARC-Block-Digest"]


def test_unknown_values_are_not_written() -> None:
    (only,) = judged(Capture(url="http://example.com/", fetched_at=0, status=204))
    assert only.fields["WARC-Date"] == "1970-01-01T00:00:00.000000Z"
    assert "WARC-IP-Address" not in only.fields
    assert only.block == b"HTTP/1.1 204 \r\n\r\n"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"reason": b"Not Found", "status": 404}, b"HTTP/1.1 404 Not Found", id="as sent"
        ),
        pytest.param({"reason": b""}, b"HTTP/1.1 200 ", id="the space stays without a reason"),
        pytest.param(
            {"status": 999, "reason": b""}, b"HTTP/1.1 999 ", id="a status nobody defined"
        ),
        pytest.param({"version": b"HTTP/1.0"}, b"HTTP/1.0 200 OK", id="HTTP/1.0"),
        pytest.param({"version": b"HTTP/2"}, b"HTTP/1.1 200 OK", id="HTTP/2 is written as 1.1"),
        pytest.param({"version": b""}, b"HTTP/1.1 200 OK", id="no version known"),
        pytest.param(
            {"reason": b"\xf6\0\r"}, b"HTTP/1.1 200 \xf6\0\r", id="hostile reason, as sent"
        ),
        pytest.param({"reason": b"a\r\nX: b"}, b"HTTP/1.1 200 a X: b", id="a reason is one line"),
    ],
)
def test_status_line(changes: dict[str, Any], line: bytes) -> None:
    record = answer(**changes)
    assert record.block.startswith(line + b"\r\n")
    assert record.payload == PAGE.body


CHUNKED = (b"transfer-encoding", b"chunked")
LENGTH = (b"CONTENT-Length", b"99")


@pytest.mark.parametrize(
    ("headers", "truncated", "written"),
    [
        pytest.param([LENGTH], "", [LENGTH], id="a length stays, though it does not fit"),
        pytest.param(
            [CHUNKED], "", [(b"X-Crawler-transfer-encoding", b"chunked")], id="chunks are joined"
        ),
        pytest.param(
            [LENGTH, CHUNKED],
            "",
            [(b"X-Crawler-CONTENT-Length", b"99"), (b"X-Crawler-transfer-encoding", b"chunked")],
            id="a length beside chunks does not count",
        ),
        pytest.param(
            [LENGTH], "time", [(b"X-Crawler-CONTENT-Length", b"99")], id="nor one of a cut body"
        ),
        pytest.param(
            [(b"Content-Encoding", b"gzip")],
            "",
            [(b"Content-Encoding", b"gzip")],
            id="body as sent",
        ),
    ],
)
def test_a_header_that_lies_about_the_stored_body_is_renamed(
    headers: list[tuple[bytes, bytes]], truncated: Truncated, written: list[tuple[bytes, bytes]]
) -> None:
    assert answer(headers=headers, truncated=truncated).headers == tuple(written)


@pytest.mark.parametrize(
    ("header", "written"),
    [
        pytest.param((b"X", b"a\0b"), b"X: a\0b", id="NUL in a value"),
        pytest.param((b"X\0", b"a"), b"X\0: a", id="NUL in a name"),
        pytest.param((b"X", b"a\rb"), b"X: a\rb", id="CR alone"),
        pytest.param((b"X", b"\r"), b"X: \r", id="nothing but CR"),
        pytest.param((b"X", b"a\n\nb: c"), b"X: a  b: c", id="LF would begin a line"),
        pytest.param((b"X", b"a\r\n\tb"), b"X: a \tb", id="a folded value is unfolded"),
        pytest.param((b"X\r\n\r\n", b"a"), b"X  : a", id="line breaks in a name"),
        pytest.param((b"X", b"\xff\xfe\x85"), b"X: \xff\xfe\x85", id="not UTF-8"),
        pytest.param((b"", b"a"), b": a", id="no name"),
        pytest.param((b"", b""), b": ", id="nothing at all"),
        pytest.param((b" X", b"a"), b" X: a", id="begins with a space"),
        pytest.param((b"X:Y", b":a"), b"X:Y: :a", id="colons"),
    ],
)
def test_hostile_headers(header: tuple[bytes, bytes], written: bytes) -> None:
    record = answer(headers=[(b"A", b"1"), header, (b"Z", b"2")])
    assert (
        record.block == b"HTTP/1.1 200 OK\r\nA: 1\r\n" + written + b"\r\nZ: 2\r\n\r\n" + PAGE.body
    )
    assert record.payload == PAGE.body


@pytest.mark.parametrize(
    ("received", "written"),
    [
        pytest.param(b"HTTP/1.1 200", b"HTTP/1.1 200", id="no reason, nor its space"),
        pytest.param(b"http/1.0 99 \xf6", b"http/1.0 99 \xf6", id="odd, but HTTP"),
        pytest.param(b"ICY 200 OK", b"HTTP/1.1 200 OK", id="a version that nobody replays"),
        pytest.param(b"HTTP/1.2 200 OK", b"HTTP/1.1 200 OK", id="nor this one"),
        pytest.param(b"HTTP/1.1\t200\tOK", b"HTTP/1.1 200 OK", id="tabs, which hide the status"),
        pytest.param(b"HTTP/1.1  200  OK", b"HTTP/1.1 200  OK", id="two spaces do, too"),
        pytest.param(b"HTTP/1.1 200 a\tb", b"HTTP/1.1 200 a\tb", id="but no tab of the reason"),
        pytest.param(b"hello", b"HTTP/1.1", id="no status line"),
    ],
)
def test_a_status_line_as_received(received: bytes, written: bytes) -> None:
    record = answer(head=received + b"\r\nA: b\r\n\r\n", status=0, headers=())
    assert record.block == written + b"\r\nA: b\r\n\r\n" + PAGE.body
    assert record.payload == PAGE.body


@pytest.mark.parametrize(
    ("received", "written"),
    [
        pytest.param(b"A:\t b \r\n", b"A:\t b \r\n", id="white space stays"),
        pytest.param(b"A: b\r\n\t: c\r\n", b"A: b\r\n\t: c\r\n", id="so does a fold"),
        pytest.param(b"hello\r\n", b"hello\r\n", id="and a line that is no header"),
        pytest.param(b"A: b\nC: d\n", b"A: b\r\nC: d\r\n", id="LF alone ends a line"),
        pytest.param(b"\xa0\r\nA: b\r\n", b"A: b\r\n", id="a line that looks blank"),
        pytest.param(b"\xe2\x80\x83\nA: b\n", b"A: b\r\n", id="one that is blank in UTF-8"),
        pytest.param(b"\r\r\nA: b\r\n", b"A: b\r\n", id="a CR too many"),
        pytest.param(
            b"transfer-encoding:chunked\r\nContent-Length :9\r\n",
            b"X-Crawler-transfer-encoding:chunked\r\nX-Crawler-Content-Length :9\r\n",
            id="what lies about the body is renamed",
        ),
        pytest.param(
            b"A: Transfer-Encoding: b\r\n", b"A: Transfer-Encoding: b\r\n", id="but no value is"
        ),
    ],
)
def test_headers_as_received(received: bytes, written: bytes) -> None:
    for blank in (b"\r\n", b"\n"):
        record = answer(head=b"HTTP/1.1 200 OK\r\n" + received + blank, status=0, headers=())
        assert record.block == b"HTTP/1.1 200 OK\r\n" + written + b"\r\n" + PAGE.body
        assert record.payload == PAGE.body


def test_a_head_of_nothing_is_made_of_what_is_known() -> None:
    assert answer(head=b"\r\n \r\n").block == answer().block


@pytest.mark.parametrize(
    ("reason", "headers", "kept"),
    [
        pytest.param(b"OK", [(b"X", b"a" * 100_000)], (b"A", b"Z"), id="one of 100 KB"),
        pytest.param(b"OK", [(b"X", b"a" * 10_000)] * 9, (b"A", b"X", b"X", b"X", b"Z"), id="many"),
        pytest.param(b"a" * 100_000, [], (b"A", b"Z"), id="a reason of 100 KB"),
    ],
)
def test_of_too_long_a_head_whole_headers_are_kept_and_it_is_marked(
    reason: bytes, headers: list[tuple[bytes, bytes]], kept: tuple[bytes, ...]
) -> None:
    record = answer(reason=reason, headers=[(b"A", b"1"), *headers, (b"Z", b"2")])
    assert tuple(name for name, _ in record.headers) == kept
    assert len(record.block) - len(PAGE.body) <= MAX_HEAD_BYTES
    assert record.fields["WARC-Truncated"] == "length"


def test_a_head_of_the_limit_is_whole() -> None:
    fill = MAX_HEAD_BYTES - len(response_head(replace(PAGE, headers=[(b"X", b"")])).content)
    assert "WARC-Truncated" not in answer(headers=[(b"X", b"a" * fill)]).fields
    assert "WARC-Truncated" in answer(headers=[(b"X", b"a" * (fill + 1))]).fields


@pytest.mark.parametrize("reason", ["length", "time", "disconnect", "unspecified"])
def test_a_cut_body_is_marked_with_the_reason(reason: str) -> None:
    assert answer(truncated=reason).fields["WARC-Truncated"] == reason


def test_a_duplicate_is_a_revisit_of_the_first() -> None:
    record = answer(duplicate_of=ORIGINAL)
    assert record.kind == "revisit"
    assert record.payload == b""
    assert record.block == response_head(PAGE).content
    assert record.fields["WARC-Payload-Digest"] == answer().fields["WARC-Payload-Digest"]
    first = answer(url=ORIGINAL.url, fetched_at=ORIGINAL.at)
    assert record.fields["WARC-Refers-To-Target-URI"] == first.url
    assert record.fields["WARC-Refers-To-Date"] == first.fields["WARC-Date"]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        pytest.param({"record": ""}, "response", id="the first was not archived"),
        pytest.param({"digest": sha1(b"<p>").digest()}, "response", id="SHA-1 of other bytes"),
        pytest.param({"digest": b"12345678"}, "revisit", id="another hash is believed"),
    ],
)
def test_a_revisit_is_only_of_what_the_archive_holds(change: dict[str, Any], kind: str) -> None:
    fields = {name: getattr(ORIGINAL, name) for name in ORIGINAL.__struct_fields__} | change
    assert answer(duplicate_of=Claim(**fields)).kind == kind


def test_a_digest_known_before_is_not_worked_out_again() -> None:
    known = sha1(PAGE.body).digest()
    assert capture_records(replace(PAGE, body_sha1=known), RANDOM) == capture_records(PAGE, RANDOM)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        pytest.param("http://example.com/%20?é", "http://example.com/%20?%C3%A9", id="not ASCII"),
        pytest.param("http://example.com/a b", "http://example.com/a%20b", id="a space"),
        pytest.param(
            "http://example.com/\r\nX: y", "http://example.com/%0D%0AX:%20y", id="a line break"
        ),
        pytest.param("http://example.com/\udcff", "http://example.com/?", id="half a character"),
    ],
)
def test_a_url_is_one_word_of_ascii(url: str, written: str) -> None:
    assert answer(url=url).url == written


def test_nothing_from_outside_begins_a_line() -> None:
    (_, _, metadata) = judged(replace(PAGE, ip="::1\r\nX: y", metadata=[("a\nb", "c\r\n\r\nd")]))
    assert metadata.fields["WARC-IP-Address"] == "::1  X: y"
    assert metadata.block == b"a b: c    d\r\n"


def test_nor_does_a_fabricated_link() -> None:
    links = [Link("http://a.example/\r\nflaw: x"), Link("http://b.example/")]
    (_, _, metadata) = judged(replace(PAGE, metadata=(), outlinks=links))
    assert metadata.block == (
        b"outlink: http://a.example/%0D%0Aflaw:%20x L a/@href\r\n"
        b"outlink: http://b.example/ L a/@href\r\n"
    )


def test_only_a_line_feed_ends_the_line_of_a_link() -> None:
    urls = ["http://a.example/x\u2028b", "http://a.example/y\u2028b", "http://a.example/c"]
    links = [Link(url) for url in (*urls, urls[2], urls[0])]
    assert outlink_lines(links) == "".join(f"outlink: {url} L a/@href\r\n" for url in urls)


def test_a_link_is_written_once_of_each_type() -> None:
    url = "http://a.example/"
    kinds = [LinkKind.A, LinkKind.MEDIA, LinkKind.CANONICAL, LinkKind.ALTERNATE]
    links = [Link(url), *(Link(url, kind, "nofollow") for kind in kinds)]
    assert outlink_lines(links) == (
        "outlink: http://a.example/ L a/@href\r\n"
        "outlink: http://a.example/ E =EMBED_MISC\r\n"
        "outlink: http://a.example/ L link/@href\r\n"
    )


@given(st.floats(-6e10, 2.5e11) | st.floats(-2, 2) | st.integers(0, 2**31).map(lambda n: n - 4e-7))
def test_a_time_is_rounded_as_datetime_does(at: float) -> None:
    rounded = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    assert warc_date(at) == rounded.replace("+00:00", "Z")


TOKEN = st.text("abcXYZ019-_!", min_size=1).map(str.encode)
VALUE = st.binary(max_size=40).map(lambda value: value.replace(b"\n", b"").strip())


@given(headers=st.lists(st.tuples(TOKEN, VALUE)), body=st.binary(), status=st.integers(0, 999))
def test_headers_and_body_come_back_as_they_were(
    headers: list[tuple[bytes, bytes]], body: bytes, status: int
) -> None:
    record = answer(headers=headers, body=body, status=status)
    assert record.headers == tuple(headers)
    assert record.payload == body
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    assert record.block == b"HTTP/1.1 %03d OK\r\n%b\r\n%b" % (status, lines, body)


@given(headers=st.lists(st.tuples(HOSTILE, HOSTILE), max_size=5), body=HOSTILE, reason=HOSTILE)
def test_no_bytes_in_a_head_hide_the_body(
    headers: list[tuple[bytes, bytes]], body: bytes, reason: bytes
) -> None:
    assert answer(headers=headers, body=body, reason=reason).payload == body


@given(head=HOSTILE, body=HOSTILE)
def test_no_head_as_received_hides_the_body(head: bytes, body: bytes) -> None:
    assert answer(head=head, body=body).payload == body


def test_the_crawlers_own_fields_are_written_once() -> None:
    record = warcinfo(NAME, FETCHED_AT, [("format", "WARC File Format 1.1")], RANDOM[:16])
    assert record.count(b"\nformat: ") == 1


@pytest.mark.parametrize("size", [0, 1, 2046, 2047, 2048, 4094, 4095, 262_143, 262_144, 600_000])
def test_a_digest_is_that_of_all_parts(size: int) -> None:
    long = bytes(range(251)) * (size // 251 + 1)
    parts = b"head", long[:size], b"", b"end"
    assert sha1_of_parts(*parts) == sha1(b"".join(parts)).digest()

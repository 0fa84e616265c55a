"""From a page to its capture: its metadata in the archive, and its columns."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha1
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec import structs

from crawler.archive.capture import Capture, Dom, PageInfo, RecordPlace
from crawler.archive.record_bytes import sha1_label
from crawler.archive.writer import Archive, WarcSettings, WarcWriter
from crawler.content.to_capture import (
    ArchivedBodies,
    AskedColumns,
    archive_beside,
    archive_exchange,
    archive_page,
    wire_sha1,
)
from crawler.loop.outcome import claim_of
from crawler.model.page import (
    DOM_TYPE,
    ColumnsRow,
    Exchange,
    Flaw,
    Link,
    NearDuplicate,
    Page,
    Parsed,
    Rendered,
    Truncated,
    VisitsSoFar,
)
from crawler.model.types import Claim, never_waits
from tests.harness.archive_judges import read_file

BODY: Final = b"<title>T</title>"
SHA1: Final = sha1(BODY).digest()
URL: Final = "https://www.example.com/a/b"
EXCHANGE: Final = Exchange(
    url=URL,
    at=1767323045.5,
    duration_s=0.0123,
    request_head=b"GET /a/b HTTP/1.1\r\n\r\n",
    head=b"HTTP/1.1 200 OK\r\n\r\n",
    body=BODY,
    ip="192.0.2.1",
    tls="TLSv1.3",
)
PARSED: Final = Parsed(
    parser="html",
    title="T",
    text="words",
    links=(Link("c"), Link("d")),
    base="/x/",
    canonical="e",
    language="de",
    published=1.0,
    modified=2.0,
    charset="utf-8",
)
PAGE: Final = Page(
    url=URL,
    status=200,
    content_type="text/html",
    body=BODY,
    depth=1,
    lease_id=1,
    exchange=EXCHANGE,
    media_type="text/html",
    digest=SHA1,
    parsed=PARSED,
    title=PARSED.title,
    text=PARSED.text,
    outlinks=(Link("https://www.example.com/x/c"), Link("https://www.example.com/x/d")),
    simhash=0xABC,
)
ORIGINAL: Final = Claim(SHA1, "https://example.com/first", "x.warc.gz:1", 1.0)
ROW: Final = ColumnsRow(
    url=URL,
    host="www.example.com",
    fetched_at=1767323045.5,
    status=200,
    media_type="text/html",
    language="de",
    title="T",
    text="words",
    links=2,
    canonical="https://www.example.com/x/e",
    published=1.0,
    modified=2.0,
    digest=SHA1,
    simhash=0xABC,
)


class Listening(WarcWriter):
    def __init__(self, folder: Path) -> None:
        super().__init__(WarcSettings(folder=folder, origin="h-1"))
        self.captures: list[Capture] = []

    def append_all(self, captures: Sequence[Capture]) -> list[RecordPlace]:
        self.captures += captures
        return super().append_all(captures)


def bodies(most: int = 10) -> ArchivedBodies:
    return ArchivedBodies(None, lambda record: False, most)


def capture_of(folder: Path, page: Page, wire_sha1: bytes = SHA1) -> Capture | None:
    async def run() -> Capture | None:
        writer = Listening(folder)
        archive = Archive(writer, never_waits)
        record = await archive_page(page, archive, wire_sha1, AskedColumns(), bodies())
        await archive.close()
        assert bool(record) == bool(writer.captures)
        return writer.captures[0] if writer.captures else None

    return asyncio.run(run())


def test_all_that_is_known_of_a_page_is_kept(tmp_path: Path) -> None:
    capture = capture_of(tmp_path, PAGE)
    assert capture is not None
    assert capture.row == ROW
    assert capture.outlinks == PAGE.outlinks
    assert (capture.url, capture.tls, capture.body_sha1) == (URL, "TLSv1.3", SHA1)
    assert list(capture.metadata) == [
        ("fetchTimeMs", "12"),
        ("parser", "html"),
        ("charset", "utf-8"),
        ("simhash", "0000000000000abc"),
    ]


@pytest.mark.parametrize(
    ("changes", "metadata", "row"),
    [
        pytest.param({"parsed": None, "simhash": None}, [], True, id="no parser could read it"),
        pytest.param(
            {"parsed": None, "simhash": None, "flaw": Flaw.SOFT_404},
            [("flaw", "soft_404")],
            False,
            id="flawed answers are archived, and no pages",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "status": 404}, [], False, id="nor are errors"
        ),
        pytest.param(
            {"parsed": None, "simhash": 1, "near": NearDuplicate(ORIGINAL, 2)},
            [
                ("simhash", "0000000000000001"),
                ("near-duplicate-of", ORIGINAL.url),
                ("near-duplicate-bits", "2"),
            ],
            True,
            id="whom it resembles",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "digest": bytes(20)},
            [("content-digest", "sha1:" + "A" * 32)],
            True,
            id="the digest of the decoded body, where it is another",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "duplicate_of": ORIGINAL},
            [("duplicate-of", ORIGINAL.url)],
            True,
            id="whose copy it is",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "duplicate_of": structs.replace(ORIGINAL, url=URL)},
            [("duplicate-of", URL)],
            True,
            id="or that it was stored before",
        ),
        pytest.param(
            {"parsed": Parsed(parser="pdf", notes=("unreadable: too long\r\nx: y",))},
            [("parser", "pdf"), ("unreadable", "too long\r\nx: y"), ("simhash", f"{0xABC:016x}")],
            True,
            id="why it could not be read",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "content_type": "text/plain; charset=utf-8"},
            [("media-type", "text/html")],
            True,
            id="what it is, where that is not what it says",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "may_repeat": True},
            [("may-repeat", URL)],
            True,
            id="that it may be there already",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "visits": VisitsSoFar(3, 1, 9)},
            [("visits", "3 1 9 -")],
            True,
            id="its visits",
        ),
        pytest.param(
            {"parsed": None, "simhash": None, "may_repeat": True, "duplicate_of": ORIGINAL},
            [("duplicate-of", ORIGINAL.url)],
            True,
            id="a revisit says so by itself",
        ),
        pytest.param(
            {
                "parsed": None,
                "simhash": None,
                "may_repeat": True,
                "duplicate_of": ORIGINAL,
                "exchange": replace(EXCHANGE, truncated=Truncated.LENGTH),
            },
            [("duplicate-of", ORIGINAL.url), ("may-repeat", URL)],
            True,
            id="a copy that was cut off is none",
        ),
    ],
)
def test_metadata(
    tmp_path: Path, changes: dict[str, Any], metadata: list[tuple[str, str]], row: bool
) -> None:
    capture = capture_of(tmp_path, replace(PAGE, **changes))
    assert capture is not None
    assert list(capture.metadata)[1:] == metadata
    assert (capture.row is not None) == row


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"duplicate_of": ORIGINAL, "near": NearDuplicate(ORIGINAL, 0)},
            {
                **dict.fromkeys(("language", "title", "text", "canonical"), ""),
                **dict.fromkeys(("published", "modified", "simhash")),
                "links": 0,
                "original": ORIGINAL.url,
            },
            id="a copy is marked, and what it says is with its original",
        ),
        pytest.param(
            {
                "duplicate_of": structs.replace(ORIGINAL, url=URL),
                "near": NearDuplicate(ORIGINAL, 1),
            },
            {
                **dict.fromkeys(("language", "title", "text", "canonical"), ""),
                **dict.fromkeys(("published", "modified", "simhash")),
                "links": 0,
                "original": URL,
            },
            id="fetched again, what it says is with its first record",
        ),
        pytest.param(
            {"duplicate_of": structs.replace(ORIGINAL, status=404)},
            {},
            id="the bytes of an error page make no copy",
        ),
        pytest.param(
            {"near": NearDuplicate(ORIGINAL, 3)},
            {"original": ORIGINAL.url, "bits": 3},
            id="a near copy has its text",
        ),
        pytest.param({"may_repeat": True}, {"may_repeat": True}, id="its text may be in two rows"),
        pytest.param(
            {"parsed": Parsed(canonical="mailto:x"), "title": "", "text": ""},
            {
                **dict.fromkeys(("language", "title", "text", "canonical"), ""),
                "links": 0,
                "published": None,
                "modified": None,
            },
            id="a canonical that is no URL of ours",
        ),
    ],
)
def test_rows(tmp_path: Path, changes: dict[str, Any], expected: dict[str, Any]) -> None:
    capture = capture_of(tmp_path, replace(PAGE, **changes))
    assert capture is not None
    assert capture.row == structs.replace(ROW, **expected)


def test_a_page_that_is_not_to_be_archived_is_not(tmp_path: Path) -> None:
    assert capture_of(tmp_path, replace(PAGE, archive=False)) is None


def test_of_a_page_whose_author_said_noindex_only_its_links_are_archived(tmp_path: Path) -> None:
    async def run() -> list[Capture]:
        writer = Listening(tmp_path)
        archive = Archive(writer, never_waits)
        record = await archive_page(
            *(replace(PAGE, archive=False, noindex=True), archive, SHA1),
            *(AskedColumns(), bodies()),
        )
        await archive.close()
        assert record == "", "the page itself is nowhere"
        return writer.captures

    (capture,) = asyncio.run(run())
    kept = msgspec.json.decode(capture.body, type=PageInfo)
    assert (capture.row, list(capture.outlinks)) == (kept.row, list(kept.outlinks))
    assert kept.outlinks == PAGE.outlinks
    nothing = {"title": "", "text": "", "simhash": None, "noindex": True}
    assert kept.row == structs.replace(ROW, **nothing)
    (file,) = tmp_path.glob("*.warc.gz")
    assert b"words" not in gzip.decompress(file.read_bytes())


def test_a_page_without_an_exchange_has_no_capture(tmp_path: Path) -> None:
    assert capture_of(tmp_path, replace(PAGE, exchange=None)) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="a copy"),
        pytest.param({"url": ORIGINAL.url}, id="a page that was stored before"),
        pytest.param({"status": 404}, id="an error page is one of any other too"),
        pytest.param({"flaw": Flaw.SOFT_404}, id="and what is no page"),
    ],
)
def test_bytes_are_kept_once(tmp_path: Path, changes: dict[str, Any]) -> None:
    capture = capture_of(tmp_path, replace(PAGE, duplicate_of=ORIGINAL, **changes))
    assert capture is not None
    assert capture.duplicate_of == ORIGINAL


def test_a_page_with_the_bytes_of_an_error_page_is_kept(tmp_path: Path) -> None:
    error = structs.replace(ORIGINAL, status=404)
    capture = capture_of(tmp_path, replace(PAGE, duplicate_of=error))
    assert capture is not None
    assert (capture.duplicate_of, capture.row) == (None, ROW)


def test_an_answer_that_was_cut_is_no_revisit(tmp_path: Path) -> None:
    cut = replace(EXCHANGE, truncated=Truncated.TIME)
    capture = capture_of(tmp_path, replace(PAGE, exchange=cut, duplicate_of=ORIGINAL))
    assert capture is not None
    assert capture.duplicate_of is None
    assert capture.truncated == "time"


def test_without_an_archive_nothing_is_kept() -> None:
    assert asyncio.run(archive_exchange(EXCHANGE, None)) == ""


def test_credentials_are_not_archived(tmp_path: Path) -> None:
    head = (
        b"GET /a HTTP/1.1\r\nauthorization: Basic c2VjcmV0\r\nAccept: */*\r\n"
        b"Cookie: session=secret; b=2\r\nProxy-Authorization:secret\r\n\r\n"
    )
    exchange = replace(EXCHANGE, request_head=head, request_body=b"Cookie: a body")
    capture = capture_of(tmp_path, replace(PAGE, exchange=exchange))
    assert capture is not None
    assert capture.request == (
        b"GET /a HTTP/1.1\r\nauthorization: ...\r\nAccept: */*\r\nCookie: ...\r\n"
        b"Proxy-Authorization:...\r\n\r\nCookie: a body"
    )


SHELL: Final = structs.replace(EXCHANGE, body=b"shell")
HOW: Final = Rendered(ms=312, requests=1, left_out=2)


def made(number: int, dom: bytes = BODY, **changes: Any) -> Page:
    """A page that a browser has made of the shell."""
    exchange = structs.replace(SHELL, url=f"{URL}/{number}", at=EXCHANGE.at + number)
    given = {"url": exchange.url, "exchange": exchange, "body": dom, "digest": sha1(dom).digest()}
    return replace(PAGE, rendered=HOW, content_type=DOM_TYPE, **{**given, **changes})


def captures_of(folder: Path, known: ArchivedBodies, *pages: Page) -> list[Capture]:
    async def run() -> list[Capture]:
        writer = Listening(folder)
        archive = Archive(writer, never_waits)
        for page in pages:
            wire = wire_sha1(page.exchange, page.body, page.digest)
            await archive_page(page, archive, wire, AskedColumns(), known)
        scripts = [structs.replace(SHELL, url=f"{URL}/bundle.js", at=each) for each in (1.5, 2.5)]
        await archive_beside(scripts, archive, known, may_repeat=False)
        await archive.close()
        return writer.captures

    return asyncio.run(run())


def test_a_shell_is_stored_once_and_each_dom(tmp_path: Path) -> None:
    pages = [made(number, b"<p>%d" % number) for number in range(4)]
    *captures, script, _ = captures_of(tmp_path, bodies(), *pages)
    assert [each.dom for each in captures] == [Dom(page.body, page.digest) for page in pages]
    assert [each.body for each in captures] == [b"shell"] * 4
    (claim,) = {each.duplicate_of for each in (*captures[1:], script)}
    assert claim is not None and captures[0].duplicate_of is None
    assert (claim.url, claim.at) == (captures[0].url, captures[0].fetched_at)
    assert list(script.metadata) == [("fetchTimeMs", "12"), ("beside", "page")]
    assert ("rendered", "312 1 2 quiet") in captures[0].metadata
    assert ("content-digest", sha1_label(pages[0].digest)) in captures[0].metadata


@pytest.mark.parametrize(
    "original",
    [
        pytest.param(ORIGINAL, id="a copy"),
        pytest.param(structs.replace(ORIGINAL, url=f"{URL}/1"), id="made before of its own answer"),
    ],
)
def test_a_dom_that_is_stored_is_not_stored_again(tmp_path: Path, original: Claim) -> None:
    """What was sent is, whatever the original's record has."""
    page = made(1, duplicate_of=original)
    capture, *_ = captures_of(tmp_path, bodies(), page)
    assert (capture.dom, capture.duplicate_of, capture.body) == (None, None, b"shell")
    assert ("duplicate-of", original.url) in capture.metadata
    assert capture.row is not None and (capture.row.text, capture.row.original) == (
        *("", original.url),
    )


def test_of_bodies_the_last_ones_are_remembered() -> None:
    known = bodies(most=2)
    claims = [Claim(bytes([each]) * 20, URL, f"x:{each}") for each in range(3)]
    for each in claims[:2]:
        known.note(each)
    assert known.original(claims[0].digest) == claims[0]
    known.note(claims[2])
    assert [known.original(each.digest) for each in claims] == [claims[0], None, claims[2]]
    gone = ArchivedBodies(None, lambda record: record == "x:0")
    gone.note(claims[0])
    assert gone.original(claims[0].digest) is None, "its file is to go"


def test_what_is_cut_or_empty_is_no_original(tmp_path: Path) -> None:
    for changes in ({"truncated": Truncated.LENGTH}, {"body": b""}):
        exchange = structs.replace(SHELL, **changes)
        pages = [made(number, exchange=exchange) for number in range(2)]
        captures = captures_of(tmp_path, bodies(), *pages)
        assert [each.duplicate_of for each in captures[:2]] == [None, None]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(BODY, id="sent so"),
        pytest.param(gzip.compress(BODY, mtime=0), id="sent packed"),
    ],
)
def test_what_has_the_bytes_of_a_dom_is_stored_itself(tmp_path: Path, body: bytes) -> None:
    """Also if a browser has changed nothing of an answer that is a revisit itself."""
    first = made(0, exchange=structs.replace(SHELL, body=body))
    second = made(1, exchange=structs.replace(SHELL, url=f"{URL}/1", body=body))
    claim = claim_of(replace(first, record="x.warc.gz:1"), SHA1, 0.0, may_change=True)
    assert claim is not None and claim.record == "x.warc.gz:1"
    plain = replace(second, rendered=None, duplicate_of=claim)
    captures_of(tmp_path, bodies(), plain)
    kinds = [each.kind for each in read_file(next(tmp_path.glob("*.warc.gz")))]
    assert kinds[1] == "response", "not a revisit of a record with other bytes"

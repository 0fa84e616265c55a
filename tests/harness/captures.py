"""Captures for tests to write, and bytes that a reader of WARC files may mistake for others."""

from __future__ import annotations

from hashlib import sha1
from random import Random
from typing import Final

from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.archive.capture import Capture, Dom, RecordPlace
from crawler.model.page import Link, LinkKind, Page, Parsed
from crawler.model.types import Claim
from crawler.page.row import row_of

FETCHED_AT: Final = 1767323045.678901  # 2026-01-02T03:04:05.678901Z

PAGE: Final = Capture(
    url="http://example.com/a?b=c",
    fetched_at=FETCHED_AT,
    ip="192.0.2.1",
    request=b"GET /a?b=c HTTP/1.1\r\nHost: example.com\r\n\r\n",
    status=200,
    reason=b"OK",
    headers=[
        (b"Server", b"caf\xe9"),
        (b"content-TYPE", b"text/html"),
        (b"Set-Cookie", b"a=1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Set-Cookie", b"b=2"),
    ],
    body=b"<p>hello\r\n\r\n</p>",
    metadata=[("charset-detected", "utf-8"), ("outlink", "http://a.example/")],
)
CUT: Final = replace(
    PAGE,
    headers=[(b"Content-Type", b"text/html"), (b"Content-Length", b"3000000")],
    truncated="length",
)
ORIGINAL: Final = Claim(
    digest=sha1(PAGE.body).digest(),
    url="http://example.com/first",
    record=str(RecordPlace("crawl-20260102030400-00000-h-1.warc.gz", 345, 678)),
    at=FETCHED_AT - 5.5,
)
UNCHANGED: Final = replace(
    PAGE,
    tls="TLSv1.3",
    status=304,
    reason=b"Not Modified",
    headers=[(b"ETag", b'"x"')],
    body=b"",
    not_modified_of=ORIGINAL,
    metadata=(),
)
LINKED: Final = replace(
    PAGE,
    metadata=[("fetchTimeMs", "12"), ("charset", "utf-8"), ("simhash", "0123456789abcdef")],
    outlinks=[
        Link("http://example.com/deep/c?d"),
        Link("http://a.example/"),
        Link("http://example.com/logo.png", LinkKind.MEDIA),
        Link("http://a.example/", LinkKind.CANONICAL),
        Link("http://example.com/deep/er/%C3%A9", LinkKind.IFRAME),
    ],
)
RENDERED: Final = replace(
    PAGE,
    metadata=[*PAGE.metadata, ("rendered", "312 4 1 quiet")],
    dom=Dom(
        "<p>hällo</p>\r\n\r\nWARC/1.1".encode(),
        sha1("<p>hällo</p>\r\n\r\nWARC/1.1".encode()).digest(),
    ),
)

# What readers split, fold, trim and look for.
PIECES = [
    *(bytes([byte]) for byte in b"\r\n \t:\0\x0b\x0c\x1c\x85\xa0\xe2A"),
    *(b"\r\n", "\u2003".encode(), b"HTTP/1.1 200", b"WARC/1.1", b"Transfer-Encoding: chunked"),
]
HOSTILE = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3)).map(b"".join)

BORN_AT: Final = 1767323045.0
TEXT_TYPE: Final = "text/plain; charset=utf-8"


def numbered_text(life: int, number: int) -> str:
    random = Random(life * 1_000_003 + number)
    return f"page {life} {number} {random.randbytes(random.randrange(1, 8_000)).hex()}"


def numbered_capture(life: int, number: int) -> Capture:
    """Always the same for the same numbers."""
    body = numbered_text(life, number).encode()
    page = Page(
        url=f"http://example.com/{life}/{number}",
        status=200,
        content_type=TEXT_TYPE,
        body=body,
        depth=0,
        lease_id=0,
        media_type="text/plain",
        digest=sha1(body).digest(),
        parsed=Parsed(text=body.decode()),
        text=body.decode(),
    )
    return Capture(
        url=page.url,
        fetched_at=BORN_AT + life,
        status=200,
        headers=[(b"Content-Type", TEXT_TYPE.encode())],
        body=body,
        metadata=[("fetchTimeMs", "1")],
        row=row_of(page, BORN_AT + life),
    )

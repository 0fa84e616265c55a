"""Hostile heads, lengths and chunks: where an answer begins and ends.

Rule: what a browser takes is a page; what it refuses costs its own page, at once.
"""

from __future__ import annotations

from typing import Final

from tests.servers.hostile_kit import (
    HTML,
    HTML_TYPE,
    LONG_HTML,
    OK,
    Expectation,
    Hostile,
    Wait,
    answer,
    chunked,
    error,
    for_ever,
    head,
    once,
    page,
)

CONTINUE: Final = head(status=b"HTTP/1.1 100 Continue")
IN_CHUNKS: Final = b"Transfer-Encoding: chunked"


def length(value: bytes) -> bytes:
    return b"Content-Length: " + value


HEADS: Final = (
    Hostile("plain", once(answer()), page()),
    Hostile("head-cut", once(head(HTML_TYPE)[:-6]), error("disconnect")),
    Hostile(
        "head-endless",
        for_ever(OK + b"\r\n", b"X-Line: and another one\r\n" * 200),
        error("protocol"),
    ),
    Hostile("head-line-endless", for_ever(OK + b"\r\nX-Line: ", b"x" * 8192), error("protocol")),
    Hostile("head-line-100k", once(answer(b"X-Long: " + b"x" * 100_000)), page()),
    Hostile("head-nul", once(answer(b"X-Nul: a\0b\0")), page()),
    Hostile("head-not-utf8", once(answer(b"X-Latin: caf\xe9", b"X-Bytes: \xff\xfe")), page()),
    Hostile("head-no-colon", once(answer(b"a line without one", b"X-After: 1")), page()),
    Hostile("head-folded", once(answer(b"X-Folded: one\r\n two")), page()),
    Hostile("head-space-before-colon", once(answer(b"X-Space : 1")), page()),
    Hostile("head-empty-name", once(answer(b": nameless", b"(odd name): 1")), page()),
    Hostile("head-bare-lf", once(answer().replace(b"\r\n", b"\n")), page()),
    Hostile("head-after-empty-lines", once(b"\r\n\r\n\n" + answer()), page()),
    Hostile(
        "head-one-byte-at-a-time",
        once(*(answer()[i : i + 1] for i in range(len(answer())))),
        page(),
    ),
    Hostile(
        "head-500-cookies",
        once(answer(*(b"Set-Cookie: c%d=%s" % (i, b"v" * 80) for i in range(500)))),
        page(),
    ),
    Hostile(
        "head-upgrade-offered", once(answer(b"Upgrade: h2,h2c", b"Connection: Upgrade")), page()
    ),
    Hostile("status-899", once(answer(status=b"HTTP/1.1 899 No thanks")), page(status=899)),
    Hostile("status-99", once(answer(status=b"HTTP/1.1 99 Low")), error("protocol")),
    Hostile("status-word", once(answer(status=b"HTTP/1.1 abc OK")), error("protocol")),
    Hostile("status-no-reason", once(answer(status=b"HTTP/1.1 200")), page()),
    Hostile("status-not-utf8", once(answer(status=b"HTTP/1.1 200 \xff\xfe")), page()),
    Hostile("status-http-2", once(answer(status=b"HTTP/2 200 OK")), page()),
    Hostile("status-http-1.2", once(answer(status=b"HTTP/1.2 200 OK")), page()),
    Hostile("status-http-0.9", once(answer(status=b"HTTP/0.9 200 OK")), page()),
    Hostile("status-after-tab", once(answer(status=b"HTTP/1.1\t200\tFine")), page()),
    Hostile("status-after-spaces", once(answer(status=b"HTTP/1.1  200  OK")), page()),
    Hostile("status-http-1.0", once(head(HTML_TYPE, status=b"HTTP/1.0 200 OK") + HTML), page()),
    Hostile("status-none-http-0.9", once(HTML), error("protocol")),
    Hostile("status-other-protocol", once(b"220 ftp.example.com ready\r\n"), error("protocol")),
    Hostile("100-once", once(CONTINUE + answer()), page()),
    Hostile("100-thousands", once(CONTINUE * 5000 + answer()), error("protocol")),
    Hostile(
        "103-hints", once(head(b"Link: </x>", status=b"HTTP/1.1 103 Early Hints"), answer()), page()
    ),
    Hostile(
        "101-unasked",
        once(head(b"Upgrade: x", b"Connection: Upgrade", status=b"HTTP/1.1 101 Switching") + HTML),
        error("protocol"),
    ),
    Hostile(
        "204-with-body", once(answer(status=b"HTTP/1.1 204 No Content")), page(status=204, body=b"")
    ),
    Hostile(
        "304-with-body",
        once(answer(status=b"HTTP/1.1 304 Not Modified")),
        page(status=304, body=b""),
    ),
)

LENGTHS: Final = (
    Hostile("length-none", once(head(HTML_TYPE) + HTML), page()),
    Hostile("length-zero", once(answer(body=b"")), page(body=b"")),
    Hostile("length-none-and-nothing", once(head(HTML_TYPE)), page(body=b"")),
    Hostile("length-negative", once(head(HTML_TYPE, length(b"-5")) + HTML), page()),
    Hostile("length-a-word", once(head(HTML_TYPE, length(b"long")) + HTML), page()),
    Hostile("length-empty", once(head(HTML_TYPE, length(b"")) + HTML), page()),
    Hostile("length-beyond-64-bits", once(head(HTML_TYPE, length(b"9" * 40)) + HTML), page()),
    Hostile("length-twice", once(answer(length(b"%d" % len(HTML)))), page()),
    Hostile(
        "length-a-list",
        once(head(HTML_TYPE, length(b"%d, %d" % (len(HTML), len(HTML)))) + HTML),
        page(),
    ),
    Hostile("lengths-disagree", once(answer(length(b"7"))), error("protocol")),
    Hostile(
        "length-too-long",
        once(head(HTML_TYPE, length(b"90000")) + HTML),
        page(truncated="disconnect"),
    ),
    Hostile("length-too-short", once(head(HTML_TYPE, length(b"12")) + HTML), page(body=HTML[:12])),
    Hostile(
        "length-and-chunks", once(head(HTML_TYPE, length(b"3"), IN_CHUNKS) + chunked(HTML)), page()
    ),
    Hostile(
        "length-too-short-then-another-answer",
        once(answer() + answer(body=b"never asked for")),
        page(),
    ),
    Hostile(
        "length-gigabyte-then-gone",
        once(head(HTML_TYPE, length(b"%d" % (1 << 30)))),
        page(body=b"", truncated="disconnect"),
    ),
)

CHUNKS: Final = (
    Hostile(
        "chunks",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, LONG_HTML)),
        page(body=HTML + LONG_HTML),
    ),
    Hostile(
        "chunks-of-one-byte",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(*(LONG_HTML[i : i + 1] for i in range(5000)))),
        page(body=LONG_HTML[:5000]),
    ),
    Hostile(
        "chunks-extended",
        once(
            head(HTML_TYPE, IN_CHUNKS)
            + b"%x;a=b;c\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(HTML), HTML)
        ),
        page(),
    ),
    Hostile(
        "chunks-ending-in-lf",
        once((head(HTML_TYPE, IN_CHUNKS) + chunked(HTML)).replace(b"\r\n", b"\n")),
        page(),
    ),
    Hostile(
        "chunks-of-http-1.0",
        once(head(HTML_TYPE, IN_CHUNKS, status=b"HTTP/1.0 200 OK") + chunked(HTML)),
        page(),
    ),
    Hostile(
        "chunks-without-the-last-line",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"0\r\n")),
        page(),
    ),
    Hostile(
        "chunks-extended-for-ever",
        for_ever(
            head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b""),
            b"1;" + b"x" * 16_000 + b"\r\ny\r\n",
        ),
        Expectation(min_bytes=len(HTML), max_bytes=10_000, truncated="length"),
    ),
    Hostile(
        "trailers-for-ever",
        for_ever(
            head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"0\r\n"), b"X-Trailer: 1\r\n" * 500
        ),
        page(),
    ),
    Hostile(
        "chunks-without-end",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"")),
        page(truncated="disconnect"),
    ),
    Hostile(
        "chunk-size-a-word",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"zz\r\nmore")),
        page(truncated="unspecified"),
    ),
    Hostile(
        "chunk-size-a-word-later",
        once(
            head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b""),
            Wait(0.05),
            b"zz\r\nmore",
            Wait(20.0),
        ),
        page(truncated="unspecified"),
    ),
    Hostile(
        "chunk-size-beyond-64-bits",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"f" * 2000 + b"\r\nmore")),
        page(truncated="unspecified"),
    ),
    Hostile(
        "chunk-size-negative",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b"-5\r\nmore")),
        page(truncated="unspecified"),
    ),
    Hostile(
        "chunk-size-endless",
        for_ever(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML, end=b""), b"f" * 8192),
        Expectation(body=HTML, truncated="unspecified"),
    ),
    Hostile(
        "chunks-and-more",
        once(head(HTML_TYPE, IN_CHUNKS) + chunked(HTML) + b"after the end"),
        page(),
    ),
    Hostile(
        "transfer-encoding-unknown",
        once(head(HTML_TYPE, b"Transfer-Encoding: brotli") + HTML),
        page(),
    ),
)

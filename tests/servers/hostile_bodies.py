"""Hostile bodies: codings, bombs, contents, and servers that stall or leave.

Rule: what could be read is kept and says what is missing.
"""

from __future__ import annotations

import zlib
from typing import Final

import brotli  # type: ignore[import-untyped]  # it ships no types

from tests.servers.hostile_kit import (
    HTML,
    HTML_TYPE,
    LONG_HTML,
    OK,
    Expectation,
    Hostile,
    Pieces,
    Reset,
    Wait,
    answer,
    brotli_bomb,
    chunked,
    error,
    for_ever,
    gzip_bomb,
    gzipped,
    head,
    once,
    page,
    zstd_bomb,
)

BROKEN: Final = frozenset({"decoded_broken"})
CUT: Final = frozenset({"decoded_length"})
SHORT: Final = frozenset({"decoded_cut"})
UNDECODED: Final = frozenset({"undecoded"})
BOMB: Final = Expectation(min_bytes=1_500_000, flags=CUT)
GZIP: Final = gzipped(LONG_HTML)
ATTRIBUTES: Final = b"<p " + b" ".join(b"a%d=1" % n for n in range(150_000)) + b">"
FORMATTING: Final = b"".join(b"<p><b a=%d>" % n for n in range(100_000))
HIDDEN_ENDS: Final = b"<div><!--</div>-->" * 80_000


def coded(coding: bytes, body: bytes) -> Pieces:
    return once(answer(b"Content-Encoding: " + coding, body=body))


def deflated(body: bytes, window_bits: int) -> bytes:
    return zlib.compress(body, 6, window_bits)


CODINGS: Final = (
    Hostile("gzip", coded(b"gzip", GZIP), page(body=LONG_HTML)),
    Hostile("gzip-x", coded(b"X-GZIP", GZIP), page(body=LONG_HTML)),
    Hostile(
        "gzip-two-members",
        coded(b"gzip", gzipped(HTML) + gzipped(LONG_HTML)),
        page(body=HTML + LONG_HTML),
    ),
    Hostile("gzip-and-junk", coded(b"gzip", GZIP + b"junk after the end"), page(body=LONG_HTML)),
    Hostile("gzip-of-nothing", coded(b"gzip", b""), page(body=b"")),
    Hostile("gzip-that-is-plain", coded(b"gzip", HTML), page(flags=BROKEN)),
    Hostile(
        "gzip-cut",
        coded(b"gzip", GZIP[:-20]),
        Expectation(min_bytes=20_000, max_bytes=len(LONG_HTML), flags=SHORT),
    ),
    Hostile(
        "gzip-without-trailer",
        once(head(HTML_TYPE, b"Content-Encoding: gzip") + GZIP[:-8]),
        page(body=LONG_HTML, flags=SHORT),
    ),
    Hostile(
        "gzip-damaged",
        coded(b"gzip", GZIP[:90] + bytes(40) + GZIP[130:]),
        Expectation(min_bytes=10, flags=BROKEN),
    ),
    Hostile(
        "gzip-wrong-checksum",
        coded(b"gzip", GZIP[:-8] + bytes(8)),
        Expectation(min_bytes=20_000, max_bytes=len(LONG_HTML), flags=BROKEN),
    ),
    Hostile("gzip-twice", coded(b"gzip, gzip", gzipped(GZIP)), page(body=LONG_HTML)),
    Hostile(
        "gzip-twice-in-two-lines",
        once(answer(b"Content-Encoding: gzip", b"Content-Encoding: gzip", body=gzipped(GZIP))),
        page(body=LONG_HTML),
    ),
    Hostile(
        "gzip-nine-times", coded(b", ".join([b"gzip"] * 9), GZIP), page(body=GZIP, flags=UNDECODED)
    ),
    Hostile("identity-gzip", coded(b"identity, gzip", GZIP), page(body=LONG_HTML)),
    Hostile("deflate-zlib", coded(b"deflate", deflated(LONG_HTML, 15)), page(body=LONG_HTML)),
    Hostile("deflate-raw", coded(b"deflate", deflated(LONG_HTML, -15)), page(body=LONG_HTML)),
    Hostile("deflate-that-is-plain", coded(b"deflate", HTML), page(flags=BROKEN)),
    Hostile("brotli", coded(b"br", brotli.compress(LONG_HTML)), page(body=LONG_HTML)),
    Hostile(
        "brotli-cut",
        coded(b"br", brotli.compress(LONG_HTML)[:-8]),
        Expectation(max_bytes=len(LONG_HTML), flags=SHORT),
    ),
    Hostile("coding-unknown", coded(b"lzma-of-our-own", GZIP), page(body=GZIP, flags=UNDECODED)),
    Hostile("coding-is-a-charset", coded(b"UTF-8", HTML), page()),
    Hostile("coding-in-latin-1", coded(b"gz\xefp", HTML), page(flags=UNDECODED)),
    Hostile(
        "zstd-window-128-mb",
        coded(b"zstd", zstd_bomb(1, window=b"\x88")),
        Expectation(flags=BROKEN),
    ),
)

BOMBS: Final = (
    Hostile("bomb-gzip", coded(b"gzip", gzip_bomb(100)), BOMB),
    Hostile("bomb-gzip-1mb-1gb", lambda: coded(b"gzip", gzip_bomb(1000))(), BOMB),
    Hostile("bomb-deflate", coded(b"deflate", gzip_bomb(100)[10:]), BOMB),
    Hostile("bomb-brotli-10gb", lambda: coded(b"br", brotli_bomb(10))(), BOMB),
    Hostile("bomb-zstd-10gb", lambda: coded(b"zstd", zstd_bomb(10))(), BOMB),
    Hostile("bomb-gzip-in-gzip", lambda: coded(b"gzip, gzip", gzipped(gzip_bomb(1000)))(), BOMB),
    Hostile(
        "bomb-brotli-in-brotli", lambda: coded(b"br, br", brotli.compress(brotli_bomb(10)))(), BOMB
    ),
    Hostile(
        "bomb-gzip-endless",
        for_ever(head(HTML_TYPE, b"Content-Encoding: gzip") + gzip_bomb(1), gzip_bomb(1)[10:]),
        Expectation(min_bytes=1_500_000, truncated="length", flags=CUT),
    ),
)

CONTENTS: Final = (
    Hostile(
        "binary-as-html",
        once(answer(body=bytes(range(256)) * 100)),
        page(body=bytes(range(256)) * 100),
    ),
    Hostile("nuls-as-html", once(answer(body=HTML + bytes(5000))), page(body=HTML + bytes(5000))),
    Hostile("html-as-image", once(answer(kind=b"Content-Type: image/png")), page()),
    Hostile("type-missing", once(answer(kind=b"")), page()),
    Hostile("type-garbage", once(answer(kind=b'Content-Type: ;;;/\xff="')), page()),
    Hostile("type-twice", once(answer(b"Content-Type: application/pdf")), page()),
    Hostile(
        "charset-unknown",
        once(answer(kind=b"Content-Type: text/html; charset=no-such-one")),
        page(),
    ),
    Hostile(
        "charset-lies",
        once(answer(body="<p>caf\xe9</p>".encode("utf-16"))),
        page(body="<p>caf\xe9</p>".encode("utf-16")),
    ),
    Hostile(
        "charset-in-meta-lies",
        once(
            answer(kind=b"Content-Type: text/html", body=b'<meta charset="utf-16"><p>caf\xe9</p>')
        ),
        page(body=b'<meta charset="utf-16"><p>caf\xe9</p>'),
    ),
    Hostile(
        "tags-nested-a-megabyte",
        once(answer(body=b"<div>" * 200_000)),
        page(body=b"<div>" * 200_000),
    ),
    Hostile(
        "attributes-100k",
        once(answer(body=b"<p " + b"a=1 " * 100_000 + b">")),
        page(body=b"<p " + b"a=1 " * 100_000 + b">"),
    ),
    # A tree of one of these three takes minutes, or all memory there is.
    Hostile("attributes-distinct", once(answer(body=ATTRIBUTES)), page(body=ATTRIBUTES)),
    Hostile("formatting-carried-on", once(answer(body=FORMATTING)), page(body=FORMATTING)),
    Hostile("ends-in-comments", once(answer(body=HIDDEN_ENDS)), page(body=HIDDEN_ENDS)),
    Hostile(
        "links-10000",
        once(answer(body=b"".join(b"<a href='/deep/%d'>x</a>" % i for i in range(10_000)))),
        Expectation(min_bytes=200_000),
    ),
    Hostile(
        "links-invalid",
        once(
            answer(
                body=b"".join(
                    b"<a href='%s'>x</a>" % url
                    for url in (
                        *(
                            b"http://",
                            b"http://[::1",
                            b"http://a:99999/",
                            b"http://a:b/",
                            b"http://a b/",
                        ),
                        *(b"http://%ff/", b"http://..", b"//", b"http:///x", b"http://1.2.3.4.5/"),
                        *(
                            b"javascript:alert(1)",
                            b"data:text/html,<a href=/x>",
                            b"mailto:a@b",
                            b"ftp://a/",
                        ),
                        *(
                            b"http://" + b"a" * 300 + b"/",
                            b"/" + b"x" * 100_000,
                            b"\xff\xfe",
                            b"h\0ttp://a/",
                        ),
                    )
                )
            )
        ),
        Expectation(min_bytes=100_000),
    ),
    Hostile(
        "frames-deep",
        once(answer(body=b"<iframe src='/frames-deep'>" * 5000)),
        Expectation(min_bytes=100_000),
    ),
    Hostile(
        "base-is-javascript",
        once(answer(body=b"<base href='javascript:x'><a href='y'>z</a>")),
        Expectation(),
    ),
)

TIMES: Final = (
    Hostile("silence", once(Wait(60.0)), error("timeout")),
    Hostile("drip-head", for_ever(OK, b"x", pause_s=0.1), error("timeout")),
    Hostile(
        "drip-body",
        for_ever(head(HTML_TYPE) + HTML, b"x", pause_s=0.1),
        Expectation(min_bytes=len(HTML), truncated="time"),
    ),
    Hostile(
        "stall-in-body",
        once(head(HTML_TYPE, b"Content-Length: 90000") + HTML, Wait(60.0)),
        page(truncated="time"),
    ),
    Hostile(
        "endless",
        for_ever(head(HTML_TYPE), LONG_HTML),
        Expectation(min_bytes=1_000_000, truncated="length"),
    ),
    Hostile("close-at-once", once(), error("disconnect")),
    Hostile("reset-at-once", once(Reset()), error("disconnect")),
    Hostile("reset-in-head", once(OK + b"\r\nX: ", Wait(0.05), Reset()), error("disconnect")),
    Hostile(
        "reset-in-body",
        once(head(HTML_TYPE, b"Content-Length: 90000") + LONG_HTML, Wait(0.1), Reset()),
        page(body=LONG_HTML, truncated="disconnect"),
    ),
    Hostile(
        "reset-in-body-without-length",
        once(head(HTML_TYPE) + LONG_HTML, Wait(0.1), Reset()),
        page(body=LONG_HTML, truncated="disconnect"),
    ),
    Hostile(
        "reset-in-chunks",
        once(
            head(HTML_TYPE, b"Transfer-Encoding: chunked") + chunked(HTML, end=b""),
            Wait(0.1),
            Reset(),
        ),
        page(truncated="disconnect"),
    ),
)


def moved(*lines: bytes) -> Pieces:
    return once(answer(*lines, status=b"HTTP/1.1 302 Found"))


MOVED: Final = page(status=302)

REDIRECTS: Final = (
    Hostile("redirect-nowhere", moved(), MOVED),
    Hostile("redirect-to-nothing", moved(b"Location: "), MOVED),
    Hostile("redirect-to-javascript", moved(b"Location: javascript:alert(1)"), MOVED),
    Hostile("redirect-to-itself", moved(b"Location: /redirect-to-itself"), MOVED),
    Hostile("redirect-with-spaces", moved(b"Location: /pl ain here"), MOVED),
    Hostile("redirect-not-ascii", moved(b"Location: /caf\xe9/\xff"), MOVED),
    Hostile("redirect-100k", moved(b"Location: /" + b"x" * 100_000), MOVED),
    Hostile("redirect-twice", moved(b"Location: /plain", b"Location: /gzip"), MOVED),
    Hostile("redirect-to-bad-host", moved(b"Location: http://[::1/"), MOVED),
    Hostile("redirect-to-bad-port", moved(b"Location: http://127.0.0.1:99999/"), MOVED),
    Hostile("redirect-to-file", moved(b"Location: file:///etc/passwd"), MOVED),
)

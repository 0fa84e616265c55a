"""The head of an HTTP response as it is written into a WARC.

Rule: pure; bytes as received, in their order, but for what would lie about the stored body or
make a reader look for it in the wrong place. A header that would lie keeps its value and its
place under the name `X-Crawler-<name>`, as in the WARCs of Common Crawl and StormCrawler:

- Transfer-Encoding: our client has joined the chunks; a reader told "chunked" would look for
  chunk sizes in the page. The WARC specification counts payloads without it in any case.
- Content-Length beside a Transfer-Encoding (RFC 9112 6.3: it does not count) or of a body
  that was cut: pywb promises that many bytes, and its client waits for them until it gives up.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from crawler.storage.warc.capture import Capture

CHUNKED: Final = re.compile(rb"^(?=Transfer-Encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)
LYING: Final = re.compile(
    rb"^(?=(?:Transfer-Encoding|Content-Length)[ \t]*:)", re.IGNORECASE | re.MULTILINE
)
RENAMED: Final = b"X-Crawler-"
_GIVEN_BACK: Final = re.compile(LYING.pattern.replace(b"^", b"^" + RENAMED), LYING.flags)
END: Final = b"\r\n\r\n"

# A head that is written as it came, as most are: no line of it looks blank, or has a lone LF.
PLAIN: Final = re.compile(rb"HTTP/1\.[01](?: [^\r\n]*+)?\r\n(?:[!-9;-~]++:[^\r\n]*+\r\n)*+\r\n")

# Replay software knows these two only; HTTP/2 and later are by custom written as HTTP/1.1.
WRITTEN_VERSIONS: Final = frozenset({b"HTTP/1.0", b"HTTP/1.1"})

# fastwarc gives up the whole file at a longer head (its max_header_len, as it comes).
MAX_HEAD_BYTES: Final = 32 * 1024


class Head(NamedTuple):
    """Status line and headers up to and with the blank line."""

    content: bytes
    cut: bool  # headers were left out: together they are too long


def response_head(capture: Capture) -> Head:
    """What a reader is to take for the head of *capture*."""
    if PLAIN.fullmatch(capture.head):
        content = capture.head.removesuffix(END)
    else:
        lines = _received(capture.head) or _composed(capture)
        lines[0] = _known_version(lines[0])
        content = b"\r\n".join(lines)
    if capture.truncated or CHUNKED.search(content):
        content = LYING.sub(RENAMED, content)
    if len(content) + len(END) <= MAX_HEAD_BYTES:
        return Head(content + END, cut=False)
    return Head(_fitting(content) + END, cut=True)


def as_received(head: bytes) -> bytes:
    """Of a head that `response_head` made: with the names that were renamed."""
    return _GIVEN_BACK.sub(b"", head)


def _received(head: bytes) -> list[bytes]:
    """Its lines. A lone LF ends one too (RFC 9112 2.2); fastwarc wants CRLF of an archive."""
    lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    return [line for line in lines if b":" in line or not _looks_blank(line)]


def _looks_blank(line: bytes) -> bool:
    """As warcio sees it, which ends the head at any line that is white in Unicode too."""
    try:
        return not line.decode().strip()
    except UnicodeDecodeError:
        return not line.decode("latin-1").strip()


def _composed(capture: Capture) -> list[bytes]:
    # RFC 9112 4: the space stays when there is no reason.
    lines = [b"%b %03d %b" % (capture.version, capture.status, capture.reason)]
    lines += [b"%b: %b" % header for header in capture.headers]
    # RFC 9112 5.2 and RFC 9110 5.5: a line break inside a field reads as a space.
    return [line.replace(b"\r\n", b" ").replace(b"\n", b" ") for line in lines]


def _known_version(status_line: bytes) -> bytes:
    version, space, rest = status_line.partition(b" ")
    if version.upper() in WRITTEN_VERSIONS:
        return status_line
    return b"HTTP/1.1" + space + rest


def _fitting(content: bytes) -> bytes:
    """Whole headers only, those that fit. A status line too long by itself is cut."""
    status_line, *headers = content.split(b"\r\n")
    kept = [status_line[: MAX_HEAD_BYTES // 2]]
    left = MAX_HEAD_BYTES - len(END) - len(kept[0])
    for header in headers:
        if len(header) + 2 <= left:
            kept.append(header)
            left -= len(header) + 2
    return b"\r\n".join(kept)

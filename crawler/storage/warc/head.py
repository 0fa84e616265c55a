"""The head of an HTTP response as it is written into a WARC.

Rule: pure; bytes as received, in their order, but for what would lie about the stored body or
make a reader look for it in the wrong place. A header that would lie keeps its value and its
place under the name `X-Crawler-<name>`, as in the WARCs of Common Crawl and StormCrawler:

- Transfer-Encoding: our client has joined the chunks; a reader told "chunked" would look for
  chunk sizes in the page. The WARC specification counts payloads without it in any case.
- A status line that readers cannot read is written as they can: warcio and fastwarc find a status
  after one space only, and pywb refuses any version but 1.0 and 1.1. The line as sent is in the
  metadata.
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
STATUS_LINE: Final = "status-line"
"""In the metadata: the status line as sent, where another is written; percent-encoded."""
PRINTABLE: Final = "".join(chr(byte) for byte in range(0x20, 0x7F) if chr(byte) != "%")
RENAMED: Final = b"X-Crawler-"
_GIVEN_BACK: Final = re.compile(LYING.pattern.replace(b"^", b"^" + RENAMED), LYING.flags)
END: Final = b"\r\n\r\n"

# A head that is written as it came, as most are: no line of it looks blank, or has a lone LF.
PLAIN: Final = re.compile(
    rb"HTTP/1\.[01] \d{3}(?: [^\r\n]*+)?\r\n(?:[!-9;-~]++:[^\r\n]*+\r\n)*+\r\n"
)

# Replay software knows these two only; others are by custom written as HTTP/1.1.
WRITTEN_VERSIONS: Final = frozenset({b"HTTP/1.0", b"HTTP/1.1"})
_STATUS: Final = re.compile(rb"([^ \t]+)[ \t]+(\d{3})((?:[ \t].*)?)", re.DOTALL)

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
        lines[0] = readable_status(lines[0])
        content = b"\r\n".join(lines)
    if capture.truncated or CHUNKED.search(content):
        content = LYING.sub(RENAMED, content)
    if len(content) + len(END) <= MAX_HEAD_BYTES:
        return Head(content + END, cut=False)
    return Head(_fitting(content) + END, cut=True)


def as_received(head: bytes, status_line: bytes = b"") -> bytes:
    """Of a head that `response_head` made: with the names that were renamed, and the status line
    that was sent; empty: that one."""
    received = _GIVEN_BACK.sub(b"", head)
    if not status_line:
        return received
    _, end, rest = received.partition(b"\r\n")
    return status_line + end + rest


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


def readable_status(line: bytes) -> bytes:
    """The status line *line* as readers of archives can read it; mostly as it is."""
    match = _STATUS.fullmatch(line)
    if match:
        version, space, rest = match[1], b" ", match[2] + match[3].replace(b"\t", b" ", 1)
    else:
        version, space, rest = line.partition(b" ")
    return (version if version.upper() in WRITTEN_VERSIONS else b"HTTP/1.1") + space + rest


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

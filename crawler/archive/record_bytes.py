"""Builds the bytes of WARC 1.1 records.

Rule: pure; time and random bytes are arguments. No library is used: warcio percent-encodes header
bytes that are not ASCII and takes 7 times as long, and fastwarc's files are a quarter larger. Tests
read our records with both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha1
from itertools import groupby
from math import modf
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from crawler.archive.capture import DOM, Capture, Dom, ResponseRecord
from crawler.model.page import DOM_TYPE, Link, LinkKind
from crawler.model.types import Claim

# The values of WARC fields. A line break in a value never begins a new field.
PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_BASE32: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".ljust(256)


def _halves() -> Iterator[tuple[int, int, int]]:
    """Yield how far the upper half of each group moves, and the masks of upper and lower halves."""
    for groups in (32, 16, 8, 4, 2):
        half = (1 << groups // 2 * 5) - 1
        low = sum(half << at * 8 for at in range(0, 32, groups))
        yield groups // 2 * 3, low << groups // 2 * 5, low


_HALVES: Final = tuple(_halves())


def field_line(name: str, value: str) -> str:
    written = f"{name}: {value}"
    if not written.isprintable():
        written = written.replace("\r", " ").replace("\n", " ")
    return f"{written}\r\n"


def fields_block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Return the block of an `application/warc-fields` record."""
    return "".join([field_line(name, value) for name, value in pairs]).encode(errors="replace")


@lru_cache(maxsize=256)  # index and columns need the digests of the records just written
def sha1_label(sha1: bytes) -> str:
    """Return a SHA-1 as WARC and CDXJ write it, in an eighth of the time of base64.b32encode: its
    32 groups of 5 bits are spread to a byte each, in five steps that each halve the groups."""
    spread = int.from_bytes(sha1)
    for shift, high, low in _HALVES:
        spread = (spread & high) << shift | spread & low
    return "sha1:" + spread.to_bytes(32).translate(_BASE32).decode()


_WITH_GIL: Final = 2047  # bytes for which hashlib keeps the GIL
_LONG_BYTES: Final = 256 * 1024


def sha1_of_parts(*parts: bytes) -> bytes:
    """Return the SHA-1 of *parts*. hashlib releases the GIL for a long part, and to get it back
    takes as long as the digest of a page, 15 us. So up to 256 KB are given to it in short parts."""
    digest = sha1(usedforsecurity=False)
    for part in parts:
        step = _WITH_GIL if len(part) < _LONG_BYTES else len(part)
        view = memoryview(part)
        for at in range(0, len(part), step):
            digest.update(view[at : at + step])
    return digest.digest()


def record_id(random: bytes) -> str:
    """Return a version 4 UUID, which uuid.UUID would print in five times the time."""
    digits, variant = random.hex(), "89ab"[random[8] >> 6]
    last = f"{variant}{digits[17:20]}-{digits[20:]}"
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{last}>"


def warc_date(at: float) -> str:
    """Return a WARC-Date with microseconds, as WARC 1.1 allows: a page may be fetched twice in a
    second."""
    part, whole = modf(at)
    carried, micros = divmod(round(part * 1e6), 1_000_000)  # rounds as datetime does
    return f"{_to_the_second(whole + carried)}.{micros:06}Z"


@lru_cache(maxsize=64)
def _to_the_second(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()[:-6]  # without +00:00


def uri(url: str) -> str:
    """Return *url* with only the characters that RFC 3986 allows (WARC 1.1, section 5.12)."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=PRINTABLE, errors="replace")


# The head of an HTTP response is stored as received, except for what would make a reader misread
# the stored body. A false header keeps its value and its place under the name `X-Crawler-<name>`,
# as in the WARCs of Common Crawl and StormCrawler:
#
# - Transfer-Encoding: our client has joined the chunks, and a reader that finds "chunked" would
#   look for chunk sizes in the page. The WARC specification counts payloads without it.
# - Content-Length beside a Transfer-Encoding (RFC 9112 6.3: it does not count) or of a body that
#   was cut: pywb announces that many bytes, and its client waits for them until it times out.
#
# A status line that readers cannot read is rewritten: warcio and fastwarc find a status after one
# space only, and pywb refuses any version but 1.0 and 1.1. The line as sent is in the metadata.

# A head begins with its status line. Without (?m) and ^ the search takes a fifth of the time.
CHUNKED: Final = re.compile(rb"\nTransfer-Encoding[ \t]*:", re.IGNORECASE)
MISLEADING_HEADERS: Final = re.compile(
    rb"^(?=(?:Transfer-Encoding|Content-Length)[ \t]*:)", re.IGNORECASE | re.MULTILINE
)
STATUS_LINE: Final = "status-line"
"""The metadata field with the status line as sent, percent-encoded, if it was rewritten."""
PRINTABLE_STATUS: Final = "".join(chr(byte) for byte in range(0x20, 0x7F) if chr(byte) != "%")
RENAMED: Final = b"X-Crawler-"
_GIVEN_BACK: Final = re.compile(
    MISLEADING_HEADERS.pattern.replace(b"^", b"^" + RENAMED), MISLEADING_HEADERS.flags
)
END: Final = b"\r\n\r\n"

# Most heads match this and are written unchanged: no line looks blank or has a lone LF.
PLAIN: Final = re.compile(
    rb"HTTP/1\.[01] \d{3}(?: [^\r\n]*+)?\r\n(?:[!-9;-~]++:[^\r\n]*+\r\n)*+\r\n"
)

# Replay software knows only these two; other versions are by custom written as HTTP/1.1.
WRITTEN_VERSIONS: Final = frozenset({b"HTTP/1.0", b"HTTP/1.1"})
_STATUS: Final = re.compile(rb"([^ \t]+)[ \t]+(\d{3})((?:[ \t].*)?)", re.DOTALL)

# fastwarc stops reading the whole file at a longer head (the default of its max_header_len).
MAX_HEAD_BYTES: Final = 32 * 1024


class Head(NamedTuple):
    """Status line and headers up to and with the blank line."""

    content: bytes
    cut: bool  # headers were left out because the head is too long


def response_head(capture: Capture) -> Head:
    """Return the head of *capture* as it is stored."""
    if PLAIN.fullmatch(capture.head):
        content = capture.head.removesuffix(END)
    else:
        lines = _received(capture.head) or _composed(capture)
        lines[0] = readable_status(lines[0])
        content = b"\r\n".join(lines)
    if capture.truncated or CHUNKED.search(content):
        content = MISLEADING_HEADERS.sub(RENAMED, content)
    if len(content) + len(END) <= MAX_HEAD_BYTES:
        return Head(content + END, cut=False)
    return Head(_fitting(content) + END, cut=True)


def as_received(head: bytes, status_line: bytes = b"") -> bytes:
    """Return the received form of a head that `response_head` made: with its original header names
    and, if given, the original *status_line*."""
    received = _GIVEN_BACK.sub(b"", head)
    if not status_line:
        return received
    _, end, rest = received.partition(b"\r\n")
    return status_line + end + rest


def _received(head: bytes) -> list[bytes]:
    """Return the lines of *head*. A lone LF ends a line too (RFC 9112 2.2); fastwarc requires CRLF
    in an archive."""
    lines = [line.removesuffix(b"\r") for line in head.split(b"\n")]
    return [line for line in lines if b":" in line or not _looks_blank(line)]


def _looks_blank(line: bytes) -> bool:
    """Whether warcio takes *line* for the end of the head: all of it is Unicode white space."""
    try:
        return not line.decode().strip()
    except UnicodeDecodeError:
        return not line.decode("latin-1").strip()


def _composed(capture: Capture) -> list[bytes]:
    # RFC 9112 4: the space stays when there is no reason phrase.
    lines = [b"%b %03d %b" % (capture.version, capture.status, capture.reason)]
    lines += [b"%b: %b" % header for header in capture.headers]
    # RFC 9112 5.2 and RFC 9110 5.5: a line break inside a field reads as a space.
    return [line.replace(b"\r\n", b" ").replace(b"\n", b" ") for line in lines]


def readable_status(line: bytes) -> bytes:
    """Return a status line that readers of archives understand; mostly *line* itself."""
    match = _STATUS.fullmatch(line)
    if match:
        version, space, rest = match[1], b" ", match[2] + match[3].replace(b"\t", b" ", 1)
    else:
        version, space, rest = line.partition(b" ")
    return (version if version.upper() in WRITTEN_VERSIONS else b"HTTP/1.1") + space + rest


def _fitting(content: bytes) -> bytes:
    """Return the headers that fit, each complete. A status line that is too long is cut."""
    status_line, *headers = content.split(b"\r\n")
    kept = [status_line[: MAX_HEAD_BYTES // 2]]
    left = MAX_HEAD_BYTES - len(END) - len(kept[0])
    for header in headers:
        if len(header) + 2 <= left:
            kept.append(header)
            left -= len(header) + 2
    return b"\r\n".join(kept)


# How Heritrix writes the links of a page: L is a link, E embedded, R a redirect, M listed in a
# manifest, X speculative.
_LINK_TYPES: Final = MappingProxyType(
    {
        LinkKind.A: "L a/@href",
        LinkKind.AREA: "L area/@href",
        LinkKind.FRAME: "E frame/@src",
        LinkKind.IFRAME: "E iframe/@src",
        LinkKind.CANONICAL: "L link/@href",
        LinkKind.ALTERNATE: "L link/@href",
        LinkKind.REFRESH: "R meta/@content",
        LinkKind.STYLE: "E link/@href",
        LinkKind.SCRIPT: "E script/@src",
        LinkKind.IMAGE: "E img/@src",
        LinkKind.FONT: "E =EMBED_MISC",
        LinkKind.MEDIA: "E =EMBED_MISC",
        LinkKind.MANIFEST: "E link/@href",
        LinkKind.LISTED: "M =MANIFEST_MISC",
        LinkKind.SITEMAP: "M =MANIFEST_MISC",
        LinkKind.ENTRY: "L =NAVLINK_MISC",
        LinkKind.TEXT: "X =SPECULATIVE_MISC",
    }
)


_LINE: Final = re.compile(r"[^\n]*\n")  # str.splitlines knows eight other ends of lines


def outlink_lines(links: Sequence[Link]) -> str:
    """Return the metadata lines of *links*, each once, in their order. Their URLs are absolute."""
    urls = [link.url for link in links]
    together = "".join(urls)
    if "\n" in together or "\r" in together:
        # A user's pipeline may add any URL: a line break in one must not begin a new line.
        return outlink_lines([replace(link, url=uri(link.url)) for link in links])
    written = []
    # Most links have the kind of the one before.
    for kind, alike in groupby(links, attrgetter("kind")):
        end = f" {_LINK_TYPES[kind]}\r\n"
        written += ["outlink: ", f"{end}outlink: ".join([link.url for link in alike]), end]
    lines = "".join(written)
    # Most pages name no URL twice.
    if len(set(urls)) == len(urls):
        return lines
    return "".join(dict.fromkeys(_LINE.findall(lines)))


RANDOM_BYTES: Final = 64  # for the ids of one capture's records, four at most
_PROFILES: Final = "http://netpreserve.org/warc/1.1/revisit/"
SAME_BODY: Final = f"{_PROFILES}identical-payload-digest"
NOT_MODIFIED: Final = f"{_PROFILES}server-not-modified"
NOT_MODIFIED_HEAD: Final = "not-modified-head"
"""The metadata field of the head of a 304 as sent, percent-encoded."""
FORMAT: Final = (
    ("format", "WARC File Format 1.1"),
    (
        "conformsTo",
        "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
    ),
)
RESPONSE_TYPE: Final = "application/http; msgtype=response"
REQUEST_TYPE: Final = "application/http; msgtype=request"
FIELDS_TYPE: Final = "application/warc-fields"
INFO_TYPE: Final = "application/json"
SHA1_BYTES: Final = 20


def warcinfo(name: str, at: float, info: Sequence[tuple[str, str]], random: bytes) -> bytes:
    """Return the first record of the file called *name*. *random* is 16 bytes."""
    about = [*info, *(pair for pair in FORMAT if pair not in info)]
    event = f"WARC-Date: {warc_date(at)}\r\n{field_line('WARC-Filename', name)}"
    return new_record("warcinfo", record_id(random), event, FIELDS_TYPE, fields_block(about))


def capture_records(capture: Capture, random: bytes) -> tuple[list[bytes], ResponseRecord]:
    """Return a response, revisit or resource record, then, where known, its request, its metadata
    and its DOM; and what the index needs of the first.

    The answer comes first because it is the part that must survive a crash.
    """
    name = record_id(random[:16])
    event = f"WARC-Date: {warc_date(capture.fetched_at)}\r\nWARC-Target-URI: {uri(capture.url)}\r\n"
    if capture.is_info:
        return _info(capture, event, name)
    if capture.ip:
        event += field_line("WARC-IP-Address", capture.ip)
    beside = f"{event}WARC-Concurrent-To: {name}\r\n"
    record, answer = _answer(capture, event, name)
    records = [record]
    if capture.request:
        other = record_id(random[16:32])
        records.append(new_record("request", other, beside, REQUEST_TYPE, capture.request))
    if capture.metadata or capture.outlinks:
        known = fields_block(capture.metadata) + outlink_lines(capture.outlinks).encode()
        other = record_id(random[32:48])
        records.append(new_record("metadata", other, beside, FIELDS_TYPE, known))
    if capture.dom is not None:
        records.append(_dom(capture, capture.dom, name, record_id(random[48:64])))
    return records, answer


def _dom(capture: Capture, dom: Dom, answer: str, name: str) -> bytes:
    """Return the record of what a browser has made of the answer in the record *answer*. It has no
    WARC-IP-Address and no WARC-Concurrent-To, which WARC 1.1 forbids for conversions."""
    date = warc_date(capture.fetched_at)
    event = (
        f"WARC-Date: {date}\r\nWARC-Target-URI: {uri(DOM + capture.url)}\r\n"
        f"WARC-Refers-To: {answer}\r\nWARC-Refers-To-Target-URI: {uri(capture.url)}\r\n"
        f"WARC-Refers-To-Date: {date}\r\nWARC-Payload-Digest: {sha1_label(dom.sha1)}\r\n"
    )
    return new_record("conversion", name, event, DOM_TYPE, dom.body)


def dom_answer(dom: Dom) -> ResponseRecord:
    """Return what the index needs of the record of *dom*."""
    return ResponseRecord("conversion", resource_head(DOM_TYPE.encode()), dom.sha1)


def _info(capture: Capture, event: str, name: str) -> tuple[list[bytes], ResponseRecord]:
    digest = sha1(capture.body, usedforsecurity=False).digest()
    event += f"WARC-Payload-Digest: {sha1_label(digest)}\r\n"
    record = new_record("resource", name, event, INFO_TYPE, capture.body)
    return [record], ResponseRecord("resource", resource_head(INFO_TYPE.encode()), digest)


def resource_head(content_type: bytes) -> bytes:
    """Return an HTTP head for a resource or a DOM, which are archived without one."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type + END


def _answer(capture: Capture, event: str, name: str) -> tuple[bytes, ResponseRecord]:
    head = response_head(capture)
    event += _protocols(capture, head.content)
    digest, refers = _revisit(capture)
    if refers:
        event += f"WARC-Payload-Digest: {sha1_label(digest)}\r\n{refers}" if digest else refers
        # The head of a 304 is in the metadata: with it here pywb replays that, and not the page.
        block = head.content if capture.not_modified_of is None else b""
        record = new_record("revisit", name, event, RESPONSE_TYPE, block)
        return record, ResponseRecord("revisit", block, digest)
    event += f"WARC-Payload-Digest: {sha1_label(digest)}\r\n{_cut(capture, head)}"
    record = new_record("response", name, event, RESPONSE_TYPE, head.content, capture.body)
    return record, ResponseRecord("response", head.content, digest)


def _protocols(capture: Capture, head: bytes) -> str:
    """Return the WARC-Protocol fields that the IIPC proposes for WARC 1.2. The version of HTTP is
    the one in the stored head."""
    written = f"WARC-Protocol: {head[:8].decode('latin-1').lower()}\r\n"
    if capture.tls:
        name, _, version = capture.tls.lower().partition("v")
        # Python writes version 1.0 as TLSv1.
        written += field_line("WARC-Protocol", f"{name}/{version if '.' in version else '1.0'}")
    return written


def _revisit(capture: Capture) -> tuple[bytes, str]:
    """Return the payload's digest and the fields of a revisit, which are empty for a response."""
    unchanged = capture.not_modified_of
    if unchanged is not None:
        # A 304 has no payload of its own. By the digest, if it is known, replay finds the page
        # wherever it is; without it by URL and time.
        return _wire_sha1(unchanged), _refers_to(unchanged, NOT_MODIFIED)
    digest = capture.body_sha1 or sha1(capture.body, usedforsecurity=False).digest()
    claim = capture.duplicate_of
    if claim is not None and _holds(claim, digest):
        # WARC 1.1, 6.7.2: the reason for leaving out a known body is always "length".
        return digest, _refers_to(claim, SAME_BODY) + "WARC-Truncated: length\r\n"
    return digest, ""


def _holds(claim: Claim, digest: bytes) -> bool:
    """Whether the record of *claim* holds these bytes. A revisit would lose the page if the claim
    had no record, or a SHA-1 of other bytes (for example the decoded ones)."""
    wire = _wire_sha1(claim)
    return bool(claim.record) and (not wire or wire == digest)


def _wire_sha1(claim: Claim) -> bytes:
    """Return the SHA-1 of the body as received; empty if the digest is of another kind."""
    wire = claim.wire_sha1 or claim.digest
    return wire if len(wire) == SHA1_BYTES else b""


def _refers_to(claim: Claim, profile: str) -> str:
    return (
        f"WARC-Profile: {profile}\r\n"
        f"WARC-Refers-To-Target-URI: {uri(claim.url)}\r\n"
        # Whole seconds, as the history of a page has them, are written as such.
        f"WARC-Refers-To-Date: {warc_date(claim.at).replace('.000000', '')}\r\n"
    )


def _cut(capture: Capture, head: Head) -> str:
    truncated = capture.truncated or ("length" if head.cut else "")
    return f"WARC-Truncated: {truncated}\r\n" if truncated else ""


def new_record(kind: str, name: str, event: str, content_type: str, *block: bytes) -> bytes:
    """Return a record; *event* has its other fields, each a line with its end."""
    digest = sha1_of_parts(*block)
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {name}\r\n{event}"
        f"WARC-Block-Digest: {sha1_label(digest)}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {sum(map(len, block))}\r\n\r\n"
    )
    return b"".join((head.encode(errors="replace"), *block, b"\r\n\r\n"))

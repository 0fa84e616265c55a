"""WARC 1.1 records: the bytes of each kind, from frozen values.

Rule: pure; time and random bytes come in as arguments. Written by hand, because of the libraries
warcio percent-encodes header bytes that are not ASCII and takes 7 times as long, and fastwarc's
files are a quarter larger. Both read what we write, in tests.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import sha1
from typing import Final
from urllib.parse import quote

from crawler.core.types import Claim
from crawler.storage.warc.capture import Capture
from crawler.storage.warc.head import response_head

RANDOM_BYTES: Final = 48  # for the ids of one capture's records, three at most
PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
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
PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
SHA1_BYTES: Final = 20


def warcinfo(name: str, at: float, info: Sequence[tuple[str, str]], random: bytes) -> bytes:
    """The record at the head of the file called *name*. *random*: 16 bytes."""
    about = [*info, *(pair for pair in FORMAT if pair not in info)]
    event = f"WARC-Date: {_date(at)}\r\n{_line('WARC-Filename', name)}"
    return _record("warcinfo", random, event, FIELDS_TYPE, _fields(about))


def capture_records(capture: Capture, random: bytes) -> list[bytes]:
    """A response or revisit record, then, where known, its request and its metadata.

    The answer comes first: should only a part survive a crash, it is the part that counts.
    """
    event = f"WARC-Date: {_date(capture.fetched_at)}\r\nWARC-Target-URI: {_uri(capture.url)}\r\n"
    if capture.ip:
        event += _line("WARC-IP-Address", capture.ip)
    beside = f"{event}WARC-Concurrent-To: {_record_id(random[:16])}\r\n"
    records = [_answer(capture, event, random[:16])]
    if capture.request:
        records.append(_record("request", random[16:32], beside, REQUEST_TYPE, capture.request))
    if capture.metadata:
        known = _fields(capture.metadata)
        records.append(_record("metadata", random[32:48], beside, FIELDS_TYPE, known))
    return records


def _answer(capture: Capture, event: str, random: bytes) -> bytes:
    digest = capture.body_sha1 or sha1(capture.body, usedforsecurity=False).digest()
    event += f"WARC-Payload-Digest: {_labelled(digest)}\r\n"
    head = response_head(capture)
    claim = capture.duplicate_of
    if claim is not None and _holds(claim, digest):
        return _record("revisit", random, event + _revisit_of(claim), RESPONSE_TYPE, head.content)
    truncated = capture.truncated or ("length" if head.cut else "")
    if truncated:
        event += f"WARC-Truncated: {truncated}\r\n"
    return _record("response", random, event, RESPONSE_TYPE, head.content, capture.body)


def _holds(claim: Claim, digest: bytes) -> bool:
    """Whether the archive has these bytes there. A revisit of anything else would be a page
    lost: of a claim without a record, or of a SHA-1 of other bytes (say, the decoded ones)."""
    wire = claim.wire_sha1 or claim.digest
    other_hash = len(wire) != SHA1_BYTES
    return bool(claim.record) and (other_hash or wire == digest)


def _revisit_of(claim: Claim) -> str:
    # Section 6.7.2: the reason for a body left out as known is always "length".
    return (
        f"WARC-Profile: {PROFILE}\r\n"
        f"WARC-Refers-To-Target-URI: {_uri(claim.url)}\r\n"
        f"WARC-Refers-To-Date: {_date(claim.at)}\r\n"
        "WARC-Truncated: length\r\n"
    )


def _record(kind: str, random: bytes, event: str, content_type: str, *block: bytes) -> bytes:
    digest = sha1(usedforsecurity=False)
    for part in block:
        digest.update(part)
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {_record_id(random)}\r\n{event}"
        f"WARC-Block-Digest: {_labelled(digest.digest())}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {sum(map(len, block))}\r\n\r\n"
    )
    return b"".join((head.encode(errors="replace"), *block, b"\r\n\r\n"))


def _fields(pairs: Iterable[tuple[str, str]]) -> bytes:
    return "".join(_line(name, value) for name, value in pairs).encode(errors="replace")


def _line(name: str, value: str) -> str:
    """A value from outside must not begin a line of its own."""
    line = f"{name}: {value}".replace("\r", " ").replace("\n", " ")
    return f"{line}\r\n"


def _labelled(digest: bytes) -> str:
    return f"sha1:{b32encode(digest).decode()}"


def _record_id(random: bytes) -> str:
    """A version 4 UUID, as uuid.UUID would print it in five times the time."""
    digits, variant = random.hex(), "89ab"[random[8] >> 6]
    last = f"{variant}{digits[17:20]}-{digits[20:]}"
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{last}>"


def _date(at: float) -> str:
    """To the microsecond, which WARC 1.1 allows: a page may be fetched twice in a second."""
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    return f"{stamp[:-6]}Z"  # in place of +00:00


def _uri(url: str) -> str:
    """Section 5.12: no white space, nothing but what RFC 3986 allows on a line."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=PRINTABLE, errors="replace")

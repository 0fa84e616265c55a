"""WARC 1.1 records: the bytes of each kind, from frozen values.

Rule: pure; time and random bytes come in as arguments. Written by hand, because of the libraries
warcio percent-encodes header bytes that are not ASCII and takes 7 times as long, and fastwarc's
files are a quarter larger. Both read what we write, in tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from typing import Final

from crawler.core.types import Claim
from crawler.storage.warc import fields
from crawler.storage.warc.capture import Answer, Capture
from crawler.storage.warc.head import Head, response_head
from crawler.storage.warc.outlinks import outlink_lines

RANDOM_BYTES: Final = 48  # for the ids of one capture's records, three at most
_PROFILES: Final = "http://netpreserve.org/warc/1.1/revisit/"
SAME_BODY: Final = f"{_PROFILES}identical-payload-digest"
NOT_MODIFIED: Final = f"{_PROFILES}server-not-modified"
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
SHA1_BYTES: Final = 20


def warcinfo(name: str, at: float, info: Sequence[tuple[str, str]], random: bytes) -> bytes:
    """The record at the head of the file called *name*. *random*: 16 bytes."""
    about = [*info, *(pair for pair in FORMAT if pair not in info)]
    event = f"WARC-Date: {fields.date(at)}\r\n{fields.line('WARC-Filename', name)}"
    return _record("warcinfo", fields.record_id(random), event, FIELDS_TYPE, fields.block(about))


def capture_records(capture: Capture, random: bytes) -> tuple[list[bytes], Answer]:
    """A response or revisit record, then, where known, its request and its metadata; and the
    first of these as an answer.

    The answer comes first: should only a part survive a crash, it is the part that counts.
    """
    name = fields.record_id(random[:16])
    event = (
        f"WARC-Date: {fields.date(capture.fetched_at)}\r\n"
        f"WARC-Target-URI: {fields.uri(capture.url)}\r\n"
    )
    if capture.ip:
        event += fields.line("WARC-IP-Address", capture.ip)
    beside = f"{event}WARC-Concurrent-To: {name}\r\n"
    record, answer = _answer(capture, event, name)
    records = [record]
    if capture.request:
        other = fields.record_id(random[16:32])
        records.append(_record("request", other, beside, REQUEST_TYPE, capture.request))
    if capture.metadata or capture.outlinks:
        known = fields.block(capture.metadata) + outlink_lines(capture.outlinks).encode()
        other = fields.record_id(random[32:48])
        records.append(_record("metadata", other, beside, FIELDS_TYPE, known))
    return records, answer


def _answer(capture: Capture, event: str, name: str) -> tuple[bytes, Answer]:
    head = response_head(capture)
    event += _protocols(capture, head.content)
    digest, refers = _revisit(capture)
    if refers:
        event += f"WARC-Payload-Digest: {fields.labelled(digest)}\r\n{refers}" if digest else refers
        record = _record("revisit", name, event, RESPONSE_TYPE, head.content)
        return record, Answer("revisit", head.content, digest)
    event += f"WARC-Payload-Digest: {fields.labelled(digest)}\r\n{_cut(capture, head)}"
    record = _record("response", name, event, RESPONSE_TYPE, head.content, capture.body)
    return record, Answer("response", head.content, digest)


def _protocols(capture: Capture, head: bytes) -> str:
    """As the IIPC proposes it for WARC 1.2. HTTP is named as written: the wire's version, or
    what stands for it in the head."""
    written = f"WARC-Protocol: {head[:8].decode('latin-1').lower()}\r\n"
    if capture.tls:
        name, _, version = capture.tls.lower().partition("v")
        # Python writes the first of all as TLSv1.
        written += fields.line("WARC-Protocol", f"{name}/{version if '.' in version else '1.0'}")
    if capture.cipher_suite:
        written += fields.line("WARC-Cipher-Suite", capture.cipher_suite)
    return written


def _revisit(capture: Capture) -> tuple[bytes, str]:
    """The digest of the payload, and the fields of a revisit; empty: it is a response."""
    unchanged = capture.not_modified_of
    if unchanged is not None and unchanged.record:
        # What the payload would have been, by which replay finds it; of 304 itself there is none.
        return _wire_sha1(unchanged), _refers_to(unchanged, NOT_MODIFIED)
    digest = capture.body_sha1 or sha1(capture.body, usedforsecurity=False).digest()
    claim = capture.duplicate_of
    if claim is not None and _holds(claim, digest):
        # Section 6.7.2: the reason for a body left out as known is always "length".
        return digest, _refers_to(claim, SAME_BODY) + "WARC-Truncated: length\r\n"
    return digest, ""


def _holds(claim: Claim, digest: bytes) -> bool:
    """Whether the archive has these bytes there. A revisit of anything else would be a page
    lost: of a claim without a record, or of a SHA-1 of other bytes (say, the decoded ones)."""
    wire = _wire_sha1(claim)
    return bool(claim.record) and (not wire or wire == digest)


def _wire_sha1(claim: Claim) -> bytes:
    """Empty: its digest is of another kind."""
    wire = claim.wire_sha1 or claim.digest
    return wire if len(wire) == SHA1_BYTES else b""


def _refers_to(claim: Claim, profile: str) -> str:
    return (
        f"WARC-Profile: {profile}\r\n"
        f"WARC-Refers-To-Target-URI: {fields.uri(claim.url)}\r\n"
        f"WARC-Refers-To-Date: {fields.date(claim.at)}\r\n"
    )


def _cut(capture: Capture, head: Head) -> str:
    truncated = capture.truncated or ("length" if head.cut else "")
    return f"WARC-Truncated: {truncated}\r\n" if truncated else ""


def _record(kind: str, name: str, event: str, content_type: str, *block: bytes) -> bytes:
    digest = sha1(block[0], usedforsecurity=False)
    for part in block[1:]:
        digest.update(part)
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {name}\r\n{event}"
        f"WARC-Block-Digest: {fields.labelled(digest.digest())}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {sum(map(len, block))}\r\n\r\n"
    )
    return b"".join((head.encode(errors="replace"), *block, b"\r\n\r\n"))

"""The packed records of a shared crawl: URLs, claims, fingerprints, robots.txt, totals.

Rule: what is read from Redis is untrusted: it is decoded by a fixed schema, or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from crawler.duplicates.quarters import QUARTERS, near_places, quarters
from crawler.frontier.budgets import Votes
from crawler.frontier.records import decode_candidate
from crawler.loop.life import FetchStage, OpenFetch
from crawler.model.counts import Figures
from crawler.model.types import (
    Candidate,
    Claim,
    Done,
    HostKey,
    Moved,
    Purpose,
    Verdict,
)


class _LinkRecord(
    msgspec.Struct, array_like=True, gc=False, frozen=True, forbid_unknown_fields=True
):
    """A waiting URL that is an ordinary link: 18 bytes beside its path. Host, level and date are
    left out, because its queue has them. Any other URL is a Candidate, with a tail for its URL and
    without its host."""

    tail: str  # "/path": https of its host; "!/path": http of its host; else the whole URL
    key: int
    domain: int | str  # the length of the domain at the end of its host; else the whole name
    depth: int
    cash: int


LOST_PREFIX: Final = b"\xc1"
"""Stands before a packed URL that may be archived already, as its lease was lost. No msgpack value
begins with it."""
_PAGE: Final = Purpose.PAGE
_NO_HOST: Final = HostKey("")
_FULL: Final = b"\xdc"  # begins an array of more than 15 fields, which only a Candidate is
_encode = msgspec.msgpack.Encoder().encode
_decode_link = msgspec.msgpack.Decoder(_LinkRecord).decode


class Packer:
    """Packs URLs of one host. Most links of a page have the same, and a page has 40 links."""

    __slots__ = ("_domain", "_http", "_https", "_skip_http", "_skip_https")

    def __init__(self, host: str, domain: str) -> None:
        self._https, self._http = f"https://{host}/", f"http://{host}/"
        self._skip_https, self._skip_http = len(self._https) - 1, len(self._http) - 1
        self._domain = len(domain) if host.endswith(domain) else domain

    def pack(self, candidate: Candidate) -> bytes:
        """Pack *candidate*, which has this packer's host and domain, and was not lost."""
        url = candidate.url
        if url.startswith(self._https):
            tail = url[self._skip_https :]
        elif url.startswith(self._http):
            tail = "!" + url[self._skip_http :]
        else:
            tail = url
        has_more = (
            candidate.attempts
            or candidate.chain
            or candidate.request
            or candidate.modified
            or candidate.is_sitemap
            or candidate.requisite
            or candidate.seed
            or candidate.history
            or candidate.beyond
            or candidate.chosen
        )
        if candidate.needs_seen_test and not has_more and candidate.purpose is _PAGE:
            # A tuple takes a third less time than a _LinkRecord.
            return _encode((tail, candidate.key, self._domain, candidate.depth, candidate.cash))
        return _encode(
            replace(candidate, url=tail, host=_NO_HOST, not_before=0, may_be_archived=False)
        )


def pack_candidate(candidate: Candidate) -> bytes:
    packed = Packer(candidate.host, candidate.domain).pack(candidate)
    return LOST_PREFIX + packed if candidate.may_be_archived else packed


def unpack_candidate(packed: bytes, host: str, level: int) -> Candidate:
    """Unpack what `pack_candidate` made. Raises msgspec.MsgspecError if *packed* has another
    schema."""
    lost = packed.startswith(LOST_PREFIX)
    packed = packed[len(LOST_PREFIX) :] if lost else packed
    if packed[:1] == _FULL:
        full = decode_candidate(packed)
        url = _url_of(full.url, host)
        return replace(full, url=url, host=HostKey(host), level=level, may_be_archived=lost)
    link = _decode_link(packed)
    domain = link.domain if isinstance(link.domain, str) else host[len(host) - link.domain :]
    return Candidate(
        url=_url_of(link.tail, host),
        key=link.key,
        host=HostKey(host),
        domain=domain,
        depth=link.depth,
        level=level,
        may_be_archived=lost,
        cash=link.cash,
    )


def pack_vote(voter: bytes, domain: str) -> Candidate:
    """Return the vote of a *voter* as a link to the *domain* that it is for, so that it comes to
    the worker of that."""
    key = int.from_bytes(voter)
    return Candidate("", key, HostKey(domain), domain, purpose=Purpose.VOTE)


def unpack_vote(link: Candidate) -> Votes:
    """Return the vote that `pack_vote` made *link* of."""
    return Votes((link.key & 0xFFFFFFFF).to_bytes(4), (link.domain,))


def _url_of(tail: str, host: str) -> str:
    if tail.startswith("/"):
        return f"https://{host}{tail}"
    return f"http://{host}{tail[1:]}" if tail.startswith("!") else tail


# A packed claim begins with an array and the digest, which the scripts search for. Its archive file
# is named by number. Its fingerprint is not in it, but in the tables of fingerprints below.

CLAIMS_PER_BUCKET: Final = 20
"""Claims a bucket in the mean, as in lua/claims.lua."""
_FILE_BYTES: Final = 3
_MOST_DIGITS: Final = 18
_OK: Final = 200


class _Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    digest: bytes
    url: str
    at: float
    place: int | str  # the offset in its file, else the whole name of the record
    wire_sha1: bytes | None  # None if it equals the digest
    status: int = _OK  # left out if it is 200


_decode_claim = msgspec.msgpack.Decoder(_Packed).decode


def pack_claim(claim: Claim) -> tuple[str, bytes]:
    """Return the archive file of *claim*, and its other fields packed."""
    file, place = _split(claim.record)
    wire_sha1 = None if claim.wire_sha1 == claim.digest else claim.wire_sha1
    fields = (claim.digest, claim.url, claim.at, place, wire_sha1)
    return file, _encode(fields if claim.status == _OK else (*fields, claim.status))


def read_claim(packed: bytes, file: bytes) -> Claim:
    """Unpack a claim of *file*. Raises ValueError or msgspec.MsgspecError if *packed* is none."""
    record = _decode_claim(packed)
    place = record.place if isinstance(record.place, str) else f"{file.decode()}:{record.place}"
    wire_sha1 = record.digest if record.wire_sha1 is None else record.wire_sha1
    return Claim(record.digest, record.url, place, record.at, wire_sha1, record.status)


def buckets_of(claims: int) -> int:
    """Return the number of buckets of a shard with so many *claims*."""
    return claims // CLAIMS_PER_BUCKET + 1


def read_filed(filed: bytes, files: Mapping[bytes, bytes]) -> Claim:
    """Read a claim as its bucket holds it; *files* are those of its shard, by number. Raises as
    `read_claim` does."""
    number = int.from_bytes(filed[:_FILE_BYTES], "little")
    return read_claim(filed[_FILE_BYTES:], files.get(b"<%d" % number, b""))


def _split(record: str) -> tuple[str, int | str]:
    file, colon, offset = record.rpartition(":")
    is_number = offset.isdecimal() and len(offset) <= _MOST_DIGITS
    if colon and is_number and str(int(offset)) == offset:
        return file, int(offset)
    return "", record


def claim_of(verdict: Verdict) -> Claim | None:
    """Return the claim of the page of *verdict*, or None if it claims no content."""
    return verdict.claim if isinstance(verdict, Done | Moved) else None


# Each fingerprint is in four tables, in the bucket of one of its quarters each
# (duplicates/quarters.py). A row of the first table also holds both ends of the digest, to find the
# claim.

_PRINT_BYTES: Final = 8
_HEAD, _TAIL = 8, 4  # of a digest: its head says which shard has its claim, its tail the bucket
_OWNED_BYTES: Final = _PRINT_BYTES + _HEAD + _TAIL
ROW_ARGS: Final = 3  # table, quarter, row


class BucketCell(NamedTuple):
    """The place of a bucket."""

    shard: int
    table: int
    quarter: int


class FingerprintRow(NamedTuple):
    """One fingerprint of a bucket, near to the one that is searched."""

    bits: int  # the number of bits that differ
    simhash: int
    mark: bytes = b""  # both ends of its page's digest; empty unless the row is of the first table


def bucket_mark(digest: bytes) -> bytes:
    return digest[:_HEAD] + digest[-_TAIL:]


def can_mark(digest: bytes) -> bool:
    """Return whether *digest* is so long that its two ends do not overlap."""
    return len(digest) >= _HEAD + _TAIL


def bucket_cell(simhash: int, table: int, shards: int) -> BucketCell:
    quarter = quarters(simhash)[table]
    return BucketCell((quarter + table) % shards, table, quarter)


def rows_of(
    simhash: int, digest: bytes, shards: int
) -> Iterator[tuple[int, tuple[int, int, bytes]]]:
    """Yield for each table the shard, and the arguments of lua/near.lua there."""
    packed = simhash.to_bytes(_PRINT_BYTES, "little")
    for table in range(QUARTERS):
        shard, _, quarter = bucket_cell(simhash, table, shards)
        yield shard, (table, quarter, packed if table else packed + bucket_mark(digest))


def near_in(bucket: bytes, table: int, simhash: int, most_bits: int) -> Iterator[FingerprintRow]:
    """Yield the rows of *bucket* that differ from *simhash* in at most *most_bits*. The bucket is
    untrusted: an incomplete last row is ignored."""
    width = _PRINT_BYTES if table else _OWNED_BYTES
    count = len(bucket) // width
    prints: NDArray[np.uint64] = np.ndarray(count, "<u8", bucket, strides=(width,))
    for at, bits in near_places(prints, simhash, most_bits):
        mark = bucket[at * width + _PRINT_BYTES : (at + 1) * width]
        yield FingerprintRow(bits, int(prints[at]), mark)


# Links are split into parts, one a call. A part is bounded by number and by bytes: a spider's own
# requests are stored in their links, and Redis closes a connection that sends 1 GB at once.

MAX_BATCH_BYTES: Final = 1 << 20
"""Bytes of requests in one call: a server copies them in less than 1 ms."""


def split_links(found: Sequence[Candidate], most: int) -> Iterator[Sequence[Candidate]]:
    """Split the links of one shard into parts of at most *most* links, bounded as by
    `split_by_bytes`."""
    for piece in split_by_bytes(found):
        for begin in range(0, len(piece), most):
            yield piece[begin : begin + most]


def split_by_bytes(found: Iterable[Candidate]) -> Iterator[Sequence[Candidate]]:
    """Split *found* into parts with at most MAX_BATCH_BYTES of requests, or a single longer one."""
    links = found if isinstance(found, Sequence) else list(found)
    begin = filled = 0
    for at, link in enumerate(links):
        if link.request:  # few have one; a plain link costs 70 ns here
            filled += len(link.request)
            if filled > MAX_BATCH_BYTES and at > begin:
                yield links[begin:at]
                begin, filled = at, len(link.request)
    if begin < len(links):
        yield links[begin:] if begin else links


KILLED: Final = "killed"
"""The kind of all errors of a worker that has not lived to write its summary."""
ALIVE_S: Final = 10.0
"""A worker announces itself every second; after so long it counts as dead."""


_LONG_S: Final = 1.0
_MOST_FETCHES: Final = 1000  # 50 kB a second, if so many hosts hang


def long_fetches(fetches: Iterable[OpenFetch], now: float) -> list[OpenFetch]:
    """Return those of *fetches* that a worker announces: what has been under way for a second, the
    longest first. Of most fetches that is nothing, as they are over before the next
    announcement."""
    late = [
        each
        for each in fetches
        if each.stage is FetchStage.FETCHING and now - each.begun_at >= _LONG_S
    ]
    return nsmallest(_MOST_FETCHES, late, key=lambda each: each.begun_at)


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker announces once a second, in the hash of workers."""

    name: str
    session: str
    host: str  # the machine
    pid: int
    at: float = 0.0  # epoch seconds by the server
    started: float = 0.0  # to read pages: epoch seconds by the worker
    state: str = "starting"  # starting | working | stopping
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    leases: int = 0
    outbox: int = 0  # links on its disk
    opened_mark: int = 0  # the mark up to which it has read the hosts that pushed seeds opened
    shards: int = 0  # that it owns
    # The key and the site by which it signs requests; "": it signs none, None: it sends none.
    signs_as: str | None = ""
    fetches: list[OpenFetch] = []  # as `long_fetches` says

    @property
    def figures(self) -> Figures:
        """What it has counted, as far as it announces that."""
        errors = {f"error/{KILLED}": self.errors} if self.errors else {}
        return Figures({"pages": self.pages, "bytes": self.bytes, **errors})

    def is_alive(self, now: float) -> bool:
        """Return whether it announced itself not long ago. *now*: by the server's clock."""
        return now - self.at < ALIVE_S

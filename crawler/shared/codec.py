"""A waiting URL in as few bytes as it can be: what its queue says already is left out.

Rule: host, level and date are the queue's. What is read back came from outside: it is decoded
as what it must be, or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
from isal import isal_zlib
from isal.igzip_lib import IsalError
from msgspec.structs import replace
from numpy.typing import NDArray

from crawler.frontier.records import DeadLetter
from crawler.model.types import (
    Candidate,
    Claim,
    Counts,
    Dead,
    Done,
    HostKey,
    Moved,
    Purpose,
    RetryAt,
    Verdict,
)
from crawler.model.url import split
from crawler.policy.robots_cache import RobotsRecord, RobotsState


class _ShortRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An ordinary link: 15 bytes beside its path."""

    tail: str  # "/path": https of its host; "!/path": http of its host; else the whole URL
    key: int
    domain: int | str  # how many last characters of its host; else the whole name
    depth: int


class _FullRecord(_ShortRecord, array_like=True, gc=False, frozen=True):
    attempts: int = 0
    chain: tuple[int, ...] = ()
    purpose: Purpose = Purpose.PAGE
    authority: str = ""
    request: bytes = b""
    filtered: bool = True
    modified: float = 0.0
    named: bool = False


LOST: Final = b"\xc1"
"""What the scripts put before a URL that comes back from a lease that was lost. No msgpack begins
so."""
_PAGE: Final = Purpose.PAGE
_encode = msgspec.msgpack.Encoder().encode
_decode_packed = msgspec.msgpack.Decoder(_FullRecord).decode


class Packer:
    """For URLs of one host: most of a page's links are, and 40 links a page count."""

    __slots__ = ("_domain", "_http", "_https", "_skip_http", "_skip_https")

    def __init__(self, host: str, domain: str) -> None:
        self._https, self._http = f"https://{host}/", f"http://{host}/"
        self._skip_https, self._skip_http = len(self._https) - 1, len(self._http) - 1
        self._domain = len(domain) if host.endswith(domain) else domain

    def pack(self, it: Candidate) -> bytes:
        """*it* is of this packer's host and domain, and new."""
        url = it.url
        if url.startswith(self._https):
            tail = url[self._skip_https :]
        elif url.startswith(self._http):
            tail = "!" + url[self._skip_http :]
        else:
            tail = url
        told = it.attempts or it.chain or it.request or it.modified or it.named
        if it.filtered and not told and it.purpose is _PAGE:
            return _encode((tail, it.key, self._domain, it.depth))  # a third cheaper than _Short
        return _encode(
            _FullRecord(
                *(tail, it.key, self._domain, it.depth, it.attempts, it.chain),
                *(it.purpose, it.authority, it.request, it.filtered, it.modified, it.named),
            )
        )


def pack(candidate: Candidate) -> bytes:
    packed = Packer(candidate.host, candidate.domain).pack(candidate)
    return LOST + packed if candidate.lost else packed


def unpack(packed: bytes, host: str, level: int) -> Candidate:
    """Raises msgspec.MsgspecError if it is none of ours."""
    lost = packed.startswith(LOST)
    it = _decode_packed(packed[len(LOST) :] if lost else packed)
    tail = it.tail
    if tail.startswith("/"):
        url = f"https://{host}{tail}"
    elif tail.startswith("!"):
        url = f"http://{host}{tail[1:]}"
    else:
        url = tail
    domain = it.domain if isinstance(it.domain, str) else host[len(host) - it.domain :]
    return Candidate(
        url=url,
        key=it.key,
        host=HostKey(host),
        domain=domain,
        depth=it.depth,
        level=level,
        attempts=it.attempts,
        chain=it.chain,
        purpose=it.purpose,
        authority=it.authority,
        request=it.request,
        filtered=it.filtered,
        modified=it.modified,
        lost=lost,
        named=it.named,
    )


# A claim in as few bytes as it can be: its file is named by number, what is said twice once.
#
# Rule: the bytes begin with an array and the digest, which the scripts look for. What is read back
# came from outside: it is decoded as what it must be, or refused. The fingerprint of its text
# stands
# where near ones are looked for, not here.

A_BUCKET: Final = 20
"""As in lua/shard.lua: so many claims for each bucket there is."""
_FILE_BYTES: Final = 3
_MOST_DIGITS: Final = 18
_OK: Final = 200


class _Packed(msgspec.Struct, array_like=True, frozen=True, gc=False):
    digest: bytes
    url: str
    at: float
    place: int | str  # in its file, else the whole record
    wire_sha1: bytes | None  # None: the digest
    status: int = _OK  # left out where it is that


_decode_claim = msgspec.msgpack.Decoder(_Packed).decode


def pack_claim(claim: Claim) -> tuple[str, bytes]:
    """Its archive file, and the rest."""
    file, place = _split(claim.record)
    wire_sha1 = None if claim.wire_sha1 == claim.digest else claim.wire_sha1
    fields = (claim.digest, claim.url, claim.at, place, wire_sha1)
    return file, _encode(fields if claim.status == _OK else (*fields, claim.status))


def read_claim(packed: bytes, file: bytes) -> Claim:
    """Raises ValueError or msgspec.MsgspecError if it is none of ours."""
    it = _decode_claim(packed)
    record = it.place if isinstance(it.place, str) else f"{file.decode()}:{it.place}"
    wire_sha1 = it.digest if it.wire_sha1 is None else it.wire_sha1
    return Claim(it.digest, it.url, record, it.at, wire_sha1, it.status)


def buckets_of(claims: int) -> int:
    """How many buckets a shard with so many *claims* has."""
    return claims // A_BUCKET + 1


def read_filed(filed: bytes, files: Mapping[bytes, bytes]) -> Claim:
    """A claim as its bucket holds it, with all of its shard's *files*. Raises as `read_claim`."""
    number = int.from_bytes(filed[:_FILE_BYTES], "little")
    return read_claim(filed[_FILE_BYTES:], files.get(b"<%d" % number, b""))


def _split(record: str) -> tuple[str, int | str]:
    file, colon, offset = record.rpartition(":")
    is_number = offset.isdecimal() and len(offset) <= _MOST_DIGITS
    if colon and is_number and str(int(offset)) == offset:
        return file, int(offset)
    return "", record


# A verdict as a shard is told it: a word, a delay, and what is kept.


@dataclass(frozen=True, slots=True)
class UnreadableLease:
    """A lease of which only its number and host are understood."""

    number: int
    host: str
    body: bytes
    why: str


def letter_of(it: UnreadableLease, now: float) -> bytes:
    lost = Candidate(f"unreadable:{it.body[:200]!r}", 0, HostKey(it.host), it.host)
    return encode_letter(DeadLetter(lost, f"its record in Redis cannot be read: {it.why}", now))


def encode_letter(letter: DeadLetter) -> bytes:
    return _encode(letter)


def claim_of(verdict: Verdict) -> Claim | None:
    """What its page owns from now on."""
    return verdict.claim if isinstance(verdict, Done | Moved) else None


def fate(candidate: Candidate, verdict: Verdict, now: float) -> tuple[str, float, bytes]:
    match verdict:
        case Done(next_visit, _):
            if next_visit is None:
                return "done", 0, b""
            again = replace(candidate, attempts=0, chain=(), lost=False)
            return "again", next_visit - now, pack(again)
        case RetryAt(when):
            again = replace(candidate, attempts=candidate.attempts + 1)
            return "retry", when - now, pack(again)
        case Moved():
            return "done", 0, b""
        case Dead(reason):
            return "dead", 0, encode_letter(DeadLetter(candidate, reason, now))
        case _:
            return "back", 0, pack(candidate) if candidate.lost else b""


# Fingerprints of 64 bits as Redis holds them, so that those few bits apart are found.
#
# Rule: of two that differ in at most three bits one quarter is equal. So each fingerprint stands in
# four tables, in the bucket of its first, second, third and last quarter; whoever looks reads its
# four buckets and counts bits. The first table also says who owns it: the ends of the digest, by
# which its claim is found.

TABLES: Final = 4
_QUARTER_BITS: Final = 16
_QUARTER: Final = (1 << _QUARTER_BITS) - 1
_PRINT_BYTES: Final = 8
_HEAD, _TAIL = 8, 4  # of a digest: its head says which shard has its claim, its tail the bucket
_OWNED_BYTES: Final = _PRINT_BYTES + _HEAD + _TAIL
ROW_ARGS: Final = 3  # table, quarter, row


class BucketCell(NamedTuple):
    """Where a bucket is."""

    shard: int
    table: int
    quarter: int


class FingerprintRow(NamedTuple):
    """One fingerprint of a bucket, near to the one that is looked for."""

    bits: int  # that differ
    simhash: int
    mark: bytes = b""  # of its page's digest; empty: the first table has it


def mark_of(digest: bytes) -> bytes:
    return digest[:_HEAD] + digest[-_TAIL:]


def can_mark(digest: bytes) -> bool:
    """Whether it is long enough for its ends to be two."""
    return len(digest) >= _HEAD + _TAIL


def cell(simhash: int, table: int, shards: int) -> BucketCell:
    quarter = simhash >> _QUARTER_BITS * table & _QUARTER
    return BucketCell((quarter + table) % shards, table, quarter)


def rows_of(
    simhash: int, digest: bytes, shards: int
) -> Iterator[tuple[int, tuple[int, int, bytes]]]:
    """For each table the shard, and what lua/near.lua is told there."""
    packed = simhash.to_bytes(_PRINT_BYTES, "little")
    for table in range(TABLES):
        shard, _, quarter = cell(simhash, table, shards)
        yield shard, (table, quarter, packed if table else packed + mark_of(digest))


def near_in(bucket: bytes, table: int, simhash: int, most_bits: int) -> Iterator[FingerprintRow]:
    """What came from outside: whatever it is, so many whole rows of it as there are."""
    width = _PRINT_BYTES if table else _OWNED_BYTES
    count = len(bucket) // width
    prints: NDArray[np.uint64] = np.ndarray(count, "<u8", bucket, strides=(width,))
    apart = np.bitwise_count(prints ^ np.uint64(simhash))
    for at in (apart <= most_bits).nonzero()[0].tolist():
        mark = bucket[at * width + _PRINT_BYTES : (at + 1) * width]
        yield FingerprintRow(int(apart[at]), int(prints[at]), mark)


# A robots.txt record as workers hand it on: small, and without any worker's time.
#
# Rule: what is read back came from outside: it is decoded as what it must be, or counts as none.
# When it ends is told beside it, as the time that is left.

_LEVEL: Final = 1  # 17 us for a file as they are; level 6 of zlib takes 83, and a tenth less room
_SCHEMES: Final = ("http://", "https://")
_decode_robots = msgspec.msgpack.Decoder(RobotsRecord).decode


def pack_robots(record: RobotsRecord) -> bytes:
    """Its authority is in the name of its key."""
    body = None if record.body is None else isal_zlib.compress(record.body, _LEVEL)
    return _encode(replace(record, authority="", fetched_at=0.0, expires_at=0.0, body=body))


def read_robots(
    authority: str, packed: Any, left_ms: Any, now: float, most_bytes: int
) -> RobotsRecord | None:
    """The record of *authority* as it holds from *now* on. None: it is none of ours.
    *most_bytes*: of a file as it came."""
    if not isinstance(packed, bytes) or not isinstance(left_ms, int) or left_ms <= 0:
        return None
    try:
        record = _decode_robots(packed)
        body = None if record.body is None else _inflated(record.body, most_bytes)
    except (ValueError, msgspec.MsgspecError, IsalError):  # type: ignore[misc]  # as in warc.recovery
        return None
    if not _is_sound(record):
        return None
    expires_at = now + left_ms / 1000
    return replace(record, authority=authority, fetched_at=now, expires_at=expires_at, body=body)


def _is_sound(record: RobotsRecord) -> bool:
    if record.kind is RobotsState.RULES and record.body is None:
        return False
    if record.kind is RobotsState.PENDING and not _is_url(record.next_url):
        return False
    return min(record.tries, record.hops) >= 0


def _is_url(text: str) -> bool:
    try:
        return text.startswith(_SCHEMES) and bool(split(text).hostname)
    except ValueError:
        return False


def _inflated(body: bytes, most_bytes: int) -> bytes:
    """Raises IsalError or ValueError."""
    stream = isal_zlib.decompressobj()
    inflated = stream.decompress(body, most_bytes + 1)
    if len(inflated) > most_bytes or not stream.eof:
        raise ValueError("too large, or cut off")
    return inflated


# The totals of a shard, as its hash `m` holds them.

RUN_BYTES: Final = 8
"""Of the run of a server, as replies begin with it (lua/shard.lua)."""


@dataclass(frozen=True, slots=True)
class ShardTotals:
    waiting: int = 0
    later: int = 0
    leased: int = 0
    seen: int = 0
    done: int = 0
    dead: int = 0
    refused: int = 0
    adds: int = 0  # URLs ever admitted: two looks that agree on it saw no add between them
    clock: float = 0.0  # epoch seconds by the server
    run: bytes = b""  # of its server, as replies begin with it; empty: the shard is not there

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes]) -> Self:
        """From a HGETALL."""
        known = {name.encode(): name for name in cls.__slots__ if name not in {"clock", "run"}}
        numbers = {known[key]: int(value) for key, value in fields.items() if key in known}
        clock, run = float(fields.get(b"clock", 0)), fields.get(b"run", b"")[:RUN_BYTES]
        return cls(**numbers, clock=clock, run=run)

    @classmethod
    def of_reply(cls, reply: Sequence[bytes]) -> Self:
        """From a HGETALL as it comes over the wire: names and values in turn."""
        return cls.read(dict(zip(reply[::2], reply[1::2], strict=True)))

    @property
    def unfinished(self) -> int:
        return self.waiting + self.later + self.leased

    @staticmethod
    def summed(shards: Iterable[ShardTotals]) -> Counts:
        """None below 0, though a counter may have drifted."""
        every = list(shards)
        return Counts(
            waiting=max(0, sum(each.waiting for each in every)),
            later=max(0, sum(each.later for each in every)),
            leased=max(0, sum(each.leased for each in every)),
            hosts_active=max(0, sum(each.leased for each in every)),
            seen=sum(each.seen for each in every),
            done=sum(each.done for each in every),
            dead=sum(each.dead for each in every),
            refused=sum(each.refused for each in every),
        )


# Links in parts, each of which is one call of its shard.
#
# Rule: bounded by number and by bytes. A spider's own requests stand in their links, and a Redis
# closes the connection of whoever sends more than 1 GB at once, as often as it is sent.

MOST_BYTES: Final = 1 << 20
"""Of requests in one call: a server copies it in less than 1 ms."""


def parts_of(found: Sequence[Candidate], most: int) -> Iterator[Sequence[Candidate]]:
    """Of one shard's links: each at most *most* links, and what `by_bytes` lets together."""
    for piece in by_bytes(found):
        for begin in range(0, len(piece), most):
            yield piece[begin : begin + most]


def by_bytes(found: Iterable[Candidate]) -> Iterator[Sequence[Candidate]]:
    """Each with at most MOST_BYTES of requests, or with a single one that is longer."""
    links = found if isinstance(found, Sequence) else list(found)
    begin = filled = 0
    for at, link in enumerate(links):
        if link.request:  # few have one; a plain link costs 70 ns here
            filled += len(link.request)
            if filled > MOST_BYTES and at > begin:
                yield links[begin:at]
                begin, filled = at, len(link.request)
    if begin < len(links):
        yield links[begin:] if begin else links


# What a worker says of itself once a second, in the hash of workers.


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    session: str
    host: str  # the machine
    pid: int
    at: float = 0.0  # epoch seconds by the server
    started: float = 0.0  # epoch seconds by the worker
    state: str = "starting"  # starting | working | stopping
    pages: int = 0
    bytes: int = 0
    errors: int = 0
    leases: int = 0
    outbox: int = 0  # links on its disk
    doors: int = 0  # hosts that seeds have opened, as it knows
    preferred: int = 0  # shards

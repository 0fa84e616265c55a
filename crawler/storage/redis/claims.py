"""A claim in as few bytes as it can be: its file is named by number, what is said twice once.

Rule: the bytes begin with an array and the digest, which the scripts look for. What is read back
came from outside: it is decoded as what it must be, or refused. The fingerprint of its text stands
where near ones are looked for, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from crawler.core.types import Claim

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


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def pack_claim(claim: Claim) -> tuple[str, bytes]:
    """Its archive file, and the rest."""
    file, place = _split(claim.record)
    wire_sha1 = None if claim.wire_sha1 == claim.digest else claim.wire_sha1
    fields = (claim.digest, claim.url, claim.at, place, wire_sha1)
    return file, _encode(fields if claim.status == _OK else (*fields, claim.status))


def read_claim(packed: bytes, file: bytes) -> Claim:
    """Raises ValueError or msgspec.MsgspecError if it is none of ours."""
    it = _decode(packed)
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

"""The records of a shard as lua/shard.lua packs them, read by those who only look.

Rule: nothing is packed here. What is none of ours raises ValueError, struct.error or
msgspec.MsgspecError.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from msgspec.structs import replace

from crawler.core.types import Candidate, Pace
from crawler.storage.redis.packed import unpack
from crawler.storage.redis.replies import read_pace

FRONTS: Final = 16
_HOST: Final = Struct("<BBHIdI")
_LEASE: Final = Struct("<dBBH")
_REFUSED: Final = Struct("<dBHB")
_LATER: Final = Struct("<6sBH")


class Place(IntEnum):
    """Of a host, as in shard.lua."""

    EMPTY = 0
    FRONT = 1
    RESTING = 2
    LEASED = 3


@dataclass(frozen=True, slots=True)
class ShardHost:
    place: Place
    fronts: list[int]  # at which it has URLs, the best first
    rest_until: float
    admitted: int
    pace: Pace


@dataclass(frozen=True, slots=True)
class ShardLease:
    taken_at: float
    candidate: Candidate


def read_host(packed: bytes) -> ShardHost:
    place, _, fronts, _, rest_until, admitted = _HOST.unpack_from(packed)
    return ShardHost(
        Place(place),
        [front for front in range(FRONTS) if fronts >> front & 1],
        rest_until,
        admitted,
        read_pace(packed[_HOST.size :]),
    )


def read_lease(packed: bytes) -> ShardLease:
    taken_at, _, front, length = _LEASE.unpack_from(packed)
    return ShardLease(taken_at, _candidate(packed[_LEASE.size :], length, front))


def read_later(entry: bytes, when: float) -> Candidate:
    _, front, length = _LATER.unpack_from(entry)
    return replace(_candidate(entry[_LATER.size :], length, front), not_before=when)


def read_refused(packed: bytes) -> tuple[Candidate, str, float]:
    """The URL, which rule refused it, and when."""
    at, front, length, rule_length = _REFUSED.unpack_from(packed)
    host_end = _REFUSED.size + length
    rule_end = host_end + rule_length
    host = packed[_REFUSED.size : host_end].decode()
    return unpack(packed[rule_end:], host, front - 1), packed[host_end:rule_end].decode(), at


def read_waiting(body: bytes, host: str, front: int) -> Candidate:
    return unpack(body, host, front - 1)


def _candidate(host_and_body: bytes, length: int, front: int) -> Candidate:
    return unpack(host_and_body[length:], host_and_body[:length].decode(), front - 1)

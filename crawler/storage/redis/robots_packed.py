"""A robots.txt record as workers hand it on: small, and without any worker's time.

Rule: what is read back came from outside: it is decoded as what it must be, or counts as none.
When it ends is told beside it, as the time that is left.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from isal import isal_zlib
from isal.igzip_lib import IsalError
from msgspec.structs import replace

from crawler.core.url import split
from crawler.policy.robots_fetch import Known, RobotsRecord

_LEVEL: Final = 1  # 17 us for a file as they are; level 6 of zlib takes 83, and a tenth less room
_SCHEMES: Final = ("http://", "https://")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(RobotsRecord).decode


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
        record = _decode(packed)
        body = None if record.body is None else _inflated(record.body, most_bytes)
    except (ValueError, msgspec.MsgspecError, IsalError):  # type: ignore[misc]  # as in warc.recovery
        return None
    if not _is_sound(record):
        return None
    expires_at = now + left_ms / 1000
    return replace(record, authority=authority, fetched_at=now, expires_at=expires_at, body=body)


def _is_sound(record: RobotsRecord) -> bool:
    if record.kind is Known.RULES and record.body is None:
        return False
    if record.kind is Known.PENDING and not _is_url(record.next_url):
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

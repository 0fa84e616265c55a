"""The values of WARC fields: dates, identities, digests, URLs.

Rule: pure, and what comes from outside never begins a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from urllib.parse import quote

PRINTABLE: Final = "".join(map(chr, range(0x21, 0x7F)))
_BASE32: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".ljust(256)


def _halves() -> Iterator[tuple[int, int, int]]:
    """How far the upper half of each stretch moves, and which bits are of upper and lower ones."""
    for groups in (32, 16, 8, 4, 2):
        half = (1 << groups // 2 * 5) - 1
        low = sum(half << at * 8 for at in range(0, 32, groups))
        yield groups // 2 * 3, low << groups // 2 * 5, low


_HALVES: Final = tuple(_halves())


def line(name: str, value: str) -> str:
    written = f"{name}: {value}"
    if not written.isprintable():
        written = written.replace("\r", " ").replace("\n", " ")
    return f"{written}\r\n"


def block(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Of an `application/warc-fields` record."""
    return "".join([line(name, value) for name, value in pairs]).encode(errors="replace")


@lru_cache(maxsize=8)  # the index asks again for what the record has just asked for
def labelled(sha1: bytes) -> str:
    """A SHA-1 as WARC and CDXJ write it, in an eighth of the time of base64.b32encode: its 32
    groups of 5 bits are moved apart, half of each stretch at a time, to a byte each."""
    spread = int.from_bytes(sha1)
    for shift, high, low in _HALVES:
        spread = (spread & high) << shift | spread & low
    return "sha1:" + spread.to_bytes(32).translate(_BASE32).decode()


def record_id(random: bytes) -> str:
    """A version 4 UUID, as uuid.UUID would print it in five times the time."""
    digits, variant = random.hex(), "89ab"[random[8] >> 6]
    last = f"{variant}{digits[17:20]}-{digits[20:]}"
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{last}>"


@lru_cache(maxsize=8)
def date(at: float) -> str:
    """To the microsecond, which WARC 1.1 allows: a page may be fetched twice in a second."""
    stamp = datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")
    return f"{stamp[:-6]}Z"  # in place of +00:00


def uri(url: str) -> str:
    """Section 5.12: no white space, nothing but what RFC 3986 allows on a line."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return quote(url, safe=PRINTABLE, errors="replace")

"""A waiting URL in as few bytes as it can be: what its queue says already is left out.

Rule: host, level and date are the queue's. What is read back came from outside: it is decoded
as what it must be, or refused.
"""

from __future__ import annotations

from typing import Final

import msgspec

from crawler.core.types import Candidate, HostKey, Purpose


class _Short(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An ordinary link: 15 bytes beside its path."""

    tail: str  # "/path": https of its host; "!/path": http of its host; else the whole URL
    key: int
    domain: int | str  # how many last characters of its host; else the whole name
    depth: int


class _Full(_Short, array_like=True, gc=False, frozen=True):
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
_decode = msgspec.msgpack.Decoder(_Full).decode


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
            _Full(
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
    it = _decode(packed[len(LOST) :] if lost else packed)
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

"""A waiting URL in as few bytes as it can be: what its queue says already is left out.

Rule: host, level and date are the queue's. What is read back came from outside: it is decoded
as what it must be, or refused.
"""

from __future__ import annotations

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


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Full).decode


def pack(candidate: Candidate) -> bytes:
    host = candidate.host
    url, domain = candidate.url, candidate.domain
    tail = url
    if url.startswith(f"https://{host}/"):
        tail = url[8 + len(host) :]
    elif url.startswith(f"http://{host}/"):
        tail = "!" + url[7 + len(host) :]
    short = len(domain) if host.endswith(domain) else domain
    if _is_plain(candidate):
        return _encode(_Short(tail, candidate.key, short, candidate.depth))
    return _encode(
        _Full(
            tail,
            candidate.key,
            short,
            candidate.depth,
            candidate.attempts,
            candidate.chain,
            candidate.purpose,
            candidate.authority,
            candidate.request,
            candidate.filtered,
        )
    )


def unpack(packed: bytes, host: str, level: int) -> Candidate:
    """Raises msgspec.MsgspecError if it is none of ours."""
    it = _decode(packed)
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
    )


def _is_plain(candidate: Candidate) -> bool:
    return (
        candidate.filtered
        and not candidate.attempts
        and not candidate.chain
        and candidate.purpose is Purpose.PAGE
        and not candidate.request
    )

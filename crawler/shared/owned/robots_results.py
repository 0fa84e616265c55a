"""What one worker has fetched for the robots.txt of a host that another worker has, as redirects
led to a host of the first: it goes to the inbox of the other host's shard, as a link does.

Rule: what is read from an inbox is untrusted: it is decoded by its schema, or dropped.
"""

from __future__ import annotations

from typing import Final

import msgspec

from crawler.model.types import Candidate, HostKey, Purpose
from crawler.model.url import registered_domain, split
from crawler.policy.robots_cache import RobotsFetchResult

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(RobotsFetchResult).decode


def host_of(authority: str) -> HostKey:
    return HostKey(split(f"{authority}/").hostname)


def pack_result(authority: str, result: RobotsFetchResult) -> Candidate:
    """Return a link to the robots.txt of *authority* that has *result* in place of a request."""
    host = host_of(authority)
    return Candidate(
        url=f"{authority}/robots.txt",
        key=0,
        host=host,
        domain=registered_domain(host),
        purpose=Purpose.ROBOTS,
        authority=authority,
        request=_encode(result),
        needs_seen_test=False,
    )


def is_result(link: Candidate) -> bool:
    """Return whether `pack_result` made *link*. A robots.txt that is to be fetched has no
    request."""
    return link.purpose is Purpose.ROBOTS and bool(link.request)


def unpack_result(link: Candidate) -> RobotsFetchResult | None:
    """Return the result in *link*, or None if it cannot be read."""
    try:
        return _decode(link.request)
    except msgspec.MsgspecError:
        return None

"""Links in parts, each of which is one call of its shard.

Rule: bounded by number and by bytes. A spider's own requests stand in their links, and a Redis
closes the connection of whoever sends more than 1 GB at once, as often as it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from crawler.core.types import Candidate

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

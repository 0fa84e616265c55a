"""The hosts of a shared crawl with most left to do, and the paces of some others: each worker
writes its own now and then, and whoever wants all of them reads them.

Rule: only while they are asked for; some hundred names and 150 records, whatever the hosts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from heapq import nlargest
from itertools import chain
from typing import Final

import msgspec

from crawler.model.types import HostWork, Pace
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.faults import FAULTS

MOST_READ: Final = 100
_WRITTEN_EVERY_S: Final = 5.0
_OLD_S: Final = 60.0
"""What a worker wrote longer ago is not used: it has died, or its clock is wrong."""


class OwnHosts(msgspec.Struct, array_like=True, frozen=True):
    """What one worker has written."""

    at: float  # epoch seconds
    longest: list[HostWork]
    paces: list[Pace]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(OwnHosts).decode


class OwnHostsWriter:
    """Writes the hosts of one worker."""

    def __init__(self, nodes: Nodes, worker: str, steady: Callable[[], float]) -> None:
        self._nodes = nodes
        self._worker = worker
        self._key = keys.longest(nodes.name)
        self._steady = steady
        self._written_at_s = -_WRITTEN_EVERY_S

    async def write(self, longest: Sequence[HostWork], paces: Sequence[Pace]) -> None:
        """Write them, unless that was done a moment ago."""
        if self._steady() < self._written_at_s + _WRITTEN_EVERY_S:
            return
        self._written_at_s = self._steady()
        own = OwnHosts(time.time(), list(longest), list(paces))
        await self._nodes.command(self._key, "HSET", self._key, self._worker, _encode(own))

    async def remove(self) -> None:
        await self._nodes.command(self._key, "HDEL", self._key, self._worker)


class LongestReader:
    """The hosts of all workers, and paces of some, as they were read last."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._is_asked = False
        self._found: list[HostWork] = []
        self._sample: list[Pace] = []

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return up to *limit* hosts, those with most left to do first, as they were read last; and
        have them read."""
        self._is_asked = True
        return self._found[:limit]

    def sampled_paces(self) -> Sequence[Pace]:
        """Return the paces of some hosts, as they were read last."""
        return self._sample

    async def refresh(self) -> None:
        """Read them again, if they were asked for since."""
        if not self._is_asked:
            return
        self._is_asked = False
        key = keys.longest(self._nodes.name)
        reply = await self._nodes.command(key, "HVALS", key)
        if isinstance(reply, FAULTS):
            return  # others say so
        workers = []
        for packed in reply:
            with suppress(msgspec.MsgspecError):
                workers.append(_decode(packed))
        recent = [each for each in workers if time.time() - each.at < _OLD_S]
        of_all = chain.from_iterable(each.longest for each in recent)
        self._found = nlargest(MOST_READ, of_all, key=_seconds_left)
        self._sample = [pace for each in recent for pace in each.paces]


def _seconds_left(work: HostWork) -> float:
    return work.waiting * max(work.pace.gap_s, work.pace.crawl_delay_s)

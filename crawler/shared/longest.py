"""The hosts of a shared crawl with most left to do, and others by chance, read from all shards now
and then.

Rule: only while they are asked for; some hundred names and 150 records, whatever the hosts.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

from crawler.model.types import HostKey, HostWork, Pace
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.connection import Argument
from crawler.shared.faults import FAULTS
from crawler.shared.shard import ShardHost, ShardHostPlace, read_host

MOST_READ: Final = 100
_DRAWN: Final = 50
_LEAST_OF_A_SHARD: Final = 10  # hosts are spread over the shards by chance


class LongestReader:
    """The hosts, and the paces of some drawn by chance, as they were read last."""

    def __init__(self, nodes: Nodes, shards: int) -> None:
        self._nodes = nodes
        self._shards = shards
        self._is_asked = False
        self._found: list[HostWork] = []
        self._sample: list[Pace] = []

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return up to *limit* hosts, those with most left to do first, as they were read last; and
        have them read."""
        self._is_asked = True
        return self._found[:limit]

    def sampled_paces(self) -> Sequence[Pace]:
        """Return the paces of some 50 hosts that were drawn by chance, as they were read last."""
        return self._sample

    async def refresh(self) -> None:
        """Read the hosts again, if they were asked for since."""
        if not self._is_asked:
            return
        self._is_asked = False
        name, most = self._nodes.name, max(_LEAST_OF_A_SHARD, MOST_READ // self._shards)
        rankings = [keys.longest(name, shard) for shard in range(self._shards)]
        ranked = await self._ask(
            [(key, ("ZREVRANGE", key, 0, most - 1, "WITHSCORES")) for key in rankings]
        )
        places = sorted(
            (
                (float(score), shard, host)
                for shard, pairs in enumerate(ranked)
                for host, score in zip(pairs[::2], pairs[1::2], strict=True)
            ),
            reverse=True,
        )[:MOST_READ]
        asked = [(keys.hosts(name, shard), host) for _, shard, host in places]
        packed = await self._ask([(key, ("HGET", key, host)) for key, host in asked])
        works = (_work(host, record) for (_, host), record in zip(asked, packed, strict=False))
        self._found = [work for work in works if work is not None]
        some = max(1, _DRAWN // self._shards)
        of_hosts = [keys.hosts(name, shard) for shard in range(self._shards)]
        drawn = await self._ask(
            [(key, ("HRANDFIELD", key, some, "WITHVALUES")) for key in of_hosts]
        )
        records = (_record(packed) for pairs in drawn for packed in pairs[1::2])
        self._sample = [record.pace for record in records if record is not None]

    async def _ask(self, commands: Sequence[tuple[str, tuple[Argument, ...]]]) -> Sequence[Any]:
        """Return the replies, or none if a server has given a fault: others say so."""
        replies = await asyncio.gather(
            *(self._nodes.command(key, *command) for key, command in commands)
        )
        return [] if any(isinstance(reply, FAULTS) for reply in replies) else replies


def _work(name: bytes, packed: bytes | None) -> HostWork | None:
    """Return None if the host has no URL any more, or a record that cannot be read."""
    record = _record(packed)
    if record is None or not record.waiting:
        return None
    is_leased = record.place is ShardHostPlace.LEASED
    host = HostKey(name.decode(errors="replace"))
    return HostWork(host, record.waiting, record.rest_until, record.pace, is_leased)


def _record(packed: bytes | None) -> ShardHost | None:
    """Return None if it cannot be read."""
    try:
        return read_host(packed or b"")
    except (struct.error, ValueError):
        return None

"""One look through the fingerprints that stand in Redis.

Rule: three round trips at most, each shared with other pages: four buckets; who has what is near in
them; their claims. What is not answered makes a look unsure, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from crawler.core.types import Claim
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.claims import read_claim
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.near_rows import TABLES, Row, cell, mark_of, near_in
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.worker.batcher import Batcher

Command: TypeAlias = tuple[int, tuple[Argument, ...]]
"""A shard, and a plain command on a key of it, as Nodes.commands takes them. A script that reads a
bucket takes ten times as long: Lua makes a text of its own of it."""

MOST_OWNERS: Final = 8
"""Of one page, the nearest first; 43,745 fingerprints are within three bits of one."""


class Original(NamedTuple):
    bits: int  # of 64 that differ
    claim: Claim


def in_order(it: Original) -> tuple[int, float]:
    """The nearest first, of those the oldest."""
    return it.bits, it.claim.at


@dataclass(slots=True)
class Seen:
    originals: list[Original] = field(default_factory=list)  # `in_order`
    is_sure: bool = True  # all have answered


class NearLook:
    def __init__(
        self,
        ops: Ops,
        name: str,
        scripts: Batcher[Call],
        commands: Batcher[Command],
        most_bits: int,
    ) -> None:
        """*name*: of the crawl."""
        self._ops = ops
        self._name = name
        self._scripts = scripts
        self._commands = commands
        self._most_bits = most_bits

    async def near(self, simhash: int) -> Seen:
        seen = Seen()
        buckets = [(simhash, table) for table in range(TABLES)]
        rows = await self._rows(buckets, self._most_bits, seen)
        bits_of = _nearest(rows)
        marked = {row.simhash for row in rows if row.mark}
        first = [(other, 0) for other in bits_of if other not in marked]
        if first:
            rows += await self._rows(first, 0, seen)
        named = (row for row in rows if row.mark and row.simhash in bits_of)
        owned = {(bits_of[row.simhash], row.simhash, row.mark) for row in named}
        if owned:
            await self._find(sorted(owned)[:MOST_OWNERS], seen)
        return seen

    async def _rows(
        self, looks: Sequence[tuple[int, int]], most_bits: int, seen: Seen
    ) -> list[Row]:
        """Each looks for a fingerprint in its bucket of a table."""
        replies = await self._commands.ask_all([self._read(*look) for look in looks])
        rows: list[Row] = []
        for (simhash, table), bucket in zip(looks, replies, strict=True):
            if isinstance(bucket, bytes):
                rows += near_in(bucket, table, simhash, most_bits)
            elif bucket is not None:
                seen.is_sure = False
        return rows

    def _read(self, simhash: int, table: int) -> Command:
        shard, _, quarter = cell(simhash, table, self._ops.shards)
        return shard, ("GET", keys.near(self._name, shard, table, quarter))

    async def _find(self, owned: Sequence[tuple[int, int, bytes]], seen: Seen) -> None:
        replies = await self._scripts.ask_all([self._ops.owner(mark) for _, _, mark in owned])
        for (bits, simhash, mark), reply in zip(owned, replies, strict=True):
            if isinstance(reply, FAULTS):
                seen.is_sure = False
                continue
            claim = _claim_in(reply, mark)
            if claim is not None:
                seen.originals.append(Original(bits, replace(claim, simhash=simhash)))
        seen.originals.sort(key=in_order)


def _nearest(rows: Sequence[Row]) -> dict[int, int]:
    """Their fingerprints, as many as may be looked at, and the bits of each."""
    nearest = sorted({(row.bits, row.simhash) for row in rows})[:MOST_OWNERS]
    return {simhash: bits for bits, simhash in nearest}


def _claim_in(reply: Any, mark: bytes) -> Claim | None:
    """None: nobody has it yet, or nothing that could be a claim."""
    try:
        _, packed, file = reply
        claim = read_claim(packed, file)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
    return claim if mark_of(claim.digest) == mark else None

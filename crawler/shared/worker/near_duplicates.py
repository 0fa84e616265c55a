"""Near-duplicates among workers: has any of them stored nearly the same text?

Rule: nearness is a judgement and needs no reservation. Of two near pages in flight at two workers
both are stored; within a worker the second waits, as in storage/nearest.py. Where Redis does not
answer, a page counts as near to none: it is counted, and nobody waits for long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace

from crawler.duplicates.near import NearReservation, NearReservations
from crawler.model.page import NearDuplicate
from crawler.model.types import Claim
from crawler.shared import keys
from crawler.shared.client import Argument, Call
from crawler.shared.codec import (
    ROW_ARGS,
    TABLES,
    FingerprintRow,
    can_mark,
    cell,
    mark_of,
    near_in,
    read_claim,
    rows_of,
)
from crawler.shared.faults import FAULTS
from crawler.shared.shard import Ops
from crawler.shared.worker.batcher import Batcher, ShardLink
from crawler.shared.worker.outgoing import UNTOLD

# One look through the fingerprints that stand in Redis.
#
# Rule: three round trips at most, each shared with other pages: four buckets; who has what is near
# in
# them; their claims. What is not answered makes a look unsure, and no more.

Command: TypeAlias = tuple[int, tuple[Argument, ...]]
"""A shard, and a plain command on a key of it, as Nodes.commands takes them. A script that reads a
bucket takes ten times as long: Lua makes a text of its own of it."""

MOST_OWNERS: Final = 8
"""Of one page, the nearest first; 43,745 fingerprints are within three bits of one."""


class NearOriginal(NamedTuple):
    bits: int  # of 64 that differ
    claim: Claim


def in_order(it: NearOriginal) -> tuple[int, float]:
    """The nearest first, of those the oldest."""
    return it.bits, it.claim.at


@dataclass(slots=True)
class NearOriginals:
    originals: list[NearOriginal] = field(default_factory=list)  # `in_order`
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

    async def near(self, simhash: int) -> NearOriginals:
        seen = NearOriginals()
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
        self, looks: Sequence[tuple[int, int]], most_bits: int, seen: NearOriginals
    ) -> list[FingerprintRow]:
        """Each looks for a fingerprint in its bucket of a table."""
        replies = await self._commands.ask_all([self._read(*look) for look in looks])
        rows: list[FingerprintRow] = []
        for (simhash, table), bucket in zip(looks, replies, strict=True):
            if isinstance(bucket, bytes):
                rows += near_in(bucket, table, simhash, most_bits)
            elif bucket is not None:
                seen.is_sure = False
        return rows

    def _read(self, simhash: int, table: int) -> Command:
        shard, _, quarter = cell(simhash, table, self._ops.shards)
        return shard, ("GET", keys.near(self._name, shard, table, quarter))

    async def _find(self, owned: Sequence[tuple[int, int, bytes]], seen: NearOriginals) -> None:
        replies = await self._scripts.ask_all([self._ops.owner(mark) for _, _, mark in owned])
        for (bits, simhash, mark), reply in zip(owned, replies, strict=True):
            if isinstance(reply, FAULTS):
                seen.is_sure = False
                continue
            claim = _claim_in(reply, mark)
            if claim is not None:
                seen.originals.append(NearOriginal(bits, replace(claim, simhash=simhash)))
        seen.originals.sort(key=in_order)


def _nearest(rows: Sequence[FingerprintRow]) -> dict[int, int]:
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


# Near-duplicates within one worker: pages that were stored lately.
#
# Rule: what is stored is known here at once: its way through Redis takes a second, and longer where
# a
# server is away.

MOST_LATELY: Final = 1024
"""Claims kept in memory, 0.5 kB each: what is stored, and what is found often, by many at once."""


class RecentFingerprints:
    """The newest take the place of the oldest."""

    def __init__(self, most: int = MOST_LATELY) -> None:
        self._prints = np.zeros(most, np.uint64)
        self._claims: list[Claim] = []
        self._next = 0

    def add(self, simhash: int, claim: Claim) -> None:
        self._prints[self._next] = simhash
        self._claims[self._next : self._next + 1] = [claim]
        self._next = (self._next + 1) % len(self._prints)

    def near(self, simhash: int, most_bits: int) -> list[NearOriginal]:
        apart = np.bitwise_count(self._prints[: len(self._claims)] ^ np.uint64(simhash))
        places = (apart <= most_bits).nonzero()[0].tolist()
        return [NearOriginal(int(apart[at]), self._claims[at]) for at in places]


MOST_ROWS: Final = 50  # of a call: 0.3 ms of a server
UNSURE: Final = "near_duplicates/unsure"
"""Counted when nobody could say whether a page is near to another."""


class SharedNearest:
    """Implements storage.nearest.Nearest. Bound: one reservation for each lease that is open, what
    was stored lately, and MOST_ROWS a shard."""

    def __init__(self, link: ShardLink, look: NearLook, most_bits: int) -> None:
        self._ops = link.ops
        self._tell = link.tell
        self._is_full = link.is_full
        self._count = link.count
        self._look = look
        self._most_bits = most_bits
        self._untold: dict[int, list[Argument]] = defaultdict(list)  # by shard
        self._reserved = NearReservations(most_bits)
        self._lately = RecentFingerprints()

    async def original(
        self, simhash: int, digest: bytes, url: str, lease_id: int
    ) -> NearDuplicate | None:
        """The stored page that is nearest, the oldest of those. None: there is none, and pages of
        this worker that are near to this one wait until `settle`. The same URL is no duplicate of
        itself."""
        self.settle(lease_id)
        mine = self._reserved.begin(simhash, url, lease_id)
        try:
            while (near := await self._stored(mine)) is None:
                earlier = self._reserved.earlier(mine)
                if earlier is None:
                    break
                await earlier.settled.wait()
        except BaseException:
            self.settle(lease_id)
            raise
        if near is None and not mine.is_sure:
            self._count(UNSURE)
        return near

    def claimed(self, lease_id: int, claim: Claim) -> None:
        """Its page is stored: from now on others may be near to it."""
        mine = self._reserved.of(lease_id)
        if mine is None or mine.is_known:
            return
        self._lately.add(mine.simhash, claim)
        if can_mark(claim.digest):
            self._gather(mine.simhash, claim.digest)

    def _gather(self, simhash: int, digest: bytes) -> None:
        rows = list(rows_of(simhash, digest, self._ops.shards))
        if any(self._is_full(shard) for shard, _ in rows):
            self._count(f"{UNTOLD}near")
            return
        for shard, row in rows:
            self._untold[shard] += row
            if len(self._untold[shard]) >= MOST_ROWS * ROW_ARGS:
                self._tell_shard(shard)

    def tell(self) -> None:
        """Send what was gathered. To be called each second or so: a row alone takes 18 us of a
        server, with others 6."""
        for shard in list(self._untold):
            self._tell_shard(shard)

    def _tell_shard(self, shard: int) -> None:
        self._tell(Call(shard, "near", tuple(self._untold.pop(shard))))

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up: who waits may look again."""
        self._reserved.end(lease_id)

    def close(self) -> None:
        """Nothing is open."""

    async def _stored(self, mine: NearReservation) -> NearDuplicate | None:
        found = self._lately.near(mine.simhash, self._most_bits)
        if all(each.bits for each in found):
            found = await self._elsewhere(mine)
            found += self._lately.near(mine.simhash, self._most_bits)  # meanwhile, too
        found.sort(key=in_order)
        mine.is_known = any(each.bits == 0 for each in found)
        others = (each for each in found if each.claim.url != mine.url)
        nearest = next(others, None)
        return NearDuplicate(nearest.claim, nearest.bits) if nearest else None

    async def _elsewhere(self, mine: NearReservation) -> list[NearOriginal]:
        seen = await self._look.near(mine.simhash)
        mine.is_sure = seen.is_sure
        for original in seen.originals[:1]:
            if original.bits == 0:  # what is found often is found at once
                self._lately.add(mine.simhash, original.claim)
        return seen.originals

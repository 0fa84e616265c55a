"""Near-duplicates among the pages of all workers.

Rule: there is no reservation between workers: of two near pages in flight at two workers both are
stored; within a worker the second waits, as in duplicates/near.py. If Redis does not answer, a
page counts as original.
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
from crawler.duplicates.quarters import QUARTERS, near_places
from crawler.model.page import NearDuplicate
from crawler.model.types import Claim
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import (
    ROW_ARGS,
    FingerprintRow,
    bucket_cell,
    bucket_mark,
    can_mark,
    near_in,
    read_claim,
    rows_of,
)
from crawler.shared.connection import Argument
from crawler.shared.contents import ContentCalls
from crawler.shared.faults import FAULTS
from crawler.shared.owned.side_calls import UNSENT_KEY
from crawler.shared.worker.batcher import Batcher, ShardClient

Command: TypeAlias = tuple[int, tuple[Argument, ...]]
"""A shard, and a plain command on a key of it, as Nodes.commands takes them. A script that reads a
bucket would take ten times as long, because Lua copies the string."""

MAX_OWNERS: Final = 8
"""Owners looked up for one page, the nearest first; 43,745 fingerprints are within three bits of
one."""


class NearOriginal(NamedTuple):
    bits: int  # the number of 64 bits that differ
    claim: Claim


def in_order(original: NearOriginal) -> tuple[int, float]:
    """Return the sort key: the nearest first, of equally near ones the oldest."""
    return original.bits, original.claim.at


@dataclass(slots=True)
class NearOriginals:
    originals: list[NearOriginal] = field(default_factory=list)  # sorted by `in_order`
    is_complete: bool = True  # whether all shards answered


class NearSearch:
    """Searches the fingerprints in Redis in at most three round trips, shared with other pages:
    four buckets, the rows of near fingerprints in the first table, their claims."""

    def __init__(
        self,
        contents: ContentCalls,
        name: str,
        scripts: Batcher[Call],
        commands: Batcher[Command],
        max_bits: int,
    ) -> None:
        """*name* is that of the crawl."""
        self._contents = contents
        self._name = name
        self._scripts = scripts
        self._commands = commands
        self._most_bits = max_bits

    async def near(self, simhash: int) -> NearOriginals:
        seen = NearOriginals()
        buckets = [(simhash, table) for table in range(QUARTERS)]
        rows = await self._rows(buckets, self._most_bits, seen)
        bits_of = _nearest(rows)
        marked = {row.simhash for row in rows if row.mark}
        first = [(other, 0) for other in bits_of if other not in marked]
        if first:
            rows += await self._rows(first, 0, seen)
        named = (row for row in rows if row.mark and row.simhash in bits_of)
        owned = {(bits_of[row.simhash], row.simhash, row.mark) for row in named}
        if owned:
            await self._find(sorted(owned)[:MAX_OWNERS], seen)
        return seen

    async def _rows(
        self, buckets: Sequence[tuple[int, int]], most_bits: int, seen: NearOriginals
    ) -> list[FingerprintRow]:
        """Return the near rows of buckets. Each of *buckets* is a fingerprint and a table."""
        replies = await self._commands.ask_all([self._read(*bucket) for bucket in buckets])
        rows: list[FingerprintRow] = []
        for (simhash, table), bucket in zip(buckets, replies, strict=True):
            if isinstance(bucket, bytes):
                rows += near_in(bucket, table, simhash, most_bits)
            elif bucket is not None:
                seen.is_complete = False
        return rows

    def _read(self, simhash: int, table: int) -> Command:
        shard, _, quarter = bucket_cell(simhash, table, self._contents.shards)
        return shard, ("GET", keys.near(self._name, shard, table, quarter))

    async def _find(self, owned: Sequence[tuple[int, int, bytes]], seen: NearOriginals) -> None:
        asks = [self._contents.find_owner(mark) for _, _, mark in owned]
        replies = await self._scripts.ask_all(asks)
        for (bits, simhash, mark), reply in zip(owned, replies, strict=True):
            if isinstance(reply, FAULTS):
                seen.is_complete = False
                continue
            claim = _claim_in(reply, mark)
            if claim is not None:
                seen.originals.append(NearOriginal(bits, replace(claim, simhash=simhash)))
        seen.originals.sort(key=in_order)


def _nearest(rows: Sequence[FingerprintRow]) -> dict[int, int]:
    """Return the nearest fingerprints of *rows*, at most MAX_OWNERS, with the bits of each."""
    nearest = sorted({(row.bits, row.simhash) for row in rows})[:MAX_OWNERS]
    return {simhash: bits for bits, simhash in nearest}


def _claim_in(reply: Any, mark: bytes) -> Claim | None:
    """Return the claim in *reply*, or None if it has no valid claim on a digest with *mark*."""
    try:
        _, packed, file = reply
        claim = read_claim(packed, file)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
    return claim if bucket_mark(claim.digest) == mark else None


MAX_RECENT: Final = 1024
"""Claims kept in memory, 0.5 kB each: of pages stored here, and of frequent originals."""


class RecentFingerprints:
    """Pages that this worker stored lately, because they are in Redis only a second later, or after
    its server is back. The newest replace the oldest."""

    def __init__(self, most: int = MAX_RECENT) -> None:
        self._prints = np.zeros(most, np.uint64)
        self._claims: list[Claim] = []
        self._next = 0

    def add(self, simhash: int, claim: Claim) -> None:
        self._prints[self._next] = simhash
        self._claims[self._next : self._next + 1] = [claim]
        self._next = (self._next + 1) % len(self._prints)

    def near(self, simhash: int, most_bits: int) -> list[NearOriginal]:
        found = near_places(self._prints[: len(self._claims)], simhash, most_bits)
        return [NearOriginal(bits, self._claims[at]) for at, bits in found]


MAX_ROWS: Final = 50  # rows of a call, which takes a server 0.3 ms
UNSURE: Final = "near_duplicates/unsure"
"""Counts pages for which not all shards answered whether they are near to another."""


class SharedNearDuplicates:
    """Implements duplicates.near.NearDuplicatesIndex. Bound: a reservation for each open lease,
    MAX_RECENT claims, and MAX_ROWS rows for each shard."""

    def __init__(self, link: ShardClient, search: NearSearch, max_bits: int) -> None:
        self._contents = link.contents
        self._send_later = link.send_later
        self._is_full = link.is_full
        self._count = link.count
        self._search = search
        self._most_bits = max_bits
        self._unsent: dict[int, list[Argument]] = defaultdict(list)  # by shard
        self._reserved = NearReservations(max_bits)
        self._recent = RecentFingerprints()

    async def original(
        self, simhash: int, digest: bytes, url: str, lease_id: int
    ) -> NearDuplicate | None:
        """Return the nearest stored page of another URL, the oldest of equally near ones. Returns
        None if there is none; then pages of this worker that are near to this one wait until
        `release`."""
        self.release(lease_id)
        reservation = self._reserved.begin(simhash, url, lease_id)
        try:
            while (near := await self._stored(reservation)) is None:
                earlier = self._reserved.earlier(reservation)
                if earlier is None:
                    break
                await earlier.ended.wait()
        except BaseException:
            self.release(lease_id)
            raise
        if near is None and not reservation.is_complete:
            self._count(UNSURE)
        return near

    def note_claim(self, lease_id: int, claim: Claim) -> None:
        """Note that the page of a lease is stored, so that others may be near to it."""
        reservation = self._reserved.of(lease_id)
        if reservation is None or reservation.is_known:
            return
        self._recent.add(reservation.simhash, claim)
        if can_mark(claim.digest):
            self._gather_rows(reservation.simhash, claim.digest)

    def _gather_rows(self, simhash: int, digest: bytes) -> None:
        rows = list(rows_of(simhash, digest, self._contents.shards))
        if any(self._is_full(shard) for shard, _ in rows):
            self._count(f"{UNSENT_KEY}near")
            return
        for shard, row in rows:
            self._unsent[shard] += row
            if len(self._unsent[shard]) >= MAX_ROWS * ROW_ARGS:
                self._send_shard(shard)

    def send_rows(self) -> None:
        """Send the gathered rows. To be called about once a second: a row alone takes 18 us of a
        server, with others 6."""
        for shard in list(self._unsent):
            self._send_shard(shard)

    def _send_shard(self, shard: int) -> None:
        self._send_later(Call(shard, "near", tuple(self._unsent.pop(shard))))

    def release(self, lease_id: int) -> None:
        """End the reservation of a page that is finished or given up; waiting pages look again."""
        self._reserved.end(lease_id)

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    async def _stored(self, reservation: NearReservation) -> NearDuplicate | None:
        found = self._recent.near(reservation.simhash, self._most_bits)
        if all(each.bits for each in found):
            found = await self._search_redis(reservation)
            found += self._recent.near(reservation.simhash, self._most_bits)  # stored meanwhile
        found.sort(key=in_order)
        reservation.is_known = any(each.bits == 0 for each in found)
        others = (each for each in found if each.claim.url != reservation.url)
        nearest = next(others, None)
        return NearDuplicate(nearest.claim, nearest.bits) if nearest else None

    async def _search_redis(self, reservation: NearReservation) -> list[NearOriginal]:
        seen = await self._search.near(reservation.simhash)
        reservation.is_complete = seen.is_complete
        for original in seen.originals[:1]:
            if original.bits == 0:  # a frequent original is then found without Redis
                self._recent.add(reservation.simhash, original.claim)
        return seen.originals

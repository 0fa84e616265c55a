"""Near-duplicates among workers: has any of them stored nearly the same text?

Rule: nearness is a judgement and needs no reservation. Of two near pages in flight at two workers
both are stored; within a worker the second waits, as in storage/nearest.py. Where Redis does not
answer, a page counts as near to none: it is counted, and nobody waits for long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from crawler.core.page import Near
from crawler.core.types import Claim
from crawler.storage.nearest import NearReservation, NearReservations
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.near_rows import ROW_ARGS, can_mark, rows_of
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.worker.near_lately import Lately
from crawler.storage.redis.worker.near_look import NearLook, Original, in_order
from crawler.storage.redis.worker.tells import UNTOLD

MOST_ROWS: Final = 50  # of a call: 0.3 ms of a server
UNSURE: Final = "near_duplicates/unsure"
"""Counted when nobody could say whether a page is near to another."""


class SharedNearest:
    """Implements storage.nearest.Nearest. Bound: one reservation for each lease that is open, what
    was stored lately, and MOST_ROWS a shard."""

    def __init__(
        self,
        ops: Ops,
        look: NearLook,
        tell: Callable[[Call], None],
        count: Callable[[str], None],
        most_bits: int,
    ) -> None:
        """*tell*: sends a call some time soon, until it is acknowledged. *count* counts one
        more."""
        self._ops = ops
        self._look = look
        self._tell = tell
        self._count = count
        self._most_bits = most_bits
        self._untold: dict[int, list[Argument]] = defaultdict(list)  # by shard
        self._reserved = NearReservations(most_bits)
        self._lately = Lately()
        self.is_full: Callable[[int], bool] = lambda _: False  # whether a shard's server is

    async def original(self, simhash: int, digest: bytes, url: str, lease_id: int) -> Near | None:
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
        if any(self.is_full(shard) for shard, _ in rows):
            self._count(f"{UNTOLD}near")
            return
        for shard, row in rows:
            self._untold[shard] += row
            if len(self._untold[shard]) >= MOST_ROWS * ROW_ARGS:
                self._tell_shard(shard)

    async def tick(self) -> None:
        """To be called each second or so."""
        self.tell()

    def tell(self) -> None:
        """What was gathered. A row alone takes 18 us of a server, with others 6."""
        for shard in list(self._untold):
            self._tell_shard(shard)

    def _tell_shard(self, shard: int) -> None:
        self._tell(Call(shard, "near", tuple(self._untold.pop(shard))))

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up: who waits may look again."""
        self._reserved.end(lease_id)

    def close(self) -> None:
        """Nothing is open."""

    async def _stored(self, mine: NearReservation) -> Near | None:
        found = self._lately.near(mine.simhash, self._most_bits)
        if all(each.bits for each in found):
            found = await self._elsewhere(mine)
            found += self._lately.near(mine.simhash, self._most_bits)  # meanwhile, too
        found.sort(key=in_order)
        mine.is_known = any(each.bits == 0 for each in found)
        others = (each for each in found if each.claim.url != mine.url)
        nearest = next(others, None)
        return Near(nearest.claim, nearest.bits) if nearest else None

    async def _elsewhere(self, mine: NearReservation) -> list[Original]:
        seen = await self._look.near(mine.simhash)
        mine.is_sure = seen.is_sure
        for original in seen.originals[:1]:
            if original.bits == 0:  # what is found often is found at once
                self._lately.add(mine.simhash, original.claim)
        return seen.originals

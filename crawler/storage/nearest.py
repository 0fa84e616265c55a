"""Near-duplicates: which page with nearly the same text was here first?

Rule: a fingerprint counts from the finish of its page; until then it is reserved, and a page
near to it that was asked for later waits for the outcome. So of two near pages in flight one is
the original, whatever becomes of the other; and nobody waits for a page that came after him.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Protocol

from crawler.core.page import Near
from crawler.core.types import Claim
from crawler.scheduler.ports import OrderedStore
from crawler.storage.local.records import Claims
from crawler.storage.near.index import NearIndex
from crawler.storage.near.recovery import claim_of
from crawler.storage.near.view import Found

# Claims read to find the oldest: pages that are equally near differ little in what they teach.
_FEW: Final = 8


class Nearest(Protocol):
    """What the crawl asks; within one process, or across many."""

    async def original(self, simhash: int, digest: bytes, url: str, lease_id: int) -> Near | None:
        """The finished page that is nearest, the oldest of those. None: there is none."""

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Reservation:
    simhash: int
    digest: bytes
    url: str
    known: bool  # its page was finished with these very bytes before
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class NearPages:
    """Bound: one reservation for each lease that is open."""

    def __init__(self, index: NearIndex, store: OrderedStore, max_bits: int) -> None:
        self._index = index
        self._store = store
        self._claims = Claims(store)
        self._max_bits = max_bits
        self._reserved: dict[int, _Reservation] = {}  # by lease, in the order of asking

    async def original(self, simhash: int, digest: bytes, url: str, lease_id: int) -> Near | None:
        """The finished page that is nearest, the oldest of those. None: there is none, and
        pages near to this one wait until `settle`. The same URL is no duplicate of itself.
        Raises StoreUnavailable."""
        mine = self._reserve(simhash, digest, url, lease_id)
        while self._index.is_behind:
            await self._room()
        while True:
            near = self._finished(simhash, url)
            if near is not None:
                return near
            earlier = self._earlier(mine)
            if earlier is None:
                return None
            await earlier.settled.wait()

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up: who waits may look again."""
        mine = self._reserved.pop(lease_id, None)
        if mine is None:
            return
        try:
            claim = None if mine.known else self._claims.claim(mine.digest)
            if claim is not None and claim.simhash is not None and claim.url == mine.url:
                self._index.add(claim.simhash, mine.digest)
        finally:
            mine.settled.set()

    def close(self) -> None:
        """Before the store is."""
        self._index.close()

    def _reserve(self, simhash: int, digest: bytes, url: str, lease_id: int) -> _Reservation:
        self.settle(lease_id)
        before = self._claims.claim(digest)
        known = before is not None and before.simhash is not None
        mine = self._reserved[lease_id] = _Reservation(simhash, digest, url, known)
        return mine

    def _finished(self, simhash: int, url: str) -> Near | None:
        found = self._index.near(simhash, self._max_bits)
        for bits, alike in groupby(found, key=lambda each: each.bits):
            claims = [claim for claim in self._oldest(list(alike)) if claim.url != url]
            if claims:
                return Near(min(claims, key=lambda claim: claim.at), bits)
        return None

    def _oldest(self, alike: Sequence[Found]) -> Iterator[Claim]:
        for each in alike[:_FEW]:
            digests, _ = self._index.pages(each.fingerprint, max(1, _FEW // len(alike)))
            for digest in digests:
                claim = claim_of(self._store, digest)
                if claim is not None:
                    yield claim

    def _earlier(self, mine: _Reservation) -> _Reservation | None:
        for other in self._reserved.values():
            if other is mine:
                return None
            near = (other.simhash ^ mine.simhash).bit_count() <= self._max_bits
            if near and other.url != mine.url:
                return other
        return None

    async def _room(self) -> None:
        loop, room = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(room.set)

        self._index.when_room(tell)
        await room.wait()

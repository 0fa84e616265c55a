"""Near-duplicates: finds the page that had nearly the same text first.

Rule: a fingerprint counts from the finish of its page. Until then it is reserved, and a later page
near to it waits, so of two near pages in flight exactly one is the original; no page waits for a
later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Final, Protocol

from crawler.data.local_stores import LocalClaims
from crawler.duplicates.index.near_index import NearIndex, claim_of
from crawler.duplicates.index.search import NearMatch
from crawler.frontier.port import OrderedStore
from crawler.model.page import NearDuplicate
from crawler.model.types import Claim

# Claims read to find the oldest. Among many pages equally near, it matters little which is chosen.
_MAX_CLAIMS: Final = 8


class NearDuplicatesIndex(Protocol):
    """Lookup of near-duplicates, in one process or across many."""

    async def original(
        self, simhash: int, digest: bytes, url: str, lease_id: int
    ) -> NearDuplicate | None:
        """Return the nearest finished page, the oldest of those equally near, or None."""

    def release(self, lease_id: int) -> None:
        """End the reservation of a page that is finished or given up."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class NearReservation:
    """The fingerprint of a page in flight."""

    number: int  # in the order of the lookups
    simhash: int
    url: str
    digest: bytes = b""
    is_known: bool = False  # its exact content has an original already
    is_complete: bool = True  # every server has answered the lookup
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class NearReservations:
    """The reserved fingerprints. Bound: one for each open lease.

    Indexed by the four 16-bit blocks of each fingerprint: two that differ in at most three bits
    have at least one block in common, so a page is compared with few of those in flight. (With
    1,000 in flight this takes 15 us; comparing with each took 616.)
    """

    _MOST_BITS: Final = 3
    _SHIFTS: Final = (0, 16, 32, 48)

    def __init__(self, max_bits: int) -> None:
        assert max_bits <= self._MOST_BITS, "with more bits two fingerprints may share no block"
        self._max_bits = max_bits
        self._numbers = count()
        self._by_lease: dict[int, NearReservation] = {}
        # By shift and value of a block; the reservations of a block in the order of the lookups.
        self._by_block: dict[tuple[int, int], dict[int, NearReservation]] = {}

    def begin(self, simhash: int, url: str, lease_id: int, digest: bytes = b"") -> NearReservation:
        self.end(lease_id)
        reservation = NearReservation(next(self._numbers), simhash, url, digest)
        self._by_lease[lease_id] = reservation
        for block in self._blocks(simhash):
            self._by_block.setdefault(block, {})[reservation.number] = reservation
        return reservation

    def end(self, lease_id: int) -> NearReservation | None:
        """Remove and return the reservation, or None; pages that wait for it look again."""
        reservation = self._by_lease.pop(lease_id, None)
        if reservation is None:
            return None
        for block in self._blocks(reservation.simhash):
            alike = self._by_block[block]
            del alike[reservation.number]
            if not alike:
                del self._by_block[block]
        reservation.ended.set()
        return reservation

    def of(self, lease_id: int) -> NearReservation | None:
        return self._by_lease.get(lease_id)

    def earlier(self, reservation: NearReservation) -> NearReservation | None:
        """Return the first page in flight that is near to it and was looked up before it."""
        found = (
            self._earlier_in(block, reservation) for block in self._blocks(reservation.simhash)
        )
        return min((each for each in found if each), key=lambda each: each.number, default=None)

    def _earlier_in(
        self, block: tuple[int, int], reservation: NearReservation
    ) -> NearReservation | None:
        for other in self._by_block.get(block, {}).values():
            if other.number >= reservation.number:
                return None
            bits = (other.simhash ^ reservation.simhash).bit_count()
            if bits <= self._max_bits and other.url != reservation.url:
                return other
        return None

    @classmethod
    def _blocks(cls, simhash: int) -> list[tuple[int, int]]:
        return [(shift, simhash >> shift & 0xFFFF) for shift in cls._SHIFTS]


class LocalNearDuplicates:
    """Implements NearDuplicatesIndex in one process. Bound: one reservation for each open lease."""

    def __init__(self, index: NearIndex, store: OrderedStore, max_bits: int) -> None:
        self._index = index
        self._store = store
        self._claims = LocalClaims(store)
        self._max_bits = max_bits
        self._reserved = NearReservations(max_bits)

    async def original(
        self, simhash: int, digest: bytes, url: str, lease_id: int
    ) -> NearDuplicate | None:
        """As NearDuplicatesIndex; if it returns None, pages near to this one wait until `release`.
        A URL is no duplicate of itself. Raises StoreUnavailable."""
        reservation = self._reserve(simhash, digest, url, lease_id)
        while self._index.is_behind:
            await self._wait_for_room()
        while True:
            near = self._finished(simhash, url)
            if near is not None:
                return near
            earlier = self._reserved.earlier(reservation)
            if earlier is None:
                return None
            await earlier.ended.wait()

    def release(self, lease_id: int) -> None:
        """Add a finished page to the index and end its reservation; pages that wait look again."""
        reservation = self._reserved.of(lease_id)
        if reservation is None:
            return
        try:
            claim = None if reservation.is_known else self._claims.claim(reservation.digest)
            if claim is not None and claim.simhash is not None and claim.url == reservation.url:
                self._index.add(claim.simhash, reservation.digest)
        finally:
            self._reserved.end(lease_id)

    def close(self) -> None:
        """Close the index, which must happen before the store is closed."""
        self._index.close()

    def _reserve(self, simhash: int, digest: bytes, url: str, lease_id: int) -> NearReservation:
        self.release(lease_id)
        before = self._claims.claim(digest)
        reservation = self._reserved.begin(simhash, url, lease_id, digest)
        reservation.is_known = before is not None and before.simhash is not None
        return reservation

    def _finished(self, simhash: int, url: str) -> NearDuplicate | None:
        found = self._index.near(simhash, self._max_bits)
        for bits, alike in groupby(found, key=lambda each: each.bits):
            claims = [claim for claim in self._oldest(list(alike)) if claim.url != url]
            if claims:
                return NearDuplicate(min(claims, key=lambda claim: claim.at), bits)
        return None

    def _oldest(self, alike: Sequence[NearMatch]) -> Iterator[Claim]:
        for each in alike[:_MAX_CLAIMS]:
            digests, _ = self._index.pages(each.fingerprint, max(1, _MAX_CLAIMS // len(alike)))
            for digest in digests:
                claim = claim_of(self._store, digest)
                if claim is not None:
                    yield claim

    async def _wait_for_room(self) -> None:
        loop, room = asyncio.get_running_loop(), asyncio.Event()

        def set_room() -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(room.set)

        self._index.when_room(set_room)
        await room.wait()

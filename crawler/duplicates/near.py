"""Near-duplicates: finds the page that had nearly the same text first.

Rule: a fingerprint counts from the finish of its page. Until then it is reserved, and a later page
near to it waits, so of two near pages in flight exactly one is the original; no page waits for a
later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Final, Protocol

from crawler.data.local_stores import LocalClaims
from crawler.duplicates.fingerprint_index import FingerprintIndex
from crawler.duplicates.quarters import MAX_BITS, quarters
from crawler.frontier import records as keys
from crawler.frontier.port import ReadableStore
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
    is_known: bool = False  # a stored page has the same fingerprint
    is_complete: bool = True  # every server has answered the lookup
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class NearReservations:
    """The reserved fingerprints. Bound: one for each open lease.

    By quarters, so a page is compared with few of those in flight. (With 1,000 in flight this takes
    15 us; comparing with each took 616.)
    """

    def __init__(self, max_bits: int) -> None:
        assert max_bits <= MAX_BITS, "with more bits two fingerprints may share no quarter"
        self._max_bits = max_bits
        self._numbers = count()
        self._by_lease: dict[int, NearReservation] = {}
        # By table and value of a quarter; the reservations of each in the order of the lookups.
        self._by_quarter: dict[tuple[int, int], dict[int, NearReservation]] = {}

    def begin(self, simhash: int, url: str, lease_id: int) -> NearReservation:
        self.end(lease_id)
        reservation = NearReservation(next(self._numbers), simhash, url)
        self._by_lease[lease_id] = reservation
        for quarter in enumerate(quarters(simhash)):
            self._by_quarter.setdefault(quarter, {})[reservation.number] = reservation
        return reservation

    def end(self, lease_id: int) -> NearReservation | None:
        """Remove and return the reservation, or None; pages that wait for it look again."""
        reservation = self._by_lease.pop(lease_id, None)
        if reservation is None:
            return None
        for quarter in enumerate(quarters(reservation.simhash)):
            alike = self._by_quarter[quarter]
            del alike[reservation.number]
            if not alike:
                del self._by_quarter[quarter]
        reservation.ended.set()
        return reservation

    def of(self, lease_id: int) -> NearReservation | None:
        return self._by_lease.get(lease_id)

    def earlier(self, reservation: NearReservation) -> NearReservation | None:
        """Return the first page in flight that is near to it and was looked up before it."""
        first = reservation
        for quarter in enumerate(quarters(reservation.simhash)):
            for other in self._by_quarter.get(quarter, {}).values():
                if other.number >= first.number:
                    break
                bits = (other.simhash ^ reservation.simhash).bit_count()
                if bits <= self._max_bits and other.url != reservation.url:
                    first = other
                    break
        return first if first is not reservation else None


class LocalNearDuplicates:
    """Implements NearDuplicatesIndex in one process. Bound: one reservation for each open lease."""

    def __init__(self, index: FingerprintIndex, store: ReadableStore, max_bits: int) -> None:
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
        reservation = self._reserved.begin(simhash, url, lease_id)
        while True:
            near = self._finished(reservation)
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
            page = keys.page_of_print(reservation.simhash, lease_id)
            if not reservation.is_known and self._store.get(page) is not None:
                self._index.add(reservation.simhash)
        finally:
            self._reserved.end(lease_id)

    def close(self) -> None:
        self._index.close()

    def _finished(self, reservation: NearReservation) -> NearDuplicate | None:
        found = self._index.near(reservation.simhash, self._max_bits)
        reservation.is_known = bool(found) and not found[0][0]
        for bits, alike in groupby(found, key=lambda each: each[0]):
            claims = self._oldest([simhash for _, simhash in alike])
            others = [claim for claim in claims if claim.url != reservation.url]
            if others:
                return NearDuplicate(min(others, key=lambda claim: claim.at), bits)
        return None

    def _oldest(self, alike: Sequence[int]) -> Iterator[Claim]:
        """Yield claims with fingerprints *alike*, of each the oldest."""
        for simhash in alike[:_MAX_CLAIMS]:
            for digest in self._index.pages(simhash, max(1, _MAX_CLAIMS // len(alike))):
                claim = self._claims.claim(digest)
                if claim is not None:
                    yield claim

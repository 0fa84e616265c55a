"""Duplicates: who has this content already? Exact, durable, and free of races.

Rule: a digest belongs to the page whose finish wrote its claim; between its download and
that finish it is reserved, and a second page with the same bytes waits for the outcome.
So of two equal pages in flight one is the original, whatever becomes of the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from crawler.model.types import Claim


class ClaimStore(Protocol):
    def claim(self, digest: bytes) -> Claim | None:
        """The claim that a finished page holds on *digest*."""


class Duplicates(Protocol):
    """What the crawl asks; within one process, or across many."""

    async def original(self, digest: bytes, url: str, lease_id: int) -> Claim | None:
        """The page that has this content already, which may be *url* itself. None: *url* may claim
        it."""

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up."""


@dataclass(slots=True, eq=False)
class _Reservation:
    lease_id: int
    settled: asyncio.Event


class Digests:
    """Bound: one reservation for each lease that is open."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._reserved: dict[bytes, _Reservation] = {}
        self._by_lease: dict[int, bytes] = {}

    async def original(self, digest: bytes, url: str, lease_id: int) -> Claim | None:
        """The page that has this content already, which may be *url* itself. None: *url* may claim
        it, and has reserved it until `settle`."""
        while True:
            claim = self._store.claim(digest)
            if claim is not None:
                # What this URL said is not archived yet: then it is now.
                return claim if claim.url != url or claim.record else None
            other = self._reserved.get(digest)
            if other is None or other.lease_id == lease_id:
                self._reserve(digest, lease_id)
                return None
            await other.settled.wait()

    def settle(self, lease_id: int) -> None:
        """Its page is finished or given up: who waits may look again."""
        digest = self._by_lease.pop(lease_id, None)
        if digest is not None:
            self._reserved.pop(digest).settled.set()

    def _reserve(self, digest: bytes, lease_id: int) -> None:
        self.settle(lease_id)
        self._reserved[digest] = _Reservation(lease_id, asyncio.Event())
        self._by_lease[lease_id] = digest

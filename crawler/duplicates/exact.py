"""Exact duplicates: finds the page that had the same content first.

Rule: a digest belongs to the page whose finish wrote its claim. Until then the digest is reserved,
and a second page with it waits, so of two equal pages in flight exactly one is the original.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from crawler.model.types import Claim


class ClaimStore(Protocol):
    def claim(self, digest: bytes) -> Claim | None:
        """Return the claim of a finished page on *digest*, or None."""


class HeldClaims:
    """Implements ClaimStore: the claims of another, without those whose records have gone. The next
    page with such content is as new, and claims it."""

    def __init__(self, store: ClaimStore, is_gone: Callable[[str], bool]) -> None:
        """*is_gone* is called with the record of a claim."""
        self._store = store
        self._is_gone = is_gone

    def claim(self, digest: bytes) -> Claim | None:
        claim = self._store.claim(digest)
        return None if claim is not None and self._is_gone(claim.record) else claim


class Duplicates(Protocol):
    """Lookup of exact duplicates, in one process or across many."""

    async def original(self, digest: bytes, url: str, lease_id: int) -> Claim | None:
        """Return the claim of the page that has this content already, which may be *url* itself, or
        None if *url* may claim it."""

    def release(self, lease_id: int) -> None:
        """End the reservation of a page that is finished or given up."""

    def forget_known(self) -> None:
        """Forget claims in memory: some may have been deleted in the store."""


@dataclass(slots=True, eq=False)
class _Reservation:
    lease_id: int
    ended: asyncio.Event


class LocalDuplicates:
    """Implements Duplicates in one process. Bound: one reservation for each open lease."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._reserved: dict[bytes, _Reservation] = {}
        self._by_lease: dict[int, bytes] = {}

    async def original(self, digest: bytes, url: str, lease_id: int) -> Claim | None:
        """As Duplicates.original. If it returns None, the content is reserved for *url* until
        `release`."""
        while True:
            claim = self._store.claim(digest)
            if claim is not None:
                # If this URL's own claim has no record, its answer is still to be archived.
                return claim if claim.url != url or claim.record else None
            other = self._reserved.get(digest)
            if other is None or other.lease_id == lease_id:
                self._reserve(digest, lease_id)
                return None
            await other.ended.wait()

    def release(self, lease_id: int) -> None:
        """End the reservation of a page that is finished or given up, and wake those that wait."""
        digest = self._by_lease.pop(lease_id, None)
        if digest is not None:
            self._reserved.pop(digest).ended.set()

    def forget_known(self) -> None:
        """Do nothing: claims are in the store alone."""

    def _reserve(self, digest: bytes, lease_id: int) -> None:
        self.release(lease_id)
        self._reserved[digest] = _Reservation(lease_id, asyncio.Event())
        self._by_lease[lease_id] = digest

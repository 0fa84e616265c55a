"""Exact duplicates among the pages of all workers.

Rule: within a worker as duplicates.exact; between workers a content is reserved in Redis, and the
reservation expires. If Redis does not answer, a page is no duplicate, so it may be stored twice.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from crawler.duplicates.exact import LocalDuplicates
from crawler.model.types import Claim
from crawler.shared.client import Call
from crawler.shared.codec import read_claim
from crawler.shared.faults import FAULTS
from crawler.shared.worker.batcher import Batcher, ShardClient

HOLD_S: Final = 30.0
"""The longest time from a page's last byte to its claim (a guess: a second, and a slow disk)."""
POLL_S: Final = 0.1
SLOW_POLL_S: Final = 0.5
MAX_KNOWN: Final = 1000
"""Claims kept in memory, 0.5 kB each: many pages at once are copies of a frequent one (an error
page, an empty list)."""
UNSURE: Final = "duplicates/unsure"
"""Counts pages that are stored because Redis did not answer whether they are duplicates."""


class _RecentClaims:
    """Claims that were found lately. They never change: the first claim of a content stands."""

    def __init__(self) -> None:
        self._claims: OrderedDict[bytes, Claim] = OrderedDict()  # the least recently used first

    def claim(self, digest: bytes) -> Claim | None:
        claim = self._claims.get(digest)
        if claim is not None:
            self._claims.move_to_end(digest)
        return claim

    def add(self, claim: Claim) -> None:
        self._claims[claim.digest] = claim
        if len(self._claims) > MAX_KNOWN:
            self._claims.popitem(last=False)

    def clear(self) -> None:
        self._claims.clear()


class SharedDuplicates:
    """Implements duplicates.exact.Duplicates. Bound: a reservation for each open lease, and
    MAX_KNOWN claims."""

    def __init__(
        self,
        link: ShardClient,
        batcher: Batcher[Call],
        hold_s: float = HOLD_S,
        is_gone: Callable[[str], bool] | None = None,
    ) -> None:
        """*is_gone* is called with the record of a claim. Where it has gone, a page is stored
        whole; the claim stays, as claims in Redis do."""
        self._contents = link.contents
        self._batcher = batcher
        self._send_later = link.send_later
        self._count = link.count
        self._hold_s = hold_s
        self._is_gone = is_gone
        self._known = _RecentClaims()
        self._here = LocalDuplicates(self._known)
        self._reserved: dict[int, bytes] = {}  # digests that may be reserved in Redis, by lease

    async def original(self, digest: bytes, url: str, lease_id: int) -> Claim | None:
        """Return the claim of the page that has this content, which may be *url* itself. Returns
        None if there is none: then the content is reserved for *url* until `release`."""
        if self._reserved.get(lease_id, digest) != digest:
            self.release(lease_id)
        claim = await self._here.original(digest, url, lease_id)
        if claim is not None:
            return claim
        self._reserved[lease_id] = digest
        try:
            claim = await self._ask(digest, lease_id)
        except BaseException:
            self.release(lease_id)
            raise
        if claim is None:
            return None
        if self._is_gone is not None and self._is_gone(claim.record):
            claim = replace(claim, record="")
        self._known.add(claim)
        self.note_claim(lease_id)  # another page has the claim, so nothing is reserved
        self._here.release(lease_id)
        return claim if claim.url != url or claim.record else None

    def forget_known(self) -> None:
        self._known.clear()

    def note_claim(self, lease_id: int) -> None:
        """Note that a claim is sent. The claim ends the reservation, so `release` sends nothing."""
        self._reserved.pop(lease_id, None)

    def release(self, lease_id: int) -> None:
        """End the reservation of a page that is finished or given up; waiting pages look again."""
        self._here.release(lease_id)
        digest = self._reserved.pop(lease_id, None)
        if digest is not None:
            self._send_later(self._contents.claim(digest, lease_id, None))

    async def _ask(self, digest: bytes, lease_id: int) -> Claim | None:
        call = self._contents.reserve(digest, lease_id, self._hold_s)
        try:
            # Two reservations may expire: that of a worker that was killed, and of the next one.
            async with asyncio.timeout(2 * self._hold_s):
                reply = await self._wait_for_decision(call)
        except TimeoutError:
            reply = None
        if reply is not None and reply[1] == b"yours":
            return None
        claim = _claim_in(reply, digest)
        if claim is None:
            self._count(UNSURE)
        return claim

    async def _wait_for_decision(self, call: Call) -> Any:
        """Wait until no other page has the content reserved, and return the reply, or None after
        a Fault."""
        wait_s = POLL_S
        while True:
            reply = await self._batcher.ask(call)
            if isinstance(reply, FAULTS):
                return None
            if reply[1] != b"wait":
                return reply
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, SLOW_POLL_S)


def _claim_in(reply: Any, digest: bytes) -> Claim | None:
    """Return the claim in *reply*, or None if it has no valid claim on *digest*."""
    try:
        _, _, packed, file = reply
        claim = read_claim(packed, file)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return None
    return claim if claim.digest == digest else None

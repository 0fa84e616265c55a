"""The memory that bodies take, shared by all that is under way.

Rule: a body counts from its first byte until its record is written. Where there is no room left
large ones wait, in the order in which they became large; but the first of these never does, and
nothing that comes after download and decoding waits for memory, so somebody always gets to an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from scrapy import Request

from crawler.crawl.in_flight import (
    LEASE,
    Fetch,
    InFlight,
)
from crawler.model.types import Lease

# Most pages are smaller, and pass however little room there is. A read from a socket may bring as
# much, so that whoever waits holds it anyway.
FREE_BYTES: Final = 256 * 1024
LOOK_S: Final = 1.0  # between two looks of who waits: a shared frontier is heard of as often


@dataclass(slots=True, eq=False)
class BodyShare:
    """What one page holds."""

    flight: Fetch | None
    """None: it is nobody's. It does not count, as nobody says when it ends, and does not wait,
    as what is fetched beside a page may hold up the very page that it would wait for."""
    bytes: int = 0


class _Waiting(NamedTuple):
    """Ordered by age."""

    age: int
    number: int
    share: BodyShare
    by_bytes: int
    called: asyncio.Future[None]


class BodyMemory:
    """What is counted stays below the maximum, and FREE_BYTES for each body under way, and what the
    oldest large one still lacks: at most its cap, once as sent and once decoded."""

    def __init__(
        self,
        max_bytes: int,
        flights: InFlight,
        is_ours: Callable[[Lease], bool],
        tell: Callable[[str, int], None],
    ) -> None:
        """*is_ours*: whether a lease surely is, for a total time-out from now. *tell*: counts."""
        self.bytes = 0
        self._max_bytes = max_bytes
        self._flights = flights
        self._is_ours = is_ours
        self._tell = tell
        self._shares: dict[int, BodyShare] = {}  # by lease
        self._large: dict[BodyShare, int] = {}  # and their age, the oldest first
        self._waiting: list[_Waiting] = []  # a heap; who was called is taken off later
        self._numbers = count()

    def share_of(self, request: Request) -> BodyShare:
        flight = self._flights.of(request.meta.get(LEASE))
        if flight is None:
            return BodyShare(None)
        share = self._shares.get(flight.lease.id)
        if share is None:
            share = self._shares[flight.lease.id] = BodyShare(flight)
        return share

    def has_room(self, share: BodyShare, by_bytes: int) -> bool:
        """Whether it may grow by so much; if not, it waits for its `turn`."""
        if self.bytes + by_bytes <= self._max_bytes or share.bytes + by_bytes <= FREE_BYTES:
            return True
        return share.flight is None or next(iter(self._large), share) is share

    def add(self, share: BodyShare, by_bytes: int) -> None:
        """It has grown."""
        if share.flight is None:
            return
        self.bytes += by_bytes
        share.bytes += by_bytes
        if share.bytes > FREE_BYTES:
            self._age(share)

    def is_ours(self, share: BodyShare) -> bool:
        """Whether a fetch for it may go on for as long as one that begins now."""
        return share.flight is None or self._is_ours(share.flight.lease)

    async def turn(
        self, share: BodyShare, by_bytes: int, look: Callable[[], None] | None = None
    ) -> None:
        """Wait until it may grow by so much. *look*, if any, is called at first and then every
        second."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            while not self.has_room(share, by_bytes):
                await self._called(share, by_bytes, look)
        finally:
            self._wake()  # there may be room for the next too
            self._note(share, now_s() - began_s)

    def settle(self, lease_id: int) -> None:
        """Its page is finished. Implements scheduler.landing.Reservations."""
        share = self._shares.pop(lease_id, None)
        if share is None:
            return
        share.flight = None
        self.bytes -= share.bytes
        self._large.pop(share, None)
        self._wake()

    async def _called(
        self, share: BodyShare, by_bytes: int, look: Callable[[], None] | None
    ) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        age, number = self._age(share), next(self._numbers)
        heappush(self._waiting, _Waiting(age, number, share, by_bytes, called))
        try:
            while not called.done():
                if look is not None:
                    look()
                await asyncio.wait([called], timeout=LOOK_S)
        finally:
            called.cancel()

    def _age(self, share: BodyShare) -> int:
        return self._large.setdefault(share, next(self._numbers))

    def _wake(self) -> None:
        """The oldest that waits, if there is room; it wakes the next."""
        waiting = self._waiting
        while waiting and waiting[0].called.done():
            heappop(waiting)
        if waiting and self.has_room(waiting[0].share, waiting[0].by_bytes):
            waiting[0].called.set_result(None)

    def _note(self, share: BodyShare, paused_s: float) -> None:
        if share.flight is not None:
            share.flight.paused_s += paused_s
        self._tell("memory/pauses", 1)
        self._tell("memory/paused_ms", round(paused_s * 1000))

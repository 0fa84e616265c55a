"""A limit on the memory of all bodies in flight.

Rule: a body counts from its first byte until its record is written. Without room large bodies wait,
in the order in which they became large, but the oldest never waits, and nothing after download and
decoding waits for memory, so one page can always be finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from crawler.loop.life import Life
from crawler.model.types import Lease

# Most bodies are smaller, and never wait. One read from a socket may return as much, so a body that
# waits holds that much anyway.
FREE_BYTES: Final = 256 * 1024
CHECK_INTERVAL_S: Final = (
    1.0  # between two checks of a body that waits: as often as a shared frontier ticks
)


@dataclass(slots=True, eq=False)
class BodyShare:
    """The memory that one page holds."""

    life: Life | None
    """None for a request without a lease. It is not counted, as its end is not known, and does not
    wait: a page may need it to be finished, and would hold the memory that it waits for."""
    bytes: int = 0


class _Waiting(NamedTuple):
    """A body that waits; ordered by age."""

    age: int
    number: int
    share: BodyShare
    by_bytes: int
    woken: asyncio.Future[None]


class BodyMemory:
    """Counts the memory of the bodies in flight, and lets large ones wait for room. Bound: the
    maximum, FREE_BYTES for each body in flight, and the rest of the oldest large body, which is at
    most its cap, once as sent and once decoded."""

    def __init__(
        self,
        max_bytes: int,
        is_lease_safe: Callable[[Lease], bool],
        add_to_stat: Callable[[str, int], None],
    ) -> None:
        """*is_lease_safe*: whether a lease is surely held for a total time-out from now.
        *add_to_stat*: adds to a counter."""
        self.used_bytes = 0
        self._max_bytes = max_bytes
        self._is_lease_safe = is_lease_safe
        self._add_to_stat = add_to_stat
        self._shares: dict[int, BodyShare] = {}  # by lease
        self._large: dict[BodyShare, int] = {}  # with their age, the oldest first
        self._waiting: list[_Waiting] = []  # a heap; entries that are woken are removed later
        self._numbers = count()

    def share_of(self, life: Life | None) -> BodyShare:
        """Return what the fetches under one lease share; None: of a request without one."""
        if life is None:
            return BodyShare(None)
        share = self._shares.get(life.lease.id)
        if share is None:
            share = self._shares[life.lease.id] = BodyShare(life)
        return share

    def has_room(self, share: BodyShare, by_bytes: int) -> bool:
        """Return whether *share* may grow by *by_bytes*; if not, call `wait_for_room`."""
        if self.used_bytes + by_bytes <= self._max_bytes or share.bytes + by_bytes <= FREE_BYTES:
            return True
        return share.life is None or next(iter(self._large), share) is share

    def add(self, share: BodyShare, by_bytes: int) -> None:
        """Count *by_bytes* more for *share*."""
        if share.life is None:
            return
        self.used_bytes += by_bytes
        share.bytes += by_bytes
        if share.bytes > FREE_BYTES:
            self._age_of(share)

    def is_lease_safe(self, share: BodyShare) -> bool:
        """Return whether its fetch may go on for as long as one that begins now."""
        return share.life is None or self._is_lease_safe(share.life.lease)

    async def wait_for_room(
        self, share: BodyShare, by_bytes: int, on_check: Callable[[], None] | None = None
    ) -> None:
        """Wait until *share* may grow by *by_bytes*. *on_check*, if any, is called at first and
        then every second."""
        now_s = asyncio.get_running_loop().time
        began_s = now_s()
        try:
            while not self.has_room(share, by_bytes):
                await self._wait_until_woken(share, by_bytes, on_check)
        finally:
            self._wake()  # there may be room for the next too
            self._add_pause(share, now_s() - began_s)

    def release(self, lease_id: int) -> None:
        """Free the memory of a page that is finished. Implements loop.Reservations."""
        share = self._shares.pop(lease_id, None)
        if share is None:
            return
        share.life = None
        self.used_bytes -= share.bytes
        self._large.pop(share, None)
        self._wake()

    async def _wait_until_woken(
        self, share: BodyShare, by_bytes: int, on_check: Callable[[], None] | None
    ) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        age, number = self._age_of(share), next(self._numbers)
        heappush(self._waiting, _Waiting(age, number, share, by_bytes, woken))
        try:
            while not woken.done():
                if on_check is not None:
                    on_check()
                await asyncio.wait([woken], timeout=CHECK_INTERVAL_S)
        finally:
            woken.cancel()

    def _age_of(self, share: BodyShare) -> int:
        return self._large.setdefault(share, next(self._numbers))

    def _wake(self) -> None:
        """Wake the oldest body that waits, if there is room; it wakes the next."""
        waiting = self._waiting
        while waiting and waiting[0].woken.done():
            heappop(waiting)
        if waiting and self.has_room(waiting[0].share, waiting[0].by_bytes):
            waiting[0].woken.set_result(None)

    def _add_pause(self, share: BodyShare, paused_s: float) -> None:
        if share.life is not None:
            share.life.pause(paused_s)
        self._add_to_stat("memory/pauses", 1)
        self._add_to_stat("memory/paused_ms", round(paused_s * 1000))

"""Near-duplicates within one worker: pages in flight, and those that were stored lately.

Rule: of two near pages in flight here the second waits for the first, never for one that came after
it. What is stored is known here at once: its way through Redis takes a second, and longer where a
server is away.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from crawler.core.types import Claim
from crawler.storage.redis.worker.near_look import Original

MOST_LATELY: Final = 1024
"""Claims kept in memory, 0.5 kB each: what is stored, and what is found often, by many at once."""


@dataclass(slots=True, eq=False)
class Flight:
    """Of a page."""

    simhash: int
    url: str
    is_known: bool = False  # its very fingerprint has an original already
    is_sure: bool = True  # all whom it was asked of have answered
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class Flights:
    """Bound: one for each lease that is open."""

    def __init__(self, most_bits: int) -> None:
        self._most_bits = most_bits
        self._by_lease: dict[int, Flight] = {}  # in the order of asking

    def begin(self, simhash: int, url: str, lease_id: int) -> Flight:
        flight = self._by_lease[lease_id] = Flight(simhash, url)
        return flight

    def end(self, lease_id: int) -> None:
        flight = self._by_lease.pop(lease_id, None)
        if flight is not None:
            flight.settled.set()

    def of(self, lease_id: int) -> Flight | None:
        return self._by_lease.get(lease_id)

    def earlier(self, mine: Flight) -> Flight | None:
        """A page that is near to *mine* and was asked for before it."""
        for other in self._by_lease.values():
            if other is mine:
                return None
            near = (other.simhash ^ mine.simhash).bit_count() <= self._most_bits
            if near and other.url != mine.url:
                return other
        return None


class Lately:
    """The newest take the place of the oldest."""

    def __init__(self, most: int = MOST_LATELY) -> None:
        self._prints = np.zeros(most, np.uint64)
        self._claims: list[Claim] = []
        self._next = 0

    def add(self, simhash: int, claim: Claim) -> None:
        self._prints[self._next] = simhash
        self._claims[self._next : self._next + 1] = [claim]
        self._next = (self._next + 1) % len(self._prints)

    def near(self, simhash: int, most_bits: int) -> list[Original]:
        apart = np.bitwise_count(self._prints[: len(self._claims)] ^ np.uint64(simhash))
        places = (apart <= most_bits).nonzero()[0].tolist()
        return [Original(int(apart[at]), self._claims[at]) for at in places]

"""Near-duplicates within one worker: pages that were stored lately.

Rule: what is stored is known here at once: its way through Redis takes a second, and longer where a
server is away.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from crawler.core.types import Claim
from crawler.storage.redis.worker.near_look import Original

MOST_LATELY: Final = 1024
"""Claims kept in memory, 0.5 kB each: what is stored, and what is found often, by many at once."""


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

"""Compares the counters of a frontier with its records and queues.

Rule: the counters are for display only. How many URLs are done, or were ever admitted, is only in
its counter and cannot be counted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import (
    FrontierTotals,
    decode_totals,
    encode,
)

_SLICE: Final = 10_000
_COUNTED: Final[Mapping[str, bytes]] = {
    "waiting": keys.QUEUED,
    "later": keys.LATER,
    "leased": keys.OPEN,
    "seen": keys.SEEN,
    "dead": keys.DEAD,
}


@dataclass(frozen=True, slots=True)
class RecountedCounter:
    """A counter, and what it should be."""

    name: str
    stored: int
    counted: int
    shard: int | None = None  # of a shared frontier

    @property
    def differs(self) -> bool:
        return self.stored != self.counted


def count_again(store: OrderedStore) -> list[RecountedCounter]:
    """Count the records behind each counter. O(URLs), in bounded memory."""
    totals = _totals(store)
    return [
        RecountedCounter(name, getattr(totals, name), _number(store, prefix))
        for name, prefix in _COUNTED.items()
    ]


def correct_counters(store: OrderedStore, counted: list[RecountedCounter]) -> None:
    """Correct the counters in *store*, which no process may have open."""
    totals = _totals(store)
    for each in counted:
        setattr(totals, each.name, each.counted)
    store.write({keys.TOTALS: encode(totals)})


def _totals(store: OrderedStore) -> FrontierTotals:
    packed = store.get(keys.TOTALS)
    return decode_totals(packed) if packed else FrontierTotals(front=[])


def _number(store: OrderedStore, prefix: bytes) -> int:
    number, begin, stop = 0, prefix, keys.prefix_end(prefix)
    while found := store.scan(begin, stop, _SLICE):
        number += len(found)
        begin = found[-1][0] + b"\0"
    return number

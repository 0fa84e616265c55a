"""What a run is made of: other runs, and a batch of the newest pages.

Rule: a source is sorted; pages with one fingerprint stand in the order in which they came.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from crawler.storage.near.orders import Order, Prints

# Of a page's digest: 96 bits tell 1e9 pages apart (two alike: once in 1e11 crawls).
DIGEST_BYTES: Final = 12

Lists = NDArray[np.uint32]
Digests = NDArray[np.uint8]  # a row for each page


class Source(Protocol):
    @property
    def prints(self) -> Prints:
        """The different fingerprints, sorted."""

    @property
    def lists(self) -> Lists:
        """Where in `digests` the pages of each begin; and, last, where all end."""

    @property
    def digests(self) -> Digests: ...

    def ordered(self, order: Order) -> Prints:
        """`prints`, sorted in this order."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The newest pages, as they came."""

    prints: Prints
    digests: list[bytes]  # in full


class Sorted:
    """A batch as a source."""

    def __init__(self, batch: Batch) -> None:
        order = np.argsort(batch.prints, kind="stable")
        packed = b"".join(digest[:DIGEST_BYTES] for digest in batch.digests)
        self.digests: Digests = (
            np.frombuffer(packed, np.uint8).reshape(-1, DIGEST_BYTES).take(order, axis=0)
        )
        prints = batch.prints[order]
        begins = np.flatnonzero(firsts(prints))
        self.prints: Prints = prints[begins]
        self.lists: Lists = np.append(begins, len(prints)).astype(np.uint32)

    def ordered(self, order: Order) -> Prints:
        return sorted_in(self.prints, order)


def sorted_in(prints: Prints, order: Order) -> Prints:
    return order.prints(np.sort(order.keys(prints)))


def firsts(ordered: Prints) -> NDArray[np.bool]:
    """Which of them differ from the one before."""
    first = np.ones(len(ordered), np.bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first

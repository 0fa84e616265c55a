"""Sorted sources cut into pieces that fit into memory, the same stretch of keys from each.

Rule: a piece has at most `piece` fingerprints of a source and, where pages count, at most twice
`piece` pages; only a fingerprint with more pages than that is a piece of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

import numpy as np

from crawler.storage.near.orders import BITS, Order, Prints
from crawler.storage.near.sources import Source

Piece = list[tuple[int, int]]  # of each source: from, to


def pieces(ordered: Sequence[Prints], order: Order, cuts: Prints) -> Iterator[Piece]:
    """*cuts*: keys, sorted, at each of which a piece begins."""
    begins = [0] * len(ordered)
    for cut in [*cuts.tolist(), 1 << BITS]:
        ends = [
            bisect_left(prints, cut, lo=begin, key=lambda one: order.key(int(one)))
            for prints, begin in zip(ordered, begins, strict=True)
        ]
        if begins != ends:
            yield list(zip(begins, ends, strict=True))
        begins = ends


def cuts_by_fingerprints(ordered: Sequence[Prints], order: Order, piece: int) -> Prints:
    return np.unique(np.concatenate([order.keys(prints[piece::piece]) for prints in ordered]))


def cuts_by_pages(sources: Sequence[Source], piece: int) -> Prints:
    """Keys of the first order, which are the fingerprints themselves."""
    return np.unique(np.concatenate([_cuts(source, piece) for source in sources]))


def _cuts(source: Source, piece: int) -> Prints:
    lists = source.lists
    pages = np.arange(piece, int(lists[-1]), piece, dtype=np.uint32)
    of = np.searchsorted(lists, pages, side="right") - 1
    prints = source.prints[of]
    long = lists[of + 1] - lists[of] > piece
    return np.concatenate([prints, prints[long] + np.uint64(1)])

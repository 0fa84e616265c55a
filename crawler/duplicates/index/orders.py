"""The orders in which fingerprints are sorted, so that near ones begin alike in one of them.

Rule: of two fingerprints that differ in at most 3 bits, cut into 3 + e blocks, e blocks are equal.
So there is an order for each choice of e blocks, which come first in it, and a search compares only
those that begin alike in some order (Manku and others, 2007).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Prints = NDArray[np.uint64]  # fingerprints

MAX_BITS: Final = 3  # that may differ
BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Block:
    shift: int  # of its lowest bit
    width: int


@dataclass(frozen=True)
class Order:
    """An order by blocks of bits. `key` moves the blocks to their places in the order."""

    blocks: tuple[Block, ...]
    equal: int  # how many of the first blocks must be equal

    @cached_property
    def equal_bits(self) -> int:
        return sum(block.width for block in self.blocks[: self.equal])

    @cached_property
    def _moves(self) -> tuple[tuple[int, int, int], ...]:
        """Shift before, mask, shift after; blocks that stay neighbours are moved together."""
        spans: list[Block] = []
        for block in self.blocks:
            joined = spans and spans[-1].shift == block.shift + block.width
            width = spans.pop().width if joined else 0
            spans.append(Block(block.shift, width + block.width))
        places = [sum(span.width for span in spans[at + 1 :]) for at in range(len(spans))]
        return tuple(
            (span.shift, (1 << span.width) - 1, place)
            for span, place in zip(spans, places, strict=True)
        )

    def key(self, fingerprint: int) -> int:
        return sum((fingerprint >> shift & mask) << place for shift, mask, place in self._moves)

    def keys(self, prints: Prints) -> Prints:
        return _moved(prints, self._moves)

    def prints(self, keys: Prints) -> Prints:
        """Return the fingerprints that have *keys*."""
        return _moved(keys, tuple((place, mask, shift) for shift, mask, place in self._moves))


def _moved(values: Prints, moves: tuple[tuple[int, int, int], ...]) -> Prints:
    if len(moves) == 1:
        return values
    moved = np.zeros(len(values), np.uint64)
    for before, mask, after in moves:
        part = values >> np.uint64(before)
        part &= np.uint64(mask)
        part <<= np.uint64(after)
        moved |= part
    return moved


def _orders(widths: list[int], equal: int) -> tuple[Order, ...]:
    blocks = [Block(BITS - sum(widths[: at + 1]), width) for at, width in enumerate(widths)]
    chosen = combinations(blocks, equal)
    return tuple(
        Order((*first, *(block for block in blocks if block not in first)), equal)
        for first in chosen
    )


# The first order is that of the numbers themselves. Bytes a page, and fingerprints compared in a
# search if they are spread evenly: 4 orders 32 and n / 16,384; 10 orders 80 and n / 3,355,443.
FOUR: Final = _orders([16] * 4, equal=1)
TEN: Final = _orders([13, 13, 13, 13, 12], equal=2)


# Of a page's digest: 96 bits distinguish 1e9 pages (two equal ones once in 1e11 crawls).
DIGEST_BYTES: Final = 12

Lists = NDArray[np.uint32]
Digests = NDArray[np.uint8]  # a row for each page


class SortedSource(Protocol):
    """What a run is made from: another run, or a batch of the newest pages. Pages with one
    fingerprint are in the order in which they were added."""

    @property
    def prints(self) -> Prints:
        """The distinct fingerprints, sorted."""

    @property
    def lists(self) -> Lists:
        """Where in `digests` the pages of each fingerprint begin, and last, where all end."""

    @property
    def digests(self) -> Digests: ...

    def ordered(self, order: Order) -> Prints:
        """Return `prints`, sorted in *order*."""


@dataclass(frozen=True, slots=True, eq=False)
class NewestPages:
    """The newest pages, in the order in which they were added."""

    prints: Prints
    digests: list[bytes]  # in full


class SortedBatch:
    """A batch of pages as a SortedSource."""

    def __init__(self, batch: NewestPages) -> None:
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
    """Return for each of *ordered* whether it differs from the one before."""
    first = np.ones(len(ordered), np.bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first


# A piece is the same stretch of keys from each source, small enough for memory: at most `piece`
# fingerprints of a source and, if cut by pages, at most twice `piece` pages; only a fingerprint
# with more pages than that is a piece by itself.
Piece = list[tuple[int, int]]  # for each source: from, to


def pieces(ordered: Sequence[Prints], order: Order, cuts: Prints) -> Iterator[Piece]:
    """Yield the pieces of *ordered*. *cuts*: sorted keys, at each of which a piece begins."""
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


def cuts_by_pages(sources: Sequence[SortedSource], piece: int) -> Prints:
    """Return cuts in the first order, in which keys are the fingerprints themselves."""
    return np.unique(np.concatenate([_cuts(source, piece) for source in sources]))


def _cuts(source: SortedSource, piece: int) -> Prints:
    lists = source.lists
    pages = np.arange(piece, int(lists[-1]), piece, dtype=np.uint32)
    of = np.searchsorted(lists, pages, side="right") - 1
    prints = source.prints[of]
    long = lists[of + 1] - lists[of] > piece
    return np.concatenate([prints, prints[long] + np.uint64(1)])

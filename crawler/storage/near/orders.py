"""The orders in which fingerprints are sorted, so that a near one stands beside.

Rule: of two fingerprints that differ in at most 3 bits, cut into 3 + e blocks, e blocks are
equal. So there is an order for each e blocks, which come first in it; in one of them the two
stand among those that begin alike, and nowhere else need be looked (Manku and others, 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

Prints = NDArray[np.uint64]  # fingerprints

MOST_BITS: Final = 3  # may differ
BITS: Final = 64


@dataclass(frozen=True, slots=True)
class Block:
    shift: int  # of its lowest bit
    width: int


@dataclass(frozen=True)
class Order:
    """Sorted by its blocks, in their order; `key` moves them there."""

    blocks: tuple[Block, ...]
    equal: int  # so many of the first must be equal

    @cached_property
    def equal_bits(self) -> int:
        return sum(block.width for block in self.blocks[: self.equal])

    @cached_property
    def _moves(self) -> tuple[tuple[int, int, int], ...]:
        """Shift before, mask, shift after; neighbours that stay neighbours move as one."""
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
        """What has these keys."""
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


# The first is that of the numbers themselves. Bytes a page, and candidates a search where
# fingerprints are spread: 4 orders 32 and n / 16,384; 10 orders 80 and n / 3,355,443.
FOUR: Final = _orders([16] * 4, equal=1)
TEN: Final = _orders([13, 13, 13, 13, 12], equal=2)

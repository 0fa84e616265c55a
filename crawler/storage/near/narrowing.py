"""A long stretch of fingerprints that begin alike, narrowed to those that can be near.

Rule: what is within 3 bits is kept, whatever else. Ordinarily a stretch has 30 fingerprints and
is compared whole; if somebody makes texts whose fingerprints begin alike it may have all. Then
the next block is tried with each up to 3 of its bits changed, and the next with what changes are
left: at most 18,473 searches (0 to 3 of 48 bits), however many there are. 0.1 to 10 ms.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crawler.storage.near.orders import BITS, MOST_BITS, Order, Prints

Places = NDArray[np.int64]


def narrowed(
    prints: Prints, order: Order, fingerprint: int, begin: int, end: int, most: int
) -> Prints:
    """Of `prints[begin:end]`, sorted in *order*. Ends as soon as at most *most* are left."""
    key, place = order.key(fingerprint), BITS - order.equal_bits
    alike = np.array([key >> place << place], np.uint64)
    left = np.array([MOST_BITS])  # how many bits may differ in what follows
    begins, ends = _within(prints, order, alike, place, np.array([begin]), np.array([end]))
    for block in order.blocks[order.equal :]:
        if (ends - begins).sum() <= most:
            break
        place -= block.width
        own = (key >> place & ((1 << block.width) - 1)) << place
        parent, changes, left = _changed(block.width, left)
        alike = alike[parent] | (changes << np.uint64(place) ^ np.uint64(own))
        begins, ends = _within(prints, order, alike, place, begins[parent], ends[parent])
        kept = begins < ends
        alike, left, begins, ends = alike[kept], left[kept], begins[kept], ends[kept]
    return prints[_every(begins, ends)]


def _changed(width: int, left: Places) -> tuple[Places, Prints, Places]:
    """For each of *left*: itself, by its place, with each change of that many bits or fewer."""
    masks, counts = _masks(width)
    parents, changes, rest = [], [], []
    for bits in range(MOST_BITS + 1):
        of = np.flatnonzero(left == bits)
        some = counts <= bits
        parents.append(np.repeat(of, some.sum()))
        changes.append(np.tile(masks[some], len(of)))
        rest.append(bits - np.tile(counts[some], len(of)))
    return np.concatenate(parents), np.concatenate(changes), np.concatenate(rest)


@cache
def _masks(width: int) -> tuple[Prints, Places]:
    """All ways to choose up to 3 of *width* bits, and how many each has."""
    chosen = [
        sum(1 << bit for bit in bits)
        for count in range(MOST_BITS + 1)
        for bits in combinations(range(width), count)
    ]
    masks = np.array(chosen, np.uint64)
    return masks, np.bitwise_count(masks).astype(np.int64)


def _within(
    prints: Prints, order: Order, alike: Prints, place: int, begins: Places, ends: Places
) -> tuple[Places, Places]:
    """Between *begins* and *ends*, where the keys are equal to *alike* down to bit *place*."""
    last = alike | np.uint64((1 << place) - 1)
    first_at = _search(prints, order, alike, begins, ends, or_equal=False)
    return first_at, _search(prints, order, last, begins, ends, or_equal=True)


def _search(
    prints: Prints, order: Order, keys: Prints, begins: Places, ends: Places, *, or_equal: bool
) -> Places:
    """Where the first key is that is not less (or equal); a binary search for all at once."""
    begins, ends = begins.copy(), ends.copy()
    while (open_ := np.flatnonzero(begins < ends)).size:
        middle = (begins[open_] + ends[open_]) // 2
        found = order.keys(prints[middle])
        less = found <= keys[open_] if or_equal else found < keys[open_]
        begins[open_] = np.where(less, middle + 1, begins[open_])
        ends[open_] = np.where(less, ends[open_], middle)
    return begins


def _every(begins: Places, ends: Places) -> Places:
    """Each place between each begin and its end."""
    sizes = ends - begins
    before = np.cumsum(sizes) - sizes
    every: Places = np.arange(sizes.sum()) + np.repeat(begins - before, sizes)
    return every

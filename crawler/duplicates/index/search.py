"""The search of the index: the newest pages one by one, and the runs on disk.

Rule: a view is immutable, so it can be searched while the next one is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from crawler.duplicates.index.orders import (
    BITS,
    DIGEST_BYTES,
    MAX_BITS,
    NewestPages,
    Order,
    Prints,
)
from crawler.duplicates.index.runs import SortedRun

Places = NDArray[np.int64]


def narrow(
    prints: Prints, order: Order, fingerprint: int, begin: int, end: int, most: int
) -> Prints:
    """Narrow `prints[begin:end]`, sorted in *order*, until at most *most* are left, and keep all
    that are within 3 bits of *fingerprint*.

    Usually a stretch has 30 fingerprints and is compared whole, but texts can be made whose
    fingerprints all begin alike. Then the next block is tried with up to 3 of its bits changed, and
    the one after it with the changes that are left: at most 18,473 searches (0 to 3 of 48 bits) for
    any number of fingerprints, in 0.1 to 10 ms."""
    key, place = order.key(fingerprint), BITS - order.equal_bits
    alike = np.array([key >> place << place], np.uint64)
    left = np.array([MAX_BITS])  # how many bits may differ in the blocks that follow
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
    return prints[_all_places(begins, ends)]


def _changed(width: int, left: Places) -> tuple[Places, Prints, Places]:
    """Return each change of at most as many bits as each of *left* allows, with the index in *left*
    and the number of bits that it leaves."""
    masks, counts = _masks(width)
    parents, changes, rest = [], [], []
    for bits in range(MAX_BITS + 1):
        of = np.flatnonzero(left == bits)
        some = counts <= bits
        parents.append(np.repeat(of, some.sum()))
        changes.append(np.tile(masks[some], len(of)))
        rest.append(bits - np.tile(counts[some], len(of)))
    return np.concatenate(parents), np.concatenate(changes), np.concatenate(rest)


@cache
def _masks(width: int) -> tuple[Prints, Places]:
    """Return all masks of up to 3 of *width* bits, and how many bits each has."""
    chosen = [
        sum(1 << bit for bit in bits)
        for count in range(MAX_BITS + 1)
        for bits in combinations(range(width), count)
    ]
    masks = np.array(chosen, np.uint64)
    return masks, np.bitwise_count(masks).astype(np.int64)


def _within(
    prints: Prints, order: Order, alike: Prints, place: int, begins: Places, ends: Places
) -> tuple[Places, Places]:
    """Return where between *begins* and *ends* the keys equal *alike* down to bit *place*."""
    last = alike | np.uint64((1 << place) - 1)
    first_at = _search(prints, order, alike, begins, ends, or_equal=False)
    return first_at, _search(prints, order, last, begins, ends, or_equal=True)


def _search(
    prints: Prints, order: Order, keys: Prints, begins: Places, ends: Places, *, or_equal: bool
) -> Places:
    """Return where the first key is that is not less (or equal), by one binary search for all."""
    begins, ends = begins.copy(), ends.copy()
    while (open_ := np.flatnonzero(begins < ends)).size:
        middle = (begins[open_] + ends[open_]) // 2
        found = order.keys(prints[middle])
        less = found <= keys[open_] if or_equal else found < keys[open_]
        begins[open_] = np.where(less, middle + 1, begins[open_])
        ends[open_] = np.where(less, ends[open_], middle)
    return begins


def _all_places(begins: Places, ends: Places) -> Places:
    """Return each place between each begin and its end."""
    sizes = ends - begins
    before = np.cumsum(sizes) - sizes
    places: Places = np.arange(sizes.sum()) + np.repeat(begins - before, sizes)
    return places


_HEAD: Final = 8  # bytes of a digest by which known ones are found
_CHUNK: Final = 1 << 17  # pages of one fingerprint read at a time


@dataclass(frozen=True, slots=True)
class NearMatch:
    fingerprint: int
    bits: int  # that differ


class IndexView:
    def __init__(self, runs: Sequence[SortedRun] = (), waiting: Sequence[NewestPages] = ()) -> None:
        """*waiting*: batches that are to become runs. Both are oldest first."""
        self.runs = tuple(runs)
        self.waiting = tuple(waiting)
        self._prefix_lookups = [probe for run in runs for probe in run.prefix_lookups]
        self._waiting_prints = [batch.prints for batch in waiting]

    def near(
        self, fingerprint: int, max_bits: int, newest: Prints, stretch: int
    ) -> list[NearMatch]:
        """Return every fingerprint within *max_bits* (3 at most), nearest first."""
        if not 0 <= max_bits <= MAX_BITS:
            raise ValueError(f"the index finds what is within {MAX_BITS} bits, not {max_bits}")
        found = np.concatenate([newest, *self._waiting_prints, *self._beside(fingerprint, stretch)])
        bits = np.bitwise_count(found ^ np.uint64(fingerprint))
        # Most pages are near to none, and this takes 2 us less than finding all.
        if not len(bits) or bits[bits.argmin()] > max_bits:
            return []
        places = (bits <= max_bits).nonzero()[0]
        near = dict(zip(found[places].tolist(), bits[places].tolist(), strict=True))
        return [NearMatch(each, near[each]) for each in sorted(near, key=near.__getitem__)]

    def _beside(self, fingerprint: int, stretch: int) -> list[Prints]:
        """Return the fingerprints that begin alike in each order of each run. Written for speed:
        0.4 us an order."""
        beside = []
        for shift, mask, more, more_shift, more_mask, starts, prints, order in self._prefix_lookups:
            at = fingerprint >> shift & mask
            if more:
                at = at << more | fingerprint >> more_shift & more_mask
            begin, end = starts[at], starts[at + 1]
            if end - begin > stretch:
                beside.append(narrow(prints, order, fingerprint, begin, end, stretch))
            elif begin < end:
                beside.append(prints[begin:end])
        return beside

    def pages(self, fingerprint: int, limit: int) -> tuple[list[bytes], int]:
        """Return, for exactly this fingerprint, the first bytes of the digests of its oldest pages,
        and how many pages it has."""
        digests: list[bytes] = []
        count = 0
        for run in self.runs:
            begin, end = run.pages(fingerprint)
            if begin < end:
                wanted = run.digests[begin : min(end, begin + limit - len(digests))]
                digests += [row.tobytes() for row in wanted]
                count += end - begin
        for batch in self.waiting:
            for at in np.flatnonzero(batch.prints == np.uint64(fingerprint)).tolist():
                digests.append(batch.digests[at][:DIGEST_BYTES])
                count += 1
        return digests[:limit], count

    def known(self, fingerprint: int, digests: set[bytes]) -> set[bytes]:
        """Return which of *digests* are among the pages of *fingerprint* in runs."""
        heads = np.array([_head(digest) for digest in digests], np.uint64)
        found: set[int] = set()
        for chunk in self._chunks(fingerprint):
            found.update(heads[np.isin(heads, chunk)].tolist())
        return {digest for digest in digests if _head(digest) in found}

    def _chunks(self, fingerprint: int) -> Iterator[NDArray[np.uint64]]:
        for run in self.runs:
            begin, end = run.pages(fingerprint)
            for at in range(begin, end, _CHUNK):
                rows = run.digests[at : min(at + _CHUNK, end), :_HEAD]
                yield np.ascontiguousarray(rows).view("<u8")[:, 0]


def _head(digest: bytes) -> int:
    return int.from_bytes(digest[:_HEAD], "little")

"""The gate before the seen URLs: a Bloom filter that says in memory which keys are surely new.

Source: split-block Bloom filters as in Apache Parquet and Impala: a key sets one bit in each of the
eight 32-bit words of one block, so a look-up touches one cache line (Putze, Sanders, Singler,
"Cache-, Hash- and Space-Efficient Bloom Filters", 2007).

Rule: a key that was added is found at every moment. Blocks are ordered by the top bits of the keys,
so the filter grows in one sweep over the keys in pieces: below the swept key the new blocks hold,
from there on the old ones, whose memory is given back behind the sweep.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.run_files import Flags, Keys, Places

Source: TypeAlias = Callable[[int, int], Iterator[Keys]]
"""Returns all keys from the first argument to below the second, with those not yet stored, as
at the time of the call: `Drum.keys_in`."""

Words: TypeAlias = NDArray[np.uint32]

# Bytes a key of a filter that is full: 10.6 bits, of which 0.97 % of new keys are taken for known
# (measured; with 10 bits 1.27 %). It then grows to 1.17 times that, 1.55 bytes, with 1.6 as the
# bound; the average is 0.7 %. Each growth reads all keys: over a crawl each key seven times.
FULL_BYTES: Final = 1.325
GROWTH: Final = 1.17
BLOCK: Final = 32  # bytes
# A piece of a growth: 65,536 keys take a thread 8 ms. Small filters grow by a 64th at a time, as
# the old and the new blocks of a piece are both in memory.
_PIECE_KEYS: Final = 1 << 16
_PIECES: Final = 64
_LEAST_KEYS: Final = 1 << 16
_SMALL: Final = 256  # keys that are added one page at a time
_BATCH: Final = 1 << 14  # keys whose masks, 512 KB, stay in the second cache

_SALTS: Final = np.array(
    [
        *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
        *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
    ],
    np.uint32,
)
_HALF: Final = np.uint64(32)
_SHIFT: Final = np.uint32(27)
_ONE: Final = np.uint32(1)
_ROW: Final = np.dtype("V32")


def _masks(keys: Keys) -> Words:
    """Return the bits of each key in its block, from the lower half of the key."""
    masks = keys.astype(np.uint32)[:, None] * _SALTS
    masks >>= _SHIFT
    bits: Words = np.left_shift(_ONE, masks, out=masks)
    return bits


def _covers(rows: Words, masks: Words) -> Flags:
    """Return for which the bits of *masks* are all set in *rows*. Compared as 32 bytes, in 4 us for
    40; a comparison of the words, and of its rows all, takes 7."""
    found: Flags = (rows & masks).view(_ROW).ravel() == masks.view(_ROW).ravel()
    return found


class _Blocks:
    """Blocks for all keys, ordered by the upper half of the key."""

    def __init__(self, count: int) -> None:
        self.count, self._factor = count, np.uint64(count)
        # Pages that nothing was written to take no memory.
        self._memory = mmap.mmap(-1, count * BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.words: Words = np.frombuffer(self._memory, np.uint32).reshape(count, 8)
        self._rows: NDArray[Any] = np.frombuffer(self._memory, _ROW)

    def places(self, keys: Keys) -> Places:
        places = keys >> _HALF
        places *= self._factor
        places >>= _HALF
        return places.view(np.int64)

    def find(self, keys: Keys) -> Flags:
        return _covers(self.words.take(self.places(keys), axis=0), _masks(keys))

    def first_key(self, block: int) -> int:
        """Return the lowest key of *block*; of that after the last, 2**64."""
        return -(-(block << 32) // self.count) << 32

    def add(self, keys: Keys) -> None:
        if len(keys) > _SMALL:
            keys = np.sort(keys)
            for begin in range(0, len(keys), _BATCH):
                self._add_sorted(keys[begin : begin + _BATCH])
            return
        places = self.places(keys)
        self.set_bits(places, _masks(keys), self.words.take(places, axis=0))

    def set_bits(self, places: Places, masks: Words, rows: Words) -> None:
        """Set the bits of *masks*, which is changed, in the blocks at *places*, now *rows*."""
        if len(set(places.tolist())) < len(places):
            np.bitwise_or.at(self.words, places, masks)
            return
        masks |= rows
        self._rows[places] = masks.view(_ROW).ravel()

    def _add_sorted(self, keys: Keys) -> None:
        """80 ns a key; `bitwise_or.at` takes 120 to 260."""
        places = self.places(keys)
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        masks = np.bitwise_or.reduceat(_masks(keys), firsts, axis=0)
        places = places.take(firsts)
        masks |= self.words.take(places, axis=0)
        self._rows[places] = masks.view(_ROW).ravel()

    def release(self, begin: int, end: int) -> None:
        """Give back the memory of the blocks from *begin* to below *end*, as far as whole pages."""
        page = mmap.PAGESIZE
        first, last = begin * BLOCK // page * page, end * BLOCK // page * page
        if first < last and hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)


class GatePiece:
    """A piece of the growth of a gate: its keys, from *low* to below *high*."""

    def __init__(self, blocks: _Blocks, begin: int, end: int) -> None:
        self._blocks, self.begin, self.end = blocks, begin, end
        self.low, self.high = blocks.first_key(begin), blocks.first_key(end)
        self.recorded: list[Keys] = []  # added after the piece was begun
        self.count = 0  # keys

    def build(self, source: Source) -> None:
        """Set the bits of the keys of *source*. For a thread: it holds the interpreter lock for
        less than 1 ms at a time, and writes where no other reads or writes."""
        for keys in source(self.low, self.high):
            self._blocks.add(keys)
            self.count += len(keys)


class Gate:
    """Which keys are surely new. Memory: 1.33 to 1.55 bytes a key above 1e6 keys, and never more
    than 1.6. Not thread-safe, other than `GatePiece.build`."""

    def __init__(self, keys: int = 0) -> None:
        """Make an empty gate with room for *keys*, which the caller then adds."""
        self._blocks = _Blocks(_blocks_for(keys))
        self._next: _Blocks | None = None  # while it grows
        self._swept_blocks = 0  # of those
        self._swept = np.uint64(0)  # keys below this one are in those
        self._piece: GatePiece | None = None  # that is built
        self._count = self._swept_count = 0  # keys added; of them, in the next blocks

    def __len__(self) -> int:
        """Keys that were added; more than there are if a key was added twice."""
        return self._count

    @property
    def memory_bytes(self) -> int:
        if self._next is None:
            return self._blocks.count * BLOCK
        old = int(self._swept) * self._blocks.count >> 64
        built = self._swept_blocks if self._piece is None else self._piece.end
        return (self._blocks.count - old + built) * BLOCK

    def may_contain(self, keys: Keys) -> Flags:
        """Return False for keys that were never added; of those, True for one in a hundred."""
        if len(keys) > _BATCH:
            pieces = range(0, len(keys), _BATCH)
            return np.concatenate([self.may_contain(keys[at : at + _BATCH]) for at in pieces])
        found = self._blocks.find(keys)
        if self._next is not None:
            np.copyto(found, self._next.find(keys), where=keys < self._swept)
        return found

    def test_and_add(self, keys: Keys) -> Flags:
        """Add *keys* and return what `may_contain` did before: of equal ones the same. For a page
        of 40 links it takes 16 us, and the two one after the other 22."""
        if self._next is not None or len(keys) > _SMALL:
            found = self.may_contain(keys)
            self.add(keys.compress(~found))
            if self._piece is not None:
                # One that was found by mistake would be missed in the new blocks.
                self._piece.recorded.append(keys.compress(found))
            return found
        blocks, places, masks = self._blocks, self._blocks.places(keys), _masks(keys)
        rows = blocks.words.take(places, axis=0)
        found = _covers(rows, masks)
        self._count += len(keys) - int(np.count_nonzero(found))
        blocks.set_bits(places, masks, rows)
        return found

    def add(self, keys: Keys) -> None:
        """Add each key that is stored, unless `test_and_add` did: also one that `may_contain` has
        found, as it is found by mistake only until the gate grows."""
        self._count += len(keys)
        if self._next is None:
            self._blocks.add(keys)
            return
        below = keys < self._swept
        new = keys.compress(below)
        self._next.add(new)
        self._swept_count += len(new)
        rest = keys.compress(~below)
        self._blocks.add(rest)
        if self._piece is not None:
            self._piece.recorded.append(rest)

    def next_piece(self) -> GatePiece | None:
        """Begin the next piece of a growth, and return it; None if the gate has room.

        The caller then has it built in a thread, and calls `finish` or `abandon`. Keys added before
        this call must be among those of its source."""
        assert self._piece is None, "one at a time"
        if self._next is None:
            if self._count * FULL_BYTES <= self._blocks.count * BLOCK:
                return None
            self._next = _Blocks(_blocks_for(self._count))
            self._swept_blocks, self._swept, self._swept_count = 0, np.uint64(0), 0
        blocks = self._next
        most = min(int(_PIECE_KEYS * FULL_BYTES / BLOCK), -(-blocks.count // _PIECES))
        end = min(self._swept_blocks + most, blocks.count)
        self._piece = GatePiece(blocks, self._swept_blocks, end)
        return self._piece

    def finish(self, piece: GatePiece) -> None:
        """Use *piece*, which is built, from now on."""
        assert piece is self._piece and self._next is not None, "of this gate, and the last"
        self._piece = None
        for keys in piece.recorded:
            of_piece = (keys >= np.uint64(piece.low)) & (keys <= np.uint64(piece.high - 1))
            missing = keys.compress(of_piece & ~self._next.find(keys))
            self._next.add(missing)
            self._swept_count += len(missing)
        self._swept_count += piece.count
        if piece.end == self._next.count:
            self._blocks, self._next = self._next, None
            self._count = self._swept_count
            return
        first, end = (int(key) * self._blocks.count >> 64 for key in (self._swept, piece.high))
        self._swept_blocks, self._swept = piece.end, np.uint64(piece.high)
        self._blocks.release(first, end)

    def abandon(self, piece: GatePiece) -> None:
        """Forget *piece*, whose building failed: the next one begins there again."""
        assert piece is self._piece, "of this gate, and the last"
        self._piece = None


def _blocks_for(keys: int) -> int:
    return int(max(keys, _LEAST_KEYS) * FULL_BYTES * GROWTH / BLOCK) + 1

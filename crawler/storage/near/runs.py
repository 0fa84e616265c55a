"""A run of the index: sorted fingerprints in files that are mapped, never changed.

Rule: what is on disk is checked against the manifest before it counts; and searching copies
stretches of the maps, nothing else, so memory does not grow with runs.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from crawler.storage.near.folder import Folder, RunRecord
from crawler.storage.near.orders import BITS, FOUR, TEN, Order, Prints
from crawler.storage.near.sources import DIGEST_BYTES, Digests, Lists, sorted_in
from crawler.storage.near.writing import DIGESTS, LISTS, prints_file, starts_file

_CHUNK: Final = 1 << 20


class Probe(NamedTuple):
    """Where to look in one order of one run. A prefix is the first bits of a key: of the first
    block, and where it is longer than that, of the second."""

    first_shift: int
    first_mask: int
    more: int  # bits from the second block
    second_shift: int
    second_mask: int
    starts: memoryview  # of each prefix, in `prints`
    prints: Prints
    order: Order


def _probe(order: Order, bits: int, starts: memoryview, prints: Prints) -> Probe:
    first, second = order.blocks[:2]
    more = max(0, bits - first.width)
    own = bits - more
    return Probe(
        first_shift=first.shift + first.width - own,
        first_mask=(1 << own) - 1,
        more=more,
        second_shift=second.shift + second.width - more,
        second_mask=(1 << more) - 1,
        starts=starts,
        prints=prints,
        order=order,
    )


class Run:
    """Implements sources.Source."""

    def __init__(self, folder: Folder, record: RunRecord) -> None:
        """Raises DataDirError if a file is missing, or not of its size."""
        self.record = record
        self._folder = folder
        self._orders = TEN if record.orders == len(TEN) else FOUR
        self._ordered = [self._prints(number) for number in range(record.orders)]
        self.prints: Prints = self._ordered[0]
        self.lists: Lists = np.frombuffer(self._mapped(LISTS), "<u4")
        self.digests: Digests = np.frombuffer(self._mapped(DIGESTS), np.uint8).reshape(
            -1, DIGEST_BYTES
        )
        self.probes = [
            _probe(order, record.start_bits, self._starts(number), self._ordered[number])
            for number, order in enumerate(self._orders)
        ]

    def ordered(self, order: Order) -> Prints:
        if order in self._orders:
            return self._ordered[self._orders.index(order)]
        # A run of four orders on its way into one of ten: it is small enough for memory.
        return sorted_in(self.prints, order)

    def check(self) -> None:
        """Reads all of it. Raises DataDirError if it is damaged."""
        for name, record in self.record.files.items():
            path = self._path(name)
            if _checksum(path) != record.xxh3:
                raise self._folder.damaged(f"{path} is damaged")

    def pages(self, fingerprint: int) -> tuple[int, int]:
        """Where in `digests` its pages are: from, to."""
        prefix = fingerprint >> (BITS - self.record.start_bits)
        starts = self.probes[0].starts
        begin, end = starts[prefix], starts[prefix + 1]
        at = bisect_left(self.prints, np.uint64(fingerprint), begin, end)
        if at == end or int(self.prints[at]) != fingerprint:
            return 0, 0
        return int(self.lists[at]), int(self.lists[at + 1])

    def _prints(self, number: int) -> Prints:
        return np.frombuffer(self._mapped(prints_file(number)), "<u8")

    def _starts(self, number: int) -> memoryview:
        starts: NDArray[np.uint32] = np.frombuffer(self._mapped(starts_file(number)), "<u4")
        return starts.astype(np.uint32, copy=False).data  # its items are ints: 40 ns each

    def _mapped(self, name: str) -> mmap.mmap:
        path, record = self._path(name), self.record.files[name]
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as broken:  # ValueError: it is empty
            raise self._folder.damaged(f"{path} cannot be read ({broken})") from broken
        if len(mapped) != record.size:
            raise self._folder.damaged(f"{path} has {len(mapped)} bytes instead of {record.size}")
        return mapped

    def _path(self, name: str) -> Path:
        return self._folder.path / self.record.name / name


def _checksum(path: Path) -> str:
    found = xxh3_64()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()

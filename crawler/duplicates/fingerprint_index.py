"""The fingerprints of a crawl with its own frontier: finds all that are near to another.

Rule: the commit that finishes a page logs its fingerprint in the frontier's store. All else is made
from this log when the index is opened, so a crash can damage nothing and nothing is written twice.

A row has all fingerprints that have one of their four quarters in common, so a search reads four
rows (duplicates/quarters.py), and a fingerprint is appended to four. Rows are in a file without a
name, which the operating system keeps in memory as far as there is room, and removes with the
process. A row that outgrows its place moves to one twice as large. Memory: 3 MB, for any number of
pages.
"""

from __future__ import annotations

import logging
import os
from array import array
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, TypeVar

import numpy as np

from crawler.duplicates.quarters import (
    PRINT_BYTES,
    QUARTER_BITS,
    QUARTERS,
    Prints,
    near_places,
    quarters,
)
from crawler.frontier import records as keys
from crawler.frontier.port import ReadableStore
from crawler.frontier.staging import all_records
from crawler.model.types import StoreFull, StoreUnavailable, is_out_of_room

logger = logging.getLogger(__name__)

T = TypeVar("T")

_SMALLEST: Final = 8  # fingerprints for which a row has room at first
_VALUES: Final = 1 << QUARTER_BITS
_LOADED: Final = 1 << 15
"""Entries of the log, of up to 64 fingerprints each, that are sorted at once, in 180 MB at most.
The fewer, the more often each row is written."""
_LAST: Final = (1 << 64) - 1


class FingerprintIndex:
    """All calls come from one thread."""

    def __init__(self, store: ReadableStore, folder: Path) -> None:
        """*folder* is on the disk for the rows. Takes about 2 s for a million pages. Raises
        StoreUnavailable."""
        self._store = store
        self._places = array("Q", bytes(8 * QUARTERS * _VALUES))  # in the file, in fingerprints
        self._lengths = array("I", bytes(4 * QUARTERS * _VALUES))  # in fingerprints
        self._free: dict[int, list[int]] = defaultdict(list)  # places of rows that moved, by room
        self._end = 0
        self._unwritten: list[int] = []  # while the disk is full
        try:
            self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  # until `close`
            self._descriptor = self._file.fileno()
            try:
                self._load_log()
            except BaseException:
                self.close()
                raise
        except OSError as error:
            raise _translated(error) from error

    def near(self, simhash: int, max_bits: int) -> list[tuple[int, int]]:
        """Return each fingerprint that differs in at most *max_bits* (3 at most), after the number
        of bits; the nearest first. Raises StoreUnavailable."""
        try:
            rows = [self._row(number) for number in _rows_of(simhash)]
        except OSError as error:
            raise _translated(error) from error
        rows += map(keys.packed_print, self._unwritten)
        prints = np.frombuffer(b"".join(rows), "<u8")
        found = near_places(prints, simhash, max_bits)
        return sorted({(bits, int(prints[place])) for place, bits in found})

    def pages(self, simhash: int, limit: int) -> list[bytes]:
        """Return the digests of the first pages with exactly this fingerprint."""
        first, last = keys.page_of_print(simhash, 0), keys.page_of_print(simhash, _LAST)
        return [digest for _, digest in self._store.scan(first, last, limit)]

    def add(self, simhash: int) -> None:
        """Add a fingerprint that the store has logged, and that no search has found yet. While the
        disk is full it is kept in memory. Raises StoreUnavailable."""
        self._unwritten.append(simhash)
        try:
            while self._unwritten:
                one = keys.packed_print(self._unwritten[0])
                for number in _rows_of(self._unwritten[0]):
                    self._append(number, one)
                del self._unwritten[0]
        except OSError as error:
            if not is_out_of_room(error):
                raise _translated(error) from error

    @property
    def file_bytes(self) -> int:
        return self._end * PRINT_BYTES

    def close(self) -> None:
        self._file.close()

    def _load_log(self) -> None:
        log = all_records(self._store, keys.PRINT_LOG)
        pages = 0
        for some in map(b"".join, _slices((prints for _, prints in log), _LOADED)):
            self._load(np.unique(np.frombuffer(some, "<u8")))
            pages += len(some) // PRINT_BYTES
            if pages > 1_000_000:
                logger.info("Near-duplicates: sorted the fingerprints of %d pages so far", pages)

    def _load(self, prints: Prints) -> None:
        for table in range(QUARTERS):
            values = (prints >> np.uint64(table * QUARTER_BITS)).astype(np.uint16)
            ends = np.bincount(values, minlength=_VALUES).cumsum().tolist()
            ordered = prints[values.argsort(kind="stable")].data.cast("B")
            for value, (begin, end) in enumerate(pairwise([0, *ends])):
                if begin < end:
                    some = ordered[begin * PRINT_BYTES : end * PRINT_BYTES]
                    self._append(table * _VALUES + value, some)

    def _row(self, number: int) -> bytes:
        length = self._lengths[number]
        if not length:
            return b""
        return os.pread(self._descriptor, length * PRINT_BYTES, self._places[number] * PRINT_BYTES)

    def _append(self, number: int, prints: bytes | memoryview) -> None:
        """Append *prints* to a row. Raises OSError; then the row is as before."""
        length, place = self._lengths[number], self._places[number]
        after = length + len(prints) // PRINT_BYTES
        if after <= _room(length):
            self._write(place + length, prints)
        else:
            room = _room(after)
            row = self._row(number)
            free = self._free[room]
            moved_to = free[-1] if free else self._end
            self._write(moved_to, row + prints)
            if free:
                free.pop()
            else:
                self._end += room
            if length:
                self._free[_room(length)].append(place)
            self._places[number] = moved_to
        self._lengths[number] = after

    def _write(self, place: int, prints: bytes | memoryview) -> None:
        offset = place * PRINT_BYTES
        while prints:
            written = os.pwrite(self._descriptor, prints, offset)
            prints, offset = prints[written:], offset + written


def _translated(error: OSError) -> StoreUnavailable:
    """Return StoreFull, with which the crawl waits for room, or StoreUnavailable."""
    kind = StoreFull if is_out_of_room(error) else StoreUnavailable
    return kind(f"the rows of fingerprints cannot be used: {error}")


def _rows_of(simhash: int) -> tuple[int, int, int, int]:
    one, two, three, four = quarters(simhash)
    return one, _VALUES + two, 2 * _VALUES + three, 3 * _VALUES + four


def _room(length: int) -> int:
    """Return for how many fingerprints the place of a row of *length* has room."""
    return max(_SMALLEST, 1 << (length - 1).bit_length()) if length else 0


def _slices(every: Iterator[T], size: int) -> Iterator[list[T]]:
    while found := list(islice(every, size)):
        yield found

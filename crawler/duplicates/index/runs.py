"""The runs of the index: sorted fingerprints and digests in files, written once and then mapped.

Rule: memory is bounded by pieces, not by runs, and each file is on disk before the manifest names
the run.
"""

from __future__ import annotations

import mmap
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from crawler.duplicates.index.manifest import (
    FileRecord,
    IndexFolder,
    IndexLimits,
    RunRecord,
)
from crawler.duplicates.index.orders import (
    BITS,
    DIGEST_BYTES,
    FOUR,
    TEN,
    Digests,
    Lists,
    Order,
    Piece,
    Prints,
    SortedSource,
    cuts_by_fingerprints,
    cuts_by_pages,
    firsts,
    pieces,
    sorted_in,
)

LISTS, DIGESTS = "lists", "digests"


def prints_file(order: int) -> str:
    return f"order-{order}.fingerprints"


def starts_file(order: int) -> str:
    return f"order-{order}.starts"


class RunFile:
    """A file of a run while it is written: with size and checksum, synced when it is closed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._hash = xxh3_64()
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def append(self, values: NDArray[np.generic], kind: str) -> None:
        packed = np.ascontiguousarray(values.astype(kind, copy=False)).data.cast("B")
        self._file.write(packed)
        self._hash.update(packed)
        self.size += len(packed)

    def __exit__(self, *_: object) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def record(self) -> FileRecord:
        return FileRecord(self.size, self._hash.hexdigest())


class PrefixStarts:
    """A table of where in an order each prefix begins, in place of a search."""

    def __init__(self, bits: int) -> None:
        self._shift = np.uint64(64 - bits)
        self._starts = np.full((1 << bits) + 1, np.iinfo(np.uint32).max, np.uint32)
        self._count = 0

    def note(self, keys: Prints) -> None:
        """Add the next of all keys, which come sorted."""
        prefixes = keys >> self._shift
        at = np.flatnonzero(firsts(prefixes))
        prefixes, places = prefixes[at], (at + self._count).astype(np.uint32)
        # The first may have begun in the piece before.
        self._starts[prefixes] = np.minimum(self._starts[prefixes], places)
        self._count += len(keys)

    def whole(self) -> NDArray[np.uint32]:
        """Return the table. A prefix without keys begins and ends where the next one begins."""
        self._starts[-1] = self._count
        return np.minimum.accumulate(self._starts[::-1])[::-1]


def write_run(
    folder: IndexFolder,
    name: str,
    sources: Sequence[SortedSource],
    limits: IndexLimits,
    between: Callable[[], None],
) -> RunRecord:
    """Write a run of *sources*, oldest first. *between* is called after each piece, and may raise
    to stop the writing."""
    most = sum(len(source.prints) for source in sources)
    orders = TEN if most > limits.ten_orders else FOUR
    # 16 to 32 fingerprints a prefix (0.2 bytes each), but no prefix longer than the equal blocks.
    bits = min(max(most.bit_length() - 5, 1), *(order.equal_bits for order in orders))
    path = folder.begin(name)
    writer = RunWriter(path, sources, limits, between)
    pages = writer.write_pages(bits, orders[0])
    for number, order in enumerate(orders[1:], 1):
        writer.write_order(number, order, bits)
    folder.commit(name)
    return RunRecord(name, writer.fingerprints, pages, len(orders), bits, writer.files)


class RunWriter:
    """Writes the files of one run."""

    def __init__(
        self,
        path: Path,
        sources: Sequence[SortedSource],
        limits: IndexLimits,
        between: Callable[[], None],
    ) -> None:
        self._path = path
        self._sources = sources
        self._limits = limits
        self._between = between
        self.files: dict[str, FileRecord] = {}
        self.fingerprints = 0

    def write_order(self, number: int, order: Order, bits: int) -> None:
        ordered = [source.ordered(order) for source in self._sources]
        cuts = cuts_by_fingerprints(ordered, order, self._limits.piece_fingerprints)
        starts = PrefixStarts(bits)
        with RunFile(self._path / prints_file(number)) as out:
            for piece in pieces(ordered, order, cuts):
                keys = _merged(ordered, piece, order)
                starts.note(keys)
                out.append(order.prints(keys), "<u8")
                self._between()
        self.files[prints_file(number)] = out.record()
        self._write_starts(number, starts)

    def write_pages(self, bits: int, order: Order) -> int:
        """Write the first order with the pages of each fingerprint, and return how many pages."""
        ordered = [source.prints for source in self._sources]
        cuts = cuts_by_pages(self._sources, self._limits.piece_fingerprints)
        starts, pages = PrefixStarts(bits), 0
        names = (prints_file(0), LISTS, DIGESTS)
        with ExitStack() as opened:
            files = [opened.enter_context(RunFile(self._path / name)) for name in names]
            for piece in pieces(ordered, order, cuts):
                pages += self._write_piece(piece, files, starts, pages)
                self._between()
            files[1].append(np.array([pages]), "<u4")
        self.files.update({name: out.record() for name, out in zip(names, files, strict=True)})
        self._write_starts(0, starts)
        self.fingerprints = files[0].size // 8
        return pages

    def _write_piece(
        self, piece: Piece, files: Sequence[RunFile], starts: PrefixStarts, before: int
    ) -> int:
        parts = [
            (source, begin, end)
            for source, (begin, end) in zip(self._sources, piece, strict=True)
            if begin < end
        ]
        alike = {int(source.prints[at]) for source, begin, end in parts for at in (begin, end - 1)}
        if len(alike) == 1:
            prints, lists = parts[0][0].prints[parts[0][1] :][:1], np.zeros(1, np.int64)
            count = sum(self._copied(part, files[2]) for part in parts)
        else:
            prints, lists, digests = _gathered(parts)
            files[2].append(digests, "u1")
            count = len(digests)
        starts.note(prints)
        files[0].append(prints, "<u8")
        files[1].append(lists + before, "<u4")
        return count

    def _copied(self, part: tuple[SortedSource, int, int], out: RunFile) -> int:
        """Copy the pages of one fingerprint, which may be more than fit into memory."""
        source, begin, end = part
        first, last = int(source.lists[begin]), int(source.lists[end])
        for at in range(first, last, self._limits.piece_fingerprints):
            out.append(source.digests[at : min(at + self._limits.piece_fingerprints, last)], "u1")
        return last - first

    def _write_starts(self, number: int, starts: PrefixStarts) -> None:
        with RunFile(self._path / starts_file(number)) as out:
            out.append(starts.whole(), "<u4")
        self.files[starts_file(number)] = out.record()


def _merged(ordered: Sequence[Prints], piece: Piece, order: Order) -> Prints:
    parts = [
        order.keys(prints[begin:end]) for prints, (begin, end) in zip(ordered, piece, strict=True)
    ]
    keys = np.concatenate(parts)
    keys.sort(kind="stable")  # timsort finds the sorted parts: 3 times as fast
    return keys[firsts(keys)]


def _gathered(
    parts: Sequence[tuple[SortedSource, int, int]],
) -> tuple[Prints, NDArray[np.int64], Digests]:
    """Return the merged fingerprints, where the pages of each begin, and the pages."""
    prints = np.concatenate(
        [
            np.repeat(source.prints[begin:end], np.diff(source.lists[begin : end + 1]))
            for source, begin, end in parts
        ]
    )
    digests = np.concatenate(
        [source.digests[source.lists[begin] : source.lists[end]] for source, begin, end in parts]
    )
    order = np.argsort(prints, kind="stable")
    prints = prints[order]
    begins = np.flatnonzero(firsts(prints))
    # Not digests[order]: that holds the interpreter lock, and blocks the event loop, for 40 ms.
    return prints[begins], begins, digests.take(order, axis=0)


_CHUNK: Final = 1 << 20


class PrefixLookup(NamedTuple):
    """How to search one order of one run. A prefix is the first bits of a key: of the first block
    and, if it is longer, of the second."""

    first_shift: int
    first_mask: int
    more: int  # bits from the second block
    second_shift: int
    second_mask: int
    starts: memoryview  # of each prefix, in `prints`
    prints: Prints
    order: Order


def _prefix_lookup(order: Order, bits: int, starts: memoryview, prints: Prints) -> PrefixLookup:
    first, second = order.blocks[:2]
    more = max(0, bits - first.width)
    own = bits - more
    return PrefixLookup(
        first_shift=first.shift + first.width - own,
        first_mask=(1 << own) - 1,
        more=more,
        second_shift=second.shift + second.width - more,
        second_mask=(1 << more) - 1,
        starts=starts,
        prints=prints,
        order=order,
    )


class SortedRun:
    """A run on disk. Implements orders.SortedSource. Its files are mapped, and a search copies only
    stretches of them, so memory does not grow with runs."""

    def __init__(self, folder: IndexFolder, record: RunRecord) -> None:
        """Raises DataDirError if a file is missing, or has another size than in *record*."""
        self.record = record
        self._folder = folder
        self._orders = TEN if record.orders == len(TEN) else FOUR
        self._ordered = [self._prints(number) for number in range(record.orders)]
        self.prints: Prints = self._ordered[0]
        self.lists: Lists = np.frombuffer(self._mapped(LISTS), "<u4")
        self.digests: Digests = np.frombuffer(self._mapped(DIGESTS), np.uint8).reshape(
            -1, DIGEST_BYTES
        )
        self.prefix_lookups = [
            _prefix_lookup(order, record.start_bits, self._starts(number), self._ordered[number])
            for number, order in enumerate(self._orders)
        ]

    def ordered(self, order: Order) -> Prints:
        if order in self._orders:
            return self._ordered[self._orders.index(order)]
        # A run of four orders that is merged into one of ten: it is small enough for memory.
        return sorted_in(self.prints, order)

    def check(self) -> None:
        """Read all files, and raise DataDirError if one is damaged."""
        for name, record in self.record.files.items():
            path = self._path(name)
            if _checksum(path) != record.xxh3:
                raise self._folder.damaged(f"{path} is damaged")

    def pages(self, fingerprint: int) -> tuple[int, int]:
        """Return where in `digests` the pages of *fingerprint* are: from, to."""
        prefix = fingerprint >> (BITS - self.record.start_bits)
        starts = self.prefix_lookups[0].starts
        begin, end = starts[prefix], starts[prefix + 1]
        at = bisect_left(self.prints, np.uint64(fingerprint), begin, end)
        if at == end or int(self.prints[at]) != fingerprint:
            return 0, 0
        return int(self.lists[at]), int(self.lists[at + 1])

    def _prints(self, number: int) -> Prints:
        return np.frombuffer(self._mapped(prints_file(number)), "<u8")

    def _starts(self, number: int) -> memoryview:
        starts: NDArray[np.uint32] = np.frombuffer(self._mapped(starts_file(number)), "<u4")
        return starts.astype(
            np.uint32, copy=False
        ).data  # indexing a memoryview gives an int in 40 ns

    def _mapped(self, name: str) -> mmap.mmap:
        path, record = self._path(name), self.record.files[name]
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise self._folder.damaged(f"{path} cannot be read ({error})") from error
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

"""The operations of a Drum that wait for a merge: in memory, and spilled to bucket files.

Rule: nothing here is durable. What waits is lost in a crash, and files of a batch that a crash has
left are removed at the next opening: whoever adds operations knows them until they are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.run_files import (
    Flags,
    Keys,
    OpenFd,
    Places,
    RunFolder,
    Values,
    view_of,
)

Aux: TypeAlias = "list[bytes] | NDArray[Any]"
Codes: TypeAlias = NDArray[np.uint8]

CHECK: Final = 1
UPDATE: Final = 2
UNIQUE: Final = 4
# What numpy does without the interpreter lock is done with whole arrays: sorting, searchsorted,
# take, put, compress and arithmetic hold it for less than 5 ms of 4e6 keys (numpy 2.4, measured).
# cumsum holds it all the time, 4 ns a key: it is done in pieces of this many.
HELD: Final = 1 << 16
_LIST_ITEM: Final = 57  # bytes that a bytes object and its place in a list take beside its content


@dataclass(frozen=True, slots=True, kw_only=True)
class DrumLimits:
    """Sizes. They affect speed, memory and disk, never the result; tests make them tiny."""

    # Of the operations that wait, while as many are merged. A merge takes about four times the
    # memory of the keys of its batch, or of one bucket, besides.
    ram_bytes: int = 64 << 20
    # [r in the paper] A bucket file of this size makes a merge due: a bucket is sorted in memory.
    bucket_bytes: int = 32 << 20
    bucket_bits: int = 6  # buckets by the top bits of the key: 64, and at most 256
    # [tiered] A run is merged with the newer ones when these have (fan_out - 1) times its keys. In
    # 24 batches of 5e6, half new, 2 / 3 / 4 / 8 took 229 / 236 / 250 / 248 ns of CPU a check, moved
    # 69 / 62 / 62 / 58 bytes, and left 2.3 / 2.9 / 3.1 / 4.6 runs, which each look-up searches.
    fan_out: int = 2
    # What one numpy call works on, a multiple of 512: 512 KB stay in the second cache. A search
    # takes 44 ns a key with 16,384 to 65,536, 51 with 262,144; each call costs a microsecond.
    piece_keys: int = 1 << 16


class Checked(NamedTuple):
    """The results of successive `check` and `check_update` operations, in their order."""

    unique: Flags  # the key was absent, before this batch and from the operations before in it
    values: Values | None  # what the key had at that operation; zero where it is unique
    aux: Aux | None


@dataclass(frozen=True, slots=True)
class Kinds:
    """What goes with a key."""

    value: np.dtype[Any] | None
    aux: np.dtype[Any] | type[bytes] | None

    @property
    def record(self) -> int:
        """Bytes of an operation in a bucket file."""
        return 9 + (0 if self.value is None else self.value.itemsize)


class Columns(NamedTuple):
    """Operations in the order of their arrival."""

    keys: Keys
    codes: Codes
    values: Values | None


class _Segment(NamedTuple):
    """What one spill has put into the files."""

    counts: list[int]  # operations by bucket
    begins: list[int]  # of them in the bucket files
    first: int  # number of its first operation in the batch
    aux_begin: int
    aux_size: int


class DrumBatch:
    """Operations that wait for a merge: in memory, and before them those spilled to files. Keys go
    to bucket files by their top bits; the bucket of each operation, one byte, and the auxiliary
    data go to files in the order of arrival, so that results can be given in that order."""

    def __init__(self, folder: RunFolder, number: int, kinds: Kinds, limits: DrumLimits) -> None:
        self._folder, self._number, self._kinds, self._limits = folder, number, kinds, limits
        self.read = self.written = 0  # bytes of the files
        fixed = kinds.aux.itemsize if isinstance(kinds.aux, np.dtype) else 0
        # Half of the memory: the other half is for the batch that is merged meanwhile.
        self._room = limits.ram_bytes // 2
        self._capacity = max(1, self._room // (kinds.record + fixed))
        self._columns = self._no_columns()
        self._aux: NDArray[Any] = np.empty(self._capacity, kinds.aux if fixed else "V0")
        self._texts: list[bytes] = []  # auxiliary data of variable width
        self._texts_bytes = 0
        self.in_ram = self.spilled = 0  # operations
        self._files: dict[str, OpenFd] = {}
        self._segments: list[_Segment] = []
        self._ends = [0] * (1 << limits.bucket_bits)  # of the bucket files
        self._aux_end = 0

    def __len__(self) -> int:
        return self.spilled + self.in_ram

    @property
    def is_ram_full(self) -> bool:
        """At 7/8: the next operations are to find room without a spill."""
        return self.in_ram * 8 >= self._capacity * 7 or self._texts_bytes * 8 >= self._room * 7

    @property
    def largest_bucket(self) -> int:
        return max(self._ends)

    def add(self, code: int, keys: Keys, values: Values | None, aux: Aux | None) -> None:
        """Raises StoreFull if there is no room to spill; then nothing is added."""
        if len(keys) > self._capacity:
            raise ValueError(f"{len(keys)} operations at once, of {self._capacity} at most")
        if self.in_ram + len(keys) > self._capacity or self._texts_bytes >= self._room:
            self.spill()
        to = slice(self.in_ram, self.in_ram + len(keys))
        self._columns.keys[to] = keys
        self._columns.codes[to] = code
        if self._columns.values is not None and values is not None:
            self._columns.values[to] = values
        if self._kinds.aux is bytes:
            texts = [b""] * len(keys) if aux is None else aux
            self._texts.extend(texts)
            self._texts_bytes += sum(map(len, texts)) + _LIST_ITEM * len(keys)
        elif self._kinds.aux is not None:
            self._aux[to] = np.zeros((), self._aux.dtype) if aux is None else aux
        self.in_ram += len(keys)

    def _no_columns(self) -> Columns:
        value = self._kinds.value
        return Columns(
            np.empty(self._capacity, np.uint64),
            np.empty(self._capacity, np.uint8),
            None if value is None else np.zeros(self._capacity, value),
        )

    def columns(self) -> Columns:
        """Return those in memory: views, to which later operations are not added."""
        keys, codes, values = self._columns
        end = self.in_ram
        return Columns(keys[:end], codes[:end], None if values is None else values[:end])

    def aux(self) -> Aux | None:
        if self._kinds.aux is None:
            return None
        return self._texts if self._kinds.aux is bytes else self._aux[: self.in_ram]

    def spill(self) -> None:
        """Write the operations in memory to the files, 30 ns for each. If that fails they are in
        memory still, and what was written is written over."""
        if self.in_ram == 0:
            return
        columns = self.columns()
        buckets = (columns.keys >> np.uint64(64 - self._limits.bucket_bits)).astype(np.uint8)
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=len(self._ends)).tolist()
        begins, ends, at = self._ends, [], 0
        for bucket, count in enumerate(counts):
            some = order[at : at + count]
            parts = [view_of(column.take(some)) for column in columns if column is not None]
            self._write(f"bucket-{bucket}", b"".join(parts), begins[bucket])
            ends.append(begins[bucket] + count * self._kinds.record)
            at += count
        self._write("order", view_of(buckets), self.spilled)
        aux = view_of(self._aux[: self.in_ram])
        if self._kinds.aux is bytes:
            sizes = np.fromiter(map(len, self._texts), np.uint32, self.in_ram)
            self._write("sizes", view_of(sizes), self.spilled * sizes.itemsize)
            aux = memoryview(b"".join(self._texts))
        self._write("aux", aux, self._aux_end)
        self._segments.append(_Segment(counts, begins, self.spilled, self._aux_end, len(aux)))
        self._aux_end += len(aux)
        self._ends, self._texts, self._texts_bytes = ends, [], 0
        self.spilled, self.in_ram = self.spilled + self.in_ram, 0
        # New ones, and in this order: `update_keys` may be called meanwhile, and read the old ones.
        self._columns = self._no_columns()

    def buckets(self) -> Iterator[tuple[int, int, Columns]]:
        """Yield the operations in buckets that follow each other: the lowest key, the key above
        all, the operations."""
        if not self.spilled:
            yield 0, 1 << 64, self.columns()
            return
        width = 64 - self._limits.bucket_bits
        for bucket in range(len(self._ends)):
            yield bucket << width, (bucket + 1) << width, self._bucket(bucket, self._segments)

    def update_keys(self, low: int, high: int) -> Iterator[Keys]:
        """Return slices of the keys from *low* to below *high* that are to be in the store. Those
        that wait at the time of the call."""
        return self._update_keys(low, high, self.columns(), self._segments.copy())

    def _update_keys(
        self, low: int, high: int, in_ram: Columns, segments: list[_Segment]
    ) -> Iterator[Keys]:
        yield from _in_range(in_ram, low, high)
        width = 64 - self._limits.bucket_bits
        for bucket in range(low >> width, -(-high >> width) if segments else 0):
            yield from _in_range(self._bucket(bucket, segments), low, high)

    def _bucket(self, bucket: int, segments: Sequence[_Segment]) -> Columns:
        keys, codes, values = [], [], []
        for segment in segments:
            count = segment.counts[bucket]
            name, begin = f"bucket-{bucket}", segment.begins[bucket]
            data = self._read(name, count * self._kinds.record, begin)
            keys.append(np.frombuffer(data, np.uint64, count))
            codes.append(np.frombuffer(data, np.uint8, count, 8 * count))
            if self._kinds.value is not None:
                values.append(np.frombuffer(data, self._kinds.value, count, 9 * count))
        return Columns(
            np.concatenate(keys),
            np.concatenate(codes),
            np.concatenate(values) if self._kinds.value is not None else None,
        )

    def keep_results(self, codes: Codes, before: Values | None, bucket: int) -> None:
        """Write the results of a bucket behind those of the bucket before."""
        begin = self._results_begin(bucket)
        self._write("results", view_of(codes), begin)
        if before is not None:
            self._write("results", view_of(before), begin + len(codes))

    def kept_results(self) -> Iterator[Checked]:
        """Yield the results of each spill, in the order of arrival."""
        width = self._kinds.record - 9
        done = [0] * len(self._ends)  # operations by bucket
        for segment in self._segments:
            count = sum(segment.counts)
            buckets = np.frombuffer(self._read("order", count, segment.first), np.uint8)
            order = np.argsort(buckets, kind="stable")
            codes, values = bytearray(), bytearray()
            for bucket, some in enumerate(segment.counts):
                begin = self._results_begin(bucket)
                codes += self._read("results", some, begin + done[bucket])
                begin += self._ends[bucket] // self._kinds.record + done[bucket] * width
                values += self._read("results", some * width, begin)
                done[bucket] += some
            before = None
            if self._kinds.value is not None:
                before = unsorted(np.frombuffer(values, self._kinds.value), order)
            in_order = unsorted(np.frombuffer(codes, np.uint8), order)
            yield checked_rows(in_order, before, self._read_aux(segment))

    def _results_begin(self, bucket: int) -> int:
        record = self._kinds.record
        return sum(self._ends[:bucket]) // record * (record - 8)

    def _read_aux(self, segment: _Segment) -> Aux | None:
        if self._kinds.aux is None:
            return None
        data = self._read("aux", segment.aux_size, segment.aux_begin)
        if self._kinds.aux is not bytes:
            return np.frombuffer(data, self._aux.dtype)
        count = sum(segment.counts)
        sizes = np.frombuffer(self._read("sizes", 4 * count, 4 * segment.first), np.uint32)
        ends = np.cumsum(sizes, dtype=np.int64).tolist()
        return [bytes(data[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]

    def remove(self) -> None:
        for name in self._files:
            self._folder.remove(self._name(name))

    def _name(self, name: str) -> str:
        return f"batch-{self._number}.{name}"

    def _write(self, name: str, data: memoryview | bytes, offset: int) -> None:
        if not data:
            return
        if name not in self._files:
            self._files[name] = self._folder.create(self._name(name))
        self._folder.write(self._files[name], memoryview(data), offset)
        self.written += len(data)

    def _read(self, name: str, size: int, offset: int) -> bytearray:
        if size == 0:
            return bytearray()
        self.read += size
        return self._folder.read(self._files[name], size, offset)


def _in_range(columns: Columns, low: int, high: int) -> Iterator[Keys]:
    """Yield the keys of updates from *low* to below *high*."""
    for begin in range(0, len(columns.keys), HELD):
        keys = columns.keys[begin : begin + HELD]
        wanted = (columns.codes[begin : begin + HELD] & UPDATE) != 0
        wanted &= keys >= np.uint64(low)
        wanted &= keys <= np.uint64(high - 1)
        yield keys.compress(wanted)


def checked_rows(codes: Codes, before: Values | None, aux: Aux | None) -> Checked:
    """Return the results of the checks among the operations."""
    unique = codes & UNIQUE != 0
    rows = np.flatnonzero(codes & CHECK)
    if len(rows) < len(codes):
        unique = unique.take(rows)
        before = None if before is None else before.take(rows)
        if isinstance(aux, list):
            aux = [aux[row] for row in rows.tolist()]
        elif aux is not None:
            aux = aux.take(rows)
    return Checked(unique, before, aux)


def unsorted(values: NDArray[Any], order: Places) -> NDArray[Any]:
    """Return the array of which *values* is `take(order)`."""
    found = np.empty_like(values)
    np.put(found, order, values)
    return found


def running_sum(flags: Flags) -> Places:
    sums, before = np.empty(len(flags), np.int64), 0
    for begin in range(0, len(flags), HELD):
        piece = sums[begin : begin + HELD]
        np.cumsum(flags[begin : begin + HELD], out=piece)
        piece += before
        before = int(piece[-1])
    return sums

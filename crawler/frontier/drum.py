"""DRUM, the exact store of seen URLs: disk repository with update management.

Source: Lee, Leonard, Wang, Loguinov, "IRLbot: Scaling to 6 Billion Pages and Beyond", WWW 2008.
Operations on <key, value, auxiliary data> are collected, sorted by key, and compared with the
sorted runs on disk in one sequential pass. So a test of a URL costs a share of a pass, not a seek.

Rule: a merge commits nothing. It writes new files and returns the manifest that names them; only
when the caller has committed that manifest does it call `adopt`. Until then every operation stands,
and a merge that failed may be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crawler.frontier.drum_batch import (
    CHECK,
    HELD,
    UNIQUE,
    UPDATE,
    Aux,
    Checked,
    Codes,
    Columns,
    DrumBatch,
    DrumLimits,
    Kinds,
    checked_rows,
    running_sum,
    unsorted,
)
from crawler.frontier.run_files import (
    MANIFEST,
    PAGE,
    PAGE_KEYS,
    DrumManifest,
    Flags,
    KeyRun,
    Keys,
    Places,
    RunFolder,
    RunOutput,
    StoredRun,
    Values,
    hits,
)

Combine: TypeAlias = Callable[[Values, Values], Values]
"""Returns the values for keys that had the *old* and get the *new* ones: arrays of one length.
Associative, f(f(a, b), c) == f(a, f(b, c)), as are the latest, the sum, the maximum, the union."""

# A run is compacted when the newer ones have this share of (fan_out - 1) times its keys: batches
# of about one size then meet in tiers, as the new keys of each differ by some percent.
_NEARLY: Final = 0.95
_FENCES: Final = 514 / 512  # with the checksums of pages


class Files(Enum):
    """How the keys on disk are kept."""

    CENTRAL = "central"  # one sorted file, read and written by each merge: the published algorithm
    TIERED = "tiered"  # immutable runs, merged when the newer ones have grown to a multiple


@dataclass(slots=True)
class MovedBytes:
    """Bytes read from and written to files, to be held against a formula (bench/seen_costs.py)."""

    buckets_read: int = 0
    buckets_written: int = 0
    runs_read: int = 0
    runs_written: int = 0
    compaction_read: int = 0
    compaction_written: int = 0

    @property
    def total(self) -> int:
        return (
            self.buckets_read
            + self.buckets_written
            + self.runs_read
            + self.runs_written
            + self.compaction_read
            + self.compaction_written
        )


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has written and found. The caller commits the manifest, with what it makes of
    the results, and calls `Drum.adopt`; or `Drum.abandon`, if it could not."""

    manifest: DrumManifest
    results: Callable[[], Iterator[Checked]]  # read from the disk where the batch was spilled
    runs: list[KeyRun]
    written: list[str]  # files


def _begins(sorted_keys: NDArray[Any]) -> Flags:
    """Return where in *sorted_keys* another key begins."""
    begins = np.ones(len(sorted_keys), np.bool_)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=begins[1:])
    return begins


def sort_order(keys: Keys) -> tuple[Keys, Places]:
    """Return the sorted *keys*, and the order that sorts them; equal ones stay in order.

    Sorts the keys with their last bits replaced by their places: numpy sorts numbers by vector
    instructions in 16 ns each, and places by keys in 57. Keys that differ in those bits only, of
    5e6 some five pairs, are swapped after that.
    """
    low = np.uint64((1 << max(len(keys) - 1, 0).bit_length()) - 1)
    packed = keys & ~low
    packed |= np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    packed &= low
    order = packed.view(np.int64)
    found = keys.take(order)
    for _ in range(8):
        wrong = np.flatnonzero(found[1:] < found[:-1])
        if len(wrong) == 0:
            return found, order
        wrong = wrong[np.diff(wrong, prepend=-2) > 1]
        for each in (found, order):
            each[wrong], each[wrong + 1] = each[wrong + 1], each[wrong]
    again = np.argsort(found, kind="stable")
    return found.take(again), order.take(again)


class _Sorted:
    """Operations sorted by key, and for each key what they come to."""

    def __init__(self, columns: Columns, combine: Combine | None) -> None:
        self._codes, self._combine = columns.codes, combine
        ordered, self._order = sort_order(columns.keys)
        self._begins = _begins(ordered)
        self.keys: Keys = ordered.compress(self._begins)
        self.updated: Flags | None = None  # keys that an operation updates; None: all
        self.values: Values | None = None  # of the updates of each key, combined
        if columns.values is None and bool((columns.codes & UPDATE).all()):
            return
        self._key_of = running_sum(self._begins) - 1
        updates = columns.codes.take(self._order) & UPDATE != 0
        at = np.flatnonzero(updates)
        keys_of = self._key_of.take(at)
        self.updated = np.zeros(len(self.keys), np.bool_)
        np.put(self.updated, keys_of, True)
        # How many updates came before each operation: in all, and of its key.
        self._earlier = running_sum(updates) - updates
        firsts = self._earlier.take(np.flatnonzero(self._begins))
        self._earlier_of_key = self._earlier - firsts.take(self._key_of)
        if columns.values is not None:
            self._running = self._scanned(columns.values.take(self._order.take(at)), keys_of)
            self.values = np.zeros(len(self.keys), columns.values.dtype)
            lasts = np.flatnonzero(np.append(keys_of[1:] != keys_of[:-1], np.True_)[: len(at)])
            np.put(self.values, keys_of.take(lasts), self._running.take(lasts))

    def _scanned(self, values: Values, keys_of: Places) -> Values:
        """Return for each update what it and those before it of its key come to. In each round an
        update takes in twice as many: 20 rounds for a key with a million updates."""
        begins = _begins(keys_of)
        numbers = running_sum(begins) - 1
        place = np.arange(len(values)) - np.flatnonzero(begins).take(numbers)
        distance = 1
        while len(at := np.flatnonzero(place >= distance)):
            np.put(values, at, self.combined(values.take(at - distance), values.take(at)))
            distance *= 2
        return values

    def combined(self, old: Values, new: Values) -> Values:
        assert self._combine is not None, "required with values"
        return np.asarray(self._combine(old, new), new.dtype)

    def results(self, found: Flags, stored: Values | None) -> tuple[Codes, Values | None]:
        """Return of each operation, in the order of arrival, its code with whether its key was
        unique, and the value that its key had."""
        if self.updated is None:
            unique = self._begins
            np.put(unique, np.flatnonzero(unique), ~found)
        else:
            is_known = found.take(self._key_of)
            unique = ~(is_known | (self._earlier_of_key > 0))
        codes = unsorted(unique.view(np.uint8) * np.uint8(UNIQUE), self._order) | self._codes
        if stored is None:
            return codes, None
        before = stored.take(self._key_of)
        at = np.flatnonzero(self._earlier_of_key)
        running = self._running.take(self._earlier.take(at) - 1)
        both = np.flatnonzero(is_known.take(at))
        np.put(running, both, self.combined(before.take(at.take(both)), running.take(both)))
        np.put(before, at, running)
        return codes, unsorted(before, self._order)


def oldest_to_compact(sizes: Sequence[int], fan_out: int) -> int:
    """Return the number of the first run, of *sizes* oldest first, that is merged with all newer
    ones; with *fan_out* runs of one size that is the first of these. len(sizes) if none is."""
    newer = sum(sizes)
    for number, size in enumerate(sizes):
        newer -= size
        if newer >= _NEARLY * (fan_out - 1) * size:
            return number
    return len(sizes)


class Drum:
    """An exact store of keys, uint64, with a value of fixed width each or without. Operations
    carry auxiliary data, which come back with their results.

    Thread-safe: one thread may be in `merge`, others in `contains` and in what `keys_in` returned,
    while the owner adds operations. `adopt` and `abandon` are the owner's.
    """

    def __init__(
        self,
        folder: RunFolder,
        manifest: DrumManifest,
        *,
        files: Files = Files.TIERED,
        value: np.dtype[Any] | None = None,
        combine: Combine | None = None,
        aux: np.dtype[Any] | type[bytes] | None = None,
        limits: DrumLimits | None = None,
    ) -> None:
        """Open what *manifest* names, and remove what else is in *folder*. *value* needs *combine*.
        *aux* of fixed width (a dtype) costs 1 ns an operation, of variable width (bytes) 100.
        Raises DataDirError if a file is missing, or not of the size in the manifest."""
        if (value is None) is not (combine is None):
            raise ValueError("values need a function that combines them, and it needs values")
        if files is Files.CENTRAL and len(manifest.runs) > 1:
            raise ValueError(f"{folder.path} is kept in tiers, not in one central file")
        self.limits = limits or DrumLimits()
        self.moved = MovedBytes()
        self._folder, self._manifest, self._files = folder, manifest, files
        self._combine, self._kinds = combine, Kinds(value, aux)
        self._runs = [self._opened(stored) for stored in manifest.runs]
        folder.keep_only(
            {MANIFEST, *(file.name for stored in manifest.runs for file in stored.files)}
        )
        self._replaced: list[str] = []  # names of files
        self._lock = threading.Lock()  # of the three below
        self._batches = 0
        self._fresh = self._next_batch()
        self._merging: DrumBatch | None = None

    def __len__(self) -> int:
        """Distinct keys, without those that wait."""
        return self._manifest.keys

    @property
    def manifest(self) -> DrumManifest:
        return self._manifest

    @property
    def waiting(self) -> int:
        """Operations that no adopted merge has done."""
        with self._lock:
            return len(self._fresh) + (0 if self._merging is None else len(self._merging))

    @property
    def is_full(self) -> bool:
        """Whether a merge is due. Operations are taken beyond that: into files."""
        if self._fresh.largest_bucket >= self.limits.bucket_bytes:
            return True
        return self._files is Files.TIERED and (self._fresh.is_ram_full or self._fresh.spilled > 0)

    def check(self, keys: Keys, aux: Aux | None = None) -> None:
        """Ask whether *keys* are in the store when these operations' turn comes."""
        self._add(CHECK, keys, None, aux)

    def update(self, keys: Keys, values: Values | None = None) -> None:
        """Put *keys* into the store; for those in it combine the values."""
        self._add(UPDATE, keys, values, None)

    def check_update(
        self, keys: Keys, values: Values | None = None, aux: Aux | None = None
    ) -> None:
        """Do both. The first of equal keys is unique.

        All three take arrays of one length, and copy them. Raises ValueError if they are not what
        the store was made for, or more than half of `limits.ram_bytes`; StoreFull if they do not
        fit into memory and the disk is full: then nothing was added."""
        self._add(CHECK | UPDATE, keys, values, aux)

    def _add(self, code: int, keys: Keys, values: Values | None, aux: Aux | None) -> None:
        if (values is not None) is not (bool(code & UPDATE) and self._kinds.value is not None):
            raise ValueError("an update has values if the store has, and nothing else has any")
        if (aux is not None) is not (bool(code & CHECK) and self._kinds.aux is not None):
            raise ValueError("a check has auxiliary data if the store has, and nothing else has")
        if any(len(each) != len(keys) for each in (values, aux) if each is not None):
            raise ValueError("keys, values and auxiliary data are not equally many")
        with self._lock:
            self._fresh.add(code, keys, values, aux)

    def merge(self) -> Merged:
        """Do the operations that wait. Those added meanwhile wait for the next merge. May run in
        a thread: what it does with more than 65,536 keys at once releases the interpreter lock.

        Raises StoreFull, StoreUnavailable, or DataDirError for a damaged run; then the same
        operations are in the next merge."""
        with self._lock:
            if self._merging is None:
                self._merging, self._fresh = self._fresh, self._next_batch()
        batch, moved = self._merging, self.moved
        if batch.spilled:
            batch.spill()  # a batch is in memory, or in files, but not in both
        self._folder.require_free(self._bytes_to_write(batch))
        outputs = [self._output(0)]
        try:
            results, new = self._resolve(batch, outputs[0])
            runs = [] if self._files is Files.CENTRAL else self._runs
            runs = runs + self._finished(outputs[0])
            moved.runs_written += outputs[0].size
            oldest = oldest_to_compact([len(run) for run in runs], self.limits.fan_out)
            if oldest < len(runs):
                outputs.append(self._output(1))
                self._compact(runs[oldest:], outputs[1])
                runs[oldest:] = self._finished(outputs[1])
                moved.compaction_written += outputs[1].size
            self._folder.sync_names()
        except BaseException:
            for output in outputs:
                output.discard()
            raise
        manifest = DrumManifest(
            self._manifest.keys + new,
            self._manifest.next + len(outputs),
            tuple(run.stored for run in runs),
        )
        return Merged(
            manifest, results, runs, [name for output in outputs for name in output.names]
        )

    def adopt(self, merged: Merged, *, keep_replaced: bool = False) -> None:
        """Go on with what *merged* has written, after its manifest is committed, and remove the
        files that it replaces; with *keep_replaced*, when `remove_replaced` is called: after a
        power cut an earlier manifest may be the last one."""
        assert self._merging is not None, "only the last merge is adopted, and once"
        batch, old = self._merging, self._manifest
        with self._lock:
            self._manifest, self._runs = merged.manifest, merged.runs
            self._merging = None
        kept = {file.name for stored in merged.manifest.runs for file in stored.files}
        written = [file.name for stored in old.runs for file in stored.files] + merged.written
        self._replaced += (name for name in written if name not in kept)
        if not keep_replaced:
            self.remove_replaced()
        batch.remove()
        self.moved.buckets_read += batch.read
        self.moved.buckets_written += batch.written

    def remove_replaced(self) -> None:
        """Remove the files that no manifest names any more."""
        replaced, self._replaced = self._replaced, []
        for name in replaced:
            self._folder.remove(name)

    @property
    def has_replaced(self) -> bool:
        """Whether `remove_replaced` has files to remove."""
        return bool(self._replaced)

    def abandon(self, merged: Merged) -> None:
        """Remove what *merged* has written: its manifest is certainly not committed. Its
        operations wait for the next merge."""
        for name in merged.written:
            self._folder.remove(name)

    def contains(self, keys: Keys) -> Flags:
        """Return which *keys* are in the store, or will be after the operations that wait. It
        reads a page a key and run, and all that wait (10 ns each): for a thread. Raises
        DataDirError, as all that reads the runs, if what it needs of them is damaged."""
        with self._lock:
            runs = self._runs
            waiting = [batch.update_keys(0, 1 << 64) for batch in self._waiting_batches()]
        asked, order = sort_order(keys)
        found = self._find(runs, asked)[0]
        for some in chain.from_iterable(waiting):
            hit, at = hits(asked, some)
            np.put(found, at.compress(hit), True)
        begins = _begins(asked)  # of equal keys the first is marked
        found = found.compress(begins).take(running_sum(begins) - 1)
        return unsorted(found, order)

    def keys_in(self, low: int, high: int) -> Iterator[Keys]:
        """Return the keys from *low* to below *high* (0 to 2**64) that were in the store at the
        call or waited to be put there, in slices of 65,536 at most. Some come more than once."""
        with self._lock:
            waiting = [batch.update_keys(low, high) for batch in self._waiting_batches()]
            runs = self._runs
        return chain(_slices(runs, low, high), *waiting)

    def check_files(self) -> None:
        """Read all files. Raises DataDirError, which names the file, if one is damaged."""
        for run in self._runs:
            run.check()

    def _waiting_batches(self) -> list[DrumBatch]:
        return [batch for batch in (self._merging, self._fresh) if batch is not None]

    def _next_batch(self) -> DrumBatch:
        self._batches += 1
        return DrumBatch(self._folder, self._batches, self._kinds, self.limits)

    def _opened(self, stored: StoredRun) -> KeyRun:
        return KeyRun(self._folder, stored, self._kinds.value, self.limits.piece_keys)

    def _output(self, number: int) -> RunOutput:
        return RunOutput(self._folder, self._manifest.next + number, self._kinds.value)

    def _finished(self, output: RunOutput) -> list[KeyRun]:
        stored = output.finish()
        return [] if stored is None else [self._opened(stored)]

    def _bytes_to_write(self, batch: DrumBatch) -> int:
        """At most: of all keys of *batch* being new."""
        sizes = [*(len(run) for run in self._runs), len(batch)]
        oldest = oldest_to_compact(sizes, self.limits.fan_out)
        keys = sum(sizes) if self._files is Files.CENTRAL else sizes[-1] + sum(sizes[oldest:])
        width = self._kinds.record - 1
        results = len(batch) * (width - 7) if batch.spilled else 0
        return int(keys * width * _FENCES) + results

    def _resolve(
        self, batch: DrumBatch, output: RunOutput
    ) -> tuple[Callable[[], Iterator[Checked]], int]:
        """Do the operations of *batch*, and return how to read the results, and the number of new
        keys."""
        new = 0
        for bucket, (low, high, columns) in enumerate(batch.buckets()):
            work = _Sorted(columns, self._combine)
            if self._files is Files.CENTRAL:
                found, stored = self._rewrite(work, output, low, high)
            else:
                found, stored = self._append(work, output)
            is_new = ~found if work.updated is None else work.updated & ~found
            new += int(np.count_nonzero(is_new))
            codes, before = work.results(found, stored)
            if batch.spilled:
                batch.keep_results(codes, before, bucket)
        if batch.spilled:
            return batch.kept_results, new
        result = checked_rows(codes, before, batch.aux())
        return lambda: iter([result]), new

    def _append(self, work: _Sorted, output: RunOutput) -> tuple[Flags, Values | None]:
        """Find the keys of *work* in the runs, and write those that are new or have a new value."""
        found, stored = self._find(self._runs, work.keys, self.moved)
        wanted = ~found
        if work.values is not None and work.updated is not None and stored is not None:
            at = np.flatnonzero(found & work.updated)
            np.put(work.values, at, work.combined(stored.take(at), work.values.take(at)))
            wanted |= work.values != stored
        if work.updated is not None:
            wanted &= work.updated
        self._write_new(work, wanted, output)
        return found, stored

    def _find(
        self, runs: Sequence[KeyRun], keys: Keys, moved: MovedBytes | None = None
    ) -> tuple[Flags, Values | None]:
        """Return which of the sorted *keys* are in *runs*, and their values, the newest."""
        stored = None if self._kinds.value is None else np.zeros(len(keys), self._kinds.value)
        # What a run has is not looked for in the others: without values the largest comes first.
        rest, places = keys, np.arange(len(keys))
        for run in runs if stored is None else reversed(runs):
            hit, at, size = run.find(rest)
            if stored is not None and run.values is not None:
                rows = np.flatnonzero(hit)
                np.put(stored, places.take(rows), run.values_at(at.take(rows)))
                size += min(len(rows) * PAGE, run.values.rows.nbytes)
            if moved is not None:
                moved.runs_read += size
            missed = ~hit
            rest, places = rest.compress(missed), places.compress(missed)
        found = np.ones(len(keys), np.bool_)
        np.put(found, places, False)
        return found, stored

    def _rewrite(
        self, work: _Sorted, output: RunOutput, low: int, high: int
    ) -> tuple[Flags, Values | None]:
        """Find the keys of *work*, all from *low* to below *high*, in that part of the central
        file, and write it with them."""
        found = np.zeros(len(work.keys), np.bool_)
        stored = None if self._kinds.value is None else np.zeros(len(found), self._kinds.value)
        if not self._runs:
            self._write_new(work, work.updated, output)
            return found, stored
        run = self._runs[0]
        begin, end = run.locate(low), run.locate(high)
        for piece, asked in run.pieces(work.keys, begin, end):
            run.read_ahead(piece)
            some = work.keys[asked]
            before = run.keys(piece)
            hit, at = hits(before, some)
            found[asked] = hit
            updated = np.True_ if work.updated is None else work.updated[asked]
            is_new = ~hit & updated
            keys = np.concatenate([before, some.compress(is_new)])
            if stored is None or work.values is None or run.values is None:
                keys.sort()
                output.append(keys, None)
                continue
            old, new = run.values[piece].copy(), work.values[asked]
            rows = np.flatnonzero(hit)
            np.put(stored[asked], rows, old.take(at.take(rows)))
            rows = np.flatnonzero(hit & updated)
            places = at.take(rows)
            np.put(old, places, work.combined(old.take(places), new.take(rows)))
            order = np.argsort(keys, kind="stable")
            values = np.concatenate([old, new.compress(is_new)])
            output.append(keys.take(order), values.take(order))
        self.moved.runs_read += (end - begin) * (self._kinds.record - 1)
        return found, stored

    def _write_new(self, work: _Sorted, wanted: Flags | None, output: RunOutput) -> None:
        at = np.arange(len(work.keys)) if wanted is None else np.flatnonzero(wanted)
        for begin in range(0, len(at), self.limits.piece_keys):
            some = at[begin : begin + self.limits.piece_keys]
            values = None if work.values is None else work.values.take(some)
            output.append(work.keys.take(some), values)

    def _compact(self, runs: Sequence[KeyRun], output: RunOutput) -> None:
        """Merge *runs*, oldest first; of equal keys the newest stays."""
        largest = max(runs, key=len)
        begins = [0] * len(runs)
        for piece, _ in largest.pieces(np.empty(0, np.uint64), 0, len(largest)):
            is_last = piece.stop == len(largest)
            high = 1 << 64 if is_last else largest.fence(piece.stop // PAGE_KEYS)
            ends = [run.locate(high) for run in runs]
            parts = [slice(*ends) for ends in zip(begins, ends, strict=True)]
            for run, part in zip(runs, parts, strict=True):
                run.read_ahead(part)
            keys = np.concatenate([run.keys(part) for run, part in zip(runs, parts, strict=True)])
            self.moved.compaction_read += len(keys) * (self._kinds.record - 1)
            begins = ends
            if self._kinds.value is None:
                keys.sort()
                output.append(keys, None)
                continue
            values = np.concatenate(
                [
                    run.values[part]
                    for run, part in zip(runs, parts, strict=True)
                    if run.values is not None
                ]
            )
            order = np.argsort(keys, kind="stable")
            keys = keys.take(order)
            newest = np.append(keys[1:] != keys[:-1], np.True_)
            output.append(keys.compress(newest), values.take(order.compress(newest)))


def _slices(runs: Sequence[KeyRun], low: int, high: int) -> Iterator[Keys]:
    for run in runs:
        end = run.locate(high)
        for begin in range(run.locate(low), end, HELD):
            yield run.keys(slice(begin, min(begin + HELD, end)))

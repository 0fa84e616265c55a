"""The seen test: which URLs were admitted before.

Rule: the answer is exact. New keys are in memory until a merge writes them as a run; of the keys in
runs a gate says at once which are certainly not there, and the others wait for a search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.drum import Drum, Merged
from crawler.frontier.gate import Gate
from crawler.frontier.run_files import DrumManifest, Flags, Keys, Places, RunFolder, unsealed
from crawler.frontier.staging import WriteBatch, all_records

_ALL_KEYS: Final = 1 << 64
_GATE_PIECES: Final = 64  # in which the gate is filled at opening
_GATE_STEP: Final = 100_000  # keys added to the gate in one step: 8 ms
_STORED_KEY: Final = np.dtype("<u8")


class Readable(Protocol):
    def get(self, key: bytes) -> bytes | None: ...


def stored_keys(packed: bytes) -> Keys:
    """Return the keys of a record of admitted URLs."""
    return np.frombuffer(packed, _STORED_KEY)


def seen_manifest(store: Readable) -> DrumManifest:
    """Return which runs are the seen set of the frontier in *store*. Raises DataDirError."""
    packed = store.get(keys.SEEN_RUNS)
    return unsealed(packed, "the manifest of the seen URLs") if packed else DrumManifest()


class RecentKeys:
    """Keys of URLs found or admitted lately: eight of nine links were found before, most of them
    recently. Each has one place, by its last bits, until another key takes it: 8 bytes a place,
    and 9 us for the 40 links of a page, where two sets of Python took 22 (with cold caches)."""

    def __init__(self, places: int) -> None:
        """*places* is a power of two."""
        self._last_bits = np.uint64(places - 1)
        self.clear()

    def clear(self) -> None:
        # A place that is free has a key whose place is another one.
        self._keys: Keys = np.arange(int(self._last_bits) + 1, dtype=np.uint64) ^ np.uint64(1)

    def add(self, found: Keys) -> None:
        self._keys[self._places(found)] = found

    def contain(self, wanted: Keys) -> Flags:
        found: Flags = self._keys.take(self._places(wanted)) == wanted
        return found

    def _places(self, wanted: Keys) -> Places:
        return (wanted & self._last_bits).view(np.int64)


class SeenSet:
    """The keys of all URLs ever admitted."""

    def __init__(self, batch: WriteBatch, runs: RunFolder, recent_keys: int) -> None:
        """*recent_keys* as of FrontierLimits. Raises DataDirError if a run in *runs* is missing."""
        self._batch = batch
        self._drum = Drum(runs, seen_manifest(batch))
        self._gate = Gate(len(self._drum))
        self._gate_holds = 0 if len(self._drum) else _ALL_KEYS  # the keys below are in the gate
        self.new_keys: list[int] = []  # in no run, and no merge has begun to write them
        self._merging: list[int] = []  # new, too: a merge is writing them
        self._unmerged: set[int] = set()  # all of those
        self._recent = RecentKeys(recent_keys)  # some of those, and of the keys in runs
        self._records: list[bytes] = []  # the names of the records that have the new keys
        self._imported: list[Keys] = []  # keys that another owner of a shard has admitted
        self._on_merged: list[Callable[[], None]] = []  # called when they are in runs
        self._forgotten: set[int] = set()  # keys that are here, but were not admitted after all
        for name, packed in all_records(batch, keys.ADMITTED_KEYS):
            self._records.append(name)
            self._mark(stored_keys(packed))

    def not_recent(self, found: Collection[int]) -> Collection[int]:
        """Return the keys *found* without those that were admitted or searched for lately."""
        tested = np.fromiter(found, np.uint64, len(found))
        are_recent = self._recent.contain(tested)
        # `any` is a function of Python in numpy, and takes 4 us more.
        return tested.compress(~are_recent).tolist() if np.count_nonzero(are_recent) else found

    def look_up(self, found: Collection[int]) -> tuple[set[int], list[int]]:
        """Return which of the keys *found* were admitted, and which perhaps were: the runs have to
        be searched for them. The others, most of them, were certainly never admitted."""
        if self._forgotten:
            found = [key for key in found if key not in self._forgotten]
        admitted = self._unmerged.intersection(found)
        if not len(self._drum):
            return admitted, []
        tested = np.fromiter(found, np.uint64, len(found))
        admitted.update(tested.compress(self._recent.contain(tested)).tolist())
        perhaps = self._gate.may_contain(tested)
        if self._gate_holds < _ALL_KEYS:
            perhaps |= tested >= np.uint64(self._gate_holds)
        return admitted, [key for key in tested.compress(perhaps).tolist() if key not in admitted]

    def is_new(self, key: int) -> bool:
        """Return whether *key* was admitted since the last merge."""
        return key in self._unmerged and key not in self._forgotten

    def mark(self, admitted: Sequence[int], shard: bytes) -> None:
        """Count keys of *shard* as admitted, and stage a record of them."""
        self._batch.count_seen(shard, len(admitted))
        name = keys.numbered(keys.ADMITTED_KEYS, self._batch.next_number(shard))
        marked = np.array(admitted, _STORED_KEY)
        self._batch.put(name, marked.tobytes())
        self._records.append(name)
        self._mark(marked)

    def import_keys(self, admitted: Sequence[Keys], on_merged: Callable[[], None]) -> None:
        """Take the keys that another owner of a shard has admitted into the next merge. Then they
        count, and *on_merged* is called."""
        self._imported += admitted
        self._on_merged.append(on_merged)
        if self._forgotten:
            for each in admitted:
                self._forgotten.difference_update(each.tolist())

    @property
    def is_import_due(self) -> bool:
        """Whether keys were imported since the last merge began."""
        return bool(self._on_merged)

    def forget(self, marked: Iterable[int]) -> None:
        """Count keys as never admitted: those of a shard that was lost before anybody else knew
        of them."""
        self._forgotten.update(marked)
        self._recent.clear()

    def _mark(self, admitted: Keys) -> None:
        new = admitted.tolist()
        self._forgotten.difference_update(new)
        self.new_keys += new
        self._unmerged.update(new)
        self._recent.add(admitted)

    def remember(self, stored: Sequence[int]) -> None:
        """Remember keys that a search has found in the runs."""
        self._recent.add(np.array(stored, np.uint64))

    def search(self, wanted: Sequence[int]) -> list[bool]:
        """Return for each of the keys whether it was admitted. It reads the disk, and may run in a
        thread. Raises StoreUnavailable."""
        sorted_keys = np.array(wanted, np.uint64)
        order = np.argsort(sorted_keys)
        found = np.empty(len(wanted), np.bool_)
        found[order] = self._drum.contains(sorted_keys.take(order))
        return [
            (stored or key in self._unmerged) and key not in self._forgotten
            for key, stored in zip(wanted, found.tolist(), strict=True)
        ]

    def begin_merge(self) -> SeenMerge:
        """Return the merge of all new and imported keys into the runs. One at a time."""
        assert not self._merging, "the merge before is not over"
        self._merging, self.new_keys = self.new_keys, []
        records, self._records = self._records, []
        imported, self._imported = self._imported, []
        on_merged, self._on_merged = self._on_merged, []
        merging = np.concatenate([np.array(self._merging, np.uint64), *imported])
        return SeenMerge(self, self._drum, merging, records, self._batch.sync, on_merged)

    def stage_merge(self, merged: Merged, new: Keys, records: Sequence[bytes]) -> Iterator[None]:
        """Stage what *merged* changes: the *new* keys, those that *records* have among them, are in
        a run now. Yields when that is to be committed."""
        self._batch.put(keys.SEEN_RUNS, merged.manifest.sealed())
        if not self._batch.shards.are_several:  # else the shards' keys are told apart by these
            self._batch.delete_all(records)
        yield
        self._drum.adopt(merged, keep_replaced=True)
        for at in range(0, len(new), _GATE_STEP):
            self._gate.add(new[at : at + _GATE_STEP])
            yield
        self._merging = []
        self._unmerged = set(self.new_keys)

    def begin_gate_piece(self) -> GateWork | None:
        """Return the next piece of the gate that is to be built, or None. One at a time, and not
        during a merge."""
        if self._gate_holds < _ALL_KEYS:
            begin, self._gate_end = self._gate_holds, self._gate_holds + _ALL_KEYS // _GATE_PIECES
            return GateWork(partial(self._fill_gate, begin, self._gate_end), self._on_gate_filled)
        piece = self._gate.next_piece()
        if piece is None:
            return None
        return GateWork(partial(piece.build, self._drum.keys_in), partial(self._gate.finish, piece))

    def _fill_gate(self, low: int, high: int) -> None:
        for stored in self._drum.keys_in(low, high):
            self._gate.add(stored)

    def _on_gate_filled(self) -> None:
        self._gate_holds = self._gate_end


class GateWork(NamedTuple):
    """A piece of the gate: to be built, perhaps in a thread, and then to be used."""

    run: Callable[[], None]
    apply: Callable[[], None]


class SeenMerge:
    """New keys on their way into the runs: `run`, perhaps in a thread, then the steps of
    `apply`."""

    def __init__(
        self,
        seen: SeenSet,
        drum: Drum,
        new: Keys,
        records: Sequence[bytes],
        sync: Callable[[], None],
        on_merged: Sequence[Callable[[], None]],
    ) -> None:
        """*records*: the names of those that have the *new* keys. *sync* makes the manifest of the
        merge before survive a power cut. *on_merged* are called when all is over."""
        self._seen = seen
        self._sync = sync
        self._drum = drum
        self._new = new
        self._records = records
        self._on_merged = on_merged
        self._is_added = False  # to the drum
        self._merged: Merged | None = None

    def run(self) -> None:
        """Raises StoreFull, after which it may be called again, and StoreUnavailable."""
        if self._drum.has_replaced:
            self._sync()
            self._drum.remove_replaced()
        if len(self._new):
            if not self._is_added:
                self._drum.update(self._new)
                self._is_added = True
            self._merged = self._drum.merge()

    def apply(self) -> Iterator[None]:
        if self._merged is not None:
            yield from self._seen.stage_merge(self._merged, self._new, self._records)
        for on_merged in self._on_merged:
            on_merged()

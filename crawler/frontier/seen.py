"""The seen test: which URLs were admitted before.

Rule: the answer is exact. New keys are in memory until a merge writes them as a run; of the keys in
runs a gate says at once which are certainly not there, and the others wait for a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.drum import Drum, Merged
from crawler.frontier.gate import Gate
from crawler.frontier.run_files import DrumManifest, RunFolder, unsealed
from crawler.frontier.staging import WriteBatch

# Eight of nine links were found before, most of them recently. Two generations of this many keys
# take 10 MB and spare most searches (a guess to be measured per crawl).
RECENT: Final = 60_000
_ALL_KEYS: Final = 1 << 64
_GATE_PIECES: Final = 64  # in which the gate is filled at opening


class Readable(Protocol):
    def get(self, key: bytes) -> bytes | None: ...


def seen_manifest(store: Readable) -> DrumManifest:
    """Return which runs are the seen set of the frontier in *store*. Raises DataDirError."""
    packed = store.get(keys.SEEN_RUNS)
    return unsealed(packed, "the manifest of the seen URLs") if packed else DrumManifest()


class SeenSet:
    """The keys of all URLs ever admitted."""

    def __init__(self, batch: WriteBatch, runs: RunFolder) -> None:
        """Raises DataDirError if a run in *runs* is missing."""
        self._batch = batch
        self._drum = Drum(runs, seen_manifest(batch))
        self._gate = Gate(len(self._drum))
        self._gate_holds = 0 if len(self._drum) else _ALL_KEYS  # the keys below are in the gate
        self._new: set[int] = set()  # in no run yet
        self._merging: set[int] = set()  # new, too: a merge is writing them
        # Some keys that are in runs, two generations.
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def sort_out(self, found: Sequence[int]) -> tuple[set[int], set[int]]:
        """Return which of the keys *found* were certainly never admitted, and which perhaps were:
        the runs have to be searched for them. The others were admitted."""
        unsure = set(found) - self._new - self._merging - self._recent - self._older
        if not unsure or not len(self._drum):
            return unsure, set()
        tested = np.fromiter(unsure, np.uint64, len(unsure))
        are_new = ~self._gate.may_contain(tested)
        if self._gate_holds < _ALL_KEYS:
            are_new &= tested < np.uint64(self._gate_holds)
        new = set(tested.compress(are_new).tolist())
        return new, unsure - new

    def mark(self, admitted: Iterable[int]) -> None:
        """Count keys as admitted. The entry of the commit has their URLs."""
        self._new.update(admitted)

    def remember(self, stored: Iterable[int]) -> None:
        """Remember keys that a search has found in the runs."""
        self._recent.update(stored)
        if len(self._recent) > RECENT:
            self._recent, self._older = set(), self._recent

    def search(self, wanted: Sequence[int]) -> list[bool]:
        """Return for each of the keys whether it was admitted. It reads the disk, and may run in a
        thread. Raises StoreUnavailable."""
        sorted_keys = np.array(wanted, np.uint64)
        order = np.argsort(sorted_keys)
        found = np.empty(len(wanted), np.bool_)
        found[order] = self._drum.contains(sorted_keys.take(order))
        return [
            stored or key in self._new or key in self._merging
            for key, stored in zip(wanted, found.tolist(), strict=True)
        ]

    def begin_merge(self) -> SeenMerge:
        """Return the merge of all new keys into the runs. One at a time."""
        assert not self._merging, "the merge before is not over"
        self._new, self._merging = set(), self._new
        return SeenMerge(self, self._drum, self._merging, self._batch.sync)

    def stage_merge(self, merged: Merged) -> Iterator[None]:
        """Stage what *merged* changes. Yields when that is to be committed."""
        self._batch.put(keys.SEEN_RUNS, merged.manifest.sealed())
        yield
        self._drum.adopt(merged, keep_replaced=True)
        merging, self._merging = self._merging, set()
        self._gate.add(np.fromiter(merging, np.uint64, len(merging)))
        self.remember(merging)

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

    def __init__(self, seen: SeenSet, drum: Drum, new: set[int], sync: Callable[[], None]) -> None:
        """*sync* makes the manifest of the merge before survive a power cut."""
        self._seen = seen
        self._sync = sync
        self._drum = drum
        self._new = new
        self._merged: Merged | None = None

    def run(self) -> None:
        """Raises StoreUnavailable."""
        if self._drum.has_replaced:
            self._sync()
            self._drum.remove_replaced()
        if self._new:
            added = np.fromiter(self._new, np.uint64, len(self._new))
            self._drum.update(added)
            self._merged = self._drum.merge()

    def apply(self) -> Iterator[None]:
        if self._merged is not None:
            yield from self._seen.stage_merge(self._merged)

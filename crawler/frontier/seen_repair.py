"""The runs of the seen set, rebuilt where they are damaged.

Rule: a key comes back only if a damaged page may have had it, and a record says that its URL was
admitted: a key too many is a page that is never fetched. Nothing that is damaged is removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.drum import Drum
from crawler.frontier.port import DurableStore
from crawler.frontier.run_files import (
    DAMAGED,
    PAGE_KEYS,
    DrumManifest,
    Flags,
    KeyRun,
    Keys,
    RunFolder,
    StoredRun,
    read_pages,
)
from crawler.frontier.seen import seen_manifest
from crawler.model.types import DataDirError

_FULL: Final = (1 << 64) - 1
_SLICE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class DamagedRun:
    """A run that a look-up must not read."""

    stored: StoredRun
    file: Path  # where it is: a repair that was cut off has set it aside already
    pages: int  # damaged
    keys: int  # in damaged pages
    gaps: list[tuple[int, int]]  # the lowest and the highest key that damaged pages may have

    def may_have_had(self, wanted: Keys) -> Flags:
        if not self.gaps:
            return np.zeros(len(wanted), np.bool_)
        lowest, highest = np.array(self.gaps, np.uint64).T
        at = np.maximum(lowest.searchsorted(wanted, "right") - 1, 0)
        found: Flags = (lowest.take(at) <= wanted) & (wanted <= highest.take(at))
        return found


@dataclass(frozen=True, slots=True)
class RebuiltSeen:
    """What was rebuilt of the seen set. Counts are of keys: one for each URL."""

    set_aside: list[str]  # the damaged files, by their new names
    damaged: int  # in damaged pages
    held: int  # of them found again: of URLs that the frontier holds
    fetched: int  # and of URLs that were fetched
    lost: int  # the rest: their URLs may be fetched again


def find_damage(manifest: DrumManifest, runs: RunFolder) -> list[DamagedRun]:
    """Read all runs of *manifest*, and return those that are damaged."""
    looked_at = (_damage_of(stored, runs) for stored in manifest.runs)
    return [found for found in looked_at if found is not None]


def _damage_of(stored: StoredRun, runs: RunFolder) -> DamagedRun | None:
    (file,) = stored.files
    path, aside = runs.path / file.name, runs.path / (file.name + DAMAGED)
    is_opened = False
    try:
        is_opened = bool(len(KeyRun(runs, stored, None, PAGE_KEYS)))
    except DataDirError:
        path = aside if aside.exists() and not path.exists() else path
    pages = lost = done = begin = 0
    is_gap, gaps = False, []
    for each in read_pages(path, stored.keys):
        for page, is_whole in enumerate(each.whole.tolist()):
            if is_whole:
                rows = each.keys[page * PAGE_KEYS : (page + 1) * PAGE_KEYS]
                if is_gap:
                    gaps.append((begin, int(rows[0]) - 1))
                is_gap, begin = False, int(rows[-1]) + 1
            else:
                is_gap, pages = True, pages + 1
                lost += min(PAGE_KEYS, stored.keys - done)
            done += PAGE_KEYS
    if is_gap:
        gaps.append((begin, _FULL))
    return None if is_opened and not pages else DamagedRun(stored, path, pages, lost, gaps)


def repair_seen(
    store: DurableStore, runs: RunFolder, held: Iterable[int], fetched: Iterable[int]
) -> RebuiltSeen | None:
    """Rebuild the damaged runs of the seen set in *store*, which no process may have open, from
    their whole pages and the keys *held* by the frontier and *fetched*. Returns None if none is
    damaged. If it fails or is cut off, it can be repeated. Raises StoreUnavailable."""
    manifest = seen_manifest(store)
    found = find_damage(manifest, runs)
    if not found:
        return None
    aside = [_set_aside(each, runs) for each in found]
    runs.sync_names()
    damaged = {each.stored for each in found}
    whole = tuple(stored for stored in manifest.runs if stored not in damaged)
    before = DrumManifest(sum(stored.keys for stored in whole), manifest.next, whole)
    drum = Drum(runs, before)
    for run, path in zip(found, aside, strict=True):
        for each in read_pages(path, run.stored.keys):
            rows = np.repeat(each.whole, PAGE_KEYS)[: len(each.keys)]
            _put(drum, each.keys.compress(rows))
    counts = [_merge(drum)]
    for source in (held, fetched):
        keys_left = iter(source)
        while some := list(islice(keys_left, _SLICE)):
            wanted = np.array(some, np.uint64)
            may_have_been = np.zeros(len(wanted), np.bool_)
            for run in found:
                may_have_been |= run.may_have_had(wanted)
            _put(drum, wanted.compress(may_have_been))
        counts.append(_merge(drum))
    store.write({keys.SEEN_RUNS: drum.manifest.sealed()})
    store.sync()
    drum.remove_replaced()
    lost = max(0, sum(run.keys for run in found) - (counts[-1] - counts[0]))
    return RebuiltSeen(
        [path.name for path in aside],
        sum(run.keys for run in found),
        counts[1] - counts[0],
        counts[2] - counts[1],
        lost,
    )


def _set_aside(run: DamagedRun, runs: RunFolder) -> Path:
    """Give the file of *run* a name that no opening removes, and return it."""
    name = run.stored.files[0].name
    if (runs.path / name).exists():
        runs.rename(name, name + DAMAGED)
    return runs.path / (name + DAMAGED)


def _put(drum: Drum, found: Keys) -> None:
    for begin in range(0, len(found), _SLICE):
        drum.update(found[begin : begin + _SLICE])
    if drum.is_full:
        _merge(drum)


def _merge(drum: Drum) -> int:
    """Store the keys that wait, and return how many there are. The files that this replaces stay,
    as the manifest on disk names them."""
    drum.adopt(drum.merge(), keep_replaced=True)
    return len(drum)

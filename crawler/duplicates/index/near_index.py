"""The index of near-duplicates: finds all fingerprints within 3 bits.

Rule: a fingerprint is found as soon as it is added, and is on disk once `on_written` was called
with its digest; until then the caller keeps it elsewhere. Runs are written and merged in a thread,
and the caller waits only if that falls far behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar

import numpy as np
from msgspec.structs import replace

from crawler.duplicates.index.manifest import (
    IndexFolder,
    IndexLimits,
    Manifest,
    translate_os_errors,
)
from crawler.duplicates.index.orders import (
    DIGEST_BYTES,
    NewestPages,
    SortedBatch,
    SortedSource,
)
from crawler.duplicates.index.runs import SortedRun, write_run
from crawler.duplicates.index.search import IndexView, NearMatch
from crawler.frontier import records as keys
from crawler.frontier.port import OrderedStore
from crawler.frontier.records import decode_claim
from crawler.model.types import Claim, CrawlerError, StoreUnavailable


class RunSet:
    """The runs that the manifest names.

    Changes happen one at a time, each in this order: the new run is written, the manifest names it
    instead of the runs that it replaces, the view is replaced, and the old runs are removed."""

    def __init__(self, folder: IndexFolder, manifest: Manifest, limits: IndexLimits) -> None:
        """Raises DataDirError if a run is missing or damaged. Takes about 1 s for 2e7 pages."""
        self._folder = folder
        self._manifest = manifest
        self._limits = limits
        self.runs: tuple[SortedRun, ...] = tuple(
            SortedRun(folder, record) for record in manifest.runs
        )
        for run in self.runs:
            run.check()
        folder.sweep({record.name for record in manifest.runs})

    def append_run(self, sources: Sequence[SortedSource], show: Callable[[], None]) -> None:
        """Write *sources* as the newest run. *show* is called when the manifest names it."""
        self._put(sources, len(self.runs), len(self.runs), lambda: None, show)

    def merge(self, place: int, between: Callable[[], None], show: Callable[[], None]) -> None:
        """Merge all runs after the *place* oldest into one. While *between* is called, new runs may
        be filed, and newer ones merged."""
        merged = self.runs[place:]
        self._put(merged, place, place + len(merged), between, show)

    def mergeable(self, place: int) -> int | None:
        """Return after how many of the oldest runs (*place* at least) all should be merged, or
        None."""
        newer, first = 0, len(self.runs)
        for at in range(len(self.runs) - 1, place - 1, -1):
            pages = self.runs[at].record.pages
            if pages < self._limits.merge_ratio * newer:
                first = at
            newer += pages
        return first if len(self.runs) - first > 1 else None

    def mark_complete(self) -> None:
        """Note in the manifest that the index is complete."""
        self._save(replace(self._manifest, whole=True))

    def _put(
        self,
        sources: Sequence[SortedSource],
        begin: int,
        end: int,
        between: Callable[[], None],
        show: Callable[[], None],
    ) -> None:
        name = f"run-{self._manifest.next}"
        # Saved with the next manifest: runs filed meanwhile get other names, also after a crash.
        self._manifest = replace(self._manifest, next=self._manifest.next + 1)
        try:
            record = write_run(self._folder, name, sources, self._limits, between)
        except BaseException:
            self._folder.discard_draft(name)
            raise
        run = SortedRun(self._folder, record)
        replaced = self.runs[begin:end]
        runs = (*self.runs[:begin], run, *self.runs[end:])
        self._save(replace(self._manifest, runs=tuple(each.record for each in runs)))
        self.runs = runs
        show()
        for old in replaced:
            self._folder.remove(old.record.name)

    def _save(self, manifest: Manifest) -> None:
        self._folder.save(manifest)
        self._manifest = manifest


logger = logging.getLogger(__name__)


class _Stopping(Exception):
    """The index is closed during a merge, which is left for the next time."""


class NearIndex:
    """The index in one process. All calls come from one thread; of what they read, the index's own
    thread changes only the view, in one step."""

    def __init__(
        self,
        folder: IndexFolder,
        manifest: Manifest,
        on_written: Callable[[Iterable[bytes]], None],
        limits: IndexLimits | None = None,
    ) -> None:
        """Raises DataDirError if it is damaged. *on_written* is called, in any thread, with digests
        that are on disk now."""
        self._limits = limits or IndexLimits()
        self._on_written = on_written
        self._run_set = RunSet(folder, manifest, self._limits)
        self._view = IndexView(self._run_set.runs)
        self._newest = np.empty(self._limits.newest_pages, np.uint64)
        self._digests: list[bytes] = []
        self._lock = Lock()  # held for microseconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="near")
        self._failure: CrawlerError | None = None
        self._stopping = False
        self._room_callbacks: list[Callable[[], None]] = []

    def add(self, fingerprint: int, digest: bytes) -> None:
        self._newest[len(self._digests)] = fingerprint
        self._digests.append(digest)
        if len(self._digests) == len(self._newest):
            self._freeze()
            self._thread.submit(self._maintain_all)

    def near(self, fingerprint: int, max_bits: int) -> list[NearMatch]:
        """Return every fingerprint within *max_bits* (3 at most), nearest first. Raises
        StoreUnavailable if earlier additions could not be written."""
        self._check()
        newest = self._newest[: len(self._digests)]
        return self._view.near(fingerprint, max_bits, newest, self._limits.max_stretch)

    def pages(self, fingerprint: int, limit: int) -> tuple[list[bytes], int]:
        """Return, for exactly this fingerprint, the first 12 bytes of the digests of its oldest
        pages, *limit* at most, and how many pages it has."""
        digests, count = self._view.pages(fingerprint, limit)
        newest = self._newest[: len(self._digests)] == np.uint64(fingerprint)
        places = np.flatnonzero(newest).tolist()
        digests += [self._digests[at][:DIGEST_BYTES] for at in places[: limit - len(digests)]]
        return digests, count + len(places)

    def known(self, fingerprint: int, digests: set[bytes]) -> set[bytes]:
        """Return which of *digests* are among the pages of *fingerprint* on disk."""
        return self._view.known(fingerprint, digests)

    @property
    def is_behind(self) -> bool:
        """Whether the backlog of additions is full, so that the caller should wait."""
        return len(self._view.waiting) > self._limits.max_waiting_batches and self._failure is None

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call *callback* once, in any thread, when the index is no longer behind."""
        with self._lock:
            self._room_callbacks.append(callback)
        self._notify_room()

    def flush(self) -> None:
        """Write all additions to disk, in few runs. Blocks. Raises StoreUnavailable."""
        self._freeze()
        self._thread.submit(self._maintain_all).result()
        self._check()

    def mark_complete(self) -> None:
        """Note on disk that the index is complete."""
        with translate_os_errors():
            self._run_set.mark_complete()

    def close(self) -> None:
        """Block until the newest pages are on disk, without further merges. A page that cannot be
        written is not lost: its note is still in the store."""
        self._stopping = True
        self._thread.shutdown()
        self._freeze()
        try:
            if self._failure is None:
                self._write_waiting()
        except (OSError, CrawlerError) as refused:
            logger.warning(
                "The newest pages are not in the index of near-duplicates yet and are added at the"
                " next start: %s",
                refused,
            )

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _freeze(self) -> None:
        if not self._digests:
            return
        batch = NewestPages(self._newest[: len(self._digests)], self._digests)
        self._newest, self._digests = np.empty(self._limits.newest_pages, np.uint64), []
        with self._lock:
            self._view = IndexView(self._view.runs, (*self._view.waiting, batch))

    def _maintain_all(self) -> None:
        try:
            with translate_os_errors():
                self._maintain()
        except _Stopping:
            pass
        except CrawlerError as failure:
            self._failure = failure
        except Exception as failure:
            logger.exception("The index of near-duplicates has failed")
            self._failure = StoreUnavailable(f"the index of near-duplicates failed: {failure!r}")
        finally:
            self._notify_room()

    def _maintain(self, older: int = 0, *, within: bool = False) -> None:
        """Write and merge all that is due. *older*: how many of the oldest runs are left alone;
        *within*: another merge is going on."""
        self._write_waiting()
        while (place := self._run_set.mergeable(older)) is not None:
            end = len(self._run_set.runs)
            self._run_set.merge(place, partial(self._between, end, within), self._show)
            self._write_waiting()

    def _between(self, end: int, within: bool) -> None:
        """Write new pages between the pieces of a large merge, up to a limit: without it, additions
        faster than merges would make ever more runs."""
        if self._stopping:
            raise _Stopping
        if len(self._run_set.runs) - end < self._limits.max_runs_during_merge:
            self._write_waiting()
        elif not within:
            self._maintain(end, within=True)

    def _write_waiting(self) -> None:
        """Write the batches waiting now, and no later ones, or fast additions would prevent
        merges."""
        waiting = self._view.waiting
        if not waiting:
            return
        sources = [SortedBatch(batch) for batch in waiting]
        self._run_set.append_run(sources, partial(self._show, written=len(waiting)))
        for batch in waiting:
            self._on_written(batch.digests)
        self._notify_room()

    def _show(self, written: int = 0) -> None:
        with self._lock:
            self._view = IndexView(self._run_set.runs, self._view.waiting[written:])

    def _notify_room(self) -> None:
        if self.is_behind:
            return
        with self._lock:
            callbacks, self._room_callbacks = self._room_callbacks, []
        for each in callbacks:
            each()


T = TypeVar("T")

_SLICE: Final = 1000
# Deleted at a time, as the thread that does it blocks the event loop for part of a millisecond.
_DELETED: Final = 100
# Claims sorted by age at a time when the index is rebuilt: 30 MB.
_SORTED: Final = 100_000


def open_index(path: Path, store: OrderedStore, limits: IndexLimits | None = None) -> NearIndex:
    """Open the index at *path*, rebuild it from the claims if it is not complete, and add the pages
    that it lacks. Raises DataDirError if it is damaged.

    The commit that finishes a page puts a note with its fingerprint (keys.NEAR) beside its claim.
    The note is deleted when a run on disk has the page."""
    folder = IndexFolder(path)
    manifest = folder.load()
    if manifest is None or not manifest.whole:
        manifest = _rebuild(folder, store, limits)
    index = NearIndex(folder, manifest, partial(_delete_notes, store), limits)
    _add_noted(index, store)
    return index


def claim_of(store: OrderedStore, begin: bytes) -> Claim | None:
    """Return the claim of the digest that begins with these 12 bytes, or None if a power cut has
    lost it."""
    stop = keys.DIGEST + begin + b"\xff" * DIGEST_BYTES
    found = store.scan(keys.DIGEST + begin, stop, 1)
    return decode_claim(found[0][1]) if found else None


def _add_noted(index: NearIndex, store: OrderedStore) -> None:
    for noted in _slices(_each(store, keys.NEAR)):
        by_print: dict[int, set[bytes]] = {}
        for key, packed in noted:
            by_print.setdefault(keys.number_of(packed), set()).add(key[1:])
        for fingerprint, digests in by_print.items():
            known = index.known(fingerprint, digests)
            _delete_notes(store, known)
            for digest in digests - known:
                index.add(fingerprint, digest)
        if index.is_behind:
            index.flush()


def _rebuild(folder: IndexFolder, store: OrderedStore, limits: IndexLimits | None) -> Manifest:
    """Rebuild the index from the claims, older pages first, in slices that fit into memory."""
    beginning = Manifest(whole=False)
    folder.save(beginning)
    index = NearIndex(folder, beginning, lambda digests: None, limits)
    count = 0
    for claims in _slices(_claims(store), _SORTED):
        claims.sort(key=lambda claim: claim.at)
        for claim in claims:
            assert claim.simhash is not None, "filtered before"
            index.add(claim.simhash, claim.digest)
        index.flush()
        count += len(claims)
    index.flush()
    index.mark_complete()
    index.close()
    if count:
        logger.info("The index of near-duplicates was rebuilt from %d pages", count)
    manifest = folder.load()
    assert manifest is not None, "just written"
    return manifest


def _claims(store: OrderedStore) -> Iterator[Claim]:
    for _, packed in _each(store, keys.DIGEST):
        claim = decode_claim(packed)
        if claim.simhash is not None:
            yield claim


def _each(store: OrderedStore, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    begin, stop = prefix, keys.prefix_end(prefix)
    while found := store.scan(begin, stop, _SLICE):
        yield from found
        begin = found[-1][0] + b"\0"


def _slices(every: Iterator[T], size: int = _SLICE) -> Iterator[list[T]]:
    while found := list(islice(every, size)):
        yield found


def _delete_notes(store: OrderedStore, digests: Iterable[bytes]) -> None:
    for some in _slices(iter(digests), _DELETED):
        store.write({keys.NEAR + digest: None for digest in some})

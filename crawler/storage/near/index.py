"""The index of near-duplicates: fingerprints of pages, and which are within 3 bits.

Rule: what `add` was told is found at once, and exactly; it is on disk once `on_kept` says so,
and until then somebody else has it. Runs are written and merged aside, in a thread, and the
caller waits only if that falls far behind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Lock

import numpy as np

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.storage.near.folder import Folder, Manifest, translated
from crawler.storage.near.limits import Limits
from crawler.storage.near.shelf import Shelf
from crawler.storage.near.sources import DIGEST_BYTES, Batch, Sorted
from crawler.storage.near.view import Found, View

logger = logging.getLogger(__name__)


class _Stopping(Exception):
    """The index is being closed: the merge is left for the next time."""


class NearIndex:
    """Of one process. All calls come from one thread; the index' own changes nothing they see
    but the view, in one step."""

    def __init__(
        self,
        folder: Folder,
        manifest: Manifest,
        on_kept: Callable[[Iterable[bytes]], None],
        limits: Limits | None = None,
    ) -> None:
        """Raises DataDirError: damaged. *on_kept* is told digests that are on disk now, in any
        thread."""
        self._limits = limits or Limits()
        self._on_kept = on_kept
        self._shelf = Shelf(folder, manifest, self._limits)
        self._view = View(self._shelf.runs)
        self._newest = np.empty(self._limits.newest, np.uint64)
        self._digests: list[bytes] = []
        self._lock = Lock()  # held for microseconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="near")
        self._failure: CrawlerError | None = None
        self._stopping = False
        self._room: list[Callable[[], None]] = []

    def add(self, fingerprint: int, digest: bytes) -> None:
        self._newest[len(self._digests)] = fingerprint
        self._digests.append(digest)
        if len(self._digests) == len(self._newest):
            self._freeze()
            self._thread.submit(self._tend_all)

    def near(self, fingerprint: int, max_bits: int) -> list[Found]:
        """Every fingerprint within *max_bits* (3 at most), nearest first. Raises
        StoreUnavailable: what was added before cannot be written."""
        self._check()
        newest = self._newest[: len(self._digests)]
        return self._view.near(fingerprint, max_bits, newest, self._limits.stretch)

    def pages(self, fingerprint: int, limit: int) -> tuple[list[bytes], int]:
        """Of exactly this fingerprint: the first 12 bytes of the digests of its oldest pages,
        *limit* at most, and how many pages it has."""
        digests, count = self._view.pages(fingerprint, limit)
        newest = self._newest[: len(self._digests)] == np.uint64(fingerprint)
        places = np.flatnonzero(newest).tolist()
        digests += [self._digests[at][:DIGEST_BYTES] for at in places[: limit - len(digests)]]
        return digests, count + len(places)

    def known(self, fingerprint: int, digests: set[bytes]) -> set[bytes]:
        """Which of *digests* are among its pages on disk."""
        return self._view.known(fingerprint, digests)

    @property
    def is_behind(self) -> bool:
        """More is added than can be written: whoever adds should wait."""
        return len(self._view.waiting) > self._limits.waiting and self._failure is None

    def when_room(self, told: Callable[[], None]) -> None:
        """*told* is called once it is no longer behind, in any thread."""
        with self._lock:
            self._room.append(told)
        self._tell_room()

    def flush(self) -> None:
        """All that was added is on disk, in few runs. Blocks. Raises StoreUnavailable."""
        self._freeze()
        self._thread.submit(self._tend_all).result()
        self._check()

    def made_whole(self) -> None:
        """It has been rebuilt."""
        with translated():
            self._shelf.made_whole()

    def close(self) -> None:
        """Blocks until the newest are on disk; merges are left. What cannot be written is not
        lost: who added it has it."""
        self._stopping = True
        self._thread.shutdown()
        self._freeze()
        try:
            if self._failure is None:
                self._write_waiting()
        except (OSError, CrawlerError) as refused:
            logger.warning("The newest near-duplicates are indexed at the next start: %s", refused)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _freeze(self) -> None:
        if not self._digests:
            return
        batch = Batch(self._newest[: len(self._digests)], self._digests)
        self._newest, self._digests = np.empty(self._limits.newest, np.uint64), []
        with self._lock:
            self._view = View(self._view.runs, (*self._view.waiting, batch))

    def _tend_all(self) -> None:
        try:
            with translated():
                self._tend()
        except _Stopping:
            pass
        except CrawlerError as failure:
            self._failure = failure
        except Exception as failure:
            logger.exception("The index of near-duplicates has failed")
            self._failure = StoreUnavailable(f"the index of near-duplicates failed: {failure!r}")
        finally:
            self._tell_room()

    def _tend(self, older: int = 0, *, within: bool = False) -> None:
        """*older*: so many of the oldest runs are being merged, *within* which this happens."""
        self._write_waiting()
        while (place := self._shelf.mergeable(older)) is not None:
            end = len(self._shelf.runs)
            self._shelf.merge(place, partial(self._between, end, within), self._show)
            self._write_waiting()

    def _between(self, end: int, within: bool) -> None:
        """Pieces of a merge: what is new is not kept waiting by what is large. But whoever adds
        faster than we merge waits in the end, or there would be ever more runs."""
        if self._stopping:
            raise _Stopping
        if len(self._shelf.runs) - end < self._limits.newer:
            self._write_waiting()
        elif not within:
            self._tend(end, within=True)

    def _write_waiting(self) -> None:
        """Once: who adds as fast as we write would keep us from merging."""
        waiting = self._view.waiting
        if not waiting:
            return
        sources = [Sorted(batch) for batch in waiting]
        self._shelf.file(sources, partial(self._show, written=len(waiting)))
        for batch in waiting:
            self._on_kept(batch.digests)
        self._tell_room()

    def _show(self, written: int = 0) -> None:
        with self._lock:
            self._view = View(self._shelf.runs, self._view.waiting[written:])

    def _tell_room(self) -> None:
        if self.is_behind:
            return
        with self._lock:
            told, self._room = self._room, []
        for each in told:
            each()

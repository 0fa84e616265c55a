"""Group commit: one sync of the disk, about once a second, for all pages that wait for it.

Rule: the lease of a page is finished only after a sync that began when its record was written and
its links were added, so after a power cut no page is done without its record. The event loop never
waits for the disk: a thread does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final

from crawler.model.types import CrawlerError, StoreUnavailable

logger = logging.getLogger(__name__)

MAX_UNSYNCED_BYTES: Final = 64 << 20  # of unsynced records; with more, pages wait to be archived
SYNC_SOON_S: Final = 0.1  # between two syncs when nothing else is left to do
_FINISHED_AT_ONCE: Final = 50  # leases finished between two turns of the loop: 5 ms

Finish = Callable[[CrawlerError | None], None]
"""Called when the wait of a page ends, with the error if its record may not be on the disk."""


class GroupCommit:
    """The pages that wait for the next sync of the disk. Bound: those whose records, at most
    MAX_UNSYNCED_BYTES, were written since the last sync began."""

    def __init__(
        self,
        every_s: float,
        sync_records: Callable[[], None],
        unsynced_bytes: Callable[[], int],
        sync_verdicts: Callable[[], None],
        fail: Callable[[CrawlerError], None],
        on_finished: Callable[[], None],
    ) -> None:
        """*sync_records* forces all records written so far to the disk, *sync_verdicts* the changes
        by finished leases; both run in a thread and raise StoreUnavailable. *fail* stops the crawl;
        *on_finished* is called when leases were finished."""
        self._every_s = every_s
        self._sync_records = sync_records
        self._unsynced_bytes = unsynced_bytes
        self._sync_verdicts = sync_verdicts
        self._fail = fail
        self._on_finished = on_finished
        self._waiting: list[Finish] = []
        self._waiting_since = 0.0  # when the first of them came, monotonic
        self._sync_covers = 0.0  # the same of those that the sync under way is for; 0: none is
        self._task: asyncio.Task[None] | None = None
        self._sync_now = asyncio.Event()  # sync without waiting any longer
        self._synced = asyncio.Event()
        self._is_sync_due = False
        self._is_closing = False
        self._failure: CrawlerError | None = None

    def __len__(self) -> int:
        """Return how many pages wait."""
        return len(self._waiting)

    def when_synced(self, finish: Finish) -> None:
        """Call *finish* when everything written by now is synced."""
        if not self._waiting:
            self._waiting_since = monotonic()
        self._waiting.append(finish)
        self._begin()

    def lag_s(self) -> float:
        """Return for how long the oldest page that waits for a sync has waited, in seconds."""
        since = self._sync_covers or (self._waiting_since if self._waiting else 0.0)
        return monotonic() - since if since else 0.0

    def sync_soon(self) -> None:
        """Sync within SYNC_SOON_S, for when nothing else is left to do."""
        if self._waiting and not self._is_sync_due:
            self._is_sync_due = True
            asyncio.get_running_loop().call_later(
                min(SYNC_SOON_S, self._every_s), self._sync_now.set
            )

    async def wait_for_room(self) -> None:
        """Wait until one more record may be written. Raises StoreUnavailable."""
        if self._unsynced_bytes() < MAX_UNSYNCED_BYTES // 2:
            return
        self._sync_now.set()
        self._begin()
        while self._unsynced_bytes() >= MAX_UNSYNCED_BYTES:
            if self._failure is not None:
                raise StoreUnavailable(str(self._failure))
            self._synced.clear()
            await self._synced.wait()

    async def close(self) -> None:
        """Sync, and finish all pages that wait."""
        self._is_closing = True
        self._sync_now.set()
        if self._task is not None:
            await self._task

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._sync_all())

    async def _sync_all(self) -> None:
        """Sync at intervals until no page waits."""
        while True:
            if not self._is_closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s):
                        await self._sync_now.wait()
                self._sync_now.clear()
            self._is_sync_due = False
            await self._sync_once()
            if not self._waiting:
                break
        self._task = None

    async def _sync_once(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._sync_covers = self._waiting_since if waiting else 0.0
        self._failure = await self._run_sync(self._sync_records)
        self._sync_covers = 0.0
        self._synced.set()
        for number, finish in enumerate(waiting, 1):
            try:
                finish(self._failure)
            except CrawlerError as error:
                self._fail(error)
            except Exception as bug:  # the leases of other pages must still be finished
                logger.exception("A lease could not be finished")
                self._fail(StoreUnavailable(f"a lease could not be finished: {bug!r}"))
            if number % _FINISHED_AT_ONCE == 0:
                await asyncio.sleep(0)
        self._on_finished()
        await asyncio.sleep(0)  # the frontier commits the verdicts when the loop turns
        if waiting:
            await self._run_sync(self._sync_verdicts)

    async def _run_sync(self, sync: Callable[[], None]) -> CrawlerError | None:
        try:
            await asyncio.to_thread(sync)
        except CrawlerError as error:
            self._fail(error)
            return error
        return None

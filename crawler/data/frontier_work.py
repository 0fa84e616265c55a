"""The commits and the background work of the embedded frontier, on the event loop.

Rule: all calls of one turn of the loop are one write. What takes long runs in a thread, and is
applied in steps of some milliseconds. While the disk is full, what it refused is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from crawler.data.disk_room import DiskRoom
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import CrawlerError, Outcome, StoreFull, StoreUnavailable

logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.2  # between two looks whether undecided URLs have waited long enough
_FULL_RETRY_S: Final = 1.0  # between two tries while the disk is full


class FrontierWork:
    """Implements two_tier.Background, and loop.OutcomeSink: an outcome is logged when its
    verdict is written, so that no page of the log is fetched again after a crash."""

    def __init__(
        self,
        log: Callable[[Sequence[Outcome]], None],
        room: DiskRoom,
        fail: Callable[[CrawlerError], None],
        wake: Callable[[], None],
    ) -> None:
        """*log* writes outcomes to the log, and raises StoreUnavailable; what finds no room is
        written by a later call. *fail* stops the crawl; *wake* is called when URLs may be leased
        that could not be."""
        self._log = log
        self._room = room
        self._uncommitted: list[Outcome] = []  # of verdicts that are not written yet
        self._fail = fail
        self._wake = wake
        self._frontier: TwoTierFrontier | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_commit_due = False
        self._is_work_due = asyncio.Event()
        self._is_closing = False
        self._working = asyncio.Lock()  # held while the frontier's files are written or read
        self._alone: asyncio.Task[None] | None = None

    def begin(self, frontier: TwoTierFrontier, now: Callable[[], float]) -> None:
        """Start the work for *frontier*, when the event loop runs."""
        self._frontier, self._now = frontier, now
        self._task = asyncio.get_running_loop().create_task(self._work(frontier, now))
        self.commit_soon()  # of calls before this one

    async def close(self) -> None:
        """End the work under way, admit what was added, and commit."""
        self._is_closing = True
        self._is_work_due.set()
        if self._task is not None:
            await self._task
        if self._alone is not None:
            await asyncio.gather(self._alone, return_exceptions=True)
        if self._frontier is not None:
            self._frontier.admit_arrived(self._now())
        self._commit()

    async def run_alone(self, run: Callable[[], None]) -> None:
        """Run *run* in a thread, when all calls so far are committed, and while no work of the
        frontier changes its files. It is not cancelled with its caller: `close` waits for it."""
        self._alone = asyncio.create_task(self._run_alone(run))
        await asyncio.shield(self._alone)

    async def _run_alone(self, run: Callable[[], None]) -> None:
        async with self._working:
            self._commit()
            await asyncio.to_thread(run)

    def append(self, outcome: Outcome) -> None:
        """Log *outcome*, of a verdict that the frontier was given, with the next commit."""
        self._uncommitted.append(outcome)

    def commit_soon(self) -> None:
        if not self._is_commit_due:
            self._is_commit_due = True
            asyncio.get_running_loop().call_soon(self._commit)

    def work_soon(self) -> None:
        self._is_work_due.set()

    def _commit(self) -> None:
        self._is_commit_due = False
        try:
            if self._frontier is not None:
                self._frontier.commit()
            committed, self._uncommitted = self._uncommitted, []
            if committed or self._room.is_full:
                self._log(committed)
        except StoreFull as full:
            if not self._room.wait_for_room(full):
                self._fail(full)
        except CrawlerError as error:
            self._fail(error)

    async def _work(self, frontier: TwoTierFrontier, now: Callable[[], float]) -> None:
        was_full = False
        while not self._is_closing:
            self._room.log_recovered()
            if was_full:
                self._commit()
                if not self._room.is_full:
                    self._wake()
            was_full = self._room.is_full
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._is_work_due.wait()
            self._is_work_due.clear()
            try:
                while not self._is_closing:
                    async with self._working:
                        if not await self._do_next(frontier, now):
                            break
                    self._wake()
            except CrawlerError as error:
                self._fail(error)
                return
            except Exception as bug:  # without this work the crawl would wait for ever
                logger.exception("The work of the frontier failed")
                self._fail(StoreUnavailable(f"the work of the frontier failed: {bug!r}"))
                return

    async def _do_next(self, frontier: TwoTierFrontier, now: Callable[[], float]) -> bool:
        work = frontier.next_work(now())
        if work is None:
            return False
        await self._until_room(partial(asyncio.to_thread, work.run))
        for _ in work.apply(now()):
            await self._until_room(partial(_commit_next, frontier))
        return True

    async def _until_room(self, write: Callable[[], Awaitable[None]]) -> None:
        """Await *write*, again and again while the disk is full."""
        while True:
            try:
                return await write()
            except StoreFull as full:
                if not self._room.wait_for_room(full):
                    raise
            await asyncio.sleep(_FULL_RETRY_S)


async def _commit_next(frontier: TwoTierFrontier) -> None:
    frontier.commit()
    await asyncio.sleep(0)

"""A crawl by many workers on this machine, from its Redis to its summary.

Rule: Redis comes first and goes last: whatever ends, the workers can put back what they have.
Nothing of the crawl is here: kill this process, and the same command goes on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.core.errors import CrawlerError, DataDirError
from crawler.joining import quiet_s
from crawler.ops.endings import ending
from crawler.ops.figures import many, span
from crawler.ops.hiring import Plan, hired
from crawler.ops.interrupts import Interrupts
from crawler.ops.left_behind import wait_for_left
from crawler.ops.own_redis import FOLDER, OwnRedis, own_redis
from crawler.ops.summary import Summary
from crawler.ops.worker_command import worker_folders, workers_in
from crawler.ops.workforce import Workforce
from crawler.ops.workforce_look import WorkforceLook
from crawler.ops.workforce_screen import STOPPING, WorkforceScreen
from crawler.ops.workforce_summary import Run, read_summary, summary_of_all
from crawler.sharing import RedisAddress
from crawler.storage.local.datadir import FRONTIER, OUTCOMES, WORKER, WORKERS
from crawler.storage.local.handed_lock import HandedLock, taken_by
from crawler.storage.redis import keys
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.nodes import Nodes
from crawler.storage.redis.scripts import Scripts

_LOCK: Final = "share.lock"
_TURN_S: Final = 0.1
_DRAW_S: Final = 0.5  # and it looks as often


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended."""

    failure: str  # the sentence; empty: well
    summary: Summary | None  # None: nothing was begun


class Supervisor:
    def __init__(self, plan: Plan, screen: WorkforceScreen) -> None:
        self._plan = plan
        self._screen = screen
        self._interrupts = Interrupts()
        self._redis: OwnRedis | None = None
        self._force = Workforce([], screen.tell)
        self._began_at = time.time()

    async def run(self) -> Ended:
        """Until all have ended. Raises CrawlerError: it could not begin."""
        with self._interrupts.heard():
            async with AsyncExitStack() as stack:
                opening = asyncio.ensure_future(self._open(stack))
                self._interrupts.on_first = opening.cancel
                with suppress(asyncio.CancelledError):
                    look = await opening
                if self._interrupts.count:
                    self._screen.tell(ending("shutdown"))
                    return Ended("", None)
                await self._work(look)
                await look.again(self._force.names())
        if self._interrupts.count > 1:
            return Ended("ended at once; what was under way is put back by the next run", None)
        return Ended(self._force.failure, self._summary(look))

    async def _open(self, stack: AsyncExitStack) -> WorkforceLook:
        plan = self._plan
        stack.callback(_locked(plan.data_dir).close)
        address = plan.address
        if address is None:
            own = own_redis(plan.data_dir / FOLDER, plan.config.shared, self._screen.tell)
            self._redis = await stack.enter_async_context(own)
            address = self._redis.address
        look = WorkforceLook(self._nodes(address))
        stack.push_async_callback(look.close)
        await look.begin(plan.config.shared.redis_wait_s, self._screen.tell)
        there = worker_folders(plan.data_dir)
        _refuse_lost_frontier(plan.data_dir, there, look)
        self._tell_going_on(look)
        await wait_for_left(there, self._screen.tell)
        workers = hired(plan, there, look, address if self._redis else None)
        self._force = Workforce(workers, self._screen.tell)
        return look

    def _tell_going_on(self, look: WorkforceLook) -> None:
        to_do = look.counts.waiting + look.counts.later + look.counts.leased
        if to_do and self._redis is not None:
            quiet = span(quiet_s(self._plan.config))
            self._screen.tell(
                f"Going on: {many(to_do, 'URL')} to do. Fetches of the run before may be under way"
                f" still, so for {quiet} no host is asked"
            )

    async def _work(self, look: WorkforceLook) -> None:
        force = self._force
        self._interrupts.on_first = self._stop
        self._interrupts.on_second = force.kill
        try:
            async with _beside(self._watch(look)), _beside(self._keep_redis()):
                force.begin(time.monotonic())
                while not force.is_over:
                    await asyncio.sleep(_TURN_S)
                    force.turn(time.monotonic())
        finally:
            force.kill()  # nobody is left, unless what is above has failed
            self._screen.end()

    def _stop(self) -> None:
        self._screen.tell(STOPPING)
        self._force.stop()

    async def _watch(self, look: WorkforceLook) -> None:
        told = ""
        while True:
            await look.again(self._force.names())
            if look.fault and look.fault != told:
                self._screen.tell(f"Waiting: {look.fault}")
            told = look.fault
            now = time.monotonic()
            self._screen.show(look.glance(self._force.at_work, now), now)
            await asyncio.sleep(_DRAW_S)

    async def _keep_redis(self) -> None:
        while self._redis is not None:
            await asyncio.sleep(_TURN_S)
            try:
                await self._redis.revive()
            except CrawlerError as error:
                self._force.fail(str(error))
                return

    def _nodes(self, address: RedisAddress) -> Nodes:
        shared, fetch = self._plan.config.shared, self._plan.config.fetch
        opening = (fetch.total_timeout_s, shared.lease_s, keys.SCHEMA)
        where = Address.parse(address.url, address.params)
        return Nodes(where, Scripts(), shared.frontier_name, shared.frontier_shards, opening)

    def _summary(self, look: WorkforceLook) -> Summary | None:
        """None: nobody has begun."""
        folders = [worker.folder for worker in self._force.workers]
        found = {folder: read_summary(folder, self._began_at) for folder in folders}
        parts = {folder: summary for folder, summary in found.items() if summary is not None}
        counted = {worker.session for worker in workers_in(parts).values()}
        run = Run(
            spider=self._plan.typed.spider,
            data_dir=self._plan.data_dir,
            began_at=self._began_at,
            ended_at=time.time(),
            is_stopped=self._interrupts.count > 0,
            failure=self._force.failure,
            counts=look.counts,
            killed=[said for said in look.lives if said.session not in counted],
        )
        if not parts and not run.killed:
            return None
        return summary_of_all(run, list(parts.values()), worker_folders(self._plan.data_dir))


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """*work* goes on meanwhile, and is over then."""
    at_work = asyncio.ensure_future(work)
    try:
        yield
    finally:
        at_work.cancel()
        with suppress(asyncio.CancelledError):
            await at_work


def share_lock(data_dir: Path) -> Path:
    """Held by whoever looks after the workers."""
    return data_dir / WORKERS / _LOCK


def _locked(data_dir: Path) -> HandedLock:
    """Raises DataDirError: it is in use, or holds another kind of crawl."""
    if (data_dir / FRONTIER).exists() or (data_dir / WORKER).exists():
        raise DataDirError(
            f"{data_dir} holds a crawl of one worker: go on with it as before, or give this one"
            " another CRAWLER_DATA_DIR"
        )
    file = share_lock(data_dir)
    lock = HandedLock.take(file)
    if lock is None:
        raise DataDirError(
            f"data directory {data_dir} is in use by another crawl (process {taken_by(file)})."
            " Wait for it, or choose another with CRAWLER_DATA_DIR"
        )
    return lock


def _refuse_lost_frontier(data_dir: Path, there: Iterable[Path], look: WorkforceLook) -> None:
    """What was fetched would all be fetched again, and nobody told. Raises DataDirError."""
    logs = [folder / OUTCOMES for folder in there]
    if not look.counts.seen and any(log.exists() and log.stat().st_size for log in logs):
        raise DataDirError(
            f"the workers in {data_dir} have fetched pages, but their Redis knows no URL. Give it"
            " its data back, name the right one, or begin again in another data directory"
            " (CRAWLER_DATA_DIR)"
        )

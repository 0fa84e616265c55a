"""Run a crawl by many workers on this machine, from the start of its Redis to its summary.

Rule: Redis starts before the workers and ends after them, so that they can hand over their shards.
No state of the crawl is here: if this process is killed, the same command continues.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.config.settings import SharedSettings
from crawler.data.data_dir import (
    CONSOLE,
    OUTCOMES,
    WORKER,
    WORKERS,
    InheritedLock,
    lock_file_pid,
    lock_owner,
    worker_folders,
)
from crawler.frontier.port import FRONTIER
from crawler.model.types import CrawlerError, DataDirError
from crawler.report.endings import ending
from crawler.report.progress import STOPPING
from crawler.report.summary import Summary
from crawler.shared.address import RedisAddress
from crawler.shared.worker.join import new_nodes
from crawler.view.formats import many, span
from crawler.workers.redis_server import (
    FOLDER,
    URL,
    OwnRedis,
    own_redis,
)
from crawler.workers.workers import Workers, WorkersPlan, plan_workers, workers_in
from crawler.workers.workforce_figures import (
    WorkforceReader,
    WorkforceRun,
    WorkforceScreen,
    read_summary,
    summary_of_all,
)

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def has_own_redis(data_dir: Path) -> bool:
    return (data_dir / FOLDER / URL).exists()


@contextmanager
def open_own_redis(data_dir: Path, shared: SharedSettings) -> Iterator[RedisAddress]:
    """Yield the address of the server, and start it if no crawl runs. Raises CrawlerError if it
    cannot be started."""
    redis = OwnRedis(data_dir / FOLDER, shared, _print_message)
    lock = InheritedLock.take(share_lock(data_dir))
    if lock is None:
        yield redis.address
        return
    try:
        asyncio.run(redis.open())
        yield redis.address
    finally:
        asyncio.run(redis.close())
        lock.close()


def _print_message(message: str) -> None:
    print(message, file=sys.stderr)


class Interrupts:
    """Counts interrupts (Ctrl-C, SIGTERM, SIGHUP): the first stops the workers, the second kills
    them. Only the first SIGHUP counts, as kernel and shell send one each."""

    def __init__(self, on_interrupt: Callable[[int], None]) -> None:
        """*on_interrupt* is called with the number of interrupts so far."""
        self.count = 0
        self._on_interrupt = on_interrupt

    @contextmanager
    def handle_signals(self) -> Iterator[None]:
        """Handle the signals in the running loop. Ignored ones stay ignored, as nohup wants."""
        loop = asyncio.get_running_loop()
        handled = [how for how in _SIGNALS if signal.getsignal(how) is not signal.SIG_IGN]
        for how in handled:
            loop.add_signal_handler(how, self._count, how)
        try:
            yield
        finally:
            for how in handled:
                loop.remove_signal_handler(how)

    def _count(self, how: signal.Signals) -> None:
        if how is signal.SIGHUP and self.count:
            return
        self.count += 1
        self._on_interrupt(self.count)


# Orphans are workers that a killed supervisor left; they hold the locks of their data directories.
# They got SIGTERM when it died, and get one here where the kernel does not send it.

_POLL_S: Final = 0.05
_SIGNAL_AFTER_S: Final = 3.0  # a second signal to a worker that is ending would kill it
_ORPHAN_WAIT_S: Final = 40.0  # a worker waits up to 20 s for a Redis that is down


async def wait_for_orphans(folders: Iterable[Path], show_message: Callable[[str], None]) -> None:
    """Wait until no process holds *folders*. Raises DataDirError if one does not end."""
    left = {folder: pid for folder in folders if (pid := lock_owner(folder)) is not None}
    if not left:
        return
    named = ", ".join(map(str, left.values()))
    show_message(f"Waiting for workers that an earlier run has left (processes {named})")
    loop = asyncio.get_running_loop()
    began, is_signalled = loop.time(), False
    while left := {folder: pid for folder in left if (pid := lock_owner(folder)) is not None}:
        waited_s = loop.time() - began
        if waited_s > _ORPHAN_WAIT_S:
            folder, pid = next(iter(left.items()))
            raise DataDirError(f"{folder} is in use by process {pid}, which does not end. End it")
        if waited_s > _SIGNAL_AFTER_S and not is_signalled:
            is_signalled = True
            for pid in filter(None, left.values()):  # 0: its id is not written yet
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        await asyncio.sleep(_POLL_S)


_LOCK: Final = "share.lock"
_TURN_S: Final = 0.1
_DRAW_S: Final = 0.5  # also between two reads of the figures


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run by many workers ended."""

    failure: str  # one sentence; empty if the run succeeded
    summary: Summary | None  # None if no worker has begun


class Supervisor:
    """Runs the Redis server, the workers and the display of one `scrapy share`."""

    def __init__(self, plan: WorkersPlan, screen: WorkforceScreen) -> None:
        self._plan = plan
        self._screen = screen
        self._interrupts = Interrupts(self._interrupted)
        self._opening: asyncio.Task[WorkforceReader] | None = None  # None before and after opening
        self._redis: OwnRedis | None = None
        self._workers = Workers([], screen.show_message)
        self._began_at = time.time()

    async def run(self) -> RunResult:
        """Run until all workers have ended. Raises CrawlerError if the run could not begin."""
        with self._interrupts.handle_signals():
            async with AsyncExitStack() as stack:
                self._opening = asyncio.create_task(self._open(stack))
                with suppress(asyncio.CancelledError):
                    reader = await self._opening
                if self._interrupts.count:
                    self._screen.show_message(ending("shutdown"))
                    return RunResult("", None)
                await self._run_workers(reader)
                await reader.refresh(self._workers.names())
        if self._interrupts.count > 1:
            return RunResult("ended at once; what was under way is put back by the next run", None)
        return RunResult(self._workers.failure, self._summary(reader))

    async def _open(self, stack: AsyncExitStack) -> WorkforceReader:
        plan = self._plan
        stack.callback(_take_lock(plan.data_dir).close)
        address = plan.address
        if address is None:
            own = own_redis(plan.data_dir / FOLDER, plan.config.shared, self._screen.show_message)
            self._redis = await stack.enter_async_context(own)
            address = self._redis.address
        nodes = new_nodes(address, plan.config)
        reader = WorkforceReader(nodes, plan.config.politeness, plan.ends_at, plan.rounds)
        stack.push_async_callback(reader.close)
        await reader.begin(plan.config.shared.redis_wait_s, self._screen.show_message)
        old_folders = worker_folders(plan.data_dir)
        _refuse_lost_frontier(plan.data_dir, old_folders, reader)
        self._show_resumed(reader)
        await wait_for_orphans(old_folders, self._screen.show_message)
        workers = plan_workers(plan, old_folders, reader, address if self._redis else None)
        self._workers = Workers(workers, self._screen.show_message)
        return reader

    def _show_resumed(self, reader: WorkforceReader) -> None:
        to_do = reader.counts.left
        if not to_do or self._redis is None:
            return
        message = f"Going on: {many(to_do, 'URL')} to do"
        if not self._redis.is_whole:
            quiet = span(self._plan.config.fetch.total_timeout_s)
            message += (
                ". Redis was not stopped in good order, and may have lost its last second: for"
                f" {quiet} no host is asked, and each known host rests as after the longest fetch"
            )
        self._screen.show_message(message)

    async def _run_workers(self, reader: WorkforceReader) -> None:
        force = self._workers
        self._opening = None
        try:
            async with (
                _background_task(self._show_figures(reader)),
                _background_task(self._keep_redis()),
            ):
                force.begin(time.monotonic())
                while not force.is_over:
                    await asyncio.sleep(_TURN_S)
                    force.poll(time.monotonic())
        finally:
            force.kill()  # all have ended already, unless by an exception above
            self._screen.end()

    def _interrupted(self, times: int) -> None:
        if self._opening is not None:
            if times == 1:  # a second cancel would interrupt its clean-up
                self._opening.cancel()
        elif times == 1:
            self._screen.show_message(STOPPING)
            self._workers.stop()
        else:
            self._workers.kill()

    async def _show_figures(self, reader: WorkforceReader) -> None:
        shown = console = ""
        (self._workers.workers[0].folder / CONSOLE).unlink(missing_ok=True)  # of a killed run
        while True:
            await reader.refresh(self._workers.names())
            if reader.fault and reader.fault != shown:
                self._screen.show_message(f"Waiting: {reader.fault}")
            shown = reader.fault
            now = time.monotonic()
            self._screen.show(reader.figures(self._workers.running_count, now), now)
            console = self._show_console(console)
            await asyncio.sleep(_DRAW_S)

    def _show_console(self, shown: str) -> str:
        """Show where the first worker serves the console, and return it; *shown* was shown last."""
        file = self._workers.workers[0].folder / CONSOLE
        with suppress(OSError):
            address = file.read_text(encoding="utf-8").strip()
            if address and address != shown:
                self._screen.show_message(f"The console is at http://{address}/")
                return address
        return shown

    async def _keep_redis(self) -> None:
        while self._redis is not None:
            await asyncio.sleep(_TURN_S)
            try:
                await self._redis.restart_if_dead()
            except CrawlerError as error:
                self._workers.fail(str(error))
                return

    def _summary(self, reader: WorkforceReader) -> Summary | None:
        """Return the summary of all workers, or None if none has begun."""
        folders = [worker.folder for worker in self._workers.workers]
        found = {folder: read_summary(folder, self._began_at) for folder in folders}
        parts = {folder: summary for folder, summary in found.items() if summary is not None}
        counted = {worker.session for worker in workers_in(parts).values()}
        run = WorkforceRun(
            spider=self._plan.arguments.spider,
            data_dir=self._plan.data_dir,
            began_at=self._began_at,
            ended_at=time.time(),
            is_stopped=self._interrupts.count > 0,
            failure=self._workers.failure,
            counts=reader.counts,
            killed=[record for record in reader.session_records if record.session not in counted],
        )
        if not parts and not run.killed:
            return None
        return summary_of_all(run, list(parts.values()), worker_folders(self._plan.data_dir))


@asynccontextmanager
async def _background_task(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run *work* as a task during the block, and cancel it at its end."""
    at_work = asyncio.ensure_future(work)
    try:
        yield
    finally:
        at_work.cancel()
        with suppress(asyncio.CancelledError):
            await at_work


def share_lock(data_dir: Path) -> Path:
    """Return the lock file that the supervisor of the workers holds."""
    return data_dir / WORKERS / _LOCK


def _take_lock(data_dir: Path) -> InheritedLock:
    """Take the lock. Raises DataDirError if it is held, or *data_dir* has another kind of crawl."""
    if (data_dir / FRONTIER).exists() or (data_dir / WORKER).exists():
        raise DataDirError(
            f"{data_dir} holds a crawl of one worker: go on with it as before, or give this one"
            " another CRAWLER_DATA_DIR"
        )
    file = share_lock(data_dir)
    lock = InheritedLock.take(file)
    if lock is None:
        raise DataDirError(
            f"data directory {data_dir} is in use by another crawl (process {lock_file_pid(file)})."
            " Wait for it, or choose another with CRAWLER_DATA_DIR"
        )
    return lock


def _refuse_lost_frontier(
    data_dir: Path, old_folders: Iterable[Path], reader: WorkforceReader
) -> None:
    """Raise DataDirError if pages were fetched but Redis is empty: all would be fetched again."""
    logs = [folder / OUTCOMES for folder in old_folders]
    if not reader.counts.seen and any(log.exists() and log.stat().st_size for log in logs):
        raise DataDirError(
            f"the workers in {data_dir} have fetched pages, but their Redis knows no URL. Give it"
            " its data back, name the right one, or begin again in another data directory"
            " (CRAWLER_DATA_DIR)"
        )

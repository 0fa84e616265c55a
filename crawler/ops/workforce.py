"""The workers of this machine: begun together, kept alive, stopped together.

Rule: what ends one for good ends all, and is told once. What may pass (a signal, a Redis that is
away) ends only that one, and it is started again. Nothing waits here: `turn` looks after them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import Final

from crawler.ops.endings import TRY_AGAIN
from crawler.ops.figures import span
from crawler.ops.tied import said_status
from crawler.ops.worker_command import workers_in
from crawler.ops.worker_process import WorkerProcess

_ENDS: Final = 0


class Workforce:
    def __init__(self, workers: Sequence[WorkerProcess], tell: Callable[[str], None]) -> None:
        """*tell*: one sentence for the user."""
        self.workers = workers
        self._tell = tell
        self.failure = ""  # the sentence of the first who could not go on
        self.is_stopping = False

    @property
    def at_work(self) -> int:
        return sum(worker.is_alive for worker in self.workers)

    @property
    def is_over(self) -> bool:
        return all(worker.is_over for worker in self.workers)

    def names(self) -> set[str]:
        """Of those who have begun, now or in a run before."""
        return {file.name for file in workers_in(each.folder for each in self.workers).values()}

    def begin(self, now: float) -> None:
        for worker in self.workers:
            self._start(worker, now)

    def turn(self, now: float) -> None:
        for worker in self.workers:
            status = worker.ended()
            if status is not None:
                self._take_note(worker, status, now)
            elif worker.again_at is not None and worker.again_at <= now:
                self._start(worker, now)

    def fail(self, why: str) -> None:
        """The first reason counts: what comes after it, came of it."""
        self.failure = self.failure or why
        self.stop()

    def stop(self) -> None:
        """Each puts back what is under way."""
        if not self.is_stopping:
            self.is_stopping = True
            self._end(signal.SIGTERM)

    def kill(self) -> None:
        self.is_stopping = True
        self._end(signal.SIGKILL)

    def _start(self, worker: WorkerProcess, now: float) -> None:
        if self.is_stopping:
            worker.is_over = True
            return
        try:
            worker.start(now)
        except OSError as refused:
            worker.is_over = True
            self.fail(f"worker {worker.number} cannot be started: {refused}")

    def _end(self, how: signal.Signals) -> None:
        for worker in self.workers:
            worker.send(how)
            if worker.again_at is not None:
                worker.again_at, worker.is_over = None, True

    def _take_note(self, worker: WorkerProcess, status: int, now: float) -> None:
        worker.is_over = True
        if status > _ENDS and status != TRY_AGAIN:
            self.fail(worker.last_words())
        elif status != _ENDS and not self.is_stopping:
            worker.is_over = False
            why = worker.last_words() if status == TRY_AGAIN else said_status(status)
            again = span(worker.has_died(now))
            self._tell(f"worker {worker.number} has died ({why}); it is started again in {again}")

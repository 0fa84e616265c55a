"""An event loop of asyncio on a virtual clock: that of one simulated process.

Rule: it never waits. Its timers are events of the process, in the order of their times; who runs
the simulation calls `run_ready` after each. A process that is killed, or stands still, is one whose
events are not called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SimulatedEventLoop(asyncio.AbstractEventLoop):
    """What asyncio's tasks, timers and locks need of a loop."""

    def __init__(self, now: Callable[[], float], schedule: Callable[..., None]) -> None:
        """*schedule(at, call, argument)* lets an event of the process come."""
        self.error: BaseException | None = None  # that no code has handled
        self._now = now
        self._schedule = schedule
        self._ready: deque[asyncio.Handle] = deque()
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in the order of their begins

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let this be the loop that runs."""
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    @property
    def is_ready(self) -> bool:
        """Whether something may be called now."""
        return bool(self._ready)

    def run_ready(self, on_called: Callable[[], None]) -> None:
        """Call what is ready, but nothing that becomes so meanwhile, and *on_called* after each
        call. Raises an error that no code has handled."""
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()  # as each event loop calls it
                if self.error is not None:
                    raise self.error
                on_called()

    def abandon(self) -> None:
        """End all tasks, as their process is dead."""
        with self.running():
            while self._tasks:
                self.error = None
                for task in self._tasks:
                    task.cancel()
                with suppress(Exception):
                    self.run_ready(lambda: None)
        self._ready.clear()

    # What asyncio calls

    def time(self) -> float:
        return self._now()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._schedule(when, self._ready.append, timer)
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now() + delay, callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and task.exception() is not None:
            self.error = task.exception()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.error = context.get("exception") or RuntimeError(context["message"])

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A timer stays an event; then it calls nothing."""

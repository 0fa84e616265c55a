"""Wait for events: poll a condition, or let the clock of the event loop jump to its next timer.

Rule: a test waits for an event; the clock only bounds the wait, and a wait that ends without the
event says what did not happen.
"""

from __future__ import annotations

import asyncio
import inspect
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
POLL_S: Final = 0.02
LOG_CHARS: Final = 3_000  # of the end of each log
MOST_S: Final = 3_600.0  # of the loop's clock


def wait_until(
    condition: Callable[[], T],
    timeout_s: float,
    what: str = "",
    *,
    log: Callable[[], str] | None = None,
    poll_s: float = POLL_S,
) -> T:
    """Return the first true value of *condition*. On a time-out fail with *what* did not happen, or
    the source of the condition, and with the end of the *log*."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, _message(timeout_s, what or source(condition), log)
        time.sleep(poll_s)
    return found


async def wait_until_async(
    condition: Callable[[], T],
    timeout_s: float,
    what: str = "",
    *,
    log: Callable[[], str] | None = None,
    poll_s: float = POLL_S,
) -> T:
    """As `wait_until`, but the event loop runs meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, _message(timeout_s, what or source(condition), log)
        await asyncio.sleep(poll_s)
    return found


def _message(timeout_s: float, what: str, log: Callable[[], str] | None) -> str:
    logged = f"\n{log()[-LOG_CHARS:]}" if log else ""
    return f"not within {timeout_s:g} s: {what}{logged}"


def source(condition: Callable[[], object]) -> str:
    """The code of a lambda, or the name of another function."""
    name: str = getattr(condition, "__qualname__", repr(condition))
    return inspect.getsource(condition).strip() if "<lambda>" in name else name


class _JumpingSelector(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "every task waits, and no event is to come"
            self.now_s += timeout
            assert self.now_s < MOST_S, f"not done after {MOST_S:g} s of the loop's clock"
        return events


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def run_in_virtual_time(task: Coroutine[Any, Any, T]) -> T:
    """Run *task* to its end with a clock that jumps to the next timer. Fail if it waits for
    an event that never comes, or without end."""
    with asyncio.Runner(loop_factory=_VirtualTimeLoop) as runner:
        return runner.run(task)

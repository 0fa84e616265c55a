"""An event loop whose clock jumps to its next timer: what waits for hours is tested at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
MOST_S: Final = 3_600.0  # of the loop's clock


class _Jumping(selectors.DefaultSelector):
    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "everybody waits, and nothing is to come"
            self.now_s += timeout
            assert self.now_s < MOST_S, "it goes on and on"
        return events


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s


def hurried(task: Coroutine[Any, Any, T]) -> T:
    """Run *task* to its end. One that waits for what nothing brings, or for ever, fails."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(task)

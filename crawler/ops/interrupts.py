"""Ctrl-C and its like, for a command that looks after others: the first asks them to end, the
second ends them at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    def __init__(self) -> None:
        self.count = 0
        self.on_first: Callable[[], object] = lambda: None
        self.on_second: Callable[[], object] = lambda: None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """By the loop that runs. What is ignored stays so: nohup asks for that."""
        loop = asyncio.get_running_loop()
        heard = [how for how in _SIGNALS if signal.getsignal(how) is not signal.SIG_IGN]
        for how in heard:
            loop.add_signal_handler(how, self._come)
        try:
            yield
        finally:
            for how in heard:
                loop.remove_signal_handler(how)

    def _come(self) -> None:
        self.count += 1
        (self.on_first if self.count == 1 else self.on_second)()

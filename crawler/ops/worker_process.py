"""One worker as a process: started, and started again when it dies.

Rule: status 0 is an end, and 1 a sentence for the user, which another start would only repeat.
Whatever else ends a worker may pass, and it is started again, a few times a minute at most.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from crawler.ops.complaint import NAME
from crawler.ops.tied import tied

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 20.0
WELL_S: Final = 60.0  # who has lived so long did not die of its start
_KEPT_LINES: Final = 50
_SAYS: Final = f"{NAME}: error: "


class WorkerProcess:
    def __init__(
        self, number: int, folder: Path, arguments: Callable[[], Sequence[str] | None]
    ) -> None:
        """*arguments*: behind `scrapy`, asked for at each start; None: it has nothing to do."""
        self.number = number
        self.folder = folder
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self.again_at: float | None = None  # it has died
        self.is_over = False
        self.lives = 0

    @property
    def is_alive(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, now: float) -> None:
        """Raises OSError."""
        self.again_at = None
        arguments = self._arguments()
        if arguments is None:
            self.is_over = True
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._said.open("wb") as said:
            # In a session of its own: a Ctrl-C is for us, who then tell the workers.
            self._process = subprocess.Popen(  # ourselves, with what was typed
                tied([sys.executable, "-m", "scrapy", *arguments], signal.SIGTERM),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._began_at = now
        self.lives += 1

    def ended(self) -> int | None:
        """Its status, once. None: nothing new."""
        status = self._process.poll() if self._process is not None else None
        if status is not None:
            self._process = None
        return status

    def send(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)

    def has_died(self, now: float) -> float:
        """How long until it is started again."""
        if now - self._began_at > WELL_S:
            self._pause_s = FIRST_PAUSE_S
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, MAX_PAUSE_S)
        self.again_at = now + pause_s
        return pause_s

    def last_words(self) -> str:
        """What it complained of at its end, in one sentence."""
        with self._said.open(errors="replace") as said:
            lines = [line.strip() for line in deque(said, _KEPT_LINES) if line.strip()]
        complaints = [line.removeprefix(_SAYS) for line in lines if line.startswith(_SAYS)]
        return next(iter(complaints[-1:] or lines[-1:]), f"it said nothing ({self._said})")

    @property
    def _said(self) -> Path:
        """Beside its folder: in there, nothing is written before it is known to be ours."""
        return self.folder.with_name(f"{self.folder.name}.stderr")

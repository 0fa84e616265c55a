"""A lock on a file that can be handed on: held until everybody who was given it has ended.

Rule: it goes with an open file, so the kernel frees it however its holders die, and no stale
number of a process is ever believed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from crawler.core.errors import DataDirError


class HandedLock:
    """Held until `close`, and by children that were started with `descriptor` (pass_fds)."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """None: somebody has it. The number of our process is in the file. Raises DataDirError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as refused:
            raise DataDirError(
                f"{path} cannot be written: {refused.strerror}."
                " Choose another data directory with CRAWLER_DATA_DIR"
            ) from refused
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return cls(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def taken_by(path: Path) -> str:
    """The process that took the lock first, as it wrote itself down."""
    try:
        return path.read_text(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"

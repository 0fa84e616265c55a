"""The outcome log: a JSON line for each verdict on a page except PutBack, and for each waiting URL
that a rule refused.

Rule: lines are appended, never changed. Readers skip a line that a crash has cut off; the next run
begins a new line after it.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from crawler.model.types import (
    Outcome,
    StoreFull,
    WaitsForRoom,
    decode_outcome,
    encode_outcome,
    store_error,
)

logger = logging.getLogger(__name__)


class OutcomeLog:
    """Appends outcomes to the log file."""

    def __init__(self, file: Path, waits_for_room: WaitsForRoom) -> None:
        """If *waits_for_room* returns True for a full disk, lines are kept in memory, and the next
        call that finds room writes them. Bound: one for each open lease, as no more are taken
        meanwhile."""
        self._waits_for_room = waits_for_room
        self._unwritten = b""
        self._file = file.open("ab+", buffering=0)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def append(self, outcome: Outcome) -> None:
        """Raises StoreUnavailable if the line cannot be written."""
        self.append_all([outcome])

    def append_all(self, outcomes: Iterable[Outcome]) -> None:
        """Append *outcomes* in one write, after the lines that found no room before. Raises
        StoreUnavailable if they cannot be written."""
        self._unwritten += b"".join(encode_outcome(outcome) + b"\n" for outcome in outcomes)
        if not self._unwritten:
            return
        try:
            self._write()
        except OSError as refused:
            error = store_error(f"cannot write {self._file.name}", refused)
            if isinstance(error, StoreFull) and self._waits_for_room(error):
                return
            self._unwritten = b""
            raise error from refused

    def _write(self) -> None:
        # A disk that fills up writes a part without an error, and fails only at the next write.
        self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
        if self._unwritten:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Make all lines so far survive a power cut. Raises StoreUnavailable."""
        try:
            os.fsync(self._file.fileno())
        except OSError as refused:
            raise store_error(f"cannot sync {self._file.name}", refused) from refused

    def close(self) -> None:
        try:
            if self._unwritten:
                self._write()
        except OSError as refused:
            logger.error("The last lines of %s are lost: %s", self._file.name, refused)
        finally:
            self._file.close()


def read_outcomes(file: Path) -> Iterator[Outcome]:
    """Yield the outcomes in *file*, oldest first."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            try:
                yield decode_outcome(line)
            except msgspec.MsgspecError:
                continue

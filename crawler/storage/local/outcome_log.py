"""The outcome log: one JSON line for each lease that came to an end.

Rule: appended, never changed. A line torn by a crash is skipped by its readers; the next
run begins a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from crawler.core.errors import StoreUnavailable
from crawler.core.outcome import Outcome, decode_outcome, encode_outcome


class OutcomeLog:
    def __init__(self, file: Path) -> None:
        self._file = file.open("ab", buffering=0)
        if self._file.tell():
            self._file.write(b"\n")

    def append(self, outcome: Outcome) -> None:
        """Raises StoreUnavailable if the disk refuses."""
        line = encode_outcome(outcome) + b"\n"
        try:
            # A disk that fills up takes a part of it, and says so only the next time.
            if self._file.write(line) != len(line):
                raise OSError("No space left for the whole line")
        except OSError as refused:
            raise StoreUnavailable(f"the outcome log cannot be written: {refused}") from refused

    def close(self) -> None:
        self._file.close()


def read_outcomes(file: Path) -> Iterator[Outcome]:
    """Oldest first."""
    if not file.exists():
        return
    with file.open("rb") as lines:
        for line in lines:
            try:
                yield decode_outcome(line)
            except msgspec.MsgspecError:
                continue

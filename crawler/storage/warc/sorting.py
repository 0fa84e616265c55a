"""A file of sorted lines, made of lines that come in any order.

Rule: bounded memory. What has gathered is sorted and put away in a file without a name, which goes
with its process; in the end all are merged.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from crawler.core.errors import StoreUnavailable
from crawler.storage.warc.openfile import open_name, refused_write, sync_folder

RUN_CHARS: Final = 16 * 1024 * 1024
MOST_RUNS: Final = 64  # files open at once


class SortedLines:
    """Lines of ASCII, each with its end. StoreUnavailable from any call: discard it."""

    def __init__(self, final: Path, run_chars: int = RUN_CHARS) -> None:
        self._final = final
        self._run_chars = run_chars
        self._lines: list[str] = []
        self._chars = 0
        self._runs: list[IO[str]] = []

    def add(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line)
        if self._chars >= self._run_chars:
            self._put_away()

    def sorted(self) -> Iterator[str]:
        """All of them, once; without a file. Call `discard` after it."""
        return self._merged()

    def finish(self) -> None:
        """Forced to the disk, then called by its name, in place of one that has it."""
        path = open_name(self._final)
        try:
            with path.open("w", encoding="ascii", newline="\n") as file:
                file.writelines(self._merged())
                file.flush()
                os.fsync(file.fileno())
            path.replace(self._final)
            sync_folder(self._final.parent)
        except OSError as error:
            raise _unavailable(path, error) from error
        self._forget()

    def discard(self) -> None:
        self._forget()
        with suppress(OSError):
            open_name(self._final).unlink()

    def _put_away(self) -> None:
        if len(self._runs) < MOST_RUNS:
            self._runs.append(self._run(sorted(self._lines)))
        else:
            merged = self._run(self._merged())
            self._forget()
            self._runs.append(merged)
        self._lines, self._chars = [], 0

    def _run(self, lines: Iterable[str]) -> IO[str]:
        with ExitStack() as opened:
            try:
                run = opened.enter_context(
                    TemporaryFile("w+", encoding="ascii", newline="\n", dir=self._final.parent)
                )
                run.writelines(lines)
                run.flush()  # what does not fit is found here
            except OSError as error:
                raise _unavailable(self._final, error) from error
            opened.pop_all()
        return run

    def _merged(self) -> Iterator[str]:
        self._lines.sort()
        for run in self._runs:
            run.seek(0)
        return heapq.merge(*self._runs, self._lines) if self._runs else iter(self._lines)

    def _forget(self) -> None:
        for run in self._runs:
            run.close()
        self._runs, self._lines, self._chars = [], [], 0


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return refused_write(f"cannot write {path}", error)

"""What a dead process left unfinished, made whole: when a crawl starts, before it writes anything,
or by a command, at any time.

Rule: a file is kept up to its last whole record and no longer, and never one that a living
process holds. It is read from its start, once: a body may hold anything, also bytes that look
like the beginning of a record. Bounded memory, and 10 to 16 s of CPU a gigabyte: what takes longer
is marked as owed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crawler.core.errors import DataDirError
from crawler.storage.warc.companions import WARC_SUFFIX, Companion, clear, owe
from crawler.storage.warc.members import Damaged
from crawler.storage.warc.openfile import OPEN_SUFFIX, lock
from crawler.storage.warc.stored import captures_in


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one file."""

    file: str  # its final name
    records: int  # kept; 0: there was none, and the file is gone
    kept_bytes: int
    cut_bytes: int


@dataclass(slots=True)
class _Whole:
    """The records that are."""

    count: int = 0
    bytes: int = 0

    def add(self, end: int) -> None:
        self.count, self.bytes = self.count + 1, end


def recover(folder: Path, companions: Sequence[Companion] = ()) -> list[Recovered]:
    """Mend and finish every WARC file in *folder* that no process holds. Of its *companions* the
    quick ones are made, the slow ones owed. Raises DataDirError, StoreUnavailable."""
    tried = [recover_one(path, companions) for path in left_open(folder)]
    for companion in companions:
        clear(folder, companion.suffix)
    return [each for each in tried if each is not None]


def left_open(folder: Path) -> list[Path]:
    """WARC files in *folder* that are not finished, whoever holds them."""
    return sorted(folder.glob(f"*{WARC_SUFFIX}{OPEN_SUFFIX}"))


def recover_one(path: Path, companions: Sequence[Companion]) -> Recovered | None:
    """None: its process lives. Raises DataDirError, StoreUnavailable."""
    try:
        with path.open("r+b") as file:
            return _mend(file, path, companions) if lock(file.fileno(), path) else None
    except FileNotFoundError:
        return None  # it has just been finished
    except OSError as error:
        raise DataDirError(f"cannot recover {path}: {error.strerror or error}") from error


def _mend(file: BinaryIO, path: Path, companions: Sequence[Companion]) -> Recovered:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    quick = [companion for companion in companions if not companion.is_slow]
    try:
        whole = _read(file, final, quick)
        cut_bytes = os.fstat(file.fileno()).st_size - whole.bytes
        if not whole.count:
            path.unlink()
        elif final.exists():
            raise DataDirError(
                f"cannot recover {path}: {final.name} is there already; move one away"
            )
        else:
            file.truncate(whole.bytes)
            os.fsync(file.fileno())
            for companion in companions:
                if companion.is_slow:
                    owe(final, companion.suffix)
                else:
                    companion.finish()
            path.rename(final)
    finally:
        for companion in quick:
            companion.discard()  # nothing, once it is finished
    return Recovered(final.name, whole.count, whole.bytes, cut_bytes)


def _read(file: BinaryIO, final: Path, companions: Sequence[Companion]) -> _Whole:
    """The *companions* get its captures on the way."""
    whole = _Whole()
    for companion in companions:
        companion.begin(final)
    with suppress(Damaged):
        for one in captures_in(file, final.name, 0, whole.add, with_metadata=False):
            for companion in companions:
                companion.add_again(one)
    return whole

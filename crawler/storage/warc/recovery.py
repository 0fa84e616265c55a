"""What a dead process left unfinished, made whole: at start-up, before anything is written.

Rule: a file is kept up to its last whole record and no longer, and never one that a living
process holds. It is read from its start: a body may hold anything, also bytes that look like
the beginning of a record. Bounded memory; a gigabyte takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from crawler.core.errors import DataDirError
from crawler.storage.warc.companions import WARC_SUFFIX, Companion, clear
from crawler.storage.warc.members import READ_BYTES, Damaged
from crawler.storage.warc.openfile import OPEN_SUFFIX, lock
from crawler.storage.warc.reading import records


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of one file."""

    file: str  # its final name
    records: int  # kept; 0: there was none, and the file is gone
    kept_bytes: int
    cut_bytes: int


def recover(folder: Path, companions: Sequence[Companion] = ()) -> list[Recovered]:
    """Mend and finish every WARC file in *folder* that no process holds, and make its
    *companions*."""
    found = []
    for path in sorted(folder.glob(f"*{WARC_SUFFIX}{OPEN_SUFFIX}")):
        try:
            with path.open("r+b") as file:
                if lock(file.fileno(), path):
                    found.append(_mend(file, path, companions))
        except FileNotFoundError:
            continue  # its process lives and has just finished it
        except OSError as error:
            raise DataDirError(f"cannot recover {path}: {error.strerror or error}") from error
    clear(folder, companions)
    return found


def _mend(file: BinaryIO, path: Path, companions: Sequence[Companion]) -> Recovered:
    final = path.with_name(path.name.removesuffix(OPEN_SUFFIX))
    count, kept_bytes = 0, 0
    for end in whole_records(file):
        count, kept_bytes = count + 1, end
    cut_bytes = os.fstat(file.fileno()).st_size - kept_bytes
    if not count:
        path.unlink()
    elif final.exists():
        raise DataDirError(f"cannot recover {path}: {final.name} is there already; move one away")
    else:
        file.truncate(kept_bytes)
        os.fsync(file.fileno())
        for companion in companions:
            companion.rebuild(final, path)
        path.rename(final)
    return Recovered(final.name, count, kept_bytes, cut_bytes)


def whole_records(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[int]:
    """Where each record ends that is a gzip member of its own, up to the first that is not
    whole or no record."""
    with suppress(Damaged):
        for record in records(file, read_bytes):
            yield record.offset + record.finish()

"""What a dead process left unfinished, made whole: at start-up, before anything is written.

Rule: a file is kept up to its last whole record and no longer, and never one that a living
process holds. It is read from its start: a body may hold anything, also bytes that look like
the beginning of a record. Bounded memory; a gigabyte takes seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from isal.igzip_lib import DECOMP_GZIP, IgzipDecompressor, IsalError

from crawler.core.errors import DataDirError
from crawler.storage.warc.companions import WARC_SUFFIX, Companion, clear
from crawler.storage.warc.openfile import OPEN_SUFFIX, lock

READ_BYTES: Final = 64 * 1024
INFLATE_BYTES: Final = 1024 * 1024  # of a record at once, however large it is

RECORD_BEGINS: Final = b"WARC/1."
RECORD_ENDS: Final = b"\r\n\r\n"


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
    records, kept_bytes = 0, 0
    for end in whole_records(file):
        records, kept_bytes = records + 1, end
    cut_bytes = os.fstat(file.fileno()).st_size - kept_bytes
    if not records:
        path.unlink()
    elif final.exists():
        raise DataDirError(f"cannot recover {path}: {final.name} is there already; move one away")
    else:
        file.truncate(kept_bytes)
        os.fsync(file.fileno())
        for companion in companions:
            companion.rebuild(final, path)
        path.rename(final)
    return Recovered(final.name, records, kept_bytes, cut_bytes)


def whole_records(file: BinaryIO, read_bytes: int = READ_BYTES) -> Iterator[int]:
    """Where each record ends that is a gzip member of its own, up to the first that is not
    whole or no record."""
    rest = b""
    while True:
        member = IgzipDecompressor(flag=DECOMP_GZIP)
        begins, ends = b"", b""
        try:
            for piece in _inflated(member, rest, file, read_bytes):
                begins += piece[: len(RECORD_BEGINS) - len(begins)]
                ends = (ends + piece[-len(RECORD_ENDS) :])[-len(RECORD_ENDS) :]
        except IsalError:  # type: ignore[misc]  # isal's stub says an instance; it is a class
            return
        if not (member.eof and begins == RECORD_BEGINS and ends == RECORD_ENDS):
            return
        rest = member.unused_data
        yield file.tell() - len(rest)


def _inflated(
    member: IgzipDecompressor, rest: bytes, file: BinaryIO, read_bytes: int
) -> Iterator[bytes]:
    while not member.eof:
        if member.needs_input:
            rest = rest or file.read(read_bytes)
            if not rest:
                return
        yield member.decompress(rest, INFLATE_BYTES)
        rest = b""

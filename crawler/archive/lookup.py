"""Finds the captures of a URL in the archive.

Rule: a file with an index is searched by it, in a few reads whatever its size. A file without one,
such as the file being written, is read from its start up to its last complete record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from crawler.archive.capture import RecordPlace
from crawler.archive.cdxj import (
    REVISIT,
    SUFFIX,
    index_line,
    key_of,
    timestamp,
)
from crawler.archive.reader import (
    ArchivedCapture,
    DamagedFile,
    Record,
    captures,
    captures_in,
    is_tombstone,
    read_capture,
    records,
    with_doms,
)
from crawler.archive.warc_file import OPEN_SUFFIX, WARC_SUFFIX, companion_path
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError

LINE_BYTES: Final = 64 * 1024  # we write no longer line
_NUMBER: Final = re.compile("[0-9]{1,18}")  # enough digits for any file size
_NO_NAME: Final = re.compile("[/\\0]")


class _CaptureFact(msgspec.Struct, frozen=True):
    url: str
    length: str
    offset: str
    filename: str
    mime: str = ""
    status: str = ""
    digest: str = ""


_facts = msgspec.json.Decoder(_CaptureFact)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of an index, with the file that holds its record."""

    timestamp: str  # 14 digits
    url: str
    mime: str  # "warc/revisit" for a revisit
    status: str
    digest: str  # "sha1:..."; empty if not known
    place: RecordPlace
    file: Path

    @property
    def is_revisit(self) -> bool:
        return self.mime == REVISIT

    def time_key(self) -> tuple[str, str, int]:
        """Return the sort key for the order of time."""
        return self.timestamp, self.place.file, self.place.offset


def warc_files(folder: Path) -> list[Path]:
    """Return all WARC files in *folder* by name: finished, uncompressed, being written, or left
    unfinished by a crash."""
    names = (f"*{WARC_SUFFIX}", f"*{WARC_SUFFIX}{OPEN_SUFFIX}", "*.warc")
    found = [path for name in names for path in folder.glob(name)]
    return sorted(found, key=lambda path: path.name)


def lookup(folders: Iterable[Path], url: str) -> list[Entry]:
    """Return all captures with the index key of *url*, which ignores http or https and www; the
    oldest first. Raises DataDirError."""
    key = key_of(url)
    found = [
        entry for folder in folders for file in warc_files(folder) for entry in _search(file, key)
    ]
    # A file that is finished during the search is found under both of its names.
    return sorted({str(entry.place): entry for entry in found}.values(), key=Entry.time_key)


def entries(file: Path) -> Iterator[Entry]:
    """Yield all captures of one file. Raises DataDirError."""
    return _search(file, None)


def entries_for_key(file: Path, key: str) -> Iterator[Entry]:
    """Yield the captures of one file with the index key *key*. Raises DataDirError."""
    return _search(file, key)


def find_original(folders: Iterable[Path], revisit: ArchivedCapture) -> Entry | None:
    """Return the response that *revisit* repeats, or None if it is not in *folders*."""
    named = [each for each in lookup(folders, revisit.refers_to) if not each.is_revisit]
    at = timestamp(revisit.refers_date)
    exact = [each for each in named if each.timestamp == at and each.url == revisit.refers_to]
    return next(iter(exact), None)


@contextmanager
def open_record(entry: Entry) -> Iterator[Record]:
    """Yield the record of *entry*. Raises DataDirError if it is missing or incomplete."""
    with _file_of(entry) as file:
        try:
            file.seek(entry.place.offset)
            record = next(records(file))
            if is_tombstone(record):
                raise DataDirError(f"what was at {entry.place} was deleted on request")
            yield record
        except (StopIteration, DamagedFile, OSError) as error:
            raise DataDirError(
                f"{entry.file} cannot be read at {entry.place.offset}: {error or 'it ends there'}."
                f" {PROGRAM} archive check shows what is wrong"
            ) from error


def read_entry(entry: Entry, most_bytes: int) -> ArchivedCapture:
    """Return the capture of *entry* with at most *most_bytes* of its body. Raises DataDirError."""
    with open_record(entry) as record:
        return read_capture(record, entry.place.file, most_bytes)


def read_with_dom(
    entry: Entry, most_bytes: int
) -> tuple[ArchivedCapture, ArchivedCapture | None] | None:
    """Return the answer of *entry* with its metadata and, if it was rendered, its DOM; of each body
    at most *most_bytes*. Returns None if it cannot be read."""
    with suppress(DamagedFile, OSError), entry.file.open("rb") as file:
        file.seek(entry.place.offset)
        with closing(captures_in(file, entry.place.file, most_bytes)) as found:
            return next(with_doms(found), None)
    return None


def _file_of(entry: Entry) -> BinaryIO:
    # The file may have been finished, and so renamed, since the lookup.
    for path in (entry.file, entry.file.with_name(entry.place.file)):
        with suppress(FileNotFoundError):
            return path.open("rb")
    raise DataDirError(f"{entry.file} is not there any more")


def _search(file: Path, key: str | None) -> Iterator[Entry]:
    final = file.with_name(file.name.removesuffix(OPEN_SUFFIX))
    try:
        index = companion_path(final, SUFFIX).open("rb") if file == final else None
    except FileNotFoundError:
        index = None
    if index is not None:
        with index:
            found = index if key is None else lines_with_key(index, key)
            yield from (entry_of(line, file) for line in found)
        return
    with suppress(FileNotFoundError):  # it was finished, and its new name is searched next
        yield from _read(file, final, key)


def _read(file: Path, final: Path, key: str | None) -> Iterator[Entry]:
    with suppress(DamagedFile):  # a file being written may end within a record
        for one in captures(final, file, most_bytes=0):
            if key is None or key_of(one.url) == key:
                line = index_line(one.url, one.date, one.answer, one.place)
                yield entry_of(line.encode(), file)


def lines_with_key(index: BinaryIO, key: str) -> Iterator[bytes]:
    """Yield the lines of *index*, which are sorted, that begin with *key* and a space."""
    begin = f"{key} ".encode()
    _seek(index, begin)
    for line in index:
        if not line.startswith(begin):
            return
        yield line


def _seek(index: BinaryIO, begin: bytes) -> None:
    """Move to the first line that is not before *begin*, by binary search."""
    low, high = 0, index.seek(0, 2)
    while low < high:
        middle = (low + high) // 2
        _to_line(index, middle)
        line = index.readline(LINE_BYTES)
        if line and line < begin:
            low = middle + 1
        else:
            high = middle
    _to_line(index, low)


def _to_line(index: BinaryIO, at: int) -> None:
    """Move to the first line that begins at *at* or behind it."""
    index.seek(max(at - 1, 0))
    if at:
        index.readline(LINE_BYTES)


def _name(text: str) -> str:
    if _NO_NAME.search(text) or not text.strip("."):
        raise ValueError(f"no name of a file: {text!r}")
    return text


def _number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"no number: {text!r}")
    return int(text)


def entry_of(line: bytes, file: Path) -> Entry:
    """Return what a *line* of the index of *file* says. Raises DataDirError."""
    _, at, facts = (*line.split(b" ", 2), b"", b"")[:3]
    try:
        found = _facts.decode(facts)
        place = RecordPlace(_name(found.filename), _number(found.offset), _number(found.length))
        return Entry(at.decode(), found.url, found.mime, found.status, found.digest, place, file)
    except (msgspec.DecodeError, ValueError) as error:
        index = companion_path(file, SUFFIX)
        raise DataDirError(
            f"{index} is damaged: {error}. Remove it, and make it again: {PROGRAM} archive index"
        ) from error

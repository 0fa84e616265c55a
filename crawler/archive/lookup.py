"""Where in the archive the captures of a URL are.

Rule: a file is asked by its index, in a few reads whatever its size. One without, such as that
which is being written, is read from its start up to its last whole record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
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
from crawler.archive.files import OPEN_SUFFIX, WARC_SUFFIX, companion_path
from crawler.archive.reader import (
    Damaged,
    Record,
    Stored,
    captures,
    records,
    stored,
)
from crawler.model.types import DataDirError

LINE_BYTES: Final = 64 * 1024  # a longer one is no line of ours
_NUMBER: Final = re.compile("[0-9]{1,18}")  # a file can be that long
_NO_NAME: Final = re.compile("[/\\0]")


class _CaptureFact(msgspec.Struct, frozen=True):
    url: str
    length: str
    offset: str
    filename: str
    mime: str = ""
    status: str = ""
    digest: str = ""


_said = msgspec.json.Decoder(_CaptureFact)


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of an index."""

    timestamp: str  # 14 digits
    url: str
    mime: str  # of a revisit: warc/revisit
    status: str
    digest: str  # "sha1:..."; empty: not known
    place: RecordPlace
    file: Path  # that has its record

    @property
    def is_revisit(self) -> bool:
        return self.mime == REVISIT

    def in_time(self) -> tuple[str, str, int]:
        """Before which others it comes."""
        return self.timestamp, self.place.file, self.place.offset


def warc_files(folder: Path) -> list[Path]:
    """The finished ones, those of others that are not compressed too, and those that are being
    written or were left; by name."""
    names = (f"*{WARC_SUFFIX}", f"*{WARC_SUFFIX}{OPEN_SUFFIX}", "*.warc")
    found = [path for name in names for path in folder.glob(name)]
    return sorted(found, key=lambda path: path.name)


def lookup(folders: Iterable[Path], url: str) -> list[Entry]:
    """All captures of what an index takes for *url*: http or https, with www or without. The
    oldest first. Raises DataDirError."""
    key = key_of(url)
    found = [
        entry for folder in folders for file in warc_files(folder) for entry in _asked(file, key)
    ]
    # A file that was finished while we looked is there under both of its names.
    return sorted({str(entry.place): entry for entry in found}.values(), key=Entry.in_time)


def entries(file: Path) -> Iterator[Entry]:
    """All of one file: by its index, if it has one, or read. Raises DataDirError."""
    return _asked(file, None)


def entries_of(file: Path, key: str) -> Iterator[Entry]:
    """Those of one file that an index has under *key*. Raises DataDirError."""
    return _asked(file, key)


def original(folders: Iterable[Path], revisit: Stored) -> Entry | None:
    """The response that *revisit* stands for; None: it is not here."""
    named = [each for each in lookup(folders, revisit.refers_to) if not each.is_revisit]
    at = timestamp(revisit.refers_date)
    exact = [each for each in named if each.timestamp == at and each.url == revisit.refers_to]
    return next(iter(exact), None)


@contextmanager
def opened(entry: Entry) -> Iterator[Record]:
    """Its record. Raises DataDirError: it is not there, or not whole."""
    with _file_of(entry) as file:
        try:
            file.seek(entry.place.offset)
            yield next(records(file))
        except (StopIteration, Damaged, OSError) as error:
            raise DataDirError(
                f"{entry.file} cannot be read at {entry.place.offset}: {error or 'it ends there'}."
                " scrapy archive check tells what is wrong with it"
            ) from error


def read_entry(entry: Entry, most_bytes: int) -> Stored:
    """As `opened`; of its body *most_bytes*."""
    with opened(entry) as record:
        return stored(record, entry.place.file, most_bytes)


def _file_of(entry: Entry) -> BinaryIO:
    # It may have been finished since.
    for path in (entry.file, entry.file.with_name(entry.place.file)):
        with suppress(FileNotFoundError):
            return path.open("rb")
    raise DataDirError(f"{entry.file} is not there any more")


def _asked(file: Path, key: str | None) -> Iterator[Entry]:
    final = file.with_name(file.name.removesuffix(OPEN_SUFFIX))
    try:
        index = companion_path(final, SUFFIX).open("rb") if file == final else None
    except FileNotFoundError:
        index = None
    if index is not None:
        with index:
            yield from (_entry(line, file) for line in _lines(index, key))
        return
    with suppress(FileNotFoundError):  # it was finished, and its other name comes next
        yield from _read(file, final, key)


def _read(file: Path, final: Path, key: str | None) -> Iterator[Entry]:
    with suppress(Damaged):  # what is being written ends anywhere
        for one in captures(final, file, most_bytes=0):
            if key is None or key_of(one.url) == key:
                yield _entry(index_line(one.url, one.date, one.answer, one.place).encode(), file)


def _lines(index: BinaryIO, key: str | None) -> Iterator[bytes]:
    if key is None:
        yield from index
        return
    begin = f"{key} ".encode()
    _seek(index, begin)
    for line in index:
        if not line.startswith(begin):
            return
        yield line


def _seek(index: BinaryIO, begin: bytes) -> None:
    """To the first line that is not before *begin*."""
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
    """To the first line that begins at *at* or behind it."""
    index.seek(max(at - 1, 0))
    if at:
        index.readline(LINE_BYTES)


def _name(said: str) -> str:
    if _NO_NAME.search(said) or not said.strip("."):
        raise ValueError(f"no name of a file: {said!r}")
    return said


def _number(said: str) -> int:
    if not _NUMBER.fullmatch(said):
        raise ValueError(f"no number: {said!r}")
    return int(said)


def _entry(line: bytes, file: Path) -> Entry:
    _, at, said = (*line.split(b" ", 2), b"", b"")[:3]
    try:
        found = _said.decode(said)
        place = RecordPlace(_name(found.filename), _number(found.offset), _number(found.length))
        return Entry(at.decode(), found.url, found.mime, found.status, found.digest, place, file)
    except (msgspec.DecodeError, ValueError) as error:
        index = companion_path(file, SUFFIX)
        raise DataDirError(
            f"{index} is damaged: {error}. Remove it, and make it again with scrapy archive index"
        ) from error

"""What earlier crawls have archived: finds, by the digest of a body, a record that has it.

Rule: their indexes (CDXJ) are read once, into one file of sorted lines, which is searched in place.
So memory is bounded for any number of digests, and the indexes may go away afterwards.

A line: the digest as in the index, the 14 digits of the time, the file and offset of the record,
and its URL. 10 million take 1.3 GB of disk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from crawler.archive import record_bytes as fields
from crawler.archive.cdxj import REVISIT, SUFFIX, SortedLines, index_facts
from crawler.archive.lookup import lines_with_key
from crawler.data.files import replace_file
from crawler.model.program import PROGRAM
from crawler.model.types import Claim, ConfigError, DataDirError, store_error

FOLDER: Final = "known"
"""The folder in a data directory with the digests, and with the list of the indexes."""
_READ_BYTES: Final = 512  # at a time: a look-up reads 30 lines in 30 places
_DIGESTS: Final = "digests"
_SOURCES: Final = "sources.json"
_LABEL: Final = re.compile(r"(?:sha1:)?([A-Z2-7]{32})", re.IGNORECASE)
_TIME: Final = re.compile("[0-9]{14}")
_NOTHING: Final = fields.sha1_label(fields.sha1_of_parts(b""))[len("sha1:") :]


class IndexSource(msgspec.Struct, frozen=True):
    """An index that was read. Another size or time means that it is to be read again."""

    path: str
    size: int
    changed_ns: int


class EarlierCrawls:
    """The records of earlier crawls by the digests of their bodies. A look-up among 10 million
    takes 62 us, and reads the disk if it was not read lately."""

    def __init__(self, folder: Path) -> None:
        """*folder* is as `read_indexes` left it. Raises DataDirError."""
        try:
            self._lines = (folder / _DIGESTS).open("rb", buffering=_READ_BYTES)
        except OSError as error:
            raise DataDirError(f"cannot read {folder}: {error.strerror or error}") from error

    def original(self, wire_sha1: bytes) -> Claim | None:
        """Return a record that has the body of this SHA-1, as received; None if there is none. Its
        time is in whole seconds."""
        for time, record, url in self._records(wire_sha1):
            with suppress(ValueError):  # digits of no date
                at = datetime.strptime(f"{time}+0000", "%Y%m%d%H%M%S%z").timestamp()
                return Claim(wire_sha1, url, record, at, wire_sha1)
        return None

    def has(self, wire_sha1: bytes, url: str, time: str) -> bool:
        """Return whether there is a record of *url* at *time*, 14 digits, with this body."""
        found = self._records(wire_sha1)
        return any(of == url and at == time for at, _, of in found)

    def _records(self, wire_sha1: bytes) -> Iterator[tuple[str, str, str]]:
        """Yield time, place and URL of each record with this body, the oldest first."""
        label = fields.sha1_label(wire_sha1)[len("sha1:") :]
        for line in lines_with_key(self._lines, label):
            _, time, record, url = line.decode().rstrip("\n").split(" ", 3)
            yield time, record, url

    def close(self) -> None:
        self._lines.close()


def index_files(given: Path) -> list[Path]:
    """Return the indexes that *given* is or holds. Raises ConfigError if it has none."""
    if given.is_file():
        return [given]
    found = sorted(file for end in (SUFFIX, f"{SUFFIX}.gz") for file in given.rglob(f"*{end}"))
    if not found:
        raise ConfigError(
            f"known is {str(given)!r}, which is no index (.cdxj) and holds none: {PROGRAM} archive"
            " index makes those of a crawl"
        )
    return found


def is_read(folder: Path, indexes: Sequence[Path]) -> bool:
    """Return whether *folder* has just what these *indexes* hold now. Raises ConfigError."""
    return _noted(folder) == _sources(indexes)


def read_indexes(folder: Path, indexes: Sequence[Path]) -> None:
    """Read *indexes* into *folder*, which is made. Takes 3 s for a million lines. Raises
    DataDirError for a line that is none, ConfigError, StoreUnavailable."""
    sources = _sources(indexes)
    try:
        folder.mkdir(exist_ok=True)
        (folder / _SOURCES).unlink(missing_ok=True)
    except OSError as error:
        raise DataDirError(f"cannot write {folder}: {error.strerror or error}") from error
    lines = SortedLines(folder / _DIGESTS)
    try:
        for index in indexes:
            for line in _lines_of(index):
                lines.add(line)
        lines.finish()
    finally:
        lines.discard()
    try:
        replace_file(folder / _SOURCES, msgspec.json.encode(sources))
    except OSError as error:
        raise store_error(f"cannot write {folder}", error) from error


def folders_of(folder: Path) -> list[Path]:
    """Return the folders of the indexes that *folder* was made of: WARC files may be there."""
    return sorted({Path(source.path).parent for source in _noted(folder)})


def _noted(folder: Path) -> list[IndexSource]:
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / _SOURCES).read_bytes(), type=list[IndexSource])
    return []


def _sources(indexes: Sequence[Path]) -> list[IndexSource]:
    try:
        stats = [(index.absolute(), index.stat()) for index in indexes]
    except OSError as error:
        raise ConfigError(f"known: {error.filename} cannot be read: {error.strerror}") from error
    return [IndexSource(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _lines_of(index: Path) -> Iterator[str]:
    """Yield a line for each answer that has a body and is no revisit itself."""
    for time, fact in index_facts(index):
        found = _LABEL.fullmatch(fact.digest)
        if found is None or fact.mime == REVISIT or found[1].upper() == _NOTHING:
            continue
        if _TIME.fullmatch(time) and fact.status:  # a resource has none, and replays as no answer
            place = fields.uri(f"{fact.filename}:{fact.offset}")
            yield f"{found[1].upper()} {time} {place} {fields.uri(fact.url)}\n"

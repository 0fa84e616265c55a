"""Deletes records from the archive for a deletion request: lists them, then replaces them.

Rule: what takes the place of a record, a tombstone, has its length. So all other records keep their
places, and "file:offset" stays right in indexes, outcome logs and claims. The list is on the disk
before the first file is changed. At each moment a file is there whole, the old one or the new one,
and beside it are companions of that one only or none; a second call completes what a kill left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

import msgspec

from crawler.archive.capture import DOM, PAGE_INFO
from crawler.archive.cdxj import SUFFIX as INDEX
from crawler.archive.cdxj import CdxjCompanion, timestamp
from crawler.archive.columns_companion import SUFFIX as COLUMNS
from crawler.archive.delivery import FOLDER, OUTCOMES
from crawler.archive.delivery_stores import DRAFT_SUFFIX, OnProgress, Store, replace_stored
from crawler.archive.lookup import Entry, entry_of
from crawler.archive.reader import DamagedFile, Record, answer_kind, records
from crawler.archive.record_bytes import FIELDS_TYPE, sha1_label
from crawler.archive.warc_file import OPEN_SUFFIX, WARC_SUFFIX, companion_path
from crawler.data.files import sync_folder
from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreUnavailable

IsPurged = Callable[[str], bool]
"""Whether the request is about a URL. Also called with texts that are none."""

DELETIONS: Final = "deletions.jsonl"
"""The list of a data directory, to which each request adds."""
SCRATCH: Final = "purge"
_BESIDE: Final = frozenset({"request", "metadata"})  # they follow the answer of their capture
_OURS: Final = b"software: Gossamer/"
_INFO_BYTES: Final = 16 * 1024
_WARC_SUFFIXES: Final = (WARC_SUFFIX, WARC_SUFFIX + OPEN_SUFFIX, ".warc")


class DeletionRecord(msgspec.Struct, frozen=True):
    """A record that a deletion request is about, for indexes to follow."""

    url: str
    deleted: bool  # False: it stays, but is a revisit of a record that is deleted
    original_deleted: bool  # it is a revisit, and its original is deleted
    type: str  # of WARC: response, revisit, request, metadata...
    id: str  # WARC-Record-ID
    date: str  # 14 digits, as in the index
    file: str  # its name when it is finished
    offset: int
    length: int  # compressed
    digest: str  # of the payload; empty if the record has none

    @property
    def place(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True)
class PurgedFile:
    """The result for one WARC file that was written anew."""

    name: str  # in its store
    records: int  # deleted


def deletions(stores: Iterable[Store], is_purged: IsPurged) -> Iterator[DeletionRecord]:
    """Yield what *stores* hold of the URLs that *is_purged* is true for, then the revisits of other
    URLs that lose their original. Memory: 100 bytes for each content. Raises DataDirError,
    StoreUnavailable."""
    stores = list(stores)
    digests: set[str] = {""}
    for store in stores:
        for name in warcs_in(store):
            for record in _in_file(store, name, is_purged):
                digests.add(record.digest)
                yield record
    for store in stores:
        for name in warcs_in(store):
            with suppress(FileNotFoundError):  # finished or delivered since
                yield from _left_revisits(store, name, is_purged, digests)


def purge(
    stores: Sequence[Store], is_purged: IsPurged, data: Path, on_progress: OnProgress
) -> Iterator[PurgedFile]:
    """Add what `deletions` yields to the list in *data*, then write each file anew that holds some
    of it, and yield it. No crawl may be writing to *stores*, and unfinished files must have been
    recovered. Raises DataDirError, StoreUnavailable, ConfigError; the call may then be repeated."""
    for store in stores:
        for name in store.names(FOLDER):
            if name.endswith(WARC_SUFFIX + OPEN_SUFFIX):
                raise DataDirError(f"{name} is still written; nothing was changed. Try again later")
    _append(data / DELETIONS, deletions(stores, is_purged))
    with _scratch(data) as scratch:
        for store in stores:
            present = store.names(FOLDER)
            for name in present:
                if name.endswith(DRAFT_SUFFIX):
                    store.discard(name)
            for name in warcs_in(store):
                doomed = [each for each in _in_file(store, name, is_purged) if each.deleted]
                if doomed or _beside(name, INDEX) + OPEN_SUFFIX in present:
                    _Rewrite(store, name, doomed, scratch, on_progress).run()
                    yield PurgedFile(name, len(doomed))
            for name in (*_lone_columns(present), *store.names(OUTCOMES)):
                if name.endswith(COLUMNS):
                    rows = _without_rows(store, name, is_purged, scratch, on_progress)
                    if rows:
                        yield PurgedFile(name, rows)


def _lone_columns(names: Sequence[str]) -> list[str]:
    """Return the columns whose WARC file has gone for its age."""
    warcs = {_beside(name, COLUMNS) for name in names if name.endswith(WARC_SUFFIX)}
    return [name for name in names if name.endswith(COLUMNS) and name not in warcs]


def _without_rows(
    store: Store, name: str, is_purged: IsPurged, scratch: Path, on_progress: OnProgress
) -> int:
    """Write a file of outcomes, or of columns, anew, without the rows of URLs that *is_purged* is
    true for, and return how many these are."""
    from crawler.archive.outcome_table import copy_without  # noqa: PLC0415  # Arrow: 150 ms

    new = scratch / Path(name).name
    with named_errors(name):
        try:
            with store.open(name) as source:
                gone = copy_without(source, new, is_purged)
        except FileNotFoundError:  # delivered since
            return 0
        except ValueError as error:
            raise DataDirError(f"{name} cannot be read: {error}") from error
        if gone:
            replace_stored(store, new, name, on_progress)
        new.unlink()
    return gone


@contextmanager
def _scratch(data: Path) -> Iterator[Path]:
    """Yield an empty folder for new files. One that a kill left holds nothing that is deleted."""
    scratch = data / SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch)


def listed(data: Path) -> Iterator[DeletionRecord]:
    """Yield the list in *data*. Raises DataDirError."""
    file = data / DELETIONS
    with suppress(FileNotFoundError), file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):  # else a kill has cut it off, and the next call cuts it away
                try:
                    yield _decode(line)
                except msgspec.MsgspecError as error:
                    raise DataDirError(f"{file}, line {number}: {error}") from error


_decode: Final = msgspec.json.Decoder(DeletionRecord).decode


def _append(file: Path, found: Iterable[DeletionRecord]) -> None:
    """Add the records that the list lacks, and sync it."""
    known = {each.place for each in listed(file.parent)}
    try:
        with file.open("ab+") as out:
            out.seek(0)
            out.truncate(out.read().rfind(b"\n") + 1)
            for each in found:
                if each.place not in known:
                    out.write(msgspec.json.encode(each) + b"\n")
            out.flush()
            os.fsync(out.fileno())
        sync_folder(file.parent)
    except OSError as error:
        raise StoreUnavailable(f"cannot write {file}: {error.strerror or error}") from error


# An index of ours is read in place of its WARC file: it has each answer, and what else there is of
# a capture follows the answer. Files of other programs may hold records in any order, of any type,
# so they are read themselves, as are files without an index.


def warcs_in(store: Store) -> list[str]:
    """Return the names of the WARC files in *store*, finished or not, whichever program's."""
    return [name for name in store.names(FOLDER) if name.endswith(_WARC_SUFFIXES)]


def _beside(name: str, suffix: str) -> str:
    """Return the name of a companion of *name*."""
    return str(companion_path(Path(name), suffix))


def _in_file(store: Store, name: str, is_purged: IsPurged) -> Iterator[DeletionRecord]:
    """Yield the records to be deleted in one file; from a file that is read itself, also revisits
    that lose their original. Yields nothing if it is not there any more."""
    try:
        opened = store.open(name)
    except FileNotFoundError:
        if name.endswith(OPEN_SUFFIX):  # it may have been finished since
            yield from _in_file(store, name.removesuffix(OPEN_SUFFIX), is_purged)
        return
    with suppress(FileNotFoundError), named_errors(name), opened as file:
        if not has_own_index(store, name):
            yield from _by_reading(file, name, is_purged)
            return
        offsets = [
            each.place.offset for each in indexed(store, name) if is_purged(_page_url(each.url))
        ]
        for offset in sorted(offsets):
            file.seek(offset)
            yield from _capture(file, name, is_purged)


def _left_revisits(
    store: Store, name: str, is_purged: IsPurged, digests: set[str]
) -> Iterator[DeletionRecord]:
    """Yield the indexed revisits of one file that stay while their original is deleted."""
    if not has_own_index(store, name):
        return  # they were found with the others
    with named_errors(name), store.open(name) as file:
        for entry in indexed(store, name):
            if entry.is_revisit and entry.digest in digests and not is_purged(_page_url(entry.url)):
                file.seek(entry.place.offset)
                record = next(records(file))
                if is_purged(record.field("WARC-Refers-To-Target-URI")):
                    yield _deletion(record, name, is_purged)


def _by_reading(file: BinaryIO, name: str, is_purged: IsPurged) -> Iterator[DeletionRecord]:
    try:
        for record in records(file):
            url, refers = map(record.field, ("WARC-Target-URI", "WARC-Refers-To-Target-URI"))
            if is_purged(_page_url(url)) or (record.kind == "revisit" and is_purged(refers)):
                yield _deletion(record, name, is_purged)
    except DamagedFile:
        if not name.endswith(OPEN_SUFFIX):
            raise


def _capture(file: BinaryIO, name: str, is_purged: IsPurged) -> Iterator[DeletionRecord]:
    """Yield the answer that *file* is at, and the records of its capture behind it."""
    for number, record in enumerate(records(file)):
        is_answer, is_meant = (
            answer_kind(record) is not None,
            is_purged(_page_url(record.field("WARC-Target-URI"))),
        )
        if number == 0 and not (is_answer and is_meant):
            raise DataDirError(f"{name} is not what its index says: {PROGRAM} archive index")
        if number and not (record.kind in _BESIDE and is_meant):
            return
        yield _deletion(record, name, is_purged)


def _deletion(record: Record, name: str, is_purged: IsPurged) -> DeletionRecord:
    url = record.field("WARC-Target-URI")
    return DeletionRecord(
        url=url,
        deleted=is_purged(_page_url(url)),
        original_deleted=record.kind == "revisit"
        and is_purged(record.field("WARC-Refers-To-Target-URI")),
        type=record.kind,
        id=record.field("WARC-Record-ID"),
        date=timestamp(record.field("WARC-Date")),
        file=Path(name).name.removesuffix(OPEN_SUFFIX),
        offset=record.offset,
        length=record.finish(),
        digest=record.field("WARC-Payload-Digest"),
    )


def _page_url(url: str) -> str:
    """Return the URL that a record called *url* is about."""
    return url.removeprefix(PAGE_INFO).removeprefix(DOM)


def has_own_index(store: Store, name: str) -> bool:
    """Return whether there is an index beside *name*, and this program wrote the file."""
    try:
        store.open(_beside(name, INDEX)).close()
        with store.open(name) as file:
            return _OURS in next(records(file)).read_all(_INFO_BYTES)
    except (FileNotFoundError, DamagedFile, StopIteration):
        return False


def indexed(store: Store, name: str) -> Iterator[Entry]:
    """Yield the lines of the index of *name*."""
    with store.open(_beside(name, INDEX)) as index:
        for line in index:
            yield entry_of(line, Path(name))


@contextmanager
def named_errors(name: str) -> Iterator[None]:
    """Raise DataDirError for a damaged file, StoreUnavailable for one that cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (DamagedFile, StopIteration) as damage:
        raise DataDirError(
            f"{name}: {damage or 'it ends early'}. Put it back from a copy, or move it away"
        ) from damage
    except OSError as error:
        raise StoreUnavailable(
            f"{name} cannot be read or written anew: {error.strerror or error}"
        ) from error


class _Rewrite:
    """Writes one file anew, with its companions. While there is an index with the name of an
    unfinished one, the next call does all of it again."""

    def __init__(
        self,
        store: Store,
        name: str,
        doomed: Sequence[DeletionRecord],
        scratch: Path,
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._name = name
        self._doomed = sorted(doomed, key=lambda each: each.offset)
        self._scratch = scratch
        self._on_progress = on_progress

    def run(self) -> None:
        store, name = self._store, self._name
        with store.lock(name) as is_ours, named_errors(name):
            if not is_ours:
                raise DataDirError(f"the columns of {name} are being made; try again later")
            warc = self._new_warc()
            companions = [self._new_index(warc), *self._new_columns()]
            for companion, file in companions:
                self._replace(file, companion + OPEN_SUFFIX)
            present = store.names(FOLDER)
            for companion, _ in companions:
                if companion in present:
                    store.discard(companion)
            self._replace(warc, name)
            for companion, file in reversed(companions):
                self._replace(file, companion)
                store.discard(companion + OPEN_SUFFIX)
                file.unlink()
            warc.unlink()

    def _replace(self, file: Path, name: str) -> None:
        replace_stored(self._store, file, name, self._on_progress)

    def _new_warc(self) -> Path:
        new = self._scratch / Path(self._name).name
        with self._store.open(self._name) as source, new.open("wb") as out:
            copy_with_tombstones(source, self._doomed, out)
        return new

    def _new_index(self, warc: Path) -> tuple[str, Path]:
        index = _beside(self._name, INDEX)
        new, gone = companion_path(warc, INDEX), {each.offset for each in self._doomed}
        try:
            with self._store.open(index) as lines, new.open("wb") as out:
                for line in lines:
                    if entry_of(line, Path(self._name)).place.offset not in gone:
                        out.write(line)
        except FileNotFoundError:
            CdxjCompanion().rebuild(warc, warc)
        return index, new

    def _new_columns(self) -> Iterator[tuple[str, Path]]:
        """Yield the columns, if there are any. Those of a file of which the last call was killed
        may still have the name of unfinished ones; if these are not whole, they are a mark that
        columns are to be made."""
        columns, gone = _beside(self._name, COLUMNS), [each.offset for each in self._doomed]
        from crawler.archive.columns import copy_rows  # noqa: PLC0415  # Arrow: 150 ms

        new = self._scratch / Path(columns).name
        for name in (columns, columns + OPEN_SUFFIX):
            try:
                with self._store.open(name) as source:
                    copy_rows(source, new, gone)
            except FileNotFoundError:
                continue
            except ValueError as error:
                if name == columns:
                    raise DataDirError(f"{name} cannot be read: {error}") from error
                return
            yield columns, new
            return


COPY_BYTES: Final = 8 * 1024 * 1024


def copy_with_tombstones(source: BinaryIO, doomed: Sequence[DeletionRecord], out: BinaryIO) -> None:
    """Copy *source* with tombstones in place of the records *doomed*, which are in its order."""
    is_plain = source.read(1) == b"W"
    source.seek(0)
    for first, length in _gaps(doomed):
        _copy(source, out, first.offset - source.tell())
        out.write(tombstone(first, length, is_plain=is_plain))
        source.seek(length, os.SEEK_CUR)
    _copy(source, out, None)


def _gaps(doomed: Sequence[DeletionRecord]) -> Iterator[tuple[DeletionRecord, int]]:
    """Yield the first record and the length of each gap: of an answer with what follows of its
    capture, which by itself may be too short for a tombstone."""
    first, end = None, 0
    for each in doomed:
        if first is not None and not (each.offset == end and each.type in _BESIDE):
            yield first, end - first.offset
            first = None
        first, end = first or each, each.offset + each.length
    if first is not None:
        yield first, end - first.offset


def _copy(source: BinaryIO, out: BinaryIO, left: int | None) -> None:
    """Copy *left* bytes, or all that follow."""
    while piece := source.read(COPY_BYTES if left is None else min(left, COPY_BYTES)):
        out.write(piece)
        left = None if left is None else left - len(piece)


_GZIP_HEAD: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_GZIP_BYTES: Final = len(_GZIP_HEAD) + 8  # without the blocks
_BLOCK_HEAD_BYTES: Final = 5
_BLOCK_BYTES: Final = 0xFFFF  # the most in a block that is stored and not compressed
_TEXT: Final = b"deleted: on request"
_LINE_END: Final = b"\r\n"


def tombstone(first: DeletionRecord, length: int, *, is_plain: bool) -> bytes:
    """Return a metadata record of exactly *length* bytes in place of records of which *first* is
    the first; it keeps the id and the time of that. It names no URL. The same deletion gives the
    same bytes. Raises DataDirError if *length* is too short, as no record with a URL should be."""
    blocks = 0 if is_plain else -(-(length - _GZIP_BYTES) // (_BLOCK_BYTES + _BLOCK_HEAD_BYTES))
    around = 0 if is_plain else _GZIP_BYTES + blocks * _BLOCK_HEAD_BYTES
    record = _record_of(first, length - around)
    if is_plain:
        return record
    parts = [_GZIP_HEAD]
    for number in range(blocks):
        part = record[number * _BLOCK_BYTES : (number + 1) * _BLOCK_BYTES]
        size = len(part).to_bytes(2, "little")
        other = (len(part) ^ _BLOCK_BYTES).to_bytes(2, "little")
        parts += [bytes([number == blocks - 1]), size, other, part]
    parts += [crc32(record).to_bytes(4, "little"), (len(record) % 2**32).to_bytes(4, "little")]
    return b"".join(parts)


def _record_of(first: DeletionRecord, size_bytes: int) -> bytes:
    day, time = first.date[:8], first.date[8:]
    date = f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}Z"
    head = (
        f"WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: {first.id}\r\nWARC-Date: {date}\r\n"
        f"Content-Type: {FIELDS_TYPE}\r\nContent-Length: "
    ).encode()
    digits = len(str(size_bytes))
    room = size_bytes - len(head) - digits - 4 * len(_LINE_END)
    digest_bytes = len(_digest_line(b""))
    has_digest = room - digest_bytes >= len(_TEXT + _LINE_END)
    room -= digest_bytes if has_digest else 0
    if room < len(_TEXT + _LINE_END):
        raise DataDirError(f"the record at {first.place} is too short to be replaced")
    block = _TEXT + b" " * (room - len(_TEXT + _LINE_END)) + _LINE_END
    digest = _digest_line(block) if has_digest else b""
    # The number of digits depends on the number, so white space makes the difference.
    return head + b"%*d\r\n%b\r\n" % (digits, room, digest) + block + 2 * _LINE_END


def _digest_line(block: bytes) -> bytes:
    label = sha1_label(sha1(block, usedforsecurity=False).digest())
    return f"WARC-Block-Digest: {label}\r\n".encode()

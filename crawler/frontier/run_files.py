"""Sorted runs of keys on disk: fixed-width files, written once, then memory-mapped.

Rule: a file is on disk before a manifest names it, and a file that no manifest names is removed at
opening. So the folder is always that of the last manifest that the caller has committed. Nothing is
answered from rows whose checksum is wrong.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_hexdigest

from crawler.model.program import PROGRAM
from crawler.model.types import DataDirError, StoreFull, StoreUnavailable, is_out_of_room

Keys: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[Any]  # of the width that a Drum was given

VERSION: Final = 2  # 1: one checksum of the whole file
PAGE: Final = 4096  # bytes
PAGE_KEYS: Final = PAGE // 8
DAMAGED: Final = ".damaged"  # ends the name of a file that a repair has replaced
_GATHERED: Final = 256  # pages that are checked at once: 1 MB of them is copied


class StoredFile(msgspec.Struct, frozen=True):
    name: str
    size: int  # bytes
    xxh3: str  # of what follows the rows: fences, and the checksums of the rows


class StoredRun(msgspec.Struct, frozen=True):
    keys: int
    files: tuple[StoredFile, ...]  # of the keys and, if there are any, of the values


class DrumManifest(msgspec.Struct, frozen=True):
    """Which files are the store. The caller commits it; the folder itself holds none."""

    keys: int = 0  # distinct
    next: int = 0  # number of the next run
    runs: tuple[StoredRun, ...] = ()  # oldest first

    def sealed(self) -> bytes:
        """Return it as bytes that `unsealed` reads, with version and checksum."""
        packed = msgspec.json.encode(self)
        return msgspec.json.encode(
            {"version": VERSION, "xxh3": xxh3_64_hexdigest(packed), "manifest": msgspec.Raw(packed)}
        )


class _SealedBytes(msgspec.Struct, frozen=True):
    version: int
    xxh3: str  # of the manifest
    manifest: msgspec.Raw


def unsealed(packed: bytes, place: str) -> DrumManifest:
    """Return the manifest that `sealed` packed. Raises DataDirError, which names *place*, if it is
    damaged or of another version."""
    try:
        seal = msgspec.json.decode(packed, type=_SealedBytes)
        if seal.version != VERSION:
            raise DataDirError(f"{place} is of version {seal.version}, this one reads {VERSION}")
        if xxh3_64_hexdigest(seal.manifest) != seal.xxh3:
            raise DataDirError(f"{place} is damaged: {_RESTORE}")
        return msgspec.json.decode(seal.manifest, type=DrumManifest)
    except msgspec.MsgspecError as error:
        raise DataDirError(f"{place} cannot be read ({error}): {_RESTORE}") from error


_RESTORE: Final = (
    "restore the whole data directory from a copy, or begin the crawl anew in another one"
)
_REPAIR: Final = (
    f"no answer is taken from it. Stop the crawl, and run {PROGRAM} frontier check --repair, or"
    " restore the data directory from a snapshot"
)


def damaged(path: Path | str, how: str) -> DataDirError:
    return DataDirError(f"{path} is damaged ({how}): {_REPAIR}")


_SUM_OF_ZEROS: Final = np.uint64(0x9E3779B97F4A7C15)


@cache
def _weights(words: int) -> Keys:
    """Return *words* odd numbers, always the same: the finalizer of splitmix64."""
    mixed = np.arange(1, words + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed | np.uint64(1)


def page_sums(rows: NDArray[Any]) -> Keys:
    """Return the checksum of each page, 512 of *rows*: its words of eight bytes, each times an odd
    number of its own, and added. Another word always changes it, two words but once in 2**63. That
    of zeros is not zero.

    It takes 1.1 ns a key and releases the interpreter lock; a call of xxh3 for each page takes 1.6
    and holds it."""
    width = rows.itemsize * PAGE_KEYS
    data = rows.view(np.uint8)
    whole = len(data) // width * width
    words = data[:whole].view(np.uint64).reshape(-1, width // 8)
    sums: Keys = np.einsum("ij,j->i", words, _weights(width // 8))
    if whole < len(data):
        last = np.zeros(width, np.uint8)
        last[: len(data) - whole] = data[whole:]
        sums = np.append(sums, last.view(np.uint64) @ _weights(width // 8))
    return sums + _SUM_OF_ZEROS


class OpenFd:
    """A file descriptor that is closed with the last reference to it: a reader in another thread
    may still have one when the file is removed."""

    def __init__(self, descriptor: int) -> None:
        self.number = descriptor

    def __del__(self) -> None:
        os.close(self.number)


class RunFolder:
    """All that is done with the folder of a Drum. OSErrors become StoreFull or StoreUnavailable.
    Tests subclass it, to fail or to copy the folder before each operation."""

    def __init__(self, path: Path) -> None:
        """Raises DataDirError if *path* cannot be made."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataDirError(f"{path} cannot be made: {error.strerror}") from error

    def create(self, name: str) -> OpenFd:
        with self._translated():
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            return OpenFd(os.open(self.path / name, flags, 0o666))

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        with self._translated():
            while data:
                written = os.pwrite(file.number, data, offset)
                data, offset = data[written:], offset + written

    def read(self, file: OpenFd, size: int, offset: int) -> bytearray:
        with self._translated():
            data = bytearray(size)
            view = memoryview(data)
            while view:
                count = os.preadv(file.number, [view], offset)
                if count == 0:
                    raise OSError(errno.EIO, "the file is shorter than what was written")
                view, offset = view[count:], offset + count
            return data

    def sync(self, file: OpenFd) -> None:
        with self._translated():
            os.fsync(file.number)

    def sync_names(self) -> None:
        with self._translated():
            folder = OpenFd(os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))
            os.fsync(folder.number)

    def rename(self, name: str, new: str) -> None:
        with self._translated():
            (self.path / name).rename(self.path / new)

    def remove(self, name: str) -> None:
        """A file that cannot be removed now is at the next opening."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError:
            return

    def keep_only(self, names: set[str]) -> None:
        """Remove all files but *names*, and those that a repair has set aside."""
        for found in self.path.iterdir():
            if found.name not in names and found.suffix != DAMAGED:
                self.remove(found.name)

    def require_free(self, size: int) -> None:
        """Raise StoreFull if less than *size* bytes are free."""
        with self._translated():
            free = os.statvfs(self.path)
        if free.f_bavail * free.f_frsize < size:
            raise StoreFull(
                f"{self.path} needs {size:,} bytes for a merge, and"
                f" {free.f_bavail * free.f_frsize:,} are free"
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = StoreFull if is_out_of_room(error) else StoreUnavailable
            raise kind(f"the seen URLs in {self.path} cannot be kept: {error}") from error


def view_of(values: NDArray[Any]) -> memoryview:
    """Return the bytes of *values*."""
    return np.ascontiguousarray(values).view(np.uint8).data


class _FileOfRows:
    """A file of a run while it is appended to. Behind its rows are fences, if any, and then the
    checksum of each page of 512 rows."""

    def __init__(self, folder: RunFolder, name: str, width: int) -> None:
        self._folder, self.name, self.size = folder, name, 0
        self._file, self._page = folder.create(name), width * PAGE_KEYS
        self._begun = bytearray()  # of a page that is not whole yet
        self._sums: list[Keys] = []

    def append(self, rows: NDArray[Any]) -> None:
        view = view_of(rows)
        self._write(view)
        fill = -len(self._begun) % self._page
        self._begun += view[:fill]
        view = view[fill:]
        if len(self._begun) == self._page:
            self._sums.append(self._sums_of(self._begun))
            self._begun = bytearray()
        whole = len(view) // self._page * self._page
        if whole:
            self._sums.append(self._sums_of(view[:whole]))
        self._begun += view[whole:]

    def finish(self, fences: Keys) -> StoredFile:
        if self._begun:
            self._sums.append(self._sums_of(self._begun))
        index = view_of(np.concatenate([fences, *self._sums]))
        self._write(index)
        self._folder.sync(self._file)
        return StoredFile(self.name, self.size, xxh3_64_hexdigest(index))

    def _write(self, view: memoryview) -> None:
        self._folder.write(self._file, view, self.size)
        self.size += len(view)

    def _sums_of(self, data: bytearray | memoryview) -> Keys:
        return page_sums(np.frombuffer(data, _row(self._page // PAGE_KEYS)))


def _row(width: int) -> np.dtype[Any]:
    return np.dtype((np.void, width))


class RunOutput:
    """A run while it is written. Behind the keys, in ascending order, its first file has the first
    key of each page of 512 again (0.2 % more): with these in memory a look-up reads one page."""

    def __init__(self, folder: RunFolder, number: int, value: np.dtype[Any] | None) -> None:
        self._folder, self.keys = folder, 0
        self._fences: list[Keys] = []
        widths = {"keys": 8} if value is None else {"keys": 8, "values": value.itemsize}
        self._widths = {f"run-{number}.{kind}": width for kind, width in widths.items()}
        self._files: list[_FileOfRows] = []

    @property
    def names(self) -> list[str]:
        return list(self._widths)

    def append(self, keys: Keys, values: Values | None) -> None:
        """Append *keys*, all above those before, with the values of each."""
        if len(keys) == 0:
            return
        if not self._files:
            self._files = [_FileOfRows(self._folder, *each) for each in self._widths.items()]
        self._fences.append(keys[-self.keys % PAGE_KEYS :: PAGE_KEYS].copy())
        self.keys += len(keys)
        self._files[0].append(keys)
        if values is not None:
            self._files[1].append(values)

    @property
    def size(self) -> int:
        """Bytes written."""
        return sum(file.size for file in self._files)

    def finish(self) -> StoredRun | None:
        """Sync the files. Return None if the run has no keys: then it has no files."""
        if not self._files:
            return None
        nothing = np.empty(0, np.uint64)
        fences = [np.concatenate(self._fences), nothing]
        files = (file.finish(fence) for file, fence in zip(self._files, fences, strict=False))
        return StoredRun(self.keys, tuple(files))

    def discard(self) -> None:
        for name in self.names:
            self._folder.remove(name)


def hits(part: Keys, asked: Keys) -> tuple[Flags, Places]:
    """Return which of *asked* are in *part*, which is sorted, and where."""
    if len(part) == 0:
        return np.zeros(len(asked), np.bool_), np.zeros(len(asked), np.int64)
    at = part.searchsorted(asked)
    return part.take(at, mode="clip") == asked, at


class _CheckedRows:
    """The rows of a mapped file, of which none is returned unless its page is whole."""

    def __init__(self, path: Path, mapped: mmap.mmap, rows: NDArray[Any], sums: Keys) -> None:
        self._path, self.mapped, self.rows, self._sums = path, mapped, rows, sums

    def __getitem__(self, part: slice) -> NDArray[Any]:
        """Return the rows from part.start to part.stop. Raises DataDirError, as the others do."""
        first, last = part.start // PAGE_KEYS, -(-part.stop // PAGE_KEYS)
        rows = self.rows[first * PAGE_KEYS : last * PAGE_KEYS]
        self._compare(page_sums(rows), first, self._sums[first:last])
        return self.rows[part]

    def check_pages(self, pages: Places) -> None:
        """Check *pages*, ascending, each once or more."""
        pages = pages.compress(np.append(np.True_, pages[1:] != pages[:-1])[: len(pages)])
        whole = len(self.rows) // PAGE_KEYS
        if len(pages) and pages[-1] == whole:  # the last one, which has fewer rows
            self[whole * PAGE_KEYS : len(self.rows)]
            pages = pages[:-1]
        table = self.rows[: whole * PAGE_KEYS].reshape(-1, PAGE_KEYS)
        for begin in range(0, len(pages), _GATHERED):
            some = pages[begin : begin + _GATHERED]
            sums = page_sums(table.take(some, axis=0).ravel())
            self._compare(sums, some, self._sums.take(some))

    def _compare(self, found: Keys, pages: int | Places, stored: Keys) -> None:
        wrong = np.flatnonzero(found != stored)
        if len(wrong):
            page = int(pages[wrong[0]]) if isinstance(pages, np.ndarray) else pages + int(wrong[0])
            at = page * PAGE_KEYS * self.rows.itemsize
            raise damaged(self._path, f"{pages_text(len(wrong))} from byte {at:,} on")

    def read_ahead(self, begin: int, rows: int) -> None:
        """Let the system read *rows* from *begin* on."""
        at = begin * self.rows.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
        length = min(rows * self.rows.itemsize, len(self.mapped) - at)
        if length > 0:
            self.mapped.madvise(mmap.MADV_WILLNEED, at, length)


def pages_text(count: int) -> str:
    return "a page" if count == 1 else f"{count:,} pages"


class KeyRun:
    """A run on disk, memory-mapped: memory does not grow with it, other than the page cache. What
    it returns has been compared with its checksums: DataDirError if a page is damaged."""

    def __init__(
        self, folder: RunFolder, stored: StoredRun, value: np.dtype[Any] | None, piece_keys: int
    ) -> None:
        """*piece_keys*, a multiple of 512, is what one numpy call works on. Raises DataDirError if
        a file is missing, or has another size than in *stored*, or its fences are damaged."""
        self.stored, self._folder, self._piece_keys = stored, folder, piece_keys
        pages = -(-stored.keys // PAGE_KEYS)
        widths = [8] if value is None else [8, value.itemsize]
        sizes = [stored.keys * width + pages * 8 for width in widths]
        sizes[0] += pages * 8  # the fences
        if [file.size for file in stored.files] != sizes:
            raise DataDirError(
                f"{folder.path / stored.files[0].name} and its values are not of"
                f" {stored.keys} keys with values of the kind {value}: {_RESTORE}"
            )
        self._rows, self._fences = self._opened(stored.files[0], np.dtype(np.uint64))
        self.values: _CheckedRows | None = None
        if value is not None:
            self.values, _ = self._opened(stored.files[1], value)

    def __len__(self) -> int:
        return self.stored.keys

    def keys(self, part: slice) -> Keys:
        return self._rows[part]

    def fence(self, page: int) -> int:
        """Return the first key of a page."""
        return int(self._fences[page])

    def values_at(self, rows: Places) -> Values:
        """Return the values of *rows*, ascending."""
        assert self.values is not None, "the run has values"
        self.values.check_pages(rows // PAGE_KEYS)
        return self.values.rows.take(rows)

    def locate(self, key: int) -> int:
        """Return how many keys are below *key*, which may be 2**64. It reads one page."""
        if key >> 64:
            return len(self)
        page = max(int(self._fences.searchsorted(np.uint64(key))) - 1, 0) * PAGE_KEYS
        found = self._rows[page : min(page + PAGE_KEYS, len(self))]
        return page + int(found.searchsorted(np.uint64(key)))

    def pieces(self, keys: Keys, begin: int, end: int) -> Iterator[tuple[slice, slice]]:
        """Cut the run from *begin* to *end* and the sorted *keys* at the same keys. Yields the
        slice of the run, and that of *keys*, which may be empty."""
        first, step = begin // PAGE_KEYS, self._piece_keys // PAGE_KEYS
        cuts = self._fences[first + step : -(-end // PAGE_KEYS) : step]
        before, at = begin, 0
        for number, place in enumerate(keys.searchsorted(cuts).tolist(), 1):
            cut = first * PAGE_KEYS + number * self._piece_keys
            yield slice(before, cut), slice(at, place)
            before, at = cut, place
        yield slice(before, end), slice(at, len(keys))

    def read_ahead(self, piece: slice) -> None:
        """Let the system read what follows *piece* while it is worked on. Without it the reading
        of a run that is not cached waits for the disk at every 128 KB."""
        for rows in (self._rows, self.values):
            if rows is not None:
                rows.read_ahead(piece.stop, 8 * self._piece_keys)

    def find(self, keys: Keys) -> tuple[Flags, Places, int]:
        """Return which of the sorted *keys* the run has, where (if it has values), and how many
        bytes of keys that reads: all if most pages are asked for anyway, else a page for each."""
        if len(keys) * PAGE_KEYS < len(self):
            self._rows.mapped.madvise(mmap.MADV_RANDOM)
            return self._find_in_pages(keys)
        self._rows.mapped.madvise(mmap.MADV_NORMAL)
        found = np.empty(len(keys), np.bool_)
        places = np.empty(0 if self.values is None else len(keys), np.int64)
        for piece, asked in self.pieces(keys, 0, len(self)):
            self.read_ahead(piece)
            found[asked], at = hits(self.keys(piece), keys[asked])
            if self.values is not None:
                np.add(at, piece.start, out=places[asked])
        return found, places, len(self) * 8

    def _find_in_pages(self, keys: Keys) -> tuple[Flags, Places, int]:
        page = np.maximum(self._fences.searchsorted(keys, "right") - 1, 0)
        self._rows.check_pages(page)
        rows, last = self._rows.rows, len(self) - 1
        at, step = page * PAGE_KEYS, PAGE_KEYS
        while step := step // 2:
            probe = np.minimum(at + step, last)
            at = np.where(rows.take(probe) <= keys, probe, at)
        touched = int(np.count_nonzero(page[1:] != page[:-1])) + bool(len(page))
        return rows.take(at) == keys, at, touched * PAGE

    def check(self) -> None:
        """Read all of it."""
        for piece, _ in self.pieces(np.empty(0, np.uint64), 0, len(self)):
            self.keys(piece)
            if self.values is not None:
                self.values[piece]

    def _opened(self, file: StoredFile, row: np.dtype[Any]) -> tuple[_CheckedRows, Keys]:
        """Map *file* and return its rows, and its fences."""
        path, count = self._folder.path / file.name, self.stored.keys
        try:
            with path.open("rb") as opened:
                mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise damaged(path, str(error.strerror)) from error
        except ValueError as error:
            raise damaged(path, "it is empty") from error
        if len(mapped) != file.size:
            raise damaged(path, f"it has {len(mapped):,} bytes instead of {file.size:,}")
        index = np.frombuffer(mapped, np.uint64, offset=count * row.itemsize)
        if xxh3_64_hexdigest(view_of(index)) != file.xxh3:
            raise damaged(path, "its index")
        pages = -(-count // PAGE_KEYS)
        rows = _CheckedRows(path, mapped, np.frombuffer(mapped, row, count), index[-pages:])
        return rows, index[:-pages]


@dataclass(frozen=True, slots=True)
class ReadPages:
    """What `read_pages` found of some pages of a run."""

    keys: Keys  # in their order; of a page that is not whole without meaning
    whole: Flags  # by page


def read_pages(path: Path, keys: int) -> Iterator[ReadPages]:
    """Read the pages of a file of *keys* keys, whatever is damaged of it: what cannot be read is
    not whole. It does not map the file, as a bad sector of the disk then kills the process."""
    pages = -(-keys // PAGE_KEYS)
    with suppress(OSError), path.open("rb") as file:
        stored = np.frombuffer(_read_at(file.fileno(), (keys + pages) * 8, pages * 8), np.uint64)
        for first in range(0, pages, _GATHERED):
            begin = first * PAGE_KEYS
            count = min(_GATHERED * PAGE_KEYS, keys - begin)
            found = np.frombuffer(_read_at(file.fileno(), begin * 8, count * 8), np.uint64)
            whole = page_sums(found) == stored[first : first + _GATHERED]
            yield ReadPages(found, whole)
        return
    yield ReadPages(np.empty(0, np.uint64), np.zeros(pages, np.bool_))


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Read *size* bytes, page by page where the disk has bad ones; zeros for what is not there."""
    with suppress(OSError):
        return os.pread(descriptor, size, offset).ljust(size, b"\0")
    if size <= PAGE:
        return bytes(size)
    return b"".join(
        _read_at(descriptor, at, min(PAGE, offset + size - at))
        for at in range(offset, offset + size, PAGE)
    )


def save_manifest(folder: RunFolder, manifest: DrumManifest) -> None:
    """Commit *manifest* into a file of the folder, for a Drum that stands alone."""
    draft = folder.create(_DRAFT)
    folder.write(draft, memoryview(manifest.sealed()), 0)
    folder.sync(draft)
    folder.rename(_DRAFT, MANIFEST)
    folder.sync_names()


def load_manifest(folder: RunFolder) -> DrumManifest:
    """Return what `save_manifest` committed, or that of an empty store if it never did."""
    file = folder.path / MANIFEST
    try:
        return unsealed(file.read_bytes(), str(file))
    except FileNotFoundError:
        return DrumManifest()
    except OSError as error:
        raise DataDirError(f"{file} cannot be read ({error})") from error


MANIFEST: Final = "manifest.json"
_DRAFT: Final = "manifest.draft"

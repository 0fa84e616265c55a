"""Sorted runs of keys on disk: fixed-width files, written once, then memory-mapped.

Rule: a file is on disk before a manifest names it, and a file that no manifest names is removed at
opening. So the folder is always that of the last manifest that the caller has committed.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_hexdigest

from crawler.model.types import DataDirError, StoreFull, StoreUnavailable

Keys: TypeAlias = NDArray[np.uint64]
Flags: TypeAlias = NDArray[np.bool_]
Places: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[Any]  # of the width that a Drum was given

VERSION: Final = 1
PAGE: Final = 4096  # bytes
PAGE_KEYS: Final = PAGE // 8
_CHUNK: Final = 1 << 20


class StoredFile(msgspec.Struct, frozen=True):
    name: str
    size: int  # bytes
    xxh3: str


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
        for found in self.path.iterdir():
            if found.name not in names:
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
            kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
            raise kind(f"the seen URLs in {self.path} cannot be kept: {error}") from error


def view_of(values: NDArray[Any]) -> memoryview:
    """Return the bytes of *values*."""
    return np.ascontiguousarray(values).view(np.uint8).data


class _HashedFile:
    """A file of a run while it is appended to."""

    def __init__(self, folder: RunFolder, name: str) -> None:
        self._folder, self.name, self.size = folder, name, 0
        self._file, self._hash = folder.create(name), xxh3_64()

    def append(self, values: NDArray[Any]) -> None:
        view = view_of(values)
        self._folder.write(self._file, view, self.size)
        self._hash.update(view)
        self.size += len(view)

    def finish(self) -> StoredFile:
        self._folder.sync(self._file)
        return StoredFile(self.name, self.size, self._hash.hexdigest())


class RunOutput:
    """A run while it is written. Its first file has the keys in ascending order, then the first
    key of each page of 512 again (0.2 % more): with these in memory a look-up reads one page."""

    def __init__(self, folder: RunFolder, number: int, with_values: bool) -> None:
        self._folder, self.keys = folder, 0
        self._fences: list[Keys] = []
        self.names = [f"run-{number}.{kind}" for kind in ("keys", "values")[: 1 + with_values]]
        self._files: list[_HashedFile] = []

    def append(self, keys: Keys, values: Values | None) -> None:
        """Append *keys*, all above those before, with the values of each."""
        if len(keys) == 0:
            return
        if not self._files:
            self._files = [_HashedFile(self._folder, name) for name in self.names]
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
        self._files[0].append(np.concatenate(self._fences))
        return StoredRun(self.keys, tuple(file.finish() for file in self._files))

    def discard(self) -> None:
        for name in self.names:
            self._folder.remove(name)


def hits(part: Keys, asked: Keys) -> tuple[Flags, Places]:
    """Return which of *asked* are in *part*, which is sorted, and where."""
    if len(part) == 0:
        return np.zeros(len(asked), np.bool_), np.zeros(len(asked), np.int64)
    at = part.searchsorted(asked)
    return part.take(at, mode="clip") == asked, at


class KeyRun:
    """A run on disk, memory-mapped: memory does not grow with it, other than the page cache."""

    def __init__(
        self, folder: RunFolder, stored: StoredRun, value: np.dtype[Any] | None, piece_keys: int
    ) -> None:
        """*piece_keys*, a multiple of 512, is what one numpy call works on. Raises DataDirError if
        a file is missing, or has another size than in *stored*."""
        self.stored, self._folder, self._piece_keys = stored, folder, piece_keys
        self._maps = [self._mapped(file) for file in stored.files]
        fences = -(-stored.keys // PAGE_KEYS)
        entries = [(stored.keys + fences) * 8]
        if value is not None:
            entries.append(stored.keys * value.itemsize)
        if [file.size for file in stored.files] != entries:
            raise DataDirError(
                f"{folder.path / stored.files[0].name} and its values are not of"
                f" {stored.keys} keys with values of the kind {value}: {_RESTORE}"
            )
        whole: Keys = np.frombuffer(self._maps[0], np.uint64)
        self.keys, self._fences = whole[: stored.keys], whole[stored.keys :]
        self.values: Values | None = None
        if value is not None:
            self.values = np.frombuffer(self._maps[1], value)

    def locate(self, key: int) -> int:
        """Return how many keys are below *key*, which may be 2**64. It reads one page."""
        if key >> 64:
            return len(self.keys)
        page = max(int(self._fences.searchsorted(np.uint64(key))) - 1, 0) * PAGE_KEYS
        return page + int(self.keys[page : page + PAGE_KEYS].searchsorted(np.uint64(key)))

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
        for mapped, width in zip(self._maps, self._widths(), strict=True):
            begin = piece.stop * width // mmap.PAGESIZE * mmap.PAGESIZE
            length = min(8 * self._piece_keys * width, len(mapped) - begin)
            if length > 0:
                mapped.madvise(mmap.MADV_WILLNEED, begin, length)

    def find(self, keys: Keys) -> tuple[Flags, Places, int]:
        """Return which of the sorted *keys* the run has, where (if it has values), and how many
        bytes of keys that reads: all if most pages are asked for anyway, else a page for each."""
        if len(keys) * PAGE_KEYS < len(self.keys):
            self._maps[0].madvise(mmap.MADV_RANDOM)
            return self._find_in_pages(keys)
        self._maps[0].madvise(mmap.MADV_NORMAL)
        found = np.empty(len(keys), np.bool_)
        places = np.empty(0 if self.values is None else len(keys), np.int64)
        for piece, asked in self.pieces(keys, 0, len(self.keys)):
            self.read_ahead(piece)
            found[asked], at = hits(self.keys[piece], keys[asked])
            if self.values is not None:
                np.add(at, piece.start, out=places[asked])
        return found, places, len(self.keys) * 8

    def _find_in_pages(self, keys: Keys) -> tuple[Flags, Places, int]:
        page = np.maximum(self._fences.searchsorted(keys, "right") - 1, 0)
        at, last = page * PAGE_KEYS, len(self.keys) - 1
        step = PAGE_KEYS
        while step := step // 2:
            probe = np.minimum(at + step, last)
            at = np.where(self.keys.take(probe) <= keys, probe, at)
        touched = int(np.count_nonzero(page[1:] != page[:-1])) + bool(len(page))
        return self.keys.take(at) == keys, at, touched * PAGE

    def check(self) -> None:
        """Read the files, and raise DataDirError if one is damaged."""
        for file, mapped in zip(self.stored.files, self._maps, strict=True):
            found = xxh3_64()
            for begin in range(0, file.size, _CHUNK):
                found.update(mapped[begin : begin + _CHUNK])
            if found.hexdigest() != file.xxh3:
                raise DataDirError(f"{self._folder.path / file.name} is damaged: {_RESTORE}")

    def _widths(self) -> Iterator[int]:
        yield 8
        if self.values is not None:
            yield self.values.itemsize

    def _mapped(self, file: StoredFile) -> mmap.mmap:
        path = self._folder.path / file.name
        try:
            with path.open("rb") as opened:
                mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: it is empty
            raise DataDirError(f"{path} cannot be read ({error}): {_RESTORE}") from error
        if len(mapped) != file.size:
            raise DataDirError(f"{path} has {len(mapped)} bytes instead of {file.size}: {_RESTORE}")
        return mapped


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

"""Snapshots of a data directory: a copy of all that a crawl needs to go on, of one moment.

Rule: a folder has the name that was asked for only when all is in it, and on disk. It is made in
the data directory, by the process that has it locked, of hard links where the file system has them;
the command then moves it to its place, or copies it to another file system.

In it: the store of the frontier, the runs of the seen set that the store names, the format with the
key of the hashes, and the arguments and settings of the last start. Not in it: the archive and the
logs.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from crawler.data.data_dir import (
    ARGUMENTS,
    FORMAT_FILE,
    SETTINGS,
    InheritedLock,
    lock_file_pid,
)
from crawler.data.files import sync_folder
from crawler.data.operator_files import AUDIT, RULES
from crawler.frontier.port import FRONTIER, SEEN
from crawler.frontier.reader import FrontierReader
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import PAGE_KEYS, KeyRun, RunFolder
from crawler.frontier.seen import seen_manifest
from crawler.model.types import DataDirError, StoreFull, store_error

_LOCK: Final = "snapshot.lock"
_PREFIX: Final = "snapshot-"
_PARTIAL: Final = ".partial"
# What a checkpoint writes: the memtables, at most 24 MB, and the list of its files.
_FLUSH_BYTES: Final = 64 << 20
_NO_LINKS: Final = (errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that is whole."""

    folder: str
    left: int  # URLs that are not finished
    seen: int
    bytes: int  # of its files
    shared: int  # of them in files that the data directory has too, by hard links


@contextmanager
def only_snapshot(data: Path) -> Iterator[None]:
    """Let no other command make a snapshot of *data* meanwhile, and remove what dead ones have left
    there. Raises DataDirError."""
    lock = InheritedLock.take(data / _LOCK)
    if lock is None:
        raise DataDirError(
            f"another snapshot of {data} is being made by process {lock_file_pid(data / _LOCK)}:"
            " wait for it"
        )
    try:
        _remove_leftovers(data)
        yield
    finally:
        _remove_leftovers(data)
        lock.close()


def is_snapshot_wanted(data: Path) -> bool:
    """Return whether a command waits for a snapshot of *data*. If none does, remove what dead ones
    have left."""
    with suppress(DataDirError):
        lock = InheritedLock.take(data / _LOCK) if (data / _LOCK).exists() else None
        if lock is None:
            return (data / _LOCK).exists()
        _remove_leftovers(data)
        lock.close()
    return False


def _remove_leftovers(data: Path) -> None:
    for folder in data.glob(f"{_PREFIX}*"):
        if folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)


def new_name() -> str:
    """Return a name for `freeze`."""
    return _PREFIX + secrets.token_hex(8)


def freeze(data: Path, store: RocksStore, name: str) -> None:
    """Copy this moment of *store*, and all that belongs to it, to the folder *name* of *data*. May
    run in a thread while others write to the store, but not while one merges or removes runs.
    Raises StoreUnavailable or DataDirError; what was made of the folder is removed."""
    if Path(name).name != name or not name.startswith(_PREFIX):
        raise DataDirError(f"{name!r} is no name for a snapshot")
    folder = data / name
    try:
        folder.mkdir()
        copied = (
            0 if _has_links(data, folder) else _size_of(data / FRONTIER) + _size_of(data / SEEN)
        )
        _require_free(data, _FLUSH_BYTES + copied)
        store.checkpoint(folder / FRONTIER)
        (folder / SEEN).mkdir()
        for stored in seen_manifest(store).runs:  # only a merge changes which they are
            for file in stored.files:
                _link(data / SEEN / file.name, folder / SEEN / file.name)
        for small in (FORMAT_FILE, ARGUMENTS, SETTINGS, RULES, AUDIT):
            if (data / small).exists():
                _copy(data / small, folder / small)
        _sync_folders(folder)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise store_error(f"cannot make {folder} of {error.filename}", error) from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def check_target(target: Path) -> None:
    """Raise DataDirError if *target* cannot become a snapshot. It is not made."""
    partial = target.with_name(target.name + _PARTIAL)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise DataDirError(f"{target} is not empty: name a folder that does not exist yet")
        if partial.exists():
            raise DataDirError(
                f"{partial} is left of a snapshot that was cut off, and is none: remove it, or name"
                " another folder"
            )
        if not target.parent.is_dir():
            raise DataDirError(f"{target.parent} does not exist: make it first")
        if not os.access(target.parent, os.W_OK):
            raise DataDirError(f"{target.parent} cannot be written")
    except OSError as error:
        raise DataDirError(f"{target} cannot be read: {error.strerror}") from error


def publish(data: Path, name: str, target: Path) -> Snapshot:
    """Check what `freeze` has made, and give it the name *target*: by a move, or on another file
    system as a copy. Raises StoreUnavailable or DataDirError; then *target* is as before."""
    folder, partial = data / name, target.with_name(target.name + _PARTIAL)
    left, seen = _checked(folder)
    size, shared = _size_of(folder), _shared_bytes(folder)
    try:
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _require_free(target.parent, size)
            shared = 0
            try:
                _copy_tree(folder, partial)
                _sync_folders(partial)
                partial.rename(target)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        sync_folder(target.parent)
    except OSError as error:
        raise store_error(f"cannot make {target}", error) from error
    return Snapshot(str(target), left, seen, size, shared)


def _checked(folder: Path) -> tuple[int, int]:
    """Open the frontier of a snapshot, and return how many URLs are left and were seen. Raises
    DataDirError."""
    with closing(RocksStore(folder / FRONTIER, read_only=True)) as store:
        runs = RunFolder(folder / SEEN)
        reader = FrontierReader(store, runs)
        for stored in seen_manifest(store).runs:
            KeyRun(runs, stored, None, PAGE_KEYS)
        return reader.counts().left, reader.totals.seen


def _has_links(data: Path, folder: Path) -> bool:
    probe = folder / "probe"
    try:
        os.link(data / FORMAT_FILE, probe)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    probe.unlink()
    return True


def _link(file: Path, new: Path) -> None:
    try:
        os.link(file, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _copy(file, new)


def _copy_tree(folder: Path, new: Path) -> None:
    for place, _, names in os.walk(folder):
        there = new / Path(place).relative_to(folder)
        there.mkdir()
        for name in names:
            _copy(Path(place) / name, there / name)


def _copy(file: Path, new: Path) -> None:
    with file.open("rb") as source, new.open("xb") as out:
        shutil.copyfileobj(source, out, 1 << 20)
        out.flush()
        os.fsync(out.fileno())


def _sync_folders(top: Path) -> None:
    for folder, _, _ in os.walk(top):
        sync_folder(Path(folder))


def _files(folder: Path) -> Iterator[os.stat_result]:
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # RocksDB has compacted it meanwhile
                yield (Path(place) / name).stat()


def _size_of(folder: Path) -> int:
    return sum(file.st_size for file in _files(folder))


def _shared_bytes(folder: Path) -> int:
    return sum(file.st_size for file in _files(folder) if file.st_nlink > 1)


def _require_free(folder: Path, size: int) -> None:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < size:
        raise StoreFull(f"a snapshot needs {size:,} bytes in {folder}, and {free:,} are free")

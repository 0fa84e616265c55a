"""A folder as destination, most likely on another disk or machine.

Rule: as with an object store, a file appears under its name whole or not at all; it is written
beside it first. It is on the disk itself before its original may go. The folder must exist: one
that we made ourselves may be the empty place where a disk was not mounted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from crawler.core.errors import ConfigError, StoreUnavailable
from crawler.storage.delivery.address import SETTING, StoreAddress, reason
from crawler.storage.delivery.store import Moved
from crawler.storage.warc.openfile import open_name, sync_folder

BLOCK_BYTES: Final = 1024 * 1024
NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class FolderStore:
    """Implements Store."""

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self._root = Path(address.path)

    def __str__(self) -> str:
        return str(self._address)

    def check(self) -> None:
        if not self._root.is_dir():
            raise ConfigError(f"{SETTING} names the folder {self._root}, which does not exist")
        if not os.access(self._root, os.W_OK | os.X_OK):
            raise ConfigError(f"{SETTING} names the folder {self._root}: it cannot be written to")

    def has(self, name: str) -> bool:
        target = self._root / name
        with _translated():
            # A disk that is gone takes its folder with it, and must not look empty.
            self._root.stat()
            if not target.exists():
                return False
            aside = open_name(target)
            if aside.exists() and aside.samefile(target):  # `put` died between its two names
                aside.unlink(missing_ok=True)
        return True

    def put(self, file: Path, name: str, moved: Moved) -> bool:
        target = self._root / name
        with _translated():
            self._root.stat()
            target.parent.mkdir(exist_ok=True)
            aside = open_name(target)  # left by a crash: written over
            with file.open("rb") as source, aside.open("wb") as copy:
                _carry(source, copy, moved)
            is_new = _name(aside, target)
            aside.unlink(missing_ok=True)
            sync_folder(target.parent)
            sync_folder(self._root)
        return is_new

    def holds(self, file: Path, name: str, moved: Moved) -> bool:
        with _translated(), file.open("rb") as ours, (self._root / name).open("rb") as theirs:
            here, there = os.fstat(ours.fileno()), os.fstat(theirs.fileno())
            # The same file by another path is no second copy: removing one would lose both.
            if here.st_size != there.st_size or os.path.samestat(here, there):
                return False
            return _are_equal(ours, theirs, moved)

    def discard(self, name: str) -> None:
        with _translated():
            (self._root / name).unlink(missing_ok=True)


def _carry(source: BinaryIO, copy: BinaryIO, moved: Moved) -> None:
    while block := source.read(BLOCK_BYTES):
        copy.write(block)
        moved()
    copy.flush()
    os.fsync(copy.fileno())
    if hasattr(os, "posix_fadvise"):  # not on macOS
        # Read back, it comes from the disk then and not from memory.
        os.posix_fadvise(copy.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _are_equal(ours: BinaryIO, theirs: BinaryIO, moved: Moved) -> bool:
    while block := ours.read(BLOCK_BYTES):
        if theirs.read(len(block)) != block:
            return False
        moved()
    return True


def _name(aside: Path, target: Path) -> bool:
    try:
        os.link(aside, target)  # unlike a renaming, it takes no name away
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if target.exists():
            return False
        aside.rename(target)
    return True


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(reason(error)) from error

"""One WARC file while it is being written, and the marks that say so.

Rule: the file always ends with a whole append, or is cut back to one before anything else
happens to it. Its name ends in `.open` and it is locked (flock) until it is finished; a file
so named without a lock was left by a dead process and is recovery's to mend.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from crawler.core.errors import StoreFull, StoreUnavailable

OPEN_SUFFIX: Final = ".open"


def lock(fd: int, path: Path) -> bool:
    """Take the file for this process. False: another has it, or had it and renamed or
    removed it between our opening and locking it."""
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def open_name(final: Path) -> Path:
    """What *final* is called until it is finished."""
    return final.with_name(final.name + OPEN_SUFFIX)


def sync_folder(folder: Path) -> None:
    """Make the names in *folder* as durable as what they name."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class OpenFile:
    """Appends all of a piece or nothing. *final* is its name once finished."""

    def __init__(self, fd: int, final: Path) -> None:
        self.final = final
        self.size_bytes = 0  # all of it whole appends
        self._fd = fd
        self._torn = False  # there may be bytes beyond size_bytes
        self._name_safe = False  # the folder was forced to the disk since we began
        self._lost = False  # an fsync failed: what it covered may be gone without notice
        self._closing = threading.Lock()  # held while the descriptor is duplicated or closed
        self._closed = False

    @classmethod
    def create(cls, final: Path) -> Self | None:
        """None: the name is taken."""
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            fd = _begun(final)
        except OSError as error:
            raise _unavailable(open_name(final), error) from error
        return None if fd is None else cls(fd, final)

    def append(self, data: bytes) -> int:
        """Write *data* at the end, all of it; its offset. StoreUnavailable: nothing of it."""
        try:
            self._mend()
            self._torn = True
            self._write(data)
        except OSError as error:
            with suppress(OSError):
                self._mend()
            raise _unavailable(open_name(self.final), error) from error
        self._torn = False
        offset = self.size_bytes
        self.size_bytes += len(data)
        return offset

    def sync(self) -> None:
        """Make all of it survive a power cut. After a failure the file is given up: the
        kernel may have dropped what it could not write, and would not say so again. Another thread
        may call it while this one appends or finishes; of a finished file it does nothing."""
        try:
            self._check()
            with self._closing:
                if self._closed:
                    return
                fd = os.dup(self._fd)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            if not self._name_safe:
                sync_folder(self.final.parent)
                self._name_safe = True
        except OSError as error:
            self._lost = True
            raise _unavailable(open_name(self.final), error) from error

    def finish(self) -> None:
        """Give it its final name, synced. StoreUnavailable: it is still open, try again."""
        try:
            self._mend()
            self.sync()
            # A power cut may undo the renaming; recovery then does it again.
            open_name(self.final).rename(self.final)
        except OSError as error:
            raise _unavailable(open_name(self.final), error) from error
        self._close()

    def discard(self) -> None:
        """Remove it; nothing of worth is in it."""
        with suppress(OSError):
            open_name(self.final).unlink()
        self._close()

    def _close(self) -> None:
        with self._closing:
            self._closed = True
            os.close(self._fd)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        at = self.size_bytes
        while rest:
            # A short write is no error yet; what stopped it comes with the next one.
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written

    def _mend(self) -> None:
        self._check()
        if self._torn:
            os.ftruncate(self._fd, self.size_bytes)
            self._torn = False

    def _check(self) -> None:
        if self._lost:
            raise OSError("an fsync failed before")


def _begun(final: Path) -> int | None:
    path = open_name(final)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    try:
        if lock(fd, path):
            # Who holds the open name is alone to make the final one, so looking is enough.
            if not final.exists():
                return fd
            path.unlink()
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def refused_write(text: str, error: OSError) -> StoreUnavailable:
    """What *error* of a disk means to the caller: *text* says what could not be written."""
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
    return kind(f"{text}: {error.strerror or error}")


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return refused_write(f"cannot write {path}", error)

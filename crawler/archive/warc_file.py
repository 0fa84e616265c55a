"""One WARC file while it is being written, and its companion files.

Rule: the file ends with a complete append, or is cut back to one before anything else is done with
it. Its name ends in `.open` and it is locked (flock) until it is finished; a file with that name
and no lock was left by a dead process and is recovered by recovery.py.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Protocol, Self

from crawler.archive.capture import StoredCapture
from crawler.archive.reader import ArchivedCapture
from crawler.data.files import sync_folder
from crawler.model.types import OUT_OF_FILES, StoreUnavailable, store_error

OPEN_SUFFIX: Final = ".open"


def lock(fd: int, path: Path) -> bool:
    """Lock the file for this process. Returns False if another process holds it, or has renamed
    or removed it since we opened it."""
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def open_name(final: Path) -> Path:
    """Return the name that *final* has until it is finished."""
    return final.with_name(final.name + OPEN_SUFFIX)


class OpenFile:
    """A file to which each append is written completely or not at all. *final* is its name once it
    is finished."""

    def __init__(self, fd: int, final: Path) -> None:
        self.final = final
        self.size_bytes = 0  # of complete appends
        self._fd = fd
        self._has_partial_append = False  # there may be bytes beyond size_bytes
        self._is_name_synced = False  # the folder was synced since the file was created
        self._sync_failed = False  # an fsync failed, so data may be lost without a further error
        self._closing = threading.Lock()  # held while the descriptor is duplicated or closed
        self._closed = False

    @classmethod
    def create(cls, final: Path) -> Self | None:
        """Create the file. Returns None if the name is taken."""
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            fd = _create_locked(final)
        except OSError as error:
            raise _unavailable(open_name(final), error) from error
        return None if fd is None else cls(fd, final)

    def append(self, data: bytes) -> int:
        """Write *data* at the end and return its offset. Raises StoreUnavailable if nothing of it
        was written."""
        try:
            self._cut_back()
            self._has_partial_append = True
            self._write(data)
        except OSError as error:
            with suppress(OSError):
                self._cut_back()
            raise _unavailable(open_name(self.final), error) from error
        self._has_partial_append = False
        offset = self.size_bytes
        self.size_bytes += len(data)
        return offset

    def sync(self) -> None:
        """Make all appends survive a power cut. After a failure every later call fails: the kernel
        may have dropped what it could not write, and reports that only once. Another thread may
        call it during an append or `finish`; after `finish` it does nothing."""
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
            if not self._is_name_synced:
                sync_folder(self.final.parent)
                self._is_name_synced = True
        except OSError as error:
            # Without a file it was not tried.
            self._sync_failed = error.errno not in OUT_OF_FILES
            raise _unavailable(open_name(self.final), error) from error

    def finish(self) -> None:
        """Sync the file and rename it to its final name. Raises StoreUnavailable if it is still
        open; the caller may try again."""
        try:
            self._cut_back()
            self.sync()
            # A power cut may undo the renaming; recovery then repeats it.
            open_name(self.final).rename(self.final)
        except OSError as error:
            raise _unavailable(open_name(self.final), error) from error
        self._close()

    def discard(self) -> None:
        """Remove the file; it holds no capture."""
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
            # A short write is no error yet; the next write raises what stopped it.
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written

    def _cut_back(self) -> None:
        self._check()
        if self._has_partial_append:
            os.ftruncate(self._fd, self.size_bytes)
            self._has_partial_append = False

    def _check(self) -> None:
        if self._sync_failed:
            raise OSError("an fsync failed before")


def _create_locked(final: Path) -> int | None:
    path = open_name(final)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    try:
        if lock(fd, path):
            # Only the process with the lock creates the final name, so a check is enough.
            if not final.exists():
                return fd
            path.unlink()
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return store_error(f"cannot write {path}", error)


# Companions (index, columns) are finished before their WARC file, so that a finished WARC file has
# complete ones. A companion that fails is made again from the records, so no capture is lost by
# it. One that takes minutes is made later: its unfinished file beside a finished WARC file is the
# mark that it is missing.
WARC_SUFFIX: Final = ".warc.gz"


class Companion(Protocol):
    """A kind of companion file. One thread calls it, for one WARC file after the other: begin,
    add..., then finish or discard. `rebuild` may be called for any file at any time between."""

    @property
    def suffix(self) -> str:
        """The ending of its name in place of `.warc.gz`: `.cdxj`, `.parquet`."""

    @property
    def is_slow(self) -> bool:
        """Whether a rebuild takes minutes for a file. It is then delayed, and `add_stored` is never
        called."""

    def begin(self, warc: Path) -> None:
        """Begin the companion of a file that will be called *warc*. Until `finish` its name is
        `open_name(companion_path(warc, suffix))`; an existing file is overwritten."""

    def add(self, written: StoredCapture) -> None:
        """Add one capture, in bounded memory. Raises only StoreUnavailable, whatever the capture
        holds."""

    def add_stored(self, stored: ArchivedCapture) -> None:
        """Add one capture that was read from its file, without its body. Raises as `add`."""

    def finish(self) -> None:
        """Complete and sync it, and rename it to its final name, replacing an existing file.
        Raises StoreUnavailable."""

    def discard(self) -> None:
        """Close and remove the unfinished file, if there is one."""

    def rebuild(self, warc: Path, content: Path) -> None:
        """Make the finished companion of *warc* from the records in *content*, which is *warc* or
        the file that will get its name. Raises CrawlerError, and then keeps a mark that the
        companion is missing."""


def companion_path(warc: Path, suffix: str) -> Path:
    """Return the final name of the companion of *warc* with *suffix*."""
    return warc.with_name(warc.name.removesuffix(WARC_SUFFIX) + suffix)


@dataclass(slots=True)
class _CompanionState:
    companion: Companion
    is_whole: bool = True  # it holds all captures so far
    is_finished: bool = False


class Companions:
    """The companions of the file that is being written."""

    def __init__(self, companions: Sequence[Companion], warc: Path) -> None:
        self._warc = warc
        self._states = [_CompanionState(companion) for companion in companions]
        for state in self._states:
            self._try(state, lambda companion: companion.begin(warc))

    def add_all(self, written: Sequence[StoredCapture]) -> None:
        for state in self._states:
            if state.is_finished:  # the WARC file could not be finished and these captures follow
                state.is_finished = state.is_whole = False
            if state.is_whole:
                self._try(state, partial(_add_all, written))

    def finish(self) -> None:
        """Finish all companions. After StoreUnavailable it may be called again."""
        for state in self._states:
            if state.is_finished:
                continue
            if state.is_whole:
                self._try(state, lambda companion: companion.finish())
            if not state.is_whole and state.companion.is_slow:
                mark_missing(self._warc, state.companion.suffix)
            elif not state.is_whole:
                state.companion.rebuild(self._warc, open_name(self._warc))
            state.is_finished = True

    def discard(self) -> None:
        for state in self._states:
            state.companion.discard()

    @staticmethod
    def _try(state: _CompanionState, step: Callable[[Companion], None]) -> None:
        try:
            step(state.companion)
        except StoreUnavailable:
            state.is_whole = False
            with suppress(StoreUnavailable):
                state.companion.discard()


def _add_all(written: Sequence[StoredCapture], companion: Companion) -> None:
    for each in written:
        companion.add(each)


def mark_missing(warc: Path, suffix: str) -> None:
    """Mark that a companion of *warc* is missing, before *warc* is finished. Raises
    StoreUnavailable."""
    mark = open_name(companion_path(warc, suffix))
    try:
        mark.write_bytes(b"")
    except OSError as error:
        raise store_error(f"cannot write {mark}", error) from error


def missing_companions(folder: Path, suffix: str) -> list[Path]:
    """Return the finished WARC files that lack this companion, oldest first."""
    return sorted(warc for warc, _ in _unfinished(folder, suffix) if warc.exists())


def is_missing(warc: Path, suffix: str) -> bool:
    return warc.exists() and open_name(companion_path(warc, suffix)).exists()


def remove_unfinished_companions(folder: Path, suffix: str, *, also_marked: bool = False) -> None:
    """Remove unfinished companions of WARC files that are not being written. Marks of missing
    companions are removed only if *also_marked*."""
    for warc, path in _unfinished(folder, suffix):
        # A writer creates its file before the companions and finishes it after them.
        if not open_name(warc).exists() and (also_marked or not warc.exists()):
            path.unlink(missing_ok=True)


@contextmanager
def rebuild_lock(warc: Path) -> Iterator[bool]:
    """Hold the lock for a rebuild of the companions of a finished file. Yields False if another
    process holds it. Raises OSError."""
    with warc.open("rb") as file:
        yield lock(file.fileno(), warc)


def _unfinished(folder: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """Yield each unfinished companion, behind the final name of its WARC file."""
    ending = open_name(Path(suffix)).name
    for path in list(folder.glob(f"*{ending}")):
        yield path.with_name(path.name.removesuffix(ending) + WARC_SUFFIX), path

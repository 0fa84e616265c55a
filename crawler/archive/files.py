"""One WARC file while it is being written, and the marks that say so.

Rule: the file always ends with a whole append, or is cut back to one before anything else
happens to it. Its name ends in `.open` and it is locked (flock) until it is finished; a file
so named without a lock was left by a dead process and is recovery's to mend.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self

from crawler.archive.capture import StoredCapture
from crawler.archive.reader import Stored
from crawler.model.types import StoreUnavailable, refused_write

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


def _unavailable(path: Path, error: OSError) -> StoreUnavailable:
    return refused_write(f"cannot write {path}", error)


# Files beside each WARC file, made of what goes into it: an index, columns.
#
# Rule: a finished WARC file has its companions, whole, from the moment it is there: they are
# finished before it. One that fails is given up, and made again from the records alone; so a
# companion can never cost a capture. What takes minutes to make again is not made while somebody
# waits: its unfinished file, beside a WARC file that is finished, is the mark that it is owed.

WARC_SUFFIX: Final = ".warc.gz"


class Companion(Protocol):
    """One kind of such a file. Called by one thread; for one WARC file after the other: begin,
    add..., then finish or discard. `rebuild` is for any file, also between the others."""

    @property
    def suffix(self) -> str:
        """What its name has in place of `.warc.gz`: `.cdxj`, `.parquet`."""

    @property
    def is_slow(self) -> bool:
        """To make it again takes minutes a file: it is put off, and `add_again` never called."""

    def begin(self, warc: Path) -> None:
        """*warc*: the name it will have. Until `finish` its companion's name is
        `open_name(beside(warc, suffix))`; one that is there is written over."""

    def add(self, written: StoredCapture) -> None:
        """One capture more. In bounded memory. Raises StoreUnavailable only, whatever the capture
        holds."""

    def add_again(self, stored: Stored) -> None:
        """As `add`, of a capture read from its file, without its body."""

    def finish(self) -> None:
        """Whole, forced to the disk, under its final name, in place of one that is there.
        Raises StoreUnavailable."""

    def discard(self) -> None:
        """Close and remove the unfinished file, if there is one."""

    def rebuild(self, warc: Path, content: Path) -> None:
        """Make the finished companion of *warc* from its records alone, which are whole, in
        *content*: itself, or the file that will get its name. Raises CrawlerError; a mark that
        it is owed is left then."""


def companion_path(warc: Path, suffix: str) -> Path:
    """The final name of a companion."""
    return warc.with_name(warc.name.removesuffix(WARC_SUFFIX) + suffix)


@dataclass(slots=True)
class _Kept:
    companion: Companion
    is_whole: bool = True  # it has got all captures so far
    is_finished: bool = False


class Companions:
    """Those of the file at hand."""

    def __init__(self, companions: Sequence[Companion], warc: Path) -> None:
        self._warc = warc
        self._kept = [_Kept(companion) for companion in companions]
        for kept in self._kept:
            self._try(kept, lambda companion: companion.begin(warc))

    def add(self, written: StoredCapture) -> None:
        for kept in self._kept:
            if kept.is_finished:  # and the file was not, after it: this capture is not in it
                kept.is_finished = kept.is_whole = False
            if kept.is_whole:
                self._try(kept, lambda companion: companion.add(written))

    def finish(self) -> None:
        """StoreUnavailable: call it again later."""
        for kept in self._kept:
            if kept.is_finished:
                continue
            if kept.is_whole:
                self._try(kept, lambda companion: companion.finish())
            if not kept.is_whole and kept.companion.is_slow:
                mark_missing(self._warc, kept.companion.suffix)
            elif not kept.is_whole:
                kept.companion.rebuild(self._warc, open_name(self._warc))
            kept.is_finished = True

    def discard(self) -> None:
        for kept in self._kept:
            kept.companion.discard()

    @staticmethod
    def _try(kept: _Kept, step: Callable[[Companion], None]) -> None:
        try:
            step(kept.companion)
        except StoreUnavailable:
            kept.is_whole = False
            with suppress(StoreUnavailable):
                kept.companion.discard()


def mark_missing(warc: Path, suffix: str) -> None:
    """Mark that a companion of *warc* is still to be made; before *warc* is finished. Raises
    StoreUnavailable."""
    mark = open_name(companion_path(warc, suffix))
    try:
        mark.write_bytes(b"")
    except OSError as error:
        raise refused_write(f"cannot write {mark}", error) from error


def missing_companions(folder: Path, suffix: str) -> list[Path]:
    """The finished WARC files that lack this companion, oldest first."""
    return sorted(warc for warc, _ in _unfinished(folder, suffix) if warc.exists())


def is_missing(warc: Path, suffix: str) -> bool:
    return warc.exists() and open_name(companion_path(warc, suffix)).exists()


def clear(folder: Path, suffix: str, *, also_owed: bool = False) -> None:
    """Remove unfinished companions of no file that is being written; but not what is owed."""
    for warc, path in _unfinished(folder, suffix):
        # A living writer has the file open before its companions, and after them.
        if not open_name(warc).exists() and (also_owed or not warc.exists()):
            path.unlink(missing_ok=True)


@contextmanager
def held(warc: Path) -> Iterator[bool]:
    """Of those who make companions of a finished file again, one at a time; False: another is at
    it. Raises OSError."""
    with warc.open("rb") as file:
        yield lock(file.fileno(), warc)


def _unfinished(folder: Path, suffix: str) -> Iterator[tuple[Path, Path]]:
    """With the final name of the WARC file of each."""
    ending = open_name(Path(suffix)).name
    for path in list(folder.glob(f"*{ending}")):
        yield path.with_name(path.name.removesuffix(ending) + WARC_SUFFIX), path

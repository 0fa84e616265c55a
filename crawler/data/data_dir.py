"""The data directory: everything of a crawl is under it, and one crawl at a time uses it.

Rule: nothing is created, changed or overwritten before the directory is known to be ours,
free, and of a format we know.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import msgspec

from crawler.model.types import DataDirError

FORMAT: Final = 1
_LOCK: Final = "crawl.lock"
_FORMAT_FILE: Final = "format.json"
FRONTIER: Final = "frontier"
WORKER: Final = "worker"  # of a shared crawl: the outbox, and what the worker remembers
WORKERS: Final = "workers"  # of a crawl by several workers of this machine: theirs are below it
WARC: Final = "warc"
NEAR: Final = "near"  # the index of near-duplicates
OUTCOMES: Final = "outcomes.jsonl"
SUMMARY: Final = "summary.json"
LOG: Final = "crawl.log"
ARGUMENTS: Final = "arguments.json"  # of the last start


class Format(msgspec.Struct, frozen=True):
    format: int
    key_seed: int  # of the hash of URLs: a page cannot choose URLs that collide
    identity: tuple[str, ...] = ()  # which settings the keys of URLs and hosts were made with
    spider: str = ""  # whose requests are waiting; empty: nobody has said


class DataDir:
    """Opened: locked until `close` or the end of the process."""

    def __init__(self, path: Path, identity: tuple[str, ...] = (), spider: str = "") -> None:
        """Raises DataDirError: not writable, in use, of a newer version, damaged, begun with
        another *identity*, under which every URL would count as new, or by another *spider*."""
        self.path = path
        self._lock = _locked(path)
        try:
            self.format = _read_or_begin(path / _FORMAT_FILE, identity, spider)
            _refuse_other(path, self.format.identity, identity)
            _refuse_other_spider(path, self.format.spider, spider)
        except BaseException:
            self.close()
            raise
        (path / WARC).mkdir(exist_ok=True)

    def close(self) -> None:
        os.close(self._lock)

    @property
    def frontier(self) -> Path:
        return self.path / FRONTIER

    @property
    def worker(self) -> Path:
        return self.path / WORKER

    @property
    def warc(self) -> Path:
        return self.path / WARC

    @property
    def near(self) -> Path:
        return self.path / NEAR

    @property
    def outcomes(self) -> Path:
        return self.path / OUTCOMES

    @property
    def summary(self) -> Path:
        return self.path / SUMMARY

    def keep_arguments(self, packed: bytes) -> None:
        """For the next start. Raises DataDirError."""
        _replace(self.path / ARGUMENTS, packed)


def kept_arguments(path: Path) -> bytes | None:
    """Of the last start in *path*, which somebody may be using; None: there was none."""
    with suppress(OSError):
        return (path / ARGUMENTS).read_bytes()
    return None


def refuse_other_kind(data: DataDir, is_shared: bool) -> None:
    """An embedded crawl and a worker of a shared one know nothing of each other's URLs.
    Raises DataDirError."""
    if is_shared and data.frontier.exists():
        raise DataDirError(
            f"{data.path} holds a crawl with a frontier of its own: finish it without"
            " CRAWLER_FRONTIER_URL, or give this worker another CRAWLER_DATA_DIR"
        )
    if not is_shared and data.worker.exists():
        raise DataDirError(
            f"{data.path} belongs to a worker of a shared crawl: set CRAWLER_FRONTIER_URL as it"
            " was, or choose another CRAWLER_DATA_DIR"
        )
    if (data.path / WORKERS).exists():
        raise DataDirError(
            f"{data.path} holds a crawl by several workers: go on with scrapy share (make crawl"
            " WORKERS=2), or choose another CRAWLER_DATA_DIR"
        )


def read_format(path: Path) -> Format:
    """Of a data directory somebody else may be using. Raises DataDirError."""
    file = path / _FORMAT_FILE
    if not file.exists():
        raise DataDirError(f"{path} is not a data directory: it has no {_FORMAT_FILE}")
    return _read(file)


def holder(path: Path) -> int | None:
    """The process that has *path* in use, None if nobody has."""
    with suppress(OSError, ValueError):
        descriptor = os.open(path / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(descriptor, 32) or b"0")
        finally:
            os.close(descriptor)
    return None


def _locked(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as refused:
        raise DataDirError(
            f"data directory {path} cannot be written: {refused.strerror}."
            " Choose another with CRAWLER_DATA_DIR"
        ) from refused
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise DataDirError(
            f"data directory {path} is in use by another crawl (process {owner})."
            " Wait for it, or choose another with CRAWLER_DATA_DIR"
        ) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return descriptor


def _refuse_other(path: Path, begun_with: tuple[str, ...], now: tuple[str, ...]) -> None:
    changed = sorted(set(begun_with) ^ set(now))
    if changed:
        raise DataDirError(
            f"{path} was begun with other rules of which URLs are the same: {', '.join(changed)}."
            " Set them as they were, or begin in another data directory (CRAWLER_DATA_DIR)"
        )


def _refuse_other_spider(path: Path, theirs: str, ours: str) -> None:
    """It would be given their requests, for callbacks that it may not have, and count all that they
    have seen as seen by itself."""
    if theirs and ours and theirs != ours:
        raise DataDirError(
            f"{path} holds the crawl of another spider, {theirs}. Choose a data directory for"
            f" {ours}, for example -s CRAWLER_DATA_DIR={path}-{ours}"
        )


def _refuse_lost_frontier(path: Path) -> None:
    """What was fetched would all be fetched again, and nobody told."""
    stores = (path / FRONTIER, path / WORKER)  # of a shared crawl the frontier is elsewhere
    if (path / OUTCOMES).exists() and not any(store.exists() for store in stores):
        raise DataDirError(
            f"{path} is damaged: its crawl has outcomes, but the folder {FRONTIER} is gone. Put it"
            " back from a copy, or begin again in another data directory (CRAWLER_DATA_DIR)"
        )


def _read_or_begin(file: Path, identity: tuple[str, ...], spider: str) -> Format:
    if file.exists():
        _refuse_lost_frontier(file.parent)
        return _read(file)
    if (file.parent / FRONTIER).exists():
        raise DataDirError(
            f"{file.parent} is damaged: it holds a frontier, but no {file.name}. Put the file"
            " back from a copy, or begin again in another data directory (CRAWLER_DATA_DIR)"
        )
    begun = Format(FORMAT, secrets.randbits(63), identity, spider)
    _replace(file, msgspec.json.encode(begun))
    return begun


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_suffix(".draft")
    try:
        with draft.open("wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError as refused:
        raise DataDirError(
            f"data directory {file.parent} cannot be written: {refused.strerror}."
            " Choose another with CRAWLER_DATA_DIR"
        ) from refused


def _read(file: Path) -> Format:
    try:
        version = msgspec.json.decode(file.read_bytes(), type=dict[str, object]).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise DataDirError(
                f"{file.parent} was written by a newer version (format {version}, this one reads"
                f" {FORMAT}). Use that version, or another data directory (CRAWLER_DATA_DIR)"
            )
        return msgspec.json.decode(file.read_bytes(), type=Format)
    except (msgspec.MsgspecError, OSError) as broken:
        raise DataDirError(
            f"{file} cannot be read ({broken}). Nothing was changed: put it back from a copy, or"
            " begin again in another data directory (CRAWLER_DATA_DIR)"
        ) from broken


# A lock on a file that can be handed on: held until everybody who was given it has ended.
#
# Rule: it goes with an open file, so the kernel frees it however its holders die, and no stale
# number of a process is ever believed.


class InheritedLock:
    """Held until `close`, and by children that were started with `descriptor` (pass_fds)."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """None: somebody has it. The number of our process is in the file. Raises DataDirError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as refused:
            raise DataDirError(
                f"{path} cannot be written: {refused.strerror}."
                " Choose another data directory with CRAWLER_DATA_DIR"
            ) from refused
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return cls(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def taken_by(path: Path) -> str:
    """The process that took the lock first, as it wrote itself down."""
    try:
        return path.read_text(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


# A data directory that nobody keeps: of its own folder, and gone when it is closed, or with the
# process.


class TemporaryDataDir(DataDir):
    def __init__(self) -> None:
        # A shell ends without closing anything: what is open in it is no reason to complain then.
        self._folder = TemporaryDirectory(prefix="gossamer-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name))

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

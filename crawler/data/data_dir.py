"""The data directory: all files of a crawl are in it, and one crawl at a time uses it.

Rule: nothing in it is created, changed or overwritten before it is locked and its format and owner
are checked.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

import msgspec

from crawler.data.files import replace_file
from crawler.data.operator_files import RULES
from crawler.frontier.port import FRONTIER, SEEN
from crawler.model.program import PROGRAM
from crawler.model.types import ConfigError, DataDirError

FORMAT: Final = 6  # another one is refused; it rises when what is on disk changes
_LOCK: Final = "crawl.lock"
FORMAT_FILE: Final = "format.json"
WORKER: Final = "worker"  # of a shared crawl: the worker's outbox and robots.txt
SHARDS: Final = "shards"  # of a shared crawl: the shards that the worker has; a copy
REMOTE: Final = "remote"  # of a crawl whose URLs are in a URL Frontier: what it keeps of hosts
WORKERS: Final = "workers"  # the data directories of several workers on this machine
SERVED: Final = "served"  # the crawls of other crawlers that are served from here
WARC: Final = "warc"
OUTCOMES: Final = "outcomes.jsonl"
CHANGES: Final = "changes"  # the change feed, and how far its consumers are
SUMMARY: Final = "summary.json"
COMPILED: Final = "compiled"  # what numba made, where the package is read-only
CONSOLE: Final = "control.address"  # host and port of the console, while it is served
REPORT: Final = "report.html"
SITE_REPORT: Final = "site.html"  # written when it is asked for
HISTORY: Final = "history.bin"  # the figures over time
RUNS: Final = "runs.json"  # the figures of each run
SEEDS: Final = "seeds.json"  # what became of the seeds
LOG: Final = "crawl.log"
ARGUMENTS: Final = "arguments.json"  # of the last start
SETTINGS: Final = "settings.json"  # of the last start, those that decide about URLs
SPIDER: Final = "%(name)s"  # in a path, as in FEEDS
_SHOWN: Final = 5  # directories of spiders, in an error


class DataDirFormat(msgspec.Struct, frozen=True):
    format: int
    # The seed of the hash of URLs. It is random, so that no page can contain URLs that collide.
    key_seed: int
    identity: tuple[str, ...] = ()  # the settings that the keys of URLs and hosts depend on
    spider: str = ""  # the spider of the waiting requests; empty: unknown


def crawl_id_of(key_seed: int) -> str:
    """Return a name that all runs and workers of a crawl have in common. It tells nothing of
    *key_seed*, with which a page could choose URLs that collide."""
    return sha256(f"crawl {key_seed}".encode()).hexdigest()[:16]


def path_of_spider(given: str, spider: str) -> str:
    """Return the path that is *given* by a setting, with the name of *spider* in place of
    `%(name)s`, as in FEEDS. Raises ConfigError for other fields, which could differ at the next
    start, and if *spider* is not known, as by a command."""
    if others := set(re.findall(r"%\(\w*\)s", given)) - {SPIDER}:
        raise ConfigError(
            f"the data directory is {given!r}, but of a spider only its name is put into it,"
            f" {SPIDER}, and not {', '.join(sorted(others))}"
        )
    if SPIDER not in given or spider:
        return given.replace(SPIDER, spider)
    pattern = "*".join(map(glob.escape, given.split(SPIDER)))
    folders = map(Path, sorted(glob.glob(pattern)))  # noqa: PTH207 - it may be absolute
    begun = (each for each in folders if _holds_crawl(each))
    there = list(map(str, islice(begun, _SHOWN)))
    raise ConfigError(
        f"CRAWLER_DATA_DIR is {given!r}, one data directory for each spider: say which, for example"
        f" -s CRAWLER_DATA_DIR={there[0] if there else given.replace(SPIDER, 'news')}"
        + (f" (there are {', '.join(there)})" if there[1:] else "")
    )


def _holds_crawl(path: Path) -> bool:
    return (path / FORMAT_FILE).exists() or (path / WORKERS).exists()


def worker_folders(path: Path) -> list[Path]:
    """Return the data directories of all workers that `scrapy share` has started below *path*, by
    number."""
    found = [folder for folder in (path / WORKERS).glob("*") if folder.name.isdecimal()]
    return sorted(found, key=lambda folder: int(folder.name))


def folders_of_crawl(path: Path) -> list[Path]:
    """Return the data directories of all workers on this machine of the crawl whose worker uses
    *path*: it alone, unless `scrapy share` has started others beside it."""
    if path.parent.name != WORKERS:
        return [path]
    return sorted(each for each in path.parent.iterdir() if each.is_dir())


class DataDir:
    """An open data directory, locked until `close` or the end of the process."""

    def __init__(self, path: Path, identity: tuple[str, ...] = (), spider: str = "") -> None:
        """Raises DataDirError if *path* is not writable, in use, of another format, damaged,
        begun with another *identity*, with which every URL would be new, or by another *spider*."""
        self.path = path
        if (path / FORMAT_FILE).exists():
            _read(path / FORMAT_FILE)  # one of another format is refused before the lock is written
        self._lock = _locked(path)
        try:
            if identity and (path / SERVED).exists():
                raise DataDirError(
                    f"{path} holds what is served to other crawlers: choose another"
                    " CRAWLER_DATA_DIR for a crawl"
                )
            self.format = _read_or_begin(path / FORMAT_FILE, identity, spider)
            _refuse_other_identity(path, self.format.identity, identity)
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
    def seen(self) -> Path:
        return self.path / SEEN

    @property
    def worker(self) -> Path:
        return self.path / WORKER

    @property
    def remote(self) -> Path:
        return self.path / REMOTE

    @property
    def warc(self) -> Path:
        return self.path / WARC

    @property
    def outcomes(self) -> Path:
        return self.path / OUTCOMES

    @property
    def summary(self) -> Path:
        return self.path / SUMMARY

    def keep_arguments(self, packed: bytes) -> None:
        """Write the spider's arguments for the next start. Raises DataDirError."""
        _replace(self.path / ARGUMENTS, packed)

    def keep_settings(self, packed: bytes) -> None:
        """Write the settings of this start that decide about URLs, if they are others than those of
        the last one. Raises DataDirError."""
        if kept_file(self.path / SETTINGS) != packed:
            _replace(self.path / SETTINGS, packed)


def kept_file(path: Path) -> bytes | None:
    """Return what the last start kept in *path*, ARGUMENTS or SETTINGS of a directory that may be
    in use, or None."""
    with suppress(OSError):
        return path.read_bytes()
    return None


def refuse_other_kind(data: DataDir, own: Path) -> None:
    """Raise DataDirError if *data* is of another kind than a crawl with its store in *own*: one
    with its own frontier, a worker of a shared one, or one whose URLs are in a URL Frontier. None
    would have the URLs of another."""
    if own != data.frontier and data.frontier.exists():
        raise DataDirError(
            f"{data.path} holds a crawl with a frontier of its own: finish it without"
            " CRAWLER_FRONTIER_URL, or give this worker another CRAWLER_DATA_DIR"
        )
    if own != data.worker and data.worker.exists():
        raise DataDirError(
            f"{data.path} belongs to a worker of a shared crawl: set CRAWLER_FRONTIER_URL as it"
            " was, or choose another CRAWLER_DATA_DIR"
        )
    if own != data.remote and data.remote.exists():
        raise DataDirError(
            f"{data.path} belongs to a crawl whose URLs are in a URL Frontier: set"
            " CRAWLER_FRONTIER_URL as it was, or choose another CRAWLER_DATA_DIR"
        )
    if (data.path / WORKERS).exists():
        raise DataDirError(
            f"{data.path} holds a crawl by several workers: go on with {PROGRAM} share (make crawl"
            " WORKERS=2), or choose another CRAWLER_DATA_DIR"
        )


def refuse_remote(path: Path) -> None:
    """Raise DataDirError if the URLs of the crawl in *path* are in a URL Frontier, where no command
    of ours reads them."""
    if (path / REMOTE).is_dir():
        raise DataDirError(
            f"the URLs of the crawl in {path} are in a URL Frontier: this works only with a"
            " frontier in the data directory or in Redis. Ask the server of the URL Frontier"
        )


def read_format(path: Path) -> DataDirFormat:
    """Read the format of a data directory, which may be in use. Raises DataDirError, also if it is
    of another one than this version reads."""
    file = path / FORMAT_FILE
    if not file.exists():
        raise DataDirError(f"{path} is not a data directory: it has no {FORMAT_FILE}")
    return _read(file)


def lock_owner(path: Path) -> int | None:
    """Return the id of the process that uses the data directory *path*, or None."""
    with suppress(OSError, ValueError):
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(descriptor, 32) or b"0")
        finally:
            os.close(descriptor)
    return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of the data directory *path*, so that no crawl uses it. Raises DataDirError."""
    descriptor = _locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path / _LOCK, flags, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            _refuse_links(path)
        raise DataDirError(
            f"data directory {path} cannot be written: {error.strerror}."
            " Choose another with CRAWLER_DATA_DIR"
        ) from error
    if not _is_taken(descriptor):
        owner = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise DataDirError(
            f"data directory {path} is in use by another crawl (process {owner})."
            " Wait for it, or choose another with CRAWLER_DATA_DIR"
        )
    try:
        _refuse_links(path)
        _write_owner(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_taken(descriptor: int) -> bool:
    """Take the lock of *descriptor*, and return whether that was possible. It is tried for 0.2 s,
    as `lock_owner` holds it for an instant, and a console looks again and again."""
    for _ in range(20):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.01)
    return False


def _write_owner(descriptor: int, path: Path) -> None:
    """Write our process id into the lock file *descriptor* in *path*. Raises DataDirError."""
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    except OSError as error:
        raise DataDirError(
            f"data directory {path} cannot be written: {error.strerror}."
            " Make room, or choose another with CRAWLER_DATA_DIR"
        ) from error


def _refuse_links(path: Path) -> None:
    """Raise DataDirError if a file in *path* is a symbolic link: what is written there would change
    a file elsewhere. A folder may be one, to another disk, and the operator's rules, which are only
    read and replaced."""
    for each in path.iterdir():
        is_folder = each.is_dir() and not each.suffix  # of its files each has one
        if each.is_symlink() and not is_folder and each.name != RULES:
            raise DataDirError(
                f"{each} is a symbolic link, which is not followed. Remove it, or choose another"
                " data directory with CRAWLER_DATA_DIR"
            )


def _refuse_other_identity(path: Path, begun_with: tuple[str, ...], now: tuple[str, ...]) -> None:
    changed = sorted(set(begun_with) ^ set(now))
    if changed:
        raise DataDirError(
            f"{path} was begun with other rules of which URLs are the same: {', '.join(changed)}."
            " Set them as they were, or begin in another data directory (CRAWLER_DATA_DIR)"
        )


def _refuse_other_spider(path: Path, begun_by: str, spider: str) -> None:
    """Raise DataDirError if another spider began the crawl: its requests may name callbacks that
    this one does not have, and what it has seen would count as seen by this one."""
    if begun_by and spider and begun_by != spider:
        raise DataDirError(
            f"{path} holds the crawl of another spider, {begun_by}. Choose a data directory for"
            f" {spider}, for example -s CRAWLER_DATA_DIR={path}-{spider}, or give each spider one:"
            f' CRAWLER_DATA_DIR = "{path}/{SPIDER}"'
        )


def _refuse_lost_frontier(path: Path) -> None:
    """Raise DataDirError if the frontier is gone: everything would be fetched again, unnoticed."""
    # Of a shared crawl the frontier is elsewhere, and of one over a URL Frontier.
    stores = (path / FRONTIER, path / WORKER, path / REMOTE, path / SERVED)
    if (path / OUTCOMES).exists() and not any(store.exists() for store in stores):
        raise DataDirError(
            f"{path} is damaged: its crawl has outcomes, but the folder {FRONTIER} is gone. Put it"
            " back from a copy, or begin again in another data directory (CRAWLER_DATA_DIR)"
        )


def _read_or_begin(file: Path, identity: tuple[str, ...], spider: str) -> DataDirFormat:
    if file.exists():
        _refuse_lost_frontier(file.parent)
        return _read(file)
    if (file.parent / FRONTIER).exists():
        raise DataDirError(
            f"{file.parent} is damaged: it holds a frontier, but no {file.name}. Put the file"
            " back from a copy, or begin again in another data directory (CRAWLER_DATA_DIR)"
        )
    begun = DataDirFormat(FORMAT, secrets.randbits(63), identity, spider)
    _replace(file, msgspec.json.encode(begun))
    return begun


def _replace(file: Path, content: bytes) -> None:
    try:
        replace_file(file, content)
    except OSError as error:
        raise DataDirError(
            f"data directory {file.parent} cannot be written: {error.strerror}."
            " Choose another with CRAWLER_DATA_DIR"
        ) from error


def _read(file: Path) -> DataDirFormat:
    try:
        version = msgspec.json.decode(file.read_bytes(), type=dict[str, object]).get("format")
        if isinstance(version, int) and version != FORMAT:
            raise DataDirError(
                f"{file.parent} is of format {version}, and this version reads {FORMAT}: use the"
                " version that wrote it, or another data directory (CRAWLER_DATA_DIR)"
            )
        return msgspec.json.decode(file.read_bytes(), type=DataDirFormat)
    except (msgspec.MsgspecError, OSError) as error:
        raise DataDirError(
            f"{file} cannot be read ({error}). Nothing was changed: put it back from a copy, or"
            " begin again in another data directory (CRAWLER_DATA_DIR)"
        ) from error


class InheritedLock:
    """A file lock, held until `close` and the end of all children started with `descriptor`
    (pass_fds).

    The kernel frees it with the last open descriptor, so no stale process id can hold it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self | None:
        """Take the lock and write our process id into the file. Returns None if another process
        holds it. Raises DataDirError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno == errno.ELOOP:
                _refuse_links(path.parent)
            raise DataDirError(
                f"{path} cannot be written: {error.strerror}."
                " Choose another data directory with CRAWLER_DATA_DIR"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            _write_owner(descriptor, path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(descriptor)

    def close(self) -> None:
        os.close(self.descriptor)


def lock_file_pid(path: Path) -> str:
    """Return the process id in the lock file *path*, or "unknown"."""
    try:
        return path.read_text(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


class TemporaryDataDir(DataDir):
    """A data directory in a folder of its own, removed by `close` or at the end of the process."""

    def __init__(self) -> None:
        # `scrapy shell` ends without closing anything, so open files must cause no error here.
        self._folder = TemporaryDirectory(prefix="gossamer-", ignore_cleanup_errors=True)
        super().__init__(Path(self._folder.name))

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

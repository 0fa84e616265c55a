"""The change feed: a JSON line for each change of a page, numbered, for whoever keeps an index.

Rule: an entry is on the disk after the record that it names, and before the verdict that makes its
URL done: after a crash it may come twice, but is never lost. A reader syncs what it reads before it
hands it out, so that no power cut gives the number of an entry that was taken to another one.

A file is named by the number of its first entry. Numbers rise; those of entries that a purge has
removed are missing.

In a shared crawl each worker writes such a feed, and sends its entries to the one feed of all
(crawler/shared/changes.py). `Changes` is what a consumer sees of either.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from crawler.data.disk_room import DiskRoom
from crawler.data.files import replace_file, sync_folder
from crawler.model.program import PROGRAM
from crawler.model.types import (
    Change,
    ChangeKind,
    ConfigError,
    CrawlerError,
    DataDirError,
    StoreFull,
    WaitsForRoom,
    change_key,
    never_waits,
    store_error,
)

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 16 << 20  # 40,000 entries; a purge has one file in memory
_FULL_RETRY_S: Final = 1.0  # between two tries while the disk is full
_LOOK_S: Final = 1.0  # between two looks at the positions of the consumers
_SUFFIX: Final = ".jsonl"
_CONSUMERS: Final = "consumers"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
encode_change: Final = msgspec.json.Encoder().encode
decode_change: Final = msgspec.json.Decoder(Change).decode


class ChangeFeed:
    """Writes the feed in *folder*. `add` is called on the event loop, `taken` and `write` in the
    thread that syncs records."""

    def __init__(
        self, folder: Path, waits_for_room: WaitsForRoom = never_waits, given: int = 0
    ) -> None:
        """Cut off half a line that a killed process has left. Numbers up to *given* are not given
        again, even if the files have no such entry. Raises StoreUnavailable, or DataDirError if the
        last file is damaged."""
        self.folder = folder
        self._waits_for_room = waits_for_room
        self._added: list[Change] = []
        self._unwritten = b""  # the rest of a write that found no room
        try:
            (folder / _CONSUMERS).mkdir(parents=True, exist_ok=True)
            files = feed_files(folder)
            first, file = files[-1] if files else (1, _file_of(folder, 1))
            lines = file.read_bytes() if files else b""
            end = lines.rfind(b"\n") + 1
            self.last = _last_number(file, lines[:end]) if end else first - 1
            self._file = self._opened(file)
            self._file.truncate(end)
            if given > self.last:
                self.last = given
                self._begin_file()
        except OSError as refused:
            raise store_error(f"cannot write {folder}", refused) from refused

    def _opened(self, file: Path) -> FileIO:
        opened = file.open("ab", buffering=0)
        sync_folder(self.folder)
        return opened

    def add(self, change: Change) -> None:
        """Keep *change* until the next sync. Bound: one for each page that waits for it."""
        self._added.append(change)

    def taken(self) -> list[Change]:
        """Return what was added, to be written when the records written so far are synced."""
        taken, self._added = self._added, []
        return taken

    def write(self, changes: Iterable[Change]) -> None:
        """Write *changes* under the next numbers, and sync them. While the disk is full, it waits
        for room, unless the crawl ends. Raises StoreUnavailable."""
        numbered = [replace(each, number=n) for n, each in enumerate(changes, self.last + 1)]
        self.last += len(numbered)
        self._unwritten += b"".join(encode_change(each) + b"\n" for each in numbered)
        while self._unwritten:
            try:
                self._write()
                return
            except OSError as refused:
                error = store_error(f"cannot write {self.folder}", refused)
                if not (isinstance(error, StoreFull) and self._waits_for_room(error)):
                    raise error from refused
            time.sleep(_FULL_RETRY_S)

    def _write(self) -> None:
        while self._unwritten:
            # A disk that fills up writes a part without an error, and fails only at the next write.
            self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
        os.fsync(self._file.fileno())
        if self._file.tell() >= FILE_BYTES:
            self._begin_file()

    def _begin_file(self) -> None:
        before, self._file = self._file, self._opened(_file_of(self.folder, self.last + 1))
        before.close()

    def slowest(self) -> ConsumerPosition | None:
        """Implements Backlog."""
        return next(iter(LocalChanges(self.folder).consumers()), None)

    def lag_of(self, slowest: ConsumerPosition) -> int:
        """Implements Backlog."""
        return max(0, self.last - slowest.taken)

    def close(self) -> None:
        self._file.close()


def _file_of(folder: Path, first: int) -> Path:
    return folder / f"{first:012d}{_SUFFIX}"


def feed_files(folder: Path) -> list[tuple[int, Path]]:
    """Return the files of the feed in *folder*, each with the number of its first entry, in order.
    Raises DataDirError."""
    try:
        files = [file for file in folder.glob(f"*{_SUFFIX}") if file.stem.isdecimal()]
    except OSError as refused:
        raise DataDirError(f"{folder} cannot be read: {refused.strerror}") from refused
    return sorted((int(file.stem), file) for file in files)


def _last_number(file: Path, lines: bytes) -> int:
    return _entry(file, lines[lines.rfind(b"\n", 0, -1) + 1 :]).number


def _entry(file: Path, line: bytes) -> Change:
    try:
        return decode_change(line)
    except msgspec.MsgspecError as broken:
        raise DataDirError(
            f"{file} is damaged ({broken}) in the line {line[:80]!r}: remove the line, or put the"
            " file back from a copy"
        ) from broken


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """An entry as it stands in the feed."""

    number: int
    line: bytes


class FeedReader:
    """Reads the entries after a number, also while the crawl writes, and while a purge replaces
    files. Memory: one file."""

    def __init__(self, folder: Path, after: int) -> None:
        """Raises DataDirError if the feed does not reach from *after* on: it ends before, or the
        files that had the next entries are gone."""
        self._folder = folder
        self._after = after
        self._read_bytes = 0  # of the file that was read last
        self._last_line = b""  # of them; a purge that has moved it has replaced the file
        files = feed_files(folder)
        if not files:
            raise DataDirError(
                f"{folder.parent} has no change feed: it is written with CRAWLER_CHANGES=true"
            )
        last = last_number(folder)
        check_position(f"the change feed in {folder}", after, files[0][0], last)

    def read(self) -> Iterator[FeedEntry]:
        """Yield the entries that are there now and were not yielded before. Raises
        DataDirError, StoreUnavailable."""
        files = feed_files(self._folder)
        begin = max(
            (n for n, (first, _) in enumerate(files) if first <= self._after + 1), default=0
        )
        for _, path in files[begin:]:
            for line in self._new_lines(path):
                entry = _entry(path, line)
                if entry.number > self._after:
                    self._after = entry.number
                    yield FeedEntry(entry.number, line.rstrip(b"\n"))

    def _new_lines(self, path: Path) -> Sequence[bytes]:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                os.fsync(file.fileno())
                begin = self._read_bytes
                file.seek(begin - len(self._last_line))
                if not self._last_line or file.read(len(self._last_line)) != self._last_line:
                    file.seek(begin := 0)
                content = file.read(size - begin)
        except OSError as refused:
            raise store_error(f"cannot read {path}", refused) from refused
        lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
        if lines or not begin:
            self._read_bytes = begin + sum(map(len, lines))
            self._last_line = lines[-1] if lines else b""
        return lines


def check_position(where: str, after: int, first: int, last: int) -> None:
    """Raise DataDirError if the feed *where*, of the entries *first* to *last*, cannot be read from
    behind the entry *after* on."""
    if after > last:
        raise DataDirError(
            f"{where} ends at entry {last:,}, before {after:,}: it is another feed, or an older"
            f" copy of it. Read it from the beginning (--from {first})"
        )
    if after + 1 < first:
        raise DataDirError(
            f"{where} begins at entry {first:,}: those after {after:,} were removed. Index the"
            f" archive anew, then read --from {first}"
        )


def last_number(folder: Path) -> int:
    """Return the number of the last entry of the feed in *folder*, which may be in use; 0: there is
    none. Raises DataDirError."""
    files = feed_files(folder)
    if not files:
        return 0
    first, file = files[-1]
    try:
        lines = file.read_bytes()
    except OSError as refused:
        raise DataDirError(f"{file} cannot be read: {refused.strerror}") from refused
    end = lines.rfind(b"\n") + 1
    return _last_number(file, lines[:end]) if end else first - 1


class ConsumerPosition(msgspec.Struct, frozen=True):
    """How far a consumer has taken the feed."""

    name: str
    taken: int  # the number of the last entry that it has taken; 0: none
    at: float  # epoch seconds, when it said so


read_position: Final = msgspec.json.Decoder(ConsumerPosition).decode


class EntryReader(Protocol):
    def read(self) -> Iterator[FeedEntry]:
        """Yield the entries that are there now and were not yielded before. Raises
        CrawlerError."""


class Changes(Protocol):
    """A change feed as its consumers see it. All methods raise CrawlerError."""

    where: str  # in words, for messages

    def last(self) -> int:
        """Return the number of the last entry; 0: there is none."""

    def reader(self, after: int) -> EntryReader:
        """Return a reader of the entries behind *after*. Raises DataDirError if they are not
        there."""

    def consumers(self) -> list[ConsumerPosition]:
        """Return all consumers, the one furthest behind first."""

    def consumer(self, name: str) -> ConsumerPosition | None:
        """Return the consumer *name*, or None if there is none. Raises ConfigError if *name* is no
        name."""

    def lag_of(self, consumer: ConsumerPosition) -> int:
        """Return how many entries *consumer* has not taken, at most."""

    def move(self, name: str, taken: int, now: float) -> None:
        """Store that the consumer *name* has taken all entries up to *taken*; it is made if there
        is none."""

    def forget(self, name: str) -> None:
        """Remove the consumer *name*. Raises ConfigError if there is none."""


class LocalChanges:
    """Implements Changes for the feed in a folder, which a crawl may be writing."""

    def __init__(self, folder: Path) -> None:
        self.where = f"the change feed in {folder}"
        self._folder = folder

    def last(self) -> int:
        return last_number(self._folder)

    def reader(self, after: int) -> FeedReader:
        return FeedReader(self._folder, after)

    def consumers(self) -> list[ConsumerPosition]:
        names = [file.stem for file in (self._folder / _CONSUMERS).glob("*.json")]
        found = [each for each in map(self.consumer, names) if each is not None]
        return sorted(found, key=by_position)

    def consumer(self, name: str) -> ConsumerPosition | None:
        file = self._file(name)
        try:
            return read_position(file.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as broken:
            raise DataDirError(
                f"the position of the consumer {name} cannot be read ({broken}): remove {file}, and"
                " begin again with --from"
            ) from broken

    def lag_of(self, consumer: ConsumerPosition) -> int:
        return max(0, self.last() - consumer.taken)

    def move(self, name: str, taken: int, now: float) -> None:
        """Survives a power cut."""
        file = self._file(name)
        try:
            replace_file(file, msgspec.json.encode(ConsumerPosition(name, taken, now)))
        except OSError as refused:
            raise store_error(f"cannot write {file}", refused) from refused

    def forget(self, name: str) -> None:
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            raise no_consumer(name, self.consumers()) from None
        except OSError as refused:
            raise store_error(f"cannot remove the consumer {name}", refused) from refused

    def _file(self, name: str) -> Path:
        check_name(name)
        return self._folder / _CONSUMERS / f"{name}.json"


def check_name(name: str) -> None:
    """Raise ConfigError if *name* can be no consumer's."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a consumer: want 1 to 64 letters, digits, - or _"
        )


def by_position(consumer: ConsumerPosition) -> tuple[int, str]:
    """Return what sorts consumers, the one furthest behind first."""
    return consumer.taken, consumer.name


def no_consumer(name: str, there: Iterable[ConsumerPosition]) -> ConfigError:
    known = ", ".join(each.name for each in there) or "none"
    return ConfigError(f"no consumer is called {name}; there are: {known}")


class Backlog(Protocol):
    """What consumers have not taken, as the crawl that writes the feed sees it."""

    def slowest(self) -> ConsumerPosition | None:
        """Return the consumer furthest behind, or None if there is none. It may read files, so call
        it once a second. Raises CrawlerError."""

    def lag_of(self, slowest: ConsumerPosition) -> int:
        """Return how many entries it has not taken. It uses memory only, and does not fall before
        the next call of `slowest`."""


class ConsumerWatch:
    """Whether a consumer is so far behind that the crawl waits for it."""

    def __init__(
        self,
        feed: ChangeFeed,
        backlog: Backlog,
        max_lag: int | None,
        room: DiskRoom,
        wake: Callable[[], None],
    ) -> None:
        """*backlog*: of *feed* itself, or of the one that workers share. *max_lag*: in entries;
        None: the crawl waits for no consumer. *wake* is called when URLs may be leased again."""
        self.feed = feed
        self._backlog = backlog
        self._max_lag = max_lag
        self._room = room
        self._wake = wake
        self._slowest: ConsumerPosition | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def lag(self) -> int:
        """How many entries the consumer furthest behind has not taken; 0: there is none."""
        return self._backlog.lag_of(self._slowest) if self._slowest else 0

    @property
    def is_behind(self) -> bool:
        """Whether nothing may be leased until a consumer has taken more."""
        return self._max_lag is not None and self.lag > self._max_lag

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        """End the watch; the feed stays open."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _work(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Read the positions, and say whether the crawl waits for a consumer."""
        was_behind = self.is_behind
        try:
            self._slowest = self._backlog.slowest()
        except CrawlerError as error:
            self._room.report_wait("the positions of consumers can be read", str(error))
        if self._slowest is not None and self.is_behind:
            name = self._slowest.name
            self._room.report_wait(
                "a consumer of the change feed has taken more of it",
                f"the consumer {name} has not taken the last {self.lag:,} entries of the change"
                f" feed, more than CRAWLER_CHANGES_MAX_LAG ({self._max_lag:,}), so nothing is"
                f" fetched. If it is no more: {PROGRAM} frontier changes --forget {name}",
            )
        elif was_behind:
            self._wake()


def purge_changes(folder: Path, is_purged: Callable[[str], bool], now: float) -> int:
    """Remove the URLs that *is_purged* is true for from the feed in *folder*, and return how many
    there were. First an entry for each says that it is purged; then the files are replaced, one by
    one. No crawl may be writing to it. If it is killed, a second call does the rest, and may write
    entries twice. Raises DataDirError, StoreUnavailable."""
    if not feed_files(folder):
        return 0
    with closing(ChangeFeed(folder)) as feed:
        keys: dict[str, None] = {}
        for _, file in feed_files(folder):
            for entry, _ in _lines(file):
                if entry.url and is_purged(entry.url):
                    keys[change_key(entry.url)] = None
        feed.write(Change(ChangeKind.PURGED, round(now, 3), key) for key in keys)
    for _, file in feed_files(folder):
        old = b"".join(line for _, line in _lines(file))
        new = b"".join(
            line if left is entry else encode_change(left) + b"\n"
            for entry, line in _lines(file)
            if (left := left_of(entry, is_purged)) is not None
        )
        if new != old:
            try:
                replace_file(file, new)
            except OSError as refused:
                raise store_error(f"cannot write {file}", refused) from refused
    return len(keys)


def left_of(entry: Change, is_purged: Callable[[str], bool]) -> Change | None:
    """Return *entry* without the URLs that *is_purged* is true for, itself if it has none; None:
    nothing is left."""
    if entry.url and is_purged(entry.url):
        return None
    if entry.original and is_purged(entry.original):
        return replace(entry, original="", bits=None)
    return entry


def _lines(file: Path) -> Iterator[tuple[Change, bytes]]:
    try:
        content = file.read_bytes()
    except OSError as refused:
        raise DataDirError(f"{file} cannot be read: {refused.strerror}") from refused
    for line in content.splitlines(keepends=True):
        yield _entry(file, line), line

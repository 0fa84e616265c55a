"""The one change feed of a shared crawl, in a Redis stream.

Rule: a worker writes its entries to its own files first (crawler/data/changes.py), and no page
waits for Redis. From there they are sent, each once: one script adds entries and notes how far that
feed was sent. What all consumers have taken is removed; when the stream is full, entries wait in
the files.

Number N is the entry N-0 of the stream. After a restart of the server numbers go on a million
further, so that those which it may have lost are not given to other entries.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.data.changes import (
    ConsumerPosition,
    FeedEntry,
    FeedReader,
    by_position,
    check_name,
    check_position,
    decode_change,
    encode_change,
    feed_files,
    last_number,
    left_of,
    no_consumer,
    read_position,
)
from crawler.data.data_dir import CHANGES, locked
from crawler.data.files import replace_file
from crawler.model.program import PROGRAM
from crawler.model.types import (
    Change,
    ChangeKind,
    DataDirError,
    StoreUnavailable,
    change_key,
    store_error,
)
from crawler.shared import keys
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.connection import Argument
from crawler.shared.faults import OutOfMemory
from crawler.shared.keys import Scripts
from crawler.shared.worker.status import StatusLog
from crawler.shared.worker.worker_file import read_worker

logger = logging.getLogger(__name__)

MOST_ENTRIES: Final = 100_000
"""Of the stream: 35 MB of the server's memory where URLs have 60 bytes; 0.8 GB if all had 4,096.
More than a consumer takes in a batch, and enough for an hour of 30 pages a second."""
BATCH: Final = 500  # entries of one call: 2 ms of the server
LOOK_S: Final = 0.5  # between two calls that add nothing: they read what consumers have taken
_ID: Final = "feed.id"


def feed_of(folder: Path, worker: str) -> str:
    """Return the name of the feed in *folder*, of *worker*. It stays with both: a copy of the
    folder that works under another name is another feed, and so is another folder. Raises
    StoreUnavailable."""
    file = folder / _ID
    try:
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(file, secrets.token_hex(8).encode())
        return f"{worker}/{file.read_text()}"
    except OSError as refused:
        raise store_error(f"cannot write {file}", refused) from refused


async def state_of(nodes: Nodes, feed: str) -> FeedState:
    """Return what Redis has of *feed*. It works while the server has no memory left. Raises a
    Fault."""
    stream, sent, taken, _ = keys.changes(nodes.name)
    number = await nodes.checked_command(sent, "HGET", sent, feed)
    length = await nodes.checked_command(stream, "XLEN", stream)
    return _state([number or 0, length, *await nodes.checked_command(taken, "HVALS", taken)])


class FeedState(NamedTuple):
    """A worker's feed in Redis, and the feed of all."""

    sent: int  # number of the last entry of the worker's feed that was sent
    length: int  # entries of the stream
    consumers: list[ConsumerPosition]  # the one furthest behind first


def _state(reply: Sequence[Any]) -> FeedState:
    sent, length, *consumers = reply
    found = sorted(map(read_position, consumers), key=by_position)
    return FeedState(int(sent), length, found)


class ChangeSender:
    """Sends the entries of one worker's feed. Memory: one file of it.

    It makes calls and reads the replies; its user has the connection. Implements
    changes.Backlog."""

    def __init__(
        self, crawl: str, folder: Path, feed: str, state: FeedState, last: Callable[[], int]
    ) -> None:
        """*crawl*: its name. *feed*: as of feed_of. *state*: as it was last. *last* returns the
        last number in *folder*."""
        self.key = keys.changes(crawl)[0]
        self._crawl, self._folder, self._feed = crawl, folder, feed
        self._state, self._last = state, last
        self._reader: FeedReader | None = None
        self._entries: Iterator[FeedEntry] = iter(())
        self._batch: list[FeedEntry] = []
        self._ahead = 0  # by how much the stream was longer than what we had sent, at a look

    @property
    def unsent(self) -> int:
        """How many entries wait in the files."""
        return max(0, self._last() - self._state.sent)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be sent, or there is no room for it."""
        return not self.unsent or self._state.length >= MOST_ENTRIES

    def slowest(self) -> ConsumerPosition | None:
        self._ahead = self._state.length - self._state.sent
        return next(iter(self._state.consumers), None)

    def lag_of(self, slowest: ConsumerPosition) -> int:
        """Return what the stream had, which begins where *slowest* is, and what was not sent."""
        return max(0, self._last() + self._ahead)

    def call(self) -> tuple[Argument, ...]:
        """Return the command that sends the next entries; without any it only asks. It reads files.
        Raises DataDirError, StoreUnavailable."""
        if not self._batch:
            self._batch = self._next()
        entries = [part for each in self._batch for part in (each.number, _stored(each.line))]
        args = self._feed, self._state.sent, MOST_ENTRIES
        return _call("add_changes", self._crawl, *args, *entries)

    def _next(self) -> list[FeedEntry]:
        if self._reader is None:
            first, sent = feed_files(self._folder)[0][0], self._state.sent
            if sent + 1 < first:
                logger.warning(
                    "The change feed in %s begins at entry %d: those after %d were removed before"
                    " they were sent to the one of the crawl, which lacks them",
                    *(self._folder, first, sent),
                )
            self._reader = FeedReader(self._folder, max(sent, first - 1))
        found = list(islice(self._entries, BATCH))
        if not found:
            self._entries = self._reader.read()
            found = list(islice(self._entries, BATCH))
        return found

    def note(self, reply: list[Any]) -> bool:
        """Note the *reply* to the command. Returns whether more can be sent at once."""
        before, self._state = self._state, _state(reply)
        if self._state.length >= MOST_ENTRIES > before.length and not self._state.consumers:
            logger.warning(
                "The change feed of the crawl has %d entries, and no consumer that takes them"
                " (%s frontier changes --consumer NAME): further ones wait in %s",
                *(self._state.length, PROGRAM, self._folder),
            )
        if self._state.sent == before.sent:
            return False
        numbers = [each.number for each in self._batch]
        if self._state.sent in numbers:
            self._batch = self._batch[numbers.index(self._state.sent) + 1 :]
        else:  # the server has lost its last second: go on from there
            self._batch, self._entries, self._reader = [], iter(()), None
        return not self.is_idle

    def log_unsent(self) -> None:
        """Log what a worker that ends leaves in its files."""
        if self.unsent:
            logger.warning(
                "Not in the change feed of the crawl yet: %d entries in %s. They are sent, as"
                " consumers make room, by `%s frontier changes` with this CRAWLER_DATA_DIR, or"
                " when this worker starts again",
                *(self.unsent, self._folder, PROGRAM),
            )


async def send_changes(sender: ChangeSender, nodes: Nodes, status_log: StatusLog) -> None:
    """Send what a worker writes, until this is cancelled. Raises CrawlerError for what waiting
    cannot repair."""
    while True:
        try:
            call = await asyncio.to_thread(sender.call)
            if sender.note(await nodes.checked_command(sender.key, *call)):
                continue
        except OutOfMemory as full:
            status_log.on_server_full(full)
        except StoreUnavailable as fault:
            status_log.on_server_error(fault)
        await asyncio.sleep(LOOK_S)


class SharedChanges:
    """Implements changes.Changes for the feed of a crawl in Redis. All methods raise a Fault."""

    def __init__(self, link: BlockingNodes, crawl: str, where: str) -> None:
        """*crawl*: its name; *where*: it in words."""
        self.where = f"the change feed of {where}"
        self._link, self._crawl = link, crawl
        self._stream, self._sent, self._taken, _ = keys.changes(crawl)

    def last(self) -> int:
        return self.bounds()[1]

    def bounds(self) -> tuple[int, int]:
        """Return the numbers of the first entry that was not removed, and of the last one."""
        trimmed, last = self._ask("HMGET", self._sent, "trimmed", "last")
        return int(trimmed or 0) + 1, int(last or 0)

    def reader(self, after: int) -> StreamReader:
        if not self._ask("HLEN", self._sent):
            raise DataDirError(
                f"{self.where} is not there: it is written with CRAWLER_CHANGES=true"
            )
        check_position(self.where, after, *self.bounds())
        return StreamReader(self, after)

    def page(self, after: int) -> list[tuple[int, Change]]:
        """Return the first entries behind *after*, each with its number."""
        found = self._ask("XRANGE", self._stream, f"({after}-0", "+", "COUNT", BATCH)
        return [(int(name[:-2]), decode_change(fields[1])) for name, fields in found]

    def consumers(self) -> list[ConsumerPosition]:
        found = self._ask("HVALS", self._taken)
        return sorted(map(read_position, found), key=by_position)

    def consumer(self, name: str) -> ConsumerPosition | None:
        check_name(name)
        found = self._ask("HGET", self._taken, name)
        return None if found is None else read_position(found)

    def lag_of(self, consumer: ConsumerPosition) -> int:
        # The numbers that a restart leaves out are no entries.
        return min(int(self._ask("XLEN", self._stream)), max(0, self.last() - consumer.taken))

    def move(self, name: str, taken: int, now: float) -> None:
        check_name(name)
        position = msgspec.json.encode(ConsumerPosition(name, taken, now))
        trimmed = int(self._ask(*_call("move_consumer", self._crawl, name, taken, position)))
        if taken < trimmed:
            check_position(self.where, taken, trimmed + 1, self.last())

    def forget(self, name: str) -> None:
        if not self._ask(*_call("forget_consumer", self._crawl, name)):
            raise no_consumer(name, self.consumers())

    def send_left(self, homes: Iterable[Path], key_seed: int) -> None:
        """Send what workers that have ended have left in their data directories *homes*, as far as
        there is room. *key_seed*: of the crawl."""
        for home in homes:
            worker, folder = read_worker(home), home / CHANGES
            ours = worker is not None and (worker.crawl, worker.key_seed)
            if worker is None or ours != (self._crawl, key_seed) or not feed_files(folder):
                continue
            with ExitStack() as lock, suppress(OutOfMemory):
                try:
                    lock.enter_context(locked(home))
                except DataDirError:
                    continue  # its worker runs, or it is not ours to write
                feed = feed_of(folder, worker.name)
                sent, last = int(self._ask("HGET", self._sent, feed) or 0), last_number(folder)
                state = FeedState(sent, 0, [])
                sender = ChangeSender(self._crawl, folder, feed, state, partial(int, last))
                while sent < last and sender.note(self._ask(*sender.call())):
                    pass

    def purge(self, is_purged: Callable[[str], bool], now: float) -> int:
        """Remove the URLs that *is_purged* is true for, and return how many there were. An entry
        for each says that it is purged."""
        edits: list[Argument] = []
        urls: dict[str, None] = {}
        after = 0
        while page := self.page(after):
            after = page[-1][0]
            for number, entry in page:
                left = left_of(entry, is_purged)
                if left is None:
                    urls[change_key(entry.url)] = None
                if left is not entry:
                    edits += [number, b"" if left is None else encode_change(left)]
        said = [Change(ChangeKind.PURGED, round(now, 3), key) for key in urls]
        if edits:
            lines = map(encode_change, said)
            self._ask(*_call("purge_changes", self._crawl, len(edits) // 2, *edits, *lines))
        return len(urls)

    def _ask(self, *command: Argument) -> Any:
        return self._link.command(self._stream, *command)


class StreamReader:
    """Reads the entries after a number, also while workers send some. Memory: a page of them."""

    def __init__(self, feed: SharedChanges, after: int) -> None:
        self._feed = feed
        self._after = after

    def read(self) -> Iterator[FeedEntry]:
        """Yield as changes.EntryReader. Raises a Fault, or DataDirError if entries that were not
        read are removed, as all consumers have taken them."""
        while page := self._feed.page(self._after):
            first, last = self._feed.bounds()
            check_position(self._feed.where, self._after, first, last)
            for number, entry in page:
                self._after = number
                yield FeedEntry(number, encode_change(replace(entry, number=number)))


def _stored(line: bytes) -> bytes:
    """Return an entry as it is in the stream: without a number."""
    return encode_change(replace(decode_change(line), number=0))


_scripts: Final = Scripts()


def _call(script: str, crawl: str, *args: Argument) -> tuple[Argument, ...]:
    names = keys.changes(crawl)
    return ("EVAL", _scripts.text(script), len(names), *names, *args)

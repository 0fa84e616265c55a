"""Writes captures to WARC files: a synchronous writer, and an asyncio archive around it.

Rule: one thread appends. A record survives the death of the process once `append` has returned, and
a power cut after the next `sync`. No file is ever overwritten.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Final

from isal.igzip_lib import COMP_GZIP, compress

from crawler.archive.capture import (
    Capture,
    RecordPlace,
    StoredCapture,
)
from crawler.archive.record_bytes import (
    RANDOM_BYTES,
    capture_records,
    warcinfo,
)
from crawler.archive.warc_file import Companion, Companions, OpenFile
from crawler.model.types import ConfigError, StoreFull, StoreUnavailable, WaitsForRoom

SAFE_NAME: Final = re.compile(r"[\w.~-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcSettings:
    """Settings of the archive."""

    folder: Path
    prefix: str = "crawl"
    origin: str  # machine and process: "host-pid"
    max_file_bytes: int = 1_000_000_000  # the target size of WARC 1.1 annex B
    gzip_level: int = 1  # isal: 1 takes 90 us for a 30 KB page, 2 as long for 1 % less, 3 230 us
    info: tuple[tuple[str, str], ...] = ()  # of the warcinfo record: software, operator, robots...

    def __post_init__(self) -> None:
        for name in (self.prefix, self.origin):
            if not SAFE_NAME.fullmatch(name):
                raise ConfigError(f"a WARC file name cannot hold {name!r}: {SAFE_NAME.pattern} can")
        if self.max_file_bytes < 1 or self.gzip_level not in range(4):
            raise ConfigError(f"want max_file_bytes >= 1 and gzip_level 0 to 3, got {self}")


class WarcWriter:
    """Appends captures and begins a new file when one is full.

    After StoreUnavailable the files are as before the call, and later calls may succeed.
    """

    def __init__(self, settings: WarcSettings, companions: Sequence[Companion] = ()) -> None:
        self._settings = settings
        self._companions = companions
        # For the ids of records. Not the common one, because a user's spider may seed that;
        # os.urandom would release the GIL for each capture.
        self._random = Random()
        self._serial = 0
        self._file: OpenFile | None = None
        self._current_companions = Companions((), Path())
        self._appended_bytes = 0
        self._synced_bytes = 0

    def append(self, capture: Capture) -> RecordPlace:
        """Write the records of *capture*. Returns the place of the response or revisit record."""
        return self.append_all([capture])[0]

    def append_all(self, captures: Sequence[Capture]) -> list[RecordPlace]:
        """Write the records of *captures*, at least one: those of all, or of none."""
        # One step for all, then the next: so its code is in the caches (content/cohorts.py).
        made = [capture_records(capture, self._random_bytes()) for capture in captures]
        packed = [
            self._members(records, has_dom=capture.dom is not None)
            for capture, (records, _) in zip(captures, made, strict=True)
        ]
        data = b"".join(chain.from_iterable(packed))
        file = self._current(captures[0].fetched_at)
        offset = file.append(data)
        self._appended_bytes += len(data)
        written = []
        for capture, (_, answer), members in zip(captures, made, packed, strict=True):
            place = RecordPlace(file.final.name, offset, len(members[0]))
            offset += sum(map(len, members))
            dom = None
            if capture.dom is not None:
                length = len(members[-1])
                dom = RecordPlace(place.file, offset - length, length)
            written.append(StoredCapture(capture, place, answer, dom))
        self._current_companions.add_all(written)
        return [each.place for each in written]

    @property
    def unsynced_bytes(self) -> int:
        """The size of the records that were appended since the last sync began."""
        return self._appended_bytes - self._synced_bytes

    def sync(self) -> None:
        """Make all that was appended survive a power cut. One other thread may call it, and no
        append waits for it. Earlier files were synced when they were finished."""
        appended, file = self._appended_bytes, self._file
        if file is not None and self._synced_bytes < appended:
            file.sync()
        self._synced_bytes = appended

    def close(self) -> None:
        """Finish and sync the current file. The writer may be used again."""
        if self._file is not None:
            self._current_companions.finish()
            self._file.finish()
            self._file = None

    def _current(self, now: float) -> OpenFile:
        # A full file is finished here and not after the append that filled it, so that a failure
        # does not belong to a capture that was already written.
        if self._file is not None and self._file.size_bytes >= self._settings.max_file_bytes:
            self.close()
        if self._file is None:
            self._file = self._begin(now)
            self._current_companions = Companions(self._companions, self._file.final)
        return self._file

    def _begin(self, now: float) -> OpenFile:
        file = self._create(now)
        info = warcinfo(file.final.name, now, self._settings.info, os.urandom(16))
        try:
            file.append(self._packed(info))
        except StoreUnavailable:
            file.discard()
            raise
        return file

    def _create(self, now: float) -> OpenFile:
        settings = self._settings
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d%H%M%S")
        while True:
            name = f"{settings.prefix}-{stamp}-{self._serial:05}-{settings.origin}.warc.gz"
            self._serial += 1
            file = OpenFile.create(settings.folder / name)
            if file is not None:
                return file

    def _random_bytes(self) -> bytes:
        return self._random.getrandbits(8 * RANDOM_BYTES).to_bytes(RANDOM_BYTES)

    def _members(self, records: Sequence[bytes], *, has_dom: bool) -> list[bytes]:
        first, *beside = records
        dom = [beside.pop()] if has_dom else []
        return [self._packed(first), *map(_lightly_packed, beside), *map(self._packed, dom)]

    def _packed(self, record: bytes) -> bytes:
        # The gzip header has no time, so the same record gives the same bytes.
        return compress(record, self._settings.gzip_level, COMP_GZIP)


def _lightly_packed(record: bytes) -> bytes:
    """Compress a request or metadata record at level 0. Level 1 takes four times as long and saves
    a quarter, which is 3 % of a page (docs/decisions/0016)."""
    return compress(record, 0, COMP_GZIP)


WRITE_BYTES: Final = 1 << 20
"""The most bytes of bodies that are written by one call. A call for each capture costs 10 us more a
page, as other threads and this one then take turns with the GIL."""

FULL_RETRY_S: Final = 1.0  # the interval between tries while the disk is full
GATHER_S: Final = 0.01
"""While captures come faster than one by one, they are gathered for so long: the thread and the
loop take turns with the GIL less often. 20 ms cost as much CPU, a tenth of the pages per second,
and a third of them where 16 are fetched at once."""

QUEUED: Final = 256
"""The most captures that are queued. With 64, as many as are fetched at once by default, the pages
of a crawl at full speed had to wait here, one by one, which took 5 % of their CPU."""

Job = tuple[Capture, asyncio.Future[RecordPlace]]
Answer = tuple[asyncio.Future[RecordPlace], RecordPlace | Exception]


class Archive:
    """The archive for the event loop: one thread owns the writer, and compresses and writes.

    A switch between threads costs 50-100 us, so the thread takes all queued captures at once and
    returns their results in one call. At most *queued_captures* are queued; more wait in `append`,
    so a slow disk slows the fetching and memory stays bounded.
    """

    def __init__(
        self,
        writer: WarcWriter,
        waits_for_room: WaitsForRoom,
        rooms: Sequence[Callable[[], Awaitable[None]]] = (),
        queued_captures: int = QUEUED,
    ) -> None:
        """Each of *rooms* waits until there is room for one more capture."""
        self._writer = writer
        self._waits_for_room = waits_for_room
        self._rooms = rooms
        self._queued_captures = queued_captures
        self._places = asyncio.Semaphore(queued_captures)
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="warc", daemon=True)
        self._thread.start()

    async def append(self, capture: Capture) -> RecordPlace:
        """Return the place of the record, once it survives the death of this process; it survives
        a power cut only after the next `sync`. Raises StoreUnavailable if it is not in the archive.
        If the call is cancelled, the capture may be in the archive."""
        while True:
            try:
                return await self._append(capture)
            except StoreFull as full:
                if not self._waits_for_room(full):
                    raise
            await asyncio.sleep(FULL_RETRY_S)

    async def _append(self, capture: Capture) -> RecordPlace:
        if self._closed:
            raise StoreUnavailable("the archive is closed")
        for room in self._rooms:
            await room()
        await self._places.acquire()
        future: asyncio.Future[RecordPlace] = asyncio.get_running_loop().create_future()
        self._jobs.put((capture, future))
        return await future

    @property
    def unsynced_bytes(self) -> int:
        return self._writer.unsynced_bytes

    def sync(self) -> None:
        """Make all that was appended survive a power cut. It blocks, so call it in a thread. Raises
        StoreUnavailable."""
        while True:
            try:
                return self._writer.sync()
            except StoreFull as full:
                if not self._waits_for_room(full):
                    raise
            time.sleep(FULL_RETRY_S)

    async def close(self) -> None:
        """Write all accepted captures, finish the file and end the thread."""
        if self._closed:
            return
        self._closed = True
        # The semaphore is fair: once we hold every place, no call waits and no capture is queued.
        for _ in range(self._queued_captures):
            await self._places.acquire()
        self._jobs.put(None)
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.join()
        self._writer.close()

    def _work(self) -> None:
        is_busy = False
        while (job := self._jobs.get()) is not None:
            if is_busy:
                time.sleep(GATHER_S)
            batch = [job]
            # These are captures only: `close` puts its None when the queue is empty.
            while not self._jobs.empty() and (job := self._jobs.get()) is not None:
                batch.append(job)
            is_busy = len(batch) > 1
            captures = [capture for capture, _ in batch]
            found = chain.from_iterable(map(self._append_or_errors, _portions(captures)))
            answers = [(future, answer) for (_, future), answer in zip(batch, found, strict=True)]
            # A closed loop raises RuntimeError, and no task waits for the results.
            with suppress(RuntimeError):
                batch[0][1].get_loop().call_soon_threadsafe(self._deliver, answers)

    def _append_or_errors(self, captures: Sequence[Capture]) -> Sequence[RecordPlace | Exception]:
        try:
            return self._writer.append_all(captures)
        except Exception as error:  # the thread must outlive any single capture
            if len(captures) == 1:
                return [error]
        return [answer for each in captures for answer in self._append_or_errors([each])]

    def _deliver(self, answers: list[Answer]) -> None:
        for future, answer in answers:
            self._places.release()
            if future.done():  # its caller was cancelled
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _portions(captures: Sequence[Capture]) -> Iterator[list[Capture]]:
    """Yield *captures* in portions of at most WRITE_BYTES, or of one that is longer."""
    portion: list[Capture] = []
    size = 0
    for capture in captures:
        own = len(capture.body) + (len(capture.dom.body) if capture.dom is not None else 0)
        if portion and size + own > WRITE_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(capture)
        size += own
    yield portion

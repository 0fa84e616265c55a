"""Captures into WARC files: gzip a record, one file after the other.

Rule: synchronous; one thread appends. What `append` returned is in the operating system's hands:
it survives the death of the process at any moment. After the next `sync` it survives a power cut
too. No file is ever written over.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from isal.igzip_lib import COMP_GZIP, compress

from crawler.archive.capture import (
    Capture,
    RecordPlace,
    StoredCapture,
)
from crawler.archive.files import Companion, Companions, OpenFile
from crawler.archive.record_bytes import (
    RANDOM_BYTES,
    capture_records,
    warcinfo,
)
from crawler.model.types import ConfigError, StoreFull, StoreUnavailable, WaitsForRoom

SAFE_NAME: Final = re.compile(r"[\w.~-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class WarcRules:
    """Settings of the archive."""

    folder: Path
    prefix: str = "crawl"
    origin: str  # which process of which machine: "host-pid"
    max_file_bytes: int = 1_000_000_000  # the target size of WARC 1.1 annex B
    gzip_level: int = 1  # isal's 1 costs 90 us a 30 KB page, 2 the same for 1 % less, 3 230 us
    info: tuple[tuple[str, str], ...] = ()  # warcinfo: software, operator, robots...

    def __post_init__(self) -> None:
        for name in (self.prefix, self.origin):
            if not SAFE_NAME.fullmatch(name):
                raise ConfigError(f"a WARC file name cannot hold {name!r}: {SAFE_NAME.pattern} can")
        if self.max_file_bytes < 1 or self.gzip_level not in range(4):
            raise ConfigError(f"want max_file_bytes >= 1 and gzip_level 0 to 3, got {self}")


class WarcWriter:
    """Appends captures, each as a unit; begins a new file when one is full.

    StoreUnavailable leaves the files as they were before the call; later calls may succeed.
    """

    def __init__(self, rules: WarcRules, companions: Sequence[Companion] = ()) -> None:
        self._rules = rules
        self._companions = companions
        self._serial = 0
        self._file: OpenFile | None = None
        self._beside = Companions((), Path())  # those of the file
        self._appended_bytes = 0
        self._synced_bytes = 0  # of these

    def append(self, capture: Capture) -> RecordPlace:
        """Write its records; the place of the first, the response or revisit."""
        records, answer = capture_records(capture, os.urandom(RANDOM_BYTES))
        members = [self._packed(records[0]), *map(_lightly_packed, records[1:])]
        file = self._current(capture.fetched_at)
        data = b"".join(members)
        offset = file.append(data)
        self._appended_bytes += len(data)
        place = RecordPlace(file.final.name, offset, len(members[0]))
        self._beside.add(StoredCapture(capture, place, answer))
        return place

    @property
    def unsynced_bytes(self) -> int:
        """Of records that were appended since the last sync began."""
        return self._appended_bytes - self._synced_bytes

    def sync(self) -> None:
        """All that was appended before survives a power cut. One other thread may call it: nothing
        that appends waits for it. Files before the one at hand were synced when they were
        finished."""
        appended, file = self._appended_bytes, self._file
        if file is not None and self._synced_bytes < appended:
            file.sync()
        self._synced_bytes = appended

    def close(self) -> None:
        """Finish the file at hand, synced. The writer may be used again."""
        if self._file is not None:
            self._beside.finish()
            self._file.finish()
            self._file = None

    def _current(self, now: float) -> OpenFile:
        # Full files are finished here, not after the append that filled them: should that
        # fail, no capture is left half acknowledged.
        if self._file is not None and self._file.size_bytes >= self._rules.max_file_bytes:
            self.close()
        if self._file is None:
            self._file = self._begin(now)
            self._beside = Companions(self._companions, self._file.final)
        return self._file

    def _begin(self, now: float) -> OpenFile:
        file = self._create(now)
        info = warcinfo(file.final.name, now, self._rules.info, os.urandom(16))
        try:
            file.append(self._packed(info))
        except StoreUnavailable:
            file.discard()
            raise
        return file

    def _create(self, now: float) -> OpenFile:
        rules = self._rules
        stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d%H%M%S")
        while True:
            name = f"{rules.prefix}-{stamp}-{self._serial:05}-{rules.origin}.warc.gz"
            self._serial += 1
            file = OpenFile.create(rules.folder / name)
            if file is not None:
                return file

    def _packed(self, record: bytes) -> bytes:
        # Without a time in the gzip header: the same record gives the same bytes.
        return compress(record, self._rules.gzip_level, COMP_GZIP)


def _lightly_packed(record: bytes) -> bytes:
    """A request or metadata: level 1 takes four times as long for a quarter less, which is 3 %
    of a page (docs/decisions/0016)."""
    return compress(record, 0, COMP_GZIP)


# The archive as the event loop sees it: `await append`, and the capture is safe.
#
# Rule: the loop never compresses, digests or writes. One thread does, and owns the writer. A hop
# between threads costs 50-100 us, so it takes all that waits in one go and answers in one call.

FULL_AGAIN_S: Final = 1.0

Job = tuple[Capture, asyncio.Future[RecordPlace]]
Answer = tuple[asyncio.Future[RecordPlace], RecordPlace | Exception]


class Archive:
    """Holds up to *queued_captures* at once; more of them wait in `append`, so a disk that is
    slow slows the fetching, and memory stays as it is."""

    def __init__(
        self,
        writer: WarcWriter,
        waits_for_room: WaitsForRoom,
        rooms: Sequence[Callable[[], Awaitable[None]]] = (),
        queued_captures: int = 64,
    ) -> None:
        """*rooms*: each waits until there is room for one more."""
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
        """Where it lies, once it survives the death of this process; a power cut after the next
        `sync` only. StoreUnavailable: it is not in the archive. Cancelled: it may be."""
        while True:
            try:
                return await self._append(capture)
            except StoreFull as full:
                if not self._waits_for_room(full):
                    raise
            await asyncio.sleep(FULL_AGAIN_S)

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
        """Make all that was appended survive a power cut. For a thread; raises StoreUnavailable."""
        self._writer.sync()

    async def close(self) -> None:
        """Write all that was accepted, finish the file, end the thread."""
        if self._closed:
            return
        self._closed = True
        # The semaphore is fair: with every place ours, nobody is waiting and nothing is queued.
        for _ in range(self._queued_captures):
            await self._places.acquire()
        self._jobs.put(None)
        await asyncio.to_thread(self._finish)

    def _finish(self) -> None:
        self._thread.join()
        self._writer.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch = [job]
            # Nothing but captures here: the None of `close` comes when the queue is empty.
            while not self._jobs.empty() and (job := self._jobs.get()) is not None:
                batch.append(job)
            answers = [(future, self._written(capture)) for capture, future in batch]
            # A loop that is gone has nobody waiting on it.
            with suppress(RuntimeError):
                batch[0][1].get_loop().call_soon_threadsafe(self._deliver, answers)

    def _written(self, capture: Capture) -> RecordPlace | Exception:
        try:
            return self._writer.append(capture)
        except Exception as error:  # the thread must outlive any single capture
            return error

    def _deliver(self, answers: list[Answer]) -> None:
        for future, answer in answers:
            self._places.release()
            if future.done():  # its caller was cancelled
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

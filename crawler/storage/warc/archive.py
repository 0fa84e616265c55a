"""The archive as the event loop sees it: `await append`, and the capture is safe.

Rule: the loop never compresses, digests or writes. One thread does, and owns the writer. A hop
between threads costs 50-100 us, so it takes all that waits in one go and answers in one call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final

from crawler.core.errors import StoreFull, StoreUnavailable
from crawler.storage.warc.capture import Capture, RecordPlace
from crawler.storage.warc.writer import WarcWriter

FULL_AGAIN_S: Final = 1.0

Job = tuple[Capture, asyncio.Future[RecordPlace]]
Answer = tuple[asyncio.Future[RecordPlace], RecordPlace | Exception]


class Archive:
    """Holds up to *queued_captures* at once; more of them wait in `append`, so a disk that is
    slow slows the fetching, and memory stays as it is."""

    def __init__(
        self,
        writer: WarcWriter,
        rooms: Sequence[Callable[[], Awaitable[None]]] = (),
        queued_captures: int = 64,
    ) -> None:
        """*rooms*: each waits until there is room for one more."""
        self.waits_for_room: Callable[[StoreFull], bool] = lambda _: False
        """Is asked when the disk is full: whether a capture is to be tried again later."""
        self._writer = writer
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
                if not self.waits_for_room(full):
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

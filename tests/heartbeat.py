"""How long the event loop of a crawl stands still: told by an extension that wants its turn.

Counted is the processor time of the loop's thread: on a busy machine others have the processor too.
"""

from __future__ import annotations

import asyncio
import json
import time
from heapq import heapify, heappushpop
from pathlib import Path
from typing import Final, Self

from scrapy import signals
from scrapy.crawler import Crawler

BEAT_S: Final = 0.005
KEPT: Final = 50


class Heartbeat:
    """Writes the longest waits for its turn, each with the moment it ended, to HEARTBEAT_FILE."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        heart = cls(Path(crawler.settings["HEARTBEAT_FILE"]))
        crawler.signals.connect(heart.begin, signals.spider_opened)
        crawler.signals.connect(heart.end, signals.spider_closed)
        return heart

    def __init__(self, file: Path) -> None:
        self._file = file
        self._longest = [(0.0, 0.0)] * KEPT
        heapify(self._longest)
        self._beating: asyncio.Task[None] | None = None

    def begin(self) -> None:
        self._beating = asyncio.ensure_future(self._beat())

    def end(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        self._file.write_text(json.dumps(sorted(self._longest, reverse=True)))

    async def _beat(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(BEAT_S)
            late_s = time.thread_time() - before
            heappushpop(self._longest, (late_s, time.time()))

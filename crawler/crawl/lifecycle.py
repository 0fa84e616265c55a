"""How far a crawl is, how it ends, and the engine that it wakes.

Rule: built before any other part of the crawl, so that each part can be given its methods. Until
Scrapy's engine has its slot there is nothing to wake or to stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from scrapy import Request
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler

from crawler.model.types import CrawlerError, IncompatibleScrapy

logger = logging.getLogger(__name__)

# The private names of Scrapy's engine that we stand on, and nowhere else.
#
# Rule: each is tested for when the crawl opens, so that another Scrapy stops with a clear
# message before the first request (docs/decisions/0006-one-hook-lands-every-request.md).

_NEEDED = ("inprogress", "nextcall", "remove_request", "close", "closing")


def engine_of(crawler: Crawler) -> ExecutionEngine | None:
    """None: it is not built yet, or could not be."""
    try:
        return crawler.engine
    except RuntimeError:  # "not set yet"
        return None


class EngineHooks:
    """Be told when a request has gone all its way, and when the engine stops."""

    def __init__(self, engine: ExecutionEngine) -> None:
        """Raises IncompatibleScrapy. Call it when the engine has its slot: in the scheduler's
        `open`."""
        slot: Any = getattr(engine, "_slot", None)
        missing = [name for name in _NEEDED if not hasattr(slot, name)]
        if missing or not hasattr(getattr(slot, "nextcall", None), "schedule"):
            raise IncompatibleScrapy(
                "this Scrapy has no ExecutionEngine._slot with "
                f"{', '.join(missing) or 'nextcall.schedule'}; install scrapy>=2.19,<2.20"
            )
        self._slot = slot

    def on_finished(self, finished: Callable[[Request], None]) -> None:
        """Call *finished* once for each request handed out, after its callback and pipelines
        are through, whatever became of it: the only hook that fires in every case."""
        remove = self._slot.remove_request

        def remove_request(request: Request) -> None:
            finished(request)
            remove(request)

        self._slot.remove_request = remove_request

    def on_stopping(self, stopping: Callable[[], None]) -> None:
        """Call *stopping* once, when the engine begins to wait for what is under way."""
        close = self._slot.close

        async def close_slot() -> None:
            stopping()
            await close()

        self._slot.close = close_slot


class Lifecycle:
    """Of one crawl. Each part is given what it needs of it when it is built."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._closing: set[asyncio.Future[None]] = set()
        self._ends_at_stop: list[Callable[[], None]] = []
        self.failure: CrawlerError | None = None
        self.is_stopping = False  # what is under way comes to its end, and nothing is begun
        self.is_closed = False  # nothing may be added: the stores close

    def wake(self) -> None:
        """Let the engine ask for requests again, at the loop's next turn. Before it has its slot:
        do nothing, for then it asks by itself."""
        engine = engine_of(self._crawler)
        slot: Any = engine._slot if engine is not None else None
        if engine is not None and slot is not None and slot.closing is None and engine.running:
            # Never with a delay: CallLaterOnce then ignores the calls that follow.
            slot.nextcall.schedule()

    def fail(self, error: CrawlerError) -> None:
        """A store has failed us: stop in good order. What was acknowledged is safe."""
        if self.failure is None:
            self.failure = error
            logger.error("The crawl stops: %s", error)
            self.stop("store_failed")

    def note_failure(self, error: CrawlerError) -> None:
        """Keep why the crawl ends, where its caller logs it and ends the crawl itself."""
        self.failure = error

    def stop(self, reason: str) -> None:
        """End the crawl in good order. Before its engine is built and has a spider: do nothing."""
        engine = engine_of(self._crawler)
        if engine is not None and engine.spider is not None:
            # The loop holds no task: one that nobody holds may be lost.
            task = asyncio.ensure_future(engine.close_spider_async(reason=reason))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def end_at_stop(self, end: Callable[[], None]) -> None:
        """Call *end* too when the crawl stops. For what Scrapy builds later than the crawl."""
        self._ends_at_stop.append(end)

    def stopping(self) -> None:
        """The engine begins to wait for what is under way."""
        self.is_stopping = True
        for end in self._ends_at_stop:
            end()

    def closing(self) -> None:
        """The stores are about to close."""
        self.is_closed = True

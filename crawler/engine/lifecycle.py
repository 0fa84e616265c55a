"""The life cycle of a crawl: waking Scrapy's engine, stopping, and the failure that stopped it.

Rule: `Lifecycle` is built before all other parts of the crawl, so that they can be given its
methods. Before Scrapy's engine has its slot, waking and stopping do nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from pydispatch import dispatcher  # type: ignore[import-untyped]  # it ships no types
from scrapy import Request
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.signalmanager import SignalManager

from crawler.model.types import CrawlerError, IncompatibleScrapy

logger = logging.getLogger(__name__)

# Private names of Scrapy's engine that are used here. They are checked when the crawl opens, so
# that another Scrapy stops with a clear message before the first request
# (docs/decisions/0006-one-hook-ends-every-request.md).
_NEEDED = ("inprogress", "nextcall", "remove_request", "close", "closing")
_ANY_SENDER = id(dispatcher.Any)

UNTIL: Final = "until"
"""The finish reason of a crawl whose time is over."""
ROUNDS: Final = "rounds"
"""The finish reason of a crawl whose rounds are over."""
FINISHED: Final = frozenset({"finished", UNTIL, ROUNDS})
"""The finish reasons of a crawl that has ended as it was meant to."""


def engine_of(crawler: Crawler) -> ExecutionEngine | None:
    """Return the engine, or None if it is not built yet, or could not be."""
    try:
        return crawler.engine
    except RuntimeError:  # "not set yet"
        return None


def receivers_of(signals: SignalManager, signal: object) -> list[Any]:
    """Return what is connected to *signal*, most of it as weak references. To send it to nothing
    takes 5 us."""
    found: list[Any] = []
    for sender in (id(signals.sender), _ANY_SENDER):
        if sender in dispatcher.connections:
            connected = dispatcher.connections[sender]
            if signal in connected:
                found += connected[signal]
            if dispatcher.Any in connected:
                found += connected[dispatcher.Any]
    return found


class EngineHooks:
    """Callbacks for the end of each request, and for the stop of the engine."""

    def __init__(self, engine: ExecutionEngine) -> None:
        """Raises IncompatibleScrapy. To be built when the engine has its slot, in the scheduler's
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
        """Call *finished* once for each request taken from the scheduler, after its callback and
        pipelines, also on errors: no other hook is called in every case."""
        remove = self._slot.remove_request

        def remove_request(request: Request) -> None:
            finished(request)
            remove(request)

        self._slot.remove_request = remove_request

    def on_stopping(self, stopping: Callable[[], None]) -> None:
        """Call *stopping* once, when the engine begins to wait for requests under way."""
        close = self._slot.close

        async def close_slot() -> None:
            stopping()
            await close()

        self._slot.close = close_slot


class Lifecycle:
    """The life cycle of one crawl."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._closing: set[asyncio.Future[None]] = set()
        self._ends_at_stop: list[Callable[[], None]] = []
        self.failure: CrawlerError | None = None
        self.is_stopping = False  # pages under way are completed, and no fetch is begun
        self.is_closed = False  # the stores close, and nothing may be added

    def wake(self) -> None:
        """Let the engine ask for requests again, at the loop's next turn. Does nothing before it
        has its slot, for then it asks by itself."""
        engine = engine_of(self._crawler)
        slot: Any = engine._slot if engine is not None else None
        if engine is not None and slot is not None and slot.closing is None and engine.running:
            # Without a delay, because with one CallLaterOnce ignores the calls that follow.
            slot.nextcall.schedule()

    @property
    def has_start_requests(self) -> bool:
        """Whether the spider may have start requests that the engine has not taken."""
        engine = engine_of(self._crawler)
        return engine is not None and getattr(engine, "_start", None) is not None

    def fail(self, error: CrawlerError, reason: str = "store_failed") -> None:
        """Stop the crawl in good order after a store, or what else *reason* names, has failed.
        Acknowledged writes are safe."""
        if self.failure is None:
            self.failure = error
            logger.error("The crawl stops: %s", error)
            self.stop(reason)

    def note_failure(self, error: CrawlerError) -> None:
        """Keep the error of a crawl that its caller logs and ends."""
        self.failure = error

    def stop(self, reason: str) -> None:
        """End the crawl in good order. Does nothing before the engine has a spider."""
        engine = engine_of(self._crawler)
        if engine is not None and engine.spider is not None:
            # The loop keeps only weak references to tasks, so this one is kept here.
            task = asyncio.ensure_future(engine.close_spider_async(reason=reason))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def call_at_stop(self, end: Callable[[], None]) -> None:
        """Call *end* too when the crawl stops, for parts that Scrapy builds after the crawl."""
        self._ends_at_stop.append(end)

    def note_stopping(self) -> None:
        """Note that the engine begins to wait for requests under way."""
        self.is_stopping = True
        for end in self._ends_at_stop:
            end()

    def note_closing(self) -> None:
        """Note that the stores are about to close."""
        self.is_closed = True

"""Takes each request from the scheduler to the end of its pipelines in one task.

Scrapy's engine does the same with queues, Deferreds and tasks between each two of its parts: 4 % of
the CPU of a crawl (docs/decisions/0047). Its own managers still call middlewares,
callbacks, item pipelines and signals, in its order; only what passes a request on is replaced.

Rule: private names of Scrapy are checked first. Where one is missing, its engine works as ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, Protocol

from scrapy import Request, signals
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Slot as ScraperSlot
from scrapy.http import Response
from scrapy.utils.defer import aiter_errback, iter_errback
from scrapy.utils.log import logformatter_adapter
from twisted.python.failure import Failure

from crawler.crawl.in_flight import Fetch

logger = logging.getLogger(__name__)

_OF_ENGINE: Final = ("_start_scheduled_request", "_slot", "scraper", "logformatter", "signals")
_OF_SLOT: Final = ("add_request", "remove_request", "nextcall", "scheduler")
_OF_SCRAPER: Final = (
    *("_scrape", "_check_if_closing", "handle_spider_output_async", "handle_spider_error"),
    *("_process_spidermw_output_async", "concurrent_items"),
)
_OF_SCRAPER_SLOT: Final = (
    *("add_response_request", "next_response_request_deferred", "finish_response"),
)


class RequestTransfers(Protocol):
    """The downloader."""

    def begin(self, request: Request) -> Fetch | None:
        """Count *request* as begun, at once: the engine asks for more as long as it may."""

    async def transfer(self, request: Request, fetch: Fetch | None) -> Response | Request:
        """Return the answer to *request*, which has begun, after all middlewares."""


class RequestTasks:
    """The requests of one crawl that are under way."""

    def __init__(self, engine: ExecutionEngine, downloader: RequestTransfers) -> None:
        """To be built when *engine* has its slot."""
        self._engine: Any = engine
        self._downloader = downloader
        self._slot: Any = getattr(engine, "_slot", None)
        self._scraper: Any = getattr(engine, "scraper", None)
        self._running: set[asyncio.Task[None]] = set()  # the loop itself keeps none alive

    def install(self) -> None:
        """Take the engine's place between the scheduler and the end of the pipelines."""
        missing = [
            name
            for one, names in (
                (self._engine, _OF_ENGINE),
                (self._slot, _OF_SLOT),
                (self._scraper, _OF_SCRAPER),
                (ScraperSlot, _OF_SCRAPER_SLOT),
            )
            for name in names
            if not hasattr(one, name)
        ]
        if missing:
            logger.info("Pages take Scrapy's longer way: it has no %s any more", ", ".join(missing))
            return
        self._engine._start_scheduled_request = self._start
        # With more than one at once, Scrapy's workers are needed.
        if self._scraper.concurrent_items == 1:
            self._scraper.handle_spider_output_async = self._handle_output

    def _start(self) -> bool:
        """Begin the next request; False if there is none."""
        request = self._slot.scheduler.next_request()
        if request is None:
            self._engine.signals.send_catch_log(signals.scheduler_empty)
            return False
        self._slot.add_request(request)
        fetch = self._downloader.begin(request)
        task = asyncio.get_running_loop().create_task(self._take(request, fetch))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return True

    async def _take(self, request: Request, fetch: Fetch | None) -> None:
        try:
            result = await self._downloaded(request, fetch)
            if isinstance(result, Request):
                self._engine.crawl(result)
            else:
                await self._scrape(result, request)
        except Exception:
            self._log(logging.ERROR, "Error while handling downloader output")
        finally:
            try:
                self._slot.remove_request(request)
            except Exception:
                self._log(logging.ERROR, "Error while removing request from slot")
            self._slot.nextcall.schedule()

    async def _downloaded(
        self, request: Request, fetch: Fetch | None
    ) -> Response | Request | Failure:
        try:
            result = await self._downloader.transfer(request, fetch)
            if isinstance(result, Response):
                self._note_answer(result, request)
        except Exception:
            return Failure()  # type: ignore[no-untyped-call]  # Twisted has few types
        else:
            return result
        finally:
            self._slot.nextcall.schedule()

    def _note_answer(self, response: Response, request: Request) -> None:
        engine = self._engine
        if response.request is None:
            response.request = request
        line = engine.logformatter.crawled(response.request, response, engine.spider)
        if line is not None:
            _engine_log.log(*logformatter_adapter(line), extra={"spider": engine.spider})
        engine.signals.send_catch_log(
            signal=signals.response_received,
            response=response,
            request=response.request,
            spider=engine.spider,
        )

    async def _scrape(self, result: Response | Failure, request: Request) -> None:
        slot = self._scraper.slot
        slot.add_response_request(result, request)
        slot.next_response_request_deferred()  # the same: the queue is empty between two tasks
        try:
            await self._scraper._scrape(result, request)
        except Exception:
            self._log(logging.ERROR, f"Scraper bug processing {request}")
        finally:
            slot.finish_response(result, request)
            self._scraper._check_if_closing()

    async def _handle_output(
        self,
        result: Iterable[Any] | AsyncIterator[Any],
        request: Request,
        response: Response | Failure,
    ) -> None:
        """Process what a callback gives, one after the other. Between two the loop has a turn: a
        callback may give ten thousand, and the first may be urgent."""
        errback, scraper = self._scraper.handle_spider_error, self._scraper
        if isinstance(result, AsyncIterator):
            async for item in aiter_errback(result, errback, request, response):
                await scraper._process_spidermw_output_async(item, response)
                await asyncio.sleep(0)
        else:
            for item in iter_errback(result, errback, request, response):
                await scraper._process_spidermw_output_async(item, response)
                await asyncio.sleep(0)

    def _log(self, level: int, text: str) -> None:
        _engine_log.log(level, text, exc_info=True, extra={"spider": self._engine.spider})


_engine_log: Final = logging.getLogger("scrapy.core.engine")  # where users look for these lines

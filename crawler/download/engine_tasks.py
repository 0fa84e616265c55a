"""Take each request through Scrapy in one task: from the scheduler, through the downloader and its
middlewares, to its callback and the end of the pipelines.

Rule: the methods of middlewares and pipelines, callbacks and signals are called in Scrapy's order;
only what passes a request on is replaced. Private names of Scrapy are checked first: where one is
missing, its own way is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from types import CoroutineType, MethodType
from typing import Any, Final, cast

from pydispatch import dispatcher  # type: ignore[import-untyped]  # it ships no types
from scrapy import Request, signals
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Slot as ScraperSlot
from scrapy.exceptions import _InvalidOutput
from scrapy.extensions.corestats import CoreStats
from scrapy.http import Response
from scrapy.middleware import MiddlewareManager
from scrapy.signalmanager import SignalManager
from scrapy.utils.defer import _process_pending_io, ensure_awaitable, iter_errback
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.misc import warn_on_generator_with_return_value
from scrapy.utils.python import global_object_name
from scrapy.utils.spider import iterate_spider_output
from twisted.python.failure import Failure

from crawler.content.cohorts import Cohorts
from crawler.engine.lifecycle import receivers_of
from crawler.loop.life import Life

logger = logging.getLogger(__name__)
_engine_log: Final = logging.getLogger("scrapy.core.engine")  # where users look for these lines

_OF_ENGINE: Final = ("_start_scheduled_request", "_slot", "scraper", "logformatter", "signals")
_OF_SLOT: Final = ("add_request", "remove_request", "nextcall", "scheduler")
_OF_SCRAPER: Final = (
    *("_scrape", "_check_if_closing", "handle_spider_output_async", "handle_spider_error"),
    *("_process_spidermw_output_async", "call_spider_async", "concurrent_items", "spidermw"),
    "signals",
)
_OF_MANAGER: Final = ("_mw_methods_requiring_spider", "methods")  # of middlewares and pipelines
_OF_SCRAPER_SLOT: Final = (
    *("add_response_request", "next_response_request_deferred", "finish_response"),
)


class RequestTasks:
    """Takes each request from the scheduler to the end of its pipelines in one task.

    Scrapy's engine does the same with queues, Deferreds and tasks between each two of its parts:
    docs/decisions/0047 has what they cost.
    """

    def __init__(
        self,
        engine: ExecutionEngine,
        begin: Callable[[Request], Life | None],
        transfer: Callable[[Request, Life | None], Awaitable[Response | Request]],
        sender: SignalManager,
        cohorts: Cohorts,
    ) -> None:
        """To be built when *engine* has its slot. *begin* and *transfer* are the downloader's."""
        self._engine: Any = engine
        self._begin = begin
        self._transfer = transfer
        self._signals = sender
        self._cohorts = cohorts
        self._slot: Any = getattr(engine, "_slot", None)
        self._scraper: Any = getattr(engine, "scraper", None)
        self._pipelines: Any = getattr(self._scraper, "itemproc", None)
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
                (self._pipelines, (*_OF_MANAGER, "process_item_async")),
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
        if not wants_spider(self._pipelines):
            self._process_item_by = methods_of(self._pipelines, "process_item")
            self._pipelines.process_item_async = self._process_item
        self._scraper.signals = self._signals

    def _start(self) -> bool:
        """Begin the next request; False if there is none."""
        request = self._slot.scheduler.next_request()
        if request is None:
            self._signals.send_catch_log(signals.scheduler_empty)
            return False
        self._slot.add_request(request)
        life = self._begin(request)
        task = asyncio.get_running_loop().create_task(self._take(request, life))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return True

    async def _take(self, request: Request, life: Life | None) -> None:
        try:
            result = await self._downloaded(request, life)
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
        self, request: Request, life: Life | None
    ) -> Response | Request | Failure:
        try:
            result = await self._transfer(request, life)
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
        self._signals.send_catch_log(
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
            await self._cohorts.join()
            await self._call_back(result, request)
        except Exception:
            self._log(logging.ERROR, f"Scraper bug processing {request}")
        finally:
            slot.finish_response(result, request)
            self._scraper._check_if_closing()

    async def _call_back(self, result: Response | Failure, request: Request) -> None:
        """Call the callback and process what it gives. Without spider middlewares, that need not
        pass through Scrapy's three generators for them, which is 35 us a page."""
        scraper = self._scraper
        if isinstance(result, Failure) or any(map(any, scraper.spidermw.methods.values())):
            await scraper._scrape(result, request)
            return
        try:
            output = await self._called(result, request)
        except Exception:
            scraper.handle_spider_error(Failure(), request, result)  # type: ignore[no-untyped-call]  # as above
        else:
            await scraper.handle_spider_output_async(output, request, result)

    async def _called(
        self, response: Response, request: Request
    ) -> Iterable[Any] | AsyncIterator[Any]:
        """Do what `Scraper.call_spider_async` does, without the two turns of the loop that it
        waits: there was one just before."""
        asked = response.request or request  # a middleware may have replaced it
        callback = asked.callback or self._engine.spider._parse
        warn_on_generator_with_return_value(self._engine.spider, callback)
        output: Any = iterate_spider_output(callback(response, **asked.cb_kwargs))
        return output if isinstance(output, AsyncIterator) else await ensure_awaitable(output)

    async def _process_item(self, item: Any) -> Any:
        """Do what `ItemPipelineManager.process_item_async` does, in the same way."""
        for method in self._process_item_by:
            item = method(item)
            if type(item) is CoroutineType:
                item = await item
            else:
                item = await _awaited(item, method)
        return item

    async def _handle_output(
        self,
        result: Iterable[Any] | AsyncIterator[Any],
        request: Request,
        response: Response | Failure,
    ) -> None:
        """Process what a callback gives, one after the other. Between two the loop has a turn: a
        callback may give ten thousand, and the first may be urgent."""
        errback, scraper, is_later = self._scraper.handle_spider_error, self._scraper, False
        if isinstance(result, AsyncIterator):
            while True:
                try:
                    item = await anext(result)
                except StopAsyncIteration:
                    return
                except Exception:
                    errback(Failure(), request, response)  # type: ignore[no-untyped-call]  # as above
                    continue
                if is_later:
                    await asyncio.sleep(0)
                await scraper._process_spidermw_output_async(item, response)
                is_later = True
        else:
            for item in iter_errback(result, errback, request, response):
                if is_later:
                    await asyncio.sleep(0)
                await scraper._process_spidermw_output_async(item, response)
                is_later = True

    def _log(self, level: int, text: str) -> None:
        _engine_log.log(level, text, exc_info=True, extra={"spider": self._engine.spider})


class DownloaderMiddlewares:
    """Calls the downloader middlewares as `DownloaderMiddlewareManager.download_async` does, but
    without a name and a coroutine for each method whose result is not awaited: 50 us a page less.
    """

    def __init__(self, manager: DownloaderMiddlewareManager) -> None:
        self._manager = manager
        self._calls_them = all(
            hasattr(manager, name) for name in (*_OF_MANAGER, "_process_exception")
        ) and not wants_spider(manager)
        if self._calls_them:
            self._process_request_by = methods_of(manager, "process_request")
            self._process_response_by = methods_of(manager, "process_response")

    async def download(
        self, request: Request, fetch: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Response | Request:
        """Return the answer of *fetch* to *request* after all middlewares, or what they return in
        its place."""
        if not self._calls_them:
            return await self._manager.download_async(fetch, request)
        try:
            result = await self._process_request(request, fetch)
        except Exception as error:
            await _process_pending_io()
            result = await self._manager._process_exception(error, request)
        if isinstance(result, Request):
            return result
        for method in self._process_response_by:
            answer = method(request=request, response=result)
            if not isinstance(answer, Response):
                answer = await _awaited(answer, method)
            if isinstance(answer, Request):
                return answer
            if not isinstance(answer, Response):
                raise _InvalidOutput(
                    f"{global_object_name(method)} must return a Response or a Request, not"
                    f" {type(answer)}"
                )
            result = answer
        return result

    async def _process_request(
        self, request: Request, fetch: Callable[[Request], Coroutine[Any, Any, Response]]
    ) -> Response | Request:
        for method in self._process_request_by:
            result = method(request=request)
            if result is not None and not isinstance(result, Response | Request):
                result = await _awaited(result, method)
            if result is not None:
                if isinstance(result, Response | Request):
                    return result
                raise _InvalidOutput(
                    f"{global_object_name(method)} must return None, a Response or a Request, not"
                    f" {type(result)}"
                )
        return await fetch(request)


async def _awaited(result: Any, method: Callable[..., Any]) -> Any:
    """Return what a middleware or pipeline returned, after awaiting it, if that can be awaited."""
    if hasattr(type(result), "__await__"):
        return await ensure_awaitable(result, _warn=global_object_name(method))
    return result


def wants_spider(manager: MiddlewareManager) -> bool:
    """Return whether a method still takes an argument `spider`, which Scrapy's own loops pass."""
    return bool(manager._mw_methods_requiring_spider)


def methods_of(manager: MiddlewareManager, name: str) -> list[Callable[..., Any]]:
    """Return the methods called *name* in their order. Scrapy's own without the wrapper that looks
    for an argument `spider`: 1 us each."""
    return [_unwrapped(method) for method in cast("Iterable[Any]", manager.methods[name])]


def _unwrapped(method: Any) -> Callable[..., Any]:
    wrapper: Any = getattr(method, "__func__", None)
    code = getattr(wrapper, "__code__", None)
    if code is None or not code.co_qualname.startswith("_warn_spider_arg."):
        return cast("Callable[..., Any]", method)
    return MethodType(wrapper.__wrapped__, method.__self__)


class QuickSignals(SignalManager):
    """Sends signals as Scrapy does, but none that nothing is connected to (5 us each, three a page)
    and, where only Scrapy's own counter is connected, calls that: 8 us less, and 25 where asyncio
    would make a task for it."""

    def send_catch_log(self, signal: Any, **named: Any) -> list[tuple[Any, Any]]:
        receivers = receivers_of(self, signal)
        if not receivers or _is_counted(signal, receivers, named):
            return []
        return super().send_catch_log(signal, **named)

    async def send_catch_log_async(self, signal: Any, **named: Any) -> list[tuple[Any, Any]]:
        receivers = receivers_of(self, signal)
        if not receivers or _is_counted(signal, receivers, named):
            return []
        return await super().send_catch_log_async(signal, **named)


def _is_counted(signal: Any, receivers: Sequence[Any], named: dict[str, Any]) -> bool:
    """Return whether the signal was for Scrapy's counter alone, and has been counted."""
    arguments = _COUNTED.get(signal)
    if arguments is None or len(receivers) != 1:
        return False
    # The reference to a method is called for the method; it is None if its object is gone.
    method: Any = receivers[0]() if isinstance(receivers[0], dispatcher.WEAKREF_TYPES) else None
    if type(getattr(method, "__self__", None)) is not CoreStats:
        return False
    try:
        method(**{name: named[name] for name in arguments})
    except Exception:  # of a user's collector of stats
        logger.exception("Error caught on signal handler: %s", method)
    return True


_COUNTED: Final = {
    signals.response_received: ("spider",),
    signals.item_scraped: ("item", "spider"),
}
"""The arguments of the methods of `CoreStats` for these signals."""

"""Scrapy's downloader, which also releases the host of a lease when its fetch is over, and the task
that takes a request through it.

Rule: every request ends here, whatever its result; no signal of Scrapy covers all. No delay is kept
here, but in the frontier; `Slots` counts the fetches, and not those that only wait for their host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import lru_cache
from types import CoroutineType, MethodType
from typing import Any, Final, cast
from urllib.parse import urlsplit

from pydispatch import dispatcher  # type: ignore[import-untyped]  # it ships no types
from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader, Slot
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Slot as ScraperSlot
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, NotSupported, _InvalidOutput
from scrapy.extensions.corestats import CoreStats
from scrapy.http import Response
from scrapy.middleware import MiddlewareManager
from scrapy.signalmanager import SignalManager
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import (
    _process_pending_io,
    _schedule_coro,
    deferred_from_coro,
    ensure_awaitable,
    iter_errback,
)
from scrapy.utils.log import logformatter_adapter
from scrapy.utils.misc import warn_on_generator_with_return_value
from scrapy.utils.python import global_object_name
from scrapy.utils.spider import iterate_spider_output
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from crawler.assembly.build import crawl_of
from crawler.crawl.errors import LeaseEnded
from crawler.crawl.lifecycle import engine_of, receivers_of
from crawler.loop.life import Life
from crawler.model.page import AddressRefused
from crawler.model.types import PutBack, Standing, StoreUnavailable

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


class FrontierDownloader(Downloader):
    """Counts fetches in `Slots`, and releases the host of a lease when its fetch is over."""

    def __init__(self, crawler: Crawler) -> None:
        # Before the download handlers are built: Scrapy only logs what a handler raises, and the
        # crawl would go on without it.
        self.crawl = crawl_of(crawler)
        self._slots = self.crawl.loop.slots
        self._check_timer: CallLaterResult | None = None
        self._crawler = crawler
        self._handlers: dict[str, Any] = {}
        self._unloaded: set[str] = set()  # schemes whose handler did not load, as was logged
        try:
            super().__init__(crawler)
            self.signals = QuickSignals(self.signals.sender)
            for scheme in ("http", "https"):
                self._warn_if_unloaded(scheme)
            self._calls_middlewares = all(
                hasattr(self.middleware, name) for name in (*_OF_MANAGER, "_process_exception")
            ) and not _wants_spider(self.middleware)
            if self._calls_middlewares:
                self._process_request_by = _methods(self.middleware, "process_request")
                self._process_response_by = _methods(self.middleware, "process_response")
            crawler.signals.connect(self._open, signals.spider_opened)
        except BaseException:
            self.crawl.abandon()
            raise

    def _open(self) -> None:
        engine = engine_of(self._crawler)
        if engine is not None:
            self._tasks = RequestTasks(engine, self)
            self._tasks.install()

    def close(self) -> None:
        super().close()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if engine_of(self._crawler) is None:  # not built, so no scheduler closes the stores
            self.crawl.abandon()

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:
        lives = self.crawl.loop.lives
        life = lives.of(request)
        if life is not None and life.began_at:  # `download_async(response.request)`
            lives.send_aside(life)
            request = request.replace()
        return deferred_from_coro(self.transfer(request, self.begin(request)))

    def begin(self, request: Request) -> Life | None:
        """Count *request* as begun. It ends with its `transfer`."""
        life = self.crawl.loop.lives.of(request)
        if life is not None:
            self.crawl.loop.begin(life)
        # A request past the frontier (`engine.download_async`) counts as of a host that answers.
        standing = Standing.ANSWERS if life is None else life.lease.pace.standing
        self._slots.begin(request, standing)
        if self._check_timer is None:
            self._schedule_check()
        self.active.add(request)
        return life

    async def transfer(self, request: Request, life: Life | None) -> Response | Request:
        """Return the answer to *request*, which has begun, after all middlewares; or another
        request."""
        error: BaseException | None = None
        try:
            result = await self._through_middlewares(request)
            if life is not None or isinstance(result, Request):
                self._note_result(result, request, life)
            return result
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.active.remove(request)
            self._slots.end(request)
            self._release(error, life)

    def _note_result(self, result: Response | Request, request: Request, life: Life | None) -> None:
        """Note what middlewares returned in place of the answer to *request*: it continues what
        that was for."""
        lives = self.crawl.loop.lives
        if life is None:
            mark = lives.mark_of(request)
            if mark is not None:
                lives.mark(result, mark)
        elif isinstance(result, Request):
            lives.note_returned(life, result)
        elif result.request not in (None, request) and not lives.of(result.request):
            # The answer to a request of the middleware's own, whose exchange is not known.
            lives.hand_out(life, result.request)
            life.receive(None)

    async def _through_middlewares(self, request: Request) -> Response | Request:
        """Do what `DownloaderMiddlewareManager.download_async` does, but without a name and a
        coroutine for each method whose result is not awaited: 50 us a page less."""
        manager = self.middleware
        if not self._calls_middlewares:
            return await manager.download_async(self._enqueue_request, request)
        try:
            result = await self._process_request(request)
        except Exception as error:
            await _process_pending_io()
            result = await manager._process_exception(error, request)
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

    async def _process_request(self, request: Request) -> Response | Request:
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
        return await self._enqueue_request(request)

    def needs_backout(self) -> bool:
        return not self._slots.free_standings()

    def _schedule_check(self) -> None:
        self._check_timer = call_later(
            self._slots.rules.check_interval_s, self._check_slots, time.monotonic()
        )

    def _check_slots(self, last_s: float) -> None:
        self._check_timer = None
        self._slots.check(time.monotonic() - last_s)
        if len(self._slots):
            self._schedule_check()

    def get_slot_key(self, request: Request) -> str:
        if self.DOWNLOAD_SLOT in request.meta or self.ip_concurrency:
            return super().get_slot_key(request)
        parts = request.url.split("/", 3)  # "http:", "", "host:8000" and the path
        return _host_of(parts[2]) if len(parts) > 2 else ""  # parsing each URL takes 9 us

    async def _enqueue_request(self, request: Request) -> Response:
        name, slot = self._get_slot(request)
        if slot.queue or slot.latercall or slot.delay or slot.free_transfer_slots() < 1:
            return await super()._enqueue_request(request)
        # Nothing is to be waited for: it needs no queue, task and Deferred.
        request.meta[self.DOWNLOAD_SLOT] = name
        slot.active.add(request)
        try:
            self.signals.send_catch_log(
                signals.request_reached_downloader, request=request, spider=self._crawler.spider
            )
            if not self.crawl.begin_or_put_back(request):
                raise LeaseEnded
            response = await self._answer(slot, request)
            await self.crawl.fetching.cohorts.give_turn()  # which is not the time of its host
            return response
        finally:
            slot.active.remove(request)

    async def _answer(self, slot: Slot, request: Request) -> Response:
        """Do what `_download` does, but find the handler without parsing the URL: 8 us."""
        scheme = request.url.partition(":")[0]
        handler = self._handlers.get(scheme)
        if handler is None:
            try:
                answer = await self._download(slot, request)
            except NotSupported:
                self._warn_if_unloaded(scheme)
                raise
            self._handlers = _loaded(self.handlers)
            return answer
        about: Any = {"request": request, "spider": self._crawler.spider}
        slot.transferring.add(request)
        try:
            response: Response = await handler.download_request(request)
            life = self.crawl.loop.lives.of(request)
            if life is not None:
                life.end(self.crawl.leases.clock.now())
            self.signals.send_catch_log(signals.response_downloaded, response=response, **about)
        except Exception:
            await _process_pending_io()
            raise
        else:
            return response
        finally:
            slot.transferring.remove(request)
            self._process_queue(slot)
            self.signals.send_catch_log(signals.request_left_downloader, **about)

    def _warn_if_unloaded(self, scheme: str) -> None:
        """Log, once, that the handler of *scheme* did not load, if so, and what to do."""
        why = getattr(self.handlers, "_notconfigured", {}).get(scheme)
        if why is None or scheme in self._unloaded:
            return
        self._unloaded.add(scheme)
        settings = self._crawler.settings
        reactor = ""
        if not settings.getbool("TWISTED_REACTOR_ENABLED"):
            reactor = "; one that needs Twisted's reactor needs TWISTED_REACTOR_ENABLED = True"
        logger.error(
            "No %s URL can be fetched: the download handler %s did not load: %s. Correct"
            " DOWNLOAD_HANDLERS, or install what the handler needs%s",
            scheme,
            settings.getwithbase("DOWNLOAD_HANDLERS").get(scheme),
            why or "it is not configured",
            reactor,
        )

    def _process_queue(self, slot: Slot) -> None:
        # Scrapy counts a transfer only when its task begins, a turn of the loop after the start:
        # all fifty requests of a queue would start at once, beyond the concurrency.
        if slot.delay or slot.latercall:
            super()._process_queue(slot)
            return
        while slot.queue and slot.free_transfer_slots() > 0:
            request, answered = slot.queue.popleft()
            # Middlewares may have held it for long. (The handler checks again before it sends.)
            if not self.crawl.begin_or_put_back(request):
                answered.errback(LeaseEnded())
                continue
            slot.transferring.add(request)
            _schedule_coro(self._wait_for_download(slot, request, answered))

    # A URL that is put back is released at its completion; if it were released here, the next URL
    # of its host could overtake it.
    def _release(self, error: BaseException | None, life: Life | None) -> None:
        if life is not None and not isinstance(life.verdict, PutBack):
            _note_fault(error, life)
            try:
                self.crawl.loop.release(life)
            except StoreUnavailable as failed:
                self.crawl.lifecycle.fail(failed)


async def _awaited(result: Any, method: Callable[..., Any]) -> Any:
    """Return what a middleware or pipeline returned, after awaiting it, if that can be awaited."""
    if hasattr(type(result), "__await__"):
        return await ensure_awaitable(result, _warn=global_object_name(method))
    return result


def _wants_spider(manager: MiddlewareManager) -> bool:
    """Return whether a method still takes an argument `spider`, which Scrapy's own loops pass."""
    return bool(manager._mw_methods_requiring_spider)


def _methods(manager: MiddlewareManager, name: str) -> list[Callable[..., Any]]:
    """Return the methods called *name* in their order. Scrapy's own without the wrapper that looks
    for an argument `spider`: 1 us each."""
    return [_unwrapped(method) for method in cast("Iterable[Any]", manager.methods[name])]


def _unwrapped(method: Any) -> Callable[..., Any]:
    wrapper: Any = getattr(method, "__func__", None)
    code = getattr(wrapper, "__code__", None)
    if code is None or not code.co_qualname.startswith("_warn_spider_arg."):
        return cast("Callable[..., Any]", method)
    return MethodType(wrapper.__wrapped__, method.__self__)


def _loaded(handlers: DownloadHandlers) -> dict[str, Any]:
    """Return the handlers that were loaded, by scheme, without those that return a Deferred."""
    loaded: dict[str, Any] = getattr(handlers, "_handlers", {})
    old = getattr(handlers, "_old_style_handlers", loaded)
    return {scheme: handler for scheme, handler in loaded.items() if scheme not in old}


@lru_cache(maxsize=4096)
def _host_of(netloc: str) -> str:
    """Return the host name, as Scrapy names the slots of its downloader."""
    return urlsplit(f"//{netloc}").hostname or ""


def _note_fault(error: BaseException | None, life: Life) -> None:
    """Note an error of a middleware on *life*, which has no verdict then, so that its page is not
    finished as done. (An error of the fetch has an answer; an ignored request is no error.)"""
    if error is None or isinstance(error, IgnoreRequest | AddressRefused):
        return
    if life.verdict is not None:
        return
    if life.answer is None or not life.answer.error:
        where = "" if isinstance(error, NotSupported) else "error in a downloader middleware: "
        life.note_error(f"{where}{error!r}")


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


class RequestTasks:
    """Takes each request from the scheduler to the end of its pipelines in one task.

    Scrapy's engine does the same with queues, Deferreds and tasks between each two of its parts:
    docs/decisions/0047 has what they cost. The methods of middlewares and item pipelines, callbacks
    and signals are called in Scrapy's order; only what passes a request on is replaced. Private
    names of Scrapy are checked first. Where one is missing, its engine works as ever.
    """

    def __init__(self, engine: ExecutionEngine, downloader: FrontierDownloader) -> None:
        """To be built when *engine* has its slot."""
        self._engine: Any = engine
        self._downloader = downloader
        self._cohorts = downloader.crawl.fetching.cohorts
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
        if not _wants_spider(self._pipelines):
            self._process_item_by = _methods(self._pipelines, "process_item")
            self._pipelines.process_item_async = self._process_item
        self._scraper.signals = self._downloader.signals

    def _start(self) -> bool:
        """Begin the next request; False if there is none."""
        request = self._slot.scheduler.next_request()
        if request is None:
            self._downloader.signals.send_catch_log(signals.scheduler_empty)
            return False
        self._slot.add_request(request)
        life = self._downloader.begin(request)
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
            result = await self._downloader.transfer(request, life)
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
        self._downloader.signals.send_catch_log(
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

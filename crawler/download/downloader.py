"""Scrapy's downloader, which also releases the host of a lease when its fetch is over.

Rule: every request ends here, whatever its result; no signal of Scrapy covers all. No delay is kept
here, but in the frontier; `Slots` counts the fetches, and not those that only wait for their host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import lru_cache, partial
from typing import Any, Final, TypeGuard
from urllib.parse import urlsplit

from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader, Slot
from scrapy.core.downloader.handlers import DownloadHandlers
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, NotSupported
from scrapy.http import Response
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import (
    _process_pending_io,
    _schedule_coro,
    deferred_from_coro,
)
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.download.engine_tasks import DownloaderMiddlewares, QuickSignals, RequestTasks
from crawler.engine.errors import LeaseEnded, fault_words
from crawler.engine.lifecycle import engine_of
from crawler.loop.life import Life
from crawler.model.page import AddressRefused
from crawler.model.types import PutBack, Standing, StoreUnavailable

_MOST_RETURNED: Final = 5  # guess: requests that middlewares return in place of one

logger = logging.getLogger(__name__)


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
            self._middlewares = DownloaderMiddlewares(self.middleware)
            crawler.signals.connect(self._open, signals.spider_opened)
        except BaseException:
            self.crawl.abandon()
            raise

    def _open(self) -> None:
        engine = engine_of(self._crawler)
        if engine is not None:
            cohorts = self.crawl.fetching.cohorts
            RequestTasks(engine, self.begin, self.transfer, self.signals, cohorts).install()

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
        is_refused = life is not None and life.is_refused
        try:
            result = await self._middlewares.download(request, partial(self._enqueue, life))
            if isinstance(result, Request) and (is_refused or _is_undecided(life)):
                result = await self._resent(result, request, life)
            if life is not None or isinstance(result, Request):
                self._note_result(result, request, life)
            return result
        except BaseException as raised:
            error = _error_of_code(raised)
            returned = self._continued(error, request, life)
            if returned is not None:
                return returned
            if error is raised:
                raise
            raise error from raised
        finally:
            self.active.remove(request)
            self._slots.end(request)
            self._release(error, request, life)

    async def _resent(
        self, returned: Request, request: Request, life: Life | None
    ) -> Response | Request:
        """Return the answer to what a middleware *returned* in place of *request*, which is for a
        robots.txt or a probe, or refused and only for its errback. It is sent at once, as the
        engine does for `download_async`, but under the same lease, so to the same origin only."""
        is_refused = life is not None and life.is_refused
        result: Response | Request = returned
        for _ in range(_MOST_RETURNED):
            if not isinstance(result, Request) or not (is_refused or _is_undecided(life)):
                return result
            if life is None or result.url.split("/")[:3] != request.url.split("/")[:3]:
                break
            self.crawl.loop.lives.hand_out(life, result)
            result = await self._middlewares.download(result, partial(self._enqueue, life))
        raise RuntimeError(f"a downloader middleware returns {result} in place of {request}")

    def _continued(
        self, error: BaseException, request: Request, life: Life | None
    ) -> Request | None:
        """Return what continues a request for a robots.txt or a probe that *error* has ended past
        the middlewares that know what these are for; None for a page."""
        if not _is_undecided(life) or not isinstance(error, Exception):
            return None
        words = self.crawl.fetching.faults.keep(error, request.url)
        self._note_fault(life, words)
        returned = request.replace(dont_filter=True)
        self._note_result(returned, request, life)
        return returned

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
            life.receive()

    def needs_backout(self) -> bool:
        return not self._slots.free_standings()

    def _schedule_check(self) -> None:
        self._check_timer = call_later(
            self._slots.limits.check_interval_s, self._check_slots, time.monotonic()
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

    async def _enqueue(self, life: Life | None, request: Request) -> Response:
        if life is not None:
            life.note_fetched()
        name, slot = self._get_slot(request)
        is_bundled = life is not None and self.crawl.loop.bundles.has(life)
        is_free = is_bundled or slot.free_transfer_slots() > 0
        if slot.queue or slot.latercall or slot.delay or not is_free:
            return await self._enqueue_request(request)
        # It waits for nothing, so it needs no queue, task and Deferred.
        request.meta[self.DOWNLOAD_SLOT] = name
        slot.active.add(request)
        try:
            self.signals.send_catch_log(
                signals.request_reached_downloader, request=request, spider=self._crawler.spider
            )
            if not self._may_send(life):
                raise LeaseEnded
            response = await self._answer(slot, request, life)
            await self.crawl.fetching.cohorts.give_turn()  # which is not the time of its host
            return response
        finally:
            slot.active.remove(request)

    def _may_send(self, life: Life | None) -> bool:
        return life is None or self.crawl.loop.may_send(life)

    async def _answer(self, slot: Slot, request: Request, life: Life | None) -> Response:
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
            if not self._may_send(self.crawl.loop.lives.of(request)):
                answered.errback(LeaseEnded())
                continue
            slot.transferring.add(request)
            _schedule_coro(self._wait_for_download(slot, request, answered))

    # A URL that is put back is released at its completion; if it were released here, the next URL
    # of its host could overtake it.
    def _release(self, error: BaseException | None, request: Request, life: Life | None) -> None:
        if life is None or isinstance(life.verdict, PutBack):
            return
        if error is not None and not isinstance(error, Exception):
            life.put_back()  # this task is cancelled, as the process ends at once
            return
        if error is not None and _is_fault(error, life):
            if request.errback is not None:  # else Scrapy logs it
                self.crawl.fetching.faults.log(error, request.url)
            self._note_fault(life, fault_words(error))
        try:
            self.crawl.loop.release(life)
        except StoreUnavailable as failed:
            self.crawl.lifecycle.fail(failed)

    def _note_fault(self, life: Life, words: str) -> None:
        try:
            self.crawl.loop.note_fault(life, words)
        except StoreUnavailable as failed:
            self.crawl.lifecycle.fail(failed)


def _is_undecided(life: Life | None) -> TypeGuard[Life]:
    """Return whether *life* is for a robots.txt or a probe that is not answered yet."""
    return life is not None and not life.is_of_page and life.verdict is None


def _error_of_code(raised: BaseException) -> BaseException:
    """Return *raised*, or an error in its place if something that a middleware waits for was
    cancelled, and not this task: else the engine would go on as if there had been no request."""
    task = asyncio.current_task()
    if not isinstance(raised, asyncio.CancelledError) or task is None or task.cancelling():
        return raised
    try:
        raise RuntimeError(f"cancelled: {raised}") from raised
    except RuntimeError as error:  # with a traceback now
        return error


def _loaded(handlers: DownloadHandlers) -> dict[str, Any]:
    """Return the handlers that were loaded, by scheme, without those that return a Deferred."""
    loaded: dict[str, Any] = getattr(handlers, "_handlers", {})
    old = getattr(handlers, "_old_style_handlers", loaded)
    return {scheme: handler for scheme, handler in loaded.items() if scheme not in old}


@lru_cache(maxsize=4096)
def _host_of(netloc: str) -> str:
    """Return the host name, as Scrapy names the slots of its downloader."""
    return urlsplit(f"//{netloc}").hostname or ""


def _is_fault(error: BaseException, life: Life) -> bool:
    """Return whether *error* is one of a middleware, after which *life* has no verdict: its page is
    not to be finished as done. (An error of the fetch has an answer; an ignored request is no
    error.)"""
    if isinstance(error, IgnoreRequest | AddressRefused) or life.verdict is not None:
        return False
    return life.answer is None or not life.answer.error

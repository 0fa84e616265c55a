"""Scrapy's downloader, which also releases the host of a lease when its fetch is over.

Rule: every request ends here, whatever its result; no signal of Scrapy covers all. No delay is kept
here, but in the frontier; `Slots` counts the fetches, and not those that only wait for their host.
"""

from __future__ import annotations

import time

from scrapy import Request, Spider, signals
from scrapy.core.downloader import Downloader, Slot
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import _schedule_coro, deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.crawl.errors import LeaseEnded
from crawler.crawl.in_flight import LEASE, Fetch
from crawler.crawl.lifecycle import engine_of
from crawler.download.request_tasks import RequestTasks
from crawler.model.page import AddressRefused
from crawler.model.types import PutBack, Standing, StoreUnavailable


class FrontierDownloader(Downloader):
    """Counts fetches in `Slots`, and releases the host of a lease when its fetch is over."""

    def __init__(self, crawler: Crawler) -> None:
        # Before the download handlers are built: Scrapy only logs what a handler raises, and the
        # crawl would go on without it.
        self._crawl = crawl_of(crawler)
        self._slots = self._crawl.fetching.slots
        self._check_timer: CallLaterResult | None = None
        self._crawler = crawler
        try:
            super().__init__(crawler)
            crawler.signals.connect(self._open, signals.spider_opened)
        except BaseException:
            self._crawl.abandon()
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
            self._crawl.abandon()

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:
        return deferred_from_coro(self.transfer(request, self.begin(request)))

    def begin(self, request: Request) -> Fetch | None:
        """Count *request* as begun. It ends with its `transfer`."""
        fetch = self._crawl.leases.in_flight.fetch_of(request.meta.get(LEASE))
        if fetch is not None:
            fetch.began_at = self._crawl.leases.clock.now()
            self._crawl.stats.count_begun(fetch.lease.candidate.host, fetch.began_at)
        # A request past the frontier (`engine.download_async`) counts as of a host that answers.
        standing = Standing.ANSWERS if fetch is None else fetch.lease.pace.standing
        self._slots.begin(request, standing)
        if self._check_timer is None:
            self._schedule_check()
        self.active.add(request)
        return fetch

    async def transfer(self, request: Request, fetch: Fetch | None) -> Response | Request:
        """Return the answer to *request*, which has begun, after all middlewares; or another
        request."""
        error: BaseException | None = None
        try:
            return await self.middleware.download_async(self._enqueue_request, request)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.active.remove(request)
            self._slots.end(request)
            self._release(error, fetch)

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
            if not self._crawl.leases.begin_or_put_back(request.meta.get(LEASE)):
                raise LeaseEnded
            return await self._download(slot, request)
        finally:
            slot.active.remove(request)

    def _process_queue(self, slot: Slot) -> None:
        # Scrapy counts a transfer only when its task begins, a turn of the loop after the start:
        # all fifty requests of a queue would start at once, beyond the concurrency.
        if slot.delay or slot.latercall:
            super()._process_queue(slot)
            return
        while slot.queue and slot.free_transfer_slots() > 0:
            request, answered = slot.queue.popleft()
            # Middlewares may have held it for long. (The handler checks again before it sends.)
            if not self._crawl.leases.begin_or_put_back(request.meta.get(LEASE)):
                answered.errback(LeaseEnded())
                continue
            slot.transferring.add(request)
            _schedule_coro(self._wait_for_download(slot, request, answered))

    # A URL that is put back is released at its completion; if it were released here, the next URL
    # of its host could overtake it.
    def _release(self, error: BaseException | None, fetch: Fetch | None) -> None:
        if fetch is not None and not isinstance(fetch.verdict, PutBack):
            _note_fault(error, fetch)
            try:
                self._crawl.leases.completion.release(fetch)
            except StoreUnavailable as failed:
                self._crawl.lifecycle.fail(failed)


def _note_fault(error: BaseException | None, fetch: Fetch) -> None:
    """Note an error of a middleware on *fetch*, which has no verdict then, so that its page is not
    finished as done. (An error of the fetch has an answer; an ignored request is no error.)"""
    if error is None or isinstance(error, IgnoreRequest | AddressRefused):
        return
    if fetch.verdict is not None:
        return
    if fetch.answer is None or not fetch.answer.error:
        fetch.callback_error = f"error in a downloader middleware: {error!r}"

"""Scrapy's downloader, which also releases the host of a lease when its fetch is over.

Rule: every request ends here, whatever its result; no signal of Scrapy covers all. No delay is kept
here, but in the frontier; `Slots` counts the fetches, and not those that only wait for their host.
"""

from __future__ import annotations

import time

from scrapy import Request, Spider
from scrapy.core.downloader import Downloader, Slot
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import _schedule_coro
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from crawler.assembly.build import crawl_of
from crawler.crawl.errors import LeaseEnded
from crawler.crawl.in_flight import LEASE, Fetch
from crawler.crawl.lifecycle import engine_of
from crawler.model.page import AddressRefused
from crawler.model.types import PutBack, Standing, StoreUnavailable

Fetched = Response | Request | Failure


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
        except BaseException:
            self._crawl.abandon()
            raise

    def close(self) -> None:
        super().close()
        if self._check_timer is not None:
            self._check_timer.cancel()
        if engine_of(self._crawler) is None:  # not built, so no scheduler closes the stores
            self._crawl.abandon()

    def fetch(self, request: Request, spider: Spider | None = None) -> Deferred[Response | Request]:
        fetch = self._crawl.leases.in_flight.fetch_of(request.meta.get(LEASE))
        if fetch is not None:
            fetch.began_at = self._crawl.leases.clock.now()
            self._crawl.stats.count_begun(fetch.lease.candidate.host, fetch.began_at)
        # A request past the frontier (`engine.download_async`) counts as of a host that answers.
        standing = Standing.ANSWERS if fetch is None else fetch.lease.pace.standing
        self._slots.begin(request, standing)
        if self._check_timer is None:
            self._schedule_check()
        fetched: Deferred[Response | Request] = super().fetch(request)
        fetched.addBoth(self._end, request)
        fetched.addBoth(self._release, fetch)
        return fetched

    def needs_backout(self) -> bool:
        return not self._slots.free_standings()

    def _end(self, result: Fetched, request: Request) -> Fetched:
        self._slots.end(request)
        return result

    def _schedule_check(self) -> None:
        self._check_timer = call_later(
            self._slots.rules.check_interval_s, self._check_slots, time.monotonic()
        )

    def _check_slots(self, last_s: float) -> None:
        self._check_timer = None
        self._slots.check(time.monotonic() - last_s)
        if len(self._slots):
            self._schedule_check()

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
    def _release(self, result: Fetched, fetch: Fetch | None) -> Fetched:
        if fetch is not None and not isinstance(fetch.verdict, PutBack):
            _note_fault(result, fetch)
            try:
                self._crawl.leases.completion.release(fetch)
            except StoreUnavailable as error:
                self._crawl.lifecycle.fail(error)
        return result


def _note_fault(result: Fetched, fetch: Fetch) -> None:
    """Note an error of a middleware on *fetch*, which has no verdict then, so that its page is not
    finished as done. (An error of the fetch has an answer; an ignored request is no error.)"""
    if not isinstance(result, Failure):
        return
    if isinstance(result.value, IgnoreRequest | AddressRefused):
        return
    if fetch.verdict is not None:
        return
    if fetch.answer is None or not fetch.answer.error:
        fetch.callback_error = f"error in a downloader middleware: {result.value!r}"

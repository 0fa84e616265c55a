"""Scrapy's scheduler interface over the frontier: thin, and never waiting.

Rule: decisions are asked for, obeyed and counted. `next_request` is called at every event, so
it does no more than take a lease; when nothing is due, one timer wakes the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from msgspec.structs import replace
from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.crawl.in_flight import LEASE, Fetch
from crawler.crawl.lifecycle import EngineHooks
from crawler.crawl.precheck import Proceed
from crawler.data import retry_requests
from crawler.frontier import dead_letters
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    Moved,
    Purpose,
    StoreUnavailable,
    UnstorableRequest,
    Verdict,
)
from crawler.policy.priority import Hints
from crawler.policy.scope import Refusal
from crawler.scheduler.requests import pack, unpack

# A spider's own requests as candidates, and what a middleware put in place of one.
#
# Rule: whatever Scrapy hands to its scheduler becomes a candidate, a verdict or a refusal here.


def candidate_of(
    request: Request, spider: Spider, crawl: Crawl, *, is_returned: bool = False
) -> Candidate | Refusal:
    """*is_returned*: by a downloader middleware, perhaps as the redirect of a start request, whose
    meta it has. Raises UnstorableRequest."""
    is_start = bool(request.meta.get("is_start_request"))
    depth = int(request.meta.get("depth", 0))
    # A callback may have copied the meta of its answer, whose depth a link does not have.
    if is_start and not depth and not is_returned:
        crawl.admission.doors.open_also(request.url)
    hints = Hints(depth=depth, is_seed=is_start, priority=request.priority)
    return crawl.admission.doors.admission.candidate(
        request.url,
        depth=depth,
        level=crawl.admission.prioritizer.level(hints),
        request=pack(request, spider),
        key=_key(request, spider),
        filtered=not request.dont_filter,
    )


def verdict_on_returned(request: Request, flight: Fetch, spider: Spider, crawl: Crawl) -> Verdict:
    """A downloader middleware returned *request* in place of an answer: a retry or redirect of
    its own. It is this lease's Moved, and meets no seen test: its author wants it fetched."""
    found = candidate_of(request, spider, crawl, is_returned=True)
    if isinstance(found, Refusal):
        flight.reason = f"a middleware asked for {request.url}: {found.explain()}"
        return Done()
    origin = flight.lease.candidate
    return Moved(replace(found, depth=origin.depth, level=origin.level, filtered=False))


def _key(request: Request, spider: Spider) -> int | None:
    """None: its URL says all. Else the spider's own idea of what makes two requests the same."""
    if request.method == "GET" and not request.body:
        return None
    fingerprinter = spider.crawler.request_fingerprinter
    assert fingerprinter is not None
    return int.from_bytes(fingerprinter.fingerprint(request)[:8])


logger = logging.getLogger(__name__)

# Leases that need no fetch (robots says no) are settled at once, so many in one call.
_AT_ONCE: Final = 50
_RETRY_REQUESTS_S: Final = 1.0  # between two looks for them


class FrontierScheduler(BaseScheduler):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, crawl_of(crawler))

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawler = crawler
        self._crawl = crawl
        self._timer: CallLaterResult | None = None
        self._taking: asyncio.Future[None] | None = None
        # Requests that a rule refused, on their way to their errbacks. Bound: those that spiders
        # yield between two turns of the engine, which takes them before any lease.
        self._refused: deque[Request] = deque()
        self._concurrency = crawler.settings.getint("CONCURRENT_REQUESTS")

    def __repr__(self) -> str:
        return f"<FrontierScheduler {self._crawl.leases.frontier.counts()}>"

    def __len__(self) -> int:
        counts = self._crawl.leases.frontier.counts()
        return counts.waiting + counts.later

    def open(self, spider: Spider) -> None:
        assert self._crawler.engine is not None
        self._spider = spider
        hooks = EngineHooks(self._crawler.engine)
        hooks.on_finished(self._finished)
        hooks.on_stopping(self._stopping)
        self._crawl.begin()
        if isinstance(self._crawl.leases.frontier, TwoTierFrontier):
            taking = take_retry_requests(self._crawl, self._crawl.leases.frontier)
            self._taking = asyncio.ensure_future(taking)
        self._crawler.signals.connect(self._idle, signals.spider_idle)
        self._crawler.signals.connect(self._broken, signals.spider_error)
        self._crawler.signals.connect(self._broken, signals.item_error)

    def close(self, reason: str) -> Deferred[None]:
        self._stop_timer()
        if self._taking is not None:
            self._taking.cancel()
        return deferred_from_coro(self._crawl.close(is_finished=reason == "finished"))

    def has_pending_requests(self) -> bool:
        """Asked when nothing is fetched or in the pipelines."""
        frontier, commits = self._crawl.leases.frontier, self._crawl.storage.keeping.commits
        if commits is not None and frontier.wake_at() is None:
            commits.hurry()  # nothing can be fetched before these leases are finished
        return bool(self._refused) or (not self._full() and not frontier.is_over())

    def enqueue_request(self, request: Request) -> bool:
        """A spider's own request, or what a downloader middleware returned for a lease."""
        if self._crawl.lifecycle.is_closed:
            # Scrapy reads `start` until the end of its own closing. The next start yields it again.
            return False
        try:
            flight = self._crawl.leases.flights.of(request.meta.get(LEASE))
            if flight is not None:
                if _is_open(flight, request):
                    flight.verdict = verdict_on_returned(request, flight, self._spider, self._crawl)
                return True
            return self._add(request)
        except UnstorableRequest as error:
            logger.error("Refused: %s", error)
            self._crawl.tally.count("refused/unstorable")
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
        return False

    def next_request(self) -> Request | None:
        try:
            return self._next_request()
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
            return None

    def _next_request(self) -> Request | None:
        if self._refused:
            return self._refused.popleft()
        crawl = self._crawl
        for _ in range(_AT_ONCE):
            now = crawl.leases.clock.now()
            if not self._may_lease(now):
                break
            leases = crawl.leases.frontier.lease(now, 1, crawl.fetching.slots.free())
            if not leases:
                break
            request = self._cleared(crawl.leases.flights.open(leases[0]), now)
            if request is not None:
                return request
        self._wake_later()
        return None

    def _cleared(self, flight: Fetch, now: float) -> Request | None:
        """The request that *flight* may make; None: it has ended without one."""
        crawl = self._crawl
        cleared = crawl.admission.clearance.of(flight, now)
        if isinstance(cleared, Proceed):
            return self._request(flight, cleared.url)
        if cleared.hop is not None:
            crawl.leases.frontier.add([cleared.hop], now)
        if flight.purpose is Purpose.PAGE and isinstance(cleared.verdict, Done | Dead):
            request = self._with_errback(flight)
            if request is not None:
                crawl.leases.landing.refuse(flight, cleared.verdict, cleared.reason, cleared.rest_s)
                return request
        crawl.leases.landing.unfetched(flight, cleared.verdict, cleared.reason, cleared.rest_s)
        return None

    def _with_errback(self, flight: Fetch) -> Request | None:
        """The spider's own request that *flight* is for, if its errback is to be called: it goes
        through the engine as far as `RobotsMiddleware`, which raises IgnoreRequest."""
        if not flight.lease.candidate.request:
            return None
        with suppress(UnstorableRequest):
            request = unpack(flight.lease.candidate.request, self._spider)
            request.meta[LEASE] = flight.lease
            return request if request.errback is not None else None
        return None

    def _request(self, flight: Fetch, url: str) -> Request | None:
        packed = flight.lease.candidate.request
        if not packed or flight.purpose is not Purpose.PAGE:
            # verbatim_url: the fetch form is what seen test, robots and archive know it by.
            meta = {LEASE: flight.lease, "verbatim_url": True}
            return Request(url, meta=meta, dont_filter=True)
        try:
            request = unpack(packed, self._spider)
        except UnstorableRequest as error:
            self._crawl.leases.landing.unreadable(flight, str(error))
            return None
        request.meta[LEASE] = flight.lease
        return request

    def _add(self, request: Request) -> bool:
        found = candidate_of(request, self._spider, self._crawl)
        if isinstance(found, Refusal):
            self._crawl.tally.count(f"refused/{found.reason}")
            if request.errback is not None:
                # Scrapy's engine takes it from `next_request`, as one that was admitted.
                request.meta[LEASE] = found
                self._refused.append(request)
                return True
            return False
        added = self._crawl.leases.frontier.add([found], self._crawl.leases.clock.now())
        self._crawl.tally.refused_by_budget(added)
        return bool(added.new + added.undecided)

    def _may_lease(self, now: float) -> bool:
        return not self._is_barred() and not self._crawl.fetching.uplink.is_down(now)

    def _is_barred(self) -> bool:
        crawl = self._crawl
        return (
            crawl.lifecycle.failure is not None
            or not crawl.admission.doors.known
            or self._full()
            or self._is_crowded()
            or crawl.storage.keeping.is_congested()
        )

    def _is_crowded(self) -> bool:
        """As many pages are fetched and not yet archived as can be fetched at once. With those that
        are being fetched, at most twice CONCURRENT_REQUESTS are under way; a fetch that hangs takes
        its slot of the downloader and no other place."""
        return self._crawl.leases.flights.fetched >= self._concurrency

    def _full(self) -> bool:
        """As many pages as were asked for are fetched, or under way."""
        crawl = self._crawl
        most = crawl.settings.arguments.max_pages if crawl.settings.arguments else None
        if most is None:
            return False
        # Each flight is looked at only where all together could be enough.
        left = most - crawl.tally.pages
        return len(crawl.leases.flights) >= left and crawl.leases.flights.pages() >= left

    def _finished(self, request: Request) -> None:
        flight = self._crawl.leases.flights.of(request.meta.get(LEASE))
        if flight is None:
            return
        self._guarded(lambda: self._crawl.leases.landing.land(flight))

    def _stopping(self) -> None:
        self._stop_timer()
        self._crawl.stopping()

    def _idle(self) -> None:
        if self._crawl.lifecycle.failure:
            raise CloseSpider("store_failed")
        if self._full():
            raise CloseSpider("max_pages")

    def _broken(self, failure: object, response: object = None, **_: object) -> None:
        request = getattr(response, "request", None)
        flight = self._crawl.leases.flights.of(request.meta.get(LEASE)) if request else None
        if flight is not None:
            flight.broken = flight.broken or f"error in a callback or pipeline: {failure}"

    def _guarded(self, act: Callable[[], object]) -> None:
        try:
            act()
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    def _wake_later(self) -> None:
        self._stop_timer()
        if self._is_barred():
            return  # not for want of a due host: what ends it wakes the engine by itself
        now, uplink = self._crawl.leases.clock.now(), self._crawl.fetching.uplink
        if uplink.is_down(now):
            wake_at: float | None = uplink.probe_at
        else:
            # Hosts that wait for a slot: a fetch that ends, or waits, wakes the engine by itself.
            wake_at = self._crawl.leases.frontier.wake_at(self._crawl.fetching.slots.free())
        if wake_at is not None:
            self._timer = call_later(max(0.0, wake_at - now), self._crawl.lifecycle.wake)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def take_retry_requests(crawl: Crawl, frontier: TwoTierFrontier) -> None:
    """Put back what `scrapy frontier retry` asks for beside this crawl."""
    while True:
        for file in retry_requests.waiting(crawl.storage.data.path):
            asked = retry_requests.read(file)
            if asked is None:
                continue
            try:
                retry_requests.answer(file, await _put_back(asked.key, crawl, frontier))
            except OSError as refused:
                logger.error("A request of scrapy frontier retry is not answered: %s", refused)
            except StoreUnavailable as error:
                crawl.lifecycle.fail(error)
                return
            crawl.lifecycle.wake()
        await asyncio.sleep(_RETRY_REQUESTS_S)


async def _put_back(key: int | None, crawl: Crawl, frontier: TwoTierFrontier) -> int:
    def chosen(candidate: Candidate) -> bool:
        return key is None or candidate.key == key

    total = 0
    for put_back in dead_letters.put_back(
        crawl.storage.store, frontier, crawl.admission.robots, chosen, crawl.leases.clock.now
    ):
        total += put_back
        await asyncio.sleep(0)
    return total


def _is_open(flight: Fetch, request: Request) -> bool:
    """Nothing is decided yet; or its URL was given up, and a middleware knows another."""
    if isinstance(flight.verdict, Dead):
        return request.url != flight.lease.candidate.url
    return flight.verdict is None

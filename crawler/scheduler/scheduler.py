"""Scrapy's scheduler interface over the frontier.

Rule: no call waits, and no policy is decided here. Scrapy calls `next_request` at every event, so
it only takes a lease; when no URL is due, one timer wakes the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from time import time
from typing import Final, Self

from scrapy import Request, Spider, signals
from scrapy.core.scheduler import BaseScheduler
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider
from scrapy.utils.asyncio import CallLaterResult, call_later
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.data.chosen_lists import LocalLists
from crawler.engine.lifecycle import FINISHED, ROUNDS, UNTIL, EngineHooks
from crawler.engine.request_meta import LEASE, own_meta
from crawler.loop.life import Life
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    StoreUnavailable,
    UnstorableRequest,
)
from crawler.operate.steering import Steering
from crawler.policy.link_checks import MAX_BODY_BYTES, method_of
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.policy.rounds import ROUND_ENDS
from crawler.scheduler.requests import pack_request, unpack_request
from crawler.scheduler.silence import give_up_silent_hosts

# Each request that Scrapy gives to its scheduler becomes a candidate, a verdict or a refusal.


def candidate_of(
    request: Request, spider: Spider, crawl: Crawl, *, is_returned: bool = False
) -> Candidate | Refusal:
    """Make a candidate of *request*. *is_returned*: by a downloader middleware, perhaps as the
    redirect of a start request, whose meta it has. Raises UnstorableRequest."""
    is_copy = LEASE in request.meta  # of a request that is or was fetched
    if is_copy and not is_returned:
        request = request.replace(meta=own_meta(request.meta))
    # A callback may have copied the meta of a start request, perhaps with a depth.
    is_start = bool(request.meta.get("is_start_request")) and not is_copy
    depth = int(request.meta.get("depth", 0))
    if is_start and not depth and not is_returned:
        crawl.selection.allowed_origins.allow_start_url(request.url)
    hints = Hints(depth=depth, is_seed=is_start, priority=request.priority)
    return crawl.selection.allowed_origins.admission.candidate(
        request.url,
        depth=depth,
        hints=hints,
        request=pack_request(request, spider),
        key=_key(request, spider),
        needs_seen_test=not request.dont_filter,
    )


def _key(request: Request, spider: Spider) -> int | None:
    """Return the spider's fingerprint of *request*, or None if the URL alone identifies it."""
    if request.method == "GET" and not request.body:
        return None
    fingerprinter = spider.crawler.request_fingerprinter
    assert fingerprinter is not None
    return int.from_bytes(fingerprinter.fingerprint(request)[:8])


logger = logging.getLogger(__name__)

# At most so many leases that need no fetch (robots.txt forbids it) are finished in one call.
_REFUSALS_PER_CALL: Final = 50
_CLOCK_READ_S: Final = 10.0
_LONGEST_WAIT_S: Final = 3600.0  # a timer cannot wait for ever


class FrontierScheduler(BaseScheduler):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, crawl_of(crawler))

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawler = crawler
        self._crawl = crawl
        self._steering = Steering(crawler, crawl)
        self._timer: CallLaterResult | None = None
        self._tasks: list[asyncio.Future[None]] = []
        # Requests that a rule refused, for their errbacks. Bound: those that spiders yield between
        # two turns of the engine, which takes them before any lease.
        self._refused: deque[Request] = deque()
        self._rounds_noted = 0

    def __repr__(self) -> str:
        return f"<FrontierScheduler {self._crawl.leases.frontier.counts()}>"

    def __len__(self) -> int:
        return self._crawl.leases.frontier.counts().to_fetch

    def open(self, spider: Spider) -> None:
        assert self._crawler.engine is not None
        self._spider = spider
        hooks = EngineHooks(self._crawler.engine)
        hooks.on_finished(self._on_finished)
        hooks.on_stopping(self._on_stopping)
        self._crawl.begin()
        self._steering.begin()
        self._tasks.append(asyncio.ensure_future(self._crawl.stats.hand_over_regularly()))
        self._tasks.append(asyncio.ensure_future(give_up_silent_hosts(self._crawl)))
        ends_at = self._crawl.settings.ends_at
        if ends_at is not None:
            self._tasks.append(asyncio.ensure_future(self._end_at(ends_at)))
            at = datetime.fromtimestamp(ends_at, UTC).isoformat(" ", "seconds")
            logger.info("The crawl ends at %s at the latest (until)", at)
        elif self._crawl.selection.allowed_origins.visits_again:
            logger.info(
                "Pages are visited again: the crawl runs until it is stopped%s",
                "" if self._crawl.settings.arguments is None else ", or until a date (-a until=)",
            )
        self._crawler.signals.connect(self._on_idle, signals.spider_idle)
        self._crawler.signals.connect(self._note_error, signals.spider_error)
        self._crawler.signals.connect(self._note_error, signals.item_error)

    def close(self, reason: str) -> Deferred[None]:
        self._stop_timer()
        for task in self._tasks:
            task.cancel()
        return deferred_from_coro(self._close(reason))

    async def _close(self, reason: str) -> None:
        self._steering.stop_acting()
        try:
            is_over = reason == ROUNDS and self._crawl.leases.frontier.is_over()
            if reason == "finished" or is_over:
                await self._end_lists()
            await self._crawl.close(is_finished=reason in FINISHED)
        finally:
            await self._steering.close()

    async def _end_lists(self) -> None:
        """End the lists of `only=LIST`: the next run that has one begins it anew."""
        leases = self._crawl.leases
        if leases.shared is not None:
            await leases.shared.membership.end_lists()
        elif leases.embedded is not None:
            LocalLists(leases.embedded.frontier.records).end()

    def has_pending_requests(self) -> bool:
        """Scrapy calls this when no request is being fetched or in the pipelines."""
        frontier, commits = self._crawl.leases.frontier, self._crawl.storage.archive.group_commit
        if commits is not None and frontier.wake_at() is None:
            commits.sync_soon()  # nothing can be fetched before these leases are finished
        if self._refused or self._crawl.storage.room.is_full:
            return True
        if frontier.end_dry_round(self._crawl.leases.clock.now()):
            self._crawl.lifecycle.wake()
        self._note_rounds()
        return not (self._limit_reached() or frontier.is_over())

    def enqueue_request(self, request: Request) -> bool:
        """Add a request of the spider, or take what a middleware returned as a lease's verdict."""
        if self._crawl.lifecycle.is_closed:
            # Scrapy reads `start` until its closing ends. The next start yields the request again.
            return False
        try:
            life = self._crawl.loop.lives.take_returned(request)
            if life is None:
                return self._add(request)
            if life.may_move_to(request.url):
                self._move(life, request)
            return True
        except UnstorableRequest as error:
            logger.error("Refused: %s", error)
            self._crawl.stats.count("refused/unstorable")
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
        loop = self._crawl.loop
        for _ in range(_REFUSALS_PER_CALL):
            if self._is_barred():
                break
            life = loop.next()
            if life is None:
                break
            request = self._with_errback(life) if life.is_refused else self._request(life)
            if request is not None:
                self._hand_out(life, request)
                return request
            loop.complete(life)
        self._note_rounds()
        self._wake_later()
        return None

    def _note_rounds(self) -> None:
        """Log and count the rounds that are over."""
        progress = self._crawl.leases.frontier.round_progress()
        if progress is None:
            return
        for why in progress.ended[self._rounds_noted :]:
            if self._crawl.leases.shared is None:  # else each worker counts the rounds of all
                self._crawl.stats.count(f"rounds/{why}")
            last = progress.number - (not progress.is_over)
            number = last - len(progress.ended) + self._rounds_noted + 1
            logger.info("Round %d is over: %s", number, ROUND_ENDS[why])
            self._rounds_noted += 1

    def _with_errback(self, life: Life) -> Request | None:
        """Return the spider's request that *life*, which is refused, was for, if it has an errback
        to call: it passes the engine up to `RobotsMiddleware`, which raises IgnoreRequest."""
        is_final = life.is_of_page and isinstance(life.verdict, Done | Dead)
        if not is_final or not life.candidate.request:
            return None
        with suppress(UnstorableRequest):
            request = unpack_request(life.candidate.request, self._spider)
            return request if request.errback is not None else None
        return None

    def _hand_out(self, life: Life, request: Request) -> None:
        request.meta[LEASE] = life.lease
        self._crawl.loop.lives.hand_out(life, request)

    def _request(self, life: Life) -> Request | None:
        """Return the request for the plan of *life*, or None if it cannot be read."""
        plan, packed = life.plan, life.candidate.request
        if packed and life.is_of_page:
            try:
                request = unpack_request(packed, self._spider)
            except UnstorableRequest as error:
                self._crawl.loop.refuse(life, Dead(str(error)), str(error))
                return None
        else:
            # verbatim_url: seen test, robots and archive use the URL in its fetch form.
            method = method_of(life.candidate) if life.is_of_check else "GET"
            meta = {"verbatim_url": True}
            request = Request(plan.url, method=method, meta=meta, dont_filter=True)
            if life.candidate.is_sitemap and life.is_of_page:
                most = self._crawl.settings.config.fetch.sitemap_max_bytes
                request.meta["download_maxsize"] = most
        if plan.max_bytes is not None:
            request.meta["download_maxsize"] = plan.max_bytes
        if life.is_of_check:
            request.meta["download_maxsize"] = MAX_BODY_BYTES
        if plan.credentials is not None:
            sent = self._crawl.selection.credentials.headers(plan.credentials, plan.url)
            for name, value in sent.items():
                request.headers.setdefault(name, value)
        return request

    def _add(self, request: Request) -> bool:
        found = candidate_of(request, self._spider, self._crawl)
        if isinstance(found, Refusal):
            return self._refuse(request, found)
        added = self._crawl.leases.frontier.add([found], self._crawl.leases.clock.now())
        self._crawl.stats.count_over_budget(added)
        return bool(added.new + added.undecided)

    def _move(self, life: Life, request: Request) -> None:
        """Let *request*, which a downloader middleware returned as a retry or redirect of its own,
        decide the lease of *life*."""
        loop = self._crawl.loop
        try:
            found = candidate_of(request, self._spider, self._crawl, is_returned=True)
        except UnstorableRequest as error:
            loop.replaced_by_unstorable(life, str(error))
            raise
        loop.replaced(life, request.url, found)
        if isinstance(found, Refusal):
            self._refuse(request, found)

    def _refuse(self, request: Request, refusal: Refusal) -> bool:
        """Call the errback of *request* with *refusal*, or log it; return whether it has one."""
        self._crawl.stats.count(f"refused/{refusal.reason}")
        if request.errback is None:
            origins = self._crawl.selection.allowed_origins
            origins.log_refused(request.url, refusal.reason, refusal.advise())
            return False
        # Scrapy's engine takes it from `next_request`, like an admitted one. A copy, as the
        # request itself may be under way.
        refused = request.replace(meta=request.meta | {LEASE: refusal})
        self._crawl.loop.lives.mark(refused, refusal)
        self._refused.append(refused)
        return True

    def _is_barred(self) -> bool:
        crawl = self._crawl
        return (
            crawl.lifecycle.failure is not None
            or not crawl.selection.allowed_origins.is_complete
            or bool(self._limit_reached())
            or crawl.loop.is_crowded()
            or crawl.storage.archive.is_congested()
            or crawl.storage.room.is_full
            or crawl.storage.waits_for_consumer
        )

    def _limit_reached(self) -> str:
        """Return the argument by which nothing more is fetched: as many pages are fetched or under
        way, or as many bytes have come. Empty: none."""
        crawl = self._crawl
        arguments, counters = crawl.settings.arguments, crawl.stats.counters
        if arguments is None:
            return ""
        if arguments.has_rounds:
            progress = crawl.leases.frontier.round_progress()
            if progress is not None and progress.is_over:
                return ROUNDS
        if arguments.max_bytes is not None:
            received = counters["bytes"] + crawl.loop.lives.received_bytes
            if received >= arguments.max_bytes:
                return "max_bytes"
        if arguments.max_pages is None:
            return ""
        # pages() visits each fetch, so it is called only if all fetches together could be enough.
        left = arguments.max_pages - counters["pages"]
        is_enough = len(crawl.loop.lives) >= left and crawl.loop.lives.pages() >= left
        return "max_pages" if is_enough else ""

    def _on_finished(self, request: Request) -> None:
        loop = self._crawl.loop
        loop.lives.unmark(request)
        life = loop.lives.of(request)
        if life is None or loop.lives.came_aside(life):
            return
        try:
            loop.complete(life)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    def _on_stopping(self) -> None:
        self._stop_timer()
        self._crawl.begin_stop()

    async def _end_at(self, ends_at: float) -> None:
        while (left_s := ends_at - time()) > 0:
            # The machine may sleep, or its clock be set.
            await asyncio.sleep(min(left_s, _CLOCK_READ_S))
        logger.info("The crawl ends: it was to run until now")
        self._crawl.lifecycle.stop(UNTIL)

    def _on_idle(self) -> None:
        if self._crawl.lifecycle.failure:
            raise CloseSpider("store_failed")
        if limit := self._limit_reached():
            raise CloseSpider(limit)

    def _note_error(self, failure: object, response: object = None, **_: object) -> None:
        request = getattr(response, "request", None)
        life = self._crawl.loop.lives.of(request) if request is not None else None
        if life is not None:
            life.note_error(f"error in a callback or pipeline: {failure}")

    def _wake_later(self) -> None:
        self._stop_timer()
        if self._is_barred():
            return  # the end of the condition that bars leases wakes the engine
        # Hosts that wait for a slot need no timer: a fetch that ends or waits wakes the engine.
        wake_at = self._crawl.loop.wake_at()
        if wake_at is not None:
            wait_s = wake_at - self._crawl.leases.clock.now()
            wait_s = min(max(0.0, wait_s), _LONGEST_WAIT_S)
            self._timer = call_later(wait_s, self._crawl.lifecycle.wake)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

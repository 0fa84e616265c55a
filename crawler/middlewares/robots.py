"""Fetch and store robots.txt, and refuse requests that it forbids (RFC 9309).

Rule: leases are checked before their requests are made (loop.precheck). Requests past the frontier
(`engine.download_async`) wait here for their robots.txt, which is fetched once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from msgspec.structs import replace
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.engine.errors import CodeFaults, LeaseEnded, error_of, exception_of
from crawler.loop.life import Life
from crawler.middlewares.outcome import answer_of, challenge_of, failed_answer
from crawler.model.page import AddressRefused
from crawler.model.types import Answer, Purpose, StoreUnavailable
from crawler.model.url import authority_of, fetch_form
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import (
    ADDRESS_REFUSED,
    RobotsAllowed,
    RobotsAnswer,
    RobotsFetchResult,
    RobotsUnknown,
    RobotsVerdict,
    robots_answer,
)

logger = logging.getLogger(__name__)


class RobotsMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, crawl_of(crawler))

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawl = crawl
        self._fetcher = RobotsFetcher(crawler, crawl)

    async def process_request(self, request: Request) -> Request | None:
        mark = self._crawl.loop.lives.mark_of(request)
        if isinstance(mark, Refusal):
            raise IgnoreRequest(mark.advise())
        life = self._crawl.loop.lives.of(request)
        if life is not None and life.is_refused:
            # This calls the errback: see FrontierScheduler.
            raise self._crawl.fetching.faults.find(life.reason) or exception_of(life.reason)
        purpose = mark if life is None else life.plan.purpose
        url = fetch_form(request.url)  # None: not http, so no robots.txt applies
        if purpose is Purpose.ROBOTS or url is None:
            return None
        now = self._crawl.leases.clock.now()
        verdict = self._crawl.loop.precheck.robots.verdict(url, now)
        if isinstance(verdict, RobotsUnknown):
            if life is not None:
                # The robots.txt expired since the lease was checked; the next lease fetches it.
                life.put_back()
                return request.replace(dont_filter=True)
            verdict = await self._fetcher.verdict(url, verdict)
        if isinstance(verdict, RobotsAllowed):
            return None
        if life is None:
            # For a lease the outcome log has it.
            logger.info("Not fetched: %s: %s", request, verdict.words)
        raise IgnoreRequest(verdict.words)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        life = self._life_of_robots(request)
        if life is None:
            return response
        result = _fetch_result(request.url, response, self._crawl)
        answer = answer_of(response, life, self._crawl.loop)
        answer = replace(answer, error=result.error or answer.error, detail=result.detail)
        self._note(life, result, answer)
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        life = self._life_of_robots(request)
        if life is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, request, life, self._crawl.loop)
        faults = self._crawl.fetching.faults
        result = _failed(request.url, exception, faults, is_of_handler=life.is_fetched)
        self._note(life, result, answer)
        return request.replace(dont_filter=True)

    def _note(self, life: Life, result: RobotsFetchResult, answer: Answer | None) -> None:
        try:
            self._crawl.loop.robots_answered(life, result, answer)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    def _life_of_robots(self, request: Request) -> Life | None:
        """Return the life of a lease that is used for a robots.txt, or None."""
        life = self._crawl.loop.lives.of(request)
        return life if life is not None and life.plan.purpose is Purpose.ROBOTS else None


def _fetch_result(url: str, response: Response, crawl: Crawl) -> RobotsFetchResult:
    return RobotsFetchResult.of_answer(
        url,
        response.status,
        response.headers.get(b"Location"),
        response.body,
        response.flags,
        challenge_of(response, crawl),
    )


def _failed(
    url: str, exception: Exception, faults: CodeFaults, *, is_of_handler: bool
) -> RobotsFetchResult:
    """Return the result of the fetch of *url* that *exception* ended."""
    error = error_of(exception, is_of_handler=is_of_handler)
    if error:
        return RobotsFetchResult(url, error=error)
    if isinstance(exception, AddressRefused):
        return RobotsFetchResult(url, error=ADDRESS_REFUSED)
    return RobotsFetchResult(url, error=faults.keep(exception, url), is_fault=True)


class RobotsFetcher:
    """Fetches the robots.txt of requests past the frontier, once for all that wait for it."""

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawler = crawler
        self._crawl = crawl
        self._fetches: dict[str, asyncio.Task[RobotsFetchResult]] = {}  # by authority

    async def verdict(self, url: str, unknown: RobotsUnknown) -> RobotsVerdict:
        """Fetch robots.txt, with its redirects, and return the verdict on *url*; Unknown if there
        was no answer, as it is only fetched again for the next request."""
        authority = authority_of(url)
        if self._is_refused(unknown.url, authority) and authority_of(unknown.url) == authority:
            return RobotsAllowed()  # the handler refuses this address, with its own reason
        verdict: RobotsVerdict = unknown
        while isinstance(verdict, RobotsUnknown):
            fetch = await self._fetch_once(authority, verdict.url)
            now = self._crawl.leases.clock.now()
            verdict = self._crawl.loop.precheck.robots.verdict(url, now)
            if robots_answer(fetch) is not RobotsAnswer.MOVED:
                break
        return verdict

    def _is_refused(self, robots_url: str, authority: str) -> bool:
        origins = self._crawl.selection.allowed_origins
        return isinstance(origins.robots_candidate(robots_url, authority), Refusal)

    async def _fetch_once(self, authority: str, url: str) -> RobotsFetchResult:
        task = self._fetches.get(authority)
        if task is None:
            task = asyncio.ensure_future(self._fetch_and_store(authority, url))
            self._fetches[authority] = task
            task.add_done_callback(lambda _: self._fetches.pop(authority, None))
        # Shielded: if one waiting request is cancelled, the others still wait.
        return await asyncio.shield(task)

    async def _fetch_and_store(self, authority: str, url: str) -> RobotsFetchResult:
        fetch = await self._fetch(authority, url)
        try:
            self._crawl.loop.precheck.robots.store_result(
                authority, fetch, self._crawl.leases.clock.now()
            )
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
            raise
        return fetch

    async def _fetch(self, authority: str, url: str) -> RobotsFetchResult:
        if self._is_refused(url, authority):
            return RobotsFetchResult(url, error=ADDRESS_REFUSED)
        # Redirects are followed in `verdict`: below, a target would wait for this verdict.
        request = Request(url, meta={"verbatim_url": True, "dont_redirect": True})
        engine = self._crawler.engine
        assert engine is not None
        self._crawl.loop.lives.mark(request, Purpose.ROBOTS)
        try:
            return _fetch_result(url, await engine.download_async(request), self._crawl)
        except Exception as failed:  # any failure counts as no answer
            return _failed(url, failed, self._crawl.fetching.faults, is_of_handler=True)

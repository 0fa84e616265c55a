"""Fetch and store robots.txt, and refuse requests that it forbids (RFC 9309).

Rule: leases are checked before their requests are made (loop.precheck). Requests past the frontier
(`engine.download_async`) wait here for their robots.txt, which is fetched once for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Collection
from functools import partial
from typing import Final, Self

from msgspec.structs import replace
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest, NotSupported
from scrapy.http import Headers, Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.engine.errors import LeaseEnded, error_of, exception_of
from crawler.loop.life import Life
from crawler.middlewares.outcome import answer_of, failed_answer
from crawler.model.page import (
    AddressRefused,
    Flag,
    Truncated,
    incomplete_error,
)
from crawler.model.types import Answer, Purpose, StoreUnavailable
from crawler.model.url import authority_of, fetch_form
from crawler.page.challenge import challenge_of
from crawler.policy.redirects import location_text
from crawler.policy.robots_cache import (
    ADDRESS_REFUSED,
    UNREACHABLE,
    RobotsAllowed,
    RobotsAnswer,
    RobotsDisallowed,
    RobotsFetchResult,
    RobotsUnknown,
    RobotsUnreachable,
    RobotsVerdict,
    robots_answer,
)
from crawler.policy.scope import Refusal

_MAX_FAULTS: Final = 1000  # that are kept, for the errbacks of the URLs of their hosts

logger = logging.getLogger(__name__)


class RobotsMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, crawl_of(crawler))

    def __init__(self, crawler: Crawler, crawl: Crawl) -> None:
        self._crawler = crawler
        self._crawl = crawl
        self._fetches: dict[str, asyncio.Task[RobotsFetchResult]] = {}
        self._faults: dict[str, Exception] = {}  # of code on our side, by their words
        self._logged: set[tuple[str, int]] = set()  # the lines of code that raised a fault

    async def process_request(self, request: Request) -> Request | None:
        mark = self._crawl.loop.lives.mark_of(request)
        if isinstance(mark, Refusal):
            raise IgnoreRequest(mark.advise())
        life = self._crawl.loop.lives.of(request)
        if life is not None and life.is_refused:
            # This calls the errback: see FrontierScheduler.
            fault = self._faults.get(life.reason.removeprefix(UNREACHABLE))
            raise fault.with_traceback(None) if fault else exception_of(life.reason)
        purpose = mark if life is None else life.plan.purpose
        url = fetch_form(request.url)  # None: not http, so no robots.txt applies
        if purpose is Purpose.ROBOTS or url is None:
            return None
        return await self._check(request, url, life)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        loop, life = self._crawl.loop, self._life_of_robots(request)
        if life is None:
            return response
        result = _robots_fetch(request.url, response)
        answer = answer_of(response, life, loop)
        answer = replace(answer, error=result.error or answer.error, detail=result.detail)
        self._note(life, result, answer)
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        life = self._life_of_robots(request)
        if life is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, request, life, self._crawl.loop)
        self._note(life, self._failed(request, exception), answer)
        return request.replace(dont_filter=True)

    def _note(self, life: Life, result: RobotsFetchResult, answer: Answer | None) -> None:
        try:
            self._crawl.loop.robots_answered(life, result, answer)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    def _failed(self, request: Request, exception: Exception) -> RobotsFetchResult:
        """Return the result of the fetch that *exception* ended."""
        url, error = request.url, error_of(exception)
        if error:
            return RobotsFetchResult(url, error=error)
        if isinstance(exception, AddressRefused):
            return RobotsFetchResult(url, error=ADDRESS_REFUSED)
        words = f"{type(exception).__name__}: {exception}"
        if len(self._faults) >= _MAX_FAULTS:
            del self._faults[next(iter(self._faults))]
        self._faults[words] = exception
        self._log_fault(url, exception)
        return RobotsFetchResult(url, error=words, is_fault=True)

    def _log_fault(self, url: str, exception: Exception) -> None:
        """Log *exception* with its traceback, once for the line of code that raised it."""
        if isinstance(exception, IgnoreRequest | NotSupported):
            return  # a middleware's decision; the downloader says which handler did not load
        frames = traceback.extract_tb(exception.__traceback__)
        line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        if line not in self._logged:
            self._logged.add(line)
            logger.error(
                "%s cannot be fetched because of an error in a downloader middleware or handler,"
                " and so nothing of its host",
                url,
                exc_info=exception,
            )

    def _life_of_robots(self, request: Request) -> Life | None:
        """Return the life of a lease that is used for a robots.txt, or None."""
        life = self._crawl.loop.lives.of(request)
        return life if life is not None and life.plan.purpose is Purpose.ROBOTS else None

    async def _check(self, request: Request, url: str, life: Life | None) -> Request | None:
        """Return None if the page may be fetched, or a request that puts its lease back.
        Raises IgnoreRequest if robots.txt forbids it or is unreachable."""
        verdict = self._verdict(url)
        if isinstance(verdict, RobotsUnknown):
            if life is not None:
                # The robots.txt expired since the lease was checked; the next lease fetches it.
                life.put_back()
                return request.replace(dont_filter=True)
            authority = authority_of(url)
            is_refused = isinstance(
                self._crawl.selection.allowed_origins.robots_candidate(verdict.url, authority),
                Refusal,
            )
            if is_refused and authority_of(verdict.url) == authority:
                return None  # the handler refuses this address, with its own reason
            verdict = await self._fetch_verdict(url, verdict)
        if isinstance(verdict, RobotsAllowed):
            return None
        reason = _reason(verdict)
        if life is None:
            # For a lease the outcome log has it.
            logger.info("Not fetched: %s: %s", request, reason)
        raise IgnoreRequest(reason)

    def _verdict(self, url: str) -> RobotsVerdict:
        return self._crawl.loop.precheck.robots.verdict(url, self._crawl.leases.clock.now())

    async def _fetch_verdict(self, url: str, unknown: RobotsUnknown) -> RobotsVerdict:
        """Fetch robots.txt, with its redirects, and return the verdict; Unknown if there was no
        answer, as it is only fetched again for the next request."""
        verdict: RobotsVerdict = unknown
        while isinstance(verdict, RobotsUnknown):
            fetch = await self._fetch_once(authority_of(url), verdict.url)
            verdict = self._verdict(url)
            if robots_answer(fetch) is not RobotsAnswer.MOVED:
                break
        return verdict

    async def _fetch_once(self, authority: str, url: str) -> RobotsFetchResult:
        task = self._fetches.get(authority)
        if task is None:
            task = asyncio.ensure_future(self._fetch_and_store(authority, url))
            self._fetches[authority] = task
            task.add_done_callback(lambda _: self._fetches.pop(authority, None))
        # Shielded: if one waiting request is cancelled, the others still wait.
        return await asyncio.shield(task)

    async def _fetch_and_store(self, authority: str, url: str) -> RobotsFetchResult:
        fetch = await self._send(authority, url)
        try:
            self._crawl.loop.precheck.robots.store_result(
                authority, fetch, self._crawl.leases.clock.now()
            )
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
            raise
        return fetch

    async def _send(self, authority: str, url: str) -> RobotsFetchResult:
        if isinstance(
            self._crawl.selection.allowed_origins.robots_candidate(url, authority), Refusal
        ):
            return RobotsFetchResult(url, error=ADDRESS_REFUSED)
        # Redirects are followed in `_fetch_verdict`: below, a target would wait for this verdict.
        request = Request(url, meta={"verbatim_url": True, "dont_redirect": True})
        engine = self._crawler.engine
        assert engine is not None
        self._crawl.loop.lives.mark(request, Purpose.ROBOTS)
        try:
            return _robots_fetch(url, await engine.download_async(request))
        except Exception as failed:  # any failure counts as no answer
            return self._failed(request, failed)


def _reason(verdict: RobotsDisallowed | RobotsUnreachable | RobotsUnknown) -> str:
    match verdict:
        case RobotsDisallowed(rule):
            return f"robots.txt: {rule}"
        case RobotsUnreachable(_, reason):
            return f"{UNREACHABLE}{reason}"
        case RobotsUnknown(url):
            return f"{UNREACHABLE}no answer from {url}"


def _incomplete(flags: Collection[str]) -> str:
    """Return why the file is incomplete, as an error of `Answer`. Empty if it is complete, or cut
    at our own limit, which is above the size that RFC 9309 requires to be read."""
    if Truncated.TIME.flag in flags:
        return "timeout"
    if Flag.DECODED_BROKEN in flags or Flag.UNDECODED in flags:
        return "protocol"
    return incomplete_error(flags)


def _joined(headers: Headers, name: str) -> str:
    return ", ".join(value.decode("latin-1") for value in headers.getlist(name))


def _robots_fetch(url: str, response: Response) -> RobotsFetchResult:
    if response.status < 300 and (error := _incomplete(response.flags)):
        # The missing part may hold a rule that forbids, so it counts as no answer.
        return RobotsFetchResult(url, error=error)
    challenge = challenge_of(response.status, partial(_joined, response.headers), response.body)
    if challenge:
        # The opposite of leave to fetch everything, which RFC 9309 would give for a 403.
        return RobotsFetchResult(url, response.status, error="challenge", detail=challenge)
    location = response.headers.get(b"Location")
    leads_to = fetch_form(location_text(location), url) if location else None
    return RobotsFetchResult(url, response.status, target=leads_to, body=response.body)

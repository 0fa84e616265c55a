"""Fetch and store robots.txt, and refuse requests that it forbids (RFC 9309).

Rule: leases are checked before their requests are made (crawl.precheck). Requests past the frontier
(`engine.download_async`) wait here for their robots.txt, which is fetched once for all of them.
"""

from __future__ import annotations

import asyncio
import dataclasses
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
from crawler.crawl.errors import LeaseEnded, error_of, exception_of
from crawler.crawl.in_flight import Fetch
from crawler.middlewares.outcome import (
    answer_of,
    failed_answer,
    judge_answer,
)
from crawler.model.page import (
    AddressRefused,
    Flag,
    Truncated,
    incomplete_error,
)
from crawler.model.types import (
    Candidate,
    Done,
    Purpose,
    PutBack,
    StoreUnavailable,
)
from crawler.model.url import authority_of, fetch_form
from crawler.page.challenge import challenge_of
from crawler.policy.priority import Hints
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

MAX_SITEMAPS: Final = 100
"""Sitemaps taken from a robots.txt (guess: big sites name a few dozen; an index counts as one)."""


def sitemaps_of(authority: str, robots_url: str, crawl: Crawl) -> list[Candidate]:
    """Return the sitemaps that robots.txt names for *authority* and that the crawl may fetch."""
    if (
        not crawl.settings.config.links.follow_sitemaps
        or not crawl.selection.allowed_origins.is_complete
    ):
        return []
    if crawl.settings.arguments is None:
        return []  # a user's spider requests them itself, with its own callback
    level = crawl.selection.prioritizer.level(Hints(is_sitemap=True))
    found = []
    for written in crawl.selection.robots.rules(authority).sitemaps[:MAX_SITEMAPS]:
        candidate = crawl.selection.allowed_origins.admission.candidate(
            written, robots_url, level=level, is_sitemap=True
        )
        if isinstance(candidate, Refusal):
            crawl.stats.count(f"refused/{candidate.reason}")
        else:
            found.append(candidate)
    return found


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
        mark = self._crawl.leases.in_flight.mark_of(request)
        if isinstance(mark, Refusal):
            raise IgnoreRequest(mark.advise())
        fetch = self._crawl.leases.in_flight.fetch_of(request)
        if fetch is not None and fetch.is_refused:
            # This calls the errback: see FrontierScheduler.
            fault = self._faults.get(fetch.reason.removeprefix(UNREACHABLE))
            raise fault.with_traceback(None) if fault else exception_of(fetch.reason)
        asks_for_robots = mark is Purpose.ROBOTS or self._robots_lease_fetch(request)
        url = fetch_form(request.url)  # None: not http, so no robots.txt applies
        return None if asks_for_robots or url is None else await self._check(request, url)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        fetch = self._robots_lease_fetch(request)
        if fetch is None:
            return response
        fetch.exchange = None  # it is not archived
        result = _robots_fetch(request.url, response)
        answer = answer_of(response, fetch, self._crawl)
        answer = replace(answer, error=result.error or answer.error, detail=result.detail)
        fetch.answer = judge_answer(answer, fetch, self._crawl)
        # Its crawl-delay counts for the rest that follows, so it is learned first. A host in
        # trouble has none, and the length of its rest is how long its verdict is valid.
        if robots_answer(result) is RobotsAnswer.TROUBLE:
            rest = self._crawl.leases.completion.release(fetch)
            self._store_result(fetch, result, rest.seconds if rest else 0.0)
        else:
            self._store_result(fetch, result, 0.0)
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        fetch = self._robots_lease_fetch(request)
        if fetch is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, request, fetch, self._crawl)
        if answer is not None:
            fetch.answer = judge_answer(answer, fetch, self._crawl)
        result = self._failed(request, exception)
        if fetch.answer is not None:
            result = dataclasses.replace(
                result, error=fetch.answer.error, detail=fetch.answer.detail
            )
        rest = self._crawl.leases.completion.release(fetch)
        self._store_result(fetch, result, rest.seconds if rest else 0.0)
        return request.replace(dont_filter=True)

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

    def _robots_lease_fetch(self, request: Request) -> Fetch | None:
        """Return the fetch of a lease that is used for a robots.txt, or None."""
        fetch = self._crawl.leases.in_flight.fetch_of(request)
        return fetch if fetch is not None and fetch.purpose is Purpose.ROBOTS else None

    def _store_result(self, fetch: Fetch, result: RobotsFetchResult, rest_s: float) -> None:
        own = fetch.lease.candidate.purpose is Purpose.ROBOTS
        fetch.verdict = Done() if own else PutBack()
        try:
            self._crawl.selection.precheck.store_robots_result(
                fetch, result, self._crawl.leases.clock.now(), rest_s
            )
            fetch.links = sitemaps_of(fetch.authority, result.url, self._crawl)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    async def _check(self, request: Request, url: str) -> Request | None:
        """Return None if the page may be fetched, or a request that puts its lease back.
        Raises IgnoreRequest if robots.txt forbids it or is unreachable."""
        verdict = self._verdict(url)
        if isinstance(verdict, RobotsUnknown):
            fetch = self._crawl.leases.in_flight.fetch_of(request)
            if fetch is not None:
                # The robots.txt expired since the lease was checked; the next lease fetches it.
                fetch.verdict = PutBack()
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
        if self._crawl.leases.in_flight.fetch_of(request) is None:
            # Of a lease the outcome log has it.
            logger.info("Not fetched: %s: %s", request, reason)
        raise IgnoreRequest(reason)

    def _verdict(self, url: str) -> RobotsVerdict:
        return self._crawl.selection.robots.verdict(url, self._crawl.leases.clock.now())

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
            self._crawl.selection.robots.store_result(
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
        engine, in_flight = self._crawler.engine, self._crawl.leases.in_flight
        assert engine is not None
        in_flight.mark(request, Purpose.ROBOTS)
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

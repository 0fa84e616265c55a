"""Robots: nothing is fetched that robots.txt forbids (RFC 9309).

Rule: a lease is cleared before its request is made (scheduler.clearance); here its robots.txt is
learned, and requests that never saw the frontier (`engine.download_async`) are held until the
verdict is known. However many wait, robots.txt is fetched once, and all get its verdict.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.crawl.errors import LeaseEnded, error_of
from crawler.crawl.in_flight import LEASE, Fetch
from crawler.middlewares.pace import (
    answer_of,
    failed_answer,
    judge_answer,
)
from crawler.model.page import (
    Flag,
    Truncated,
    breakage,
)
from crawler.model.types import (
    Candidate,
    Done,
    Purpose,
    PutBack,
    StoreUnavailable,
)
from crawler.model.url import authority_of, fetch_form
from crawler.policy.priority import Hints
from crawler.policy.redirects import location_text
from crawler.policy.robots_cache import (
    REFUSED,
    Allowed,
    Disallowed,
    FetchResult,
    RobotsFetch,
    RobotsUnreachable,
    RobotsVerdict,
    Unknown,
    fetch_result,
)
from crawler.policy.scope import Refusal

# The sitemaps that a robots.txt names: found like links, with the last turn of their host.

MOST: Final = 100
"""Of one robots.txt (guess: big sites name a few dozen, and an index counts as one)."""


def sitemaps_of(authority: str, robots_url: str, crawl: Crawl) -> list[Candidate]:
    """Those of the rules that were learned for *authority*, as far as the crawl may fetch them."""
    if not crawl.settings.config.links.follow_sitemaps or not crawl.admission.doors.known:
        return []
    if crawl.settings.arguments is None:
        return []  # a spider of the user's own asks for them itself, with a callback for them
    level = crawl.admission.prioritizer.level(Hints(is_sitemap=True))
    found = []
    for written in crawl.admission.robots.rules(authority).sitemaps[:MOST]:
        # As if a person had named it: its type (.gz) is not one of a page.
        candidate = crawl.admission.doors.admission.candidate(written, robots_url, level=level)
        if isinstance(candidate, Refusal):
            crawl.tally.count(f"refused/{candidate.reason}")
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
        self._asking: dict[str, asyncio.Task[RobotsFetch]] = {}

    async def process_request(self, request: Request) -> Request | None:
        lease = request.meta.get(LEASE)
        if isinstance(lease, Refusal):
            raise IgnoreRequest(lease.explain())
        flight = self._crawl.leases.flights.of(lease)
        if flight is not None and flight.is_refused:
            raise IgnoreRequest(flight.reason)  # for its errback: see FrontierScheduler
        asks_for_robots = lease is Purpose.ROBOTS or self._flight(request)
        url = fetch_form(request.url)  # None: not http, no robots.txt speaks of it
        return None if asks_for_robots or url is None else await self._cleared(request, url)

    def process_response(self, request: Request, response: Response) -> Response | Request:
        flight = self._flight(request)
        if flight is None:
            return response
        flight.exchange = None  # it is not archived
        fetch = _brought(request.url, response)
        answer = answer_of(response, flight, self._crawl)
        answer = replace(answer, error=fetch.error or answer.error)
        flight.answer = judge_answer(answer, flight, self._crawl)
        # Its own crawl-delay counts for the rest that follows it, so it is read first; a host in
        # trouble has none, and how long it rests says how long its verdict holds.
        if fetch_result(fetch) is FetchResult.TROUBLE:
            rest = self._crawl.leases.landing.release(flight)
            self._learn(flight, fetch, rest.seconds if rest else 0.0)
        else:
            self._learn(flight, fetch, 0.0)
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        flight = self._flight(request)
        if flight is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, flight, self._crawl)
        if answer is not None:
            flight.answer = judge_answer(answer, flight, self._crawl)
        # No answer: the request was refused on our side (an inside address, a middleware).
        error = flight.answer.error if flight.answer else REFUSED
        rest = self._crawl.leases.landing.release(flight)
        self._learn(flight, RobotsFetch(request.url, error=error), rest.seconds if rest else 0.0)
        return request.replace(dont_filter=True)

    def _flight(self, request: Request) -> Fetch | None:
        """Of a lease that is used for a robots.txt."""
        flight = self._crawl.leases.flights.of(request.meta.get(LEASE))
        return flight if flight is not None and flight.purpose is Purpose.ROBOTS else None

    def _learn(self, flight: Fetch, fetch: RobotsFetch, rest_s: float) -> None:
        own = flight.lease.candidate.purpose is Purpose.ROBOTS
        flight.verdict = Done() if own else PutBack()
        try:
            self._crawl.admission.clearance.learn(
                flight, fetch, self._crawl.leases.clock.now(), rest_s
            )
            flight.links = sitemaps_of(flight.authority, fetch.url, self._crawl)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

    async def _cleared(self, request: Request, url: str) -> Request | None:
        """A page. None: it may be fetched. Raises IgnoreRequest."""
        verdict = self._verdict(url)
        if isinstance(verdict, Unknown):
            flight = self._crawl.leases.flights.of(request.meta.get(LEASE))
            if flight is not None:
                # It ran out since the lease was cleared: the next lease asks.
                flight.verdict = PutBack()
                return request.replace(dont_filter=True)
            authority = authority_of(url)
            is_refused = isinstance(
                self._crawl.admission.doors.robots(verdict.url, authority), Refusal
            )
            if is_refused and authority_of(verdict.url) == authority:
                return None  # the handler refuses this address, with its own reason
            verdict = await self._found(url, verdict)
        if isinstance(verdict, Allowed):
            return None
        why_not = _why_not(verdict)
        if LEASE not in request.meta:  # else the outcome log tells it
            logger.info("Not fetched: %s: %s", request, why_not)
        raise IgnoreRequest(why_not)

    def _verdict(self, url: str) -> RobotsVerdict:
        return self._crawl.admission.robots.verdict(url, self._crawl.leases.clock.now())

    async def _found(self, url: str, unknown: Unknown) -> RobotsVerdict:
        """What its robots.txt says. Unknown: no answer; a host in trouble is not asked again at
        once, but by whoever comes next."""
        verdict: RobotsVerdict = unknown
        while isinstance(verdict, Unknown):
            fetch = await self._ask_once(authority_of(url), verdict.url)
            verdict = self._verdict(url)
            if fetch_result(fetch) is not FetchResult.MOVED:
                break
        return verdict

    async def _ask_once(self, authority: str, url: str) -> RobotsFetch:
        asking = self._asking.get(authority)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(authority, url))
            self._asking[authority] = asking
            asking.add_done_callback(lambda _: self._asking.pop(authority, None))
        # Shielded: one of those who wait may be cancelled, the others still wait.
        return await asyncio.shield(asking)

    async def _ask(self, authority: str, url: str) -> RobotsFetch:
        fetch = await self._fetched(authority, url)
        try:
            self._crawl.admission.robots.learn(authority, fetch, self._crawl.leases.clock.now())
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
            raise
        return fetch

    async def _fetched(self, authority: str, url: str) -> RobotsFetch:
        if isinstance(self._crawl.admission.doors.robots(url, authority), Refusal):
            return RobotsFetch(url, error=REFUSED)
        # Its redirects are followed here: a target followed below would wait for this verdict.
        meta = {LEASE: Purpose.ROBOTS, "verbatim_url": True, "dont_redirect": True}
        engine = self._crawler.engine
        assert engine is not None
        try:
            return _brought(url, await engine.download_async(Request(url, meta=meta)))
        except Exception as failed:  # whatever it was: no answer
            return RobotsFetch(url, error=error_of(failed) or REFUSED)


def _why_not(verdict: Disallowed | RobotsUnreachable | Unknown) -> str:
    match verdict:
        case Disallowed(rule):
            return f"robots.txt: {rule}"
        case RobotsUnreachable(_, reason):
            return f"robots.txt unreachable: {reason}"
        case Unknown(url):
            return f"robots.txt unreachable: no answer from {url}"


def _torn(flags: Collection[str]) -> str:
    """Why something of a file is missing, as an error of `Answer`. Empty: nothing is, or what our
    own cap has cut, which lets more pass than RFC 9309 asks to be read."""
    if Truncated.TIME.flag in flags:
        return "timeout"
    if Flag.DECODED_BROKEN in flags or Flag.UNDECODED in flags:
        return "protocol"
    return breakage(flags)


def _brought(url: str, response: Response) -> RobotsFetch:
    if response.status < 300 and (torn := _torn(response.flags)):
        # What is missing may be the line that forbids: as good as no answer.
        return RobotsFetch(url, error=torn)
    location = response.headers.get(b"Location")
    leads_to = fetch_form(location_text(location), url) if location else None
    return RobotsFetch(url, response.status, target=leads_to, body=response.body)

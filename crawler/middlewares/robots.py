"""Robots: nothing is fetched that robots.txt forbids (RFC 9309).

Rule: a lease is cleared before its request is made (scheduler.clearance); here its robots.txt is
learned, and requests that never saw the frontier (`engine.download_async`) are held until the
verdict is known. However many wait, robots.txt is fetched once, and all get its verdict.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawler.core.types import Done, Purpose, PutBack
from crawler.core.url import authority_of, fetch_form
from crawler.download.failures import error_of
from crawler.middlewares.answers import answer_of, failed_answer, judged
from crawler.policy.redirects import location_text
from crawler.policy.robots_cache import Allowed, Disallowed, Unknown
from crawler.policy.robots_fetch import Brought, RobotsFetch, brought
from crawler.scheduler.flights import LEASE, Flight
from crawler.wiring import Parts, parts_of

# A robots.txt and its redirects: more than RFC 9309 asks us to follow.
_MOST_FETCHES: Final = 8


class RobotsMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler, parts_of(crawler))

    def __init__(self, crawler: Crawler, parts: Parts) -> None:
        self._crawler = crawler
        self._parts = parts
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._ours: set[Request] = set()  # robots.txt that this asks for itself

    async def process_request(self, request: Request) -> None:
        flight = self._parts.flights.of(request.meta.get(LEASE))
        if request in self._ours or (flight and flight.purpose is Purpose.ROBOTS):
            return
        url = fetch_form(request.url)
        if url is None:
            return  # not http: no robots.txt speaks of it
        for _ in range(_MOST_FETCHES):
            verdict = self._parts.robots.verdict(url, self._parts.clock.now())
            match verdict:
                case Allowed():
                    return
                case Unknown(robots_url):
                    await self._ask_once(authority_of(url), robots_url)
                case Disallowed(rule):
                    raise IgnoreRequest(f"robots.txt: {rule}")
                case _:
                    raise IgnoreRequest(f"robots.txt unreachable: {verdict.reason}")
        raise IgnoreRequest("robots.txt unreachable: it leads nowhere")

    def process_response(self, request: Request, response: Response) -> Response | Request:
        flight = self._parts.flights.of(request.meta.get(LEASE))
        if flight is None or flight.purpose is not Purpose.ROBOTS:
            return response
        self._parts.exchanges.take(request)
        flight.answer = judged(answer_of(response, flight, self._parts), flight, self._parts)
        fetch = _brought(request.url, response)
        # Its own crawl-delay counts for the rest that follows it, so it is read first.
        if brought(fetch) is Brought.FILE:
            self._learn(flight, fetch, 0.0)
        else:
            rest = self._parts.landing.release(flight)
            self._learn(flight, fetch, rest.seconds if rest else 0.0)
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        flight = self._parts.flights.of(request.meta.get(LEASE))
        if flight is None or flight.purpose is not Purpose.ROBOTS:
            return None
        answer = failed_answer(exception, flight, self._parts)
        if answer is not None:
            flight.answer = judged(answer, flight, self._parts)
        # No answer: the request was refused on our side (an inside address, a middleware).
        error = flight.answer.error if flight.answer else "refused"
        rest = self._parts.landing.release(flight)
        self._learn(flight, RobotsFetch(request.url, error=error), rest.seconds if rest else 0.0)
        return request.replace(dont_filter=True)

    def _learn(self, flight: Flight, fetch: RobotsFetch, rest_s: float) -> None:
        self._parts.clearance.learn(flight, fetch, self._parts.clock.now(), rest_s)
        own = flight.lease.candidate.purpose is Purpose.ROBOTS
        flight.verdict = Done() if own else PutBack()

    async def _ask_once(self, authority: str, url: str) -> None:
        asking = self._asking.get(authority)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(authority, url))
            self._asking[authority] = asking
            asking.add_done_callback(lambda _: self._asking.pop(authority, None))
        # Shielded: one of those who wait may be cancelled, the others still wait.
        await asyncio.shield(asking)

    async def _ask(self, authority: str, url: str) -> None:
        request = Request(url, dont_filter=True, meta={"verbatim_url": True})
        self._ours.add(request)
        engine = self._crawler.engine
        assert engine is not None
        try:
            fetch = _brought(url, await engine.download_async(request))
        except Exception as failed:  # whatever it was: no answer
            fetch = RobotsFetch(url, error=error_of(failed) or "refused")
        finally:
            self._ours.discard(request)
        self._parts.robots.learn(authority, fetch, self._parts.clock.now())


def _brought(url: str, response: Response) -> RobotsFetch:
    location = response.headers.get(b"Location")
    leads_to = fetch_form(location_text(location), url) if location else None
    return RobotsFetch(url, response.status, target=leads_to, body=response.body)

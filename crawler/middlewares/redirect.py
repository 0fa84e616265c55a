"""Redirects: each target goes back to the frontier as its lease's Moved, never straight on.

Rule: for pages of our own the policy decides (policy.redirects); requests of other spiders are
redirected as Scrapy does it (methods, headers, `dont_redirect`), and then take the same way.
"""

from __future__ import annotations

from collections.abc import Callable

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirects
from scrapy.http import Response

from crawler.archiving import archived
from crawler.core.errors import StoreUnavailable
from crawler.core.types import Candidate, Dead, Moved, PutBack
from crawler.policy.redirects import Follow, NotARedirect, TooMany, onward
from crawler.policy.refusal import Refusal
from crawler.scheduler.flights import LEASE
from crawler.wiring import Parts, parts_of


class RedirectMiddleware(ScrapyRedirects):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> RedirectMiddleware:
        redirects = super().from_crawler(crawler)
        redirects.parts = parts_of(crawler)
        return redirects

    parts: Parts

    async def process_response(self, request: Request, response: Response) -> Response | Request:  # type: ignore[override]  # Scrapy awaits it, its stub does not say so
        flight = self.parts.flights.of(request.meta.get(LEASE))
        if flight is None or flight.lease.candidate.request:
            return super().process_response(request, response)
        candidate = flight.lease.candidate
        location = response.headers.get(b"Location")
        limit = self.parts.config.limits.max_redirects
        leads = onward(candidate, response.status, location, self._admit(candidate), limit)
        match leads:
            case Follow(target):
                flight.verdict = Moved(target)
            case TooMany(reason):
                flight.verdict = Dead(reason)
            case NotARedirect():
                return response
            case _:
                flight.reason = leads.reason
                return response
        # The answer itself is worth a record: without it the archive cannot be replayed.
        try:
            flight.record = await archived(flight.exchange, self.parts.archive())
        except StoreUnavailable as error:
            flight.verdict = PutBack()
            self.parts.fail(error)
        return request.replace(dont_filter=True)

    def _admit(self, origin: Candidate) -> Callable[[str, str], Candidate | Refusal]:
        def admit(text: str, base: str) -> Candidate | Refusal:
            found = self.parts.doors.admission.candidate(
                text, base, depth=origin.depth, level=origin.level
            )
            if isinstance(found, Refusal):
                self.parts.tally.count(f"refused/{found.reason}")
            return found

        return admit

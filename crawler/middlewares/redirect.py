"""Give the target of a redirect back to the frontier, as the verdict Moved of its lease.

Rule: policy.redirects decides for candidates without a stored request. Requests of a spider are
redirected by Scrapy (methods, headers, `dont_redirect`), and the result goes to the frontier too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cached_property
from hashlib import sha1
from typing import Final

from msgspec.structs import replace
from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirects
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.referer import RefererMiddleware

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.content.to_capture import archive_exchange, wire_sha1
from crawler.crawl.in_flight import DeadEnd, Fetch
from crawler.model.page import header_value
from crawler.model.types import (
    Candidate,
    Claim,
    Dead,
    Moved,
    PutBack,
    StoreUnavailable,
)
from crawler.policy.redirects import (
    COOKIE_WALL,
    REDIRECTS,
    BrokenRedirect,
    FollowRedirect,
    NotARedirect,
    TooManyRedirects,
    decide_redirect,
)
from crawler.policy.scope import Refusal

MAX_SETTERS: Final = 10_000
"""Redirects that set cookies, which are remembered until their chains end; 100 bytes each."""


def _dead_end(decision: BrokenRedirect) -> DeadEnd:
    why = decision.refusal.of_target(decision.target) if decision.refusal else ""
    return DeadEnd("redirect", why, decision.target)


class RedirectMiddleware(ScrapyRedirects):
    @cached_property
    def crawl(self) -> Crawl:
        return crawl_of(self.crawler)

    def _engine_started(self) -> None:
        """Scrapy's method warns if there are no spider middlewares, as for `web` (decision 24)."""
        self._referer_spider_middleware = self.crawler.get_spider_middleware(RefererMiddleware)

    async def process_response(self, request: Request, response: Response) -> Response | Request:  # type: ignore[override]  # Scrapy awaits it, its stub does not say so
        fetch = self.crawl.leases.in_flight.fetch_of(request)
        if fetch is None or fetch.lease.candidate.request:
            return self._redirect_of_spider(request, response)
        candidate = fetch.lease.candidate
        location = header_value(response.headers, b"Location")
        limit = self.crawl.settings.config.limits.max_redirects
        decision = decide_redirect(
            candidate,
            response.status,
            location,
            self._admit(candidate),
            limit,
            is_wall=self._is_wall(response, candidate.key, candidate.chain),
        )
        match decision:
            case FollowRedirect(target):
                fetch.verdict = Moved(target)
            case TooManyRedirects(reason):
                fetch.verdict = Dead(reason)
            case NotARedirect():
                return response
            case _:
                fetch.reason = decision.reason
                if candidate.seed_url:
                    fetch.dead_end = _dead_end(decision)
                return response
        # The redirect itself is archived too: without its record the archive cannot be replayed.
        try:
            claim = await self._archive(response, fetch)
            if isinstance(fetch.verdict, Moved):
                fetch.verdict = replace(fetch.verdict, claim=claim)
        except StoreUnavailable as error:
            fetch.verdict = PutBack()
            self.crawl.lifecycle.fail(error)
        return request.replace(dont_filter=True)

    def _redirect_of_spider(self, request: Request, response: Response) -> Response | Request:
        is_wall = self._is_wall(response, request.url, request.meta.get("redirect_urls", ()))
        try:
            return super().process_response(request, response)
        except IgnoreRequest as ended:
            if is_wall:
                raise IgnoreRequest(f"{ended}: {COOKIE_WALL}") from ended
            raise

    def _is_wall(self, response: Response, own: int | str, chain: Iterable[int | str]) -> bool:
        """Return whether the redirect *response*, to the URL *own* at the end of *chain*, or one
        before it, sets a cookie that is not kept."""
        if response.status not in REDIRECTS or self._keeps_cookies:
            return False
        setters = self._setters
        if b"Set-Cookie" in response.headers:
            setters[own] = None
            setters.move_to_end(own)
            if len(setters) > MAX_SETTERS:
                setters.popitem(last=False)
        return own in setters or any(each in setters for each in chain)

    @cached_property
    def _setters(self) -> OrderedDict[int | str, None]:
        """The URLs, or their keys, whose redirects set cookies, the latest last."""
        return OrderedDict()

    @cached_property
    def _keeps_cookies(self) -> bool:
        return bool(self.crawler.settings.getbool("COOKIES_ENABLED"))

    async def _archive(self, response: Response, fetch: Fetch) -> Claim | None:
        """Archive the redirect and return a claim on its body, which is stored once as servers
        repeat it. Returns None if it is empty, cut or already stored, or nothing is archived."""
        exchange, archive = fetch.exchange, self.crawl.storage.archive.open_writer()
        may_repeat = fetch.lease.candidate.may_be_archived
        if exchange is None or archive is None:
            return None
        if not response.body or exchange.truncated:
            fetch.record = await archive_exchange(exchange, archive, may_repeat=may_repeat)
            return None
        digest = sha1(response.body, usedforsecurity=False).digest()
        body_sha1 = wire_sha1(exchange, response.body, digest)
        same = await self.crawl.content.duplicates.original(digest, exchange.url, fetch.lease.id)
        fetch.record = await archive_exchange(
            exchange, archive, same, body_sha1, may_repeat=may_repeat
        )
        if same is not None:
            return None
        record, status = fetch.record, response.status
        return Claim(digest, exchange.url, record, exchange.at, body_sha1, status)

    def _admit(self, origin: Candidate) -> Callable[[str, str], Candidate | Refusal]:
        def admit(text: str, base: str) -> Candidate | Refusal:
            found = self.crawl.selection.allowed_origins.admission.candidate(
                text,
                base,
                depth=origin.depth,
                level=origin.level,
                requisite=origin.requisite,
                is_sitemap=origin.is_sitemap,
                index_hops=origin.index_hops,
            )
            if isinstance(found, Refusal):
                self.crawl.stats.count(f"refused/{found.reason}")
            return found

        return admit

"""Give the target of a redirect back to the frontier, as the verdict Moved of its lease.

Rule: the loop decides for candidates without a stored request. Requests of a spider are
redirected by Scrapy (methods, headers, `dont_redirect`), and the result goes to the frontier too.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property
from hashlib import sha1
from typing import Final

from scrapy import Request
from scrapy.downloadermiddlewares.redirect import RedirectMiddleware as ScrapyRedirects
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response
from scrapy.spidermiddlewares.referer import RefererMiddleware

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.content.to_capture import archive_beside, archive_exchange, wire_sha1
from crawler.loop.life import Life
from crawler.model.page import header_value
from crawler.model.types import Claim, StoreUnavailable
from crawler.policy.redirects import COOKIE_WALL, REDIRECTS, BrokenRedirect, NotARedirect

MAX_SETTERS: Final = 10_000
"""Redirects that set cookies, which are remembered until their chains end; 100 bytes each."""


class RedirectMiddleware(ScrapyRedirects):
    @cached_property
    def crawl(self) -> Crawl:
        return crawl_of(self.crawler)

    def _engine_started(self) -> None:
        """Scrapy's method warns if there are no spider middlewares, as for `web` (decision 24)."""
        self._referer_spider_middleware = self.crawler.get_spider_middleware(RefererMiddleware)

    async def process_response(self, request: Request, response: Response) -> Response | Request:  # type: ignore[override]  # Scrapy awaits it, its stub does not say so
        loop = self.crawl.loop
        life = loop.lives.of(request)
        if life is not None and life.is_challenged:
            return response  # to a page that tests who asks
        if life is None or life.candidate.request:
            return self._redirect_of_spider(request, response)
        decision = loop.redirected(
            life,
            response.status,
            header_value(response.headers, b"Location"),
            is_wall=self._is_wall(response, life.candidate.key, life.candidate.chain),
        )
        if isinstance(decision, NotARedirect | BrokenRedirect):
            return response
        # The redirect itself is archived too: without its record the archive cannot be replayed.
        try:
            await self._archive(response, life)
        except StoreUnavailable as error:
            life.put_back()
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

    async def _archive(self, response: Response, life: Life) -> None:
        """Archive the redirect, and claim its body, which is stored once as servers repeat it. No
        claim: it is empty, cut or already stored, or nothing is archived."""
        exchange, archive = life.exchange, self.crawl.storage.archive.open_writer()
        may_repeat = life.candidate.may_be_archived
        storable = self.crawl.content.preferences.storable
        if exchange is None or archive is None or not storable((exchange,)):
            return
        bodies, others = self.crawl.content.archived_bodies, storable(life.exchanges[:-1])
        await archive_beside(others, archive, bodies, may_repeat=may_repeat)
        if not response.body or exchange.truncated:
            life.archive(await archive_exchange(exchange, archive, may_repeat=may_repeat))
            return
        digest = sha1(response.body, usedforsecurity=False).digest()
        body_sha1 = wire_sha1(exchange, response.body, digest)
        same = await self.crawl.content.duplicates.original(digest, exchange.url, life.lease.id)
        earlier, elsewhere = self.crawl.content.earlier, None
        if earlier is not None and not (same is not None and same.record):
            elsewhere = earlier.original(body_sha1)
        original = elsewhere or same
        record = await archive_exchange(
            exchange, archive, original, body_sha1, may_repeat=may_repeat
        )
        own = record if elsewhere is None else ""  # else no record that can be referred to
        claim = Claim(digest, exchange.url, own, exchange.at, body_sha1, response.status)
        life.archive(record, claim if same is None else None)

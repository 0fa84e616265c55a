"""Give pages that are made by scripts to a browser, and go on with what it has made of them.

Rule: it is decided here, before the host of a page is released and before its content is looked at,
so that all that follows is of the page as a reader sees it. What cannot be rendered stays as it was
fetched.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable
from contextlib import suppress
from functools import cached_property
from typing import Final, Self

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError
from scrapy.http import HtmlResponse, Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.config.settings import RenderSettings
from crawler.download.handler import Transfers
from crawler.download.page_requests import (
    PageRequests,
    RequestParts,
    fields_for_browser,
    request_parts,
)
from crawler.loop.life import Life
from crawler.loop.loop import LACKING_TRIES
from crawler.model.choices import RenderChoice
from crawler.model.page import DOM_TYPE, Rendered, Source, Unreadable, header_value
from crawler.model.types import HTTP_OK, ConfigError, Purpose
from crawler.page.encodings import may_be_utf_16, read_text
from crawler.page.media_type import HTML_TYPES, actual_type
from crawler.page.script_signs import (
    ScriptSigns,
    brings_less,
    brings_more,
    may_have_scripts,
    signs_of,
)
from crawler.policy.rendering import RenderPolicy, RenderReason
from crawler.render.browser import (
    BrowserAnswer,
    BrowserMissing,
    BrowserOptions,
    NotRendered,
    RenderedPage,
    find_browser,
    require_playwright,
)
from crawler.render.pool import BrowserPool

logger = logging.getLogger(__name__)

BY_REQUEST: Final = "playwright"
"""The key of a request's meta that says whether it is rendered, as of scrapy-playwright."""
_LANGUAGE: Final = re.compile(r"\s*([A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8})*)\s*(?:[,;]|$)")  # the first
_LESS: Final = "rendered to less than was sent, so kept as it was sent"
_LOGGED: Final = 20  # pages that could not be rendered, one by one


def _put_back(life: Life, request: Request) -> Request:
    life.put_back()
    return request.replace(dont_filter=True)


def browser_options(
    settings: RenderSettings, user_agent: str, accept_language: str
) -> BrowserOptions:
    wanted = _LANGUAGE.match(accept_language)
    return BrowserOptions(
        executable=settings.browser,
        user_agent=user_agent,
        language=wanted[1] if wanted else "",
        tabs=settings.render_tabs,
        page_s=settings.render_timeout_s,
        quiet_s=settings.render_quiet_s,
        scrolls=settings.render_scrolls,
        memory_bytes=settings.render_max_bytes,
    )


class RenderMiddleware:
    """Renders answers on their way from the decoder to what judges them."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        middleware = cls(crawl_of(crawler), crawler)
        crawler.signals.connect(middleware.open, signals.spider_opened)
        crawler.signals.connect(middleware.close, signals.spider_closed)
        return middleware

    def __init__(self, crawl: Crawl, crawler: Crawler) -> None:
        """Raises BrowserMissing if the settings need a browser, and there is none."""
        self._crawl = crawl
        self._crawler = crawler
        self._settings = crawl.settings.config.render
        self._policy = RenderPolicy(self._settings.render, self._settings.render_share)
        self._pool: BrowserPool | None = None
        self._starting = asyncio.Lock()
        self._transfers = Transfers()
        self._failed = 0
        if self._settings.render is not RenderChoice.NEVER:
            find_browser(self._settings.browser)
            require_playwright()
        crawl.lifecycle.call_at_stop(self._transfers.cancel_all)

    async def open(self) -> None:
        """Start the browser, if pages are rendered by the settings, so that it is known at once if
        that fails."""
        if self._settings.render is not RenderChoice.NEVER:
            with suppress(NotRendered):
                await self._started()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Awaitable[Response | Request]:
        life = self._crawl.loop.lives.of(request)
        if life is None or life.candidate.is_sitemap:
            return response
        if life.plan.purpose is Purpose.PROBE:
            # Pages of its host are compared with it: their DOMs with its DOM.
            is_alike = self._policy.pays(life.candidate.host) and self._is_page(response)
            return self._in_browser(request, response, life) if is_alike else response
        if not life.is_of_page:
            return response
        choice, candidate = self._choice(request, life), life.candidate
        if choice is RenderChoice.NEVER or not may_have_scripts(response.body):
            return response
        if choice is RenderChoice.AUTO and (
            candidate.requisite
            or self._policy.is_settled(candidate.host, candidate.url, response.body)
        ):
            self._policy.pass_by()
            return response
        if not self._is_page(response):
            return response
        return self._render(request, response, life, choice)

    def _choice(self, request: Request, life: Life) -> RenderChoice:
        by_request = request.meta.get(BY_REQUEST)
        rules = self._crawl.selection.allowed_origins.operator
        by_rule = rules.of_url(life.candidate.url).render if rules else None
        wanted = None if by_request is None else bool(by_request)
        return self._policy.choice_for(by_rule, wanted)

    def _is_page(self, response: Response) -> bool:
        """Return whether *response* is a whole page."""
        if response.status not in HTTP_OK:
            return False
        declared = header_value(response.headers, b"Content-Type") or b""
        if actual_type(declared.decode("latin-1"), response.url, response.body).media_type not in (
            HTML_TYPES
        ):
            return False
        disposition = header_value(response.headers, b"Content-Disposition") or b""
        if disposition.lower().startswith(b"attachment") or response.flags:
            return False
        signatures = self._crawl.fetching.signatures
        return signatures.challenge_of(response.status, response.headers, response.body) is None

    async def _render(
        self, request: Request, response: Response, life: Life, choice: RenderChoice
    ) -> Response | Request:
        declared = header_value(response.headers, b"Content-Type") or b""
        before = await self._signs(response.url, declared.decode("latin-1"), response.body)
        if before is None:
            return response
        candidate, is_asked = life.candidate, bool(request.meta.get(BY_REQUEST))
        reason = self._policy.decide(
            candidate.host, candidate.url, before, choice, is_asked=is_asked
        )
        if reason is None:
            return response
        made = await self._in_browser(request, response, life)
        if made is response or not isinstance(made, Response) or life.rendered is None:
            return made
        after = await self._signs(made.url, DOM_TYPE, made.body)
        is_less = after is None or (not is_asked and brings_less(before, after))
        self._note_rendered(life, reason, life.rendered, before, None if is_less else after)
        if is_less:
            life.note_rendered(None)
        return response if is_less else made

    async def _in_browser(
        self, request: Request, response: Response, life: Life
    ) -> Response | Request:
        """Return *response* with its DOM as the body, or as it is if that cannot be had; or the
        request, to be sent again, if the crawl stops."""
        if self._crawl.lifecycle.is_stopping:
            return _put_back(life, request)
        slots = self._crawl.loop.slots
        progress = slots.progress_of(request)
        slots.set_waiting(progress, for_host=True)  # others need its slot: it may take long
        try:
            page = await self._transfers.run(self._rendered(request, response, life))
        except DownloadCancelledError:
            return _put_back(life, request)
        except NotRendered as failed:
            self._note_failed(life, failed)
            return response
        finally:
            slots.set_waiting(progress, for_host=False)
        memory = self._crawl.fetching.body_memory
        memory.add(memory.share_of(life), len(page.dom))
        headers = response.headers.copy()
        headers[b"Content-Type"] = DOM_TYPE
        return response.replace(cls=HtmlResponse, headers=headers, body=page.dom, encoding="utf-8")

    async def _signs(self, url: str, content_type: str, body: bytes) -> ScriptSigns | None:
        """Return the signs of *body*, or None if it cannot be read."""
        parsers = self._crawl.content.parsers
        parser = parsers.parser_for("text/html")
        if parser is None:
            return None
        try:
            parsed = await parsers.parse(Source(url, content_type, body), parser)
            if may_be_utf_16(body):
                body = read_text(body, content_type)[0].encode(errors="replace")
            return signs_of(body, parsed)
        except Unreadable:
            return None

    async def _rendered(self, request: Request, response: Response, life: Life) -> RenderedPage:
        pool = await self._started()
        arguments = self._crawl.settings.arguments
        fields = [(name, value) for name, values in dict.items(request.headers) for value in values]
        requests = PageRequests(
            *(self._parts, life, fields),
            proxy=request.meta.get("proxy") or "",
            with_requisites=arguments is not None and arguments.requisites,
        )
        answer = BrowserAnswer(
            status=response.status,
            fields=fields_for_browser(response.headers),
            body=response.body,
        )
        try:
            page = await pool.render(life.candidate.host, response.url, answer, requests.answer)
        finally:
            await requests.end()
            life.receive(*requests.exchanges, *life.exchanges)
            life.carry(requests.carried)
            life.note_given(frozenset(requests.given))
            self._count(requests)
        lacks = [each.value for each in requests.lacks]
        if not page.is_quiet:
            lacks.append("time")
        life.note_lacking(", ".join(lacks))
        life.note_rendered(
            Rendered(
                ms=page.ms,
                requests=requests.sent,
                left_out=requests.left_out.total(),
                is_quiet=page.is_quiet,
                moved_to=page.moved_to,
            )
        )
        return page

    def _count(self, requests: PageRequests) -> None:
        stats = self._crawl.stats
        stats.count("render/requests", requests.sent)
        for why, number in requests.left_out.items():
            stats.count(f"render/left_out/{why}", number)

    def _note_rendered(
        self,
        life: Life,
        reason: RenderReason,
        rendered: Rendered,
        before: ScriptSigns,
        after: ScriptSigns | None,
    ) -> None:
        """Note what rendering has brought. *after*: None if the page is kept as it was sent."""
        stats, candidate = self._crawl.stats, life.candidate
        paid = False
        if after is not None:
            new = self._policy.new_links(candidate.host, candidate.url, before, after)
            paid = brings_more(before, after, new)
        # Of what another time may bring nothing is said.
        known = paid or not life.lacking
        self._learn(life, paid=paid if known else None)
        if paid:
            life.note_lacking("")
        elif life.lacking:
            life.note_reason(f"not whole, left out: {life.lacking}")
        elif after is None:
            life.note_reason(_LESS)
        stats.count("render/pages")
        stats.count(f"render/because/{reason}")
        stats.count("render/ms", rendered.ms)
        if after is None:
            stats.count("render/less")
        elif paid:
            stats.count("render/paid")
            stats.count("render/links", len(after.links - before.links))
            stats.count("render/chars", max(0, after.chars - before.chars))

    def _learn(self, life: Life, *, paid: bool | None) -> None:
        candidate = life.candidate
        comes_again = bool(life.lacking) and candidate.attempts < LACKING_TRIES
        self._policy.learn(candidate.host, candidate.url, paid=paid, comes_again=comes_again)

    def _note_failed(self, life: Life, failed: NotRendered) -> None:
        """Note that a page stays as it was fetched, unless it is fetched once more. A pattern of
        which that happens is tried less and less often."""
        life.note_reason(f"not rendered: {failed}")
        if not life.candidate.attempts:
            life.note_lacking(f"not rendered: {failed}")
        if life.plan.purpose is not Purpose.PROBE:  # its turn is a page's, whose pattern it has not
            self._learn(life, paid=None)
        self._crawl.stats.count("render/failed")
        self._failed += 1
        if self._failed <= _LOGGED:
            logger.warning("Not rendered, kept as fetched: %s: %s", life.candidate.url, failed)

    async def _started(self) -> BrowserPool:
        async with self._starting:
            if self._pool is not None:
                return self._pool
            agent = self._crawl.settings.config.identity.user_agent
            try:
                fields = self._crawler.settings.getdict("DEFAULT_REQUEST_HEADERS")
                language = str(fields.get("Accept-Language") or "")
                pool = BrowserPool(browser_options(self._settings, agent, language))
                said = await pool.start()
            except (ConfigError, OSError) as missing:
                error = BrowserMissing(f"the browser that CRAWLER_RENDER needs: {missing}")
                self._crawl.lifecycle.fail(error, "no_browser")
                raise NotRendered(str(missing)) from missing
            if said:
                logger.warning("%s", said)
            self._pool = pool
            return pool

    @cached_property
    def _parts(self) -> RequestParts:
        return request_parts(self._crawl, self._crawler, self._settings.render_timeout_s)

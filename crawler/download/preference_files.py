"""Fetch the files that say what a page may be used for, before it is known what becomes of it.

Rule: they are fetched while the page's own host is leased, as what a rendered page asks for: by
robots.txt, rules and rests, one after the other. A page never fails by them: what cannot be had
says nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Iterable
from functools import cached_property
from typing import Final, Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.config.settings import PREFERENCE_FILES_S
from crawler.content.preference_sources import MOST_FILES, licence_in
from crawler.download.handler import Transfers
from crawler.download.page_requests import PageRequests, RequestParts, request_parts
from crawler.loop.life import Life
from crawler.model.choices import PreferenceFiles
from crawler.model.types import HTTP_OK
from crawler.policy.rendering import MOMENTARY
from crawler.render.browser import BrowserRequest

logger = logging.getLogger(__name__)

_ACCEPT: Final = "application/rsl+xml, application/xml;q=0.9, application/json;q=0.9, */*;q=0.1"
_LOGGED: Final = 20  # files that could not be had, one by one


class PreferenceFilesMiddleware:
    """Fetches what a page's preferences need and is not known, on the way of its answer."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler), crawler)

    def __init__(self, crawl: Crawl, crawler: Crawler) -> None:
        self._crawl = crawl
        self._crawler = crawler
        self._sources = crawl.content.preferences
        self._is_off = crawl.settings.config.preferences.files is PreferenceFiles.NONE
        self._transfers = Transfers()
        self._under_way: dict[str, asyncio.Event] = {}
        self._failed = 0
        crawl.lifecycle.call_at_stop(self._transfers.cancel_all)

    def process_response(
        self, request: Request, response: Response
    ) -> Response | Awaitable[Response | Request]:
        if self._is_off or response.status not in HTTP_OK:
            return response
        life = self._crawl.loop.lives.of(request)
        if life is None or not life.is_of_page:
            return response
        url, body = response.url, response.body
        links = [(b"Link", value) for value in dict.get(response.headers, b"Link", ())]
        named = self._sources.named(url, links, licence_in(body, url))
        now = self._crawl.leases.clock.now()
        if any(not self._sources.is_known(each, now) for each in named):
            return self._fetched(request, response, life, named)
        self._note_lacking(life, named)
        return response

    def _note_lacking(self, life: Life, named: Iterable[str]) -> None:
        """Let the page come again if it may not be stored as a licence cannot be had now."""
        if self._sources.lacks(named):
            life.note_lacking(", ".join(filter(None, (life.lacking, "licence"))))
            life.note_reason("its licence cannot be had now")

    async def _fetched(
        self, request: Request, response: Response, life: Life, named: Iterable[str]
    ) -> Response | Request:
        """Fetch what is not known of the files *named*, and return *response*; or the request, to
        be sent again, if the crawl stops."""
        if self._crawl.lifecycle.is_stopping:
            life.put_back()
            return request.replace(dont_filter=True)
        slots = self._crawl.loop.slots
        progress = slots.progress_of(request)
        slots.set_waiting(progress, for_host=True)  # others need its slot: it may take long
        try:
            await self._transfers.run(self._fetch(request, life, named))
        except DownloadCancelledError:
            life.put_back()
            return request.replace(dont_filter=True)
        finally:
            slots.set_waiting(progress, for_host=False)
        self._note_lacking(life, named)
        return response

    async def _fetch(self, request: Request, life: Life, named: Iterable[str]) -> None:
        fields = [(name, value) for name, values in dict.items(request.headers) for value in values]
        requests = PageRequests(
            *(self._parts, life, fields),
            proxy=request.meta.get("proxy") or "",
            with_requisites=False,
        )
        now = self._crawl.leases.clock.now()
        urls = [each for each in named if not self._sources.is_known(each, now)][:MOST_FILES]
        try:
            async with asyncio.timeout(self._left_s(life)):
                for url in urls:
                    await self._fetch_one(requests, url)
        except TimeoutError:
            for url in urls:
                self._note_missing(url, "time", for_now=True)
        finally:
            await requests.end()
            life.receive(*requests.exchanges, *life.exchanges)
            life.carry(requests.carried)

    def _left_s(self, life: Life) -> float:
        """Return how long files may be fetched, so that the turn of their page takes no longer than
        is counted with after a crash."""
        taken_s = self._crawl.leases.clock.now() - life.began_at
        return min(PREFERENCE_FILES_S, self._crawl.settings.config.longest_turn_s - taken_s)

    async def _fetch_one(self, requests: PageRequests, url: str) -> None:
        """Fetch *url*, unless another page does: then wait for that."""
        while (other := self._under_way.get(url)) is not None:
            await other.wait()
        now = self._crawl.leases.clock.now
        if self._sources.is_known(url, now()):
            return
        ended = self._under_way[url] = asyncio.Event()
        try:
            asked = BrowserRequest(url=url, method="GET", kind="fetch", fields={"accept": _ACCEPT})
            before = Counter(requests.left_out)
            answer = await requests.answer(asked)
            if answer is None:
                why = (requests.left_out - before).keys()
                self._note_missing(url, ", ".join(why), for_now=not MOMENTARY.isdisjoint(why))
                return
            self._crawl.stats.count("preferences/files")
            wrong = self._sources.note(url, answer.status, answer.body, now())
            if wrong:
                self._log(f"{url} says nothing of the use of pages: {wrong}")
        finally:
            del self._under_way[url]
            ended.set()

    def _note_missing(self, url: str, why: str, *, for_now: bool) -> None:
        """Note that *url* could not be had; *why*: words of LeftOut, or "time"."""
        now = self._crawl.leases.clock.now()
        if self._sources.is_known(url, now):
            return
        self._sources.note_missing(url, now, for_now=for_now)
        self._crawl.stats.count("preferences/files_missing")
        self._log(f"{url}, which says what pages may be used for, cannot be had now: {why}")

    def _log(self, words: str) -> None:
        self._failed += 1
        if self._failed <= _LOGGED:
            logger.warning("%s", words)

    @cached_property
    def _parts(self) -> RequestParts:
        return request_parts(self._crawl, self._crawler, PREFERENCE_FILES_S, PREFERENCE_FILES_S)

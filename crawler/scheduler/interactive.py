"""Scrapy's own scheduler, for errands (crawler.crawl.interactive): the frontier stores what it is
given, and their requests call back into the process that waits for them."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.assembly.build import parts_of
from crawler.assembly.crawl import Parts
from crawler.model.url import fetch_form


class ErrandScheduler(Scheduler):
    _parts: Parts

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        scheduler = super().from_crawler(crawler)
        scheduler._parts = parts_of(crawler)
        return scheduler

    def enqueue_request(self, request: Request) -> bool:
        if _is_typed(request):
            self._parts.doors.open_also(request.url)
        elif fetch_form(request.url) is None:
            return False  # file:, which a person may open, and a page may not
        return super().enqueue_request(request)

    def close(self, reason: str) -> Deferred[None]:
        super().close(reason)
        return deferred_from_coro(self._parts.close(is_finished=False))


def _is_typed(request: Request) -> bool:
    """A person, or a spider's own code, has named its URL: no page of the web did."""
    return not request.meta.get("depth") and "redirect_times" not in request.meta

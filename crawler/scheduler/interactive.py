"""Scrapy's own scheduler, for `scrapy shell`, `fetch`, `view`, `parse` and `check`: their requests
call back into the process that waits for them, which no stored request can."""

from __future__ import annotations

from functools import cached_property

from scrapy import Request
from scrapy.core.scheduler import Scheduler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.model.url import fetch_form


class InteractiveScheduler(Scheduler):
    @cached_property
    def _crawl(self) -> Crawl:
        assert self.crawler is not None
        return crawl_of(self.crawler)

    def enqueue_request(self, request: Request) -> bool:
        if _is_typed(request):
            self._crawl.selection.allowed_origins.allow_start_url(request.url)
        elif fetch_form(request.url) is None:
            return False  # file: may be opened by the user, but not by a page
        return super().enqueue_request(request)

    def close(self, reason: str) -> Deferred[None]:
        super().close(reason)
        return deferred_from_coro(self._crawl.close(is_finished=False))


def _is_typed(request: Request) -> bool:
    """Return whether the user or the spider's code named the URL, not a page of the web."""
    return not request.meta.get("depth") and "redirect_times" not in request.meta

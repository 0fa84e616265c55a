"""Identify the crawler in each request, and keep leases from being copied between requests."""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from crawler.assembly.build import crawl_of
from crawler.config.settings import IdentitySettings
from crawler.crawl.request_meta import LEASE, own_meta

# As browsers send it; some servers answer 406 or an empty page to */* alone.
ACCEPT = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


class IdentityMiddleware:
    """Sets User-Agent, Accept and From, unless a spider has set them."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler).settings.config.identity)

    def __init__(self, identity: IdentitySettings) -> None:
        # Names as `Headers` keeps them, so that each request need not normalize them: 2 us each.
        self._headers = {b"User-Agent": identity.user_agent.encode(), b"Accept": ACCEPT}
        if identity.mailbox:
            self._headers[b"From"] = identity.mailbox.encode()

    def process_request(self, request: Request) -> None:
        for name, value in self._headers.items():
            dict.setdefault(request.headers, name, [value])


class LeaseMiddleware(BaseSpiderMiddleware):
    """Removes the lease and its like from the meta of requests that callbacks yield."""

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        if LEASE not in request.meta:
            return request
        # A copy, as a callback may yield the request that it was called for.
        return request.replace(meta=own_meta(request.meta))

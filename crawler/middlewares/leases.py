"""Keep a lease with its own request: `meta=response.meta` in a callback would copy it."""

from __future__ import annotations

from scrapy import Request
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from crawler.scheduler.flights import LEASE

# Of Scrapy's own: what belongs to one fetch, and would follow a copy of its meta.
_OF_ONE_FETCH = (LEASE, "download_slot", "download_latency", "verbatim_url", "redirect_times")


class LeaseMiddleware(BaseSpiderMiddleware):
    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        if LEASE not in request.meta:
            return request
        # A copy: a callback may yield the very request that is being finished.
        meta = {key: value for key, value in request.meta.items() if key not in _OF_ONE_FETCH}
        return request.replace(meta=meta)

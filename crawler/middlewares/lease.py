"""Keep leases from being copied between requests."""

from __future__ import annotations

from scrapy import Request
from scrapy.http import Response
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware

from crawler.engine.request_meta import LEASE, own_meta


class LeaseMiddleware(BaseSpiderMiddleware):
    """Removes the lease and its like from the meta of requests that callbacks yield."""

    def get_processed_request(self, request: Request, response: Response | None) -> Request | None:
        if LEASE not in request.meta:
            return request
        # A copy, as a callback may yield the request that it was called for.
        return request.replace(meta=own_meta(request.meta))

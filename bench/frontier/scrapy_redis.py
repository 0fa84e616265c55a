"""The queue and the seen test of scrapy-redis, as its scheduler calls them.

Rule: nothing of ours. The scheduler's own calls into Scrapy (statistics, signals) are left out,
in its favour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from scrapy import Request, Spider
from scrapy_redis.connection import get_redis  # type: ignore[import-untyped]  # it has no types
from scrapy_redis.dupefilter import RFPDupeFilter  # type: ignore[import-untyped]  # it has no types
from scrapy_redis.queue import FifoQueue  # type: ignore[import-untyped]  # it has no types

from bench.frontier.links import Client, Link, url_of

KEYS: Final = ("bench:requests", "bench:dupefilter")


class ScrapyRedis:
    def __init__(self, url: str, _client: Client) -> None:
        # As in bench/scrapy_redis_crawl: the list and the single connection are its cheapest.
        self._server = server = get_redis(url=url, single_connection_client=True)
        spider = Spider(name="bench")
        self._queue = FifoQueue(server, spider, KEYS[0])
        self._filter = RFPDupeFilter(server, KEYS[1])

    def prepare(self, found: Iterable[Link]) -> list[Any]:
        return [Request(url_of(link)) for link in found]

    def add(self, prepared: Sequence[Any]) -> None:
        for request in prepared:
            if not self._filter.request_seen(request):
                self._queue.push(request)

    def lease(self, limit: int) -> list[Any]:
        """Its pop takes the request out for ever: there is nothing to release or finish."""
        popped: list[Any] = []
        while len(popped) < limit and (request := self._queue.pop()) is not None:
            popped.append(request)
        return popped

    def release(self, leases: Sequence[Any]) -> None:
        """It knows no hosts."""

    def finish(self, leases: Sequence[Any]) -> None:
        """What it has popped it has forgotten."""

    def claim(self, count: int) -> None:
        """It knows no content."""

    def settle(self) -> None:
        """Each call has waited for its reply."""

    def known(self) -> int:
        return int(self._server.scard(KEYS[1]))

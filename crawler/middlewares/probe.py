"""Detect soft 404s: learn how a host answers a probe, a request for a URL that cannot exist.

Rule: a probe uses a lease of its host and is followed by a rest; the URL of the lease is put back.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.crawl.errors import LeaseEnded
from crawler.crawl.in_flight import Fetch
from crawler.crawl.precheck import ProbeResult
from crawler.middlewares.outcome import (
    answer_of,
    failed_answer,
    judge_answer,
)
from crawler.model.page import Source, Unreadable
from crawler.model.types import Purpose, PutBack, StoreUnavailable
from crawler.page.media_type import actual_type


class ProbeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    async def process_response(self, request: Request, response: Response) -> Response | Request:
        fetch = self._probe_fetch(request)
        if fetch is None:
            return response
        fetch.exchange = None  # it is not archived
        answer = answer_of(response, fetch, self._crawl)
        fetch.answer = judge_answer(answer, fetch, self._crawl)
        self._crawl.leases.completion.release(fetch)
        self._store_result(fetch, ProbeResult(None) if answer.error else await self._read(response))
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        fetch = self._probe_fetch(request)
        if fetch is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, request, fetch, self._crawl)
        if answer is not None:
            fetch.answer = judge_answer(answer, fetch, self._crawl)
        self._crawl.leases.completion.release(fetch)
        if fetch.answer is not None and fetch.answer.error == "cancelled":
            fetch.verdict = PutBack()  # by ourselves, so nothing is known of the host
        else:
            self._store_result(fetch, ProbeResult(None))
        return request.replace(dont_filter=True)

    def _probe_fetch(self, request: Request) -> Fetch | None:
        fetch = self._crawl.leases.in_flight.fetch_of(request)
        return fetch if fetch is not None and fetch.purpose is Purpose.PROBE else None

    def _store_result(self, fetch: Fetch, result: ProbeResult) -> None:
        fetch.verdict = PutBack()
        now, host = self._crawl.leases.clock.now(), fetch.lease.candidate.host
        try:
            self._crawl.selection.probes.store_result(host, fetch.authority, result, now)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)
        self._crawl.stats.count("soft_404/asked")

    async def _read(self, response: Response) -> ProbeResult:
        digest = sha1(response.body, usedforsecurity=False).digest()
        declared = (response.headers.get(b"Content-Type") or b"").decode("latin-1")
        sniffed = actual_type(declared, response.url, response.body)
        parser = self._crawl.content.parsers.parser_for(sniffed.media_type)
        if parser is None or response.status != 200:
            return ProbeResult(response.status, digest)
        try:
            source = Source(response.url, declared, response.body)
            parsed = await self._crawl.content.parsers.parse(source, parser)
        except Unreadable:
            return ProbeResult(response.status, digest)
        return ProbeResult(response.status, digest, parsed.title, parsed.text)

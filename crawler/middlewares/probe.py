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
from crawler.engine.errors import LeaseEnded
from crawler.loop.life import Life
from crawler.loop.precheck import ProbeResult
from crawler.middlewares.outcome import answer_of, challenge_of, failed_answer
from crawler.model.page import Source, Unreadable
from crawler.model.types import Purpose, StoreUnavailable
from crawler.page.media_type import actual_type


class ProbeMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    async def process_response(self, request: Request, response: Response) -> Response | Request:
        loop, life = self._crawl.loop, self._life_of_probe(request)
        if life is None:
            return response
        answer = loop.probe_answered(
            life, answer_of(response, life, loop, challenge_of(response, self._crawl))
        )
        failed = answer is not None and answer.error
        self._keep(life, ProbeResult(None) if failed else await self._read(response))
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        loop, life = self._crawl.loop, self._life_of_probe(request)
        if life is None or isinstance(exception, LeaseEnded):
            return None
        answer = loop.probe_answered(life, failed_answer(exception, request, life, loop))
        if answer is not None and answer.error == "cancelled":
            life.put_back()  # by ourselves, so nothing is known of the host
        else:
            self._keep(life, ProbeResult(None))
        return request.replace(dont_filter=True)

    def _life_of_probe(self, request: Request) -> Life | None:
        life = self._crawl.loop.lives.of(request)
        return life if life is not None and life.plan.purpose is Purpose.PROBE else None

    def _keep(self, life: Life, result: ProbeResult) -> None:
        try:
            self._crawl.loop.probed(life, result)
        except StoreUnavailable as error:
            self._crawl.lifecycle.fail(error)

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

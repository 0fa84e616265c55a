"""Tell the loop whether there is anything where an external link leads (`-a check_external=yes`).

Rule: the answer goes no further: it is not archived, parsed or given to a callback.
"""

from __future__ import annotations

from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.assembly.crawl import Crawl
from crawler.engine.errors import LeaseEnded
from crawler.loop.life import Life
from crawler.middlewares.outcome import answer_of, challenge_of, failed_answer
from crawler.model.page import AddressRefused, header_value
from crawler.model.types import Done


class CheckMiddleware:
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler))

    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl

    def process_response(self, request: Request, response: Response) -> Response | Request:
        loop, life = self._crawl.loop, self._life_of_check(request)
        if life is None:
            return response
        answer = answer_of(response, life, loop, challenge_of(response, self._crawl))
        loop.checked(life, answer, header_value(response.headers, b"Location"))
        return request.replace(dont_filter=True)

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        loop, life = self._crawl.loop, self._life_of_check(request)
        if life is None or isinstance(exception, LeaseEnded):
            return None
        answer = failed_answer(exception, request, life, loop)
        if answer is not None:
            loop.checked(life, answer)
        elif isinstance(exception, AddressRefused | IgnoreRequest):
            loop.unchecked(life, Done(), str(exception))
        else:
            return None  # an error of a middleware: the downloader notes it
        return request.replace(dont_filter=True)

    def _life_of_check(self, request: Request) -> Life | None:
        life = self._crawl.loop.lives.of(request)
        return life if life is not None and life.is_of_check else None

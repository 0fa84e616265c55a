"""One downloader middleware and one spider middleware."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response


class Passport:
    """Shows a header with every request, refuses a place, and stamps every answer."""

    def process_request(self, request: Request) -> None:
        if request.url.endswith("/forbidden-by-me"):
            raise IgnoreRequest("not on my watch")
        request.headers["X-Passport"] = "1234"

    def process_response(self, request: Request, response: Response) -> Response:
        response.flags.append("stamped")
        return response


class Censor:
    """Drop everything from a page about secrets."""

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for found in result:
            if b"secret" not in response.body:
                yield found

    def process_spider_exception(self, response: Response, exception: Exception) -> Iterable[Any]:
        return [{"url": response.url, "broke": str(exception)}]

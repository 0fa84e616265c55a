"""Two spiders: one all of its own, one that is ours and brings something more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from scrapy import Request, Spider
from scrapy.http import Response

from crawler.api import WebSpider


class Shop(Spider):
    """Logs in, and reads the prices of what it finds."""

    name = "shop"
    root: str

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root + "/login", method="POST", body=b"who=me", callback=self.welcome)

    def welcome(self, response: Response) -> Iterable[Any]:
        for number, path in enumerate(("item", "item?again", "forbidden", "forbidden-by-me")):
            yield response.follow("/" + path, self.item, priority=-number, cb_kwargs={"n": number})
        yield response.follow("/broken", self.broken)

    def item(self, response: Response, n: int) -> Iterable[Any]:
        yield {"url": response.url, "price": response.css("b::text").get(), "n": n}

    def broken(self, response: Response) -> Iterable[Any]:
        raise ValueError("no price")


class Titles(WebSpider):
    """Everything that `web` does, and an item of its own for each page."""

    name = "titles"

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        async for page in super().parse(response):
            yield page
        yield {"url": response.url, "length": len(response.body)}

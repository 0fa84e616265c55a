"""Components of a project that uses the crawler, each with a habit the commands must bear."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, Self

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Response


class OtherSpider(Spider):
    """Its arguments are its own: Scrapy keeps the last of those given twice."""

    name = "other"

    def __init__(self, url: str, word: str = "", **given: Any) -> None:
        super().__init__(**given)
        if word == "bad":
            raise RuntimeError("an error of the spider's own")
        self.url, self.word = url, word

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url)

    def parse(self, response: Response) -> dict[str, object]:
        self.logger.info("parsed %s %s", self.word, response.status)
        return {"word": self.word}


class OldStart(Spider):
    """Written for a Scrapy that called `start_requests`."""

    name = "old_start"

    def start_requests(self) -> list[Request]:
        return [Request("http://127.0.0.1/")]


class Interrupted:
    """Ctrl-C while the crawl is still being put together."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        os.kill(os.getpid(), signal.SIGINT)
        return cls()


class FailsToOpen:
    """A pipeline that cannot be opened, as if its database were down."""

    def open_spider(self) -> None:
        raise RuntimeError("it does not open")

    def process_item(self, item: object) -> object:
        return item


class FailsToBeBuilt:
    """A pipeline that misses a setting of its own, say."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        raise RuntimeError("it cannot be built")

    def process_item(self, item: object) -> object:
        return item


class SelectingSpider(Spider):
    """A spider like most: each of its responses and its selector refer to each other."""

    name = "selecting"

    def __init__(self, url: str, **given: Any) -> None:
        super().__init__(**given)
        self.url = url

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.url)

    def parse(self, response: Response) -> dict[str, object]:
        return {"titles": response.css("title::text").getall()}


class ThresholdReport:
    """An add-on that logs the threshold of the garbage collector at the end."""

    def __init__(self, crawler: Crawler) -> None:
        crawler.signals.connect(self.closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def closed(self) -> None:
        logging.getLogger(__name__).info(
            "new objects: %s, kept for ever: %s", gc.get_threshold()[0], gc.get_freeze_count() > 0
        )

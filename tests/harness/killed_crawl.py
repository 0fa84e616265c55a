"""A crawl that kills itself with `kill -9` when it has archived some answers and not finished the
last, or when some have arrived, finished or not."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from scrapy import Request, signals
from scrapy.crawler import Crawler

from crawler.engine.request_meta import LEASE
from crawler.model.page import Page
from tests.harness.crawling import crawl

ARCHIVED: Final = "KILLED_CRAWL_ARCHIVED"
ARRIVED: Final = "KILLED_CRAWL_ARRIVED"
LAST: Final = "last"
"""In its data directory, a line for each kill: the URL of a page that was archived and not
finished, or nothing."""
Item = TypeVar("Item")


class KillsItself:
    """A pipeline between the archive and the frontier."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        pipeline = cls(Path(crawler.settings["CRAWLER_DATA_DIR"]) / LAST)
        crawler.signals.connect(pipeline._redirected, signals.request_scheduled)
        crawler.signals.connect(pipeline._arrived, signals.response_received)
        return pipeline

    def __init__(self, last: Path) -> None:
        self._last = last
        self._left = int(os.environ.get(ARCHIVED, "0"))
        self._left_arriving = int(os.environ.get(ARRIVED, "0"))

    async def process_item(self, item: Item) -> Item:
        if isinstance(item, Page):
            self._archived(item.url)
        return item

    def _redirected(self, request: Request) -> None:
        """A redirect comes by as what stands in for its request."""
        if LEASE in request.meta:
            self._archived()

    def _arrived(self) -> None:
        self._left_arriving -= 1
        if not self._left_arriving:
            self._kill("")

    def _archived(self, url: str = "") -> None:
        self._left -= 1
        if not self._left:
            self._kill(url)

    def _kill(self, url: str) -> None:
        with self._last.open("a") as last:
            last.write(f"{url}\n")
        os.kill(os.getpid(), signal.SIGKILL)


def crawl_until_killed(
    data: Path,
    seeds: str,
    answers: int,
    arrived: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Crawl until as many *answers* are archived, or have *arrived*; with neither to the end."""
    os.environ[ARCHIVED], os.environ[ARRIVED] = str(answers), str(arrived)
    crawled = crawl(
        data,
        settings={
            "ITEM_PIPELINES": {KillsItself: 350},
            "CRAWLER_MIN_DELAY_S": 0,
            "CRAWLER_DELAY_FACTOR": 0,
            "CRAWLER_FSYNC": False,  # lives of a few answers would never finish a page
            "CRAWLER_WARC_MAX_BYTES": 1024 * 1024,
            **(settings or {}),
        },
        seeds=seeds,
    )
    assert crawled.reason == "finished"

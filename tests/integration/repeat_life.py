"""A crawl that dies by `kill -9` when it has archived some answers, and not finished the last."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from scrapy import Request, signals
from scrapy.crawler import Crawler

from crawler.core.page import Page
from crawler.scheduler.flights import LEASE
from tests.crawling import crawl

DEATH: Final = "REPEAT_LIFE_DEATH"
DEATH_AFTER_S: Final = "REPEAT_LIFE_DEATH_AFTER_S"
Item = TypeVar("Item")


class Dies:
    """Stands between the archive and the frontier."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        dies = cls()
        crawler.signals.connect(dies._redirected, signals.request_scheduled)
        return dies

    def __init__(self) -> None:
        self._left = int(os.environ.get(DEATH, "0"))
        self._after_s = float(os.environ.get(DEATH_AFTER_S, "0"))

    async def process_item(self, item: Item) -> Item:
        if isinstance(item, Page):
            self._archived()
        return item

    def _redirected(self, request: Request) -> None:
        """A redirect comes by as what stands in for its request."""
        if LEASE in request.meta:
            self._archived()

    def _archived(self) -> None:
        if self._left:
            self._left -= 1
            if not self._left:
                _die()
        elif self._after_s:
            threading.Timer(self._after_s, _die).start()
            self._after_s = 0.0


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def live(
    data: Path,
    seeds: str,
    answers: int,
    after_s: float = 0.0,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """*answers*: the last of them is the end; 0: *after_s* from the first of them, at any moment;
    neither: to a better end."""
    os.environ[DEATH], os.environ[DEATH_AFTER_S] = str(answers), str(after_s)
    crawled = crawl(
        data,
        settings={
            "ITEM_PIPELINES": {Dies: 350},
            "CRAWLER_MIN_DELAY_S": 0,
            "CRAWLER_DELAY_FACTOR": 0,
            "CRAWLER_WARC_MAX_BYTES": 1024 * 1024,
            **(settings or {}),
        },
        seeds=seeds,
    )
    assert crawled.reason == "finished"

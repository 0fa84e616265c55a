"""A crawl that dies by `kill -9` when it has archived some pages, and not finished the last."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final, TypeVar

from crawler.core.page import Page
from tests.crawling import crawl

DEATH: Final = "REPEAT_LIFE_DEATH"
Item = TypeVar("Item")


class Dies:
    """Stands between the archive and the frontier."""

    def __init__(self) -> None:
        self._left = int(os.environ.get(DEATH, "0"))

    async def process_item(self, item: Item) -> Item:
        if isinstance(item, Page) and self._left:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        return item


def live(data: Path, seeds: str, pages: int) -> None:
    """*pages*: the last of them is the end; 0: to a better one."""
    os.environ[DEATH] = str(pages)
    crawled = crawl(
        data,
        settings={
            "ITEM_PIPELINES": {Dies: 350},
            "CRAWLER_MIN_DELAY_S": 0,
            "CRAWLER_DELAY_FACTOR": 0,
            "CRAWLER_WARC_MAX_BYTES": 1024 * 1024,
        },
        seeds=seeds,
    )
    assert crawled.reason == "finished"

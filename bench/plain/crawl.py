"""The crawl to beat: plain Scrapy as its documentation sets it up for broad crawls.

Rule: nothing of ours. `python -m bench.plain.crawl SEEDS PAGES` follows every link that
LinkExtractor finds, stores nothing and keeps no delays. What the settings leave out is the
default of Scrapy, so robots.txt is not asked for: the comparison errs in its favour.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from scrapy import Request, Spider
from scrapy.crawler import AsyncCrawlerProcess
from scrapy.http import Response, TextResponse
from scrapy.linkextractors import LinkExtractor

SETTINGS: Final[dict[str, Any]] = {
    # docs.scrapy.org, "Broad Crawls", from top to bottom
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "CONCURRENT_REQUESTS": 100,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "INFO",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "DOWNLOAD_TIMEOUT": 15,
    "REDIRECT_ENABLED": False,
    "DEPTH_PRIORITY": 1,
    "SCHEDULER_DISK_QUEUE": "scrapy.squeues.PickleFifoDiskQueue",
    "SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue",
    # the loop that ours runs on, so that the crawlers are compared and not the loops
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
    # it listens on a port, which is no part of a crawl
    "TELNETCONSOLE_ENABLED": False,
    "REMOTE_CONTROL_ENABLED": False,
}


class Plain(Spider):
    name = "plain"

    def __init__(self, seeds: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seeds = Path(seeds).read_text().split()
        self._links = LinkExtractor()

    async def start(self) -> AsyncIterator[Request]:
        for seed in self._seeds:
            yield Request(seed)

    def parse(self, response: Response, **arguments: Any) -> Iterator[Request]:
        assert isinstance(response, TextResponse), "the synthetic web serves HTML only"
        for link in self._links.extract_links(response):
            yield Request(link.url)


def main(seeds: str, pages: str) -> None:
    process = AsyncCrawlerProcess({**SETTINGS, "CLOSESPIDER_PAGECOUNT": int(pages)})
    process.crawl(Plain, seeds=seeds)
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])

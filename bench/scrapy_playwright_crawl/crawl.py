"""Rendering to compare with: plain Scrapy over scrapy-playwright.

Rule: nothing of ours. `python crawl.py URLS BROWSER TABS` renders the URLs that are in a file, by
the browser at a path, in so many pages at once, and prints the pages and words that it saw, as
JSON. It has its own installation, for scrapy-playwright 0.0.48 as its documentation sets it up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy_playwright.page import PageMethod  # type: ignore[import-not-found]  # see above


class Rendered(scrapy.Spider):
    """Counts the words of rendered pages."""

    name = "rendered"
    urls: list[str]
    pages = 0
    words = 0

    async def start(self) -> AsyncIterator[Any]:
        for url in self.urls:
            ready = PageMethod("wait_for_load_state", "networkidle")
            meta = {"playwright": True, "playwright_page_methods": [ready]}
            yield scrapy.Request(url, meta=meta)

    def parse(self, response: Response, **kwargs: Any) -> None:
        Rendered.pages += 1
        text = response.xpath("//body//text()[not(ancestor::script or ancestor::style)]").getall()
        Rendered.words += sum(len(each.split()) for each in text)


def main(urls: str, browser: str, tabs: str) -> None:
    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    launch = {"executable_path": browser, "args": ["--no-sandbox"]}  # root has no sandbox
    process = CrawlerProcess(
        {
            "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
            "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
            "PLAYWRIGHT_LAUNCH_OPTIONS": launch,
            "PLAYWRIGHT_MAX_PAGES_PER_CONTEXT": int(tabs),
            "ROBOTSTXT_OBEY": True,
            "LOG_LEVEL": "WARNING",
        }
    )
    process.crawl(Rendered, urls=Path(urls).read_text().split())
    process.start()
    print(json.dumps({"pages": Rendered.pages, "words": Rendered.words}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A project's own components in settings.py work beside ours: one of each, in one crawl."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import Response

from crawler.model.page import Page
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site


class OwnDownloader:
    """Adds a header; notes what it is shown."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        own = cls()
        own.stats = crawler.stats
        return own

    stats: Any

    def process_request(self, request: Request) -> None:
        request.headers[b"X-Own"] = b"yes"

    def process_response(self, request: Request, response: Response) -> Response:
        self.stats.inc_value(f"own/saw_{response.status}")
        if b"Content-Encoding" in response.headers:
            self.stats.inc_value("own/saw_compressed")
        return response


class OwnSpiderMiddleware:
    """Writes a title of its own into each page, and adds an item."""

    async def process_spider_output(
        self, response: Response, result: AsyncIterator[Any]
    ) -> AsyncIterator[Any]:
        async for item in result:
            yield item
        yield {"own": response.url}


class OwnPipeline:
    """A pipeline between parse and archive: it reads the title, and can keep a page out of the
    archive."""

    def process_item(self, item: Any) -> Any:
        if not isinstance(item, Page):
            return item
        if item.title == "secret":
            raise DropItem("not to be kept")
        return replace(item, title=item.title.upper())


class OwnExtension:
    """Counts what comes out at the end."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        own = cls()
        own.stats = crawler.stats
        crawler.signals.connect(own.scraped, signals.item_scraped)
        return own

    stats: Any

    def scraped(self, item: Any) -> None:
        kind = f"page_{item.title}" if isinstance(item, Page) else "item"
        self.stats.inc_value(f"own/{kind}")


OWN = {
    "DOWNLOADER_MIDDLEWARES": {OwnDownloader: 543},
    "SPIDER_MIDDLEWARES": {OwnSpiderMiddleware: 543},
    "ITEM_PIPELINES": {OwnPipeline: 250},
    "EXTENSIONS": {OwnExtension: 500},
}


def test_components_of_users_work_beside_ours(tmp_path: Path) -> None:
    home = gzip.compress(str(page("/old", "/secret", text="home").body).encode())
    coded = (("Content-Encoding", "gzip"),)
    routes = {
        "/robots.txt": Reply("User-agent: *\nAllow: /"),
        "/": Reply(home, content_type="text/html", headers=coded),
        "/old": Reply(status=301, headers=(("Location", "/new"),)),
        "/new": page(text="new"),
        "/secret": page(text="secret"),
    }
    with site("127.0.5.7", routes) as web:
        done = crawl(tmp_path / "data", settings=OWN, seeds=web.url("/"))

    assert done.reason == "finished"
    own = {key: value for key, value in done.stats.items() if key.startswith("own/")}
    assert own == {
        "own/saw_200": 3,  # neither robots.txt nor the redirect: those are ours
        "own/page_HOME": 1,
        "own/page_NEW": 1,
        "own/item": 3,
    }
    assert done.fates() == {"/": ["done"], "/old": ["moved"], "/new": ["done"], "/secret": ["done"]}
    files = (tmp_path / "data" / "warc").glob("*.warc.gz")
    archive = b"".join(gzip.decompress(file.read_bytes()) for file in files)
    assert b"X-Own: yes" in archive
    assert b"/new" in archive
    assert b"secret</title>" not in archive

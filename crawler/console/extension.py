"""The console of a crawl that runs: pages on which its operators see it, beside the verbs that they
act on it by (crawler/operate/). It can be off.

Rule: what shows the crawl is imported and made when it is first looked for, as in
crawler/operate/steering.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from scrapy.crawler import Crawler

from crawler.assembly.build import crawl_of
from crawler.operate.steering import Pages
from crawler.view.place import place_within

if TYPE_CHECKING:
    from aiohttp import web

    from crawler.console.pages import CrawlPages


class Console(Pages):
    """The extension that shows a crawl to a browser."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._pages: CrawlPages | None = None

    def add_to(self, app: web.Application) -> None:
        if self._pages is None:
            self._pages = self._made_pages()
        self._pages.add_to(app)

    async def close(self) -> None:
        if self._pages is not None:
            await self._pages.close()

    def _made_pages(self) -> CrawlPages:
        from crawler.console.live import LiveFigures  # noqa: PLC0415  # see the rule
        from crawler.console.pages import CrawlPages  # noqa: PLC0415  # the same
        from crawler.console.views import Shown  # noqa: PLC0415  # the same

        crawl, settings = crawl_of(self._crawler), self._crawler.settings
        assert self._crawler.spider is not None  # it is open
        live = LiveFigures(crawl, self._crawler.spider.name)
        shown = Shown(place_within(crawl, settings), settings, crawl.loop.open_fetches)
        return CrawlPages(shown, live.overview, live.events)

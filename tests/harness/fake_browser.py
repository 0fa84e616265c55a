"""A downloader middleware in the place of a browser: it has the DOM of each page ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import urlsplit

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from crawler.assembly.build import crawl_of
from crawler.loop.life import Lives
from crawler.model.page import DOM_TYPE, Exchange, Rendered

PLACE: Final = 585  # between DecodeMiddleware and OutcomeMiddleware
RENDERED: Final = Rendered(ms=312, requests=1, left_out=2, is_quiet=False)
BUNDLE: Final = b"document.body.append('built')"


class FakeBrowser:
    """Renders the pages that the setting TEST_DOMS has, by their paths; each asks for a script."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawl_of(crawler).loop.lives, crawler.settings["TEST_DOMS"])

    def __init__(self, lives: Lives, doms: Mapping[str, bytes]) -> None:
        self._lives = lives
        self._doms = doms

    def process_response(self, request: Request, response: Response) -> Response:
        life, dom = self._lives.of(request), self._doms.get(urlsplit(response.url).path)
        if life is None or life.exchange is None or not life.is_of_page or dom is None:
            return response
        life.receive(_script(life.exchange), *life.exchanges)
        life.note_rendered(RENDERED)
        return response.replace(body=dom, headers={b"Content-Type": [DOM_TYPE.encode()]})


def _script(of: Exchange) -> Exchange:
    """What the page at *of* asks for."""
    url = urlsplit(of.url)._replace(path="/bundle.js", query="").geturl()
    return Exchange(
        url=url,
        at=of.at + 0.001,
        duration_s=0.001,
        request_head=b"GET /bundle.js HTTP/1.1\r\n\r\n",
        head=b"HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\n\r\n",
        body=BUNDLE,
        ip=of.ip,
    )

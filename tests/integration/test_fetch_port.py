"""What stands behind the fetch port may fetch more than the request says, as a browser does."""

from __future__ import annotations

from pathlib import Path

from scrapy.crawler import Crawler

from crawler.archive.lookup import entries, warc_files
from crawler.assembly.build import crawl_of
from crawler.download.handler import FetchHandler
from crawler.download.network import NetworkFetch
from crawler.download.port import Fetched, FetchWatch, WireRequest
from crawler.download.resolver import AresLookup, Resolver
from crawler.download.watch import WatchParts
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site

ROUTES = {
    "/": page("/next", "/moved"),
    "/next": page(),
    "/moved": Reply(status=302, headers=(("Location", "/target"),)),
    "/target": page(),
    "/style": Reply("p {}", headers=(("Content-Type", "text/css"),)),
}


class Browser(NetworkFetch):
    """It fetches a style sheet with each page, and that first."""

    async def fetch(self, request: WireRequest, watch: FetchWatch) -> Fetched:
        fetched = await super().fetch(request, watch)
        if request.url.endswith("/robots.txt"):
            return fetched
        style = WireRequest(url=request.url.rpartition("/")[0] + "/style")
        also = await super().fetch(style, watch)
        return Fetched(exchanges=(*also.exchanges, *fetched.exchanges), head=fetched.head)


class BrowserHandler(FetchHandler):
    @classmethod
    def from_crawler(cls, crawler: Crawler) -> BrowserHandler:
        crawl = crawl_of(crawler)
        options = crawl.download_options()
        port = Browser(options, Resolver(options.admits, AresLookup()))
        parts = WatchParts(crawler, options, crawl.loop, crawl.fetching.body_memory)
        return cls(crawler, port, parts)


def test_one_lease_may_bring_many_exchanges(tmp_path: Path) -> None:
    settings = {"DOWNLOAD_HANDLERS": {"http": BrowserHandler}}
    with site("127.0.5.2", ROUTES) as web:
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url("/"), scope="host")
    assert done.fates() == {
        **{path: ["done"] for path in ("/", "/next", "/target")},
        "/moved": ["moved"],
    }
    (file,) = warc_files(done.data / "warc")
    archived = sorted(entries(file), key=lambda entry: entry.place.offset)
    paths = [entry.url.removeprefix(web.url("")) for entry in archived]
    assert paths[::2] == ["/style"] * 4, "the record of the page comes last, before its links"
    assert sorted(paths[1::2]) == ["/", "/moved", "/next", "/target"]
    style = next(outcome.size for outcome in done.outcomes if outcome.url.endswith("/target"))
    assert style == sum(len(ROUTES[path].body) for path in ("/target", "/style"))

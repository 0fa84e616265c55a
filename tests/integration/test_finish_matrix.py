"""Every way a request can end completes its lease exactly once, with the right verdict."""

from __future__ import annotations

import pytest
from scrapy import Request, Spider
from scrapy.exceptions import DropItem, IgnoreRequest

from crawler.assembly.build import crawl_of
from crawler.download.handler import FetchHandler
from crawler.engine.errors import LeaseEnded
from tests.harness.crawling import crawl
from tests.servers.loopback import Reply, page, site


class Drops:
    def process_item(self, item):
        if isinstance(item, dict) and "drop" in item:
            raise DropItem("not wanted")
        if isinstance(item, dict) and "break" in item:
            raise RuntimeError("the pipeline broke")
        return item


class Interferes:
    """A user's downloader middleware."""

    def process_request(self, request):
        if request.url.endswith("/ignored"):
            raise IgnoreRequest("by the user's own middleware")
        if request.url.endswith("/broken_before"):
            raise KeyError("a user's middleware broke")

    def process_response(self, request, response):
        if request.url.endswith("/broken_after"):
            raise KeyError("a user's middleware broke")
        if request.url.endswith("/swapped") and not request.meta.get("swapped"):
            return request.replace(
                url=request.url.replace("/swapped", "/instead"),
                meta={**request.meta, "swapped": True},
            )
        return response


class Own(Spider):
    """A spider of a user's own: every callback the matrix needs."""

    name = "own"
    first: str
    seen: list[str]

    async def start(self):
        self.seen = []
        yield Request(self.first, callback=self.fork, errback=self.failed)

    def fork(self, response):
        self.seen.append("fork")
        for path in self.paths.split():
            callback = getattr(self, path.partition("/")[0], self.nothing)
            yield Request(
                response.urljoin("/" + path), callback=callback, errback=self.failed,
                cb_kwargs={"given": path}, meta={"kept": [1, "two"]},
            )  # fmt: skip

    def nothing(self, response, given):
        assert response.meta["kept"] == [1, "two"]
        self.seen.append(given)

    def several(self, response, given):
        self.seen.append(given)
        yield {"item": 1}
        yield {"item": 2}

    def dropped(self, response, given):
        yield {"drop": True}

    def broken_pipeline(self, response, given):
        self.seen.append(given)
        yield {"break": True}

    def broken_callback(self, response, given):
        self.seen.append(given)
        yield {"item": 1}
        raise ValueError("the callback broke")

    async def beside(self, response, given):
        beside = await self.crawler.engine.download_async(Request(response.urljoin("/extra")))
        self.seen.append(f"beside {beside.status}")

    def copies(self, response, given):
        """`meta=response.meta` is what many spiders do."""
        yield Request(response.urljoin("/copied"), meta=response.meta, callback=self.last)

    def last(self, response):
        self.seen.append("copied")

    def failed(self, failure):
        self.seen.append(f"errback {failure.type.__name__}")


class StandsStill(FetchHandler):
    """As if each URL's first lease had ended while its request was made."""

    @classmethod
    def from_crawler(cls, crawler):
        handler = super().from_crawler(crawler)
        handler.lives, handler.stood = crawl_of(crawler).loop.lives, set()
        return handler

    async def download_request(self, request):
        if request.url in self.stood:
            return await super().download_request(request)
        self.stood.add(request.url)
        self.lives.of(request).put_back()
        raise LeaseEnded


ROUTES = {
    "/": page(),
    "/nothing": page(),
    "/several": page(),
    "/dropped": page(),
    "/broken_pipeline": page(),
    "/broken_callback": page(),
    "/beside": page(),
    "/extra": page(),
    "/copies": page(),
    "/copied": page(),
    "/ignored": page(),
    "/broken_before": page(),
    "/broken_after": page(),
    "/swapped": page(),
    "/instead": page(),
    "/redirect": Reply(status=302, headers=(("Location", "/target"),)),
    "/target": page(),
    "/retry": lambda hit: Reply(status=503) if hit == 1 else page(),
    "/gone-for-good": Reply(status=503),
}


@pytest.mark.parametrize(
    ("path", "fates", "seen"),
    [
        pytest.param("nothing", {"/nothing": ["done"]}, ["nothing"], id="a callback without items"),
        pytest.param("several", {"/several": ["done"]}, ["several"], id="several items"),
        pytest.param("missing", {"/missing": ["done"]}, ["errback HttpError"], id="404"),
        pytest.param(
            "ignored", {"/ignored": ["done"]}, ["errback IgnoreRequest"], id="ignored by the user"
        ),
        pytest.param(
            "redirect", {"/redirect": ["moved"], "/target": ["done"]}, ["redirect"], id="redirect"
        ),
        pytest.param("retry", {"/retry": ["retry", "done"]}, ["retry"], id="retry, then an answer"),
        pytest.param(
            "gone-for-good",
            {"/gone-for-good": ["retry", "dead"]},
            ["errback HttpError"],
            id="retries used up",
        ),
        pytest.param(
            "broken_callback",
            {"/broken_callback": ["dead"]},
            ["broken_callback"],
            id="a callback that raises",
        ),
        pytest.param(
            "broken_pipeline",
            {"/broken_pipeline": ["dead"]},
            ["broken_pipeline"],
            id="a pipeline that raises",
        ),
        pytest.param(
            "broken_before",
            {"/broken_before": ["dead"]},
            ["errback KeyError"],
            id="a downloader middleware that raises before the fetch",
        ),
        pytest.param(
            "broken_after",
            {"/broken_after": ["dead"]},
            ["errback KeyError"],
            id="a downloader middleware that raises after it",
        ),
        pytest.param("dropped", {"/dropped": ["done"]}, [], id="a dropped item"),
        pytest.param(
            "swapped",
            {"/swapped": ["moved"], "/instead": ["done"]},
            ["swapped"],
            id="a middleware that asks for another URL",
        ),
        pytest.param(
            "beside", {"/beside": ["done"]}, ["beside 200"], id="engine.download_async beside"
        ),
        pytest.param(
            "copies",
            {"/copies": ["done"], "/copied": ["done"]},
            ["copied"],
            id="meta copied from the response",
        ),
    ],
)
def test_every_end_lands_once(tmp_path, path, fates, seen):
    settings = {
        "ITEM_PIPELINES": {Drops: 50},
        "DOWNLOADER_MIDDLEWARES": {Interferes: 543},
        "CRAWLER_RETRIES": 1,
    }
    with site("127.0.5.1", ROUTES) as web:
        done = crawl(tmp_path / "data", Own, settings, first=web.url("/"), paths=path)
    assert done.reason == "finished"
    assert done.fates() == {"/": ["done"], **fates}
    assert done.spider.seen == ["fork", *seen]
    assert done.stats.get("item_scraped_count", 0) == {"several": 2, "broken_callback": 1}.get(
        path, 0
    )


@pytest.mark.parametrize("path", ["broken_callback", "broken_pipeline", "broken_before"])
def test_a_setting_lets_errors_of_code_be_tried_again(tmp_path, path):
    settings = {
        "ITEM_PIPELINES": {Drops: 50},
        "DOWNLOADER_MIDDLEWARES": {Interferes: 543},
        "CRAWLER_CALLBACK_RETRIES": 1,
    }
    with site("127.0.5.1", ROUTES) as web:
        done = crawl(tmp_path / "data", Own, settings, first=web.url("/"), paths=path)
    assert done.fates() == {"/": ["done"], f"/{path}": ["retry", "dead"]}
    assert len(done.spider.seen) == 3, "fork, and twice the callback or errback"


def test_a_refused_connection_is_tried_again_and_then_a_dead_letter(tmp_path):
    with site("127.0.5.1", ROUTES) as web:
        gone = web.url("/nothing")
    done = crawl(tmp_path / "data", Own, {"CRAWLER_ROBOTS_TRIES": 2}, first=gone, paths="")
    assert done.reason == "finished"
    assert done.fates() == {"/nothing": ["dead"]}, "its robots.txt cannot be reached either"
    assert "robots.txt unreachable" in done.outcomes[-1].reason


def test_a_lease_that_ended_before_its_fetch_is_put_back_and_does_not_count_for_its_host(tmp_path):
    settings = {"DOWNLOAD_HANDLERS": {"http": StandsStill}, "CRAWLER_ROBOTS_TRIES": 1}
    with site("127.0.5.1", ROUTES) as web:
        done = crawl(tmp_path / "data", settings=settings, seeds=web.url("/"))
    assert done.fates() == {"/": ["done"]}
    assert web.asked == ["/robots.txt", "/"]

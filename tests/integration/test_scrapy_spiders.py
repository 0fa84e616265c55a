"""Spiders as Scrapy users write them, over the frontier: each habit in one spider."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import pytest
from itemadapter import ItemAdapter
from scrapy import Item, Request, Spider, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    CloseSpider,
    DontCloseSpider,
    DownloadConnectionRefusedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
)
from scrapy.http import FormRequest, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.settings import Settings
from scrapy.spiders import CrawlSpider, Rule, SitemapSpider
from twisted.internet.error import ConnectionRefusedError as TwistedRefusedError
from twisted.internet.error import DNSLookupError
from twisted.internet.error import TimeoutError as TwistedTimeoutError
from twisted.python.failure import Failure

from crawler.config.settings import read_config
from crawler.data.data_dir import read_format
from crawler.data.outcomes import read_outcomes
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.model.types import Candidate, ConfigError, DataDirError
from crawler.report.why_text import why_text
from crawler.spiders.pages import page_of
from crawler.spiders.web import WebSpider
from crawler.view.identity import UrlIdentifier
from crawler.view.local import LocalView
from crawler.view.why import why
from tests.harness.commands import PATIENCE_S
from tests.harness.crawling import QUICK, Crawled, crawl
from tests.harness.scrapy_project import write_project
from tests.harness.sources import PROJECT
from tests.servers.loopback import Ask, LoopbackWeb, Reply, Site, page, site
from tests.servers.redis_process import free_port

ROUTES = {
    "/": page("/lamp", "/more", "/gone", text="home"),
    "/lamp": page("/unknown", text="lamp"),
    "/more": page("/lamp2", text="more"),
    "/lamp2": page(text="lamp 2"),
    "/login": Reply("in", headers=(("Set-Cookie", "who=me"),)),
    "/basket": Reply("basket"),
    "/gone": Reply("gone", 404),
    "/busy": Reply("not now", 503),
    "/mirror": Reply("from the mirror"),
    "/picture": Reply(b"\x89PNG", content_type="image/png"),
}


@pytest.fixture
def web() -> Iterator[Site]:
    with site("127.0.0.77", ROUTES) as served:
        yield served


def crawled(
    data: Path, spider: type[Spider], settings: dict[str, Any] | None = None, **arguments: Any
) -> tuple[Crawled, list[Any]]:
    """And its items."""
    items: list[Any] = []

    class Watched(spider):  # type: ignore[valid-type, misc]  # whichever is given
        @classmethod
        def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
            crawler.signals.connect(note, signals.item_scraped)
            return super().from_crawler(crawler, *args, **kwargs)

    def note(item: Any) -> None:
        items.append(item)

    Watched.__name__ = spider.__name__
    return crawl(data, Watched, settings, **arguments), items


class Rules(CrawlSpider):
    name = "rules"
    rules = (
        Rule(LinkExtractor(allow="/lamp"), callback="lamp", cb_kwargs={"kind": "lamp"}),
        Rule(LinkExtractor(allow="/more"), follow=True),
    )

    def lamp(self, response: Response, kind: str) -> Iterable[Any]:
        yield {"url": response.url, "kind": kind, "linked_as": response.meta["link_text"]}


def test_a_crawl_spider_follows_its_rules(tmp_path: Path, web: Site) -> None:
    done, items = crawled(tmp_path, Rules, start_urls=[web.url("/")])
    assert sorted((item["url"], item["linked_as"]) for item in items) == [
        (web.url("/lamp"), "/lamp"),
        (web.url("/lamp2"), "/lamp2"),
    ]
    assert all(item["kind"] == "lamp" for item in items)
    assert sorted(web.hits) == ["/", "/lamp", "/lamp2", "/more", "/robots.txt"]
    assert done.reason == "finished"


class Map(SitemapSpider):
    name = "map"
    sitemap_rules: ClassVar = [("/lamp", "lamp")]

    def lamp(self, response: Response) -> Iterable[Any]:
        yield {"url": response.url}


def test_a_sitemap_spider_reads_its_sitemaps(tmp_path: Path) -> None:
    routes = {**ROUTES}
    with site("127.0.0.77", routes) as web:
        listed = f"<urlset><url><loc>{web.url('/lamp')}</loc></url></urlset>"
        routes["/sitemap.xml"] = Reply(listed, content_type="application/xml")
        routes["/robots.txt"] = Reply(f"Sitemap: {web.url('/sitemap.xml')}")
        _, items = crawled(tmp_path, Map, sitemap_urls=[web.url("/robots.txt")])
    assert items == [{"url": web.url("/lamp")}]


class Habits(Spider):
    """Forms, cookies, cb_kwargs, errbacks, an idle signal, and an end of its own."""

    name = "habits"
    custom_settings: ClassVar = {"COOKIES_ENABLED": True}
    root: str

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root + "/login", self.welcome, meta={"cookiejar": 1})
        yield Request(self.root + "/gone", self.welcome, errback=self.failed)
        self.crawler.signals.connect(self.idle, signals.spider_idle)

    def welcome(self, response: Response) -> Iterable[Any]:
        jar = {"cookiejar": response.meta["cookiejar"]}
        form = {"formdata": {"a": "1"}, "cb_kwargs": {"n": 1}, "meta": jar}
        yield FormRequest(self.root + "/basket", callback=self.basket, **form)
        yield FormRequest(self.root + "/basket", callback=self.basket, **form)  # seen
        yield FormRequest(self.root + "/basket", callback=self.basket, dont_filter=True, **form)

    def basket(self, response: Response, n: int) -> Iterable[Any]:
        assert response.request is not None
        yield {"n": n, "cookie": response.request.headers[b"Cookie"].decode()}

    def failed(self, failure: Failure) -> Iterable[Any]:
        yield {"failed": type(failure.value).__name__}

    def idle(self) -> None:
        self.crawler.signals.disconnect(self.idle, signals.spider_idle)
        assert self.crawler.engine is not None
        self.crawler.engine.crawl(Request(self.root + "/lamp", callback=self.last))
        raise DontCloseSpider

    def last(self, response: Response) -> Iterable[Any]:
        yield {"last": True}
        raise CloseSpider("enough")


def test_habits_of_scrapys_users_work(tmp_path: Path, web: Site) -> None:
    done, items = crawled(tmp_path, Habits, root=web.root)
    basket = {"n": 1, "cookie": "who=me"}
    # Which comes first is the frontier's choice.
    assert sorted(items, key=str) == sorted(
        [{"failed": "HttpError"}, basket, basket, {"last": True}], key=str
    )
    assert web.hits["/basket"] == 2
    assert done.reason == "enough"


class Fallback:
    """A downloader middleware that sends requests of a busy page to a mirror."""

    def process_response(self, request: Request, response: Response) -> Response | Request:
        if response.status != 503:
            return response
        return request.replace(url=response.urljoin("/mirror"), dont_filter=True)


class Busy(Spider):
    name = "busy"
    root: str
    more: dict[str, Any]

    async def start(self) -> AsyncIterator[Any]:
        yield Request(self.root + "/busy", meta={"handle_httpstatus_list": [503], **self.more})

    def parse(self, response: Response) -> Iterable[Any]:
        yield {"status": response.status}


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        pytest.param({}, 4, id="as often as the setting says"),
        pytest.param({"dont_retry": True}, 1, id="never"),
        pytest.param({"max_retry_times": 1}, 2, id="as often as the request says"),
    ],
)
def test_a_request_may_set_its_number_of_retries(
    tmp_path: Path, web: Site, more: dict[str, Any], asked: int
) -> None:
    done, items = crawled(tmp_path, Busy, root=web.root, more=more)
    assert web.hits["/busy"] == asked
    assert items == [{"status": 503}], "the last answer is the spider's"
    assert done.fates()["/busy"][-1] == "dead"


def test_a_middleware_may_know_a_mirror_of_what_was_given_up(tmp_path: Path, web: Site) -> None:
    middlewares = {"DOWNLOADER_MIDDLEWARES": {Fallback: 100}, "CRAWLER_RETRIES": 1}
    done, items = crawled(tmp_path, Busy, middlewares, root=web.root, more={})
    assert web.hits["/busy"] == 2 and web.hits["/mirror"] == 1
    assert items == [{"status": 200}]
    assert done.fates() == {"/busy": ["retry", "moved"], "/mirror": ["done"]}


class Archivist(Spider):
    """A spider that archives what it fetches and chooses its own links."""

    name = "archivist"

    def parse(self, response: Response) -> Iterable[Any]:
        yield page_of(response, self)
        yield {"title": response.css("title::text").get()}
        if response.url.endswith("/"):
            yield response.follow("/lamp")


def test_a_spider_archives_what_it_fetches(tmp_path: Path, web: Site) -> None:
    done, items = crawled(tmp_path, Archivist, start_urls=[web.url("/")])
    pages = [ItemAdapter(item).asdict() for item in items if not isinstance(item, dict)]
    assert [(page["title"], page["links"]) for page in pages] == [("home", 3), ("lamp", 1)]
    assert all(page["warc_file"] for page in pages)
    assert [item for item in items if isinstance(item, dict)] == [
        {"title": "home"},
        {"title": "lamp"},
    ]
    assert all(outcome.record for outcome in done.outcomes)
    assert sorted(web.hits) == ["/", "/lamp", "/robots.txt"], "links are its own business"


class Files(Spider):
    name = "files"
    custom_settings: ClassVar = {"ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1}}

    def parse(self, response: Response) -> Iterable[Any]:
        yield {"file_urls": [response.urljoin("/picture"), response.urljoin("/forbidden")]}


def test_files_pipelines_obey_robots_txt(tmp_path: Path) -> None:
    routes = {**ROUTES, "/robots.txt": Reply("User-agent: *\nDisallow: /forbidden")}
    with site("127.0.0.77", routes) as web:
        store = {"FILES_STORE": str(tmp_path / "files")}
        _, items = crawled(tmp_path / "data", Files, store, start_urls=[web.url("/")])
        assert "/forbidden" not in web.asked
    (found,) = items[0]["files"]
    assert (tmp_path / "files" / found["path"]).read_bytes() == b"\x89PNG"


class Asking(Spider):
    """A spider that requests what robots.txt forbids and what rules refuse, and gets the errors."""

    name = "asking"
    forbidden = "/secret"
    denied = "http://10.0.0.1/inside"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.home + "/")

    def parse(self, response: Response) -> Iterator[Request]:
        for url in (response.urljoin(self.forbidden), self.denied):
            yield Request(url, callback=self.never, errback=self.refused, cb_kwargs={"asked": url})
            yield Request(url + "?quietly")

    def never(self, response: Response, asked: str) -> None:
        raise AssertionError(asked)

    def refused(self, failure: Failure) -> Iterator[Any]:
        request: Request = failure.request  # type: ignore[attr-defined]  # Scrapy adds it
        assert failure.check(IgnoreRequest), failure
        yield {"asked": request.cb_kwargs["asked"], "why": str(failure.value)}
        yield Request(self.home + "/after" + str(len(request.url)))


def test_an_errback_is_called_for_what_robots_or_a_rule_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    routes = {"/": page(), "/robots.txt": Reply("User-agent: *\nDisallow: /secret")}
    with site("127.0.0.78", routes) as served:
        home = served.url("")
        found, items = crawled(tmp_path, Asking, home=home)
        visits = list(served.asked)
    refused = {item["asked"]: item["why"] for item in items}
    assert set(refused) == {f"{home}/secret", Asking.denied}, "once each"
    assert len(items) == 2
    assert refused[f"{home}/secret"].endswith("Disallow: /secret")
    assert "addresses that are not public need a setting" in refused[Asking.denied]
    assert not any(path.startswith("/secret") for path in visits)
    assert sum(path.startswith("/after") for path in visits) == 2, "what it yields is fetched"
    fates = {outcome.url: (outcome.fate, outcome.reason) for outcome in found.outcomes}
    assert fates[f"{home}/secret"] == fates[f"{home}/secret?quietly"]
    assert fates[f"{home}/secret"][0] == "done"
    assert found.stats["crawler/refused/inside_address"] == 2
    refused_line = f"Not fetched: {Asking.denied}?quietly: inside_address: "
    assert caplog.text.count(refused_line) == 1
    assert "10.0.0.1 is not public but inside (set by CRAWLER_ALLOW_INSIDE)" in caplog.text


class Named(Spider):
    """A spider whose code names what a rule for found links would refuse."""

    name = "named"
    root: str
    called = 0
    paths = ("/a/b/c/d/e", "/q?id=1&id=1&id=1", "/x/x/x/x/", *(f"/page{n}" for n in range(5)))

    async def start(self) -> AsyncIterator[Request]:
        for path in self.paths[1:]:
            yield Request(self.root + path)
        yield Request(self.root + "/short")

    def parse(self, response: Response) -> None:
        self.called += 1


def test_no_budget_or_trap_is_for_what_code_names(tmp_path: Path) -> None:
    few = {"CRAWLER_MAX_URLS_PER_DOMAIN": 2, "CRAWLER_MAX_URLS_PER_HOST": 2}
    moved = {"/short": Reply(status=302, headers=(("Location", Named.paths[0]),))}
    with site("127.0.0.79", moved, lambda ask: page()) as served:
        settings = few | {"CRAWLER_MAX_PATH_SEGMENTS": 3}
        done, _ = crawled(tmp_path, Named, settings, root=served.root)
    assert done.spider.called == len(Named.paths)


class Misled(Spider):
    """A spider whose requests are redirected to what a rule refuses."""

    name = "misled"
    root: str

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.root + "/away", errback=self.refused, cb_kwargs={"n": 1})
        yield Request(self.root + "/away?quietly", cb_kwargs={"n": 2})

    def parse(self, response: Response, n: int) -> None:
        raise AssertionError(n)

    def refused(self, failure: Failure) -> Iterator[Any]:
        request: Request = failure.request  # type: ignore[attr-defined]  # Scrapy adds it
        assert failure.check(IgnoreRequest), failure
        yield {"n": request.cb_kwargs["n"], "url": request.url, "why": str(failure.value)}


def test_an_errback_is_called_for_a_redirect_to_what_a_rule_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inside = "http://10.0.0.1/inside"
    away = Reply(status=302, headers=(("Location", inside),))
    with site("127.0.0.80", {"/away": away, "/away?quietly": away}) as served:
        done, items = crawled(tmp_path, Misled, root=served.root)
    assert [(item["n"], item["url"]) for item in items] == [(1, inside)]
    assert "CRAWLER_ALLOW_INSIDE" in items[0]["why"]
    assert f"Not fetched: {inside}: inside_address: " in caplog.text
    assert done.fates() == {"/away": ["done"], "/away?quietly": ["done"]}
    assert all(inside in outcome.reason for outcome in done.outcomes)


class Resending:
    """A downloader middleware that sends requests of its own, made of the one it is called for."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        own = cls()
        own.crawler = crawler
        return own

    crawler: Crawler

    async def process_response(self, request: Request, response: Response) -> Response:
        if request.url.endswith("/seen"):
            engine = self.crawler.engine
            assert engine is not None
            for n in range(3):
                engine.crawl(request.replace(url=response.urljoin(f"/middleware{n}")))
            answer = await engine.download_async(request.replace(url=response.urljoin("/gone")))
            assert answer.status == 404
        return response


class Copying(Spider):
    """A spider that copies the meta of its requests, from everywhere."""

    name = "copying"
    custom_settings: ClassVar = {"DOWNLOADER_MIDDLEWARES": {Resending: 100}}
    root: str

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> Any:
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.scraped, signals.item_scraped)
        crawler.signals.connect(spider.received, signals.response_received)
        return spider

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.root + "/item", self.item)
        yield Request(self.root + "/meta", self.copy_meta)
        yield Request(self.root + "/seen", self.last)
        yield Request(self.root + "/asked", self.ask_again)

    def send(self, *requests: Request) -> None:
        engine = self.crawler.engine
        assert engine is not None
        for request in requests:
            engine.crawl(request)

    def item(self, response: Response) -> Iterator[Any]:
        yield {"n": 1}

    def copy_meta(self, response: Response) -> None:
        urls = [response.urljoin(f"/meta{n}") for n in range(3)]
        self.send(*(Request(url, self.last, meta=response.meta) for url in urls))
        assert response.request is not None
        self.send(response.request.replace(dont_filter=True, callback=self.last))

    async def ask_again(self, response: Response) -> Any:
        engine = self.crawler.engine
        assert engine is not None and response.request is not None
        again = await engine.download_async(response.request.replace())
        assert again.status == 200
        return [page_of(response, self)]

    def scraped(self, item: Any, response: Response) -> None:
        if response.url.endswith("/item"):
            assert response.request is not None
            urls = [response.urljoin(f"/scraped{n}") for n in range(3)]
            self.send(*(response.request.replace(url=url, callback=self.last) for url in urls))

    def received(self, response: Response, request: Request) -> None:
        if response.url.endswith("/seen"):
            urls = [response.urljoin(f"/received{n}") for n in range(3)]
            self.send(*(request.replace(url=url) for url in urls))

    def last(self, response: Response) -> None: ...


def test_a_request_with_copied_meta_is_a_request_of_its_own(tmp_path: Path) -> None:
    missing = {"/gone": Reply("gone", 404)}
    with site("127.0.0.81", missing, lambda ask: page()) as served:
        done, _ = crawled(tmp_path, Copying, root=served.root)
    names = ("meta", "scraped", "received", "middleware")
    sent = {f"/{name}{n}" for name in names for n in range(3)}
    once = {path: ["done"] for path in sent | {"/item", "/seen", "/asked"}}
    assert done.fates() == {**once, "/meta": ["done", "done"]}
    assert [one.url for one in done.outcomes if one.record] == [served.url("/asked")]
    assert done.reason == "finished"


class Failing(Spider):
    """A spider that keeps what its callbacks and errbacks get."""

    name = "failing"
    urls: list[str]
    proxy = ""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.got: dict[str, Any] = {}

    async def start(self) -> AsyncIterator[Request]:
        for url in self.urls:
            meta = {"proxy": self.proxy} if self.proxy else {}
            yield Request(url, errback=self.failed, meta=meta)

    def parse(self, response: Response) -> None:
        self.got[response.url] = response

    def failed(self, failure: Failure) -> None:
        self.got[failure.request.url] = failure  # type: ignore[attr-defined]  # Scrapy adds it


MISTAKES: Final[dict[str, BaseException]] = {
    "127.0.0.81": AttributeError("no attribute 'sign'"),
    "127.0.0.82": FileNotFoundError("no keys.txt"),  # and no error of the host's connection
    "127.0.0.83": TimeoutError("no key in time"),
    "127.0.0.84": ValueError("no such signature"),
    "127.0.0.85": asyncio.CancelledError("the pool of keys is closed"),
}


class Signer:
    """A downloader middleware with mistakes."""

    def process_request(self, request: Request) -> None:
        host = urlsplit(request.url).hostname or ""
        if host != "127.0.0.84":
            raise MISTAKES[host]

    def process_response(self, request: Request, response: Response) -> Response:
        raise MISTAKES[urlsplit(request.url).hostname or ""]


@pytest.mark.parametrize("place", [90, 950], ids=["outside", "inside"])
def test_an_error_of_a_middleware_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: int
) -> None:
    settings = {"DOWNLOADER_MIDDLEWARES": {Signer: place}}
    with site("127.0.0.84", {}) as served:
        port = urlsplit(served.root).port
        urls = [f"http://{host}:{port}/{path}" for host in MISTAKES for path in "ab"]
        found, _ = crawled(tmp_path, Failing, settings, urls=urls)
        assert served.hits["/robots.txt"] <= 1
    for url in urls:
        mistake, got = MISTAKES[urlsplit(url).hostname or ""], found.spider.got[url].value
        assert mistake in (got, got.__cause__)
        assert [str(mistake) in one.reason for one in found.outcomes if one.url == url] == [True]
    assert {(one.fate, one.failure) for one in found.outcomes} == {("dead", "broken")}, "at once"
    tracebacks = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert len(tracebacks) == len(MISTAKES), "each once"
    assert all(any(str(each) in text for text in tracebacks) for each in MISTAKES.values())


class KeyInserter:
    """A downloader middleware that returns a request of its own in place of each one."""

    def process_request(self, request: Request) -> Request | None:
        if "key" in request.meta:
            return None
        url = request.url.replace("127.0.0.85", "127.0.0.86")
        return request.replace(url=url, meta={**request.meta, "key": 1})


def test_a_middleware_may_replace_the_request_for_a_robots_txt(tmp_path: Path) -> None:
    settings = {"DOWNLOADER_MIDDLEWARES": {KeyInserter: 543}}
    rules = Reply("User-agent: *\nDisallow: /b")
    with site("127.0.0.84", {"/robots.txt": rules, "/a": page()}) as served:
        urls = [served.url("/a"), served.url("/b"), served.url("/a").replace(".84", ".85")]
        found, _ = crawled(tmp_path, Failing, settings, urls=urls)
        assert served.hits == {"/robots.txt": 1, "/a": 1}
    assert isinstance(found.spider.got[urls[0]], Response)
    assert "Disallow: /b" in str(found.spider.got[urls[1]].value)
    assert "in place of" in str(found.spider.got[urls[2]].value), "it is of another host"


class Unloadable:
    lazy = False

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotConfigured("the reactor is missing")

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Any:
        return cls()


def test_a_handler_that_does_not_load_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"DOWNLOAD_HANDLERS": {"http": Unloadable}}
    with site("127.0.0.81", {}) as served:
        url = served.url("/")
        found, _ = crawled(tmp_path, Failing, settings, urls=[url])
        assert served.asked == []
    assert found.spider.got[url].check(NotSupported)
    assert found.fates() == {"/": ["dead"]}
    assert all("the reactor is missing" in outcome.reason for outcome in found.outcomes)
    lines = [text for text in caplog.messages if text.startswith("No http URL can be fetched")]
    assert len(lines) == 1
    assert "TWISTED_REACTOR_ENABLED = True" in lines[0] and "the reactor is missing" in lines[0]


def test_an_errback_gets_the_error_of_a_host_that_is_down(tmp_path: Path) -> None:
    def answer(ask: Ask) -> Reply:
        return Reply(hang=True)

    quick = {"CRAWLER_ROBOTS_TRIES": 1, "CRAWLER_CONTACT": "crawler@gossamer-tests.org"}
    quick |= {"CRAWLER_TOTAL_TIMEOUT_S": 1, "CRAWLER_CONNECT_TIMEOUT_S": 1}
    with LoopbackWeb(answer, ["127.0.5.14"]) as web:
        kinds: dict[str, list[type[Exception]]] = {
            "http://no-such-name.invalid/": [DNSLookupError, CannotResolveHostError],
            f"http://127.0.5.15:{free_port()}/": [
                TwistedRefusedError,
                DownloadConnectionRefusedError,
            ],
            web.url("127.0.5.14"): [TwistedTimeoutError, DownloadTimeoutError, TimeoutError],
        }
        found, _ = crawled(tmp_path, Failing, quick, urls=list(kinds))
    for url, expected in kinds.items():
        assert all(found.spider.got[url].check(kind) for kind in expected), found.spider.got[url]


@pytest.mark.parametrize("for_all", [True, False], ids=["of the machine", "of a request"])
def test_a_proxy_that_is_down_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_all: bool
) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    if for_all:  # so its robots.txt is fetched by it, too
        monkeypatch.setenv("http_proxy", proxy)
    with site("127.0.0.81", {}) as served:
        url = served.url("/")
        quick = {"CRAWLER_ROBOTS_TRIES": 1, "CRAWLER_RETRIES": 0}
        own = "" if for_all else proxy
        found, _ = crawled(tmp_path, Failing, quick, urls=[url], proxy=own)
    named = f"connect: the proxy {proxy.removeprefix('http://')}: "
    assert found.spider.got[url].check(TwistedRefusedError)
    assert named.removeprefix("connect: ") in str(found.spider.got[url].value)
    assert [named in outcome.reason for outcome in found.outcomes] == [True]


def test_a_response_has_its_url_without_the_fragment(tmp_path: Path) -> None:
    with site("127.0.0.81", {}, lambda ask: page()) as served:
        found, _ = crawled(tmp_path, Failing, urls=[served.url("/page?x=1#part")])
    assert list(found.spider.got) == [served.url("/page?x=1")]


class Cached(Spider):
    name = "cached"

    def parse(self, response: Response) -> Iterable[Any]:
        yield {"flags": list(response.flags)}


def test_an_http_cache_spares_the_host(tmp_path: Path, web: Site) -> None:
    cache = {"HTTPCACHE_ENABLED": True, "HTTPCACHE_DIR": str(tmp_path / "cache")}
    for day, flags in (("monday", []), ("tuesday", ["cached"])):
        _, items = crawled(tmp_path / day, Cached, cache, start_urls=[web.url("/lamp")])
        assert items == [{"flags": flags}]
    assert web.hits["/lamp"] == 1


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        pytest.param("HTTPCACHE_ENABLED", True, "CRAWLER_REPLAY", id="a cache"),
        pytest.param("DEPTH_LIMIT", 2, "max_depth", id="a depth"),
    ],
)
def test_web_refuses_what_has_no_effect_on_it(
    tmp_path: Path, name: str, value: object, instead: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{name}.*{instead}"):
        crawl(tmp_path, WebSpider, {name: value}, seeds="http://127.0.0.77/")


def test_a_data_directory_is_of_one_spider(tmp_path: Path, web: Site) -> None:
    crawled(tmp_path / "data", Cached, start_urls=[web.url("/lamp")])
    with pytest.raises(DataDirError, match=r"another spider, cached\..* CRAWLER_DATA_DIR=.*-files"):
        crawl(tmp_path / "data", Files, start_urls=[web.url("/lamp")])


def test_one_setting_gives_each_spider_its_data_directory(tmp_path: Path, web: Site) -> None:
    """The name is also in the setting itself, which a pipeline may read."""
    each = tmp_path / "%(name)s"
    for _ in range(2):
        for spider in (Cached, Files):
            done = crawl(each, spider, start_urls=[web.url("/lamp")])
            assert done.spider.settings["CRAWLER_DATA_DIR"] == str(tmp_path / spider.name)
    crawl(each, WebSpider, seeds=web.url("/lamp"))
    again = crawl(each, WebSpider)
    assert again.spider.given["seeds"] == web.url("/lamp"), "kept in its own directory"
    assert {path.name for path in tmp_path.iterdir()} == {"cached", "files", "web"}


def test_a_finished_crawl_is_logged_as_finished(
    tmp_path: Path, web: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "crawler"):
        crawled(tmp_path, Rules, start_urls=[web.url("/")])
        assert not caplog.records
        _, items = crawled(tmp_path, Rules, start_urls=[web.url("/")])
    assert items == [], "a second run has nothing to do"
    assert "was finished, and what it has seen is not fetched again" in caplog.text


def test_a_crawl_with_only_undecided_urls_is_not_logged_as_finished(
    tmp_path: Path, web: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """A process died after it had written links of which it did not know yet if they are new."""
    settings = {"CRAWLER_SUMMARY": True}
    crawl(tmp_path, WebSpider, settings, seeds=web.url("/mirror"))
    frontier = open_frontier(tmp_path, FrontierLimits(), 0.0, background=FrontierTurns())
    config = read_config(Settings({**QUICK, **settings}))
    lamp = UrlIdentifier(config, read_format(tmp_path).key_seed).identify(web.url("/lamp"))
    link = Candidate(lamp.url, lamp.key, lamp.host, lamp.domain, depth=1)
    frontier.add([link], frontier.clock)
    frontier.commit()
    frontier.close()
    with LocalView(tmp_path) as view:
        assert view.counts().left == view.counts().undecided == 1
        found = why(web.url("/lamp"), view, config, {})
        assert "not decided yet" in " ".join(islice(why_text(found, 0.0), 2))
    with caplog.at_level(logging.WARNING, "crawler"):
        again = crawl(tmp_path, WebSpider, settings, seeds=web.url("/mirror"))
    assert "was finished" not in caplog.text
    assert again.fates()["/lamp"] == ["done"]


def test_two_spiders_in_one_process(tmp_path: Path, web: Site) -> None:
    async def both() -> list[str]:
        runner = AsyncCrawlerRunner(QUICK)
        ends: list[str] = []

        def note(reason: str) -> None:
            ends.append(reason)

        for kind in (Cached, Archivist):
            own = {"CRAWLER_DATA_DIR": str(tmp_path / kind.name)}
            crawler = runner.create_crawler(type(kind.__name__, (kind,), {"custom_settings": own}))
            crawler.signals.connect(note, signals.spider_closed)
            runner.crawl(crawler, start_urls=[web.url("/lamp")])
        await asyncio.wait_for(runner.join(), 60)
        return ends

    assert asyncio.run(both()) == ["finished", "finished"]
    assert web.hits["/lamp"] == 2


SCRIPT = """
from scrapy.crawler import CrawlerProcess
from scrapy.utils.project import get_project_settings

process = CrawlerProcess(get_project_settings())
process.crawl("shop")
process.start()
"""
REACTOR = """
TWISTED_REACTOR_ENABLED = True
TELNETCONSOLE_ENABLED = True
TELNETCONSOLE_PORT = [0]
"""


def test_with_a_reactor_scripts_and_telnet_work_as_in_scrapy(tmp_path: Path, web: Site) -> None:
    project = write_project(tmp_path / "project", web.root)
    with (project / "theirs" / "settings.py").open("a") as settings:
        settings.write(REACTOR)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,  # its log is shown below
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Telnet console listening on 127.0.0.1:" in done.stderr
    outcomes = list(read_outcomes(project / "crawl-data" / "outcomes.jsonl"))
    assert {outcome.url.removeprefix(web.root): outcome.fate for outcome in outcomes} == {
        "/": "done",
        "/lamp": "done",
        "/more": "done",
        "/gone": "done",
    }


class Lamp(Item):
    """As in old projects."""


def test_requests_that_cannot_be_stored_are_logged(
    tmp_path: Path, web: Site, caplog: pytest.LogCaptureFixture
) -> None:
    class Hoarder(Spider):
        name = "hoarder"

        def parse(self, response: Response) -> Iterable[Any]:
            yield response.follow("/lamp", self.lamp, meta={"item": Lamp()})
            yield response.follow("/more", lambda response: None)

        def lamp(self, response: Response) -> None: ...

    done, _ = crawled(tmp_path, Hoarder, start_urls=[web.url("/")])
    assert "meta['item'] is a Lamp" in caplog.text
    assert "is not an instance method" in caplog.text
    assert done.stats["crawler/refused/unstorable"] == 2

"""Each page is one task from its lease to its verdict; and where Scrapy's names have moved, its own
way is taken."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware
from scrapy.http import Response
from scrapy.utils.decorators import deprecated

from crawler.download import engine_tasks
from crawler.model.page import Page
from tests.harness.crawling import crawl
from tests.servers.loopback import Site, page, site

PAGES = 60
OURS, SCRAPYS = "RequestTasks._take", "Scraper._wait_for_processing"


class TaskCounter:
    """An extension that counts the tasks that begin, by their coroutine."""

    counted: ClassVar[Counter[str]] = Counter()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        counter = cls()
        crawler.signals.connect(counter.begin, signals.spider_opened)
        return counter

    def begin(self) -> None:
        self.counted.clear()
        asyncio.get_running_loop().set_task_factory(self._task)

    def _task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> asyncio.Task[Any]:
        self.counted[coro.__qualname__] += 1
        return asyncio.Task(coro, loop=loop, **kwargs)


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    routes = {f"/{n}": page(f"/{n + 1}", text=f"words of {n} " * 100) for n in range(PAGES)}
    with site("127.0.76.1", routes) as served:
        yield served


def crawled(folder: Path, web: Site, **settings: object) -> Counter[str]:
    chosen = {"EXTENSIONS": {TaskCounter: 0}, **settings}
    done = crawl(folder / "data", settings=chosen, seeds=web.url("/0"))
    assert done.stats["item_scraped_count"] == PAGES + 1, "the last link leads nowhere"
    assert done.stats["response_received_count"] == PAGES + 1
    return Counter(TaskCounter.counted)


def test_a_page_is_one_task(tmp_path: Path, web: Site) -> None:
    tasks = crawled(tmp_path, web)
    assert tasks[OURS] >= PAGES and not tasks[SCRAPYS]
    assert tasks.total() < 2 * PAGES, tasks


class SlowReceiver:
    """A user's extension that waits at each item."""

    seen: ClassVar[list[str]] = []

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        receiver = cls()
        cls.seen.clear()
        crawler.signals.connect(receiver.item_scraped, signals.item_scraped)
        return receiver

    async def item_scraped(self, item: Page) -> None:
        await asyncio.sleep(0)
        self.seen.append(item.url)


def test_a_receiver_of_an_items_signal_is_awaited(tmp_path: Path, web: Site) -> None:
    tasks = crawled(tmp_path, web, EXTENSIONS={TaskCounter: 0, SlowReceiver: 0})
    assert len(SlowReceiver.seen) == PAGES + 1
    assert tasks[OURS] >= PAGES


class OtherCallback:
    """A user's middleware that sends each answer to another callback."""

    called: ClassVar[list[tuple[str, str]]] = []

    def process_response(self, request: Request, response: Response) -> Response:
        return response.replace(
            request=request.replace(callback=self.parse_other, cb_kwargs={"word": "given"})
        )

    def parse_other(self, response: Response, word: str) -> None:
        self.called.append((response.url, word))


def test_a_middleware_may_choose_the_callback(tmp_path: Path, web: Site) -> None:
    middlewares = {OtherCallback: 10}
    crawl(tmp_path, settings={"DOWNLOADER_MIDDLEWARES": middlewares}, seeds=web.url("/0"))
    assert OtherCallback.called == [(web.url("/0"), "given")]


class Decorated:
    """A pipeline of a user's, with a decorator of Scrapy's that must not be passed over."""

    @deprecated("something else")
    def process_item(self, item: Any) -> Any:
        return item


def test_only_the_wrapper_of_old_arguments_is_passed_over() -> None:
    users, scrapys = Decorated().process_item, UserAgentMiddleware("a").process_request
    assert engine_tasks._unwrapped(users) == users
    assert engine_tasks._unwrapped(scrapys) != scrapys
    request = Request("http://a.example/")
    assert engine_tasks._unwrapped(scrapys)(request=request) is None
    assert request.headers[b"User-Agent"] == b"a"


def test_where_a_name_has_moved_scrapys_own_way_is_taken(
    tmp_path: Path, web: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = (*engine_tasks._OF_SLOT, "moved")
    monkeypatch.setattr(engine_tasks, "_OF_SLOT", names)
    with caplog.at_level("INFO", "crawler.download.engine_tasks"):
        tasks = crawled(tmp_path, web)
    assert tasks[SCRAPYS] >= PAGES and not tasks[OURS]
    assert "it has no moved any more" in caplog.text


def test_many_items_at_once_are_left_to_scrapys_workers(tmp_path: Path, web: Site) -> None:
    tasks = crawled(tmp_path, web, CONCURRENT_ITEMS=2)
    assert tasks[OURS] >= PAGES
    assert tasks["_parallel_asyncio.<locals>.worker"] >= 2 * PAGES

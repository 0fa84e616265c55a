"""The number of pages in flight is bounded; one that waits for a sync does not count."""

from __future__ import annotations

import asyncio
from pathlib import Path

from scrapy.crawler import Crawler

from crawler.assembly.build import crawl_of
from tests.harness.crawling import crawl
from tests.servers.loopback import Ask, LoopbackWeb, Reply

CONCURRENCY = 4
HOSTS = [f"127.0.88.{number}" for number in range(1, 81)]
SETTINGS = {
    "CONCURRENT_REQUESTS": CONCURRENCY,
    "CRAWLER_MIN_DELAY_S": 0,
    "CRAWLER_DELAY_FACTOR": 0,
    "CRAWLER_FSYNC_EVERY_S": 60.0,
}
SEEN: dict[str, int] = {}


def web(ask: Ask) -> Reply:
    if ask.path == "/robots.txt":
        return Reply(b"", 404)
    return Reply(f"<title>{ask.host}</title><p>Only {ask.host} says so.".encode())


class CountPages:
    """Stands before the archive, which it makes slow, and behind it."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CountPages:
        pipeline = cls()
        pipeline.crawl = crawl_of(crawler)
        return pipeline

    async def process_item(self, item: object) -> object:
        crawl = self.crawl
        waiting = len(crawl.storage.archive.group_commit or ())
        under_way = len(crawl.loop.lives) - waiting
        SEEN["under way"] = max(SEEN.get("under way", 0), under_way)
        SEEN["waiting"] = max(SEEN.get("waiting", 0), waiting)
        SEEN["bytes"] = max(SEEN.get("bytes", 0), crawl.fetching.body_memory.used_bytes)
        for _ in range(20):
            await asyncio.sleep(0.001)
        return item


def crawled(tmp_path: Path, **settings: object) -> dict[str, int]:
    SEEN.clear()
    with LoopbackWeb(web, HOSTS) as there:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("".join(f"http://{host}:{there.port}/\n" for host in HOSTS))
        chosen = {**SETTINGS, "ITEM_PIPELINES": {CountPages: 270}, **settings}
        done = crawl(tmp_path / "data", settings=chosen, seeds=str(seeds))
    assert done.reason == "finished"
    assert len([each for each in done.outcomes if each.fate == "done"]) == len(HOSTS)
    return dict(SEEN)


def test_at_most_twice_as_many_pages_as_slots_are_under_way(tmp_path: Path) -> None:
    seen = crawled(tmp_path, CRAWLER_FSYNC=False)
    assert CONCURRENCY < seen["under way"] <= 2 * CONCURRENCY


def test_pages_that_wait_for_a_sync_hold_no_place_and_no_body(tmp_path: Path) -> None:
    seen = crawled(tmp_path)
    assert seen["under way"] <= 2 * CONCURRENCY
    assert seen["waiting"] > 4 * CONCURRENCY, "the crawl goes on meanwhile"
    a_page = len(web(Ask(HOSTS[-1], "/")).body)
    assert seen["bytes"] <= 2 * CONCURRENCY * 2 * a_page, "once as sent, once decoded"

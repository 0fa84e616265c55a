"""Two crawlers of others and one of ours on one crawlID of our frontier, judged by the books of the
frontier and of the web."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest

from crawler.urlfrontier.client import FrontierClient, known
from crawler.urlfrontier.frontier_crawls import DEFAULT_DELAY_S, FrontierCrawl, FrontierCrawls
from crawler.urlfrontier.server import FrontierServer
from tests.harness.commands import crawl_command
from tests.harness.fork_server import running
from tests.harness.url_frontier import frontier_crawls
from tests.servers.loopback import LoopbackWeb, Reply, page
from tests.servers.url_frontier import NAME

HOSTS = tuple(f"127.0.4.{number}" for number in range(21, 27))
PAGES = 4
T = TypeVar("T")


def web(ask):
    if ask.path == "/robots.txt":
        return Reply("", 404)
    links = [f"http://{host}:{ask.port}/" for host in HOSTS] + [f"/{n}" for n in range(PAGES)]
    return page(*links, text=f"{ask.path} of {ask.host}")


@contextmanager
def serving(crawls: FrontierCrawls) -> Iterator[str]:
    """Serve *crawls* by a thread of this process, and yield the address."""
    loop, server = asyncio.new_event_loop(), FrontierServer(crawls)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(30)

    try:
        yield f"127.0.0.1:{run(server.start('127.0.0.1', 0))}"
        run(server.stop(0))
        run(crawls.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Ledger:
    """What was leased and put, in order. It judges each lease."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.leased: dict[str, float] = {}  # URL -> until
        self.of_queue: dict[str, set[str]] = defaultdict(set)
        self.free_at: dict[str, float] = {}
        self.faults: list[str] = []
        lease, put = FrontierCrawl.lease, FrontierCrawl.put

        async def leasing(crawl, now, **given):
            found = await lease(crawl, now, **given)
            self.note_leases(found, now, now + given["lease_s"])
            return found

        def putting(crawl, items, now):
            for item in items:
                if item.refetch_at is not None:
                    self.note_end(item, now)
            return put(crawl, items, now)

        patch.setattr(FrontierCrawl, "lease", leasing)
        patch.setattr(FrontierCrawl, "put", putting)

    def note_leases(self, found, now, until):
        for key in {each.key for each in found}:
            held = [url for url in self.of_queue[key] if self.leased[url] > now]
            if held:
                self.faults.append(f"{key} is leased while {held} are")
            if now < self.free_at.get(key, 0.0):
                self.faults.append(f"{key} is leased {self.free_at[key] - now:.2f} s early")
            self.of_queue[key] = set()
        for each in found:
            self.leased[each.url] = until
            self.of_queue[each.key].add(each.url)
            self.free_at[each.key] = until

    def note_end(self, item, now):
        if item.url in self.of_queue[item.key] and self.leased[item.url] > now:
            self.of_queue[item.key].discard(item.url)
            if not self.of_queue[item.key]:
                self.free_at[item.key] = now + DEFAULT_DELAY_S


async def crawl_as_others_do(address: str, per_queue: int, fetched: list[str]) -> None:
    """Fetch what is given, follow each link, and say that pages are never fetched again."""

    def links_of(page_url: str) -> list[str]:
        with urlopen(page_url, timeout=20) as answer:  # noqa: S310  # http, ours
            found = re.findall(r'href="([^"]+)"', answer.read().decode())
        root = "/".join(page_url.split("/")[:3])
        return [root + link if link.startswith("/") else link for link in found]

    async with FrontierClient(address, crawl_id=NAME) as client:
        while True:
            found = await client.get_urls(queues=1, per_queue=per_queue, lease_s=30)
            for info in found:
                links = await asyncio.to_thread(links_of, info.url)
                fetched.append(info.url)
                await client.put_discovered(links)
                await client.put([known(info)])
            if not found and not (await client.stats()).size:
                return
            await asyncio.sleep(0.7)  # leave some of it for the others


def test_two_crawlers_of_others_and_one_of_ours(tmp_path, monkeypatch):
    ledger, fetched = Ledger(monkeypatch), ([], [])
    seeds, log = tmp_path / "seeds.txt", tmp_path / "log"
    crawls = frontier_crawls(tmp_path / "served", time.time)
    with LoopbackWeb(web, HOSTS) as served, serving(crawls) as address:
        seeds.write_text("\n".join(served.url(host) for host in HOSTS))
        settings = {"CRAWLER_FRONTIER_URL": f"grpc://{address}", "CRAWLER_MIN_DELAY_S": 1.0}
        with running(crawl_command(tmp_path / "ours", settings, seeds=seeds), log) as ours:
            while not served.visits:
                assert ours.poll() is None, log.read_text()
                time.sleep(0.02)

            async def others() -> None:
                crawls = (
                    crawl_as_others_do(address, n + 1, each) for n, each in enumerate(fetched)
                )
                await asyncio.gather(*crawls)

            asyncio.run(others())
            assert ours.wait(60) == 0, log.read_text()
        pages = Counter((each.host, each.path) for each in served.visits)
        robots = [pages.pop((host, "/robots.txt"), 0) for host in HOSTS]
    assert ledger.faults == []
    expected = {(host, path) for host in HOSTS for path in ("/", *(f"/{n}" for n in range(PAGES)))}
    assert pages == dict.fromkeys(expected, 1), "each page once"
    assert max(robots) <= 1

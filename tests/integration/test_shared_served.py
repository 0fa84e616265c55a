"""A worker of a shared crawl that leases its URLs to other crawlers: two of them, and a worker that
fetches, are on one crawl, and the serving one is killed. Books are kept by the web and by the other
crawlers."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import grpc
import grpc.aio
import pytest

from crawler.config.settings import read_config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.frontier.memory_store import MemoryStore
from crawler.policy.operator_rules import NO_RULES, read_rules
from crawler.shared.keys import root
from crawler.urlfrontier.client import OK, SKIPPED, FrontierClient, discovered, known, url_info
from crawler.urlfrontier.port import PutItem
from crawler.urlfrontier.served_shards import PAUSE_LOOK_S, ServedShards
from tests.harness.commands import QUICK, crawl_command
from tests.harness.fork_server import SCRAPY, running
from tests.harness.lone_worker import NAME as LONE
from tests.harness.lone_worker import LoneWorker
from tests.harness.lone_worker import running as lone
from tests.harness.pushed_url_workers import RunLoop
from tests.harness.waiting import wait_until, wait_until_async
from tests.harness.workers import QUICK_LEASES
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer

HOSTS: Final = [f"127.0.3.{number}" for number in range(1, 15)]
PAGES: Final = 6  # of a host
DELAY_S: Final = 0.3
LEASE_S: Final = 3
BOUND_S: Final = 60.0
PORT: Final = re.compile(r"grpc://127\.0\.0\.1:(\d+)")
LINK: Final = re.compile('href="([^"]+)"')


def page(ask: Ask) -> Reply:
    """Each page links to two of its host, and to that of the next host, by whole URLs."""
    if not ask.path[1:].isdecimal() or int(ask.path[1:]) >= PAGES:
        return Reply(b"", 404)
    number, after = int(ask.path[1:]), HOSTS[(HOSTS.index(ask.host) + 1) % len(HOSTS)]
    children = [2 * number + 1, 2 * number + 2]
    urls = [f"http://{ask.host}:{ask.port}/{each}" for each in children if each < PAGES]
    urls.append(f"http://{after}:{ask.port}{ask.path}")
    links = "".join(f'<a href="{url}">{url}</a> ' for url in urls)
    return Reply(f"<title>{ask.path} of {ask.host}</title> {links}".encode())


class Books:
    """What the other crawlers hold, and until when each host is to be left alone. Times are those
    at which the server may have decided at the earliest."""

    def __init__(self) -> None:
        self.held: dict[str, float] = {}  # URLs: when the lease ends
        self.rests: dict[str, float] = {}  # hosts: when the next lease may begin
        self.done: set[str] = set()  # acknowledged
        self.lost: set[str] = set()  # leased, and never updated
        self.unsure: set[str] = set()  # that were being updated when the server was killed
        self.open: set[str] = set()  # updated, and not acknowledged
        self.leases: Counter[str] = Counter()

    def lease(self, urls: list[str], asked_at: float) -> None:
        now = time.time()
        for url in urls:
            host = urlsplit(url).netloc
            assert url not in self.done, f"{url} was acknowledged as completed"
            assert now >= self.held.get(url, 0.0), f"{url} is under two leases"
            assert now >= self.rests.get(host, 0.0), f"{host} is leased of too early"
        for url in urls:
            host = urlsplit(url).netloc
            self.leases[url] += 1
            self.held[url] = asked_at + LEASE_S
            self.rests[host] = asked_at + LEASE_S + DELAY_S

    def update(self, url: str) -> None:
        """*url* is about to be updated, perhaps as the last one of its host."""
        host, now = urlsplit(url).netloc, time.time()
        del self.held[url]
        if not any(urlsplit(each).netloc == host and self.held[each] > now for each in self.held):
            self.rests[host] = now + DELAY_S


class Foreign:
    """A crawler that is not ours. It loses the first URLs that it gets, as if it had died."""

    def __init__(self, books: Books, port: int, loses: int) -> None:
        self._books, self._port, self._loses = books, port, loses

    async def crawl(self) -> None:
        async with FrontierClient(f"127.0.0.1:{self._port}", patience_s=BOUND_S) as frontier:
            while True:
                asked_at = time.time()
                found = await frontier.get_urls(queues=2, per_queue=2, lease_s=LEASE_S)
                self._books.lease([each.url for each in found], asked_at)
                for info in found:
                    if self._loses:
                        self._loses -= 1
                        self._books.lost.add(info.url)
                    elif time.time() < self._books.held[info.url]:
                        await self._fetch(frontier, info)
                await asyncio.sleep(0.05)

    async def _fetch(self, frontier: FrontierClient, info) -> None:
        with await asyncio.to_thread(urlopen, info.url) as answer:
            links = LINK.findall(answer.read().decode())
        assert set(await frontier.put_discovered(links)) <= {0, 1}
        self._books.update(info.url)
        self._books.open.add(info.url)
        assert await frontier.put([known(info.url)]) == [OK]
        self._books.open.discard(info.url)
        self._books.done.add(info.url)


async def check_refusals(port: int) -> None:
    """What is not for other crawlers to decide is refused, with a reason."""
    async with FrontierClient(f"127.0.0.1:{port}", patience_s=BOUND_S) as frontier:
        assert await frontier.crawls() == ["DEFAULT"]
        outside = "http://127.0.4.1/"
        assert await frontier.put_discovered([outside]) == [SKIPPED]
        assert await frontier.put([known(outside)]) == [SKIPPED]
        for call in (
            *(frontier.delete_crawl(), frontier.delete_queue(HOSTS[0]), frontier.set_delay(5)),
            frontier.put([discovered(url_info("http://127.0.3.1/", crawl_id="another"))]),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call
            assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def check_listed(port: int, books: Books) -> None:
    """What other crawlers had is known of the shards that are here."""
    async with FrontierClient(f"127.0.0.1:{port}", patience_s=BOUND_S) as frontier:
        listed = [item.known async for item in frontier.list_urls()]
        completed = {each.info.url for each in listed if not each.refetchable_from_date}
        assert completed and completed <= books.done
        for url in completed:
            item = await frontier.status(url)
            assert item is not None and item.known.refetchable_from_date == 0


def test_other_crawlers_and_a_worker_share_a_crawl(
    tmp_path: Path, server: RedisServer, run_loop: RunLoop
) -> None:
    settings = {
        "CRAWLER_FRONTIER_URL": server.url,
        "CRAWLER_FRONTIER_SHARDS": 8,
        "CRAWLER_MIN_DELAY_S": DELAY_S,
        **QUICK_LEASES,
    }
    books = Books()
    with LoopbackWeb(page, HOSTS) as web:
        seeds = tmp_path / "seeds.txt"
        seeds.write_text("\n".join(web.url(host, "/0") for host in HOSTS))
        expected = {(host, f"/{number}") for host in HOSTS for number in range(PAGES)}

        def serve(address: str) -> list[str]:
            given = {**QUICK, **settings, "CRAWLER_DATA_DIR": tmp_path / "serving"}
            options = [part for name in given for part in ("-s", f"{name}={given[name]}")]
            return [
                *SCRAPY,
                "frontier",
                "serve",
                address,
                "-a",
                f"seeds={seeds}",
                "-a",
                "scope=host",
                *options,
            ]

        def port(log: Path) -> int:
            return int(wait_until(lambda: PORT.search(log.read_text()), BOUND_S)[1])

        worker = crawl_command(tmp_path / "worker", settings, seeds=seeds, scope="host")
        logs = [tmp_path / name for name in ("worker.log", "first.log", "second.log")]
        with running(worker, logs[0]) as fetching, running(serve("127.0.0.1:0"), logs[1]) as first:
            at = port(logs[1])

            async def crawl() -> None:
                await check_refusals(at)
                crawlers = [
                    asyncio.create_task(Foreign(books, at, loses).crawl()) for loses in (2, 0)
                ]

                def are_done(count: int) -> bool:
                    for each in crawlers:
                        if each.done():
                            each.result()
                    return len(books.done) >= count

                def log() -> str:
                    return "\n".join(each.read_text()[-1500:] for each in logs if each.exists())

                await wait_until_async(lambda: are_done(10), BOUND_S, log=log)
                books.unsure |= books.open | books.held.keys()
                first.kill()
                await asyncio.to_thread(first.wait)
                with running(serve(f"127.0.0.1:{at}"), logs[2]) as second:
                    await wait_until_async(
                        lambda: are_done(1 << 30) or fetching.poll() is not None, BOUND_S, log=log
                    )
                    for each in crawlers:
                        each.cancel()
                    await asyncio.gather(*crawlers, return_exceptions=True)
                    await check_listed(at, books)
                    second.send_signal(signal.SIGTERM)
                    begun_at = time.monotonic()
                    assert await asyncio.to_thread(second.wait) == 0, log()
                    assert time.monotonic() - begun_at < 10.0

            run_loop(crawl())
            assert fetching.returncode == 0
    pages = [visit for visit in web.visits if visit.status == 200]
    times = Counter((visit.host, visit.path) for visit in pages)
    assert times.keys() == expected, "nothing that was acknowledged is lost"
    sure = {(part.hostname, part.path) for part in map(urlsplit, books.done - books.unsure)}
    assert not [page for page in sure if times[page] > 1]
    assert len(books.lost) == 2, "they were leased again"
    assert all(books.leases[url] == 2 for url in books.lost & books.done)
    for host in HOSTS:
        own = [visit for visit in pages if visit.host == host]
        for before, after in pairwise(sorted(own, key=lambda visit: visit.arrival_s)):
            by_one = before.agent == after.agent  # the other crawlers take two pages in a row
            assert by_one or after.arrival_s - before.end_s >= DELAY_S, (before, after)


def origins() -> AllowedOrigins:
    config = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
    return AllowedOrigins(config, None, MemoryStore(), 7, time.time())


def put_item(url: str, refetch_at: float | None = None) -> PutItem:
    return PutItem(url, "", b"", None if refetch_at is None else int(refetch_at))


PAUSED: Final = read_rules('[[rule]]\nfor = "one.org"\npaused = true\n', 3)
X, Y, OTHER = "http://one.org/x", "http://one.org/y", "http://two.org/x"


def test_hosts_rest_by_the_crawl_and_longer_by_what_clients_say(
    tmp_path: Path, server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with lone(LoneWorker(server.url, tmp_path)) as worker:
            rules = origins()
            served = ServedShards(worker.frontier, rules, 1.0, lambda: False)
            begin = time.time() + 1.0

            def put(after_s: float, *items: PutItem) -> list[int]:
                return list(served.put(items, begin + after_s))

            async def lease(after_s: float) -> list[str]:
                found = await served.lease(begin + after_s, queues=9, per_queue=1, lease_s=30)
                return sorted(each.url for each in found)

            assert put(0, put_item(X), put_item(Y), put_item(X), put_item(OTHER)) == [0, 0, 1, 0]
            async with asyncio.timeout(BOUND_S):
                found: list[str] = []
                while len(found) < 2:  # the shards come
                    found += await lease(0)
                    await asyncio.sleep(0.02)
            assert sorted(found) == [X, OTHER]
            assert put(0, put_item(Y)) == [SKIPPED]
            assert served.stats("one.org", begin + 1).in_process == 1
            assert await lease(29) == [], "the hosts rest until the leases end, and no longer read"
            assert put(29, put_item(X, 0)) == [OK]
            assert await lease(29.9) == [], "the host rests after an update"
            assert await lease(30.1) == [Y]
            served.block("one.org", int(begin) + 200, begin + 31)
            assert put(32, put_item(Y, begin + 40)) == [OK]
            assert await lease(50) == [OTHER], "its lease is over, and the other host is blocked"
            served.block("one.org", 0, begin + 51)
            served.set_delay("one.org", 20, begin + 51)
            rules.set_operator_rules(PAUSED)
            assert await lease(52) == [], "an operator has paused the host"
            rules.set_operator_rules(NO_RULES)
            assert Y in await lease(53 + PAUSE_LOOK_S)
            assert put(120, put_item(Y, begin + 121)) == [OK]
            assert Y not in await lease(139)
            assert Y in await lease(141)
            assert put(142, put_item(Y, begin + 143)) == [OK]
            served.set_delay("one.org", 60, begin + 150)
            assert Y not in await lease(201), "a longer delay counts at once"
            assert Y in await lease(203)
            await served.wait_until_durable()
            assert served.status(X, "", begin).refetch_at == 0
            assert [each.url for each in served.urls("one.org", begin) if each] == [X, Y]

    run_loop(scenario())


def test_nothing_is_sent_of_a_shard_that_was_lost(
    tmp_path: Path, server: RedisServer, run_loop: RunLoop
) -> None:
    async def scenario() -> None:
        async with lone(LoneWorker(server.url, tmp_path, shards=1)) as worker:
            served = ServedShards(worker.frontier, origins(), 1.0, lambda: False)
            served.put([put_item(X)], time.time())
            await wait_until_async(lambda: worker.frontier.frontier.counts().left, BOUND_S)
            await served.wait_until_durable()
            with server.client() as client:
                client.hset(root(LONE, 0), "owner", "another/one.1")
            found = served.lease(time.time(), queues=9, per_queue=9, lease_s=30)
            async with asyncio.timeout(BOUND_S):
                assert await found == []

    run_loop(scenario())

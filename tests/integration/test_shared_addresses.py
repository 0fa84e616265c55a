"""Hosts of one address in whole crawls, as their server sees them: one request at a time, and a
rest after each, whatever name it was for, over kills and restarts too."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import scrapy
from msgspec.structs import replace

from crawler.download.network import NetworkFetch
from crawler.download.port import WireRequest
from crawler.download.resolver import AresLookup, Resolver
from crawler.engine.errors import AddressFound
from crawler.model.page import AddressRefused, DownloadOptions
from tests.harness.commands import crawl_command
from tests.harness.crawling import crawl
from tests.harness.fetch_watch import EachRequest
from tests.harness.fork_server import ForkedProcess, run, running
from tests.servers.judge import Gap, Kind, judge
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.names import NameServer
from tests.servers.redis import RedisServer

CONTACT = "ops@w3.org"  # no placeholder; all requests stay on loopback
ONE, OTHER = "127.0.0.1", "127.0.0.2"
ON_ONE = [f"www.one{number}.example" for number in range(8)]
ON_OTHER = [f"www.other{number}.example" for number in range(2)]
BUSY = ON_ONE[0]  # asks for a longer rest, once
PAGES = 3
DELAY_S = 0.1
KILLS = 6


class HostedPages:
    """The pages of all names. One of them is refused once, with a Retry-After."""

    def __init__(self) -> None:
        self.refused = 0

    def __call__(self, ask: Ask) -> Reply:
        name = dict(ask.headers)["Host"]
        if ask.path.endswith("/robots.txt"):
            return Reply(status=404)
        if name.startswith(BUSY) and ask.path == "/1" and not self.refused:
            self.refused += 1
            return Reply(status=429, headers=(("Retry-After", "2"),))
        links = (f'<a href="/{number}">{name}{ask.path}</a>' for number in range(1, PAGES))
        return Reply("".join(links), wait_s=0.02)


def settings_for(names: NameServer) -> dict[str, object]:
    return {
        "CRAWLER_CONTACT": CONTACT,
        "CRAWLER_NAME_SERVERS": names.address,
        "CRAWLER_HOST_UNIT": "address",
        "CRAWLER_MIN_DELAY_S": DELAY_S,
        "CRAWLER_DELAY_FACTOR": 1,
    }


def found_at(web: LoopbackWeb):
    web.settle()
    return judge(web.visits, {}, Gap(DELAY_S, 1.0))


def test_an_address_is_asked_one_request_at_a_time(tmp_path: Path) -> None:
    records = dict.fromkeys(ON_ONE, (ONE,)) | dict.fromkeys(ON_OTHER, (OTHER,))
    with LoopbackWeb(HostedPages(), [ONE, OTHER]) as web, NameServer(records) as names:
        seeds = ",".join(f"http://{name}:{web.port}/" for name in records)
        done = crawl(tmp_path / "data", settings=settings_for(names), seeds=seeds)
        found = found_at(web)
    pages = Counter(each.host for each in done.outcomes if each.status == 200)
    assert pages == dict.fromkeys(records, PAGES), "each page of each host"
    assert found.statuses[429] == 1
    assert not found.found, found


def test_kills_and_restarts_bring_no_request_too_early_to_an_address(tmp_path: Path) -> None:
    records = dict.fromkeys(ON_ONE, (ONE,)) | dict.fromkeys(ON_OTHER, (OTHER,))
    moments = random.Random(5)
    with LoopbackWeb(HostedPages(), [ONE, OTHER]) as web, NameServer(records) as names:
        seeds = ",".join(f"http://{name}:{web.port}/" for name in records)
        command = crawl_command(tmp_path / "data", settings_for(names), seeds=seeds)
        for _ in range(KILLS):
            with running(command, tmp_path / "log") as process:
                try:
                    process.wait(moments.uniform(0.5, 1.2))
                except subprocess.TimeoutExpired:
                    process.kill()
        last = run(command)
        found = found_at(web)
    assert last.returncode == 0, last.stderr[-2000:]
    assert not found.of(Kind.OVERLAP), found
    assert not found.found, found


def test_a_host_that_moves_is_asked_at_its_new_address(tmp_path: Path) -> None:
    name = "www.moves.example"
    records = {name: (OTHER, ONE)}
    with LoopbackWeb(HostedPages(), [ONE, OTHER]) as web, NameServer(records) as names:
        seeds = f"http://{name}:{web.port}/"
        crawl(tmp_path / "data", settings=settings_for(names), seeds=seeds)
        assert {visit.host for visit in web.visits} == {ONE}, "the least, and no other one"


def test_a_host_is_asked_at_another_of_its_addresses_if_one_does_not_answer(
    tmp_path: Path,
) -> None:
    name = "www.half.example"
    with LoopbackWeb(HostedPages(), [OTHER]) as web, NameServer({name: (ONE, OTHER)}) as names:
        seeds = f"http://{name}:{web.port}/"
        done = crawl(tmp_path / "data", settings=settings_for(names), seeds=seeds)
    assert sum(each.status == 200 for each in done.outcomes) == PAGES


def test_names_are_not_looked_up_where_a_proxy_does_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoopbackWeb(HostedPages(), [ONE]) as proxy, NameServer({}) as names:
        monkeypatch.setenv("http_proxy", proxy.url(ONE))
        seeds = "http://www.a.example/,http://www.b.example/"
        done = crawl(tmp_path / "data", settings=settings_for(names), seeds=seeds)
    assert {each.host for each in done.outcomes if each.status == 200} == {
        "www.a.example",
        "www.b.example",
    }
    assert not names.asked


WORKERS = 3
WORKER_KILLS = 2
SHARED = {
    "CRAWLER_FRONTIER_NAME": "addresses",
    "CRAWLER_FRONTIER_SHARDS": 6,
    "CRAWLER_LEASE_S": 12,
    "CRAWLER_TOTAL_TIMEOUT_S": 2,
    "CRAWLER_CONNECT_TIMEOUT_S": 1,
    "CRAWLER_MAX_DELAY_S": 2,
}


def test_workers_ask_an_address_one_request_at_a_time(tmp_path: Path) -> None:
    names_on_one = [f"www.site{number}.example" for number in range(12)]
    records = dict.fromkeys(names_on_one, (ONE,))
    dice = random.Random(3)
    with (
        RedisServer() as server,
        LoopbackWeb(HostedPages(), [ONE]) as web,
        NameServer(records) as names,
        ExitStack() as stack,
    ):
        seeds = ",".join(f"http://{name}:{web.port}/" for name in records)
        settings = settings_for(names) | SHARED | {"CRAWLER_FRONTIER_URL": server.url}

        def start(worker: int) -> ForkedProcess:
            given = settings | {"CRAWLER_WORKER_NAME": f"w{worker}"}
            command = crawl_command(tmp_path / f"w{worker}", given, seeds=seeds)
            return stack.enter_context(running(command, tmp_path / f"log{worker}"))

        at_work = [start(worker) for worker in range(WORKERS)]
        for _ in range(WORKER_KILLS):
            with suppress(subprocess.TimeoutExpired):
                at_work[0].wait(dice.uniform(2.0, 4.0))
            victim = dice.randrange(WORKERS)
            at_work[victim].kill()
            at_work[victim].wait()
            at_work[victim] = start(victim)
        ends = [process.wait() for process in at_work]
        found = found_at(web)
    assert ends == [0] * WORKERS, [(tmp_path / f"log{n}").read_text()[-800:] for n in range(3)]
    assert found.statuses[200] >= PAGES * len(records)
    assert not found.of(Kind.OVERLAP), found
    assert not found.found, found


def test_a_fetch_connects_to_the_address_of_its_lease_only() -> None:
    options = DownloadOptions(
        cap=lambda content_type, url: 1 << 20, admits=lambda ip, host, port: ip != "127.0.0.3"
    )

    async def run(web: LoopbackWeb) -> None:
        fetch = NetworkFetch(options, Resolver(options.admits, AresLookup()))
        request = WireRequest(url=f"http://localhost:{web.port}/")

        async def ip_of(address: str | None) -> str:
            fetched = await fetch.fetch(replace(request, address=address), EachRequest())
            return fetched.exchanges[-1].ip

        assert [await ip_of(at) for at in (OTHER, ONE, OTHER, None)] == [OTHER, ONE, OTHER, ONE]
        with pytest.raises(AddressFound):
            await ip_of("")
        with pytest.raises(AddressRefused):
            await ip_of("127.0.0.3")
        await fetch.close()

    with LoopbackWeb(HostedPages(), [ONE, OTHER]) as web:
        asyncio.run(run(web))
    # After the web is closed: it notes a visit when the answer is sent, which may be read before.
    assert [visit.host for visit in web.visits] == [OTHER, ONE, OTHER, ONE]


DIRECT = [f"a.n{number}.example" for number in range(3)]


class SomeProxied(scrapy.Spider):
    """Asks for one URL through a proxy, and for the others itself."""

    name = "some-proxied"

    def __init__(self, port: int, proxy: str, **more: Any) -> None:
        super().__init__(**more)
        self.port, self.proxy = port, proxy

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"http://p.other.example:{self.port}/", meta={"proxy": self.proxy})
        for number in range(4):
            for host in DIRECT:
                yield scrapy.Request(f"http://{host}:{self.port}/{number}")

    def parse(self, response: Any) -> None:
        """Nothing is looked for."""


def some_page(ask: Ask) -> Reply:
    return Reply(status=404) if ask.path.endswith("/robots.txt") else Reply("<p>" + ask.path)


def test_a_request_by_proxy_stops_no_host_that_is_grouped_by_address(tmp_path: Path) -> None:
    names = {**dict.fromkeys(DIRECT, ("127.0.143.1",)), "p.other.example": ("127.0.143.2",)}
    with NameServer(names) as server, LoopbackWeb(some_page, ["127.0.143.1", "127.0.143.2"]) as web:
        settings = {
            "CRAWLER_HOST_UNIT": "address",
            "CRAWLER_NAME_SERVERS": server.address,
            "CRAWLER_CONTACT": "https://w3.org/bot",
        }
        proxy = f"http://127.0.143.2:{web.port}"
        crawl(tmp_path, SomeProxied, settings, port=web.port, proxy=proxy)
        pages = [each for each in web.visits if each.host == "127.0.143.1" and each.status == 200]
    assert len(pages) == 4 * len(DIRECT)

"""What name servers said to one worker is used by others, over a real Redis and a real name server.

Rule: nothing that is in Redis is believed as it stands, and no crawl needs it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from crawler.download.resolver import MAX_TTL_S, AresLookup, Resolver
from crawler.frontier.shards import shard_of
from crawler.model.page import AddressRefused, ResolvedName
from crawler.model.url import registered_domain
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.worker.names import ASK_AGAIN_S, UNANSWERED, SharedNames, read_answer
from tests.harness.commands import PATIENCE_S
from tests.harness.crawling import crawl
from tests.harness.fork_server import SCRAPY, run
from tests.harness.redis_worker import NAME, SHARDS, RedisWorker
from tests.harness.waiting import wait_until_async
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.names import NameServer
from tests.servers.redis import RedisServer

HOST, PUBLIC, INSIDE = "www.example.com", "192.0.2.1", "10.0.0.1"
TTL_S: Final = 300
DAY_MS: Final = 86_400_000


class Sharer(RedisWorker):
    """A worker with a resolver, whose clock is set by hand."""

    def __init__(self, url: str, session: str, names: NameServer) -> None:
        super().__init__(url, session)
        self.now = 1000.0
        self.used: Counter[str] = Counter()
        self.shared = SharedNames(
            self.link(), NAME, self.nodes.commands, most=SHARDS * 50, steady=lambda: self.now
        )
        self.resolver = Resolver(
            lambda ip, host, port: ip != INSIDE,
            AresLookup((names.address,)),
            lambda: self.now,
            shared=self.shared,
            on_use=self.note_use,
        )

    def note_use(self, event: str) -> None:
        self.used[event] += 1

    async def look_up(self, host: str = HOST) -> list[str]:
        return await self.resolver.addresses(host, 80)


@pytest.fixture
def names() -> Iterator[NameServer]:
    known = {HOST: (PUBLIC, "2001:db8::1"), "inside.example.com": (INSIDE,)}
    with NameServer(known, ttl_s=TTL_S) as server:
        yield server


@asynccontextmanager
async def sharers(
    server: RedisServer, names: NameServer, count: int = 2
) -> AsyncIterator[list[Sharer]]:
    workers = [Sharer(server.url, f"s{number}", names) for number in range(count)]
    try:
        for worker in workers:
            await worker.nodes.open()
        yield workers
    finally:
        for worker in workers:
            await worker.resolver.close()
            await worker.nodes.close()


def key_of(host: str) -> str:
    return keys.names(NAME, shard_of(registered_domain(host), SHARDS))


async def wait_for(server: RedisServer, host: str) -> None:
    """Wait until Redis has *host*."""
    client = server.client()
    await wait_until_async(lambda: client.hexists(key_of(host), host), PATIENCE_S)


def plant(server: RedisServer, host: str, value: str, left_ms: int = 60_000) -> None:
    client = server.client()
    seconds, micros = client.time()
    client.hset(key_of(host), host, f"{seconds * 1000 + micros // 1000 + left_ms} {value}")


def test_two_workers_look_a_name_up_once(server: RedisServer, names: NameServer) -> None:
    async def scenario() -> None:
        async with sharers(server, names) as (one, other):
            found = await one.look_up()
            await wait_for(server, HOST)
            assert await other.look_up() == found and PUBLIC in found
            assert names.asked[HOST] == 2, "once for IPv4, once for IPv6"
            assert (one.used["shared"], other.used["shared"]) == (0, 1)
            assert other.resolver.needs_lookup(HOST, TTL_S), "it counts for what is left of it"
            assert not other.resolver.needs_lookup(HOST, TTL_S - PATIENCE_S)
            assert 0 < server.client().pttl(key_of(HOST)) <= DAY_MS, "Redis drops what is left"

    asyncio.run(scenario())


def test_an_inside_address_from_redis_is_refused_and_the_name_looked_up(
    server: RedisServer, names: NameServer
) -> None:
    async def scenario() -> None:
        async with sharers(server, names, 1) as (worker,):
            plant(server, HOST, INSIDE)
            assert PUBLIC in await worker.look_up()
            assert worker.used["disbelieved"] == 1
            plant(server, "inside.example.com", INSIDE)
            with pytest.raises(AddressRefused, match="an inside address"):
                await worker.look_up("inside.example.com")
            plant(server, "gone.example.com", INSIDE)
            with pytest.raises(OSError, match="no address"):
                await worker.look_up("gone.example.com")

    asyncio.run(scenario())


def test_a_ttl_of_ten_years_counts_for_a_day(server: RedisServer, names: NameServer) -> None:
    async def scenario() -> None:
        async with sharers(server, names, 1) as (worker,):
            plant(server, HOST, "192.0.2.7", 3650 * DAY_MS)
            assert await worker.look_up() == ["192.0.2.7"]
            assert not worker.resolver.needs_lookup(HOST, MAX_TTL_S - 1)
            assert worker.resolver.needs_lookup(HOST, MAX_TTL_S)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("value", "ips"),
    [
        pytest.param(b"1060000 192.0.2.1 2001:DB8::1", (PUBLIC, "2001:db8::1"), id="as written"),
        pytest.param(None, None, id="none"),
        pytest.param(7, None, id="a number"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"1060000", None, id="no address"),
        pytest.param(b"1004999 192.0.2.1", None, id="to expire in a moment"),
        pytest.param(b"999000 192.0.2.1", None, id="expired"),
        pytest.param(b"1060000 www.example.com", None, id="a name"),
        pytest.param(b"1060000 192.0.2.1 evil", None, id="partly an address"),
        pytest.param(b"1060000 fe80::1%eth0", None, id="an address with a zone"),
        pytest.param(b"soon 192.0.2.1", None, id="no time"),
        pytest.param(b"inf 192.0.2.1", None, id="for ever"),
        pytest.param(b"9" * 400 + b" 192.0.2.1", None, id="longer than a float"),
        pytest.param(b"\x80\x04K\x01.", None, id="a pickle"),
        pytest.param(b"1060000" + b" 192.0.2.1" * 33, None, id="too many"),
        pytest.param(b"1060000" + b" " * 4000 + b"192.0.2.1", None, id="too long"),
    ],
)
def test_what_is_no_answer_is_none(value: object, ips: tuple[str, ...] | None) -> None:
    found = read_answer([b"1000", b"0"], value)
    assert found == (None if ips is None else ResolvedName(ips, 60.0))


def test_what_is_planted_in_place_of_names_is_as_if_there_were_none(
    server: RedisServer, names: NameServer
) -> None:
    async def scenario() -> None:
        async with sharers(server, names, 1) as (worker,):
            server.client().set(key_of(HOST), "no hash")
            assert PUBLIC in await worker.look_up()

    asyncio.run(scenario())


def test_nothing_waits_for_a_redis_that_is_silent(names: NameServer) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server, names) as (one, other):
            await one.look_up()
            await wait_for(server, HOST)
            await other.shared.find(HOST)  # its shard is open now
            server.pause()
            for asked in (1, 2, 3):
                other.now += MAX_TTL_S
                assert PUBLIC in await other.look_up()
                assert other.counted[UNANSWERED] == asked
            server.resume()

            async def is_shared() -> bool:
                other.now += ASK_AGAIN_S
                return await other.shared.find(HOST) is not None

            async with asyncio.timeout(PATIENCE_S):
                while not await is_shared():
                    await asyncio.sleep(0.01)
            server.kill()
            other.now += MAX_TTL_S
            assert PUBLIC in await other.look_up()

    with RedisServer() as server:
        asyncio.run(scenario(server))


def test_the_names_in_redis_have_a_bound(server: RedisServer, names: NameServer) -> None:
    async def scenario() -> None:
        async with sharers(server, names, 1) as (worker,):
            hosts = [f"www.h{number}.example" for number in range(5000)]
            for begin in range(0, len(hosts), 500):
                for host in hosts[begin : begin + 500]:
                    worker.shared.add(host, ResolvedName((PUBLIC,), 600.0))
                await wait_until_async(lambda: worker.shared.is_idle, PATIENCE_S)
            lengths = [client.hlen(keys.names(NAME, shard)) for shard in range(SHARDS)]
            assert max(lengths) == 50
            assert sum([await worker.shared.find(host) is not None for host in hosts[-100:]]) > 50

    client = server.client()
    asyncio.run(scenario())


def test_names_that_have_expired_make_room(server: RedisServer, names: NameServer) -> None:
    async def scenario() -> None:
        async with sharers(server, names, 1) as (worker,):
            for number in range(120):
                ttl_ms = 1 if number < 20 else DAY_MS
                await worker.nodes.run([Call(0, "names", (200, DAY_MS, f"n{number}", ttl_ms, "x"))])
            left = {name.decode() for name in server.client().hkeys(keys.names(NAME, 0))}
            assert {f"n{number}" for number in range(20, 120)} <= left
            assert len(left) < 110  # which are looked at is random

    asyncio.run(scenario())


HOSTS: Final = [f"www.h{number}.example" for number in range(20)]
MARKED: Final = "www.confidential.example"


def page(ask: Ask) -> Reply:
    if ask.path.endswith("/robots.txt"):
        return Reply(status=404)
    return Reply(f"{dict(ask.headers)['Host']}{ask.path}")


def test_a_worker_finds_the_names_of_earlier_ones_but_none_that_was_purged(
    server: RedisServer, tmp_path: Path
) -> None:
    records = dict.fromkeys((*HOSTS, MARKED), ("127.0.0.1",))
    with NameServer(records) as asked, LoopbackWeb(page, ["127.0.0.1"]) as web:
        settings = {
            "CRAWLER_FRONTIER_URL": server.url,
            "CRAWLER_SHARE_NAMES": True,
            "CRAWLER_CONTACT": "ops@w3.org",
            "CRAWLER_NAME_SERVERS": asked.address,
            "CRAWLER_FRONTIER_SHARDS": 4,
        }

        def stats(folder: str, path: str, *hosts: str) -> dict[str, int]:
            seeds = ",".join(f"http://{host}:{web.port}{path}" for host in hosts)
            done = crawl(tmp_path / folder, settings=settings, seeds=seeds)
            assert {each.status for each in done.outcomes} == {200}
            return done.stats

        def is_marked() -> bool:
            client = server.client()
            kept = [client.hkeys(key) for key in client.scan_iter("gossamer:*:names")]
            return MARKED.encode() in {name for some in kept for name in some}

        first = stats("one", "/1", *HOSTS, MARKED)
        assert "crawler/names/shared" not in first
        assert is_marked()
        before = asked.asked.copy()
        second = stats("two", "/2", *HOSTS)
        assert second["crawler/names/shared"] == len(HOSTS)
        assert asked.asked == before
        given = [word for each in settings.items() for word in ("-s", "=".join(map(str, each)))]
        done = run(
            [
                *SCRAPY,
                "frontier",
                "purge",
                MARKED,
                *given,
                "-s",
                f"CRAWLER_DATA_DIR={tmp_path / 'one'}",
            ]
        )
        assert done.returncode == 0, done.stderr
        stats("two", "/3", HOSTS[0])
        assert not is_marked()

"""Near-duplicates among workers, over real servers: what one has stored others find."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from crawler.duplicates.quarters import QUARTERS
from crawler.model.page import NearDuplicate
from crawler.model.types import Claim, decode_outcome
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import (
    bucket_cell,
    rows_of,
)
from crawler.shared.contents import shard_of_digest
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.near_duplicates import UNSURE, NearSearch, SharedNearDuplicates
from tests.harness.commands import crawl_command
from tests.harness.fork_server import run
from tests.harness.redis_worker import (
    IMPATIENT,
    NAME,
    PATIENT,
    SHARDS,
    RedisWorker,
    redis_workers,
    soon,
)
from tests.servers.loopback import Ask, LoopbackWeb, Reply
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

BITS: Final = 3
TEXT: Final = 0x0123_4567_89AB_CDEF
MOST_IN_A_BUCKET: Final = 4096  # as in lua/near.lua
BOUND_S: Final = 60.0  # of what takes a moment


class Sharer(RedisWorker):
    """A worker with its fingerprints."""

    def __init__(self, url: str, session: str) -> None:
        super().__init__(url, session)
        scripts, commands = Batcher(self.run), Batcher(self.nodes.commands)
        near_search = NearSearch(self.contents, NAME, scripts, commands, BITS)
        self.nearest = SharedNearDuplicates(self.link(), near_search, BITS)

    async def near(self, simhash: int, url: str, lease: int) -> NearDuplicate | None:
        return await self.nearest.original(simhash, digest_of(url), url, lease)

    async def search(self, simhash: int) -> NearDuplicate | None:
        """Search for *simhash* with a page that is not stored afterwards."""
        near = await self.near(simhash, "http://looks/", 0)
        self.nearest.release(0)
        return near

    async def finish(self, simhash: int, url: str, lease: int, at: float = 1e9) -> None:
        """As the frontier does: send the claim, then its fingerprint, then finish the lease."""
        self.store(simhash, url, lease, at)
        await self.send_claims()

    def store(self, simhash: int, url: str, lease: int, at: float = 1e9) -> None:
        claim = Claim(digest_of(url), url, "f:17", at, b"w" * 20, 200, simhash)
        self.send_later(self.contents.claim(claim.digest, lease, claim))
        self.nearest.note_claim(lease, claim)
        self.nearest.release(lease)

    async def send_claims(self) -> None:
        self.nearest.send_rows()
        await self.flush()

    async def keep(
        self, simhash: int, url: str, lease: int, at: float = 1e9
    ) -> NearDuplicate | None:
        """A page's whole way."""
        near = await self.near(simhash, url, lease)
        await self.finish(simhash, url, lease, at)
        return near


def sharers(
    url: str, count: int = 2, patience: str = PATIENT
) -> AbstractAsyncContextManager[list[Sharer]]:
    return redis_workers(url, Sharer, count, patience)


def digest_of(url: str) -> bytes:
    return sha1(url.encode()).digest()


def flipped(simhash: int, *bits: int) -> int:
    return simhash ^ sum(1 << bit for bit in bits)


def found(near: NearDuplicate | None) -> tuple[str, int] | None:
    return (near.original.url, near.bits) if near else None


def bucket(simhash: int, table: int) -> str:
    shard, _, quarter = bucket_cell(simhash, table, SHARDS)
    return keys.near(NAME, shard, table, quarter)


def rows(server: RedisServer, simhash: int, table: int) -> int:
    return int(server.client().strlen(bucket(simhash, table))) // (8 if table else 20)


@pytest.mark.parametrize(
    ("bits", "is_near"),
    [
        pytest.param((), True, id="the same text in other bytes"),
        pytest.param((0, 1, 2), True, id="all in the first quarter"),
        pytest.param((17, 18), True, id="in the second"),
        pytest.param((1, 20, 40), True, id="only the last quarter is the same"),
        pytest.param((20, 40, 60), True, id="only the first quarter is the same"),
        pytest.param((0, 1, 2, 3), False, id="four bits apart"),
        pytest.param((0, 16, 32, 48), False, id="in all quarters"),
    ],
)
def test_one_worker_finds_what_another_has_stored(
    server: RedisServer, bits: tuple[int, ...], is_near: bool
) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            assert await one.keep(TEXT, "http://a/1", 1) is None
            near = await other.near(flipped(TEXT, *bits), "http://b/2", 2)
            if not is_near:
                assert near is None
                return
            original = Claim(
                *(digest_of("http://a/1"), "http://a/1", "f:17", 1e9, b"w" * 20, 200, TEXT)
            )
            assert near == NearDuplicate(original, len(bits))
            assert one.counted == other.counted == {}

    asyncio.run(scenario())


def test_a_page_is_never_near_to_itself(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            await one.keep(TEXT, "http://a/1", 1)
            for worker in (one, other):
                assert await worker.near(flipped(TEXT, 5), "http://a/1", 2) is None

    asyncio.run(scenario())


def test_the_nearest_is_the_original(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            for number, bits in enumerate([(1, 2, 3), (1,), (1, 2)]):
                await one.keep(flipped(TEXT, *bits), f"http://a/{number}", number)
            for worker in (one, other):
                assert found(await worker.near(TEXT, "http://b/9", 9)) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_of_near_pages_in_flight_at_one_worker_the_second_waits(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            assert await one.near(TEXT, "http://a/1", 1) is None
            second = await soon(one.near(flipped(TEXT, 9), "http://a/2", 2))
            assert not second.done()
            one.store(TEXT, "http://a/1", 1)  # and not sent yet
            assert found(await second) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_a_page_near_to_a_stored_one_waits_for_none_in_flight(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            await other.keep(TEXT, "http://a/1", 1)
            for lease in range(2, 6):  # all in flight, none settled
                near = await asyncio.wait_for(
                    one.near(TEXT ^ 1, f"http://b/{lease}", lease), BOUND_S
                )
                assert found(near) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_a_fingerprint_stored_during_the_search_is_found(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            await one.near(TEXT, "http://a/1", 1)
            asking = asyncio.create_task(one.near(TEXT ^ 1, "http://a/2", 2))
            await asyncio.sleep(0.005)
            one.store(TEXT, "http://a/1", 1)
            assert found(await asking) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_of_equally_near_ones_the_oldest_is_the_original(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            for lease, at in enumerate([5.0, 3.0, 4.0]):
                await one.keep(flipped(TEXT, lease), f"http://a/{lease}", lease, at)
            for worker in (one, other):
                assert found(await worker.search(TEXT)) == ("http://a/1", 1)

    asyncio.run(scenario())


def test_a_page_that_is_given_up_is_no_original(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            assert await one.near(TEXT, "http://a/1", 1) is None
            second = await soon(one.near(TEXT, "http://a/2", 2))
            one.nearest.release(1)
            assert await second is None
            await one.send_claims()
            assert await other.near(TEXT, "http://b/3", 3) is None

    asyncio.run(scenario())


def test_a_page_that_is_not_compared_is_not_announced(server: RedisServer) -> None:
    """As in a crawl without the search for near-duplicates."""

    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            await one.finish(TEXT, "http://a/1", 1)
            assert list(server.client().scan_iter(f"{NAME}:*:a:*")) == []

    asyncio.run(scenario())


def test_a_fingerprint_without_its_claim_matches_nothing_and_is_repaired(
    server: RedisServer,
) -> None:
    """Its worker died between the two."""

    async def scenario() -> None:
        async with sharers(server.url, 3) as (one, other, third):
            await one.keep(TEXT, "http://a/1", 1)
            shard = shard_of_digest(digest_of("http://a/1"), SHARDS)
            server.client().delete(keys.claims(NAME, shard, 0))
            assert await other.keep(TEXT, "http://b/2", 2) is None
            assert found(await third.near(TEXT, "http://c/3", 3)) == ("http://b/2", 0)

    asyncio.run(scenario())


def test_a_flood_of_equal_texts_is_one_entry(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url, 3) as workers:
            for number in range(300):
                worker = workers[number % 3]
                keeping = worker.keep(TEXT, f"http://a/{number}", number)
                near = await asyncio.wait_for(keeping, BOUND_S)
                assert found(near) == (("http://a/0", 0) if number else None)

    asyncio.run(scenario())
    assert [rows(server, TEXT, table) for table in range(QUARTERS)] == [1] * QUARTERS


async def send_rows(worker: Sharer, simhashes: Sequence[int]) -> None:
    """Send the rows of pages that another worker has stored."""
    rows_by_shard: dict[int, list[Any]] = defaultdict(list)
    for number, simhash in enumerate(simhashes):
        for shard, row in rows_of(simhash, digest_of(f"{number}"), SHARDS):
            rows_by_shard[shard] += row
    await worker.nodes.run(
        [
            Call(shard, "near", tuple(args[begin : begin + 300]))
            for shard, args in rows_by_shard.items()
            for begin in range(0, len(args), 300)
        ]
    )


@pytest.mark.parametrize("table", [0, 3])
def test_a_flood_that_shares_a_quarter_fills_no_more_than_its_bucket(
    server: RedisServer, table: int
) -> None:
    random, own = Random(8), 0xFFFF << 16 * table
    alike = [random.getrandbits(64) & ~own | TEXT & own for _ in range(MOST_IN_A_BUCKET + 500)]
    by_others = {bit for bit in (0, 20, 40, 60) if not own >> bit & 1}

    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            await send_rows(one, alike)
            await one.keep(TEXT, "http://b/1", 1)
            assert await other.search(flipped(TEXT, *by_others)) is None
            near = await other.search(flipped(TEXT, 16 * table, 20, 40))
            # In the first table stands whose a fingerprint is.
            assert found(near) == (("http://b/1", 3) if table else None)
            far = flipped(TEXT, 0, 16, 32, 48)
            await one.keep(far, "http://d/4", 4)
            assert found(await other.search(far)) == ("http://d/4", 0)

    asyncio.run(scenario())
    assert rows(server, TEXT, table) == MOST_IN_A_BUCKET


def test_a_fingerprint_sent_twice_is_stored_once(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            for _ in range(2):
                await send_rows(one, [TEXT, TEXT ^ 1 << 20, TEXT ^ 1 << 40])

    asyncio.run(scenario())
    assert [rows(server, TEXT, table) for table in range(QUARTERS)] == [3, 2, 2, 3]


def clusters(random: Random, count: int) -> list[int]:
    """Fingerprints near and nearly near to each other, some of them equal."""
    hearts = [random.getrandbits(64) for _ in range(count // 8)]
    return [
        flipped(random.choice(hearts), *random.sample(range(64), random.randrange(5)))
        for _ in range(count)
    ]


async def as_brute_force(workers: Sequence[Sharer], seed: int) -> None:
    random, stored = Random(seed), dict[int, str]()
    for lease, simhash in enumerate(clusters(random, 80)):
        worker, url = random.choice(workers), f"http://a/{lease}"
        near = await worker.keep(simhash, url, lease)
        apart = {url: (simhash ^ other).bit_count() for other, url in stored.items()}
        least = min(apart.values(), default=64)
        assert (near is not None) == (least <= BITS), f"lease {lease}"
        if near is not None:
            assert near.bits == least == apart[near.original.url]
        stored.setdefault(simhash, url)
    assert not any(worker.counted for worker in workers)


def test_three_workers_find_what_brute_force_finds(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url, 3) as workers:
            await as_brute_force(workers, 2)

    asyncio.run(asyncio.wait_for(scenario(), BOUND_S))


def test_over_a_cluster_too() -> None:
    async def scenario(url: str) -> None:
        async with sharers(url, 3) as workers:
            assert not workers[0].nodes.single_server
            await as_brute_force(workers, 3)

    with RedisCluster() as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster.url), BOUND_S))


def test_stored_fingerprints_are_found_after_a_restart(tmp_path: Path) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server.url) as (one, other):
            await one.keep(TEXT, "http://a/1", 1)
            server.kill()
            assert await one.near(~TEXT & 2**64 - 1, "http://a/2", 2) is None
            one.store(~TEXT & 2**64 - 1, "http://a/2", 2)
            server.start()
            one.nearest.send_rows()
            while one.unsent:
                await one.flush()
            await other.search(0)  # finds the server again
            other.counted.clear()
            near = await other.search(TEXT ^ 1)
            assert found(near) == ("http://a/1", 1)
            near = await other.search(~TEXT & 2**64 - 1)
            assert found(near) == ("http://a/2", 0), "sent when the server had restarted"
            assert other.counted == {}

    with RedisServer(tmp_path, appendfsync="always") as server:
        asyncio.run(scenario(server))


def test_without_redis_every_page_is_stored(tmp_path: Path) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server.url) as (one, _):
            server.kill()
            assert await one.near(TEXT, "http://a/1", 1) is None
            second = await soon(one.near(TEXT ^ 1, "http://a/2", 2))
            assert not second.done(), "within a worker they still wait for each other"
            one.store(TEXT, "http://a/1", 1)
            assert found(await second) == ("http://a/1", 1)
            assert one.counted == {UNSURE: 1}, "the second has an original"

    with RedisServer(tmp_path) as server:
        asyncio.run(scenario(server))


def test_no_worker_waits_long_for_a_paused_server(tmp_path: Path) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server.url, patience=IMPATIENT) as (one, _):
            await one.near(TEXT, "http://a/1", 1)
            one.counted.clear()
            server.pause()
            try:
                asking = one.near(~TEXT & 2**64 - 1, "http://a/2", 2)
                assert await asyncio.wait_for(asking, BOUND_S) is None
            finally:
                server.resume()
            assert one.counted == {UNSURE: 1}

    with RedisServer(tmp_path) as server:
        asyncio.run(scenario(server))


def test_a_full_server_is_sent_nothing(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, other):
            await one.keep(TEXT, "http://a/1", 1)
            one.is_full = lambda shard: shard == bucket_cell(~TEXT, 2, SHARDS).shard
            await one.keep(~TEXT & 2**64 - 1, "http://a/2", 2)
            assert one.counted == {"untold/near": 1}
            assert await other.search(~TEXT & 2**64 - 1) is None
            assert found(await other.search(TEXT)) == ("http://a/1", 0)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("value", "counted"),
    [
        pytest.param(b"x" * 19, {}, id="less than a row"),
        pytest.param(TEXT.to_bytes(8, "little") + b"x" * 12 + b"x", {}, id="of no claim"),
        pytest.param(None, {UNSURE: 1}, id="of another type"),
    ],
)
def test_foreign_data_matches_nothing(
    server: RedisServer, value: bytes | None, counted: dict[str, int]
) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            if value is None:
                server.client().lpush(bucket(TEXT, 0), "x")
            else:
                server.client().set(bucket(TEXT, 0), value)
            assert await one.near(TEXT, "http://a/1", 1) is None
            assert one.counted == counted

    asyncio.run(scenario())


def test_a_text_that_many_have_is_asked_for_once(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            await one.keep(TEXT, "http://a/1", 1)
            asked = len(one.asked)
            for lease in range(2, 50):
                assert found(await one.keep(TEXT, f"http://a/{lease}", lease))
            assert len(one.asked) == asked

    asyncio.run(scenario())


def test_fingerprints_take_little(server: RedisServer) -> None:
    random = Random(4)

    async def scenario() -> None:
        async with sharers(server.url) as (one, _):
            await send_rows(one, [0])  # buffers of the connection
            before = server.used_memory()
            await send_rows(one, [random.getrandbits(64) & 0x00FF00FF00FF00FF for _ in range(9000)])
            assert (server.used_memory() - before) / 9000 <= 100

    asyncio.run(scenario())


def web(ask: Ask) -> Reply:
    """The same prose on all hosts, in other bytes."""
    if ask.path == "/robots.txt":
        return Reply(status=404)
    links = "".join(f"<a href=/{n}>{n}</a>" for n in (1, 2, 3))
    prose = " ".join(f"word{ask.path[1:]}x{n}" for n in range(80))
    return Reply(f"<html data-of={ask.host}><p>{prose}</p>{links}".encode())


def test_a_worker_that_comes_later_stores_no_second_original(tmp_path: Path) -> None:
    hosts = ("127.0.41.1", "127.0.41.2")
    with RedisServer(tmp_path / "redis") as server, LoopbackWeb(web, hosts) as served:
        outputs = []
        for host in hosts:
            data = tmp_path / host
            settings = {"CRAWLER_FRONTIER_URL": server.url, "CRAWLER_MIN_DELAY_S": 0.01}
            done = run(crawl_command(data, settings, seeds=served.url(host)))
            assert done.returncode == 0, done.stderr[-3000:]
            lines = (data / "outcomes.jsonl").read_bytes().splitlines()
            outputs.append([decode_outcome(line) for line in lines])
    first, later = outputs
    assert [each.reason for each in first] == [""] * 4
    assert [(each.reason, each.bits) for each in later] == [("near-duplicate", 0)] * 4
    pages = {each.url.replace(*hosts): each.original.replace(*hosts) for each in later}
    assert all(url == original for url, original in pages.items())

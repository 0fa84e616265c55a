"""Exact duplicates among workers, over a real Redis: one original, whichever worker fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha1
from random import Random
from typing import Any, Final

import pytest

from crawler.model.types import Claim
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import (
    CLAIMS_PER_BUCKET,
    buckets_of,
    read_filed,
)
from crawler.shared.contents import shard_of_digest
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import UNSURE, SharedDuplicates
from tests.harness.redis_worker import NAME, SHARDS, RedisWorker, redis_workers, soon
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer

DIGEST: Final = sha1(b"a page").digest()
HOLD_S: Final = 30.0
SHORT_S: Final = 0.4
BOUND_S: Final = 60.0  # of what takes a moment


class Sharer(RedisWorker):
    """A worker with its digests."""

    def __init__(self, url: str, session: str) -> None:
        super().__init__(url, session)
        self.replies = asyncio.Event()
        self.replies.set()
        self.hold(HOLD_S)

    def hold(self, hold_s: float) -> None:
        """From now on a page of this worker may take so long."""
        batcher = Batcher(self.run)
        self.digests = SharedDuplicates(self.link(), batcher, hold_s)

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        replies = await super().run(calls)
        await self.replies.wait()
        return replies

    async def finish(self, lease: int, claim: Claim) -> None:
        """As the frontier does: the claim is sent before the lease is finished."""
        self.send_later(self.contents.claim(claim.digest, lease, claim))
        self.digests.release(lease)
        await self.flush()

    async def give_up(self, lease: int) -> None:
        self.digests.release(lease)
        await self.flush()


def sharers(server: RedisServer, count: int = 2) -> AbstractAsyncContextManager[list[Sharer]]:
    return redis_workers(server.url, Sharer, count)


def claim_of(url: str, digest: bytes = DIGEST) -> Claim:
    return Claim(digest, url, "crawl-1-00001-w.warc.gz:17", 1e9, b"w" * 20)


def kept(server: RedisServer, kind: str) -> list[bytes]:
    return list(server.client().scan_iter(f"{NAME}:*:{kind}:*"))


def test_one_worker_finds_what_another_has_stored(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            assert await one.digests.original(DIGEST, "http://a/1", 1) is None
            claim = claim_of("http://a/1")
            await one.finish(1, claim)
            assert await other.digests.original(DIGEST, "http://b/2", 2) == claim
            assert kept(server, "v") == [], "nothing is reserved any more"

    asyncio.run(scenario())


def test_a_page_fetched_again_is_found_stored(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.digests.original(DIGEST, "http://a/1", 1)
            claim = claim_of("http://a/1")
            await one.finish(1, claim)
            for lease in (2, 3):
                assert await other.digests.original(DIGEST, "http://a/1", lease) == claim

    asyncio.run(scenario())


def test_of_equal_pages_in_flight_at_two_workers_the_second_waits(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.digests.original(DIGEST, "http://a/1", 1)
            second = await soon(other.digests.original(DIGEST, "http://b/2", 2))
            assert not second.done(), "undecided as long as the first is in flight"
            await one.finish(1, claim_of("http://a/1"))
            assert (await second).url == "http://a/1"

    asyncio.run(scenario())


def test_the_second_becomes_the_original_if_the_first_is_given_up(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.digests.original(DIGEST, "http://a/1", 1)
            second = await soon(other.digests.original(DIGEST, "http://b/2", 2))
            await one.give_up(1)
            assert await second is None
            await other.finish(2, claim_of("http://b/2"))
            found = await one.digests.original(DIGEST, "http://a/1", 3)
            assert found is not None and found.url == "http://b/2"

    asyncio.run(scenario())


def test_a_page_of_a_dead_worker_does_not_block_others_for_ever(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (dead, other):
            dead.hold(SHORT_S)
            await dead.digests.original(DIGEST, "http://a/1", 1)
            await dead.nodes.close()
            assert await other.digests.original(DIGEST, "http://b/2", 2) is None
            assert other.counted == {}, "it has become the original"

    asyncio.run(scenario())


def test_after_too_long_a_wait_the_page_is_stored(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.nodes.run([one.contents.reserve(DIGEST, 1, 100 * HOLD_S)])
            other.hold(SHORT_S)
            assert await other.digests.original(DIGEST, "http://b/2", 2) is None
            assert other.counted == {UNSURE: 1}

    asyncio.run(scenario())


def test_without_redis_every_page_is_stored(tmp_path: Any) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server) as (one, _):
            server.kill()
            assert await one.digests.original(DIGEST, "http://a/1", 1) is None
            second = await soon(one.digests.original(DIGEST, "http://a/2", 2))
            assert not second.done(), "within a worker they still wait for each other"
            one.digests.release(1)
            assert await second is None
            assert one.counted == {UNSURE: 2}
            server.start()
            one.digests.release(2)
            while one.unsent:
                await one.flush()

    with RedisServer(tmp_path) as server:
        asyncio.run(scenario(server))


def test_a_server_without_memory_left_still_returns_and_takes_claims(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.nodes.run([one.contents.reserve(b"opens the shards", 9, 0.01)])
            await other.nodes.run([one.contents.reserve(b"opens the shards", 9, 0.01)])
            server.client().config_set("maxmemory", 1)
            await one.digests.original(DIGEST, "http://a/1", 1)
            await one.finish(1, claim_of("http://a/1"))
            assert one.unsent == []
            assert await other.digests.original(DIGEST, "http://b/2", 2) is not None
            assert one.counted == other.counted == {}

    try:
        asyncio.run(scenario())
    finally:
        server.client().config_set("maxmemory", 0)


def test_a_task_cancelled_before_its_answer_came_leaves_nothing_reserved(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            one.replies.clear()
            asking = asyncio.create_task(one.digests.original(DIGEST, "http://a/1", 1))
            await wait_until_async(lambda: kept(server, "v"), BOUND_S)
            asking.cancel()
            await asyncio.wait({asking})
            await one.flush()
            assert kept(server, "v") == []
            one.replies.set()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_reserved", [False, True], ids=["asking", "waiting for another"])
def test_a_task_cancelled_leaves_nothing_reserved(server: RedisServer, is_reserved: bool) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            if is_reserved:
                await other.digests.original(DIGEST, "http://b/2", 2)
            first = asyncio.create_task(one.digests.original(DIGEST, "http://a/1", 1))
            await asyncio.sleep(0.05 if is_reserved else 0)
            second = asyncio.create_task(one.digests.original(DIGEST, "http://a/3", 3))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait({first})
            await one.flush()
            await other.give_up(2)
            assert await second is None, "the page that waited for it continues"
            await one.give_up(3)
            assert kept(server, "v") == []

    asyncio.run(scenario())


def test_a_digest_of_many_pages_at_once_is_queried_once(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.digests.original(DIGEST, "http://a/1", 1)
            await one.finish(1, claim_of("http://a/1"))
            asks = [other.digests.original(DIGEST, f"http://b/{n}", n) for n in range(100)]
            assert {found.url for found in await asyncio.gather(*asks)} == {"http://a/1"}
            assert len(other.asked) == 1

    asyncio.run(scenario())


def test_a_reservation_that_a_claim_frees_is_not_freed_twice(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            await one.digests.original(DIGEST, "http://a/1", 1)
            one.digests.note_claim(1)
            one.digests.release(1)
            one.digests.release(1)
            assert one.unsent == []

    asyncio.run(scenario())


def test_other_content_under_one_lease_gives_the_first_free(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.digests.original(DIGEST, "http://a/1", 1)
            await one.digests.original(DIGEST, "http://a/1", 1)
            assert one.unsent == [], "the same again: it stays reserved"
            await one.digests.original(b"o" * 20, "http://a/1", 1)
            await one.flush()
            assert await other.digests.original(DIGEST, "http://b/2", 2) is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "filed",
    [
        pytest.param(b"\0\0\0\x95\xc4\x14" + DIGEST, id="cut off"),
        pytest.param(b"\0\0\0\x95\xc4\x14" + DIGEST + b"\x01\x02\x03\x04", id="not our words"),
        pytest.param(b"\0\0\0\x95\xc4\x14" + DIGEST + b"\xa1u\xcb" + b"\0" * 8, id="ends early"),
    ],
)
def test_a_claim_that_is_none_counts_as_none(server: RedisServer, filed: bytes) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            bucket = keys.claims(NAME, shard_of_digest(DIGEST, SHARDS), 0)
            server.client().rpush(bucket, filed)
            assert await one.digests.original(DIGEST, "http://a/1", 1) is None
            assert one.counted == {UNSURE: 1}

    asyncio.run(scenario())


def test_of_equal_pages_at_three_workers_one_is_the_original(server: RedisServer) -> None:
    """Some are given up, some cancelled, in any order."""
    random = Random(3)
    claims: dict[bytes, list[str]] = {}
    copies: dict[bytes, list[str]] = {}

    async def visit(worker: Sharer, lease: int, digest: bytes) -> None:
        url = f"http://a/{lease}"
        try:
            found = await worker.digests.original(digest, url, lease)
            if found is not None:
                copies.setdefault(digest, []).append(found.url)
                return
            await asyncio.sleep(random.random() * 0.02)
            if random.random() < 0.7:
                claims.setdefault(digest, []).append(url)
                worker.send_later(worker.contents.claim(digest, lease, claim_of(url, digest)))
        finally:
            worker.digests.release(lease)

    async def scenario() -> None:
        async with sharers(server, 3) as workers:
            visits = []
            for lease in range(240):
                digest = sha1(b"%d" % random.randrange(24)).digest()
                task = asyncio.create_task(visit(random.choice(workers), lease, digest))
                visits.append(task)
                if random.random() < 0.2:
                    asyncio.get_running_loop().call_later(random.random() * 0.1, task.cancel)
            while not all(task.done() for task in visits):
                await asyncio.gather(*(worker.flush() for worker in workers))
                await asyncio.sleep(0.01)
            await asyncio.gather(*(worker.flush() for worker in workers))
            assert not any(worker.counted for worker in workers)
            assert kept(server, "v") == []

    asyncio.run(asyncio.wait_for(scenario(), 120.0))
    assert all(len(urls) == 1 for urls in claims.values())
    assert all(set(urls) == set(claims[digest]) for digest, urls in copies.items())
    assert len(copies) > 12


def digests_of(count: int) -> list[bytes]:
    return [sha1(b"page %d" % number).digest() for number in range(count)]


async def fill(worker: RedisWorker, digests: list[bytes]) -> None:
    for begin in range(0, len(digests), 500):
        part = enumerate(digests[begin : begin + 500], begin)
        made = [
            (lease, claim_of(f"https://www.example.com/{lease:066}", digest))
            for lease, digest in part
        ]
        await worker.nodes.run(
            [worker.contents.claim(claim.digest, lease, claim) for lease, claim in made]
        )


def test_claims_are_found_in_any_number_and_take_little(server: RedisServer) -> None:
    digests = digests_of(8000)

    async def scenario() -> None:
        async with sharers(server) as (one, _):
            await fill(one, digests[:1])  # buffers of the connection
            before = server.used_memory()
            await fill(one, digests)
            assert (server.used_memory() - before) / len(digests) <= 200
            replies = await one.nodes.run([one.contents.reserve(each, 0, 1.0) for each in digests])
            assert {reply[1] for reply in replies} == {b"claimed"}

    asyncio.run(scenario())
    client = server.client()
    sizes = []
    for shard in range(SHARDS):
        total = int(client.hget(keys.root(NAME, shard), "claims") or 0)
        buckets = [keys.claims(NAME, shard, n) for n in range(buckets_of(total))]
        filed = [client.lrange(bucket, 0, -1) for bucket in buckets]
        assert sum(map(len, filed)) == total
        files = client.hgetall(keys.key_files(NAME, shard))
        assert len(files) == 2, "a file is named once, for all of its claims"
        claims = [read_filed(each, files) for bucket in filed for each in bucket]
        assert {shard_of_digest(claim.digest, SHARDS) for claim in claims} == {shard}
        assert {claim.record for claim in claims} == {"crawl-1-00001-w.warc.gz:17"}
        sizes += [len(bucket) for bucket in filed]
    assert sum(sizes) == len(digests)
    assert max(sizes) < 5 * CLAIMS_PER_BUCKET


def test_filling_a_bucket_on_purpose_fills_no_other(server: RedisServer) -> None:
    """Return pages whose digests end with the same bytes, and are in one shard."""
    alike = [sha1(b"%d" % n).digest()[:7] + bytes([0]) * 13 for n in range(400)]

    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await fill(one, [bytes([0]) + each[1:7] + bytes(13) for each in alike])
            await fill(one, digests_of(2000))
            reply = await other.nodes.run(
                [one.contents.reserve(each, 0, 1.0) for each in digests_of(2000)]
            )
            lost = sum(each[1] != b"claimed" for each in reply)
            assert lost < 40

    asyncio.run(scenario())
    assert max(server.client().llen(name) for name in kept(server, "g")) <= 200

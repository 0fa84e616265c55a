"""The frontier of a worker over a real Redis, and a network that loses what a test chooses: the
order of links and verdicts, the end of a crawl, and the end of a worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from crawler.frontier.shards import shard_of
from crawler.model.types import Candidate, Claim, Done
from crawler.shared import keys
from crawler.shared.codec import WorkerRecord
from tests.harness.frontiers import candidate
from tests.harness.lone_worker import BOUND_S, NAME, DeafNodes, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer

LOOKS_S = 3.5  # three looks whether the crawl is over


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


def of_shard(shard: int, count: int = 1) -> list[Candidate]:
    """Each of a host of its own."""
    hosts = (f"h{number}.example" for number in range(1000))
    return [candidate("", host=host) for host in hosts if shard_of(host, 2) == shard][:count]


def fields(server: RedisServer, shard: int, kind: str) -> int:
    with server.client() as client:
        return int(client.hlen(f"{keys.root(NAME, shard)}:{kind}"))


@pytest.mark.parametrize("is_own", [True, False], ids=["in an own shard", "in an inbox"])
def test_a_verdict_is_given_when_redis_has_the_links_of_its_page(
    server: RedisServer, tmp_path: Path, is_own: bool
) -> None:
    """Though they are in another shard, which may be at another server."""

    async def scenario() -> None:
        (page,), (link,) = of_shard(0), of_shard(1)
        async with running(LoneWorker(server.url, tmp_path, nodes=DeafNodes)) as worker:
            await worker.add(page)
            (lease,) = await worker.lease(1)
            if is_own:
                await worker.holds_all()
            worker.slots = 0
            worker.nodes.deaf.add(1)
            worker.frontier.add([link], time.time())
            worker.end(lease)
            await asyncio.sleep(1.0)  # in which a verdict would have been sent
            assert fields(server, 0, "o") == 1, "the page is fetched again"
            worker.nodes.deaf.clear()
            await wait_until_async(lambda: fields(server, 0, "o") == 0, BOUND_S)
            worker.slots = 1
            assert [each.candidate.url for each in await worker.lease(1)] == [link.url]

    asyncio.run(scenario())


def test_a_silent_shard_holds_up_no_other(server: RedisServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path, nodes=DeafNodes)) as worker:
            await worker.add(*of_shard(0), *of_shard(1, 2))
            await worker.lease(3)
            worker.nodes.deaf.add(0)
            first, second = of_shard(0, 4)[2:], of_shard(1, 4)[2:]
            worker.frontier.add([*first, *second], time.time())
            hosts = {each.candidate.host for each in await worker.lease(2)}
            assert hosts == {each.host for each in second}
            worker.nodes.deaf.clear()

    asyncio.run(scenario())


def test_a_crawl_is_not_over_before_its_beginning_is_added(
    server: RedisServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        one = LoneWorker(server.url, tmp_path, "a", nodes=DeafNodes)
        async with running(LoneWorker(server.url, tmp_path, "b")) as other:
            await other.ends()
            one.nodes.deaf |= {0, 1}
            async with running(one, *of_shard(0)):
                await wait_until_async(lambda: one.frontier.membership.live == 2, BOUND_S)
                await wait_until_async(lambda: not other.frontier.is_over(), BOUND_S)
                end = time.monotonic() + LOOKS_S
                while time.monotonic() < end:
                    assert not (one.frontier.is_over() or other.frontier.is_over())
                    await asyncio.sleep(0.02)
                one.nodes.deaf.clear()
                leases = [*one.frontier.lease(time.time()), *other.frontier.lease(time.time())]
                while not leases:
                    await asyncio.sleep(0.02)
                    leases = [*one.frontier.lease(time.time()), *other.frontier.lease(time.time())]
                assert not (one.frontier.is_over() or other.frontier.is_over())

    asyncio.run(scenario())


def test_links_added_after_the_end_restart_the_crawl(server: RedisServer, tmp_path: Path) -> None:
    """A user's extension may add requests when the spider is idle."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path)) as worker:
            await worker.ends()
            worker.frontier.add(of_shard(0), time.time())
            assert not worker.frontier.is_over()
            worker.end(*await worker.lease(1))
            await worker.ends()

    asyncio.run(scenario())


@pytest.mark.parametrize("drift", [-19, 19])
def test_the_end_is_found_in_the_queues_though_counters_have_drifted(
    server: RedisServer, tmp_path: Path, drift: int
) -> None:
    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path), *of_shard(0)) as worker:
            (lease,) = await worker.lease(1)
            worker.frontier.frontier.frontier._batch.totals.waiting += drift
            worker.end(lease)
            await worker.ends()

    asyncio.run(scenario())


def test_a_note_of_an_outbox_that_is_empty_does_not_keep_the_crawl_from_its_end(
    server: RedisServer, tmp_path: Path
) -> None:
    """Its removal was lost with the server's last second, or overtaken by an older call."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path)) as worker:
            await worker.ends()
            with server.client() as client:
                client.sadd(f"{keys.root(NAME, 1)}:outboxes", "w")
            worker.frontier.add(of_shard(0), time.time())
            worker.end(*await worker.lease(1))
            await worker.ends()

    asyncio.run(scenario())


def test_the_worker_with_unsent_links_is_logged(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent = WorkerRecord(name="lost-1", session="lost-1.1", host="there", pid=1, outbox=7)

    async def scenario() -> None:
        with server.client() as client:
            client.hset(keys.workers(NAME), "lost-1", msgspec.json.encode(silent))
            client.sadd(f"{keys.root(NAME, 1)}:outboxes", "lost-1")
        async with running(LoneWorker(server.url, tmp_path)) as worker:
            await wait_until_async(lambda: "lost-1 found (7 links" in caplog.text, BOUND_S)
            assert not worker.frontier.is_over()

    asyncio.run(scenario())


def test_all_is_in_redis_when_a_worker_has_ended(server: RedisServer, tmp_path: Path) -> None:
    claim = Claim(b"d" * 20, "http://h/1", status=404)

    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path), *of_shard(0), *of_shard(1)) as one:
            first, _ = await one.lease(2)
            one.frontier.add([candidate("link", host=first.candidate.host)], time.time())
            one.end(first, seconds=300.0, verdict=Done(claim=claim))
        with server.client() as client:
            owners = [client.hget(keys.root(NAME, shard), "owner") for shard in range(2)]
            assert owners == [b"", b""], "the next worker has them at once"
            assert list(client.scan_iter(f"{NAME}:*:g:*"))
        async with running(LoneWorker(server.url, tmp_path, "next")) as other:
            (again,) = await other.lease(1)
            assert again.candidate.host != first.candidate.host, "that host rests"
            await wait_until_async(lambda: other.frontier.counts().done == 1, BOUND_S)
            assert other.frontier.counts().waiting == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(0, 12, 3))
def test_a_worker_ends_though_its_tasks_wake_as_they_are_cancelled(
    server: RedisServer, tmp_path: Path, turns: int
) -> None:
    async def scenario() -> None:
        worker = LoneWorker(server.url, tmp_path)
        await worker.begin()
        await wait_until_async(lambda: worker.frontier.membership.live, BOUND_S)
        closing = asyncio.ensure_future(worker.frontier.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        worker.frontier.lease(time.time())
        await asyncio.wait({closing}, timeout=BOUND_S)
        assert closing.done()

    asyncio.run(scenario())

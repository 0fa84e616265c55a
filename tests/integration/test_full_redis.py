"""Servers whose memory is full, as the frontier of one worker meets them: links wait on its disk,
and are sent when there is room, the better levels first."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.model.types import Done
from crawler.shared import keys
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import Unreachable
from crawler.shared.worker import outgoing
from tests.harness.frontiers import candidate
from tests.harness.shared_frontier import BOUND_S, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis", appendfsync="no") as server:
        yield server


class Mark:
    """High water, where a test wants it."""

    def __init__(self) -> None:
        self.bytes: int | None = None

    def __call__(self, _: int) -> int | None:
        return self.bytes


class DroppingNodes(Nodes):
    """Servers that do not receive the announcement of links on a disk."""

    is_deaf = True
    dropped = 0

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        if self.is_deaf and any(call.script == "outbox" and call.args[1] for call in calls):
            self.dropped += 1
            return [Unreachable("lost by the test")] * len(calls)
        return await super().run(calls)


def test_better_levels_go_first(server: RedisServer) -> None:
    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, shards=1, full_bytes=mark, is_sure=True)
        async with running(worker):
            await worker.add(candidate("first"))
            (first,) = await worker.lease(1)
            mark.bytes = 1
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            # More than one look drains, the worst of them first in the outbox.
            for level in (2, 1, 0):
                links = [
                    candidate(f"{level}/{n}", host=f"{level}", level=level)
                    for n in range(outgoing.LINKS_PER_BATCH)
                ]
                await worker.add(*links)
            assert len(worker.outbox) == 3 * outgoing.LINKS_PER_BATCH
            assert worker.frontier.finish(first, Done(), time.time())
            await worker.wait_until_sent()
            mark.bytes = None
            hosts = []
            for _ in range(3):
                (lease,) = await worker.lease(1)
                hosts.append(lease.candidate.host)
            assert hosts == ["0", "1", "2"]
            await wait_until_async(lambda: len(worker.outbox) == 0, BOUND_S)
            assert worker.listener.new == 1 + 3 * outgoing.LINKS_PER_BATCH

    asyncio.run(scenario())


def test_links_that_a_server_lost_are_sent_again(server: RedisServer) -> None:
    """Their page was finished long ago, and their server does not restart soon."""

    async def scenario() -> None:
        mark = Mark()
        mark.bytes = 1
        worker = LoneWorker(server.url, full_bytes=mark)
        async with running(worker):
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            await worker.add(candidate("a"), candidate("b"))
            assert len(worker.outbox) == 2
            before = server.aof_bytes()
            mark.bytes = None
            await wait_until_async(lambda: worker.listener.new == 2, BOUND_S)
            server.kill()
            server.cut_aof(server.aof_bytes() - before)
            await asyncio.sleep(5.0)  # longer than it takes to be sure of a server that lives
            assert len(worker.outbox) == 2
            server.start()
            await wait_until_async(lambda: len(worker.outbox) == 0, BOUND_S)
            assert worker.frontier.counts().waiting + worker.frontier.counts().leased == 2

    asyncio.run(scenario())


def test_a_disk_that_is_full_too_is_waited_for(server: RedisServer) -> None:
    """The page is not finished before its links have a place, and nothing more is leased."""

    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, full_bytes=mark)
        async with running(worker):
            await worker.add(candidate("page"), candidate("other", host="b"))
            leases = {each.candidate.host: each for each in await worker.lease(2)}
            mark.bytes = 1
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            worker.disk.is_full = True
            worker.frontier.add([candidate("link", host="c")], time.time())
            worker.release(leases["a"])
            worker.frontier.finish(leases["a"], Done(), time.time())
            await wait_until_async(worker.frontier.is_congested, BOUND_S)
            await asyncio.sleep(1.5)
            assert worker.frontier.counts().done == 0
            assert not worker.listener.failures
            worker.disk.is_full = False
            await worker.wait_until_sent()
            assert len(worker.outbox) == 1
            await wait_until_async(lambda: worker.frontier.counts().done == 1, BOUND_S)
            assert not worker.frontier.is_congested()

    asyncio.run(scenario())


def test_a_disk_that_is_full_while_links_leave_it_is_waited_for(server: RedisServer) -> None:
    async def scenario() -> None:
        worker = LoneWorker(server.url, is_sure=True)
        worker.outbox.put([candidate("a"), candidate("b", host="b")])
        worker.disk.is_full = True
        async with running(worker):
            await wait_until_async(lambda: worker.listener.new == 2, BOUND_S)
            await asyncio.sleep(1.5)  # it looks again
            assert not worker.listener.failures
            assert len(worker.outbox) == 2
            worker.disk.is_full = False
            await wait_until_async(lambda: len(worker.outbox) == 0, BOUND_S)
            assert worker.listener.new == 2, "sent once"

    asyncio.run(scenario())


def test_no_page_is_finished_before_its_outbox_is_announced_to_all_shards(
    server: RedisServer,
) -> None:
    """Else the crawl would end without them, if that worker died now."""

    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, full_bytes=mark, nodes=DroppingNodes)
        assert isinstance(worker.nodes, DroppingNodes)
        async with running(worker):
            await worker.add(candidate("page"))
            (lease,) = await worker.lease(1)
            mark.bytes = 1
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            worker.frontier.add([candidate("link")], time.time())
            worker.release(lease)
            worker.frontier.finish(lease, Done(), time.time())
            await wait_until_async(lambda: worker.nodes.dropped > 2, BOUND_S)
            assert len(worker.outbox) == 1
            assert totals(server, "done") == 0
            worker.nodes.is_deaf = False
            await worker.wait_until_sent()
            assert [
                set(server.client().smembers(keys.outboxes("t", shard))) for shard in range(2)
            ].count({b"w"}) == 1
            assert totals(server, "done") == 1

    asyncio.run(scenario())


def test_no_page_is_finished_before_its_links_on_a_disk_survive_a_power_cut(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        mark = Mark()
        begun, may_end = threading.Event(), threading.Event()

        def sync() -> None:
            begun.set()
            assert may_end.wait(60)

        worker = LoneWorker(server.url, full_bytes=mark, sync_outbox=sync)
        async with running(worker):
            await worker.add(candidate("page"))
            (lease,) = await worker.lease(1)
            mark.bytes = 1
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            worker.frontier.add([candidate("link")], time.time())
            worker.release(lease)
            worker.frontier.finish(lease, Done(), time.time())
            await wait_until_async(begun.is_set, BOUND_S)
            assert len(worker.outbox) == 1
            await asyncio.sleep(0.2)  # in which a verdict would leave
            assert totals(server, "done") == 0
            may_end.set()
            await worker.wait_until_sent()
            assert totals(server, "done") == 1

    asyncio.run(scenario())


def totals(server: RedisServer, name: str) -> int:
    client = server.client()
    return sum(int(client.hget(keys.totals("t", shard), name) or 0) for shard in range(2))


def test_the_end_of_a_worker_whose_disk_is_full_loses_nothing(server: RedisServer) -> None:
    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, full_bytes=mark)
        async with running(worker):
            await worker.add(candidate("page"))
            (lease,) = await worker.lease(1)
            mark.bytes = 1
            await wait_until_async(lambda: bool(worker.frontier._full_servers.full), BOUND_S)
            worker.disk.is_full = True
            worker.frontier.add([candidate("link")], time.time())
            worker.release(lease)
            worker.frontier.finish(lease, Done(), time.time())
            await wait_until_async(worker.frontier.is_congested, BOUND_S)
        client = server.client()
        waiting = [int(client.hget(keys.totals("t", n), "waiting") or 0) for n in range(2)]
        assert sum(waiting) == 1, "it is fetched again"

    asyncio.run(scenario())

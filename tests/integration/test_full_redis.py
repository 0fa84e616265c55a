"""Servers whose memory is full, as the frontier of one worker meets them: links wait on its disk,
and no page is finished before they are safe there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.model.types import Lease
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.faults import Unreachable
from tests.harness.frontiers import candidate
from tests.harness.lone_worker import BOUND_S, NAME, DeafNodes, LoneWorker, running
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

    async def reached(self, worker: LoneWorker) -> None:
        self.bytes = 1
        await worker.nodes.command("", "CONFIG", "SET", "maxmemory", 1)
        await wait_until_async(lambda: bool(worker.base.full_servers.full), BOUND_S)

    async def falls(self, worker: LoneWorker) -> None:
        self.bytes = None
        await worker.nodes.command("", "CONFIG", "SET", "maxmemory", 0)


class UnnotedNodes(DeafNodes):
    """Servers that do not receive the note that links wait on a disk."""

    is_deaf_to_notes = True
    dropped = 0

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        if self.is_deaf_to_notes and any(call.script == "outbox" for call in calls):
            self.dropped += any(call.args[1] for call in calls)
            return [Unreachable("lost by the test")] * len(calls)
        return await super().run(calls)


async def leased(worker: LoneWorker, mark: Mark) -> Lease:
    """Return a lease of a page. The server is full."""
    await worker.add(candidate("page"))
    (lease,) = await worker.lease(1)
    worker.slots = 0
    await worker.holds_all()
    await mark.reached(worker)
    return lease


def leases(server: RedisServer) -> int:
    """How many leases Redis has."""
    with server.client() as client:
        return sum(int(client.hlen(f"{keys.root(NAME, shard)}:o")) for shard in range(2))


def test_links_are_sent_when_there_is_room(server: RedisServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        mark = Mark()
        async with running(LoneWorker(server.url, tmp_path, full_bytes=mark)) as worker:
            lease = await leased(worker, mark)
            worker.frontier.add([candidate(f"{n}", host=f"h{n}") for n in range(9)], time.time())
            worker.end(lease)
            await wait_until_async(lambda: leases(server) == 0, BOUND_S)
            assert len(worker.outbox) == 9
            assert not worker.frontier.is_over()
            await mark.falls(worker)
            worker.slots = 16
            assert len(await worker.lease(9)) == 9
            await wait_until_async(lambda: len(worker.outbox) == 0, BOUND_S)
            assert worker.listener.failures == []

    asyncio.run(scenario())


def test_a_disk_that_is_full_too_is_waited_for(server: RedisServer, tmp_path: Path) -> None:
    """The page is not finished before its links have a place, and nothing more is leased."""

    async def scenario() -> None:
        mark = Mark()
        async with running(LoneWorker(server.url, tmp_path, full_bytes=mark)) as worker:
            await worker.add(candidate("other", host="b"))
            (other,) = await worker.lease(1)
            lease = await leased(worker, mark)
            worker.is_disk_full = True
            worker.frontier.add([candidate("link", host="c")], time.time())
            worker.end(lease)
            await wait_until_async(worker.frontier.is_congested, BOUND_S)
            worker.slots = 16
            await worker.leases_nothing_for(1.5)
            assert leases(server) == 2
            assert not worker.listener.failures
            worker.is_disk_full = False
            await wait_until_async(lambda: leases(server) == 1, BOUND_S)
            assert len(worker.outbox) == 1
            await wait_until_async(lambda: not worker.frontier.is_congested(), BOUND_S)
            worker.end(other)

    asyncio.run(scenario())


def test_no_page_is_finished_before_its_outbox_is_noted(
    server: RedisServer, tmp_path: Path
) -> None:
    """Else the crawl would end without them, if that worker died now."""

    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, tmp_path, full_bytes=mark, nodes=UnnotedNodes)
        async with running(worker):
            lease = await leased(worker, mark)
            worker.frontier.add([candidate("link")], time.time())
            worker.end(lease)
            await wait_until_async(lambda: worker.nodes.dropped > 2, BOUND_S)
            assert len(worker.outbox) == 1
            assert leases(server) == 1
            worker.nodes.is_deaf_to_notes = False
            await wait_until_async(lambda: leases(server) == 0, BOUND_S)
            with server.client() as client:
                noted = [client.smembers(f"{keys.root(NAME, shard)}:outboxes") for shard in (0, 1)]
            assert noted.count({b"w"}) == 1

    asyncio.run(scenario())


def test_no_page_is_finished_before_its_links_on_a_disk_survive_a_power_cut(
    server: RedisServer, tmp_path: Path
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def sync() -> None:
        begun.set()
        assert may_end.wait(BOUND_S)

    async def scenario() -> None:
        mark = Mark()
        worker = LoneWorker(server.url, tmp_path, full_bytes=mark, sync_outbox=sync)
        async with running(worker):
            lease = await leased(worker, mark)
            worker.frontier.add([candidate("link")], time.time())
            worker.end(lease)
            await wait_until_async(begun.is_set, BOUND_S)
            assert len(worker.outbox) == 1
            await asyncio.sleep(0.2)  # in which a verdict would leave
            assert leases(server) == 1
            may_end.set()
            await wait_until_async(lambda: leases(server) == 0, BOUND_S)

    asyncio.run(scenario())


def test_the_end_of_a_worker_whose_disk_is_full_loses_nothing(
    server: RedisServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        mark = Mark()
        async with running(LoneWorker(server.url, tmp_path, full_bytes=mark)) as worker:
            lease = await leased(worker, mark)
            worker.is_disk_full = True
            worker.frontier.add([candidate("link")], time.time())
            worker.end(lease)
            await wait_until_async(worker.frontier.is_congested, BOUND_S)
        server.client().config_set("maxmemory", 0)
        async with running(LoneWorker(server.url, tmp_path, "next")) as other:
            (again,) = await other.lease(1)
            assert again.candidate.url == lease.candidate.url, "it is fetched again"

    asyncio.run(scenario())

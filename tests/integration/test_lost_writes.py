"""Servers that restart without their last writes, as the frontier of one worker meets them.

Rule: the append-only file is cut where it ended at a chosen moment, so what is lost is known.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.model.types import Candidate
from tests.harness.frontiers import candidate
from tests.harness.lone_worker import BOUND_S, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Written at once, so that the file is as long as what was acknowledged."""
    with RedisServer(tmp_path / "redis", appendfsync="no") as server:
        yield server


def forget(server: RedisServer, since: int) -> None:
    """It loses its power, and with it all that was written behind *since*."""
    server.kill()
    server.cut_aof(server.aof_bytes() - since)
    server.start()


def pages(hosts: str) -> list[Candidate]:
    return [candidate("page", host=host) for host in hosts]


@pytest.mark.parametrize("loses_all", [False, True], ids=["its last second", "all"])
def test_what_a_server_has_lost_is_sent_again(
    server: RedisServer, tmp_path: Path, loses_all: bool
) -> None:
    """Links, a verdict, a rest and a lease: the worker goes on, and the next one finds them."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url, tmp_path, is_ack_durable=False)) as worker:
            await worker.add(*pages("ab"))
            await worker.holds_all()
            done, kept = await worker.lease(2)
            before = 0 if loses_all else server.aof_bytes()
            await worker.add(*pages("cd"), candidate("next", host=done.candidate.host))
            await worker.lease(1)
            worker.slots = 0
            worker.end(done, seconds=600.0)
            async with asyncio.timeout(BOUND_S):
                await worker.frontier.wait_until_durable()
            await asyncio.to_thread(forget, server, before)
            await worker.add(*pages("e"))
            assert not worker.listener.losses
            worker.end(kept)
            worker.slots = 16
            hosts = {each.candidate.host for each in await worker.lease(2)}
            assert hosts <= set("cde")
            assert not worker.listener.failures
        async with running(LoneWorker(server.url, tmp_path, "next")) as other:
            hosts = {each.candidate.host for each in await other.lease(3)}
            assert hosts == set("cde"), "the leases were open, and the host of the other rests"
            await other.leases_nothing_for(0.5)
            await wait_until_async(lambda: other.frontier.counts().done == 2, BOUND_S)
            assert other.frontier.counts().waiting == 1

    asyncio.run(scenario())


def test_what_a_replica_missed_at_its_failover_is_sent_again(tmp_path: Path) -> None:
    async def scenario(cluster: RedisCluster) -> None:
        master, other = cluster.nodes
        with cluster.replica(master) as replica:
            worker = LoneWorker(other.url, tmp_path, shards=8, is_ack_durable=False)
            async with running(worker):
                worker.slots = 64
                await worker.add(*pages("abcdefgh"))
                await worker.holds_all()
                replica.kill()  # all that it has is in its file
                worker.frontier.add(pages("ijklmnopqrstuvwx"), time.time())
                await worker.lease(24)
                master.kill()
                await asyncio.to_thread(replica.start)
                await asyncio.to_thread(cluster.take_over, replica)
                await worker.add(*pages("yz"))
                await worker.lease(2)
                assert not worker.listener.losses
                assert not worker.listener.failures
            async with running(LoneWorker(other.url, tmp_path, "next", shards=8)) as following:
                following.slots = 64
                hosts = {each.candidate.host for each in await following.lease(26)}
                assert hosts == set("abcdefghijklmnopqrstuvwxyz")

    with RedisCluster(tmp_path / "cluster", masters=2, appendfsync="no") as cluster:
        asyncio.run(scenario(cluster))

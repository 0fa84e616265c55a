"""A server that restarts without its last writes, as the frontier of one worker meets it.

Rule: the append-only file is cut where it ended at a chosen moment, so what is lost is known.
"""

from __future__ import annotations

import asyncio
import string
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.model.types import (
    Candidate,
    Done,
    Pace,
    Rest,
)
from crawler.shared import keys
from crawler.shared.faults import ForeignData
from crawler.shared.worker.leases import KEEP_CALLS_S
from tests.harness.frontiers import candidate
from tests.harness.shared_frontier import BOUND_S, NAME, QUIET_S, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Written at once, so that the file is as long as what was acknowledged."""
    with RedisServer(tmp_path / "redis", appendfsync="no") as server:
        yield server


def forget(server: RedisServer, since: int, down_s: float = 0.0) -> None:
    """It loses its power, and with it all that was written behind *since*."""
    server.kill()
    server.cut_aof(server.aof_bytes() - since)
    time.sleep(down_s)
    server.start()


def counts(worker: LoneWorker) -> tuple[int, int, int]:
    now = worker.frontier.counts()
    return now.waiting + now.later, now.leased, now.done


def pages(*hosts: str) -> list[Candidate]:
    return [candidate("page", host=host) for host in hosts]


@pytest.mark.parametrize("down_s", [0.0, KEEP_CALLS_S + 1.0])
def test_lost_links_are_sent_again(server: RedisServer, down_s: float) -> None:
    """However long the server was away."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a"))
            await worker.lease(1)
            before = server.aof_bytes()
            await worker.add(*pages("b", "c", "d"))
            await asyncio.to_thread(forget, server, before, down_s)
            await worker.add(*pages("e"))
            await wait_until_async(
                lambda: sum(counts(worker)[:2]) == 5, BOUND_S
            )  # and some may be leased again
            assert {each.candidate.host for each in await worker.lease(4)} == set("bcde")

    asyncio.run(scenario())


def test_a_link_that_was_lost_is_sent_when_it_is_found_again(server: RedisServer) -> None:
    """By a worker whose journal does not have it any more, as after a longer loss."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url, is_sure=True)) as worker:
            await worker.add(*pages("a"))
            before = server.aof_bytes()
            await worker.add(*pages("b"))
            await worker.add(*pages("b"))
            assert (worker.listener.new, worker.listener.seen) == (2, 1)
            await asyncio.to_thread(forget, server, before)
            await worker.add(*pages("c"))  # and so learns the new run
            await worker.add(*pages("b"))
            assert worker.listener.new == 4, "new once more, and not lost"

    asyncio.run(scenario())


def test_calls_that_a_replica_missed_at_its_failover_are_sent_again(tmp_path: Path) -> None:
    """In a cluster, after an outage that is longer than the journal reaches back."""

    async def scenario(cluster: RedisCluster) -> None:
        master, other = cluster.nodes
        with cluster.replica(master) as replica:
            async with running(LoneWorker(other.url, shards=8)) as worker:
                await worker.add(*pages(*"abcdefgh"))
                replica.kill()  # all that it has is in its file
                await worker.add(*pages(*"ijklmnopqrstuvwx"))
                master.kill()
                await asyncio.sleep(KEEP_CALLS_S + 1.0)
                await asyncio.to_thread(replica.start)
                await asyncio.to_thread(cluster.take_over, replica)
                more = [f"{letter}{letter}" for letter in string.ascii_lowercase]
                await worker.add(*pages(*more))  # and so learns the new run
                leases = await worker.lease(24 + len(more))
                hosts = {lease.candidate.host for lease in leases}
                assert hosts == {*string.ascii_lowercase[:24], *more}

    with RedisCluster(tmp_path / "cluster", masters=2, appendfsync="no") as cluster:
        asyncio.run(scenario(cluster))


def test_a_lease_that_was_forgotten_is_not_begun(server: RedisServer) -> None:
    """It waits in the buffer of its worker while its server forgets it."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a", "b"))
            await worker.lease(2)
            before = server.aof_bytes()
            await worker.add(*pages("c", "d", "e"))
            incoming = worker.frontier.lease_buffer
            await wait_until_async(lambda: len(incoming) >= 2, BOUND_S)
            forget(server, before)
            # What is begun before the worker has noticed is over before the quiet time is.
            await wait_until_async(lambda: not incoming.has_lease(), BOUND_S)
            await worker.leases_nothing_for(QUIET_S - 1.0)
            again = await worker.lease(3)
            assert {lease.candidate.host for lease in again} == {"c", "d", "e"}

    asyncio.run(scenario())


def test_a_lease_that_was_kept_goes_on(server: RedisServer) -> None:
    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a", "b", "c"))
            (begun,) = await worker.lease(1)
            await wait_until_async(lambda: len(worker.frontier.lease_buffer) == 2, BOUND_S)
            forget(server, server.aof_bytes())
            worker.release(begun)
            worker.frontier.finish(begun, Done(), time.time())
            began_s = time.monotonic()
            await worker.lease(2)
            assert time.monotonic() - began_s < QUIET_S - 1.0, "they were ours before"
            await wait_until_async(lambda: counts(worker) == (0, 2, 1), BOUND_S)
            assert not worker.listener.refusals

    asyncio.run(scenario())


def test_a_lost_rest_is_sent_again(server: RedisServer) -> None:
    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a"), candidate("next", host="a"))
            (lease,) = await worker.lease(1)
            before = server.aof_bytes()
            worker.release(lease, 600.0)
            worker.frontier.finish(lease, Done(), time.time())
            await worker.wait_until_sent()
            forget(server, before)
            await wait_until_async(lambda: counts(worker) == (1, 0, 1), BOUND_S)
            await worker.leases_nothing_for(QUIET_S + 0.5)
            assert resting_s(server, "a") > 300

    asyncio.run(scenario())


def test_a_host_whose_lease_was_lost_rests_all_the_same(server: RedisServer) -> None:
    """The fetch ends when its server has restarted and has no record of it."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("z"))
            await wait_until_async(
                lambda: len(worker.frontier.lease_buffer) == 1, BOUND_S
            )  # its lease is not forgotten
            before = server.aof_bytes()
            await worker.add(*pages("a"))
            lease = next(each for each in await worker.lease(2) if each.candidate.host == "a")
            forget(server, before)
            await wait_until_async(lambda: counts(worker) == (1, 1, 0), BOUND_S)
            worker.release(lease, 600.0)
            worker.frontier.finish(lease, Done(), time.time())
            await worker.leases_nothing_for(QUIET_S + 0.5)
            assert resting_s(server, "a") > 300
            assert lease in worker.listener.losses

    asyncio.run(scenario())


def test_finished_urls_are_not_leased_again(server: RedisServer) -> None:
    """Releases and verdicts are lost, leases are not: the calls are sent again before anything
    else."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages(*"abcdef"))
            leases = await worker.lease(6)
            before = server.aof_bytes()
            for lease in leases:
                worker.release(lease)
                worker.frontier.finish(lease, Done(), time.time())
            await worker.wait_until_sent()
            forget(server, before, down_s=1.0)
            await wait_until_async(lambda: counts(worker) == (0, 0, 6), BOUND_S)
            await worker.leases_nothing_for(QUIET_S)

    asyncio.run(scenario())


def test_a_lost_reply_loses_no_lease(server: RedisServer) -> None:
    """The server is silent for longer than any time-out: the calls may have been executed."""

    async def scenario() -> None:
        worker = LoneWorker(f"{server.url}?socket_timeout=0.5&socket_connect_timeout=0.5")
        async with running(worker):
            await worker.add(*pages("a"))
            await worker.lease(1)
            server.pause()
            worker.frontier.add(pages(*"bcdefg"), time.time())
            await asyncio.sleep(1.5)
            server.resume()
            leases = await worker.lease(6)
            assert {lease.candidate.host for lease in leases} == set("bcdefg")
            assert not worker.listener.losses

    asyncio.run(scenario())


def test_a_host_whose_worker_died_with_the_server_rests_its_gap(server: RedisServer) -> None:
    """No process is left that knows of the call."""
    gap_s = QUIET_S + 1.5

    async def scenario() -> None:
        async with running(LoneWorker(server.url, "dies")) as worker:
            await worker.add(candidate("first", host="a"), candidate("next", host="a"))
            (first,) = await worker.lease(1)
            worker.frontier.release(first, Rest(0.5, Pace(gap_s=gap_s)), time.time())
            worker.frontier.finish(first, Done(), time.time())
            await worker.wait_until_sent()
            before = server.aof_bytes()
            await worker.lease(1)
            server.kill()
        server.cut_aof(server.aof_bytes() - before)
        server.start()
        back_s = time.monotonic()
        async with running(LoneWorker(server.url, "comes")) as worker:
            await worker.lease(1)
            assert time.monotonic() - back_s >= gap_s

    asyncio.run(scenario())


def test_a_crawl_that_was_lost_whole_begins_again(server: RedisServer) -> None:
    """The power goes a moment after it began: fetches under its first leases may be under way."""

    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a", "b", "c"))
            begun = {lease.id for lease in await worker.lease(2)}
            forget(server, 0)
            await wait_until_async(lambda: not worker.frontier.lease_buffer.has_lease(), BOUND_S)
            await worker.leases_nothing_for(QUIET_S - 1.0)
            leases = await worker.lease(3)
            assert {lease.candidate.host for lease in leases} == set("abc")
            assert not {lease.id for lease in leases} & begun

    asyncio.run(scenario())


def test_a_server_that_keeps_nothing_is_found_out(tmp_path: Path) -> None:
    """It lost more than a server may lose by its settings."""

    async def scenario() -> None:
        worker = LoneWorker(server.url)
        async with running(worker):
            await worker.add(*pages("a", "b"))
            await asyncio.sleep(0.05)
            for opener in [node.opener for node in worker.nodes._servers.all()]:
                opener._known_since = dict.fromkeys(opener._known_since, -1e6)
            server.kill()
            server.start()
            await wait_until_async(lambda: bool(worker.listener.failures), BOUND_S)
            assert isinstance(worker.listener.failures[0], ForeignData)
            assert "Look whether its appendonly is on" in str(worker.listener.failures[0])

    with RedisServer(tmp_path / "redis", appendonly="no") as server:
        asyncio.run(scenario())


def test_a_crawl_that_was_removed_is_not_begun_again(server: RedisServer) -> None:
    async def scenario() -> None:
        async with running(LoneWorker(server.url)) as worker:
            await worker.add(*pages("a", "b"))
            server.client().flushall()
            await wait_until_async(lambda: bool(worker.listener.failures), BOUND_S)
            assert isinstance(worker.listener.failures[0], ForeignData)
            assert "is not there any more" in str(worker.listener.failures[0])

    asyncio.run(scenario())


def resting_s(server: RedisServer, host: str) -> float:
    """How long *host* still rests."""
    client = server.client()
    now = client.time()[0]
    ends = [client.zscore(keys.resting(NAME, shard), host) for shard in range(2)]
    return max(end for end in ends if end is not None) - now

"""The connections to a real Redis Cluster: its map is followed, and a node that is down affects no
other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
import redis

from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Call, Nodes, hash_slot
from crawler.shared.faults import Unreachable
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_scripts import FewScripts

NAME = "t"
SHARDS = 8
ALL = range(SHARDS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(appendfsync="always") as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def empty(cluster: RedisCluster) -> None:
    for node in cluster.nodes:
        node.client().flushall()


def new_nodes(url: str) -> Nodes:
    return Nodes(Address.parse(f"{url}?socket_timeout=2"), FewScripts(), NAME, SHARDS)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Nodes]:
    nodes = new_nodes(url)
    try:
        await nodes.open()
        await nodes.open_shards()  # so all are connected
        yield nodes
    finally:
        await nodes.close()


def count(shard: int) -> Call:
    return Call(shard, "count", ())


def root(shard: int) -> str:
    return f"{NAME}:{{{shard}}}"


def run_of(server: RedisServer) -> bytes:
    return server.client().info("server")["run_id"][:8].encode()


def counted(cluster: RedisCluster, replies: list[object]) -> list[int]:
    """What each shard has counted, which its own server must have answered."""
    numbers = []
    for shard, reply in zip(ALL, replies, strict=True):
        assert isinstance(reply, list), reply
        assert reply[0] == run_of(cluster.node_of(root(shard)))
        numbers.append(reply[1])
    return numbers


def test_calls_are_sent_to_the_node_of_their_shard(cluster: RedisCluster) -> None:
    async def scenario() -> None:
        for node in cluster.nodes:
            async with opened(node.url) as nodes:
                assert not nodes.single_server
                for shard in ALL:
                    there = cluster.node_of(root(shard))
                    assert nodes.node_of(shard) == f"127.0.0.1:{there.port}"
                await nodes.run([count(shard) for shard in ALL])
                assert len(await nodes.memory()) == 3
                for key in ("a", "b", "c"):
                    assert await nodes.command(key, "SET", key, key) == b"OK"
        async with opened(cluster.url) as nodes:
            assert counted(cluster, await nodes.run([count(n) for n in ALL])) == [4] * SHARDS

    asyncio.run(scenario())
    assert sum(node.client().dbsize() for node in cluster.nodes) == 3 * SHARDS + 3


def test_the_database_of_a_cluster_is_0(cluster: RedisCluster) -> None:
    with pytest.raises(Exception, match="no databases but 0"):
        BlockingNodes(Nodes(Address.parse(f"{cluster.url}/1"), FewScripts(), NAME, SHARDS))


@pytest.mark.parametrize("fail", [RedisServer.kill, RedisServer.pause], ids=lambda do: do.__name__)
def test_a_node_that_is_down_affects_no_other(cluster: RedisCluster, fail: object) -> None:
    assert callable(fail)
    victim = cluster.node_of(root(3))

    async def scenario() -> None:
        # By another: who knows the cluster by one server only needs that at its own start.
        async with opened(next(node for node in cluster.nodes if node is not victim).url) as nodes:
            await nodes.run([count(shard) for shard in ALL])
            fail(victim)
            for number in (2, 3):
                replies = await nodes.run([count(shard) for shard in ALL])
                for shard, reply in zip(ALL, replies, strict=True):
                    if cluster.node_of(root(shard)) is victim:
                        assert isinstance(reply, Unreachable)
                        assert f"127.0.0.1:{victim.port}" in str(reply)
                    else:
                        assert reply[1] == number
            assert len(await nodes.memory()) == 2
            victim.resume() if victim.is_up else victim.start()
            tries = 1
            while isinstance((reply := (await nodes.run([count(3)]))[0]), Unreachable):
                tries += 1
                await asyncio.sleep(0.01)
            # Paused, it read what we had sent before we gave up, and its replies were not read.
            assert 2 <= reply[1] <= 1 + tries + 2 * (fail is RedisServer.pause)
            assert reply[0] == run_of(victim)

    asyncio.run(scenario())
    cluster.wait()


def test_a_shard_that_moves(cluster: RedisCluster) -> None:
    """While it moves its keys are at two servers, and a script on either would see a half."""
    shard = 3
    source = cluster.node_of(root(shard))
    target = next(node for node in cluster.nodes if node is not source)
    slot = hash_slot(root(shard))
    ids = {node: node.client().execute_command("CLUSTER MYID").decode() for node in cluster.nodes}

    def move_keys(here: redis.Redis, there: RedisServer) -> None:
        keys = here.execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
        user, password = there.client().get_connection_kwargs()["username"], _password(there)
        here.execute_command(
            *("MIGRATE", "127.0.0.1", there.port, "", 0, 5000, "AUTH2", user, password),
            *("KEYS", *keys),
        )

    async def scenario() -> None:
        async with opened(cluster.url) as nodes:
            assert (await nodes.run([count(shard)]))[0] == [run_of(source), 1]
            here, there = source.client(), target.client()
            there.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
            here.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
            moving, other = await nodes.run([count(shard), count(4)])
            assert isinstance(moving, Unreachable) and "moving" in str(moving)
            assert other[1] == 1
            assert there.dbsize() == sum(
                len(list(there.scan_iter(f"{root(n)}*"))) for n in ALL if n != shard
            ), "nothing was written where the rest is still to come"
            move_keys(here, target)
            for node in cluster.nodes:
                node.client().execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])
            assert (await nodes.run([count(shard)]))[0] == [run_of(target), 2]
            assert nodes.node_of(shard) == f"127.0.0.1:{target.port}"
            assert await nodes.command(f"{root(shard)}:n", "GET", f"{root(shard)}:n") == b"2"

    asyncio.run(scenario())


def _password(server: RedisServer) -> str:
    return str(server.client().get_connection_kwargs()["password"])

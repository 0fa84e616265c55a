"""Pushed URLs whose key and shards are on several servers, each of which may fail alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from crawler.frontier.shards import shard_of
from crawler.model.choices import ScopeChoice
from crawler.shared import keys
from tests.harness.pushed_url_workers import KEY, SHARDS, URGENT, PushedUrlWorkers, RunLoop, taken
from tests.harness.waiting import wait_until
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

WAIT_S = 10.0
HOSTS = [f"{n}.example" for n in range(60)]
URLS = sorted(f"https://{host}/" for host in HOSTS)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    # As in test_redis_servers.py: what is acknowledged is in the file, so a cut is all it loses.
    with RedisCluster(appendfsync="always") as cluster:
        yield cluster


@pytest.fixture
def crew(cluster: RedisCluster, run_loop: RunLoop) -> Iterator[PushedUrlWorkers]:
    for node in cluster.nodes:
        with node.client() as client:
            client.flushall()
    crew = PushedUrlWorkers(cluster.url, run_loop, is_ack_durable=False)
    yield crew
    crew.close()


@pytest.fixture
def client(cluster: RedisCluster) -> Iterator[redis.Redis]:
    """Of the server that has the feed."""
    with cluster.node_of(KEY).client() as client:
        yield client


def node_of_host(cluster: RedisCluster, host: str) -> RedisServer:
    return cluster.node_of(keys.root("t", shard_of(host, SHARDS)))


@pytest.fixture
def elsewhere(cluster: RedisCluster) -> str:
    """A host whose shard is on another server than the feed."""
    feed = cluster.node_of(KEY)
    return next(host for host in HOSTS if node_of_host(cluster, host) is not feed)


def test_everything_of_a_feed_is_done_on_one_server(
    cluster: RedisCluster, client: redis.Redis, crew: PushedUrlWorkers
) -> None:
    one, two = crew.add(ScopeChoice.HOST), crew.add(ScopeChoice.HOST)
    client.rpush(KEY, *URLS, "no URL")
    with cluster.node_of(URGENT).client() as urgent:
        urgent.rpush(URGENT, "https://urgent.example/")
    for _ in range(3):
        crew.go_round()
    assert taken(client) == 60, "not before they are on disk for sure"
    crew.now = 60
    crew.go_round()
    assert taken(client) == 0
    assert crew.waiting() == sorted([*URLS, "https://urgent.example/ now"])
    assert client.llen(keys.refused(KEY)) == 1
    assert two.admits("https://urgent.example/link")
    assert not one.pushed_urls.may_have_more()


def test_urls_that_a_server_lost_are_added_again(
    cluster: RedisCluster, client: redis.Redis, crew: PushedUrlWorkers, elsewhere: str
) -> None:
    worker = crew.add()
    worker.tick()
    node = node_of_host(cluster, elsewhere)
    before = node.aof_bytes()
    client.rpush(KEY, f"https://{elsewhere}/")
    worker.tick()
    assert crew.waiting() == [f"https://{elsewhere}/"] and taken(client) == 1
    node.kill()
    node.cut_aof(node.aof_bytes() - before)
    node.start()
    cluster.wait()
    crew.now = 60

    assert crew.waiting() == []

    def is_sent_again() -> bool:
        if not crew.waiting():
            assert taken(client) == 1, "it is nowhere else"
            worker.tick()
        return bool(crew.waiting())

    wait_until(is_sent_again, WAIT_S)
    assert taken(client) == 1
    crew.now = 120
    worker.tick()
    assert taken(client) == 0
    assert crew.waiting() == [f"https://{elsewhere}/"]


def test_a_server_that_is_down_keeps_only_its_own_waiting(
    cluster: RedisCluster, client: redis.Redis, crew: PushedUrlWorkers, elsewhere: str
) -> None:
    worker = crew.add()
    worker.tick()
    down = node_of_host(cluster, elsewhere)
    theirs = [url for url in URLS if node_of_host(cluster, url[8:-1]) is down]
    down.kill()
    client.rpush(KEY, *URLS)
    worker.tick()
    crew.now = 60
    worker.tick()
    assert taken(client) >= len(theirs)
    assert crew.waiting() == sorted(set(URLS) - set(theirs))
    down.start()
    cluster.wait()

    def is_all_sent() -> bool:
        if taken(client):
            crew.now += 10
            worker.tick()
        return not taken(client)

    wait_until(is_all_sent, WAIT_S)
    assert set(crew.waiting()) >= set(theirs)

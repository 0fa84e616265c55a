"""A crawl over a Redis Cluster: three masters on loopback, without replicas.

Rule: a node that is down stops its own hosts and no others; when it has restarted they continue.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from crawler.frontier.shards import shard_of
from crawler.shared import keys
from tests.harness.frontiers import candidate
from tests.harness.lone_worker import BOUND_S, NAME, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.harness.workers import SETTINGS, judged_workers
from tests.servers.judged_web import JudgedWeb
from tests.servers.redis import RedisServer
from tests.servers.redis_cluster import RedisCluster

WEB: Final = JudgedWeb(hosts=25, pages=16, crawl_delay_s=0.2)
SHARDS: Final = int(str(SETTINGS["CRAWLER_FRONTIER_SHARDS"]))
DOWN_S: Final = 7.0
NOTICE_S: Final = 5.0  # in which requests begin under leases that Redis had before


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with RedisCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def hosts_of(cluster: RedisCluster, node: RedisServer, name: str) -> set[str]:
    """Return the hosts whose shards are there: an address is its own registered domain."""
    return {
        host
        for host in WEB.addresses
        if cluster.node_of(keys.root(name, shard_of(host, SHARDS))) is node
    }


def test_two_workers_fetch_every_page_once(tmp_path: Path, cluster: RedisCluster) -> None:
    web = JudgedWeb(hosts=20, pages=10, crawl_delay_s=0.1)
    with judged_workers(tmp_path, cluster, web, {"CRAWLER_FRONTIER_NAME": "whole"}) as crawl:
        workers = crawl.start(2)
        crawl.finish()
        assert crawl.repeats() == {}
    for worker in workers:
        assert "Waiting: " not in worker.log_text()  # for a server


def test_the_other_nodes_continue_when_one_is_down(tmp_path: Path, cluster: RedisCluster) -> None:
    """First the one where workers announce themselves; then another, which loses its power, and
    with it its last moments, while the others keep theirs."""
    name = "down"
    announced = cluster.node_of(keys.workers(name))
    with judged_workers(
        tmp_path, cluster, WEB, {"CRAWLER_FRONTIER_NAME": name, "CRAWLER_LEASE_S": 60}
    ) as crawl:
        crawl.start(2)
        for node in (announced, next(node for node in cluster.nodes if node is not announced)):
            crawl.wait_for_visits(30)
            theirs = hosts_of(cluster, node, name)
            if node is announced:
                node.kill()
            else:
                assert crawl.repeats() == {}
                node.lose_power()
            down_at = time.monotonic()
            crawl.wait_until(lambda: time.monotonic() > down_at + DOWN_S)  # noqa: B023 - asked at once
            meanwhile = [each for each in crawl.judge.visits if each.arrival_s > down_at]
            node.start()
            cluster.wait()
            others = [each for each in meanwhile if each.host not in theirs]
            assert len(others) > len(meanwhile) / 2
            late = [each.host for each in meanwhile if each.arrival_s > down_at + NOTICE_S]
            assert set(late) - theirs
            assert not theirs & set(late)
        crawl.finish()


@pytest.mark.parametrize(
    "down",
    [pytest.param(RedisServer.kill, id="killed"), pytest.param(RedisServer.pause, id="mute")],
)
def test_pages_are_finished_while_the_node_of_the_crawls_own_keys_is_down(
    tmp_path: Path, cluster: RedisCluster, down: Callable[[RedisServer], None]
) -> None:
    """Links to hosts of the node wait on our disk. All workers must know of them before the pages
    are finished, and the node where they announce themselves cannot be reached."""
    shards = 16
    node = cluster.node_of(keys.workers(NAME))
    places = [cluster.node_of(keys.root(NAME, shard)) is node for shard in range(shards)]
    names = [f"host{number}.example" for number in range(60)]
    theirs = [host for host in names if places[shard_of(host, shards)]]
    others = [host for host in names if host not in theirs][:8]

    def open_leases() -> int:
        roots = [keys.root(NAME, shard) for shard in range(shards) if not places[shard]]
        return sum(cluster.node_of(root).client().hlen(f"{root}:o") for root in roots)

    async def scenario() -> None:
        worker = LoneWorker(f"{cluster.url_beside(node)}?socket_timeout=1", tmp_path, shards=shards)
        async with running(worker):
            await worker.add(*(candidate("1", host=host) for host in others))
            await worker.holds_all()
            down(node)
            try:
                for number in range(2):
                    for lease in await worker.lease(len(others)):
                        links = [candidate(lease.candidate.host, host=host) for host in theirs]
                        own = candidate("2", host=lease.candidate.host)
                        worker.frontier.add([*links, *([] if number else [own])], time.time())
                        worker.end(lease)
                await wait_until_async(lambda: open_leases() == 0, BOUND_S)
                assert len(worker.outbox)
                assert not worker.frontier.is_over()
            finally:
                node.resume() if node.is_up else node.start()
                cluster.wait()
            await wait_until_async(lambda: not len(worker.outbox), 60.0)
            assert worker.listener.failures == []

    asyncio.run(scenario())
    for each in cluster.nodes:
        each.client().flushall()

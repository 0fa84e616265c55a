"""A crawl by workers that own shards, over a real redis-server: a tree of pages, each linked once,
is fetched whole, by polite requests only, though a worker is killed, one joins and the server is
killed; and all of them see the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.shared.owned.readings import is_over, read_rests
from tests.harness.owned_crawl import ALIVE, NAME, PAGES, SHARDS, Web, Worker, new_crawl, page
from tests.servers.redis import RedisServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


async def crawled(server: RedisServer, folder: Path, web: Web) -> None:
    crawl = new_crawl()
    workers = [Worker(server, folder, web, crawl) for _ in range(2)]
    for worker in workers:
        await worker.start()
    workers[0].frontier.add([page(0)], time.time())
    while len(web.fetches) < PAGES // 4:
        await asyncio.sleep(0.05)
    killed = workers.pop()
    await killed.kill()
    await workers[0].nodes.command(ALIVE, "ZREM", ALIVE, killed.name)
    workers.append(Worker(server, folder, web, crawl))
    await workers[-1].start()
    while len(web.fetches) < PAGES // 2:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    nodes = workers[0].nodes
    while True:
        first = await read_rests(nodes, NAME, SHARDS)
        second = await read_rests(nodes, NAME, SHARDS)
        if first and second and is_over(first, second):
            break
        await asyncio.sleep(0.2)
    assert not [worker.errors for worker in workers if worker.errors]
    for worker in workers:
        await worker.kill()


def test_a_tree_is_fetched_whole_though_workers_come_and_go(
    server: RedisServer, tmp_path: Path
) -> None:
    web = Web()
    asyncio.run(asyncio.wait_for(crawled(server, tmp_path, web), 100))
    assert web.breaches == []
    assert set(web.fetches) == {page(number).url for number in range(PAGES)}
    assert sum(web.fetches.values()) < PAGES + 40, "only what was under way at the kill"

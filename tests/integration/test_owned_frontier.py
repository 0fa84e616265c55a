"""A crawl by workers that own shards, over a real redis-server: a tree of pages, each linked once,
is fetched whole, by polite requests only, though a worker is killed, one joins and the server is
killed; and all of them see the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from crawler.frontier.shards import shard_of
from crawler.shared.client import Nodes
from crawler.shared.faults import Unreachable
from crawler.shared.owned.owner import claim
from crawler.shared.owned.readings import is_over, read_rests
from crawler.shared.owned.scripts import ClaimedShard, HeldShard, ShardCommands
from tests.harness.owned_crawl import (
    ALIVE,
    LEASE_S,
    NAME,
    PAGES,
    SCRIPTS,
    SHARDS,
    Web,
    Worker,
    new_crawl,
    page,
)
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


async def left_by_broken_loads(
    server: RedisServer, folder: Path, patch: pytest.MonkeyPatch
) -> list[int]:
    """Return how many records are left in the local store by loads of a shard of which the first
    reply is lost, or the second, and so on."""
    first = Worker(server, folder, Web(), new_crawl())
    await first.start()
    shard = shard_of(page(0).domain, SHARDS)
    first.frontier.add([page(number) for number in range(PAGES)], time.time())
    while not first.web.fetches[page(0).url]:
        await asyncio.sleep(0.05)
    await first.kill()
    worker = Worker(server, folder, Web(), new_crawl())
    await worker.nodes.open()
    commands = ShardCommands(SCRIPTS, NAME, shard, "token", LEASE_S)
    while isinstance(claimed := await claim(worker.nodes, commands, begins=False), HeldShard):
        await asyncio.sleep(claimed.for_s)
    assert isinstance(claimed, ClaimedShard)
    replies, whole = count(), Nodes.commands

    async def commands_until_broken(nodes: Nodes, asks: Sequence[Any]) -> list[Any]:
        is_lost = next(replies) == len(left)
        return [Unreachable("lost")] * len(asks) if is_lost else await whole(nodes, asks)

    patch.setattr(Nodes, "commands", commands_until_broken)
    left: list[int] = []
    while True:
        try:
            await worker.frontier.load(commands, claimed, time.monotonic(), lambda: None)
            break
        except Unreachable:
            left.append(len(worker.frontier.records.scan(b"", b"\xff", 1000)))
            replies = count()
    await worker.kill()
    return left


def test_a_load_that_is_broken_off_leaves_nothing(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the next one, perhaps of an earlier state, is added to it: URLs are there twice."""
    left = asyncio.run(left_by_broken_loads(server, tmp_path, monkeypatch))
    assert len(left) > 10
    assert not any(left)

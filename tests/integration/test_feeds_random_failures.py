"""Random lives of workers at one feed: nothing is lost, and no batch has two workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random

import redis

from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.keys import Scripts
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.worker.feeds import Feed, PushedItem
from tests.servers.redis import RedisServer

KEY = "web:start_urls"
LEASE_S = 100.0
LIVES = 200
DEEDS = 60
TIMED_SCRIPTS = Scripts("local function wall() return tonumber(redis.call('GET', 'now') or 0) end")


@dataclass
class Life:
    client: redis.Redis
    nodes: Nodes
    random: Random
    now: float = 0.0
    names: count[int] = field(default_factory=count)
    workers: list[tuple[Feed, list[PushedItem]]] = field(default_factory=list)
    pushed: set[bytes] = field(default_factory=set)
    delivered: Counter[bytes] = field(default_factory=Counter)
    held_at: dict[bytes, float] = field(default_factory=dict)

    async def live(self) -> None:
        self.workers = [self._born() for _ in range(3)]
        deeds = [self.push, self.take, self.take, self.deliver, self.hold, self.wait, self.die]
        for _ in range(DEEDS):
            await self.random.choice(deeds)(self.random.randrange(3))
        self._wait(LEASE_S)
        last = self._born()[0]
        while items := await last.take(200):
            self.delivered.update(item.text for item in items)
            await last.remove(items)
        assert self.delivered == Counter(self.pushed), "each once: what is held is not given away"
        assert await last.length() == 0

    async def push(self, _: int) -> None:
        new = [b"%d" % (len(self.pushed) + n) for n in range(self.random.randint(1, 9))]
        self.client.rpush(KEY, *new)
        self.pushed.update(new)

    async def take(self, at: int) -> None:
        feed, mine = self.workers[at]
        for item in await feed.take(self.random.randint(1, 5)):
            last = self.held_at.get(item.text)
            assert last is None or self.now - last >= LEASE_S, "two have it at once"
            self.held_at[item.text] = self.now
            mine.append(item)

    async def deliver(self, at: int) -> None:
        feed, mine = self.workers[at]
        held = await feed.hold(mine)
        self.delivered.update(item.text for item in held)
        await feed.remove(held)
        await feed.remove(mine)  # also what is another's by now: it changes nothing
        mine.clear()

    async def hold(self, at: int) -> None:
        feed, mine = self.workers[at]
        mine[:] = await feed.hold(mine)
        self.held_at.update((item.text, self.now) for item in mine)

    async def wait(self, _: int) -> None:
        self._wait(self.random.choice([1, LEASE_S / 2, LEASE_S]))

    async def die(self, at: int) -> None:
        self.workers[at] = self._born()

    def _wait(self, seconds: float) -> None:
        self.now += seconds
        self.client.set("now", self.now)

    def _born(self) -> tuple[Feed, list[PushedItem]]:
        return Feed(self.nodes, TIMED_SCRIPTS, KEY, f"{next(self.names)}", LEASE_S), []


async def lives(server: RedisServer) -> None:
    nodes = Nodes(Address.parse(server.url), OwnedScripts(), "t", 1)
    await nodes.open()
    with server.client() as client:
        for seed in range(LIVES):
            client.flushall()
            await Life(client, nodes, Random(seed)).live()
    await nodes.close()


def test_random_lives_lose_nothing_and_share_nothing() -> None:
    with RedisServer() as server:
        asyncio.run(lives(server))

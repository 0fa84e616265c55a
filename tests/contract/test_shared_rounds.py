"""Rounds of several workers: all are in one, and together they exceed no cap, whoever is killed."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Dead, Done, Lease, PutBack
from crawler.policy.rounds import RoundCaps
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.owned import rounds as shared_rounds
from crawler.shared.owned.rounds import RoundFollower
from tests.harness.frontiers import TIGHT, EmbeddedWorld, memory_store, rest
from tests.harness.owned_world import SCRIPTS
from tests.harness.round_lives import DOMAINS, RoundBooks, link, random_caps, random_verdict
from tests.servers.redis import RedisServer
from tests.servers.redis_process import HOST

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "6"))
LEASE_S = 10.0


class Worker:
    """One that has the hosts of a domain, in a store that outlives it."""

    def __init__(self, world: EmbeddedWorld, nodes: Nodes, name: str, now: float) -> None:
        self.world, self.nodes, self.name, self.lives = world, nodes, name, 0
        self.open: dict[int, Lease] = {}
        self.begin(now)

    def begin(self, now: float) -> None:
        self.lives += 1
        self.open.clear()
        self.frontier: TwoTierFrontier = self.world.reopen(now)
        caps = self.world.limits.rounds
        assert caps is not None
        self.follower = RoundFollower(
            *(self.nodes, SCRIPTS, f"{self.name}-{self.lives}", caps, self.frontier.rounds),
            lease_s=LEASE_S,
            wake=lambda: None,
        )

    async def step(self, now: float) -> None:
        await self.follower.step(
            may_lease_more=self.frontier.waits(now), is_busy=self.frontier.has_leases, now=now
        )


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_no_cap_is_exceeded_by_workers_that_are_killed(
    seed: int, tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_rounds, "SLICE", 3)
    with ExitStack() as opened:
        client = opened.enter_context(redis_server.client())
        client.flushall()
        caps = dataclasses.replace(random_caps(Random(seed)), are_led=True)
        limits = dataclasses.replace(TIGHT, rounds=caps)
        worlds = [
            EmbeddedWorld(opened.enter_context(memory_store(tmp_path)), tmp_path / name, limits)
            for name in DOMAINS
        ]
        asyncio.run(crawl_together(worlds, Random(seed), caps, redis_server.port, client))


async def pass_time(workers, now: float, seconds: float, client) -> float:
    """Let *seconds* pass in which workers ask, once in a part of a lease. Returns the time."""
    for _ in range(4):
        now += seconds / 4
        client.set("now", round(now * 1000))
        for each in workers:
            await each.step(now)
    return now


async def crawl_together(worlds, random, caps: RoundCaps, port: int, client) -> None:
    nodes = Nodes(Address(host=HOST, port=port), SCRIPTS, f"rounds-{random.random()}", 1)
    await nodes.open()
    now, books, left = 0.0, RoundBooks(caps), random.randint(5, 50)
    workers = [Worker(*(world, nodes, world.folder.name, now)) for world in worlds]
    waiting = 0
    for _ in range(6_000):
        client.set("now", round(now * 1000))
        worker = random.choice(workers)
        if left:
            left -= 1
            waiting += 1
            worker.frontier.add([link(f"{left}", random.choice("ab"), worker.name)], now)
        match random.choices(("lease", "end", "step", "time", "kill"), (5, 5, 6, 1, 0.1))[0]:
            case "lease":
                for lease in worker.frontier.lease(now, 2):
                    books.note_lease(lease, [each for one in workers for each in one.open.values()])
                    worker.open[lease.id] = lease
            case "end" if worker.open:
                lease = worker.open.pop(random.choice(sorted(worker.open)))
                verdict = random_verdict(random, lease, now)
                if not (isinstance(verdict, PutBack) and not verdict.was_asked):
                    books.note(lease)
                waiting -= isinstance(verdict, Done | Dead)
                worker.frontier.release(lease, rest(random.choice((0.0, 1.0))), now)
                worker.frontier.finish(lease, verdict, now)
            case "step":
                await worker.step(now)
            case "time":
                now = await pass_time(workers, now, random.choice((0.5, 2.0)), client)
            case "kill":
                for lease in worker.open.values():
                    books.note(lease)
                others = [each for each in workers if each is not worker]
                now = await pass_time(others, now, LEASE_S + 1.0, client)
                worker.begin(now)  # a shard is claimed when the lease of its owner is over
        if not waiting and not left:
            break
    await nodes.close()
    assert not waiting, f"{waiting} URLs are left"

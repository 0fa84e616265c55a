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
from crawler.model.choices import RoundKind
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

    def __init__(
        self, world: EmbeddedWorld, nodes: Nodes, name: str, now: float, run_began_at: float = 0.0
    ) -> None:
        self.world, self.nodes, self.name, self.lives = world, nodes, name, 0
        self.run_began_at = run_began_at
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
            run_began_at=self.run_began_at,
            wake=lambda: None,
        )

    async def step(self, now: float) -> None:
        frontier = self.frontier
        await self.follower.step(
            may_lease_more=frontier.waits(now),
            is_busy=frontier.has_leases,
            has_dates=frontier.has_dates,
            now=now,
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


def test_a_run_after_one_whose_rounds_are_over_has_its_own(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """Its workers were killed, so that Redis has what they said last."""
    with ExitStack() as opened:
        client = opened.enter_context(redis_server.client())
        client.flushall()
        limits = dataclasses.replace(TIGHT, rounds=RoundCaps(urls=2, are_led=True))
        store = opened.enter_context(memory_store(tmp_path))
        world = EmbeddedWorld(store, tmp_path / "a", limits)
        asyncio.run(crawl_one_run_after_another(world, redis_server.port, client))


@pytest.mark.parametrize(
    ("caps", "number", "is_over"),
    [
        pytest.param(RoundCaps(per_host=1, rounds=9), 2, False, id="killed with all it had"),
        pytest.param(RoundCaps(kind=RoundKind.REVISIT), 1, True, id="nothing is of its kind"),
    ],
)
def test_a_round_in_which_nothing_may_be_leased_ends(
    tmp_path: Path, redis_server: RedisServer, caps: RoundCaps, number: int, is_over: bool
) -> None:
    async def crawl(world: EmbeddedWorld, client) -> None:
        nodes = Nodes(Address(host=HOST, port=redis_server.port), SCRIPTS, "dry", 1)
        await nodes.open()
        client.set("now", 1_000)
        worker = Worker(world, nodes, "one", 1.0)
        worker.frontier.add([link(f"{n}", "a", DOMAINS[0]) for n in range(3)], 1.0)
        await worker.step(1.0)
        await worker.step(1.0)
        assert len(worker.frontier.lease(1.0, 9)) == (not is_over)
        worker.begin(60.0)
        for now in (60.0, 90.0, 120.0):
            client.set("now", round(now * 1000))
            await worker.step(now)
            worker.frontier.lease(now, 1)
        rounds = worker.frontier.rounds
        assert (rounds.number, rounds.is_over) == (number, is_over)
        await nodes.close()

    with ExitStack() as opened:
        client = opened.enter_context(redis_server.client())
        client.flushall()
        limits = dataclasses.replace(TIGHT, rounds=dataclasses.replace(caps, are_led=True))
        store = opened.enter_context(memory_store(tmp_path))
        asyncio.run(crawl(EmbeddedWorld(store, tmp_path / "a", limits), client))


async def crawl_one_run_after_another(world: EmbeddedWorld, port: int, client) -> None:
    nodes = Nodes(Address(host=HOST, port=port), SCRIPTS, "runs", 1)
    await nodes.open()
    now, domain = 1_000.0, DOMAINS[0]
    client.set("now", round(now * 1000))
    worker, other = [Worker(world, nodes, name, now, now) for name in ("one", "other")]
    await other.step(now)
    worker.frontier.add([link(f"{n}", "a", domain) for n in range(6)], now)
    assert await fetched_by(worker, now) == 2
    await other.step(now)
    assert await fetched_by(worker, now) == 0
    assert worker.frontier.rounds.is_over
    for again in (Worker(world, nodes, "one", now + 1.0, worker.run_began_at), other):
        await again.step(now + 1.0)
        assert again.frontier.rounds.is_over, "of the run that is over"
    client.set("now", round(now * 1000) + 1_000)
    worker = Worker(world, nodes, "one", now + 1.0, now + 0.5)
    assert await fetched_by(worker, now + 1.0) == 2
    assert worker.frontier.rounds.number == 2
    await nodes.close()


async def fetched_by(worker: Worker, now: float) -> int:
    """Return how many URLs *worker* fetches of the round."""
    fetched = 0
    for _ in range(3):
        await worker.step(now)
        while leases := worker.frontier.lease(now, 1):
            worker.frontier.release(leases[0], rest(0.0), now)
            worker.frontier.finish(leases[0], Done(), now)
            fetched += 1
    return fetched

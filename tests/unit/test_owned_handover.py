"""Workers that claim, hand over and release shards as the plan says, over a model of a Redis server
and in virtual time, while workers join, die, stand still and leave, and the server loses all it
has. Judged from outside: nobody begins a fetch under a claim after a later one has begun one, and
every shard is crawled again soon."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

import pytest
from msgspec.structs import replace

from crawler.model.types import StoreUnavailable
from crawler.shared import keys as shared_keys
from crawler.shared.crawl_format import encode_format
from crawler.shared.faults import ForeignData
from crawler.shared.keys import root
from crawler.shared.owned import leader as leading
from crawler.shared.owned.leader import plan_key
from crawler.simulate.redis_model import RedisModel
from tests.harness.owned_workers import (
    LEASE_S,
    LONGEST_FETCH_S,
    NAME,
    SCRIPTS,
    SETTLE_S,
    SHARDS,
    ModelFrontier,
    ModelWorld,
    Worker,
    new_crawl,
)
from tests.harness.waiting import run_in_virtual_time

LIVES: Final = 6
MUTANT_LIVES: Final = 20
EVENTS: Final = 12
CALM_S: Final = 80.0


async def stand_still(worker: Worker, seconds: float) -> None:
    worker.awake.clear()
    await asyncio.sleep(seconds)
    worker.awake.set()


async def life(seed: int, redis: RedisModel) -> None:
    world = ModelWorld(Random(seed), redis)
    crawl = new_crawl()
    redis.ask(("SET", shared_keys.format_key(NAME), encode_format(crawl)))
    for _ in range(3):
        world.hire(crawl)
    await asyncio.sleep(20)
    crawl = replace(crawl, begun=True)  # as those who join later read it
    for _ in range(EVENTS):
        await asyncio.sleep(world.random.choice((0.5, 5.0, 20.0)))
        worker = world.random.choice(world.workers)
        match world.random.randrange(7):
            case 0:
                if len(world.workers) > 1:
                    await worker.kill()
            case 1:
                await stand_still(worker, world.random.choice((2.0, LEASE_S - 1.0, 15.0, 40.0)))
            case 2:
                if len(world.workers) > 1 and worker.name in world.announced:
                    await worker.leave()
            case 3:
                world.is_down = True
                await asyncio.sleep(world.random.choice((1.0, 25.0)))
                world.is_down = False
            case 4:
                if world.may_lose_all():
                    world.lose_all()
                    await asyncio.sleep(LEASE_S)
            case _:
                if len(world.workers) < 4:
                    world.hire(crawl)
    await asyncio.sleep(CALM_S)
    held = world.holders()
    assert set(held) == set(range(SHARDS)), held
    parts = [list(held.values()).count(worker.name) for worker in world.workers]
    assert max(parts) - min(parts) <= 2, parts
    late = [shard for shard, at_s in world.begun_at_s.items() if at_s < world.now_s() - 15.0]
    assert not late, f"not crawled: {late}"
    assert [token.rpartition("/")[0] for token in world.owners()] == [
        held[shard] for shard in range(SHARDS)
    ]
    await world.end()


def lives(seeds: int, **rules: bool) -> None:
    for seed in range(seeds):
        redis = RedisModel(SCRIPTS, kept_writes=0, **rules)
        try:
            run_in_virtual_time(life(seed, redis))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def test_shards_have_one_owner_and_always_one_again() -> None:
    lives(LIVES)


def test_two_owners_are_found() -> None:
    with pytest.raises(AssertionError):
        lives(MUTANT_LIVES, checks_lease=False, checks_token=False)


async def started(world: ModelWorld, workers: int) -> None:
    crawl = new_crawl()
    world.redis.ask(("SET", shared_keys.format_key(NAME), encode_format(crawl)))
    for _ in range(workers):
        world.hire(crawl)
    while len(world.holders()) < SHARDS:
        await asyncio.sleep(0.1)


def new_world() -> ModelWorld:
    return ModelWorld(Random(1), RedisModel(SCRIPTS, kept_writes=0))


async def joins(world: ModelWorld) -> None:
    await started(world, 2)
    await asyncio.sleep(15)
    new = world.hire(world.workers[0].leader._begin._crawl)
    await world.until(lambda: len(new.holder.held) >= 2, 30.0)
    assert world.lost_leases == 0
    assert min(world.left_after_s) >= SETTLE_S
    await world.end()


def test_a_worker_that_joins_gets_its_part_and_no_lease_is_lost() -> None:
    run_in_virtual_time(joins(new_world()))


def test_a_release_before_the_fetches_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelFrontier, "is_idle", lambda *_: True)
    world = new_world()
    world.delays_s = (LONGEST_FETCH_S,)
    with pytest.raises(AssertionError):
        run_in_virtual_time(joins(world))


def test_a_stop_in_good_order_hands_all_over_at_once() -> None:
    async def stops() -> None:
        world = new_world()
        await started(world, 2)
        await asyncio.sleep(15)
        await world.workers[0].leave()
        await world.until(lambda: len(world.workers[0].holder.held) == SHARDS, 3.0)
        assert world.lost_leases == 0
        await world.end()

    run_in_virtual_time(stops())


def test_a_full_disk_releases_without_waiting_and_the_leases_are_taken_over() -> None:
    async def fills_up() -> None:
        world = new_world()
        await started(world, 2)
        await asyncio.sleep(15)
        full, other = world.workers
        full.leave_list()
        await world.until(lambda: not all(map(full.frontier.is_idle, full.holder.held)), 10.0)
        begun_s = world.now_s()
        await full.holder.release_all(waits=False)
        assert world.now_s() - begun_s < 1.0
        await world.until(lambda: len(other.holder.held) == SHARDS, 3.0)
        assert world.lost_leases > 0
        await world.end()

    run_in_virtual_time(fills_up())


def test_a_dead_leader_is_followed_by_another_one() -> None:
    async def dies() -> None:
        world = new_world()
        await started(world, 3)
        (dead,) = [worker for worker in world.workers if worker.leader.leads]
        await dead.kill()
        took_s = await world.until(lambda: len(world.holders()) == SHARDS, 20.0)
        assert took_s <= LEASE_S + 4.0
        assert [worker.leader.leads for worker in world.workers].count(True) == 1
        await world.end()

    run_in_virtual_time(dies())


@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01, 0.03, 0.05])
def test_a_leader_that_stops_during_a_step_leads_no_more(after_s: float) -> None:
    async def stops() -> None:
        world = new_world()
        await started(world, 2)
        (stopping,) = [worker for worker in world.workers if worker.leader.leads]
        (other,) = [worker for worker in world.workers if worker is not stopping]
        stopping.leave_list()
        stopping.tasks[0].cancel()
        stopping.tasks[0] = asyncio.create_task(stopping.holder.run())  # a step begins
        await asyncio.sleep(after_s)
        await stopping.holder.release_all(waits=False)
        await world.until(lambda: other.leader.leads, 2 * leading.STEP_S)
        await asyncio.sleep(2 * leading.STEP_S)
        assert other.leader.leads and not stopping.leader.leads
        await world.end()  # fails if the steps have

    run_in_virtual_time(stops())


def test_without_a_plan_free_shards_are_claimed_by_anyone() -> None:
    async def claims() -> None:
        world = new_world()
        await started(world, 2)
        dead, alive = world.workers

        async def no_plan(*_: object) -> None:
            raise StoreUnavailable("the server of the plan is down")

        for worker in world.workers:
            worker.leader._begin.check = no_plan
        await dead.kill()
        await world.until(lambda: len(alive.holder.held) == SHARDS, leading.LATE_S + 5.0)
        await world.end()

    run_in_virtual_time(claims())


async def newcomer_at_an_emptied_server(begin_wait_s: float) -> tuple[ModelWorld, Worker]:
    """The server comes back empty; before any owner notices, a newcomer takes it for a new one."""
    world = new_world()
    await started(world, 2)
    await asyncio.sleep(15)
    world.lose_all()
    other = new_crawl()
    assert world.redis.ask(("SET", shared_keys.format_key(NAME), encode_format(other), "NX"))
    newcomer = world.hire(other, begin_wait_s=begin_wait_s)
    await asyncio.sleep(15)
    return world, newcomer


def test_a_server_that_came_back_empty_is_not_begun_anew() -> None:
    async def comes_back() -> None:
        world, newcomer = await newcomer_at_an_emptied_server(leading.BEGIN_WAIT_S)
        assert isinstance(newcomer.errors[0], ForeignData)
        assert not newcomer.holder.held
        await newcomer.kill()
        await asyncio.sleep(15)
        assert len(world.holders()) == SHARDS
        assert world.lost_leases == 0
        await world.end()

    run_in_virtual_time(comes_back())


def test_a_newcomer_that_does_not_wait_would_begin_it_anew() -> None:
    async def begins() -> None:
        world, newcomer = await newcomer_at_an_emptied_server(0.0)
        assert newcomer.holder.held, "nothing is left of what waited there"
        for worker in list(world.workers):
            await worker.kill()

    run_in_virtual_time(begins())


def test_a_shard_that_is_lost_for_good_ends_the_crawl_with_an_error() -> None:
    async def ends() -> None:
        world = new_world()
        await started(world, 2)
        await asyncio.sleep(5)
        world.redis._hashes.pop(root(NAME, 3).encode())
        for worker in world.workers:
            if 3 in worker.holder.held:
                await worker.kill()
                break
        (left,) = world.workers
        await asyncio.sleep(leading.MISSING_S + 30.0)
        assert left.errors
        assert "lost the crawl: o:{3}" in str(left.errors[0])
        await left.kill()

    run_in_virtual_time(ends())


def test_a_plan_that_is_old_or_unreadable_or_of_another_leader_moves_nothing() -> None:
    async def goes_back() -> None:
        world = new_world()
        await started(world, 3)
        await asyncio.sleep(30)
        held = world.holders()
        stored = world.redis._hashes[plan_key(NAME).encode()]
        for number, plan in ((b"1", stored[b"plan"]), (b"7", b"\xc1"), (b"0", b"")):
            stored |= {b"number": number, b"plan": plan}
            await asyncio.sleep(15)
            assert world.holders() == held
        # Another one leads; then the server's clock goes back, and its lead would have no end.
        for lead_ms in (3_000, 3_600_000):
            until_ms = round(world.now_s() * 1000) + lead_ms
            stored |= {b"leader": b"another", b"until": b"%d" % until_ms}
            await asyncio.sleep(15)
            assert [worker.leader.leads for worker in world.workers].count(True) == 1
            assert world.holders() == held
        await world.end()

    run_in_virtual_time(goes_back())

"""Turns that workers of a shared crawl borrow of each other, over a real redis-server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from crawler.model.types import BorrowedTurn, HostKey, NotItsTurn, NoTurn, Pace, Rest
from crawler.shared.owned.turns import BORROW_S
from tests.harness.frontiers import candidate, rest
from tests.harness.lone_worker import BOUND_S, DeafNodes, LoneWorker, running
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer

LONG_S = 600.0


@dataclass
class TwoWorkers:
    """Two workers, each with one of two shards."""

    asker: LoneWorker
    owner: LoneWorker
    hosts: list[HostKey]  # of the owner

    async def borrow(self, host: HostKey, seconds: float = LONG_S) -> BorrowedTurn:
        turn = await self.ask(host, seconds)
        assert isinstance(turn, BorrowedTurn), turn
        return turn

    async def ask(self, host: HostKey, seconds: float = LONG_S) -> BorrowedTurn | NotItsTurn:
        now = time.time()
        return await self.asker.frontier.borrow(host, now, now + seconds)

    def rest_until(self, host: HostKey) -> float:
        return self.owner.frontier.frontier.frontier.record_of(host).rest_until


@asynccontextmanager
async def two_workers(server: RedisServer, folder: Path) -> AsyncIterator[TwoWorkers]:
    one, other = (
        LoneWorker(server.url, folder, "a"),
        LoneWorker(server.url, folder, "b", nodes=DeafNodes),
    )
    async with running(one) as asker, running(other) as owner:
        inner = owner.frontier.frontier
        await wait_until_async(
            lambda: inner.taken_in() and asker.frontier.frontier.taken_in(), BOUND_S
        )
        names = map(HostKey, (f"host{number}.example" for number in range(99)))
        yield TwoWorkers(asker, owner, list(filter(inner.owns, names)))


def test_turns_are_borrowed_of_another_worker(server: RedisServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with two_workers(server, tmp_path) as two:
            await is_lent_and_given_back(two)
            await keeps_what_a_head_asked_for(two)
            await is_not_lent_too_late(two)
            await leaves_a_rest_if_its_asker_dies(two)

    asyncio.run(scenario())


async def is_lent_and_given_back(two: TwoWorkers) -> None:
    host, began = two.hosts[0], time.monotonic()
    turn = await two.borrow(host)
    assert time.monotonic() - began < BORROW_S
    assert two.rest_until(host) == turn.rests_until
    shards = two.owner.frontier.frontier.taken_in()
    assert all(each.acked >= each.mirror.position for each in shards), "Redis has the rest"
    assert await two.ask(host) == NotItsTurn(host, NoTurn.BORROWED)
    assert two.asker.frontier.give_back(turn, Rest(50.0, Pace(gap_s=7.0)), time.time())
    await wait_until_async(lambda: two.rest_until(host) < turn.rests_until, BOUND_S)
    refused = await two.ask(host)
    assert isinstance(refused, NotItsTurn) and refused.why is NoTurn.RESTS
    assert refused.at == two.rest_until(host) <= time.time() + 50.0


async def keeps_what_a_head_asked_for(two: TwoWorkers) -> None:
    host = two.hosts[1]
    turn = await two.borrow(host, 1.0)
    two.asker.frontier.note_trouble(turn, Rest(900.0, Pace(), asked_s=900.0), time.time())
    two.asker.frontier.give_back(turn, rest(1.0), time.time())
    record = two.owner.frontier.frontier.frontier.record_of(host)
    await wait_until_async(lambda: record.pace.gap_s == 1.0, BOUND_S)
    assert two.rest_until(host) > time.time() + 800.0


async def is_not_lent_too_late(two: TwoWorkers) -> None:
    """Its owner hears and says nothing for a while, as if it had died."""
    host, two.owner.nodes.deaf = two.hosts[2], {0, 1}
    began = time.monotonic()
    assert await two.ask(host) == NotItsTurn(host, NoTurn.ELSEWHERE)
    assert time.monotonic() - began < BORROW_S + 1.0
    two.owner.nodes.deaf = set()
    await wait_until_async(lambda: two.rest_until(host) > 0.0, BOUND_S)
    await wait_until_async(lambda: two.rest_until(host) <= time.time(), BOUND_S)


async def leaves_a_rest_if_its_asker_dies(two: TwoWorkers) -> None:
    host = two.hosts[3]
    two.asker.frontier.add([candidate("x", host=host)], time.time())
    turn = await two.borrow(host, 1.0)
    (lease,) = await two.owner.lease(1)
    assert lease.candidate.host == host
    assert time.time() >= turn.rests_until
    two.owner.end(lease)

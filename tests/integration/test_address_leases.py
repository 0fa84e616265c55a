"""Addresses that hosts of several workers share: one worker at a time has each, by a real server
whose time is the test's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import accumulate
from math import inf
from pathlib import Path
from random import Random

import pytest

from crawler.frontier.groups import AddressUse
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Done, Lease, Rest
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.owned.addresses import LeasedAddresses
from crawler.shared.owned.scripts import AddressCommands, OwnedScripts
from crawler.simulate.redis_model import RedisModel
from tests.harness.frontiers import Addresses, candidate
from tests.servers.redis import RedisServer
from tests.servers.redis_process import HOST

CLOCK = "local function now_ms() return tonumber(redis.call('GET', 'now') or 0) end"
SCRIPTS = OwnedScripts(CLOCK)
ONE, OTHER = "192.0.2.1", "192.0.2.2"
SLICE_S, AFTER_S = 30.0, 100.0
WANTED = AddressUse(is_waited_for=True)


class Worker:
    """One worker, and what its hosts do with addresses."""

    def __init__(self, clock: Clock, nodes: Nodes, name: str) -> None:
        self.clock = clock
        self.uses: dict[str, AddressUse] = {}
        self.usable: list[str] = []
        self.leases = LeasedAddresses(
            nodes,
            AddressCommands(SCRIPTS, "a", name),
            steady=lambda: clock.now_s,
            now=lambda: clock.now_s,
            slice_s=SLICE_S,
            after_s=AFTER_S,
        )

    def use_of(self, address: str) -> AddressUse:
        return self.uses.get(address, AddressUse())

    def note_usable(self, address: str, now: float) -> None:
        self.usable.append(address)

    async def want(self, address: str = ONE) -> bool:
        """Want *address*, and return whether it is had after a look."""
        self.uses[address] = WANTED
        self.leases.may_use(address)
        await self.leases.ask(self)
        return self.leases.may_use(address)

    async def fetch(self, address: str = ONE) -> None:
        """Fetch from *address*, for which nobody else waits here."""
        self.uses[address] = AddressUse(is_fetched_from=True)
        await self.leases.ask(self)

    async def end(self, rest_s: float, address: str = ONE, *, is_waited_for: bool = False) -> None:
        self.uses[address] = AddressUse(
            is_waited_for=is_waited_for, rest_until=self.clock.now_s + rest_s
        )
        await self.leases.ask(self)


class Clock:
    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self.now_s = 0.0
        self.at(1000.0)

    def at(self, now_s: float) -> None:
        self.now_s = now_s
        with self._server.client() as client:
            client.set("now", round(now_s * 1000))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


@asynccontextmanager
async def workers(server: RedisServer, clock: Clock, count: int = 2) -> AsyncIterator[list[Worker]]:
    made, opened = [], []
    for number in range(count):
        nodes = Nodes(Address(host=HOST, port=server.port), SCRIPTS, "a", 3)
        await nodes.open()
        opened.append(nodes)
        made.append(Worker(clock, nodes, f"w{number}"))
    try:
        yield made
    finally:
        for nodes in opened:
            await nodes.close()


def test_one_worker_at_a_time_has_an_address(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, second):
            assert await first.want()
            assert first.usable == [ONE], "its hosts are called"
            assert not await second.want()
            assert await second.want(OTHER), "another address is free"
            assert clock.now_s + 1 < 1000.0 + SLICE_S

    asyncio.run(run())


def test_an_address_goes_to_the_next_one_when_it_has_rested(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, second):
            await first.want()
            await first.fetch()
            assert not await second.want()
            clock.at(1020.0)
            assert not await second.want()
            await first.fetch()  # it is renewed no more, as another one waits
            clock.at(1031.0)
            assert not first.leases.may_use(ONE), "its slice is over"
            assert not await second.want(), "but not its fetch"
            await first.end(5.0)
            clock.at(1034.0)
            assert not await second.want()
            clock.at(1035.9)
            assert not await second.want()
            clock.at(1038.0)
            assert await second.want()
            assert not await first.want()

    asyncio.run(run())


def test_an_address_that_no_other_worker_wants_is_kept(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, _):
            await first.want()
            for now_s in range(1000, 1400, 10):
                clock.at(now_s)
                assert await first.want()

    asyncio.run(run())


def test_a_dead_worker_keeps_an_address_as_long_as_its_last_fetch_can_require(
    server: RedisServer,
) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, second):
            await first.want()
            clock.at(1000.0 + SLICE_S + AFTER_S - 0.5)
            assert not await second.want()
            clock.at(1000.0 + SLICE_S + AFTER_S + 2.0)
            assert await second.want()

    asyncio.run(run())


def test_those_that_wait_get_it_in_the_order_in_which_they_asked(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock, 4) as (first, *others):
            await first.want()
            for at, each in enumerate(others):
                clock.at(1000.0 + at)
                assert not await each.want()
            await first.leases.give_all(first)
            had = []
            for second in range(4, 140):
                clock.at(1000.0 + second)
                for each in reversed(others):
                    if await each.want() and each not in had:
                        had.append(each)
                    if not each.leases.may_use(ONE) and each in had:
                        await each.end(0.0)
            assert had == others

    asyncio.run(run())


def test_a_worker_that_waits_no_more_holds_up_nobody(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock, 3) as (first, gone, second):
            await first.want()
            clock.at(1001.0)
            assert not await gone.want()
            clock.at(1002.0)
            assert not await second.want()
            await first.leases.give_all(first)
            clock.at(1009.0)
            assert await second.want()

    asyncio.run(run())


def test_a_server_that_lost_who_has_an_address_gives_it_to_nobody_else(
    server: RedisServer,
) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, second):
            await first.want()
            with server.client() as client:
                for key in client.scan_iter("*:w:*"):
                    client.delete(key)
            server.kill()
            server.start()
            clock.at(1005.0)
            assert not await second.want()
            clock.at(1016.0)
            assert await first.want(), "it knows that it has it"
            clock.at(1200.0)
            assert await second.want(), "long after"

    asyncio.run(run())


NAMES, PAGES, WORKERS = 120, 3, 3
TICK_S = 0.25


class Fetches:
    """The frontiers of some workers whose hosts are all on one address, on the test's clock."""

    def __init__(self, clock: Clock, made: list[Worker], folder: Path) -> None:
        self._clock, self._workers, self._random = clock, made, Random(1)
        self._names = [f"h{number}" for number in range(NAMES)]
        addresses = Addresses({name: [ONE] for name in self._names})
        self.frontiers = [
            open_frontier(
                folder / str(number),
                FrontierLimits(address_wait_s=1e6),
                clock.now_s,
                store=MemoryStore(),
                addresses=addresses,
                address_leases=worker.leases,
            )
            for number, worker in enumerate(made)
        ]
        for number, frontier in enumerate(self.frontiers):
            own = self._names[number::WORKERS]
            found = [candidate(f"{page}", host=host) for host in own for page in range(PAGES)]
            frontier.add(found, clock.now_s)
        self._due_at = dict.fromkeys(self._names, clock.now_s)
        self._under_way: list[tuple[float, TwoTierFrontier, Lease, float]] = []
        self._free_at_s = 0.0
        self.waits: list[float] = []
        self.breaches: list[str] = []

    async def run(self) -> None:
        while len(self.waits) < NAMES * PAGES:
            ends = min([each[0] for each in self._under_way], default=inf)
            self._clock.at(min(ends, self._clock.now_s + TICK_S))
            self._end()
            for worker, frontier in zip(self._workers, self.frontiers, strict=True):
                await worker.leases.ask(frontier)
            for frontier in self.frontiers:
                for lease in frontier.lease(self._clock.now_s, 2):
                    self._begin(frontier, lease)

    def _begin(self, frontier: TwoTierFrontier, lease: Lease) -> None:
        now_s = self._clock.now_s
        if self._under_way or now_s < self._free_at_s:
            self.breaches.append(lease.candidate.url)
        self.waits.append(now_s - self._due_at[lease.candidate.host])
        ends_s = now_s + self._random.lognormvariate(-3, 1)
        self._under_way.append((ends_s, frontier, lease, self._random.uniform(0.5, 3.0)))

    def _end(self) -> None:
        over = [each for each in self._under_way if each[0] <= self._clock.now_s]
        self._under_way = [each for each in self._under_way if each not in over]
        for ends_s, frontier, lease, rest_s in over:
            frontier.release(lease, Rest(rest_s, lease.pace), ends_s)
            frontier.finish(lease, Done(), ends_s)
            self._free_at_s = self._due_at[lease.candidate.host] = ends_s + rest_s


def test_workers_take_turns_at_an_address(server: RedisServer, tmp_path: Path) -> None:
    """One request at a time, hardly more than one put-back for each, and no host waits for more
    than twice the mean."""

    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock, WORKERS) as made:
            fetches = Fetches(clock, made, tmp_path / "frontiers")
            await fetches.run()
        assert not fetches.breaches
        put_backs = sum(each.groups.put_backs for each in fetches.frontiers)
        assert put_backs <= 1.2 * NAMES * PAGES
        later = fetches.waits[NAMES:]
        assert max(later) < 2 * sum(later) / len(later)

    asyncio.run(run())


def test_a_rest_that_an_answer_asks_for_outlives_the_worker(server: RedisServer) -> None:
    async def run() -> None:
        clock = Clock(server)
        async with workers(server, clock) as (first, second):
            await first.want()
            first.leases.note_rest(ONE, 500.0)
            await asyncio.sleep(0.05)  # it dies when the kernel has it
            clock.at(1499.0)
            assert not await second.want()
            clock.at(1502.0)
            assert await second.want()

    asyncio.run(run())


def test_the_model_of_simulations_answers_as_the_script_does(server: RedisServer) -> None:
    dice, model = Random(1), RedisModel(SCRIPTS)
    commands = [AddressCommands(SCRIPTS, "a", f"w{number}") for number in range(3)]
    with server.client() as client:
        client.script_load(SCRIPTS.text("address"))
        client.hset("a:{0}", "run", "run0")
        for now_s in accumulate(dice.choice((0.0, 0.5, 3.0, 40.0)) for _ in range(2000)):
            client.set("now", round(now_s * 1000))
            model.pass_time(round(now_s * 1000))
            held_s, rest_s = dice.choice((0.0, 0.0, 2.0)), dice.choice((0.0, 1.0, 20.0))
            command = dice.choice(commands).lease_address(
                0, ONE, dice.choice(("ask", "ask", "give")), (4.0, 10.0, held_s, rest_s, 6.0)
            )
            assert client.execute_command(*command) == model.ask(command), now_s

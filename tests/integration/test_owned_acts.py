"""Acts of operators in a crawl whose shards have owners, over a real redis-server: workers die in
the middle of an act, leave and join, and each act is carried out in each shard, in the order of the
acts, and noted once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from crawler.config.settings import RobotsSettings
from crawler.data.local_stores import RobotsRecords
from crawler.data.operator_files import Act, ActResult
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.sweep import Fate, Forget
from crawler.model.types import Candidate, Dead, Done, Lease, StoreUnavailable
from crawler.policy.robots_cache import RobotsCache
from crawler.shared.crawl_format import CrawlFormat
from crawler.shared.keys import root
from crawler.shared.operator_store import SharedStore
from crawler.shared.owned.acts import OwnedQueues, read_acts
from crawler.shared.owned.mirror import Mirror
from crawler.shared.owned.scripts import PlainCommand
from tests.harness.frontiers import candidate, rest
from tests.harness.owned_crawl import ALIVE, HOSTS, NAME, SHARDS, Web, Worker, new_crawl
from tests.servers.redis import RedisServer

URLS = 100


def link(number: int) -> Candidate:
    return candidate(str(number), host=f"h{number % HOSTS}")


def number_of(url: str) -> int:
    return int(url.rpartition("/")[2])


def is_meant(act: Act, url: str) -> bool:
    """An act is about the multiples of a number."""
    return number_of(url) % int(act.value) == 0


class Operated(Worker):
    """A worker that carries acts out, and fetches nothing before `fetches`."""

    stops_after = -1  # steps of an act
    fetches = False

    def __init__(self, server: RedisServer, folder: Path, crawl: CrawlFormat) -> None:
        super().__init__(server, folder, Web(), crawl)
        self.store = SharedStore(self.nodes, NAME)
        robots = RobotsCache(RobotsRecords(MemoryStore()), "test", RobotsSettings())
        self.is_left: list[bool] = []
        self.queues = OwnedQueues(
            *(self.frontier, self.nodes, self.store, self.name, self.outbox, robots),
            self.is_left.append,
            rules_s=0.0,
        )
        self.stopped = asyncio.Event()
        self.fetched: Counter[str] = Counter()

    async def _crawl(self) -> None:
        while not self.fetches:
            with suppress(StoreUnavailable):
                lines = await self.store.acts()
                finished = {each.of for each in lines if isinstance(each, ActResult)}
                acts = [each for each in lines if isinstance(each, Act)]
                left = [each for each in acts if each.number not in finished]
                await self.queues.carry_out(left, self._do, self._note)
            await asyncio.sleep(0.05)
        await super()._crawl()

    async def _fetch(self, lease: Lease) -> None:
        self.fetched[lease.candidate.url] += 1
        self.frontier.release(lease, rest(0.0), time.time())
        self.frontier.finish(lease, Done(), time.time())

    async def _note(self, act: Act, touched: int) -> None:
        await self.store.note(ActResult(time.time(), act.number, touched))

    async def _do(self, act: Act) -> int:
        if act.verb == "add":
            found = [link(int(each)) for each in act.targets]
            self.frontier.add(found, time.time())
            await self.frontier.wait_until_durable()
            return len(found)

        def fate(found: Candidate) -> Fate:
            if not is_meant(act, found.url):
                return None
            return Dead("dropped") if act.verb == "drop" else Forget.FORGET

        if act.verb == "retry":
            parts = [self.queues.put_back(lambda _: True, time.time)]
        else:
            parts = [self.queues.sweep(None, lambda _: True, fate, time.time)]
        if act.verb == "purge":
            parts.append(self.queues.forget_kept(lambda url: is_meant(act, url), time.time))
        touched = 0
        for part in parts:
            async for some in part:
                touched += some
                self.stops_after -= 1
                if self.stops_after == 0:
                    self.stopped.set()
                    await asyncio.Event().wait()
        return touched


class Books:
    """What should be of the URLs after the acts so far."""

    def __init__(self) -> None:
        self.waiting = {link(number).url for number in range(URLS)}
        self.dead: set[str] = set()
        self.touched: dict[int, int] = {}

    def note(self, act: Act) -> None:
        meant = {each for each in self.waiting if act.value and is_meant(act, each)}
        match act.verb:
            case "add":
                meant = {link(int(each)).url for each in act.targets}
                self.waiting |= meant
            case "drop":
                self.waiting -= meant
                self.dead |= meant
            case "purge":
                dead = {each for each in self.dead if is_meant(act, each)}
                self.waiting -= meant
                self.dead -= dead
                meant |= dead
            case "retry":
                meant = self.dead
                self.waiting, self.dead = self.waiting | self.dead, set()
        self.touched[act.number] = len(meant)


def drawn_acts(random: Random) -> list[Act]:
    acts, added = [], URLS
    for number in range(1, 7):
        verb = random.choice(("drop", "drop", "purge", "retry", "add"))
        value, targets = "", ()
        if verb == "add":
            targets, added = tuple(map(str, range(added, added + 9))), added + 9
        elif verb != "retry":
            value = str(random.choice((2, 3, 5, 7)))
        acts.append(Act(float(number), number, "anna", verb, targets, value))
    return acts


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as server:
        yield server


async def lived(server: RedisServer, folder: Path, random: Random) -> None:
    crawl = new_crawl()
    workers = [Operated(server, folder, crawl) for _ in range(2)]
    for worker in workers:
        await worker.start()
    first = workers[0]
    first.frontier.add(map(link, range(URLS)), time.time())
    await first.frontier.wait_until_durable()
    books, acts = Books(), drawn_acts(random)
    ends = random.choice(("dies", "dies", "leaves"))
    workers[1].stops_after = random.randrange(1, 30)
    for act in acts:
        assert await first.store.write("", "", act)
        books.note(act)
    while not workers[1].stopped.is_set() and not await all_noted(first, acts):
        await asyncio.sleep(0.05)
    gone = workers.pop()
    gone.tasks[0].cancel()  # it announces itself no more
    await first.nodes.command(ALIVE, "ZREM", ALIVE, gone.name)
    if ends == "leaves":
        await gone.holder.release_all(waits=False)
    await gone.kill()
    if random.random() < 0.5:  # else the other one has shards that are behind its own
        workers.append(Operated(server, folder, crawl))
        await workers[-1].start()
    while not await all_noted(first, acts):
        await asyncio.sleep(0.05)
    while any(worker.is_left[-1] for worker in workers):
        await asyncio.sleep(0.05)

    results = [each for each in await first.store.acts() if isinstance(each, ActResult)]
    assert sorted(each.of for each in results) == [act.number for act in acts]
    # What a worker had touched that is gone is counted by nobody, and nothing twice.
    assert all(each.touched <= books.touched[each.of] for each in results)
    for worker in workers:
        worker.fetches = True
    while sum((each.fetched for each in workers), Counter[str]()).total() < len(books.waiting):
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)
    fetched = sum((each.fetched for each in workers), Counter[str]())
    assert fetched == Counter(books.waiting)
    letters = [await first.nodes.command("", "HLEN", f"{root(NAME, at)}:d") for at in range(SHARDS)]
    assert sum(letters) == len(books.dead)
    for shard in range(SHARDS):
        packed = await first.nodes.command("", "HGET", root(NAME, shard), "acts")
        assert read_acts(packed).last == max(act.number for act in acts if act.verb != "add")
    assert not [worker.errors for worker in workers if worker.errors]
    for worker in workers:
        await worker.kill()


async def all_noted(worker: Operated, acts: list[Act]) -> bool:
    lines = await worker.store.acts()
    return sum(isinstance(each, ActResult) for each in lines) >= len(acts)


def test_what_was_carried_out_is_sent_again_with_all_of_a_shard() -> None:
    mirror = Mirror(0, lambda: None)
    mirror.note_root_field("acts", b"some")
    mirror.take()
    mirror.begin_again()
    (batch,) = mirror.take()
    assert PlainCommand("HSET", "", ("acts", b"some")) in batch.commands


@pytest.mark.parametrize("seed", [2, 4, 6])
def test_each_shard_has_each_act_once_whoever_owns_it(
    server: RedisServer, tmp_path: Path, seed: int
) -> None:
    asyncio.run(asyncio.wait_for(lived(server, tmp_path, Random(seed)), 60))

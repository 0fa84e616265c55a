"""A worker that owns a shard, over a real redis-server that is killed, loses the end of its file,
comes back empty, or is full; the take-over by another one, and the links that others send it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
import redis

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FRONTIER, FrontierLimits
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import CrawlerError, Rest, StoreUnavailable
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.crawl_format import encode_format, read_format
from crawler.shared.faults import ForeignData, OutOfMemory
from crawler.shared.keys import format_key, root
from crawler.shared.owned.inbox import LinkPushes
from crawler.shared.owned.mirror import Mirror, MirroredStore, all_changes
from crawler.shared.owned.owner import Arrived, OwnedShard, ShardSender, claim
from crawler.shared.owned.readings import OUTBOXES, is_over, read_rests
from crawler.shared.owned.scripts import (
    ClaimedShard,
    HeldShard,
    InboxCommands,
    OwnedScripts,
    ShardCommands,
)
from crawler.shared.owned.takeover import ShardLoader, load, take_in
from crawler.shared.worker.outbox import Outbox, Overflow
from crawler.simulate.redis_model import RedisModel
from tests.harness.frontiers import candidate
from tests.harness.owned_workers import ALIVE, NAME, SHARDS, Worker, World, new_crawl
from tests.harness.owned_world import CLOCK, OneOfSeveral
from tests.servers.redis import RedisServer
from tests.servers.redis_process import HOST

SCRIPTS = OwnedScripts()
LIMITS = FrontierLimits(longest_fetch_s=0.3, min_gap_s=0.2, gap_factor=0.0)
LEASE_S = 1.0
_numbers = count()


async def noted() -> bool:
    return True


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(**given: object) -> None:
        asyncio.run(test(**given))

    return run


class OwnedWorker:
    """A process that owns one shard, with a folder of its own."""

    def __init__(self, server: RedisServer, folder: Path) -> None:
        self.token = f"token{next(_numbers)}"
        self.folder = folder / self.token
        self.commands = ShardCommands(SCRIPTS, "o", 0, self.token, LEASE_S)
        self.nodes = Nodes(Address(host=HOST, port=server.port), SCRIPTS, "o", 1)
        self.lost: list[OwnedShard] = []
        self.arrived: asyncio.Queue[Arrived] = asyncio.Queue()
        self.faults: list[CrawlerError] = []
        self.outbox = Outbox(MemoryStore(), lambda _: 0)
        overflow = Overflow(
            outbox=self.outbox, is_full=lambda _: False, ensure_noted=noted, sync=None
        )
        self.pushes = LinkPushes(
            *(lambda _: InboxCommands(SCRIPTS, "o", 0), 1, self.token.encode(), overflow),
            on_fault=self.faults.append,
        )
        self.sender = self.new_sender()

    def new_sender(self) -> ShardSender:
        return ShardSender(
            *(self.nodes, time.monotonic, self.pushes),
            on_lost=self.lost.append,
            on_arrived=self.arrived.put_nowait,
        )

    async def claim(self) -> None:
        """Claim the shard, as soon as the last owner's lease is over, and load it."""
        await self.nodes.open()
        begun_s = time.monotonic()
        while isinstance(claimed := await claim(self.nodes, self.commands, begins=True), HeldShard):
            await asyncio.sleep(claimed.for_s)
            begun_s = time.monotonic()
        assert isinstance(claimed, ClaimedShard)
        self.claimed = claimed
        self.local = RocksStore(self.folder / FRONTIER)
        store, shards = MirroredStore(self.local), OneOfSeveral(0)
        self.frontier: TwoTierFrontier = open_frontier(
            *(self.folder, LIMITS, time.time()), store=store, shards=shards
        )
        mirror = Mirror(claimed.seq, self.sender.send_soon)
        self.shard = OwnedShard(
            *(self.commands, claimed, begun_s, mirror),
            contents=lambda: all_changes(self.local, loader.key),
        )
        loader = ShardLoader(self.shard, claimed, self.local, LIMITS, time.time(), {})
        await load(self.nodes, self.shard, loader, time.monotonic)
        store.mirrors[loader.key] = mirror
        self.sender.add(self.shard)
        await take_in(self.frontier, loader, time.time)

    async def kill(self) -> None:
        await self.sender.close()
        await self.nodes.close()
        self.local.close()

    async def admit_arrived(self) -> None:
        """Wait for links from the inbox, and commit and delete them."""
        shard, entries = await asyncio.wait_for(self.arrived.get(), timeout=10.0)
        for entry in entries:
            self.frontier.add(entry.links, time.time())
        self.frontier.commit()
        shard.inbox.delete([entry.name for entry in entries])
        await self.sender.wait_until_durable()

    def add(self, first: int, urls: int) -> None:
        found = [candidate(str(n), host=f"h{n % 7}") for n in range(first, first + urls)]
        self.frontier.add(found, time.time())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def empty(server: RedisServer) -> RedisServer:
    with server.client() as client:
        client.flushall()
        client.script_flush()
    return server


@on_a_loop
async def test_what_was_acknowledged_is_taken_over(empty: RedisServer, tmp_path: Path) -> None:
    first, second = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await first.claim()
    first.add(0, 100)
    (lease,) = first.frontier.lease(time.time(), 1)
    await first.sender.wait_until_durable()
    assert first.shard.may_begin(lease.id, time.monotonic())
    counts = first.frontier.counts()
    await first.sender.close()  # it stands still: its connection stays
    await second.claim()
    found = second.frontier.counts()
    assert (found.waiting, found.leased, found.seen) == (counts.waiting + 1, 0, counts.seen)
    rest_until = second.frontier._batch.peek(lease.candidate.host).rest_until
    assert rest_until > time.time() - 0.5, "its fetch may be under way"
    first.add(100, 1)
    first.sender = first.new_sender()
    first.sender.add(first.shard)
    with pytest.raises(StoreUnavailable):
        await first.sender.wait_until_durable()
    assert first.lost == [first.shard]
    assert not first.shard.may_begin(lease.id, time.monotonic())
    await second.sender.release(second.shard)
    third = OwnedWorker(empty, tmp_path)
    began_s = time.monotonic()
    await third.claim()
    assert time.monotonic() - began_s < LEASE_S / 2, "it was given up"
    for worker in (first, second, third):
        await worker.kill()


@on_a_loop
async def test_what_a_killed_server_has_lost_is_sent_again(
    empty: RedisServer, tmp_path: Path
) -> None:
    worker = OwnedWorker(empty, tmp_path)
    await worker.claim()
    worker.add(0, 50)
    await worker.sender.wait_until_durable()
    length = empty.aof_bytes()
    worker.add(50, 50)
    await worker.sender.wait_until_durable()
    position = worker.shard.acked
    empty.kill()
    empty.cut_aof(empty.aof_bytes() - length)
    empty.start()
    worker.add(100, 1)
    await worker.sender.wait_until_durable()
    assert worker.shard.acked > position
    counts = worker.frontier.counts()
    await worker.kill()
    after = OwnedWorker(empty, tmp_path)
    await after.claim()
    assert after.frontier.counts().seen == counts.seen == 101
    assert not after.claimed.is_lossy, "its owner was there"
    await after.kill()


@on_a_loop
async def test_after_a_lost_second_without_its_owner_a_shard_is_quiet(
    empty: RedisServer, tmp_path: Path
) -> None:
    worker, after = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await worker.claim()
    worker.add(0, 50)
    await worker.sender.wait_until_durable()
    await worker.kill()
    empty.kill()
    empty.start()
    await after.claim()
    assert after.claimed.is_lossy
    assert not after.shard.may_lease(time.monotonic())
    assert after.frontier.lease(time.time(), 1) == [], "each host rests"
    await after.kill()


@on_a_loop
async def test_a_server_that_comes_back_empty_is_filled_by_the_owner(
    empty: RedisServer, tmp_path: Path
) -> None:
    worker, after = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await worker.claim()
    worker.add(0, 2000)
    await worker.sender.wait_until_durable()
    with empty.client() as client:
        client.flushall()
        client.script_flush()
    worker.add(2000, 1)
    await worker.sender.wait_until_durable()
    await worker.kill()
    await after.claim()
    assert after.frontier.counts().seen == 2001
    await after.kill()


@on_a_loop
async def test_what_an_answer_asks_for_is_sent_at_once(empty: RedisServer, tmp_path: Path) -> None:
    worker, after = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await worker.claim()
    worker.add(0, 1)
    (lease,) = worker.frontier.lease(time.time(), 1)
    await worker.sender.wait_until_durable()
    now = time.time()
    worker.frontier.note_trouble(lease, Rest(60.0, lease.pace, asked_s=60.0), now)
    worker.sender.post(worker.shard)
    await worker.kill()
    await after.claim()
    assert after.frontier._batch.peek(lease.candidate.host).rest_until >= now + 60.0
    await after.kill()


@on_a_loop
async def test_links_come_to_the_owner_by_the_inbox(empty: RedisServer, tmp_path: Path) -> None:
    sender, owner = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await sender.nodes.open()
    links = [candidate(str(n), host=f"h{n % 3}") for n in range(5)]
    sender.sender.push(links)  # to a shard that is not begun yet
    await sender.sender.wait_until_durable()
    await owner.claim()
    await owner.admit_arrived()
    assert owner.frontier.counts().seen == 5
    with empty.client() as client:
        assert client.hlen("o:{0}:inbox") == 0
        assert client.hget("o:{0}", "inbox") == b"1"
        sender.sender.push(links)
        sender.sender.push([candidate("5"), candidate("6")])
        await sender.sender.wait_until_durable()
        await owner.admit_arrived()
        assert client.hget("o:{0}", "inbox") == b"2", "of the links known before, none is sent"
        assert owner.frontier.counts().seen == 7
        client.hset("o:{0}:inbox", "name", b"x")
        while not owner.faults:
            await asyncio.sleep(0.01)
    assert isinstance(owner.faults[0], ForeignData)
    assert owner.shard.is_owned, "nothing else stops"
    await sender.sender.close()
    await sender.nodes.close()
    await owner.kill()


@on_a_loop
async def test_links_that_a_killed_server_has_lost_are_sent_again(
    empty: RedisServer, tmp_path: Path
) -> None:
    sender = OwnedWorker(empty, tmp_path)
    await sender.nodes.open()
    sender.sender.push([candidate("1")])
    await sender.sender.wait_until_durable()
    length = empty.aof_bytes()
    sender.sender.push([candidate("2")])
    await sender.sender.wait_until_durable()
    empty.kill()
    empty.cut_aof(empty.aof_bytes() - length)
    empty.start()
    with empty.client() as client:
        assert client.hlen("o:{0}:inbox") == 1
        while client.hlen("o:{0}:inbox") < 2:  # it asks, though it has nothing else to send
            await asyncio.sleep(0.01)
    await sender.sender.close()
    await sender.nodes.close()


@on_a_loop
async def test_links_for_a_full_server_wait_in_the_outbox(
    empty: RedisServer, tmp_path: Path
) -> None:
    sender, owner = OwnedWorker(empty, tmp_path), OwnedWorker(empty, tmp_path)
    await owner.claim()
    await sender.nodes.open()
    with empty.client() as client:
        client.config_set("maxmemory", 1)
        sender.sender.push([candidate("1")])
        await sender.sender.wait_until_durable()
        assert len(sender.outbox) == 1
        assert isinstance(sender.faults[0], OutOfMemory)
        owner.add(2, 1)
        await owner.sender.wait_until_durable()  # its batches are taken
        client.config_set("maxmemory", 0)
    await owner.admit_arrived()
    assert owner.frontier.counts().seen == 2
    await sender.sender.close()
    await sender.nodes.close()
    await owner.kill()


class RealWorld(World):
    """Workers over a real server."""

    turn_s, delays_s, fetches_s = 0.1, (0.1,), (0.05,)

    def __init__(self, server: RedisServer, client: redis.Redis) -> None:
        super().__init__(Random(1))
        self._server = server
        self._client = client
        self.opened: list[Nodes] = []

    def nodes_of(self, _: Worker) -> Nodes:
        nodes = Nodes(Address(host=HOST, port=self._server.port), SCRIPTS, NAME, SHARDS)
        self.opened.append(nodes)
        return nodes

    def announce(self, name: str) -> None:
        self._client.zadd(ALIVE, {name: time.time()})

    def forget(self, name: str) -> None:
        self._client.zrem(ALIVE, name)


@on_a_loop
async def test_workers_share_the_shards_until_the_crawl_is_over(empty: RedisServer) -> None:
    with empty.client() as client:
        world, crawl = RealWorld(empty, client), new_crawl()
        client.set(format_key(NAME), encode_format(crawl))
        for _ in range(3):
            world.hire(crawl, begin_wait_s=0.0)
        for nodes in world.opened:
            await nodes.open()
        await world.until(lambda: len(world.holders()) == SHARDS, 10.0)
        await world.until(lambda: len(world.begun_at_s) == SHARDS, 10.0)
        key = format_key(NAME)
        await world.until(lambda: read_format(client.get(key), key).begun, 10.0)
        (leader,) = [each for each in world.workers if each.leader.leads]
        await leader.leave()
        await world.until(lambda: len(world.holders()) == SHARDS, 10.0)
        assert world.lost_leases == 0
        nodes = world.opened[-1]
        first = await read_rests(nodes, NAME, SHARDS)
        assert first is not None
        assert any(each.is_left for each in first)
        for worker in world.workers:
            for shard in worker.holder.held:
                worker.frontier.stop_leasing(shard)

        async def two_rounds() -> bool:
            rounds = [await read_rests(nodes, NAME, SHARDS) for _ in range(2)]
            return None not in rounds and is_over(*rounds)

        while not await two_rounds():
            await asyncio.sleep(0.1)
        client.sadd(f"{root(NAME, 5)}:{OUTBOXES}", "w9")
        assert not await two_rounds()
        await world.end()
        for each in world.opened:
            await each.close()


def test_the_model_plans_as_the_server(empty: RedisServer) -> None:
    scripts, random = OwnedScripts(CLOCK), Random(1)
    model = RedisModel(scripts)
    with empty.client() as client:
        for _ in range(60):
            model.now_ms += random.choice((1, 400, 2000, -3000))
            client.set("now", model.now_ms)
            token, lead_ms = random.choice("ab"), random.choice((0, 1000))
            number, plan = random.randrange(4), random.choice(("", "", "a plan", "another"))
            command = ("EVAL", scripts.text("plan"), 1, "plan", token, lead_ms, number, plan)
            assert client.execute_command(*command) == model.ask(command)

"""A worker's side of the shared frontier, over a real Redis and a network that loses what the
test says. Each of these was a fault, or would be one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from struct import unpack_from
from typing import Any

import msgspec
import pytest

from crawler.crawl.slots import NO_LIMIT
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierRules
from crawler.model.types import (
    Added,
    Candidate,
    Claim,
    CrawlerError,
    Done,
    Lease,
    Moved,
    Pace,
    Rest,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Call, Memory, Nodes
from crawler.shared.codec import WorkerRecord, read_claim
from crawler.shared.connection import Argument
from crawler.shared.faults import Unreachable
from crawler.shared.keys import Scripts
from crawler.shared.shard import Ops, shard_of
from crawler.shared.worker.frontier import SharedFrontier, WorkerBase
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import Fullness, SharedRules
from tests.contract.frontiers import candidate
from tests.lone_worker import NoKnowledge, confirm
from tests.servers.redis import RedisServer

NAME = "t"
SHARDS = 2
BOUND_S = 60.0  # of what takes a moment
BRIEF_S = 2.0  # a lease that ends soon, but not while a busy machine lets a test wait for its turn
RULES = FrontierRules(min_gap_s=0.0, gap_factor=0.0, longest_fetch_s=0.5)
GAP = Rest(0.0, Pace())
Which = Callable[[Call], Any]


def nothing(_: object) -> bool:
    return False


class LossyNodes(Nodes):
    """*unheard*: such calls never reach the server. *unanswered*: they do, and the reply is
    lost. *late*: they are on their way until the event is set; *held_up*: their replies are."""

    def __init__(self, url: str) -> None:
        super().__init__(Address.parse(url), Scripts(), NAME, SHARDS, (0.0, 60.0, keys.SCHEMA))
        self.unheard: Which = nothing
        self.unanswered: Which = nothing
        self.late: Which = nothing
        self.held_up: Which = nothing
        self.hangs = self.is_stuck = False
        self.go_on = asyncio.Event()
        self.looks = 0
        self.replies: list[list[Any]] = []  # of plain commands, those that are lists

    async def command(self, key: str, *command: Argument) -> Any:
        reply = await super().command(key, *command)
        if isinstance(reply, list):
            self.replies.append(reply)
        return reply

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.looks += any(call.script == "check" for call in calls)
        gone = [self.unheard(call) for call in calls]
        lost = [self.unanswered(call) for call in calls]
        if any(self.late(call) for call in calls):
            await self.go_on.wait()
        heard = [call for call, is_gone in zip(calls, gone, strict=True) if not is_gone]
        replies = iter(await super().run(heard) if heard else [])
        if any(self.held_up(call) for call in heard):
            await self.go_on.wait()
        fault = Unreachable("lost by the test")
        answers = [fault if is_gone else next(replies) for is_gone in gone]
        return [fault if lose else answer for answer, lose in zip(answers, lost, strict=True)]

    async def memory(self) -> dict[str, Memory]:
        if self.hangs:
            self.is_stuck = True
            await self.go_on.wait()
        return await super().memory()


class SaidFull(Fullness):
    """All servers are full where the test says so."""

    is_said = False

    def is_full(self, shard: int) -> bool:
        return self.is_said or super().is_full(shard)


class Told:
    """What a worker was told."""

    def __init__(self) -> None:
        self.lost_leases: list[Lease] = []
        self.refused_leases: list[Lease] = []
        self.errors: list[CrawlerError] = []
        self.wakes = 0

    def count(self, key: str) -> None: ...

    def added(self, added: Added) -> None: ...

    def refused(self, lease: Lease) -> None:
        self.refused_leases.append(lease)

    def lost(self, leases: Sequence[Lease]) -> None:
        self.lost_leases += leases

    def failed(self, error: CrawlerError) -> None:
        self.errors.append(error)

    def wake(self) -> None:
        self.wakes += 1


class Worker:
    def __init__(self, url: str, name: str, lease_s: float, heartbeat_s: float) -> None:
        self.told = Told()
        self.nodes = LossyNodes(url)
        self.session = f"{name}.1"
        self.ops = Ops(self.session, SHARDS, RULES, lease_s)
        self.knowledge = NoKnowledge()
        self.base = WorkerBase.of(
            self.nodes,
            self.ops,
            SharedRules(
                name=NAME,
                shards=SHARDS,
                lease_s=lease_s,
                heartbeat_s=heartbeat_s,
                fetch_s=0.5,
                max_leases=8,
                is_sure=True,
                full_bytes=lambda _: None,
            ),
            Outbox(MemoryStore(), lambda domain: shard_of(domain, SHARDS)),
            self.told,
            lambda: WorkerRecord(name=name, session=self.session, host="here", pid=1),
            time.time,
            confirm,
        )
        self.fullness = SaidFull(self.nodes, lambda _: None)
        self.frontier = SharedFrontier(
            replace(self.base, fullness=self.fullness),
            self.knowledge,
            lease_rules=None,
            room=lambda _: NO_LIMIT,
            wake=self.told.wake,
            pushing=None,
        )

    async def add(self, *found: Candidate) -> None:
        self.frontier.add(found, time.time())
        await until(self.frontier.outgoing.is_idle)

    async def lease(self) -> Lease:
        leases: list[Lease] = []

        def one() -> bool:
            leases.extend(self.frontier.lease(time.time()))
            return bool(leases)

        await until(one)
        return leases[0]

    def finish(self, lease: Lease, rest: Rest = GAP) -> bool:
        self.frontier.release(lease, rest, time.time())
        return self.frontier.finish(lease, Done(), time.time())


async def until(is_so: Callable[[], Any]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():
            await asyncio.sleep(0.01)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@asynccontextmanager
async def worker(
    server: RedisServer, name: str = "a", lease_s: float = 60.0, heartbeat_s: float = 0.2
) -> AsyncIterator[Worker]:
    made = Worker(server.url, name, lease_s, heartbeat_s)
    await made.nodes.open()
    await made.nodes.open_shards()
    made.frontier.begin()
    try:
        yield made
    finally:
        await made.frontier.close()
    assert not made.told.errors


def held(server: RedisServer, session: str) -> int:
    return sum(server.client().hlen(f"{NAME}:{{{n}}}:o:{session}") for n in range(SHARDS))


def of_shard(shard: int, count: int = 1) -> list[Candidate]:
    """Each of a host of its own."""
    hosts = (f"h{number}.example" for number in range(1000))
    found = [candidate("", host=host) for host in hosts if shard_of(host, SHARDS) == shard]
    return found[:count]


def test_a_lease_whose_reply_is_lost_is_handed_back(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server) as one:
            one.nodes.unanswered = lambda call: call.script == "lease"
            await one.add(*of_shard(0, 4), *of_shard(1, 4))
            await until(lambda: held(server, one.session))
            one.nodes.unanswered = nothing
            for _ in range(8):
                assert one.finish(await one.lease())
            await until(one.frontier.is_over)

    asyncio.run(story())


def test_nothing_is_leased_after_the_end_though_a_reply_comes_late(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server) as one:
            one.nodes.held_up = lambda call: call.script == "lease" and held(server, one.session)
            await one.add(*of_shard(0, 4))
            await until(lambda: held(server, one.session))
            closing = asyncio.ensure_future(one.frontier.close())
            await asyncio.sleep(0.1)
            one.nodes.go_on.set()
            await closing
            assert not held(server, one.session), "given back, and not in a minute"

    asyncio.run(story())


def test_a_rest_that_is_lost_on_its_way_keeps_its_verdict_back(server: RedisServer) -> None:
    async def story() -> None:
        first, second = candidate("1", host="h"), candidate("2", host="h")
        async with worker(server) as one, worker(server, "b") as other:
            await one.add(first, second)
            lease = await one.lease()
            one.nodes.unheard = lambda call: call.script == "release"
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
            await asyncio.sleep(0.5)
            one.nodes.unheard = nothing
            await until(one.frontier.outgoing.is_idle)
            assert not other.frontier.lease(time.time())
            assert rest_s(server, first) > 200.0, "as the host asked"

    asyncio.run(story())


def test_a_rest_that_could_not_be_told_is_told_at_the_end(server: RedisServer) -> None:
    async def story() -> None:
        first = candidate("1", host="h")
        async with worker(server) as one:
            await one.add(first)
            lease = await one.lease()
            one.nodes.held_up = lambda call: call.script == "release"
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
        assert rest_s(server, first) > 200.0, "as the host asked"
        assert not held(server, one.session)

    asyncio.run(story())


def test_a_rest_told_under_a_lease_that_ended_counts_all_the_same(server: RedisServer) -> None:
    async def story() -> None:
        first, second = candidate("1", host="h"), candidate("2", host="h")
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(first, second)
            lease = await one.lease()
            await cut_off(one, server)
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
            await until(one.frontier.outgoing.is_idle)
            assert rest_s(server, first) > 200.0, "it was asked, whoever holds it now"

    asyncio.run(story())


def test_new_leases_of_a_shard_renew_none_that_ended_there(server: RedisServer) -> None:
    async def story() -> None:
        old, new = of_shard(0, 2)
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(old)
            await until(lambda: len(one.frontier.incoming))
            await cut_off(one, server)
            async with worker(server, "b") as other:
                assert (await other.lease()).candidate.url == old.url
                await one.add(new)
                lease = await one.lease()
                assert lease.candidate.url == new.url, "the other is not ours any more"
                assert not one.frontier.lease(time.time())
                assert [each.candidate.url for each in one.told.lost_leases] == [old.url]

    asyncio.run(story())


def test_that_a_lease_has_ended_is_noticed_though_nobody_said_so(server: RedisServer) -> None:
    """What was sent over a connection that broke can arrive later than what came after it."""

    async def story() -> None:
        old, new = of_shard(0, 2)
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(old)
            lease = await one.lease()  # taken by the engine, and not begun yet
            await cut_off(one, server, late=[one.ops.renew_leases(0), one.ops.lease(0, {})])
            await one.add(new)
            await until(lambda: one.told.lost_leases)
            assert not one.frontier.may_begin(lease)

    asyncio.run(story())


async def cut_off(one: Worker, server: RedisServer, late: Sequence[Call] = ()) -> None:
    """Until its leases are given to others, and *late* has arrived."""
    one.nodes.unheard = lambda call: True
    async with worker(server, "reaper") as reaper:
        await until(lambda: not held(server, one.session))
        reaper.frontier.stopping()
        await reaper.nodes.run(late)
    one.nodes.unheard = nothing


def test_a_shard_that_is_not_heard_of_holds_up_no_other(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(*of_shard(0, 8))
            await until(lambda: len(one.frontier.incoming))
            one.nodes.unheard = lambda call: call.shard == 0
            await until(lambda: not one.frontier.incoming.has_some())
            await one.add(*of_shard(1, 2))
            for _ in range(2):
                lease = await one.lease()
                assert lease.candidate.url in {each.url for each in of_shard(1, 2)}
                assert one.finish(lease)
            assert not one.frontier.lease(time.time())
            assert one.frontier.wake_at() is None, "else the engine would ask without an end"
            one.nodes.unheard = nothing

    asyncio.run(story())


def test_what_may_be_begun_again_wakes_the_engine(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server) as one:
            await one.add(*of_shard(0))
            await until(lambda: len(one.frontier.incoming))
            one.nodes.unheard = lambda call: True
            await until(lambda: not one.frontier.incoming.has_some())
            assert not one.frontier.lease(time.time())
            one.told.wakes = 0
            one.nodes.unheard = nothing
            # Another shard that is heard of again wakes it, too.
            await until(lambda: one.told.wakes and one.frontier.lease(time.time()))

    asyncio.run(story())


def test_a_crawl_is_not_over_before_its_beginning_is_added(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server) as one, worker(server, "b") as other:
            one.nodes.late = lambda call: call.script == "add"
            one.frontier.add(of_shard(0), time.time())
            assert not one.frontier.is_over()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3.5):  # three looks
                    await until(lambda: one.frontier.is_over() or other.frontier.is_over())
            one.nodes.go_on.set()
            await until(lambda: held(server, one.session) or held(server, other.session))
            assert not (one.frontier.is_over() or other.frontier.is_over())

    asyncio.run(story())


def test_nobody_ends_while_links_lie_on_the_disk_of_a_worker(server: RedisServer) -> None:
    """Though it is slow to say so of itself: its servers hang."""

    async def story() -> None:
        first, second = of_shard(0, 2)
        async with worker(server) as one, worker(server, "b") as other:
            one.frontier.is_over()
            other.frontier.is_over()
            await one.add(first)
            await until(lambda: len(one.frontier.incoming) or len(other.frontier.incoming))
            one.nodes.hangs = True
            await until(lambda: one.nodes.is_stuck)
            one.fullness.is_said = True
            holder = one if len(one.frontier.incoming) else other
            lease = await holder.lease()
            one.frontier.add([second], time.time())
            assert holder.finish(lease)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3.5):  # three looks
                    await until(other.frontier.is_over)
            one.nodes.go_on.set()
            one.fullness.is_said = False

    asyncio.run(story())


def test_it_is_told_whose_disk_is_waited_for(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    silent = WorkerRecord(name="lost-1", session="lost-1.1", host="there", pid=1, outbox=7)
    server.client().hset(keys.workers(NAME), "lost-1", msgspec.json.encode(silent))

    async def story() -> None:
        async with worker(server) as one:
            one.frontier.is_over()  # nothing more is added by itself
            await until(lambda: one.nodes.looks > 0)
            server.client().sadd(keys.outboxes(NAME, 1), "lost-1")
            await until(lambda: "lost-1 found (7 links" in caplog.text)
            assert not one.frontier.is_over()

    asyncio.run(story())


@pytest.mark.parametrize("drift", [-19, 19])
def test_the_end_is_found_in_the_queues_though_counters_have_drifted(
    server: RedisServer, caplog: pytest.LogCaptureFixture, drift: int
) -> None:
    async def story() -> None:
        async with worker(server) as one:
            await one.add(*of_shard(0))
            server.client().hincrby(keys.totals(NAME, 0), "waiting", drift)
            assert one.finish(await one.lease())
            await until(one.frontier.is_over)
            assert one.frontier.counts().waiting == max(0, drift)
            await until(lambda: "scrapy frontier check" in caplog.text)

    asyncio.run(story())


def test_no_counter_ends_a_crawl_in_which_a_url_waits(server: RedisServer) -> None:
    far = candidate("far", host="h", not_before=time.time() + 3600)

    async def story() -> None:
        async with worker(server) as one:
            await one.add(far)
            shard = shard_of(far.domain, SHARDS)
            server.client().hset(keys.totals(NAME, shard), "later", 0)
            assert not one.frontier.is_over()
            await until(lambda: one.nodes.looks > 3)
            assert not one.frontier.is_over()

    asyncio.run(story())


def test_a_worker_reads_of_a_thousand_others_next_to_nothing(server: RedisServer) -> None:
    """Each read all records of all others each second: 270 kB for each of 1,000 workers."""
    client, now = server.client(), time.time()
    workers, alive, *_ = keys.announced(NAME)
    for number in range(1000):
        name = f"machine-{number}-abcdef"
        said = WorkerRecord(name=name, session=f"{name}.1", host="machine", pid=1, at=now)
        client.hset(workers, name, msgspec.json.encode(said))
        client.zadd(alive, {name: now + BOUND_S})

    async def story() -> None:
        async with worker(server) as one:
            await until(lambda: one.frontier.membership.live == 1001)
            replies = one.nodes.replies
            await until(lambda: any(len(reply) == 1001 for reply in replies))
            begin = len(replies)
            await until(lambda: len(replies) >= begin + 4)
            assert all(len(reply) <= 4 for reply in replies[begin : begin + 4])

    asyncio.run(story())


def test_what_is_added_after_the_end_begins_it_again(server: RedisServer) -> None:
    """A user's extension may add requests when the spider is idle."""

    async def story() -> None:
        async with worker(server) as one:
            await until(one.frontier.is_over)
            one.frontier.add(of_shard(0), time.time())
            assert not one.frontier.is_over()
            assert one.finish(await one.lease())
            await until(one.frontier.is_over)

    asyncio.run(story())


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(Done, id="of a page"),
        pytest.param(partial(Moved, candidate("2", host="h")), id="that names another URL"),
    ],
)
def test_a_claim_is_told_before_its_verdict(
    server: RedisServer, verdict: Callable[..., Done | Moved]
) -> None:
    async def story() -> None:
        async with worker(server) as one:
            await one.add(candidate("1", host="h"))
            lease = await one.lease()
            claim = Claim(b"d" * 20, "http://h/1", status=404)
            one.frontier.release(lease, GAP, time.time())
            one.nodes.unheard = lambda call: call.script == "finish"
            assert one.frontier.finish(lease, verdict(claim=claim), time.time())
            assert one.knowledge.claims == [(lease.id, claim)]
            asked = one.ops.reserve(claim.digest, 9, 1.0)
            await until(lambda: server.client().exists(keys.claims(NAME, asked.shard, 0)))
            ((_, word, packed, file),) = await one.nodes.run([asked])
            assert (word, read_claim(packed, file)) == (b"claimed", claim)
            one.nodes.unheard = nothing
            await until(one.frontier.outgoing.is_idle)

    asyncio.run(story())


def test_what_is_gathered_elsewhere_is_told_at_the_end(server: RedisServer) -> None:
    async def story() -> None:
        async with worker(server) as one:
            rows = Call(1, "near", (0, 7, b"r" * 20))
            one.knowledge.gathered.append(lambda: one.base.side_queue.send_later(rows))
        assert server.client().get(keys.near(NAME, 1, 0, 7)) == b"r" * 20

    asyncio.run(story())


def rest_s(server: RedisServer, one: Candidate) -> float:
    """As lua/shard.lua packs a host: place 1, front 1, fronts 2, filings 4, rest 8."""
    record = server.client().hget(keys.hosts(NAME, shard_of(one.domain, SHARDS)), one.host)
    assert isinstance(record, bytes)
    return float(unpack_from("<d", record, 8)[0]) - time.time()

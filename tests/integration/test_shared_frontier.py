"""A worker's side of the shared frontier, over a real Redis and a network that loses chosen calls
and replies. Each test is about a fault that was found, or that would be one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from struct import unpack_from
from typing import Any

import msgspec
import pytest

from crawler.frontier.port import FrontierLimits
from crawler.frontier.staging import all_records
from crawler.frontier.sweep import Fate, Forget
from crawler.model.types import (
    Candidate,
    Claim,
    Dead,
    Done,
    Lease,
    Moved,
    Pace,
    Purpose,
    Rest,
)
from crawler.policy.scope import Reason, Refusal
from crawler.shared import keys
from crawler.shared.client import Call, Nodes, ServerMemory
from crawler.shared.codec import WorkerRecord, read_claim
from crawler.shared.connection import Argument
from crawler.shared.faults import Unreachable
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.operator_store import SharedQueues, SharedStore
from crawler.shared.shard import read_later, shard_of
from crawler.shared.worker.kept_rests import KeptRests
from crawler.shared.worker.status import FullServers
from tests.harness.frontiers import candidate
from tests.harness.shared_frontier import BOUND_S, NAME, LoneWorker
from tests.harness.waiting import wait_until_async
from tests.servers.redis import RedisServer

SHARDS = 2
BRIEF_S = 2.0  # a lease that ends soon, but not while a busy machine lets a test wait for its turn
RULES = FrontierLimits(min_gap_s=0.0, gap_factor=0.0, longest_fetch_s=0.5)
GAP = Rest(0.0, Pace())
Which = Callable[[Call], Any]


def nothing(_: object) -> bool:
    return False


class LossyNodes(Nodes):
    """*dropped*: such calls never reach the server. *unanswered*: they do, and the reply is
    lost. *late*: they are on their way until the event is set; *held_up*: their replies are."""

    def __init__(self, *connection: Any) -> None:
        super().__init__(*connection)
        self.dropped: Which = nothing
        self.unanswered: Which = nothing
        self.late: Which = nothing
        self.held_up: Which = nothing
        self.hangs = self.is_stuck = False
        self.go_on = asyncio.Event()
        self.checks = 0
        self.replies: list[list[Any]] = []  # of plain commands, those that are lists

    async def command(self, key: str, *command: Argument) -> Any:
        reply = await super().command(key, *command)
        if isinstance(reply, list):
            self.replies.append(reply)
        return reply

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.checks += any(call.script == "check" for call in calls)
        unsent = [self.dropped(call) for call in calls]
        lost = [self.unanswered(call) for call in calls]
        if any(self.late(call) for call in calls):
            await self.go_on.wait()
        sent = [call for call, is_unsent in zip(calls, unsent, strict=True) if not is_unsent]
        replies = iter(await super().run(sent) if sent else [])
        if any(self.held_up(call) for call in sent):
            await self.go_on.wait()
        fault = Unreachable("lost by the test")
        answers = [fault if is_unsent else next(replies) for is_unsent in unsent]
        return [fault if is_lost else answer for answer, is_lost in zip(answers, lost, strict=True)]

    def post(self, call: Call, on_done: Callable[[], None]) -> None:
        if not self.dropped(call):
            super().post(call, on_done)

    async def memory(self) -> dict[str, ServerMemory]:
        if self.hangs:
            self.is_stuck = True
            await self.go_on.wait()
        return await super().memory()


class ForcedFull(FullServers):
    """Full servers, if the test sets it."""

    is_forced = False

    def is_full(self, shard: int) -> bool:
        return self.is_forced or super().is_full(shard)


class Worker(LoneWorker):
    nodes: LossyNodes
    full_servers: ForcedFull

    def __init__(self, url: str, name: str, lease_s: float, heartbeat_s: float) -> None:
        super().__init__(
            url,
            name,
            shards=SHARDS,
            limits=RULES,
            quiet_s=0.0,
            lease_s=lease_s,
            heartbeat_s=heartbeat_s,
            max_leases=8,
            is_sure=True,
            nodes=LossyNodes,
            full_servers=ForcedFull,
        )

    async def lease_one(self) -> Lease:
        leases: list[Lease] = []

        def has_lease() -> bool:
            leases.extend(self.frontier.lease(time.time()))
            return bool(leases)

        await wait_until_async(has_lease, BOUND_S)
        return leases[0]

    def finish(self, lease: Lease, rest: Rest = GAP) -> bool:
        self.frontier.release(lease, rest, time.time())
        return self.frontier.finish(lease, Done(), time.time())


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
    assert not made.listener.failures


def held(server: RedisServer, session: str) -> int:
    return sum(server.client().hlen(f"{NAME}:{{{n}}}:o:{session}") for n in range(SHARDS))


def of_shard(shard: int, count: int = 1) -> list[Candidate]:
    """Each of a host of its own."""
    hosts = (f"h{number}.example" for number in range(1000))
    found = [candidate("", host=host) for host in hosts if shard_of(host, SHARDS) == shard]
    return found[:count]


def test_a_lease_whose_reply_is_lost_is_handed_back(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            one.nodes.unanswered = lambda call: call.script == "lease"
            await one.add(*of_shard(0, 4), *of_shard(1, 4))
            await wait_until_async(lambda: held(server, one.session), BOUND_S)
            one.nodes.unanswered = nothing
            for _ in range(8):
                assert one.finish(await one.lease_one())
            await wait_until_async(one.frontier.is_over, BOUND_S)

    asyncio.run(scenario())


def test_an_act_reaches_urls_that_wait_for_a_date(server: RedisServer) -> None:
    """Of drop, purge and a new level; a refused URL is judged when its date has come."""
    fates: dict[str, Fate] = {
        "dropped": Dead("by the operator"),
        "forgotten": Forget.FORGET,
        "moved": 1,
        "refused": Refusal(Reason.DENIED, "by the test"),
        "kept": None,
    }

    def fate(found: Candidate) -> Fate:
        return fates[found.url.rpartition("/")[2]]

    async def main() -> None:
        async with worker(server) as a:
            at = time.time() + 3_600
            await a.add(*(candidate(name, not_before=at) for name in fates))
            queues = SharedQueues(a.nodes, a.ops, SharedStore(a.nodes, NAME))
            touched = [n async for n in queues.sweep(None, bool, fate, time.time)]
            assert sum(touched) == 3

        left: dict[str, Candidate] = {}
        letters: list[bytes] = []
        with server.client() as client:
            for shard in range(SHARDS):
                letters += client.hvals(keys.dead(NAME, shard))
                for entry, when in client.zrange(keys.later(NAME, shard), 0, -1, withscores=True):
                    found = read_later(entry, when)
                    left[found.url.rpartition("/")[2]] = found
            totals = [client.hgetall(keys.totals(NAME, shard)) for shard in range(SHARDS)]
            assert not any(b"forgotten" in client.dump(key) for key in client.scan_iter())
        assert left.keys() == {"moved", "refused", "kept"}
        assert left["moved"].level == 1
        (letter,) = letters
        assert b"by the operator" in letter
        assert sum(int(each.get(b"later", 0)) for each in totals) == 3
        assert sum(int(each.get(b"dead", 0)) for each in totals) == 1

    asyncio.run(main())


def test_nothing_is_leased_after_the_end_though_a_reply_comes_late(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            one.nodes.held_up = lambda call: call.script == "lease" and held(server, one.session)
            await one.add(*of_shard(0, 4))
            await wait_until_async(lambda: held(server, one.session), BOUND_S)
            closing = asyncio.ensure_future(one.frontier.close())
            await asyncio.sleep(0.1)
            one.nodes.go_on.set()
            await closing
            assert not held(server, one.session), "given back, and not in a minute"

    asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(12))
def test_a_worker_ends_though_its_tasks_wake_as_they_are_cancelled(
    server: RedisServer, turns: int
) -> None:
    async def scenario() -> None:
        one = Worker(server.url, "a", lease_s=20.0, heartbeat_s=0.5)
        one.frontier.begin()
        await wait_until_async(lambda: one.listener.wakes, BOUND_S)
        closing = asyncio.ensure_future(one.frontier.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        one.frontier.lease(time.time())
        await asyncio.wait({closing}, timeout=BOUND_S)
        assert closing.done()

    asyncio.run(scenario())


def test_a_lost_rest_delays_its_verdict(server: RedisServer) -> None:
    async def scenario() -> None:
        first, second = candidate("1", host="h"), candidate("2", host="h")
        async with worker(server) as one, worker(server, "b") as other:
            await one.add(first, second)
            lease = await one.lease_one()
            one.nodes.dropped = lambda call: call.script == "release"
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
            await asyncio.sleep(0.5)
            one.nodes.dropped = nothing
            await wait_until_async(one.frontier.sender.is_idle, BOUND_S)
            assert not other.frontier.lease(time.time())
            assert rest_s(server, first) > 200.0, "as the host asked"

    asyncio.run(scenario())


def test_a_rest_that_could_not_be_sent_is_sent_at_the_end(server: RedisServer) -> None:
    async def scenario() -> None:
        first = candidate("1", host="h")
        async with worker(server) as one:
            await one.add(first)
            lease = await one.lease_one()
            one.nodes.held_up = lambda call: call.script == "release"
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
        assert rest_s(server, first) > 200.0, "as the host asked"
        assert not held(server, one.session)

    asyncio.run(scenario())


def test_what_an_answer_in_trouble_asked_for_is_sent_at_once_or_at_the_next_start(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        first = candidate("1", host="h")
        async with worker(server) as one:
            kept = KeptRests(one.disk)
            await one.add(first)
            lease, now = await one.lease_one(), time.time()
            one.frontier.note_trouble(lease, Rest(300.0, Pace(), "retry-after", 300.0), now)
            await wait_until_async(lambda: rest_s(server, first) > 200.0, BOUND_S)
            await wait_until_async(lambda: not [*all_records(one.disk, b"s")], BOUND_S)
            one.nodes.dropped = lambda call: call.script == "rest"
            one.frontier.note_trouble(lease, Rest(3600.0, Pace(), "retry-after", 3600.0), now)
            assert rest_s(server, first) < 400.0
            one.nodes.dropped = nothing
            await kept.resend(one.nodes, now + 1000.0)
            assert 2000.0 < rest_s(server, first) < 2700.0, "it began when the answer came"
            assert not [*all_records(one.disk, b"s")]

    asyncio.run(scenario())


def test_a_rest_sent_under_a_lease_that_ended_counts_all_the_same(server: RedisServer) -> None:
    async def scenario() -> None:
        first, second = candidate("1", host="h"), candidate("2", host="h")
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(first, second)
            lease = await one.lease_one()
            await cut_off(one, server)
            one.finish(lease, Rest(300.0, Pace(), "retry-after"))
            await wait_until_async(one.frontier.sender.is_idle, BOUND_S)
            assert rest_s(server, first) > 200.0, "the rest of the host is kept"

    asyncio.run(scenario())


def test_new_leases_of_a_shard_renew_none_that_ended_there(server: RedisServer) -> None:
    async def scenario() -> None:
        old, new = of_shard(0, 2)
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(old)
            await wait_until_async(lambda: len(one.frontier.lease_buffer), BOUND_S)
            await cut_off(one, server)
            async with worker(server, "b") as other:
                assert (await other.lease_one()).candidate.url == old.url
                await one.add(new)
                lease = await one.lease_one()
                assert lease.candidate.url == new.url, "the other is not ours any more"
                assert not one.frontier.lease(time.time())
                assert [each.candidate.url for each in one.listener.losses] == [old.url]

    asyncio.run(scenario())


def test_the_end_of_a_lease_is_noticed_without_a_message(server: RedisServer) -> None:
    """Calls sent over a connection that broke can arrive later than calls sent after them."""

    async def scenario() -> None:
        old, new = of_shard(0, 2)
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(old)
            lease = await one.lease_one()  # taken by the engine, and not begun yet
            await cut_off(one, server, late=[one.ops.renew_leases(0), one.ops.lease(0, {})])
            await one.add(new)
            await wait_until_async(lambda: one.listener.losses, BOUND_S)
            assert not one.frontier.may_begin(lease)

    asyncio.run(scenario())


async def cut_off(one: Worker, server: RedisServer, late: Sequence[Call] = ()) -> None:
    """Until its leases are given to others, and *late* has arrived."""
    one.nodes.dropped = lambda call: True
    async with worker(server, "reaper") as reaper:
        await wait_until_async(lambda: not held(server, one.session), BOUND_S)
        reaper.frontier.stop_leasing()
        await reaper.nodes.run(late)
    one.nodes.dropped = nothing


def test_only_links_that_can_be_new_are_sent(server: RedisServer) -> None:
    """A plain link that a server has acknowledged is counted as seen, as the server would."""
    link = candidate("1", host="h")
    sent: list[int] = []

    def note(call: Call) -> None:
        if call.script == "add":
            sent.extend(int(key) % (1 << 64) for key in call.args[7::2])

    async def scenario() -> None:
        async with worker(server) as one:
            one.nodes.dropped = note
            await one.add(link)
            await one.add(link, candidate("2", host="h"), link)
            assert sent == [link.key, candidate("2", host="h").key]
            assert (one.listener.new, one.listener.seen) == (2, 2)
            sent.clear()
            special = (
                {"not_before": time.time() + 1000.0},
                {"needs_seen_test": False},
                {"level": URGENT_LEVEL},
                {"depth": 0},
                {"seed": "http://seed/"},
                {"is_sitemap": True},
                {"purpose": Purpose.ROBOTS},
                {"request": b"packed"},
            )
            for given in special:
                await one.add(candidate("1", host="h", **given))
            assert sent == [link.key] * len(special)

    asyncio.run(scenario())


def test_a_link_whose_call_failed_is_sent_when_it_is_found_again(server: RedisServer) -> None:
    link, lost = candidate("1", host="h"), []

    def loses(call: Call) -> bool:
        if call.script == "add":
            lost.append(call)
        return call.script == "add"

    async def scenario() -> None:
        async with worker(server) as one:
            one.nodes.dropped = loses
            await one.add(link)
            await wait_until_async(lambda: one.frontier.unsent_links() == 1, BOUND_S)
            tries = len(lost)
            await one.add(link)
            assert len(lost) > tries
            one.nodes.dropped = nothing

    asyncio.run(scenario())


def test_a_url_that_was_forgotten_is_seen_with_and_without_the_filter(server: RedisServer) -> None:
    """An act of the operator makes no URL new, so a worker may go on sending no links to it."""
    first, link = candidate("1", host="h"), candidate("2", host="h")
    shard = shard_of(link.domain, SHARDS)
    queue = keys.queue(NAME, shard, 1, link.host)

    async def scenario() -> None:
        async with worker(server) as one, worker(server, "b") as other:
            await one.add(first, link)
            await wait_until_async(lambda: server.client().llen(queue) == 1, BOUND_S)
            packed = server.client().lindex(queue, 0)
            assert isinstance(packed, bytes)
            sweep = one.ops.sweep(shard, link.host, link.domain, 1, [(packed, b"x")])
            ((_, passed),) = await one.nodes.run([sweep])
            assert (passed, server.client().llen(queue)) == (1, 0)
            for each in (one, other):
                await each.add(link)
                assert each.listener.seen == 1

    asyncio.run(scenario())


def test_a_silent_shard_blocks_no_other(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server, lease_s=BRIEF_S) as one:
            await one.add(*of_shard(0, 8))
            await wait_until_async(lambda: len(one.frontier.lease_buffer), BOUND_S)
            one.nodes.dropped = lambda call: call.shard == 0
            await wait_until_async(lambda: not one.frontier.lease_buffer.has_lease(), BOUND_S)
            await one.add(*of_shard(1, 2))
            for _ in range(2):
                lease = await one.lease_one()
                assert lease.candidate.url in {each.url for each in of_shard(1, 2)}
                assert one.finish(lease)
            assert not one.frontier.lease(time.time())
            assert one.frontier.wake_at() is None, "else the engine would ask without an end"
            one.nodes.dropped = nothing

    asyncio.run(scenario())


def test_a_lease_that_may_begin_again_wakes_the_engine(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            await one.add(*of_shard(0))
            await wait_until_async(lambda: len(one.frontier.lease_buffer), BOUND_S)
            one.nodes.dropped = lambda call: True
            await wait_until_async(lambda: not one.frontier.lease_buffer.has_lease(), BOUND_S)
            assert not one.frontier.lease(time.time())
            one.listener.wakes = 0
            one.nodes.dropped = nothing
            # Another shard that is heard of again wakes it, too.
            await wait_until_async(
                lambda: one.listener.wakes and one.frontier.lease(time.time()), BOUND_S
            )

    asyncio.run(scenario())


def test_a_crawl_is_not_over_before_its_beginning_is_added(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server) as one, worker(server, "b") as other:
            one.nodes.late = lambda call: call.script == "add"
            one.frontier.add(of_shard(0), time.time())
            assert not one.frontier.is_over()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3.5):  # three looks
                    await wait_until_async(
                        lambda: one.frontier.is_over() or other.frontier.is_over(), BOUND_S
                    )
            one.nodes.go_on.set()
            await wait_until_async(
                lambda: held(server, one.session) or held(server, other.session), BOUND_S
            )
            assert not (one.frontier.is_over() or other.frontier.is_over())

    asyncio.run(scenario())


def test_no_worker_ends_while_links_are_on_the_disk_of_another(server: RedisServer) -> None:
    """Though it is slow to say so of itself: its servers hang."""

    async def scenario() -> None:
        first, second = of_shard(0, 2)
        async with worker(server) as one, worker(server, "b") as other:
            one.frontier.is_over()
            other.frontier.is_over()
            await one.add(first)
            await wait_until_async(
                lambda: len(one.frontier.lease_buffer) or len(other.frontier.lease_buffer), BOUND_S
            )
            one.nodes.hangs = True
            await wait_until_async(lambda: one.nodes.is_stuck, BOUND_S)
            one.full_servers.is_forced = True
            holder = one if len(one.frontier.lease_buffer) else other
            lease = await holder.lease_one()
            one.frontier.add([second], time.time())
            assert holder.finish(lease)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3.5):  # three looks
                    await wait_until_async(other.frontier.is_over, BOUND_S)
            one.nodes.go_on.set()
            one.full_servers.is_forced = False

    asyncio.run(scenario())


def test_the_worker_with_unsent_links_is_logged(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    silent = WorkerRecord(name="lost-1", session="lost-1.1", host="there", pid=1, outbox=7)
    server.client().hset(keys.workers(NAME), "lost-1", msgspec.json.encode(silent))

    async def scenario() -> None:
        async with worker(server) as one:
            one.frontier.is_over()  # nothing more is added by itself
            await wait_until_async(lambda: one.nodes.checks > 0, BOUND_S)
            server.client().sadd(keys.outboxes(NAME, 1), "lost-1")
            await wait_until_async(lambda: "lost-1 found (7 links" in caplog.text, BOUND_S)
            assert not one.frontier.is_over()

    asyncio.run(scenario())


@pytest.mark.parametrize("drift", [-19, 19])
def test_the_end_is_found_in_the_queues_though_counters_have_drifted(
    server: RedisServer, caplog: pytest.LogCaptureFixture, drift: int
) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            await one.add(*of_shard(0))
            server.client().hincrby(keys.totals(NAME, 0), "waiting", drift)
            assert one.finish(await one.lease_one())
            await wait_until_async(one.frontier.is_over, BOUND_S)
            assert one.frontier.counts().waiting == max(0, drift)
            await wait_until_async(lambda: "scrapy frontier check" in caplog.text, BOUND_S)

    asyncio.run(scenario())


def test_no_counter_ends_a_crawl_in_which_a_url_waits(server: RedisServer) -> None:
    far = candidate("far", host="h", not_before=time.time() + 3600)

    async def scenario() -> None:
        async with worker(server) as one:
            await one.add(far)
            shard = shard_of(far.domain, SHARDS)
            server.client().hset(keys.totals(NAME, shard), "later", 0)
            assert not one.frontier.is_over()
            await wait_until_async(lambda: one.nodes.checks > 3, BOUND_S)
            assert not one.frontier.is_over()

    asyncio.run(scenario())


def test_a_worker_reads_of_a_thousand_others_next_to_nothing(server: RedisServer) -> None:
    """Each read all records of all others each second: 270 kB for each of 1,000 workers."""
    client, now = server.client(), time.time()
    workers, alive, *_ = keys.announced(NAME)
    for number in range(1000):
        name = f"machine-{number}-abcdef"
        record = WorkerRecord(name=name, session=f"{name}.1", host="machine", pid=1, at=now)
        client.hset(workers, name, msgspec.json.encode(record))
        client.zadd(alive, {name: now + BOUND_S})

    async def scenario() -> None:
        async with worker(server) as one:
            await wait_until_async(lambda: one.frontier.membership.live == 1001, BOUND_S)
            replies = one.nodes.replies
            await wait_until_async(lambda: any(len(reply) == 1001 for reply in replies), BOUND_S)
            begin = len(replies)
            await wait_until_async(lambda: len(replies) >= begin + 4, BOUND_S)
            assert all(len(reply) <= 5 for reply in replies[begin : begin + 4])

    asyncio.run(scenario())


def test_links_added_after_the_end_restart_the_crawl(server: RedisServer) -> None:
    """A user's extension may add requests when the spider is idle."""

    async def scenario() -> None:
        async with worker(server) as one:
            await wait_until_async(one.frontier.is_over, BOUND_S)
            one.frontier.add(of_shard(0), time.time())
            assert not one.frontier.is_over()
            assert one.finish(await one.lease_one())
            await wait_until_async(one.frontier.is_over, BOUND_S)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "verdict",
    [
        pytest.param(Done, id="of a page"),
        pytest.param(partial(Moved, candidate("2", host="h")), id="that names another URL"),
    ],
)
def test_a_claim_is_sent_before_its_verdict(
    server: RedisServer, verdict: Callable[..., Done | Moved]
) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            await one.add(candidate("1", host="h"))
            lease = await one.lease_one()
            claim = Claim(b"d" * 20, "http://h/1", status=404)
            one.frontier.release(lease, GAP, time.time())
            one.nodes.dropped = lambda call: call.script == "finish"
            assert one.frontier.finish(lease, verdict(claim=claim), time.time())
            assert one.knowledge.claims == [(lease.id, claim)]
            asked = one.ops.reserve(claim.digest, 9, 1.0)
            await wait_until_async(
                lambda: server.client().exists(keys.claims(NAME, asked.shard, 0)), BOUND_S
            )
            ((_, word, packed, file),) = await one.nodes.run([asked])
            assert (word, read_claim(packed, file)) == (b"claimed", claim)
            one.nodes.dropped = nothing
            await wait_until_async(one.frontier.sender.is_idle, BOUND_S)

    asyncio.run(scenario())


def test_gathered_calls_are_sent_at_the_end(server: RedisServer) -> None:
    async def scenario() -> None:
        async with worker(server) as one:
            rows = Call(1, "near", (0, 7, b"r" * 20))
            one.knowledge.gathered.append(lambda: one.base.side_queue.send_later(rows))
        assert server.client().get(keys.near(NAME, 1, 0, 7)) == b"r" * 20

    asyncio.run(scenario())


def rest_s(server: RedisServer, one: Candidate) -> float:
    """As lua/shard.lua packs a host: place 1, front 1, fronts 2, filings 4, rest 8."""
    record = server.client().hget(keys.hosts(NAME, shard_of(one.domain, SHARDS)), one.host)
    assert isinstance(record, bytes)
    return float(unpack_from("<d", record, 8)[0]) - time.time()

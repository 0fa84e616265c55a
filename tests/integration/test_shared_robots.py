"""Robots.txt records among workers, over a real Redis: one worker fetches, the others read."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import cycle, islice
from random import Random
from typing import Any, Final

import msgspec
import pytest
from isal import isal_zlib

from crawler.config.settings import ContentSettings, PatternSettings, RobotsSettings
from crawler.data.local_stores import LocalPatternStats, Soft404Records
from crawler.frontier.memory_store import MemoryStore
from crawler.loop.life import Plan
from crawler.loop.precheck import (
    Precheck,
    Probes,
    Skip,
)
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
    Purpose,
    PutBack,
    StoreFull,
    StoreUnavailable,
)
from crawler.model.url import registered_domain, split
from crawler.policy.operator_rules import NO_RULES
from crawler.policy.robots_cache import (
    MAX_REDIRECTS,
    RobotsAllowed,
    RobotsCache,
    RobotsDisallowed,
    RobotsFetchResult,
    RobotsRecord,
    RobotsState,
    RobotsUnknown,
    RobotsUnreachable,
    RobotsVerdict,
    robots_url,
)
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.shard import shard_of
from crawler.shared.worker.robots import (
    FOUND,
    MAX_AWAITED_BYTES,
    MAX_BYTES,
    UNANSWERED,
    UNREADABLE,
    UNSAVED,
    SharedRobots,
)
from tests.harness.redis_worker import (
    IMPATIENT,
    NAME,
    PATIENT,
    SHARDS,
    RedisWorker,
    redis_workers,
)
from tests.servers.redis import RedisServer

NOW: Final = 1e9
DAY_S: Final = 86_400.0
HERE, THERE = "http://a.org", "http://b.org"
PAGE: Final = f"{HERE}/page"
RULES: Final = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n"


class Records(dict[str, RobotsRecord]):
    """A worker's disk."""

    is_full = False

    def put(self, record: RobotsRecord) -> None:
        if self.is_full:
            raise StoreFull("no space left on device")
        self[record.authority] = record


class Sharer(RedisWorker):
    """A worker that does what its precheck decides."""

    def __init__(self, url: str, session: str) -> None:
        super().__init__(url, session)
        self.clock = NOW
        self.local = Records()
        self.paused: list[StoreUnavailable] = []
        self.robots = SharedRobots(
            *(self.local, self.link(), lambda: self.clock),
            RobotsSettings().robots_max_bytes,
            self.paused.append,
        )
        self.cache = RobotsCache(self.robots, "Gossamer", RobotsSettings())
        self.precheck = Precheck(
            self.cache,
            hop,
            LocalPatternStats(MemoryStore(), PatternSettings()),
            Probes(Soft404Records(MemoryStore()), lambda: "name", ContentSettings()),
            NO_RULES.of_url,
        )
        self.meanwhile: Callable[[], Any] = lambda: None

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        replies = await super().run(calls)
        self.meanwhile()
        return replies

    async def prepare(self, lease: Lease) -> None:
        for authority in await self.robots.prefetch([lease]):
            self.precheck.drop_robots(authority)

    async def check(self, lease: Lease, answer: RobotsFetchResult | None = None) -> Plan | Skip:
        """Check *lease* as the worker does; a request that follows is answered with *answer*."""
        await self.prepare(lease)
        decided = self.precheck.check(lease, self.clock)
        is_robots = isinstance(decided, Plan) and decided.purpose is Purpose.ROBOTS
        if is_robots and answer is not None:
            self.precheck.store_robots_result(decided, answer, self.clock, 0.0)
            await self.flush()
        return decided

    async def verdict(self, url: str = PAGE) -> RobotsVerdict:
        await self.prepare(lease_of(url))
        return self.cache.verdict(url, self.clock)

    async def learn(self, *answers: RobotsFetchResult, authority: str = HERE) -> None:
        for answer in answers:
            self.cache.store_result(authority, answer, self.clock)
        await self.flush()


def hop(url: str, authority: str) -> Candidate:
    host = split(url).hostname
    return Candidate(
        *(url, 1, HostKey(host), registered_domain(host)),
        purpose=Purpose.ROBOTS,
        authority=authority,
        needs_seen_test=False,
    )


def lease_of(url: str = PAGE) -> Lease:
    host = split(url).hostname
    return Lease(1, Candidate(url, 1, HostKey(host), registered_domain(host)), Pace(), NOW)


def hop_lease(decided: Any) -> Lease:
    """What the frontier makes of the hop that a clearance asked for."""
    assert isinstance(decided, Skip) and decided.verdict == PutBack(is_first=False)
    assert decided.robots_candidate is not None, "no candidate was returned"
    return Lease(2, decided.robots_candidate, Pace(), NOW)


def answer(
    status: int = 200, body: bytes = b"", url: str = robots_url(HERE), target: str | None = None
) -> RobotsFetchResult:
    return RobotsFetchResult(url, status, target=target, body=body)


def moved(target: str, url: str = robots_url(HERE)) -> RobotsFetchResult:
    return answer(301, url=url, target=target)


def file_of(packed_bytes: int) -> bytes:
    """Forbids /private, and takes about so much."""
    noise = urlsafe_b64encode(Random(1).randbytes(packed_bytes))
    lines = (noise[at : at + 70] for at in range(0, len(noise), 70))
    return RULES + b"".join(b"Disallow: /" + line + b"\n" for line in lines)


def sharers(
    server: RedisServer, count: int = 2, patience: str = PATIENT
) -> AbstractAsyncContextManager[list[Sharer]]:
    return redis_workers(server.url, Sharer, count, patience)


def key_of(authority: str) -> str:
    host = split(f"{authority}/").hostname
    return keys.robots(NAME, shard_of(registered_domain(host), SHARDS), authority)


def test_records_that_a_full_disk_refused_are_received_again(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.learn(answer(200, RULES))
            other.local.is_full = True
            assert await other.verdict() == RobotsUnknown(robots_url(HERE))
            other.local.is_full = False
            assert await other.verdict() == RobotsAllowed(7.0)
            assert other.counted == {UNSAVED: 1, FOUND: 1}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        pytest.param([answer(200, RULES)], RobotsAllowed(7.0), id="a file"),
        pytest.param([answer(404)], RobotsAllowed(), id="its absence"),
        pytest.param(
            [answer(503)] * RobotsSettings().robots_tries,
            RobotsUnreachable(NOW + RobotsSettings().robots_unreachable_s, "status 503"),
            id="that it cannot be had",
        ),
        pytest.param(
            [moved(f"{HERE}/r.txt")], RobotsUnknown(f"{HERE}/r.txt"), id="where it is to be fetched"
        ),
    ],
)
def test_one_worker_reads_the_record_of_another(
    server: RedisServer, answers: list[RobotsFetchResult], verdict: RobotsVerdict
) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            assert await other.verdict() == RobotsUnknown(robots_url(HERE))
            await one.learn(*answers)
            found = await other.verdict()
            if isinstance(found, RobotsUnreachable):
                assert verdict.until - found.until < 1.0
                found = RobotsUnreachable(verdict.until, found.reason)
            assert found == verdict
            await other.verdict()
            assert other.counted == {FOUND: 1}
            assert other.unsent == [], "records of other workers are not sent again"

    asyncio.run(scenario())


def test_the_rules_are_the_same_to_the_byte(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.learn(answer(200, RULES))
            refused = await other.verdict(f"{HERE}/private/x")
            assert refused == RobotsDisallowed("line 2: Disallow: /private")
            assert other.local[HERE].body == RULES

    asyncio.run(scenario())


def test_failures_of_all_workers_count_together(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server, 5) as workers:
            for worker in islice(cycle(workers), RobotsSettings().robots_tries):
                assert (await worker.check(lease_of(), answer(503))).url == robots_url(HERE)
            assert isinstance(await workers[0].verdict(), RobotsUnreachable)

    asyncio.run(scenario())


def test_a_shared_robots_txt_holds_for_the_rest_of_its_day_despite_wrong_clocks(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.learn(answer(200, RULES))
            assert DAY_S - 10 < server.client().pttl(key_of(HERE)) / 1000 <= DAY_S
            server.client().pexpire(key_of(HERE), 3_600_000)  # 23 hours pass
            other.clock = NOW - 10 * DAY_S
            assert await other.verdict() == RobotsAllowed(7.0)
            other.clock += 3590
            assert await other.verdict() == RobotsAllowed(7.0)
            other.clock += 20
            server.client().delete(key_of(HERE))
            assert await other.verdict() == RobotsUnknown(robots_url(HERE))

    asyncio.run(scenario())


def test_only_unknown_records_are_requested_in_one_call_a_shard(
    server: RedisServer,
) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            await one.learn(answer(200, RULES))
            await one.robots.prefetch([lease_of()])
            assert one.asked == []
            leases = [lease_of(f"http://{n}.b.org/{page}") for n in range(5) for page in range(2)]
            await one.robots.prefetch([*leases, lease_of()])
            (call,) = one.asked
            assert sorted(call.args) == [f"http://{n}.b.org" for n in range(5)]

    asyncio.run(scenario())


def test_a_record_of_another_worker_replaces_an_expired_one(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await other.learn(answer(404))
            assert await other.verdict() == RobotsAllowed()
            server.client().delete(key_of(HERE))
            other.clock = one.clock = NOW + 2 * DAY_S
            await one.learn(answer(200, RULES))
            assert await other.verdict() == RobotsAllowed(7.0), (
                "its memory has forgotten the old ones"
            )

    asyncio.run(scenario())


def test_a_redirect_to_another_host_is_learned_with_that_hosts_lease(
    server: RedisServer,
) -> None:
    """One worker leases a.org, another b.org; a third starts later."""

    async def scenario() -> None:
        async with sharers(server, 3) as (one, other, third):
            assert (await one.check(lease_of(), moved(robots_url(THERE)))).url == robots_url(HERE)
            hopping = hop_lease(await one.check(lease_of()))
            waits = await one.check(lease_of())
            assert isinstance(waits, Skip) and waits.robots_candidate is None, (
                "it is asked for once"
            )
            found = answer(200, RULES, robots_url(THERE))
            assert (await other.check(hopping, found)).url == robots_url(THERE)
            assert (await one.check(lease_of())).url == PAGE
            assert (await third.check(lease_of())).url == PAGE

    asyncio.run(scenario())


def test_each_worker_asks_for_a_hop_once_until_it_is_known(server: RedisServer) -> None:
    """The one that did may be dead: what it asked for waits in the frontier or is lost with it."""

    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.check(lease_of(), moved(robots_url(THERE)))
            for worker in (one, other):
                hop_lease(await worker.check(lease_of()))
                waits = await worker.check(lease_of())
                assert isinstance(waits, Skip) and waits.robots_candidate is None

    asyncio.run(scenario())


def test_a_hop_that_leads_on_is_asked_for_anew(server: RedisServer) -> None:
    """The next day too, when others have asked for a.org's file and it leads there again."""

    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.check(lease_of(), moved(robots_url(THERE)))
            first = hop_lease(await one.check(lease_of()))
            await other.check(first, moved("http://c.org/robots.txt", robots_url(THERE)))
            second = hop_lease(await one.check(lease_of()))
            assert second.candidate.host == "c.org"
            await other.check(second, answer(404, url=second.candidate.url))
            assert (await one.check(lease_of())).url == PAGE
            server.client().delete(key_of(HERE))
            one.clock = other.clock = NOW + 2 * DAY_S
            await other.check(lease_of(), moved("http://c.org/robots.txt"))
            hop_lease(await one.check(lease_of()))

    asyncio.run(scenario())


def test_redirects_in_a_circle_end_however_many_workers_follow(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server, 3) as workers:
            url = robots_url(HERE)
            lease = lease_of()
            for fetched in range(MAX_REDIRECTS + 1):
                to = robots_url(THERE if fetched % 2 == 0 else HERE)
                decided = await workers[fetched % 3].check(lease, moved(to, url))
                assert decided.url == url
                url, lease = to, Lease(2, hop(to, HERE), Pace(), NOW)
            assert await workers[0].verdict() == RobotsAllowed(), "one too many: as good as none"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("packed_bytes", "is_hop", "kind"),
    [
        pytest.param(MAX_BYTES * 3 // 4, False, RobotsState.RULES, id="small"),
        pytest.param(MAX_BYTES * 5 // 4, False, None, id="large: each fetches it for itself"),
        pytest.param(
            MAX_AWAITED_BYTES * 3 // 4,
            True,
            RobotsState.RULES,
            id="large, but not all come to its host",
        ),
        pytest.param(
            MAX_AWAITED_BYTES * 5 // 4, True, RobotsState.UNREACHABLE, id="too large to be shared"
        ),
    ],
)
def test_the_size_of_shared_records_is_bounded(
    server: RedisServer, packed_bytes: int, is_hop: bool, kind: RobotsState | None
) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            url = robots_url(HERE)
            if is_hop:
                url = robots_url(THERE)
                await one.learn(moved(url))
            await one.learn(answer(200, file_of(packed_bytes), url))
            assert isinstance(await one.verdict(f"{HERE}/private"), RobotsDisallowed)
            other.local.clear()
            await other.verdict()
            found = other.local.get(HERE)
            assert (found and found.kind) == kind
            kept = server.client().get(key_of(HERE)) or b""
            assert len(kept) <= (MAX_AWAITED_BYTES if is_hop else MAX_BYTES)

    asyncio.run(scenario())


def test_a_full_server_gets_only_what_is_small_or_waited_for(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            one.is_full = lambda _: True
            await one.learn(answer(200, RULES))
            await one.learn(answer(404), authority="http://c.org")
            assert await other.verdict() == RobotsUnknown(robots_url(HERE))
            assert await other.verdict("http://c.org/") == RobotsAllowed()
            one.local.clear()
            await one.learn(moved(robots_url(THERE)), answer(200, RULES, robots_url(THERE)))
            assert await other.verdict() == RobotsAllowed(7.0)

    asyncio.run(scenario())


def test_our_last_good_copy_outlives_a_redirect_that_another_met(server: RedisServer) -> None:
    """RFC 9309, 2.4: it may be used while the file cannot be had."""

    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await other.learn(answer(200, RULES))
            server.client().delete(key_of(HERE))
            one.clock = other.clock = NOW + 2 * DAY_S
            await one.learn(moved(f"{HERE}/r.txt"))
            assert (await other.check(lease_of(), answer(503))).url == f"{HERE}/r.txt"
            assert await other.verdict() == RobotsAllowed(7.0)

    asyncio.run(scenario())


def test_expired_records_are_not_shared(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            one.robots.put(RobotsRecord(HERE, RobotsState.ALLOW_ALL, NOW - DAY_S, NOW))
            assert one.unsent == []

    asyncio.run(scenario())


def test_an_older_record_does_not_replace_a_newer_one(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            await one.learn(answer(503))
            for _ in range(2):  # not sent yet
                one.cache.store_result(HERE, answer(503), one.clock)
            await one.verdict()
            assert one.local[HERE].tries == 3

    asyncio.run(scenario())


def test_a_record_fetched_here_wins_over_an_older_reply(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.learn(*[answer(503)] * RobotsSettings().robots_tries)
            found = answer(200, RULES)
            other.meanwhile = lambda: other.cache.store_result(HERE, found, other.clock)
            assert await other.verdict() == RobotsAllowed(7.0)

    asyncio.run(scenario())


def test_a_retry_by_an_operator_drops_the_record_at_every_worker(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            await one.learn(*[answer(503)] * RobotsSettings().robots_tries)
            assert isinstance(await other.verdict(), RobotsUnreachable)
            server.client().delete(key_of(HERE))
            assert (await one.check(lease_of(), answer(200, RULES))).url == robots_url(HERE)
            assert await other.verdict() == RobotsAllowed(7.0)

    asyncio.run(scenario())


def packed(**given: Any) -> bytes:
    """A record as it is handed on, but for what is *given*."""
    fields = {"authority": "", "kind": "rules", "fetched_at": 0.0, "expires_at": 0.0}
    fields |= {"body": isal_zlib.compress(RULES), "tries": 0, "next_url": "", "hops": 0}
    return msgspec.msgpack.encode(list({**fields, "reason": "", **given}.values()))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\x99", id="cut off"),
        pytest.param(b"not ours", id="no record"),
        pytest.param(packed(kind="perhaps"), id="an unknown kind"),
        pytest.param(packed(body=None), id="rules without a file"),
        pytest.param(packed(body=RULES), id="a file that is not packed"),
        pytest.param(packed(body=isal_zlib.compress(RULES)[:-3]), id="a file cut off"),
        pytest.param(packed(body=isal_zlib.compress(b" " * 2**24)), id="a bomb"),
        pytest.param(packed(tries="5"), id="a text for a number"),
        pytest.param(packed(tries=-1), id="fewer tries than none"),
        pytest.param(packed(kind="pending", next_url="gopher://a/"), id="to where we cannot go"),
        pytest.param(packed(kind="pending", next_url="http://"), id="to nowhere"),
        pytest.param(packed(kind="pending", next_url="http://a:b/"), id="to no port"),
        pytest.param(packed(kind="pending"), id="to nothing"),
    ],
)
def test_a_record_that_is_none_of_ours_counts_as_none(server: RedisServer, value: bytes) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            server.client().set(key_of(HERE), value, px=60_000)
            assert await one.verdict() == RobotsUnknown(robots_url(HERE))
            assert one.counted == {UNREADABLE: 1}
            server.client().set(key_of(HERE), packed(), px=60_000)
            assert await one.verdict() == RobotsAllowed(7.0), "only the value was wrong"

    asyncio.run(scenario())


@pytest.mark.parametrize("kind", ["a key of another type", "a record that never ends"])
def test_a_key_that_is_none_of_ours_counts_as_none(server: RedisServer, kind: str) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            if kind == "a key of another type":
                server.client().rpush(key_of(HERE), b"x")
            else:
                server.client().set(key_of(HERE), packed())
            assert await one.verdict() == RobotsUnknown(robots_url(HERE))
            assert sum(one.counted.values()) == 1

    asyncio.run(scenario())


def test_a_lease_without_a_holder_is_left_to_other_workers(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, _):
            unknown = Candidate("nowhere", 1, HostKey("a"), "a")
            hopless = Candidate(PAGE, 1, HostKey("a"), "a", purpose=Purpose.ROBOTS, authority="?")
            await one.robots.prefetch([Lease(1, each, Pace(), NOW) for each in (unknown, hopless)])
            assert one.asked == []

    asyncio.run(scenario())


def test_a_server_without_memory_left_still_takes_records(server: RedisServer) -> None:
    async def scenario() -> None:
        async with sharers(server) as (one, other):
            for worker in (one, other):
                await worker.verdict("http://elsewhere.org/")  # opens the shards
                await worker.verdict()
            server.client().config_set("maxmemory", 1)
            await one.learn(answer(200, RULES))
            assert one.unsent == []
            assert await other.verdict() == RobotsAllowed(7.0)

    try:
        asyncio.run(scenario())
    finally:
        server.client().config_set("maxmemory", 0)


def test_without_redis_a_worker_uses_its_own_records(tmp_path: Any) -> None:
    async def scenario(server: RedisServer) -> None:
        async with sharers(server, patience=IMPATIENT) as (one, other):
            server.pause()
            assert (await one.check(lease_of(), answer(200, RULES))).url == robots_url(HERE)
            assert (await one.check(lease_of())).url == PAGE
            assert one.counted == {UNANSWERED: 1}
            server.resume()
            while one.unsent:
                await one.flush()
            assert await other.verdict() == RobotsAllowed(7.0)

    with RedisServer(tmp_path) as server:
        asyncio.run(scenario(server))

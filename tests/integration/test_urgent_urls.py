"""What is urgent goes before all others, stays urgent until it is done, and is as polite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from crawler.frontier.port import FrontierLimits
from crawler.model.types import (
    Dead,
    Done,
    Lease,
    Moved,
    PutBack,
    RetryAt,
)
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.shard import ShardOperations, read_added, shard_of
from tests.harness.frontiers import TIGHT, candidate, rest
from tests.harness.redis_world import SHARDS, RedisWorld, TimedFrontier, TimedLink
from tests.servers.redis import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class World(RedisWorld):
    def __init__(self, client: redis.Redis, limits: FrontierLimits = TIGHT) -> None:
        super().__init__(client, limits)
        self.frontier: TimedFrontier = self.reopen(0.0)

    def urgent(self, *names: str, host: str = "a") -> int:
        """How many were admitted."""
        calls = ShardOperations("any", SHARDS, self.limits, 60).add_urgent(
            [candidate(name, host=host) for name in names]
        )
        return sum(read_added(reply).new for reply in TimedLink(self.client).run(calls))

    def lease(self, now: float = 0.0) -> Lease | None:
        return next(iter(self.frontier.lease(now)), None)

    def path(self, now: float) -> str:
        """Of the next URL, which is fetched and done."""
        lease = self.lease(now)
        if lease is None:
            return ""
        self.frontier.release(lease, rest(0), now)
        self.frontier.finish(lease, Done(), now)
        self.check(self.frontier)
        return lease.candidate.url.partition("//")[2]


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    with server.client() as client:
        yield World(client)


def paths(world: World, count: int) -> list[str]:
    return [world.path(100.0 * n) for n in range(1, count + 1)]


def test_an_urgent_url_is_first_on_its_host_in_order_of_arrival(world: World) -> None:
    world.frontier.add([candidate("1"), candidate("2")], 0.0)
    world.urgent("u")
    world.urgent("v")
    assert paths(world, 5) == ["a/u", "a/v", "a/1", "a/2", ""]


def test_the_host_of_an_urgent_url_is_first_in_its_shard(world: World) -> None:
    hosts = [host for n in range(30) if shard_of(host := f"h{n}", SHARDS) == 0]
    world.frontier.add([candidate("1", host=host) for host in hosts], 0.0)
    world.urgent("u", host=hosts[-1])
    leases = world.frontier.lease(0.0, len(hosts))
    assert len(leases) == len(hosts)
    assert [lease.candidate.host for lease in leases] == [hosts[-1], *hosts[:-1]]


def test_an_urgent_url_is_fetched_though_seen_before(world: World) -> None:
    world.frontier.add([candidate("1")], 0.0)
    assert paths(world, 2) == ["a/1", ""]
    assert world.urgent("1", "new") == 2
    assert world.frontier.add([candidate("1"), candidate("new")], 300.0).seen == 2
    assert paths(world, 3) == ["a/1", "a/new", ""]


def test_budgets_do_not_refuse_urgent_urls(server: RedisServer) -> None:
    rules = FrontierLimits(max_urls_per_host=1, max_urls_per_domain=1)
    with server.client() as client:
        world = World(client, rules)
        assert world.frontier.add([candidate("1"), candidate("2")], 0.0).over_budget == 1
        assert world.urgent("3", "4") == 2
        assert world.frontier.add([candidate("5")], 0.0).over_budget == 1


def test_politeness_holds_for_urgent_urls(world: World) -> None:
    world.frontier.add([candidate("1"), candidate("2")], 0.0)
    first = world.lease()
    assert first is not None
    world.urgent("u")
    assert world.lease() is None, "its host is leased"
    world.frontier.release(first, rest(30), 0.0)
    assert world.lease(29.0) is None, "its host rests"
    second = world.lease(30.0)
    assert second is not None and second.candidate.url == "http://a/u"


@pytest.mark.parametrize(
    ("verdict", "at"),
    [
        pytest.param(RetryAt(50.0), 60.0, id="tried again"),
        pytest.param(PutBack(), 60.0, id="put back"),
        pytest.param(Moved(candidate("u", level=URGENT_LEVEL)), 60.0, id="a bounce to itself"),
        pytest.param(Moved(candidate("2", level=URGENT_LEVEL)), 60.0, id="moved to a seen one"),
        pytest.param(Moved(candidate("new", level=URGENT_LEVEL)), 60.0, id="moved to a new one"),
    ],
)
def test_a_retried_url_stays_urgent(
    world: World, verdict: RetryAt | PutBack | Moved, at: float
) -> None:
    world.frontier.add([candidate("1"), candidate("2")], 0.0)
    world.urgent("u")
    lease = world.lease()
    assert lease is not None and lease.candidate.level == URGENT_LEVEL
    world.frontier.release(lease, rest(10), 0.0)
    world.frontier.finish(lease, verdict, 0.0)
    world.check(world.frontier)
    again = world.lease(at)
    assert again is not None and again.candidate.level == URGENT_LEVEL
    target = verdict.candidate.url if isinstance(verdict, Moved) else "http://a/u"
    assert again.candidate.url == target


def test_a_url_stays_urgent_when_its_worker_dies(world: World) -> None:
    world.frontier.add([candidate("1")], 0.0)
    world.urgent("u")
    assert world.lease() is not None
    world.frontier = world.reopen(0.0)
    assert paths(world, 3) == ["a/u", "a/1", ""]


def test_a_dead_letter_of_an_urgent_url_can_be_put_back(world: World) -> None:
    world.urgent("u")
    lease = world.lease()
    assert lease is not None
    world.frontier.release(lease, rest(0), 0.0)
    world.frontier.finish(lease, Dead("no"), 0.0)
    (letter,) = world.letters()
    assert letter.candidate.level == URGENT_LEVEL

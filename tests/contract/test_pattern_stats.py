"""What patterns have brought, over every store: one suite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis

from crawler.config.settings import PatternSettings
from crawler.data.local_stores import LocalPatternStats
from crawler.frontier.port import FrontierRules, OrderedStore
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
)
from crawler.policy.patterns import (
    FetchAllowed,
    PatternStatsStore,
    PatternStopped,
)
from crawler.policy.scope import Reason, Refusal
from crawler.shared.client import Call
from crawler.shared.shard import ShardOperations
from crawler.shared.worker.batcher import ShardLink
from crawler.shared.worker.patterns import SharedPatternStats
from tests.harness.frontiers import STORES, candidate
from tests.harness.redis_world import SHARDS, RedisWorld, ToldLink
from tests.servers.redis import RedisServer

RULES = PatternSettings(pattern_max_pages=9, pattern_barren_pages=4, pattern_probe_s=60.0)
ENDLESS = PatternSettings(pattern_max_pages=None, pattern_barren_pages=4, pattern_probe_s=60.0)
OFF = PatternSettings(pattern_max_pages=None, pattern_barren_pages=None)


class World(Protocol):
    def reopen(
        self, rules: PatternSettings, most_patterns: int = 100, recent: int = 100
    ) -> PatternStatsStore:
        """What another run finds."""


class LocalWorld:
    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def reopen(
        self, rules: PatternSettings, most_patterns: int = 100, recent: int = 100
    ) -> PatternStatsStore:
        return LocalPatternStats(self._store, rules, most_patterns, recent)


class SharedWorld:
    """Each reopening is another worker."""

    def __init__(self, client: redis.Redis) -> None:
        RedisWorld(client)  # an empty server that knows the scripts
        self._link = ToldLink(client)

    def reopen(
        self, rules: PatternSettings, most_patterns: int = 100, recent: int = 100
    ) -> PatternStatsStore:
        return ToldYields(self._link, rules, most_patterns, recent)


class ToldYields:
    """Asks before each lease, and tells at once."""

    def __init__(
        self, link: ToldLink, rules: PatternSettings, most_patterns: int, recent: int
    ) -> None:
        self._link = link
        self._now = 0.0
        self._yields = SharedPatternStats(
            rules,
            ShardLink(
                ops=ShardOperations("w.1", SHARDS, FrontierRules(), 60),
                run=self._run,
                send_later=self._tell,
                is_full=lambda _: False,
                count=lambda _: None,
            ),
            lambda: self._now,
            *(most_patterns, recent),
        )

    def decide(self, candidate: Candidate, now: float) -> FetchAllowed | PatternStopped:
        self._at(now)
        asyncio.run(self._yields.prefetch([Lease(1, candidate, Pace(), now)]))
        return self._yields.decide(candidate, now)

    def record_try(self, candidate: Candidate, now: float) -> None:
        self._at(now)
        self._yields.record_try(candidate, now)

    def has_stopped(self, host: HostKey) -> bool:
        return self._yields.has_stopped(host)

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        return self._yields.refusal(candidate, now)

    def record_page(self, candidate: Candidate, is_new: bool, now: float) -> None:
        self._at(now)
        self._yields.record_page(candidate, is_new, now)

    def _at(self, now: float) -> None:
        self._now = now
        self._link.tell(now)

    async def _run(self, calls: Sequence[Call]) -> list[Any]:
        return self._link.run(calls)

    def _tell(self, call: Call) -> None:
        self._link.run([call])


@contextmanager
def local_world(store: Any, folder: Path) -> Iterator[World]:
    with store(folder) as opened:
        yield LocalWorld(opened)


WORLDS = [*STORES, SharedWorld]


@pytest.fixture(params=WORLDS, ids=lambda kind: kind.__name__)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param is SharedWorld:
        server: RedisServer = request.getfixturevalue("redis_server")
        with server.client() as client:
            yield SharedWorld(client)
        return
    with local_world(request.param, tmp_path) as local:
        yield local


def found(name: str = "day/1", **given: object) -> Candidate:
    return candidate(name, **{"depth": 1, **given})  # type: ignore[arg-type]  # a name and fields, as there


def land(yields: PatternStatsStore, *news: bool, at: float = 0.0, **given: object) -> None:
    """Pages of one pattern, one after the other."""
    for number, is_new in enumerate(news):
        yields.record_page(found(f"day/{number}", **given), is_new, at)


def test_what_nothing_is_known_of_is_fetched(world):
    yields = world.reopen(RULES)
    assert yields.decide(found(), 0.0) is FetchAllowed.OPEN
    assert yields.refusal(found(), 0.0) is None
    assert not yields.has_stopped(found().host)


def test_pages_in_a_row_without_anything_new_stop_their_pattern(world):
    yields = world.reopen(RULES)
    land(yields, True, False, False, False)
    assert yields.decide(found("day/77"), 1.0) is FetchAllowed.OPEN
    land(yields, False, at=1.0)
    stopped = yields.decide(found("day/77"), 2.0)
    assert stopped == PatternStopped("pattern /day/#: nothing new in its last 4 pages")
    refusal = yields.refusal(found("day/78"), 2.0)
    assert refusal is not None and refusal.reason is Reason.PATTERN
    assert refusal.detail == stopped.reason
    assert yields.has_stopped(found().host)
    assert not yields.has_stopped(found(host="b").host)


def test_a_new_page_ends_the_row(world):
    yields = world.reopen(RULES)
    land(yields, False, False, False, True, False, False)
    assert yields.decide(found(), 1.0) is FetchAllowed.OPEN


def test_other_patterns_and_other_hosts_are_not_concerned(world):
    yields = world.reopen(RULES)
    land(yields, *[False] * 4)
    for other in (found("night/1"), found("day/1", host="b"), found("day")):
        assert yields.decide(other, 1.0) is FetchAllowed.OPEN
        assert yields.refusal(other, 1.0) is None


def test_one_is_tried_now_and_then(world):
    yields = world.reopen(RULES)
    land(yields, *[False] * 4)
    assert isinstance(yields.decide(found(), 59.0), PatternStopped)
    assert yields.refusal(found(), 60.0) is None, "somebody must be there to be tried"
    assert yields.decide(found(), 60.0) is FetchAllowed.PROBE
    yields.record_try(found(), 60.0)
    assert isinstance(yields.decide(found("day/2"), 61.0), PatternStopped), "one at a time"
    yields.record_page(found(), False, 62.0)
    assert isinstance(yields.decide(found(), 121.0), PatternStopped)
    assert yields.decide(found(), 122.0) is FetchAllowed.PROBE


def test_a_try_that_brings_something_new_opens_the_pattern(world):
    yields = world.reopen(RULES)
    land(yields, *[False] * 4)
    yields.record_try(found(), 60.0)
    yields.record_page(found(), True, 61.0)
    assert yields.decide(found("day/2"), 62.0) is FetchAllowed.OPEN
    assert yields.refusal(found("day/2"), 62.0) is None
    assert not yields.has_stopped(found().host)


def test_a_cap_is_for_good(world):
    yields = world.reopen(RULES)
    land(yields, *[True] * 8)
    assert yields.decide(found(), 1.0) is FetchAllowed.OPEN
    land(yields, True, at=1.0)
    for now in (2.0, 1e6):
        stopped = yields.decide(found(), now)
        assert stopped == PatternStopped("pattern /day/#: 9 of its pages were fetched, no more are")
    assert yields.refusal(found(), 2.0) is not None


def test_it_outlives_its_process(world):
    land(world.reopen(RULES), False, False)
    land(world.reopen(RULES), False, False)
    assert isinstance(world.reopen(RULES).decide(found(), 1.0), PatternStopped)


def test_what_a_person_named_counts_and_is_fetched(world):
    yields = world.reopen(RULES)
    land(yields, *[False] * 4, depth=0)
    for named in (found(depth=0), found(request=b"of a spider")):
        assert yields.decide(named, 1.0) is FetchAllowed.OPEN
        assert yields.refusal(named, 1.0) is None
    assert isinstance(yields.decide(found(), 1.0), PatternStopped)


def test_patterns_beyond_the_first_count_as_one(world):
    yields = world.reopen(ENDLESS, most_patterns=2)
    for name in ("day/1", "night/1"):
        yields.record_page(found(name), False, 0.0)
    for name in "abcd":
        assert yields.decide(found(f"{name}/1"), 1.0) is FetchAllowed.OPEN
        yields.record_page(found(f"{name}/1"), False, 1.0)
    # Another worker hears of it when it asks.
    yields = world.reopen(ENDLESS, most_patterns=2)
    others = yields.decide(found("e/1"), 2.0)
    assert others == PatternStopped("pattern <other>: nothing new in its last 4 pages")
    assert yields.decide(found("day/2"), 2.0) is FetchAllowed.OPEN


def test_a_pattern_counts_once_however_often_it_is_left(world):
    yields = world.reopen(ENDLESS, most_patterns=2)
    land(yields, False, False, False, False, True, False, False, False, False)
    for number in range(4):
        yields.record_page(found(f"night/{number}"), False, 0.0)
    yields = world.reopen(ENDLESS, most_patterns=2)
    night = yields.decide(found("night/7"), 1.0)
    assert night == PatternStopped("pattern /night/#: nothing new in its last 4 pages")


def test_together_they_have_no_cap(world):
    rules = PatternSettings(pattern_max_pages=3, pattern_barren_pages=None)
    yields = world.reopen(rules, most_patterns=1)
    yields.record_page(found("day/1"), True, 0.0)
    for number in range(5):
        yields.record_page(found(f"night/{number}"), True, 0.0)
    yields = world.reopen(rules, most_patterns=1)
    assert yields.decide(found("night/7"), 1.0) is FetchAllowed.OPEN


def test_with_little_memory_it_counts_as_well(world):
    yields = world.reopen(RULES, recent=1)
    for number in range(4):
        yields.record_page(found(f"day/{number}"), False, 0.0)
        yields.record_page(found(f"night/{number}"), number % 2 == 0, 0.0)
        yields.record_page(found(f"day/{number}", host="b"), True, 0.0)
    assert isinstance(yields.decide(found(), 1.0), PatternStopped)
    assert yields.decide(found("night/1"), 1.0) is FetchAllowed.OPEN
    assert yields.decide(found(host="b"), 1.0) is FetchAllowed.OPEN


def test_without_rules_everything_is_fetched(world):
    yields = world.reopen(OFF)
    land(yields, *[False] * 50)
    assert yields.decide(found(), 1.0) is FetchAllowed.OPEN
    assert yields.refusal(found(), 1.0) is None

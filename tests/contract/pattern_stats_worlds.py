"""What every test of yields runs on: a world that outlives its yields, each of them asked and told
in a single step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

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
from crawler.policy.scope import Refusal
from crawler.shared.client import Call
from crawler.shared.shard import ShardOperations
from crawler.shared.worker.batcher import ShardLink
from crawler.shared.worker.patterns import SharedPatternStats
from tests.contract.frontiers import STORES
from tests.contract.redis_world import SHARDS, RedisWorld, ToldLink


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

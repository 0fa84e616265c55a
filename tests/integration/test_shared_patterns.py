"""Patterns among workers: what is sent, what is asked for, and what happens without an answer.

What they decide is in tests/contract/test_pattern_stats.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crawler.config.settings import PatternSettings
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
)
from crawler.policy.patterns import FetchAllowed, PatternStopped
from crawler.shared.worker.patterns import (
    FRESH_S,
    MAX_PATTERNS,
    PAGES_PER_CALL,
    READ_PAUSE_S,
    RECENT,
    UNANSWERED,
    SharedPatternStats,
)
from tests.harness.redis_worker import SHARDS, RedisWorker, redis_workers
from tests.servers.redis import RedisServer

NOW: Final = 1e9
RULES: Final = PatternSettings(pattern_barren_pages=39)


class Reader(RedisWorker):
    """A worker that reads days."""

    def __init__(self, url: str, session: str) -> None:
        super().__init__(url, session)
        self.clock = NOW
        self.remember(RECENT)

    def remember(self, recent: int, most_patterns: int = MAX_PATTERNS) -> None:
        self.stats = SharedPatternStats(
            *(RULES, self.link(), lambda: self.clock, most_patterns, recent),
        )

    async def go(self, number: int = 0, host: str = "a.org") -> FetchAllowed | PatternStopped:
        found = day(number, host)
        await self.stats.prefetch([Lease(1, found, Pace(), self.clock)])
        return self.stats.decide(found, self.clock)

    async def read(self, days: int, host: str = "a.org") -> None:
        for number in range(days):
            self.stats.record_page(day(number, host), False, self.clock)
        await self.flush()


def day(number: int, host: str = "a.org") -> Candidate:
    return Candidate(f"http://{host}/day/{number}", number, HostKey(host), host, depth=1)


def together(server: RedisServer, scenario: Callable[..., Any]) -> None:
    """Of *anna* and *berta*."""

    async def run() -> None:
        async with redis_workers(server.url, Reader) as (anna, berta):
            await scenario(anna, berta)

    asyncio.run(run())


def test_workers_have_one_budget_together(server: RedisServer) -> None:
    async def scenario(anna: Reader, berta: Reader) -> None:
        await anna.read(24)
        await berta.read(16)
        for worker in (anna, berta):
            decisions = [await worker.go(number) for number in range(PAGES_PER_CALL)]
            assert decisions[0] is FetchAllowed.OPEN, "not asked for yet"
            assert isinstance(decisions[-1], PatternStopped)
            assert worker.stats.have_stopped([HostKey("a.org")])
            assert worker.stats.refusal(day(99), NOW) is not None
        assert await anna.go(host="b.org") is FetchAllowed.OPEN

    together(server, scenario)


def test_a_probe_is_made_by_one_worker(server: RedisServer) -> None:
    async def scenario(anna: Reader, berta: Reader) -> None:
        await anna.read(40)
        anna.clock = NOW + RULES.pattern_probe_s
        assert await anna.go() is FetchAllowed.PROBE
        anna.stats.record_try(day(0), anna.clock)
        await anna.flush()
        for _ in range(PAGES_PER_CALL):
            decided = await berta.go()
        assert isinstance(decided, PatternStopped), "its age is sent, so clocks need not agree"

    together(server, scenario)


def test_few_pages_are_not_sent(server: RedisServer) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        for number in range(PAGES_PER_CALL - 1):
            anna.stats.record_page(day(number), True, NOW)
        assert anna.unsent == []
        anna.stats.record_page(day(PAGES_PER_CALL), False, NOW)
        (call,) = anna.unsent
        assert call.args[3:] == (PAGES_PER_CALL, PAGES_PER_CALL - 1, 1)
        anna.stats.record_page(Candidate("http://a.org/", 1, HostKey("a.org"), "a.org"), False, NOW)
        assert len(anna.unsent) == 1

    together(server, scenario)


def test_a_pattern_is_asked_for_when_it_has_many_leases_and_then_seldom(
    server: RedisServer,
) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        for _page in range(PAGES_PER_CALL - 1):
            await anna.go()
        assert anna.asked == []
        await anna.go()
        await anna.go()
        assert len(anna.asked) == 1
        anna.clock += FRESH_S
        await anna.go()
        assert len(anna.asked) == 2

    together(server, scenario)


def test_own_pages_count_before_they_are_sent(server: RedisServer) -> None:
    async def scenario(anna: Reader, berta: Reader) -> None:
        await berta.read(4 * PAGES_PER_CALL)
        await anna.read(PAGES_PER_CALL - 1)
        for number in range(PAGES_PER_CALL):
            decided = await anna.go(number)
        assert isinstance(decided, PatternStopped)

    together(server, scenario)


def test_evicted_stats_are_sent_first_and_read_at_once(server: RedisServer) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        anna.remember(1)
        for ten in range(10):
            for host in ("a.org", "b.org"):
                for number in range(4):
                    anna.stats.record_page(day(10 * ten + number, host), False, NOW)
        await anna.flush()
        assert isinstance(await anna.go(host="a.org"), PatternStopped)
        await anna.flush()
        assert isinstance(await anna.go(host="b.org"), PatternStopped)

    together(server, scenario)


def test_links_of_what_counts_as_the_others_are_kept(server: RedisServer) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        anna.remember(RECENT, most_patterns=0)
        await anna.read(5 * PAGES_PER_CALL)
        for number in range(PAGES_PER_CALL):
            decided = await anna.go(number)
        assert isinstance(decided, PatternStopped)
        assert not anna.stats.have_stopped([HostKey("a.org")]), "there is no end of its patterns"

    together(server, scenario)


def test_leases_of_one_answer_are_asked_for_together(server: RedisServer) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        leases = [
            Lease(n, day(n, f"h{n % 40}.org"), Pace(), NOW) for n in range(40 * PAGES_PER_CALL)
        ]
        await anna.stats.prefetch(leases)
        assert len(anna.asked) == SHARDS
        assert sum(len(call.args) // 2 for call in anna.asked) == 40

    together(server, scenario)


def test_without_a_reply_urls_are_fetched_and_the_query_is_not_repeated_at_once(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        with RedisServer(tmp_path) as mortal:
            async with redis_workers(mortal.url, Reader, 1) as (anna,):
                mortal.kill()
                for _ in range(PAGES_PER_CALL):
                    assert await anna.go() is FetchAllowed.OPEN
                assert anna.counted[UNANSWERED] == len(anna.asked) == 1
                await anna.go()
                assert len(anna.asked) == 1
                anna.clock += READ_PAUSE_S
                await anna.go()
                assert len(anna.asked) == 2

    asyncio.run(run())


def test_a_full_server_is_sent_nothing_more(server: RedisServer) -> None:
    async def scenario(anna: Reader, _: Reader) -> None:
        anna.is_full = lambda _: True
        await anna.read(PAGES_PER_CALL)
        assert anna.unsent == []
        with server.client() as client:
            assert list(client.scan_iter("*:y:*")) == []

    together(server, scenario)

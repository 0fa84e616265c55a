"""The leases of the previous session of a worker, whichever servers of Redis answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from struct import pack as packed_as
from typing import Any, Final

import pytest

from crawler.archive.recovery import ArchivedAnswers
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import OpenRecord
from crawler.model.types import (
    Candidate,
    Claim,
    HostKey,
)
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import pack_candidate
from crawler.shared.connection import Argument
from crawler.shared.faults import Unreachable
from crawler.shared.shard import ShardOperations
from crawler.shared.worker.membership import return_last_session_leases

SHARDS: Final = 3
NOW: Final = 1e9
AHEAD_S: Final = 5e6  # Redis' clock is far from ours
DOWN: Final = Unreachable("it is down")
CLAIM: Final = Claim(b"d" * 20, "http://a/x", "f.warc.gz:1", NOW)


def url(path: str) -> str:
    return f"http://a/{path}"


def lease(path: str) -> bytes:
    """As lua/shard.lua packs it."""
    body = pack_candidate(Candidate(url(path), 1, HostKey("a"), "a"))
    return packed_as("<dBBH", NOW + AHEAD_S - 7, 0, 1, 1) + b"a" + body


class Servers:
    """Implements last_life.Nodes."""

    name = "t"

    def __init__(self, time: Any, leases: Sequence[Any], clock: Sequence[Any]) -> None:
        self.time = time
        self.clock = clock
        self.leases = dict(enumerate(leases))
        self.claims: list[Call] = []
        self.returned: dict[int, tuple[Argument, ...]] = {}

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.claims += [call for call in calls if call.script == "claim_content"]
        self.returned |= {
            call.shard: call.args[3:] for call in calls if call.script == "return_leases"
        }
        return [[b"run", 0]] * len(calls)

    async def command(self, key: str, *command: Argument) -> Any:
        return self.time

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        replies = []
        for shard, ask in asks:
            if ask == ("HMGET", keys.totals("t", shard), "clock", "offset"):
                replies.append(self.leases[shard] if self.leases[shard] is DOWN else self.clock)
            else:
                assert ask == ("HGETALL", keys.leases("t", shard, "dead"))
                replies.append(self.leases[shard])
        return replies


class ArchiveSearch:
    """An archive that has what is called "x"."""

    def __init__(self) -> None:
        self.leases: list[OpenRecord] = []

    def __call__(self, leases: Iterable[OpenRecord]) -> ArchivedAnswers:
        self.leases += leases
        claims = [CLAIM] if self.leases else []
        return ArchivedAnswers(claims, {url("x")}, is_complete=True)


ON_TIME: Final = [b"%d" % (NOW + AHEAD_S), b"0"]


@pytest.mark.parametrize(
    ("time", "leases", "returned"),
    [
        pytest.param(
            ON_TIME,
            [[b"5", lease("x"), b"7", lease("y")], [], [b"9", lease("y")]],
            {0: (1, 5), 1: (1,), 2: (1,)},
            id="what is archived is named",
        ),
        pytest.param(
            ON_TIME,
            [[b"5", lease("x")], DOWN, []],
            {0: (1, 5), 1: (0,), 2: (1,)},
            id="of a shard that does not answer all may be",
        ),
        pytest.param(
            DOWN, [[b"5", lease("x")], [], []], {0: (0,), 1: (0,), 2: (0,)}, id="or of all"
        ),
        pytest.param(
            ON_TIME,
            [[b"5", b"rubbish", b"6", lease("x")], [b"7", lease("x")[:13] + b"\xff"], []],
            {0: (1, 6), 1: (1,), 2: (1,)},
            id="an unreadable lease was not fetched",
        ),
    ],
)
def test_leases_of_the_last_session_are_checked_and_returned(
    time: Any, leases: Sequence[Any], returned: dict[int, tuple[int, ...]]
) -> None:
    servers, search = Servers(time, leases, [None, None]), ArchiveSearch()
    ops = ShardOperations("next", SHARDS, FrontierLimits(), 60.0)
    assert asyncio.run(return_last_session_leases(servers, ops, "dead", search, lambda: NOW)) == 0
    assert servers.returned == returned
    assert len(servers.claims) == bool(search.leases)
    assert {each.taken_at for each in search.leases} <= {NOW - 7}, "by our own clock"


SET_BACK_S: Final = 86_400.0


@pytest.mark.parametrize(
    "clock",
    [
        pytest.param([b"1", b"%.17g" % SET_BACK_S], id="once, and its shards have noticed"),
        pytest.param([b"%.17g" % (NOW + AHEAD_S), None], id="just now"),
    ],
)
def test_a_servers_clock_that_was_set_back_makes_no_lease_younger(clock: Sequence[Any]) -> None:
    """A shard's own never goes back, and it is what leases are taken by."""
    time = [b"%d" % (NOW + AHEAD_S - SET_BACK_S), b"0"]
    servers, search = Servers(time, [[b"5", lease("x")], [], []], clock), ArchiveSearch()
    ops = ShardOperations("next", SHARDS, FrontierLimits(), 60.0)
    asyncio.run(return_last_session_leases(servers, ops, "dead", search, lambda: NOW))
    assert [each.taken_at for each in search.leases] == [NOW - 7]


def test_our_clock_is_read_with_the_clock_of_redis() -> None:
    """Redis may be waited for: our clock is read when its own is."""
    waited = 0.0

    class Slow(Servers):
        async def command(self, key: str, *command: Argument) -> Any:
            nonlocal waited
            waited = 500.0
            return [b"%d" % (NOW + AHEAD_S + waited), b"0"]

    servers, search = Slow(ON_TIME, [[b"5", lease("x")], [], []], [None, None]), ArchiveSearch()
    ops = ShardOperations("next", SHARDS, FrontierLimits(), 60.0)
    asyncio.run(return_last_session_leases(servers, ops, "dead", search, lambda: NOW + waited))
    assert [each.taken_at for each in search.leases] == [NOW - 7]

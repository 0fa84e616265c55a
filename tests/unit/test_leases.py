"""Epochs of servers as a worker records them, and what it sends again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic, time
from typing import Any

import pytest

from crawler.frontier.port import FrontierLimits
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
)
from crawler.shared.client import Call
from crawler.shared.shard import ShardOperations, lease_id
from crawler.shared.worker.leases import (
    KEEP_CALLS_S,
    MAX_SHARD_SILENCE_S,
    HeldLeases,
    Journal,
    LeaseResync,
    ServerEpochs,
    WorkerContext,
)

LEASE_S, FETCH_S = 20.0, 5.0


def unasked(*what: object) -> None:
    """Fail: these tests expect no such call."""
    raise AssertionError(what)


def ignored(shard: int, alive_at: float) -> None:
    """The run of *shard* is another."""


def lease(number: int = 1, shard: int = 0) -> Lease:
    page = Candidate(url="http://a/", key=1, host=HostKey("a"), domain="a")
    return Lease(lease_id(shard, number), page, Pace(), taken_at=0.0)


def test_a_new_run_is_announced_once_with_the_end_of_the_last() -> None:
    announced: list[tuple[int, float]] = []
    runs = ServerEpochs(lambda shard, alive_at: announced.append((shard, alive_at)), unasked)
    runs.observe(3, b"one", 10.0)
    runs.observe(3, b"one", 12.0)
    runs.observe(3, b"one", 11.0)  # asked before, answered later
    assert announced == []
    runs.observe(3, b"two", 40.0)
    runs.observe(3, b"two", 41.0)
    runs.observe(4, b"two", 41.0)
    assert announced == [(3, 12.0)]


def test_an_acknowledgement_is_durable_only_when_the_server_ran_on() -> None:
    runs = ServerEpochs(ignored, unasked)
    runs.observe(0, b"one", 10.0)
    assert runs.was_alive(0, b"one", 14.0) is None, "it may be dead"
    runs.observe(0, b"one", 14.0)
    assert runs.was_alive(0, b"one", 14.0) is True
    runs.observe(0, b"two", 15.0)
    assert runs.was_alive(0, b"one", 14.0) is False


def test_missing_keys_are_reported_as_such() -> None:
    gone: list[int] = []
    runs = ServerEpochs(unasked, gone.append)
    runs.observe(0, b"one", 10.0)
    runs.observe(0, b"", 11.0)
    assert gone == [0]
    assert runs.asked_at(0) == 10.0, "that is no life of its server"


def call(number: int, shard: int = 0) -> Call:
    return Call(shard, "add", (number,))


def test_the_journal_keeps_what_a_server_may_have_forgotten_while_it_was_away() -> None:
    journal = Journal(ServerEpochs(unasked, unasked))
    for at in range(20):
        journal.record([call(at)], b"one", at - 0.1, float(at))
    assert journal.recent(0, alive_at=19.0) == [
        call(at) for at in range(19 - int(KEEP_CALLS_S), 20)
    ]
    assert journal.recent(0, alive_at=19.0) == [], "it is sent again once, and is kept again then"


def test_the_journal_sends_nothing_old_to_a_server_that_did_not_restart() -> None:
    journal = Journal(ServerEpochs(unasked, unasked))
    journal.record([call(1)], b"one", 10.0, 10.0)
    assert journal.recent(0, alive_at=10.0 + KEEP_CALLS_S + 1) == []


def test_a_slow_reply_counts_from_the_time_of_its_request() -> None:
    journal = Journal(ServerEpochs(unasked, unasked))
    journal.record([call(1)], b"one", 100.0, 100.1)
    journal.record([call(2)], b"one", 101.0, 101.0 + 2 * KEEP_CALLS_S)
    assert journal.recent(0, alive_at=101.0) == [call(1), call(2)]


def test_where_nothing_can_be_forgotten_nothing_is_kept() -> None:
    runs = ServerEpochs(ignored, unasked)
    journal = Journal(runs, is_needed=False)
    journal.record([call(1)], b"one", 10.0, 10.1)
    assert journal.recent(0, alive_at=10.0) == []
    assert runs.asked_at(0) == 10.0


class OneNode:
    """Answers of *run*, and nothing else; `meanwhile` happens before its answers arrive."""

    def __init__(self, run: bytes) -> None:
        self.run_id = run
        self.asked: list[Call] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        self.asked += calls
        self.meanwhile()
        return [[self.run_id] for _ in calls]


class Recovery:
    """The journal and the reckoning of a worker with two shards, each on a server of its own."""

    def __init__(self, run: bytes) -> None:
        self.runs = ServerEpochs(lambda *change: self.reckoning.on_server_restart(*change), unasked)
        self.journal = Journal(self.runs)
        self.node = OneNode(run)
        self.held_leases = HeldLeases(LEASE_S, FETCH_S, self.runs, unasked)
        ops = ShardOperations("w.1", 2, FrontierLimits(), LEASE_S)
        self.reckoning = LeaseResync(
            WorkerContext(
                nodes=self.node,
                ops=ops,
                held_leases=self.held_leases,
                journal=self.journal,
                server_epochs=self.runs,
                send_later=unasked,
                now=time,
            )
        )

    def acknowledged(self, number: int, run: bytes, at: float, shard: int = 0) -> None:
        self.journal.record([call(number, shard)], run, at - 0.01, at)

    def sent_again(self) -> list[Call]:
        asyncio.run(self.reckoning.run())
        return [each for each in self.node.asked if each.script == "add"]


OUTAGES_S = (0.5, *range(1, 61))


@pytest.mark.parametrize("is_cluster", [False, True], ids=["one server", "a cluster"])
@pytest.mark.parametrize("down_s", OUTAGES_S)
def test_after_an_outage_of_any_length_the_last_adds_are_sent_again(
    down_s: float, is_cluster: bool
) -> None:
    """The call that notices the new run has itself just added to it."""
    recovery = Recovery(b"two")
    for at in range(91, 101):
        recovery.acknowledged(at, b"one", float(at))
    if is_cluster:  # the other shard's server goes on all the time
        for at in range(91, 101 + int(down_s)):
            recovery.acknowledged(1000 + at, b"other", float(at), shard=1)
    recovery.acknowledged(200, b"two", 100.0 + down_s)
    assert [each.args[0] for each in recovery.sent_again()] == [94, 95, 96, 97, 98, 99, 100]


def test_resent_calls_are_kept_for_the_next_outage() -> None:
    recovery = Recovery(b"two")
    recovery.acknowledged(1, b"one", 100.0)
    recovery.runs.observe(0, b"two", 110.0)
    assert recovery.sent_again() == [call(1)]
    recovery.node.asked.clear()
    recovery.runs.observe(0, b"three", monotonic() + 1.0)
    assert recovery.sent_again() == [call(1)]


def test_a_new_run_announced_while_the_shard_is_asked_is_settled_too() -> None:
    """Its leases may be known by that answer, but nothing was sent again yet."""
    recovery = Recovery(b"two")
    recovery.acknowledged(1, b"one", 100.0)
    recovery.reckoning.mark_dirty(0)
    recovery.node.meanwhile = lambda: recovery.runs.observe(0, b"two", 110.0)
    assert recovery.sent_again() == []
    recovery.node.meanwhile = lambda: None
    assert recovery.sent_again() == [call(1)]
    assert not recovery.reckoning.is_pending


def test_a_lease_may_begin_only_while_its_server_surely_knows_of_it() -> None:
    runs = ServerEpochs(ignored, unasked)
    held_leases = HeldLeases(LEASE_S, FETCH_S, runs, unasked)
    runs.observe(0, b"one", 100.0)
    held_leases.add(0, [lease()], 100.0)
    assert held_leases.may_begin(lease(), 100.0)
    assert not held_leases.may_begin(lease(), 100.0 + MAX_SHARD_SILENCE_S + 0.1), (
        "it has not answered since"
    )
    runs.observe(0, b"one", 110.0)
    assert held_leases.may_begin(lease(), 110.0)
    held_leases.mark_doubtful(0)
    assert not held_leases.may_begin(lease(), 110.0)
    held_leases.mark_checked(0)
    assert held_leases.may_begin(lease(), 110.0)
    runs.observe(0, b"one", 115.0)
    assert not held_leases.may_begin(lease(), 115.0), "its fetch could outlive it"
    assert not held_leases.may_begin(lease(2), 110.0), "it is not ours"

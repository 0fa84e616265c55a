"""What a worker knows of the runs of servers, and what it tells a new one again."""

from __future__ import annotations

from crawler.core.types import Candidate, HostKey, Lease, Pace
from crawler.storage.redis.calls import Call
from crawler.storage.redis.ops import lease_id
from crawler.storage.redis.worker.holdings import FRESH_S, Holdings
from crawler.storage.redis.worker.journal import KEPT_S, Journal
from crawler.storage.redis.worker.runs import Runs

LEASE_S, FETCH_S = 20.0, 5.0


def lease(number: int = 1, shard: int = 0) -> Lease:
    page = Candidate(url="http://a/", key=1, host=HostKey("a"), domain="a")
    return Lease(lease_id(shard, number), page, Pace(), taken_at=0.0)


def test_a_new_run_is_told_once_with_the_end_of_the_last() -> None:
    runs, told = Runs(), []
    runs.on_change = lambda shard, alive_at: told.append((shard, alive_at))
    runs.heard(3, b"one", 10.0)
    runs.heard(3, b"one", 12.0)
    runs.heard(3, b"one", 11.0)  # asked before, answered later
    assert told == []
    runs.heard(3, b"two", 40.0)
    runs.heard(3, b"two", 41.0)
    runs.heard(4, b"two", 41.0)
    assert told == [(3, 12.0)]


def test_what_one_run_acknowledged_is_sure_only_when_it_lived_on() -> None:
    runs = Runs()
    runs.heard(0, b"one", 10.0)
    assert runs.lives(0, b"one", 14.0) is None, "it may be dead"
    runs.heard(0, b"one", 14.0)
    assert runs.lives(0, b"one", 14.0) is True
    runs.heard(0, b"two", 15.0)
    assert runs.lives(0, b"one", 14.0) is False


def test_keys_that_are_gone_are_told_as_such() -> None:
    runs, gone = Runs(), []
    runs.on_gone = gone.append
    runs.heard(0, b"one", 10.0)
    runs.heard(0, b"", 11.0)
    assert gone == [0]
    assert runs.asked_at(0) == 10.0, "that is no life of its server"


def call(number: int) -> Call:
    return Call(0, "add", (number,))


def test_the_journal_keeps_what_a_server_may_have_forgotten_while_it_was_away() -> None:
    journal = Journal()
    for at in range(20):
        journal.note([call(at)], float(at))
    assert journal.recent(0, alive_at=19.0) == [call(at) for at in range(19 - int(KEPT_S), 20)]
    assert journal.recent(0, alive_at=19.0) == [], "it is told once, and noted again then"


def test_the_journal_tells_nothing_old_to_a_server_that_lived_on() -> None:
    journal = Journal()
    journal.note([call(1)], 10.0)
    assert journal.recent(0, alive_at=10.0 + KEPT_S + 1) == []


def test_a_lease_may_begin_only_while_its_server_surely_knows_of_it() -> None:
    runs = Runs()
    holdings = Holdings(LEASE_S, FETCH_S, runs)
    runs.heard(0, b"one", 100.0)
    holdings.take(0, [lease()], 100.0)
    assert holdings.may_begin(lease(), 100.0)
    assert not holdings.may_begin(lease(), 100.0 + FRESH_S + 0.1), "it was not heard of since"
    runs.heard(0, b"one", 110.0)
    assert holdings.may_begin(lease(), 110.0)
    holdings.doubt(0)
    assert not holdings.may_begin(lease(), 110.0)
    holdings.trust(0)
    assert holdings.may_begin(lease(), 110.0)
    runs.heard(0, b"one", 115.0)
    assert not holdings.may_begin(lease(), 115.0), "its fetch could outlive it"
    assert not holdings.may_begin(lease(2), 110.0), "it is not ours"

"""Dead letters put back by a person, over every store."""

from __future__ import annotations

import msgspec
import pytest

from crawler.config.settings import RobotsSettings
from crawler.data.local_stores import RobotsRecords
from crawler.frontier import dead_letters
from crawler.frontier import records as keys
from crawler.frontier.records import HostPlace, decode_host
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    Candidate,
    Dead,
    Lease,
    Pace,
    Rest,
    RetryAt,
)
from crawler.policy.robots_cache import RobotsCache, RobotsRecord, RobotsState, RobotsUnknown
from tests.harness.frontiers import EmbeddedWorld, candidate, drain, rest

FORBIDDEN = RobotsRecord("http://a", RobotsState.UNREACHABLE, 0.0, 1e9, reason="status 500")


def make_dead_letters(frontier: TwoTierFrontier, found: list[Candidate], now: float) -> float:
    """Every one of *found* becomes a dead letter; when the last has."""
    frontier.add(found, now)
    left = len(found)
    while left:
        for lease in drain(frontier, now):
            frontier.release(lease, rest(1.0), now)
            frontier.finish(lease, Dead("timeout, tried 4 times"), now)
            left -= 1
        now += 1.0
    return now


def put_back(embedded: EmbeddedWorld, now: float) -> None:
    """Put back as an operator does when the frontier is closed, after the crawl."""
    store = embedded.store
    robots = RobotsCache(RobotsRecords(store), "Gossamer", RobotsSettings())
    found = dead_letters.retry_dead(
        store, embedded.reopen(now), robots, lambda _: True, lambda: now
    )
    assert sum(found)


def test_dead_letters_are_listed_oldest_first(embedded: EmbeddedWorld) -> None:
    frontier = embedded.reopen(0.0)
    make_dead_letters(frontier, [candidate(str(number)) for number in range(5)], 0.0)
    letters = [letter for _, letter in dead_letters.dead_letters(embedded.store)]
    assert [letter.candidate.url for letter in letters] == [f"http://a/{n}" for n in range(5)]
    assert [letter.at for letter in letters] == sorted(letter.at for letter in letters)


def test_a_frontier_at_work_puts_them_back_itself(embedded: EmbeddedWorld) -> None:
    frontier = embedded.reopen(0.0)
    now = make_dead_letters(
        frontier, [candidate(str(number), host=host) for host in "ab" for number in "12"], 0
    )
    frontier.add([candidate("3")], now)
    held = drain(frontier, now)  # of one host a URL is under way
    frontier.retry_dead(list(dead_letters.dead_letters(embedded.store)), now)
    embedded.check(frontier)
    counts = frontier.counts()
    assert (counts.waiting + len(held), counts.dead, counts.seen) == (5, 0, 5)
    assert list(dead_letters.dead_letters(embedded.store)) == []
    again: list[str] = []
    for lease in held:
        frontier.release(lease, rest(1.0), now)
    while len(again) < 4:
        now += 1.0
        for lease in drain(frontier, now):
            assert lease.candidate.attempts == 0
            again.append(lease.candidate.url)
            frontier.release(lease, rest(1.0), now)
    assert len(set(again)) == 4


def test_put_back_they_wait_as_if_they_had_never_failed(embedded: EmbeddedWorld) -> None:
    found = [candidate(str(number), host=host) for host in "ab" for number in range(5)]
    now = make_dead_letters(embedded.reopen(0.0), found, 0.0)
    put_back(embedded, now)
    frontier = embedded.reopen(now)
    embedded.check(frontier)
    counts = frontier.counts()
    assert (counts.waiting, counts.dead, counts.seen) == (10, 0, 10)
    leased: list[Lease] = []
    while len(leased) < 10:
        for lease in drain(frontier, now):
            leased.append(lease)
            frontier.release(lease, rest(1.0), now)
        now += 1.0
    assert {lease.candidate.url for lease in leased} == {each.url for each in found}
    embedded.check(frontier)


def test_the_attempts_of_a_retried_url_are_reset(embedded: EmbeddedWorld) -> None:
    frontier = embedded.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    now = 0.0
    for verdict in (RetryAt(10.0), RetryAt(20.0), Dead("timeout")):
        (lease,) = drain(frontier, now)
        frontier.release(lease, rest(1.0), now)
        frontier.finish(lease, verdict, now)
        now += 10.0
    put_back(embedded, now)
    (lease,) = drain(embedded.reopen(now), now)
    assert (lease.candidate.attempts, lease.candidate.not_before) == (0, 0.0)


def test_a_host_at_rest_is_left_at_rest(embedded: EmbeddedWorld) -> None:
    frontier = embedded.reopen(0.0)
    frontier.add([candidate("dead"), candidate("waits")], 0.0)
    (lease,) = drain(frontier, 0.0)
    frontier.release(lease, rest(50.0), 0.0)
    frontier.finish(lease, Dead("timeout"), 0.0)
    put_back(embedded, 1.0)
    record = decode_host(embedded.store.get(keys.in_shard(keys.HOST, keys.ONE_SHARD, "a")) or b"")
    assert (record.place, record.rest_until) == (HostPlace.RESTING, 50.0)
    frontier = embedded.reopen(2.0)
    embedded.check(frontier)
    assert drain(frontier, 49.0) == []
    assert len(drain(frontier, 50.0)) == 1


@pytest.mark.parametrize(
    ("packed", "asked"),
    [
        pytest.param(msgspec.msgpack.encode(FORBIDDEN), True, id="a verdict that forbids all"),
        pytest.param(
            msgspec.msgpack.encode(msgspec.structs.replace(FORBIDDEN, kind=RobotsState.RULES)),
            False,
            id="rules that were read",
        ),
        pytest.param(b"\xc1", True, id="a record that cannot be read counts as none"),
    ],
)
def test_an_unreachable_robots_txt_is_asked_for_again(
    embedded: EmbeddedWorld, packed: bytes, asked: bool
) -> None:
    now = make_dead_letters(embedded.reopen(0.0), [candidate("x")], 0.0)
    embedded.store.write({keys.named(keys.ROBOTS, "http://a"): packed})
    put_back(embedded, now)
    robots = RobotsCache(RobotsRecords(embedded.store), "Gossamer", RobotsSettings())
    assert isinstance(robots.verdict("http://a/x", now), RobotsUnknown) is asked


def test_a_host_that_was_left_is_as_new(embedded: EmbeddedWorld) -> None:
    frontier = embedded.reopen(0.0)
    frontier.add([candidate("dead"), candidate("waits")], 0.0)
    (lease,) = drain(frontier, 0.0)
    left = Pace(gap_s=1.0, unwelcome=8, forbidden=9, has_page=True)
    frontier.release(lease, Rest(50.0, left), 0.0)
    frontier.finish(lease, Dead("its host does not welcome us"), 0.0)
    (lease,) = drain(embedded.reopen(1.0), 50.0)
    assert lease.pace == left, "kept with the host"
    put_back(embedded, 60.0)
    frontier = embedded.reopen(60.0)
    (lease,) = drain(frontier, 200.0)
    assert lease.pace == Pace(gap_s=1.0, has_page=True)

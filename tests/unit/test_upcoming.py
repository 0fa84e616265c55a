"""The hosts that are leased next, as a frontier shows them ahead of their turns."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Done, HostKey, Lease, Pace, PutBack, Rest, Standing
from tests.harness.frontiers import EmbeddedWorld, candidate, rest

ALL = 1_000_000


@pytest.fixture
def frontier(tmp_path: Path) -> TwoTierFrontier:
    return EmbeddedWorld(MemoryStore(), tmp_path, FrontierLimits()).reopen(0.0)


def lease_of(frontier: TwoTierFrontier, host: str, now: float) -> Lease:
    (lease,) = frontier.lease(now)
    assert lease.candidate.host == host
    return lease


def test_hosts_that_wait_for_their_turn_come_in_its_order_and_once(frontier) -> None:
    frontier.add([candidate("1", host=host) for host in "abc"], 0.0)
    assert frontier.upcoming_hosts(0.0, 2) == ["a", "b"]
    assert frontier.upcoming_hosts(0.0, ALL) == ["c"]
    assert frontier.upcoming_hosts(0.0, ALL) == []
    lease_of(frontier, "a", 0.0)
    frontier.add([candidate("1", host="d")], 0.0)
    assert frontier.upcoming_hosts(0.0, ALL) == ["d"], "a is leased, b and c were shown"


def test_hosts_at_rest_come_when_their_rest_is_nearly_over_the_first_one_first(frontier) -> None:
    frontier.add([candidate(name, host=host) for host in "abcdef" for name in "12"], 0.0)
    frontier.upcoming_hosts(0.0, ALL)
    for host, rest_s in zip("abcdef", (5.0, 3.0, 9.0, 1.0, 4.0, 7.0), strict=True):
        frontier.release(lease_of(frontier, host, 0.0), rest(rest_s), 0.0)
    for until, expected in ((0.5, ""), (3.0, "db"), (5.0, "dbea"), (9.0, "dbeafc")):
        assert frontier.upcoming_hosts(until, ALL) == list(expected)
    assert frontier.upcoming_hosts(9.0, 3) == list("dbe")
    frontier.lease(3.5, 0)
    lease_of(frontier, "d", 3.5)
    assert frontier.upcoming_hosts(4.0, ALL) == ["b", "e"], "what is due already, then the rest"


def test_the_next_url_of_a_host_is_known_wherever_it_is(frontier) -> None:
    frontier.add([candidate(name, host=host) for host in "ab" for name in "123"], 0.0)
    assert frontier.next_url(HostKey("b")) == "http://b/1"
    lease = lease_of(frontier, "a", 0.0)
    assert frontier.next_url(HostKey("a")) == "http://a/2"
    frontier.release(lease, rest(1.0), 0.0)
    frontier.finish(lease, PutBack(), 0.0)
    assert frontier.next_url(HostKey("a")) == "http://a/1"
    assert frontier.next_url(HostKey("unknown")) is None


@pytest.mark.parametrize("seed", range(4))
def test_each_host_is_shown_before_it_is_leased(tmp_path: Path, seed: int) -> None:
    dice, now = Random(seed), 0.0
    world = EmbeddedWorld(MemoryStore(), tmp_path)
    frontier = world.reopen(now)
    shown: set[HostKey] = set()
    leases: list[Lease] = []
    for number in range(120):
        found = [
            candidate(f"{number}/{at}", host=dice.choice("abcdefghij"), level=dice.randrange(3))
            for at in range(dice.randrange(4))
        ]
        frontier.add(found, now)
        shown |= set(frontier.upcoming_hosts(now, ALL))
        if number == 60:
            frontier, leases = world.reopen(now), []
        for lease in frontier.lease(now, dice.randrange(4)):
            assert lease.candidate.host in shown
            leases.append(lease)
        while leases and dice.random() < 0.7:
            lease = leases.pop()
            pace = Pace(gap_s=1.0, standing=dice.choice(list(Standing)))
            frontier.release(lease, Rest(dice.choice((0.0, 1.0, 3.0, 9.0)), pace), now)
            frontier.finish(lease, dice.choice((Done(), PutBack())), now)
        now += dice.random()
    world.check(frontier)
    assert len(shown) == 10


@pytest.mark.parametrize("seed", range(5))
def test_what_comes_next_is_what_is_leased_next(frontier, seed: int) -> None:
    dice = Random(seed)
    found = [candidate(f"{n}", host=f"h{n % 50}") for n in range(100)]
    frontier.add(found, 0.0)
    for lease in frontier.lease(0.0, 50):
        frontier.release(lease, rest(dice.uniform(0.0, 10.0)), 0.0)
        frontier.finish(lease, Done(), 0.0)
    frontier.upcoming_hosts(0.0, ALL)
    for now in range(1, 11):
        upcoming = frontier.upcoming_hosts(now, ALL)
        urls = {host: frontier.next_url(host) for host in upcoming}
        leases = frontier.lease(now, 50)
        assert urls == {lease.candidate.host: lease.candidate.url for lease in leases}
        for lease in leases:
            frontier.finish(lease, Done(), now)
    assert not frontier.counts().left

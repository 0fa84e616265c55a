"""Turns of hosts that are borrowed, over every implementation."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

import pytest

from crawler.frontier.open import open_frontier
from crawler.model.types import (
    BorrowedTurn,
    Done,
    HostFetch,
    HostKey,
    NotItsTurn,
    NoTurn,
    Pace,
    Rest,
    Standing,
)
from crawler.policy.rounds import RoundCaps
from tests.harness.frontiers import TIGHT, Addresses, at_once, candidate, drain, rest

ONE, OTHER = "192.0.2.1", "192.0.2.2"
LEFT = Pace(unwelcome=8)


def borrow(frontier, host="a", now=0.0, until=None):
    turn = at_once(frontier.borrow(HostKey(host), now, now + 5.0 if until is None else until))
    assert isinstance(turn, BorrowedTurn), turn
    return turn


def refused(frontier, host="a", now=0.0):
    answer = at_once(frontier.borrow(HostKey(host), now, now + 5.0))
    assert isinstance(answer, NotItsTurn), answer
    return answer.why


@pytest.mark.parametrize("urls", [0, 1, 3])
def test_a_borrowed_host_is_not_leased_and_then_rests(world, urls):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n)) for n in range(urls)], 0.0)
    turn = borrow(frontier)
    assert refused(frontier) is NoTurn.BORROWED
    assert drain(frontier, 4.0) == []
    assert frontier.give_back(turn, rest(3.0), 4.0)
    assert refused(frontier, now=6.9) is NoTurn.RESTS
    assert drain(frontier, 6.9) == []
    assert len(drain(frontier, 7.0)) == min(urls, 1)
    world.check(frontier)


def test_a_host_with_a_turn_in_memory_is_lent_and_goes_on_with_it(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n)) for n in range(4)], 0.0)
    (lease,) = drain(frontier, 0.0)
    assert refused(frontier) is NoTurn.LEASED
    frontier.release(lease, rest(1.0), 0.0)
    assert refused(frontier, now=0.5) is NoTurn.RESTS
    frontier.finish(lease, Done(), 0.5)
    turn = borrow(frontier, now=1.0)
    frontier.give_back(turn, rest(2.0), 1.5)
    world.check(frontier)
    (lease,) = drain(frontier, 3.5)
    assert lease.candidate.url == "http://a/1"


@pytest.mark.parametrize("urls", [0, 2])
def test_a_crash_leaves_a_rest_as_after_a_fetch_that_it_cut_off(world, urls):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n)) for n in range(urls)], 0.0)
    turn = borrow(frontier, until=8.0)
    assert turn.rests_until == 8.0 + max(8.0 * TIGHT.gap_factor, TIGHT.min_gap_s)
    frontier = world.reopen(1.0)
    assert refused(frontier, now=11.9) is NoTurn.RESTS
    assert drain(frontier, 11.9) == []
    assert not frontier.give_back(turn, rest(0.0), 11.9), "a process that has died gives it back"
    assert drain(frontier, 11.9) == []
    assert len(drain(frontier, 12.0)) == min(urls, 1)
    borrow(frontier, "b", 12.0)


def test_a_crash_leaves_a_rest_for_each_request_that_may_have_been_sent(world):
    world.limits = replace(TIGHT, most_requests=4)
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    assert len(drain(frontier, 0.0)) == 1
    assert borrow(frontier, "b", until=1.0).rests_until == 1.0 + 4 * TIGHT.min_gap_s
    frontier = world.reopen(1.0)
    # Of a lease two at most: the rest that follows more is noted with it.
    assert drain(frontier, 1.0 + 2 * TIGHT.min_gap_s - 0.1) == []


def test_a_rest_of_a_host_without_urls_is_remembered(world):
    frontier = world.reopen(0.0)
    frontier.give_back(borrow(frontier), rest(9.0), 1.0)
    frontier = world.reopen(2.0)
    frontier.add([candidate("x")], 2.0)
    assert drain(frontier, 9.9) == []
    (lease,) = drain(frontier, 10.0)
    assert lease.pace.gap_s == 9.0


def test_a_turn_that_is_given_back_late_shortens_no_rest(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n)) for n in range(3)], 0.0)
    late = borrow(frontier)
    at = late.rests_until
    (lease,) = drain(frontier, at)
    assert not frontier.give_back(late, rest(9.0), at), "its host is leased meanwhile"
    frontier.release(lease, rest(1.0), at)
    frontier.finish(lease, Done(), at)
    assert drain(frontier, at + 8.9) == []
    (lease,) = drain(frontier, at + 9.0)
    frontier.release(lease, rest(6.0), at + 9.0)
    frontier.finish(lease, Done(), at + 9.0)
    assert not frontier.give_back(late, rest(0.0), at + 9.0)
    assert drain(frontier, at + 14.9) == []
    assert len(drain(frontier, at + 15.0)) == 1


def test_what_a_head_asks_for_is_kept_by_whoever_ends_the_turn(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x"), candidate("x", host="b")], 0.0)
    for host in "ab":
        turn = borrow(frontier, host)
        frontier.note_trouble(turn, Rest(60.0, Pace(failures=1), asked_s=60.0), 1.0)
        assert host == "b" or frontier.give_back(turn, rest(2.0), 2.0)
    frontier = world.reopen(3.0)
    assert drain(frontier, 60.9) == []
    assert len(drain(frontier, 61.0)) == 2


def test_a_host_that_is_left_lends_no_turn(world):
    frontier = world.reopen(0.0)
    frontier.give_back(borrow(frontier), Rest(0.0, LEFT), 0.0)
    assert refused(frontier, now=1.0) is NoTurn.LEFT


def test_a_pause_that_ends_does_not_end_a_borrowed_turn(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    turn = borrow(frontier)
    frontier.end_rests({HostKey("a"): turn.rests_until}, 1.0)
    assert drain(frontier, 1.0) == []


def test_what_was_fetched_counts_for_the_host(world):
    frontier = world.reopen(0.0)
    turn = borrow(frontier)
    given = Rest(1.0, Pace(standing=Standing.ANSWERS), fetches=(HostFetch(bytes=7), HostFetch()))
    frontier.give_back(turn, given, 1.0)
    record = frontier.record_of(HostKey("a"))
    assert (record.tally.fetches, record.tally.pages, record.tally.bytes) == (2, 0, 7)
    assert record.pace.standing is Standing.ANSWERS


def test_a_host_that_waits_for_its_turn_is_filed_by_its_new_standing(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abcd"], 0.0)
    frontier.lease(0.0, 1)
    for host in "abcd":
        turn = at_once(frontier.borrow(HostKey(host), 0.0, 5.0))
        if isinstance(turn, BorrowedTurn):
            frontier.give_back(turn, Rest(0.0, Pace(standing=Standing.ANSWERS)), 0.0)
    world.check(frontier)
    leases = frontier.lease(0.0, 4, (Standing.ANSWERS,))
    assert len(leases) == 3


@pytest.fixture
def together(world):
    """A world of hosts a and b on one address, c on another, and n that has none."""
    world.addresses = Addresses({"a": [ONE], "b": [ONE], "c": [OTHER], "n": []})
    return world


def test_a_borrowed_address_is_not_free_until_its_rest_is_over(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "bc"], 0.0)
    turn = borrow(frontier, "a")
    assert turn.address == ONE
    assert [each.candidate.host for each in drain(frontier, 0.0)] == ["c"]
    assert refused(frontier, "c") is NoTurn.LEASED
    assert refused(frontier, "b") is NoTurn.ADDRESS
    assert refused(frontier, "unknown") is NoTurn.ADDRESS
    assert borrow(frontier, "n").address == ""
    assert frontier.use_of(ONE).is_fetched_from
    frontier.give_back(turn, Rest(9.0, Pace(), address_s=2.0), 1.0)
    assert drain(frontier, 2.9) == []
    assert [each.candidate.host for each in drain(frontier, 3.0)] == ["b"]
    assert refused(frontier, "a", now=10.0) is NoTurn.ADDRESS


def test_an_address_is_free_again_after_a_turn_that_was_never_given_back(together):
    frontier = together.reopen(0.0)
    turn = borrow(frontier, "a")
    frontier.add([candidate("x", host="b")], 0.0)
    assert drain(frontier, 1.0) == []
    assert frontier.wake_at() <= turn.rests_until
    assert len(drain(frontier, turn.rests_until)) == 1


def test_an_address_that_another_process_may_have_is_asked_for(embedded):
    usable = set()
    leases = Mock(may_use=lambda address: address in usable)
    frontier = open_frontier(
        *(embedded.folder, TIGHT, 0.0),
        store=embedded.store,
        addresses=Addresses({"a": [ONE]}),
        address_leases=leases,
    )
    assert not frontier.use_of(ONE).is_any
    assert refused(frontier) is NoTurn.ADDRESS
    assert frontier.use_of(ONE).is_waited_for
    usable.add(ONE)
    frontier.note_usable(ONE, 1.0)
    turn = borrow(frontier, now=1.0)
    assert frontier.use_of(ONE).is_fetched_from
    frontier.give_back(turn, rest(1.0), 8.0)
    assert not frontier.use_of(ONE).is_any


def test_an_address_rests_after_a_crash(together):
    frontier = together.reopen(0.0)
    turn = borrow(frontier, "a")
    frontier = together.reopen(1.0)
    frontier.add([candidate("x", host="b")], 1.0)
    assert drain(frontier, turn.rests_until - 0.1) == []
    assert len(drain(frontier, turn.rests_until)) == 1


def test_a_borrowed_turn_is_none_of_a_round(embedded):
    embedded.limits = replace(TIGHT, rounds=RoundCaps(per_host=1))
    frontier = embedded.reopen(0.0)
    frontier.add([candidate(str(n)) for n in range(3)], 0.0)
    frontier.give_back(borrow(frontier), rest(1.0), 0.0)
    (lease,) = drain(frontier, 1.0)
    frontier.release(lease, rest(1.0), 1.0)
    frontier.finish(lease, Done(), 1.0)
    assert drain(frontier, 2.0) == [], "the round has its one URL of it"
    frontier.give_back(borrow(frontier, now=2.0), rest(1.0), 3.0)
    embedded.check(frontier)


def test_a_url_frontier_lends_no_turns(remote):
    frontier = remote.reopen(0.0)
    assert refused(frontier) is NoTurn.NOT_LENT
    turn = BorrowedTurn(1, HostKey("a"), Pace(), 0.0, 1.0, 2.0)
    frontier.note_trouble(turn, rest(9.0), 0.0)
    assert not frontier.give_back(turn, rest(0.0), 0.0)

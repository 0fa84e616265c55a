"""Hosts of one address take turns, over every implementation."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from crawler.frontier.groups import choose_address
from crawler.model.types import Dead, Done, Pace, Rest, Standing
from tests.harness.frontiers import TIGHT, Addresses, candidate, drain

ONE, OTHER = "192.0.2.1", "192.0.2.2"


def hosts(leases):
    return sorted(each.candidate.host for each in leases)


def end(frontier, lease, now, seconds=2.0, **of_address):
    frontier.release(lease, Rest(seconds, Pace(gap_s=seconds), **of_address), now)
    frontier.finish(lease, Done(), now)


@pytest.fixture
def together(world):
    """A world of hosts a, b and c, which are on one address, and d on another."""
    world.addresses = Addresses({"a": [ONE], "b": [ONE], "c": [ONE], "d": [OTHER]})
    return world


def test_of_the_hosts_of_one_address_one_is_leased_at_a_time_and_the_address_rests(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abcd"], 0.0)
    leases = drain(frontier, 0.0)
    assert hosts(leases) == ["a", "d"]
    assert [each.address for each in leases] == [ONE, OTHER]
    end(frontier, leases[0], 1.0)
    assert drain(frontier, 2.9) == []
    (second,) = drain(frontier, 3.0)
    assert second.candidate.host == "b", "in the order in which they came"
    together.check(frontier)
    end(frontier, second, 4.0)
    assert drain(frontier, 5.9) == []
    assert hosts(drain(frontier, 6.0)) == ["c"]


def test_a_host_without_hosts_beside_it_is_leased_as_ever(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host="d"), candidate("y", host="d")], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0)
    assert drain(frontier, 2.9) == []
    assert hosts(drain(frontier, 3.0)) == ["d"]


def test_a_host_without_an_address_waits_for_none(together):
    together.addresses.of |= {"a": [], "b": []}
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "ab"], 0.0)
    leases = drain(frontier, 0.0)
    assert [(each.candidate.host, each.address) for each in leases] == [("a", ""), ("b", "")]


def test_a_host_whose_name_is_looked_up_is_leased_when_that_is_over(together):
    del together.addresses.of["a"]
    frontier = together.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    assert drain(frontier, 0.0) == []
    assert together.addresses.asked == {"a"}
    together.check(frontier)
    together.addresses.of["a"] = [ONE]
    frontier.note_known("a", 0.1)
    (lease,) = drain(frontier, 0.1)
    assert lease.address == ONE


def test_the_rest_of_an_address_survives_a_restart(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "ab"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0, 50.0)
    frontier = together.reopen(2.0)
    assert drain(frontier, 50.9) == []
    assert hosts(drain(frontier, 51.0)) == ["b"]


def test_hosts_that_waited_for_their_address_wait_anew_after_a_restart(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abc"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0)
    frontier = together.reopen(5000.0)
    together.check(frontier)
    (lease,) = drain(frontier, 5000.0)
    assert lease.candidate.host in "bc", "not both at once, though their places have passed"


def test_a_lease_that_a_dead_process_left_open_lets_its_address_rest(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "ab"], 0.0)
    drain(frontier, 0.0)
    frontier = together.reopen(8.0)
    assert drain(frontier, 11.9) == [], "8 s, and a gap of half of it"
    assert len(drain(frontier, 12.0)) == 1


def test_what_one_site_asks_for_is_not_asked_of_the_others(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate(name, host=host) for host in "ab" for name in "xy"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0, 50.0, address_s=2.0)
    (lease,) = drain(frontier, 3.0)
    assert lease.candidate.host == "b"
    end(frontier, lease, 4.0)
    assert hosts(drain(frontier, 50.9)) == ["b"]


def test_a_lease_under_which_nothing_was_sent_lets_its_address_free_at_once(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "ab"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0, 50.0, address_s=0.0)
    assert hosts(drain(frontier, 1.0)) == ["b"]


def test_a_host_waits_no_longer_than_the_bound(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abc"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0, 1e5)
    assert drain(frontier, 299.0) == [], "half of 600 s at least"
    leases = drain(frontier, 600.0)
    assert hosts(leases) == ["b", "c"]
    together.check(frontier)


def test_a_host_that_moves_to_another_address_waits_there(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate(name, host=host) for host in "ad" for name in "xy"], 0.0)
    leases = drain(frontier, 0.0)
    together.addresses.of["a"] = [OTHER]
    end(frontier, leases[0], 1.0)
    assert drain(frontier, 10.0) == [], "its new address is in use"
    end(frontier, leases[1], 10.0)
    (lease,) = drain(frontier, 12.0)
    assert (lease.candidate.host, lease.address) == ("a", OTHER)


def test_a_host_keeps_its_address_until_it_has_no_answer_from_there(together):
    together.addresses.of["d"] = [OTHER, ONE]
    frontier = together.reopen(0.0)
    frontier.add([candidate(name, host="d") for name in "xyz"], 0.0)
    (lease,) = drain(frontier, 0.0)
    assert lease.address == ONE, "the least: so hosts with the same addresses are one group"
    end(frontier, lease, 0.0)
    (lease,) = drain(frontier, 2.0)
    assert lease.address == ONE
    frontier.release(lease, Rest(2.0, Pace(gap_s=2.0, standing=Standing.FAILS)), 2.0)
    frontier.finish(lease, Done(), 2.0)
    (lease,) = drain(frontier, 4.0)
    assert lease.address == OTHER


def test_a_host_whose_urls_are_dropped_does_not_hold_up_those_behind_it(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abc"], 0.0)
    (lease,) = drain(frontier, 0.0)
    for _ in frontier.sweep(["b"], lambda host: True, lambda each: Dead("dropped"), lambda: 0.5):
        pass
    end(frontier, lease, 1.0)
    assert hosts(drain(frontier, 3.0)) == ["c"]


def test_a_host_whose_urls_are_dropped_when_it_was_called_does_not_either(together):
    frontier = together.reopen(0.0)
    frontier.add([candidate("x", host=host) for host in "abc"], 0.0)
    (lease,) = drain(frontier, 0.0)
    end(frontier, lease, 1.0)
    for _ in frontier.sweep(["b"], lambda host: True, lambda each: Dead("dropped"), lambda: 1.5):
        pass
    assert hosts(drain(frontier, 3.0)) == ["c"]


def test_hosts_wait_alike_and_are_put_back_hardly_more_than_once(embedded):
    """300 hosts of an address: none waits for more than twice the mean, and none is early."""
    names = [f"h{number}" for number in range(300)]
    embedded.addresses = Addresses({name: [ONE] for name in names})
    embedded.limits = replace(TIGHT, address_wait_s=1e6)
    frontier, random, now = embedded.reopen(0.0), Random(1), 0.0
    frontier.add([candidate(f"{n}", host=name) for name in names for n in range(4)], 0.0)
    waits, free_at, fetches = [], 0.0, 0
    due = dict.fromkeys(names, 0.0)
    while (wake_at := frontier.wake_at()) is not None:
        now = max(now, wake_at + 1e-5)  # a key of a time is rounded
        for lease in frontier.lease(now, 4):
            assert now >= free_at, "one at a time, and the address rests"
            host = lease.candidate.host
            waits.append(now - due[host])
            now += random.lognormvariate(-3, 1)
            seconds = random.uniform(0.5, 3.0)
            free_at = due[host] = now + seconds
            end(frontier, lease, now, seconds)
            fetches += 1
    assert fetches == 4 * len(names)
    assert frontier.groups.put_backs <= 1.2 * fetches
    later = waits[len(names) :]
    assert max(later) < 2 * sum(later) / len(later)


def test_a_host_whose_preferred_family_is_dead_is_reached_by_the_other() -> None:
    found, address = ("2001:db8::1", "192.0.2.1"), ""
    tried = []
    for failed in (False, True, True):
        address = choose_address(found, address, has_failed=failed)
        tried.append(address)
    assert "192.0.2.1" in tried

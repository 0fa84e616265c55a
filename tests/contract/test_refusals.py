"""Waiting URLs are checked by the rules of this start when they are to be leased, over every
frontier."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Done, OverBudgetLinks, Purpose
from crawler.policy.operator_rules import RuleBudgets, read_rules
from tests.harness.frontiers import ADMIT_ALL, Refusing, candidate, drain, rest


def fetched(frontier, now=0.0):
    """The URLs of all that can be fetched, one after the other, without rests."""
    urls = []
    while leases := drain(frontier, now):
        for lease in leases:
            urls.append(lease.candidate.url)
            frontier.release(lease, rest(0.0), now)
            frontier.finish(lease, Done(), now)
    return urls


def no_odd():
    return Refusing(lambda url: int(url.rpartition("/")[2]) % 2 == 1)


def test_waiting_urls_are_checked_with_the_rules_of_this_start(world):
    frontier = world.reopen(0.0, ADMIT_ALL)
    frontier.add([candidate(str(n), host=host) for n in range(9) for host in "ab"], 0.0)
    rules = no_odd()
    frontier = world.reopen(1.0, rules)
    even = {f"http://{host}/{n}" for n in range(0, 9, 2) for host in "ab"}
    odd = {f"http://{host}/{n}" for n in range(1, 9, 2) for host in "ab"}
    assert sorted(fetched(frontier, 1.0)) == sorted(even)
    assert sorted(rules.refused) == sorted((url, "denied") for url in odd)
    counts = frontier.counts()
    assert (counts.waiting, counts.done, counts.refused) == (0, 10, 8)
    assert frontier.is_over()
    world.check(frontier)


def test_a_refused_url_waits_again_at_a_start_that_admits_it(world):
    frontier = world.reopen(0.0, no_odd())
    frontier.add([candidate(str(n), level=n % 3) for n in range(9)], 0.0)
    assert len(fetched(frontier)) == 5
    assert frontier.add([candidate("1")], 0.0).seen == 1, "it is known all the while"
    assert fetched(world.reopen(1.0, no_odd()), 1.0) == []
    frontier = world.reopen(2.0, ADMIT_ALL)
    assert not frontier.is_over()
    assert sorted(fetched(frontier, 2.0)) == [f"http://a/{n}" for n in (1, 3, 5, 7)]
    assert (frontier.counts().refused, frontier.counts().done) == (0, 9)
    assert frontier.is_over()
    world.check(frontier)


def test_a_refused_url_costs_its_host_no_rest(world):
    frontier = world.reopen(0.0, no_odd())
    frontier.add([candidate(str(n)) for n in (1, 3, 5, 7, 9, 2)], 0.0)
    (lease,) = drain(frontier, 0.0)
    assert lease.candidate.url == "http://a/2"


def test_a_host_at_rest_stays_at_rest_whatever_is_refused(world):
    frontier = world.reopen(0.0, no_odd())
    frontier.add([candidate("2"), candidate("4")], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(50), 1.0)
    frontier.finish(lease, Done(), 1.0)
    frontier.add([candidate(str(n), level=0) for n in (1, 3, 5)], 1.0)
    assert drain(frontier, 50.9) == []
    assert [one.candidate.url for one in drain(frontier, 51.0)] == ["http://a/4"]


def test_a_url_with_a_date_is_checked_when_it_is_due(world):
    frontier = world.reopen(0.0, no_odd())
    frontier.add([candidate("1", not_before=5.0), candidate("2", not_before=5.0)], 0.0)
    assert fetched(frontier, 5.0) == ["http://a/2"]
    assert frontier.counts().refused == 1


@pytest.mark.parametrize("unit", ["host", "domain"])
def test_a_budget_that_shrank_keeps_the_best(world, unit):
    world.limits = replace(world.limits, **{f"max_urls_per_{unit}": 20})
    frontier = world.reopen(0.0, ADMIT_ALL)
    frontier.add([candidate(str(n), level=n // 4) for n in range(12)], 0.0)
    (lease,) = frontier.lease(0.0)
    frontier.release(lease, rest(0.0), 0.0)
    frontier.finish(lease, Done(), 0.0)
    world.limits = replace(world.limits, **{f"max_urls_per_{unit}": 5})
    rules = Refusing(lambda url: False)
    frontier = world.reopen(1.0, rules)
    assert fetched(frontier, 1.0) == [f"http://a/{n}" for n in (1, 2, 3, 4)], "five, with the first"
    assert {rule for _, rule in rules.refused} == {f"{unit}_budget"}
    assert (frontier.counts().refused, frontier.counts().waiting) == (7, 0)
    assert frontier.add([candidate("new")], 1.0).over_budget == 1
    world.limits = replace(world.limits, **{f"max_urls_per_{unit}": 8})
    assert len(fetched(world.reopen(2.0, ADMIT_ALL), 2.0)) == 3
    world.check(world.reopen(3.0, ADMIT_ALL))


def test_a_budget_that_shrank_leaves_no_chunk_without_waiting_urls(world):
    world.limits = replace(world.limits, max_urls_per_host=20, chunk_urls=9)
    frontier = world.reopen(0.0, ADMIT_ALL)
    frontier.add([candidate(str(n)) for n in range(9)], 0.0)
    for _ in range(4):
        (lease,) = frontier.lease(0.0)
        frontier.release(lease, rest(0.0), 0.0)
        frontier.finish(lease, Done(), 0.0)
    world.limits = replace(world.limits, max_urls_per_host=2)
    frontier = world.reopen(1.0, Refusing(lambda url: False))
    assert fetched(frontier, 1.0) == []
    assert frontier.counts().refused == 5
    world.check(frontier)


def test_a_budget_that_shrank_takes_no_url_that_a_spiders_code_names(world):
    world.limits = replace(world.limits, max_urls_per_host=20)
    frontier = world.reopen(0.0, ADMIT_ALL)
    named = [candidate(f"9{n}", request=b"packed") for n in range(3)]
    frontier.add([*(candidate(str(n)) for n in range(6)), *named], 0.0)
    world.limits = replace(world.limits, max_urls_per_host=2)
    rules = Refusing(lambda url: False)
    expected = [f"http://a/{n}" for n in (0, 1, 90, 91, 92)]
    assert fetched(world.reopen(1.0, rules), 1.0) == expected
    assert [url for url, _ in rules.refused] == [f"http://a/{n}" for n in (5, 4, 3, 2)]
    world.check(world.reopen(2.0, ADMIT_ALL))


def test_a_named_url_that_was_refused_comes_back_within_no_budget(world):
    world.limits = replace(world.limits, max_urls_per_host=1)
    frontier = world.reopen(0.0, Refusing(lambda url: "named" in url))
    frontier.add([candidate("x"), *(candidate(f"named{n}", request=b"p") for n in range(3))], 0.0)
    assert fetched(frontier) == ["http://a/x"]
    frontier = world.reopen(1.0, ADMIT_ALL)
    assert len(fetched(frontier, 1.0)) == 3
    assert frontier.add([candidate("y")], 1.0).over_budget == 1, "x is counted still"
    world.check(frontier)


@pytest.mark.parametrize(("unit", "target"), [("host", "a"), ("domain", "*.a")])
def test_a_budget_by_a_rule_goes_before_the_one_of_the_settings(world, unit, target):
    by_rules = RuleBudgets()
    world.limits = replace(world.limits, **{f"max_urls_per_{unit}": 20, "rule_budgets": by_rules})

    def set_budget(urls: int) -> None:
        by_rules.set_rules(read_rules(f'[[rule]]\nfor = "{target}"\nmax_urls = {urls}\n', 3))

    frontier = world.reopen(0.0, ADMIT_ALL)
    others = [candidate(str(n), host="b") for n in range(12)]
    frontier.add([candidate(str(n), level=n // 4) for n in range(12)] + others, 0.0)
    set_budget(5)
    frontier = world.reopen(1.0, ADMIT_ALL)
    found = fetched(frontier, 1.0)
    assert len([url for url in found if "//a/" in url]) == 5
    assert len([url for url in found if "//b/" in url]) == 12, "the rule is about another"
    assert frontier.counts().refused == 7
    added = frontier.add([candidate("new"), candidate("new", host="b")], 1.0)
    assert (added.new, added.kept_out) == (1, (OverBudgetLinks(unit, "a", 1, 5),))
    set_budget(8)
    assert len(fetched(world.reopen(2.0, ADMIT_ALL), 2.0)) == 1 + 3
    world.check(world.reopen(3.0, ADMIT_ALL))


def test_a_budget_that_is_used_up_lets_nothing_more_through(world):
    world.limits = replace(world.limits, max_urls_per_host=9)
    frontier = world.reopen(0.0, ADMIT_ALL)
    frontier.add([candidate("0"), candidate("1")], 0.0)
    assert len(fetched(frontier)) == 2
    frontier.add([candidate(str(n)) for n in range(2, 6)], 0.0)
    world.limits = replace(world.limits, max_urls_per_host=2)
    frontier = world.reopen(1.0, ADMIT_ALL)
    assert fetched(frontier, 1.0) == []
    assert frontier.counts().refused == 4
    assert frontier.is_over()


def test_a_robots_txt_is_no_url_of_a_budget_that_shrank(world):
    frontier = world.reopen(0.0, ADMIT_ALL)
    hop = candidate(
        "robots.txt", purpose=Purpose.ROBOTS, authority="http://b", needs_seen_test=False
    )
    frontier.add([*(candidate(str(n)) for n in range(4)), hop], 0.0)
    world.limits = replace(world.limits, max_urls_per_host=1)
    frontier = world.reopen(1.0, ADMIT_ALL)
    assert fetched(frontier, 1.0) == ["http://a/robots.txt", "http://a/0"]


class Counting(RocksStore):
    """Counts what is read."""

    read = 0

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found = super().scan(start, stop, limit)
        self.read += len(found)
        return found


def test_refused_urls_pass_a_thousand_a_call_and_are_read_once(tmp_path):
    store, rules = Counting(tmp_path / "frontier"), FrontierLimits()
    frontier = open_frontier(tmp_path, rules, 0.0, store=store)
    frontier.add([candidate(str(n)) for n in range(20_000)], 0.0)
    frontier.add([candidate("good", host="b")], 0.0)
    denied = Refusing(lambda url: "//a/" in url)
    frontier = open_frontier(tmp_path, rules, 1.0, lease_rules=denied, store=store)
    store.read = 0
    assert frontier.lease(1.0) == [] and frontier.wake_at() == 0.0
    (lease,) = frontier.lease(1.0)
    assert lease.candidate.host == "b", "no other host waits for all of them"
    calls = 2
    while frontier.counts().waiting:
        assert frontier.wake_at() == 0.0
        assert frontier.lease(1.0) == []
        calls += 1
    assert len(denied.refused) == frontier.counts().refused == 20_000
    assert calls <= 22
    assert store.read < 21_000
    store.close()

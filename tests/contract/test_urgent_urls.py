"""A URL that is added before all others is next on its host, whether it was seen or not, without a
budget, and as politely as any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crawler.model.types import Done, PutBack
from tests.harness.frontiers import TIGHT, candidate, rest


def path(frontier, now):
    """Return the path of the next URL, which is fetched and done; "" if there is none."""
    for lease in frontier.lease(now):
        frontier.release(lease, rest(0), now)
        frontier.finish(lease, Done(), now)
        return lease.candidate.url.partition("//")[2]
    return ""


def paths(frontier, count):
    return [path(frontier, 100.0 * n) for n in range(1, count + 1)]


@pytest.mark.parametrize("level", [0, 1])
def test_urgent_urls_are_next_on_their_host_in_their_order(world, level):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n), level=level) for n in range(4)], 0.0)
    frontier.add_first([candidate("u", level=2), candidate("v")], 0.0)
    world.check(frontier)
    assert paths(frontier, 7) == ["a/u", "a/v", "a/0", "a/1", "a/2", "a/3", ""]
    world.check(frontier)


@pytest.mark.parametrize("level", [0, 1])
def test_an_urgent_url_is_next_while_its_host_has_a_turn(world, level):
    frontier = world.reopen(0.0)
    frontier.add([candidate(str(n), level=level) for n in range(4)], 0.0)
    assert path(frontier, 10.0) == "a/0"
    frontier.add_first([candidate("u")], 11.0)
    assert paths(frontier, 4) == ["a/u", "a/1", "a/2", "a/3"]


def test_an_urgent_url_is_fetched_though_seen_and_counts_as_seen(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("1")], 0.0)
    assert paths(frontier, 2) == ["a/1", ""]
    frontier.add_first([candidate("1"), candidate("new")], 300.0)
    assert frontier.add([candidate("1"), candidate("new")], 300.0).new == 0
    assert [path(frontier, 400.0 + 100 * n) for n in range(3)] == ["a/1", "a/new", ""]
    assert frontier.counts().done == 3


def test_budgets_do_not_refuse_urgent_urls(world):
    world.limits = replace(TIGHT, max_urls_per_host=1, max_urls_per_domain=1)
    frontier = world.reopen(0.0)
    assert frontier.add([candidate("1"), candidate("2")], 0.0).over_budget == 1
    frontier.add_first([candidate("3"), candidate("4")], 0.0)
    assert paths(frontier, 4) == ["a/3", "a/4", "a/1", ""]


def test_politeness_holds_for_urgent_urls(world):
    frontier = world.reopen(0.0)
    frontier.add([candidate("1"), candidate("2")], 0.0)
    (first,) = frontier.lease(0.0)
    frontier.add_first([candidate("u")], 0.0)
    assert frontier.lease(0.0) == [], "its host is leased"
    frontier.release(first, rest(30), 0.0)
    frontier.finish(first, Done(), 0.0)
    assert frontier.lease(29.0) == [], "its host rests"
    (second,) = frontier.lease(30.0)
    assert second.candidate.url == "http://a/u"


@pytest.mark.parametrize("dies", [True, False])
def test_an_urgent_url_that_was_not_fetched_is_next_again(world, dies):
    frontier = world.reopen(0.0)
    frontier.add([candidate("1")], 0.0)
    frontier.add_first([candidate("u")], 0.0)
    (lease,) = frontier.lease(0.0)
    if dies:
        frontier = world.reopen(0.0)
    else:
        frontier.release(lease, rest(0), 0.0)
        frontier.finish(lease, PutBack(), 0.0)
    assert paths(frontier, 3) == ["a/u", "a/1", ""]

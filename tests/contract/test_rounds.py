"""Rounds: no cap is ever exceeded, and what is over one keeps its place for the next round."""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import chain
from random import Random

import msgspec
import pytest

from crawler.frontier.open import open_frontier
from crawler.frontier.port import Frontier
from crawler.model.choices import RoundKind
from crawler.model.types import Again, Done, Lease, Pace, PageHistory, Purpose, PutBack, Rest
from crawler.policy.priority import NO_CASH
from crawler.policy.rounds import FLOOR_WINDOW_S, RoundCaps, RoundEnd
from crawler.view.plan import leases_in_order, store_of_plan
from tests.harness.frontiers import ALL_RECORDS, TIGHT, EmbeddedWorld, drain, rest
from tests.harness.round_lives import DOMAINS, crawl_in_rounds, fetch_round, link, random_caps

FIRST = int(os.environ.get("FIRST", "0"))
SEEDS = int(os.environ.get("SEEDS", "6"))
NOW = 1_000.0


def opened(world: EmbeddedWorld, caps: RoundCaps | None) -> Frontier:
    world.limits = replace(TIGHT, rounds=caps)
    return world.reopen(NOW)


def rounds_of(frontier: Frontier, most: int = 20) -> list[list[str]]:
    """Fetch rounds until all are over, or nothing comes in one."""
    found = []
    for _ in range(most):
        urls = fetch_round(frontier, NOW)
        if urls:
            found.append(urls)
        frontier.end_dry_round(NOW)
        progress = frontier.round_progress()
        if progress is None or progress.is_over or not urls:
            break
    return found


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_no_cap_is_exceeded_in_a_random_crawl_that_is_killed(embedded, seed):
    """`make rounds` has 200 of them."""
    crawl_in_rounds(embedded, seed)


def test_a_round_has_as_many_urls_as_it_may(embedded):
    frontier = opened(embedded, RoundCaps(urls=3, rounds=9))
    frontier.add([link(f"{n}", "a", "x.org") for n in range(8)], NOW)
    assert [len(urls) for urls in rounds_of(frontier)] == [3, 3, 2]


def test_a_host_and_a_domain_with_their_full_numbers_wait_for_the_next_round(embedded):
    frontier = opened(embedded, RoundCaps(per_host=2, per_domain=3, rounds=2))
    frontier.add([link(f"{n}", host, "x.org") for n in range(4) for host in "ab"], NOW)
    frontier.add([link(f"{n}", "a", "y.org") for n in range(3)], NOW)
    first, second = rounds_of(frontier)
    for urls in (first, second):
        assert sum("x.org" in url for url in urls) == 3
        assert max(sum(f"{host}.x.org" in url for url in urls) for host in "ab") == 2
    assert [sum("y.org" in url for url in urls) for urls in (first, second)] == [2, 1]
    progress = frontier.round_progress()
    assert progress.is_over and progress.ended == (RoundEnd.DRY, RoundEnd.DRY)
    assert not frontier.is_over(), "two URLs of x.org are left for another run"
    assert frontier.lease(NOW, 1) == [] and frontier.wake_at() is None


def test_two_rounds_have_what_one_of_twice_the_size_has(embedded):
    found = []
    for caps in (RoundCaps(urls=6, rounds=2), RoundCaps(urls=12)):
        frontier = opened(embedded, caps)
        frontier.add(
            [link(f"{len(found)}{n}", "ab"[n % 2], "xyz"[n % 3] + ".org") for n in range(20)], NOW
        )
        urls = list(chain.from_iterable(rounds_of(frontier)))
        found.append([url.replace(f"/{len(found)}", "/") for url in urls])
        drain_all(embedded)
    assert len(found[0]) == 12
    assert found[0] == found[1]


def drain_all(world: EmbeddedWorld) -> None:
    """Finish all that waits, in a run without rounds."""
    frontier = opened(world, None)
    while leases := drain(frontier, NOW):
        for lease in leases:
            assert lease.round == 0
            frontier.release(lease, rest(0.0), NOW)
            frontier.finish(lease, Done(), NOW)
    assert frontier.is_over()


def test_a_restart_goes_on_in_the_round(embedded):
    caps = RoundCaps(urls=4, per_host=2, rounds=2)
    frontier = opened(embedded, caps)
    frontier.add([link(f"{n}", host, "x.org") for n in range(5) for host in "abc"], NOW)
    assert len(frontier.lease(NOW, 1)) == 1
    frontier = opened(embedded, caps)
    # The lease that the dead process left may have been asked for: it stays counted.
    assert len(fetch_round(frontier, NOW + 100)) == 3
    assert frontier.round_progress().number == 2
    frontier = opened(embedded, caps)
    assert len(fetch_round(frontier, NOW + 200)) == 4, "the second, and last one"
    assert frontier.round_progress().is_over
    assert opened(embedded, caps).round_progress().number == 3, "of another run"


def test_what_is_put_back_unasked_counts_for_nothing(embedded):
    frontier = opened(embedded, RoundCaps(urls=1, per_host=1))
    frontier.add([link("1", "a", "x.org")], NOW)
    for verdict in (PutBack(), PutBack(is_first=False), PutBack(was_asked=True)):
        (lease,) = frontier.lease(NOW, 1)
        frontier.release(lease, rest(0.0), NOW)
        frontier.finish(lease, verdict, NOW)
    assert frontier.lease(NOW, 1) == []
    frontier.end_dry_round(NOW)
    assert frontier.round_progress().is_over


def test_a_robots_txt_is_in_no_round(embedded):
    frontier = opened(embedded, RoundCaps(per_host=1, kind=RoundKind.NEW))
    frontier.add([link(f"{n}", "a", "x.org") for n in range(3)], NOW)
    assert len(fetch_round(frontier, NOW)) == 1
    robots = link("robots.txt", "a", "x.org")
    robots = msgspec.structs.replace(robots, purpose=Purpose.ROBOTS, authority="http://b")
    frontier.add([robots], NOW)
    (lease,) = frontier.lease(NOW, 1)
    assert lease.candidate.purpose is Purpose.ROBOTS
    frontier.release(lease, rest(0.0), NOW)
    frontier.finish(lease, Done(), NOW)
    assert frontier.lease(NOW, 1) == []


def test_a_round_ends_by_its_time(embedded):
    frontier = opened(embedded, RoundCaps(seconds=60.0, rounds=2))
    frontier.add([link(f"{n}", "a", "x.org") for n in range(5)], NOW)
    (lease,) = frontier.lease(NOW, 1)
    assert frontier.wake_at() == NOW + 60.0
    assert frontier.lease(NOW + 61.0, 1) == [], "a lease of it is open"
    frontier.release(lease, rest(0.0), NOW + 61.0)
    frontier.finish(lease, Done(), NOW + 61.0)
    (lease,) = frontier.lease(NOW + 61.0, 1)
    assert lease.round == 2
    assert frontier.round_progress().ended == (RoundEnd.TIME,)


def test_a_round_ends_when_pages_come_slower_than_its_floor(embedded):
    frontier = opened(embedded, RoundCaps(floor=0.1, rounds=2))
    frontier.add([link(f"{n}", "a", "x.org") for n in range(200)], NOW)
    now = NOW
    for gap_s in (5.0,) * 70 + (20.0,) * 30:
        for lease in frontier.lease(now, 1):
            number = lease.round
            frontier.release(lease, rest(gap_s), now)
            frontier.finish(lease, Done(), now)
        if number == 2:
            break
        now += gap_s
    assert frontier.round_progress().ended == (RoundEnd.FLOOR,)
    assert now > NOW + 350 + FLOOR_WINDOW_S / 4, "not while one came each five seconds"


@pytest.mark.parametrize(("kind", "wanted"), [(RoundKind.NEW, "new"), (RoundKind.REVISIT, "old")])
def test_a_round_has_urls_of_its_kind(embedded, kind, wanted):
    frontier = opened(embedded, None)
    frontier.add([link("old", "a", "x.org")], NOW)
    (lease,) = frontier.lease(NOW, 1)
    frontier.release(lease, rest(0.0), NOW)
    again = Again(PageHistory(int(NOW), 0, 0), at=NOW + 5.0)
    frontier.finish(lease, Done(again=again), NOW)
    frontier.add([link("new", "a", "x.org")], NOW)
    world_now = NOW + 10.0
    embedded.limits = replace(TIGHT, rounds=RoundCaps(kind=kind))
    frontier = embedded.reopen(world_now)
    assert fetch_round(frontier, world_now) == [f"http://a.x.org/{wanted}"]
    frontier.end_dry_round(world_now)
    assert frontier.round_progress().is_over and not frontier.is_over()


def test_other_caps_of_the_next_start_are_looked_at_at_once(embedded):
    frontier = opened(embedded, RoundCaps(per_host=1))
    frontier.add([link(f"{n}", "a", "x.org") for n in range(3)], NOW)
    assert len(fetch_round(frontier, NOW)) == 1
    assert len(fetch_round(opened(embedded, RoundCaps(per_host=2)), NOW)) == 1
    drain_all(embedded)


@pytest.mark.parametrize("resumes", [False, True])
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + 2 * SEEDS))
def test_a_plan_has_what_the_round_leases_in_its_order(
    embedded, seed, rests, resumes, tmp_path_factory
):
    random = Random(seed)
    limits = replace(
        TIGHT, min_gap_s=float(rests), gap_factor=0.0, longest_fetch_s=0.0, max_new_keys=1_000
    )

    def rest_s(pace: Pace) -> float:
        return max(pace.gap_s, pace.crawl_delay_s, limits.min_gap_s)

    def fetch(frontier: Frontier, lease: Lease) -> None:
        gap_s = random.choice((0.0, 3.0, 9.0)) if rests else 0.0
        pace = msgspec.structs.replace(lease.pace, gap_s=gap_s)
        frontier.release(lease, Rest(gap_s, pace), NOW)
        again = Again(PageHistory(int(NOW), 0, 0), at=NOW)
        verdict = random.choice((Done(), PutBack(), Done(again=again)))
        frontier.finish(lease, verdict, NOW)

    caps = replace(random_caps(random), kind=random.choice(list(RoundKind)))
    embedded.limits = limits
    frontier = embedded.reopen(NOW)
    for n in range(random.randint(1, 60)):
        found = link(f"{n}", random.choice("ab"), random.choice(DOMAINS))
        cash, level = random.choice((NO_CASH, 2_000, 6_000)), random.randint(0, 2)
        frontier.add([msgspec.structs.replace(found, cash=cash, level=level)], NOW)
        if random.random() < 0.2:
            for lease in frontier.lease(NOW, 2):
                fetch(frontier, lease)
    limits = embedded.limits = replace(limits, rounds=caps)
    if resumes:
        frontier = embedded.reopen(NOW)
        for _ in range(random.randint(1, 12)):
            for lease in frontier.lease(NOW, 2):
                if random.random() < 0.8:  # else a dead process has left it
                    fetch(frontier, lease)
    before = embedded.store.scan(b"\0", b"\xff", ALL_RECORDS)
    overlay = store_of_plan(embedded.store)
    folder = tmp_path_factory.mktemp("plan")
    of_plan = open_frontier(folder, limits, NOW, store=overlay)
    planned = [each.url for each in leases_in_order(of_plan, NOW, limits)]
    assert embedded.store.scan(b"\0", b"\xff", ALL_RECORDS) == before, "it reads only"
    frontier = embedded.reopen(NOW)
    leased = fetch_round(frontier, NOW, rest_s if rests else None)
    if not leased and frontier.end_dry_round(NOW):  # it had all it may have before it was killed
        leased = fetch_round(frontier, NOW, rest_s if rests else None)
    assert leased == planned

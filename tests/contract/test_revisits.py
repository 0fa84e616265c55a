"""Pages that are visited again, over every frontier: what a crawl's owner can rely on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from msgspec.structs import replace as with_fields

from crawler.frontier import records as keys
from crawler.frontier.later import LEAST_S
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.records import decode_candidate
from crawler.frontier.sweep import Forget
from crawler.model.choices import LaterVisits
from crawler.model.types import (
    Again,
    ConditionalVisits,
    Done,
    Moved,
    PageHistory,
    RetryAt,
    VisitCheck,
)
from crawler.policy.revisits import unpack_rate
from crawler.policy.validators import noted
from tests.harness.frontiers import Refusing, candidate, drain, rest

DAY = 86_400.0
START = 1_000_000.0


class Pages:
    """Pages that change at fixed times, and a crawl that visits them."""

    def __init__(self, world, every_days, *, gap_s=1.0):
        self.world, self.gap_s = world, gap_s
        self.gap_of = {}  # other ones, by host
        self.every = {f"http://{url}": days * DAY for url, days in every_days.items()}
        self.visits = {url: [] for url in self.every}
        self.frontier = world.reopen(START)
        found = [url.removeprefix("http://").partition("/") for url in self.every]
        self.frontier.add([candidate(name, host=host) for host, _, name in found], START)
        self.now = START

    def run(self, days):
        """Visit what the frontier leases, whenever it wants to be asked."""
        end = self.now + days * DAY
        while self.now < end:
            leases = drain(self.frontier, self.now)
            for lease in leases:
                self.visit(lease)
            wake_at = self.frontier.wake_at()
            self.now = min(end, max(wake_at if wake_at is not None else end, self.now + 0.01))

    def visit(self, lease):
        gap_s = self.gap_of.get(lease.candidate.host, self.gap_s)
        self.frontier.release(lease, rest(gap_s), self.now)
        self.frontier.finish(lease, Done(again=self.again(lease.candidate)), self.now)

    def again(self, page):
        at, every = int(self.now), self.every[page.url]
        self.visits[page.url].append(self.now)
        before = page.history
        if before is None:
            return Again(PageHistory(at, at, at))
        changed = int(at // every) > int(before.visited_at // every)
        history = with_fields(
            before,
            visited_at=at,
            changed_at=at if changed else before.changed_at,
            visits=before.visits + 1,
            changes=before.changes + changed,
        )
        return Again(history, changed)

    def count(self, begin):
        return {
            url.removeprefix("http://"): sum(at >= START + begin * DAY for at in visits)
            for url, visits in self.visits.items()
        }


def with_budget(world, per_day):
    world.limits = replace(world.limits, visits_per_day=per_day, due_slice=64, head_urls=8)


def test_pages_that_change_are_visited_more_often_than_those_that_do_not(world):
    with_budget(world, 10.0)
    often = {f"a{n}/x": 3.0 for n in range(10)}
    never = {f"b{n}/x": 1000.0 for n in range(10)}
    pages = Pages(world, often | never)
    pages.run(200)
    visits = pages.count(100)
    some, others = (sum(visits[url] for url in urls) for urls in (often, never))
    assert some > 3 * others
    assert min(visits.values()) >= 1, "none is left alone"
    assert 0.97 < sum(visits.values()) / 1000 <= 1.01, "the budget is used"


def test_a_host_that_may_be_asked_less_often_is_asked_as_often_as_it_may(world):
    """What it cannot be asked for goes to the others, and none of its pages is left alone."""
    with_budget(world, 10.0)
    slow = {f"slow/{n}": 0.1 if n % 2 else 20.0 for n in range(40)}
    pages = Pages(world, slow | {f"b{n}/x": 5.0 for n in range(20)})
    pages.gap_of = {"slow": DAY}
    pages.run(300)
    visits = pages.count(150)
    assert 140 < sum(visits[url] for url in slow) <= 151
    assert min(visits[url] for url in slow) >= 1
    assert 0.97 < sum(visits.values()) / 1500 <= 1.01


def test_the_budget_without_a_number_is_a_visit_of_each_page_in_30_days(world):
    pages = Pages(world, {f"a{n}/x": 10.0 for n in range(30)})
    pages.run(120)
    assert 0.95 < sum(pages.count(30).values()) / 90 <= 1.02


def test_another_budget_counts_at_once_and_moves_no_page(world):
    with_budget(world, 4.0)
    pages = Pages(world, {f"a{n}/x": 5.0 for n in range(20)})
    rules = Refusing(lambda url: False)
    pages.frontier = world.reopen(START, rules)
    pages.run(60)
    rules.visits_per_day = 40.0
    pages.run(10)
    assert 0.9 < sum(pages.count(60).values()) / 400 <= 1.05


def test_no_page_is_visited_sooner_than_the_least_interval_whatever_the_budget(world):
    with_budget(world, 1e9)
    pages = Pages(world, {"a/x": 0.001, "b/x": 1000.0})
    pages.run(0.2)
    for visits in pages.visits.values():
        gaps = [later - sooner for sooner, later in pairwise(visits)]
        assert gaps and min(gaps) >= LEAST_S - 1


def test_a_history_survives_a_crash_and_comes_with_the_next_lease(world):
    with_budget(world, 100.0)
    pages = Pages(world, {"a/x": 1.0})
    pages.run(2)
    assert len(pages.visits["http://a/x"]) > 2
    before = pages.frontier.counts()
    pages.frontier = world.reopen(pages.now)
    assert (before.later, before.again, pages.frontier.counts().again) == (1, 1, 1)
    (lease,) = drain(pages.frontier, pages.now + DAY)
    assert lease.candidate.history.visits == len(pages.visits["http://a/x"])
    assert lease.candidate.history.rate, "what was learned"
    world.check(pages.frontier)


def test_a_failed_visit_keeps_the_history(world):
    with_budget(world, 100.0)
    pages = Pages(world, {"a/x": 1.0})
    pages.run(2)
    (lease,) = drain(pages.frontier, pages.now + DAY)
    pages.frontier.release(lease, rest(1), pages.now + DAY)
    pages.frontier.finish(lease, RetryAt(pages.now + 2 * DAY), pages.now + DAY)
    assert pages.frontier.counts().again == 1
    pages.frontier = world.reopen(pages.now + DAY)
    assert drain(pages.frontier, pages.now + 1.9 * DAY) == []
    (again,) = drain(pages.frontier, pages.now + 2.1 * DAY)
    assert again.candidate.history == lease.candidate.history
    assert again.candidate.attempts == 1


def test_a_date_is_kept_whatever_the_budget_is(world):
    with_budget(world, 1.0)
    frontier = world.reopen(START)
    frontier.add([candidate(f"{n}", host=f"h{n}") for n in range(20)], START)
    for lease in drain(frontier, START):
        frontier.release(lease, rest(1), START)
        history = PageHistory(int(START), int(START), int(START))
        frontier.finish(lease, Done(again=Again(history, at=START + 5 * DAY)), START)
    assert drain(frontier, START + 4.99 * DAY) == []
    assert len(drain(frontier, START + 5 * DAY + 1)) == 20


def test_a_host_that_may_not_be_asked_for_more_leaves_the_budget_to_others(world):
    """Host a takes 24 visits a day, and would be worth 100: the rest is for the others."""
    with_budget(world, 200.0)
    slow = {f"a/{n}": 1.0 for n in range(100)}
    quick = {f"b{n}/x": 1.0 for n in range(100)}
    pages = Pages(world, slow | quick)
    pages.gap_s = 0.0
    pages.run(0.1)
    release = pages.frontier.release

    def slowly(lease, given, now):
        return release(lease, rest(3600.0) if lease.candidate.host == "a" else given, now)

    pages.frontier.release = slowly
    pages.run(20)
    begun = pages.count(10)
    of_slow = sum(begun[url] for url in slow)
    of_quick = sum(begun[url] for url in quick)
    assert 200 < of_slow <= 245, "as much as its rest allows"
    assert of_quick > 1400, "and the others have what is left"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_of_new_pages_and_those_that_are_visited_again_neither_starves(world, share):
    world.limits = replace(world.limits, due_slice=64, head_urls=4, visit_share=share)
    frontier = world.reopen(START)
    frontier.add([candidate(f"old{n}") for n in range(100)], START)
    history = PageHistory(int(START), int(START), int(START))
    now = START
    for _ in range(100):
        (lease,) = drain(frontier, now)
        frontier.release(lease, rest(1), now)
        frontier.finish(lease, Done(again=Again(history, at=START + DAY)), now)
        now += 1.0
    now = START + DAY + 1
    frontier.add([candidate(f"new{n}") for n in range(1000)], now)
    fetched = Counter()
    for _ in range(100):
        (lease,) = drain(frontier, now)
        fetched["old" if lease.candidate.history else "new"] += 1
        frontier.release(lease, rest(1), now)
        frontier.finish(lease, Done(), now)
        now += 1.0
        if not frontier.counts().waiting % 7:  # links are found all the time
            frontier.add([candidate(f"more{now}")], now)
    assert abs(fetched["old"] - 100 * share) <= 8, fetched


@pytest.mark.parametrize("back_s", [1.0, DAY, 400 * DAY])
def test_a_clock_that_was_set_back_neither_stops_visits_nor_makes_too_many(world, back_s):
    with_budget(world, 10.0)
    pages = Pages(world, {f"a{n}/x": 2.0 for n in range(10)})
    pages.run(10)
    pages.now -= back_s
    pages.frontier = world.reopen(pages.now)
    pages.now = max(pages.now, pages.frontier.clock)
    pages.run(10)
    assert 0.8 < sum(pages.count(10).values()) / 100 < 1.1


def test_it_can_be_asked_for_at_once_which_links_are_new(world):
    frontier = world.reopen(START)
    links = [candidate(f"{n}") for n in range(5)]
    assert frontier.add(links[:3], START, at_once=True).new == 3
    added = frontier.add(links, START, at_once=True)
    assert (added.new, added.seen + added.undecided) == (2, 3)


@pytest.mark.parametrize("has_moved", [False, True])
def test_a_page_that_is_gone_is_asked_for_again_when_it_is_named_but_not_often(world, has_moved):
    frontier = world.reopen(START)
    now, history = START, PageHistory(1, 1, 1, 5, gone=3)
    frontier.add([candidate("x"), candidate("y", host="b")], now)
    for lease in drain(frontier, now):
        frontier.release(lease, rest(1), now)
        gone = history if lease.candidate.host == "a" else None
        moved = Moved(candidate("y", host="b"), gone=gone)  # which is known
        frontier.finish(lease, moved if gone and has_moved else Done(gone=gone), now)
    for days in (1, 29):
        frontier.add([candidate("x"), candidate("y", host="b")], START + days * DAY)
        assert drain(frontier, START + days * DAY + 1) == []
    now = START + 31 * DAY
    frontier = world.reopen(now)
    assert drain(frontier, now) == [], "nobody has named it"
    frontier.add([candidate("x"), candidate("y", host="b")], now)
    (lease,) = drain(frontier, now)
    assert (lease.candidate.url, lease.candidate.history) == ("http://a/x", history)
    world.check(frontier)
    frontier.release(lease, rest(1), now)
    frontier.finish(lease, Done(gone=history), now)
    frontier.add([candidate("x")], now + DAY)
    assert drain(frontier, now + DAY) == []


def test_a_start_that_visits_nothing_again_is_over_and_keeps_what_waits_for_a_visit(world):
    with_budget(world, 100.0)
    frontier = world.reopen(START)
    frontier.add([candidate("x"), candidate("y", host="b"), candidate("z", host="c")], START)
    kinds = {"a": None, "b": START + DAY}
    for lease in drain(frontier, START):
        host = lease.candidate.host
        frontier.release(lease, rest(1), START)
        again = Again(PageHistory(int(START), 1, 1), at=kinds[host]) if host in kinds else None
        frontier.finish(lease, Done(again=again), START)
    once = Refusing(lambda url: False)
    once.later_visits = LaterVisits.NONE
    frontier = world.reopen(START + 5 * DAY, once)
    assert drain(frontier, START + 40 * DAY) == []
    assert frontier.wake_at() is None and frontier.is_over()
    assert frontier.counts().again == 2
    once.later_visits = LaterVisits.AS_DUE  # by a rule, while it runs
    assert not frontier.is_over()
    assert len(drain(frontier, START + 41 * DAY)) == 2
    world.check(frontier)


def test_what_visits_say_of_a_host_comes_back_with_its_leases_after_each_restart(world):
    checks = [*VisitCheck, VisitCheck.UNMODIFIED, VisitCheck.DENIED]
    frontier, said = world.reopen(START), ConditionalVisits()
    frontier.add([candidate("x"), candidate("y", host="b")], START)
    for turn, check in enumerate(checks):
        now = START + turn * DAY
        for lease in drain(frontier, now):
            is_own = lease.candidate.host == "a"
            assert lease.conditional == (said if is_own else ConditionalVisits())
            frontier.release(lease, rest(1), now)
            again = Again(PageHistory(1, 1, 1), at=now + DAY)
            frontier.finish(
                lease, Done(again=with_fields(again, check=check) if is_own else again), now
            )
        said = noted(said, check)
        frontier = world.reopen(now)
    assert said == ConditionalVisits(2, 1, 1, audits=3, denied=2)


class DatedPages:
    """Pages that change at random and a sitemap that is read each day: of changes it dates a share
    (recall), and of its dates a share are changes (precision)."""

    def __init__(self, world, recall, precision, *, pages=60, every_days=20.0, seed=1):
        self.world, self.random = world, Random(seed)
        self.recall, self.precision = recall, precision
        self.frontier = world.reopen(START)
        self.pages = [candidate(f"{n}", host=f"h{n % 3}", modified=1.0) for n in range(pages)]
        self.frontier.add(self.pages, START)
        self.every_s = every_days * DAY
        self.changes = {each.url: START + self.wait() for each in self.pages}  # the next one
        self.stale_since = {}
        self.stale_s = 0.0
        self.visits = Counter()

    def wait(self):
        return self.random.expovariate(1 / self.every_s)

    def run(self, days):
        """Return the share of time in which copies were fresh in the second half."""
        for day in range(days):
            now = START + day * DAY
            if day == days // 2:
                self.stale_s, begun = 0.0, now
                self.stale_since = dict.fromkeys(self.stale_since, now)
            self.change(now)
            end = now + DAY
            while now < end:
                for lease in drain(self.frontier, now):
                    self.visit(lease, now)
                wake_at = self.frontier.wake_at()
                now = min(end, max(wake_at if wake_at is not None else end, now + 0.01))
        for since in self.stale_since.values():
            self.stale_s += end - since
        return 1.0 - self.stale_s / (len(self.pages) * (end - begun))

    def change(self, now):
        dated = []
        for page in self.pages:
            at = self.changes[page.url]
            if at <= now:
                self.stale_since.setdefault(page.url, at)
                self.changes[page.url] = now + self.wait()
                if self.random.random() < self.recall:
                    dated.append(with_fields(page, modified=now))
            false = self.recall * (1 / self.precision - 1) if self.precision else 0.0
            if self.random.random() < false * DAY / self.every_s:
                dated.append(with_fields(page, modified=now))
        if dated:
            self.frontier.add(dated, now)

    def visit(self, lease, now):
        page, at = lease.candidate, int(now)
        before = page.history
        since = self.stale_since.pop(page.url, None)
        self.stale_s += now - since if since is not None and before is not None else 0.0
        self.visits[page.url] += 1
        history = with_fields(before or PageHistory(at, at, at), visited_at=at)
        again = Again(history, since is not None if before else None)
        self.frontier.release(lease, rest(1), now)
        self.frontier.finish(lease, Done(again=again), now)


def test_dates_of_a_sitemap_are_used_as_far_as_they_have_proved_right(embedded):
    with_budget(embedded, 3.0)
    fresh = {}
    for recall, precision in ((0.0, 0.0), (0.9, 0.9), (0.9, 0.05)):
        embedded.store = MemoryStore()
        pages = DatedPages(embedded, recall, precision)
        fresh[precision] = pages.run(600)
        embedded.check(pages.frontier)
    assert fresh[0.9] > fresh[0.0] + 0.08, "they say which pages have changed"
    assert fresh[0.05] > fresh[0.0] - 0.02, "and these say nothing, which is learned"


def test_the_dates_of_pages_survive_a_crash(world):
    with_budget(world, 1.0)
    pages = DatedPages(world, 0.9, 0.9, pages=6, every_days=3.0)
    pages.run(60)
    before = pages.frontier._batch.peek("h0").visits.signals
    assert before.signals >= before.found >= 3
    pages.frontier = world.reopen(START + 60 * DAY)
    assert pages.frontier._batch.peek("h0").visits.signals == before
    world.check(pages.frontier)


@pytest.mark.parametrize(
    ("visits", "expected"),
    [
        pytest.param(LaterVisits.LISTS, {"a", "b", "c"}, id="those that bring links"),
        pytest.param(LaterVisits.EACH, {"a", "b", "c", "d", "e"}, id="each"),
    ],
)
def test_a_run_may_visit_some_pages_once_whenever_they_would_be_due(world, visits, expected):
    with_budget(world, 0.001)
    frontier, at = world.reopen(START), int(START)
    kinds = {
        "a": {"depth": 0},
        "b": {"is_sitemap": True},
        "c": {},
        "d": {},
        "e": {},
    }
    frontier.add([candidate("x", host=host, **given) for host, given in kinds.items()], START)
    for lease in drain(frontier, START):
        host = lease.candidate.host
        frontier.release(lease, rest(1), START)
        history = PageHistory(at, at, at, brought=2 if host == "c" else 1)
        when = START + 400 * DAY if host in "ce" else None
        frontier.finish(lease, Done(again=Again(history, at=when)), START)
    rules = Refusing(lambda url: False)
    rules.later_visits = visits
    now = START + DAY
    frontier = world.reopen(now, rules)
    assert not frontier.is_over()
    leases = drain(frontier, now)
    assert {lease.candidate.host for lease in leases} == expected
    for lease in leases:
        frontier.release(lease, rest(1), now)
        history = with_fields(lease.candidate.history, visited_at=int(now))
        frontier.finish(lease, Done(again=Again(history, False)), now)
    assert drain(frontier, now + 500 * DAY) == []
    assert frontier.is_over()
    assert frontier.counts().again == 5
    world.check(frontier)


def test_a_deletion_request_reaches_pages_that_wait_for_a_visit_and_those_that_are_gone(embedded):
    with_budget(embedded, 1.0)
    frontier = embedded.reopen(START)
    names = {"worth": None, "dated": START + 9 * DAY, "gone": None}
    found = [candidate(f"marker-{name}", host=name, modified=1.0) for name in names]
    frontier.add([*found, candidate("other", host="worth")], START)
    for lease in [*drain(frontier, START), *drain(frontier, START)]:
        history, host = PageHistory(int(START), 1, 1), lease.candidate.host
        frontier.release(lease, rest(0), START)
        verdict = Done(again=Again(history, at=names[host]))
        frontier.finish(lease, Done(gone=history) if host == "gone" else verdict, START)
    assert "marker" in str(embedded.store.scan(b"", b"\xff", 1000))
    for _ in frontier.sweep(
        None,
        lambda host: True,
        lambda page: Forget.FORGET if "marker" in page.url else None,
        lambda: START,
    ):
        frontier.commit()
    for _ in frontier.forget_kept(lambda url: "marker" in url, lambda: START):
        frontier.commit()
    left = embedded.store.scan(b"", b"\xff", 1000)
    assert [key for key, value in left if b"marker" in value] == []
    assert (frontier.counts().again, frontier.counts().later) == (0, 0)
    embedded.check(frontier)
    frontier.add(found, START + 40 * DAY)
    assert [each.candidate.url for each in drain(frontier, START + 40 * DAY)] == [
        "http://worth/other"
    ]


def test_a_page_begins_with_what_is_known_of_those_alike_then_of_its_host(embedded):
    frontier = embedded.reopen(START)
    means = []
    for number, alike in enumerate(((0, 0), (50, int(100 * DAY)))):
        at = START + number * 2 * DAY
        frontier.add([candidate("x", host=f"h{number}")], at)
        before = PageHistory(int(at), int(at), int(at))
        (lease,) = drain(frontier, at)
        frontier.release(lease, rest(0), at)
        frontier.finish(lease, Done(again=Again(before, at=at + 1)), at)
        (lease,) = drain(frontier, at + 2)
        after = with_fields(before, visited_at=int(at) + 2)
        frontier.release(lease, rest(0), at + 2)
        frontier.finish(lease, Done(again=Again(after, False, at=at + 1e9, alike=alike)), at + 2)
        (page,) = [
            each
            for _, packed in embedded.store.scan(b"l", b"m", 9)
            if (each := decode_candidate(packed)).url == lease.candidate.url
        ]
        rate = unpack_rate(page.history.rate)
        means.append(rate.shape / rate.days)
    assert means[1] > 8 * means[0]


@pytest.mark.parametrize(("at", "kept"), [(-5, 0), (7, 7), (1 << 40, (1 << 32) - 1)])
def test_a_page_that_is_put_off_beyond_all_dates_is_filed_at_the_last_one(at, kept):
    assert keys.visited_at(keys.visited(3, at, b"12345678")) == kept

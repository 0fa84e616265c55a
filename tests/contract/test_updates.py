"""URLs that are updated from outside, the turn of a named host, and the table of URLs."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from crawler.frontier.lending import Lending
from crawler.frontier.records import NEVER
from crawler.model.types import (
    Again,
    Dead,
    Done,
    Moved,
    PageHistory,
    Purpose,
    PutBack,
    RetryAt,
)
from tests.harness.frontiers import TIGHT, candidate, drain, rest

LIVES = int(os.environ.get("UPDATED_LIVES", "6"))  # `make lives`


@pytest.fixture(params=[False, True], ids=["plain", "listed"])
def listing(world, request):
    """A world in which only updated URLs are in the table, and one in which all are."""
    world.limits = replace(world.limits, lists_urls=request.param)
    return world


def urls(leases):
    return [one.candidate.url for one in leases]


def fetch_all(frontier, now, verdict=None):
    """Lease what is due at *now*, and end it at once. Returns the URLs."""
    found = []
    while leases := drain(frontier, now):
        for lease in leases:
            frontier.release(lease, rest(0), now)
            frontier.finish(lease, verdict or Done(), now)
            found.append(lease.candidate.url)
    return found


def later(name, at, **given):
    return candidate(name, not_before=at, **given)


def test_an_unknown_url_that_is_updated_is_known_and_waits_for_its_date(listing):
    frontier = listing.reopen(0.0)
    assert frontier.update([later("x", 50.0), later("y", NEVER)], 0.0) == 0
    assert frontier.add([candidate("x"), candidate("y")], 1.0).seen == 2
    assert fetch_all(frontier, 49.0) == []
    assert frontier.wake_at() <= 50.0
    assert fetch_all(frontier, 50.1) == ["http://a/x"]
    assert fetch_all(frontier, 1e6) == []
    assert frontier.is_over()


def test_a_waiting_url_that_is_updated_leaves_its_queue(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate(each) for each in "vwxyz"], 0.0)
    frontier.update([later("w", NEVER), later("y", 9.0)], 0.0)
    assert fetch_all(frontier, 1.0) == [f"http://a/{each}" for each in "vxz"]
    assert fetch_all(frontier, 10.0) == ["http://a/y"]
    assert fetch_all(frontier, 1e6) == []
    assert frontier.is_over()
    assert frontier.counts().waiting == frontier.counts().later == 0


def test_a_done_url_that_is_updated_is_fetched_again(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    fetch_all(frontier, 0.0)
    frontier.update([later("x", 5.0)], 1.0)
    frontier = listing.reopen(2.0)
    assert fetch_all(frontier, 4.0) == []
    assert fetch_all(frontier, 5.1) == ["http://a/x"]


def test_the_last_update_counts(listing):
    frontier = listing.reopen(0.0)
    for at in (30.0, 20.0, NEVER, 10.0, 40.0):
        frontier.update([later("x", at, request=str(at).encode())], 0.0)
    assert fetch_all(frontier, 39.0) == []
    (lease,) = drain(frontier, 40.1)
    assert lease.candidate.request == b"40.0"


def test_updates_with_dates_that_have_passed_come_in_the_order_of_these(listing):
    frontier = listing.reopen(0.0)
    frontier.update([later("late", 20_000.0), later("early", 10_000.0)], 30_000.0)
    assert fetch_all(frontier, 30_000.0) == ["http://a/early", "http://a/late"]


def test_a_leased_url_cannot_be_updated(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    (lease,) = drain(frontier, 0.0)
    assert frontier.update([later("x", NEVER), later("y", NEVER)], 1.0) == 1
    assert frontier.finish(lease, RetryAt(5.0), 2.0)
    frontier.update([later("x", 50.0)], 3.0)
    assert fetch_all(frontier, 49.0) == []
    assert fetch_all(frontier, 50.1) == ["http://a/x"]


@pytest.mark.parametrize(
    ("verdict", "again_at"),
    [
        (Done(), None),
        (Dead("by the test"), None),
        (Moved(candidate("target")), None),
        (PutBack(), 10.0),
        (RetryAt(12.0), 12.1),
        (Done(again=Again(PageHistory(1, 0, 0), at=15.0)), 15.1),
        (Done(again=Again(PageHistory(1, 0, 0))), 2e9),
    ],
)
def test_verdicts_on_urls_that_were_updated(listing, verdict, again_at):
    frontier = listing.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    frontier.update([later("x", 1.0)], 0.0)  # what waits in the queue is stale, and the date counts
    (lease,) = drain(frontier, 2.0)
    frontier.release(lease, rest(0), 2.0)
    frontier.finish(lease, verdict, 2.0)
    frontier = listing.reopen(3.0)
    if isinstance(verdict, Moved):
        assert fetch_all(frontier, 9.0) == ["http://a/target"]
    if again_at is not None:
        assert fetch_all(frontier, again_at) == ["http://a/x"]
    assert fetch_all(frontier, 3e9) == []


def test_a_dead_letter_of_an_updated_url_can_be_put_back(embedded):
    frontier = embedded.reopen(0.0)
    frontier.update([later("x", 1.0)], 0.0)
    fetch_all(frontier, 2.0, Dead("by the test"))
    frontier.update([later("x", NEVER)], 3.0)
    frontier.retry_dead(list(enumerate(embedded.letters(), start=1)), 4.0)
    assert fetch_all(frontier, 5.0) == ["http://a/x"]


def test_a_named_host_has_its_turn_when_it_is_due(listing):
    frontier = listing.reopen(0.0)
    for host in "abcdef":
        frontier.add([candidate("x", host=host), candidate("y", host=host)], 0.0)
    (lease,) = frontier.lease(0.0, 9, host="e")
    assert lease.candidate.url == "http://e/x"
    assert frontier.lease(0.0, 9, host="e") == [], "it is leased"
    assert frontier.lease(0.0, 9, host="nowhere") == []
    frontier.release(lease, rest(30), 1.0)
    frontier.finish(lease, Done(), 1.0)
    assert frontier.lease(30.9, 9, host="e") == [], "it rests"
    others = drain(frontier, 30.9)
    assert sorted({each.candidate.host for each in others}) == list("abcdf")
    (lease,) = frontier.lease(31.1, 9, host="e")
    frontier.release(lease, rest(2), 31.1)
    frontier.finish(lease, Done(), 31.1)
    assert frontier.lease(40.0, 9, host="e") == [], "nothing of it is left"


def test_a_rest_can_be_set_wherever_its_host_is(embedded):
    frontier = embedded.reopen(0.0)
    hosts = "abcdefgh"
    for host in hosts:
        frontier.add([candidate("x", host=host), candidate("y", host=host)], 0.0)
    for lease in frontier.lease(0.0, 6):
        frontier.release(lease, rest({"a": 3, "b": 3, "c": 90}.get(lease.candidate.host, 0)), 0.0)
        frontier.finish(lease, Done(), 0.0)
    for host in hosts:
        frontier.set_rest(host, 50.0, 1.0)
        embedded.check(frontier)
    frontier = embedded.reopen(2.0)
    assert drain(frontier, 49.0) == []
    frontier.set_rest("d", 49.0, 49.0)
    assert {each.candidate.host for each in drain(frontier, 49.0)} == {"d"}
    embedded.check(frontier)
    assert {each.candidate.host for each in drain(frontier, 50.1)} == set(hosts) - {"d"}


class UpdatedLife:
    """A life of a frontier whose URLs are added, updated, leased and finished at random."""

    def __init__(self, world, seed):
        self.world, self.random, self.now = world, Random(seed), 0.0
        self.frontier = world.reopen(self.now)
        self.due: dict[str, float] = {}  # that are not done, from when on
        self.done: set[str] = set()
        self.leased = {}
        self.names = [f"{number}" for number in range(12)]

    def step(self):
        random = self.random
        self.now += random.choice([0.0, 0.5, 2.0, 7.0])
        step = random.choice(["add", "update", "update", "lease", "lend", "finish", "crash"])
        getattr(self, step)()
        self.world.check(self.frontier)

    def page(self, **given):
        name = self.random.choice(self.names)
        return candidate(name, host="ab"[int(name) % 2], level=self.random.randrange(2), **given)

    def add(self):
        page = self.page()
        self.frontier.add([page], self.now)
        if page.url not in self.done | self.due.keys() | self.leased.keys():
            self.due[page.url] = 0.0

    def update(self):
        at = self.random.choice([NEVER, 0.001, self.now, self.now + 4.0, self.now + 20.0])
        page = self.page(not_before=at)
        refused = self.frontier.update([page], self.now)
        assert refused == (page.url in self.leased)
        if not refused:
            self.due.pop(page.url, None)
            self.done.discard(page.url)
            if at == NEVER:
                self.done.add(page.url)
            else:
                self.due[page.url] = at

    def lease(self):
        host = self.random.choice([None, "a", "b"])
        at_once = self.random.choice([1, 2, 5])
        for lease in self.frontier.lease(self.now, 2, per_host=lambda *_: at_once, host=host):
            url = lease.candidate.url
            assert host in (None, lease.candidate.host)
            assert self.due.pop(url) <= self.now + 1e-5, f"{url} is fetched before its date"
            self.leased[url] = lease

    def lend(self):
        until, per_host = self.now + 6.0, self.random.choice([1, 3])
        for url in lend(self.frontier, self.now, until, 2, per_host, rest_s=0.0):
            assert self.due.pop(url) <= self.now + 1e-5, f"{url} is lent before its date"
            self.due[url] = until

    def finish(self):
        if not self.leased:
            return
        url = self.random.choice(sorted(self.leased))
        lease = self.leased.pop(url)
        self.frontier.release(lease, rest(self.random.choice([0.0, 1.0, 9.0])), self.now)
        match self.random.randrange(4):
            case 0:
                self.frontier.finish(lease, RetryAt(self.now + 5.0), self.now)
                self.due[url] = self.now + 5.0
            case 1:
                self.frontier.finish(lease, PutBack(is_first=self.random.random() < 0.5), self.now)
                self.due[url] = 0.0
            case _:
                self.frontier.finish(lease, Done(), self.now)
                self.done.add(url)

    def crash(self):
        self.frontier = self.world.reopen(self.now)
        self.due |= dict.fromkeys(self.leased, 0.0)
        self.leased = {}

    def end(self):
        """All that is due is fetched once, and nothing else."""
        self.crash()
        self.now += 1e6
        assert sorted(fetch_all(self.frontier, self.now)) == sorted(self.due)
        assert self.frontier.is_over()
        if self.frontier.table.lists_all:
            rows = {listed.url: listed.is_done for _, _, listed in self.frontier.table.urls()}
            assert rows == dict.fromkeys({*self.due, *self.done}, True)


@pytest.mark.parametrize("seed", range(LIVES))
def test_lives_of_urls_that_are_updated(listing, seed):
    life = UpdatedLife(listing, seed)
    for _ in range(60):
        life.step()
    life.end()


def test_a_table_counts_urls_and_queues(embedded):
    embedded.limits = replace(TIGHT, lists_urls=True)
    frontier = embedded.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"] + [candidate("x", host="b")], 0.0)
    frontier.update([later("x", NEVER, host="b"), later("x", NEVER, host="c")], 1.0)
    frontier = embedded.reopen(2.0)
    totals = frontier._batch.totals
    counted = (totals.listed, totals.listed_done, totals.queues, totals.active_queues)
    assert counted == (5, 2, 3, 1)
    queues = {host: (queue.urls, queue.done) for host, queue in frontier.table.queues()}
    assert queues == {"a": (3, 0), "b": (1, 1), "c": (1, 1)}
    assert frontier.table.get("b", candidate("x", host="b").key).created_at == 0


def lend(frontier, now, until, limit=4, per_host=1, rest_s=1.0, **given):
    """Lend what is due, and return the URLs. Hosts rest until *rest_s* after the end."""
    lending = Lending(per_host=per_host, until=until, rest_until=lambda *_: until + rest_s, **given)
    return [each.listed.url for each in frontier.lend(now, limit, lending)]


def test_a_url_that_is_lent_comes_back_when_its_time_is_over(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"], 0.0)
    assert lend(frontier, 1.0, 31.0, per_host=2) == ["http://a/x", "http://a/y"]
    listing.check(frontier)
    assert lend(frontier, 2.0, 32.0) == fetch_all(frontier, 31.9) == [], "the host rests"
    frontier = listing.reopen(3.0)
    assert lend(frontier, 31.9, 60.0) == [], "a restart, or another owner, keeps lease and rest"
    assert sorted(lend(frontier, 32.1, 62.0, per_host=9)) == [f"http://a/{each}" for each in "xyz"]
    listing.check(frontier)


def test_an_update_ends_what_is_lent(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate(each) for each in "xyz"], 0.0)
    assert len(lend(frontier, 1.0, 31.0, per_host=3)) == 3
    assert frontier.update([later("x", NEVER), later("y", 500.0)], 5.0) == 0
    frontier = listing.reopen(6.0)
    listing.check(frontier)
    assert frontier.add([candidate(each) for each in "xyz"], 7.0).new == 0
    assert fetch_all(frontier, 33.0) == ["http://a/z"]
    assert fetch_all(frontier, 499.0) == []
    assert fetch_all(frontier, 501.0) == ["http://a/y"]
    assert fetch_all(frontier, 1e6) == []
    assert frontier.is_over()


def test_a_url_that_a_process_has_leased_is_lent_after_its_death(listing):
    frontier = listing.reopen(0.0)
    frontier.update([later("x", 1.0)], 0.0)
    assert len(drain(frontier, 2.0)) == 1
    assert lend(frontier, 2.0, 30.0) == []
    frontier = listing.reopen(3.0)
    assert lend(frontier, 1e6, 2e6) == ["http://a/x"]


def test_a_page_that_is_visited_again_can_be_lent(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate("x")], 0.0)
    fetch_all(frontier, 0.0, Done(again=Again(PageHistory(1, 0, 0), at=15.0)))
    assert lend(frontier, 16.0, 46.0) == ["http://a/x"]
    listing.check(frontier)
    frontier.update([later("x", NEVER)], 17.0)
    listing.check(frontier)
    assert fetch_all(frontier, 1e6) == []


def test_a_host_that_is_held_is_not_lent_of(listing):
    frontier = listing.reopen(0.0)
    frontier.add([candidate("x"), candidate("x", host="b")], 0.0)

    def held_until(url):
        return 20.0 if url == "http://a/x" else None

    assert lend(frontier, 1.0, 31.0, held_until=held_until) == ["http://b/x"]
    listing.check(frontier)
    assert lend(frontier, 19.0, 49.0) == []
    assert lend(frontier, 20.1, 50.0) == ["http://a/x"]


def test_what_no_other_crawler_can_fetch_is_not_lent(world):
    frontier = world.reopen(0.0)
    robots = candidate("robots.txt", purpose=Purpose.ROBOTS, authority="http://b")
    check = candidate("check", purpose=Purpose.CHECK)
    frontier.add([candidate("x"), candidate("post", request=b"a request"), check, robots], 0.0)
    aside = []
    assert lend(frontier, 1.0, 31.0, per_host=9, set_aside=aside.append) == ["http://a/x"]
    assert sorted(each.url for each in aside) == [
        f"http://a/{each}" for each in ("check", "post", "robots.txt")
    ]
    world.check(frontier)
    assert frontier.counts().dead == 2, "a robots.txt is asked for again"

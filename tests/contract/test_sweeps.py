"""Passes over all that waits, in random lives with kills: each URL is fetched, dead or refused in
the end, in one of these ways and once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.sweep import Fate, Forget
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, Dead, Done, HostKey, PutBack, RetryAt
from crawler.policy.refusal import Reason, Refusal
from tests.harness.frontiers import ADMIT_ALL, Refusing, TurnWorld, candidate, drain, rest

HOSTS = "abc"
URLS = 60


def number_of(url: str) -> int:
    return int(url.rpartition("/")[2])


def is_dropped(url: str) -> bool:
    return number_of(url) % 5 == 0


def is_refused(url: str) -> bool:
    return number_of(url) % 5 == 1


def is_forgotten(url: str) -> bool:
    return number_of(url) % 5 == 3


def fate(found: Candidate) -> Fate:
    """Some are dropped, refused, forgotten or moved; others stay."""
    if is_forgotten(found.url):
        return Forget.FORGET
    if is_dropped(found.url):
        return Dead("dropped")
    if is_refused(found.url):
        return Refusal(Reason.DENIED, "by the test")
    return 2 if number_of(found.url) % 5 == 2 else None


class Life:
    """One life of a frontier, with the books of what became of each URL."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.world = TurnWorld(MemoryStore(), folder)
        self.random = random
        self.now = 0.0
        self.done: list[str] = []
        self.added = 0
        self.sweeping: Iterator[int] | None = None
        self.frontier = self.open()

    def open(self) -> TwoTierFrontier:
        self.sweeping = None
        return self.world.reopen(self.now, Refusing(is_refused))

    def step(self) -> None:
        match self.random.randrange(6):
            case 0 if self.added < URLS:
                count = min(self.random.randrange(1, 9), URLS - self.added)
                self.frontier.add(map(self.link, range(self.added, self.added + count)), self.now)
                self.added += count
            case 1 | 2:
                for lease in self.frontier.lease(self.now, 2):
                    self.frontier.release(
                        lease, rest(self.random.choice((0.0, 1.0, 9.0))), self.now
                    )
                    self.end(lease)
            case 3 if self.sweeping is None:
                self.sweeping = self.sweep()
            case 4 if self.random.randrange(8) == 0:
                self.frontier = self.open()
            case _:
                self.now += self.random.random()
        for _ in range(self.random.randrange(3)):
            if self.sweeping is not None and next(self.sweeping, None) is None:
                self.sweeping = None
        self.world.end_turn(self.frontier, self.now)
        self.world.check(self.frontier)

    def link(self, number: int) -> Candidate:
        later = self.now + 5.0 if number % 7 == 0 else 0.0
        host = HOSTS[number % 3]
        return candidate(str(number), host=host, level=number % 2, not_before=later)

    def end(self, lease) -> None:
        verdict = self.random.choice((Done(), Done(), PutBack(), RetryAt(self.now + 3.0)))
        self.frontier.finish(lease, verdict, self.now)
        if isinstance(verdict, Done):
            self.done.append(lease.candidate.url)

    def sweep(self) -> Iterator[int]:
        hosts = self.random.choice((None, [HostKey("a"), HostKey("none")]))
        return self.frontier.sweep(hosts, lambda host: host != "b", fate, lambda: self.now)


@pytest.mark.parametrize("seed", range(60))
def test_no_url_is_lost_or_fetched_twice_whatever_a_pass_does(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, Random(seed))
    for _ in range(150):
        life.step()
    frontier, world = life.frontier, life.world
    for _ in frontier.sweep(None, lambda host: True, fate, lambda: life.now):
        world.end_turn(frontier, life.now)
    dead = {letter.candidate.url for letter in world.letters()}
    assert all(map(is_dropped, dead))
    frontier = world.reopen(life.now, Refusing(is_refused))
    for _ in range(100):
        life.now += 10.0
        for lease in drain(frontier, life.now):
            frontier.release(lease, rest(0.0), life.now)
            frontier.finish(lease, Done(), life.now)
            life.done.append(lease.candidate.url)
        world.end_turn(frontier, life.now)
        if frontier.is_over():
            break
    world.check(frontier)
    every = {f"http://{HOSTS[n % 3]}/{n}" for n in range(life.added)}
    refused = {url for url in every if is_refused(url)}
    assert len(life.done) == len(set(life.done)), "nothing is fetched twice"
    assert not any(map(is_refused, life.done))
    gone = every - set(life.done) - dead - refused
    assert all(map(is_forgotten, gone)), "nothing is lost"
    assert not dead & set(life.done)
    assert frontier.counts().refused == len(refused)
    frontier = world.reopen(life.now, ADMIT_ALL)
    back = set()
    while leases := drain(frontier, life.now):
        back |= {lease.candidate.url for lease in leases}
        for lease in leases:
            frontier.release(lease, rest(0.0), life.now)
            frontier.finish(lease, Done(), life.now)
    assert back == refused, "what is refused comes back when the rule has gone"


def test_a_pass_over_all_hosts_has_what_was_added_just_before(tmp_path: Path) -> None:
    world = TurnWorld(MemoryStore(), tmp_path)
    frontier = world.reopen(0.0, ADMIT_ALL)
    frontier.add([candidate("0", host="new")], 0.0)
    touched = list(frontier.sweep(None, lambda host: True, fate, lambda: 0.0))
    assert sum(touched) == 1

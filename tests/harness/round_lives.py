"""Random crawls in rounds, judged by the books of their servers: which URL was asked for in which
round. A crawl is known by its seed."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from msgspec.structs import replace

from crawler.frontier.port import Frontier, FrontierLimits, one
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    Lease,
    Moved,
    Pace,
    PutBack,
    Rest,
    RetryAt,
    Verdict,
)
from crawler.policy.rounds import RoundCaps
from tests.harness.frontiers import TIGHT, EmbeddedWorld, candidate, rest

DOMAINS: Final = ("x.org", "y.org", "z.org")
_MOST_STEPS: Final = 3_000


def link(name: str, host: str, domain: str) -> Candidate:
    """Return a link to a page of *host*, which is in *domain*."""
    return replace(candidate(name, host=f"{host}.{domain}"), domain=domain)


def random_caps(random: Random) -> RoundCaps:
    """Return caps of which one at least is tight."""

    def cap(most: int) -> int | None:
        return random.choice((None, random.randint(1, most)))

    urls, per_host, per_domain = cap(12), cap(4), cap(8)
    if urls is per_host is per_domain is None:
        per_host = 2
    return RoundCaps(urls=urls, per_host=per_host, per_domain=per_domain, rounds=10_000)


def _two(*_: object) -> int:
    return 2


@dataclass
class RoundBooks:
    """What the servers have seen, and what it proves."""

    caps: RoundCaps
    asked: Counter[tuple[int, str]] = field(default_factory=Counter)  # by round and host or domain
    in_all: Counter[int] = field(default_factory=Counter)
    latest: int = 0  # round

    def note(self, lease: Lease) -> None:
        """Note that the URL of *lease* was perhaps asked for."""
        number, found = lease.round, lease.candidate
        assert number > 0, "a lease has its round"
        self.in_all[number] += 1
        self.asked[number, found.host] += 1
        self.asked[number, found.domain] += 1
        caps = self.caps
        assert caps.urls is None or self.in_all[number] <= caps.urls
        assert caps.per_host is None or self.asked[number, found.host] <= caps.per_host
        assert caps.per_domain is None or self.asked[number, found.domain] <= caps.per_domain

    def note_lease(self, lease: Lease, others: list[Lease]) -> None:
        """Note that *lease* was taken beside the open *others*."""
        assert lease.round >= self.latest, "rounds come one after another"
        assert all(other.round == lease.round for other in others), "rounds do not overlap"
        self.latest = lease.round


def crawl_in_rounds(world: EmbeddedWorld, seed: int, limits: FrontierLimits = TIGHT) -> RoundBooks:
    """Crawl some sites in *world* with random caps, kills and verdicts, to the end."""
    random = Random(seed)
    caps = random_caps(random)
    world.limits = dataclasses.replace(limits, rounds=caps)
    books, now = RoundBooks(caps), 0.0
    frontier: Frontier = world.reopen(now)
    left = random.randint(5, 60)  # URLs to be found yet
    open_: dict[int, Lease] = {}
    waiting = 0

    def find(some: int) -> None:
        nonlocal left, waiting
        found = []
        for _ in range(min(some, left)):
            left -= 1
            found.append(link(str(left), random.choice("ab"), random.choice(DOMAINS)))
        waiting += len(found)
        frontier.add(found, now, at_once=True)

    find(random.randint(1, 20))
    for _ in range(_MOST_STEPS):
        match random.choices(("lease", "end", "time", "kill"), (5, 5, 3, 0.2))[0]:
            case "lease":
                at_once = random.choice((one, _two))
                for lease in frontier.lease(now, random.randint(1, 4), per_host=at_once):
                    books.note_lease(lease, list(open_.values()))
                    open_[lease.id] = lease
            case "end" if open_:
                lease = open_.pop(random.choice(sorted(open_)))
                verdict = random_verdict(random, lease, now)
                if not (isinstance(verdict, PutBack) and not verdict.was_asked):
                    books.note(lease)
                waiting -= isinstance(verdict, Done | Dead)
                frontier.release(lease, rest(random.choice((0.0, 1.0, 6.0))), now)
                frontier.finish(lease, verdict, now)
                find(random.randint(0, 2))
            case "time":
                now += random.choice((0.5, 2.0, 10.0))
            case "kill":
                for lease in open_.values():  # the server may have seen each of them
                    books.note(lease)
                open_.clear()
                world.check(frontier)
                frontier = world.reopen(now)
        if not open_:
            frontier.end_dry_round(now)
            if not waiting and not left:
                return books
            if not waiting:
                find(1)
    raise AssertionError(f"{waiting} URLs are left of seed {seed}, {caps}")


def random_verdict(random: Random, lease: Lease, now: float) -> Verdict:
    kinds = ("done", "retry", "back", "asked", "moved", "dead")
    match random.choices(kinds, (8, 1, 2, 1, 1, 1))[0]:
        case "retry":
            return RetryAt(now + 3.0)
        case "back":
            return PutBack(is_first=random.random() < 0.5)
        case "asked":
            return PutBack(was_asked=True)
        case "moved":
            found = lease.candidate
            name = f"moved-{lease.id}"
            return Moved(replace(link(name, "a", found.domain), chain=(found.key,)))
        case "dead":
            return Dead("by the test")
    return Done()


def fetch_round(
    frontier: Frontier, now: float, rest_s: Callable[[Pace], float] | None = None
) -> list[str]:
    """Fetch all that the round may have, one URL after another, and return the URLs in order. A
    host rests as *rest_s* says by its pace; None: not at all, and the clock stands still."""
    urls: list[str] = []
    number = 0
    for _ in range(_MOST_STEPS):
        if not (leases := frontier.lease(now, 1)):
            wake_at = frontier.wake_at()
            if wake_at is None or (wake_at > now and rest_s is None):
                break
            now = max(now, wake_at)
            continue
        (lease,) = leases
        is_next = bool(number) and lease.round != number
        number = lease.round
        rested = rest(0.0) if rest_s is None else Rest(rest_s(lease.pace), lease.pace)
        frontier.release(lease, rested, now)
        frontier.finish(lease, PutBack() if is_next else Done(), now)
        if is_next:
            break
        urls.append(lease.candidate.url)
    return urls

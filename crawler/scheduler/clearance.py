"""What a lease is used for: its page, the robots.txt that must come first, or nothing.

Rule: asked when the lease is taken, never when a link is found. A page is fetched only under a
verdict that allows it, and if its pattern still brings something. A robots.txt that redirects to
another host waits for that host's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from crawler.core.types import Candidate, Dead, Done, Purpose, PutBack, Verdict
from crawler.core.url import authority_of
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import Allowed, Disallowed, RobotsCache, Unreachable
from crawler.policy.robots_fetch import REFUSED, RobotsFetch
from crawler.policy.yields import Go, Stopped, Yields
from crawler.scheduler.flights import Flight
from crawler.scheduler.probes import Probes, Said

# How long a host is left alone while its robots.txt waits for another host's turn (guess).
HOP_WAIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for *url* under this lease."""

    url: str


@dataclass(frozen=True, slots=True)
class Unfetched:
    """Nothing is asked: the lease ends with *verdict*, its host rests *rest_s*."""

    verdict: Verdict
    reason: str
    rest_s: float = 0.0
    hop: Candidate | None = None  # a robots.txt to be found on another host


class Clearance:
    def __init__(
        self,
        robots: RobotsCache,
        hop: Callable[[str, str], Candidate | Refusal],
        yields: Yields,
        probes: Probes | None = None,
    ) -> None:
        """*hop* makes the candidate of a robots.txt: its URL, and whose it is. *probes*: None,
        nothing is asked but what was found."""
        self._robots = robots
        self._hop = hop
        self._yields = yields
        self._probes = probes
        self._hopping: set[str] = set()  # authorities whose robots.txt waits elsewhere

    def of(self, flight: Flight, now: float) -> Fetch | Unfetched:
        """Decide, and note on *flight* what it is for."""
        candidate = flight.lease.candidate
        if candidate.purpose is Purpose.ROBOTS:
            flight.purpose, flight.authority = Purpose.ROBOTS, candidate.authority
            return Fetch(candidate.url)
        go = self._yields.of(candidate, now)
        if isinstance(go, Stopped):
            return Unfetched(Done(), go.reason)
        verdict = self._robots.verdict(candidate.url, now)
        match verdict:
            case Allowed(crawl_delay_s):
                flight.crawl_delay_s = crawl_delay_s
                probe = self._probe(flight, now)
                if go is Go.TRY and probe is None:
                    self._yields.trying(candidate, now)
                return Fetch(probe or candidate.url)
            case Disallowed(rule):
                return Unfetched(Done(), f"robots.txt: {rule}")
            case Unreachable(_, reason):
                return Unfetched(Dead(f"robots.txt unreachable: {reason}"), "robots unreachable")
        flight.purpose, flight.authority = Purpose.ROBOTS, authority_of(candidate.url)
        return self._fetch_robots(flight, verdict.url, now)

    def learn(self, flight: Flight, fetch: RobotsFetch, now: float, rest_s: float) -> None:
        """What came of a lease that was used for a robots.txt; its host rests *rest_s* now."""
        self._hopping.discard(flight.authority)
        self._robots.learn(flight.authority, fetch, now, rest_s)
        flight.crawl_delay_s = self._robots.rules(flight.authority).crawl_delay_s

    def learned_elsewhere(self, authority: str) -> None:
        """Another worker has put its record. If that waits for a host of its own, nobody here has
        asked for it there."""
        self._hopping.discard(authority)
        self._robots.forget(authority)

    def _probe(self, flight: Flight, now: float) -> str | None:
        """What is asked in place of its URL, if its host is to be asked something first."""
        host = flight.lease.candidate.host
        probe = self._probes.wanted(host) if self._probes else None
        if probe is None or self._probes is None:
            return None
        if not isinstance(self._robots.verdict(probe.url, now), Allowed):
            self._probes.learn(host, probe.kind, Said(None), now)
            return None
        flight.purpose, flight.authority = Purpose.PROBE, probe.kind
        return probe.url

    def _fetch_robots(self, flight: Flight, url: str, now: float) -> Fetch | Unfetched:
        found = self._hop(url, flight.authority)
        if isinstance(found, Refusal):
            self._robots.learn(flight.authority, RobotsFetch(url, error=REFUSED), now)
            return Unfetched(PutBack(), "robots.txt leads where we may not go")
        if found.host == flight.lease.candidate.host:
            return Fetch(url)
        fresh = flight.authority not in self._hopping
        self._hopping.add(flight.authority)
        waits = "its robots.txt waits for another host"
        return Unfetched(PutBack(), waits, HOP_WAIT_S, found if fresh else None)

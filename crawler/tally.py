"""The figures of a run: what is counted, for the progress line, the summary and Scrapy's stats.

Rule: bounded. Hosts are counted one by one only as long as there are few; no host name ever
becomes a stats key.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from scrapy.statscollectors import StatsCollector

from crawler.core.outcome import Outcome
from crawler.core.types import Added, Purpose
from crawler.policy.retry import RETRIED
from crawler.scheduler.flights import Flight

# Beyond this the least busy half is forgotten: the top ten of a crawl are far above it.
_MAX_HOSTS: Final = 20_000
_DEAD_KEPT: Final = 5  # of this run's dead letters, to be shown at its end


class Tally:
    """Implements scheduler.landing.Tally."""

    def __init__(self, stats: StatsCollector) -> None:
        self._stats = stats
        # As in the stats, which may be a class of the user's that keeps nothing.
        self.counted: Counter[str] = Counter()
        self.pages = 0  # answers that were kept, whatever their status
        self.duplicates = 0
        self.errors = 0  # fetches that failed, each try
        self.bytes = 0  # of bodies, as they crossed the wire
        self.by_host: Counter[str] = Counter()
        self.dead: list[Outcome] = []  # the first few

    def count(self, key: str, by: int = 1) -> None:
        if by:
            self.counted[key] += by
            self._stats.inc_value(f"crawler/{key}", by)

    def added(self, added: Added) -> None:
        self.count("links/new", added.new)
        self.count("links/seen", added.seen)
        self.count("links/over_budget", added.over_budget)

    def landed(self, flight: Flight, outcome: Outcome) -> None:
        self.count(f"fate/{outcome.fate}")
        if flight.purpose is not Purpose.PAGE:
            self._count_beside(flight)
            return
        if outcome.status is not None:
            self.count(f"status/{outcome.status // 100}xx")
            self.bytes += outcome.size
            self.count("bytes", outcome.size)
        elif outcome.fate == "done" and outcome.reason.startswith("robots.txt: "):
            self.count("robots/disallowed")
        elif outcome.fate == "done" and outcome.reason.startswith("pattern "):
            self.count("patterns/unfetched")
        if outcome.fate in ("retry", "dead"):
            self._count_error(flight, outcome)
        if is_page(outcome):
            self.pages += 1
            self.count("pages")
            self._count_host(outcome.host)
        if outcome.reason == "duplicate":
            self.duplicates += 1
            self.count("duplicates")

    def _count_beside(self, flight: Flight) -> None:
        """What is no page. Without an answer it only waited for the turn of another host."""
        is_robots = flight.purpose is Purpose.ROBOTS
        self.count("robots/fetched", int(is_robots and flight.answer is not None))

    def _count_error(self, flight: Flight, outcome: Outcome) -> None:
        kind = error_kind(flight, outcome)
        self.errors += 1
        self.count(f"error/{kind}")
        if kind == "robots_unreachable":
            self.count("robots/unreachable")
        if outcome.fate == "dead" and len(self.dead) < _DEAD_KEPT:
            self.dead.append(outcome)

    def _count_host(self, host: str) -> None:
        self.by_host[host] += 1
        if len(self.by_host) > _MAX_HOSTS:
            self.by_host = Counter(dict(self.by_host.most_common(_MAX_HOSTS // 2)))


def is_page(outcome: Outcome) -> bool:
    """An answer that stands: neither a redirect nor one that is tried again."""
    return outcome.status is not None and outcome.fate in ("done", "dead")


def error_kind(flight: Flight, outcome: Outcome) -> str:
    """One word for what went wrong; there are few of them."""
    if flight.broken:
        return "broken"  # an error in a callback or a pipeline
    if flight.answer is not None and flight.answer.error:
        return flight.answer.error
    if outcome.status in RETRIED:
        return f"status_{outcome.status}"
    if outcome.status is not None and 300 <= outcome.status < 400:
        return "redirects"
    return "robots_unreachable" if outcome.reason.startswith("robots.txt ") else "other"

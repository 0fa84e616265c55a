"""The figures of a run: what is counted, for the progress line, the summary and Scrapy's stats.

Rule: bounded. Hosts are counted one by one only as long as there are few; no host name ever
becomes a stats key.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from scrapy.statscollectors import StatsCollector

from crawler.core.outcome import Outcome
from crawler.core.types import Purpose
from crawler.scheduler.flights import Flight

# Beyond this the least busy half is forgotten: the top ten of a crawl are far above it.
_MAX_HOSTS: Final = 20_000


class Tally:
    """Implements scheduler.landing.Tally."""

    def __init__(self, stats: StatsCollector) -> None:
        self._stats = stats
        self.pages = 0  # answers that were kept, whatever their status
        self.duplicates = 0
        self.errors = 0  # fetches that failed, each try
        self.bytes = 0  # of bodies, as they crossed the wire
        self.by_host: Counter[str] = Counter()

    def count(self, key: str, by: int = 1) -> None:
        if by:
            self._stats.inc_value(f"crawler/{key}", by)

    def landed(self, flight: Flight, outcome: Outcome) -> None:
        self.count(f"fate/{outcome.fate}")
        if flight.purpose is not Purpose.PAGE:
            self.count("robots/fetched")
            return
        if outcome.status is not None:
            self.count(f"status/{outcome.status // 100}xx")
            self.bytes += outcome.size
            self.count("bytes", outcome.size)
        elif outcome.fate in ("retry", "dead") and outcome.seconds:
            self.count(f"error/{flight.answer.error if flight.answer else 'unknown'}")
        self.errors += outcome.fate in ("retry", "dead")
        if is_page(outcome):
            self.pages += 1
            self.count("pages")
            self._count_host(outcome.host)
        if outcome.reason == "duplicate":
            self.duplicates += 1
            self.count("duplicates")

    def _count_host(self, host: str) -> None:
        self.by_host[host] += 1
        if len(self.by_host) > _MAX_HOSTS:
            self.by_host = Counter(dict(self.by_host.most_common(_MAX_HOSTS // 2)))


def is_page(outcome: Outcome) -> bool:
    """An answer that stands: neither a redirect nor one that is tried again."""
    return outcome.status is not None and outcome.fate in ("done", "dead")

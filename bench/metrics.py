"""What the metrics cost a page: `python -m bench.metrics` prints microseconds of a page.

Rule: what is measured is what a crawl calls for each page: the begin of its fetch, the rest of its
host and its verdict. The counters among it are those of the summary.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Final

from scrapy.statscollectors import StatsCollector
from scrapy.utils.test import get_crawler

from crawler.engine.stats import CrawlStats
from crawler.loop.life import Life, Plan
from crawler.model.types import Answer, Candidate, HostKey, Lease, Outcome, Pace, Rest, Standing

PAGES: Final = 50_000
ROUNDS: Final = 7
MOST_US: Final = 5.0
"""More, and it ends with 1."""


def counting(stats: CrawlStats) -> Callable[[], None]:
    """Return what counts PAGES pages, with all that is counted of them."""
    candidate = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example")
    pace = Pace(1.0, standing=Standing.ANSWERS)
    answer = Answer(0.2, 200)
    plan = Plan(lease=Lease(1, candidate, pace, 1000.0), url=candidate.url)
    life = Life(plan, began_at=1000.01, answer=answer)
    rest = Rest(1.0, pace)
    outcome = Outcome(1001.0, candidate.url, candidate.host, "done", 200, seconds=0.2, size=9_000)

    def count() -> None:
        for _ in range(PAGES):
            stats.count_begun(candidate.host, 1000.01)
            stats.count_rest(candidate.host, [answer], rest, 1000.3)
            stats.count_completed(life, outcome)

    return count


def observing(stats: CrawlStats) -> Callable[[], None]:
    """Return what only observes the three histograms PAGES times."""

    def observe() -> None:
        for _ in range(PAGES):
            stats.fetch_s.observe(0.2)
            stats.gap_over_due_s.observe(0.02)
            stats.verdict_s.observe(1001.0 - 1000.01 - 0.0 - 0.2)

    return observe


def page_us(run: Callable[[], None]) -> float:
    """Return the processor time of a page, in microseconds: the median of ROUNDS."""
    times = []
    for _ in range(ROUNDS):
        began_at = process_time()
        run()
        times.append(process_time() - began_at)
    return median(times) / PAGES * 1e6


def main() -> int:
    stats = CrawlStats(StatsCollector(get_crawler()))
    every, metrics = page_us(counting(stats)), page_us(observing(stats))
    print(f"all counting {every:.2f} us a page, of this the histograms {metrics:.2f} us")
    return int(metrics > MOST_US)


if __name__ == "__main__":
    raise SystemExit(main())

"""Run a whole crawl in this process, as the tests see it."""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import msgspec
from scrapy import Spider, signals
from scrapy.crawler import AsyncCrawlerRunner, Crawler

from crawler.assembly.build import crawl_of
from crawler.data.outcomes import read_outcomes
from crawler.frontier import records as keys
from crawler.frontier.port import FRONTIER
from crawler.frontier.records import FrontierTotals
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import Outcome
from crawler.spiders.web import WebSpider
from tests.harness.commands import PATIENCE_S

QUICK = {
    "ADDONS": {"crawler.addon.Addon": 0},
    "TWISTED_REACTOR_ENABLED": False,
    "CRAWLER_ALLOW_INSIDE": "127.0.0.0/8",  # the web of the tests: its hosts link to each other
    "CRAWLER_MIN_DELAY_S": 0.01,
    "CRAWLER_PACED_MIN_DELAY_S": 0,  # else 0.1, whatever the other is
    "CRAWLER_DELAY_FACTOR": 1,
    "CRAWLER_FSYNC_EVERY_S": 0.1,  # lives that end after a second are to finish pages
    "CRAWLER_BACKOFF_BASE_S": 0.05,
    "CRAWLER_BACKOFF_MAX_S": 0.1,
    "CRAWLER_PAUSE_S": 0.2,
    "CRAWLER_PAUSE_MAX_S": 0.4,
    "CRAWLER_SUMMARY": False,
    "CRAWLER_PROGRESS": "off",
    "LOG_ENABLED": False,
    "LOG_LEVEL": "INFO",
}


@dataclass(frozen=True, slots=True)
class Crawled:
    data: Path
    reason: str
    stats: dict[str, Any]
    spider: Any

    @property
    def outcomes(self) -> list[Outcome]:
        return list(read_outcomes(self.data / "outcomes.jsonl"))

    def fates(self) -> dict[str, list[str]]:
        """What became of each URL, try by try; by its path."""
        found: dict[str, list[str]] = {}
        for outcome in self.outcomes:
            path = "/" + outcome.url.split("/", 3)[3]
            found.setdefault(path, []).append(outcome.fate)
        return found


def crawl(
    data: Path,
    spider: type[Spider] = WebSpider,
    settings: dict[str, Any] | None = None,
    *,
    outcomes: int | None = None,
    **args: Any,
) -> Crawled:
    """Until it ends by itself, or has as many *outcomes*, some minutes at most. A setting of None
    is left as it is by default."""
    chosen = {**QUICK, "CRAWLER_DATA_DIR": str(data), **(settings or {})}
    chosen = {name: value for name, value in chosen.items() if value is not None}

    async def run() -> Crawled:
        runner = AsyncCrawlerRunner(chosen)
        crawler = runner.create_crawler(spider)
        ending = None if outcomes is None else asyncio.create_task(_end_after(outcomes, crawler))
        try:
            await asyncio.wait_for(runner.crawl(crawler, **args), PATIENCE_S)
        finally:
            if ending is not None and not ending.cancel():
                ending.result()
        assert crawler.stats is not None
        stats = crawler.stats.get_stats()
        return Crawled(data, stats.get("finish_reason", ""), stats, crawler.spider)

    return asyncio.run(run())


async def _end_after(outcomes: int, crawler: Crawler) -> None:
    opened = asyncio.Event()
    crawler.signals.connect(opened.set, signals.spider_opened, weak=False)
    await opened.wait()
    counters = crawl_of(crawler).stats.counters
    # Of fates, a URL is also put back, while the robots.txt of its host is fetched.
    while sum(counters[f"fate/{fate}"] for fate in ("done", "moved", "retry", "dead")) < outcomes:
        await asyncio.sleep(0.01)
    assert crawler.engine is not None
    await crawler.engine.close_spider_async(reason="outcomes")


def pass_time(data: Path, seconds: float) -> None:
    """Let the crawl in *data*, which does not run, go on *seconds* later: its clock never goes
    back."""
    with closing(RocksStore(data / FRONTIER)) as store:
        packed = store.get(keys.TOTALS)
        assert packed is not None, f"no crawl has begun in {data}"
        totals = msgspec.msgpack.decode(packed, type=FrontierTotals)
        totals.clock = max(time(), totals.clock) + seconds
        store.write({keys.TOTALS: keys.encode(totals)})

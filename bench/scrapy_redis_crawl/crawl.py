"""The shared crawl to beat: the plain crawl over scrapy-redis 0.9.1.

Rule: nothing of ours. `python -m bench.scrapy_redis_crawl.crawl SEEDS PAGES REDIS_URL` is
bench/plain with the queue and the seen test of scrapy-redis, as its documentation sets them up,
and with what is cheapest where it leaves a choice.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from scrapy.crawler import AsyncCrawlerProcess

from bench.plain.crawl import SETTINGS, Plain

SHARED: Final[dict[str, Any]] = {
    **SETTINGS,
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    # Its scheduler would make this of Scrapy's own filter, which 2.19 no longer lets it.
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    # 1 to 2 ms a page less than its default, a sorted set; breadth first all the same.
    "SCHEDULER_QUEUE_CLASS": "scrapy_redis.queue.FifoQueue",
    # Without the pool, whose lock it would take for every command: 2 ms a page.
    "REDIS_PARAMS": {"single_connection_client": True},
    # Otherwise whoever ends first deletes the queue of all; and deleting would cost it time.
    "SCHEDULER_PERSIST": True,
}


def main(seeds: str, pages: str, redis_url: str) -> None:
    settings = {**SHARED, "CLOSESPIDER_PAGECOUNT": int(pages), "REDIS_URL": redis_url}
    process = AsyncCrawlerProcess(settings)
    # The spider's own start: a RedisSpider would look for its seeds every five seconds only.
    process.crawl(Plain, seeds=seeds)
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Crawlee for Python, as its documentation sets up a fast crawl: Parsel, HTTPX, and storage in
memory.

Rule: nothing of ours. `python -m bench.crawlee_crawl.crawl SEEDS PAGES` follows every link on the
hosts of any seed, stores nothing and keeps no delays. It asks for no robots.txt, as is its default.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.http_clients import HttpxHttpClient
from crawlee.storage_clients import MemoryStorageClient

AT_ONCE = ConcurrencySettings(min_concurrency=64, desired_concurrency=64, max_concurrency=100)


async def crawl(seeds: list[str], pages: int) -> None:
    crawler = ParselCrawler(
        http_client=HttpxHttpClient(),
        storage_client=MemoryStorageClient(),
        concurrency_settings=AT_ONCE,
        max_requests_per_crawl=pages,
        max_request_retries=0,
    )

    @crawler.router.default_handler
    async def follow(context: ParselCrawlingContext) -> None:
        await context.enqueue_links(strategy="all")

    await crawler.run(seeds)


def main(seeds: str, pages: str) -> None:
    asyncio.run(crawl(Path(seeds).read_text().split(), int(pages)))


if __name__ == "__main__":
    main(*sys.argv[1:])

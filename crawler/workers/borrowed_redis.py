"""The Redis of a crawl by many workers of this machine, for somebody who looks into it.

Rule: while the crawl runs it is the crawl's; at rest it is started for as long as it takes, and no
crawl begins meanwhile.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crawler.config.settings import SharedSettings
from crawler.data.data_dir import InheritedLock
from crawler.shared.address import RedisAddress
from crawler.workers.redis_server import FOLDER, URL, OwnRedis
from crawler.workers.supervisor import share_lock


def has_own_redis(data_dir: Path) -> bool:
    return (data_dir / FOLDER / URL).exists()


@contextmanager
def borrow_redis(data_dir: Path, shared: SharedSettings) -> Iterator[RedisAddress]:
    """Raises CrawlerError: it cannot be started."""
    redis = OwnRedis(data_dir / FOLDER, shared, _tell)
    lock = InheritedLock.take(share_lock(data_dir))
    if lock is None:
        yield redis.address
        return
    try:
        asyncio.run(redis.open())
        yield redis.address
    finally:
        asyncio.run(redis.close())
        lock.close()


def _tell(said: str) -> None:
    print(said, file=sys.stderr)

"""Give a command access to the crawl's own redis-server in a data directory.

Rule: if no crawl runs, the server is started for the time of the command, under the lock of the
crawl, so that no crawl begins meanwhile.
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
def open_own_redis(data_dir: Path, shared: SharedSettings) -> Iterator[RedisAddress]:
    """Yield the address of the server, and start it if no crawl runs. Raises CrawlerError if it
    cannot be started."""
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


def _tell(message: str) -> None:
    print(message, file=sys.stderr)

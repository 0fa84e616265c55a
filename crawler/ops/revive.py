"""Put dead letters back: in a data directory, through the crawl that has it in use if there is one,
or in a crawl that workers share, be they at work or not."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from crawler import rules
from crawler.core.config import Config
from crawler.core.errors import DataDirError
from crawler.core.types import Candidate
from crawler.ops.why import Namer, refuse_other_identity
from crawler.policy.robots_cache import RobotsCache
from crawler.scheduler import dead_letters
from crawler.scheduler.frontier import TwoTierFrontier
from crawler.storage.inspection import Named
from crawler.storage.local import retry_requests
from crawler.storage.local.datadir import DataDir, holder, read_format
from crawler.storage.local.records import RobotsRecords
from crawler.storage.local.rocks import RocksStore
from crawler.storage.redis.ops import Ops, shard_of
from crawler.storage.redis.visit.revival import Revival
from crawler.storage.redis.visit.visit import Visit

PATIENCE_S: Final = 30.0  # for a crawl that looks every second; it may be starting, or ending
_LOOK_S: Final = 0.1


def put_back(path: Path, config: Config, url: str | None, now: float) -> int:
    """How many of them wait again; *url* None: all. A crawl that has the directory in use does it.
    Raises DataDirError: it is none, or that crawl does not answer."""
    kept = read_format(path)  # or a mistyped directory would be made
    named = _named(url, config, kept.key_seed)
    if holder(path) is not None:
        answered = _asked_of_crawl(path, named)
        if answered is not None:
            return answered
    chosen = _chooser(named)
    data = DataDir(path, rules.identity_of_urls(config))
    try:
        store = RocksStore(data.frontier)
        try:
            return _put_back(store, config, chosen, now)
        finally:
            store.close()
    finally:
        data.close()


def _asked_of_crawl(path: Path, named: Named | None) -> int | None:
    """What the crawl at work has put back. None: it ended without an answer."""
    file = retry_requests.ask(path, None if named is None else named.key)
    deadline = time.monotonic() + PATIENCE_S
    while (answered := retry_requests.take_answer(file)) is None:
        at_work = holder(path)
        if at_work is None:
            file.unlink(missing_ok=True)
            return retry_requests.take_answer(file)
        if time.monotonic() > deadline:
            raise DataDirError(
                f"the crawl in {path} (process {at_work}) has not answered for {PATIENCE_S:g} s."
                " The request stays: it, or the next run, puts the dead letters back"
            )
        time.sleep(_LOOK_S)
    return answered


def put_back_shared(visit: Visit, config: Config, url: str | None) -> int:
    """How many of them wait again; *url* None: all. Raises a Fault, or ConfigError."""
    refuse_other_identity(visit.where, visit.format.identity, config, is_shared=True)
    named = _named(url, config, visit.format.key_seed)
    number = len(visit.shards)
    ops = Ops("", number, rules.frontier_rules(config, None), config.shared.lease_s)
    shards = [shard_of(named.domain, number)] if named else visit.shards
    return Revival(visit, ops).put_back(shards, _chooser(named))


def _named(url: str | None, config: Config, key_seed: int) -> Named | None:
    return None if url is None else Namer(config, key_seed).named(url)


def _chooser(wanted: Named | None) -> Callable[[Candidate], bool]:
    return lambda each: wanted is None or each.key == wanted.key


def _put_back(
    store: RocksStore, config: Config, chosen: Callable[[Candidate], bool], now: float
) -> int:
    frontier = TwoTierFrontier(store, rules.frontier_rules(config, None), now)
    agent = config.identity.user_agent_name
    robots = RobotsCache(RobotsRecords(store), agent, config.robots)
    now = max(now, frontier.clock)
    return sum(dead_letters.put_back(store, frontier, robots, chosen, lambda: now))

"""Put dead letters back, in a data directory that no crawl has in use."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

from crawler import rules
from crawler.core.config import Config
from crawler.core.types import Candidate
from crawler.scheduler.dead_letters import BATCH, Reviver, dead_letters
from crawler.scheduler.frontier import TwoTierFrontier
from crawler.storage.local.datadir import DataDir, read_format
from crawler.storage.local.rocks import RocksStore


def put_back(path: Path, config: Config, chosen: Callable[[Candidate], bool], now: float) -> int:
    """How many of the *chosen* ones wait again. Raises DataDirError: it is in use, or none."""
    read_format(path)  # or a mistyped directory would be made
    data = DataDir(path, rules.identity_of_urls(config))
    try:
        store = RocksStore(data.frontier)
        try:
            return _put_back(store, config, chosen, now)
        finally:
            store.close()
    finally:
        data.close()


def _put_back(
    store: RocksStore, config: Config, chosen: Callable[[Candidate], bool], now: float
) -> int:
    frontier_rules = rules.frontier_rules(config, None)
    # Opened only to be recovered: leases of a dead process would stand in the way.
    recovered = TwoTierFrontier(store, frontier_rules, now)
    reviver = Reviver(store, frontier_rules)
    letters = (each for each in dead_letters(store) if chosen(each[1].candidate))
    total = 0
    while batch := list(islice(letters, BATCH)):
        reviver.put_back(batch, max(now, recovered.clock))
        total += len(batch)
    return total

"""Which frontier a command is about: the one of a data directory, or one that workers share.

Rule: the settings say, as they say it to a crawl.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from scrapy.settings import BaseSettings

from crawler import rules
from crawler.core.config import Config
from crawler.core.errors import ConfigError
from crawler.ops import looks, looks_text, revive
from crawler.ops.advice import frontier_command, shared_command
from crawler.ops.lent_redis import has_own_redis, lent
from crawler.scheduler.recount import Counter, count_again, write_counted
from crawler.sharing import RedisAddress, redis_address
from crawler.storage.inspection import Inspection
from crawler.storage.local.datadir import DataDir, holder, read_format
from crawler.storage.local.inspection import LocalInspection
from crawler.storage.local.rocks import RocksStore
from crawler.storage.redis import keys
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.visit.inspection import RedisInspection
from crawler.storage.redis.visit.recount import Recount
from crawler.storage.redis.visit.visit import Visit
from crawler.storage.redis.visit.workers import everybody, forget, is_alive
from crawler.wiring import data_dir

Said = tuple[object, Iterable[str]]
"""The same answer twice: for programs, and for people."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a count of everything has found."""

    counters: list[Counter]
    is_repaired: bool
    uncounted: list[int] = field(default_factory=list)  # shards that changed all the time

    @property
    def is_fine(self) -> bool:
        differs = any(each.differs for each in self.counters) and not self.is_repaired
        return not (differs or self.uncounted)


class Frontier(Protocol):
    """All raise CrawlerError: it is not there, not ours, or cannot be asked."""

    def inspection(self) -> AbstractContextManager[Inspection]: ...

    def whole(self) -> Said: ...

    def workers(self) -> Said: ...

    def forget(self, worker: str) -> int:
        """Give up what is on the disk of a dead *worker*: so many links."""

    def put_back(self, url: str | None) -> int:
        """The dead letter of *url*, or all: how many wait again."""

    def check(self, is_repair: bool) -> Checked:
        """Count again; *is_repair*: write what was counted."""

    @property
    def tried_by(self) -> str:
        """Who fetches what was put back."""

    def advice(self, action: str) -> str:
        """What to type for it."""


def frontier_of(settings: BaseSettings, config: Config) -> Frontier:
    path, address = data_dir(settings, config), redis_address(settings, config)
    if address is not None:
        advice = partial(shared_command, settings=settings)
        return InRedis(lambda: nullcontext(address), path, config, advice)
    if has_own_redis(path):
        advice = partial(frontier_command, data_dir=str(path))
        return InRedis(partial(lent, path, config.shared), path, config, advice)
    return InDataDir(path, config)


class InDataDir:
    tried_by = "the crawl that is at work, or the next run"

    def __init__(self, path: Path, config: Config) -> None:
        self._path = path
        self._config = config
        self.inspection = partial(LocalInspection, path)
        self.advice = partial(frontier_command, data_dir=str(path))

    def whole(self) -> Said:
        with self.inspection() as inspection:
            look = looks.FrontierLook(
                *(inspection.counts(), holder(self._path), str(self._path), inspection.arguments)
            )
        return look, looks_text.whole_text(look)

    def workers(self) -> Said:
        raise ConfigError(
            f"the frontier of {self._path} has no workers: they share one that is in Redis"
            " (CRAWLER_FRONTIER_URL)"
        )

    def forget(self, worker: str) -> int:
        raise ConfigError(f"the frontier of {self._path} has no workers, nor one called {worker}")

    def put_back(self, url: str | None) -> int:
        return revive.put_back(self._path, self._config, url, time.time())

    def check(self, is_repair: bool) -> Checked:
        if not is_repair:
            with self.inspection() as inspection:
                return Checked(inspection.count_again(), is_repaired=False)
        read_format(self._path)  # or a mistyped directory would be made
        with (
            closing(DataDir(self._path, rules.identity_of_urls(self._config))) as data,
            closing(RocksStore(data.frontier)) as store,
        ):
            counted = count_again(store)
            write_counted(store, counted)
        return Checked(counted, is_repaired=True)


class InRedis:
    tried_by = "workers that are there, or come"

    def __init__(
        self,
        lent: Callable[[], AbstractContextManager[RedisAddress]],
        path: Path,
        config: Config,
        advice: Callable[[str], str],
    ) -> None:
        """*lent*: where Redis is, for as long; *path*: of the data directory of a worker,
        perhaps."""
        self._lent = lent
        self._path = path
        self._config = config
        self.advice = advice

    @contextmanager
    def inspection(self) -> Iterator[Inspection]:
        with self._visit() as visit, self._inspection(visit) as inspection:
            yield inspection

    def whole(self) -> Said:
        with self._visit() as visit, self._inspection(visit) as inspection:
            known, now = everybody(visit), visit.now()
            look = looks.SharedLook(
                inspection.counts(),
                visit.where,
                workers=sum(is_alive(worker, now) for worker in known),
                outbox=sum(worker.outbox for worker in known),
                arguments=inspection.arguments,
            )
        return look, looks_text.shared_text(look)

    def workers(self) -> Said:
        with self._visit() as visit:
            now = visit.now()
            found = looks.workers(everybody(visit), now)
        return found, looks_text.workers_text(found, now)

    def forget(self, worker: str) -> int:
        with self._visit() as visit:
            return forget(visit, worker).outbox

    def put_back(self, url: str | None) -> int:
        with self._visit() as visit:
            return revive.put_back_shared(visit, self._config, url)

    def check(self, is_repair: bool) -> Checked:
        with self._visit() as visit:
            recount = Recount(visit)
            if is_repair:
                shared = self._config.shared
                frontier_rules = rules.frontier_rules(self._config, None)
                recount.repair(Ops("", len(visit.shards), frontier_rules, shared.lease_s))
            else:
                recount.count()
        return Checked(recount.counted, is_repair, recount.uncounted)

    def _inspection(self, visit: Visit) -> RedisInspection:
        return RedisInspection(visit, self._path, self._config.robots.robots_max_bytes)

    @contextmanager
    def _visit(self) -> Iterator[Visit]:
        shared, fetch = self._config.shared, self._config.fetch
        opening = (fetch.total_timeout_s, shared.lease_s, keys.SCHEMA)
        with self._lent() as lent_one:
            address = Address.parse(lent_one.url, lent_one.params)
            with Visit(address, shared.frontier_name, opening) as visit:
                yield visit

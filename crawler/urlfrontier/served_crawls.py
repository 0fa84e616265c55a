"""The crawls that a URL Frontier server keeps: a frontier in a folder for each crawlID.

Rule: a crawl is removed by the removal of its folder, which first gets a name of its own: a crash
in between leaves nothing of it that is served.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from crawler.data.data_dir import SERVED, DataDir
from crawler.data.disk_room import DiskRoom
from crawler.data.frontier_work import FrontierWork
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import CrawlerError
from crawler.urlfrontier.served_frontier import ServedFrontier

_REMOVED: Final = ".removed"  # how the name of a folder ends that is being removed
_PAUSED: Final = "paused"  # a file, while nothing is leased
_DUE_SLICE: Final = 512  # URLs that come due in one call: 10 ms
_MAX_REST_S: Final = float(1 << 32)  # a lease is as long as the client says


def served_limits(limits: FrontierLimits) -> FrontierLimits:
    """Return *limits* as they are where other crawlers crawl: these decide which URLs there are."""
    return replace(
        limits,
        lists_urls=True,
        due_slice=_DUE_SLICE,
        max_rest_s=_MAX_REST_S,
        budgets=None,
        max_urls_per_domain=None,
        max_urls_per_host=None,
        rule_budgets=None,
    )


@dataclass(frozen=True, slots=True)
class _OpenCrawl:
    frontier: TwoTierFrontier
    work: FrontierWork
    served: ServedFrontier


class ServedCrawls:
    """Implements port.Crawls. The event loop runs."""

    def __init__(
        self,
        data: DataDir,
        limits: FrontierLimits,
        clock: Callable[[], float],
        room: DiskRoom,
        fail: Callable[[CrawlerError], None],
    ) -> None:
        """*fail* is called with an error after which nothing more can be kept."""
        self._folder = data.path / SERVED
        self._folder.mkdir(exist_ok=True)
        self._seed = data.format.key_seed
        self._limits = served_limits(limits)
        self._clock, self._room, self._fail = clock, room, fail
        self._open: dict[str, _OpenCrawl] = {}
        for each in self._folder.iterdir():
            if each.name.endswith(_REMOVED):
                shutil.rmtree(each)

    @property
    def latest(self) -> float:
        """The latest time of any call, in earlier runs too: time must not go back before it."""
        for name in self.names():
            self.open(name)
        return max([each.frontier.clock for each in self._open.values()], default=0.0)

    def names(self) -> list[str]:
        kept = (each.name for each in self._folder.iterdir() if each.is_dir())
        return sorted(unquote(name) for name in kept if not name.endswith(_REMOVED))

    def find(self, crawl_id: str) -> ServedFrontier | None:
        known = self._open.get(crawl_id)
        if known is not None:
            return known.served
        return self.open(crawl_id) if self._path(crawl_id).exists() else None

    def open(self, crawl_id: str) -> ServedFrontier:
        known = self._open.get(crawl_id)
        if known is None:
            work = FrontierWork(lambda _: None, self._room, self._fail, lambda: None)
            path = self._path(crawl_id)
            path.mkdir(exist_ok=True)
            frontier = open_frontier(path, self._limits, self._clock(), background=work)
            work.begin(frontier, self._clock)
            known = _OpenCrawl(frontier, work, ServedFrontier(frontier, self._seed))
            self._open[crawl_id] = known
        return known.served

    async def delete(self, crawl_id: str) -> int:
        served = self.find(crawl_id)
        if served is None:
            return 0
        urls = served.count("", self._clock())
        await self._close(self._open.pop(crawl_id))
        path = self._path(crawl_id)
        removed = path.rename(path.with_name(path.name + _REMOVED))
        await asyncio.to_thread(shutil.rmtree, removed)
        return urls

    def is_active(self) -> bool:
        return not (self._folder / _PAUSED).exists()

    def set_active(self, active: bool) -> None:
        if active:
            (self._folder / _PAUSED).unlink(missing_ok=True)
        else:
            (self._folder / _PAUSED).touch()

    async def close(self) -> None:
        while self._open:
            await self._close(self._open.popitem()[1])

    async def _close(self, crawl: _OpenCrawl) -> None:
        await crawl.work.close()
        crawl.frontier.close()

    def _path(self, crawl_id: str) -> Path:
        return self._folder / quote(crawl_id, safe="").replace(".", "%2E")

"""Acts on a crawl in a data directory: by the process that runs it, or by itself if none does.

Rule: what this process does, it does under the lock of the data directory.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Final

from crawler.archive.cdxj import indexed_urls
from crawler.assembly.build import rules_path
from crawler.data import snapshots
from crawler.data.data_dir import (
    OUTCOMES,
    WARC,
    DataDir,
    lock_owner,
    read_format,
    refuse_remote,
)
from crawler.data.local_stores import RobotsRecords
from crawler.data.operator_files import (
    AUDIT,
    Act,
    ActResult,
    Audit,
    OperatorFiles,
    RulesFile,
)
from crawler.data.outcomes import read_outcomes
from crawler.data.snapshots import Snapshot
from crawler.frontier import dead_letters
from crawler.frontier.open import frontier_limits, open_frontier
from crawler.frontier.port import FRONTIER, SEEN
from crawler.frontier.reader import (
    FrontierReader,
    RecountedCounter,
    correct_counters,
    count_again,
)
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.seen_repair import repair_seen
from crawler.model.types import ConfigError, DataDirError
from crawler.model.url import fetch_form, key_of_check
from crawler.operate.acts import chosen_letters, count_waiting
from crawler.operate.client import FrontierCheck, NoCrawl, SeenUrls, ask, ask_to_freeze
from crawler.operate.operator import Operator
from crawler.operate.verbs import ActAnswer, ActRequest, WaitingCount
from crawler.policy.admission import identity_of_urls
from crawler.policy.robots_cache import RobotsCache
from crawler.view.identity import UrlIdentifier
from crawler.view.local import LocalView
from crawler.view.place import CrawlPlace, known_urls

NEED_QUEUES: Final = ("level", "drop", "retry")
"""Verbs that do something to waiting URLs or dead letters and nothing else."""
_SEEN_AT_ONCE: Final = 500_000  # URLs: 200 MB
_COUNTS: Final = 3  # of a crawl at work, until nothing is removed meanwhile
_DYING_S: Final = 2.0  # a process that was killed may close its socket before it frees its lock


def snapshot_of(path: Path, target: Path) -> Snapshot:
    """Copy the data directory *path*, as it is at one moment, to *target*. If a crawl uses it, that
    crawl does its part. Raises CrawlerError; then *target* is as before."""
    crawl_format = read_format(path)
    refuse_remote(path)
    if not (path / FRONTIER).is_dir():
        raise DataDirError(f"{path} holds no frontier: no crawl has begun in it")
    target = target.absolute()
    snapshots.check_target(target)
    with snapshots.only_snapshot(path):
        name = snapshots.new_name()
        try:
            ask_to_freeze(path, name)
        except NoCrawl:
            _refuse_if_locked(path)
            name = snapshots.new_name()  # a crawl that was killed has perhaps begun the other one
            with (
                closing(DataDir(path, crawl_format.identity)) as data,
                closing(RocksStore(data.frontier)) as store,
            ):
                snapshots.freeze(path, store, name)
        return snapshots.publish(path, name, target)


def _refuse_if_locked(path: Path) -> None:
    """Raise DataDirError if a process that does not answer has locked *path*."""
    deadline = time.monotonic() + _DYING_S
    while (process := lock_owner(path)) is not None:
        if time.monotonic() > deadline:
            raise DataDirError(
                f"the crawl in {path} (process {process}) does not answer: if it is starting or"
                " ending, try again"
            )
        time.sleep(_DYING_S / 20)


class LocalClient:
    """Implements client.CrawlClient for a crawl with its frontier in a data directory."""

    def __init__(self, place: CrawlPlace) -> None:
        self._place = place
        self._path = place.path
        self._config = place.config

    def act(self, request: ActRequest) -> ActAnswer:
        read_format(self._path)  # else a mistyped directory would be created
        if request.verb in NEED_QUEUES:
            refuse_remote(self._path)
        if request.dry_run:
            return count_waiting(self._place, request).answer()
        try:
            return ask(self._path, request)
        except NoCrawl:
            _refuse_if_locked(self._path)
        with closing(DataDir(self._path, identity_of_urls(self._config))) as data:
            rules_file = RulesFile(rules_path(self._config, self._path))
            store = OperatorFiles(rules_file, Audit(self._path / AUDIT))
            levels = len(self._config.frontier.level_shares)
            operator = Operator(store, levels, time.time, ActsAtNextStart(self._place, data, store))
            return asyncio.run(operator.act(request, getpass.getuser()))

    def check(self, is_repair: bool) -> FrontierCheck:
        refuse_remote(self._path)
        if not is_repair:
            return FrontierCheck(self._counted(), is_repaired=False)
        read_format(self._path)  # else a mistyped directory would be created
        with (
            closing(DataDir(self._path, identity_of_urls(self._config))) as data,
            closing(RocksStore(data.frontier)) as store,
        ):
            runs = RunFolder(data.seen)
            fetched = FetchedUrls(data.path, UrlIdentifier(self._config, data.format.key_seed))
            held = FrontierReader(store, runs).admitted_keys()
            rebuilt = repair_seen(store, runs, held, fetched.keys())
            counted = count_again(store, runs)
            correct_counters(store, counted)
        return FrontierCheck(counted, is_repaired=True, rebuilt=rebuilt, unread=fetched.unread)

    def _counted(self) -> list[RecountedCounter]:
        """Count in the store as it was when it was opened: each call of the crawl is one write."""
        for last in (False,) * (_COUNTS - 1) + (True,):
            with LocalView(self._path) as view:
                try:
                    return count_again(view.store, RunFolder(self._path / SEEN))
                except DataDirError:
                    # A crawl at work may have merged the runs, and removed those that were named.
                    if last or lock_owner(self._path) is None:
                        raise
        raise AssertionError

    def take_over(self, index: Path) -> SeenUrls:
        refuse_remote(self._path)
        with (
            closing(DataDir(self._path, identity_of_urls(self._config))) as data,
            closing(
                open_frontier(data.path, frontier_limits(self._config), time.time())
            ) as frontier,
        ):
            identifier = UrlIdentifier(self._config, data.format.key_seed)
            urls = new = unreadable = 0
            forms = (fetch_form(url) for url in indexed_urls(index))
            while some := list(islice(forms, _SEEN_AT_ONCE)):
                found = [identifier.key(url) for url in some if url is not None]
                urls, unreadable = urls + len(found), unreadable + len(some) - len(found)
                new += frontier.mark_seen(found, frontier.clock)
        return SeenUrls(urls, new, unreadable)

    def snapshot(self, folder: Path) -> Snapshot:
        return snapshot_of(self._path, folder)

    def forget(self, worker: str) -> int:
        raise ConfigError(f"the frontier of {self._path} has no workers, nor one called {worker}")


class ActsAtNextStart:
    """Implements operator.Acts while no crawl runs: the next start carries them out."""

    def __init__(self, place: CrawlPlace, data: DataDir, store: OperatorFiles) -> None:
        self._place = place
        self._data = data
        self._store = store

    async def count(self, request: ActRequest) -> WaitingCount:
        raise ConfigError("waiting URLs are counted by the command itself")

    async def take(self, act: Act, undone: Act | None) -> float:
        """Put dead letters back. The next start, which looks into the audit, does all else."""
        if act.verb == "retry":
            put_back = self._put_back(act.targets)
            await self._store.note(ActResult(act.at, act.number, put_back))
        return 0.0

    def _put_back(self, targets: Sequence[str]) -> int:
        config, path = self._place.config, self._data.path
        with closing(open_frontier(path, frontier_limits(config), time.time())) as frontier:
            store, now = frontier.records, frontier.clock
            agent = config.identity.user_agent_name
            robots = RobotsCache(RobotsRecords(store), agent, config.robots)
            is_chosen = chosen_letters(targets, config)[0]
            letters = dead_letters.retry_dead(store, frontier, robots, is_chosen, lambda: now)
            return sum(letters)

    def known(self, urls: Sequence[str]) -> list[str]:
        return known_urls(self._place, urls)


class FetchedUrls:
    """The URLs that the outcome log and the index of the archive name."""

    def __init__(self, path: Path, identifier: UrlIdentifier) -> None:
        """*path*: the data directory."""
        self._path = path
        self._identifier = identifier
        self.unread: list[str] = []  # an index that is damaged, and where

    def keys(self) -> Iterator[int]:
        for outcome in read_outcomes(self._path / OUTCOMES):
            if (url := fetch_form(outcome.url)) is not None:
                key = self._identifier.key(url)
                yield key_of_check(key) if outcome.external else key
        for url in map(fetch_form, self._indexed()):
            if url is not None:
                yield self._identifier.key(url)

    def _indexed(self) -> Iterator[str]:
        for index in sorted((self._path / WARC).glob("*.cdxj")):
            try:
                yield from indexed_urls(index)
            except DataDirError as error:
                self.unread.append(str(error))

"""What the URL Frontier server serves: our own frontiers, one in a folder for each crawlID.

Rule: a served URL waits for the end of its lease among the later ones, and its host rests until
then. So a lease needs nothing in memory: a restart keeps it. An update ends it, and with the last
one of a queue the rest of its host is its delay.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from dataclasses import replace as with_limits
from heapq import heapify, heappop, heappush
from itertools import count, islice
from math import ceil
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.data.data_dir import SERVED, DataDir
from crawler.data.disk_room import DiskRoom
from crawler.data.frontier_work import FrontierWork
from crawler.frontier.lending import Lending, LentUrl
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FRONTIER, FrontierLimits
from crawler.frontier.records import (
    NEVER,
    TOTALS,
    ListedUrl,
    QueueRecord,
    decode_totals,
    number_of,
)
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.sweep import Forget
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    Candidate,
    CrawlerError,
    DataDirError,
    HostKey,
    Standing,
    StoreFull,
    StoreUnavailable,
)
from crawler.urlfrontier.port import (
    PutItem,
    PutStatus,
    QueuedUrl,
    QueueStats,
    Steps,
    UnknownQueue,
)

logger = logging.getLogger(__name__)

DEFAULT_DELAY_S: Final = 1
"""Between the end of the last lease of a queue and the next one, if nothing was said."""
_OF_ALL: Final = HostKey("")  # the queue whose delay is that of all others
_HELD: Final = float(1 << 40)  # until when a queue at its limit rests
_DAY_S: Final = 86_400
_STALE: Final = 1_000  # entries of the heap of leases that may be those of leases that have ended
# Front levels: URLs whose date had passed when it was said, which have priority, and others.
_OVERDUE, _USUAL = 0, 1
_OK, _SKIPPED = PutStatus.OK, PutStatus.SKIPPED
# Queues that were served before, and others: each of them is first in every other call.
_ORDERS: Final = (
    (Standing.ANSWERS, Standing.NEW, Standing.FAILS),
    (Standing.NEW, Standing.ANSWERS, Standing.FAILS),
)
_REMOVED: Final = ".removed"  # how the name of a folder ends that is being removed
_PAUSED: Final = ".paused"  # a file, while nothing is leased; no folder has a dot in its name
MOST_CRAWLS: Final = 100
"""Of a server: each takes some 10 MB of memory, and six files are open."""
_MOST_ARRIVED_BYTES: Final = 16 << 20  # of metadata that wait in memory to be admitted
_PORTION: Final = 256  # URLs that are removed in one step: 2 ms
_DUE_SLICE: Final = 512  # URLs that come due in one call: 10 ms
_MAX_REST_S: Final = float(1 << 32)  # a lease is as long as the client says


class FrontierCrawl:
    """Implements port.ServedCrawl over a frontier that lists its URLs."""

    def __init__(
        self, frontier: TwoTierFrontier, key_seed: int, is_full: Callable[[], bool]
    ) -> None:
        """*key_seed*: of the hash of URLs. *is_full*: the disk has no room."""
        self._frontier = frontier
        self._is_full = is_full
        self._table = frontier.table
        self._seed = key_seed
        self._calls = 0
        self._arrived_bytes = 0  # of metadata, at most
        # The leases that are not over: their ends by URL, and a heap with stale entries.
        self._served: dict[int, float] = {}
        self._ends: list[tuple[float, int]] = []
        for _, queue in self._table.queues():
            for key, until in queue.served.items():
                self._note_served(key, until)

    async def wait_until_durable(self) -> None:
        await self._frontier.wait_until_durable()

    def put(self, items: Sequence[PutItem], now: float) -> Sequence[PutStatus]:
        self._refuse_while_full()
        statuses = [_OK] * len(items)
        today = int(now)
        found: dict[int, Candidate] = {}  # discovered ones
        places: dict[int, int] = {}  # of these, in *items*
        for place, item in enumerate(items):
            if item.refetch_at is None:
                page = self._page(item, _USUAL, today)  # it may be admitted later
                if page.key in found:
                    statuses[place] = _SKIPPED
                else:
                    found[page.key] = page
                    places[page.key] = place
                continue
            if found:
                self._discover(found, places, statuses, now)
                found = {}
            level = _OVERDUE if item.refetch_at < now else _USUAL
            page = self._page(item, level, item.refetch_at or NEVER)
            self._frontier.update([page], now)
            self._end_lease(page, now)
        if found:
            self._discover(found, places, statuses, now)
        self._arrived_bytes += sum([len(item.metadata) for item in items])
        if self._arrived_bytes > _MOST_ARRIVED_BYTES:
            self._admit_arrived(now)
        return statuses

    def _refuse_while_full(self) -> None:
        """Raise StoreFull: what cannot be written would fill the memory, and lease queues to
        nobody."""
        if self._is_full():
            raise StoreFull("the disk has no room: nothing is taken or leased until it has")

    def _page(self, item: PutItem, level: int, not_before: float) -> Candidate:
        url, queue = item.url, item.key
        key = self._key(queue, url)
        if not item.metadata:
            return Candidate(url, key, HostKey(queue), queue, 1, level, not_before)
        return Candidate(
            *(url, key, HostKey(queue), queue, 1, level, not_before), request=item.metadata
        )

    def _key(self, queue: str, url: str) -> int:
        return xxh3_64_intdigest(f"{queue}\0{url}".encode(), self._seed)

    def _discover(
        self,
        found: dict[int, Candidate],
        places: Mapping[int, int],
        statuses: list[PutStatus],
        now: float,
    ) -> None:
        """Add those of *found* that are not known, and note the others as SKIPPED."""
        known, perhaps = self._frontier.known_of(found)
        asked = [key for key in (*known, *perhaps) if self._has_deleted(found[key].host)]
        if asked:
            self._admit_arrived(now)  # what has arrived is in the table then
            undecided = self._frontier.undecided_of(asked)
            for key in asked:
                page = found[key]
                known.discard(key)
                if key in undecided or self._table.get(page.host, key) is not None:
                    known.add(key)
                else:  # it was deleted, or is new
                    del found[key]
                    self._frontier.add([replace(page, needs_seen_test=False)], now)
        for key in known:
            del found[key]
            statuses[places[key]] = _SKIPPED
        if found:
            self._frontier.add_unknown(found, now)

    def _has_deleted(self, host: HostKey) -> bool:
        return self._table.peek_queue(host).has_deleted

    async def lease(
        self,
        now: float,
        *,
        queues: int,
        per_queue: int,
        lease_s: int,
        key: str = "",
        most_bytes: int = sys.maxsize,
    ) -> list[QueuedUrl]:
        self._refuse_while_full()
        self._admit_arrived(now)
        self._in_process(now)  # else those whose leases have ended stay in memory
        until = now + lease_s

        def rest_until(host: HostKey, lent: Sequence[LentUrl]) -> float:
            queue = self._table.queue(host)
            queue.served = {each.key: until for each in lent}  # what was there has ended
            for each in lent:
                self._note_served(each.key, until)
            self._note_end(queue, until)
            return queue.rest_until

        self._calls += 1
        order = _ORDERS[self._calls % len(_ORDERS)]
        lending = Lending(
            per_host=per_queue, until=until, rest_until=rest_until, most_bytes=most_bytes
        )
        lent = self._frontier.lend(now, queues, lending, order, HostKey(key) or None)
        await self.wait_until_durable()
        return [_queued(each.host, each.listed) for each in lent]

    def _admit_arrived(self, now: float) -> None:
        """Admit what was discovered since the last look: in one go that costs half as much."""
        self._arrived_bytes = 0
        self._frontier.admit_arrived(now)

    def _note_served(self, key: int, until: float) -> None:
        self._served[key] = until
        heappush(self._ends, (until, key))
        if len(self._ends) > 2 * len(self._served) + _STALE:
            self._ends = [(end, each) for each, end in self._served.items()]
            heapify(self._ends)

    def _in_process(self, now: float) -> int:
        """Return how many leases of the crawl are not over."""
        while self._ends and self._ends[0][0] <= now:
            until, key = heappop(self._ends)
            if self._served.get(key) == until:
                del self._served[key]
        return len(self._served)

    def _end_lease(self, page: Candidate, now: float) -> None:
        """End the lease of *page*, if it is served, after it was updated, and set the rest of its
        queue."""
        queue = self._table.peek_queue(page.host)
        if self._served.pop(page.key, 0.0) > now:
            queue = self._table.queue(page.host)
            queue.served.pop(page.key, None)
            if not queue.served:
                self._note_end(queue, now)
                self._set_rest(page.host, queue, now)
        if queue.limit:
            self._set_rest(page.host, queue, now)

    def _note_end(self, queue: QueueRecord, at: float) -> None:
        """Note when the last lease of a queue ends."""
        queue.ended_at, queue.rest_until = at, at + self._delay_s(queue)

    def _delay_s(self, queue: QueueRecord) -> float:
        delay_s = queue.delay_s if queue.delay_s >= 0 else self._table.peek_queue(_OF_ALL).delay_s
        return float(DEFAULT_DELAY_S if delay_s < 0 else delay_s)

    def _set_rest(self, host: HostKey, queue: QueueRecord, now: float) -> None:
        is_held = 0 < queue.limit <= queue.done
        until = _HELD if is_held else max(queue.rest_until, queue.blocked_until)
        self._frontier.set_rest(host, until, now)

    # What is asked of queues

    def stats(self, key: str, now: float) -> QueueStats:
        self._admit_arrived(now)
        if not key:
            totals = self._frontier.listed_counts()
            return QueueStats(
                size=totals.urls - totals.done,
                in_process=self._in_process(now),
                completed=totals.done,
                queues=totals.queues,
                active_queues=totals.active_queues,
            )
        queue = self._table.peek_queue(HostKey(key))
        return QueueStats(
            size=queue.urls - queue.done,
            in_process=sum(until > now for until in queue.served.values()),
            completed=queue.done,
            queues=int(queue.urls > 0),
            active_queues=int(queue.urls > queue.done),
        )

    def queues(self, now: float, *, include_inactive: bool) -> Steps[str]:
        self._admit_arrived(now)
        for host, queue in self._table.queues():
            is_wanted = queue.urls > (0 if include_inactive else queue.done)
            is_blocked = not include_inactive and queue.blocked_until > now
            yield host if is_wanted and not is_blocked else None

    def delete_queue(self, key: str, now: float) -> Steps[int]:
        host, urls = HostKey(key), 0
        yield from self._frontier.decide_arrived(now)
        for found in self._portions(host):
            for place, _, listed in found:
                self._forget(host, place, listed)
            urls += len(found)
            yield len(found)
        if urls:
            # Its host may be fetched from, and rests as before.
            queue = self._table.queue(host)
            queue.limit = 0
            if not queue.urls:
                queue.served = {}
            self._set_rest(host, queue, now)

    def purge(self, key: str, days: int, now: float) -> Steps[int]:
        yield from self._frontier.decide_arrived(now)
        before = now - days * _DAY_S
        for found in self._portions(HostKey(key) if key else None):
            old = [each for each in found if each[2].created_at < before]
            for place, host, listed in old:
                self._forget(host, place, listed)
            for host in {host for _, host, _ in old}:  # those at their limits have room again
                self._set_rest(host, self._table.peek_queue(host), now)
            yield len(old)

    def _portions(self, host: HostKey | None) -> Iterator[list[tuple[bytes, HostKey, ListedUrl]]]:
        """Yield what is listed of *host*, or of all, in lists that are read when their turn
        comes."""
        after = b""
        while found := list(islice(self._table.urls(host, after), _PORTION)):
            yield found
            after = found[-1][0]

    def _forget(self, host: HostKey, place: bytes, listed: ListedUrl) -> None:
        url_key = number_of(place)
        self._table.remove(host, url_key, listed)
        self._table.queue(host).served.pop(url_key, None)
        self._served.pop(url_key, None)

    def block(self, key: str, until: int, now: float) -> None:
        host = HostKey(key)
        queue = self._table.queue(host)
        queue.blocked_until = until
        self._set_rest(host, queue, now)

    def set_delay(self, key: str, delay_s: int, now: float) -> Steps[int]:
        queue = self._table.queue(HostKey(key))
        before_s, queue.delay_s = self._delay_s(queue), delay_s
        longest_s = max(before_s, delay_s)
        for host, read in [(HostKey(key), queue)] if key else self._table.queues():
            has_this_delay = bool(key) or read.delay_s < 0
            may_rest = has_this_delay and read.ended_at > 0 and read.ended_at + longest_s > now
            if may_rest:
                current = self._table.queue(host)  # other calls were made since it was read
                self._note_end(current, current.ended_at)
                self._set_rest(host, current, now)
            yield int(may_rest)

    def set_limit(self, key: str, limit: int, now: float) -> None:
        self._admit_arrived(now)
        host = HostKey(key)
        if not self._table.peek_queue(host).urls:
            raise UnknownQueue(f"there is no queue {key!r}")
        queue = self._table.queue(host)
        queue.limit = limit
        self._set_rest(host, queue, now)

    # What is asked of URLs

    def status(self, url: str, key: str, now: float) -> QueuedUrl | None:
        self._admit_arrived(now)
        listed = self._table.get(HostKey(key), self._key(key, url))
        return None if listed is None else _queued(key, listed)

    def urls(self, key: str, now: float) -> Steps[QueuedUrl]:
        self._admit_arrived(now)
        for _, host, listed in self._table.urls(HostKey(key) if key else None):
            yield _queued(host, listed)

    def count(self, key: str, now: float) -> int:
        self._admit_arrived(now)
        if key:
            return self._table.peek_queue(HostKey(key)).urls
        return self._frontier.listed_counts().urls


def _queued(key: str, listed: ListedUrl) -> QueuedUrl:
    refetch_at = 0 if listed.is_done else ceil(listed.due_at)
    return QueuedUrl(listed.url, key, listed.kept, refetch_at, listed.created_at)


def served_limits(limits: FrontierLimits) -> FrontierLimits:
    """Return *limits* as they are where other crawlers crawl: these decide which URLs there are."""
    return with_limits(
        limits,
        lists_urls=True,
        due_slice=_DUE_SLICE,
        max_rest_s=_MAX_REST_S,
        budgets=None,
        max_urls_per_domain=None,
        max_urls_per_host=None,
        rule_budgets=None,
    )


def _stores(data: DataDir) -> list[Path]:
    """Return the folders of the stores of the crawls in *data*, after what a process left that was
    killed while it made or removed one is removed. Raises DataDirError."""
    try:
        for folder in (data.path / SERVED).glob(f"*{_REMOVED}"):
            shutil.rmtree(folder)
        stores = sorted((data.path / SERVED).glob(f"*/{FRONTIER}"))
        for store in stores:
            # Until it has this file, nothing is in it. One with tables and without it is damaged.
            if not (store / "CURRENT").exists() and not any(store.glob("*.sst")):
                shutil.rmtree(store.parent)
    except OSError as error:
        raise DataDirError(f"what is left of a crawl cannot be removed: {error}") from None
    return [store for store in stores if store.exists()]


def latest_time(data: DataDir) -> float:
    """Return the latest time of any call of earlier servers of *data*, epoch seconds: the clock
    must not go back before it. One that cannot be read is left out. Raises DataDirError."""
    latest = 0.0
    for folder in _stores(data):
        with (
            suppress(
                DataDirError, StoreUnavailable
            ),  # as long as its crawl is not asked for, others are served
            closing(RocksStore(folder, read_only=True)) as store,
        ):
            packed = store.get(TOTALS)
            latest = max(latest, decode_totals(packed).clock if packed else 0.0)
    return latest


def purge_served(
    data: DataDir, limits: FrontierLimits, is_meant: Callable[[str], bool], now: float
) -> int:
    """Forget all URLs of the crawls in *data* that *is_meant* is true for, with all that is kept
    with them, and return how many they were. Nothing serves them meanwhile. Raises CrawlerError."""
    urls = 0
    for folder in _stores(data):
        frontier = open_frontier(folder.parent, served_limits(limits), now)
        with closing(frontier):
            frontier.admit_arrived(now)
            before = frontier.listed_counts().urls

            def fate(page: Candidate) -> Forget | None:
                return Forget.FORGET if is_meant(page.url) else None

            for _ in frontier.sweep(None, lambda _: True, fate, lambda: now):
                pass
            for _ in frontier.forget_kept(is_meant, lambda: now):
                pass
            frontier.commit()
            urls += before - frontier.listed_counts().urls
    return urls


@dataclass(frozen=True, slots=True)
class _OpenCrawl:
    frontier: TwoTierFrontier
    work: FrontierWork
    served: FrontierCrawl


class FrontierCrawls:
    """Implements port.Crawls. A crawl is removed by the removal of its folder, which first gets a
    name of its own: a crash in between leaves nothing of it that is served."""

    def __init__(
        self,
        data: DataDir,
        limits: FrontierLimits,
        clock: Callable[[], float],
        room: DiskRoom,
        fail: Callable[[CrawlerError], None],
    ) -> None:
        """*fail* is called with an error after which nothing more can be kept. Raises
        DataDirError."""
        self._folder = data.path / SERVED
        try:
            self._folder.mkdir(exist_ok=True)
        except OSError as error:
            raise DataDirError(f"{self._folder} cannot be made: {error}") from None
        self._seed = data.format.key_seed
        self._limits = served_limits(limits)
        self._clock, self._room, self._fail = clock, room, fail
        self._open: dict[str, _OpenCrawl] = {}
        self._leaving: set[str] = set()  # those that are being deleted
        _stores(data)

    def names(self) -> list[str]:
        kept = (each.name for each in self._folder.iterdir() if each.is_dir())
        names = (unquote(name) for name in kept if not name.endswith(_REMOVED))
        return sorted(name for name in names if name not in self._leaving)

    def find(self, crawl_id: str) -> FrontierCrawl | None:
        known = self._open.get(crawl_id)
        if known is not None:
            return known.served
        is_kept = crawl_id not in self._leaving and self._path(crawl_id).exists()
        return self.open(crawl_id) if is_kept else None

    def open(self, crawl_id: str) -> FrontierCrawl:
        known = self._open.get(crawl_id)
        if known is None:
            if crawl_id in self._leaving:
                raise StoreUnavailable(f"{crawl_id} is being deleted: try again")
            if len(self._open) >= MOST_CRAWLS:
                raise StoreUnavailable(
                    f"{MOST_CRAWLS} crawls are open, which is the most: delete one that is over"
                )
            work = FrontierWork(lambda _: None, self._room, self._fail, lambda: None)
            path = self._path(crawl_id)
            path.mkdir(exist_ok=True)
            try:
                frontier = open_frontier(path, self._limits, self._clock(), background=work)
            except DataDirError as error:  # the others are well
                raise StoreUnavailable(f"the crawl {crawl_id} cannot be opened: {error}") from error
            work.begin(frontier, self._clock)
            known = _OpenCrawl(
                frontier, work, FrontierCrawl(frontier, self._seed, lambda: self._room.is_full)
            )
            self._open[crawl_id] = known
        return known.served

    async def delete(self, crawl_id: str) -> int:
        served = self.find(crawl_id)
        if served is None:
            return 0
        urls = served.count("", self._clock())
        self._leaving.add(crawl_id)
        try:
            await self._close(self._open.pop(crawl_id))
            path = self._path(crawl_id)
            names = (path.with_name(f"{path.name}.{number}{_REMOVED}") for number in count(1))
            removed = path.rename(next(name for name in names if not name.exists()))
            await asyncio.to_thread(shutil.rmtree, removed, ignore_errors=True)
            if removed.exists():
                logger.warning("%s, of a deleted crawl, cannot be removed: remove it", removed)
        except OSError as error:
            raise StoreUnavailable(f"the crawl {crawl_id} cannot be deleted: {error}") from error
        finally:
            self._leaving.remove(crawl_id)
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

"""The URLs of the URL Frontier protocol in dictionaries: the yardstick of our frontier behind the
same server, and the first subject of the protocol's tests.

Rule: nothing is kept on a disk, so what a call costs is what the protocol costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nextafter

from crawler.urlfrontier.port import PutItem, PutStatus, QueuedUrl, QueueStats, Steps, UnknownQueue

DAY_S = 86_400
DELAY_S = 1


@dataclass(slots=True)
class _Url:
    url: str
    metadata: bytes
    refetch_at: int  # 0: completed
    created_at: int
    leased_until: float = 0.0  # 0: it is not leased


@dataclass(slots=True)
class _Queue:
    """The URLs of one key. In `due` are those that are neither completed nor leased, with stale
    entries; in `leased` the leases by their ends, with stale entries."""

    key: str
    urls: dict[str, _Url] = field(default_factory=dict)
    due: list[tuple[int, str]] = field(default_factory=list)
    leased: list[tuple[float, str]] = field(default_factory=list)
    in_process: int = 0
    completed: int = 0
    limit: int = 0
    served_at: float = -inf
    ready_at: float = inf  # under which it is filed

    def expire(self, now: float) -> None:
        """End the leases whose time is over."""
        while self.leased and self.leased[0][0] <= now:
            end, name = heappop(self.leased)
            url = self.urls.get(name)
            if url is not None and url.leased_until == end:
                self._end_lease(url)
                heappush(self.due, (url.refetch_at, name))

    def _end_lease(self, url: _Url) -> None:
        if url.leased_until:
            url.leased_until = 0.0
            self.in_process -= 1

    def put(self, item: PutItem, now: float) -> PutStatus:
        url, date = self.urls.get(item.url), item.refetch_at
        if url is None:
            url = self.urls[item.url] = _Url(item.url, item.metadata, -1, int(now))
        elif date is None:
            return PutStatus.SKIPPED
        else:
            self._end_lease(url)
            self.completed -= url.refetch_at == 0
        url.metadata, url.refetch_at = item.metadata, int(now) if date is None else date
        if url.refetch_at:
            heappush(self.due, (url.refetch_at, url.url))
        else:
            self.completed += 1
        return PutStatus.OK

    def first_due(self) -> float:
        """Return the date of the first URL that is not leased; that or the first end of a lease,
        whichever is earlier."""
        while self.due and not self._is_waiting(*self.due[0]):
            heappop(self.due)
        due, ends = (heap[0][0] if heap else inf for heap in (self.due, self.leased))
        return min(due, ends)

    def _is_waiting(self, date: int, name: str) -> bool:
        url = self.urls.get(name)
        return url is not None and url.refetch_at == date and not url.leased_until

    def lease(self, now: float, most: int, lease_s: int) -> Iterator[QueuedUrl]:
        while self.first_due() <= now and most > 0 and self.due and self.due[0][0] <= now:
            url = self.urls[heappop(self.due)[1]]
            url.leased_until = now + lease_s
            heappush(self.leased, (url.leased_until, url.url))
            self.in_process += 1
            most -= 1
            yield self.queued(url)

    def queued(self, url: _Url) -> QueuedUrl:
        return QueuedUrl(url.url, self.key, url.metadata, url.refetch_at, url.created_at)

    def remove(self, url: _Url) -> None:
        self._end_lease(url)
        self.completed -= url.refetch_at == 0
        del self.urls[url.url]


class DictCrawl:
    """A ServedCrawl. Queues are filed by the time from which they may be served."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._filed: list[tuple[float, int, str]] = []  # with stale entries
        self._filings = 0  # the order of those that are ready at one time
        self._blocked: dict[str, int] = {}
        self._delays: dict[str, int] = {}
        self._default_delay = DELAY_S

    def put(self, items: Sequence[PutItem], now: float) -> Sequence[PutStatus]:
        statuses = []
        for item in items:
            queue = self._queues.get(item.key)
            if queue is None:
                queue = self._queues[item.key] = _Queue(item.key)
            status = queue.put(item, now)
            statuses.append(status)
            if status is PutStatus.OK and queue.ready_at > now:
                self._file(queue)
        return statuses

    def _file(self, queue: _Queue) -> None:
        """File a queue that has changed under the time from which it may be served."""
        delay = self._delays.get(queue.key, self._default_delay)
        ready = max(
            queue.first_due(),
            nextafter(queue.served_at + delay, inf),
            nextafter(self._blocked.get(queue.key, -1), inf),
        )
        if queue.limit and queue.completed >= queue.limit:
            ready = inf
        if ready != queue.ready_at:
            queue.ready_at = ready
            self._filings += 1
            if ready < inf:
                heappush(self._filed, (ready, self._filings, queue.key))

    async def wait_until_durable(self) -> None:
        """All is as durable as it will be."""

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
        found: list[QueuedUrl] = []
        full: list[_Queue] = []
        ready = (
            iter([self._queues[key]] if key in self._queues else []) if key else self._ready(now)
        )
        for queue in ready:
            queue.expire(now)
            if queue.ready_at <= now and queue.in_process < per_queue:
                before = len(found)
                for each in queue.lease(now, per_queue - queue.in_process, lease_s):
                    found.append(each)
                    most_bytes -= len(each.url) + len(each.metadata)
                    if most_bytes <= 0:
                        break
                if len(found) > before:
                    queue.served_at = now
                    queues -= 1
            if not key and queue.ready_at <= now and queue.in_process >= per_queue:
                full.append(queue)
            else:
                self._file(queue)
            if queues == 0 or most_bytes <= 0:
                break
        for queue in full:
            queue.ready_at = inf
            self._file(queue)
        await self.wait_until_durable()
        return found

    def _ready(self, now: float) -> Iterator[_Queue]:
        """Take out the queues that may be served, those that wait for longest first."""
        while self._filed and self._filed[0][0] <= now:
            ready, _, key = heappop(self._filed)
            queue = self._queues.get(key)
            if queue is not None and queue.ready_at == ready:
                yield queue

    def stats(self, key: str, now: float) -> QueueStats:
        size = in_process = completed = active = 0
        queues = self._of(key)
        for queue in queues:
            queue.expire(now)
            waiting = len(queue.urls) - queue.completed
            size += waiting
            active += waiting > 0
            in_process += queue.in_process
            completed += queue.completed
        return QueueStats(size, in_process, completed, len(queues), active)

    def _of(self, key: str) -> list[_Queue]:
        if key:
            return [self._queues[key]] if key in self._queues else []
        return list(self._queues.values())

    def queues(self, now: float, *, include_inactive: bool) -> Steps[str]:
        for queue in list(self._queues.values()):
            if include_inactive or (
                len(queue.urls) > queue.completed and self._blocked.get(queue.key, -1) < now
            ):
                yield queue.key

    def delete_queue(self, key: str, now: float) -> Steps[int]:
        del now
        queue = self._queues.pop(key, None)
        yield 0 if queue is None else len(queue.urls)

    def block(self, key: str, until: int, now: float) -> None:
        del now
        self._blocked[key] = until
        self._file_again(key)

    def set_delay(self, key: str, delay_s: int, now: float) -> Iterator[int]:
        del now
        if key:
            self._delays[key] = delay_s
        else:
            self._default_delay = delay_s
        self._file_again(key)
        return iter(())

    def set_limit(self, key: str, limit: int, now: float) -> None:
        del now
        if key not in self._queues:
            raise UnknownQueue(f"there is no queue {key}")
        self._queues[key].limit = limit
        self._file_again(key)

    def _file_again(self, key: str) -> None:
        for queue in self._of(key):
            self._file(queue)

    def status(self, url: str, key: str, now: float) -> QueuedUrl | None:
        del now
        queue = self._queues.get(key)
        found = queue.urls.get(url) if queue else None
        return queue.queued(found) if queue and found else None

    def urls(self, key: str, now: float) -> Steps[QueuedUrl]:
        del now
        for queue in self._of(key):
            for url in list(queue.urls.values()):
                yield queue.queued(url)

    def count(self, key: str, now: float) -> int:
        del now
        return sum(len(queue.urls) for queue in self._of(key))

    def purge(self, key: str, days: int, now: float) -> Steps[int]:
        removed = 0
        for queue in self._of(key):
            for url in list(queue.urls.values()):
                if url.created_at < now - days * DAY_S:
                    queue.remove(url)
                    removed += 1
            if not queue.urls:
                del self._queues[queue.key]
        yield removed


class DictCrawls:
    """Crawls in the memory of this process."""

    def __init__(self) -> None:
        self._crawls: dict[str, DictCrawl] = {}
        self._active = True

    def names(self) -> list[str]:
        return sorted(self._crawls)

    def find(self, crawl_id: str) -> DictCrawl | None:
        return self._crawls.get(crawl_id)

    def open(self, crawl_id: str) -> DictCrawl:
        return self._crawls.setdefault(crawl_id, DictCrawl())

    async def delete(self, crawl_id: str) -> int:
        crawl = self._crawls.pop(crawl_id, None)
        return 0 if crawl is None else crawl.count("", 0.0)

    def is_active(self) -> bool:
        return self._active

    def set_active(self, active: bool) -> None:
        self._active = active

    async def close(self) -> None:
        """There is nothing to keep."""

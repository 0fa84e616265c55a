"""What the URL Frontier server serves of a shared crawl: the shards of one of its workers, which
fetches nothing itself.

Rule: the crawl decides which URLs there are, which of them are the same, and how long hosts rest;
what a client says can only make a rest longer. A lease is in the records of its shard, so nothing
here has to be remembered: shards come and go. A URL that is put goes to its shard, wherever that
is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Final

from msgspec.structs import replace

from crawler.data.allowed_origins import AllowedOrigins
from crawler.frontier.lending import Lending, LentUrl
from crawler.frontier.records import NEVER, ListedUrl, QueueRecord
from crawler.model.types import Candidate, HostKey, Purpose, StoreUnavailable
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import RobotsFetchResult
from crawler.shared.owned.worker import OwnedWorker
from crawler.urlfrontier.mapping import DEFAULT_CRAWL
from crawler.urlfrontier.port import (
    NotServed,
    PutItem,
    PutStatus,
    QueuedUrl,
    QueueStats,
    Steps,
    UnknownQueue,
)

PAUSE_LOOK_S: Final = 60.0  # between two looks whether a host is still paused by an operator
_OK, _SKIPPED = PutStatus.OK, PutStatus.SKIPPED
_DEPTH: Final = 1  # of a URL that a client has found: it is no seed


class ServedShards:
    """Implements port.ServedCrawl over the shards of a worker. Listed are URLs that wait in them,
    and those that clients had or put."""

    def __init__(
        self,
        worker: OwnedWorker,
        origins: AllowedOrigins,
        min_delay_s: float,
        is_ending: Callable[[], bool],
    ) -> None:
        """*origins* judge what is put. *min_delay_s*: the shortest rest of a host. *is_ending*: the
        worker hands its shards over."""
        self._worker = worker
        self._owned = worker.frontier
        self._frontier = worker.frontier.frontier
        self._table = self._frontier.table
        self._origins = origins
        self._min_delay_s = min_delay_s
        self._is_ending = is_ending

    async def wait_until_durable(self) -> None:
        await self._worker.wait_until_durable()

    def put(self, items: Sequence[PutItem], now: float) -> Sequence[PutStatus]:
        self._refuse_unless_open()
        statuses = [_SKIPPED] * len(items)
        found: dict[int, tuple[int, Candidate]] = {}  # discovered ones: their places in *items*
        for place, item in enumerate(items):
            page = self._judge(item.url)
            if isinstance(page, Refusal):
                continue
            if item.refetch_at is None:
                found.setdefault(page.key, (place, page))
                continue
            self._discover(found, statuses, now)
            found = {}
            self._worker.update([replace(page, not_before=item.refetch_at or NEVER)], now)
            self._end_lease(page, now)
            statuses[place] = _OK
        self._discover(found, statuses, now)
        return statuses

    def _judge(self, url: str) -> Candidate | Refusal:
        """Judge *url* as a link of a page."""
        return self._origins.admission.candidate(url, depth=_DEPTH, hints=Hints(depth=_DEPTH))

    def _refuse_unless_open(self) -> None:
        if self._is_ending():
            raise StoreUnavailable("this worker of the crawl ends")
        if not self._origins.is_complete:
            raise StoreUnavailable("this worker of the crawl does not know all seeds yet")

    def _discover(
        self, found: dict[int, tuple[int, Candidate]], statuses: list[PutStatus], now: float
    ) -> None:
        """Add *found*. Of those whose shards are elsewhere, or that only the disk knows, the status
        does not say whether they are new."""
        if not found:
            return
        known, _ = self._frontier.known_of(found)
        new = {key: each for key, each in found.items() if key not in known}
        for place, _ in new.values():
            statuses[place] = _OK
        if new:
            self._worker.add([page for _, page in new.values()], now)

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
        self._refuse_unless_open()
        if self._origins.operator.paused_until(now) is not None:
            return []
        self._frontier.admit_arrived(now)
        lending = Lending(
            per_host=per_queue,
            until=now + lease_s,
            rest_until=lambda host, lent: self._note_lent(host, lent, now + lease_s),
            held_until=lambda url: self._held_until(url, now),
            set_aside=self._set_aside,
            most_bytes=most_bytes,
        )
        lent = await self._worker.lend(now, queues, lending, host=HostKey(key) if key else None)
        return [_queued(each.host, each.listed) for each in lent]

    def _note_lent(self, host: HostKey, lent: Sequence[LentUrl], until: float) -> float:
        queue = self._table.queue(host)
        queue.served = {each.key: until for each in lent}  # what was there has ended
        queue.ended_at = until
        queue.rest_until = until + self._delay_s(host, lent[0].listed.url, queue)
        return queue.rest_until

    def _held_until(self, url: str, now: float) -> float | None:
        until = self._origins.overrides_of(url).paused_until(now)
        return None if until is None else min(until, now + PAUSE_LOOK_S)

    def _set_aside(self, page: Candidate) -> None:
        """Answer for a robots.txt to which that of a host of another worker redirects: that host is
        forbidden for a while, as if there was no answer."""
        if page.purpose is Purpose.ROBOTS:
            error = "its redirect leads to a host that another crawler fetches from"
            self._owned.send_robots(page.authority, RobotsFetchResult(page.url, error=error))

    def _delay_s(self, host: HostKey, url: str, queue: QueueRecord) -> float:
        """Return how long *host* rests after its last lease: as long as after its last fetch by a
        worker, and as is said from outside."""
        pace, overrides = self._frontier.record_of(host).pace, self._origins.overrides_of(url)
        least_s = self._min_delay_s if overrides.delay_s is None else overrides.delay_s
        return max(least_s, pace.gap_s, pace.crawl_delay_s, queue.delay_s)

    def _end_lease(self, page: Candidate, now: float) -> None:
        """End the lease of *page*, if its shard is here, after it was updated; and with the last
        one of a host begin the rest of that."""
        if not self._owned.owns(page.host):
            return  # its host rests until the lease would have ended
        if self._table.peek_queue(page.host).served.get(page.key, 0.0) > now:
            queue = self._table.queue(page.host)
            del queue.served[page.key]
            if not queue.served:
                queue.ended_at = now
                queue.rest_until = now + self._delay_s(page.host, page.url, queue)
                self._set_rest(page.host, queue, now)

    def _set_rest(self, host: HostKey, queue: QueueRecord, now: float) -> None:
        self._frontier.set_rest(host, max(queue.rest_until, queue.blocked_until), now)

    # What is asked of queues

    def stats(self, key: str, now: float) -> QueueStats:
        if key:
            host = HostKey(key)
            queue, waiting = self._table.peek_queue(host), self._frontier.record_of(host).waiting()
            away = sum(not each.is_done and len(each.place) > 1 for each in self._listed(host))
            return QueueStats(
                size=waiting + away,
                in_process=sum(until > now for until in queue.served.values()),
                completed=queue.done,
                queues=int(waiting + queue.urls > 0),
                active_queues=int(waiting + away > 0),
            )
        counts, places = self._frontier.counts(), self._frontier.host_counts()
        active = places.resting + places.due + sum(places.front)
        leases = (each.served.values() for _, each in self._table.queues())
        return QueueStats(
            size=counts.left,
            in_process=sum(until > now for ends in leases for until in ends),
            completed=counts.done,
            queues=active,
            active_queues=active,
        )

    def queues(self, now: float, *, include_inactive: bool) -> Steps[str]:
        for host in self._frontier.known_hosts():
            is_wanted = include_inactive or (
                self._table.peek_queue(host).blocked_until <= now
                and self._frontier.record_of(host).waiting() > 0
            )
            yield host if is_wanted else None

    def block(self, key: str, until: int, now: float) -> None:
        host = self._own_host(key)
        queue, rest_until = self._table.queue(host), self._frontier.record_of(host).rest_until
        is_own = rest_until != queue.blocked_until  # the crawl's, or that of leases: it is kept
        queue.blocked_until = until
        rest_until = max(rest_until if is_own else queue.rest_until, until)
        self._frontier.set_rest(host, rest_until, now)

    def set_delay(self, key: str, delay_s: int, now: float) -> Steps[int]:
        if not key:
            raise NotServed("the delay of all hosts is CRAWLER_MIN_DELAY_S of the crawl")
        host = self._own_host(key)
        queue = self._table.queue(host)
        queue.delay_s = delay_s
        if queue.ended_at and queue.ended_at + delay_s > queue.rest_until:
            queue.rest_until = queue.ended_at + delay_s
            if queue.rest_until > self._frontier.record_of(host).rest_until:
                self._set_rest(host, queue, now)
        return iter(())

    def _own_host(self, key: str) -> HostKey:
        """Raises UnknownQueue if the shard of that host is elsewhere."""
        host = HostKey(key)
        if not self._owned.owns(host):
            raise UnknownQueue(f"{key} is in a shard of another worker of the crawl")
        return host

    def set_limit(self, key: str, limit: int, now: float) -> None:
        raise NotServed("the crawl has limits of its own: CRAWLER_MAX_URLS_PER_HOST, or a rule")

    def delete_queue(self, key: str, now: float) -> Steps[int]:
        raise NotServed("an operator removes URLs of a shared crawl: frontier drop")

    def purge(self, key: str, days: int, now: float) -> Steps[int]:
        raise NotServed("an operator removes URLs of a shared crawl: frontier drop")

    # What is asked of URLs

    def status(self, url: str, key: str, now: float) -> QueuedUrl | None:
        page = self._judge(url)
        if isinstance(page, Refusal):
            return None
        listed = self._table.get(page.host, page.key)
        return None if listed is None else _queued(page.host, listed)

    def urls(self, key: str, now: float) -> Steps[QueuedUrl]:
        for host in iter([HostKey(key)]) if key else self._frontier.known_hosts():
            yield None
            yield from self._urls_of(host, now)

    def _urls_of(self, host: HostKey, now: float) -> Iterator[QueuedUrl]:
        for page in self._frontier.waiting_of(host):
            if self._table.get(host, page.key) is None:
                yield QueuedUrl(page.url, host, b"", ceil(page.not_before or now), 0)
        for listed in self._listed(host):
            yield _queued(host, listed)

    def _listed(self, host: HostKey) -> Iterator[ListedUrl]:
        return (listed for _, _, listed in self._table.urls(host))

    def count(self, key: str, now: float) -> int:
        if key:
            return sum(1 for _ in self._urls_of(HostKey(key), now))
        return self._frontier.counts().left + self._frontier.listed_counts().done


def _queued(host: HostKey, listed: ListedUrl) -> QueuedUrl:
    refetch_at = 0 if listed.is_done else ceil(listed.due_at)
    return QueuedUrl(listed.url, host, b"", refetch_at, listed.created_at)


class ShardCrawls:
    """Implements port.Crawls: the crawl is DEFAULT, and there is no other."""

    def __init__(self, served: ServedShards) -> None:
        self._served = served
        self._is_active = True

    def names(self) -> list[str]:
        return [DEFAULT_CRAWL]

    def find(self, crawl_id: str) -> ServedShards | None:
        return self._served if crawl_id == DEFAULT_CRAWL else None

    def open(self, crawl_id: str) -> ServedShards:
        if crawl_id != DEFAULT_CRAWL:
            raise NotServed(f"here is one crawl, {DEFAULT_CRAWL}, and no {crawl_id}")
        return self._served

    async def delete(self, crawl_id: str) -> int:
        if crawl_id == DEFAULT_CRAWL:
            raise NotServed("workers share this crawl: it is not for clients to delete")
        return 0

    def is_active(self) -> bool:
        return self._is_active

    def set_active(self, active: bool) -> None:
        self._is_active = active

    async def close(self) -> None:
        """Leave that to the worker."""

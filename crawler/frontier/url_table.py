"""The table of URLs: where each of them is, and what is kept with it.

Rule: a URL that is in the table has the one place that stands there. What else a queue still has
of it is stale, and is dropped when its turn comes. In an ordinary crawl only URLs that were updated
or lent are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.records import (
    BY_WORTH,
    IN_QUEUE,
    NEVER,
    UNDER_LEASE,
    ListedUrl,
    QueueRecord,
    decode_listed,
    decode_queue,
    encode,
)
from crawler.frontier.staging import WriteBatch, records_between
from crawler.model.types import Candidate, HostKey

_KNOWN_QUEUES: Final = 20_000  # whose records are in memory, 300 bytes each


class ListedCounts(NamedTuple):
    """The counts of all URLs in the table."""

    urls: int
    done: int  # of these
    queues: int  # hosts with URLs
    active_queues: int  # hosts with URLs that are not done


class UrlTable:
    """The listed URLs of a frontier, and their queues, one a host."""

    def __init__(self, batch: WriteBatch, *, lists_all: bool) -> None:
        self._batch = batch
        self.lists_all = lists_all
        self._queues: dict[HostKey, QueueRecord] = {}
        self._changed: set[HostKey] = set()  # of these, written by the next commit

    @property
    def is_used(self) -> bool:
        """Whether any URL may be in the table."""
        return self.lists_all or self._batch.totals.listed > 0

    # URLs

    def get(self, host: HostKey, key: int) -> ListedUrl | None:
        packed = self._batch.get(keys.listed(self._batch.shards.of(host), host, key))
        return decode_listed(packed) if packed else None

    def put(self, page: Candidate, listed: ListedUrl, before: ListedUrl | None) -> None:
        """Put *page* into the table, or in the place of what stood there *before*."""
        self._batch.put(self._key(page), encode(listed))
        if before is not None and _waits(before):
            self.queue(page.host).has_changed = True
        if before is None or before.is_done != listed.is_done:
            self._count(page.host, int(before is None), _done(listed) - _done(before))

    def add(self, urls: Sequence[Candidate], now: float) -> None:
        """Note that *urls*, of one host, were admitted: all are listed, or those that were
        before."""
        new = [each for each in urls if each.needs_seen_test] if self.lists_all else []
        if new:
            prefix = keys.listed_of(self._batch.shards.of(new[0].host), new[0].host)
            names = keys.all_numbered(prefix, [each.key for each in new])
            # ListedUrls, which take as long to make as to encode.
            records = [
                encode((each.url, int(min(now, at)), at, IN_QUEUE, each.request))
                for each in new
                for at in (each.not_before or now,)
            ]
            self._batch.put_all(zip(names, records, strict=True))
            self._count(new[0].host, len(new), 0)
        for each in urls:
            if each.needs_seen_test:
                continue
            before = self.get(each.host, each.key)
            if before is not None or self.lists_all:
                due_at = each.not_before or now
                created_at = int(min(due_at, now)) if before is None else before.created_at
                self.put(each, ListedUrl(each.url, created_at, due_at, kept=each.request), before)

    def set_place(self, page: Candidate, place: bytes, due_at: float | None = None) -> None:
        """Note where *page* is, if it is listed. *due_at*: if that has changed."""
        before = self.get(page.host, page.key)
        if before is not None:
            due_at = before.due_at if due_at is None else due_at
            self.put(page, replace(before, place=place, due_at=due_at), before)

    def put_in_queue(self, urls: Iterable[Candidate]) -> None:
        """Note that *urls* wait in their queues, whatever they were before."""
        if self.is_used:
            for each in urls:
                self.set_place(each, IN_QUEUE, each.not_before)

    def take_from_queue(self, page: Candidate, leased: Iterable[int]) -> Candidate | None:
        """Return *page*, whose turn has come, as it is listed, and note that it is leased. Returns
        None if it is stale. *leased*: the keys of URLs that are under a lease."""
        before = self.get(page.host, page.key)
        if before is None:
            return None if self.lists_all else page
        if not _waits(before) or page.key in leased:
            return None
        self._batch.put(self._key(page), encode(replace(before, place=UNDER_LEASE)))
        return page if page.request == before.kept else replace(page, request=before.kept)

    def lend_from_queue(
        self,
        page: Candidate,
        leased: Iterable[int],
        now: float,
        put_later: Callable[[bytes], bytes],
    ) -> ListedUrl | None:
        """List *page*, whose turn has come, in the place that *put_later* returns, which is called
        with what is kept of it. Return what stood here before, or would have stood. Returns None if
        the page is stale. *leased*: the keys of URLs that are under a lease."""
        if self._is_as_added(page):
            before: ListedUrl | None = _added(page)
        else:
            before = self.get(page.host, page.key)
            if before is None and self.lists_all:
                return None
        if before is not None and (not _waits(before) or page.key in leased):
            return None
        stood = before or ListedUrl(page.url, int(now), page.not_before or now, kept=page.request)
        self._batch.put(self._key(page), encode(replace(stood, place=put_later(stood.kept))))
        if before is None:
            self._count(page.host, 1, 0)
        return stood

    def _is_as_added(self, page: Candidate) -> bool:
        """Return whether *page*, whose turn has come, is listed as it was added. What has come due
        since, or was put back, has no date; and a read costs as much as all else of a turn."""
        return self.lists_all and page.not_before > 0 and not self.peek_queue(page.host).has_changed

    def take_from_later(self, key: bytes, page: Candidate) -> bool:
        """Note that *page*, which was among the later URLs under *key*, waits in its queue. Returns
        False if it is stale."""
        before = self.get(page.host, page.key)
        if before is None:
            return not self.lists_all
        if before.place != (BY_WORTH if keys.is_without_date(key) else key[1:]):
            return False
        self._batch.put(self._key(page), encode(replace(before, place=IN_QUEUE)))
        return True

    def remove(self, host: HostKey, key: int, listed: ListedUrl) -> None:
        """Remove a URL from the table."""
        self._batch.delete(keys.listed(self._batch.shards.of(host), host, key))
        self._count(host, -1, -_done(listed))
        queue = self.queue(host)
        queue.has_deleted = queue.has_changed = True

    def urls(
        self, host: HostKey | None = None, after: bytes = b""
    ) -> Iterator[tuple[bytes, HostKey, ListedUrl]]:
        """Yield the listed URLs of *host*, or of all, with their keys, from behind the key
        *after*."""
        prefix = keys.LISTED
        if host is not None:
            prefix = keys.listed_of(self._batch.shards.of(host), host)
        begin, stop = after + b"\0" if after else prefix, keys.prefix_end(prefix)
        for key, packed in records_between(self._batch, begin, stop):
            yield key, host or keys.host_of_listed(key), decode_listed(packed)

    def _key(self, page: Candidate) -> bytes:
        return keys.listed(self._batch.shards.of(page.host), page.host, page.key)

    # Queues

    def peek_queue(self, host: HostKey) -> QueueRecord:
        """Return the queue of *host*; changes to it are not written."""
        known = self._queues.get(host)
        if known is None:
            packed = self._batch.get(self._batch.key(keys.QUEUE, host))
            known = self._queues[host] = decode_queue(packed) if packed else QueueRecord()
            self._trim()
        return known

    def queue(self, host: HostKey) -> QueueRecord:
        """Return the queue of *host* to be changed; the next commit writes it."""
        self._changed.add(host)
        return self.peek_queue(host)

    def _trim(self) -> None:
        """Forget the oldest of very many queues that have not changed: names cost a client
        nothing."""
        if len(self._queues) - len(self._changed) > 2 * _KNOWN_QUEUES:
            unchanged = (host for host in self._queues if host not in self._changed)
            for host in list(islice(unchanged, _KNOWN_QUEUES)):
                del self._queues[host]

    def queues(self) -> Iterator[tuple[HostKey, QueueRecord]]:
        """Yield all queues, those without URLs too."""
        self.stage()
        stop = keys.prefix_end(keys.QUEUE)
        for key, packed in records_between(self._batch, keys.QUEUE, stop):
            yield HostKey(keys.name_in_shard(key)), decode_queue(packed)

    def forget(self, shard: bytes) -> None:
        """Forget what is in memory of the queues of *shard*, which comes or goes."""
        of = self._batch.shards.of
        self._changed = {host for host in self._changed if of(host) != shard}
        self._queues = {host: each for host, each in self._queues.items() if of(host) != shard}

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def stage(self) -> None:
        """Stage the queues that have changed."""
        for host in self._changed:
            self._batch.put(self._batch.key(keys.QUEUE, host), encode(self._queues[host]))
        self._changed.clear()
        self._trim()

    def _count(self, host: HostKey, urls: int, done: int) -> None:
        queue = self.queue(host)
        had, was_active = queue.urls > 0, queue.urls > queue.done
        queue.urls += urls
        queue.done += done
        queues = (queue.urls > 0) - had
        active = (queue.urls > queue.done) - was_active
        self._batch.count_listed(self._batch.shards.of(host), urls, done, queues, active)


def _added(page: Candidate) -> ListedUrl:
    """Return *page* as `UrlTable.add` lists it."""
    return ListedUrl(page.url, int(page.not_before), page.not_before, kept=page.request)


def _waits(listed: ListedUrl) -> bool:
    """Return whether its entry in a queue counts. A lease may have been lost, with its process."""
    return not listed.is_done and listed.place in (IN_QUEUE, UNDER_LEASE)


def _done(listed: ListedUrl | None) -> int:
    return int(listed is not None and listed.due_at == NEVER)

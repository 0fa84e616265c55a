"""The interface between the server of the URL Frontier protocol and what keeps the URLs that it
serves. The tests of the protocol run over every implementation.

Rule: a URL is known by its exact string within (crawlID, key): http://x and http://x/ are two.
Calls return at once, but for those that can be awaited; *now* is epoch seconds. What a call has
changed counts for all calls after it, and is durable when `wait_until_durable`, awaited after it,
returns: acknowledgements are sent after that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from crawler.model.types import CrawlerError


class UnknownQueue(CrawlerError):
    """A crawl has no queue of that key. Caller: answer so."""


class NotServed(CrawlerError):
    """That is not for clients of this server to say or ask. Caller: answer so."""


class PutStatus(IntEnum):
    """What became of an item; the numbers are those of AckMessage.Status."""

    OK = 0
    SKIPPED = 1  # known before, or nothing that can be kept: not to be sent again
    FAIL = 2  # may be sent again


class PutItem(msgspec.Struct, frozen=True, gc=False):
    """A URL that a client puts. It was checked: no text is empty or too long, no date too late."""

    url: str
    key: str  # of its queue
    metadata: bytes  # opaque here; mapping.py reads it
    refetch_at: int | None  # epoch seconds, 0: completed; None: discovered, to be fetched now


class QueuedUrl(msgspec.Struct, frozen=True, gc=False):
    """A URL that is known, as it is served and listed."""

    url: str
    key: str
    metadata: bytes
    refetch_at: int  # epoch seconds; 0: completed
    created_at: int  # epoch seconds


class QueueStats(msgspec.Struct, frozen=True, gc=False):
    """The counts of a queue, or of all queues of a crawl."""

    size: int = 0  # URLs that are not completed, those in process too
    in_process: int = 0  # leased, and the lease is not over
    completed: int = 0
    queues: int = 0
    active_queues: int = 0  # with URLs that are not completed


T = TypeVar("T")
Steps: TypeAlias = Iterator[T | None]
"""What is found in steps of a few milliseconds, None in one that finds nothing. Other calls may be
made between two of them."""


class ServedCrawl(Protocol):
    """The URLs of one crawlID. A key that is not known is a queue without URLs, but for
    `set_limit`."""

    def put(self, items: Sequence[PutItem], now: float) -> Sequence[PutStatus]:
        """Take *items* in their order, and return what became of each. A discovered one that is
        known is SKIPPED and changes nothing. Another replaces date and metadata of its URL, known
        before or not, and ends its lease."""

    async def wait_until_durable(self) -> None:
        """Return when every call made before it is durable. Raises StoreUnavailable if that cannot
        come any more."""

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
        """Take up to *per_queue* due URLs of each of up to *queues* queues, or of that of *key*,
        for *lease_s* seconds, in which they are not taken again unless they are put. Those of a
        queue are one after another, those whose dates had passed when they were put first, then as
        they came. Left out are queues that are blocked, at their limit, in their delay, or of which
        URLs are leased. The URL with which all have *most_bytes* is the last one.
        None are returned when no queue is left; a second call with the same *now* goes on with
        other queues. Durable when this returns. Raises StoreUnavailable."""

    def stats(self, key: str, now: float) -> QueueStats:
        """Return the counts of the queue of *key*; of the crawl, if that is empty."""

    def queues(self, now: float, *, include_inactive: bool) -> Steps[str]:
        """Yield the keys of queues, in an order that stays the same while no queue comes or goes:
        of those with URLs that are not completed and without a block, or of all."""

    def delete_queue(self, key: str, now: float) -> Steps[int]:
        """Remove a queue, and yield how many of its URLs were removed, completed ones too. What was
        put before is removed at the end, and of what is put meanwhile some."""

    def block(self, key: str, until: int, now: float) -> None:
        """Lease no URL of a queue until *until*, epoch seconds; 0 ends the block. It counts for a
        queue that comes later, too."""

    def set_delay(self, key: str, delay_s: int, now: float) -> Steps[int]:
        """Set how long a queue rests after it was served; of all that have no delay of their own,
        if *key* is empty. It counts for a queue that comes later, too, and for those that rest,
        the number of which is yielded."""

    def set_limit(self, key: str, limit: int, now: float) -> None:
        """Serve a queue while fewer than *limit* of its URLs are completed; 0: without a limit.
        Raises UnknownQueue."""

    def status(self, url: str, key: str, now: float) -> QueuedUrl | None:
        """Return what is known of *url*, or None."""

    def urls(self, key: str, now: float) -> Steps[QueuedUrl]:
        """Yield the URLs in an order that stays the same while none comes or goes, completed ones
        too: of the queue of *key*, or of all if that is empty. What other calls change before it
        ends may be missing."""

    def count(self, key: str, now: float) -> int:
        """Return how many `urls` would yield of all."""

    def purge(self, key: str, days: int, now: float) -> Steps[int]:
        """Remove the URLs created more than *days* days ago, of the queue of *key* or of all, and
        yield how many they were."""


class Crawls(Protocol):
    """All crawlIDs of a server. An empty one never comes here: it is called DEFAULT. Calls raise
    NotServed where what is served is not for clients to change so."""

    def names(self) -> list[str]:
        """Return those that are kept, sorted."""

    def find(self, crawl_id: str) -> ServedCrawl | None: ...

    def open(self, crawl_id: str) -> ServedCrawl:
        """Return it, made if there is none."""

    async def delete(self, crawl_id: str) -> int:
        """Remove it, and return how many URLs it had, completed ones too. Durable when this
        returns."""

    def is_active(self) -> bool:
        """Return whether URLs are leased. Whether that is durable is left open."""

    def set_active(self, active: bool) -> None: ...

    async def close(self) -> None:
        """Make everything durable and close it."""

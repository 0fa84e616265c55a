"""What a shared frontier is told when it begins, and who hears of what comes later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from crawler.core.errors import CrawlerError
from crawler.core.types import Added, Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedRules:
    name: str  # of the crawl
    shards: int
    lease_s: float
    heartbeat_s: float
    fetch_s: float  # the longest fetch
    most_leases: int  # fetched at once
    is_sure: bool  # what a server acknowledges is on its disk
    # Makes what the outbox took survive a power cut at this worker, in a thread. None: it may not.
    sync_outbox: Callable[[], None] | None = None
    full_bytes: Callable[[int], int | None]  # of a server's maxmemory: where it is full


class Listener(Protocol):
    def added(self, added: Added) -> None: ...

    def refused(self, lease: Lease) -> None: ...

    def lost(self, leases: Sequence[Lease]) -> None: ...

    def failed(self, error: CrawlerError) -> None: ...

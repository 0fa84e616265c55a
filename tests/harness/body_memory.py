"""The memory that bodies share, with leases for the fetches that use it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scrapy import Request

from crawler.crawl.body_memory import BodyMemory
from crawler.crawl.in_flight import (
    LEASE,
    Fetch,
    InFlight,
)
from crawler.model.types import (
    Candidate,
    HostKey,
    Lease,
    Pace,
)

PLENTY: Final = 1 << 40


class Memory(BodyMemory):
    """A memory whose counts can be read. *are_ours*: whether its leases are still held."""

    def __init__(self, max_bytes: int = PLENTY) -> None:
        self.in_flight = InFlight()
        self.counted: Counter[str] = Counter()
        self.are_ours = True
        super().__init__(max_bytes, self.in_flight, lambda lease: self.are_ours, self._count)

    def leased(self, lease_id: int, **meta: object) -> tuple[Request, Fetch]:
        """Open a fetch: the request of a new lease."""
        host = f"h{lease_id}.example"
        url = f"http://{host}/"
        lease = Lease(lease_id, Candidate(url, lease_id, HostKey(host), host), Pace(), 0.0)
        request, fetch = Request(url, meta={LEASE: lease, **meta}), self.in_flight.add(lease)
        self.in_flight.hand_out(fetch, request)
        return request, fetch

    def end(self, fetch: Fetch) -> None:
        """End the fetch: its page is finished."""
        self.in_flight.remove(fetch)
        self.release(fetch.lease.id)

    def _count(self, key: str, by: int) -> None:
        self.counted[key] += by

"""The memory that bodies share, with leases for the fetches that use it, and their loop."""

from __future__ import annotations

from collections import Counter
from typing import Final

from scrapy import Request

from crawler.content.body_memory import BodyMemory
from crawler.engine.request_meta import LEASE
from crawler.loop.life import Life, Lives, Plan
from crawler.loop.slots import SlotLimits, Slots
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
        self.lives = Lives()
        self.counted: Counter[str] = Counter()
        self.are_ours = True
        super().__init__(max_bytes, lambda lease: self.are_ours, self._count)

    def leased(self, lease_id: int, **meta: object) -> tuple[Request, Life]:
        """Open a fetch: the request of a new lease."""
        host = f"h{lease_id}.example"
        url = f"http://{host}/"
        lease = Lease(lease_id, Candidate(url, lease_id, HostKey(host), host), Pace(), 0.0)
        request = Request(url, meta={LEASE: lease, **meta})
        life = self.lives.add(Plan(lease=lease, url=url))
        self.lives.hand_out(life, request)
        return request, life

    def end(self, life: Life) -> None:
        """End the fetch: its page is finished."""
        self.lives.remove(life)
        self.release(life.lease.id)

    def _count(self, key: str, by: int) -> None:
        self.counted[key] += by


class Leases:
    """As much of a loop as a fetch needs; its leases are held."""

    def __init__(self, lives: Lives) -> None:
        self.lives = lives
        self.slots = Slots(SlotLimits(), lambda: None)
        self.heads: list[tuple[int, bytes | None]] = []

    def may_send(self, life: Life) -> bool:
        return True

    def note_head(self, life: Life, status: int, retry_after: bytes | None) -> None:
        self.heads.append((status, retry_after))

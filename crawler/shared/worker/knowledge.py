"""What the workers of a crawl learn from each other beside URLs, as the frontier of one sees it.

Rule: it is asked for before a lease is used, and sent in the background; no page waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crawler.model.types import Claim, Lease
from crawler.shared.worker.exact_duplicates import SharedDigests
from crawler.shared.worker.near_duplicates import SharedNearest
from crawler.shared.worker.patterns import SharedPatternStats
from crawler.shared.worker.robots import SharedRobots


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKnowledge:
    """Implements frontier.Knowledge."""

    digests: SharedDigests
    nearest: SharedNearest
    robots: SharedRobots
    yields: SharedPatternStats
    robots_replaced: Callable[[str], None]  # another worker's rules of an authority count now

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Of most leases all is known here: then neither asks."""
        for authority in await self.robots.enrich(leases):
            self.robots_replaced(authority)
        await self.yields.enrich(leases)

    def claimed(self, lease_id: int, claim: Claim) -> None:
        self.digests.claimed(lease_id)
        self.nearest.claimed(lease_id, claim)

    async def tick(self) -> None:
        self.nearest.tell()

    def ending(self) -> None:
        self.nearest.tell()

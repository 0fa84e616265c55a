"""What the workers of a crawl share beside URLs: duplicates, robots.txt, patterns of URLs.

Rule: it is read before a lease is used, and sent in the background; no page waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crawler.model.types import Claim, Lease
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.near_duplicates import SharedNearDuplicates
from crawler.shared.worker.patterns import SharedPatternStats
from crawler.shared.worker.robots import SharedRobots


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedKnowledge:
    """Implements frontier.Knowledge."""

    digests: SharedDuplicates
    nearest: SharedNearDuplicates
    robots: SharedRobots
    pattern_stats: SharedPatternStats
    robots_replaced: Callable[[str], None]  # called if another worker's robots.txt is used from now

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Fetch what others know of *leases*. For most leases all is known here, and no call is
        made."""
        for authority in await self.robots.enrich(leases):
            self.robots_replaced(authority)
        await self.pattern_stats.enrich(leases)

    def claimed(self, lease_id: int, claim: Claim) -> None:
        self.digests.claimed(lease_id)
        self.nearest.claimed(lease_id, claim)

    async def tick(self) -> None:
        self.nearest.send_rows()

    def ending(self) -> None:
        self.nearest.send_rows()

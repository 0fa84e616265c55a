"""What the person who crawls hears of the shared frontier: what is waited for, and what ends the
crawl.

Rule: what waiting mends is told once, and the crawl waits; what no waiting mends ends it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.core.types import Lease
from crawler.storage.redis import keys
from crawler.storage.redis.connection.faults import ForeignData
from crawler.storage.redis.worker.shared_rules import Listener
from crawler.storage.redis.worker.troubles import Troubles

logger = logging.getLogger(__name__)


class Tidings:
    def __init__(self, listener: Listener, name: str) -> None:
        """*name*: of the crawl."""
        self.is_hopeless = False
        self._listener = listener
        self._name = name
        self._troubles = Troubles()

    def failed(self, error: CrawlerError) -> None:
        """No waiting mends it."""
        self.is_hopeless = True
        self._listener.failed(error)

    def faulted(self, fault: CrawlerError) -> None:
        """Of a server."""
        if isinstance(fault, StoreUnavailable):
            self._troubles.meet("the servers of the frontier answer", str(fault))
        else:
            self.failed(fault)

    def crowded(self, full: StoreUnavailable) -> None:
        """A server has no memory for our links."""
        self._troubles.meet("the servers of the frontier take links", str(full))

    def paused(self, full: StoreUnavailable) -> None:
        """Nor has our disk room for them."""
        self._troubles.meet(
            "there is room on this worker's disk",
            f"no room for links on this worker's disk: {full}",
        )

    def disk_full(self, full: StoreUnavailable) -> None:
        """Nor for pages."""
        self._troubles.meet(
            "there is room on this worker's disk",
            f"no room on this worker's disk, so nothing is fetched: {full}",
        )

    def awaits(self, outboxes: Mapping[str, int]) -> None:
        """*outboxes*: links on the disks of silent workers. Nothing else keeps the crawl from its
        end."""
        for name, links in outboxes.items():
            self._troubles.meet(
                f"there is word of the worker {name}, or nobody waits for it any more",
                f"nothing is left to fetch but what the worker {name} found ({links} links on its"
                " disk), and it is not heard of. Start it again with its data directory; if its"
                f" disk is lost: scrapy frontier workers --forget {name}",
            )

    def gone(self, shard: int) -> None:
        """Its keys are not there any more."""
        self.failed(
            ForeignData(
                f"Redis has lost the crawl: the key {keys.totals(self._name, shard)} is not there"
                " any more. Somebody removed it, or maxmemory-policy made Redis do so. Begin"
                " another crawl"
            )
        )

    def lost(self, leases: Sequence[Lease]) -> None:
        """They ended before they were finished."""
        logger.warning(
            "Leases that ended before they were finished, now given to others: %d", len(leases)
        )
        self._listener.lost(leases)

    def look(self) -> None:
        """To be called now and then: is something over?"""
        self._troubles.look()

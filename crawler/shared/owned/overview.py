"""The figures of a whole crawl whose shards workers own, as one of them read them last, and whether
it is over.

Rule: what Redis has decides; what this worker knows more only says that it is not over.
"""

from __future__ import annotations

from collections.abc import Callable

from crawler.frontier.records import FrontierTotals
from crawler.model.choices import LaterVisits
from crawler.model.counts import Counts
from crawler.shared.client import Nodes
from crawler.shared.owned.readings import ShardRest, is_over, read_rests, read_totals


class CrawlReading:
    """Reads the shards once a second: their counters, and when this worker has nothing to do, what
    is left."""

    def __init__(
        self,
        nodes: Nodes,
        now_s: Callable[[], float],
        visits: Callable[[], LaterVisits],
    ) -> None:
        """*now_s*: the steady clock. *visits*: which later visits this run makes."""
        self._visits = visits
        self._nodes = nodes
        self._now_s = now_s
        self._totals: list[FrontierTotals] = []
        self._answered_at_s = now_s()
        self.is_over = False
        self.is_anything_left = True
        """Whether the last look found something, or none was made."""
        self.outboxes: frozenset[str] = frozenset()
        """Workers with links on their disks, by the last look."""

    def counts(self) -> Counts:
        """Return the counters when all shards last answered, but for what workers only hold in
        memory: active hosts, and URLs of which it is not decided whether they are new."""
        return sum((each.counts(0, 0) for each in self._totals), Counts())

    @property
    def silent_s(self) -> float:
        """Seconds since all shards last answered."""
        return self._now_s() - self._answered_at_s

    def mark_unfinished(self) -> None:
        """Note that this worker has something to do, or has added something."""
        self.is_over, self.is_anything_left = False, True

    async def read(self, *, is_busy: bool, is_elsewhere: Callable[[], bool]) -> None:
        """Read the shards. *is_busy*: this worker has something to do. *is_elsewhere* returns
        whether URLs may come from feeds, or from a worker that is starting. Raises the Fault of a
        server that does not answer."""
        asked_at_s = self._now_s()
        self._totals = await read_totals(self._nodes)
        self._answered_at_s = asked_at_s
        if is_busy:
            self.mark_unfinished()
            return
        rests = await self._read_rests()
        if rests is None:
            self.is_over = False
            return
        self.is_anything_left = any(each.is_left for each in rests)
        self.outboxes = frozenset[str]().union(*(each.outboxes for each in rests))
        if self.is_anything_left or is_elsewhere():
            self.is_over = False
            return
        # At once: each owner writes to its shards now and then, to keep its leases.
        again = await self._read_rests()
        self.is_over = again is not None and not is_elsewhere() and is_over(rests, again)

    async def _read_rests(self) -> list[ShardRest] | None:
        nodes = self._nodes
        return await read_rests(nodes, nodes.name, nodes.shards, self._visits())

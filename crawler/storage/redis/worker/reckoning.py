"""After trouble a shard and a worker may differ in what each knows of the other: they are made to
agree.

Rule: what the shard may have forgotten is told again first; then it names the leases that it knows
to be ours. Those that never reached us go back; those that it has forgotten are not begun, because
their hosts may be another's. Until that is known, no lease of the shard is begun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from crawler.core.types import Lease
from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.replies import read_ids
from crawler.storage.redis.worker.holdings import Holdings
from crawler.storage.redis.worker.journal import Journal
from crawler.storage.redis.worker.runs import Runs

RETRY_S: Final = 0.5


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


class Reckoning:
    def __init__(
        self, nodes: Nodes, ops: Ops, holdings: Holdings, journal: Journal, runs: Runs
    ) -> None:
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._journal = journal
        self._runs = runs
        self._suspects: set[int] = set()
        self._again: dict[int, list[Call]] = {}
        self._at = 0.0  # of the next, monotonic
        self.tell: Callable[[Call], None] = lambda _: None
        """Takes what the shard could not be told now."""

    @property
    def is_open(self) -> bool:
        return bool(self._suspects)

    def suspect(self, shard: int) -> None:
        """It may hold leases of ours that never reached us."""
        self._suspects.add(shard)

    def changed(self, shard: int, alive_at: float) -> None:
        """Its server died after *alive_at* and came back: it may have forgotten much."""
        self._again.setdefault(shard, []).extend(self._journal.recent(shard, alive_at))
        self._holdings.doubt(shard)
        self._suspects.add(shard)
        self._at = 0.0

    async def settle(self) -> list[Lease]:
        """To be called only where no lease is on its way to us. Returns the leases that were
        forgotten, or have ended: they are ours no more."""
        asked_at = monotonic()
        if not self._suspects or asked_at < self._at:
            return []
        self._at = asked_at + RETRY_S
        # What is suspected from here on, while we wait, is asked once more.
        shards, self._suspects = sorted(self._suspects), set()
        again = {shard: self._again.pop(shard, []) for shard in shards}
        calls = [[*again[shard], self._ops.mine(shard)] for shard in shards]
        answers = iter(await self._nodes.run([call for part in calls for call in part]))
        forgotten: list[Lease] = []
        backs: list[Call] = []
        for shard in shards:
            self._told_again(again[shard], answers, asked_at)
            forgotten += self._compared(shard, next(answers), asked_at, backs)
        if backs:
            await self._nodes.run(backs)  # and looked at again: whether they went
        return forgotten

    def _told_again(self, calls: Sequence[Call], answers: Iterator[Any], asked_at: float) -> None:
        for call in calls:
            reply = next(answers)
            if isinstance(reply, FAULTS):
                self.tell(call)
            else:
                self._journal.acknowledged([call], reply[0], asked_at, monotonic())

    def _compared(self, shard: int, reply: Any, asked_at: float, backs: list[Call]) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._suspects.add(shard)
            return []
        self._runs.heard(shard, reply[0], asked_at)
        if shard in self._suspects:  # it died once more, or this answer is older than the suspicion
            return []
        known, held = read_ids(reply, shard), self._holdings.ids(shard)
        if orphans := known - held:
            backs.append(self._ops.hand_back(shard, orphans))
            self._suspects.add(shard)
        self._holdings.trust(shard)
        return self._holdings.forget(shard, held - known)

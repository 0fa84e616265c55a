"""The whole crawl at a glance, once a second: what all shards say of themselves, and whether it is
over.

Rule: it is over only when every shard was asked, in one look; see ending.py. A worker that has work
asks for the totals only, which is the cheaper question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from crawler.core.types import Counts
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.connection.faults import FAULTS, Fault
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.totals import Totals
from crawler.storage.redis.worker.ending import Ending, Look
from crawler.storage.redis.worker.runs import Runs

logger = logging.getLogger(__name__)


class Nodes(Protocol):
    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]: ...

    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


class Overview:
    def __init__(self, nodes: Nodes, ops: Ops, name: str, runs: Runs) -> None:
        self._nodes = nodes
        self._asks = [(n, ("HGETALL", keys.totals(name, n))) for n in range(ops.shards)]
        self._looks = [ops.look(n) for n in range(ops.shards)]
        self._runs = runs
        self._totals: list[Totals] = []
        self._ending = Ending()
        self.is_anything_left = True
        """In the shards, as far as was looked."""
        self.outboxes: frozenset[str] = frozenset()
        """Workers with links on their disks, as far as was looked."""

    @property
    def is_over(self) -> bool:
        return self._ending.is_over

    def begin_again(self) -> None:
        """Something was added: it is not over, whatever the last looks have found."""
        self._ending.begin_again()
        self.is_anything_left = True

    def counts(self) -> Counts:
        """Of the last look that heard everybody."""
        return Totals.summed(self._totals)

    async def look(self, is_busy: bool, is_elsewhere: Callable[[], bool]) -> Fault | None:
        """*is_busy*: this worker has something to do, so the end need not be looked for.
        *is_elsewhere*: something waits in a feed, or with a worker that is only beginning. Returns
        what was in the way."""
        asked_at = monotonic()
        if is_busy:
            totals = await self._nodes.commands(self._asks)
            runs = [
                each if isinstance(each, FAULTS) else Totals.of_reply(each).run for each in totals
            ]
            fault = self._heard(runs, asked_at)
            if fault is None:
                self._totals = [Totals.of_reply(reply) for reply in totals]
            self.begin_again()
            return fault
        replies = await self._nodes.run(self._looks)
        runs = [each if isinstance(each, FAULTS) else each[0] for each in replies]
        fault = self._heard(runs, asked_at)
        if fault is None:
            self._looked([Look.of_reply(reply) for reply in replies], is_elsewhere())
        return fault

    def _looked(self, shards: Sequence[Look], is_elsewhere: bool) -> None:
        was_over = self.is_over
        self._totals = [each.totals for each in shards]
        self.is_anything_left = any(each.is_anything_left for each in shards)
        self.outboxes = frozenset[str]().union(*(each.outboxes for each in shards))
        self._ending.look(shards, is_elsewhere)
        drifted = [n for n, each in enumerate(shards) if each.totals.unfinished]
        if self.is_over and not was_over and drifted:
            logger.warning(
                "Nothing is left to fetch, but counters of the frontier say that something is"
                " (shards %s): scrapy frontier check shows what differs, --repair mends it",
                ", ".join(map(str, drifted[:10])),
            )

    def _heard(self, runs: Sequence[Any], asked_at: float) -> Fault | None:
        fault: Fault | None = None
        for shard, run in enumerate(runs):
            if isinstance(run, FAULTS):
                fault = fault or run
            else:
                # Before its totals count: it may have forgotten what we are about to tell again.
                self._runs.heard(shard, run, asked_at)
        return fault

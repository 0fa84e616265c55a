"""The whole crawl at a glance, once a second: what all shards say of themselves, and whether it is
over.

Rule: it is over only when every shard was asked, in one look; see ending.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol

from crawler.core.types import Counts
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.faults import FAULTS, Fault
from crawler.storage.redis.totals import Totals
from crawler.storage.redis.worker.ending import Ending
from crawler.storage.redis.worker.runs import Runs


class Nodes(Protocol):
    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]: ...


class Overview:
    def __init__(self, nodes: Nodes, name: str, shards: int, runs: Runs) -> None:
        self._nodes = nodes
        self._asks = [(n, ("HGETALL", keys.totals(name, n))) for n in range(shards)]
        self._runs = runs
        self._totals: list[Totals] = []
        self._ending = Ending()

    @property
    def is_over(self) -> bool:
        return self._ending.is_over

    @property
    def is_anything_left(self) -> bool:
        """In the shards."""
        return any(each.unfinished for each in self._totals)

    def begin_again(self) -> None:
        """Something was added: it is not over, whatever the last looks have found."""
        self._ending.begin_again()

    def counts(self) -> Counts:
        """Of the last look that heard everybody."""
        return Totals.summed(self._totals)

    async def look(self, is_elsewhere: Callable[[], bool]) -> Fault | None:
        """*is_elsewhere*: something waits in an outbox, a feed, or with a worker that is only
        beginning. Returns what was in the way."""
        asked_at = monotonic()
        replies = await self._nodes.commands(self._asks)
        fault: Fault | None = None
        for (shard, _), reply in zip(self._asks, replies, strict=True):
            if isinstance(reply, FAULTS):
                fault = fault or reply
            else:
                # Before its totals count: it may have forgotten what we are about to tell again.
                self._runs.heard(shard, Totals.of_reply(reply).run, asked_at)
        if fault is None:
            self._totals = [Totals.of_reply(reply) for reply in replies]
            self._ending.look(self._totals, is_elsewhere())
        return fault

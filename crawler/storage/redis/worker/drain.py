"""From the outbox back into the shards, as their servers have room: better levels first.

Rule: what a server acknowledged stays in the outbox until it is surely on the server's disk: the
page it stands on is finished, so nobody else would bring it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

from crawler.core.errors import StoreFull
from crawler.core.types import Candidate
from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS, OutOfMemory
from crawler.storage.redis.ops import BATCH, Ops
from crawler.storage.redis.parts import parts_of
from crawler.storage.redis.replies import read_added
from crawler.storage.redis.worker.runs import Runs
from crawler.storage.redis.worker.sending import Events

AT_ONCE: Final = 1000
"""Links of a shard that are told and not yet dropped: 16,000 a second over 64 shards."""
ROUNDS: Final = 8  # of a look


class Batch(Protocol):
    @property
    def queue(self) -> Any: ...

    @property
    def links(self) -> list[Candidate]: ...


class Outbox(Protocol):
    def put(self, found: Sequence[Candidate]) -> None: ...

    def head(self, limit: int, resting: Container[int] = ()) -> Any: ...

    def drop(self, batch: Any) -> None: ...

    def __len__(self) -> int: ...


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class _Told:
    batch: Batch
    run: bytes  # of the server that acknowledged it
    sure_at: float  # monotonic


class Drain:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        outbox: Outbox,
        is_full: Callable[[int], bool],
        events: Events,
        runs: Runs,
        sure_s: float,
    ) -> None:
        """*sure_s*: after so long, what a server acknowledged is on its disk, if it still lives."""
        self._nodes = nodes
        self._ops = ops
        self._outbox = outbox
        self._is_full = is_full
        self._events = events
        self._runs = runs
        self._sure_s = sure_s
        self._told: dict[int, _Told] = {}

    async def some(self, now: float) -> None:
        """What can go now, a bounded part of it."""
        self._drop_sure()
        if not len(self._outbox):
            return
        shards = range(self._ops.shards)
        resting = {shard for shard in shards if shard in self._told or self._is_full(shard)}
        for _ in range(ROUNDS):
            batch = self._outbox.head(AT_ONCE, resting)
            if batch is None:
                return
            resting.add(batch.queue.shard)
            await self._tell(batch, now)
        self._drop_sure()

    async def _tell(self, batch: Batch, now: float) -> None:
        parts = parts_of(batch.links, BATCH)
        calls = [call for part in parts for call in self._ops.add(part, now)]
        asked_at = monotonic()
        replies = await self._nodes.run(calls)
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if faults:  # told again, all of it: what was seen is seen
            if isinstance(faults[0], OutOfMemory):
                self._events.crowded(faults[0])
            return
        for reply in replies:
            self._events.added(read_added(reply))
            self._runs.heard(batch.queue.shard, reply[0], asked_at)
        # Of two runs: the older, so that it shows as ended.
        sure_at = monotonic() + self._sure_s
        self._told[batch.queue.shard] = _Told(batch, replies[0][0], sure_at)

    def _drop_sure(self) -> None:
        for shard, told in list(self._told.items()):
            is_sure = not self._sure_s or self._runs.lives(shard, told.run, told.sure_at)
            if is_sure is None:
                continue
            if is_sure and not self._is_dropped(told.batch):
                continue
            del self._told[shard]

    def _is_dropped(self, batch: Batch) -> bool:
        """False: a full disk takes no deletions either. It stays told, and is tried again."""
        try:
            self._outbox.drop(batch)
        except StoreFull as full:
            self._events.paused(full)
            return False
        return True

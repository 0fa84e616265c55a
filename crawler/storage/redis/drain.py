"""From the outbox back into the shards, as their servers have room: better levels first."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any, Final, Protocol

from crawler.core.types import Added, Candidate
from crawler.storage.redis.calls import Call
from crawler.storage.redis.faults import FAULTS
from crawler.storage.redis.ops import BATCH, Ops
from crawler.storage.redis.replies import read_added

ROUNDS: Final = 200  # of a look: 10,000 links


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


class Drain:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        outbox: Outbox,
        is_full: Callable[[int], bool],
        added: Callable[[Added], None],
        now: Callable[[], float],
    ) -> None:
        self._nodes = nodes
        self._ops = ops
        self._outbox = outbox
        self._is_full = is_full
        self._added = added
        self._now = now

    async def some(self) -> None:
        """Until nothing more can go, or for so many rounds."""
        if not len(self._outbox):
            return
        resting = {shard for shard in range(self._ops.shards) if self._is_full(shard)}
        for _ in range(ROUNDS):
            batch = self._outbox.head(BATCH, resting)
            if batch is None:
                return
            (call,) = self._ops.add(batch.links, self._now())
            (reply,) = await self._nodes.run([call])
            if isinstance(reply, FAULTS):
                resting.add(batch.queue.shard)
                continue
            self._added(read_added(reply))
            self._outbox.drop(batch)

"""What a session leaves behind comes back at once, when it is known that it is over.

Rule: only who knows that says so: the worker itself, or who holds its data directory. For all
others a session ends with its time.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Protocol

from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...


async def bury(
    nodes: Nodes,
    ops: Ops,
    session: str,
    but: Container[int] = (),
    archived: Mapping[int, Collection[int]] | None = None,
) -> int:
    """How many leases came back. A shard that cannot be asked gives them back when they end, and
    so do those of *but*. *archived*: of shards, the numbers of the leases whose answers are in the
    archive; of other shards all may be."""
    looked = archived or {}
    total, shards = 0, [shard for shard in range(ops.shards) if shard not in but]
    while shards:
        replies = await nodes.run([ops.bury(each, session, looked.get(each)) for each in shards])
        back = [0 if isinstance(reply, FAULTS) else int(reply[1]) for reply in replies]
        total += sum(back)
        shards = [shard for shard, n in zip(shards, back, strict=True) if n]
    return total

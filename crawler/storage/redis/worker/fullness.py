"""Which servers are full: above their high-water mark new links wait on the workers' disks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from crawler.storage.redis.connection.faults import OutOfMemory, Refused
from crawler.storage.redis.connection.nodes import Memory

LOW_PART: Final = 0.95  # of the mark: below it links flow again, so that it does not flutter


class Nodes(Protocol):
    async def memory(self) -> Mapping[str, Memory]: ...

    def node_of(self, shard: int) -> str: ...


class Fullness:
    def __init__(self, nodes: Nodes, full_bytes: Callable[[int], int | None]) -> None:
        self._nodes = nodes
        self._full_bytes = full_bytes
        self._full: set[str] = set()

    @property
    def full(self) -> list[OutOfMemory]:
        """What is to be said of each."""
        return [
            OutOfMemory(
                f"Redis at {node} is above its high-water mark (CRAWLER_REDIS_MAX_BYTES). New links"
                " wait on the disk of the workers"
            )
            for node in sorted(self._full)
        ]

    def is_full(self, shard: int) -> bool:
        """O(1)."""
        return bool(self._full) and self._nodes.node_of(shard) in self._full

    async def look(self) -> None:
        """Ask each server; one that does not answer stays as it was. Raises Refused."""
        memories = await self._nodes.memory()
        refuse_eviction(memories)
        for node, memory in memories.items():
            mark = self._full_bytes(memory.max_bytes)
            if mark is not None and memory.used_bytes >= mark:
                self._full.add(node)
            elif mark is None or memory.used_bytes < LOW_PART * mark:
                self._full.discard(node)


def refuse_eviction(memories: Mapping[str, Memory]) -> None:
    """Raises Refused: a server would throw away what is known, and nobody would notice. Only what
    expires (volatile-*) may go: hints, of which none is needed."""
    for node, memory in memories.items():
        if memory.max_bytes and memory.policy.startswith("allkeys"):
            raise Refused(
                f"Redis at {node} has the maxmemory-policy {memory.policy}: when its memory is full"
                " it would throw parts of the crawl away. Set maxmemory-policy noeviction"
            )

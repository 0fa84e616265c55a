"""Which server serves which shard: one serves all, or the map of a cluster says so.

Rule: the map follows what servers say and is never waited for. A server whose calls fail makes it
doubtful, and then another is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import Fault, Unreachable
from crawler.storage.redis.connection.node import Node
from crawler.storage.redis.connection.topology import NOBODY, Owners, read_moved, read_slots, single
from crawler.storage.redis.connection.wire import Wire

LOOK_EVERY_S: Final = 1.0  # at the map, while a server is down


class Servers:
    def __init__(
        self, address: Address, node: Callable[[Address], Node], hashes: list[int]
    ) -> None:
        """*hashes*: the hash slot of each shard."""
        self._address = address
        self._new_node = node
        self._hashes = hashes
        self._nodes: dict[str, Node] = {}
        self._owners: Owners = single(NOBODY)
        self.of_shard = [NOBODY] * len(hashes)
        self._is_cluster = False
        self._is_doubtful = False
        self._looked_s = 0.0

    @property
    def serving(self) -> list[Node]:
        """Those that have shards."""
        return [node for node in self._nodes.values() if node.opening.served]

    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def of_hash(self, hashed: int) -> Node | None:
        """None: nobody serves it, as far as the cluster told."""
        return self._nodes.get(self._owners[hashed])

    def named(self, name: str) -> Node | None:
        return self._nodes.get(name)

    async def open(self) -> None:
        """Raises a Fault."""
        first = self._node(str(self._address))
        wire = await first.connected(patience_s=None)
        if not isinstance(wire, Wire):
            raise wire.with_traceback(None)
        self._is_cluster = first.greeting.is_cluster
        if not self._is_cluster:
            self._know(single(first.name))
        elif not await self._look_at(first):
            raise Unreachable(f"Redis at {first.name} does not tell who is in its cluster")

    def doubt(self) -> None:
        """A server did not do what it was asked."""
        self._is_doubtful = self._is_cluster

    async def look_again(self) -> None:
        """If there is doubt, and nobody looked a moment ago."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_doubtful or now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        # Those first that answered last time: to wait for another costs everybody's time.
        for node in sorted(self._nodes.values(), key=lambda node: not node.is_connected):
            if await self._look_at(node):
                self._is_doubtful = False
                return

    def learn(self, moved: Iterable[tuple[str, Exception]]) -> None:
        """From MOVED replies, each behind who gave it."""
        owners = self._owners.copy()
        for name, reply in moved:
            if told := read_moved(str(reply), self._nodes[name].host):
                owners[told[0]] = told[1]
        self._know(owners)

    async def _look_at(self, node: Node) -> bool:
        owners = read_slots(await node.ask("CLUSTER", "SLOTS"), node.host)
        if owners is not None:
            self._know(owners)
        return owners is not None

    def _know(self, owners: Owners) -> None:
        self._owners = owners
        self.of_shard = [owners[hashed] for hashed in self._hashes]
        for name in {*owners} - {NOBODY}:
            self._node(name)
        for node in self._nodes.values():
            node.opening.serve(at for at, owner in enumerate(self.of_shard) if owner == node.name)

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            is_first = name == str(self._address)
            self._nodes[name] = self._new_node(
                self._address if is_first else self._address.at(name)
            )
        return self._nodes[name]


def nobody() -> Fault:
    return Unreachable(
        "no server of the Redis cluster serves these keys. Start the missing ones, or let others"
        " take over what was theirs"
    )

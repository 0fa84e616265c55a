"""The servers of a shared frontier, asked together.

Rule: one that is down harms no call of the others, and nothing is sent twice that may have
happened: only what was answered NOSCRIPT or MOVED.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.connection.address import Address
from crawler.storage.redis.connection.faults import ERRORS, Fault, Unreachable, fault_of, is_word
from crawler.storage.redis.connection.greeting import info_fields
from crawler.storage.redis.connection.node import Node, put
from crawler.storage.redis.connection.opening import Opening, ScriptTexts
from crawler.storage.redis.connection.servers import Servers, nobody
from crawler.storage.redis.connection.topology import hash_of
from crawler.storage.redis.connection.wire import pack

MOVES: Final = 3  # of one call: more often no cluster hands on a key in a moment


class Memory(NamedTuple):
    used_bytes: int  # as the server counts when it refuses
    max_bytes: int  # 0: it has no limit
    policy: str = ""  # what it does where its limit is reached


class Replicas(NamedTuple):
    """What may take over from a server."""

    node: str  # the server, as host:port
    is_needed_to_write: bool  # min-replicas-to-write and min-replicas-max-lag are not 0
    config: dict[str, str]  # empty: our user may not read it


class Nodes:
    """Of one loop. Any number may ask at once; each gets its replies in its order."""

    def __init__(
        self,
        address: Address,
        scripts: ScriptTexts,
        name: str,
        shards: int,
        opening: tuple[Argument, ...],
    ) -> None:
        """*name*: what all keys begin with. *opening*: what the script `open` is told of each
        shard, behind the run of its server."""
        self.name = name
        self.shards = shards
        self._shas = {script: scripts.sha(script) for script in scripts.names()}
        self._roots = [keys.root(name, shard) for shard in range(shards)]
        self._servers = Servers(
            address,
            lambda where: Node(where, Opening(scripts, self._roots.__getitem__, opening)),
            [hash_of(root) for root in self._roots],
        )

    @property
    def single_server(self) -> bool:
        """Whether all shards are at one."""
        return len(set(self._servers.of_shard)) == 1

    def node_of(self, shard: int) -> str:
        """As host:port."""
        return self._servers.of_shard[shard]

    def shards_of(self, node: str) -> list[int]:
        return [shard for shard, owner in enumerate(self._servers.of_shard) if owner == node]

    async def open(self) -> None:
        """Connects and finds out who serves what; changes nothing. Raises a Fault, and may then
        be tried again."""
        await self._servers.open()

    async def open_shards(self) -> None:
        """At the start rather than before their first calls, to find early what is not ours.
        Raises a Fault; if only some servers are Unreachable, none: the others' shards go on."""
        answers = await asyncio.gather(*(node.open() for node in self._servers.serving))
        faults = [fault for each in answers for fault in each]
        hopeless = [fault for fault in faults if not isinstance(fault, Unreachable)]
        if hopeless or all(answers):
            raise next(iter([*hopeless, *faults]), nobody())

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """For each call its reply, or a Fault: an entry, no exception."""
        shas, roots = self._shas, self._roots
        packed = [
            pack(("EVALSHA", shas[script], 1, roots[shard], *args)) for shard, script, args in calls
        ]
        return await self._deliver([call.shard for call in calls], packed)

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Plain commands on keys of shards, answered as in `run`."""
        packed = [pack(command) for _, command in asks]
        return await self._deliver([shard for shard, _ in asks], packed)

    async def command(self, key: str, *command: Argument) -> Any:
        """*command*, asked where *key* is: its reply, or a Fault."""
        await self._servers.look_again()
        for tries in range(MOVES, 0, -1):
            node = self._servers.of_hash(hash_of(key))
            reply = nobody() if node is None else await node.ask(*command)
            if node is None or not isinstance(reply, ERRORS):
                break
            if tries == 1 or not is_word(reply, "MOVED"):
                return self._fault(reply, node.name)
            self._servers.learn([(node.name, reply)])
        return reply

    async def ask_each(self, *command: Argument) -> dict[str, Any]:
        """Of each server that has shards, as host:port: its reply, or an error."""
        serving = self._servers.serving
        replies = await asyncio.gather(*(node.ask(*command) for node in serving))
        return {node.name: reply for node, reply in zip(serving, replies, strict=True)}

    async def memory(self) -> dict[str, Memory]:
        """Of each server that answers."""
        replies = await self.ask_each("INFO", "memory")
        return {
            node: _read_memory(info_fields(reply))
            for node, reply in replies.items()
            if isinstance(reply, bytes)
        }

    async def replicas(self) -> list[Replicas]:
        """Of each server that has some, and answers."""
        infos = await self.ask_each("INFO", "replication")
        found = {node: info_fields(info) for node, info in infos.items() if isinstance(info, bytes)}
        counts = {node: int(fields.get("connected_slaves", 0)) for node, fields in found.items()}
        if not any(counts.values()):
            return []
        config = await self.ask_each("CONFIG", "GET", "*-replicas-*", "cluster-node-timeout")
        return [
            Replicas(node, "min_slaves_good_slaves" in found[node], _pairs(config[node]))
            for node, count in counts.items()
            if count and node in config
        ]

    async def close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._servers.all()))

    async def _deliver(
        self, shards: Sequence[int], packed: Sequence[bytes], moves: int = MOVES
    ) -> list[Any]:
        await self._servers.look_again()
        owners = [self._servers.of_shard[shard] for shard in shards]
        replies = await self._ask(owners, shards, packed)
        moved = self._understand(owners, replies)
        if moved and moves > 1:
            rest = [shards[at] for at in moved], [packed[at] for at in moved]
            put(replies, moved, await self._deliver(*rest, moves - 1))
        return replies

    def _understand(self, owners: Sequence[str], replies: list[Any]) -> list[int]:
        """Errors become Faults. Returns what another server is to be asked."""
        failed = {at: reply for at, reply in enumerate(replies) if isinstance(reply, ERRORS)}
        for at, reply in failed.items():
            replies[at] = self._fault(reply, owners[at])
        moved = [at for at, reply in failed.items() if is_word(reply, "MOVED")]
        if moved:
            self._servers.learn((owners[at], failed[at]) for at in moved)
        return moved

    async def _ask(
        self, owners: Sequence[str], shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        """All servers at once."""
        parts: dict[str, list[int]] = defaultdict(list)
        for at, owner in enumerate(owners):
            parts[owner].append(at)
        if len(parts) == 1:  # 20 us of tasks less
            return await self._ask_one(owners[0], shards, packed)
        answers = await asyncio.gather(
            *(
                self._ask_one(owner, [shards[at] for at in part], [packed[at] for at in part])
                for owner, part in parts.items()
            )
        )
        replies: list[Any] = [None] * len(packed)
        for part, answer in zip(parts.values(), answers, strict=True):
            put(replies, part, answer)
        return replies

    async def _ask_one(
        self, owner: str, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        node = self._servers.named(owner)
        return [nobody()] * len(packed) if node is None else await node.run(shards, packed)

    def _fault(self, error: Exception, node: str) -> Fault:
        self._servers.doubt()
        return fault_of(error, node)


def _read_memory(fields: dict[str, str]) -> Memory:
    # What maxmemory does not count: buffers of replicas and of the append-only file.
    uncounted = int(fields.get("mem_not_counted_for_evict", 0))
    used_bytes = int(fields["used_memory"]) - uncounted
    policy = fields.get("maxmemory_policy", "")
    return Memory(used_bytes, int(fields.get("maxmemory", 0)), policy)


def _pairs(reply: Any) -> dict[str, str]:
    """Of CONFIG GET: names and values by turns. Empty: it was refused."""
    if not isinstance(reply, list):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))

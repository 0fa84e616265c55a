"""The client of a Redis server or cluster: it sends each call to the server of its shard.

Rule: no command is sent twice that may have been executed.

A Node is one server with its connection; its ShardOpener opens shards there before their first
call. ClusterMap has all nodes of a cluster, and which of them has each slot. Nodes sends calls to
them.
"""

from __future__ import annotations

import asyncio
import re
from binascii import crc_hqx
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from crawler.shared import keys
from crawler.shared.address import Address, node_name
from crawler.shared.connection import (
    Argument,
    RedisConnection,
    ServerRun,
    connect,
    info_fields,
    pack_command,
)
from crawler.shared.faults import ERRORS, FAULTS, Fault, Unreachable, fault_of, is_word


class Call(NamedTuple):
    """One operation on one shard: EVALSHA of *script* on the root key of *shard*."""

    shard: int
    script: str  # its file in lua/
    args: tuple[Argument, ...]


class ScriptTexts(Protocol):
    """The texts of the operations, one of which is `open`."""

    def names(self) -> tuple[str, ...]: ...

    def text(self, name: str) -> str: ...

    def sha(self, name: str) -> str: ...


class ShardOpener:
    """Opens the shards of one server: no other script runs on a shard before `open` has stored the
    run of the server there. If a server has lost a script it may have lost data as well, so all its
    shards are opened again."""

    def __init__(self, scripts: ScriptTexts, root: Callable[[int], str]) -> None:
        self.served: frozenset[int] = frozenset()
        self.resets = 0
        self._scripts = scripts
        self._root = root
        self._open: frozenset[int] = frozenset()
        self._lock = asyncio.Lock()

    def serve(self, shards: Iterable[int]) -> None:
        """Set the *shards* that the server has. One that moves away and back is opened again."""
        self.served = frozenset(shards)
        self._open &= self.served

    def has_opened(self, shard: int) -> bool:
        return shard in self._open

    def reset(self) -> None:
        """Open all shards again before their next calls."""
        self._open = frozenset()
        self.resets += 1

    async def open(
        self, connection: RedisConnection, run_id: str, shards: Iterable[int]
    ) -> dict[int, Any]:
        """Open *shards* at the server of *connection*, whose run is *run_id*. Returns the errors of
        those that cannot be opened. O(shards) if all are open."""
        if self._open.issuperset(shards):
            return {}
        async with self._lock:
            missing = sorted(self.served.union(shards) - self._open)
            resets = self.resets
            errors = await self._ask(connection, run_id, missing) if missing else {}
            # If the run has ended or the scripts were lost meanwhile, the replies are void.
            if connection.broken is None and resets == self.resets:
                self._open |= set(missing) - errors.keys()
        return errors

    async def _ask(
        self, connection: RedisConnection, run_id: str, shards: Sequence[int]
    ) -> dict[int, Any]:
        """Load `open`, run it on *shards*, then load the other scripts: in this order, another
        client that finds those loaded also finds the run stored in each shard. Returns the errors
        of the shards that are not open."""
        first, *others = sorted(self._scripts.names(), key=lambda name: name != "open")
        loads = [
            pack_command(("SCRIPT", "LOAD", self._scripts.text(name))) for name in (first, *others)
        ]
        opens = [self._packed_open(run_id, shard) for shard in shards]
        replies = await connection.ask([loads[0], *opens, *loads[1:]])
        errors = [reply if isinstance(reply, ERRORS) else None for reply in replies]
        opened, loaded = errors[1 : len(shards) + 1], (errors[0], *errors[len(shards) + 1 :])
        unloaded = next((error for error in loaded if error is not None), None)
        outcomes = {shard: unloaded or error for shard, error in zip(shards, opened, strict=True)}
        return {shard: error for shard, error in outcomes.items() if error is not None}

    def _packed_open(self, run_id: str, shard: int) -> bytes:
        return pack_command(("EVALSHA", self._scripts.sha("open"), 1, self._root(shard), run_id))


PIPELINE: Final = 64
"""Commands that are sent together: with 50 URLs each, they take a server some 30 ms."""
OPEN_TRIES: Final = 3  # attempts of one `Node.run`: a server that loses scripts faster is of no use
RECONNECT_WAIT_S: Final = 0.25
"""How long calls wait for a reconnect: longer than a round trip across an ocean, and short for
calls of other servers that are sent together with them. If a connect has failed after more than
that, no call waits for the next one: it is made in the background."""

SHORT_WAIT_S: Final = 0.005  # enough if a connection is refused at once


class Node:
    """One server of a shared frontier. It connects at the first command, and reconnects at the
    first command after the connection broke. Only what was answered NOSCRIPT is sent again."""

    def __init__(self, address: Address, opener: ShardOpener) -> None:
        self.name = str(address)
        self.host = address.host
        self.opener = opener
        self.server_run = ServerRun(run_id="", is_cluster=False)  # of its last connection
        self._address = address
        self._connection: RedisConnection | None = None
        self._fault: Fault = Unreachable(f"Redis at {self.name} is not connected yet")
        self._connecting: asyncio.Task[None] | None = None
        self._is_slow = False  # it did not answer in time when it was last connected to
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.broken is None

    async def connected(self, wait_s: float | None = RECONNECT_WAIT_S) -> RedisConnection | Fault:
        """Return the connection, or the Fault that prevents it. Waits at most *wait_s*, or if
        that is None, as long as the address allows."""
        if not self.is_connected and not self._is_closed:
            if self._connecting is None:
                self._connecting = asyncio.create_task(self._connect())
            await asyncio.wait(
                {self._connecting}, timeout=SHORT_WAIT_S if wait_s and self._is_slow else wait_s
            )
        if self._connection is None:
            return self._fault
        return self._connection.broken or self._connection

    async def ask(self, *command: Argument) -> Any:
        """Send a command that is no script. Returns its reply, a hiredis.ReplyError, or a Fault."""
        connection = await self.connected()
        if not isinstance(connection, RedisConnection):
            return connection
        return (await connection.ask([pack_command(command)]))[0]

    async def run(
        self, shards: Sequence[int], packed: Sequence[bytes], tries: int = OPEN_TRIES
    ) -> list[Any]:
        """Send *packed* commands, one for each of *shards*. Returns replies as `ask` does."""
        connection = await self.connected()
        if not isinstance(connection, RedisConnection):
            return [connection] * len(packed)
        resets = self.opener.resets
        replies = await self._run_on(connection, shards, packed)
        again = [at for at, reply in enumerate(replies) if is_word(reply, "NOSCRIPT")]
        if again and tries > 1:
            if resets == self.opener.resets:  # else another call has noticed it before
                self.opener.reset()
            rest = [shards[at] for at in again], [packed[at] for at in again]
            put_at(replies, again, await self.run(*rest, tries - 1))
        return replies

    def post(self, shard: int, packed: bytes, on_done: Callable[[], None]) -> None:
        """Send *packed* before this returns, if the server is connected to and has opened
        *shard*."""
        if self._connection is not None and self.opener.has_opened(shard):
            self._connection.post(packed, on_done)

    async def open(self) -> list[Fault]:
        """Open all shards that the server has. Returns the faults of those that could not be."""
        connection = await self.connected(wait_s=None)
        if not isinstance(connection, RedisConnection):
            return [connection]
        errors = await self.opener.open(connection, self.server_run.run_id, self.opener.served)
        # A shard that has moved meanwhile is opened at its new server, before its first call.
        return [
            fault_of(error, self.name) for error in errors.values() if not is_word(error, "MOVED")
        ]

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> None:
        begun_s = asyncio.get_running_loop().time()
        try:
            connection, run = await connect(self._address)
        except FAULTS as fault:
            self._fault, self._connection = fault, None
            self._is_slow = asyncio.get_running_loop().time() - begun_s > RECONNECT_WAIT_S
        else:
            if run.run_id != self.server_run.run_id:
                self.opener.reset()
            self._connection, self.server_run = connection, run
            self._is_slow = False
        finally:
            self._connecting = None

    async def _run_on(
        self, connection: RedisConnection, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        errors = await self.opener.open(connection, self.server_run.run_id, shards)
        if not errors:
            return await _in_pipelines(connection, packed)
        replies = [errors.get(shard) for shard in shards]
        opened = [at for at, shard in enumerate(shards) if shard not in errors]
        put_at(replies, opened, await _in_pipelines(connection, [packed[at] for at in opened]))
        return replies


def put_at(replies: list[Any], at: Sequence[int], values: Sequence[Any]) -> None:
    """Put *values* at the places *at* of *replies*."""
    for place, value in zip(at, values, strict=True):
        replies[place] = value


async def _in_pipelines(connection: RedisConnection, packed: Sequence[bytes]) -> list[Any]:
    replies: list[Any] = []
    for begin in range(0, len(packed), PIPELINE):
        replies += await connection.ask(packed[begin : begin + PIPELINE])
    return replies


# The map of a cluster: 16384 hash slots, each with the "host:port" of its node.

SLOTS: Final = 16_384
UNASSIGNED: Final = "unassigned"  # the owner of a slot that no known server serves

Owners: TypeAlias = list[str]  # by hash slot
_MOVED: Final = re.compile(r"MOVED (?P<slot>[0-9]{1,5}) (?P<host>\S*):(?P<port>[0-9]{1,5})\b")


def hash_slot(key: str) -> int:
    """Return the hash slot of *key*. If it has braces, only the part between them is hashed."""
    begin = key.find("{")
    end = key.find("}", begin + 1) if begin >= 0 else -1
    return crc_hqx(key[begin + 1 : end].encode() if end > begin + 1 else key.encode(), 0) % SLOTS


def single_owner_map(node: str) -> Owners:
    """Return the map in which one server has all slots."""
    return [node] * SLOTS


def read_slots(reply: Any, asked_host: str) -> Owners | None:
    """Read the reply to CLUSTER SLOTS. Returns None if it is no map, or has no server at all."""
    owners = single_owner_map(UNASSIGNED)
    try:
        for begin, end, master, *_ in reply:
            if not 0 <= begin <= end < SLOTS:
                return None
            # A node that does not know its own address leaves it out: it is *asked_host*.
            host = master[0].decode() if master[0] not in {None, b"", b"?"} else asked_host
            owners[begin : end + 1] = [node_name(host, int(master[1]))] * (end + 1 - begin)
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return None if owners == single_owner_map(UNASSIGNED) else owners


def read_moved(error: str, asked_host: str) -> tuple[int, str] | None:
    """Read slot and node of an error like "MOVED 3999 127.0.0.1:6381", or return None."""
    found = _MOVED.match(error)
    if found is None or int(found["slot"]) >= SLOTS:
        return None
    host = found["host"].strip("[]") or asked_host
    return int(found["slot"]), node_name(host, int(found["port"]))


MAP_READ_INTERVAL_S: Final = 1.0  # the interval of reading the map, while a server is down


class ClusterMap:
    """The servers of a frontier, and which of them has each shard. In a cluster the map is read
    again after a call has failed, and corrected by MOVED replies."""

    def __init__(self, address: Address, node: Callable[[Address], Node], slots: list[int]) -> None:
        """*slots* holds the hash slot of each shard."""
        self._address = address
        self._new_node = node
        self._slots = slots
        self._nodes: dict[str, Node] = {}
        self._owners: Owners = single_owner_map(UNASSIGNED)
        self.of_shard = [UNASSIGNED] * len(slots)
        self._is_cluster = False
        self._is_map_doubtful = False
        self._map_read_s = 0.0

    @property
    def serving(self) -> list[Node]:
        """The servers that have shards."""
        return [node for node in self._nodes.values() if node.opener.served]

    def all(self) -> list[Node]:
        return list(self._nodes.values())

    def of_slot(self, slot: int) -> Node | None:
        """Return the server of a hash slot, or None if no known server has it."""
        return self._nodes.get(self._owners[slot])

    def named(self, name: str) -> Node | None:
        return self._nodes.get(name)

    async def open(self) -> None:
        """Connect to the first server, and read the map of its cluster. Raises a Fault."""
        first = self._node(str(self._address))
        connection = await first.connected(wait_s=None)
        if not isinstance(connection, RedisConnection):
            raise connection.with_traceback(None)
        self._is_cluster = first.server_run.is_cluster
        if not self._is_cluster:
            self._set_map(single_owner_map(first.name))
        elif not await self._read_map(first):
            raise Unreachable(f"Redis at {first.name} does not report the nodes of its cluster")

    def mark_doubtful(self) -> None:
        """Mark the map as doubtful, because a server failed a command."""
        self._is_map_doubtful = self._is_cluster

    async def refresh_map(self) -> None:
        """Read the map again if it is doubtful, at most once in MAP_READ_INTERVAL_S."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_map_doubtful or now_s - self._map_read_s < MAP_READ_INTERVAL_S:
            return
        self._map_read_s = now_s
        # Connected servers first: every call waits while another is connected to.
        for node in sorted(self._nodes.values(), key=lambda node: not node.is_connected):
            if await self._read_map(node):
                self._is_map_doubtful = False
                return

    def apply_moves(self, moved: Iterable[tuple[str, Exception]]) -> None:
        """Update the map from MOVED replies, each behind the name of its server."""
        owners = self._owners.copy()
        for name, reply in moved:
            if move := read_moved(str(reply), self._nodes[name].host):
                owners[move[0]] = move[1]
        self._set_map(owners)

    async def _read_map(self, node: Node) -> bool:
        owners = read_slots(await node.ask("CLUSTER", "SLOTS"), node.host)
        if owners is not None:
            self._set_map(owners)
        return owners is not None

    def _set_map(self, owners: Owners) -> None:
        self._owners = owners
        self.of_shard = [owners[slot] for slot in self._slots]
        for name in {*owners} - {UNASSIGNED}:
            self._node(name)
        for node in self._nodes.values():
            node.opener.serve(at for at, owner in enumerate(self.of_shard) if owner == node.name)

    def _node(self, name: str) -> Node:
        if name not in self._nodes:
            is_first = name == str(self._address)
            self._nodes[name] = self._new_node(
                self._address if is_first else self._address.at(name)
            )
        return self._nodes[name]


def no_server_error() -> Fault:
    return Unreachable(
        "no server of the Redis cluster serves these keys. Start the missing ones, or let others"
        " take over what was theirs"
    )


MAX_MOVES: Final = 3  # attempts of one call: no cluster moves a key more often in a short time


class ServerMemory(NamedTuple):
    used_bytes: int  # as the server compares it with its limit
    max_bytes: int  # 0: it has no limit
    policy: str = ""  # maxmemory-policy


class ServerReplicas(NamedTuple):
    """A server that has replicas, and how it is configured for them."""

    node: str  # the server, as host:port
    is_needed_to_write: bool  # min-replicas-to-write and min-replicas-max-lag are not 0
    config: dict[str, str]  # empty if our user may not read it


class Nodes:
    """The servers of a shared frontier, used by one event loop. Any number of calls may run at
    once. A server that is down does not affect calls of the others; only what was answered NOSCRIPT
    or MOVED is sent again."""

    def __init__(
        self,
        address: Address,
        scripts: ScriptTexts,
        name: str,
        shards: int,
    ) -> None:
        """All keys begin with *name*."""
        self.name = name
        self.shards = shards
        self._shas = {script: scripts.sha(script) for script in scripts.names()}
        self._roots = [keys.root(name, shard) for shard in range(shards)]
        self._servers = ClusterMap(
            address,
            lambda where: Node(where, ShardOpener(scripts, self._roots.__getitem__)),
            [hash_slot(root) for root in self._roots],
        )

    @property
    def single_server(self) -> bool:
        """Whether one server has all shards."""
        return len(self.serving) == 1

    @property
    def serving(self) -> frozenset[str]:
        """The servers that have shards, as host:port."""
        return frozenset(self._servers.of_shard)

    def node_of(self, shard: int) -> str:
        """Return the server of *shard*, as host:port."""
        return self._servers.of_shard[shard]

    async def open(self) -> None:
        """Connect, and find out which server has which shard. Changes nothing. Raises a Fault; it
        may be called again after that."""
        await self._servers.open()

    async def open_shards(self) -> None:
        """Open all shards at the start instead of before their first calls, to find foreign data
        early. Raises a Fault, but not if it is Unreachable and some shards could be opened."""
        answers = await asyncio.gather(*(node.open() for node in self._servers.serving))
        faults = [fault for each in answers for fault in each]
        hopeless = [fault for fault in faults if not isinstance(fault, Unreachable)]
        if hopeless or all(answers):
            raise next(iter([*hopeless, *faults]), no_server_error())

    async def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return for each call its reply, or a Fault in its place; no Fault is raised."""
        packed = [self._packed(call) for call in calls]
        return await self._deliver([call.shard for call in calls], packed)

    def post(self, call: Call, on_done: Callable[[], None]) -> None:
        """Send *call* before this returns, once, and only if its server is connected to: for what
        must not be lost if this process is killed in the next moment. *on_done* is called when it
        was carried out."""
        self._post(call.shard, self._packed(call), on_done)

    def post_command(
        self, shard: int, command: tuple[Argument, ...], on_done: Callable[[], None]
    ) -> None:
        """Send a plain command on keys of *shard* as `post` does a call."""
        self._post(shard, pack_command(command), on_done)

    def _post(self, shard: int, packed: bytes, on_done: Callable[[], None]) -> None:
        node = self._servers.named(self._servers.of_shard[shard])
        if node is not None:
            node.post(shard, packed, on_done)

    def _packed(self, call: Call) -> bytes:
        shard, script, args = call
        return pack_command(("EVALSHA", self._shas[script], 1, self._roots[shard], *args))

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands on keys of shards. Returns as `run` does."""
        packed = [pack_command(command) for _, command in asks]
        return await self._deliver([shard for shard, _ in asks], packed)

    async def command(self, key: str, *command: Argument) -> Any:
        """Send *command* to the server of *key*. Returns its reply, or a Fault."""
        await self._servers.refresh_map()
        for tries in range(MAX_MOVES, 0, -1):
            node = self._servers.of_slot(hash_slot(key))
            reply = no_server_error() if node is None else await node.ask(*command)
            if node is None or not isinstance(reply, ERRORS):
                break
            if tries == 1 or not is_word(reply, "MOVED"):
                return self._fault(reply, node.name)
            self._servers.apply_moves([(node.name, reply)])
        return reply

    async def checked_command(self, key: str, *command: Argument) -> Any:
        """Send *command* as `command` does. Raises the Fault, if the reply is one."""
        reply = await self.command(key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply

    async def command_each_server(self, *command: Argument) -> dict[str, Any]:
        """Send *command* to each server that has shards. Returns replies or errors by host:port."""
        serving = self._servers.serving
        replies = await asyncio.gather(*(node.ask(*command) for node in serving))
        return {node.name: reply for node, reply in zip(serving, replies, strict=True)}

    async def memory(self) -> dict[str, ServerMemory]:
        """Return the memory of each server that answers, by host:port."""
        replies = await self.command_each_server("INFO", "memory")
        return {
            node: _read_memory(info_fields(reply))
            for node, reply in replies.items()
            if isinstance(reply, bytes)
        }

    async def replicas(self) -> list[ServerReplicas]:
        """Return the replicas of each server that has some and answers."""
        infos = await self.command_each_server("INFO", "replication")
        found = {node: info_fields(info) for node, info in infos.items() if isinstance(info, bytes)}
        counts = {node: int(fields.get("connected_slaves", 0)) for node, fields in found.items()}
        if not any(counts.values()):
            return []
        config = await self.command_each_server(
            "CONFIG", "GET", "*-replicas-*", "cluster-node-timeout"
        )
        return [
            ServerReplicas(node, "min_slaves_good_slaves" in found[node], _pairs(config[node]))
            for node, count in counts.items()
            if count and node in config
        ]

    async def close(self) -> None:
        await asyncio.gather(*(node.close() for node in self._servers.all()))

    async def _deliver(
        self, shards: Sequence[int], packed: Sequence[bytes], moves: int = MAX_MOVES
    ) -> list[Any]:
        await self._servers.refresh_map()
        owners = [self._servers.of_shard[shard] for shard in shards]
        replies = await self._send_to_owners(owners, shards, packed)
        moved = self._replace_errors(owners, replies)
        if moved and moves > 1:
            rest = [shards[at] for at in moved], [packed[at] for at in moved]
            put_at(replies, moved, await self._deliver(*rest, moves - 1))
        return replies

    def _replace_errors(self, owners: Sequence[str], replies: list[Any]) -> list[int]:
        """Replace errors in *replies* by Faults. Returns the places of those that were MOVED."""
        failed = {at: reply for at, reply in enumerate(replies) if isinstance(reply, ERRORS)}
        for at, reply in failed.items():
            replies[at] = self._fault(reply, owners[at])
        moved = [at for at, reply in failed.items() if is_word(reply, "MOVED")]
        if moved:
            self._servers.apply_moves((owners[at], failed[at]) for at in moved)
        return moved

    async def _send_to_owners(
        self, owners: Sequence[str], shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        """Send each command to its owner, to all servers at once."""
        parts: dict[str, list[int]] = defaultdict(list)
        for at, owner in enumerate(owners):
            parts[owner].append(at)
        if len(parts) == 1:  # this saves 20 us of asyncio tasks
            return await self._send_to_owner(owners[0], shards, packed)
        answers = await asyncio.gather(
            *(
                self._send_to_owner(owner, [shards[at] for at in part], [packed[at] for at in part])
                for owner, part in parts.items()
            )
        )
        replies: list[Any] = [None] * len(packed)
        for part, answer in zip(parts.values(), answers, strict=True):
            put_at(replies, part, answer)
        return replies

    async def _send_to_owner(
        self, owner: str, shards: Sequence[int], packed: Sequence[bytes]
    ) -> list[Any]:
        node = self._servers.named(owner)
        return [no_server_error()] * len(packed) if node is None else await node.run(shards, packed)

    def _fault(self, error: Exception, node: str) -> Fault:
        self._servers.mark_doubtful()
        return fault_of(error, node)


def _read_memory(fields: dict[str, str]) -> ServerMemory:
    # maxmemory does not count the buffers of replicas and of the append-only file.
    uncounted = int(fields.get("mem_not_counted_for_evict", 0))
    used_bytes = int(fields["used_memory"]) - uncounted
    policy = fields.get("maxmemory_policy", "")
    return ServerMemory(used_bytes, int(fields.get("maxmemory", 0)), policy)


def _pairs(reply: Any) -> dict[str, str]:
    """Read the reply to CONFIG GET: names and values in turn. Empty if it was refused."""
    if not isinstance(reply, list):
        return {}
    words = [word.decode() for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


T = TypeVar("T")


class BlockingNodes:
    """A synchronous wrapper around `Nodes` for tools and tests: it runs an event loop for each
    call. It cannot be used where a loop is running."""

    def __init__(self, nodes: Nodes) -> None:
        """Open *nodes*, which must have no other user. Raises a Fault."""
        self._nodes = nodes
        self._loop = asyncio.new_event_loop()
        try:
            self._run_loop(nodes.open())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Return the replies to *calls*. All are sent; raises the first Fault among the replies."""
        return _raise_first_fault(self._run_loop(self._nodes.run(calls)))

    def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands on keys of shards. Returns and raises as `run` does."""
        return _raise_first_fault(self._run_loop(self._nodes.commands(asks)))

    def command(self, key: str, *command: Argument) -> Any:
        """Send *command* to the server of *key*. Raises a Fault."""
        return _raise_first_fault([self._run_loop(self._nodes.command(key, *command))])[0]

    def ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        """Send plain commands together, each to the server of its key. Unlike `commands` it opens
        no shard, so it changes nothing. Raises the first Fault among the replies."""
        return _raise_first_fault(self._run_loop(self._ask(asks)))

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run_loop(self._nodes.close())
            self._loop.close()

    async def _ask(self, asks: Sequence[tuple[str, tuple[Argument, ...]]]) -> list[Any]:
        return await asyncio.gather(*(self._nodes.command(key, *command) for key, command in asks))

    def _run_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(_after_pending_reads(work))


async def _after_pending_reads(work: Coroutine[Any, Any, T]) -> T:
    """Run *work* after three turns of the loop, so that connections that ended since the last call
    are noticed first: the loop does not run between calls."""
    for _ in range(3):
        await asyncio.sleep(0)
    return await work


def _raise_first_fault(replies: list[Any]) -> list[Any]:
    for reply in replies:
        if isinstance(reply, FAULTS):
            raise reply.with_traceback(None)
    return replies

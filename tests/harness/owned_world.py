"""Owned shards for the contract suite: a frontier whose writes are mirrored in a real redis-server,
whose time is given by the test. Each restart is a take-over by another owner, into an empty store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import redis
from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import SEEN, DurableStore, FrontierLimits, LeaseRules
from crawler.frontier.records import decode_host, decode_urls
from crawler.frontier.run_files import RunFolder
from crawler.frontier.two_tier import Background, TwoTierFrontier
from crawler.model.types import StoreUnavailable
from crawler.shared.address import Address
from crawler.shared.client import BlockingNodes, Nodes
from crawler.shared.owned.mirror import (
    AS_THEY_ARE,
    Changes,
    Mirror,
    MirroredStore,
    all_changes,
    unpack_chunk,
)
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.scripts import (
    SEEN_KEYS,
    ClaimedShard,
    Command,
    OwnedScripts,
    ShardCommands,
    read_claim_reply,
)
from crawler.shared.owned.takeover import ShardLoader
from tests.harness.frontiers import TIGHT, EmbeddedWorld
from tests.servers.redis_process import HOST

OWNED_LIVES: Final = int(os.environ.get("OWNED_LIVES", "20"))  # `make lives`
CLOCK: Final = "local function now_ms() return tonumber(redis.call('GET', 'now') or 0) end"
SCRIPTS: Final = OwnedScripts(CLOCK)
LEASE_S: Final = 10.0
LONG_S: Final = 1e6  # after which no fetch of a dead owner is under way
_names = count()


def open_nodes(port: int, scripts: OwnedScripts = SCRIPTS) -> BlockingNodes:
    return BlockingNodes(Nodes(Address(host=HOST, port=port), scripts, "owned", 1, ()))


def noted() -> None:
    """Nothing has to be woken: the test says when something is sent."""


class LoadedShard:
    """A shard that was claimed and loaded into an empty memory store, and its frontier."""

    def __init__(
        self,
        ask: Callable[[Command], Any],
        commands: ShardCommands,
        claimed: ClaimedShard,
        folder: Path,
        limits: FrontierLimits,
        now: float,
        *,
        lease_rules: LeaseRules | None = None,
        background: Background | None = None,
        on_written: Callable[[], None] | None = None,
    ) -> None:
        self.local = MemoryStore()
        self.runs = RunFolder(folder / SEEN)
        self._ask = ask
        self.mirror = Mirror(claimed.seq, noted)
        self.owned = OwnedShard(
            commands, claimed, now, self.mirror, lambda: all_changes(self.local, self.runs)
        )
        self._load(ShardLoader(self.owned, claimed, self.local, self.runs, limits, now))
        store = WatchedStore(self.local, self.mirror, on_written or noted)
        self.frontier = open_frontier(
            *(folder, limits, now),
            lease_rules=lease_rules,
            background=background,
            store=store,
            runs=self.runs,
        )

    def _load(self, loader: ShardLoader) -> None:
        steps, reply = loader.steps(), None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration:
                return
            reply = step() if callable(step) else self._ask(step)


class WatchedStore(MirroredStore):
    def __init__(self, local: DurableStore, mirror: Mirror, on_written: Callable[[], None]) -> None:
        super().__init__(local, mirror)
        self._on_written = on_written

    def write(self, changes: Changes) -> None:
        super().write(changes)
        self._on_written()


class OwnedWorld(EmbeddedWorld):
    """Each commit is acknowledged when its call returns. A crash is noticed long after it."""

    def __init__(
        self,
        client: redis.Redis,
        nodes: BlockingNodes,
        folder: Path,
        limits: FrontierLimits = TIGHT,
    ) -> None:
        super().__init__(MemoryStore(), folder, limits)
        self.client = client
        self.nodes = nodes
        self.name = f"owned{next(_names)}"
        self.now_s = 0.0  # of the server, and of the owners
        self.shard: LoadedShard | None = None
        self.is_connected = True
        self._claims = count()

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> TwoTierFrontier:
        self.now_s += LONG_S
        self.client.set("now", round(self.now_s * 1000))
        number = next(self._claims)
        commands = ShardCommands(SCRIPTS, self.name, 0, f"token{number}", LEASE_S)
        claimed = read_claim_reply(self.ask(commands.claim(begins=True)))
        assert isinstance(claimed, ClaimedShard)
        self.folder_of_owner = self.folder / str(number)
        self.shard = None  # the old one sends nothing more
        self.shard = shard = LoadedShard(
            *(self.ask, commands, claimed, self.folder_of_owner, self.limits, now),
            lease_rules=lease_rules,
            on_written=self.send,
        )
        self.store, self.runs = shard.local, shard.runs
        self.send()
        return shard.frontier

    def ask(self, command: Command) -> Any:
        return self.nodes.commands([(0, command)])[0]

    def send(self) -> None:
        """Send what was committed, unless the frontier is still being opened."""
        if self.shard is None or not self.is_connected:
            return
        owned = self.shard.owned
        while asked := owned.next_commands(self.now_s, 0):
            owned.on_replies([self.ask(each.command) for each in asked], self.now_s, self.now_s)
        if not owned.is_owned:
            raise StoreUnavailable("another one has claimed the shard")

    def check(self, frontier: TwoTierFrontier) -> None:
        super().check(frontier)
        assert self.shard is not None
        assert dict(self.mirrored()) == dict(local_records(self.shard))

    def mirrored(self) -> Iterator[tuple[bytes, Any]]:
        """Yield what Redis has of the shard, in the form of the local store."""
        assert self.shard is not None
        key = self.shard.owned.commands.key
        pipeline = self.client.pipeline(transaction=False)
        prefixes = (*AS_THEY_ARE, keys.QUEUED)
        for prefix in prefixes:
            pipeline.hgetall(key(prefix.decode()))
        pipeline.lrange(key(SEEN_KEYS), 0, -1)
        *hashes, seen = pipeline.execute()
        for prefix, found in zip(prefixes, hashes, strict=True):
            for name, value in found.items():
                packed = unpack_chunk(name, value)[1] if prefix == keys.QUEUED else value
                yield prefix + name, compared(prefix, packed)
        yield keys.ADMITTED_KEYS, set(keys_in(b"".join(seen)))


def keys_in(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + 8] for at in range(0, len(packed), 8))


def local_records(shard: LoadedShard) -> Iterator[tuple[bytes, Any]]:
    seen: set[bytes] = set()
    for changes in all_changes(shard.local, shard.runs):
        for key, value in changes.items():
            if key[:1] == keys.ADMITTED_KEYS:
                seen |= set(keys_in(value or b""))
            elif key != keys.TOTALS:
                yield key, compared(key[:1], value or b"")
    yield keys.ADMITTED_KEYS, seen


def compared(prefix: bytes, packed: bytes) -> Any:
    """Return a record without what a loader makes anew."""
    if prefix == keys.QUEUED:  # a URL in a queue is due, whatever date it had
        return [replace(each, not_before=0.0) for each in decode_urls(packed)]
    if prefix != keys.HOST:
        return packed
    record = decode_host(packed)
    return record.queue_ends, record.rest_until, record.pace, record.admitted

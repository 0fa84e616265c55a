"""Owned shards for the contract suite: a frontier whose writes are mirrored in a real redis-server,
whose time is given by the test. Each restart is a take-over by another owner, into an empty store.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import redis
from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import (
    SEEN,
    DurableStore,
    FrontierLimits,
    HostAddresses,
    LeaseRules,
)
from crawler.frontier.records import SHARD_BYTES, decode_host, decode_urls
from crawler.frontier.run_files import RunFolder
from crawler.frontier.shards import Shards
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
SHARDS: Final = 3
LONG_S: Final = 1e6  # after which no fetch of a dead owner is under way
_names = count()


def open_nodes(port: int, scripts: OwnedScripts = SCRIPTS) -> BlockingNodes:
    return BlockingNodes(Nodes(Address(host=HOST, port=port), scripts, "owned", 1))


def noted() -> None:
    """Nothing has to be woken: the test says when something is sent."""


@dataclass(eq=False)
class LoadedShard:
    """A shard that was claimed and loaded by *owner*."""

    owner: Owner
    owned: OwnedShard
    loader: ShardLoader
    is_taken_in: bool = False
    is_stopped: bool = False

    @property
    def frontier(self) -> TwoTierFrontier:
        return self.owner.frontier

    @property
    def mirror(self) -> Mirror:
        return self.owned.mirror

    def take_in(self, now: float, after_step: Callable[[], None] = noted) -> None:
        """Let the frontier lease its URLs. *after_step* is what else the worker does meanwhile."""
        self.is_taken_in = True
        self.owner.store.mirrors[self.loader.key] = self.mirror
        self.frontier.import_seen(self.loader.seen, noted)
        do_work(self.frontier, now)
        for _ in self.frontier.take_in(self.loader.key, now):
            self.frontier.commit()
            after_step()
        self.frontier.commit()

    def stop(self, now: float) -> None:
        self.is_stopped = True
        self.frontier.stop(self.loader.key, now)

    def close(self, now: float) -> None:
        """Note nothing of it more."""
        if self.is_taken_in:
            self.frontier.close_shard(self.loader.key, now)
        self.owner.store.mirrors.pop(self.loader.key, None)

    def drop(self, now: float) -> None:
        self.close(now)
        for _ in self.frontier.drop(self.loader.key, self.owned.recent_keys(), now):
            self.frontier.commit()
        self.frontier.commit()


class OneOfSeveral(Shards):
    """Shards of a crawl whose hosts are all in one of them."""

    def __init__(self, shard: int) -> None:
        super().__init__(shard + 2)
        self._shard = shard.to_bytes(SHARD_BYTES)

    def _find(self, host: str) -> bytes:
        return self._shard


class Owner:
    """A worker that owns shards: one frontier over a memory store."""

    def __init__(
        self,
        ask: Callable[[Command], Any],
        folder: Path,
        limits: FrontierLimits,
        now: float,
        *,
        shards: Shards,
        lease_rules: LeaseRules | None = None,
        background: Background | None = None,
        on_written: Callable[[], None] | None = None,
        addresses: HostAddresses | None = None,
    ) -> None:
        self._ask = ask
        self._limits = limits
        self.local = MemoryStore()
        self.runs = RunFolder(folder / SEEN)
        self.store = WatchedStore(self.local, on_written or noted)
        self.frontier = open_frontier(
            *(folder, limits, now),
            lease_rules=lease_rules,
            background=background,
            store=self.store,
            runs=self.runs,
            shards=shards,
            addresses=addresses,
        )

    def load(self, commands: ShardCommands, claimed: ClaimedShard, now: float) -> LoadedShard:
        """Load a shard that was claimed."""
        key = commands.shard.to_bytes(SHARD_BYTES)
        mirror = Mirror(claimed.seq, noted)
        owned = OwnedShard(commands, claimed, now, mirror, lambda: all_changes(self.local, key))
        loader = ShardLoader(owned, claimed, self.local, self._limits, now, {})
        self._load(loader)
        return LoadedShard(self, owned, loader)

    def _load(self, loader: ShardLoader) -> None:
        steps, reply = loader.steps(), None
        while True:
            try:
                command = steps.send(reply)
            except StopIteration:
                return
            reply = self._ask(command)


def do_work(frontier: TwoTierFrontier, now: float) -> None:
    while (work := frontier.next_work(now)) is not None:
        work.run()
        for _ in work.apply(now):
            frontier.commit()


class WatchedStore(MirroredStore):
    def __init__(self, local: DurableStore, on_written: Callable[[], None]) -> None:
        super().__init__(local)
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
        self.owner: Owner | None = None
        self.shards: list[OwnedShard] = []
        self.is_connected = True
        self._claims = count()

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> TwoTierFrontier:
        self.now_s += LONG_S
        self.client.set("now", round(self.now_s * 1000))
        number = next(self._claims)
        self.folder_of_owner = self.folder / str(number)
        self.shards = []  # the old one sends nothing more
        self.owner = owner = Owner(
            *(self.ask, self.folder_of_owner, self.limits, now),
            shards=Shards(SHARDS),
            lease_rules=lease_rules,
            on_written=self.send,
            addresses=self.addresses,
        )
        shards = []
        for shard in range(SHARDS):
            commands = ShardCommands(SCRIPTS, self.name, shard, f"token{number}", LEASE_S)
            claimed = read_claim_reply(self.ask(commands.claim(begins=True)))
            assert isinstance(claimed, ClaimedShard)
            loaded = owner.load(commands, claimed, now)
            loaded.take_in(now)
            shards.append(loaded.owned)
        self.shards = shards
        self.store, self.runs = owner.local, owner.runs
        self.send()
        return owner.frontier

    def ask(self, command: Command) -> Any:
        return self.nodes.commands([(0, command)])[0]

    def send(self) -> None:
        """Send what was committed, unless the frontier is still being opened."""
        if not self.is_connected:
            return
        for owned in self.shards:
            while asked := owned.next_commands(self.now_s, 0):
                replies = [self.ask(each.command) for each in asked]
                owned.on_replies(replies, self.now_s, self.now_s)
            if not owned.is_owned:
                raise StoreUnavailable("another one has claimed the shard")

    def check(self, frontier: TwoTierFrontier) -> None:
        super().check(frontier)
        for owned in self.shards:
            assert dict(self.mirrored(owned)) == dict(self.local_records(owned))

    def mirrored(self, owned: OwnedShard) -> Iterator[tuple[bytes, Any]]:
        """Yield what Redis has of a shard, in the form of the local store."""
        key = owned.commands.key
        pipeline = self.client.pipeline(transaction=False)
        prefixes = (*AS_THEY_ARE, keys.QUEUED)
        for prefix in prefixes:
            pipeline.hgetall(key(prefix.decode()))
        pipeline.lrange(key(SEEN_KEYS), 0, -1)
        *hashes, seen = pipeline.execute()
        for prefix, found in zip(prefixes, hashes, strict=True):
            for name, value in found.items():
                packed = unpack_chunk(name, value)[1] if prefix == keys.QUEUED else value
                shard = owned.commands.shard.to_bytes(SHARD_BYTES)
                yield keys.record_of_shard(prefix, shard, name), compared(prefix, packed)
        yield keys.ADMITTED_KEYS, set(keys_in(b"".join(seen)))

    def local_records(self, owned: OwnedShard) -> Iterator[tuple[bytes, Any]]:
        assert self.owner is not None
        seen: set[bytes] = set()
        shard = owned.commands.shard.to_bytes(SHARD_BYTES)
        for changes in all_changes(self.owner.local, shard):
            for key, value in changes.items():
                if key[:1] == keys.ADMITTED_KEYS:
                    seen |= set(keys_in(value or b""))
                elif key[:1] != keys.TOTALS:
                    yield key, compared(key[:1], value or b"")
        yield keys.ADMITTED_KEYS, seen


def keys_in(packed: bytes) -> Iterator[bytes]:
    return (packed[at : at + 8] for at in range(0, len(packed), 8))


def compared(prefix: bytes, packed: bytes) -> Any:
    """Return a record without what a loader makes anew."""
    if prefix == keys.QUEUED:  # a URL in a queue is due, whatever date it had
        return [replace(each, not_before=0.0) for each in decode_urls(packed)]
    if prefix != keys.HOST:
        return packed
    record = decode_host(packed)
    return record.queue_ends, record.rest_until, record.pace, record.admitted

"""Who works on this crawl, and which shards each prefers.

Rule: workers come and go without any step for it. Each says once a second that it is there; a
shard is preferred by the live worker that hashes highest with it (rendezvous hashing, Thaler and
Ravishankar 1998), so one that comes or goes moves only its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.storage.redis import keys
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.scripts import Scripts
from crawler.storage.redis.worker_record import WorkerSaid

ALIVE_S: Final = 10.0  # it announces itself every second
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerSaid).decode


class Nodes(Protocol):
    async def command(self, key: str, *args: Any) -> Any: ...


class Membership:
    def __init__(
        self,
        nodes: Nodes,
        scripts: Scripts,
        name: str,
        shards: int,
        say: Callable[[], WorkerSaid],
    ) -> None:
        """*name*: of the crawl; *say*: what this worker is to be known by."""
        self._nodes = nodes
        self._announce = scripts.text("announce")
        self._key = keys.workers(name)
        self._shards = shards
        self._say = say
        self._live_names: frozenset[str] = frozenset()
        self.preferred: frozenset[int] = frozenset(range(shards))
        self.everybody: dict[str, WorkerSaid] = {}  # as last heard, the dead among them
        self.live: dict[str, WorkerSaid] = {}
        self._outbox = 0  # links on our disk, as all hear

    async def announce(self) -> bool:
        """Say that we are there, and hear who else is. False: the server cannot be asked now."""
        try:
            told = await self._ask("TIME")
            now = int(told[0]) + int(told[1]) / 1e6
            me = replace(self._say(), at=now)
            self._outbox = 0  # until it is acknowledged
            await self._ask("EVAL", self._announce, 1, self._key, me.name, _encode(me))
            self._outbox = me.outbox
            everybody = await self._ask("HGETALL", self._key)
        except StoreUnavailable:
            return False
        self._learn(_read(everybody), me.name, now)
        return True

    async def is_outbox_known(self) -> bool:
        """Whether all hear that links wait on our disk. The first is announced at once."""
        return self._outbox > 0 or await self.announce()

    async def leave(self) -> None:
        """Nothing of the crawl is here any more. If that cannot be told, it shows in a while."""
        with suppress(CrawlerError):
            await self._ask("HDEL", self._key, self._say().name)

    def silent_outboxes(self) -> dict[str, int]:
        """Links on the disks of workers that are not heard of, by their names."""
        silent = self.everybody.keys() - self.live.keys()
        return {name: links for name in silent if (links := self.everybody[name].outbox)}

    def all_know(self, doors: int) -> bool:
        """Whether every live worker has heard of so many doors."""
        return all(each.doors >= doors for each in self.live.values())

    async def _ask(self, *command: Any) -> Any:
        reply = await self._nodes.command(self._key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply

    def _learn(self, everybody: Mapping[str, WorkerSaid], me: str, now: float) -> None:
        self.everybody = dict(everybody)
        self.live = {name: one for name, one in everybody.items() if now - one.at < ALIVE_S}
        names = frozenset(
            name for name, one in self.live.items() if one.state != "stopping" or name == me
        )
        if names != self._live_names:
            self._live_names = names
            self.preferred = preferred(me, names, self._shards)


def preferred(me: str, workers: Iterable[str], shards: int) -> frozenset[int]:
    """The shards that *me* hashes highest with, of all *workers*."""
    everybody = {me, *workers}
    return frozenset(
        shard
        for shard in range(shards)
        if max(everybody, key=lambda one: (_weight(one, shard), one)) == me
    )


def _weight(worker: str, shard: int) -> int:
    return xxh3_64_intdigest(f"{worker}/{shard}".encode())


def _read(fields: Sequence[bytes]) -> dict[str, WorkerSaid]:
    """From a HGETALL; what is none of ours is left out."""
    found = {}
    for said in fields[1::2]:
        try:
            worker = _decode(said)
        except msgspec.MsgspecError:
            continue
        found[worker.name] = worker
    return found

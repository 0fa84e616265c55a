"""Which workers take part in this crawl, and which shards each prefers.

Rule: workers come and go without any step for it. Each announces itself once a second, and is sent
what it must know of all others as three numbers; it reads their names now and then, at most
NAMES_PER_S. A shard is preferred by the live worker that hashes highest with it (rendezvous
hashing, Thaler and Ravishankar 1998), so one that comes or goes moves only its own part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from time import monotonic
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.scripts import Scripts
from crawler.storage.redis.worker_record import WorkerSaid

ALIVE_S: Final = 10.0  # it announces itself every second
NAMES_PER_S: Final = 100
"""Names of other workers that one reads, in the mean: 3 kB/s, and 40 ms of CPU for 1,000 names and
64 shards. Nothing but speed depends on them."""
MOST_NAMED: Final = 20  # workers that a person is told of at once
NAMES_HOLD_S: Final = 60.0  # though their number is the same, they may be others
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
        self._scripts = scripts
        self._crawl = name
        self._key = keys.workers(name)
        self._shards = shards
        self._say = say
        self._names: frozenset[str] = frozenset()  # of live workers, as last read
        self._read_at = float("-inf")  # monotonic
        self._lowest_doors = -1
        self._now = 0.0  # by the server, when it was last asked
        self.preferred: frozenset[int] = frozenset(range(shards))
        self.live = 0  # workers that take part, this one among them
        self.starting = 0  # those of them that have not added their seeds yet

    async def announce(self) -> bool:
        """Say that we are there, and learn how many others are. False: the server cannot be asked
        now."""
        try:
            told = await self._ask("TIME")
            self._now = int(told[0]) + int(told[1]) / 1e6
            me = replace(self._say(), at=self._now)
            reply = await self._ask(*announcement(self._scripts, self._crawl, me))
            self.live, self.starting = int(reply[1]), int(reply[2])
            self._lowest_doors = int(float(reply[3]))
            if self._are_names_old():
                await self._read_names(me.name)
        except StoreUnavailable:
            return False
        return True

    async def leave(self) -> None:
        """Nothing of the crawl is here any more. If that cannot be told, it shows in a while."""
        with suppress(CrawlerError):
            await self._ask(*announcement(self._scripts, self._crawl, self._say(), leaves=True))

    async def silent(self, names: Iterable[str]) -> dict[str, int]:
        """Of *names* those that are not heard of, and how many links each last had on its disk."""
        found = {}
        for name in islice(names, MOST_NAMED):
            kept = await self._ask("HGET", self._key, name)
            said = _read(kept)
            if said is None or self._now - said.at >= ALIVE_S:
                found[name] = said.outbox if said else 0
        return found

    def all_know(self, doors: int) -> bool:
        """Whether every live worker has heard of so many doors."""
        return self.live > 0 and self._lowest_doors >= doors

    async def _ask(self, *command: Argument) -> Any:
        reply = await self._nodes.command(self._key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply

    def _are_names_old(self) -> bool:
        age_s = monotonic() - self._read_at
        is_changed = self.live != len(self._names)
        most = max(self.live, len(self._names))
        return age_s >= NAMES_HOLD_S or (is_changed and age_s >= most / NAMES_PER_S)

    async def _read_names(self, me: str) -> None:
        alive = keys.announced(self._crawl)[1]
        found = await self._ask("ZRANGE", alive, 0, -1)
        self._read_at = monotonic()
        names = frozenset(each.decode("utf-8", "replace") for each in found)
        if names != self._names:
            self._names = names
            self.preferred = preferred(me, names, self._shards)


def announcement(
    scripts: Scripts,
    crawl: str,
    me: WorkerSaid,
    *,
    leaves: bool = False,
    expected: bytes | None = None,
) -> tuple[Argument, ...]:
    """The command of the script `announce`. *expected*: what must stand under the name, or nothing
    is written."""
    said = b"" if leaves else _encode(me)
    names = keys.announced(crawl)
    script = ("EVAL", scripts.text("announce"), len(names), *names)
    only_if = () if expected is None else (expected,)
    return (*script, me.name, said, me.state, me.doors, ALIVE_S, *only_if)


def preferred(me: str, workers: Iterable[str], shards: int) -> frozenset[int]:
    """The shards that *me* hashes highest with, of all *workers*."""
    everybody = {me, *workers}
    return frozenset(
        shard
        for shard in range(shards)
        if max(everybody, key=lambda one: (_weight(one, shard), one)) == me
    )


def _read(kept: bytes | None) -> WorkerSaid | None:
    try:
        return _decode(kept or b"")
    except msgspec.MsgspecError:
        return None


def _weight(worker: str, shard: int) -> int:
    return xxh3_64_intdigest(f"{worker}/{shard}".encode())

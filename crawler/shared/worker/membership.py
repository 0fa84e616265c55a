"""Which workers take part in this crawl, and which shards each prefers.

Rule: workers come and go without any step for it. Each announces itself once a second, and is sent
what it must know of all others as three numbers; it reads their names now and then, at most
NAMES_PER_S. A shard is preferred by the live worker that hashes highest with it (rendezvous
hashing, Thaler and Ravishankar 1998), so one that comes or goes moves only its own part.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from struct import error as struct_error
from time import monotonic
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.archive.recovery import Archived
from crawler.frontier.records import OpenRecord
from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Argument, Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.faults import FAULTS
from crawler.shared.keys import Scripts
from crawler.shared.shard import Ops, read_lease

ALIVE_S: Final = 10.0  # it announces itself every second
NAMES_PER_S: Final = 100
"""Names of other workers that one reads, in the mean: 3 kB/s, and 40 ms of CPU for 1,000 names and
64 shards. Nothing but speed depends on them."""
MOST_NAMED: Final = 20  # workers that a person is told of at once
NAMES_HOLD_S: Final = 60.0  # though their number is the same, they may be others
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerRecord).decode


class Membership:
    def __init__(
        self,
        nodes: Nodes,
        scripts: Scripts,
        name: str,
        shards: int,
        say: Callable[[], WorkerRecord],
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
    me: WorkerRecord,
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


def _read(kept: bytes | None) -> WorkerRecord | None:
    try:
        return _decode(kept or b"")
    except msgspec.MsgspecError:
        return None


def _weight(worker: str, shard: int) -> int:
    return xxh3_64_intdigest(f"{worker}/{shard}".encode())


# Under which name a worker takes part: two that live never have one, for each would hide what the
# other says, the links on its disk among it.
#
# Rule: a name is free when nobody was heard of under it for ALIVE_S, or only the last life of who
# asks; it is taken in one step, so that of two who begin at once one is refused.

SPEAKS_S: Final = 3.0  # who lives says so every second


class PeerRecord(NamedTuple):
    kept: bytes  # as it stands in the hash; empty: nothing
    said: WorkerRecord | None  # None: nothing that we understand
    silent_s: float  # by the server's clock

    @property
    def is_alive(self) -> bool:
        return self.said is not None and self.silent_s < ALIVE_S


class WorkerNames:
    """Of one crawl. Raises a Fault: the server cannot be asked."""

    def __init__(self, nodes: Nodes, crawl: str) -> None:
        self._nodes = nodes
        self._key = keys.workers(crawl)
        self._crawl = crawl
        self._scripts = Scripts()

    async def heard(self, name: str) -> PeerRecord:
        kept = await self._ask("HGET", self._key, name) or b""
        try:
            said = _decode(kept)
        except msgspec.MsgspecError:
            return PeerRecord(kept, None, 0.0)
        return PeerRecord(kept, said, await self._now() - said.at)

    async def refuse_taken(self, name: str, dead: Collection[str]) -> PeerRecord:
        """Raises ConfigError: a worker of another session than the *dead* lives under it, or one of
        those does, in a copy of our data directory."""
        heard = await self.heard(name)
        if heard.said is None or not heard.is_alive:
            return heard
        if heard.said.session not in dead or await self.speaks(name, heard.said.session):
            raise _taken(heard.said, heard.silent_s)
        return heard

    async def speaks(self, name: str, session: str) -> bool:
        """Whether *session* lives. One that was just killed looks alive, so it is waited for."""
        first = await self.heard(name)
        if first.said is None or not first.is_alive or first.said.session != session:
            return False
        if _is_gone(first.said):
            return False
        await asyncio.sleep(SPEAKS_S)
        return (await self.heard(name)).kept != first.kept

    async def take(self, me: WorkerRecord, heard: PeerRecord) -> None:
        """*heard*: what stood under the name when it was found to be free. Raises ConfigError:
        somebody else has come meanwhile."""
        now = await self._now()
        said = replace(me, at=now)
        command = announcement(self._scripts, self._crawl, said, expected=heard.kept)
        if (await self._ask(*command))[0]:
            return
        await self.refuse_taken(me.name, {heard.said.session} if heard.said else ())

    async def _now(self) -> float:
        told = await self._ask("TIME")
        return int(told[0]) + int(told[1]) / 1e6

    async def _ask(self, *command: Any) -> Any:
        reply = await self._nodes.command(self._key, *command)
        if isinstance(reply, FAULTS):
            raise reply
        return reply


def _is_gone(worker: WorkerRecord) -> bool:
    """Known only of this machine. A container that starts again has its number again."""
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return worker.pid == os.getpid()


def _taken(other: WorkerRecord, silent_s: float) -> ConfigError:
    return ConfigError(
        f"a worker named {other.name} takes part in this crawl already (process {other.pid} on"
        f" {other.host}, heard of {max(silent_s, 0.0):.1f} s ago): give each its own"
        " CRAWLER_WORKER_NAME, or none. If that one has just died without its data directory,"
        f" try again in {ALIVE_S:.0f} s"
    )


# What a session leaves behind comes back at once, when it is known that it is over.
#
# Rule: only who knows that says so: the worker itself, or who holds its data directory. For all
# others a session ends with its time.


async def return_leases(
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


# What this worker's last life left open in Redis: looked up in its archive, then given back.
#
# Rule: in this order, and before its time has ended for all others. So whoever is given such a URL
# finds its content claimed; what cannot be asked or told now counts as archived.

Look: TypeAlias = Callable[[Iterable[OpenRecord]], Archived]
Now: TypeAlias = Callable[[], float]
_Open: TypeAlias = Mapping[int, Mapping[int, OpenRecord]]
"""Of shards: their leases by number, taken by our own clock."""
_NOBODY: Final = 0  # a lease that is none: nothing is reserved for it


async def give_back(nodes: Nodes, ops: Ops, session: str, look: Look, now: Now) -> int:
    """How many leases of *session* came back. *look*: what our archive has of some. *now*: our own
    clock."""
    opened = await _open(nodes, ops.shards, session, now)
    found = look([lease for leases in opened.values() for lease in leases.values()])
    # Where one is not heard, its page is fetched as one that may be archived.
    await nodes.run([ops.claim(claim.digest, _NOBODY, claim) for claim in found.claims])
    archived = {
        shard: [number for number, it in leases.items() if found.may_have(it.candidate)]
        for shard, leases in opened.items()
    }
    return await return_leases(nodes, ops, session, archived=archived)


async def _open(nodes: Nodes, shards: int, session: str, now: Now) -> _Open:
    names = [keys.leases(nodes.name, shard, session) for shard in range(shards)]
    told = await nodes.command(names[0], "TIME")
    if isinstance(told, FAULTS):
        return {}
    wall, ours = int(told[0]) + int(told[1]) / 1e6, now()
    clocks = [(n, ("HMGET", keys.totals(nodes.name, n), "clock", "offset")) for n in range(shards)]
    opened = [(n, ("HGETALL", name)) for n, name in enumerate(names)]
    replies = await nodes.commands([*clocks, *opened])
    return {
        shard: dict(_read_archive(found, _shards_time(clock, wall) - ours))
        for shard, (clock, found) in enumerate(zip(replies[:shards], replies[shards:], strict=True))
        if not isinstance(clock, FAULTS) and not isinstance(found, FAULTS)
    }


def _shards_time(clock: Sequence[bytes | None], wall: float) -> float:
    """As lua/shard.lua tells it: it never goes back, though the server's clock may."""
    latest, offset = (float(each or 0) for each in clock)
    return max(wall + offset, latest)


def _read_archive(fields: Sequence[bytes], ahead_s: float) -> Iterator[tuple[int, OpenRecord]]:
    """What nobody can read nobody has fetched."""
    for number, packed in zip(fields[::2], fields[1::2], strict=True):
        try:
            lease = read_lease(packed)
        except (ValueError, struct_error, msgspec.MsgspecError):
            continue
        yield int(number), OpenRecord(lease.candidate, lease.taken_at - ahead_s)

"""The workers of a crawl: which are alive, their names, and the shards each prefers.

Rule: each worker writes its record once a second. The reply has three numbers about all workers:
how many are alive, how many are starting, and the lowest mark that they have read. A shard is
preferred by the live worker that hashes highest with it (rendezvous hashing, Thaler and Ravishankar
1998), so a worker that joins or leaves moves only its own part.
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
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from crawler.archive.recovery import ArchivedAnswers
from crawler.frontier.records import OpenRecord
from crawler.model.types import ConfigError, CrawlerError, StoreUnavailable
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import ALIVE_S, WorkerRecord
from crawler.shared.connection import Argument
from crawler.shared.faults import FAULTS
from crawler.shared.keys import Scripts
from crawler.shared.shard import ShardOperations, read_lease

NAMES_PER_S: Final = 100
"""Names of other workers that one reads, in the mean: 3 kB/s, and 40 ms of CPU for 1,000 names and
64 shards. Only speed depends on them."""
MAX_SILENT_REPORTED: Final = 20  # silent workers that are reported at once
NAMES_HOLD_S: Final = 60.0  # names are read again after so long, even if their number is the same
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WorkerRecord).decode


class Membership:
    """Announces this worker once a second, and keeps which workers are alive and which shards this
    one prefers."""

    def __init__(
        self,
        nodes: Nodes,
        scripts: Scripts,
        name: str,
        shards: int,
        make_record: Callable[[], WorkerRecord],
        steady: Callable[[], float] = monotonic,
    ) -> None:
        """*name* is that of the crawl; *make_record* returns what this worker announces."""
        self._nodes = nodes
        self._scripts = scripts
        self._crawl = name
        self._key = keys.workers(name)
        self._shards = shards
        self._make_record = make_record
        self._steady = steady
        self._names: frozenset[str] = frozenset()  # of live workers, as last read
        self._read_at = float("-inf")  # monotonic
        self._lowest_mark = -1
        self._now = 0.0  # epoch seconds by the server, at the last `announce`
        self.preferred: frozenset[int] = frozenset(range(shards))
        self.live = 0  # live workers, this one among them
        self.starting = 0  # live workers that have not added their seeds yet
        self.silent_count = 0  # workers that are neither alive nor have left in good order

    async def announce(self) -> bool:
        """Announce this worker, and read the numbers about the others. Returns False if the server
        cannot be asked now."""
        try:
            time = await self._nodes.checked_command(self._key, "TIME")
            self._now = int(time[0]) + int(time[1]) / 1e6
            me = replace(self._make_record(), at=self._now)
            reply = await self._nodes.checked_command(
                self._key, *announcement(self._scripts, self._crawl, me)
            )
            self.live, self.starting = int(reply[1]), int(reply[2])
            self._lowest_mark = int(float(reply[3]))
            self.silent_count = max(0, int(reply[4]) - self.live)
            if self._are_names_old():
                await self._read_names(me.name)
        except StoreUnavailable:
            return False
        return True

    async def leave(self) -> None:
        """Remove this worker from the live ones. If that fails, it expires after ALIVE_S."""
        with suppress(CrawlerError):
            await self._nodes.checked_command(
                self._key,
                *announcement(self._scripts, self._crawl, self._make_record(), leaves=True),
            )

    async def silent(self, names: Iterable[str]) -> dict[str, int]:
        """Return which of *names* are silent, and how many links each last had on its disk."""
        found = {}
        for name in islice(names, MAX_SILENT_REPORTED):
            kept = await self._nodes.checked_command(self._key, "HGET", self._key, name)
            last = _read(kept)
            if last is None or not last.is_alive(self._now):
                found[name] = last.outbox if last else 0
        return found

    def all_have_read(self, mark: int) -> bool:
        """Return whether every live worker has read the opened hosts up to the mark *mark*."""
        return self.live > 0 and self._lowest_mark >= mark

    def _are_names_old(self) -> bool:
        age_s = self._steady() - self._read_at
        is_changed = self.live != len(self._names)
        most = max(self.live, len(self._names))
        return age_s >= NAMES_HOLD_S or (is_changed and age_s >= most / NAMES_PER_S)

    async def _read_names(self, me: str) -> None:
        alive = keys.announced(self._crawl)[1]
        found = await self._nodes.checked_command(self._key, "ZRANGE", alive, 0, -1)
        self._read_at = self._steady()
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
    """Return the command of the script `announce`. If the record under the name is not *expected*,
    nothing is written."""
    record = b"" if leaves else _encode(me)
    names = keys.announced(crawl)
    script = ("EVAL", scripts.text("announce"), len(names), *names)
    only_if = () if expected is None else (expected,)
    return (*script, me.name, record, me.state, me.opened_mark, ALIVE_S, *only_if)


def preferred(me: str, workers: Iterable[str], shards: int) -> frozenset[int]:
    """Return the shards that *me* hashes highest with, of all *workers*."""
    all_names = {me, *workers}
    return frozenset(
        shard
        for shard in range(shards)
        if max(all_names, key=lambda one: (_weight(one, shard), one)) == me
    )


def _read(kept: bytes | None) -> WorkerRecord | None:
    try:
        return _decode(kept or b"")
    except msgspec.MsgspecError:
        return None


def _weight(worker: str, shard: int) -> int:
    return xxh3_64_intdigest(f"{worker}/{shard}".encode())


ALIVE_WITHIN_S: Final = 3.0  # a live worker announces itself every second


class PeerRecord(NamedTuple):
    """The last announcement of a worker."""

    packed: bytes  # as stored in the hash; empty if there is none
    record: WorkerRecord | None  # None if *packed* cannot be decoded
    silent_s: float  # since then, by the server's clock

    @property
    def is_alive(self) -> bool:
        return self.record is not None and self.silent_s < ALIVE_S


class WorkerNames:
    """The names of the live workers of one crawl. They are unique, because each worker overwrites
    the record under its name. A name is free if it was not announced for ALIVE_S, or last by a dead
    session of the same worker; it is taken atomically. All methods raise a Fault."""

    def __init__(self, nodes: Nodes, crawl: str) -> None:
        self._nodes = nodes
        self._key = keys.workers(crawl)
        self._crawl = crawl
        self._scripts = Scripts()

    async def read(self, name: str) -> PeerRecord:
        kept = await self._nodes.checked_command(self._key, "HGET", self._key, name) or b""
        try:
            record = _decode(kept)
        except msgspec.MsgspecError:
            return PeerRecord(kept, None, 0.0)
        return PeerRecord(kept, record, await self._now() - record.at)

    async def refuse_taken(self, name: str, dead: Collection[str]) -> PeerRecord:
        """Return the record under *name*. Raises ConfigError if another live worker has it, or one
        of the *dead* sessions is alive, in a copy of our data directory."""
        peer = await self.read(name)
        if peer.record is None or not peer.is_alive:
            return peer
        if peer.record.session not in dead or await self.is_alive(name, peer.record.session):
            raise _name_taken(peer.record, peer.silent_s)
        return peer

    async def is_alive(self, name: str, session: str) -> bool:
        """Return whether *session* is alive. One that was just killed has a fresh record, so this
        waits ALIVE_WITHIN_S for the next."""
        first = await self.read(name)
        if first.record is None or not first.is_alive or first.record.session != session:
            return False
        if _is_gone(first.record):
            return False
        await asyncio.sleep(ALIVE_WITHIN_S)
        return (await self.read(name)).packed != first.packed

    async def take(self, me: WorkerRecord, last: PeerRecord) -> None:
        """Take the name of *me*, under which *last* was stored when it was found to be free. Raises
        ConfigError if another worker has taken it meanwhile."""
        now = await self._now()
        mine = replace(me, at=now)
        command = announcement(self._scripts, self._crawl, mine, expected=last.packed)
        if (await self._nodes.checked_command(self._key, *command))[0]:
            return
        await self.refuse_taken(me.name, {last.record.session} if last.record else ())

    async def _now(self) -> float:
        time = await self._nodes.checked_command(self._key, "TIME")
        return int(time[0]) + int(time[1]) / 1e6


def _is_gone(worker: WorkerRecord) -> bool:
    """Return whether the process of *worker* is known to have ended; that is known only on its
    machine. Our own pid counts as ended: a container that restarts has the same one."""
    if worker.host != socket.gethostname():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return worker.pid == os.getpid()


def _name_taken(other: WorkerRecord, silent_s: float) -> ConfigError:
    return ConfigError(
        f"a worker named {other.name} takes part in this crawl already (process {other.pid} on"
        f" {other.host}, seen {max(silent_s, 0.0):.1f} s ago): give each its own"
        " CRAWLER_WORKER_NAME, or none. If that one has just died without its data directory,"
        f" try again in {ALIVE_S:.0f} s"
    )


async def return_leases(
    nodes: Nodes,
    ops: ShardOperations,
    session: str,
    except_shards: Container[int] = (),
    archived: Mapping[int, Collection[int]] | None = None,
) -> int:
    """Return the leases of *session* to the frontier, and report how many. Only the worker itself,
    or the next one in its data directory, may call this. In the shards of *except_shards*, and
    those that cannot be asked, they expire. *archived* holds by shard the numbers of the leases
    whose pages are in the archive; in other shards all may be."""
    looked = archived or {}
    total, shards = 0, [shard for shard in range(ops.shards) if shard not in except_shards]
    while shards:
        replies = await nodes.run(
            [ops.return_leases(each, session, looked.get(each)) for each in shards]
        )
        back = [0 if isinstance(reply, FAULTS) else int(reply[1]) for reply in replies]
        total += sum(back)
        shards = [shard for shard, n in zip(shards, back, strict=True) if n]
    return total


FindArchived: TypeAlias = Callable[[Iterable[OpenRecord]], ArchivedAnswers]
Now: TypeAlias = Callable[[], float]
_OpenLeases: TypeAlias = Mapping[int, Mapping[int, OpenRecord]]
"""Open leases by shard and number, with the time they were taken by our own clock."""
_NO_LEASE: Final = 0  # the id of no lease: nothing is reserved for it


async def return_last_session_leases(
    nodes: Nodes, ops: ShardOperations, session: str, find_archived: FindArchived, now: Now
) -> int:
    """Search our archive for the leases of *session*, the last one of this worker, then return them
    to the frontier, and report how many. In this order, so that the content of such a URL is
    claimed when it is leased again. *find_archived* searches the archive; *now* is our own clock.
    """
    opened = await _open_leases(nodes, ops.shards, session, now)
    found = find_archived([lease for leases in opened.values() for lease in leases.values()])
    # A claim that fails is ignored: its page is fetched again as one that may be archived.
    await nodes.run([ops.claim(claim.digest, _NO_LEASE, claim) for claim in found.claims])
    archived = {
        shard: [number for number, lease in leases.items() if found.may_have(lease.candidate)]
        for shard, leases in opened.items()
    }
    return await return_leases(nodes, ops, session, archived=archived)


async def _open_leases(nodes: Nodes, shards: int, session: str, now: Now) -> _OpenLeases:
    names = [keys.leases(nodes.name, shard, session) for shard in range(shards)]
    time = await nodes.command(names[0], "TIME")
    if isinstance(time, FAULTS):
        return {}
    wall, ours = int(time[0]) + int(time[1]) / 1e6, now()
    clocks = [(n, ("HMGET", keys.totals(nodes.name, n), "clock", "offset")) for n in range(shards)]
    opened = [(n, ("HGETALL", name)) for n, name in enumerate(names)]
    replies = await nodes.commands([*clocks, *opened])
    return {
        shard: dict(_read_leases(found, _shards_time(clock, wall) - ours))
        for shard, (clock, found) in enumerate(zip(replies[:shards], replies[shards:], strict=True))
        if not isinstance(clock, FAULTS) and not isinstance(found, FAULTS)
    }


def _shards_time(clock: Sequence[bytes | None], wall: float) -> float:
    """Return the time of a shard as lua/shard.lua does: it never goes back, unlike the server's."""
    latest, offset = (float(each or 0) for each in clock)
    return max(wall + offset, latest)


def _read_leases(fields: Sequence[bytes], ahead_s: float) -> Iterator[tuple[int, OpenRecord]]:
    """Yield the leases in *fields*. One that cannot be decoded was not fetched, and is skipped."""
    for number, packed in zip(fields[::2], fields[1::2], strict=True):
        try:
            lease = read_lease(packed)
        except (ValueError, struct_error, msgspec.MsgspecError):
            continue
        yield int(number), OpenRecord(lease.candidate, lease.taken_at - ahead_s)

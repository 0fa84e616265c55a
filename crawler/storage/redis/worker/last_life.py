"""What this worker's last life left open in Redis: looked up in its archive, then given back.

Rule: in this order, and before its time has ended for all others. So whoever is given such a URL
finds its content claimed; what cannot be asked or told now counts as archived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from struct import error as struct_error
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from crawler.scheduler.records import OpenRecord
from crawler.storage.local.unfinished import Archived
from crawler.storage.redis import keys
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.shard_records import read_lease
from crawler.storage.redis.worker.burial import bury

Look: TypeAlias = Callable[[Iterable[OpenRecord]], Archived]
Now: TypeAlias = Callable[[], float]
_Open: TypeAlias = Mapping[int, Mapping[int, OpenRecord]]
"""Of shards: their leases by number, taken by our own clock."""
_NOBODY: Final = 0  # a lease that is none: nothing is reserved for it


class Nodes(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, calls: Sequence[Call]) -> list[Any]: ...

    async def command(self, key: str, *command: Argument) -> Any: ...

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]: ...


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
    return await bury(nodes, ops, session, archived=archived)


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
        shard: dict(_read(found, _shards_time(clock, wall) - ours))
        for shard, (clock, found) in enumerate(zip(replies[:shards], replies[shards:], strict=True))
        if not isinstance(clock, FAULTS) and not isinstance(found, FAULTS)
    }


def _shards_time(clock: Sequence[bytes | None], wall: float) -> float:
    """As lua/shard.lua tells it: it never goes back, though the server's clock may."""
    latest, offset = (float(each or 0) for each in clock)
    return max(wall + offset, latest)


def _read(fields: Sequence[bytes], ahead_s: float) -> Iterator[tuple[int, OpenRecord]]:
    """What nobody can read nobody has fetched."""
    for number, packed in zip(fields[::2], fields[1::2], strict=True):
        try:
            lease = read_lease(packed)
        except (ValueError, struct_error, msgspec.MsgspecError):
            continue
        yield int(number), OpenRecord(lease.candidate, lease.taken_at - ahead_s)

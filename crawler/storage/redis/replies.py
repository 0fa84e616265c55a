"""What a shard answers, in our words.

Rule: what it gives us was written by workers like us, and is still read as what came from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from crawler.core.types import Added, KeptOut, Lease, Pace, Standing
from crawler.storage.redis.fates import Unreadable
from crawler.storage.redis.ops import PACE, lease_id
from crawler.storage.redis.packed import unpack


@dataclass(frozen=True, slots=True)
class Leased:
    leases: list[Lease]
    wake_s: float | None  # when to ask again; None: nothing waits for a time
    lost: bool = False  # leases of this session have ended, and come back
    unreadable: tuple[Unreadable, ...] = ()


def read_added(reply: Sequence[Any]) -> Added:
    kept_out = tuple(
        KeptOut(unit.decode("ascii", "replace"), name.decode("utf-8", "replace"), int(links))
        for unit, name, links in zip(reply[4::3], reply[5::3], reply[6::3], strict=True)
    )
    return Added(int(reply[1]), int(reply[2]), int(reply[3]), kept_out=kept_out)


def read_leases(reply: Sequence[Any], shard: int, taken_at: float | None = None) -> Leased:
    """*taken_at*: epoch seconds by the worker's own clock; None: the server's stands for it."""
    wake_s = float(reply[2]) if reply[2] else None
    server_now = float(reply[3])
    leases, unreadable = [], []
    for at in range(4, len(reply), 5):
        number, front, host, pace, body = reply[at : at + 5]
        name = host.decode("utf-8", "replace")
        try:
            candidate = unpack(body, name, int(front) - 1)
        except (msgspec.MsgspecError, UnicodeError) as broken:
            unreadable.append(Unreadable(int(number), name, body, str(broken)))
            continue
        taken = server_now if taken_at is None else taken_at
        leases.append(Lease(lease_id(shard, int(number)), candidate, read_pace(pace), taken))
    return Leased(leases, wake_s, reply[1] == b"lost", tuple(unreadable))


def read_held(reply: Sequence[Any]) -> list[bool]:
    """Of `release` and `finish`: which were still held, in their order."""
    return [bool(each) for each in reply[1:]]


def read_ids(reply: Sequence[Any], shard: int) -> set[int]:
    return {lease_id(shard, int(number)) for number in reply[1:]}


def read_pace(packed: bytes) -> Pace:
    gap_s, crawl_delay_s, failures, pauses, standing = PACE.unpack(packed.ljust(PACE.size, b"\0"))
    return Pace(gap_s, failures, pauses, crawl_delay_s, Standing(standing))

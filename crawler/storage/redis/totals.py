"""The totals of a shard, as its hash `m` holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from crawler.core.types import Counts

RUN_BYTES: Final = 8
"""Of the run of a server, as replies begin with it (lua/shard.lua)."""


@dataclass(frozen=True, slots=True)
class Totals:
    waiting: int = 0
    later: int = 0
    leased: int = 0
    seen: int = 0
    done: int = 0
    dead: int = 0
    refused: int = 0
    adds: int = 0  # URLs ever admitted: two looks that agree on it saw no add between them
    clock: float = 0.0  # epoch seconds by the server
    run: bytes = b""  # of its server, as replies begin with it; empty: the shard is not there

    @classmethod
    def read(cls, fields: Mapping[bytes, bytes]) -> Self:
        """From a HGETALL."""
        known = {name.encode(): name for name in cls.__slots__ if name not in {"clock", "run"}}
        numbers = {known[key]: int(value) for key, value in fields.items() if key in known}
        clock, run = float(fields.get(b"clock", 0)), fields.get(b"run", b"")[:RUN_BYTES]
        return cls(**numbers, clock=clock, run=run)

    @classmethod
    def of_reply(cls, reply: Sequence[bytes]) -> Self:
        """From a HGETALL as it comes over the wire: names and values in turn."""
        return cls.read(dict(zip(reply[::2], reply[1::2], strict=True)))

    @property
    def unfinished(self) -> int:
        return self.waiting + self.later + self.leased

    @staticmethod
    def summed(shards: Iterable[Totals]) -> Counts:
        """None below 0, though a counter may have drifted."""
        every = list(shards)
        return Counts(
            waiting=max(0, sum(each.waiting for each in every)),
            later=max(0, sum(each.later for each in every)),
            leased=max(0, sum(each.leased for each in every)),
            hosts_active=max(0, sum(each.leased for each in every)),
            seen=sum(each.seen for each in every),
            done=sum(each.done for each in every),
            dead=sum(each.dead for each in every),
            refused=sum(each.refused for each in every),
        )

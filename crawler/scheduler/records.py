"""The frontier's records on disk, as msgpack arrays.

Rule: fields are only added at the end, with a default; SCHEMA rises when that is not enough.
"""

from __future__ import annotations

from typing import Final

import msgspec

from crawler.core.types import Candidate, Claim, HostKey, Pace
from crawler.scheduler.places import Place

SCHEMA: Final = 1
# Queue numbers start in the middle, because what is put back goes before the head.
MIDDLE: Final = 1 << 40


class Ends(msgspec.Struct, array_like=True, gc=False):
    """A FIFO by consecutive numbers: the next one out, and the next one in."""

    head: int = MIDDLE
    tail: int = MIDDLE

    def __len__(self) -> int:
        return self.tail - self.head


class HostRecord(msgspec.Struct, array_like=True, gc=False):
    """A host, durable. Its waiting URLs are `ends` long at each level."""

    ends: list[Ends]
    place: Place = Place.EMPTY
    level: int = 0  # where it is filed
    generation: int = 0  # of its filing; older front entries are stale
    rest_until: float = 0.0  # epoch seconds
    pace: Pace = Pace()
    admitted: int = 0  # URLs ever admitted of it

    def best_level(self) -> int | None:
        for level, ends in enumerate(self.ends):
            if len(ends):
                return level
        return None

    def waiting(self) -> int:
        return sum(map(len, self.ends))


class Totals(msgspec.Struct, array_like=True, gc=False):
    """The frontier's own record, written with every call: nothing is ever counted again."""

    front: list[Ends]  # of hosts that were never asked, by level
    schema: int = SCHEMA
    waiting: int = 0
    later: int = 0
    seen: int = 0
    done: int = 0
    dead: int = 0
    next_number: int = 1  # of leases, later URLs and dead letters: never used twice
    leased: int = 0
    clock: float = 0.0  # the latest `now` of any call: time never goes back between runs
    refused: int = 0  # URLs that waited, and that a rule keeps out
    front_answers: list[Ends] = []
    front_fails: list[Ends] = []

    def fronts(self) -> tuple[list[Ends], list[Ends], list[Ends]]:
        """By standing."""
        return self.front, self.front_answers, self.front_fails


class FrontEntry(msgspec.Struct, array_like=True, gc=False, frozen=True):
    host: HostKey
    generation: int


class OpenRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A lease that is not finished."""

    candidate: Candidate
    taken_at: float  # epoch seconds


class DeadLetter(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A URL given up, until a person puts it back."""

    candidate: Candidate
    reason: str
    at: float  # epoch seconds


class RefusedRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A URL that waited and that a rule of a later start refused."""

    candidate: Candidate
    reason: str  # which rule, as policy.refusal.Reason
    at: float  # epoch seconds


encode = msgspec.msgpack.Encoder().encode


def encode_refused(candidate: bytes, reason: str, at: float) -> bytes:
    """A RefusedRecord of *candidate* as it is packed already."""
    return encode((msgspec.Raw(candidate), reason, at))


decode_candidate = msgspec.msgpack.Decoder(Candidate).decode
decode_host = msgspec.msgpack.Decoder(HostRecord).decode
decode_totals = msgspec.msgpack.Decoder(Totals).decode
decode_entry = msgspec.msgpack.Decoder(FrontEntry).decode
decode_open = msgspec.msgpack.Decoder(OpenRecord).decode
decode_claim = msgspec.msgpack.Decoder(Claim).decode
decode_refused = msgspec.msgpack.Decoder(RefusedRecord).decode
decode_letter = msgspec.msgpack.Decoder(DeadLetter).decode

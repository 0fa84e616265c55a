"""Where everything of a frontier stands in its ordered store: one letter, then the order.

Rule: only this file builds or reads keys. Numbers are big-endian, so bytes sort as they do.

    m                       totals: schema, counters, ends of the front queues
    s <key 8>               seen URL
    b <host> 0 <level> <n>  body: a waiting URL; level and number give its turn
    h <host>                host record: place, rest, pace, ends of its queues
    f p q <level> <n>       front queues: a host waiting for its turn; f: it was never asked, p: it
                            answers, q: its last fetch failed
    a <host>                host in memory when we died
    r <time> <host>         host at rest, by the end of its rest
    l <time> <n>            later URL, by its date
    o <lease id>            open lease: the URL it holds
    d <n>                   dead letter
    x <n>                   URL that a rule of the last start refused when its turn came
    c <domain>              URLs admitted of a registered domain
    g <digest>              content digest: the page that owns it
    n <digest>              fingerprint of its text, until the near-duplicate index has it
    t <authority>           robots.txt of scheme://host:port
    w <host:port>           loopback that seeds or start requests have opened
    y <host>                how many patterns of it are known, and how many have stopped
    y <host> 0 <pattern>    what the URLs of a pattern have brought
    e <kind of URL>         what its host says of a name it does not have
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from typing import Final

import msgspec

from crawler.model.types import (
    Candidate,
    Claim,
    HostKey,
    Pace,
    Standing,
)

TOTALS: Final = b"m"
SEEN: Final = b"s"
BODY: Final = b"b"
HOST: Final = b"h"
FRONTS: Final = (b"f", b"p", b"q")  # by standing
ACTIVE: Final = b"a"
RESTING: Final = b"r"
LATER: Final = b"l"
OPEN: Final = b"o"
DEAD: Final = b"d"
REFUSED: Final = b"x"
DOMAIN: Final = b"c"
DIGEST: Final = b"g"
NEAR: Final = b"n"
ROBOTS: Final = b"t"
DOORS: Final = b"w"
YIELD: Final = b"y"
SOFT_404: Final = b"e"

_NUMBER: Final = Struct(">Q")
_LEVEL_NUMBER: Final = Struct(">BQ")
_MICROS: Final = 1_000_000


def numbered(prefix: bytes, number: int) -> bytes:
    return prefix + _NUMBER.pack(number)


def all_numbered(prefix: bytes, numbers: Iterable[int]) -> list[bytes]:
    """Forty at once, as a page has links, in half the time."""
    pack = _NUMBER.pack
    return [prefix + pack(number) for number in numbers]


def number_of(key: bytes) -> int:
    return int(_NUMBER.unpack(key[-8:])[0])


def named(prefix: bytes, name: str) -> bytes:
    return prefix + name.encode()


def name_of(key: bytes) -> str:
    return key[1:].decode()


def body_queue(host: HostKey, level: int) -> bytes:
    """What the keys of one host's URLs of one level begin with; their number follows."""
    return BODY + host.encode() + b"\0" + bytes([level])


def body(host: HostKey, level: int, number: int) -> bytes:
    return numbered(body_queue(host, level), number)


def pattern_of_host(host: HostKey, pattern: str) -> bytes:
    return YIELD + host.encode() + b"\0" + pattern.encode()


def front(standing: Standing, level: int, number: int) -> bytes:
    return FRONTS[standing] + _LEVEL_NUMBER.pack(level, number)


def timed(prefix: bytes, when: float, rest: bytes) -> bytes:
    """*when* in epoch seconds, kept to the microsecond and rounded up: never early."""
    return prefix + _NUMBER.pack(max(0, -int(-when * _MICROS // 1))) + rest


def until(prefix: bytes, now: float) -> bytes:
    """The end of all keys of *prefix* with a time <= *now*."""
    return numbered(prefix, max(0, int(now * _MICROS)) + 1)


def time_of(key: bytes) -> float:
    return float(_NUMBER.unpack(key[1:9])[0]) / _MICROS


def after(prefix: bytes) -> bytes:
    """The end of all keys that begin with *prefix*."""
    return bytes([prefix[0] + 1])


# Where a host is, and how it may move: a table.
#
# Rule: a host is in one place at a time; a move that is not in the table is our bug.


class HostPlace(IntEnum):
    EMPTY = 0  # known; nothing waits; its rest may still run
    FRONT = 1  # filed in the front queue of its best level
    ACTIVE = 2  # in memory, with the head of one level
    RESTING = 3  # on disk until its rest is over


class HostEvent(IntEnum):
    FILE = 0  # it has URLs and waits for a turn; or waits at a better level
    ACTIVATE = 1  # its turn begins
    REST = 2  # it must be left alone for long, and leaves memory
    RUN_DRY = 3  # its last URL was taken and its fetch is over


MOVES: Final[dict[tuple[HostPlace, HostEvent], HostPlace]] = {
    (HostPlace.EMPTY, HostEvent.FILE): HostPlace.FRONT,
    (HostPlace.FRONT, HostEvent.FILE): HostPlace.FRONT,  # a better URL: the older entry turns stale
    (HostPlace.FRONT, HostEvent.ACTIVATE): HostPlace.ACTIVE,
    (HostPlace.FRONT, HostEvent.REST): HostPlace.RESTING,
    (HostPlace.ACTIVE, HostEvent.FILE): HostPlace.FRONT,  # its turn is over
    (HostPlace.ACTIVE, HostEvent.REST): HostPlace.RESTING,
    (HostPlace.ACTIVE, HostEvent.RUN_DRY): HostPlace.EMPTY,
    (HostPlace.RESTING, HostEvent.FILE): HostPlace.FRONT,  # its rest is over
}


class IllegalMove(AssertionError):
    """A host was moved in a way the table forbids: our bug, never the user's."""


def move(place: HostPlace, event: HostEvent) -> HostPlace:
    try:
        return MOVES[place, event]
    except KeyError:
        raise IllegalMove(f"{event.name} while {place.name}") from None


# The frontier's records on disk, as msgpack arrays.
#
# Rule: fields are only added at the end, with a default; SCHEMA rises when that is not enough.

SCHEMA: Final = 1
# Queue numbers start in the middle, because what is put back goes before the head.
MIDDLE: Final = 1 << 40


class QueueEnds(msgspec.Struct, array_like=True, gc=False):
    """A FIFO by consecutive numbers: the next one out, and the next one in."""

    head: int = MIDDLE
    tail: int = MIDDLE

    def __len__(self) -> int:
        return self.tail - self.head


class HostRecord(msgspec.Struct, array_like=True, gc=False):
    """A host, durable. Its waiting URLs are `ends` long at each level."""

    ends: list[QueueEnds]
    place: HostPlace = HostPlace.EMPTY
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


class FrontierTotals(msgspec.Struct, array_like=True, gc=False):
    """The frontier's own record, written with every call: nothing is ever counted again."""

    front: list[QueueEnds]  # of hosts that were never asked, by level
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
    front_answers: list[QueueEnds] = []
    front_fails: list[QueueEnds] = []

    def fronts(self) -> tuple[list[QueueEnds], list[QueueEnds], list[QueueEnds]]:
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
decode_totals = msgspec.msgpack.Decoder(FrontierTotals).decode
decode_entry = msgspec.msgpack.Decoder(FrontEntry).decode
decode_open = msgspec.msgpack.Decoder(OpenRecord).decode
decode_claim = msgspec.msgpack.Decoder(Claim).decode
decode_refused = msgspec.msgpack.Decoder(RefusedRecord).decode
decode_letter = msgspec.msgpack.Decoder(DeadLetter).decode

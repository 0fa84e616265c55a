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
from struct import Struct
from typing import Final

from crawler.core.types import HostKey, Standing

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

"""The keys and records of a frontier in its ordered store.

Rule: only this file builds or reads keys. Numbers are big-endian, so keys sort in their order. The
records of a shard (A G L O Q S U b c d h l o u v x y z) have it, two bytes, in front of a host, a
domain or an address, or in n, a number that is used once: behind the letter, in `l` behind the
time.

    m                       totals: counters, ends of the front queues
    m <shard>               the counters of one shard, where a frontier has several
    b <host> 0 <level> <k>  a chunk of waiting URLs with consecutive numbers, of which k is the last
    u <n>                   URLs that one commit added, until it is decided which are new
    v <n>                   URLs that may have been admitted before, until the runs are searched
    k                       the manifest of the runs of seen keys
    z <n>                   keys of URLs that one decision admitted, until a run has them; where a
                            frontier has several shards, as long as it has theirs
    h <host>                host record: place, rest, pace, ends of its queues
    f p q <level> <n>       front queues: a host waiting for its turn; f: it was never fetched from,
                            p: it answers, q: its last fetch failed
    A <address>             until when an address that hosts share rests
    a <host>                active host: in memory, or it was when the process died
    H <host>                host that waits for the next round
    r <time> <host>         host at rest, by the end of its rest; whether it waits for its address
    l <time> <n>            later URL, by its date
    l <class> <time> <n>    page that is visited again when that is worth it, by its last visit, or
                            (class fe, 1 byte) at that time; a date begins with 0
    U <host> 0 <key of a URL>  where a URL is that was updated, or all of them if they are listed
    Q <host>                the queue of a host whose URLs are listed
    S <key of a URL>        where in `l` a page waits that a sitemap or a feed has a date for
    o <lease id>            open lease: the URL it holds
    d <n>                   dead letter
    x <n>                   URL that a rule of the last start refused when its turn came
    c <domain>              domain record: URLs admitted, who links to it, ends of what is spilled
    O <domain> 0 <k>        a chunk of spilled URLs of a domain, as in `b`
    B <class> <time> <domain>  domain with spilled URLs (class: 1 byte), by the end of its round
    G <n>                   page that is gone
    g <digest>              content digest: the claim of the page that had it first
    i <fingerprint> <n>     digest of a page with this fingerprint, finished under lease n
    j <n / 64>              log: fingerprints of the pages finished under 64 leases
    t <authority>           robots.txt of scheme://host:port
    w <host:port>           loopback origin that seeds or start requests allow
    C                       lists of `only=LIST` that were added, and are not over
    L <seeds>               what was fetched of seeds with limits, by a hash of their scope
    y <host>                how many patterns of the host are known, and how many have stopped
    y <host> 0 <pattern>    statistics of the pages of a pattern
    e <kind of URL>         the host's answer to a probe, for URLs of this kind
    R <host>                where the URLs are in a URL Frontier: the rest and the pace of a host
    N                       there: how many numbers of leases were used
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum, StrEnum
from math import ceil, inf
from struct import Struct
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.model.counts import Counts
from crawler.model.types import (
    Candidate,
    Claim,
    ConditionalVisits,
    HostFetch,
    HostKey,
    Pace,
    Standing,
)
from crawler.policy.priority import NO_CASH
from crawler.policy.revisits import Signals

TOTALS: Final = b"m"
SEEN_RUNS: Final = b"k"
QUEUED: Final = b"b"
ARRIVED: Final = b"u"
UNDECIDED: Final = b"v"
ADMITTED_KEYS: Final = b"z"
HOST: Final = b"h"
ADDRESS: Final = b"A"
FRONTS: Final = (b"f", b"p", b"q")  # by standing
ACTIVE: Final = b"a"
HELD: Final = b"H"
RESTING: Final = b"r"
LATER: Final = b"l"
OPEN: Final = b"o"
DEAD: Final = b"d"
REFUSED: Final = b"x"
DATED: Final = b"S"
LISTED: Final = b"U"
QUEUE: Final = b"Q"
DOMAIN: Final = b"c"
SPILLED: Final = b"O"
FILED: Final = b"B"
GONE: Final = b"G"
DIGEST: Final = b"g"
PRINT_PAGE: Final = b"i"
PRINT_LOG: Final = b"j"
ROBOTS: Final = b"t"
LOOPBACK: Final = b"w"
CHOSEN_LISTS: Final = b"C"
PATTERN: Final = b"y"
SEED_TALLY: Final = b"L"
SOFT_404: Final = b"e"
REMOTE_HOST: Final = b"R"
REMOTE_LEASES: Final = b"N"

SHARD_BYTES: Final = 2
ONE_SHARD: Final = bytes(SHARD_BYTES)
"""The shard of all records of a crawl that has no others."""

_NUMBER: Final = Struct(">Q")
_NUMBER_BITS: Final = 64 - 8 * SHARD_BYTES
_PLACE_NUMBER: Final = Struct(">HQ")
_MICROS: Final = 1_000_000
_PRINT_PAGE: Final = Struct(">QQ")
_LOG_BITS: Final = 6


def numbered(prefix: bytes, number: int) -> bytes:
    return prefix + _NUMBER.pack(number)


def all_numbered(prefix: bytes, numbers: Iterable[int]) -> list[bytes]:
    """Return `numbered` for each of *numbers*: for 40, the links of a page, in half the time."""
    pack = _NUMBER.pack
    return [prefix + pack(number) for number in numbers]


def number_of(key: bytes) -> int:
    return int(_NUMBER.unpack(key[-8:])[0])


def number_in(shard: bytes, number: int) -> int:
    """Return *number* as one of *shard*."""
    return int.from_bytes(shard) << _NUMBER_BITS | number


def number_in_shard(key: bytes) -> int:
    """Return the number at the end of a key, without its shard."""
    return number_of(key) & ((1 << _NUMBER_BITS) - 1)


def shard_of_number(number: int) -> int:
    return number >> _NUMBER_BITS


SHARD_AT: Final = slice(1, 3)
"""Where the shard is in the key of a record that has one, but for those with a time before it."""


def shard_in(key: bytes) -> bytes:
    """Return the shard of a record that has one."""
    return key[9:11] if key.startswith((LATER, FILED)) else key[SHARD_AT]


def name_of_record(key: bytes) -> bytes:
    """Return what a record of a shard is called within it, beside its letter."""
    return key[1:] if key.startswith(LATER) else key[3:]


def record_of_shard(prefix: bytes, shard: bytes, name: bytes) -> bytes:
    """Return the key of the record of *shard* that `name_of_record` returned *name* of."""
    return prefix + name if prefix == LATER else prefix + shard + name


def lease_name(lease_id: int) -> bytes:
    """Return what `name_of_record` does of an open lease."""
    return _NUMBER.pack(lease_id)[SHARD_BYTES:]


def named(prefix: bytes, name: str) -> bytes:
    return prefix + name.encode()


def name_of(key: bytes) -> str:
    return key[1:].decode()


def in_shard(prefix: bytes, shard: bytes, name: str) -> bytes:
    """Return the key of a host or a domain."""
    return prefix + shard + name.encode()


def name_in_shard(key: bytes) -> str:
    return key[3:].decode()


def url_queue(shard: bytes, host: HostKey, level: int) -> bytes:
    """Return the prefix of the keys of a host's chunks of one level."""
    return QUEUED + shard + host.encode() + b"\0" + bytes([level])


def chunk(shard: bytes, host: HostKey, level: int, last: int) -> bytes:
    return numbered(url_queue(shard, host, level), last)


_CLASS_AT: Final = 56  # bits: the class of a filed domain is in the first byte of its time


def filed_offset(number: int) -> int:
    """Return what is added to the times of domains that are filed under class *number*."""
    return number << _CLASS_AT


def filed(number: int, due_at: int, shard: bytes, domain: str) -> bytes:
    """Return the key of a domain that is filed under class *number* and due then."""
    return timed(FILED, due_at, shard + domain.encode(), filed_offset(number))


def class_of_filed(key: bytes) -> int:
    return key[1]


def domain_of_filed(key: bytes) -> str:
    return key[11:].decode()


def spilled_prefix(shard: bytes, domain: str) -> bytes:
    return SPILLED + shard + domain.encode() + b"\0"


def spilled(shard: bytes, domain: str, last: int) -> bytes:
    """Return the key of a chunk of spilled URLs of *domain*."""
    return numbered(spilled_prefix(shard, domain), last)


def pattern_of_host(shard: bytes, host: HostKey, pattern: str) -> bytes:
    return PATTERN + shard + host.encode() + b"\0" + pattern.encode()


def seed_tally(shard: bytes, seeds: bytes) -> bytes:
    """Return the key of what was fetched of *seeds*, a hash of their scope."""
    return SEED_TALLY + shard + seeds


def place_in_front(standing: Standing, level: int, cash: int) -> int:
    """Return the number of a front queue, of a class of *cash*."""
    return (standing << 8 | level) << 8 | cash


def front_place(place: int) -> tuple[Standing, int, int]:
    """Return what `place_in_front` was called with."""
    return Standing(place >> 16), place >> 8 & 0xFF, place & 0xFF


def front(place: int, number: int) -> bytes:
    """Return the key of an entry of a front queue."""
    return FRONTS[place >> 16] + _PLACE_NUMBER.pack(place & 0xFFFF, number)


def page_of_print(simhash: int, number: int) -> bytes:
    """Return the key of a page with this fingerprint; keys sort by the *number* of its lease."""
    return PRINT_PAGE + _PRINT_PAGE.pack(simhash, number)


def print_log(number: int) -> bytes:
    return numbered(PRINT_LOG, number >> _LOG_BITS)


def packed_print(simhash: int) -> bytes:
    """Return a fingerprint as the log holds it."""
    return simhash.to_bytes(8, "little")


def timed(prefix: bytes, when: float, suffix: bytes, offset: int = 0) -> bytes:
    """Return the key for *when*, epoch seconds, rounded up to the microsecond: never early.
    *offset*: of the dates of a kind, in microseconds."""
    return prefix + _NUMBER.pack(offset + max(0, -int(-when * _MICROS // 1))) + suffix


_CLASS_BYTES: Final = 3
_FIRST_CLASS: Final = 1 << 16
_VISITS_A_SECOND: Final = 256
_LAST_VISIT: Final = (1 << 32) - 1  # in the year 2106


VISIT_DATES: Final = 0xFE << 56
"""Is added to the date of a page that is visited again then."""


def dated(shard: bytes, key: int) -> bytes:
    """Return the key of the place of a page, which has this *key* as a URL."""
    return DATED + shard + _NUMBER.pack(key)


def listed_of(shard: bytes, host: HostKey) -> bytes:
    """Return the prefix of the keys of the listed URLs of a host."""
    return LISTED + shard + host.encode() + b"\0"


def listed(shard: bytes, host: HostKey, key: int) -> bytes:
    """Return the key of a listed URL, which has this *key*."""
    return listed_of(shard, host) + _NUMBER.pack(key)


def host_of_listed(key: bytes) -> HostKey:
    return HostKey(key[3:-9].decode())


def visit_class(number: int) -> bytes:
    """Return the prefix of the keys of pages of a class of change rates."""
    return LATER + (number + _FIRST_CLASS).to_bytes(_CLASS_BYTES)


def visited(number: int, at: int, suffix: bytes) -> bytes:
    """Return the key of a page of a class that was visited last *at*, epoch seconds, or is to come
    as if it had been: earlier if signals of a change have come, later if it is put off."""
    at = min(max(at, 0), _LAST_VISIT)
    return visit_class(number) + (at * _VISITS_A_SECOND).to_bytes(5) + suffix


def class_of_visited(key: bytes) -> int:
    return int.from_bytes(key[1 : 1 + _CLASS_BYTES]) - _FIRST_CLASS


def is_without_date(key: bytes) -> bool:
    """Return whether the later URL of this key is a page that is visited when that is worth it."""
    return visit_class(0) <= key < numbered(LATER, VISIT_DATES)


def visited_at(key: bytes) -> int:
    """Return when the page of this key was visited last, in epoch seconds."""
    return int.from_bytes(key[1 + _CLASS_BYTES : 9]) // _VISITS_A_SECOND


def due_end(prefix: bytes, now: float, offset: int = 0) -> bytes:
    """Return the end of all keys of *prefix* and *offset* with a time <= *now*."""
    return numbered(prefix, offset + max(0, int(now * _MICROS)) + 1)


def time_of(key: bytes, offset: int = 0) -> float:
    return float(_NUMBER.unpack(key[1:9])[0] - offset) / _MICROS


def prefix_end(prefix: bytes) -> bytes:
    """Return the end of all keys that begin with *prefix*: letters, and perhaps a shard."""
    number = int.from_bytes(prefix) + 1
    return number.to_bytes(len(prefix))


class HostPlace(IntEnum):
    """Where a host is: in one place at a time. `TRANSITIONS` has all legal moves."""

    EMPTY = 0  # known, without waiting URLs; its rest may not be over
    FRONT = 1  # filed in the front queue of its best level
    ACTIVE = 2  # in memory, with the head of one level
    RESTING = 3  # on disk until its rest is over
    HELD = 4  # on disk until the next round, as it may be leased no more in this one


class HostEvent(IntEnum):
    FILE = 0  # it has URLs and waits for a turn, or for one at a better level
    ACTIVATE = 1  # its turn begins
    REST = 2  # its rest is long, so it leaves memory
    RUN_DRY = 3  # its last URL was taken and its fetch is over
    HOLD = 4  # the round has its full number of it, or no URL of its kind waits


TRANSITIONS: Final[dict[tuple[HostPlace, HostEvent], HostPlace]] = {
    (HostPlace.EMPTY, HostEvent.FILE): HostPlace.FRONT,
    (HostPlace.FRONT, HostEvent.FILE): HostPlace.FRONT,  # a better URL; the older entry is stale
    (HostPlace.FRONT, HostEvent.ACTIVATE): HostPlace.ACTIVE,
    (HostPlace.FRONT, HostEvent.REST): HostPlace.RESTING,
    (HostPlace.ACTIVE, HostEvent.FILE): HostPlace.FRONT,  # its turn is over
    (HostPlace.ACTIVE, HostEvent.REST): HostPlace.RESTING,
    (HostPlace.ACTIVE, HostEvent.RUN_DRY): HostPlace.EMPTY,
    (HostPlace.RESTING, HostEvent.FILE): HostPlace.FRONT,  # its rest is over
    (HostPlace.FRONT, HostEvent.RUN_DRY): HostPlace.EMPTY,  # all its URLs were dropped
    (HostPlace.RESTING, HostEvent.RUN_DRY): HostPlace.EMPTY,  # all its URLs were dropped
    (HostPlace.FRONT, HostEvent.HOLD): HostPlace.HELD,
    (HostPlace.ACTIVE, HostEvent.HOLD): HostPlace.HELD,
    (HostPlace.RESTING, HostEvent.HOLD): HostPlace.HELD,
    (HostPlace.HELD, HostEvent.HOLD): HostPlace.HELD,  # looked at again, by another start's caps
    (HostPlace.HELD, HostEvent.FILE): HostPlace.FRONT,  # the next round, or a lease was put back
    (HostPlace.HELD, HostEvent.RUN_DRY): HostPlace.EMPTY,  # all its URLs were dropped
}


class UrlState(StrEnum):
    """Where a URL is: in one state at a time. `URL_TRANSITIONS` has all legal moves. Each state but
    UNKNOWN is the name of its counter in `FrontierTotals`."""

    UNKNOWN = "unknown"  # never admitted
    WAITING = "waiting"  # in the queue of its host and level
    LATER = "later"  # it is tried, or visited, again at a date or when that is worth it
    LEASED = "leased"  # from its lease until its verdict is applied
    DONE = "done"  # fetched, and its page is durable
    DEAD = "dead"  # given up; kept as a dead letter
    REFUSED = "refused"  # by a rule of this start; kept for a start that admits it


class UrlEvent(StrEnum):
    ADD = "add"
    ADD_FOR_LATER = "add for later"
    COME_DUE = "come due"
    LEASE = "lease"
    REFUSE = "refuse"
    READMIT = "readmit"
    FINISH = "finish"  # Done or Moved, or an update that says so
    POSTPONE = "postpone"  # RetryAt, or it is lent
    PUT_BACK = "put back"  # PutBack
    GIVE_UP = "give up"  # Dead
    LOSE = "lose"  # the process that held the lease has died
    RETRY_DEAD = "retry dead"  # by `scrapy frontier retry`
    REVISIT = "revisit"  # Done, and visited again
    DROP = "drop"  # given up by the operator
    FORGET = "forget"  # a deletion request, or an update


URL_TRANSITIONS: Final[dict[tuple[UrlState, UrlEvent], UrlState]] = {
    (UrlState.UNKNOWN, UrlEvent.ADD): UrlState.WAITING,
    (UrlState.UNKNOWN, UrlEvent.ADD_FOR_LATER): UrlState.LATER,
    (UrlState.UNKNOWN, UrlEvent.FINISH): UrlState.DONE,
    (UrlState.WAITING, UrlEvent.LEASE): UrlState.LEASED,
    (UrlState.WAITING, UrlEvent.POSTPONE): UrlState.LATER,
    (UrlState.WAITING, UrlEvent.REFUSE): UrlState.REFUSED,
    (UrlState.LATER, UrlEvent.COME_DUE): UrlState.WAITING,
    (UrlState.LEASED, UrlEvent.FINISH): UrlState.DONE,
    (UrlState.LEASED, UrlEvent.POSTPONE): UrlState.LATER,
    (UrlState.LEASED, UrlEvent.PUT_BACK): UrlState.WAITING,
    (UrlState.LEASED, UrlEvent.LOSE): UrlState.WAITING,
    (UrlState.LEASED, UrlEvent.GIVE_UP): UrlState.DEAD,
    (UrlState.REFUSED, UrlEvent.READMIT): UrlState.WAITING,
    (UrlState.DEAD, UrlEvent.RETRY_DEAD): UrlState.WAITING,
    (UrlState.DONE, UrlEvent.REVISIT): UrlState.LATER,
    (UrlState.WAITING, UrlEvent.DROP): UrlState.DEAD,
    (UrlState.LATER, UrlEvent.DROP): UrlState.DEAD,
    (UrlState.WAITING, UrlEvent.FORGET): UrlState.UNKNOWN,
    (UrlState.LATER, UrlEvent.FORGET): UrlState.UNKNOWN,
    (UrlState.DEAD, UrlEvent.FORGET): UrlState.UNKNOWN,
    (UrlState.REFUSED, UrlEvent.FORGET): UrlState.UNKNOWN,
}


# Counted as long as a URL is there; `done` counts every fetch that finished.
_LEFT: Final = frozenset(UrlState) - {UrlState.UNKNOWN, UrlState.DONE}


class IllegalTransition(AssertionError):
    """A host or a URL was moved in a way that its table forbids: a bug in this package."""


def next_place(place: HostPlace, event: HostEvent) -> HostPlace:
    try:
        return TRANSITIONS[place, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} while {place.name}") from None


def next_state(state: UrlState, event: UrlEvent) -> UrlState:
    try:
        return URL_TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event.name} while {state.name}") from None


# Records are msgpack arrays: fields are only added at the end, with a default. When that is not
# enough, or a key changes, FORMAT of crawler/data/data_dir.py rises.
LAST_NUMBER: Final = (1 << 64) - 1
# Queue numbers start in the middle, because a URL that is put back goes before the head.
MIDDLE: Final = 1 << 40


class QueueEnds(msgspec.Struct, array_like=True, gc=False):
    """The ends of a FIFO of consecutive numbers: the next one out, and the next one in."""

    head: int = MIDDLE
    tail: int = MIDDLE

    def __len__(self) -> int:
        return self.tail - self.head


REMEMBER_S: Final = 86_400.0
"""How long after its last trouble the longest Retry-After of a host is remembered."""


class HostVisits(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What is known of the pages of a host that were visited again."""

    changes: int = 0  # visits that found one
    watched_s: int = 0  # between visits, in all
    signals: Signals = Signals()
    conditional: ConditionalVisits = ConditionalVisits()


class HostTally(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """How a host has answered so far: its pages, and what failed of its robots.txt."""

    fetches: int = 0  # that have ended, but for those that were cancelled by us
    failures: int = 0  # of these, also 404s and their like
    pages: int = 0  # of status 2xx
    bytes: int = 0  # of bodies
    last_failure: str = ""  # its kind; empty: none failed
    last_status: int = 0  # of that failure; 0: there was no answer
    failed_at: int = 0  # epoch seconds

    def with_fetch(self, fetch: HostFetch, now: float) -> HostTally:
        """Return the tally with one more *fetch*."""
        fetches, size = self.fetches + 1, self.bytes + fetch.bytes
        pages = self.pages + fetch.is_page
        if not fetch.failure:
            last = self.last_failure, self.last_status, self.failed_at
            return HostTally(fetches, self.failures, pages, size, *last)
        last = fetch.failure, fetch.status, int(now)
        return HostTally(fetches, self.failures + 1, pages, size, *last)


def round_base(number: int) -> int:
    """Return what HostRecord.round is when none of its URLs was leased in that round."""
    return number << 32


class HostRecord(msgspec.Struct, array_like=True, gc=False):
    """A host on disk. `queue_ends` has the ends of the queue of each level."""

    queue_ends: list[QueueEnds]
    place: HostPlace = HostPlace.EMPTY
    level: int = 0  # where it is filed
    generation: int = 0  # of its filing; older front entries are stale
    rest_until: float = 0.0  # epoch seconds
    pace: Pace = Pace()
    admitted: int = 0  # URLs of it ever admitted
    retry_after_s: int = 0  # the longest Retry-After that it sent
    trouble_at: int = 0  # epoch seconds of its last trouble, if it ever sent one
    address: str = ""  # that it was fetched from last, or is to be next; empty: not known
    # It rests only because others are fetched from its address, or that is not known.
    waits_for_address: bool = False
    visits: HostVisits = HostVisits()
    # The most of a URL that waits at `level`, not in the head of the host, as far as is known.
    cash: int = NO_CASH
    tally: HostTally = HostTally()
    # In the lower half: URLs leased in the last round, whose number is above. A lease adds to it.
    round: int = 0

    def note_trouble(self, asked_s: float, now: float) -> None:
        """Note trouble, and the *asked_s* of its Retry-After, 0 if it has none."""
        self.retry_after_s = max(ceil(asked_s), self._remembered_s(now))
        self.trouble_at = int(now) if self.retry_after_s else 0

    def remembered_s(self, now: float, max_s: float) -> float:
        """Return the longest Retry-After that it sent, *max_s* at most. It is forgotten after
        REMEMBER_S without trouble."""
        return min(self._remembered_s(now), max_s)

    def _remembered_s(self, now: float) -> int:
        return self.retry_after_s if now - self.trouble_at <= REMEMBER_S else 0

    def best_level(self) -> int | None:
        for level, ends in enumerate(self.queue_ends):
            if ends.tail > ends.head:
                return level
        return None

    def waiting(self) -> int:
        return sum(map(len, self.queue_ends))


class AddressRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An address that hosts share."""

    rest_until: float  # epoch seconds


class DomainRecord(msgspec.Struct, array_like=True, gc=False):
    """A registered domain. Its length is the number of its URLs that are spilled."""

    admitted: int = 0  # URLs of it ever admitted
    hosts: int = 0  # of these URLs
    round_at: int = 0  # epoch seconds when its round began
    used: int = 0  # URLs admitted in the round
    votes_as: bytes = b""  # how its links count for others; empty: it has linked to none
    voters: bytes = b""  # the domains that link to it, as policy.budgets has them
    degree: int = 0  # the class of their number
    head: int = 0  # of its spilled URLs: the next one out
    tail: int = 0  # and the next one in
    halvings: int = 0  # of the share of them that is kept
    thin_until: int = 0  # up to this number they were spilled before the last halving
    sampled_out: int = 0  # URLs, ever
    filed: int = -1  # the class under which it is filed; -1: it is not
    due_at: int = 0  # epoch seconds, as it is filed
    fruitless: int = 0  # spilled URLs over a budget in all that were tried since one was admitted
    epoch: int = 0  # of the sample: how often all that was kept has left
    given_rank: int = 0  # from outside, when its URLs were counted last; 0: it has none
    round: int = 0  # as in HostRecord

    def __len__(self) -> int:
        return self.tail - self.head


_COUNTERS: Final = (
    *("waiting", "later", "leased", "seen", "done", "dead", "refused"),
    *("again", "by_worth", "spilled", "capped", "spilled_domains", "sampled_out"),
    *("listed", "listed_done", "queues", "active_queues"),
)


class RoundState(msgspec.Struct, array_like=True, gc=False):
    """The round that a crawl is in."""

    number: int = 0  # from 1; 0: there was none
    first: int = 0  # round of the run that it belongs to, starts after a crash included; 0: no run
    leased: int = 0  # URLs
    began_at: float = 0.0  # epoch seconds, with its first lease; 0: none was yet


class FrontierTotals(msgspec.Struct, array_like=True, gc=False):
    """The counters and queue ends of the frontier, written with every call."""

    front: dict[int, QueueEnds] = {}  # that are not empty, by place
    waiting: int = 0
    later: int = 0
    seen: int = 0
    done: int = 0
    dead: int = 0
    next_number: int = 1  # of the next record that has a number as its key: never used twice
    leased: int = 0
    clock: float = 0.0  # the latest *now* of any call: time never goes back between runs
    refused: int = 0  # URLs that a rule refused while they waited
    levels: list[int] = []  # of `waiting`, by level
    again: int = 0  # of `later`, pages that were visited before
    by_worth: int = 0  # of these, without a date
    worth: float = 0.0  # what a visit must gain to be due, in days; 0: not known yet
    spilled: int = 0  # URLs that wait for a budget
    sampled_out: int = 0  # such URLs that were not kept, ever
    degrees: list[int] = []  # how many domains each class of numbers of others links to
    capped: int = 0  # of `spilled`, those of domains that have their full number in all
    spilled_domains: int = 0  # domains with spilled URLs
    listed: int = 0  # URLs that are in the table of URLs
    listed_done: int = 0  # of these
    queues: int = 0  # hosts with listed URLs
    active_queues: int = 0  # hosts with listed URLs that are not done
    round: RoundState = msgspec.field(default_factory=RoundState)

    def count(self, state: UrlState, event: UrlEvent, urls: int = 1) -> None:
        """Count that *event* moved *urls* out of *state*. `done` counts every fetch that finished,
        so a revisit does not lower it."""
        after = next_state(state, event)
        if state in _LEFT:
            setattr(self, state, getattr(self, state) - urls)
        if after is not UrlState.UNKNOWN:
            setattr(self, after, getattr(self, after) + urls)

    def add(self, of_shard: FrontierTotals, times: int = 1) -> None:
        """Count what a shard has, *times*: -1 when it is dropped. Not by level."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + times * getattr(of_shard, name))
        self.degrees += [0] * (len(of_shard.degrees) - len(self.degrees))
        for number, domains in enumerate(of_shard.degrees):
            self.degrees[number] += times * domains

    def counts(self, hosts_active: int, undecided: int) -> Counts:
        """Return these counters with those that are counted elsewhere."""
        return Counts(
            waiting=self.waiting,
            later=self.later,
            leased=self.leased,
            hosts_active=hosts_active,
            seen=self.seen,
            done=self.done,
            dead=self.dead,
            refused=self.refused,
            undecided=undecided,
            levels=tuple(self.levels),
            again=self.again,
            spilled=self.spilled,
            capped=self.capped,
            spilled_domains=self.spilled_domains,
            sampled_out=self.sampled_out,
        )


COUNTED: Final = {
    "later": LATER,
    "leased": OPEN,
    "dead": DEAD,
    "refused": REFUSED,
    "listed": LISTED,
}
"""Counters of FrontierTotals that are the number of records of a letter."""


NEVER: Final = inf
"""The date of a URL that is done, in an update."""
LAST_DATE: Final = float(1 << 36)
"""The latest date of a later URL, in the year 4147: its microseconds begin with a byte of 0."""

IN_QUEUE: Final = b""
UNDER_LEASE: Final = b"o"
BY_WORTH: Final = b"v"
GIVEN_UP: Final = b"d"


class ListedUrl(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A URL in the table: its place, and what is kept with it."""

    url: str
    created_at: int  # epoch seconds
    due_at: float  # epoch seconds, as was asked for; NEVER: it is done
    # Its key in `l` behind the letter, or IN_QUEUE, UNDER_LEASE, BY_WORTH, GIVEN_UP.
    place: bytes = IN_QUEUE
    kept: bytes = b""  # as Candidate.request

    @property
    def is_done(self) -> bool:
        return self.due_at == NEVER


class QueueRecord(msgspec.Struct, array_like=True, gc=False):
    """The listed URLs of a host in numbers, and what was said of it from outside."""

    urls: int = 0
    done: int = 0  # of these
    delay_s: int = -1  # from the end of its last lease; -1: as of all queues
    blocked_until: int = 0  # epoch seconds
    limit: int = 0  # nothing is served when so many are done; 0: there is none
    served: dict[int, float] = {}  # by the keys of URLs that were lent: when that ends
    # Some of its URLs were deleted: whether one is new is said by the table, not by the seen set.
    has_deleted: bool = False
    rest_until: float = 0.0  # epoch seconds: its delay after that end
    ended_at: float = 0.0  # epoch seconds: when its last lease ends, or has ended; 0: none was
    # URLs that waited were listed anew, or deleted: not all that waits is as it was added.
    has_changed: bool = False


class FrontEntry(msgspec.Struct, array_like=True, gc=False, frozen=True):
    host: HostKey
    generation: int


class OpenRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A lease that is not finished."""

    candidate: Candidate
    taken_at: float  # epoch seconds
    # From the head of an answer with trouble, which came before the lease was released.
    rest_until: float = 0.0
    pace: Pace | None = None  # from then on; None: no such answer
    asked_s: float = 0.0  # by its Retry-After
    # It is not released, and was taken with others of its host: the rest of that may be theirs.
    is_bundled: bool = False


class DeadLetter(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A URL that is fetched no more unless `scrapy frontier retry` puts it back."""

    candidate: Candidate
    reason: str
    at: float  # epoch seconds


class GoneRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A page that is gone."""

    candidate: Candidate
    at: float  # epoch seconds, when it was asked for last


class RefusedRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A waiting URL that a rule of a later start refused."""

    candidate: Candidate
    reason: str  # which rule, as policy.refusal.Reason
    at: float  # epoch seconds


encode = msgspec.msgpack.Encoder().encode


def encode_open(candidate: bytes, taken_at: float, *, is_bundled: bool = False) -> bytes:
    """Return the packed OpenRecord of *candidate*, which is packed already."""
    if is_bundled:
        return encode((msgspec.Raw(candidate), taken_at, 0.0, None, 0.0, True))
    return encode((msgspec.Raw(candidate), taken_at))


def encode_refused(candidate: bytes, reason: str, at: float) -> bytes:
    """Return the packed RefusedRecord of *candidate*, which is packed already."""
    return encode((msgspec.Raw(candidate), reason, at))


def claim_changes(
    read: Callable[[bytes], bytes | None], claim: Claim, lease_id: int
) -> dict[bytes, bytes]:
    """Return what is written with *claim*, of a page that was fetched under this lease. *read*
    returns what is written so far."""
    changes = {DIGEST + claim.digest: encode(claim)}
    if claim.simhash is not None:
        before = read(DIGEST + claim.digest)
        if before is None or decode_claim(before).simhash is None:
            log = print_log(lease_id)
            changes[log] = (read(log) or b"") + packed_print(claim.simhash)
            changes[page_of_print(claim.simhash, lease_id)] = claim.digest
    return changes


def join_urls(packed: Iterable[bytes]) -> bytes:
    """Return packed URLs as a chunk, which is the packed list of them."""
    return encode([msgspec.Raw(each) for each in packed])


_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def split_urls(chunk: bytes) -> list[bytes]:
    """Return the packed URLs of a chunk, each on its own."""
    return [bytes(each) for each in _split(chunk)]


# The cash of a URL is its last field, a number of two bytes as there is NO_CASH.
def cash_of_packed(packed: bytes) -> int:
    """Return the cash of a packed URL."""
    return int.from_bytes(packed[-2:])


def cash_of_all(packed: Iterable[bytes]) -> NDArray[np.int64]:
    """Return the cash of packed URLs."""
    return np.frombuffer(b"".join([each[-2:] for each in packed]), ">u2").astype(np.int64)


def with_cash(packed: bytes, cash: int) -> bytes:
    """Return a packed URL with another *cash*."""
    return packed[:-2] + cash.to_bytes(2)


_SHORT_TEXT: Final = 0xD9
_LONG_NUMBER: Final = 0xCF


def keys_of_all(packed: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return the keys of packed URLs. Of those with 32 to 255 bytes, which are most, the other
    fields are not decoded."""
    found = [
        each[each[4] + 6 : each[4] + 14]
        if each[3] == _SHORT_TEXT and each[each[4] + 5] == _LONG_NUMBER
        else decode_candidate(each).key.to_bytes(8)
        for each in packed
    ]
    return np.frombuffer(b"".join(found), ">u8").astype(np.uint64)


decode_urls = msgspec.msgpack.Decoder(list[Candidate]).decode
decode_candidate = msgspec.msgpack.Decoder(Candidate).decode
decode_host = msgspec.msgpack.Decoder(HostRecord).decode


class HostFigures(msgspec.Struct, array_like=True, gc=False):
    """A HostRecord without the ends of its queues, and what is seldom asked for: decoded in half
    the time."""

    queue_ends: msgspec.Raw
    place: HostPlace = HostPlace.EMPTY
    level: int = 0
    generation: int = 0
    rest_until: float = 0.0
    pace: Pace = Pace()
    admitted: int = 0
    retry_after_s: int = 0
    trouble_at: int = 0
    address: str = ""
    waits_for_address: bool = False
    visits: msgspec.Raw = msgspec.Raw()
    cash: int = NO_CASH
    tally: HostTally = HostTally()
    round: int = 0


decode_figures = msgspec.msgpack.Decoder(HostFigures).decode

# The ends of a queue as msgpack writes them: an array of two, and two numbers of eight bytes, which
# they are because they begin in the MIDDLE.
_ENDS: Final = np.dtype([("begin", ">u2"), ("head", ">i8"), ("between", "u1"), ("tail", ">i8")])
_ENDS_BEGIN, _ENDS_BETWEEN = 0x92CF, 0xCF


def waiting_of(packed: Sequence[bytes]) -> NDArray[np.int64]:
    """Return of each of these host records how many URLs wait: without decoding those that have as
    many levels as the first one, which takes a third of the time."""
    levels = packed[0][1] & 0x0F
    form = np.dtype([("fields", "u1"), ("levels", "u1"), ("ends", _ENDS, levels)])
    beginnings = (record[: form.itemsize].ljust(form.itemsize, b"\0") for record in packed)
    rows = np.frombuffer(b"".join(beginnings), form)
    ends = rows["ends"]
    waiting: NDArray[np.int64] = (ends["tail"] - ends["head"]).sum(axis=1)
    usual = (ends["begin"] == _ENDS_BEGIN) & (ends["between"] == _ENDS_BETWEEN)
    for at in np.flatnonzero((rows["levels"] != packed[0][1]) | ~usual.all(axis=1)).tolist():
        waiting[at] = decode_host(packed[at]).waiting()
    return waiting


decode_address = msgspec.msgpack.Decoder(AddressRecord).decode
decode_domain = msgspec.msgpack.Decoder(DomainRecord).decode
decode_totals = msgspec.msgpack.Decoder(FrontierTotals).decode
decode_entry = msgspec.msgpack.Decoder(FrontEntry).decode
decode_open = msgspec.msgpack.Decoder(OpenRecord).decode
decode_claim = msgspec.msgpack.Decoder(Claim).decode
decode_gone = msgspec.msgpack.Decoder(GoneRecord).decode
decode_refused = msgspec.msgpack.Decoder(RefusedRecord).decode
decode_listed = msgspec.msgpack.Decoder(ListedUrl).decode
decode_queue = msgspec.msgpack.Decoder(QueueRecord).decode
decode_letter = msgspec.msgpack.Decoder(DeadLetter).decode

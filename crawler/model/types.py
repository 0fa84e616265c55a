"""The words of the crawler: one frozen type per arrow of the data loop.

Rule: values only. What is written to disk is a msgspec record, read back by
position, so fields are only ever added at the end and with a default.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, NewType, TypeAlias

import msgspec

HTTP_OK: Final = range(200, 300)

HostKey = NewType("HostKey", str)
"""The unit of politeness: a host name or a registered domain, as configured."""


class Purpose(StrEnum):
    """Why a URL is fetched."""

    PAGE = "page"
    ROBOTS = "robots"  # a robots.txt, or a hop of its redirects: no seen test, no robots check
    PROBE = "probe"  # a name that cannot be there: what does the host say of it?


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A URL that may be fetched. Arrow: links -> frontier."""

    url: str  # the form that is fetched (WHATWG, no fragment)
    key: int  # 64-bit hash of the form that is compared; unsigned
    host: HostKey
    domain: str  # registered domain: the unit of the URL budget
    depth: int = 0  # hops from a seed when first found
    level: int = 0  # front level, 0 is best; fixed when the URL is admitted
    not_before: float = 0.0  # epoch seconds; 0: at once
    attempts: int = 0  # fetches of it that failed
    chain: tuple[int, ...] = ()  # keys of the redirects that led here, oldest first
    purpose: Purpose = Purpose.PAGE
    authority: str = ""  # ROBOTS: whose rules these are, "scheme://host:port"
    request: bytes = b""  # a spider's own request, packed; empty: a plain GET for `web`
    filtered: bool = True  # False: admitted without a seen test
    modified: float = 0.0  # epoch seconds, as a sitemap or feed says; 0: nobody said
    lost: bool = False  # what a lease of it brought may be archived, and nobody claimed it
    named: bool = False  # a sitemap: neither its type nor a pattern keeps it out


class Standing(IntEnum):
    """What is known of a host: hosts of each standing have slots of their own."""

    NEW = 0  # it was never asked
    ANSWERS = 1
    FAILS = 2  # its last fetch brought no answer, or hung


STANDINGS: Final = (Standing.ANSWERS, Standing.NEW, Standing.FAILS)
"""The best first."""


class Pace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a host has answered, kept with it for ever. Units: seconds, counts."""

    gap_s: float = 0.0  # its last gap with what backed it off; no pause, no Retry-After
    failures: int = 0  # in a row
    pauses: int = 0  # how often in a row it was paused for failing
    crawl_delay_s: float = 0.0  # from its robots.txt
    standing: Standing = Standing.NEW


@dataclass(frozen=True, slots=True)
class Lease:
    """Leave to fetch one URL, and its host's silence until it is released.
    Arrow: frontier -> fetch."""

    id: int  # fencing token; never used twice
    candidate: Candidate
    pace: Pace
    taken_at: float


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a host is left alone from the end of a fetch, and its pace from then on."""

    seconds: float
    pace: Pace
    reason: str = "gap"


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who owns a content digest: the first page stored with it."""

    digest: bytes
    url: str
    record: str = ""  # "file:offset" of its archive record; empty: not archived
    at: float = 0.0  # epoch seconds, when its fetch began
    wire_sha1: bytes = b""  # of the body as archived, where that is still compressed
    status: int = 200  # of its answer: an error page is the original of error pages only
    simhash: int | None = None  # of its text


@dataclass(frozen=True, slots=True)
class Done:
    """Fetched and durable. *next_visit*: epoch seconds of the revisit, None: never again."""

    next_visit: float | None = None
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class RetryAt:
    """It failed; again at *when* (epoch seconds)."""

    when: float


@dataclass(frozen=True, slots=True)
class Moved:
    """It answered with a redirect: it is done, and *candidate* is found in its place."""

    candidate: Candidate
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class PutBack:
    """Nothing was decided; to the head of its host, no attempt counted."""


@dataclass(frozen=True, slots=True)
class Dead:
    """Given up, with a reason a person can read. Kept as a dead letter."""

    reason: str


Verdict = Done | RetryAt | Moved | PutBack | Dead


@dataclass(frozen=True, slots=True)
class OverBudgetLinks:
    """Links to URLs that a budget refused."""

    unit: str  # host or domain: of which the budget is
    name: str
    links: int


@dataclass(frozen=True, slots=True)
class Added:
    """What became of the URLs of one `add`."""

    new: int = 0
    seen: int = 0
    over_budget: int = 0  # their host or domain already has its full number of URLs
    undecided: int = 0  # a shared frontier tells later what became of them
    kept_out: tuple[OverBudgetLinks, ...] = ()  # those over budget; a name may come more than once


@dataclass(frozen=True, slots=True)
class Answer:
    """How a host answered one request, as politeness sees it. Arrow: fetch -> politeness."""

    duration_s: float  # from before the request to the last byte
    status: int | None = None  # None: no answer
    # "", or timeout | connect | dns | tls | protocol | disconnect | cancelled. With a status: the
    # body broke off.
    error: str = ""
    retry_after_s: float | None = None
    hung: bool = False  # it came, but dripped


@dataclass(frozen=True, slots=True)
class Counts:
    """The frontier at a glance; every figure is O(1) to read."""

    waiting: int  # URLs that wait, later ones not among them
    later: int  # URLs with a date in the future
    leased: int  # leases not finished
    hosts_active: int  # hosts in memory
    seen: int  # URLs ever admitted
    done: int
    dead: int
    refused: int = 0  # URLs that waited, and that a rule or budget of this start keeps out


# What came of a lease, as one line of the outcome log. Kept for people and for `why`.


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float  # epoch seconds
    url: str
    host: str
    fate: str  # done | retry | moved | put_back | dead | refused
    status: int | None = None  # of the answer; None: there was none
    reason: str = ""  # robots, duplicate, timeout...; a rule's or an error's own words
    seconds: float = 0.0  # the fetch, from before the request to the last byte
    size: int = 0  # bytes of the body as it crossed the wire
    attempts: int = 0
    depth: int = 0
    record: str = ""  # "file:offset" in the archive
    target: str = ""  # moved: where to
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # nearly: of 64 bits that differ


encode_outcome = msgspec.json.Encoder().encode
decode_outcome = msgspec.json.Decoder(Outcome).decode


# Every error we raise, grouped by what the caller must do about it.
#
# Rule: an expected result of a fetch (404, robots says no) is a value, never an
# exception. Exceptions are for broken promises.


class CrawlerError(Exception):
    """Root of every error this package raises on purpose. Its text is for the user:
    what is wrong, where, and what to do."""


class ConfigError(CrawlerError):
    """The configuration or an argument cannot be right. Caller: stop before the first request."""


class SeedsError(CrawlerError):
    """The seeds cannot be read at all. Caller: stop before the first request."""


class DataDirError(CrawlerError):
    """The data directory is not writable, in use, newer than we are, or damaged.
    Caller: stop; nothing was changed."""


class StoreUnavailable(CrawlerError):
    """A store refused a read or a write (disk full, device gone).
    Caller: stop cleanly; what was acknowledged is safe."""


class StoreFull(StoreUnavailable):
    """Its disk has no room. Caller: as above, or wait: it writes again when there is room."""


WaitsForRoom: TypeAlias = Callable[[StoreFull], bool]
"""Is asked when a disk is full: whether what found no room is to be tried again later."""


def never_waits(_: StoreFull) -> bool:
    """Of a crawl that is alone: a disk that is full ends it."""
    return False


def refused_write(text: str, error: OSError) -> StoreUnavailable:
    """What *error* of a disk means to the caller: *text* says what could not be written."""
    kind = StoreFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailable
    return kind(f"{text}: {error.strerror or error}")


class UnstorableRequest(CrawlerError):
    """A request holds something that cannot be written down. Caller: refuse it, with the reason."""


class IncompatibleScrapy(CrawlerError):
    """A private Scrapy name we stand on is not there. Caller: stop before the first request."""


# The one place that says which version this is: packaging and the User-Agent read it here.

VERSION: Final = "0.1.0"

"""The core types of the crawler: one frozen type per arrow of the data loop, and the errors.

Rule: values only. Records on disk are msgspec arrays that are read back by position, so fields are
only ever added at the end and with a default.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, NewType, TypeAlias

import msgspec

HTTP_OK: Final = range(200, 300)

HostKey = NewType("HostKey", str)
"""The unit of politeness: a host name or a registered domain, as configured. Those of one address
may be grouped beyond that."""


class Purpose(StrEnum):
    """The purpose of a fetch."""

    PAGE = "page"
    ROBOTS = "robots"  # a robots.txt, or a hop of its redirects: no seen test, no robots check
    PROBE = "probe"  # a name that cannot exist: how does the host answer it?
    CHECK = "check"  # a link out of the scope: is anything there? Nothing of the answer is kept
    UPDATE = "update"  # no fetch: when a page is fetched next, told to its host's worker
    TURN = "turn"  # no fetch: what workers say to each other of turns that are borrowed
    VOTE = "vote"  # no fetch: that a domain links to another, told to the other's worker


class Compared(IntEnum):
    """What of a page is compared to see whether it has changed."""

    BYTES = 0  # its body
    TEXT = 1  # its text, or its body if it has none
    SIMILAR = 2  # the fingerprint of its text, some bits of which may differ


class PageHistory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a page from its visits, in 40 bytes. Times are epoch seconds."""

    visited_at: int  # the last visit that told whether it has changed
    changed_at: int  # the visit that found it changed last, or the first one
    stored_at: int  # the fetch whose answer the archive has whole; 0: it has none
    visits: int = 1
    changes: int = 0
    rate: int = 0  # how often it changes, packed (policy/revisits.py); 0: nothing is known
    content: int = 0  # 64 bits of its content, as `compared` says; 0: no index has it
    compared: Compared = Compared.TEXT
    gone: int = 0  # answers in a row that it is not there
    brought: int = 0  # visits after the first one that found new links on it
    links_rate: int = 0  # how often there are new ones, packed as `rate`; 0: nothing is known
    signals: int = 0  # new dates of a sitemap or feed since the last visit
    # ETag and Last-Modified of that answer, with a line break between; None: it had none.
    validators: str | None = None


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A URL that may be fetched. Arrow: links -> frontier."""

    url: str  # the form that is fetched (WHATWG, no fragment)
    key: int  # 64-bit hash of the form that is compared; unsigned
    host: HostKey
    domain: str  # registered domain: the unit of the URL budget
    depth: int = 0  # hops from a seed when first found
    level: int = 0  # front level, 0 is best; fixed when the URL is admitted
    not_before: float = 0  # epoch seconds; 0: at once. An int is packed in one byte, 0.0 in nine
    attempts: int = 0  # fetches of it that failed
    chain: tuple[int, ...] = ()  # keys of the redirects that led here, oldest first
    purpose: Purpose = Purpose.PAGE
    authority: str = ""  # ROBOTS: what the rules are for, "scheme://host:port"
    request: bytes = b""  # a spider's own request, packed; empty: a plain GET for `web`
    needs_seen_test: bool = True  # False: admitted without a seen test
    modified: float = 0  # epoch seconds, from a sitemap or feed; 0: unknown
    may_be_archived: bool = False  # an expired lease may have archived it without a claim
    is_sitemap: bool = False  # named as one: neither its type nor a pattern refuses it
    requisite: int = 0  # hops from the page that needs it to be shown; 0: it is a page itself
    index_hops: int = 0  # a sitemap: how many indexes led to it
    seed: str = ""  # the seed that redirected or refreshed to here; empty: none did
    history: PageHistory | None = None  # None: it was never visited, or is visited once
    # Whether it was put back, or comes of what was chosen; from 2: the number of the list with it.
    chosen: bool | int = False
    beyond: int = 0  # hops out of the scope, and how many may follow, as policy.scope has it
    cash: int = 256  # its importance, as policy.priority has it

    @property
    def seed_url(self) -> str:
        """The seed, or start request of a spider, that it is or whose redirects and refreshes led
        here; empty: it was found elsewhere, or was visited before."""
        is_page = not (self.requisite or self.is_sitemap) and self.purpose is Purpose.PAGE
        if not is_page or self.history is not None:
            return ""
        return self.seed or ("" if self.depth else self.url)


class Standing(IntEnum):
    """How a host has answered so far. Hosts of each standing have slots of their own."""

    NEW = 0  # no request was sent to it yet
    ANSWERS = 1
    FAILS = 2  # its last fetch had no answer, or hung


STANDINGS: Final = (Standing.ANSWERS, Standing.NEW, Standing.FAILS)
"""In order of preference, the best first."""


class Pacing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How fast the server of a host may be asked, by its answers so far (policy/pacing.py). Times
    are epoch seconds."""

    step: int = 0  # how often its factor has fallen
    base_s: float = 0.0  # how long its fetches take while it is hardly used; 0: not known
    probed_at: float = 0.0  # when that was measured last
    is_probing: bool = False  # it is being measured anew
    sum_s: float = 0.0  # the fetches of the present window
    count: int = 0
    since: float = 0.0  # when that began
    slow: int = 0  # windows before it, in a row
    setbacks: int = 0  # steps back in the last hours
    wait_until: float = 0.0  # its factor does not fall before
    begun_at: float = 0.0  # when it was asked last
    interval_s: float = 0.0  # the least time between two requests, since it refused some
    refused_at: float = 0.0  # when that time was set last: it gets shorter after a while
    at_once: int = 1  # requests that its server takes at once without getting slower
    begun_before_at: float = 0.0  # when it was asked before `begun_at`
    base_answers: int = 0  # of which the base is the mean, up to a bound
    troubled_at: float = 0.0  # when the turn began in which it had trouble last
    refused_share: float = 0.0  # of its latest answers; the last ones count most


class Pace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The delay state of a host, stored with it permanently. Units: seconds, counts."""

    gap_s: float = 0.0  # its last gap and back-off, without pause and Retry-After
    failures: int = 0  # in a row
    pauses: int = 0  # how often in a row it was paused for failing
    crawl_delay_s: float = 0.0  # from its robots.txt
    standing: Standing = Standing.NEW
    answered: bool = False  # it answered once without trouble, for a page or a robots.txt
    has_sent: bool = False  # its server has sent anything once
    # The time of its fetches that were answered: how many there were, up to a bound, and mean and
    # variance of the logarithms of their seconds, in which later ones count more.
    fetches: int = 0
    log_fetch_s: float = 0.0
    log_variance: float = 0.0
    pacing: Pacing | None = None  # None: it was never asked, or has one stage only
    # Since its last page: answers in which it, or a guard before it, refused us, and plain 403s.
    unwelcome: int = 0
    forbidden: int = 0
    has_page: bool = False  # it has sent a page once


class ConditionalVisits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a host has answered visits of pages that were visited before: those that asked whether a
    page has changed, and audits, which asked for a page itself after a 304 had said that it has
    not."""

    unmodified: int = 0  # answered by a 304
    changed: int = 0  # by a page that has changed
    repeated: int = 0  # by the page as it was
    audits: int = 0
    denied: int = 0  # audits that found a change from before that 304, as far as its date says


class VisitCheck(IntEnum):
    """What one visit adds to them."""

    NONE = 0
    UNMODIFIED = 1
    CHANGED = 2
    REPEATED = 3
    AUDITED = 4
    DENIED = 5


class Lease(msgspec.Struct, frozen=True):
    """Permission to fetch one URL. Its host gets no other request until the lease is released, but
    for those that were leased with it. Arrow: frontier -> fetch."""

    id: int  # fencing token; never used twice
    candidate: Candidate
    pace: Pace
    taken_at: float
    # The only one that may be connected to, empty if its host has none; None: any of the host's.
    address: str | None = None
    conditional: ConditionalVisits = ConditionalVisits()  # of its host
    round: int = 0  # in which it was taken; 0: this run has no rounds


class BorrowedTurn(msgspec.Struct, frozen=True):
    """Permission to send requests to a host, one after the other, for which no URL waits: what a
    page needs to be shown. Arrow: frontier -> fetch."""

    id: int  # never used twice
    host: HostKey
    pace: Pace
    taken_at: float
    until: float  # epoch seconds: the last of its requests is over by then
    rests_until: float  # its host is leased again then, if the turn is never given back
    address: str | None = None  # as of Lease


class NoTurn(StrEnum):
    """Why a host lends no turn now."""

    RESTS = "rests"
    LEASED = "leased"
    BORROWED = "borrowed"
    ADDRESS = "address"  # others are fetched from its address, or that is not known yet
    LEFT = "left"  # it does not welcome us, or has never answered
    PAUSED = "paused"  # by the operator
    REFUSED = "refused"  # by the operator
    UPLINK = "uplink"  # our own connection is down
    ELSEWHERE = "elsewhere"  # the process that has its URLs did not answer in time
    NOT_LENT = "not_lent"  # this frontier lends no turns
    STORE = "store"  # it could not be written


class NotItsTurn(msgspec.Struct, frozen=True):
    """A host lends no turn now, and why."""

    host: HostKey
    why: NoTurn
    at: float | None = None  # epoch seconds: not before; None: not known, or never


class HostFetch(msgspec.Struct, frozen=True):
    """What one fetch adds to what is known of its host."""

    failure: str = ""  # its kind, as of `loop.outcome.failure_of_answer`; empty: it did not fail
    status: int = 0  # of the answer; 0: there was none
    bytes: int = 0  # of its body
    is_page: bool = False  # its status is 2xx


class Rest(msgspec.Struct, frozen=True):
    """How long a host gets no request from the end of a fetch, and its pace from then on."""

    seconds: float
    pace: Pace
    reason: str = "gap"
    # What the Retry-After of an answer with trouble asked for, 0 without one; None: no trouble.
    asked_s: float | None = None
    # How long the other hosts of its address get none; None: as long.
    address_s: float | None = None
    address: str = ""  # from which it answered; empty: it did not, or that is known by its lease
    fetches: tuple[HostFetch, ...] = ()  # that have ended, but for those that do not count


IN_NO_BODY: Final = bytes(20)
"""The `wire_sha1` of a claim on a DOM. No body has this SHA-1, so no answer that has the bytes of
the DOM becomes a revisit of the page's own answer, which has others."""


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The owner of a content digest: the first page stored with it."""

    digest: bytes
    url: str
    record: str = ""  # "file:offset" of its archive record; empty: not archived
    at: float = 0.0  # epoch seconds, when its fetch began
    wire_sha1: bytes = b""  # of the body in that record, where it is not the content: compressed
    status: int = 200  # of its answer: an error page is the original of error pages only
    simhash: int | None = None  # of its text


class Again(msgspec.Struct, frozen=True):
    """The page is visited again."""

    history: PageHistory  # with this visit; its rate is that of before
    is_changed: bool | None = None  # since the visit before; None: that cannot be said
    at: float | None = None  # epoch seconds; None: when a visit is worth it, by its rate
    check: VisitCheck = VisitCheck.NONE  # what the visit says of its host
    # Of the pages of its pattern: later visits that found a change, and the seconds between visits.
    alike: tuple[int, int] = (0, 0)


class Done(msgspec.Struct, frozen=True):
    """The URL is fetched and durable. *again*: None if it is not visited again, unless it is *gone*
    and is named again: the history of a page that was there once."""

    claim: Claim | None = None
    again: Again | None = None
    gone: PageHistory | None = None


class RetryAt(msgspec.Struct, frozen=True):
    """The fetch failed; it is tried again at *when* (epoch seconds)."""

    when: float
    is_counted: bool = True  # as an attempt; False: the host as a whole is down
    history: PageHistory | None = None  # if that has changed


class Moved(msgspec.Struct, frozen=True):
    """The answer is a redirect: the URL is done, and *candidate* is added in its place."""

    candidate: Candidate
    claim: Claim | None = None
    gone: PageHistory | None = None  # of a page that is there no more, as of Done


class PutBack(msgspec.Struct, frozen=True):
    """Nothing was decided: the URL goes back to its host, no attempt is counted."""

    is_first: bool = True  # before all others of its host and level; False: behind them
    was_asked: bool = False  # perhaps its request was sent: it counts for its round


class Dead(msgspec.Struct, frozen=True):
    """The URL is given up and kept as a dead letter, with a reason in words."""

    reason: str


Verdict = Done | RetryAt | Moved | PutBack | Dead


class LinkSource(NamedTuple):
    """The page that links were found on, as far as budgets need it."""

    domain: str  # registered domain
    address: str = ""  # IP address that it came from; empty: not known


class OverBudgetLinks(msgspec.Struct, frozen=True):
    """Links to URLs that a budget has no room for."""

    unit: str  # host, domain or round (of a domain): what the budget limits
    name: str
    links: int
    most: int = 0  # the budget, in URLs
    rank: int = 0  # of the domain, from 1, the best; 0: a budget in all


class Added(msgspec.Struct, frozen=True):
    """The result of one `add`, in numbers of URLs."""

    new: int = 0
    seen: int = 0
    over_budget: int = 0  # they wait, as a budget of their host or domain is used
    undecided: int = 0  # their result is reported later
    kept_out: tuple[OverBudgetLinks, ...] = ()  # the links over budget; a name may occur twice
    released: int = 0  # of the new ones, those that waited for a budget


class Answer(msgspec.Struct, frozen=True):
    """How a host answered one request, as far as politeness needs it. Arrow: fetch ->
    politeness."""

    duration_s: float  # from before the request to the last byte
    status: int | None = None  # None: no answer
    # "", or timeout | connect | dns | tls | protocol | disconnect | cancelled. With a status, the
    # body broke off; or challenge | too_fast: see page.challenge.
    error: str = ""
    retry_after_s: float | None = None
    hung: bool = False  # the answer came, but too slowly
    detail: str = ""  # of an error by a proxy, or the signature of a challenge; for people
    is_known: bool = False  # a challenge that says nothing new of its host

    @property
    def trouble(self) -> str:
        """The error with its detail, for people."""
        return f"{self.error}: {self.detail}" if self.detail else self.error


@dataclass(frozen=True, slots=True)
class HostWork:
    """What is left to do at one host, when a frontier was asked."""

    host: HostKey
    waiting: int  # URLs
    rest_until: float  # epoch seconds
    pace: Pace
    is_leased: bool  # a fetch is under way, or its result is


DISALLOWED: Final = "disallowed: "
"""Begins the reason of what is not stored by the preference of its publisher; the use follows."""


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a lease, as one line of the outcome log. Read by people and by `why`."""

    at: float  # epoch seconds
    url: str
    host: str
    fate: str  # done | retry | moved | put_back | dead | refused
    status: int | None = None  # of the answer; None: there was none
    reason: str = ""  # robots, duplicate, noindex, timeout...; a rule's or an error's own words
    seconds: float = 0.0  # the fetch, from before the request to the last byte
    size: int = 0  # bytes of the body as it crossed the wire
    attempts: int = 0
    depth: int = 0
    record: str = ""  # "file:offset" in the archive
    target: str = ""  # moved: where to; of a seed, or if checked, also of one not followed
    original: str = ""  # the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # near duplicate: of 64 bits that differ
    failure: str = ""  # retry, dead: its kind, by the words of the counters (loop/outcome.py)
    seed: str = ""  # the seed that it is, or that redirected or refreshed to here
    seed_fate: str = ""  # what became of that seed, in one word (loop/outcome.py)
    external: str = ""  # of a link out of the scope that is only checked: its ExternalResult
    round: int = 0  # in which it was fetched; 0: the run had none
    price: str = ""  # that an answer with status 402 asks for it: "USD 0.01"
    preferences: str = ""  # what its publisher says of its use, by Preferences


encode_outcome = msgspec.json.Encoder().encode
decode_outcome = msgspec.json.Decoder(Outcome).decode


class ChangeKind(StrEnum):
    """What has happened to a page, for whoever keeps an index of the crawl."""

    NEW = "new"
    CHANGED = "changed"
    GONE = "gone"
    CAME_BACK = "came_back"
    PURGED = "purged"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the change feed, as one line of it (docs/changes.md)."""

    kind: ChangeKind
    at: float  # epoch seconds
    key: str  # SHA-256 of the URL, 64 hexadecimal digits
    number: int = 0  # its place in the feed, from 1; given when it is written
    url: str = ""  # purged: empty
    record: str = ""  # "file:offset" in the archive
    digest: str = ""  # of the body, as in the columns
    status: int | None = None
    media_type: str = ""
    original: str = ""  # of a copy: the URL whose content it repeats, exactly or nearly
    bits: int | None = None  # of a near-copy: of 64 that differ


def change_key(url: str) -> str:
    """Return what stands for *url* in the change feed when it was purged."""
    return sha256(url.encode()).hexdigest()


# Errors, grouped by what the caller must do. An expected result of a fetch (404, refused by
# robots.txt) is a value, never an exception.


class CrawlerError(Exception):
    """Root of all errors that this package raises on purpose. The text is for the user: what is
    wrong, where, and what to do."""


class ConfigError(CrawlerError):
    """A setting or an argument is invalid. Caller: stop before the first request."""


class SeedsError(CrawlerError):
    """The seeds cannot be read at all. Caller: stop before the first request."""


class DataDirError(CrawlerError):
    """The data directory is not writable, in use, of a newer format, or damaged. Caller: stop;
    nothing was changed."""


class StoreUnavailable(CrawlerError):
    """A store refused a read or a write (disk full, device gone). Caller: stop cleanly; what was
    acknowledged is safe."""


class StoreFull(StoreUnavailable):
    """The disk of a store is full, or no more files can be open. Caller: as above, or wait until
    there is room."""


WaitsForRoom: TypeAlias = Callable[[StoreFull], bool]
"""Called when a disk is full. Returns whether to retry the failed write later."""


def never_waits(_: StoreFull) -> bool:
    """The `WaitsForRoom` of a command, which a full disk ends."""
    return False


OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE))
"""The process, or the machine, has too many open files."""


def is_out_of_room(error: OSError) -> bool:
    """Return whether *error* says that there is no room for now: on the disk, in the user's quota
    of it, or for one more open file."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT, *OUT_OF_FILES)


def store_error(text: str, error: OSError) -> StoreUnavailable:
    """Translate *error* of a disk for the caller; *text* says what could not be written."""
    kind = StoreFull if is_out_of_room(error) else StoreUnavailable
    return kind(f"{text}: {error.strerror or error}")


class UnstorableRequest(CrawlerError):
    """A request holds a value that cannot be serialized. Caller: refuse it, with the reason."""


class IncompatibleScrapy(CrawlerError):
    """A private name of Scrapy that we use is missing. Caller: stop before the first request."""


# The only definition of the version: packaging and the User-Agent read it here.

VERSION: Final = "0.1.0"

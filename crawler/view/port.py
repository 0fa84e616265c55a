"""The interface through which a crawl is looked at, in a data directory or in Redis, while it runs
or not: a method for each thing that is looked at, with its value.

Rule: looking changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crawler.data.operator_files import Act, ActResult
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import ReadableStore
from crawler.frontier.records import (
    DeadLetter,
    DomainRecord,
    GoneRecord,
    HostTally,
    HostVisits,
    RefusedRecord,
)
from crawler.frontier.shards import Shards
from crawler.model.counts import Counts
from crawler.model.types import Candidate, HostKey, Outcome, Pace
from crawler.policy.patterns import PatternStats
from crawler.shared.codec import WorkerRecord
from crawler.view.budgets import DomainQuery
from crawler.view.hosts import HostQuery


@dataclass(frozen=True, slots=True)
class CrawlIdentity:
    """Which crawl it is, and what its URLs are compared by."""

    where: str  # its name in messages
    is_shared: bool  # workers share it, each with its own log
    key_seed: int
    identity: tuple[str, ...]  # the settings that the keys of URLs and hosts were made with


@dataclass(frozen=True, slots=True)
class LastStart:
    """What the crawl was started with the last time, as given."""

    arguments: dict[str, str] | None  # of the spider; None: it takes none of ours
    settings: dict[str, object] | None  # that decide about URLs; None: they are not known


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host. Times are epoch seconds."""

    host: HostKey
    waiting: int  # URLs
    place: str  # empty | front | active | resting
    rest_until: float
    pace: Pace
    admitted: int  # URLs ever admitted
    address: str = ""  # that it was fetched from last; empty: not known
    waits_for_address: bool = False  # it rests only because others are fetched from there
    visits: HostVisits = HostVisits()
    tally: HostTally = HostTally()


@dataclass(frozen=True, slots=True)
class KnownUrl:
    """A URL with the host, domain and key that the frontier files it under."""

    url: str
    host: HostKey
    domain: str
    key: int


@dataclass(frozen=True, slots=True)
class WaitingUrl:
    """A URL in its host's queue."""

    candidate: Candidate
    ahead: int  # URLs before it, of the same host and level
    is_urgent: bool = False  # before all levels


@dataclass(frozen=True, slots=True)
class SpilledUrl:
    """A URL that waits for the budget of its domain, and does not count as seen."""

    candidate: Candidate
    ahead: int  # URLs before it, of the same domain


@dataclass(frozen=True, slots=True)
class LeasedUrl:
    taken_at: float
    candidate: Candidate
    worker: str = ""  # of a shared crawl, that owns its shard, or did; empty: released since


@dataclass(frozen=True, slots=True)
class UnfinishedLease:
    """The lease of a URL that is fetched now, or was when its process ended."""

    candidate: Candidate
    taken_at: float  # epoch seconds
    usual_s: float  # how long a fetch of its host takes in the mean; 0: not known
    is_held: bool = True  # the process that took it runs
    worker: str = ""  # of a shared crawl, that owns its shard, or did; empty: released since


@dataclass(frozen=True, slots=True)
class LaterUrl:
    """A URL that is tried, or visited, again."""

    candidate: Candidate
    class_number: int | None = None  # as in frontier/later.py; None: at `not_before`
    # With a class: its last visit; before, if it has signals of a change; after, if it was put off.
    counts_from: int = 0


Place = (
    WaitingUrl | LeasedUrl | LaterUrl | GoneRecord | DeadLetter | RefusedRecord | SpilledUrl | None
)


@dataclass(frozen=True, slots=True)
class VisitTotals:
    """What decides when pages without a date are visited again."""

    by_worth: int  # such pages, of the whole crawl
    worth: float  # what a visit must gain to be due, in days; 0: not known yet


@dataclass(frozen=True, slots=True)
class DuplicateOwner:
    """A finished page whose content others are duplicates of."""

    at: float
    record: str  # "file:offset" in the archive of its worker; empty: not archived


@dataclass(frozen=True, slots=True)
class UrlRecord:
    """Where a URL is, and what became of it."""

    place: Place
    outcomes: list[Outcome]  # of its leases, in the logs on this machine, the oldest first
    owner: DuplicateOwner | None = None  # its page, if no outcome is known
    is_undecided: bool = False  # it was found, and it is not known yet whether it is new


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the rules decide about a URL by, beside settings and arguments."""

    remembered: MemoryStore  # a copy of what AllowedOrigins and its robots.txt have stored
    opened_hosts: set[str]  # of pushed URLs, as far as they matter for its scope
    domain: DomainRecord  # of its registered domain


class CrawlView(Protocol):
    """Looks at a crawl in bounded memory; the time of a search grows with what it searches. All
    methods raise CrawlerError if it is damaged, foreign or down."""

    @property
    def crawl(self) -> CrawlIdentity: ...

    def now(self) -> float:
        """Return the time by the clock of the frontier."""

    def last_start(self) -> LastStart: ...

    def counts(self) -> Counts: ...

    def records(self, folder: Path) -> tuple[ReadableStore, Shards | None]:
        """Return the records of the frontier, and its shards; None: it has none. Those of a shared
        crawl, which must stand still, are copied into *folder*. Raises CrawlerError."""

    def opened_hosts(self) -> set[str]:
        """Return what pushed seeds have brought into the scope."""

    def workers(self) -> list[WorkerRecord]:
        """Return what each worker announced last, by name; none if the crawl is not shared."""

    def unowned_shards(self) -> int:
        """Return how many shards have no owner now, so that none of their hosts is contacted."""

    def hosts(self, query: HostQuery) -> list[HostState]:
        """Return the hosts of *query* in its order."""

    def leases(self) -> list[UnfinishedLease]:
        """Return the leases that are not finished, of all workers."""

    def domains(self, query: DomainQuery) -> list[tuple[str, DomainRecord]]:
        """Return the registered domains of *query* in its order, with their records."""

    def degrees(self) -> list[int]:
        """Return how many domains there are of each class of how many others link to them."""

    def dead(self, limit: int) -> list[DeadLetter]:
        """Return the oldest dead letters."""

    def rules(self) -> str:
        """Return the text of the operator's rules."""

    def audit(self) -> list[Act | ActResult]:
        """Return what operators have done, the oldest first."""

    def seen(self, urls: Sequence[KnownUrl]) -> list[bool]:
        """Return of each URL whether it was ever admitted."""

    def url(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> UrlRecord:
        """Return where *url* is. Places are searched in the order in which a URL moves, so that one
        is found that moves on meanwhile. *is_same_url*: whether a fetch form is of the same
        URL."""

    def visit_totals(self, url: KnownUrl | None) -> VisitTotals:
        """Return what decides about the next visit of *url*, or in the mean."""

    def visited_again(self, host: HostKey | None) -> Iterator[LaterUrl]:
        """Yield the pages that wait for their next visit, all or those of *host*. All are read, and
        in a shared crawl some may be yielded twice."""

    def grounds(self, url: KnownUrl) -> Grounds: ...

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        """Return the pattern that URLs of *pattern* are counted under on the host of *url*, and its
        figures so far."""

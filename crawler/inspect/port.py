"""What can be asked of a frontier from outside, wherever it is kept.

Rule: looking changes nothing. What is seen is one moment; what comes later needs another look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.records import DeadLetter, RefusedRecord
from crawler.model.types import (
    Candidate,
    Counts,
    HostKey,
    Outcome,
    Pace,
)
from crawler.policy.patterns import PatternStats
from crawler.policy.robots_cache import RobotsStore


@dataclass(frozen=True, slots=True)
class KnownUrl:
    """A URL as the frontier knows it."""

    url: str
    host: HostKey
    domain: str
    key: int


@dataclass(frozen=True, slots=True)
class HostState:
    """A host. Times are epoch seconds."""

    host: HostKey
    waiting: int  # URLs
    place: str  # empty | front | active | leased | resting
    rest_until: float
    pace: Pace
    admitted: int  # URLs ever


@dataclass(frozen=True, slots=True)
class WaitingUrl:
    """A URL in its host's queue."""

    candidate: Candidate
    ahead: int  # of the same host and level
    is_urgent: bool = False  # before all levels


@dataclass(frozen=True, slots=True)
class NotSearched:
    """It was not found, and so many URLs of its host were not looked at."""

    urls: int


@dataclass(frozen=True, slots=True)
class LeasedUrl:
    taken_at: float
    worker: str = ""  # of a shared crawl


@dataclass(frozen=True, slots=True)
class DuplicateOwner:
    """A finished page that others are compared with."""

    at: float
    record: str  # "file:offset" in the archive of whoever fetched it; empty: not archived


class Inspection(Protocol):
    """Bounded memory; searches may take as long as what they search is large."""

    @property
    def where(self) -> str:
        """In words, for a person."""

    @property
    def is_shared(self) -> bool:
        """Whether workers, each with a log of its own, share it."""

    @property
    def key_seed(self) -> int: ...

    @property
    def identity(self) -> tuple[str, ...]:
        """Which settings the keys of URLs and hosts were made with."""

    @property
    def arguments(self) -> dict[str, str]:
        """Of the spider's last start, as they were given."""

    @property
    def robots(self) -> RobotsStore: ...

    def now(self) -> float:
        """By the clock that all its times are of."""

    def counts(self) -> Counts: ...

    def busiest(self, top: int) -> list[HostState]:
        """By waiting URLs."""

    def host(self, host: HostKey) -> HostState | None: ...

    def oldest_dead(self, limit: int) -> list[DeadLetter]: ...

    def is_seen(self, it: KnownUrl) -> bool: ...

    # Where a URL can be, in the order it goes through: one that moves on while it is looked for
    # is met again.

    def waiting(self, it: KnownUrl) -> WaitingUrl | NotSearched | None: ...

    def leased(self, it: KnownUrl) -> LeasedUrl | None: ...

    def later(self, it: KnownUrl) -> Candidate | None: ...

    def dead(self, it: KnownUrl) -> DeadLetter | None: ...

    def refused(self, it: KnownUrl) -> RefusedRecord | None:
        """It waited, and a rule of the last start refuses it."""

    def owned(self, it: KnownUrl, is_it: Callable[[str], bool]) -> DuplicateOwner | None:
        """What is known of its page where no log of it is here."""

    def outcomes(self, it: KnownUrl, is_it: Callable[[str], bool]) -> list[Outcome]:
        """What came of its leases, as far as the log here knows; oldest first. *is_it*: whether a
        fetch form is another of the same URL."""

    def original(self, record: str) -> str:
        """The URL whose content the archive record at "file:offset" stands for as a revisit;
        empty if it is none, or not here."""

    def elsewhere(self) -> Mapping[str, int]:
        """Workers on whose disks links wait that the frontier does not know yet: how many."""

    def brought(self, it: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        """The pattern under which URLs of *pattern* count on the host of *it*, and what that has
        brought, as far as it is told."""

    def admitted_of_domain(self, it: KnownUrl) -> int:
        """URLs of its registered domain that count against a budget; 0 while there is none."""

    def opened_hosts(self, it: KnownUrl) -> set[str]:
        """Where the crawl begins too, by what was pushed while it ran, as far as it matters to the
        judgement of *it*."""

    def remembered(self) -> MemoryStore:
        """What the crawl's doors remember, where it may be changed without a trace."""

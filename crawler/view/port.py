"""The interface through which commands read a frontier, local or shared.

Rule: reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from crawler.config.settings import Config
from crawler.data.operator_files import Act, Touched
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.records import DeadLetter, RefusedRecord
from crawler.model.counts import Counts
from crawler.model.types import (
    Candidate,
    HostKey,
    Outcome,
    Pace,
)
from crawler.policy.patterns import PatternStats
from crawler.policy.robots_cache import RobotsStore
from crawler.view.hosts import HostQuery


@dataclass(frozen=True, slots=True)
class KnownUrl:
    """A URL with the host, domain and key that the frontier files it under."""

    url: str
    host: HostKey
    domain: str
    key: int


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host. Times are epoch seconds."""

    host: HostKey
    waiting: int  # URLs
    place: str  # empty | front | active | leased | resting
    rest_until: float
    pace: Pace
    admitted: int  # URLs ever admitted


@dataclass(frozen=True, slots=True)
class WaitingUrl:
    """A URL in its host's queue."""

    candidate: Candidate
    ahead: int  # URLs before it, of the same host and level
    is_urgent: bool = False  # before all levels


@dataclass(frozen=True, slots=True)
class NotSearched:
    """The URL was not found, and *urls* waiting URLs of its host were not searched."""

    urls: int


@dataclass(frozen=True, slots=True)
class LeasedUrl:
    taken_at: float
    worker: str = ""  # of a shared crawl


@dataclass(frozen=True, slots=True)
class DuplicateOwner:
    """A finished page whose content others are duplicates of."""

    at: float
    record: str  # "file:offset" in the archive of its worker; empty: not archived


class Inspection(Protocol):
    """Reads a frontier in bounded memory; the time of a search grows with what it searches."""

    @property
    def where(self) -> str:
        """The name of the frontier in messages."""

    @property
    def is_shared(self) -> bool:
        """Whether workers share it, each with its own log."""

    @property
    def key_seed(self) -> int: ...

    @property
    def identity(self) -> tuple[str, ...]:
        """The settings that the keys of URLs and hosts were made with."""

    @property
    def arguments(self) -> dict[str, str]:
        """The arguments of the spider's last start, as given."""

    @property
    def settings(self) -> dict[str, object] | None:
        """The settings of the last start that decide about URLs, as given; None: they are not
        known."""

    @property
    def robots(self) -> RobotsStore: ...

    def now(self) -> float:
        """Return the time by the clock of the frontier."""

    def counts(self) -> Counts: ...

    def hosts(self, query: HostQuery) -> list[HostState]:
        """Return the hosts of *query* in its order."""

    def host(self, host: HostKey) -> HostState | None: ...

    def oldest_dead(self, limit: int) -> list[DeadLetter]: ...

    def is_seen(self, url: KnownUrl) -> bool: ...

    # Where a URL can be, in the order in which it moves: called in this order they find one that
    # moves on meanwhile.

    def waiting(self, url: KnownUrl) -> WaitingUrl | NotSearched | None: ...

    def leased(self, url: KnownUrl) -> LeasedUrl | None: ...

    def later(self, url: KnownUrl) -> Candidate | None: ...

    def dead(self, url: KnownUrl) -> DeadLetter | None: ...

    def refused(self, url: KnownUrl) -> RefusedRecord | None:
        """Return the URL if it waited and a rule of the last start refuses it."""

    def duplicate_owner(
        self, url: KnownUrl, is_same_url: Callable[[str], bool]
    ) -> DuplicateOwner | None:
        """Return its page as the owner of its content, for frontiers without its outcome log."""

    def outcomes(self, url: KnownUrl, is_same_url: Callable[[str], bool]) -> list[Outcome]:
        """Return the outcomes of its leases in the log of this data directory, the oldest first.
        *is_same_url*: whether a fetch form is of the same URL."""

    def outbox_counts(self) -> Mapping[str, int]:
        """Return the workers with links on their disks, not in the frontier yet, and how many."""

    def pattern_stats(self, url: KnownUrl, pattern: str) -> tuple[str, PatternStats]:
        """Return the pattern that URLs of *pattern* are counted under on the host of *url*, and its
        figures so far."""

    def admitted_of_domain(self, url: KnownUrl) -> int:
        """Return how many URLs of its domain count against a budget; 0 if there is no budget."""

    def opened_hosts(self, url: KnownUrl) -> set[str]:
        """Return the hosts of URLs pushed while the crawl ran, as far as they matter for the scope
        of *url*."""

    def operator_rules(self, config: Config) -> str:
        """Return the text of the operator's rules."""

    def audit(self) -> list[Act | Touched]:
        """Return what operators have done, the oldest first."""

    def stored_origins(self) -> MemoryStore:
        """Return a copy of what AllowedOrigins has stored, which may be changed."""

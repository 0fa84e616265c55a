"""What a frontier promises and what it stands on. The promises are tested by one suite
over every implementation (tests/contract)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Counts,
    Lease,
    Rest,
    Standing,
    Verdict,
)
from crawler.policy.scope import Refusal


class Frontier(Protocol):
    """Where every URL is until it is finished. *now* is epoch seconds, and never goes back.

    1. A URL added is leased again and again until it is finished; done without a next
       visit, it is never leased again.
    2. Never two unreleased leases on one host, and none before the host's rest is over:
       across eviction and restart too.
    3. A result under a lease that is no longer held returns False and changes nothing.
    4. Each call is one atomic, durable act: after a crash it happened whole or not at all.
    5. Among due hosts of one standing, higher levels get more turns, and none starves.
    6. A call costs no more with more hosts or more URLs (a logarithm at most).
    """

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        """Admit the URLs not seen before. The seen test is inside."""

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        """Take up to *limit* URLs, each of another host, all of them due: of hosts of the first of
        *standings*, then of the next. Those of others keep their turns."""

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        """The fetch is over: its host may be contacted after the rest. False: not held."""

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        """The URL's fate is decided and its page durable. False: not held.
        A lease not yet released is released with its host's last gap."""

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        """When to call `lease` again with *standings*: may be early, never late. None: nothing to
        wait for."""

    def counts(self) -> Counts:
        """O(1)."""

    def may_begin(self, lease: Lease) -> bool:
        """Whether a fetch that begins now is over before *lease* can end."""

    def is_over(self) -> bool:
        """Nothing waits, nothing is leased, nothing can come. Asked only when all that the crawl
        begins with was added."""

    def is_congested(self) -> bool:
        """More was added than can be taken now: whoever adds much waits a moment."""


class LeaseRules(Protocol):
    """What a frontier judges waiting URLs by: the rules of this start."""

    @property
    def known(self) -> bool:
        """Whether they are complete: before, nothing is judged, and so nothing leased."""

    def refusal(self, it: Candidate) -> Refusal | None:
        """None: it may be leased."""

    def refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        """They are kept, and leased by no start under whose rules they are refused."""

    def readmitted(self, urls: int) -> None:
        """So many that earlier starts refused wait again."""


class OrderedStore(Protocol):
    """Sorted bytes to bytes. All the two-tier frontier needs of a disk."""

    def get(self, key: bytes) -> bytes | None:
        """The value, or None."""

    def has(self, keys: Sequence[bytes]) -> list[bool]:
        """Which of *keys* exist, in their order."""

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Up to *limit* pairs with start <= key < stop, in order of key."""

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        """Put each value, delete where None: all of it or nothing, whenever we die.
        Raises StoreUnavailable, and then nothing was written."""


# The numbers of a frontier, as one frozen value.


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRules:
    level_shares: tuple[float, ...] = (60.0, 30.0, 10.0)  # turns of each level, best first
    max_active_hosts: int = 20_000  # hosts in memory, about 4 kB each with their heads
    head_urls: int = 32  # URLs of a turn: the head of a host in memory
    min_gap_s: float = 1.0  # a host whose lease was open when we died rests at least this
    # What an open lease's fetch may have been when we died: its host rests accordingly.
    gap_factor: float = 10.0
    max_gap_s: float = 300.0
    longest_fetch_s: float = 30.0
    max_rest_s: float = 86_400.0  # no rest is longer
    # A host that rests longer leaves memory: at 10 x the fetch time most gaps are below 30 s.
    evict_rest_s: float = 60.0
    look: int = 16  # front entries looked at for one lease: bounds the call when most rest
    slice: int = 64  # of what has come due, moved in one call (12 us each)
    judged_slice: int = 1000  # refused URLs of one call: 10 ms
    max_urls_per_domain: int | None = None
    max_urls_per_host: int | None = None

"""Flights: what has become, so far, of each lease this process holds.

Rule: one account a lease, opened when it is taken and closed when it is finished. The
edges write down what they learn; `fate_of` turns the account into the one verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from crawler.core.exchange import Exchange, Truncated
from crawler.core.types import (
    Answer,
    Candidate,
    Claim,
    Dead,
    Done,
    Lease,
    Purpose,
    PutBack,
    RetryAt,
    Verdict,
)

LEASE: Final = "lease"
"""The one key of ours in `request.meta`."""


@dataclass(slots=True, eq=False)
class Flight:
    lease: Lease
    purpose: Purpose = Purpose.PAGE  # else this lease fetches something else than its URL
    authority: str = ""  # ROBOTS: whose; PROBE: of which kind of URL
    begun: float = 0.0  # when its fetch began; 0: not yet
    paused_s: float = 0.0  # of that time, by us: there was no memory for its body
    crawl_delay_s: float | None = None  # what its host's robots.txt asks for; None: not known
    answer: Answer | None = None  # how the host answered; None: it was not asked, or not yet
    released: bool = False
    exchange: Exchange | None = None  # until the flight lands
    size: int = 0  # of its body, once it has landed
    truncated: Truncated = Truncated.NO  # why that is not whole, once it has landed
    verdict: Verdict | None = None
    reason: str = ""  # why that verdict, in words a person can read
    broken: str = ""  # an error of a callback or a pipeline: ours or a user's, not the host's
    links: list[Candidate] = field(default_factory=list)
    claim: Claim | None = None
    record: str = ""  # "file:offset" of what was archived
    original: str = ""  # the URL whose content it repeats
    bits: int | None = None  # of 64 that differ from it; None: the very bytes
    is_new: bool | None = None  # whether it was a page of new content; None: nobody can say

    @property
    def is_refused(self) -> bool:
        """It was decided, and its host released, before a fetch began."""
        return self.released and self.verdict is not None and self.answer is None

    def fetched_s(self, now: float) -> float:
        """How long its fetch took, which is over *now*."""
        return now - self.begun - self.paused_s


class Flights:
    """Bound: one for each lease that is open."""

    def __init__(self) -> None:
        self._by_lease: dict[int, Flight] = {}
        self.fetched = 0  # those whose fetch is over and whose record is not written yet

    def __len__(self) -> int:
        return len(self._by_lease)

    def pages(self) -> int:
        """How many of them may bring a page. O(n) in the open leases."""
        return sum(flight.purpose is Purpose.PAGE for flight in self._by_lease.values())

    def open(self, lease: Lease) -> Flight:
        flight = self._by_lease[lease.id] = Flight(lease)
        return flight

    def of(self, lease: object) -> Flight | None:
        """The account of *lease*; None if that is no lease of ours, or a finished one."""
        return self._by_lease.get(lease.id) if isinstance(lease, Lease) else None

    def by_id(self, lease_id: int) -> Flight | None:
        return self._by_lease.get(lease_id)

    def close(self, flight: Flight) -> None:
        self._by_lease.pop(flight.lease.id, None)


def fate_of(flight: Flight, now: float, retries: int, pause_s: float) -> Verdict:
    """The verdict on its URL, all told. An error of our own side is tried again *retries*
    times, *pause_s* apart, before the URL is dead: it may be the page, or a passing fault."""
    if flight.broken and not isinstance(flight.verdict, Dead | RetryAt | PutBack):
        if flight.lease.candidate.attempts >= retries:
            return Dead(flight.broken)
        return RetryAt(now + pause_s)
    if flight.verdict is None:
        return Done(claim=flight.claim)
    return flight.verdict

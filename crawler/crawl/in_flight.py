"""Flights: what has become, so far, of each lease this process holds.

Rule: one account a lease, opened when it is taken and closed when it is finished. The
edges write down what they learn; `fate_of` turns the account into the one verdict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.frontier.port import Frontier
from crawler.model.page import Exchange, Truncated
from crawler.model.types import (
    Added,
    Answer,
    Candidate,
    Claim,
    CrawlerError,
    Dead,
    Done,
    HostKey,
    Lease,
    Moved,
    Outcome,
    Pace,
    Purpose,
    PutBack,
    Rest,
    RetryAt,
    Standing,
    Verdict,
)
from crawler.model.url import authority_of
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.politeness import is_lost, next_rest

LEASE: Final = "lease"
"""The one key of ours in `request.meta`."""


@dataclass(slots=True, eq=False)
class Fetch:
    lease: Lease
    purpose: Purpose = Purpose.PAGE  # else this lease fetches something else than its URL
    authority: str = ""  # ROBOTS: whose; PROBE: of which kind of URL
    begun: float = 0.0  # when its fetch began; 0: not yet
    paused_s: float = 0.0  # of that time, by us: there was no memory for its body
    crawl_delay_s: float | None = None  # what its host's robots.txt asks for; None: not known
    answer: Answer | None = None  # how the host answered; None: it was not asked, or not yet
    released: bool = False
    exchange: Exchange | None = None  # what its fetch brought, until it lands
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


class InFlight:
    """Bound: one for each lease that is open."""

    def __init__(self) -> None:
        self._by_lease: dict[int, Fetch] = {}
        self.fetched = 0  # those whose fetch is over and whose record is not written yet

    def __len__(self) -> int:
        return len(self._by_lease)

    def pages(self) -> int:
        """How many of them may bring a page. O(n) in the open leases."""
        return sum(flight.purpose is Purpose.PAGE for flight in self._by_lease.values())

    def open(self, lease: Lease) -> Fetch:
        flight = self._by_lease[lease.id] = Fetch(lease)
        return flight

    def of(self, lease: object) -> Fetch | None:
        """The account of *lease*; None if that is no lease of ours, or a finished one."""
        return self._by_lease.get(lease.id) if isinstance(lease, Lease) else None

    def by_id(self, lease_id: int) -> Fetch | None:
        return self._by_lease.get(lease_id)

    def fetch_ended(self) -> None:
        self.fetched += 1

    def record_written(self) -> None:
        self.fetched -= 1

    def close(self, flight: Fetch) -> None:
        self._by_lease.pop(flight.lease.id, None)


def fate_of(flight: Fetch, now: float, retries: int, pause_s: float) -> Verdict:
    """The verdict on its URL, all told. An error of our own side is tried again *retries*
    times, *pause_s* apart, before the URL is dead: it may be the page, or a passing fault."""
    if flight.broken and not isinstance(flight.verdict, Dead | RetryAt | PutBack):
        if flight.lease.candidate.attempts >= retries:
            return Dead(flight.broken)
        return RetryAt(now + pause_s)
    if flight.verdict is None:
        return Done(claim=flight.claim)
    return flight.verdict


# How a flight lands: its host is released, its links added, its verdict finished, its
# outcome logged; always in this order.
#
# Rule: the page's record is written before this is called (the pipelines await it), so that the
# death
# of the process does not take it; then its links are added; and where a record was written, its
# verdict waits until a sync has made that record survive a power cut too. A crash between any two
# of
# these loses nothing.


class OutcomeSink(Protocol):
    def append(self, outcome: Outcome) -> None: ...


class Reservations(Protocol):
    def settle(self, lease_id: int) -> None: ...


class Durability(Protocol):
    """What makes records survive a power cut."""

    def when_synced(self, finish: Callable[[CrawlerError | None], None]) -> None:
        """Call *finish* when all records written so far are synced, or with the reason why not."""


class StatsSink(Protocol):
    """Where figures are counted."""

    def count(self, key: str, by: int = 1) -> None: ...

    def added(self, added: Added) -> None: ...

    def landed(self, flight: Fetch, outcome: Outcome) -> None: ...

    def rested(self, host: HostKey, answer: Answer, rest: Rest, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRules:
    politeness: PolitenessSettings
    broken_retries: int = 3  # how often an error of a callback or a pipeline is tried again
    broken_pause_s: float = 60.0  # guess: long enough for a passing fault to pass


@dataclass(frozen=True, slots=True)
class CompletionSinks:
    """Who hears what came of a flight."""

    outcomes: OutcomeSink
    bodies: Reservations  # their memory, needed until the record is written
    reservations: Sequence[Reservations]  # of contents, needed until the verdict
    yields: PatternStatsStore
    tally: StatsSink


class Completion:
    """The last stage of the loop; knows nothing of Scrapy."""

    def __init__(
        self,
        frontier: Frontier,
        flights: InFlight,
        rules: CompletionRules,
        ledger: CompletionSinks,
        give_up_on: Callable[[str, str, float, float], None],
        random: Random,
        now: Callable[[], float],
        durability: Durability | None,
    ) -> None:
        """*give_up_on*: authority, reason, now, and how long its host rests: its URLs become
        dead letters for a while. *durability*: None if no verdict waits for a sync."""
        self._frontier = frontier
        self._flights = flights
        self._rules = rules
        self._outcomes = ledger.outcomes
        self._bodies = ledger.bodies
        self._reservations = ledger.reservations
        self._yields = ledger.yields
        self._tally = ledger.tally
        self._give_up_on = give_up_on
        self._random = random
        self._now = now
        self._durability = durability

    def release(self, flight: Fetch) -> Rest | None:
        """The fetch of *flight* is over: its host rests. None: it was released before."""
        if flight.released:
            return None
        self._release(flight)
        # No answer noted: a middleware of the user's stood in for the host, or it was we who
        # ended the fetch. The host may have been asked, so it gets its gap.
        answer = flight.answer or Answer(flight.fetched_s(self._now()), error="cancelled")
        rest = next_rest(_pace(flight), answer, self._rules.politeness, self._random)
        if flight.purpose is Purpose.ROBOTS and rest.pace.standing is Standing.ANSWERS:
            # A robots.txt says nothing about pages: hosts that answer it and hang with each page
            # would all take slots of hosts that answer, and wait there together.
            proven = flight.lease.pace.standing is Standing.ANSWERS
            pace = rest.pace if proven else replace(rest.pace, standing=Standing.NEW)
            rest = dataclasses.replace(rest, pace=pace)
        now = self._now()
        self._frontier.release(flight.lease, rest, now)
        self._tally.rested(flight.lease.candidate.host, answer, rest, now)
        if is_lost(rest.pace):
            self._give_up(flight, rest)
        return rest

    def land(self, flight: Fetch) -> None:
        """Nothing more comes of *flight*: its links are added, its body and its place among the
        pages under way are given free, and its verdict is finished, now or after the next sync."""
        self.release(flight)
        now = self._now()
        try:
            if flight.links:
                self._tally.added(self._frontier.add(flight.links, now))
        except CrawlerError:
            self._close(flight)
            raise
        finally:
            flight.links = []
            if flight.exchange is not None:
                flight.size = len(flight.exchange.body)
                flight.truncated = flight.exchange.truncated
            flight.exchange = None
            self._flights.record_written()
            self._bodies.settle(flight.lease.id)
        verdict = fate_of(flight, now, self._rules.broken_retries, self._rules.broken_pause_s)
        is_fetched_again = isinstance(verdict, RetryAt | PutBack)
        if self._durability is None or not flight.record or is_fetched_again:
            self._finish(flight, verdict)
        else:
            self._durability.when_synced(partial(self._synced, flight, verdict))

    def unfetched(self, flight: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """End *flight*, whose host was not asked."""
        self.refuse(flight, verdict, reason, rest_s)
        self.land(flight)

    def refuse(self, flight: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """Decide *flight* before its host is asked, which then needs no gap; it lands later."""
        self._release(flight)
        flight.verdict = verdict
        flight.reason = reason
        self._frontier.release(flight.lease, Rest(rest_s, flight.lease.pace), self._now())

    def unreadable(self, flight: Fetch, why: str) -> None:
        """What its lease asks for cannot be understood any more."""
        self.unfetched(flight, Dead(why), why, 0.0)

    def _give_up(self, flight: Fetch, rest: Rest) -> None:
        authority = authority_of(flight.lease.candidate.url)
        self._give_up_on(authority, "its host fails since hours", self._now(), rest.seconds)
        self._tally.count("politeness/given_up")

    def _release(self, flight: Fetch) -> None:
        flight.released = True
        self._flights.fetch_ended()

    def _synced(self, flight: Fetch, verdict: Verdict, error: CrawlerError | None) -> None:
        # Its record may be lost, so its URL is not done.
        self._finish(flight, PutBack() if error else verdict)

    def _finish(self, flight: Fetch, verdict: Verdict) -> None:
        now = self._now()
        try:
            is_held = self._frontier.finish(_told(flight, verdict), verdict, now)
        finally:
            self._close(flight)
        outcome = _outcome(flight, verdict, now)
        self._tally.landed(flight, outcome)
        if flight.purpose is Purpose.PAGE and not isinstance(verdict, PutBack):
            self._outcomes.append(outcome)
        if not is_held:
            self._tally.count("leases/refused")  # it had ended: another worker has it
        elif flight.is_new is not None and isinstance(verdict, Done | Moved):
            self._yields.note(flight.lease.candidate, flight.is_new, now)

    def _close(self, flight: Fetch) -> None:
        """Pages that wait for this one go on, whatever became of it."""
        self._flights.close(flight)
        for reserved in self._reservations:
            reserved.settle(flight.lease.id)


_FATES = {Done: "done", RetryAt: "retry", Moved: "moved", PutBack: "put_back", Dead: "dead"}


_NO_ANSWER: Final = Answer(0.0)


def _told(flight: Fetch, verdict: Verdict) -> Lease:
    """Its lease. Where a URL comes back though its answer was archived, which nobody claims, it
    says so, as after a crash."""
    lease = flight.lease
    if not flight.record or not isinstance(verdict, RetryAt | PutBack):
        return lease
    return dataclasses.replace(lease, candidate=replace(lease.candidate, lost=True))


def _pace(flight: Fetch) -> Pace:
    if flight.crawl_delay_s is None:
        return flight.lease.pace
    return replace(flight.lease.pace, crawl_delay_s=flight.crawl_delay_s)


def _outcome(flight: Fetch, verdict: Verdict, now: float) -> Outcome:
    candidate, answer = flight.lease.candidate, flight.answer or _NO_ANSWER
    reason = verdict.reason if isinstance(verdict, Dead) else flight.broken or flight.reason
    return Outcome(
        at=round(now, 3),
        url=candidate.url,
        host=candidate.host,
        fate=_FATES[type(verdict)],
        status=answer.status,
        reason=reason or answer.error,
        seconds=round(answer.duration_s, 4),
        size=flight.size,
        attempts=candidate.attempts,
        depth=candidate.depth,
        record=flight.record,
        target=verdict.candidate.url if isinstance(verdict, Moved) else "",
        original=flight.original,
        bits=flight.bits,
    )

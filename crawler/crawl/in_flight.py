"""Leases in flight: the state of each lease that this process holds, and its completion.

Rule: each lease has one `Fetch`, from when it is taken until it is finished. A page's record is
written before its links are added, and its lease is finished last, so a crash loses nothing.
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
"""The only key of this crawler in `request.meta`."""


@dataclass(slots=True, eq=False)
class Fetch:
    """The state of one lease in this process. The components that Scrapy calls fill it in;
    `verdict_of` makes the verdict of it."""

    lease: Lease
    purpose: Purpose = Purpose.PAGE  # if another, the lease is not used for its own URL
    authority: str = ""  # for ROBOTS the authority of the file, for PROBE the kind of URL
    began_at: float = 0.0  # when its fetch began; 0: not yet
    paused_s: float = 0.0  # time of the fetch in which it waited for memory for its body
    crawl_delay_s: float | None = None  # of its host's robots.txt; None: not known
    answer: Answer | None = None  # of the host; None: no request was sent, or no answer came yet
    released: bool = False
    exchange: Exchange | None = None  # what was fetched, until completion
    size: int = 0  # of its body, set at completion
    truncated: Truncated = Truncated.NO  # why the body is not whole, set at completion
    verdict: Verdict | None = None
    reason: str = ""  # of the verdict, readable
    broken: str = ""  # an error of a callback or a pipeline, not of the host
    links: list[Candidate] = field(default_factory=list)
    claim: Claim | None = None
    record: str = ""  # "file:offset" of the archived record
    original: str = ""  # the URL that had the same content first
    bits: int | None = None  # of 64 that differ from the original; None: equal bytes
    is_new: bool | None = None  # whether it was a page of new content; None: unknown

    @property
    def is_refused(self) -> bool:
        """Whether it was decided, and its host released, before a fetch began."""
        return self.released and self.verdict is not None and self.answer is None

    def fetched_s(self, now: float) -> float:
        """Return how long its fetch, which ends *now*, took without pauses."""
        return now - self.began_at - self.paused_s


class InFlight:
    """The fetches of this process by lease. Bound: one for each open lease."""

    def __init__(self) -> None:
        self._by_lease: dict[int, Fetch] = {}
        self.fetched = 0  # fetches that have ended and whose record is not written yet

    def __len__(self) -> int:
        return len(self._by_lease)

    def pages(self) -> int:
        """Return how many of them are for pages. O(n) in the open leases."""
        return sum(flight.purpose is Purpose.PAGE for flight in self._by_lease.values())

    def open(self, lease: Lease) -> Fetch:
        flight = self._by_lease[lease.id] = Fetch(lease)
        return flight

    def of(self, lease: object) -> Fetch | None:
        """Return the fetch of *lease*, or None if that is no lease, or a finished one."""
        return self._by_lease.get(lease.id) if isinstance(lease, Lease) else None

    def by_id(self, lease_id: int) -> Fetch | None:
        return self._by_lease.get(lease_id)

    def fetch_ended(self) -> None:
        self.fetched += 1

    def record_written(self) -> None:
        self.fetched -= 1

    def close(self, flight: Fetch) -> None:
        self._by_lease.pop(flight.lease.id, None)


def verdict_of(flight: Fetch, now: float, retries: int, pause_s: float) -> Verdict:
    """Return the verdict on its URL. An error of a callback or a pipeline, which may be temporary,
    is tried again *retries* times, *pause_s* apart, before the URL is dead."""
    if flight.broken and not isinstance(flight.verdict, Dead | RetryAt | PutBack):
        if flight.lease.candidate.attempts >= retries:
            return Dead(flight.broken)
        return RetryAt(now + pause_s)
    if flight.verdict is None:
        return Done(claim=flight.claim)
    return flight.verdict


class OutcomeSink(Protocol):
    def append(self, outcome: Outcome) -> None: ...


class Reservations(Protocol):
    def release(self, lease_id: int) -> None: ...


class Durability(Protocol):
    """Syncs of records, after which they survive a power cut."""

    def when_synced(self, finish: Callable[[CrawlerError | None], None]) -> None:
        """Call *finish* when all records written so far are synced, or with the error."""


class StatsSink(Protocol):
    """Where figures are counted."""

    def count(self, key: str, by: int = 1) -> None: ...

    def count_added(self, added: Added) -> None: ...

    def count_completed(self, flight: Fetch, outcome: Outcome) -> None: ...

    def count_rest(self, host: HostKey, answer: Answer, rest: Rest, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRules:
    """The limits of `verdict_of`, and of the rest after a fetch."""

    politeness: PolitenessSettings
    broken_retries: int = 3  # how often an error of a callback or a pipeline is tried again
    broken_pause_s: float = 60.0  # guess: long enough for a temporary fault


@dataclass(frozen=True, slots=True)
class CompletionSinks:
    """The parts that are given the result of a fetch."""

    outcomes: OutcomeSink
    bodies: Reservations  # the memory of bodies, needed until the record is written
    reservations: Sequence[Reservations]  # of contents, needed until the verdict
    pattern_stats: PatternStatsStore
    stats: StatsSink


class Completion:
    """The last stage of the loop, independent of Scrapy.

    Releases the host, adds the links, finishes the lease and logs the outcome, in this order. The
    pipelines write the page's record first, so that the death of the process does not lose it, and
    its lease is finished after a sync, so that a power cut does not either."""

    def __init__(
        self,
        frontier: Frontier,
        flights: InFlight,
        rules: CompletionRules,
        sinks: CompletionSinks,
        give_up_on: Callable[[str, str, float, float], None],
        random: Random,
        now: Callable[[], float],
        durability: Durability | None,
    ) -> None:
        """*give_up_on*, called with authority, reason, now and the rest of its host, makes its URLs
        dead letters for a while. *durability*: None if no verdict waits for a sync."""
        self._frontier = frontier
        self._in_flight = flights
        self._rules = rules
        self._outcomes = sinks.outcomes
        self._bodies = sinks.bodies
        self._reservations = sinks.reservations
        self._pattern_stats = sinks.pattern_stats
        self._stats = sinks.stats
        self._give_up_on = give_up_on
        self._random = random
        self._now = now
        self._durability = durability

    def release(self, flight: Fetch) -> Rest | None:
        """End the fetch of *flight* and return the rest of its host, or None if it was released
        before."""
        if flight.released:
            return None
        self._release(flight)
        # Without an answer, a middleware of the user's replaced the host, or this crawler ended the
        # fetch. A request may have reached the host, so its rest is kept.
        answer = flight.answer or Answer(flight.fetched_s(self._now()), error="cancelled")
        rest = next_rest(_pace(flight), answer, self._rules.politeness, self._random)
        if flight.purpose is Purpose.ROBOTS and rest.pace.standing is Standing.ANSWERS:
            # A robots.txt proves nothing about pages: hosts that answer it and hang with each page
            # would take the slots of hosts that answer.
            proven = flight.lease.pace.standing is Standing.ANSWERS
            pace = rest.pace if proven else replace(rest.pace, standing=Standing.NEW)
            rest = dataclasses.replace(rest, pace=pace)
        now = self._now()
        self._frontier.release(flight.lease, rest, now)
        self._stats.count_rest(flight.lease.candidate.host, answer, rest, now)
        if is_lost(rest.pace):
            self._give_up(flight, rest)
        return rest

    def complete(self, flight: Fetch) -> None:
        """Complete *flight*: add its links, free its body and its place among the pages under way,
        and finish its lease, now or after the next sync."""
        self.release(flight)
        now = self._now()
        try:
            if flight.links:
                self._stats.count_added(self._frontier.add(flight.links, now))
        except CrawlerError:
            self._forget(flight)
            raise
        finally:
            flight.links = []
            if flight.exchange is not None:
                flight.size = len(flight.exchange.body)
                flight.truncated = flight.exchange.truncated
            flight.exchange = None
            self._in_flight.record_written()
            self._bodies.release(flight.lease.id)
        verdict = verdict_of(flight, now, self._rules.broken_retries, self._rules.broken_pause_s)
        is_fetched_again = isinstance(verdict, RetryAt | PutBack)
        if self._durability is None or not flight.record or is_fetched_again:
            self._finish(flight, verdict)
        else:
            self._durability.when_synced(partial(self._finish_synced, flight, verdict))

    def end_unfetched(self, flight: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """Refuse and complete *flight*, for which no request was sent."""
        self.refuse(flight, verdict, reason, rest_s)
        self.complete(flight)

    def refuse(self, flight: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """Decide *flight* before a request is sent, so that its host needs no gap. `complete` ends
        it later."""
        self._release(flight)
        flight.verdict = verdict
        flight.reason = reason
        self._frontier.release(flight.lease, Rest(rest_s, flight.lease.pace), self._now())

    def end_unreadable(self, flight: Fetch, why: str) -> None:
        """End *flight*, whose stored request cannot be read."""
        self.end_unfetched(flight, Dead(why), why, 0.0)

    def _give_up(self, flight: Fetch, rest: Rest) -> None:
        authority = authority_of(flight.lease.candidate.url)
        self._give_up_on(authority, "its host has failed for hours", self._now(), rest.seconds)
        self._stats.count("politeness/given_up")

    def _release(self, flight: Fetch) -> None:
        flight.released = True
        self._in_flight.fetch_ended()

    def _finish_synced(self, flight: Fetch, verdict: Verdict, error: CrawlerError | None) -> None:
        # After an error the record may be lost, so the URL is not done.
        self._finish(flight, PutBack() if error else verdict)

    def _finish(self, flight: Fetch, verdict: Verdict) -> None:
        now = self._now()
        try:
            is_held = self._frontier.finish(_lease_to_finish(flight, verdict), verdict, now)
        finally:
            self._forget(flight)
        outcome = _outcome(flight, verdict, now)
        self._stats.count_completed(flight, outcome)
        if flight.purpose is Purpose.PAGE and not isinstance(verdict, PutBack):
            self._outcomes.append(outcome)
        if not is_held:
            self._stats.count("leases/refused")  # it had ended, and another worker may have it
        elif flight.is_new is not None and isinstance(verdict, Done | Moved):
            self._pattern_stats.record_page(flight.lease.candidate, flight.is_new, now)

    def _forget(self, flight: Fetch) -> None:
        """Let pages that wait for this one go on."""
        self._in_flight.close(flight)
        for reserved in self._reservations:
            reserved.release(flight.lease.id)


_FATES = {Done: "done", RetryAt: "retry", Moved: "moved", PutBack: "put_back", Dead: "dead"}


_NO_ANSWER: Final = Answer(0.0)


def _lease_to_finish(flight: Fetch, verdict: Verdict) -> Lease:
    """Return its lease, with *lost* set, as after a crash, if the URL is fetched again although its
    answer was archived: no claim refers to that record."""
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

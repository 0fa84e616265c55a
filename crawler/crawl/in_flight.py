"""Leases in flight: the state of each lease that this process holds, and its completion.

Rule: each lease has one `Fetch`, from when it is taken until it is finished. A page's record is
written before its links are added, and its lease is finished last, so a crash loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.crawl.errors import FAILURES, status_failure
from crawler.frontier.port import Frontier
from crawler.model.page import Exchange, Flaw, Truncated
from crawler.model.types import (
    HTTP_OK,
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
from crawler.policy.operator_rules import Overrides
from crawler.policy.patterns import PatternStatsStore
from crawler.policy.politeness import (
    is_retry_status,
    is_trouble,
    next_rest,
    overridden,
    retry_after_s,
    should_give_up,
    with_head,
)
from crawler.policy.scope import Refusal
from crawler.policy.silent_hosts import NEVER_ANSWERED

LEASE: Final = "lease"
"""The only key of this crawler in `request.meta`. Copies of a request have it too, so it does not
say which lease a request has: see `InFlight.fetch_of`."""

# `meta=response.meta` in a callback copies these keys to another request.
_OF_ONE_FETCH: Final = frozenset(
    {LEASE, "download_slot", "download_latency", "verbatim_url", "redirect_times"}
)


def own_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copied *meta* without the keys of the fetch that it was copied from."""
    return {key: value for key, value in meta.items() if key not in _OF_ONE_FETCH}


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """Why the answer of a seed leads no further."""

    kind: str  # redirect, refresh, nofollow, noindex or links
    why: str = ""  # with what to do
    target: str = ""  # where it would lead


@dataclass(slots=True, eq=False)
class Fetch:
    """The state of one lease in this process. The components that Scrapy calls fill it in;
    `verdict_of` makes the verdict of it."""

    lease: Lease
    requests: list[object] = field(default_factory=list)  # of Scrapy, that fetch under it
    returned: object = None  # the request that a middleware returned in place of an answer
    sent_aside: int = 0  # how often its own request is being sent past the frontier, too
    purpose: Purpose = Purpose.PAGE  # if another, the lease is not used for its own URL
    authority: str = ""  # for ROBOTS the authority of the file, for PROBE the kind of URL
    began_at: float = 0.0  # when its fetch began; 0: not yet
    ended_at: float = 0.0  # when its answer was whole; 0: not yet, or not known
    paused_s: float = 0.0  # time of the fetch in which it waited for memory for its body
    crawl_delay_s: float | None = None  # of its host's robots.txt; None: not known
    answer: Answer | None = None  # of the host; None: no request was sent, or no answer came yet
    head: Answer | None = None  # the answer as its head was, if that has trouble
    released: bool = False
    exchange: Exchange | None = None  # what was fetched, until completion
    body_bytes: int = 0  # of its body, set at completion
    truncated: Truncated = Truncated.NO  # why the body is not whole, set at completion
    verdict: Verdict | None = None
    reason: str = ""  # of the verdict, readable
    callback_error: str = ""  # an error of a callback or a pipeline, not of the host
    links: list[Candidate] = field(default_factory=list)
    claim: Claim | None = None
    record: str = ""  # "file:offset" of the archived record
    original: str = ""  # the URL that had the same content first
    bits: int | None = None  # of 64 that differ from the original; None: equal bytes
    dead_end: DeadEnd | None = None  # its answer leads no further; set for seeds only
    is_wanted: bool = False  # a spider's callback takes it, though its status is an error
    is_new: bool | None = None  # whether it was a page of new content; None: unknown

    @property
    def is_refused(self) -> bool:
        """Whether it was decided, and its host released, before a fetch began."""
        return self.released and self.verdict is not None and self.answer is None

    def fetched_s(self, now: float) -> float:
        """Return how long its fetch, which ends *now* if not before, took without pauses."""
        return (self.ended_at or now) - self.began_at - self.paused_s


class InFlight:
    """The fetches of this process by lease. Bound: one for each open lease."""

    def __init__(self) -> None:
        self._by_lease: dict[int, Fetch] = {}
        self._by_request: dict[int, Fetch] = {}  # by the ids of `Fetch.requests`
        self._by_returned: dict[int, Fetch] = {}  # by the id of `Fetch.returned`
        # Requests without a lease that are treated as the mark says, by their ids.
        self._marks: dict[int, tuple[object, Refusal | Purpose]] = {}
        self.unrecorded = 0  # fetches that have ended and whose record is not written yet

    def __len__(self) -> int:
        return len(self._by_lease)

    def pages(self) -> int:
        """Return how many of them are for pages. O(n) in the open leases."""
        return sum(fetch.purpose is Purpose.PAGE for fetch in self._by_lease.values())

    def add(self, lease: Lease) -> Fetch:
        fetch = self._by_lease[lease.id] = Fetch(lease)
        return fetch

    def hand_out(self, fetch: Fetch, request: object) -> None:
        """Note that *request*, and no copy of it, fetches under the lease of *fetch*."""
        fetch.requests.append(request)
        self._by_request[id(request)] = fetch

    def fetch_of(self, request: object) -> Fetch | None:
        """Return the fetch whose lease *request* was handed out for, or None: it is a copy, was
        sent past the frontier, or is finished."""
        return self._by_request.get(id(request))

    def note_returned(self, fetch: Fetch, request: object) -> None:
        """Note that a middleware returned *request* in place of the answer of *fetch*."""
        fetch.returned = request
        self._by_returned[id(request)] = fetch

    def take_returned(self, request: object) -> Fetch | None:
        """Return, once, the fetch in which *request* was returned; None: in none."""
        return self._by_returned.pop(id(request), None)

    def mark(self, request: object, mark: Refusal | Purpose) -> None:
        """Mark *request*, which has no lease: refused, or for a robots.txt. Copies are not."""
        self._marks[id(request)] = request, mark

    def mark_of(self, request: object) -> Refusal | Purpose | None:
        return self._marks[id(request)][1] if id(request) in self._marks else None

    def unmark(self, request: object) -> None:
        self._marks.pop(id(request), None)

    def fetch_by_id(self, lease_id: int) -> Fetch | None:
        return self._by_lease.get(lease_id)

    def note_fetch_ended(self) -> None:
        self.unrecorded += 1

    def note_record_written(self) -> None:
        self.unrecorded -= 1

    def forget_requests(self, fetch: Fetch) -> None:
        """Forget the requests of *fetch*, none of which is used again."""
        for request in fetch.requests:
            self._by_request.pop(id(request), None)
        if fetch.returned is not None:
            self._by_returned.pop(id(fetch.returned), None)
        fetch.requests, fetch.returned = [], None

    def remove(self, fetch: Fetch) -> None:
        self.forget_requests(fetch)
        self._by_lease.pop(fetch.lease.id, None)


def verdict_of(fetch: Fetch, now: float, retries: int, pause_s: float) -> Verdict:
    """Return the verdict on its URL. An error of a callback or a pipeline, which may be temporary,
    is tried again *retries* times, *pause_s* apart, before the URL is dead."""
    if fetch.callback_error and not isinstance(fetch.verdict, Dead | RetryAt | PutBack):
        if fetch.lease.candidate.attempts >= retries:
            return Dead(fetch.callback_error)
        return RetryAt(now + pause_s)
    if fetch.verdict is None:
        return Done(claim=fetch.claim)
    return fetch.verdict


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

    def count_completed(self, fetch: Fetch, outcome: Outcome) -> None: ...

    def count_rest(self, host: HostKey, answer: Answer, rest: Rest, now: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRules:
    """The limits of `verdict_of`, and of the rest after a fetch."""

    politeness: PolitenessSettings
    callback_retries: int = 0  # how often an error of a callback or a pipeline is tried again
    callback_pause_s: float = 60.0  # guess: long enough for a temporary fault


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
        in_flight: InFlight,
        rules: CompletionRules,
        sinks: CompletionSinks,
        *,
        give_up_on: Callable[[str, str, float, float], None],
        operator: Callable[[str], Overrides],
        random: Random,
        now: Callable[[], float],
        durability: Durability | None,
    ) -> None:
        """*give_up_on*, called with authority, reason, now and the rest of its host, makes its URLs
        dead letters for a while. *operator* returns what the operator says about a URL.
        *durability*: None if no verdict waits for a sync."""
        self._frontier = frontier
        self._in_flight = in_flight
        self._rules = rules
        self._outcomes = sinks.outcomes
        self._bodies = sinks.bodies
        self._reservations = sinks.reservations
        self._pattern_stats = sinks.pattern_stats
        self._stats = sinks.stats
        self._give_up_on = give_up_on
        self._operator = operator
        self._random = random
        self._now = now
        self._durability = durability

    def release(self, fetch: Fetch) -> Rest | None:
        """End *fetch* and return the rest of its host, or None if it was released
        before."""
        if fetch.released:
            return None
        self._release(fetch)
        # Without an answer, a middleware of the user's replaced the host, or this crawler ended the
        # fetch. A request may have reached the host, so its rest is kept.
        answer = fetch.answer or Answer(fetch.fetched_s(self._now()), error="cancelled")
        answer = with_head(answer, fetch.head)
        rest = self._next_rest(fetch, answer)
        now = self._now()
        if fetch.head is None and answer.status is not None and rest.asked_s is not None:
            # A handler of the user's gives no head, and some trouble is seen in the body only.
            self._frontier.note_trouble(fetch.lease, rest, now)
        self._frontier.release(fetch.lease, rest, now)
        self._stats.count_rest(fetch.lease.candidate.host, answer, rest, now)
        if should_give_up(rest.pace):
            self._give_up(fetch, rest)
        return rest

    def note_head(self, fetch: Fetch, status: int, retry_after: bytes | None) -> None:
        """Note that an answer has begun. If it has trouble or a Retry-After, the rest that follows
        is written at once: the process may be killed before the answer is whole."""
        if fetch.released:
            return
        now, rules = self._now(), self._rules.politeness
        asked_s = retry_after_s(retry_after, now, rules.max_retry_after_s) if retry_after else None
        head = Answer(fetch.fetched_s(now), status=status, retry_after_s=asked_s)
        if asked_s is None and not is_trouble(head):
            return
        fetch.head = head
        self._frontier.note_trouble(fetch.lease, self._next_rest(fetch, head), now)

    def complete(self, fetch: Fetch) -> None:
        """Complete *fetch*: add its links, free its body and its place among the pages under way,
        and finish its lease, now or after the next sync."""
        self.release(fetch)
        now = self._now()
        try:
            if fetch.links:
                self._stats.count_added(self._frontier.add(fetch.links, now))
        except CrawlerError:
            self._forget(fetch)
            raise
        finally:
            fetch.links = []
            if fetch.exchange is not None:
                fetch.body_bytes = len(fetch.exchange.body)
                fetch.truncated = fetch.exchange.truncated
            fetch.exchange = None
            self._in_flight.forget_requests(fetch)
            self._in_flight.note_record_written()
            self._bodies.release(fetch.lease.id)
        verdict = verdict_of(fetch, now, self._rules.callback_retries, self._rules.callback_pause_s)
        is_fetched_again = isinstance(verdict, RetryAt | PutBack)
        if self._durability is None or not fetch.record or is_fetched_again:
            self._finish(fetch, verdict)
        else:
            self._durability.when_synced(partial(self._finish_synced, fetch, verdict))

    def end_unfetched(self, fetch: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """Refuse and complete *fetch*, for which no request was sent."""
        self.refuse(fetch, verdict, reason, rest_s)
        self.complete(fetch)

    def refuse(self, fetch: Fetch, verdict: Verdict, reason: str, rest_s: float) -> None:
        """Set the verdict of *fetch* before a request is sent. Its host was not contacted, so it
        needs no gap. `complete` ends it later."""
        self._release(fetch)
        fetch.verdict = verdict
        fetch.reason = reason
        self._frontier.release(fetch.lease, Rest(rest_s, fetch.lease.pace), self._now())

    def end_unreadable(self, fetch: Fetch, why: str) -> None:
        """End *fetch*, whose stored request cannot be read."""
        self.end_unfetched(fetch, Dead(why), why, 0.0)

    def _next_rest(self, fetch: Fetch, answer: Answer) -> Rest:
        says = self._operator(fetch.lease.candidate.url)
        politeness = overridden(self._rules.politeness, says)
        rest = next_rest(_pace(fetch, says), answer, politeness, self._random)
        if fetch.purpose is not Purpose.ROBOTS or rest.pace.standing is not Standing.ANSWERS:
            return rest
        # A robots.txt proves nothing about pages: hosts that answer it and hang with each page
        # would take the slots of hosts that answer.
        proven = fetch.lease.pace.standing is Standing.ANSWERS
        standing = Standing.ANSWERS if proven else Standing.NEW
        return replace(rest, pace=replace(rest.pace, standing=standing))

    def _give_up(self, fetch: Fetch, rest: Rest) -> None:
        authority = authority_of(fetch.lease.candidate.url)
        trouble = fetch.answer.trouble if fetch.answer else ""
        reason = f"its host has failed for hours{trouble and f': {trouble}'}"
        self._give_up_on(authority, reason, self._now(), rest.seconds)
        self._stats.count("politeness/given_up")

    def _release(self, fetch: Fetch) -> None:
        fetch.released = True
        self._in_flight.note_fetch_ended()

    def _finish_synced(self, fetch: Fetch, verdict: Verdict, error: CrawlerError | None) -> None:
        # After an error the record may be lost, so the URL is not done.
        self._finish(fetch, PutBack() if error else verdict)

    def _finish(self, fetch: Fetch, verdict: Verdict) -> None:
        now = self._now()
        if isinstance(verdict, Done) and self._operator(fetch.lease.candidate.url).refuse:
            # Perhaps it was purged meanwhile: then nothing is to be remembered of its content.
            verdict = replace(verdict, claim=None)
        try:
            is_held = self._frontier.finish(_lease_to_finish(fetch, verdict), verdict, now)
        finally:
            self._forget(fetch)
        outcome = _outcome(fetch, verdict, now)
        self._stats.count_completed(fetch, outcome)
        if fetch.purpose is Purpose.PAGE and not isinstance(verdict, PutBack):
            self._outcomes.append(outcome)
        if not is_held:
            self._stats.count("leases/refused")  # it had ended, and another worker may have it
        elif fetch.is_new is not None and isinstance(verdict, Done | Moved):
            self._pattern_stats.record_page(fetch.lease.candidate, fetch.is_new, now)

    def _forget(self, fetch: Fetch) -> None:
        """End the reservations of this page, so that pages that wait for it continue."""
        self._in_flight.remove(fetch)
        for reserved in self._reservations:
            reserved.release(fetch.lease.id)


_FATES = {Done: "done", RetryAt: "retry", Moved: "moved", PutBack: "put_back", Dead: "dead"}


_NO_ANSWER: Final = Answer(0.0)


def _lease_to_finish(fetch: Fetch, verdict: Verdict) -> Lease:
    """Return the lease of *fetch* with what is kept of it changed on its candidate: a dead letter
    has its last try counted, too; and `may_be_archived` is set, as after a crash, if the URL is
    fetched again although its answer was archived, because no claim refers to that record."""
    lease = fetch.lease
    if isinstance(verdict, Dead) and fetch.answer is not None:
        tried = replace(lease.candidate, attempts=lease.candidate.attempts + 1)
        return replace(lease, candidate=tried)
    if not fetch.record or not isinstance(verdict, RetryAt | PutBack):
        return lease
    return replace(lease, candidate=replace(lease.candidate, may_be_archived=True))


def _pace(fetch: Fetch, says: Overrides) -> Pace:
    crawl_delay_s = fetch.crawl_delay_s if says.crawl_delay_s is None else says.crawl_delay_s
    if crawl_delay_s is None:
        return fetch.lease.pace
    return replace(fetch.lease.pace, crawl_delay_s=crawl_delay_s)


def _outcome(fetch: Fetch, verdict: Verdict, now: float) -> Outcome:
    candidate, answer = fetch.lease.candidate, fetch.answer or _NO_ANSWER
    reason = verdict.reason if isinstance(verdict, Dead) else fetch.callback_error or fetch.reason
    seed, dead_end, target = candidate.seed_url, fetch.dead_end, ""
    if isinstance(verdict, Moved):
        target = verdict.candidate.url
    elif dead_end is not None:
        target, reason = dead_end.target, dead_end.why or reason
    return Outcome(
        at=round(now, 3),
        url=candidate.url,
        host=candidate.host,
        fate=_FATES[type(verdict)],
        status=answer.status,
        reason=reason or answer.trouble,
        seconds=round(answer.duration_s, 4),
        size=fetch.body_bytes,
        attempts=candidate.attempts,
        depth=candidate.depth,
        record=fetch.record,
        target=target,
        original=fetch.original,
        bits=fetch.bits,
        failure=failure_of(fetch, reason) if isinstance(verdict, RetryAt | Dead) else "",
        seed=seed,
        seed_fate=seed_fate(fetch, verdict, reason) if seed else "",
    )


_NO_PAGES: Final = frozenset(Flaw) - {Flaw.NONE}


def seed_fate(fetch: Fetch, verdict: Verdict, reason: str) -> str:
    """Return what became of the seed that *fetch* is for: page, redirected, what its answer was
    instead, or a kind of failure. Empty: that is not decided yet."""
    if isinstance(verdict, Moved):
        return "redirected"
    if isinstance(verdict, Dead):
        return failure_of(fetch, reason)
    if not isinstance(verdict, Done):
        return ""
    if fetch.dead_end is not None:
        return fetch.dead_end.kind
    status = fetch.answer.status if fetch.answer else None
    if status is None:
        kind = reason.partition(" ")[0].rstrip(":")
        return {"robots.txt": "robots", "pattern": "pattern"}.get(kind, "other")
    if status in HTTP_OK:
        return reason if reason in _NO_PAGES else "page"
    return "page" if fetch.is_wanted else f"status_{status}"


def failure_of(fetch: Fetch, reason: str) -> str:
    """Return the kind of failure of *fetch*, one of FAILURES."""
    answer = fetch.answer or _NO_ANSWER
    if fetch.callback_error:
        return "broken"  # an error in a callback or a pipeline
    if answer.error:
        return answer.error if answer.error in FAILURES else "other"
    if answer.status is not None:
        if is_retry_status(answer.status):
            return status_failure(answer.status)
        if 300 <= answer.status < 400:
            return "redirects"
    if reason.startswith(NEVER_ANSWERED):
        return reason.removeprefix(NEVER_ANSWERED)
    return "robots_unreachable" if reason.startswith("robots.txt ") else "other"

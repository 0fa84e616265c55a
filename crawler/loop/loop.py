"""The loop: what happens to a URL from its lease to its verdict, in the order of `Loop`'s methods.

Rule: decisions only. Scrapy's scheduler, middlewares and pipelines, or a simulator, call it when
something has happened, and do what it returns; sockets, files and the event loop are theirs. A
page's record is written before its links are added, and its lease is finished last, so a crash
loses nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, Protocol

from msgspec.structs import replace

from crawler.config.settings import Config, PolitenessSettings
from crawler.frontier.port import Frontier
from crawler.loop.bundles import Bundles
from crawler.loop.life import DeadEnd, Life, LifeEvent, Lives, OpenFetch, Plan
from crawler.loop.links import LinkSelection, Tally
from crawler.loop.outcome import (
    UNMODIFIED,
    fetches_beside,
    host_fetch,
    lease_to_finish,
    outcome_of,
    page_change,
    says_unmodified,
    verdict_of,
)
from crawler.loop.precheck import Precheck, ProbeResult, Skip
from crawler.loop.slots import Slots
from crawler.loop.visit import LaterVisit, VisitLimits, later_visit, visit_limits, with_next_visit
from crawler.model.choices import LaterVisits, RevisitChoice, RevisitMode
from crawler.model.types import (
    Added,
    Answer,
    BorrowedTurn,
    Candidate,
    Change,
    CrawlerError,
    Dead,
    Done,
    HostKey,
    Lease,
    Moved,
    NotItsTurn,
    NoTurn,
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
from crawler.page.challenge import Challenge
from crawler.policy.admission import Admission
from crawler.policy.link_checks import is_asked_again
from crawler.policy.operator_rules import OperatorRules, Overrides
from crawler.policy.pacing import change_of
from crawler.policy.politeness import (
    CHALLENGE,
    LEFT,
    KeepAnswer,
    Uplink,
    decisive,
    is_cancelled,
    is_host_down,
    is_left,
    is_retry_status,
    is_retryable,
    is_trouble,
    no_contact,
    overridden,
    rest_after_all,
    retry_after_s,
    retry_decision,
    should_give_up,
    with_challenge,
    with_head,
    with_pages_of,
)
from crawler.policy.redirects import (
    BrokenRedirect,
    FollowRedirect,
    NotARedirect,
    RedirectDecision,
    TooManyRedirects,
    decide_redirect,
)
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.robots_cache import (
    HOST_FAILED,
    RobotsAnswer,
    RobotsFetchResult,
    robots_answer,
)
from crawler.policy.silent_hosts import NEVER_ANSWERED, SilentHosts
from crawler.policy.validators import ConditionFault, fault_of, noted

_CANCELLED: Final = "cancelled"
_LACKING_S: Final = 10.0  # guess: twice as long as a page waits for the turn of another host
LACKING_TRIES: Final = 2
"""How often a page that lacks something is fetched once more. The second comes when a turn that a
killed worker had is over, too."""
_OF_RUN: Final = (LaterVisits.LISTS, LaterVisits.EACH)


class Origins(Protocol):
    """Which URLs this start may fetch."""

    @property
    def is_complete(self) -> bool:
        """Whether all seeds are known; before that nothing is leased."""

    @property
    def later_visits(self) -> LaterVisits:
        """As LeaseRules."""

    @property
    def admission(self) -> Admission: ...

    @property
    def operator(self) -> OperatorRules: ...

    def set_operator_rules(self, operator: OperatorRules) -> None: ...


class OutcomeSink(Protocol):
    def append(self, outcome: Outcome) -> None: ...


class ChangeSink(Protocol):
    def add(self, change: Change) -> None:
        """Write *change* with the next sync of the records, after these and before the calls of
        `Durability`."""


class Reservations(Protocol):
    def release(self, lease_id: int) -> None: ...


class Durability(Protocol):
    """Syncs of records, after which they survive a power cut."""

    def when_synced(self, finish: Callable[[CrawlerError | None], None]) -> None:
        """Call *finish* when all records written so far are synced, or with the error."""


class LoopFigures(Tally, Protocol):
    """Where it is counted what happens."""

    def count_added(self, added: Added) -> None: ...

    def count_begun(self, host: HostKey, now: float) -> None: ...

    def count_completed(self, life: Life, outcome: Outcome) -> None: ...

    def count_rest(
        self, host: HostKey, answers: Sequence[Answer], rest: Rest, now: float
    ) -> None: ...

    def count_condition_fault(self, host: HostKey, fault: ConditionFault) -> None: ...

    def count_later_visit(self, visit: LaterVisit) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLimits:
    politeness: PolitenessSettings
    total_timeout_s: float = 30.0  # of a fetch
    max_redirects: int = 10
    callback_retries: int = 0  # how often an error of a callback or a pipeline is tried again
    callback_pause_s: float = 60.0  # guess: long enough for a temporary fault
    unrecorded_per_slot: int = 1  # pages that may wait to be archived
    revisit: RevisitMode = RevisitChoice.ONCE
    visits: VisitLimits = VisitLimits()


_SHARED_PER_SLOT: Final = 4
"""In a shared crawl a page waits 0.1 s for Redis before it is archived, with 60 others: one a slot
lets a worker fetch 600 a second, four 1,000."""


def loop_limits(config: Config, *, is_shared: bool = False) -> LoopLimits:
    return LoopLimits(
        politeness=config.politeness,
        total_timeout_s=config.fetch.total_timeout_s,
        max_redirects=config.limits.max_redirects,
        callback_retries=config.politeness.callback_retries,
        callback_pause_s=config.politeness.backoff_max_s,
        unrecorded_per_slot=_SHARED_PER_SLOT if is_shared else 1,
        revisit=config.revisits.revisit,
        visits=visit_limits(config),
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Loop:
    """One for each crawl. Its parts are given to it once; *now* is the crawl's clock."""

    frontier: Frontier
    lives: Lives
    origins: Origins
    precheck: Precheck
    links: LinkSelection
    uplink: Uplink
    silent_hosts: SilentHosts
    slots: Slots
    limits: LoopLimits
    outcomes: OutcomeSink
    bodies: Reservations  # the memory of bodies, needed until the record is written
    contents: Sequence[Reservations]  # needed until the verdict
    durability: Durability | None  # None: no verdict waits for a sync
    changes: ChangeSink | None = None  # None: there is no change feed
    figures: LoopFigures
    random: Random
    now: Callable[[], float]
    bundles: Bundles = field(init=False)

    def __post_init__(self) -> None:
        self.bundles = Bundles(self.frontier, self._politeness_of, self._politeness_of_url)

    def _politeness_of(self, host: HostKey) -> PolitenessSettings:
        return overridden(self.limits.politeness, self.origins.operator.of_host(host))

    def _politeness_of_url(self, url: str) -> PolitenessSettings:
        return overridden(self.limits.politeness, self.origins.operator.of_url(url))

    # A lease is taken, and it is decided what is fetched under it.

    def may_lease(self) -> bool:
        now = self.now()
        is_paused = self.origins.operator.paused_until(now) is not None
        return self.origins.is_complete and not is_paused and not self.uplink.is_down(now)

    def is_crowded(self) -> bool:
        """Return whether as many pages wait to be archived as may. A fetch that hangs takes no more
        than its slot."""
        most = self.limits.unrecorded_per_slot * self.slots.limits.concurrency
        return self.lives.unrecorded >= most

    def next(self) -> Life | None:
        """Take a lease; None if there is none. If it is refused, complete it without a request;
        else fetch its plan."""
        if not self.may_lease():
            self.bundles.give_back_all(self.now())
            return None
        now = self.now()
        lease = self._next_lease(now)
        if lease is None:
            return None
        plan = self.precheck.check(lease, now)
        if isinstance(plan, Plan):
            plan = self._given_up(plan) or self._visited_once(plan) or plan
        asks_for_rest = isinstance(plan, Plan) and bool(plan.crawl_delay_s)
        if plan.purpose is not Purpose.PAGE or asks_for_rest:
            # Others would ask for the same robots.txt, or not keep the Crawl-delay of this one's.
            self.bundles.give_back(lease.candidate.host, now)
            if asks_for_rest and self.bundles.are_fetched(lease.candidate.host):
                plan = Skip(PutBack(), "its robots.txt asks for a rest before it")
        skip = plan if isinstance(plan, Skip) else None
        if isinstance(plan, Skip):
            is_own = plan.purpose is Purpose.PAGE
            purpose = lease.candidate.purpose if is_own else plan.purpose
            plan = Plan(lease=lease, url=lease.candidate.url, purpose=purpose)
        life = self.lives.add(plan)
        self.bundles.add(life)
        if skip is not None:
            if skip.robots_candidate is not None:
                self.frontier.add([skip.robots_candidate], now)
            self.refuse(life, skip.verdict, skip.reason, skip.rest_s)
        return life

    def _next_lease(self, now: float) -> Lease | None:
        standings = self.slots.free_standings()
        lease = self.bundles.next(now, standings)
        if lease is not None:
            return lease
        leases = self.frontier.lease(now, 1, standings, self.bundles.size)
        return self.bundles.first_of(leases, now) if len(leases) > 1 else next(iter(leases), None)

    def wake_at(self) -> float | None:
        """Return when to call `next` again, if nothing ends before; None: nothing waits."""
        now = self.now()
        paused_until = self.origins.operator.paused_until(now)
        if paused_until is not None:
            return paused_until
        if self.uplink.is_down(now):
            return self.uplink.probe_at
        wake_at = self.frontier.wake_at(self.slots.free_standings())
        spaced_at = self.bundles.wake_at(self.slots.free_standings())
        times = [at for at in (wake_at, spaced_at) if at is not None]
        return min(times, default=None)

    def _visited_once(self, plan: Plan) -> Skip | None:
        """Return the end of *plan* if its page was visited, and is not again by its rules or the
        settings of this start. Its history is kept."""
        candidate = plan.lease.candidate
        is_again = candidate.history is not None and plan.purpose is Purpose.PAGE
        if is_again and self.revisit_mode(candidate.url) is RevisitChoice.ONCE:
            return Skip(Done(), "it is visited once")
        return None

    def _given_up(self, plan: Plan) -> Skip | None:
        """Return the end of *plan* if its host is left, as it does not welcome us, or is one of the
        silent ones that are given up."""
        candidate, pace, reason = plan.lease.candidate, plan.lease.pace, ""
        if is_left(pace):
            reason = LEFT
        elif self.silent_hosts.are_given_up:
            error = self.silent_hosts.given_up(candidate.host, pace)
            reason = error and f"{NEVER_ANSWERED}{error}"
        if not reason:
            return None
        if candidate.purpose is Purpose.ROBOTS:  # of another host, which waits for it
            self.precheck.give_up_robots(candidate.authority, reason, self.now())
            return Skip(Done(), reason, purpose=Purpose.ROBOTS)
        return Skip(Dead(reason), reason)

    def waits_for_silent_hosts(self) -> bool:
        """Return whether nothing is under way but at hosts that have failed and never answered: of
        many, or of some whose rests are short, one is always tried again. What the operator has
        paused is waited for in any case, so that nothing is given up meanwhile."""
        if self.precheck.rests_for_pause(self.now()):
            return False
        failed = self.silent_hosts.has_failed
        return all(failed(life.candidate.host) for life in self.lives.all())

    def may_give_up_silent(self, host: HostKey) -> bool:
        """Return whether *host* has failed and never answered, and is not paused by the operator:
        what is paused keeps its place."""
        if not self.silent_hosts.has_failed(host):
            return False
        return self.origins.operator.of_host(host).paused_until(self.now()) is None

    def refuse(self, life: Life, verdict: Verdict, reason: str, rest_s: float = 0.0) -> None:
        """Set the verdict of *life* before a request is sent. Its host was not contacted, so it
        needs no gap. `complete` ends it later."""
        self.lives.step(life, LifeEvent.REFUSE)
        life.decide(verdict, reason)
        now, pace = self.now(), life.lease.pace
        self.frontier.release(life.lease, Rest(rest_s, pace, address_s=0.0), now)
        self.bundles.note_released(life, pace, now)

    # Its request is sent.

    def begin(self, life: Life) -> None:
        now = self.now()
        life.begin(now)
        life.turn_at = self.bundles.turn_at(life, now)
        self.figures.count_begun(life.candidate.host, now)
        asked_s, pace = life.plan.crawl_delay_s, life.lease.pace
        if asked_s is not None and asked_s > pace.crawl_delay_s:
            # A robots.txt on another host asks for it. If the process dies now, the next one puts
            # the lease back before it reads that.
            rest = Rest(asked_s, replace(pace, crawl_delay_s=asked_s))
            self.frontier.note_trouble(life.lease, rest, now)

    def may_send(self, life: Life) -> bool:
        """Return whether its request may still be sent; if not, its URL is put back."""
        if self.frontier.may_begin(life.lease) and not self.bundles.is_stopped(life):
            return True
        life.put_back()
        life.begin(self.now())  # so that the time it waited does not count as fetching
        return False

    def open_fetches(self) -> list[OpenFetch]:
        """Return how far each fetch is. May be called in any thread."""
        return self.lives.open_fetches(self.slots.received_bytes)

    # Its host has answered, or has not.

    def note_head(self, life: Life, status: int, retry_after: bytes | None) -> None:
        """Note that an answer has begun. If it has trouble or a Retry-After, the rest that follows
        is written at once: the process may be killed before the answer is whole."""
        if life.is_released:
            return
        now = self.now()
        head = self._bad_head(life.fetched_s(now), status, retry_after)
        if head is None:
            return
        life.note_head(head)
        self.bundles.stop(life.candidate.host, now)
        self.frontier.note_trouble(life.lease, self._next_rest(life, head), now)

    def _bad_head(self, fetched_s: float, status: int, retry_after: bytes | None) -> Answer | None:
        """Return what a head says that has trouble or a Retry-After, else None."""
        head = Answer(fetched_s, status=status, retry_after_s=self._asked_s(retry_after))
        return head if head.retry_after_s is not None or is_trouble(head) else None

    def _asked_s(self, retry_after: bytes | None) -> float | None:
        longest_s = self.limits.politeness.max_retry_after_s
        return retry_after_s(retry_after, self.now(), longest_s) if retry_after else None

    def answer(
        self,
        life: Life,
        status: int,
        *,
        error: str,
        retry_after: bytes | None,
        body_bytes: int,
        challenge: Challenge | None = None,
    ) -> Answer:
        """Make the answer of *status*. *error*: why its body is not whole, or empty; of a status
        that is tried again anyway, the status is the more precise reason. *challenge*: what it is
        by the table of signatures."""
        answer = Answer(
            self._duration_s(life),
            status=status,
            error="" if is_retry_status(status) else error,
            retry_after_s=self._asked_s(retry_after),
        )
        if life.plan.purpose is not Purpose.ROBOTS:
            # A probe is another URL.
            attempts = life.candidate.attempts if life.is_of_own_url else 0
            answer = with_challenge(answer, challenge, life.lease.pace, attempts)
        is_hung = self.slots.limits.is_hung(answer, body_bytes)
        return replace(answer, hung=True) if is_hung else answer

    def failure(self, life: Life, error: str, detail: str = "") -> Answer:
        """Make the answer of a host that gave none."""
        return Answer(self._duration_s(life), error=error, detail=detail)

    def _duration_s(self, life: Life) -> float:
        """Return how long the fetch took, at most the total time-out. A longer time means that this
        process or its machine was suspended, which does not make the host slower."""
        return min(life.fetched_s(self.now()), self.limits.total_timeout_s)

    def note_answer(self, life: Life, answer: Answer) -> Answer:
        """Note *answer*, and return it as it counts: while our own connection is down a failure is
        not counted against host or URL, but as cancelled by us."""
        counted = self._observe(life.candidate.host, life.lease.pace, answer)
        if is_cancelled(counted) and not is_cancelled(answer):
            life.note_reason("our own connection is down")
        life.note_answer(counted)
        return counted

    def _observe(self, host: HostKey, pace: Pace, answer: Answer) -> Answer:
        self.uplink.observe(host, answer, self.now())
        if no_contact(answer) and not self.uplink.charges_host():
            return Answer(answer.duration_s, error=_CANCELLED)
        if answer.status is None or host in self.silent_hosts.errors:
            self.silent_hosts.observe(host, pace, answer)
        return answer

    def answered(self, life: Life, answer: Answer, retries: int | None = None) -> bool:
        """Note the answer to a page's request, release its host, and return whether the URL is
        fetched again. *retries*: those of its own request, if it says how many."""
        politeness = self.limits.politeness
        if retries is not None:
            politeness = dataclasses.replace(politeness, retries=retries)
        answer = self.note_answer(life, answer)
        rest = self.release(life)
        verdict = retry_decision(
            life.candidate,
            answer,
            rest.seconds if rest else 0.0,
            politeness,
            self.now(),
            self.random,
            is_host_down=retries is None and is_host_down(life.lease.pace, answer),
        )
        tries = life.candidate.attempts
        is_kept = isinstance(verdict, KeepAnswer) and tries < min(politeness.retries, LACKING_TRIES)
        if is_kept and life.lacking:
            wait_s = max(rest.seconds if rest else 0.0, _LACKING_S * 2**tries)
            verdict = RetryAt(self.now() + self.random.uniform(1.0, 2.0) * wait_s)
        if rest is not None and isinstance(verdict, RetryAt) and is_left(rest.pace):
            verdict = Dead(f"{LEFT}: {answer.trouble}")
        if isinstance(verdict, RetryAt | Dead | PutBack):
            life.decide(verdict)
        return isinstance(verdict, RetryAt | PutBack)

    def unmodified(self, life: Life, status: int, body_bytes: int) -> bool:
        """Return whether an answer of *status* says that the page is as it was; then that is the
        verdict."""
        if not says_unmodified(life, status, body_bytes):
            return False
        life.note_unmodified()
        life.decide(Done(), UNMODIFIED)
        self.figures.count("revisits/not_modified")
        return True

    def robots_answered(self, life: Life, result: RobotsFetchResult, answer: Answer | None) -> None:
        """Note the result of the fetch of a robots.txt. *answer*: None if the fetch was ended by an
        error of code on our side. Raises StoreUnavailable."""
        life.receive()  # it is not archived
        if answer is not None:
            answer = self.note_answer(life, answer)
            if answer.status is None:
                result = dataclasses.replace(result, error=answer.error, detail=answer.detail)
        # Its crawl-delay counts for the rest that follows, so it is learned first. A host in
        # trouble has none, and the length of its rest is how long its verdict is valid.
        is_late = robots_answer(result) is RobotsAnswer.TROUBLE
        rest = self.release(life) if is_late or result.status is None else None
        own = life.candidate.purpose is Purpose.ROBOTS
        life.decide(Done() if own else PutBack())
        if own and answer is not None and answer.status is not None and not is_trouble(answer):
            # It was asked though its host may be given up, as another host waits for it.
            self.precheck.robots.end_giving_up(authority_of(life.plan.url), self.now())
        crawl_delay_s = self.precheck.store_robots_result(
            life.plan, result, self.now(), rest.seconds if rest else 0.0
        )
        if crawl_delay_s is not None:
            life.note_crawl_delay(crawl_delay_s)
        sitemaps = self.precheck.robots.rules(life.plan.authority).sitemaps
        life.add_links(self.links.sitemaps(sitemaps, result.url))

    def probe_answered(self, life: Life, answer: Answer | None) -> Answer | None:
        """Note the answer to a probe, and release its host. *answer*: as above."""
        life.receive()  # it is not archived
        if answer is not None:
            answer = self.note_answer(life, answer)
        self.release(life)
        return answer

    def note_fault(self, life: Life, words: str) -> None:
        """Note that code on our side, such as a middleware, has ended the fetch under *life*, by an
        error in *words*. Raises StoreUnavailable."""
        if life.is_of_page:
            life.note_error(words)
        elif life.is_of_check:
            self.unchecked(life, Dead(words))
        elif life.plan.purpose is Purpose.ROBOTS:
            result = RobotsFetchResult(life.plan.url, error=words, is_fault=True)
            self.robots_answered(life, result, None)
        else:
            self.probe_answered(life, None)
            self.probed(life, ProbeResult(None))

    def probed(self, life: Life, result: ProbeResult) -> None:
        """Keep what a probe has found, and put the URL back whose lease it used. Raises
        StoreUnavailable."""
        life.put_back()
        self.figures.count("soft_404/asked")
        self.precheck.probes.store_result(
            life.candidate.host, life.plan.authority, result, self.now()
        )

    def checked(self, life: Life, answer: Answer, location: bytes | None = None) -> None:
        """Note the answer to the check of an external link, release its host, and decide. Nothing
        of the answer is kept but where it leads."""
        life.receive()
        answer = self.note_answer(life, answer)
        rest = self.release(life)
        now = self.now()
        if answer.error == _CANCELLED:
            life.put_back()
        elif is_asked_again(life.candidate, answer):
            why = f"{answer.trouble}; GET follows" if answer.trouble else "GET follows"
            life.decide(RetryAt(now + (rest.seconds if rest else 0.0)), why)
        elif answer.status is None or is_retryable(answer):
            life.decide(Dead(answer.trouble or f"status {answer.status}"))
        else:
            decision = self.redirected(life, answer.status, location, is_wall=False)
            if isinstance(decision, NotARedirect | BrokenRedirect):
                life.decide(Done())

    def unchecked(self, life: Life, verdict: Verdict, reason: str = "") -> None:
        """End the check of an external link that no answer of its host has decided."""
        life.receive()
        self.release(life)
        life.decide(verdict, reason)

    def redirected(
        self, life: Life, status: int, location: bytes | None, *, is_wall: bool
    ) -> RedirectDecision:
        """Decide where an answer leads; if it is a redirect that is followed, or one too many, that
        is the verdict. *is_wall*: see `decide_redirect`."""
        candidate = life.candidate
        decision = decide_redirect(
            candidate,
            status,
            location,
            partial(self._admit_target, candidate),
            self.limits.max_redirects,
            is_wall=is_wall,
        )
        match decision:
            case FollowRedirect(target):
                life.decide(Moved(target))
            case TooManyRedirects(reason):
                life.decide(Dead(reason))
            case BrokenRedirect(reason, target, refusal):
                life.note_reason(reason)
                if candidate.seed_url:
                    why = refusal.of_target(target) if refusal else ""
                    life.note_dead_end(DeadEnd("redirect", why, target))
                elif life.is_of_check:
                    life.note_dead_end(DeadEnd("redirect", target=target))
                if refusal and refusal.reason is Reason.OUT_OF_SCOPE and not life.is_of_check:
                    checks = self.links.checks_of(candidate, [target])
                    life.add_links(checks)
                    if checks and not life.dead_end:
                        life.note_dead_end(DeadEnd("redirect", target=target))
        return decision

    def _admit_target(self, origin: Candidate, text: str, base: str) -> Candidate | Refusal:
        admission = self.origins.admission
        if origin.purpose is Purpose.CHECK:
            found = admission.check(text, base, origin.depth)
        else:
            found = admission.candidate(
                text,
                base,
                depth=origin.depth,
                level=origin.level,
                requisite=origin.requisite,
                is_sitemap=origin.is_sitemap,
                index_hops=origin.index_hops,
                # From out of the scope a redirect is no hop.
                beyond=origin.beyond or admission.beyond(origin),
            )
        if isinstance(found, Refusal):
            if found.reason is not Reason.IN_SCOPE:
                self.figures.count(f"refused/{found.reason}")
        elif origin.chosen or origin.attempts:
            found = replace(found, chosen=True)
        return found

    def replaced(self, life: Life, url: str, found: Candidate | Refusal) -> None:
        """Let what a middleware of the user's asks for in place of an answer decide: the request
        for *url*, as admission has *found* it. It is fetched without the seen test."""
        if isinstance(found, Refusal):
            life.decide(Done(), f"a middleware asked for {url}: {found.explain()}")
            if life.candidate.seed_url:
                life.note_dead_end(DeadEnd("redirect", found.of_target(url), url))
            return
        origin = life.candidate
        moved = replace(
            found,
            depth=origin.depth,
            level=origin.level,
            needs_seen_test=False,
            seed=origin.seed_url,
            cash=origin.cash,
        )
        life.decide(Moved(moved))

    def replaced_by_unstorable(self, life: Life, why: str) -> None:
        """As `replaced`, of a request that cannot be stored."""
        life.decide(Done(), f"a middleware asked for {why}")

    def release(self, life: Life) -> Rest | None:
        """End the fetch of *life* and return the rest of its host, or None if it was released
        before."""
        if life.is_released:
            return None
        self.lives.step(life, LifeEvent.REST)
        now = self.now()
        # Without an answer, a middleware of the user's replaced the host, or this crawler ended the
        # fetch. A request may have reached the host, so its rest is kept.
        answer = life.answer or Answer(life.fetched_s(now), error=_CANCELLED)
        answer = with_head(answer, life.head)
        rest = self._next_rest(life, answer)
        is_seen_late = life.head is None or answer.error == CHALLENGE
        if is_seen_late and answer.status is not None and rest.asked_s is not None:
            # A handler of the user's gives no head, and some trouble is seen in the body only.
            self.frontier.note_trouble(life.lease, rest, now)
        own = host_fetch(life, answer)
        fetches = (*([] if own is None else [own]), *fetches_beside(life.asides))
        rest = replace(rest, address=life.address, fetches=fetches)
        self.frontier.release(life.lease, rest, now)
        self.bundles.note_released(life, rest.pace, now)
        answers = [answer, *life.asides]
        self._count_rest(life.candidate.host, life.lease.pace, answers, rest, now)
        if should_give_up(rest.pace):
            self._give_up(life.candidate.url, life.answer.trouble if life.answer else "", rest)
        return rest

    def _count_rest(
        self, host: HostKey, before: Pace, answers: Sequence[Answer], rest: Rest, now: float
    ) -> None:
        """Count *rest*, which began *now*: by a later time the next request would seem early."""
        self.figures.count_rest(host, answers, rest, now)
        if (change := change_of(before.pacing, rest.pace.pacing)) is not None:
            self.figures.count(f"politeness/pace/{change}")

    def _next_rest(self, life: Life, answer: Answer) -> Rest:
        overrides = self.origins.operator.of_url(life.candidate.url)
        politeness = overridden(self.limits.politeness, overrides)
        # A robots.txt is answered in another time than pages.
        begun_at = None if life.plan.purpose is Purpose.ROBOTS else life.turn_at
        pace = _pace(life.lease.pace, life.plan.crawl_delay_s, overrides)
        answers = [answer, *life.asides]
        rest = rest_after_all(pace, answers, politeness, self.random, begun_at)
        if not life.is_of_own_url and answer.error != CHALLENGE:
            # Neither a robots.txt nor what cannot exist is a page.
            rest = replace(rest, pace=with_pages_of(life.lease.pace, rest.pace))
        if life.plan.purpose is not Purpose.ROBOTS or rest.pace.standing is not Standing.ANSWERS:
            return rest
        # A robots.txt proves nothing about pages: hosts that answer it and hang with each page
        # would take the slots of hosts that answer.
        proven = life.lease.pace.standing is Standing.ANSWERS
        standing = Standing.ANSWERS if proven else Standing.NEW
        return replace(rest, pace=replace(rest.pace, standing=standing))

    def _give_up(self, url: str, trouble: str, rest: Rest) -> None:
        reason = f"{HOST_FAILED}{trouble and f': {trouble}'}"
        self.precheck.robots.give_up(authority_of(url), reason, self.now(), rest.seconds)
        self.figures.count("politeness/given_up")

    # What a page needs to be shown is fetched beside it: of its own host under its lease, of others
    # under turns that are borrowed.

    def note_aside(self, life: Life, answer: Answer) -> Answer:
        """Note the answer of the host of *life* to a further request under its lease, before the
        release, whose rest is that of all. Returns it as it counts."""
        answer = self._observe(life.candidate.host, life.lease.pace, answer)
        if life.is_released:
            return answer
        life.note_aside(answer)
        now, sent = self.now(), 1 + len(life.asides)
        is_bad = answer.retry_after_s is not None or is_trouble(answer)
        if is_bad:
            self.bundles.stop(life.candidate.host, now)
        if is_bad or sent.bit_count() == 1:
            own = life.answer or Answer(life.fetched_s(now), status=200)
            rest = self._next_rest(life, own)
            # For as many again: until then a process that dies leaves what it has written here.
            rest = rest if is_bad else replace(rest, seconds=2.0 * rest.seconds)
            self.frontier.note_trouble(life.lease, rest, now)
        return answer

    async def borrow(self, host: HostKey, url: str, until: float) -> BorrowedTurn | NotItsTurn:
        """Take the turn of *host*, the first of whose URLs is *url*, as `Frontier.borrow`: for
        requests that are over by *until*. Not where the operator's rules, or the state of our own
        connection, let nothing be fetched. Its robots.txt is the caller's to ask."""
        now, operator = self.now(), self.origins.operator
        rules = operator.of_url(url)
        if rules.refuse:
            return NotItsTurn(host, NoTurn.REFUSED)
        paused = [operator.paused_until(now) or 0.0, rules.paused_until(now) or 0.0]
        if any(paused):
            return NotItsTurn(host, NoTurn.PAUSED, max(paused))
        if self.uplink.is_down(now):
            return NotItsTurn(host, NoTurn.UPLINK, self.uplink.probe_at)
        if self.silent_hosts.are_given_up and self.silent_hosts.has_failed(host):
            return NotItsTurn(host, NoTurn.LEFT)
        return await self.frontier.borrow(host, now, until)

    def note_turn_head(
        self,
        turn: BorrowedTurn,
        url: str,
        status: int,
        retry_after: bytes | None,
        fetched_s: float,
        crawl_delay_s: float | None = None,
    ) -> bool:
        """As `note_head`, when an answer to a request for *url* under *turn* has begun. Returns
        whether it has trouble or a Retry-After: then no other request is sent under it."""
        head = self._bad_head(fetched_s, status, retry_after)
        if head is not None:
            rest = self._rest_of_turn(turn, url, [head], crawl_delay_s)
            self.frontier.note_trouble(turn, rest, self.now())
        return head is not None

    def give_back(
        self,
        turn: BorrowedTurn,
        url: str,
        answers: Sequence[Answer],
        *,
        crawl_delay_s: float | None = None,
        body_bytes: int = 0,
        address: str = "",
    ) -> Rest:
        """End *turn*, whose requests, the first of them for *url*, had these *answers*, and return
        the rest of its host; without any it needs none. *crawl_delay_s*: of its robots.txt; None:
        not known. *body_bytes*: of all answers. *address*: from which they came, if known."""
        now = self.now()
        if not answers:
            rest = Rest(0.0, turn.pace, "unused", address_s=0.0)
            self.frontier.give_back(turn, rest, now)
            return rest
        answers = [self._observe(turn.host, turn.pace, each) for each in answers]
        rest = self._rest_of_turn(turn, url, answers, crawl_delay_s)
        fetches = fetches_beside(answers, body_bytes)
        rest = replace(rest, address=address, fetches=fetches)
        self.frontier.give_back(turn, rest, now)
        self._count_rest(turn.host, turn.pace, answers, rest, now)
        if should_give_up(rest.pace):
            self._give_up(url, decisive(answers).trouble, rest)
        return rest

    def _rest_of_turn(
        self,
        turn: BorrowedTurn,
        url: str,
        answers: Sequence[Answer],
        crawl_delay_s: float | None,
    ) -> Rest:
        overrides = self.origins.operator.of_url(url)
        pace = _pace(turn.pace, crawl_delay_s, overrides)
        politeness = overridden(self.limits.politeness, overrides)
        rest = rest_after_all(pace, answers, politeness, self.random, turn.taken_at)
        if any(each.error == CHALLENGE for each in answers):
            return rest
        return replace(rest, pace=with_pages_of(turn.pace, rest.pace))  # none of it is a page

    # Its page is archived, and its links are found: `Life` has them. Now they are added, and it is
    # finished.

    def complete(self, life: Life) -> None:
        """Complete *life*: add its links, free its body and its place among the pages under way,
        and finish its lease, now or after the next sync. Raises StoreUnavailable."""
        self.release(life)
        now = self.now()
        try:
            if life.links and self.origins.later_visits is not LaterVisits.EACH:
                # A page that is visited again comes again by what new links it brings.
                is_again = life.candidate.history is not None
                added = self.frontier.add(
                    life.links, now, at_once=is_again, source=life.link_source
                )
                life.note_new_links(added.new)
                self.figures.count_added(added)
        except CrawlerError:
            self._forget(life)
            raise
        finally:
            self.lives.step(life, LifeEvent.RECORD)
            self.bodies.release(life.lease.id)
        self.precheck.seed_limits.came(life.lease.id, life.body_bytes)
        limits = self.limits
        verdict = verdict_of(life, now, limits.callback_retries, limits.callback_pause_s)
        rules = self.origins.operator.of_url(life.candidate.url)
        mode = self.revisit_mode(life.candidate.url)
        verdict = with_next_visit(life, verdict, mode, limits.visits, now)
        visit = later_visit(life.candidate, verdict, limits.visits.usual_days)
        if visit is not None:
            self.figures.count_later_visit(visit)
        if isinstance(verdict, Done) and verdict.again is not None:
            fault = fault_of(noted(life.lease.conditional, verdict.again.check))
            if fault:
                self.figures.count_condition_fault(life.candidate.host, fault)
        change = None
        if self.changes is not None and not rules.refuse:  # else perhaps it was purged
            change = page_change(life, verdict, now)
        is_kept = life.archived.record and not isinstance(verdict, RetryAt | PutBack)
        if self.durability is None or not (is_kept or change is not None):
            self._finish(life, verdict)
            return
        if self.changes is not None and change is not None:
            # Before the verdict: after a crash between the two the page is fetched, and announced,
            # again.
            self.changes.add(change)
        self.durability.when_synced(partial(self._finish_synced, life, verdict))

    def revisit_mode(self, url: str) -> RevisitMode:
        """Return when the page at *url* is visited again, by its rules or else the settings."""
        of_rules = self.origins.operator.of_url(url).revisit
        mode = self.limits.revisit if of_rules is None else of_rules
        if mode is RevisitChoice.ONCE and self.origins.later_visits in _OF_RUN:
            return RevisitChoice.ADAPTIVE  # what is visited in this run only keeps its history
        return mode

    def _finish_synced(self, life: Life, verdict: Verdict, error: CrawlerError | None) -> None:
        # After an error the record may be lost, so the URL is not done.
        self._finish(life, PutBack(was_asked=True) if error else verdict)

    def _finish(self, life: Life, verdict: Verdict) -> None:
        now, candidate = self.now(), life.candidate
        if isinstance(verdict, Done) and self.origins.operator.of_url(candidate.url).refuse:
            # Perhaps it was purged meanwhile: then nothing of its content may be remembered.
            verdict = replace(verdict, claim=None, again=None, gone=None)
        stats, before = self.precheck.pattern_stats, candidate.history
        again = verdict.again if isinstance(verdict, Done) else None
        if again is not None and before is not None and not before.rate:
            again = replace(again, alike=stats.changes_of(candidate))
            verdict = replace(verdict, again=again)
        is_answered = life.is_of_page and life.answer is not None and life.answer.status is not None
        try:
            if is_answered and isinstance(verdict, Done | Dead):
                self.precheck.seed_limits.count(life.lease.id, life.body_bytes, now)
            is_held = self.frontier.finish(lease_to_finish(life, verdict), verdict, now)
        finally:
            self.lives.step(life, LifeEvent.FINISH)
            self._forget(life)
        outcome = outcome_of(life, verdict, now)
        self.figures.count_completed(life, outcome)
        if life.is_of_own_url and not isinstance(verdict, PutBack):
            self.outcomes.append(outcome)
        if not is_held:
            self.figures.count("leases/refused")  # it had ended, and another worker may have it
        elif before is not None:
            if again is not None and again.is_changed is not None:
                interval_s = max(0, again.history.visited_at - before.visited_at)
                stats.record_visit(candidate, again.is_changed, interval_s)
        elif life.facts.is_new is not None and isinstance(verdict, Done | Moved):
            stats.record_page(candidate, life.facts.is_new, now)

    def _forget(self, life: Life) -> None:
        """End the reservations of this page, so that pages that wait for it continue."""
        self.lives.remove(life)
        self.precheck.seed_limits.end(life.lease.id)
        for reserved in self.contents:
            reserved.release(life.lease.id)

    # Meanwhile the operator may write other rules.

    def put_in_force(self, rules: OperatorRules) -> dict[HostKey, float]:
        """Judge by *rules* from now on. Returns the rests of paused hosts, with their ends, if the
        pauses have changed: they are given to `Frontier.end_rests`, some at a time."""
        before = self.origins.operator
        self.origins.set_operator_rules(rules)
        if any(_by_target(rules, key) != _by_target(before, key) for key in ("refuse", "max_urls")):
            self.frontier.judge_again()
        if rules.concurrency != before.concurrency:
            self.slots.set_concurrency(rules.concurrency)
        are_paused_anew = _by_target(rules, "paused") != _by_target(before, "paused")
        # Hosts that are still paused rest again at their next turn.
        return self.precheck.take_paused() if are_paused_anew else {}


def _pace(pace: Pace, crawl_delay_s: float | None, overrides: Overrides) -> Pace:
    asked_s = crawl_delay_s if overrides.crawl_delay_s is None else overrides.crawl_delay_s
    return pace if asked_s is None else replace(pace, crawl_delay_s=asked_s)


def _by_target(rules: OperatorRules, key: str) -> list[tuple[str, object]]:
    """Return what *rules* say under *key*, by target."""
    return [
        (target.text, value)
        for rule in rules.rules
        if (value := getattr(rule.overrides, key)) is not None
        for target in rule.targets
    ]

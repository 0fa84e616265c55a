"""What is fetched under a lease: its page, a robots.txt, a probe, or nothing.

Rule: it is decided when the lease is taken. A page is fetched only if robots.txt allows it and its
pattern has not stopped; a robots.txt that redirects to another host waits for that host's turn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

import msgspec

from crawler.config.settings import ContentSettings
from crawler.loop.life import Plan
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    HostKey,
    Lease,
    Purpose,
    PutBack,
    Verdict,
)
from crawler.model.url import authority_of
from crawler.page.soft404 import (
    Soft404Record,
    is_soft_404,
    kind_of,
    probe_of,
    record_of,
    words_of,
)
from crawler.policy.operator_rules import Overrides
from crawler.policy.patterns import (
    FetchAllowed,
    PatternStatsStore,
    PatternStopped,
)
from crawler.policy.refusal import Refusal
from crawler.policy.robots_cache import (
    ADDRESS_REFUSED,
    RobotsAllowed,
    RobotsCache,
    RobotsDisallowed,
    RobotsFetchResult,
    RobotsState,
    RobotsUnreachable,
)
from crawler.policy.validators import validators_to_send

MAX_PROBES: Final = 10_000


class Soft404Store(Protocol):
    def get(self, kind: str) -> Soft404Record | None:
        """Return what is known of this host, directory and extension."""

    def put(self, kind: str, record: Soft404Record) -> None:
        """Raises StoreUnavailable."""


class SeedLimits(Protocol):
    """What is fetched of seeds that have limits."""

    def refusal(self, candidate: Candidate, now: float) -> Refusal | None:
        """Return why *candidate* is not fetched: enough of its seed was."""

    def is_awaited(self, candidate: Candidate, now: float) -> bool:
        """Return whether *candidate* waits for pages of its seed that are under way."""

    def begin(self, lease_id: int, candidate: Candidate) -> None:
        """Note that *candidate* is fetched under this lease."""

    def came(self, lease_id: int, body_bytes: int) -> None:
        """Note that the page under this lease has come, which is not counted yet."""

    def count(self, lease_id: int, body_bytes: int, now: float) -> None:
        """Count the page that was fetched under this lease. Raises StoreUnavailable."""

    def end(self, lease_id: int) -> None:
        """Note that this lease is over."""


class SoftErrorVerdict(Enum):
    PAGE = auto()
    SOFT_404 = auto()
    PROBE = auto()  # put the page back: a probe of its host goes first


class ProbeResult(NamedTuple):
    """The parts of an answer that are compared."""

    status: int | None  # None: no answer
    digest: bytes = b""
    title: str = ""
    text: str = ""


class Probe(NamedTuple):
    kind: str
    url: str


class Probes:
    """The probes for soft 404s that are sent next: how does a host answer a URL that cannot exist?
    A page that looks like an error is put back, the next turn of its host goes to the probe, and
    the page is fetched again and judged.

    In memory only, as after a crash the page is judged again. Bound: one for each host with a page
    put back, MAX_PROBES of them."""

    def __init__(
        self, store: Soft404Store, random_name: Callable[[], str], settings: ContentSettings
    ) -> None:
        self._store = store
        self._random_name = random_name
        self._settings = settings
        self._due: dict[HostKey, Probe] = {}

    def judge(self, url: str, host: HostKey, result: ProbeResult, now: float) -> SoftErrorVerdict:
        """Judge a page that looks like an error, by the probe of its kind of URL."""
        kind = kind_of(url) if self._settings.soft_404 else None
        if kind is None:
            return SoftErrorVerdict.PAGE
        record = self._store.get(kind)
        if record is None or record.until <= now:
            self._request_probe(host, Probe(kind, probe_of(url, self._random_name())))
            return SoftErrorVerdict.PROBE
        is_soft = is_soft_404(record, result.digest, words_of(url, result.title, result.text))
        return SoftErrorVerdict.SOFT_404 if is_soft else SoftErrorVerdict.PAGE

    def due_probe(self, host: HostKey) -> Probe | None:
        """Return the probe that the next turn of *host* is for, or None."""
        return self._due.get(host)

    def store_result(self, host: HostKey, kind: str, result: ProbeResult, now: float) -> None:
        """Record the result of the probe of *kind*. Raises StoreUnavailable."""
        probe = self._due.get(host)
        if probe is None or probe.kind != kind:
            return
        words = words_of(probe.url, result.title, result.text)
        self._store.put(kind, record_of(result.status, result.digest, words, now))
        del self._due[host]

    def _request_probe(self, host: HostKey, probe: Probe) -> None:
        if len(self._due) >= MAX_PROBES and host not in self._due:
            # The oldest is of a host whose turn came to another worker of a shared crawl.
            del self._due[next(iter(self._due))]
        self._due[host] = probe


PAUSE_LOOK_S: Final = 300.0
"""A paused host rests no longer, then the rule is looked at again: so long it may rest after a
pause that began in another process."""
MAX_PAUSED: Final = 100_000  # hosts whose rests for a pause are remembered, 150 bytes each

# How long a host rests while its robots.txt waits for another host's turn, at first and at most
# (guesses): doubled each time, so it waits twice as long as it has to, at most.
HOP_WAIT_S: Final = 5.0
LONGEST_HOP_WAIT_S: Final = 300.0
AWAITED_S: Final = 1.0
"""How long a host rests while the last pages that a limit of its seed allows are under way."""
PAUSED: Final = "paused by the operator"


class Skip(msgspec.Struct, frozen=True):
    """Send no request: the lease ends with *verdict*, and its host rests *rest_s*."""

    verdict: Verdict
    reason: str
    rest_s: float = 0.0
    robots_candidate: Candidate | None = None  # a robots.txt to be fetched from another host
    purpose: Purpose = Purpose.PAGE  # what the request would have been for


@dataclass(frozen=True, slots=True)
class OtherWorkers:
    """The workers that have other hosts of the crawl: a robots.txt of theirs may be on a host of
    ours, where redirects lead."""

    have: Callable[[str], bool]  # whether the host of an authority is theirs
    send_result: Callable[[str, RobotsFetchResult], None]
    """Sends what was fetched for an authority to the worker that has its host."""


class Precheck:
    """Decides what is fetched under a lease: its page, a robots.txt, a probe, or nothing."""

    def __init__(
        self,
        robots: RobotsCache,
        robots_candidate: Callable[[str, str], Candidate | Refusal],
        pattern_stats: PatternStatsStore,
        seed_limits: SeedLimits,
        probes: Probes,
        operator: Callable[[str], Overrides],
        others: OtherWorkers | None = None,
    ) -> None:
        """*robots_candidate* makes the candidate of a robots.txt from its URL and the authority
        that it is for. *operator* returns the operator's overrides for a URL."""
        self.robots = robots
        self._robots_candidate = robots_candidate
        self.pattern_stats = pattern_stats
        self.seed_limits = seed_limits
        self.probes = probes
        self._operator = operator
        self._others = others
        # Authorities whose robots.txt waits for another host, with their hosts' next rests for it.
        self._waiting_for_hop: dict[str, float] = {}
        self._paused: dict[HostKey, float] = {}  # until when hosts rest for a pause
        self._paused_until = 0.0  # the latest of these times

    def check(self, lease: Lease, now: float) -> Plan | Skip:
        candidate = lease.candidate
        overrides = self._operator(candidate.url)
        if overrides.refuse:  # since it was leased; it is judged again before the next lease
            return Skip(PutBack(), "refused by the operator")
        until = overrides.paused_until(now)
        if until is not None:
            return self._pause(candidate.host, min(until, now + PAUSE_LOOK_S), now)
        if candidate.purpose is Purpose.ROBOTS:
            is_ours = self._others is None or not self._others.have(candidate.authority)
            if is_ours and self.robots.is_decided(candidate.authority, now):
                return Skip(Done(), "the robots.txt it is for is known", purpose=Purpose.ROBOTS)
            own = authority_of(candidate.url)
            is_known = self.robots.is_decided(own, now)
            return Plan(
                lease=lease,
                url=candidate.url,
                purpose=Purpose.ROBOTS,
                authority=candidate.authority,
                crawl_delay_s=self.robots.rules(own).crawl_delay_s if is_known else None,
            )
        if refusal := self.seed_limits.refusal(candidate, now):
            # Behind all others: what is left is judged when the queue is read on.
            return Skip(PutBack(is_first=False), refusal.explain())
        if self.seed_limits.is_awaited(candidate, now):
            return Skip(PutBack(), "other pages of its seed are under way", AWAITED_S)
        if candidate.history is not None:
            decision: FetchAllowed | PatternStopped = FetchAllowed.OPEN
        else:
            decision = self.pattern_stats.decide(candidate, now)
        if isinstance(decision, PatternStopped):
            return Skip(Done(), decision.reason)
        verdict = self.robots.verdict(candidate.url, now)
        match verdict:
            case RobotsAllowed(crawl_delay_s):
                plan = self._probe(lease, crawl_delay_s, now)
                if plan is not None:
                    return plan
                if decision is FetchAllowed.PROBE:
                    self.pattern_stats.record_try(candidate, now)
                self.seed_limits.begin(lease.id, candidate)
                return Plan(
                    lease=lease,
                    url=candidate.url,
                    purpose=candidate.purpose,
                    crawl_delay_s=crawl_delay_s,
                    max_bytes=overrides.max_bytes,
                    credentials=overrides.credentials,
                    validators=validators_to_send(
                        candidate.history, candidate.key, lease.conditional
                    ),
                )
            case RobotsDisallowed():
                return Skip(Done(), verdict.words)
            case RobotsUnreachable():
                return Skip(Dead(verdict.words), verdict.words)
        return self._fetch_robots(lease, verdict.url, now)

    @property
    def paused_hosts(self) -> int:
        """How many hosts rest for a pause by the operator; MAX_PAUSED at most."""
        return len(self._paused)

    def rests_for_pause(self, now: float) -> bool:
        """Return whether a host rests at *now* because the operator has paused it."""
        return now < self._paused_until

    def take_paused(self) -> dict[HostKey, float]:
        """Return the hosts that rest for a pause, with the ends of these rests, and forget them."""
        paused, self._paused, self._paused_until = self._paused, {}, 0.0
        return paused

    def _pause(self, host: HostKey, until: float, now: float) -> Skip:
        if len(self._paused) >= MAX_PAUSED:
            del self._paused[next(iter(self._paused))]
        self._paused[host] = until
        self._paused_until = max(self._paused_until, until)
        return Skip(PutBack(), PAUSED, until - now)

    def store_robots_result(
        self, plan: Plan, result: RobotsFetchResult, now: float, rest_s: float
    ) -> float | None:
        """Record the result of a fetch of robots.txt, whose host rests *rest_s* now, and return the
        crawl-delay that it asks for; None if that is not known yet, or is another host's. Raises
        StoreUnavailable."""
        self._waiting_for_hop.pop(plan.authority, None)
        self._send_result(plan.authority, result)
        record = self.robots.store_result(plan.authority, result, now, rest_s)
        is_own = authority_of(plan.lease.candidate.url) == plan.authority
        if record.kind is RobotsState.PENDING or not is_own:
            return None
        return self.robots.rules(plan.authority).crawl_delay_s

    def give_up_robots(self, authority: str, reason: str, now: float) -> None:
        """Forbid *authority* for a while: the other host that has its robots.txt is given up."""
        self._waiting_for_hop.pop(authority, None)
        self._send_result(authority, RobotsFetchResult("", error=reason))
        self.robots.give_up(authority, reason, now)

    def _send_result(self, authority: str, result: RobotsFetchResult) -> None:
        if self._others is not None and self._others.have(authority):
            self._others.send_result(authority, result)

    def take_robots_result(self, authority: str, result: RobotsFetchResult, now: float) -> None:
        """Record the result of a fetch that another worker has made for *authority*. Raises
        StoreUnavailable."""
        self._waiting_for_hop.pop(authority, None)
        self.robots.store_result(authority, result, now)

    def _probe(self, lease: Lease, crawl_delay_s: float | None, now: float) -> Plan | None:
        """Return the plan of the probe that must be sent before its own URL, or None."""
        host = lease.candidate.host
        probe = self.probes.due_probe(host)
        if probe is None:
            return None
        if not isinstance(self.robots.verdict(probe.url, now), RobotsAllowed):
            self.probes.store_result(host, probe.kind, ProbeResult(None), now)
            return None
        return Plan(
            lease=lease,
            url=probe.url,
            purpose=Purpose.PROBE,
            authority=probe.kind,
            crawl_delay_s=crawl_delay_s,
        )

    def _fetch_robots(self, lease: Lease, url: str, now: float) -> Plan | Skip:
        authority = authority_of(lease.candidate.url)
        found = self._robots_candidate(url, authority)
        if isinstance(found, Refusal):
            self.robots.store_result(authority, RobotsFetchResult(url, error=ADDRESS_REFUSED), now)
            why = "robots.txt leads where we may not go"
            return Skip(PutBack(), why, purpose=Purpose.ROBOTS)
        if found.host == lease.candidate.host:
            return Plan(lease=lease, url=url, purpose=Purpose.ROBOTS, authority=authority)
        candidate = found if authority not in self._waiting_for_hop else None
        wait_s = self._waiting_for_hop.get(authority, HOP_WAIT_S)
        self._waiting_for_hop[authority] = min(2.0 * wait_s, LONGEST_HOP_WAIT_S)
        waits = "its robots.txt waits for another host"
        # Not before the others of its host: one of them may be what that other host waits for.
        return Skip(PutBack(is_first=False), waits, wait_s, candidate, Purpose.ROBOTS)

"""Faults that are put into the product on purpose, which the judges of simulated crawls must find:
each takes the place of a part, or of a function of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from crawler.frontier import later
from crawler.frontier.groups import AddressGroup, AddressGroups
from crawler.frontier.hosts import HostScheduler
from crawler.frontier.recovery import Recovery
from crawler.frontier.rounds import Rounds
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.loop import bundles
from crawler.loop import loop as loop_module
from crawler.loop.life import Life
from crawler.loop.links import LinkSelection
from crawler.loop.loop import Loop
from crawler.model.types import Answer, Candidate, HostKey, Purpose, Rest, RetryAt
from crawler.model.url import authority_of
from crawler.policy import politeness, robots_cache
from crawler.policy.operator_rules import NO_RULES
from crawler.policy.pacing import bundle_size
from crawler.policy.redirects import FollowRedirect
from crawler.policy.robots_cache import (
    RobotsAllowed,
    RobotsCache,
    RobotsRecord,
    RobotsState,
    RobotsUnknown,
    RobotsVerdict,
)
from crawler.simulate.judges import judge
from crawler.simulate.process import Policy
from crawler.simulate.run import SHARED_ADDRESSES, SMALL, run, small_world

SEEDS = 200
"""Worlds in which each fault must be found: the first ones, of which `make test` runs a hundred."""


class LinksAfterTheVerdict(Loop):
    def complete(self, life: Life) -> None:
        links, durability = life.links, self.durability
        life.links, self.durability = [], None
        super().complete(life)
        self.durability = durability
        assert durability is not None
        durability.when_synced(lambda _: self.frontier.add(links, self.now()) and None)


class FinishesBeforeTheSync(Loop):
    def complete(self, life: Life) -> None:
        durability, self.durability = self.durability, None
        super().complete(life)
        self.durability = durability


class TakesRobotsForPages(Loop):
    def _next_rest(self, life: Life, answer: Answer) -> Rest:
        rest = super()._next_rest(life, answer)
        if life.plan.purpose is Purpose.ROBOTS and answer.status == 200:
            return replace_struct(rest, pace=politeness.as_new(rest.pace))
        return rest


class ForgetsSitemaps(LinkSelection):
    def sitemaps(self, written: Sequence[str], base: str) -> list[Candidate]:
        return []


class AsksForRobotsLater(RobotsCache):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.let_through: dict[str, str] = {}

    def verdict(self, url: str, now: float) -> RobotsVerdict:
        verdict = super().verdict(url, now)
        if not isinstance(verdict, RobotsUnknown):
            return verdict
        first = self.let_through.setdefault(authority_of(url), url)
        return RobotsAllowed() if url == first else verdict


def rest_forgotten(patch: pytest.MonkeyPatch) -> None:
    original = HostScheduler._rest

    def forget(self: HostScheduler, host: HostKey, record: Any) -> None:
        record.rest_until = 0.0
        original(self, host, record)

    patch.setattr(HostScheduler, "_rest", forget)


def returned_without_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Recovery, "_rest_after", lambda self, taken_at, record, now: now)


def retry_after_capped(patch: pytest.MonkeyPatch) -> None:
    original = loop_module.retry_after_s
    patch.setattr(
        loop_module,
        "retry_after_s",
        lambda value, now, longest_s: original(value, now, min(longest_s, 300.0)),
    )


def breaker_never_closes(patch: pytest.MonkeyPatch) -> None:
    original = politeness._count_failures
    patch.setattr(
        politeness,
        "_count_failures",
        lambda pace, event: (
            pace if event is politeness.CircuitEvent.ANSWERED else original(pace, event)
        ),
    )


def retry_loses_its_count(patch: pytest.MonkeyPatch) -> None:
    original = TwoTierFrontier._apply_verdict

    def apply(self: TwoTierFrontier, lease: Any, verdict: Any, now: float) -> None:
        if isinstance(verdict, RetryAt):
            verdict = replace_struct(verdict, is_counted=False)
        original(self, lease, verdict, now)

    patch.setattr(TwoTierFrontier, "_apply_verdict", apply)


def redirect_not_seen_tested(patch: pytest.MonkeyPatch) -> None:
    original = loop_module.decide_redirect

    def decide(*given: Any, **named: Any) -> Any:
        decision = original(*given, **named)
        if isinstance(decision, FollowRedirect):
            target = replace_struct(decision.candidate, needs_seen_test=False)
            return FollowRedirect(target)
        return decision

    patch.setattr(loop_module, "decide_redirect", decide)


def put_back_in_two_writes(patch: pytest.MonkeyPatch) -> None:
    original = Recovery._end_lost

    def end(self: Recovery, key: bytes, *given: Any, **named: Any) -> None:
        self._batch.delete(key)
        self._batch.commit()
        original(self, key, *given, **named)

    patch.setattr(Recovery, "_end_lost", end)


def challenge_pause_not_doubled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        politeness,
        "_challenge_pause_s",
        lambda unwelcome, settings: settings.challenge_pause_s,
    )


def left_host_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loop_module, "is_left", lambda pace: False)


def robots_kept(patch: pytest.MonkeyPatch) -> None:
    original = robots_cache.is_valid

    def is_valid(record: RobotsRecord, now: float) -> bool:
        return record.kind is RobotsState.RULES or original(record, now)

    patch.setattr(robots_cache, "is_valid", is_valid)


def history_dropped_on_a_failure(patch: pytest.MonkeyPatch) -> None:
    original = TwoTierFrontier._apply_verdict

    def apply(self: TwoTierFrontier, lease: Any, verdict: Any, now: float) -> None:
        if isinstance(verdict, RetryAt):
            lease = replace_struct(lease, candidate=replace_struct(lease.candidate, history=None))
            verdict = replace_struct(verdict, history=None)
        original(self, lease, verdict, now)

    patch.setattr(TwoTierFrontier, "_apply_verdict", apply)


def least_interval_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(later, "LEAST_S", 0.0)


def class_never_ordered_anew(patch: pytest.MonkeyPatch) -> None:
    original = later.LaterUrls._set_due

    def set_due(self: later.LaterUrls, of: Any) -> None:
        if not self._ordered_by or of.wait_s:
            original(self, of)
            of.wait_s = 0.0  # it is due once

    patch.setattr(later.LaterUrls, "_set_due", set_due)


def date_ignored(patch: pytest.MonkeyPatch) -> None:
    original = TwoTierFrontier._visit_again

    def visit_again(self: TwoTierFrontier, candidate: Any, again: Any, now: float) -> None:
        if again.at is not None:
            again = replace_struct(again, at=now + 0.5 * (again.at - now))
        original(self, candidate, again, now)

    patch.setattr(TwoTierFrontier, "_visit_again", visit_again)


def whole_bundle_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bundles, "spacing_s", lambda pace, settings: 0.0)
    patch.setattr(bundles, "at_once", bundle_size)


@dataclass(frozen=True)
class Fault:
    name: str
    words: str  # in what is found
    put_in: Callable[[pytest.MonkeyPatch], None] | None = None
    policy: Policy = SMALL
    first_seed: int = 0  # where it was found last: is tried first, which saves half a minute


def round_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rounds, "stage", lambda self: None)


def request_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Life, "note_fetched", lambda self: None)


def address_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressGroup, "is_free_for", lambda self, host, now: True)


def address_without_rest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressGroups, "_rest", lambda self, *given: None)


def address_forgotten_by_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AddressGroups, "note_rest", lambda self, *given: None)


FAULTS = [
    Fault(
        "hosts do not wait for their address",
        "was being answered",
        address_not_waited_for,
        SHARED_ADDRESSES,
    ),
    Fault("an address does not rest", " s after http", address_without_rest, SHARED_ADDRESSES),
    Fault(
        "a crash forgets that an address is in use",
        "was asked for at 192.0.2.",
        address_forgotten_by_a_crash,
        SHARED_ADDRESSES,
    ),
    Fault("a rest forgotten at eviction", "too early", rest_forgotten),
    Fault("a lease returned without its rest", "too early", returned_without_rest),
    Fault("links after the verdict", "was lost", policy=replace(SMALL, loop=LinksAfterTheVerdict)),
    Fault("Retry-After capped wrongly", "Retry-After", retry_after_capped),
    Fault("a breaker that never closes", "given up", breaker_never_closes),
    Fault(
        "robots asked after the page",
        "before its robots.txt",
        policy=replace(SMALL, robots=AsksForRobotsLater),
    ),
    Fault(
        "more requests at once than the user allows",
        "was being answered",
        whole_bundle_at_once,
        first_seed=67,
    ),
    Fault("a retry that loses its count", "was tried", retry_loses_its_count),
    Fault("a redirect not seen-tested", "and again at", redirect_not_seen_tested),
    Fault("a robots.txt kept beyond 24 h", "hours ago", robots_kept),
    Fault(
        "an operator's pause forgotten at a restart",
        "has paused",
        policy=replace(SMALL, rules_at_start=lambda text, levels: NO_RULES),
        first_seed=53,
    ),
    Fault(
        "a verdict before the sync of its record",
        "a power cut took its record",
        policy=replace(SMALL, loop=FinishesBeforeTheSync),
    ),
    Fault(
        "a challenge pause that does not double",
        "in a row",
        challenge_pause_not_doubled,
        first_seed=12,
    ),
    Fault(
        "a robots.txt taken for a page",
        "in a row",
        policy=replace(SMALL, loop=TakesRobotsForPages),
        first_seed=12,
    ),
    Fault(
        "a history dropped on a failure",
        "and its history says",
        history_dropped_on_a_failure,
        first_seed=4,
    ),
    Fault("the least interval ignored", "too soon again", least_interval_ignored, first_seed=24),
    Fault("a class never ordered anew", "was left alone", class_never_ordered_anew, first_seed=4),
    Fault("a date ignored", "too soon again", date_ignored, first_seed=4),
    Fault("a left host that is asked again", "and is left", left_host_asked_again, first_seed=12),
    Fault("a round that forgets its count", "URLs in round", round_not_kept, first_seed=18),
    Fault("a put back request not counted", "URLs in round", request_not_counted, first_seed=8),
    Fault("leases put back in two writes", "was lost", put_back_in_two_writes, first_seed=26),
    Fault(
        "the sitemaps of a robots.txt forgotten",
        "was lost",
        policy=replace(SMALL, links=ForgetsSitemaps),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault.put_in is not None:
        fault.put_in(monkeypatch)
    for seed in (fault.first_seed, *range(SEEDS)):
        found = judge(run(small_world(seed), fault.policy))
        if any(fault.words in each for each in found):
            return
    raise AssertionError(f"in none of {SEEDS} worlds")

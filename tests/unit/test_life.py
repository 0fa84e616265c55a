"""The life of a lease: its states, the verdict on it, and who it is found by."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from crawler.frontier.records import HostTally
from crawler.loop.life import (
    TRANSITIONS,
    Archived,
    Life,
    LifeEvent,
    LifeState,
    Lives,
    Plan,
)
from crawler.loop.loop import Loop
from crawler.loop.outcome import FAILURES, failure_of, host_fetch, verdict_of
from crawler.model.types import (
    Answer,
    Candidate,
    Claim,
    Dead,
    Done,
    HostFetch,
    HostKey,
    Lease,
    Pace,
    Purpose,
    PutBack,
    Rest,
    RetryAt,
    Verdict,
)


def plan(attempts: int = 0) -> Plan:
    candidate = Candidate("http://a/", 1, HostKey("a"), "a", attempts=attempts)
    return Plan(lease=Lease(1, candidate, Pace(), 0.0), url=candidate.url)


def life(attempts: int = 0, **given: object) -> Life:
    return Life(plan(attempts), **given)


@pytest.mark.parametrize(
    ("account", "verdict"),
    [
        pytest.param(life(), Done(), id="nothing went wrong"),
        pytest.param(
            life(archived=Archived("", Claim(b"d", "http://a/"))),
            Done(claim=Claim(b"d", "http://a/")),
            id="its content is claimed with the finish",
        ),
        pytest.param(life(verdict=PutBack()), PutBack(), id="a verdict stands"),
        pytest.param(life(error="boom"), RetryAt(70.0), id="our own error: again in a while"),
        pytest.param(life(3, error="boom"), Dead("boom"), id="but not for ever"),
        pytest.param(
            life(verdict=PutBack(), error="boom"),
            PutBack(),
            id="a full disk is no page's fault",
        ),
        pytest.param(
            life(verdict=RetryAt(5.0), error="boom"),
            RetryAt(5.0),
            id="the host's trouble first",
        ),
        pytest.param(life(verdict=Dead("x"), error="boom"), Dead("x"), id="dead stays dead"),
    ],
)
def test_fate(account: Life, verdict: Verdict):
    assert verdict_of(account, now=10.0, retries=3, pause_s=60.0) == verdict


def test_each_state_is_reached_and_only_as_the_table_says():
    reached, found = {LifeState.PLANNED}, True
    while found:
        found = {after for (before, _), after in TRANSITIONS.items() if before in reached} - reached
        reached |= found
    assert reached == set(LifeState)
    assert all(after >= before for (before, _), after in TRANSITIONS.items()), (
        "there is no way back"
    )
    for state in LifeState:
        for event in LifeEvent:
            one = life(state=state)
            with nullcontext() if (state, event) in TRANSITIONS else pytest.raises(KeyError):
                one.step(event)
            assert one.state == TRANSITIONS.get((state, event), state)


def test_a_life_is_found_by_its_own_request_until_it_is_removed():
    lives = Lives()
    one, request, copy = lives.add(plan()), ["a request"], ["a request"]
    assert lives.of(request) is None
    lives.hand_out(one, request)
    assert lives.of(request) is one
    assert lives.of(copy) is None
    assert len(lives) == lives.pages() == 1
    lives.remove(one)
    assert lives.of(request) is None


def test_a_returned_request_decides_once():
    lives = Lives()
    one, returned = lives.add(plan()), ["a request"]
    lives.note_returned(one, returned)
    assert lives.take_returned(["a request"]) is None
    assert lives.take_returned(returned) is one
    assert lives.take_returned(returned) is None


@pytest.mark.parametrize(
    ("account", "reason", "failure"),
    [
        (life(answer=Answer(1.0, 503)), "", "status_503"),
        (life(answer=Answer(1.0, 408)), "", "status_408"),
        (life(answer=Answer(1.0, 526)), "", "status_526"),
        (life(answer=Answer(1.0, 598)), "", "status_5xx"),
        (life(answer=Answer(1.0, None, "timeout")), "timeout, tried 4 times", "timeout"),
        (life(answer=Answer(1.0, 200, "disconnect")), "disconnect", "disconnect"),
        (life(answer=Answer(1.0, 302)), "too many redirects", "redirects"),
        (life(answer=Answer(1.0, 200), error="ValueError"), "ValueError", "broken"),
        (life(), "robots.txt unreachable: status 500", "robots_unreachable"),
        (life(), "its host has never answered: dns", "dns"),
        (life(), "its stored request cannot be read", "other"),
    ],
    ids=str,
)
def test_each_failure_is_of_one_kind(account: Life, reason: str, failure: str):
    assert failure_of(account, reason) == failure
    assert failure in FAILURES


@pytest.mark.parametrize(
    ("purpose", "answer", "counted"),
    [
        (Purpose.PAGE, Answer(1.0, 200), HostFetch("", 200, 0, True)),
        (Purpose.PAGE, Answer(1.0, 301), HostFetch("", 301)),
        (Purpose.PAGE, Answer(1.0, 404), HostFetch("status_404", 404)),
        (Purpose.PAGE, Answer(1.0, 429), HostFetch("status_429", 429)),
        (Purpose.PAGE, Answer(1.0, 200, "disconnect"), HostFetch("disconnect", 200)),
        (Purpose.PAGE, Answer(1.0, None, "timeout"), HostFetch("timeout")),
        (Purpose.PAGE, Answer(1.0, None, "cancelled"), None),
        (Purpose.ROBOTS, Answer(1.0, None, "dns"), HostFetch("dns")),
        (Purpose.ROBOTS, Answer(1.0, 404), None),
        (Purpose.PROBE, Answer(1.0, 404), None),
    ],
    ids=str,
)
def test_what_counts_of_a_host(purpose: Purpose, answer: Answer, counted: HostFetch | None) -> None:
    plan_of = replace(plan(), purpose=purpose)
    assert host_fetch(Life(plan_of), answer) == counted
    before = HostTally(9, 3, 6, 700, "dns", 0, 50)
    if counted is not None:
        after = before.with_fetch(counted, 60.5)
        failed = (counted.failure, counted.status, 60) if counted.failure else ("dns", 0, 50)
        assert (after.last_failure, after.last_status, after.failed_at) == failed
        assert (after.fetches, after.failures) == (10, 3 + bool(counted.failure))


@pytest.mark.parametrize(
    ("asked_s", "known_s", "is_noted"),
    [
        pytest.param(20.0, 0.0, True, id="by a robots.txt of another host"),
        pytest.param(20.0, 20.0, False, id="since its last fetch"),
        pytest.param(None, 0.0, False, id="not at all"),
    ],
)
def test_a_crawl_delay_that_a_dead_process_may_leave_unknown_is_noted(
    asked_s: float | None, known_s: float, is_noted: bool
) -> None:
    lease = Lease(1, plan().lease.candidate, Pace(crawl_delay_s=known_s), 0.0)
    parts: dict[str, Any] = dict.fromkeys([each.name for each in fields(Loop) if each.init])
    loop = Loop(**parts | {"frontier": Mock(), "figures": Mock(), "now": lambda: 5.0})
    loop.begin(Life(Plan(lease=lease, url=lease.candidate.url, crawl_delay_s=asked_s)))
    rest = Rest(20.0, Pace(crawl_delay_s=20.0))
    noted = [((lease, rest, 5.0),)] if is_noted else []
    assert loop.frontier.note_trouble.call_args_list == noted

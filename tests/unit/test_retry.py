"""Which answers are asked for again, when, and when no more."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import PolitenessSettings
from crawler.model.types import (
    Answer,
    Candidate,
    Dead,
    HostKey,
    PutBack,
    RetryAt,
)
from crawler.policy.politeness import (
    KeepAnswer,
    RetryDecision,
    retry_decision,
)

RULES = PolitenessSettings()
NOW = 1e9
REST_S = 20.0


def candidate(attempts: int = 0) -> Candidate:
    return Candidate("http://example.com/a", 1, HostKey("example.com"), "", attempts=attempts)


def fated(
    answer: Answer, attempts: int = 0, rules: PolitenessSettings = RULES, seed: int = 1
) -> RetryDecision:
    return retry_decision(candidate(attempts), answer, REST_S, rules, NOW, Random(seed))


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(0.1, status) for status in (408, 429, 500, 502, 503, 504, 522, 524)),
        *(
            Answer(0.1, None, error)
            for error in ("timeout", "connect", "dns", "tls", "protocol", "disconnect")
        ),
        Answer(0.1, None),
    ],
    ids=str,
)
def test_what_may_be_better_next_time_is_tried_three_times_more(answer: Answer) -> None:
    for attempts in range(3):
        assert isinstance(fated(answer, attempts), RetryAt)
    assert isinstance(fated(answer, 3), Dead)


@pytest.mark.parametrize("error", ["disconnect", "protocol"])
def test_a_body_that_breaks_off_is_asked_for_again_and_kept_at_last(error: str) -> None:
    for attempts in range(3):
        assert isinstance(fated(Answer(0.1, 200, error), attempts), RetryAt)
    assert fated(Answer(0.1, 200, error), 3) == KeepAnswer()


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 401, 403, 404, 410, 418, 451, 501])
def test_everything_else_is_an_answer_and_stands(status: int) -> None:
    assert fated(Answer(0.1, status)) == KeepAnswer()
    assert fated(Answer(0.1, status), attempts=9) == KeepAnswer()


def test_what_we_stopped_ourselves_costs_no_attempt() -> None:
    assert fated(Answer(0.1, None, "cancelled"), attempts=9) == PutBack()


def test_a_dead_letter_says_why() -> None:
    assert fated(Answer(0.1, 503), 3) == Dead("status 503, tried 4 times")
    assert fated(Answer(0.1, None, "timeout"), 3) == Dead("timeout, tried 4 times")


def test_no_retries_by_setting() -> None:
    assert isinstance(fated(Answer(0.1, 503), rules=replace(RULES, retries=0)), Dead)


@given(st.integers(0, 100), st.integers())
def test_a_retry_comes_after_the_hosts_rest_and_within_a_minute_of_it(
    attempts: int, seed: int
) -> None:
    again = fated(Answer(0.1, 503), attempts, replace(RULES, retries=1000), seed)
    assert isinstance(again, RetryAt)
    assert 0 <= again.when - NOW - REST_S <= min(60.0, 2.0**attempts)


def test_retries_spread_over_their_whole_interval() -> None:
    waits = []
    for seed in range(500):
        again = fated(Answer(0.1, 503), 2, seed=seed)
        assert isinstance(again, RetryAt)
        waits.append(again.when - NOW - REST_S)
    assert min(waits) < 0.1
    assert max(waits) > 3.9
    assert 1.8 < sum(waits) / len(waits) < 2.2

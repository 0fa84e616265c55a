"""Which answers are fetched again and when, and Retry-After in both forms."""

from __future__ import annotations

from dataclasses import replace
from email.utils import formatdate
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crawler.config.settings import PolitenessSettings
from crawler.model.types import (
    Answer,
    Candidate,
    Dead,
    HostKey,
    Pace,
    PutBack,
    RetryAt,
)
from crawler.policy.politeness import (
    KeepAnswer,
    RetryDecision,
    is_host_down,
    retry_after_s,
    retry_decision,
)

RULES = PolitenessSettings()
NOW = 1e9
REST_S = 20.0
ANSWERS = Pace(answered=True)


def candidate(attempts: int = 0) -> Candidate:
    return Candidate("http://example.com/a", 1, HostKey("example.com"), "", attempts=attempts)


def fated(
    answer: Answer,
    attempts: int = 0,
    settings: PolitenessSettings = RULES,
    seed: int = 1,
    pace: Pace = ANSWERS,
) -> RetryDecision:
    down = is_host_down(pace, answer)
    return retry_decision(
        candidate(attempts), answer, REST_S, settings, NOW, Random(seed), is_host_down=down
    )


@pytest.mark.parametrize(
    "answer",
    [
        *(Answer(0.1, status) for status in (408, 429, *range(500, 600), 999)),
        *(
            Answer(0.1, None, error)
            for error in ("timeout", "connect", "dns", "tls", "protocol", "disconnect")
        ),
        Answer(0.1, None),
    ],
    ids=str,
)
def test_temporary_failures_are_retried_three_times(answer: Answer) -> None:
    for attempts in range(3):
        assert isinstance(fated(answer, attempts), RetryAt)
    assert isinstance(fated(answer, 3), Dead)


@pytest.mark.parametrize("error", ["disconnect", "protocol"])
def test_a_body_that_breaks_off_is_asked_for_again_and_kept_at_last(error: str) -> None:
    for attempts in range(3):
        assert isinstance(fated(Answer(0.1, 200, error), attempts), RetryAt)
    assert fated(Answer(0.1, 200, error), 3) == KeepAnswer()


@pytest.mark.parametrize("status", [200, 204, 301, 304, 400, 401, 403, 404, 410, 418, 451])
def test_every_other_status_is_final(status: int) -> None:
    assert fated(Answer(0.1, status)) == KeepAnswer()
    assert fated(Answer(0.1, status), attempts=9) == KeepAnswer()


PAUSED = Pace(failures=5, pauses=1, answered=True)


@pytest.mark.parametrize(
    ("pace", "answer", "is_counted"),
    [
        pytest.param(Pace(), Answer(0.1, 503), False, id="no page of the host was ever answered"),
        pytest.param(Pace(), Answer(0.1, 500), False, id="so whatever its trouble is"),
        pytest.param(Pace(), Answer(0.1, None, "disconnect"), False, id="or without an answer"),
        pytest.param(Pace(failures=9, pauses=5), Answer(0.1, 530), False, id="and for ever"),
        pytest.param(Pace(), Answer(0.1, 408), True, id="408 is no trouble of the host"),
        pytest.param(Pace(), Answer(0.1, 200, "disconnect"), True, id="a body that broke off"),
        pytest.param(ANSWERS, Answer(0.1, 503), True, id="a host that answers"),
        pytest.param(PAUSED, Answer(0.1, 503), False, id="the probe of a paused host"),
        pytest.param(PAUSED, Answer(0.1, None, "connect"), False, id="that is not reached"),
        pytest.param(PAUSED, Answer(0.1, 521), False, id="nor by its gateway"),
        pytest.param(PAUSED, Answer(0.1, 500), True, id="an error of one page proves no more"),
    ],
)
def test_a_host_that_is_down_costs_its_urls_no_retry(
    pace: Pace, answer: Answer, is_counted: bool
) -> None:
    for attempts in range(3):
        again = fated(answer, attempts, pace=pace)
        assert isinstance(again, RetryAt) and again.is_counted is is_counted
    at_last = fated(answer, 3, pace=pace)
    assert isinstance(at_last, RetryAt) is not is_counted


def test_our_own_cancellations_cost_no_attempt() -> None:
    assert fated(Answer(0.1, None, "cancelled"), attempts=9) == PutBack(was_asked=True)


def test_a_dead_letter_has_its_reason() -> None:
    assert fated(Answer(0.1, 503), 3) == Dead("status 503, tried 4 times")
    assert fated(Answer(0.1, None, "timeout"), 3) == Dead("timeout, tried 4 times")


def test_no_retries_by_setting() -> None:
    assert isinstance(fated(Answer(0.1, 503), settings=replace(RULES, retries=0)), Dead)


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


DATE_NOW = 784_111_777.0  # Sun, 06 Nov 1994 08:49:37 GMT, the date of the RFC
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("value", "want_s"),
    [
        pytest.param(b"120", 120.0, id="seconds"),
        pytest.param(b" 0 ", 0.0, id="none"),
        pytest.param(b"007", 7.0, id="leading zeros"),
        pytest.param(b"1.5", 2.0, id="a fraction is no standard, but means at least that"),
        pytest.param(b"9" * 5000, DAY_S, id="more digits than a number may have"),
        pytest.param(b"0" * 5000 + b"5", 5.0, id="or seem to have"),
        pytest.param(b"86401", DAY_S, id="more than our maximum"),
        pytest.param(b"Sun, 06 Nov 1994 08:51:37 GMT", 120.0, id="a date"),
        pytest.param(b"Sunday, 06-Nov-94 08:51:37 GMT", 120.0, id="a date of RFC 850"),
        pytest.param(b"Sun Nov  6 08:51:37 1994", 120.0, id="a date of asctime, which is GMT"),
        pytest.param(b"Sun, 06 Nov 1994 09:51:37 +0100", 120.0, id="a date with a zone"),
        pytest.param(b"Sun, 06 Nov 1994 08:00:00 GMT", 0.0, id="a date gone by"),
        pytest.param(b"Wed, 06 Nov 2094 08:00:00 GMT", DAY_S, id="a date in another life"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"-5", None, id="negative"),
        pytest.param(b"soon", None, id="a word"),
        pytest.param(b"5 minutes", None, id="a unit"),
        pytest.param(b"inf", None, id="not a number that ends"),
        pytest.param(b"1e9", None, id="an exponent"),
        pytest.param("١٢".encode(), None, id="digits of another script"),
        pytest.param(b"Sun, 99 Nov 1994 99:99:99 GMT" * 3, None, id="too long for a date"),
        pytest.param(b"Sun, 06 Foo 1994 08:51:37 GMT", None, id="a month that is none"),
        pytest.param(b"\x00\xff", None, id="bytes"),
    ],
)
def test_retry_after(value: bytes, want_s: float | None) -> None:
    assert retry_after_s(value, DATE_NOW, DAY_S) == want_s


@given(st.floats(0, 4e9), st.integers(0, 4 * 10**9))
def test_a_retry_after_date_counts_from_now(now: float, at: int) -> None:
    found = retry_after_s(formatdate(at, usegmt=True).encode(), now, DAY_S)
    assert found == pytest.approx(min(DAY_S, max(0.0, at - now)))


DATE_PIECES = st.sampled_from(
    [
        "Sun",
        ",",
        " ",
        "06",
        "-",
        "Nov",
        "1994",
        "08:49:37",
        "GMT",
        "+9999",
        ":",
        "99",
        "(",
        ")",
        "0",
    ]
)


@given(st.one_of(st.binary(max_size=80), st.lists(DATE_PIECES).map("".join).map(str.encode)))
@example(b"Sun, 06 Nov 1994 08:49:37 +99999999999999")
@example(b"Sun, 06 Nov 99999999999999 08:49:37")
def test_no_bytes_raise_an_error(value: bytes) -> None:
    found = retry_after_s(value, DATE_NOW, DAY_S)
    assert found is None or 0.0 <= found <= DAY_S

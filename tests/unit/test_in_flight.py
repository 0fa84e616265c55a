"""The verdict on a lease, from all that was counted of its fetch."""

from __future__ import annotations

import pytest

from crawler.crawl.errors import FAILURES
from crawler.crawl.in_flight import (
    Fetch,
    InFlight,
    failure_of,
    verdict_of,
)
from crawler.model.types import (
    Answer,
    Candidate,
    Claim,
    Dead,
    Done,
    HostKey,
    Lease,
    Pace,
    PutBack,
    RetryAt,
    Verdict,
)


def fetch(attempts: int = 0, **given: object) -> Fetch:
    candidate = Candidate("http://a/", 1, HostKey("a"), "a", attempts=attempts)
    return Fetch(Lease(1, candidate, Pace(), 0.0), **given)


@pytest.mark.parametrize(
    ("account", "verdict"),
    [
        pytest.param(fetch(), Done(), id="nothing went wrong"),
        pytest.param(
            fetch(claim=Claim(b"d", "http://a/")),
            Done(claim=Claim(b"d", "http://a/")),
            id="its content is claimed with the finish",
        ),
        pytest.param(fetch(verdict=PutBack()), PutBack(), id="a verdict stands"),
        pytest.param(
            fetch(callback_error="boom"), RetryAt(70.0), id="our own error: again in a while"
        ),
        pytest.param(fetch(3, callback_error="boom"), Dead("boom"), id="but not for ever"),
        pytest.param(
            fetch(verdict=PutBack(), callback_error="boom"),
            PutBack(),
            id="a full disk is no page's fault",
        ),
        pytest.param(
            fetch(verdict=RetryAt(5.0), callback_error="boom"),
            RetryAt(5.0),
            id="the host's trouble first",
        ),
        pytest.param(
            fetch(verdict=Dead("x"), callback_error="boom"), Dead("x"), id="dead stays dead"
        ),
    ],
)
def test_fate(account: Fetch, verdict: Verdict):
    assert verdict_of(account, now=10.0, retries=3, pause_s=60.0) == verdict


def test_a_fetch_is_found_by_its_own_request_until_it_is_removed():
    in_flight = InFlight()
    one, request, copy = in_flight.add(fetch().lease), ["a request"], ["a request"]
    assert in_flight.fetch_of(request) is None
    in_flight.hand_out(one, request)
    assert in_flight.fetch_of(request) is one
    assert in_flight.fetch_of(copy) is None
    assert len(in_flight) == in_flight.pages() == 1
    in_flight.remove(one)
    assert in_flight.fetch_of(request) is None


def test_a_returned_request_decides_once():
    in_flight = InFlight()
    one, returned = in_flight.add(fetch().lease), ["a request"]
    in_flight.note_returned(one, returned)
    assert in_flight.take_returned(["a request"]) is None
    assert in_flight.take_returned(returned) is one
    assert in_flight.take_returned(returned) is None


@pytest.mark.parametrize(
    ("account", "reason", "failure"),
    [
        (fetch(answer=Answer(1.0, 503)), "", "status_503"),
        (fetch(answer=Answer(1.0, 408)), "", "status_408"),
        (fetch(answer=Answer(1.0, 526)), "", "status_526"),
        (fetch(answer=Answer(1.0, 598)), "", "status_5xx"),
        (fetch(answer=Answer(1.0, None, "timeout")), "timeout, tried 4 times", "timeout"),
        (fetch(answer=Answer(1.0, 200, "disconnect")), "disconnect", "disconnect"),
        (fetch(answer=Answer(1.0, 302)), "too many redirects", "redirects"),
        (fetch(answer=Answer(1.0, 200), callback_error="ValueError"), "ValueError", "broken"),
        (fetch(), "robots.txt unreachable: status 500", "robots_unreachable"),
        (fetch(), "its host has never answered: dns", "dns"),
        (fetch(), "its stored request cannot be read", "other"),
    ],
    ids=str,
)
def test_each_failure_is_of_one_kind(account: Fetch, reason: str, failure: str):
    assert failure_of(account, reason) == failure
    assert failure in FAILURES

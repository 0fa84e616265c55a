"""The verdict on a lease, from all that was counted of its fetch."""

from __future__ import annotations

import pytest

from crawler.crawl.in_flight import (
    Fetch,
    InFlight,
    verdict_of,
)
from crawler.model.types import (
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


def flight(attempts: int = 0, **given: object) -> Fetch:
    candidate = Candidate("http://a/", 1, HostKey("a"), "a", attempts=attempts)
    return Fetch(Lease(1, candidate, Pace(), 0.0), **given)


@pytest.mark.parametrize(
    ("account", "verdict"),
    [
        pytest.param(flight(), Done(), id="nothing went wrong"),
        pytest.param(
            flight(claim=Claim(b"d", "http://a/")),
            Done(claim=Claim(b"d", "http://a/")),
            id="its content is claimed with the finish",
        ),
        pytest.param(flight(verdict=PutBack()), PutBack(), id="a verdict stands"),
        pytest.param(
            flight(callback_error="boom"), RetryAt(70.0), id="our own error: again in a while"
        ),
        pytest.param(flight(3, callback_error="boom"), Dead("boom"), id="but not for ever"),
        pytest.param(
            flight(verdict=PutBack(), callback_error="boom"),
            PutBack(),
            id="a full disk is no page's fault",
        ),
        pytest.param(
            flight(verdict=RetryAt(5.0), callback_error="boom"),
            RetryAt(5.0),
            id="the host's trouble first",
        ),
        pytest.param(
            flight(verdict=Dead("x"), callback_error="boom"), Dead("x"), id="dead stays dead"
        ),
    ],
)
def test_fate(account: Fetch, verdict: Verdict):
    assert verdict_of(account, now=10.0, retries=3, pause_s=60.0) == verdict


def test_an_account_is_found_by_its_lease_until_it_is_closed():
    flights = InFlight()
    one = flights.add(flight().lease)
    assert flights.fetch_of(one.lease) is one
    assert flights.fetch_of("no lease") is None
    assert len(flights) == flights.pages() == 1
    flights.remove(one)
    assert flights.fetch_of(one.lease) is None

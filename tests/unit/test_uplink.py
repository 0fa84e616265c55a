"""Whether it is them or us."""

from __future__ import annotations

import pytest

from crawler.model.types import Answer, HostKey
from crawler.policy.politeness import (
    Uplink,
    UplinkRules,
    no_contact,
)

RULES = UplinkRules()
OK = Answer(0.1, 200)
NO_ROUTE = Answer(0.1, None, "connect")


def told(good: int, failing: int, every_s: float = 0.1) -> Uplink:
    """An uplink over which all have answered, and then the *failing* hosts did not."""
    uplink = Uplink(RULES)
    for number in range(good + failing):
        uplink.observe(HostKey(f"h{number}"), OK, 0.0)
    for number in range(failing):
        uplink.observe(HostKey(f"h{number}"), NO_ROUTE, number * every_s)
    return uplink


@pytest.mark.parametrize(
    ("uplink", "down"),
    [
        pytest.param(Uplink(RULES), False, id="nothing is known"),
        pytest.param(told(0, 19), False, id="a few that died"),
        pytest.param(told(0, 20), True, id="as many as it takes"),
        pytest.param(told(10, 50), False, id="most, but some answer"),
        pytest.param(told(2, 18), True, id="nearly all"),
        pytest.param(told(60, 20), False, id="twenty that died, of eighty"),
        pytest.param(told(0, 100, every_s=5.0), False, id="too seldom to be told apart"),
    ],
)
def test_the_line_is_down_when_nearly_all_hosts_fail(uplink: Uplink, down: bool) -> None:
    assert (uplink.probe_at is not None) is down
    assert uplink.charges_host() is not down


def test_hosts_that_never_answered_say_nothing_about_the_line() -> None:
    uplink = Uplink(RULES)
    for number in range(100):
        uplink.observe(HostKey(f"dead{number}"), NO_ROUTE, 1.0)
    assert uplink.charges_host()


def test_one_host_that_fails_often_is_one_host() -> None:
    uplink = told(0, 1)
    for second in range(50):
        uplink.observe(HostKey("h0"), NO_ROUTE, float(second))
    assert not uplink.is_down(50.0)


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        pytest.param(OK, False, id="an answer"),
        pytest.param(Answer(0.1, 503), False, id="a bad answer is one"),
        pytest.param(Answer(0.1, 200, "timeout"), False, id="half an answer is one"),
        pytest.param(Answer(0.1, None, "dns"), True, id="no address"),
        pytest.param(NO_ROUTE, True, id="no connection"),
        pytest.param(Answer(0.1, None, "timeout"), True, id="nothing in time"),
        pytest.param(Answer(0.1, None, "tls"), False, id="a handshake that failed: they are there"),
    ],
)
def test_what_counts_as_no_contact(answer: Answer, want: bool) -> None:
    assert no_contact(answer) is want


def test_a_probe_is_let_through_and_decides() -> None:
    uplink = told(0, 20)
    at = uplink.probe_at
    assert at is not None
    assert uplink.is_down(at - 0.1)
    assert not uplink.is_down(at)
    uplink.observe(HostKey("a"), NO_ROUTE, at)
    assert uplink.is_down(at + 1)
    assert uplink.probe_at == at + RULES.probe_s
    uplink.observe(HostKey("b"), OK, at + 11)
    assert uplink.probe_at is None
    assert not uplink.is_down(at + 11)


def test_a_line_that_stays_down_is_not_the_line() -> None:
    uplink = told(0, 20)
    assert uplink.probe_at
    uplink.observe(HostKey("h0"), NO_ROUTE, RULES.longest_s)
    assert not uplink.charges_host()
    uplink.observe(HostKey("h0"), NO_ROUTE, RULES.longest_s + 10)
    assert uplink.charges_host()
    for number in range(20):  # and they must answer before they can tell again
        uplink.observe(HostKey(f"h{number}"), NO_ROUTE, RULES.longest_s + 11)
    assert uplink.charges_host()


def test_fetches_that_we_stopped_say_nothing() -> None:
    uplink = told(0, 19)
    uplink.observe(HostKey("x"), OK, 2.0)
    uplink.observe(HostKey("x"), Answer(0.1, None, "cancelled"), 2.0)
    assert uplink.charges_host()


def test_only_what_was_heard_lately_counts() -> None:
    uplink = told(0, 19)
    late = RULES.window_s + 5
    for number in range(19):
        uplink.observe(HostKey(f"n{number}"), OK, late)
        uplink.observe(HostKey(f"n{number}"), NO_ROUTE, late)
    assert uplink.charges_host()
    uplink.observe(HostKey("h0"), NO_ROUTE, late)
    assert not uplink.charges_host()


def test_it_remembers_no_more_than_it_must() -> None:
    uplink = told(5000, 0)
    assert len(uplink) == RULES.max_hosts


def test_it_remembers_those_heard_of_last() -> None:
    rules = UplinkRules(min_hosts=1, max_hosts=2)
    uplink = Uplink(rules)
    for name in ("a", "b", "a", "c"):
        uplink.observe(HostKey(name), OK, 0.0)
    uplink.observe(HostKey("b"), NO_ROUTE, 100.0)
    assert uplink.charges_host()
    uplink.observe(HostKey("a"), NO_ROUTE, 100.0)
    assert not uplink.charges_host()

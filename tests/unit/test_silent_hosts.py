"""When a crawl gives up hosts that have never answered, and when it suspects our own connection."""

from __future__ import annotations

from random import Random

import pytest

from crawler.config.settings import PolitenessSettings
from crawler.model.types import Answer, HostKey, Pace
from crawler.policy.politeness import next_rest
from crawler.policy.silent_hosts import SILENCE_S, SilentHosts

DEAD, OTHER = HostKey("dead.example"), HostKey("other.example")
NEW, HEARD = Pace(), Pace(has_sent=True)
REFUSED, UNNAMED = Answer(0.1, error="connect"), Answer(0.1, error="dns")


def silent_after(*answers: tuple[HostKey, Answer], pace: Pace = NEW) -> SilentHosts:
    silent = SilentHosts()
    silent.begin(0.0)
    for host, answer in answers:
        silent.observe(host, pace, answer)
    return silent


def test_a_silent_host_is_given_up_when_nothing_has_answered_for_a_while() -> None:
    silent = silent_after((DEAD, REFUSED))
    assert not silent.is_due(SILENCE_S - 0.1, 0.0)
    assert silent.is_due(SILENCE_S, 0.0)
    assert silent.given_up(DEAD, NEW) == "", "only when nothing else is left"
    silent.give_up()
    assert silent.given_up(DEAD, NEW) == "connect"
    assert silent.given_up(OTHER, NEW) == "", "it was not tried in this run"
    assert silent.given_up(DEAD, HEARD) == "", "it has answered in an earlier run"


def test_each_answer_begins_the_wait_anew() -> None:
    silent = silent_after((DEAD, REFUSED))
    assert not silent.is_due(SILENCE_S, 1.0)
    assert silent.is_due(SILENCE_S + 1, 1.0)
    assert not silent_after().is_due(SILENCE_S, 0.0), "no host is silent"


@pytest.mark.parametrize(
    ("answer", "heard"),
    [
        (Answer(0.1, 200), True),
        (Answer(0.1, 503), True),
        (Answer(0.1, 200, "disconnect"), True),
        (Answer(0.1, error="protocol"), True),
        (Answer(0.1, error="connect"), False),
        (Answer(0.1, error="dns"), False),
        (Answer(0.1, error="timeout"), False),
        (Answer(0.1, error="tls"), False),
        (Answer(0.1, error="disconnect"), False),
    ],
    ids=str,
)
def test_what_is_an_answer(answer: Answer, heard: bool) -> None:
    silent = silent_after((DEAD, answer))
    assert silent.has_failed(DEAD) is not heard
    assert next_rest(NEW, answer, PolitenessSettings(), Random(1)).pace.has_sent is heard


def test_a_host_that_has_answered_once_is_never_silent() -> None:
    assert not silent_after((DEAD, REFUSED), pace=HEARD).has_failed(DEAD)
    assert not silent_after((DEAD, REFUSED), (DEAD, Answer(0.1, 404))).has_failed(DEAD)
    assert next_rest(HEARD, REFUSED, PolitenessSettings(), Random(1)).pace.has_sent


@pytest.mark.parametrize(
    ("silent", "perhaps"),
    [
        (silent_after((DEAD, REFUSED), (OTHER, UNNAMED)), True),
        (silent_after((DEAD, REFUSED), (OTHER, Answer(30.0, error="timeout"))), False),
    ],
    ids=["all by name or connection", "one hangs"],
)
def test_when_it_may_be_our_own_connection(silent: SilentHosts, perhaps: bool) -> None:
    assert silent.may_be_ours is perhaps


@pytest.mark.parametrize(
    ("hosts", "inside"),
    [
        (["127.0.0.1", "10.1.2.3", "::1", "localhost"], True),
        (["127.0.0.1", "192.88.0.1"], False),
        (["example.com"], False),
    ],
)
def test_inside_addresses_need_no_connection_to_the_outside(hosts: list[str], inside: bool) -> None:
    assert silent_after(*[(HostKey(host), REFUSED) for host in hosts]).are_inside is inside

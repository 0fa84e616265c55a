"""The records of hosts: every transition of a host and of a URL is in its table, or impossible."""

from __future__ import annotations

from itertools import product
from random import Random

import msgspec
import pytest

from crawler.config.settings import PolitenessSettings
from crawler.frontier.records import (
    TRANSITIONS,
    URL_TRANSITIONS,
    FrontierTotals,
    HostEvent,
    HostPlace,
    HostRecord,
    IllegalTransition,
    QueueEnds,
    UrlEvent,
    UrlState,
    decode_host,
    encode,
    next_place,
    next_state,
)
from crawler.model.types import (
    Answer,
    Pace,
    Standing,
)
from crawler.policy.politeness import next_rest


@pytest.mark.parametrize(
    ("before", "answer", "after"),
    [
        pytest.param(Standing.NEW, Answer(0.1, 200), Standing.ANSWERS, id="a page"),
        pytest.param(Standing.NEW, Answer(0.1, 404), Standing.ANSWERS, id="an error page"),
        pytest.param(Standing.ANSWERS, Answer(0.1, 503), Standing.ANSWERS, id="trouble, at once"),
        pytest.param(Standing.NEW, Answer(0.1, None, "protocol"), Standing.ANSWERS, id="nonsense"),
        pytest.param(Standing.FAILS, Answer(0.1, 200), Standing.ANSWERS, id="it is back"),
        pytest.param(
            Standing.ANSWERS, Answer(30, None, "timeout"), Standing.FAILS, id="a time-out"
        ),
        pytest.param(Standing.NEW, Answer(5, None, "connect"), Standing.FAILS, id="no connection"),
        pytest.param(Standing.NEW, Answer(5, None, "dns"), Standing.FAILS, id="no name"),
        pytest.param(Standing.ANSWERS, Answer(30, 200, hung=True), Standing.FAILS, id="it drips"),
        pytest.param(Standing.NEW, Answer(9, None, "cancelled"), Standing.NEW, id="we left"),
        pytest.param(Standing.FAILS, Answer(9, None, "cancelled"), Standing.FAILS, id="we left it"),
    ],
)
def test_the_last_fetch_decides(before, answer, after):
    rest = next_rest(Pace(standing=before), answer, PolitenessSettings(), Random(1))
    assert rest.pace.standing is after


@pytest.mark.parametrize(("place", "event"), list(product(HostPlace, HostEvent)))
def test_every_move_is_in_the_table_or_refused(place, event):
    if (place, event) in TRANSITIONS:
        assert next_place(place, event) is TRANSITIONS[place, event]
    else:
        with pytest.raises(IllegalTransition):
            next_place(place, event)


def test_every_place_is_reached_and_left():
    assert {place for place, _ in TRANSITIONS} == set(HostPlace) == set(TRANSITIONS.values())


@pytest.mark.parametrize(("state", "event"), list(product(UrlState, UrlEvent)))
def test_every_move_of_a_url_is_in_the_table_and_counted_or_refused(state, event):
    totals = FrontierTotals(**{each: 9 for each in UrlState if each != "unknown"})
    if (state, event) in URL_TRANSITIONS:
        after = URL_TRANSITIONS[state, event]
        totals.count(state, event, 2)
        assert next_state(state, event) is after
        assert getattr(totals, after, 11) == 11  # unknown URLs are not counted
        assert getattr(totals, state, 7) == (9 if state is UrlState.DONE else 7)
    else:
        with pytest.raises(IllegalTransition):
            totals.count(state, event)


def test_every_state_of_a_url_is_left_and_reached():
    assert {state for state, _ in URL_TRANSITIONS} == set(UrlState)
    assert set(URL_TRANSITIONS.values()) == set(UrlState)
    assert {event for _, event in URL_TRANSITIONS} == set(UrlEvent)


def test_a_record_of_a_host_from_before_addresses_were_noted_can_be_read() -> None:
    record = HostRecord([QueueEnds()], HostPlace.RESTING, rest_until=5.0, admitted=7)
    *before, _, _ = msgspec.structs.astuple(record)
    assert decode_host(encode(before)) == record

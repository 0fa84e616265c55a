"""Every move of a host and of a URL is in its table, or impossible."""

from __future__ import annotations

from itertools import product

import pytest

from crawler.frontier.records import (
    TRANSITIONS,
    URL_TRANSITIONS,
    FrontierTotals,
    HostEvent,
    HostPlace,
    IllegalTransition,
    UrlEvent,
    UrlState,
    next_place,
    next_state,
)


@pytest.mark.parametrize(("place", "event"), list(product(HostPlace, HostEvent)))
def test_every_move_is_in_the_table_or_refused(place, event):
    if (place, event) in TRANSITIONS:
        assert next_place(place, event) is TRANSITIONS[place, event]
    else:
        with pytest.raises(IllegalTransition):
            next_place(place, event)


@pytest.mark.parametrize(("state", "event"), list(product(UrlState, UrlEvent)))
def test_every_move_of_a_url_is_in_the_table_and_counted_or_refused(state, event):
    totals = FrontierTotals(front=[], **{each: 9 for each in UrlState if each != "unknown"})
    if (state, event) in URL_TRANSITIONS:
        after = URL_TRANSITIONS[state, event]
        totals.count(state, event, 2)
        assert next_state(state, event) is after
        assert getattr(totals, after) == 11
        assert getattr(totals, state, 7) == (9 if state is UrlState.DONE else 7)
    else:
        with pytest.raises(IllegalTransition):
            totals.count(state, event)


def test_every_place_is_reached_and_left():
    assert {place for place, _ in TRANSITIONS} == set(HostPlace) == set(TRANSITIONS.values())


def test_every_state_of_a_url_is_left_and_all_but_the_first_are_reached():
    assert {state for state, _ in URL_TRANSITIONS} == set(UrlState)
    assert set(URL_TRANSITIONS.values()) == set(UrlState) - {UrlState.UNKNOWN}
    assert {event for _, event in URL_TRANSITIONS} == set(UrlEvent)

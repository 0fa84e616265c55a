"""Every move of a host is in the table, or impossible."""

from __future__ import annotations

from itertools import product

import pytest

from crawler.frontier.records import (
    TRANSITIONS,
    HostEvent,
    HostPlace,
    IllegalTransition,
    next_place,
)


@pytest.mark.parametrize(("place", "event"), list(product(HostPlace, HostEvent)))
def test_every_move_is_in_the_table_or_refused(place, event):
    if (place, event) in TRANSITIONS:
        assert next_place(place, event) is TRANSITIONS[place, event]
    else:
        with pytest.raises(IllegalTransition):
            next_place(place, event)


def test_every_place_is_reached_and_left():
    assert {place for place, _ in TRANSITIONS} == set(HostPlace) == set(TRANSITIONS.values())

"""Which of its addresses a host is fetched from, and how long hosts that come together wait."""

from __future__ import annotations

import pytest

from crawler.frontier.groups import AddressGroup, choose_address

A, B, C, V6, W6 = "192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2"


@pytest.mark.parametrize(
    ("found", "last", "has_failed", "chosen"),
    [
        pytest.param([A], "", False, A, id="the only one"),
        pytest.param([B, A], "", False, A, id="the least, whatever their order"),
        pytest.param([B, A], B, False, B, id="the last one, as long as it is there"),
        pytest.param([B, A], C, False, A, id="another one, if it has gone"),
        pytest.param([C, B, A], B, True, C, id="the next one, if it did not answer"),
        pytest.param([C, B, A], C, True, A, id="and then the first one"),
        pytest.param([A], A, True, A, id="there is no other"),
        pytest.param([V6, A, W6], "", False, V6, id="of the family that is preferred"),
        pytest.param([A, V6], V6, False, V6, id="the last one, of whatever family"),
        pytest.param([V6, A], V6, True, A, id="of the other family, if it did not answer"),
    ],
)
def test_the_address_of_a_host(found: list[str], last: str, has_failed: bool, chosen: str) -> None:
    assert choose_address(found, last, has_failed=has_failed) == chosen


def test_hosts_that_come_together_do_not_go_together() -> None:
    group = AddressGroup(A)
    places = sorted(group.next_place(0.0, 600.0) for _ in range(1000))
    assert places[0] >= 300.0
    assert places[-1] <= 600.0
    at_once = max(sum(at <= each < at + 1.0 for each in places) for at in places)
    assert at_once <= 7, "3.3 a second in the mean"

"""Shares of leases are kept to within one lease a level, and no level starves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.hosts import StrideScheduler


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6), st.integers(1, 400))
def test_every_level_gets_its_share(shares, picks):
    stride = StrideScheduler(shares)
    got = [0] * len(shares)
    for _ in range(picks):
        level = stride.order[0]
        stride.charge(level)
        got[level] += 1
    for count, share in zip(got, shares, strict=True):
        assert abs(count - picks * share / sum(shares)) <= len(shares)


def test_a_level_that_was_idle_does_not_catch_up_in_a_burst():
    stride = StrideScheduler([50, 50])
    for _ in range(100):
        stride.charge(0)
    leased = []
    for _ in range(10):
        leased.append(stride.order[0])
        stride.charge(leased[-1])
    assert sorted(leased) == [0] * 5 + [1] * 5


@pytest.mark.parametrize(("shares", "order"), [([60, 30, 10], [0, 1, 2]), ([10, 60], [1, 0])])
def test_the_bigger_share_goes_first(shares, order):
    assert StrideScheduler(shares).order == order

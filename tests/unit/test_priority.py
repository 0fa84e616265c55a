"""The front level of a URL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.types import ConfigError
from crawler.policy.priority import DepthPrioritizer, Hints


@pytest.mark.parametrize(
    ("hints", "want"),
    [
        pytest.param(Hints(is_seed=True), 0, id="a seed"),
        pytest.param(Hints(depth=0), 0, id="the target of a seed's redirect"),
        pytest.param(Hints(depth=1), 1, id="linked from a seed"),
        pytest.param(Hints(depth=2), 1, id="two links away"),
        pytest.param(Hints(depth=3), 2, id="deeper"),
        pytest.param(Hints(depth=1000), 2, id="much deeper"),
        pytest.param(Hints(depth=9, sitemap_priority=0.8), 0, id="the top of a sitemap"),
        pytest.param(Hints(depth=1, sitemap_priority=0.5), 1, id="anywhere in a sitemap"),
        pytest.param(Hints(depth=0, is_sitemap=True), 2, id="a sitemap itself"),
        pytest.param(Hints(depth=9, priority=1), 0, id="a spider's own wish, sooner"),
        pytest.param(Hints(is_seed=True, priority=-1), 2, id="a spider's own wish, later"),
    ],
)
def test_three_levels(hints: Hints, want: int) -> None:
    assert DepthPrioritizer(3).level(hints) == want


HINTS = st.builds(
    Hints,
    depth=st.integers(0, 10**6),
    is_seed=st.booleans(),
    is_sitemap=st.booleans(),
    priority=st.integers(-5, 5),
)


@given(st.integers(1, 9), HINTS)
def test_a_level_is_one_of_those_there_are(levels: int, hints: Hints) -> None:
    assert 0 <= DepthPrioritizer(levels).level(hints) < levels


@given(st.integers(1, 9), st.integers(0, 1000))
def test_deeper_is_never_better(levels: int, depth: int) -> None:
    levels_by_depth = DepthPrioritizer(levels)
    near, far = Hints(depth=depth), Hints(depth=depth + 1)
    assert levels_by_depth.level(near) <= levels_by_depth.level(far)


def test_no_levels_is_no_front() -> None:
    with pytest.raises(ConfigError):
        DepthPrioritizer(0)

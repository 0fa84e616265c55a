"""Whole crawls on a virtual clock, judged from outside."""

from __future__ import annotations

from crawler.simulate.run import SMALL, run, small_world


def test_the_same_seed_gives_the_same_events() -> None:
    first, again, other = (run(small_world(seed), SMALL).log for seed in (1, 1, 4))
    assert first.is_over and first.events > 100
    assert first.digest == again.digest != other.digest

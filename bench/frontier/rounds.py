"""Both frontiers measured from outside, in turn.

Rule: speeds are medians of rounds; what a frontier weighs does not change from round to round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from bench.frontier.sizes import ours_sizes, scrapy_redis_sizes
from bench.frontier.speed import speed
from bench.frontier.table import OURS, THEIRS, Figures

SIZES: Final[dict[str, Callable[[float], dict[str, float]]]] = {
    OURS: ours_sizes,
    THEIRS: scrapy_redis_sizes,
}


def measured(frontiers: Sequence[str], rounds: int, scale: float) -> Figures:
    speeds: dict[str, list[dict[str, float]]] = {name: [] for name in frontiers}
    for number in range(rounds):
        for name in frontiers:
            each = speed(name, scale)
            speeds[name].append(each)
            adds = (
                f"{each['new_per_s']:,.0f} new links and {each['turns_per_s']:,.0f} leases a second"
            )
            print(f"round {number + 1}, frontier of {name}: {adds}", flush=True)
    return {name: {**middle(speeds[name]), **SIZES[name](scale)} for name in frontiers}


def middle(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(each[name] for each in rounds) for name in rounds[0]}

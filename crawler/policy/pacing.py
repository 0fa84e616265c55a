"""How fast a host may be asked, by what its server's answers say: the stages of its pace.

Rule: pure. A host begins at `delay_factor` times its last fetch. Every WINDOW answers their mean is
compared with what a fetch takes while we hardly use the server (the base). While it stays near
that, the factor falls, down to what `paced_share` allows; if the server gets slower, it rises
again. Once a minute some requests are made at factor 5, to measure the base anew: without that the
queue that we make ourselves would count as normal, and we would drive it up for ever.

A server that refuses (429, 503) is asked less often than it was when it refused, and after ten
minutes without a refusal 2 % more often. Any other trouble takes one step back. Both are kept with
the host, for as long as the host is known.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.model.types import Pacing

WINDOW: Final = 8  # the fewest answers whose mean is compared
WINDOW_S: Final = 5.0
"""The shortest time of a window. Service times scatter by half their mean: of eight answers the
mean is off by a quarter too often, of 25 seldom."""
FIRST_ANSWERS: Final = 16  # by which the base is known at first
PROBES: Final = 8
"""Answers by which the base is measured anew. At factor 5 they take as long as 13 others."""
PROBE_FACTOR: Final = 5.0
_NEWEST: Final = 0.25  # the weight of the newest measurement in the base
_NEWEST_AT_LOW_RATE: Final = 0.5  # of what is seldom asked: then it is the server that is slower
PROBED_EVERY_S: Final = 60.0
FAST: Final = 1.15  # times the base: then the factor may fall
SLOW: Final = 1.25  # times the base, three times in a row: then it rises
VERY_SLOW: Final = 2.0  # times the base, once
_SLOW_WINDOWS: Final = 3
_FALLING: Final = (5.0, 2.0, 1.0, 0.5)
_STEP_BACK_S: Final = 60.0  # after a step back, doubled with each
_MOST_STEP_BACKS: Final = 6  # so at most an hour
_STEP_BACK_EXPIRES_S: Final = 600.0  # without another step back, for each
_REFUSED_SHARE: Final = 0.9  # of the rate that was refused
_RATE_RISE: Final = 1.02
_RATE_RISES_AFTER_S: Final = 600.0
_LONGEST_INTERVAL_S: Final = 60.0
"""Beyond this the host rests and is paused by other rules, which are not remembered for long."""


class Stage(StrEnum):
    """What is done at a host."""

    FIRST = "first"  # the base is not known: the first factor
    PROBES = "probes"  # the base is measured anew: PROBE_FACTOR at least
    PACED = "paced"  # the factor of its step


class Window(StrEnum):
    """What an answer, with those before it, says of the server."""

    OPEN = "open"  # too few answers yet
    FAST = "fast"
    FAIR = "fair"
    SLOW = "slow"
    TROUBLE = "trouble"
    OVER = "over"  # enough answers to know the base


MOVES: Final[dict[tuple[Stage, Window], tuple[Stage, int]]] = {
    (Stage.FIRST, Window.OVER): (Stage.PACED, 1),
    (Stage.FIRST, Window.TROUBLE): (Stage.FIRST, 0),
    (Stage.PROBES, Window.OVER): (Stage.PACED, 0),
    (Stage.PROBES, Window.TROUBLE): (Stage.PROBES, -1),
    (Stage.PACED, Window.FAST): (Stage.PACED, 1),
    (Stage.PACED, Window.FAIR): (Stage.PACED, 0),
    (Stage.PACED, Window.SLOW): (Stage.PACED, -1),
    (Stage.PACED, Window.TROUBLE): (Stage.PACED, -1),
}
"""What follows a window that is not open: the next stage, and how many steps the factor falls (-1:
it rises). A paced host whose base is older than PROBED_EVERY_S is probed at the end of a window."""


_FEWEST: Final = {Stage.FIRST: FIRST_ANSWERS, Stage.PROBES: PROBES, Stage.PACED: WINDOW}


def factors(settings: PolitenessSettings) -> tuple[float, ...]:
    """Return the factors from the first one down to the least that `paced_share` allows: of one
    fetch and the rest after it the fetch is at most that share."""
    return _factors(settings.delay_factor, settings.paced_share)


@lru_cache(maxsize=64)
def _factors(first: float, share: float) -> tuple[float, ...]:
    least = round((1.0 - share) / share, 6)
    return (first, *(each for each in _FALLING if least < each < first), *[least] * (least < first))


def stage_of(pacing: Pacing) -> Stage:
    """Return the stage of a host."""
    if not pacing.base_s:
        return Stage.FIRST
    return Stage.PROBES if pacing.is_probing else Stage.PACED


def factor_of(pacing: Pacing | None, settings: PolitenessSettings) -> float:
    """Return so many times as long as its last fetch a host rests."""
    if pacing is None or stage_of(pacing) is Stage.FIRST:
        return settings.delay_factor
    steps = factors(settings)
    factor = steps[min(pacing.step, len(steps) - 1)]
    return max(factor, _probe_factor(settings)) if pacing.is_probing else factor


def _probe_factor(settings: PolitenessSettings) -> float:
    return min(PROBE_FACTOR, settings.delay_factor)


def least_rest_s(pacing: Pacing | None, fetch_s: float, settings: PolitenessSettings) -> float:
    """Return how long a host rests after a fetch of *fetch_s* without trouble, by its pace."""
    own_s = factor_of(pacing, settings) * fetch_s
    if pacing is None or stage_of(pacing) is Stage.FIRST or not pacing.step:
        own_s = max(own_s, settings.min_delay_s)
    own_s = max(own_s, settings.paced_min_delay_s)
    refused_s = 0.0 if pacing is None else pacing.interval_s - fetch_s
    return max(min(own_s, settings.max_delay_s), refused_s)


def is_paced(settings: PolitenessSettings) -> bool:
    """Return whether hosts may be asked more often than at the first factor."""
    return len(factors(settings)) > 1


def pacing_after_answer(
    pacing: Pacing | None, fetch_s: float, begun_at: float, settings: PolitenessSettings
) -> Pacing | None:
    """Return the pace of a host after an answer without trouble to a request of *begun_at*."""
    if not is_paced(settings):
        return None
    pacing = pacing or Pacing(begun_at=begun_at)
    pacing = _with_risen_rate(pacing, begun_at)
    pacing = replace(
        pacing, begun_at=begun_at, sum_s=pacing.sum_s + fetch_s, count=pacing.count + 1
    )
    return _moved(pacing, _window(pacing), begun_at, settings)


def pacing_after_trouble(
    pacing: Pacing | None,
    begun_at: float,
    settings: PolitenessSettings,
    *,
    is_rate: bool,
    was_failing: bool,
) -> Pacing | None:
    """Return the pace of a host after trouble. *is_rate*: it refused a request because there were
    too many. *was_failing*: it had trouble before, which has been counted."""
    if pacing is None or not is_paced(settings):
        return pacing
    seen_s = begun_at - pacing.begun_at
    if is_rate and not was_failing and 0.0 < seen_s < _LONGEST_INTERVAL_S:
        interval_s = max(pacing.interval_s, seen_s / _REFUSED_SHARE)
        pacing = replace(pacing, interval_s=min(interval_s, _LONGEST_INTERVAL_S))
    pacing = replace(pacing, refused_at=begun_at, begun_at=begun_at)
    if is_rate or was_failing:
        return pacing
    return _moved(pacing, Window.TROUBLE, begun_at, settings)


class PaceChange(StrEnum):
    """What an answer has changed for the requests that follow."""

    FASTER = "faster"
    SLOWER = "slower"
    REFUSED = "refused"  # asked less often since


def change_of(before: Pacing | None, after: Pacing | None) -> PaceChange | None:
    """Return what has changed from the pace *before* to the one *after*; None: nothing."""
    if after is None or before is after:
        return None
    step, interval_s = (before.step, before.interval_s) if before is not None else (0, 0.0)
    if after.interval_s > interval_s:
        return PaceChange.REFUSED
    if after.step == step:
        return None
    return PaceChange.FASTER if after.step > step else PaceChange.SLOWER


def _with_risen_rate(pacing: Pacing, now: float) -> Pacing:
    """Return *pacing* with a higher rate, if the host has had no trouble for long."""
    if not pacing.interval_s or now - pacing.refused_at < _RATE_RISES_AFTER_S:
        return pacing
    return replace(pacing, interval_s=pacing.interval_s / _RATE_RISE, refused_at=now)


def _window(pacing: Pacing) -> Window:
    stage = stage_of(pacing)
    if pacing.count < _FEWEST[stage]:
        return Window.OPEN
    if stage is not Stage.PACED:
        return Window.OVER
    if pacing.begun_at < pacing.since + WINDOW_S:
        return Window.OPEN
    mean_s = pacing.sum_s / pacing.count
    if mean_s <= FAST * pacing.base_s:
        return Window.FAST
    is_slow = mean_s > SLOW * pacing.base_s and pacing.slow + 1 >= _SLOW_WINDOWS
    return Window.SLOW if is_slow or mean_s > VERY_SLOW * pacing.base_s else Window.FAIR


def _moved(pacing: Pacing, window: Window, now: float, settings: PolitenessSettings) -> Pacing:
    if window is Window.OPEN:
        return pacing
    before = stage_of(pacing)
    stage, steps = MOVES[before, window]
    if steps > 0 and now < pacing.wait_until:
        steps = 0
    step = min(max(pacing.step + steps, 0), len(factors(settings)) - 1)
    mean_s = pacing.sum_s / pacing.count if pacing.count else 0.0
    base_s, probed_at = pacing.base_s, pacing.probed_at
    is_at_low_rate = factor_of(pacing, settings) >= _probe_factor(settings)
    is_at_low_rate &= window is not Window.TROUBLE
    if window is Window.OVER or is_at_low_rate:
        weight = _NEWEST if pacing.is_probing else _NEWEST_AT_LOW_RATE
        base_s, probed_at = base_s + weight * (mean_s - base_s) if base_s else mean_s, now
    setbacks, wait_until = pacing.setbacks, pacing.wait_until
    if step < pacing.step:
        is_slow_window = window is Window.SLOW
        wait_until = max(
            wait_until, now + _STEP_BACK_S * (2.0**setbacks if is_slow_window else 1.0)
        )
        setbacks = min(setbacks + is_slow_window, _MOST_STEP_BACKS)
    elif setbacks and now >= wait_until + _STEP_BACK_EXPIRES_S:
        setbacks, wait_until = setbacks - 1, now
    slow = pacing.slow
    if before is Stage.PACED:
        is_slow = mean_s > SLOW * pacing.base_s and window is not Window.SLOW
        slow = pacing.slow + 1 if is_slow else 0
    is_probe_due = step > 0 and now - probed_at >= PROBED_EVERY_S
    return replace(
        pacing,
        step=step,
        base_s=base_s,
        probed_at=probed_at,
        is_probing=stage is Stage.PROBES or (stage is Stage.PACED and is_probe_due),
        sum_s=0.0,
        count=0,
        since=now,
        slow=slow,
        setbacks=setbacks,
        wait_until=wait_until,
    )

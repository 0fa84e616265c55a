"""How fast a host may be asked, by what its server's answers say: the stages of its pace.

Rule: pure. A host begins at `delay_factor` times its last fetch. Every WINDOW answers their mean is
compared with what a fetch takes while we hardly use the server (the base). While it stays near
that, the factor falls, down to what `paced_share` allows; if the server gets slower, it rises
again. Once a minute some requests are made at factor 5, to measure the base anew: without that the
queue that we make ourselves would count as normal, and we would drive it up for ever.

Where the user allows more than one connection, a host whose factor can fall no further is asked
for one URL more at once with each window in which it stays fast, and for fewer when it gets slower.

A server that refuses (429, 503) is asked less often than it was when it refused, and 2 % more often
after ten minutes. Any other trouble takes one step back, or halves the requests at once. Both are
kept with the host, for as long as the host is known.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from math import sqrt
from typing import Final

from msgspec.structs import replace

from crawler.config.settings import PolitenessSettings
from crawler.model.types import Pace, Pacing

WINDOW: Final = 8  # the fewest answers whose mean is compared
WINDOW_S: Final = 5.0
"""The shortest time of a window. Service times scatter by half their mean: of eight answers the
mean is off by a quarter too often, of 25 seldom."""
FIRST_ANSWERS: Final = 16  # by which the base is known at first
PROBES: Final = 8
"""Answers by which the base is measured anew. At factor 5 they take as long as 13 others."""
PROBE_FACTOR: Final = 5.0
MOST_BASE_ANSWERS: Final = 64  # of which the base is the mean: then the latest count more
PROBED_EVERY_S: Final = 60.0
FAST: Final = 1.15  # times the base: then the factor may fall
SLOW: Final = 1.25  # times the base, three times in a row: then it rises
VERY_SLOW: Final = 2.0  # times the base, once
_SLOW_WINDOWS: Final = 3
SPREAD: Final = 0.5  # of service times, in times of their mean: means of few answers scatter
PARALLEL_FAST: Final = 1.25  # as these, of several requests at once, which wait for each other, too
PARALLEL_SLOW: Final = 1.5
_TURNS: Final = 2  # URLs of a bundle for each of those at once: a rest after each is half the time
_FALLING: Final = (5.0, 2.0, 1.0, 0.5)
_FEWER: Final = 0.7  # of the requests at once, where these make a server slower
_STEP_BACK_S: Final = 60.0  # after a step back, doubled with each
_MOST_STEP_BACKS: Final = 6  # so at most an hour
_STEP_BACK_EXPIRES_S: Final = 600.0  # without another step back, for each
_REFUSED_SHARE: Final = 0.9  # of the rate that was refused
_NEWEST: Final = 1 / 16  # the weight of an answer in the share of those that are refused
_OFTEN_REFUSED: Final = 0.15
"""Three of the last 16: it refuses what is too much. A few broken pages answer 503 however seldom
they are asked for."""
_RATE_RISE: Final = 1.02
_RATE_RISES_AFTER_S: Final = 600.0
_LONGEST_INTERVAL_S: Final = 60.0
"""Beyond this the host rests and is paused by other rules, which are not remembered for long."""


class Stage(StrEnum):
    """What is done at a host."""

    FIRST = "first"  # the base is not known: the first factor
    PROBES = "probes"  # the base is measured anew: PROBE_FACTOR at least
    PACED = "paced"  # the factor of its step
    PARALLEL = "parallel"  # the least factor, and more than one request at once


class Window(StrEnum):
    """What an answer, with those before it, says of the server."""

    OPEN = "open"  # too few answers yet
    FAST = "fast"
    FAIR = "fair"
    SLOW = "slow"
    TROUBLE = "trouble"
    OVER = "over"  # the base was measured: enough answers of the first stage, or of probes


class Move(StrEnum):
    """What follows a window that is not open."""

    STAY = "stay"
    BEGIN = "begin"  # the base is known: the first step is taken
    FALL = "fall"  # of the factor by a step; if it is the least one, two requests at once
    RISE = "rise"  # of the factor by a step
    MORE = "more"  # by one request at once
    FEWER = "fewer"  # by three of ten requests at once; with one, the host is paced again
    HALF = "half"  # of the requests at once


_LIMITS: Final = {
    Stage.PACED: (FAST, SLOW),
    Stage.PARALLEL: (PARALLEL_FAST, PARALLEL_SLOW),
}
"""Of a stage: the means, in times of the base, up to which a server is fast and from which it is
slow."""


MOVES: Final[dict[tuple[Stage, Window], Move]] = {
    (Stage.FIRST, Window.OVER): Move.BEGIN,
    (Stage.FIRST, Window.TROUBLE): Move.STAY,
    (Stage.PROBES, Window.OVER): Move.STAY,
    (Stage.PROBES, Window.TROUBLE): Move.RISE,
    (Stage.PACED, Window.FAST): Move.FALL,
    (Stage.PACED, Window.FAIR): Move.STAY,
    (Stage.PACED, Window.SLOW): Move.RISE,
    (Stage.PACED, Window.TROUBLE): Move.RISE,
    (Stage.PARALLEL, Window.FAST): Move.MORE,
    (Stage.PARALLEL, Window.FAIR): Move.STAY,
    (Stage.PARALLEL, Window.SLOW): Move.FEWER,
    (Stage.PARALLEL, Window.TROUBLE): Move.HALF,
}
"""What each stage does at the end of a window. Then a paced or parallel host whose base is older
than PROBED_EVERY_S is probed; probes are over with their window."""


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
    if pacing.is_probing:
        return Stage.PROBES
    return Stage.PARALLEL if pacing.at_once > 1 else Stage.PACED


def factor_of(pacing: Pacing | None, settings: PolitenessSettings) -> float:
    """Return so many times as long as its last fetch a host rests."""
    if pacing is None or not pacing.base_s:
        return settings.delay_factor
    steps = factors(settings)
    factor = steps[min(pacing.step, len(steps) - 1)]
    return max(factor, _probe_factor(settings)) if pacing.is_probing else factor


def _probe_factor(settings: PolitenessSettings) -> float:
    return min(PROBE_FACTOR, settings.delay_factor)


def least_rest_s(pacing: Pacing | None, fetch_s: float, settings: PolitenessSettings) -> float:
    """Return how long a host rests after a fetch of *fetch_s* without trouble, by its pace."""
    own_s = max(factor_of(pacing, settings) * fetch_s, settings.paced_min_delay_s)
    if pacing is None or not pacing.step:
        own_s = max(own_s, settings.min_delay_s)
    refused_s = 0.0 if pacing is None else pacing.interval_s - fetch_s
    return max(min(own_s, settings.max_delay_s), refused_s)


def at_once(pace: Pace, settings: PolitenessSettings) -> int:
    """Return how many URLs of a host of *pace* may be fetched at once: one, where a crawl-delay
    holds, or the last answer had trouble."""
    if pace.pacing is None or pace.crawl_delay_s or pace.failures or pace.unwelcome:
        return 1
    return _at_once(pace.pacing, settings)


def bundle_size(pace: Pace, settings: PolitenessSettings) -> int:
    """Return how many URLs of a host of *pace* are asked for before it rests."""
    return _bundle_size(at_once(pace, settings))


def _bundle_size(requests: int) -> int:
    return _TURNS * requests if requests > 1 else 1


def spacing_s(pace: Pace, settings: PolitenessSettings) -> float:
    """Return the time from one request of a bundle to the next: they are spread over the time that
    one takes with its rest, so that they do not come in a burst."""
    pacing = pace.pacing
    if pacing is None:
        return 0.0
    rest_s = max(factor_of(pacing, settings) * pacing.base_s, settings.paced_min_delay_s)
    return max((pacing.base_s + rest_s) / _at_once(pacing, settings), pacing.interval_s)


def times_as_fast(pace: Pace, settings: PolitenessSettings) -> float:
    """Return how many times as many URLs of a host are asked for in bundles as one by one, with the
    same rest."""
    requests = at_once(pace, settings)
    # The requests of a bundle are as far apart as `spacing_s` says; then the host rests once.
    return bundle_size(pace, settings) * requests / (bundle_size(pace, settings) + requests - 1)


def _at_once(pacing: Pacing, settings: PolitenessSettings) -> int:
    if stage_of(pacing) is not Stage.PARALLEL:
        return 1
    return min(pacing.at_once, _most_at_once(settings))


def _most_at_once(settings: PolitenessSettings) -> int:
    """Return how many the user allows: one, where their shortest rest holds at each stage."""
    holds = settings.paced_min_delay_s >= settings.min_delay_s > 0.0
    return 1 if holds else settings.paced_connections


def is_paced(settings: PolitenessSettings) -> bool:
    """Return whether hosts may be asked more often than at the first factor."""
    return len(factors(settings)) > 1


def pacing_after_answer(
    pacing: Pacing | None, fetch_s: float, begun_at: float, settings: PolitenessSettings
) -> Pacing | None:
    """Return the pace of a host after an answer without trouble to a request of *begun_at*."""
    if not is_paced(settings):
        return pacing
    pacing = pacing or Pacing(begun_at=begun_at)
    if pacing.interval_s:
        pacing = _with_risen_rate(pacing, begun_at)
    is_new_turn = begun_at > pacing.begun_at  # else it was asked for several URLs at once
    pacing = replace(
        pacing,
        sum_s=pacing.sum_s + fetch_s,
        count=pacing.count + 1,
        begun_at=begun_at if is_new_turn else pacing.begun_at,
        begun_before_at=pacing.begun_at if is_new_turn else pacing.begun_before_at,
        refused_share=pacing.refused_share * (1.0 - _NEWEST),
    )
    window = _window(pacing)
    return pacing if window is Window.OPEN else _moved(pacing, window, begun_at, settings)


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
    if begun_at > pacing.begun_at:
        pacing = replace(pacing, begun_at=begun_at, begun_before_at=pacing.begun_at)
    pacing = replace(pacing, troubled_at=begun_at)
    if not is_rate:
        return pacing if was_failing else _moved(pacing, Window.TROUBLE, begun_at, settings)
    share = pacing.refused_share
    pacing = replace(pacing, refused_share=share + (1.0 - share) * _NEWEST)
    if was_failing:
        return pacing
    is_proven = not pacing.interval_s or pacing.refused_share >= _OFTEN_REFUSED
    if is_proven:
        interval_s = max(pacing.interval_s, _seen_s(pacing, settings) / _REFUSED_SHARE)
        interval_s = min(interval_s, _LONGEST_INTERVAL_S)
        pacing = replace(pacing, interval_s=interval_s, refused_at=begun_at)
    if pacing.at_once > 1:
        halved = replace(pacing, at_once=_half(pacing.at_once))
        return _stepped_back(halved, begun_at, is_proven=False)  # its rate is remembered
    return pacing


def _seen_s(pacing: Pacing, settings: PolitenessSettings) -> float:
    """Return the time from one request to the next when a host refused: of the last turn, but no
    more than twice what its pace asks for. If it was asked less often, that had other reasons, and
    was not too often."""
    requests = _at_once(pacing, settings)
    mean_s = pacing.base_s or (pacing.sum_s / pacing.count if pacing.count else 0.0)
    usual_s = mean_s + least_rest_s(pacing, mean_s, settings)
    turn_s = pacing.begun_at - pacing.begun_before_at
    return max(0.0, min(turn_s / _bundle_size(requests), 2.0 * usual_s / requests))


def _half(requests: int) -> int:
    return max(1, requests // 2)


class PaceChange(StrEnum):
    """What an answer has changed for the requests that follow."""

    FASTER = "faster"
    SLOWER = "slower"
    REFUSED = "refused"  # asked less often since


def change_of(before: Pacing | None, after: Pacing | None) -> PaceChange | None:
    """Return what has changed from the pace *before* to the one *after*; None: nothing."""
    if after is None or before is after:
        return None
    before = before or Pacing()
    if after.interval_s > before.interval_s:
        return PaceChange.REFUSED
    was, speed = (before.step, before.at_once), (after.step, after.at_once)
    if speed == was:
        return None
    return PaceChange.FASTER if speed > was else PaceChange.SLOWER


def _with_risen_rate(pacing: Pacing, now: float) -> Pacing:
    """Return *pacing* with a higher rate, if the refused one was set or raised long ago."""
    if now - pacing.refused_at < _RATE_RISES_AFTER_S:
        return pacing
    return replace(pacing, interval_s=pacing.interval_s / _RATE_RISE, refused_at=now)


def _window(pacing: Pacing) -> Window:
    count = pacing.count
    if not pacing.base_s or pacing.is_probing:
        fewest = PROBES if pacing.base_s else FIRST_ANSWERS
        return Window.OVER if count >= fewest else Window.OPEN
    is_short = count < max(WINDOW, 2 * pacing.at_once)
    if is_short or pacing.begun_at < pacing.since + WINDOW_S:
        return Window.OPEN
    stage, mean_s = stage_of(pacing), pacing.sum_s / count
    if mean_s <= _LIMITS[stage][0] * pacing.base_s:
        return Window.FAST
    is_slow = _is_slow(pacing, stage, mean_s) and pacing.slow + 1 >= _SLOW_WINDOWS
    return Window.SLOW if is_slow or mean_s > VERY_SLOW * pacing.base_s else Window.FAIR


def _is_slow(pacing: Pacing, stage: Stage, mean_s: float) -> bool:
    """Return whether a window is slow, and it is hardly by chance."""
    by_chance = SPREAD * sqrt(1.0 / pacing.count + 1.0 / max(1, pacing.base_answers))
    return mean_s > (_LIMITS[stage][1] + by_chance) * pacing.base_s


def _speed(pacing: Pacing, move: Move, now: float, settings: PolitenessSettings) -> tuple[int, int]:
    """Return the step of the factor and the requests at once after *move*."""
    step, most = pacing.step, _most_at_once(settings)
    requests = min(pacing.at_once, most)
    last, may_rise = len(factors(settings)) - 1, now >= pacing.wait_until
    match move:
        case Move.BEGIN | Move.FALL if may_rise:
            if step < last:
                return step + 1, requests
            return last, 1 if _is_bound(pacing, settings) else min(2, most)
        case Move.MORE if may_rise and not _is_bound(pacing, settings):
            return step, min(requests + 1, most)
        case Move.RISE:
            return max(min(step, last) - 1, 0), requests
        case Move.FEWER:
            return step, max(1, int(requests * _FEWER))
        case Move.HALF:
            return step, _half(requests)
    return min(step, last), requests


def _is_bound(pacing: Pacing, settings: PolitenessSettings) -> bool:
    """Return whether a refused rate, not the host's own speed, decides how often it is asked: then
    more requests at once would hardly be more in a minute."""
    mean_s = pacing.sum_s / max(1, pacing.count)
    own_s = max(factor_of(pacing, settings) * mean_s, settings.paced_min_delay_s)
    return pacing.interval_s > 2.0 * (mean_s + own_s) / _at_once(pacing, settings)


def _moved(pacing: Pacing, window: Window, now: float, settings: PolitenessSettings) -> Pacing:
    before = stage_of(pacing)
    step, requests = _speed(pacing, MOVES[before, window], now, settings)
    mean_s = pacing.sum_s / pacing.count if pacing.count else 0.0
    base_s, probed_at = pacing.base_s, pacing.probed_at
    is_at_low_rate = factor_of(pacing, settings) >= _probe_factor(settings)
    is_at_low_rate &= window is not Window.TROUBLE
    if window is Window.OVER or is_at_low_rate:
        known = pacing.base_answers
        base_s += (mean_s - base_s) * pacing.count / (known + pacing.count)
        probed_at = now
        pacing = replace(pacing, base_answers=min(known + pacing.count, MOST_BASE_ANSWERS))
    is_back = (step, requests) < (pacing.step, pacing.at_once)
    if is_back:
        pacing = _stepped_back(pacing, now, is_proven=window is Window.SLOW)
    elif pacing.setbacks and now >= pacing.wait_until + _STEP_BACK_EXPIRES_S:
        pacing = replace(pacing, setbacks=pacing.setbacks - 1, wait_until=now)
    slow = pacing.slow
    if before in (Stage.PACED, Stage.PARALLEL):
        is_slow = window is Window.FAIR and _is_slow(pacing, before, mean_s)
        slow = pacing.slow + 1 if is_slow else 0
    is_probe_due = step > 0 and now - probed_at >= PROBED_EVERY_S
    is_still_probed = before is Stage.PROBES and window is not Window.OVER
    return replace(
        pacing,
        step=step,
        at_once=requests,
        base_s=base_s,
        probed_at=probed_at,
        is_probing=is_still_probed or is_probe_due,
        sum_s=0.0,
        count=0,
        since=now,
        slow=slow,
    )


def _stepped_back(pacing: Pacing, now: float, *, is_proven: bool) -> Pacing:
    """Return *pacing* that goes no step ahead for a while. *is_proven*: the server got slower, or
    refused, at the speed before; else it may have been an accident."""
    wait_s = _STEP_BACK_S * (2.0**pacing.setbacks if is_proven else 1.0)
    return replace(
        pacing,
        setbacks=min(pacing.setbacks + is_proven, _MOST_STEP_BACKS),
        wait_until=max(pacing.wait_until, now + wait_s),
    )

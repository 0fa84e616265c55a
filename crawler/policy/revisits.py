"""When a page is visited again: the page whose visit gains most comes first.

Rule: pure; times are days, rates are changes a day. Changes of a page are taken for a Poisson
process (Cho and Garcia-Molina, 2003). What is known of its rate is a gamma distribution: two
numbers a page, which a visit updates in closed form. A visit is worth the weighted days for which
the copy will then be fresh and would else be stale: that grows with the time since the last one.
Pages whose visit is worth a certain multiplier are due, whatever that is: with a larger budget it
falls, and no page has to be moved.

As long as little is known of a page, its value grows without bound. So each is visited again some
day, and no rule for exploration is needed; the mean rate alone would leave many pages for good that
changed rarely at first (.863 of the best possible freshness at a visit a month, not .967:
docs/decisions/0058). Wrong priors cost little if they are too low, and more if they are too high.

numba can compile the functions of single pages: they call each other and `math`, and have floats
and named tuples of them. `python -m bench.fresh` runs them so.
"""

from __future__ import annotations

from math import erf, exp, expm1, inf, lgamma, log, log1p, sqrt
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

LONGEST_DAYS: Final = 350.0
"""Between two visits of a page, so that none is left alone for a year though visits are late."""
_LONGEST_CYCLES: Final = 10.0
"""Nor much longer than if all were visited in turn: pages that seem to change all the time are not
worth a visit, and with a budget of a visit a week their copies would be half a year old."""
_FEWEST_CYCLES: Final = 2.0  # where the budget is small, or all visits would be for this rule
PRIOR_SHAPE: Final = 0.2
"""Of a page never visited before. Rates differ by orders of magnitude from page to page; with a
shape of 1 and a mean that is ten times too high .922 of the best freshness is reached, not .948."""
GROUP_CHANGES: Final = 1.4
"""Changes that a group of pages needs before its own mean rate counts as much as the wider one."""
MOST_SHAPE: Final = 1e6
"""Beyond, the rate is known to a thousandth; the differences below would lose their digits."""
FOLLOWED_VISITS: Final = 500.0
"""Of which the multiplier follows the values. Guess: many beside what single visits differ by, few
beside the pages of a crawl."""
REORDERED: Final = 1.05
"""By how much the multiplier may change until classes are ordered anew. At 1.01 chance does it so
often that it takes longer than all else."""

_STEPS_A_DOUBLING: Final = 2 / log(2.0)  # classes are a factor of 1.41 apart
_SHAPES: Final = 14  # by factors of 2, as little depends on them, to 200
_LEAST_SHAPE: Final = -3  # powers of 2, in times of the prior's, which most pages keep
_RATES: Final = 66  # from one change in 180 years to one a second
_LEAST_RATE: Final = -32  # powers of 1.41
_WEIGHTS: Final = 64
_LEAST_WEIGHT: Final = -32
CLASSES: Final = _SHAPES * _RATES * _WEIGHTS
_PACKED: Final = Struct("<ff")


class ChangeRate(NamedTuple):
    """What is known of how often a page changes: a gamma distribution with mean shape / days."""

    shape: float  # above 0; the larger, the more is known
    days: float  # above 0


class GroupChanges(NamedTuple):
    """What was seen of the pages of a host, or of a pattern."""

    changes: float  # visits that found one
    days: float  # between visits, summed over its pages


def prior(mean: float) -> ChangeRate:
    """Return what is known of a page never visited before; *mean*: changes a day of pages alike."""
    return ChangeRate(PRIOR_SHAPE, PRIOR_SHAPE / mean)


def mean_rate(seen: GroupChanges, wider: float) -> float:
    """Return the changes a day of pages of a group; *wider*: those of the group that it is part
    of. Low, since of several changes between two visits one is seen."""
    return (GROUP_CHANGES + seen.changes) / (GROUP_CHANGES / wider + seen.days)


def after_visit(rate: ChangeRate, interval_days: float, is_changed: bool) -> ChangeRate:
    """Return what is known after a visit *interval_days* after the one before. Exact if nothing has
    changed; else the gamma distribution with the mean and the variance of the exact one."""
    shape, days = rate
    interval_days = max(0.0, interval_days)  # the clock was set back
    if not is_changed:
        return ChangeRate(shape, days + interval_days)
    grown = log1p(interval_days / days)
    if grown < 1e-9:  # the limit: such an interval says that there was a change, and no more
        return ChangeRate(min(shape + 1.0, MOST_SHAPE), days)
    changed = -expm1(-shape * grown) / shape
    once_more = -expm1(-(shape + 1.0) * grown)
    twice_more = -expm1(-(shape + 2.0) * grown)
    spread = (shape + 1.0) * twice_more * changed / (once_more * once_more) - 1.0
    shape = 1.0 / max(spread, 1.0 / MOST_SHAPE)
    return ChangeRate(shape, shape * days * changed / once_more)


def pack_rate(rate: ChangeRate) -> int:
    """Return *rate* in 8 bytes, to seven digits; never 0."""
    return int.from_bytes(_PACKED.pack(*rate))


def unpack_rate(packed: int) -> ChangeRate | None:
    """Return the rate that `pack_rate` packed, or None for 0 and what is no rate."""
    rate = ChangeRate(*_PACKED.unpack(packed.to_bytes(_PACKED.size)))
    return rate if 0.0 < rate.shape < inf and 0.0 < rate.days < inf else None


def stale_chance(rate: ChangeRate, since_days: float) -> float:
    """Return the probability that the page has changed in the days since the last visit."""
    return -expm1(-rate.shape * log1p(max(0.0, since_days) / rate.days))


def stale_days(rate: ChangeRate, since_days: float) -> float:
    """Return for how many of the days since the last visit the copy is stale, in the mean."""
    shape, days = rate
    since = max(0.0, since_days) / days
    if (shape + 1.0) * since < 1e-4:
        return 0.5 * days * shape * since * since
    grown = log1p(since)
    fresh = expm1((1.0 - shape) * grown) / (1.0 - shape) if abs(1.0 - shape) > 1e-9 else grown
    return days * (since - fresh)


def rate_quantile(rate: ChangeRate, chance: float) -> float:
    """Return the changes a day that the page has fewer of with this *chance*, to a thousandth."""
    shape, days = rate
    low, high = -8.0, 8.0
    if shape > 50.0:  # Wilson and Hilferty, 1931, by the normal distribution
        for _ in range(60):
            middle = (low + high) / 2
            is_below = (1.0 + erf(middle / sqrt(2.0))) / 2 < chance
            low, high = (middle, high) if is_below else (low, middle)
        return shape * (1.0 - 1.0 / (9.0 * shape) + high / (3.0 * sqrt(shape))) ** 3 / days
    low, high = -700.0, log(shape + 12.0 * sqrt(shape) + 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        # The incomplete gamma function, by its series.
        term = total = exp(shape * middle - exp(middle) - lgamma(shape + 1.0))
        number = shape
        while term > total * 1e-9:
            number += 1.0
            term *= exp(middle) / number
            total += term
        low, high = (middle, high) if total < chance else (low, middle)
    return exp(high) / days


def crawl_value(rate: ChangeRate, since_days: float, weight: float) -> float:
    """Return what a visit gains now, in weighted days: the mean of w/r (1 - (1 + rt) e^-rt) over
    the rates r, for a page of weight w and t days since its last visit. For a page never fetched
    take LONGEST_DAYS."""
    return weight * rate.days * _value(rate.shape, max(0.0, since_days) / rate.days)


def _value(shape: float, since: float) -> float:
    """Return the value of a visit by a distribution whose `days` are 1, for a weight of 1: the
    integral of shape s (1 + s)^-(shape + 1) from 0 to *since*, each form where it is exact."""
    if (shape + 1.0) * since < 1e-3:
        third = 1 / 3 - (shape + 2.0) * since * (1 / 8 - (shape + 3.0) * since / 30)
        return shape * since * since * (0.5 - (shape + 1.0) * since * third)
    grown = log1p(since)
    fresh = exp(-shape * grown)
    if shape < 0.5:
        return (shape * since * fresh + expm1(-shape * grown)) / (1.0 - shape)
    more = shape - 1.0
    return (-expm1(-more * grown) / more if more else grown) - since * fresh


def due_after(
    rate: ChangeRate, weight: float, multiplier: float, longest_days: float = LONGEST_DAYS
) -> float:
    """Return how many days after its last visit a page's value reaches *multiplier*, to a millionth
    of it; *longest_days* if it does not before."""
    if multiplier <= 0.0:
        return 0.0
    if crawl_value(rate, longest_days, weight) <= multiplier:
        return longest_days
    shape, days = rate
    sought = max(multiplier / (weight * days), 1e-100)  # below, squares would be zero
    most = longest_days / days
    # Both are too early: the value is below shape/2 s^2, and below shape/(1-shape) s^(1-shape).
    since = min(sqrt(2.0 * sought / shape), most)
    if shape < 0.9:
        since = max(since, ((1.0 - shape) * sought / shape) ** (1.0 / (1.0 - shape)))
    # The logarithm of the value is concave in that of the time, so Newton's steps pass no root.
    for _ in range(50):
        value = _value(shape, since)
        slope = shape * since * since * exp(-(shape + 1.0) * log1p(since)) / value
        missing = log(sought / value)
        if missing < 1e-6 or since >= most:
            break
        since = min(since * exp(min(missing / max(slope, 1e-9), 50.0)), most)
    return min(since * days, longest_days)


class Signals(NamedTuple):
    """What came of the dates that sitemaps and feeds of a host have for its pages."""

    changes: int = 0  # visits of pages that have a date, which found a change
    found: int = 0  # of these, visits after a signal: a new date
    changed_signals: int = 0  # between two visits of which the second found a change
    changed_s: int = 0  # the seconds between these visits
    still_signals: int = 0  # and between the others
    still_s: int = 0

    @property
    def signals(self) -> int:
        return self.changed_signals + self.still_signals


_FEWEST_SIGNALS: Final = 10  # from which on they count
_BEST: Final = 0.95  # share of changes that are signalled, and of signals that are changes
_MANY: Final = 200  # signals
_USEFUL: Final = 0.06  # guess: of fewer that are changes little is gained
_COUNTED: Final = 4_000  # signals, beyond which all counts are halved: a host may mend its dates


def after_signals(known: Signals, signals: int, interval_s: int, is_changed: bool) -> Signals:
    """Return what is known of the dates after a visit of a page, *interval_s* after the one before,
    with so many *signals* in between."""
    changes, found, changed, changed_s, still, still_s = known
    if is_changed:
        changes, found = changes + 1, found + (signals > 0)
        changed, changed_s = changed + signals, changed_s + interval_s
    else:
        still, still_s = still + signals, still_s + interval_s
    after = Signals(changes, found, changed, changed_s, still, still_s)
    return Signals(*(each // 2 for each in after)) if after.signals > _COUNTED else after


def _right(signals: Signals) -> float:
    """Return how many signals were changes: those that came while pages changed, beyond as many a
    day as came for pages that did not."""
    if signals.signals < _FEWEST_SIGNALS or not signals.still_s:
        return 0.0
    by_chance = (signals.still_signals + 1) / signals.still_s * signals.changed_s
    return max(0.0, signals.changed_signals - by_chance)


def precision(signals: Signals) -> float:
    """Return the share of signals that are changes; 0 while too little is known of it."""
    return min(_right(signals) / max(signals.signals, 1), _BEST)


def recall(signals: Signals) -> float:
    """Return the share of changes that are signalled, of those that visits found; 0 while too
    little is known of it."""
    if are_useless(signals):
        return 0.0
    return min(min(_right(signals), signals.found) / max(signals.changes, 1), _BEST)


def are_useless(signals: Signals) -> bool:
    """Return whether the dates say nothing: as where each is that of today."""
    return signals.signals >= _MANY and precision(signals) < _USEFUL


def unsignalled(rate: ChangeRate, signals: Signals) -> ChangeRate:
    """Return how often a dated page changes without a signal."""
    return ChangeRate(rate.shape, rate.days / (1.0 - recall(signals)))


def signal_days(rate: ChangeRate, signals: Signals) -> float:
    """Return how many days a signal counts for. With n of them, t days after its last visit, a page
    is fresh with the probability e^-at (1 - p)^n, as if n -ln(1 - p) / a days more had passed (a:
    `unsignalled`, p: the precision; Busa-Fekete et al., WWW 2025). A signal alone is no reason for
    a visit: then pages that change all the time would take all of them."""
    if are_useless(signals):
        return 0.0
    rare = unsignalled(rate, signals)
    return min(-log1p(-precision(signals)) * rare.days / rare.shape, LONGEST_DAYS)


NO_LINKS: Final = ChangeRate(0.5, 1.0)
"""What is known of how many new links come to a page, before it was visited again."""
BRINGS: Final = 2
"""Visits with new links, from which on a page is visited for these."""
LEAST_LINK_DAYS: Final = 600.0 / 86_400.0
MOST_LINK_DAYS: Final = 14.0
"""Between two visits of a page for its links (Common Crawl's news crawl has these bounds)."""
_KEPT: Final = 0.8  # of what is known, at each visit: days and nights, and sections that are closed
_LINKS_A_VISIT: Final = 4.0
"""A page that is new is worth more than any that is known, so one link would pay for a visit; with
four a quarter of the fetches is for the list. They wait half as long."""


def after_links(rate: ChangeRate, interval_days: float, new_links: int) -> ChangeRate:
    """Return how often new links come to a page, after a visit that found *new_links*."""
    shape, days = rate
    return ChangeRate(_KEPT * shape + new_links, _KEPT * days + max(0.0, interval_days))


def link_days(rate: ChangeRate, places: int, last_days: float) -> float:
    """Return after how many days a page is visited for its links: before half of its *places* have
    been taken by new ones, or links are lost, and with twice its last interval at most."""
    links = min(_LINKS_A_VISIT, max(places, 1) / 2)
    wanted = min(links * rate.days / rate.shape, 2.0 * max(last_days, LEAST_LINK_DAYS))
    return min(max(wanted, LEAST_LINK_DAYS), MOST_LINK_DAYS)


def longest_days(cycle_days: float) -> float:
    """Return after how many days a page is due whatever its visit is worth; *cycle_days*: in which
    the budget allows a visit of each page."""
    longest = min(LONGEST_DAYS, _LONGEST_CYCLES * cycle_days)
    return max(longest, _FEWEST_CYCLES * cycle_days)


def class_of(rate: ChangeRate, weight: float) -> int:
    """Return the class of pages that are due at nearly the same time after their last visit,
    whatever the multiplier is: a queue of each class in the order of last visits is in the order of
    values. From 0 to CLASSES less one."""
    shape = round(0.5 * _STEPS_A_DOUBLING * log(rate.shape / PRIOR_SHAPE)) - _LEAST_SHAPE
    mean = round(_STEPS_A_DOUBLING * log(rate.shape / rate.days)) - _LEAST_RATE
    worth = round(_STEPS_A_DOUBLING * log(max(weight, 1e-9))) - _LEAST_WEIGHT
    shape = min(max(shape, 0), _SHAPES - 1)
    mean = min(max(mean, 0), _RATES - 1)
    return (shape * _RATES + mean) * _WEIGHTS + min(max(worth, 0), _WEIGHTS - 1)


def middle_of(number: int) -> tuple[ChangeRate, float]:
    """Return the rate and weight in the middle of a class: when it is due is that of all of it."""
    place, worth = divmod(number, _WEIGHTS)
    shape_place, mean = divmod(place, _RATES)
    shape = PRIOR_SHAPE * 2.0 ** (shape_place + _LEAST_SHAPE)
    rate = exp((mean + _LEAST_RATE) / _STEPS_A_DOUBLING)
    return ChangeRate(shape, shape / rate), exp((worth + _LEAST_WEIGHT) / _STEPS_A_DOUBLING)


def is_new_order(multiplier: float, ordered_by: float) -> bool:
    """Return whether the multiplier has left the one by which classes are ordered: when each is due
    is computed anew, some thousand times 3 us, and no page is moved."""
    return not ordered_by / REORDERED < multiplier < ordered_by * REORDERED


def next_multiplier(multiplier: float, value: float) -> float:
    """Return the multiplier after a visit that gained *value*. Visits are made as the budget allows
    and those that are due first come first, so what they gain is what is due."""
    return multiplier * exp(log(max(value, 1e-12) / multiplier) / FOLLOWED_VISITS)


def fixed_intervals(
    rates: NDArray[np.float64], weights: NDArray[np.float64], visits_per_day: float
) -> NDArray[np.float64]:
    """Return the days between two visits of each page if the rates are known, infinite for those
    that are not worth a visit. The rates of visits are those that would be best at random times
    (Azar et al., 2018); at fixed intervals they reach .994 of the best possible freshness."""
    order = np.argsort(-weights / rates, kind="stable")
    roots, changes = np.sqrt(weights * rates), rates[order]
    scales = (visits_per_day + np.cumsum(changes)) / np.cumsum(roots[order])
    kept = np.nonzero(weights[order] * scales**2 > changes)[0]
    visits = np.maximum(roots * scales[kept[-1]] - rates, 0.0)
    days: NDArray[np.float64] = np.full(len(visits), np.inf)
    np.divide(1.0, visits, out=days, where=visits > 0)
    return days

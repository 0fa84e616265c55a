"""A world of pages that change, and how fresh ways to visit it keep their copies.

Rule: times are days, rates a day. Figures are means over time and weighted pages. Changes are a
Poisson process, so the first one after a visit is exponential, and a visit costs a few
microseconds. The functions that make the visits are plain Python, with floats and lists of them;
`compiled_together` compiles them together with those of the policy that they call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import exp, inf, log
from types import FunctionType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crawler.policy import revisits
from crawler.policy.revisits import (
    CLASSES,
    MOST_SHAPE,
    ChangeRate,
    GroupChanges,
    after_visit,
    class_of,
    crawl_value,
    due_after,
    is_new_order,
    longest_days,
    mean_rate,
    middle_of,
    next_multiplier,
    prior,
)

Floats = NDArray[np.float64]

WARM_UP: Final = 180.0
MEASURED: Final = 365.0
END: Final = WARM_UP + MEASURED
FIRST: Final = 60.0
_NUTCH_LEAST: Final = 60 / 86_400  # db.fetch.schedule.adaptive.min_interval
_NUTCH_MOST: Final = 365.0
_STORM_LEAST: Final = 1 / 24  # scheduler.adaptive.fetchInterval.min
_STORM_MOST: Final = 14.0


@dataclass(frozen=True, slots=True)
class World:
    """Pages: how often each changes, what it is worth, and the number of its host."""

    rates: Floats
    weights: Floats  # mean 1
    hosts: NDArray[np.int64]

    @property
    def pages(self) -> int:
        return len(self.rates)

    def fresh(self, visits: Floats) -> float:
        """Return the freshness by *visits* of each page a day at fixed intervals."""
        ratio = np.divide(self.rates, visits, out=np.full(self.pages, inf), where=visits > 0)
        return float((self.weights * -np.expm1(-ratio) / ratio).sum() / self.pages)

    def fresh_at_random(self, visits: Floats) -> float:
        """Return the freshness if visits are a Poisson process."""
        return float((self.weights * visits / (visits + self.rates)).sum() / self.pages)


def world(pages: int = 100_000, hosts: int = 2_000, seed: int = 3) -> World:
    """Return a web as those who measured found it: of a page's log-normal rate half of the variance
    is its host's, 30 % of pages hardly ever change, weights are Pareto(1.5). Of the pages .150
    change within a day, .355 in a week, .518 in a month and .693 in a year (of .com 23 % in a day
    and 40 % in a week: Cho and Garcia-Molina, 2000; half in a year: Ntoulas et al., 2004)."""
    random = np.random.default_rng(seed)
    sizes = 1 / np.arange(1, hosts + 1) ** 0.8
    host = random.choice(hosts, pages, p=sizes / sizes.sum())
    spread = np.sqrt(0.5) * random.normal(size=hosts)[host]
    spread += np.sqrt(0.5) * random.normal(size=pages)
    rates = np.exp(np.log(1 / 10) + 2.0 * spread)
    still = random.beta(0.6, 1.4, hosts)[host]
    rates = np.clip(np.where(random.random(pages) < still, 1 / 3650, rates), 1 / 3650, 24.0)
    weights = (1 - random.random(pages)) ** (-1 / 1.5)
    return World(rates, weights / weights.mean(), host)


# What is known in closed form: visits of each page a day, `budget` in all.


def best_visits(rates: Floats, weights: Floats, budget: float) -> Floats:
    """Return the best ones at fixed intervals (Cho and Garcia-Molina, 2003)."""
    low, high = 1e-12, float((weights / rates).max())
    visits = np.zeros(len(rates))
    for _ in range(60):
        multiplier = np.sqrt(low * high)
        lost = multiplier * rates / weights
        visits = np.where(lost < 1, rates / _ratio_of(np.minimum(lost, 0.999_999_999)), 0.0)
        low, high = (multiplier, high) if visits.sum() > budget else (low, multiplier)
    return visits


def _ratio_of(gained: Floats) -> Floats:
    """Return x with 1 - (1 + x) e^-x = *gained*."""
    low, high = np.full(len(gained), 1e-9), np.full(len(gained), 40.0)
    for _ in range(50):
        middle = np.sqrt(low * high)
        is_below = -np.expm1(-middle) - middle * np.exp(-middle) < gained
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return high


def crawl_visits(rates: Floats, weights: Floats, budget: float) -> Floats:
    """Return those of LambdaCrawl (Kolobov et al., 2019), by which no page starves."""
    low, high = 1e-12, 1e12
    visits = np.zeros(len(rates))
    for _ in range(200):
        multiplier = np.sqrt(low * high)
        visits = (np.sqrt(rates**2 + 4 * weights * rates / multiplier) - rates) / 2
        low, high = (multiplier, high) if visits.sum() > budget else (low, multiplier)
    return visits


def visits_by_score(weights: Floats, budget: float) -> Floats:
    """Return those of Common Crawl's kind: by score and the days since the last visit, the sum of
    which has a threshold."""
    cycle = len(weights) / budget
    waits = cycle * np.argsort(np.argsort(weights)) / len(weights)
    low, high = cycle * 1.0001, cycle * 50
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 / (middle - waits)).sum() > budget else (low, middle)
    return 1 / (high - waits)


def best_of_classes(of: World, budget: float) -> tuple[float, int]:
    """Return the best freshness if each class has one interval, and the number of classes."""
    known = [
        class_of(ChangeRate(MOST_SHAPE, MOST_SHAPE / rate), weight)
        for rate, weight in zip(of.rates.tolist(), of.weights.tolist(), strict=True)
    ]
    classes, place = np.unique(known, return_inverse=True)
    middles = [middle_of(each) for each in classes.tolist()]
    rates = np.array([rate.shape / rate.days for rate, _ in middles])[place]
    weights = np.array([weight for _, weight in middles])[place]
    return of.fresh(best_visits(rates, weights, budget)), len(classes)


# What is simulated. All pages have just been crawled once in random order when it begins.

UNIFORM: Final = 0
NUTCH: Final = 1
STORM: Final = 2


def _visit_by_date(
    kind: int,
    rates: Sequence[float],
    weights: Sequence[float],
    begun: Sequence[float],
    draws: Sequence[float],
    budget: float,
    first_interval: float,
) -> tuple[float, float, float, float]:
    """Visit the page first whose date is past for longest. Return sums over weighted pages: days
    fresh while it was measured and in the first days, age; the visits, of all that there could be
    while it was measured."""
    pages = len(rates)
    last, intervals, modified = list(begun), [first_interval] * pages, list(begun)
    queue = [(last[page] + first_interval, page) for page in range(pages)]
    heapify(queue)
    fresh = first = age = now = 0.0
    visits = slots = drawn = 0
    while True:
        now += 1 / budget
        if now >= END:
            break
        slots += now > WARM_UP
        if queue[0][0] > now:
            continue
        page = queue[0][1]
        change = draws[drawn] / rates[page]
        drawn += 1
        days = kept_days(last[page], now, change)
        fresh += weights[page] * days[0]
        first += weights[page] * days[1]
        age += weights[page] * days[2]
        visits += now > WARM_UP
        is_changed = change < now - last[page]
        last[page] = now
        interval, since = intervals[page], 0.0
        if kind == NUTCH:  # AdaptiveFetchSchedule with its defaults, sync_delta among them
            interval *= 0.8 if is_changed else 1.4
            if is_changed:
                modified[page] = now
            since = now - modified[page]
            interval = min(max(interval, since, _NUTCH_LEAST), _NUTCH_MOST)
        elif kind == STORM:  # AdaptiveScheduler
            if is_changed:
                interval = 0.5 * interval + 0.5 * _STORM_LEAST
            else:
                interval = min(1.5 * interval, _STORM_MOST)
        intervals[page] = interval
        heapreplace(queue, (max(now - 0.3 * since + interval, now + 1e-9), page))
    for page in range(pages):
        days = kept_days(last[page], END, draws[drawn] / rates[page])
        drawn += 1
        fresh += weights[page] * days[0]
        first += weights[page] * days[1]
        age += weights[page] * days[2]
    return fresh, first, age, visits / slots


def kept_days(last: float, now: float, change: float) -> tuple[float, float, float]:
    """Return for how many days a copy of *last* was fresh until *now* while it was measured, and in
    the first days, and its age, summed over the former; its page changed *change* days later."""
    stale = min(last + change, now)
    fresh = max(0.0, min(stale, END) - max(last, WARM_UP))
    first = max(0.0, min(stale, FIRST) - max(last, 0.0))
    begun = max(stale, WARM_UP)
    age = ((now - stale) ** 2 - (begun - stale) ** 2) / 2 if now > begun else 0.0
    return fresh, first, age


BAYES: Final = 0
BAYES_OF_HOSTS: Final = 1
MEAN: Final = 2  # the posterior's mean is taken for the rate
COUNTED: Final = 3  # expected changes and a prior's one are counted, and taken for the rate
KNOWN: Final = 4


def _visit_by_value(
    kind: int,
    rates: Sequence[float],
    weights: Sequence[float],
    hosts: Sequence[int],
    begun: Sequence[float],
    order: Sequence[int],
    draws: Sequence[float],
    budget: float,
    later: float,
    shape: float,
    usual: float,
) -> tuple[float, float, float, float, float, int, float]:
    """Visit the page first whose visit gains most, by queues of classes as a frontier has them.
    *begun*: the last visits, *order*: theirs; *budget*: visits a day, *later* from the middle of
    what is measured on; *usual*: the prior's mean. Return what `_visit_by_date` does, and the
    longest time between two visits, the number of classes, and by how much the multiplier differs
    from what visits gain, in its logarithm, over as many visits as a twentieth of the pages, after
    as many."""
    pages = len(rates)
    last, is_by_mean = list(begun), kind in (MEAN, COUNTED)
    longest = longest_days(pages / budget) if kind != KNOWN else 3_650.0
    shapes, days = [shape] * pages, [shape / usual] * pages
    if kind == KNOWN:
        shapes, days = [MOST_SHAPE] * pages, [MOST_SHAPE / rate for rate in rates]
    changes_of, days_of = [0.0] * (max(hosts) + 1), [0.0] * (max(hosts) + 1)
    is_new = [True] * pages
    heads, tails, behind = [-1] * CLASSES, [-1] * CLASSES, [-1] * pages
    waits, used = [0.0] * CLASSES, [0 for _ in range(0)]
    for page in order:
        number = class_of(ChangeRate(shapes[page], days[page]), weights[page])
        if heads[number] < 0:
            heads[number] = page
            used.append(number)
        else:
            behind[tails[number]] = page
        tails[number] = page
    multiplier = crawl_value(ChangeRate(shape, shape / usual), pages / budget, 1.0)
    ordered_by = 0.0
    queue = [(0.0, 0)]
    fresh = first = age = now = most = 0.0
    drawn = after = 0
    changes_at = (WARM_UP + END) / 2
    gained = watched = lag = 0.0
    while True:
        now += 1 / (budget if now < changes_at else later)
        if now >= changes_at and kind != KNOWN:
            longest = longest_days(pages / later)
        if now >= END:
            break
        if is_new_order(multiplier, ordered_by):
            ordered_by = multiplier
            queue.clear()
            for number in used:
                middle = middle_of(number)
                waits[number] = due_after(middle[0], middle[1], ordered_by, longest)
                if heads[number] >= 0:
                    queue.append((last[heads[number]] + waits[number], number))
            heapify(queue)
        number = queue[0][1]
        page = heads[number]
        heads[number] = behind[page]
        if heads[number] >= 0:
            heapreplace(queue, (last[heads[number]] + waits[number], number))
        else:
            heappop(queue)
        since = now - last[page]
        change = draws[drawn] / rates[page]
        drawn += 1
        kept = kept_days(last[page], now, change)
        fresh += weights[page] * kept[0]
        first += weights[page] * kept[1]
        age += weights[page] * kept[2]
        if now > WARM_UP:
            most = max(most, since)
        is_changed = change < since
        last[page] = now
        # What the page's visit was worth, and what is known of it then.
        rate = ChangeRate(shapes[page], days[page])
        if kind == BAYES_OF_HOSTS:
            host = hosts[page]
            if is_new[page]:
                is_new[page] = False
                rate = prior(mean_rate(GroupChanges(changes_of[host], days_of[host]), usual))
            changes_of[host] += is_changed
            days_of[host] += since
        if is_by_mean:
            mean = rate.shape / rate.days
            value = crawl_value(ChangeRate(MOST_SHAPE, MOST_SHAPE / mean), since, weights[page])
        else:
            value = crawl_value(rate, since, weights[page])
        if since < longest:
            multiplier = next_multiplier(multiplier, value)
        if now > changes_at:
            after += 1
            if after > pages / 20 and after <= pages / 10:
                gained += log(value)
                watched += log(multiplier)
                lag = (gained - watched) / (after - pages / 20)
        if kind == COUNTED:
            mean = rate.shape / rate.days
            if is_changed:
                shapes[page] += mean * since / max(1 - exp(-mean * since), 1e-12)
            days[page] += since
        elif kind != KNOWN:
            learned = after_visit(rate, since, is_changed)
            shapes[page] = learned.shape
            days[page] = learned.days
        rate = ChangeRate(shapes[page], days[page])
        if is_by_mean:
            rate = ChangeRate(MOST_SHAPE, MOST_SHAPE * rate.days / rate.shape)
        number = class_of(rate, weights[page])
        behind[page] = -1
        if heads[number] < 0:
            if waits[number] == 0.0:
                middle = middle_of(number)
                waits[number] = due_after(middle[0], middle[1], ordered_by, longest)
                used.append(number)
            heads[number] = page
            heappush(queue, (now + waits[number], number))
        else:
            behind[tails[number]] = page
        tails[number] = page
    for page in range(pages):
        kept = kept_days(last[page], END, draws[drawn] / rates[page])
        drawn += 1
        fresh += weights[page] * kept[0]
        first += weights[page] * kept[1]
        age += weights[page] * kept[2]
        most = max(most, END - last[page])
    return fresh, first, age, 1.0, most, len(used), lag


@dataclass(frozen=True, slots=True)
class Kept:
    """How fresh the copies were."""

    fresh: float
    first: float = 0.0  # the same, in the FIRST days
    age: float = 0.0  # days, of stale and fresh ones
    used: float = 1.0  # of the budget
    longest: float = 0.0  # days between two visits of one page
    classes: int = 0
    lag: float = 0.0  # logarithm
    never: float = 0.0  # share of pages without a visit while it was measured


@dataclass(frozen=True, slots=True)
class Visitors:
    """Ways to visit a world, compiled or not."""

    by_date: Callable[..., tuple[float, ...]]
    by_value: Callable[..., tuple[float, ...]]

    def dates(self, kind: int, of: World, budget: float, first_interval: float) -> Kept:
        start = _start(of, budget, END * budget)
        sums = self.by_date(
            kind, of.rates, of.weights, start.last, start.draws, budget, first_interval
        )
        return Kept(*_means(of, sums), used=sums[3])

    def values(
        self,
        kind: int,
        of: World,
        budget: float,
        shape: float,
        usual: float,
        times: float = 1.0,
        begun: Floats | None = None,
    ) -> Kept:
        """*times* the budget are spent from the middle of what is measured on. *begun*: when each
        page was visited first, in place of the days of one crawl by the budget."""
        start = _start(of, budget, END * budget * max(1.0, times), begun)
        sums = self.by_value(
            kind,
            of.rates,
            of.weights,
            of.hosts,
            start.last,
            start.order,
            start.draws,
            budget,
            budget * times,
            shape,
            usual,
        )
        return Kept(*_means(of, sums), sums[3], sums[4], int(sums[5]), sums[6])


@dataclass(frozen=True, slots=True)
class _Start:
    order: NDArray[np.int64]
    last: Floats
    draws: Floats  # exponential, of each visit


def _start(of: World, budget: float, visits: float, begun: Floats | None = None) -> _Start:
    random = np.random.default_rng(1)
    order = random.permutation(of.pages)
    last = np.empty(of.pages)
    last[order] = (np.arange(of.pages) - of.pages) / budget
    if begun is not None:
        order, last = np.argsort(begun, kind="stable"), begun
    return _Start(order, last, random.standard_exponential(int(visits) + of.pages + 1))


def _means(of: World, sums: tuple[float, ...]) -> tuple[float, float, float]:
    return sums[0] / of.pages / MEASURED, sums[1] / of.pages / FIRST, sums[2] / of.pages / MEASURED


def plain() -> Visitors:
    return Visitors(_visit_by_date, _visit_by_value)


def compiled() -> Visitors:
    """Compile the visitors together with the policy that they run: some 15 s, without a cache,
    which would not see that the policy has changed."""
    import numba  # noqa: PLC0415  # 0.4 s, which the plain visitors do not need

    names = (
        "prior",
        "mean_rate",
        "after_visit",
        "_value",
        "crawl_value",
        "due_after",
        "longest_days",
    )
    done: dict[str, Any] = {}
    for each in (
        *(
            getattr(revisits, name)
            for name in (*names, "class_of", "middle_of", "is_new_order", "next_multiplier")
        ),
        kept_days,
        _visit_by_date,
        _visit_by_value,
    ):
        own = FunctionType(
            each.__code__, {**each.__globals__, **done}, each.__name__, each.__defaults__
        )
        done[each.__name__] = numba.njit(own)
    return Visitors(done["_visit_by_date"], done["_visit_by_value"])


def nutch_rounds(of: World, budget: float) -> Kept:
    """Return how Nutch's rounds fare: once a day the due pages of the best scores, as many as the
    budget allows (Generator with topN)."""
    random = np.random.default_rng(1)
    last = -random.random(of.pages) * of.pages / budget
    due, intervals, modified = last + 30.0, np.full(of.pages, 30.0), last.copy()
    by_score, fresh, visits = np.argsort(-of.weights), 0.0, 0

    def keep(pages: NDArray[np.int64], now: float) -> Floats:
        nonlocal fresh
        changes = random.exponential(1 / of.rates[pages])
        stale = np.minimum(last[pages] + changes, now)
        days = np.maximum(0, np.minimum(stale, END) - np.maximum(last[pages], WARM_UP))
        fresh += float((of.weights[pages] * days).sum())
        return changes

    for day in range(1, int(END) + 1):
        pages = by_score[due[by_score] <= day][: int(budget)]
        is_changed = keep(pages, day) < day - last[pages]
        visits += len(pages)
        modified[pages] = np.where(is_changed, day, modified[pages])
        since = day - modified[pages]
        grown = intervals[pages] * np.where(is_changed, 0.8, 1.4)
        intervals[pages] = np.clip(np.maximum(grown, since), _NUTCH_LEAST, _NUTCH_MOST)
        due[pages] = day - 0.3 * since + intervals[pages]
        last[pages] = day
    keep(np.arange(of.pages), END)
    never = float((last < WARM_UP).mean())
    return Kept(fresh / of.pages / MEASURED, used=visits / (budget * END), never=never)

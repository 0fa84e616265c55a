"""When pages are visited again: the formulas by vectors and against integrals, at their edges, and
how fresh copies stay in a small world."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.fresh_crawl import alone, crawl, even_world, simulated
from bench.revisit_world import BAYES_OF_HOSTS, END, UNIFORM, best_visits, plain, world
from crawler.policy.revisits import (
    CLASSES,
    LONGEST_DAYS,
    MOST_SHAPE,
    PRIOR_SHAPE,
    ChangeRate,
    GroupChanges,
    after_visit,
    class_of,
    crawl_value,
    due_after,
    fixed_intervals,
    is_new_order,
    longest_days,
    mean_rate,
    middle_of,
    next_multiplier,
    prior,
    rate_quantile,
    stale_chance,
    stale_days,
)

HEAVY = ChangeRate(0.35, 0.35 / 0.418)
EVEN = ChangeRate(1.0, 10.0)

shapes = st.floats(1e-6, MOST_SHAPE) | st.floats(1 - 1e-9, 1 + 1e-9)
spans = st.floats(1e-6, 1e6)
times = st.floats(0.0, 36_500.0)
weights = st.floats(0.0, 1e6)
known = st.builds(ChangeRate, shapes, spans)


def learned(start: ChangeRate, *visits: tuple[float, int]) -> ChangeRate:
    for interval_days, is_changed in visits:
        start = after_visit(start, interval_days, bool(is_changed))
    return start


@pytest.mark.parametrize(
    ("start", "visits", "shape", "days", "exact_mean"),
    [
        pytest.param(HEAVY, [(30, 1)], 0.55314, 0.95611, 0.57853, id="a change, which is exact"),
        pytest.param(HEAVY, [(30, 0)], 0.35, 30.83732, 0.01135, id="no change, which is exact"),
        pytest.param(HEAVY, [(30, 1), (10, 1), (5, 0), (7, 1)], 1.64279, 7.44677, 0.2215, id="mix"),
        pytest.param(EVEN, [(1, 0), (2, 1), (3, 0), (4, 1)], 2.93198, 16.22021, 0.18066, id="even"),
        pytest.param(
            EVEN,
            [(0.5, 0), (1, 0), (7, 1), (14, 0), (30, 1)],
            2.52909,
            31.26495,
            0.08128,
            id="longer and longer",
        ),
    ],
)
def test_what_is_known_after_visits(
    start: ChangeRate, visits: list[tuple[float, int]], shape: float, days: float, exact_mean: float
) -> None:
    """The exact mean is that of the product of all likelihoods, integrated."""
    found = learned(start, *visits)
    assert (round(found.shape, 5), round(found.days, 5)) == (shape, days)
    assert found.shape / found.days == pytest.approx(exact_mean, rel=0.006)


@pytest.mark.parametrize(
    ("shape", "days", "since", "value"),
    [(2, 20, 10, 2.222222), (1, 10, 10, 1.931472), (0.5, 5, 10, 1.547005), (5, 50, 30, 7.731628)],
)
def test_what_a_visit_gains(shape: float, days: float, since: float, value: float) -> None:
    assert round(crawl_value(ChangeRate(shape, days), since, 1.0), 6) == value
    assert crawl_value(ChangeRate(shape, days), since, 3.0) == pytest.approx(3 * value, rel=1e-6)


@given(rate=known, since=times)
@example(ChangeRate(1.0, 10.0), 20.0)
@example(ChangeRate(0.2, 6.0), 1e-6)
def test_for_how_long_a_copy_is_stale(rate: ChangeRate, since: float) -> None:
    """The integral of the probability that it is: of its parts each is between its ends."""
    parts = [since * (part / 200) ** 3 for part in range(201)]
    chances = [stale_chance(rate, day) for day in parts]
    widths = np.diff(parts)
    low, high = (float((widths * each).sum()) for each in (chances[:-1], chances[1:]))
    assert low * (1 - 1e-6) <= stale_days(rate, since) <= high * (1 + 1e-6) + 1e-12 * since


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_between_which_rates_a_page_is(chance: float) -> None:
    rate = rate_quantile(ChangeRate(1.0, 10.0), chance)
    assert rate == pytest.approx(-math.log1p(-chance) / 10, rel=1e-3), "an exponential distribution"
    low, high = (rate_quantile(ChangeRate(shape, shape), chance) for shape in (49.9, 50.1))
    assert low == pytest.approx(high, rel=2e-3), "one formula follows on the other"
    draws = np.random.default_rng(3).gamma(0.2, 1 / 6.0, 400_000)
    share = float((draws < rate_quantile(ChangeRate(0.2, 6.0), chance)).mean())
    assert share == pytest.approx(chance, abs=3e-3)


def test_a_rate_that_is_known_has_the_value_of_the_poisson_process() -> None:
    for rate, since in ((0.1, 3.0), (0.1, 40.0), (5.0, 1.0)):
        exact = (1 - (1 + rate * since) * math.exp(-rate * since)) / rate
        found = crawl_value(ChangeRate(MOST_SHAPE, MOST_SHAPE / rate), since, 1.0)
        assert found == pytest.approx(exact, rel=1e-4)


@given(known, times, weights)
def test_the_value_is_that_of_its_integral(rate: ChangeRate, since: float, weight: float) -> None:
    """Each of its forms, where these meet too; and it grows with the time."""
    found = crawl_value(rate, since, weight)
    assert math.isfinite(found) and 0.0 <= found <= weight * since
    assert crawl_value(rate, 1.1 * since + 0.01, weight) >= found * (1 - 1e-9)
    if since == 0.0:
        return
    # Over the logarithm of the time, by Gauss's 40 points in each of 90 pieces.
    x, by = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(math.log(since) - 60, math.log(since), 91)
    half = (edges[1:] - edges[:-1])[:, None] / 2
    at = np.exp((edges[1:] + edges[:-1])[:, None] / 2 + half * x) / rate.days
    inner = rate.shape * at**2 * np.exp(-(rate.shape + 1) * np.log1p(at))
    exact = weight * rate.days * float((inner * by * half).sum())
    assert found == pytest.approx(exact, rel=1e-6, abs=1e-290)


@given(known, times, st.booleans())
def test_no_visit_breaks_what_is_known(rate: ChangeRate, since: float, is_changed: bool) -> None:
    found = after_visit(rate, since, is_changed)
    assert 0.0 < found.shape <= MOST_SHAPE and 0.0 < found.days < 1e8
    before, after = rate.shape / rate.days, found.shape / found.days
    assert after >= before * (1 - 1e-6) if is_changed else after <= before
    assert 0.0 <= stale_chance(found, since) <= 1.0


def test_a_clock_that_was_set_back_counts_as_no_time() -> None:
    assert after_visit(EVEN, -5.0, False) == EVEN
    assert after_visit(EVEN, -5.0, True) == after_visit(EVEN, 0.0, True) == ChangeRate(2.0, 10.0)
    assert crawl_value(EVEN, -5.0, 1.0) == stale_chance(EVEN, -5.0) == 0.0


@given(known, weights, st.floats(0.0, 1e6))
@example(ChangeRate(260.0, 159_764.0), 430_368.0, 2e-311)
def test_a_page_is_due_when_its_value_reaches_the_multiplier(
    rate: ChangeRate, weight: float, multiplier: float
) -> None:
    found = due_after(rate, weight, multiplier)
    assert 0.0 <= found <= LONGEST_DAYS
    value = crawl_value(rate, found, weight)
    if 0.0 < found < LONGEST_DAYS:
        assert value == pytest.approx(multiplier, rel=1e-5, abs=1e-80)
    elif found:
        assert value <= multiplier * (1 + 1e-5)
    else:
        assert multiplier == 0.0


def test_a_page_of_which_little_is_known_is_visited_some_day() -> None:
    """One that is known to change all the time is not worth a visit, however long ago."""
    rate, seldom_worth = 1.0, 2.0
    assert due_after(ChangeRate(0.5, 0.5 / rate), 1.0, seldom_worth, 1e6) < 100.0
    assert due_after(ChangeRate(50.0, 50.0 / rate), 1.0, seldom_worth, 1e6) == 1e6


def test_the_longest_time_between_two_visits() -> None:
    assert [longest_days(cycle) for cycle in (7.0, 30.0, 100.0, 500.0)] == [70, 300, 350, 1000]


@given(st.floats(-3.0, 7.0), st.floats(-30.0, 30.0), st.floats(-31.0, 31.0))
def test_a_class_is_of_pages_near_its_middle(shape: float, mean: float, worth: float) -> None:
    """Shapes are within a factor of 1.41 of it, mean rates and weights within 1.19."""
    rate = ChangeRate(PRIOR_SHAPE * 2**shape, PRIOR_SHAPE * 2 ** (shape - mean / 2))
    number = class_of(rate, 2 ** (worth / 2))
    middle, weight = middle_of(number)
    assert 0 <= number < CLASSES
    assert abs(math.log2(middle.shape / rate.shape)) <= 0.501
    assert abs(math.log2(middle.shape / middle.days / rate.shape * rate.days)) <= 0.251
    assert abs(math.log2(weight) - worth / 2) <= 0.251
    assert class_of(middle, weight) == number


@given(known, weights)
def test_every_page_has_a_class(rate: ChangeRate, weight: float) -> None:
    assert 0 <= class_of(rate, weight) < CLASSES


def test_a_new_page_is_taken_for_one_of_its_pattern_then_of_its_host() -> None:
    nothing, usual = GroupChanges(0, 0.0), 1 / 30
    host = mean_rate(GroupChanges(300, 1_000.0), usual)
    assert prior(mean_rate(nothing, mean_rate(nothing, usual))) == prior(usual)
    assert host == pytest.approx(0.3, rel=0.05)
    assert mean_rate(nothing, host) == pytest.approx(host)
    assert mean_rate(GroupChanges(1, 500.0), host) < 0.01
    assert prior(0.1).shape / prior(0.1).days == pytest.approx(0.1)


def test_the_multiplier_follows_what_visits_gain() -> None:
    multiplier = ordered_by = 1.0
    orders = 0
    for _ in range(3_000):
        multiplier = next_multiplier(multiplier, 0.4)
        if is_new_order(multiplier, ordered_by):
            ordered_by, orders = multiplier, orders + 1
    assert multiplier == pytest.approx(0.4, rel=0.01)
    assert orders == 18, "each time by 5 %"
    assert next_multiplier(multiplier, 0.0) > 0.0


def test_fixed_intervals_by_square_roots() -> None:
    """Azar's rates of five pages, and a page that is not worth a visit."""
    rates, alike = np.arange(1.0, 6.0), np.ones(5)
    found = 1 / fixed_intervals(rates, alike, 5.0)
    assert found.round(4).tolist() == [1.3860, 1.3743, 1.1326, 0.7719, 0.3352]
    assert fixed_intervals(np.array([1.0, 50.0]), np.ones(2), 1.0).tolist() == [1.0, math.inf]


@pytest.mark.parametrize(
    ("rates", "weights", "budget", "multiplier", "visits"),
    [
        pytest.param(
            (1, 2, 3, 4, 5), (1,) * 5, 5, 0.216432, (1.1499, 1.3584, 1.3538, 1.1379, 0), id="alike"
        ),
        pytest.param(
            (1, 2, 3, 4, 5), (5, 4, 3, 2, 1), 5, 0.59836, (1.6857, 1.8263, 1.4880, 0, 0), id="not"
        ),
        pytest.param(
            (1, 2, 3, 4, 5), (1, 2, 3, 4, 5), 5, 0.80085, (0.3333, 0.6667, 1, 1.3333, 1.6667),
            id="a weight by the rate",
        ),
    ],
)  # fmt: skip
def test_five_pages(
    rates: tuple[int, ...],
    weights: tuple[int, ...],
    budget: int,
    multiplier: float,
    visits: tuple[float, ...],
) -> None:
    """Cho and Garcia-Molina's example, with weights too: the best visits of pages whose rates are
    known are those that the multiplier leads to."""
    best = best_visits(np.array(rates, float), np.array(weights, float), budget)
    assert best.round(4).tolist() == pytest.approx(list(visits))
    for rate, weight, often in zip(rates, weights, visits, strict=True):
        found = due_after(ChangeRate(MOST_SHAPE, MOST_SHAPE / rate), weight, multiplier)
        assert found == pytest.approx(1 / often, rel=1e-3) if often else found == LONGEST_DAYS


def test_a_small_world_stays_fresh() -> None:
    """As `python -m bench.fresh` for 100,000 pages: learned, in classes, at a visit a month."""
    of = world(pages=4_000, hosts=100)
    budget = of.pages / 30
    best = of.fresh(best_visits(of.rates, of.weights, budget))
    found = plain().values(BAYES_OF_HOSTS, of, budget, PRIOR_SHAPE, float(of.rates.mean()))
    assert found.fresh / best >= 0.955
    assert found.longest <= 365.0


def test_a_small_crawl_keeps_its_pages_as_fresh_as_the_policy_alone() -> None:
    """As `python -m bench.fresh_crawl` for 10,000 pages: the frontier, the loop, politeness and
    failures."""
    of, per_day = even_world(300, 10), 10.0
    crawled = crawl(of, simulated(of, of.pages / per_day, END + 2))
    every, usual = np.ones(crawled.of.pages, bool), float(of.rates.mean())
    found = crawled.kept(every)
    policy = alone(plain(), crawled.of, crawled.begun, per_day, usual, every)
    assert found.fresh >= 0.98 * policy.fresh
    assert found.fresh >= 1.03 * plain().dates(UNIFORM, crawled.of, per_day, 30.0).fresh
    assert found.used == pytest.approx(per_day, rel=0.01)
    assert found.longest <= 365.0

"""`python -m bench.fresh [DAYS...]`: how fresh ways to visit pages again keep their copies.

Rule: prints the table of docs/decisions/0058 for budgets of a visit in so many days for each of
100,000 pages (7, 30 and 100), each figure beside the one that was published before, and the bars of
crawler/policy/revisits.py, whose own functions choose the visits. Ends with 1 where a bar is
missed. Some five minutes, one core.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from math import exp
from typing import Final

import numpy as np

from bench.figures import Figures
from bench.revisit_world import (
    BAYES,
    BAYES_OF_HOSTS,
    COUNTED,
    KNOWN,
    MEAN,
    NUTCH,
    STORM,
    UNIFORM,
    Kept,
    Visitors,
    World,
    best_of_classes,
    best_visits,
    compiled,
    crawl_visits,
    nutch_rounds,
    visits_by_score,
    world,
)
from crawler.policy.revisits import (
    PRIOR_SHAPE,
    after_visit,
    crawl_value,
    fixed_intervals,
    prior,
)

CYCLES: Final = (7, 30, 100)
OURS: Final = "ours: learned, new pages by their host"
# Shares of the best possible freshness, by cycle, of a simulator that kept a date for each page.
BEFORE: Final = {
    "proportional to the rate": (0.381, 0.111, 0.039),
    "in turn (Nutch's default, Heritrix)": (0.879, 0.817, 0.768),
    "score and days since (Common Crawl's kind)": (0.906, 0.852, 0.804),
    "by weight only": (0.934, 0.920, 0.908),
    "best ones without weights": (0.947, 0.896, 0.863),
    "Azar, random times": (0.945, 0.931, 0.926),
    "LambdaCrawl, random times": (0.923, 0.875, 0.829),
    "square roots, fixed intervals": (0.996, 0.995, 0.994),
    "classes of known rates": (0.9995, 0.999, 0.999),
    "Nutch adaptive, oldest due first": (0.809, 0.799, 0.773),
    "Nutch adaptive, daily topN by score": (0.808, 0.756, 0.755),
    "StormCrawler adaptive, oldest due first": (0.917, 0.835, 0.771),
    "rates known": (0.998, 0.995, 0.991),
    "learned, changes counted": (0.985, 0.931, 0.863),
    "learned, mean of the posterior": (0.915, 0.863, 0.862),
    "learned": (0.991, 0.967, 0.940),
    OURS: (0.992, 0.971, 0.937),
}
MAY_BE_BETTER: Final = (
    "rates known",
    "learned, changes counted",
    "learned, mean of the posterior",
    "learned",
    OURS,
)
"""These are visited in classes here, which follow the multiplier at once."""
MOST_OFF: Final = 0.01
LEAST: Final = {7: 0.985, 30: 0.96, 100: 0.93}
LEAST_OF_WRONG_PRIOR: Final = 0.94
LEAST_FIRST: Final = 0.67
MOST_AGE: Final = 2.0  # times that of visits in turn
MOST_DAYS: Final = 365.0
MOST_LAG: Final = 0.05
MOST_US: Final = 2.0


def rows(of: World, cycle: int, visitors: Visitors) -> Iterator[tuple[str, Kept]]:
    """Return how each way fares at a visit in *cycle* days for each page."""
    rates, weights, pages = of.rates, of.weights, of.pages
    budget, mean = pages / cycle, float(rates.mean())
    roots = 1 / fixed_intervals(rates, weights, budget)
    fixed = {
        "proportional to the rate": rates * budget / rates.sum(),
        "score and days since (Common Crawl's kind)": visits_by_score(weights, budget),
        "by weight only": weights * budget / weights.sum(),
        "best ones without weights": best_visits(rates, np.ones(pages), budget),
        "square roots, fixed intervals": roots,
    }
    for name, visits in fixed.items():
        yield name, Kept(of.fresh(visits))
    yield "Azar, random times", Kept(of.fresh_at_random(roots))
    slow = crawl_visits(rates, weights, budget)
    yield "LambdaCrawl, random times", Kept(of.fresh_at_random(slow))
    classes = best_of_classes(of, budget)
    yield "classes of known rates", Kept(classes[0], classes=classes[1])
    dates, values = visitors.dates, visitors.values
    yield "in turn (Nutch's default, Heritrix)", dates(UNIFORM, of, budget, float(cycle))
    yield "Nutch adaptive, oldest due first", dates(NUTCH, of, budget, 30.0)
    yield "Nutch adaptive, daily topN by score", nutch_rounds(of, budget)
    yield "StormCrawler adaptive, oldest due first", dates(STORM, of, budget, 1.0)
    yield "rates known", values(KNOWN, of, budget, PRIOR_SHAPE, mean)
    yield "learned, changes counted", values(COUNTED, of, budget, 1.0, 0.1)
    yield "learned, mean of the posterior", values(MEAN, of, budget, 0.35, mean)
    yield "learned", values(BAYES, of, budget, PRIOR_SHAPE, mean)
    yield OURS, values(BAYES_OF_HOSTS, of, budget, PRIOR_SHAPE, mean)


def table(figures: Figures, of: World, cycle: int, visitors: Visitors) -> dict[str, Kept]:
    best = of.fresh(best_visits(of.rates, of.weights, of.pages / cycle))
    print(f"\n{of.pages:,} pages, {cycle} days for a visit of each; at best {best:.4f} are fresh")
    print(f"{'':44}{'fresh':>7}{'share':>7}{'before':>8}{'age, d':>8}{'first':>7}{'classes':>8}")
    found = {}
    for name, kept in rows(of, cycle, visitors):
        share, before = kept.fresh / best, BEFORE[name][CYCLES.index(cycle)]
        is_off = share < before - MOST_OFF
        is_off |= share > before + MOST_OFF and name not in MAY_BE_BETTER
        figures.missed |= is_off
        age = f"{kept.age:.2f}" if kept.age else ""
        first = f"{kept.first:.3f}" if kept.first else ""
        print(
            f"{name:44}{kept.fresh:7.4f}{share:7.3f}{before:8.3f}"
            f"{age:>8}{first:>7}{kept.classes or '':>8}"
            f"{f'  budget used {kept.used:.2f}' if kept.used < 0.98 else ''}"
            f"{f'  never visited {kept.never:.3f}' if kept.never else ''}"
            f"{'  MISSED' if is_off else ''}",
            flush=True,
        )
        found[name] = kept
    ours, turn = found[OURS], found["in turn (Nutch's default, Heritrix)"]
    least(figures, f"ours, share of the best, {cycle} d", ours.fresh / best, LEAST[cycle])
    times = ours.age / turn.age
    figures.note(f"ours, age in times of that in turn, {cycle} d", times, MOST_AGE)
    figures.note(f"ours, most days between two visits, {cycle} d", ours.longest, MOST_DAYS)
    if cycle == 30:
        least(figures, "ours, fresh in the first 60 days, 30 d", ours.first, LEAST_FIRST)
    return found


def least(figures: Figures, what: str, figure: float, bar: float) -> None:
    figures.show(what, f"{figure:.3f}", f"{bar:g} or more", figure >= bar)


def wrong_priors(figures: Figures, of: World, visitors: Visitors) -> None:
    """A prior mean that is wrong by a factor of ten, at a visit a month."""
    budget, mean = of.pages / 30, float(of.rates.mean())
    best = of.fresh(best_visits(of.rates, of.weights, budget))
    print()
    for kind, name in ((BAYES, "learned"), (BAYES_OF_HOSTS, OURS)):
        for times in (0.1, 10.0):
            kept = visitors.values(kind, of, budget, PRIOR_SHAPE, times * mean)
            what = f"{name}, prior mean {times:g} x true ({kept.age:.1f} d)"
            least(figures, what, kept.fresh / best, LEAST_OF_WRONG_PRIOR)


def other_budgets(figures: Figures, of: World, visitors: Visitors) -> None:
    """The budget is doubled or halved in the middle: how far the multiplier is from what visits
    gain, as soon as a twentieth of the pages was visited."""
    budget, mean = of.pages / 30, float(of.rates.mean())
    for times in (2.0, 0.5):
        kept = visitors.values(BAYES_OF_HOSTS, of, budget, PRIOR_SHAPE, mean, times)
        off = exp(abs(kept.lag)) - 1
        what = f"budget x {times:g}: multiplier off after 5 % of the pages"
        figures.note(what, off, MOST_LAG, f"{off:.3f}")


def speed(figures: Figures) -> None:
    rate, rounds = prior(0.1), 200_000

    def us(call: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(rounds):
            call()
        return 1e6 * (time.process_time() - began) / rounds

    spent = us(lambda: crawl_value(after_visit(rate, 30.0, True), 30.0, 1.0))
    figures.note("a visit's update and a value, us", spent, MOST_US)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cycles", type=int, nargs="*", metavar="DAYS", help="7, 30 or 100")
    cycles = parser.parse_args().cycles or CYCLES
    figures, of, visitors = Figures(), world(), compiled()
    chances = [f"{-np.expm1(-of.rates * days).mean():.3f}" for days in (1, 7, 30, 365)]
    print(f"changed in 1, 7, 30 and 365 days: {' '.join(chances)}; {of.rates.mean():.3f} a day")
    for cycle in cycles:
        table(figures, of, cycle, visitors)
    wrong_priors(figures, of, visitors)
    other_budgets(figures, of, visitors)
    speed(figures)
    return int(figures.missed)


if __name__ == "__main__":
    sys.exit(main())

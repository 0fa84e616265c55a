"""What visits of known pages have found, by table, and how fresh copies are as they say."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from crawler.engine.stats import CopySamples
from crawler.loop.visit import LaterVisit, VisitResult, later_visit
from crawler.model.page import VisitsSoFar
from crawler.model.types import (
    Again,
    Candidate,
    Dead,
    Done,
    HostKey,
    Moved,
    PageHistory,
    PutBack,
    RetryAt,
    Verdict,
)
from crawler.policy.revisits import ChangeRate, pack_rate

DAY_S = 86_400
BEFORE = PageHistory(0, 0, 0, rate=pack_rate(ChangeRate(1e6, 1e7)))  # once in ten days, surely
AFTER = replace(BEFORE, visited_at=10 * DAY_S, visits=2)
PAGE = Candidate("http://a.example/", 1, HostKey("a.example"), "a.example", history=BEFORE)
NEW = replace(PAGE, history=None)


@pytest.mark.parametrize(
    ("page", "verdict", "result"),
    [
        (NEW, Done(again=Again(AFTER)), None),
        (PAGE, Done(again=Again(AFTER, is_changed=True)), VisitResult.CHANGED),
        (PAGE, Done(again=Again(AFTER, is_changed=False)), VisitResult.UNCHANGED),
        (PAGE, Done(again=Again(AFTER)), VisitResult.UNCOMPARED),
        (PAGE, Done(again=Again(replace(BEFORE, gone=1), at=9.0)), VisitResult.ABSENT),
        (PAGE, Done(again=Again(BEFORE, at=9.0)), None),
        (PAGE, Done(gone=replace(BEFORE, gone=3)), VisitResult.GONE),
        (PAGE, Dead("status 404"), VisitResult.GONE),
        (PAGE, Done(), None),
        (PAGE, Moved(NEW), VisitResult.MOVED),
        (PAGE, RetryAt(9.0), VisitResult.FAILED),
        (PAGE, PutBack(), None),
    ],
)
def test_what_a_visit_has_found(
    page: Candidate, verdict: Verdict, result: VisitResult | None
) -> None:
    found = later_visit(page, verdict, 30.0)
    assert (found and found.result) == result


def test_a_copy_of_a_page_that_has_changed_was_stale_for_a_part_of_the_time() -> None:
    found = later_visit(PAGE, Done(again=Again(AFTER, is_changed=True)), 30.0)
    assert found is not None and found.interval_s == 10 * DAY_S
    # One change or more in ten days at one in ten days: the first after 4.18 days, in the mean.
    assert found.stale_s / DAY_S == pytest.approx(10 - 4.1802, abs=1e-3)
    same = later_visit(PAGE, Done(again=Again(AFTER, is_changed=False)), 30.0)
    assert same == LaterVisit(HostKey("a.example"), VisitResult.UNCHANGED, 10 * DAY_S, 0.0)


def test_the_visits_say_how_fresh_the_copies_of_all_pages_are() -> None:
    """Half of the pages change daily and are visited each second day, half change in 50 days and
    are visited in 10: of the former 43 % of the time is fresh, of the latter 91 %."""
    dice, copies = Random(1), CopySamples()
    assert copies.fresh is None and copies.age_s is None
    for _ in range(60_000):
        every, mean = (2.0, 1.0) if dice.random() < 5 / 6 else (10.0, 50.0)
        change = dice.expovariate(1 / mean)
        copies.add(every, max(0.0, every - change))
    assert copies.fresh == pytest.approx((0.4323 + 0.9063) / 2, abs=0.03)
    assert copies.age_s == pytest.approx((1.0 + 5.0) / 2, rel=0.1)


@pytest.mark.parametrize("so_far", [VisitsSoFar(3, 1, 9, 12), VisitsSoFar(1, 0, 9)])
def test_visits_are_read_as_they_were_written(so_far: VisitsSoFar) -> None:
    assert VisitsSoFar.read(str(so_far)) == so_far


@pytest.mark.parametrize("other", ["", "3 1 9", "3 1 9 x", "-3 1 9 -", f"{10**10} 1 9 -"])
def test_what_is_nothing_of_ours_says_nothing_of_visits(other: str) -> None:
    assert VisitsSoFar.read(other) is None

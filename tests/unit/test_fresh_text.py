"""What is said of when a page is visited again, by table."""

from __future__ import annotations

from typing import Any, Final

import pytest

from crawler.model.types import Outcome
from crawler.report.fresh_text import copies_text, page_text
from crawler.view.fresh import CopiesFreshness, PageVisits, PatternChanges

NOW: Final = 1_000_000_000.0
DAY_S: Final = 86_400.0
BARE: Final[dict[str, Any]] = {
    "url": "https://a.example/x",
    "host": "a.example",
    "mode": "adaptive",
    "place": "later",
    "visits": 12,
    "changes": 3,
    "visited_at": NOW - 2 * DAY_S,
    "changed_at": NOW - 9 * DAY_S,
    "is_own_rate": True,
    "change_days": 21.2,
    "least_days": 9.4,
    "most_days": 70.1,
    "stale": 0.1,
    "by": "worth",
    "due_at": NOW + 3 * DAY_S,
    "worth_now": 0.12,
    "worth_needed": 0.35,
    "longest_days": 300.0,
    "visits_per_day": 33.3,
}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "It is visited again when that is worth it: in 3 d 0 h, as things are."),
        ({"by": "date", "mode": "604800.0"}, "It is visited again in 3 d 0 h: every 7 d 0 h."),
        ({"by": "links"}, "It is visited again in 3 d 0 h, for the links that it brings."),
        ({"by": "absence"}, "It was not there, and is asked for again in 3 d 0 h."),
        ({"place": "waiting"}, "A visit is due: it waits for the turn of its host."),
        ({"place": "waiting", "visits": 0}, "It waits for its first visit."),
        ({"place": "leased"}, "It is being visited."),
        ({"mode": "once"}, "It is visited once: CRAWLER_REVISIT is once."),
        (
            {"place": "", "visits": 0, "due_at": None},
            "It has no next visit: it was never visited in a crawl that visits pages again.",
        ),
    ],
)
def test_when_a_page_is_visited_next(known: dict[str, Any], said: str) -> None:
    assert list(page_text(PageVisits(**{**BARE, **known}), NOW))[1].strip() == said


def test_all_that_is_said_of_a_page() -> None:
    lines = list(page_text(PageVisits(**{**BARE, "put_off_s": 2 * DAY_S, "brought": 1}), NOW))
    assert lines[2:] == [
        "",
        "  visited 12 times, the last time 2 d 0 h ago; 3 changes found, the last one 9 d 0 h ago",
        "  it changes once in 21 d in the mean, between 9 d 9 h and 70 d in four of five cases",
        "  it has changed since the last visit with a probability of 10 %",
        "  1 visit of it found new links",
        (
            "  a visit gains 0.12 days for which the copy is fresh, and is due at 0.35 days with"
            " the budget of 33 visits a day"
        ),
        "  it is due after 300 d in any case",
        "  it was put off by 2 d 0 h, as other pages of its host waited for a visit",
    ]


def test_of_a_page_that_is_gone() -> None:
    at = NOW - DAY_S
    gone: dict[str, Any] = {"place": "gone", "gone_at": at, "due_at": None}
    moved = Outcome(at=at, url="", host="", fate="moved", status=301, target="https://a.example/y")
    of_others = PageVisits(**{**BARE, **gone, "named_from": at + 30 * DAY_S})
    assert list(page_text(of_others, NOW))[1:] == [
        "  It is gone, as its last visit found 1 d 0 h ago.",
        "",
        "  visited 12 times, the last time 2 d 0 h ago; 3 changes found, the last one 9 d 0 h ago",
        "  it was there 2 d 0 h ago, and no more 1 d 0 h ago",
        "  why it is gone is in the log of the worker that visited it",
        (
            "  it is asked for again if a page, sitemap or feed that is fetched in 29 d 0 h or"
            " later names it"
        ),
    ]
    long_ago = PageVisits(**{**BARE, **gone, "gone_outcome": moved, "named_from": NOW - 1.0})
    lines = list(page_text(long_ago, NOW))
    assert lines[1].endswith("1 d 0 h ago: status 301, to https://a.example/y.")
    assert lines[-1].endswith("if a page, sitemap or feed that is fetched names it")


def test_of_a_page_of_which_nothing_is_known() -> None:
    new = {**BARE, "visits": 1, "changes": 0, "is_own_rate": False, "most_days": 9e9}
    lines = list(page_text(PageVisits(**new), NOW))
    assert lines[3].endswith("; no change was found")
    assert lines[4].endswith("pages of its host are taken to change once in 21 d")


def test_of_the_copies_of_many_pages() -> None:
    copies = CopiesFreshness(
        pages=12_345,
        dated=20,
        visits=50_000,
        changes=700,
        visited_last_day=400,
        changed_last_day=9,
        visits_per_day=411.5,
        worth_needed=0.35,
        fresh=0.8612,
        stale_days=2.25,
        since_days=14.9,
        oldest_days=299.0,
        patterns=[PatternChanges("a.example", "/day/#", 30, 90, 60)],
    )
    assert list(copies_text(copies)) == [
        "12,345 pages visited again, 20 of them at a date",
        "  fresh         86 % of the copies, as estimated",
        "  stale         for 2 d 6 h in the mean of all copies",
        "  last visit    15 d ago in the mean, 299 d at most",
        (
            "  visits        of 400 pages in the last day; the budget of those without a date is"
            " 412 visits a day"
        ),
        "  due           when a visit gains 0.35 days of freshness",
        "  changes       of 9 pages in the last day; 700 in 50,000 visits so far",
        "  most changes  60 in 90 visits of 30 pages: a.example/day/#",
    ]
    assert list(copies_text(CopiesFreshness(host="b.example"))) == [
        "No page of b.example waits to be visited again (CRAWLER_REVISIT)"
    ]

"""What `fresh` says of a page, or of the copies of many, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crawler.model.choices import RevisitChoice
from crawler.model.types import Outcome
from crawler.view.formats import many, number, plain, since, span, until
from crawler.view.fresh import CopiesFreshness, PageVisits

_DAY_S: Final = 86_400.0
_YEAR_DAYS: Final = 365.25
_MOST_YEARS: Final = 100


def page_text(page: PageVisits, now: float) -> Iterator[str]:
    yield plain(page.url, 2048)
    yield f"  {next_visit(page, now)}"
    if not page.visits:
        return
    yield ""
    yield f"  {visited(page, now)}"
    if page.gone_at is not None:
        yield from _gone(page, page.gone_at, now)
        return
    yield f"  {_rate(page)}"
    if page.stale is not None:
        yield f"  it has changed since the last visit with a probability of {_share(page.stale)}"
    if page.brought:
        yield f"  {many(page.brought, 'visit')} of it found new links"
    if page.signals:
        yield f"  a sitemap or feed has given it {many(page.signals, 'new date')} since"
    if page.gone:
        yield f"  the last {many(page.gone, 'visit')} did not find it"
    yield from _worth(page)


def next_visit(page: PageVisits, now: float) -> str:
    """Return in one sentence when the page is visited again, and by what that is decided."""
    if page.place == "leased":
        return "It is being visited."
    if page.place == "waiting" and page.visits:
        return "A visit is due: it waits for the turn of its host."
    if page.place == "waiting":
        return "It waits for its first visit."
    if page.gone_at is not None:
        return f"It is gone, as its last visit found {since(page.gone_at, now)}{_because(page)}."
    if page.mode == RevisitChoice.ONCE:
        return "It is visited once: CRAWLER_REVISIT is once."
    if page.due_at is None:
        return "It has no next visit: it was never visited in a crawl that visits pages again."
    at = until(page.due_at, now)
    match page.by:
        case "absence":
            return f"It was not there, and is asked for again {at}."
        case "links":
            return f"It is visited again {at}, for the links that it brings."
        case "worth":
            return f"It is visited again when that is worth it: {at}, as things are."
    every = "" if page.mode == RevisitChoice.ADAPTIVE else f": every {span(float(page.mode))}"
    return f"It is visited again {at}{every}."


def answer_of(outcome: Outcome) -> str:
    """Return the status, target and reason of *outcome*, as far as there are some."""
    is_in_reason = outcome.status is None or outcome.reason.startswith("status ")
    status = "" if is_in_reason else f"status {outcome.status}"
    target = f"to {plain(outcome.target)}" if outcome.target else ""
    return ", ".join(filter(None, [status, target, plain(outcome.reason)]))


def _because(page: PageVisits) -> str:
    answer = "" if page.gone_outcome is None else answer_of(page.gone_outcome)
    return f": {answer}" if answer else ""


def _gone(page: PageVisits, gone_at: float, now: float) -> Iterator[str]:
    assert page.named_from is not None, "it is known of each page that is gone"
    yield f"  it was there {since(page.visited_at or 0, now)}, and no more {since(gone_at, now)}"
    if page.gone_outcome is None:
        yield "  why it is gone is in the log of the worker that visited it"
    when = f" {until(page.named_from, now)} or later" if page.named_from > now else ""
    yield f"  it is asked for again if a page, sitemap or feed that is fetched{when} names it"


def visited(page: PageVisits, now: float) -> str:
    """Return its visits so far, and what they found."""
    visits = (
        f"visited {many(page.visits, 'time')}, the last time {since(page.visited_at or 0, now)}"
    )
    if not page.changes:
        return f"{visits}; no change was found"
    return (
        f"{visits}; {many(page.changes, 'change')} found, the last one"
        f" {since(page.changed_at or 0, now)}"
    )


def _rate(page: PageVisits) -> str:
    assert page.change_days and page.least_days and page.most_days, "its rate is known or usual"
    between = f"between {_days(page.least_days)} and {_days(page.most_days)} in four of five cases"
    if page.is_own_rate:
        return f"it changes once in {_days(page.change_days)} in the mean, {between}"
    return (
        "nothing is known of how often it changes; pages of its host are taken to change once in"
        f" {_days(page.change_days)}"
    )


def _worth(page: PageVisits) -> Iterator[str]:
    if page.worth_now is None or page.worth_needed is None or page.visits_per_day is None:
        return
    budget = f"with the budget of {_rate_of(page.visits_per_day)} a day"
    yield (
        f"  a visit gains {_value(page.worth_now)} for which the copy is fresh, and is due at"
        f" {_value(page.worth_needed)} {budget}"
    )
    if page.longest_days is not None:
        yield f"  it is due after {_days(page.longest_days)} in any case"
    if page.put_off_s:
        waits = "as other pages of its host waited for a visit"
        yield f"  it was put off by {span(page.put_off_s)}, {waits}"


def copies_text(copies: CopiesFreshness) -> Iterator[str]:
    of = f" of {plain(copies.host)}" if copies.host else ""
    if not copies.pages:
        yield f"No page{of} waits to be visited again (CRAWLER_REVISIT)"
        return
    dated = f", {number(copies.dated)} of them at a date" if copies.dated else ""
    yield f"{many(copies.pages, 'page')}{of} visited again{dated}"
    assert copies.fresh is not None and copies.stale_days is not None
    assert copies.since_days is not None and copies.oldest_days is not None
    yield f"  fresh         {_share(copies.fresh)} of the copies, as estimated"
    yield f"  stale         for {_days(copies.stale_days)} in the mean of all copies"
    yield (
        f"  last visit    {_days(copies.since_days)} ago in the mean, {_days(copies.oldest_days)}"
        " at most"
    )
    budget = ""
    if copies.visits_per_day is not None and not copies.host:
        budget = f"; the budget of those without a date is {_rate_of(copies.visits_per_day)} a day"
    yield f"  visits        of {many(copies.visited_last_day, 'page')} in the last day{budget}"
    if copies.worth_needed and not copies.host:
        yield f"  due           when a visit gains {_value(copies.worth_needed)} of freshness"
    yield (
        f"  changes       of {many(copies.changed_last_day, 'page')} in the last day;"
        f" {number(copies.changes)} in {many(copies.visits, 'visit')} so far"
    )
    for place, each in enumerate(copies.patterns):
        name = plain(f"{each.host}{each.pattern}" if each.pattern.startswith("/") else each.pattern)
        yield (
            f"  {'' if place else 'most changes':14}{number(each.changes)} in"
            f" {many(each.visits, 'visit')} of {many(each.pages, 'page')}: {name}"
        )


def _days(days: float) -> str:
    if days >= _MOST_YEARS * _YEAR_DAYS:
        return f"{_MOST_YEARS} years or more"
    if days >= 2 * _YEAR_DAYS:
        return f"{days / _YEAR_DAYS:.0f} years"
    return f"{days:.0f} d" if days >= 10 else span(days * _DAY_S)


def _value(days: float) -> str:
    return f"{days:.2g} days" if days < 10 else f"{days:.0f} days"


def _rate_of(per_day: float) -> str:
    return many(round(per_day), "visit") if per_day >= 10 else f"{per_day:.2g} visits"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %" if 0.05 < value < 0.95 else f"{100 * value:.1f} %"

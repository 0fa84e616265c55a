"""Which URLs name a day that only an endless calendar has."""

from __future__ import annotations

import pytest

from crawler.policy.scope import CalendarRules, Reason

RULES = CalendarRules(from_year=1990, until=(2027, 6, 20))


def refused(url: str, rules: CalendarRules = RULES) -> str:
    path, _, query = url.partition("?")
    found = rules.refusal(path, query)
    assert found is None or found.reason is Reason.CALENDAR
    return found.detail if found else ""


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/2027/07/", id="a month ahead"),
        pytest.param("/calendar/2027/06/21", id="a day ahead"),
        pytest.param("/calendar/1989/12/31/view", id="a day before"),
        pytest.param("/1905/01", id="a month before"),
        pytest.param("/2027-06-21", id="a day in one word"),
        pytest.param("/1989-12/", id="a month in one word"),
        pytest.param("/events/2031-01-01.html", id="a day as a file"),
        pytest.param("/c?date=2031-01-01", id="a parameter date"),
        pytest.param("/c?view=list&day=2031-1-1&x=2", id="one digit, among others"),
        pytest.param("/c?month=2031-01", id="a month with its year"),
        pytest.param("/c?date=20310101", id="without separators"),
        pytest.param("/c?date=01/02/2031", id="the year last"),
        pytest.param("/c?date=1.12.2031", id="with dots"),
        pytest.param("/c?Date=01%2F02%2F1989", id="escaped slashes"),
        pytest.param("/c?month=1&year=2031", id="month and year apart"),
        pytest.param("/c?year=1950&a=b&month=12", id="in either order"),
        pytest.param("/c?tribe-bar-date=2031-01-01", id="a name that ends in date"),
        pytest.param("/c?cal[month]=7&cal[year]=2031", id="in a list"),
        pytest.param("/c?cal%5Bdate%5D=2031-07-01", id="in an escaped one"),
    ],
)
def test_refused(url: str) -> None:
    assert refused(url)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("/2027/06/", id="the month in which the range ends"),
        pytest.param("/2027/06/20/", id="its last day"),
        pytest.param("/1990/01/", id="the first month"),
        pytest.param("/2014/05/12/a-title", id="an article"),
        pytest.param("/product/2099", id="a number that looks like a year"),
        pytest.param("/product/2099/12345", id="and another beside it"),
        pytest.param("/product/2099/13/", id="no month"),
        pytest.param("/issues/2099/3/", id="a month would have two digits"),
        pytest.param("/2099/", id="a year alone"),
        pytest.param("/pull/4099/12/", id="too far for a calendar"),
        pytest.param("/pull/1250/12/", id="too long ago for one"),
        pytest.param("/history/1944-06-06-d-day", id="a day in a title"),
        pytest.param("/part-2099-12", id="a number of a part"),
        pytest.param("/article/20991231", id="eight digits"),
        pytest.param("/12099/12/", id="five digits"),
        pytest.param("/cars?year=1965", id="the year of a car"),
        pytest.param("/cars?year=1965&month=price", id="a month that is none"),
        pytest.param("/c?month=25", id="a number"),
        pytest.param("/c?date=2026-13-01", id="no date"),
        pytest.param("/c?q=2031-01-01", id="a parameter that says nothing"),
        pytest.param("/c?update=2031-01-01", id="a word that ends in date"),
        pytest.param("/c?date=2031-01-01-and-more", id="more than a date"),
        pytest.param("/c?date=2026-05-16", id="today"),
    ],
)
def test_not_refused(url: str) -> None:
    assert refused(url) == ""


def test_a_refusal_names_its_figures() -> None:
    assert refused("/a/2031/05/") == "2031/05 is after 2027-06-20"
    assert refused("/?year=1950&month=1") == "1950-1 is before 1990"


def test_a_range_without_an_end_refuses_nothing() -> None:
    rules = CalendarRules()
    assert refused("/2999/12/", rules) == refused("/?date=1001-01-01", rules) == ""

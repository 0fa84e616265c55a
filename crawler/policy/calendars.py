"""Which URLs name a day so far away that only a calendar without an end leads there.

Rule: judged by the URL alone, and only where it is a date beyond doubt: directories of year and
month, a date as a whole name, or a parameter that says it is one. A number that only looks like a
year is none (/product/2099).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from crawler.policy.refusal import Reason, Refusal

# A calendar steps out of its range. What lies further away is more likely a number: /pull/4099/12/.
_FAR_YEARS: Final = 100
_YEAR: Final = "[12][0-9]{3}"
_MONTH, _DAY = "0[1-9]|1[0-2]", "0[1-9]|[12][0-9]|3[01]"
_may_have_year: Final = re.compile(_YEAR).search
_in_path: Final = re.compile(
    rf"/(?P<y>{_YEAR})/(?P<m>{_MONTH})(?:/(?P<d>{_DAY}))?(?=/|$)"
    rf"|/(?P<Y>{_YEAR})-(?P<M>{_MONTH})(?:-(?P<D>{_DAY}))?(?=/|\.[a-z]{{2,5}}$|$)"
).search
# A parameter whose name is one of these words, or ends in it: tribe-bar-date, cal[month].
_parameter: Final = re.compile(
    r"(?:^|&)(?:[^&=]*(?:[_.\-\[]|%5B))?(date|day|month|year)(?:\]|%5D)?=([^&]{1,20})(?=&|$)", re.I
)
_of_year_first: Final = re.compile(
    rf"({_YEAR})(?:-(1[0-2]|0?[1-9])(?:-([12][0-9]|3[01]|0?[1-9]))?|({_MONTH})({_DAY}))"
).fullmatch
# Whether the day or the month comes first differs from country to country.
_of_year_last: Final = re.compile(rf"[0-3]?[0-9](?:[./-]|%2F)[0-3]?[0-9](?:[./-]|%2F)({_YEAR})",
                                  re.I).fullmatch  # fmt: skip
_year: Final = re.compile(_YEAR).fullmatch
_month: Final = re.compile(r"0?[1-9]|1[0-2]").fullmatch

_Date = tuple[int, int, int]
"""Year, month and day; 1 where that is not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarRules:
    """The days of one crawl, from the first of a year to the last one that is not too far ahead."""

    from_year: int = 0
    until: _Date = (9999, 12, 31)

    def refusal(self, path: str, query: str) -> Refusal | None:
        """Judge the parts of a fetch form."""
        if _may_have_year(path) and (found := _in_path(path)):
            year, month, day = (found[low] or found[high] for low, high in ("yY", "mM", "dD"))
            if refusal := self._judged((int(year), int(month), int(day or 1)), found[0][1:]):
                return refusal
        if query and _may_have_year(query):
            return self._of_query(query)
        return None

    def _of_query(self, query: str) -> Refusal | None:
        found = {name.lower(): value for name, value in _parameter.findall(query)}
        year, month = found.get("year", ""), found.get("month", "")
        if _year(year) and _month(month):
            return self._judged((int(year), int(month), 1), f"{year}-{month}")
        dates = ((_date(value), value) for value in found.values())
        refusals = (self._judged(day, value) for day, value in dates if day)
        return next(filter(None, refusals), None)

    def _judged(self, day: _Date, told: str) -> Refusal | None:
        year = day[0]
        if self.from_year - _FAR_YEARS <= year < self.from_year:
            return Refusal(Reason.CALENDAR, f"{told} is before {self.from_year}")
        if day > self.until and year <= self.until[0] + _FAR_YEARS:
            last = "-".join(f"{part:02}" for part in self.until)
            return Refusal(Reason.CALENDAR, f"{told} is after {last}")
        return None


def _date(text: str) -> _Date | None:
    if told := _of_year_first(text):
        year, month, day, joined_month, joined_day = told.groups("")
        return int(year), int(month or joined_month or 1), int(day or joined_day or 1)
    told = _of_year_last(text)
    return (int(told[1]), 1, 1) if told else None

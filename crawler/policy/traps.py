"""Which URLs look like a trap that makes new URLs for ever, or like a calendar without an end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from crawler.model.types import ConfigError
from crawler.policy.refusal import Reason, Refusal

# Traps: sites that make new URLs for ever. Judged by the URL alone, and first by its length, which
# bounds the rest.

# Names used for sessions only; `sid` may also choose what a page shows.
_sessions: Final = re.compile(
    r"jsessionid|phpsessid|aspsessionid[a-z]{8}|cftoken|sessionid"
).findall


@dataclass(frozen=True, slots=True, kw_only=True)
class TrapLimits:
    """The limits of one crawl. A limit out of reach switches its rule off."""

    max_url_chars: int = 2048  # Internet Explorer read 2,083: longer ones could not be published
    max_path_segments: int = 10  # guess, revisit: Heritrix allows 20 slashes
    max_repeats: int = 2  # as Heritrix: a third time in a row is a trap
    max_parameters: int = 50  # guess, revisit: a form of a search has 10 or 20

    def __post_init__(self) -> None:
        figures = (self.max_url_chars, self.max_path_segments, self.max_repeats)
        if min(*figures, self.max_parameters) < 1:
            raise ConfigError(f"want figures of 1 or more, got {self}")

    def refusal(self, url: str, path: str) -> Refusal | None:
        """Judge a fetch form and its path."""
        if len(url) > self.max_url_chars:
            return Refusal(
                Reason.URL_TOO_LONG, f"{len(url)} characters are over {self.max_url_chars}"
            )
        if "=" in url:
            refusal = self._query_refusal(url, url.partition("?")[2])
            if refusal:
                return refusal
        slashes = path.count("/")
        if slashes <= self.max_repeats + 1 and slashes <= self.max_path_segments:
            return None  # too short for anything below
        count = slashes - path.endswith("/")
        if count > self.max_path_segments:
            return Refusal(
                Reason.PATH_TOO_DEEP, f"{count} segments are over {self.max_path_segments}"
            )
        return self._path_refusal(path.split("/")[1:-1])

    def _query_refusal(self, url: str, query: str) -> Refusal | None:
        pairs = query.split("&")
        if len(pairs) > self.max_parameters:
            return Refusal(
                Reason.QUERY_TOO_LONG, f"{len(pairs)} parameters are over {self.max_parameters}"
            )
        if len(set(pairs)) + self.max_repeats <= len(pairs):
            pair, times = _most_often(pair for pair in pairs if pair.partition("=")[2])
            if times > self.max_repeats:
                return Refusal(Reason.REPEATED_QUERY, f"{pair[:80]!r} comes {times} times")
        if "sess" in (lower := url.lower()) or "cftoken" in lower:
            name, times = _most_often(_sessions(lower))
            if times > 1:
                return Refusal(Reason.REPEATED_SESSION, f"{name} comes {times} times")
        return None

    def _path_refusal(self, directories: list[str]) -> Refusal | None:
        if len(set(directories)) == len(directories):
            return None
        times = self.max_repeats + 1
        repeated = _in_a_row(directories, times) or _every_other(directories, times)
        if repeated is None:
            return None
        return Refusal(Reason.REPEATED_SEGMENTS, f"{repeated!r} comes {times} times")


def _most_often(words: Iterable[str]) -> tuple[str, int]:
    return next(iter(Counter(words).most_common(1)), ("", 0))


def _in_a_row(directories: list[str], times: int) -> str | None:
    """Return the first group of directories that comes *times* times in a row: a/b/a/b/a/b."""
    for size in range(1, len(directories) // times + 1):
        run = 0  # how many directories in a row equal the one a group further on
        for start in range(len(directories) - size):
            run = run + 1 if directories[start] == directories[start + size] else 0
            if run == size * (times - 1):
                return "/".join(directories[start + 1 : start + 1 + size]) + "/"
    return None


def _every_other(directories: list[str], times: int) -> str | None:
    """Return the first directory that comes *times* times, one other between: a/x/a/y/a (Nutch)."""
    for start in range(len(directories) - 2 * (times - 1)):
        stretch = directories[start : start + 2 * times - 1]
        if all(stretch) and len(set(stretch[::2])) == 1:
            return stretch[0] + "/"
    return None


# Calendars without an end: dates so far away that only such a calendar leads there. Judged by the
# URL alone, and only where it is a date beyond doubt: directories of year and month, a date as a
# whole name, or a parameter named like one. /product/2099 is no date.

# A calendar leaves its range step by step. A year further away is more likely a number:
# /pull/4099/12/.
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
"""Year, month and day; 1 where the URL names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarLimits:
    """The dates that one crawl admits: from a year to the last day that is not too far ahead."""

    from_year: int = 0
    until: _Date = (9999, 12, 31)

    def refusal(self, path: str, query: str) -> Refusal | None:
        """Judge the path and query of a fetch form."""
        if _may_have_year(path) and (found := _in_path(path)):
            year, month, day = (found[low] or found[high] for low, high in ("yY", "mM", "dD"))
            if refusal := self._date_refusal((int(year), int(month), int(day or 1)), found[0][1:]):
                return refusal
        if query and _may_have_year(query):
            return self._query_refusal(query)
        return None

    def _query_refusal(self, query: str) -> Refusal | None:
        found = {name.lower(): value for name, value in _parameter.findall(query)}
        year, month = found.get("year", ""), found.get("month", "")
        if _year(year) and _month(month):
            return self._date_refusal((int(year), int(month), 1), f"{year}-{month}")
        dates = ((_date(value), value) for value in found.values())
        refusals = (self._date_refusal(day, value) for day, value in dates if day)
        return next(filter(None, refusals), None)

    def _date_refusal(self, day: _Date, text: str) -> Refusal | None:
        year = day[0]
        if self.from_year - _FAR_YEARS <= year < self.from_year:
            return Refusal(Reason.CALENDAR, f"{text} is before {self.from_year}")
        if day > self.until and year <= self.until[0] + _FAR_YEARS:
            last = "-".join(f"{part:02}" for part in self.until)
            return Refusal(Reason.CALENDAR, f"{text} is after {last}")
        return None


def _date(text: str) -> _Date | None:
    if found := _of_year_first(text):
        year, month, day, joined_month, joined_day = found.groups("")
        return int(year), int(month or joined_month or 1), int(day or joined_day or 1)
    found = _of_year_last(text)
    return (int(found[1]), 1, 1) if found else None

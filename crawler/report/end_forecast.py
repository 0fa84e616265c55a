"""When a running crawl ends, in words: by the host that is last done, by the rate of all, or by the
number of pages that was asked for.

Rule: the frontier is looked at every few seconds at most; see `policy.forecast` for the numbers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from crawler.config.settings import PolitenessSettings
from crawler.model.counts import Counts
from crawler.model.types import HostKey, HostWork, Pace
from crawler.policy.forecast import MOST_HOSTS, Forecast, forecast
from crawler.view.formats import many, plain, rate, span

EVERY_S: Final = 5.0
TREND_S: Final = 600.0
_RECENT_S: Final = 30.0
_RECENT_FETCHES: Final = 20  # in fewer, or less than _RECENT_S, a rate says nothing
_LEAST_FETCHES: Final = 3  # fewer say nothing of growth
_LIMITED_BY_ALL: Final = 1.5  # how far the rate of all must be behind the host that is last done
_MOST_GROWTH: Final = 0.5  # new URLs a fetch; with more the end is unknown
_EARLY: Final = 0.9  # of EVERY_S, as calls are not on time
GROWS: Final = "end unknown: the frontier grows"
LAST_FETCHES: Final = "ends with the fetches under way"
_HOST_CHARS: Final = 60
NO_END: Final = "runs until it is stopped"


@dataclass(frozen=True, slots=True)
class EndInWords:
    """When a crawl ends, and by what; both empty if it is too early to say."""

    when: str = ""
    why: str = ""

    def __str__(self) -> str:
        return f"{self.when}: {self.why}" if self.why else self.when


@dataclass(frozen=True, slots=True)
class WorkAhead:
    """What a forecast asks the frontier for."""

    longest_hosts: Callable[[int], Sequence[HostWork]]
    sampled_paces: Callable[[], Sequence[Pace]]
    settings_of: Callable[[HostKey], PolitenessSettings]


@dataclass(frozen=True, slots=True)
class CrawlMoment:
    """The figures of a crawl at one moment."""

    at: float  # epoch seconds
    counts: Counts
    pages: int  # of this run
    found: int  # new URLs so far; without seeds, where they are counted apart

    @property
    def finished(self) -> int:
        """How many fetches have finished."""
        return self.counts.done + self.counts.dead

    @property
    def again(self) -> int:
        """How many pages are visited again: later, or now, as those at the last level."""
        return self.counts.again + sum(self.counts.levels[-1:])


_End = tuple[float, str]  # epoch seconds, and by what


class EndForecast:
    """When a crawl ends, at each moment. Memory: one moment in EVERY_S of the last TREND_S."""

    def __init__(self, work: WorkAhead) -> None:
        self._work = work
        self._moments: deque[CrawlMoment] = deque()
        self._end: _End | str = ""

    def note(self, moment: CrawlMoment) -> bool:
        """Keep *moment*, if the last one is some EVERY_S old. Returns whether it is."""
        moments = self._moments
        if moments and 0 <= moment.at - moments[-1].at < EVERY_S * _EARLY:
            return False
        moments.append(moment)
        while moments[0].at < moment.at - TREND_S:
            moments.popleft()
        return True

    def at(
        self, moment: CrawlMoment, most_pages: int | None = None, until: float | None = None
    ) -> EndInWords:
        """Return when nothing is left to do, *most_pages* are fetched, or it is *until* (epoch
        seconds). As long as the former two are not known, that is the latest time. To be called
        every EVERY_S, or more often."""
        if self.note(moment):
            self._end = self._forecast(most_pages)
        end, again = self._end, moment.again
        pages = f"{many(again, 'page')} {'is' if again == 1 else 'are'} visited again"
        is_latest = end == ""
        has_end = end == LAST_FETCHES if isinstance(end, str) else until is None or end[0] <= until
        if until is not None and not has_end:
            end = until, pages if again else "as until says"
        if isinstance(end, str):
            return EndInWords(end, pages if end == NO_END else "")
        ends_at, why = end
        seconds = max(0.0, ends_at - moment.at)
        at = f"({clock(moment.at, seconds)}){' at the latest' if is_latest else ''}"
        return EndInWords(f"ends in {span(seconds)} {at}", why)

    def _forecast(self, most_pages: int | None) -> _End | str:
        since, last = self._since(), self._moments[-1]
        hosts = self._work.longest_hosts(MOST_HOSTS)  # early too: workers read them when asked
        fetches, seconds = last.finished - since.finished, last.at - since.at
        before = self._moments[max(0, len(self._moments) - 2)]
        # At the second look first: forty hosts are off by 12 % after 5 s, and by 8 % after 10 s.
        seen = min(fetches, before.finished - self._moments[0].finished)
        is_early = seen < _LEAST_FETCHES and seconds < _RECENT_S
        growth = (last.found - since.found) / fetches if fetches > 0 else 0.0
        ends = [] if most_pages is None else [self._by_pages(since, most_pages)]
        never_ends = last.again > 0
        if not (is_early or never_ends) and growth <= _MOST_GROWTH:
            ends.append(self._by_hosts(hosts, since, growth))
        known = [each for each in ends if each is not None]
        if known:
            return min(known)
        if never_ends:
            return NO_END
        if not is_early and last.counts.leased and not last.counts.to_fetch:
            return LAST_FETCHES
        if growth <= _MOST_GROWTH or seconds < _RECENT_S:
            return ""
        if last.counts.left > since.counts.left and last.counts.left >= before.counts.left:
            return GROWS
        return f"end unknown: 100 fetches bring {100 * growth:.0f} new URLs"

    def _since(self) -> CrawlMoment:
        """Return the moment from which on the trend is looked at: _RECENT_S and _RECENT_FETCHES
        ago, or when most was left, if that is later. So URLs that came before, as seeds do, are no
        growth."""
        moments, last = self._moments, self._moments[-1]
        most_left = max(moments, key=lambda each: (each.counts.left, each.at))
        since = moments[0] if most_left is last else most_left
        for each in moments:
            seconds, fetches = last.at - each.at, last.finished - each.finished
            if seconds < _RECENT_S or fetches < _RECENT_FETCHES:
                break
            since = each if each.at > since.at else since
        return since

    def _by_hosts(
        self, hosts: Sequence[HostWork], since: CrawlMoment, growth: float
    ) -> _End | None:
        last = self._moments[-1]
        fetches, seconds = last.finished - since.finished, last.at - since.at
        sample = self._work.sampled_paces()
        latest = forecast(hosts, self._work.settings_of, last.at, growth, sample)
        if latest is None:
            return None
        if seconds >= _RECENT_S and fetches >= _RECENT_FETCHES:
            left = last.counts.left
            of_all_s = left * (1 + growth / 2) * seconds / fetches
            if of_all_s > _LIMITED_BY_ALL * latest.seconds:
                at_rate = f"{rate(fetches / seconds)} a second"
                return last.at + of_all_s, f"{many(left, 'URL')} at {at_rate}"
        return last.at + latest.seconds, _host(latest)

    def _by_pages(self, since: CrawlMoment, most_pages: int) -> _End | None:
        last = self._moments[-1]
        pages, seconds = last.pages - since.pages, last.at - since.at
        if pages < _LEAST_FETCHES:
            return None
        left = max(0, most_pages - last.pages)
        at_rate = f"{rate(pages / seconds)} a second"
        return last.at + left * seconds / pages, f"{many(left, 'page')} at {at_rate}"


def _host(last: Forecast) -> str:
    return f"{plain(last.host, _HOST_CHARS)}, {many(last.urls, 'URL')} at {last.cycle_s:.1f} s"


def clock(now: float, in_s: float) -> str:
    """Return the local time in *in_s* seconds from *now*: with its day, if it is another one."""
    then, today = time.localtime(now + in_s), time.localtime(now)
    form = "%H:%M" if then[:3] == today[:3] else "%a %H:%M" if in_s < 6 * 86_400 else "%d %b %Y"
    return time.strftime(form, then)

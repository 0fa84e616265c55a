"""`fresh`: when a page is visited next and why then, and how fresh the copies of many pages are.

Rule: all is computed from the pages' histories, which are read, and by the policy that decides
(policy/revisits.py): nothing is counted for it while the crawl runs. Times are epoch seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from crawler.config.settings import Config
from crawler.frontier.gone import ASKED_S
from crawler.frontier.later import CYCLE_DAYS, DAY_S, LEAST_S, first_worth, usual_rate, wait_s
from crawler.frontier.records import GoneRecord, HostVisits
from crawler.model.choices import RevisitChoice
from crawler.model.types import Candidate, HostKey, Outcome, PageHistory
from crawler.policy.operator_rules import OperatorRules, read_rules
from crawler.policy.patterns import OTHER_PATTERNS, pattern_of
from crawler.policy.revisits import (
    ChangeRate,
    crawl_value,
    longest_days,
    rate_quantile,
    signal_days,
    stale_chance,
    stale_days,
    unpack_rate,
    unsignalled,
)
from crawler.view.hosts import HostQuery
from crawler.view.identity import UrlIdentifier, refuse_other_identity
from crawler.view.port import (
    CrawlView,
    KnownUrl,
    LaterUrl,
    LeasedUrl,
    Place,
    UrlRecord,
    VisitTotals,
    WaitingUrl,
)

_HOSTS: Final = 20_000  # whose rates are remembered while pages are read
_PATTERNS: Final = 100_000  # that are counted, 20 MB; further ones together
_SHOWN: Final = 10  # patterns
_ROUNDED_S: Final = 2.0
_SURE: Final = 0.8  # the chance that the rate is between the two that are named


class PageVisits(msgspec.Struct, frozen=True, kw_only=True):
    """The visits of one page, and when the next one is due. None: not known, or there is none."""

    url: str
    host: str
    mode: str  # once | adaptive | a number of seconds between two visits
    place: str  # later | waiting | leased | gone | ""
    visits: int = 0
    changes: int = 0
    visited_at: float | None = None
    changed_at: float | None = None
    gone: int = 0  # visits in a row that did not find it
    gone_at: float | None = None  # the last of them, if it is gone
    gone_outcome: Outcome | None = None  # what that found, if its log is on this machine
    named_from: float | None = None  # a link to the gone page has it asked for again from then on
    brought: int = 0  # visits that found new links on it
    signals: int = 0  # new dates of a sitemap or feed since the last visit
    is_own_rate: bool = False  # else the days are those of its host's pages
    change_days: float | None = None  # the mean time between two changes
    least_days: float | None = None  # that time is between these two with a chance of 80 %
    most_days: float | None = None
    stale: float | None = None  # the probability that it has changed since the last visit
    due_at: float | None = None
    by: str = ""  # date | links | absence | worth: what decides when it is due
    worth_now: float | None = None  # what a visit gains now, in days for which its copy is fresh
    worth_needed: float | None = None  # by which it is due
    put_off_s: float = 0.0  # for which it waits longer, as other pages of its host waited
    longest_days: float | None = None  # between two visits, whatever they gain
    visits_per_day: float | None = None  # the budget of pages without a date


class PatternChanges(msgspec.Struct, frozen=True):
    """The pages of one pattern of a host, of which changes were found."""

    host: str
    pattern: str
    pages: int
    visits: int
    changes: int


class CopiesFreshness(msgspec.Struct, frozen=True, kw_only=True):
    """How fresh the copies are of all pages that are visited again, or of those of one host."""

    host: str = ""  # empty: all
    pages: int = 0
    dated: int = 0  # of these, with a date for the next visit
    visits: int = 0  # all, of the first fetch on
    changes: int = 0
    visited_last_day: int = 0  # pages
    changed_last_day: int = 0  # pages of which a change was found then
    visits_per_day: float | None = None  # the budget of pages without a date; None: there are none
    worth_needed: float = 0.0  # what a visit must gain to be due, in days; 0: not known yet
    fresh: float | None = None  # the mean probability that a copy is as the page is
    stale_days: float | None = None  # for how long copies are stale, in the mean of all
    since_days: float | None = None  # since the last visit, in the mean
    oldest_days: float | None = None
    patterns: list[PatternChanges] = []


def fresh_page(text: str, view: CrawlView, config: Config) -> PageVisits:
    """Return the visits of the page with the URL *text*. Raises CrawlerError."""
    refuse_other_identity(view.crawl, config)
    identifier = UrlIdentifier(config, view.crawl.key_seed)
    url = identifier.identify(text)
    rules = read_rules(view.rules(), len(config.frontier.level_shares))
    return page_visits(url, view.url(url, identifier.is_form_of(url)), rules, view, config)


def page_visits(
    url: KnownUrl, record: UrlRecord, rules: OperatorRules, view: CrawlView, config: Config
) -> PageVisits:
    """Return the visits of the page of *url*, of which *record* is known."""
    place = record.place
    revisit = rules.of_url(url.url).revisit
    mode = config.revisits.revisit if revisit is None else revisit
    found = PageVisits(
        url=url.url, host=url.host, mode=str(mode), place=_PLACES.get(type(place), "")
    )
    candidate = _candidate_in(place)
    if candidate is None or candidate.history is None:
        return found
    if isinstance(place, GoneRecord):
        return msgspec.structs.replace(
            found,
            visits=candidate.history.visits,
            changes=candidate.history.changes,
            visited_at=candidate.history.visited_at,
            changed_at=candidate.history.changed_at,
            gone=candidate.history.gone,
            gone_at=place.at,
            gone_outcome=record.outcomes[-1] if record.outcomes else None,
            named_from=place.at + ASKED_S,
        )
    per_day = _visits_per_day(view.visit_totals(url), rules, config)
    return _visits_of(found, url, candidate, candidate.history, place, per_day, view, config)


_PLACES: Final = {
    LaterUrl: "later",
    WaitingUrl: "waiting",
    LeasedUrl: "leased",
    GoneRecord: "gone",
}


def _candidate_in(place: Place) -> Candidate | None:
    return None if place is None else place.candidate


def _visits_of(
    found: PageVisits,
    url: KnownUrl,
    candidate: Candidate,
    history: PageHistory,
    place: Place,
    per_day: float,
    view: CrawlView,
    config: Config,
) -> PageVisits:
    """Return *found* with the *history* of *candidate*. *per_day*: the budget of visits."""
    totals, now, rates = view.visit_totals(url), view.now(), _Rates(view, config)
    rate = rates.of(candidate, history)
    by_now, since_days = rates.unsignalled(candidate, rate), rates.since_days(candidate, now)
    found = msgspec.structs.replace(
        found,
        visits=history.visits,
        changes=history.changes,
        visited_at=history.visited_at,
        changed_at=history.changed_at,
        gone=history.gone,
        brought=history.brought,
        is_own_rate=unpack_rate(history.rate) is not None,
        change_days=rate.days / rate.shape,
        least_days=1.0 / rate_quantile(rate, (1.0 + _SURE) / 2),
        most_days=1.0 / max(rate_quantile(rate, (1.0 - _SURE) / 2), 1e-9),
        stale=stale_chance(by_now, since_days),
        signals=history.signals,
    )
    if not isinstance(place, LaterUrl):
        return found
    if place.class_number is None:
        by = "absence" if history.gone else "date"
        if not history.gone and found.mode == RevisitChoice.ADAPTIVE:
            by = "links"
        return msgspec.structs.replace(found, due_at=place.candidate.not_before, by=by)
    cycle_days = totals.by_worth / max(per_day, 1e-9)
    longest = longest_days(cycle_days)
    worth = totals.worth or first_worth(1.0 / config.revisits.revisit_usual_days, cycle_days)
    signalled_s = since_days * DAY_S - (now - history.visited_at)
    put_off_s = place.counts_from - (history.visited_at - signalled_s)
    due_after_s = wait_s(place.class_number, worth, longest)
    return msgspec.structs.replace(
        found,
        by="worth",
        due_at=max(place.counts_from + due_after_s, history.visited_at + LEAST_S),
        worth_now=crawl_value(by_now, since_days, 1.0),
        worth_needed=worth,
        put_off_s=put_off_s if put_off_s > _ROUNDED_S else 0.0,
        longest_days=longest,
        visits_per_day=per_day,
    )


def _visits_per_day(totals: VisitTotals, rules: OperatorRules, config: Config) -> float:
    per_day = rules.revisits_per_day or config.revisits.revisits_per_day
    return totals.by_worth / CYCLE_DAYS if per_day is None else per_day


class _Rates:
    """What is known of how often pages change."""

    def __init__(self, view: CrawlView, config: Config) -> None:
        self._view = view
        self._usual = 1.0 / config.revisits.revisit_usual_days
        self._of_host = lru_cache(maxsize=_HOSTS)(self._read)

    def of(self, page: Candidate, history: PageHistory) -> ChangeRate:
        """Return how often *page* changes; if it was not visited again yet, by what was seen of its
        host."""
        host = self._of_host(page.host)
        known = unpack_rate(history.rate)
        return known or usual_rate(host.changes, host.watched_s, self._usual)

    def unsignalled(self, page: Candidate, rate: ChangeRate) -> ChangeRate:
        """Return how often *page* changes without a new date in a sitemap or feed."""
        return unsignalled(rate, self._of_host(page.host).signals) if page.modified else rate

    def since_days(self, page: Candidate, now: float) -> float:
        """Return the days since the last visit of *page*; signals of a change count as more."""
        history = page.history
        assert history is not None, f"{page.url} is visited again, but never was"
        days = max(0.0, now - history.visited_at) / DAY_S
        if not history.signals:
            return days
        signals = self._of_host(page.host).signals
        return days + history.signals * signal_days(self.of(page, history), signals)

    def _read(self, host: HostKey) -> HostVisits:
        known = next(iter(self._view.hosts(HostQuery(host=host))), None)
        return HostVisits() if known is None else known.visits


def fresh_copies(view: CrawlView, config: Config, host: str = "") -> CopiesFreshness:
    """Return how fresh the copies of all pages are, or of those of *host*. All that wait for their
    next visit are read: 10 us each. Raises CrawlerError."""
    totals, now = view.visit_totals(None), view.now()
    rates, sums = _Rates(view, config), _Sums()
    for page in view.visited_again(HostKey(host) if host else None):
        history = page.candidate.history
        if history is not None and history.visits:
            rate = rates.unsignalled(page.candidate, rates.of(page.candidate, history))
            sums.add(page, history, rate, rates.since_days(page.candidate, now), now)
    rules = read_rules(view.rules(), len(config.frontier.level_shares))
    per_day = _visits_per_day(totals, rules, config) if totals.by_worth else None
    return sums.freshness(host, totals, per_day)


class _Sums:
    def __init__(self) -> None:
        self.pages = self.dated = self.visits = self.changes = 0
        self.visited_last_day = self.changed_last_day = 0
        self.stale = self.stale_days = self.since_days = self.oldest_days = 0.0
        self.patterns: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])

    def add(
        self,
        page: LaterUrl,
        history: PageHistory,
        rate: ChangeRate,
        counted_days: float,
        now: float,
    ) -> None:
        """*counted_days*: since the last visit, and more where signals have come."""
        since_days = max(0.0, now - history.visited_at) / DAY_S
        self.pages += 1
        self.dated += page.class_number is None
        self.visits += history.visits
        self.changes += history.changes
        self.visited_last_day += since_days < 1.0
        self.changed_last_day += history.changes > 0 and now - history.changed_at < DAY_S
        self.stale += stale_chance(rate, counted_days)
        self.stale_days += min(stale_days(rate, counted_days), since_days)
        self.since_days += since_days
        self.oldest_days = max(self.oldest_days, since_days)
        if history.changes:
            pattern = pattern_of(page.candidate.url) or page.candidate.url
            name = (str(page.candidate.host), pattern)
            if name not in self.patterns and len(self.patterns) >= _PATTERNS:
                name = ("", OTHER_PATTERNS)
            counted = self.patterns[name]
            counted[0] += 1
            counted[1] += history.visits
            counted[2] += history.changes

    def freshness(self, host: str, totals: VisitTotals, per_day: float | None) -> CopiesFreshness:
        pages = self.pages
        first = sorted(self._changed(), key=lambda each: (-each.changes, each.host, each.pattern))
        return CopiesFreshness(
            host=host,
            pages=pages,
            dated=self.dated,
            visits=self.visits,
            changes=self.changes,
            visited_last_day=self.visited_last_day,
            changed_last_day=self.changed_last_day,
            visits_per_day=per_day,
            worth_needed=totals.worth,
            fresh=1.0 - self.stale / pages if pages else None,
            stale_days=self.stale_days / pages if pages else None,
            since_days=self.since_days / pages if pages else None,
            oldest_days=self.oldest_days if pages else None,
            patterns=first[:_SHOWN],
        )

    def _changed(self) -> Iterator[PatternChanges]:
        for (host, pattern), counted in self.patterns.items():
            yield PatternChanges(host, pattern, *counted)

"""The counters of a run, for the progress line, the summary and Scrapy's stats.

Rule: memory is bounded, so only the busiest hosts are counted one by one, and no host name becomes
a stats key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from scrapy.statscollectors import StatsCollector

from crawler.data.seed_fates import SeedFates
from crawler.loop.life import Life
from crawler.loop.outcome import UNMODIFIED, words_of
from crawler.loop.visit import LaterVisit, VisitResult
from crawler.model.counts import (
    FIRST_DEAD,
    ROUND_SETTING,
    TOP_HOSTS,
    TOP_OVER_BUDGET,
    DeadUrl,
    Figures,
    HostChanges,
    HostPages,
    OverBudget,
)
from crawler.model.program import PROGRAM
from crawler.model.types import (
    Added,
    Answer,
    HostKey,
    Outcome,
    OverBudgetLinks,
    Purpose,
    Rest,
)
from crawler.policy.politeness import CHALLENGE, decisive, is_cancelled, is_left, is_trouble
from crawler.policy.validators import ConditionFault

# Above this the half with the lowest counts is dropped: the top ten of a crawl are far above them.
_MAX_HOSTS: Final = 20_000
_SAMPLES: Final = 2_000  # visits: the share of fresh copies to a hundredth
_FAILING_KEPT: Final = 1_000  # failing hosts, of which a broad crawl may have more
_DUE_KEPT: Final = 20_000  # hosts that rest, of which it is known since when: 4 MB
GAP_OVER_DUE: Final = "gap_over_due"
GAP_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1, 5, 10, 60, 600, 3600)
"""Upper bounds of the classes of that histogram; beside them are `early`, and `more`."""
_TOO_EARLY_S: Final = -0.001  # of clock values that are added and subtracted
TYPES, LANGUAGES = "type", "language"
_NOT_HANDED_OVER: Final = (f"{GAP_OVER_DUE}/", f"{TYPES}/", f"{LANGUAGES}/")
_HAND_OVER_S: Final = 1.0
_OTHER: Final = "other"
_NAMES_KEPT: Final = 200  # media types, or languages, that are counted one by one
_NAME_CHARS: Final = 100  # of a media type; the longest that is registered has 84
_TYPE: Final = re.compile(r"[a-z0-9.+-]+/[a-z0-9.+-]+")
_LANGUAGE: Final = re.compile(r"[a-z]{2,3}(?![a-z])")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailingHost:
    """A host whose last fetch failed, and which rests until *until* (epoch seconds)."""

    host: HostKey
    until: float
    trouble: str  # an error as in Answer, or "status_N"

    @property
    def why(self) -> str:
        return words_of(self.trouble)

    def __str__(self) -> str:
        clock = time.strftime("%H:%M", time.localtime(self.until))
        return f"{self.host} until {clock} ({self.why})"


_Name = TypeVar("_Name")


class Histogram:
    """Counts values by size, in a tenth of a microsecond each."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """*bounds*: the largest value of each class, ascending; one more class has no bound."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


IDLE_S: Final = 10.0  # hosts that answer seldom rest longer
FETCH_BOUNDS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
VERDICT_BOUNDS_S: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
DNS_BOUNDS_S: Final = (0.001, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
LOOP_BOUNDS_S: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class CopySamples:
    """How fresh copies are, and how old, by the latest visits of pages that were visited before:
    some _SAMPLES of them. A visit counts by the time since the one before, as of two pages the one
    that is visited half as often has half as many."""

    def __init__(self) -> None:
        self._interval_s = self._stale_s = self._squares = 0.0

    def add(self, interval_s: float, stale_s: float) -> None:
        kept = 1.0 - 1.0 / _SAMPLES
        self._interval_s = self._interval_s * kept + interval_s
        self._stale_s = self._stale_s * kept + stale_s
        self._squares = self._squares * kept + interval_s * interval_s

    @property
    def fresh(self) -> float | None:
        """The share of copies that are as the page is; None: no visit has told yet."""
        return 1.0 - self._stale_s / self._interval_s if self._interval_s else None

    @property
    def age_s(self) -> float | None:
        """The mean time since the last visit of a page; None as `fresh`."""
        return self._squares / self._interval_s / 2 if self._interval_s else None


_SETTINGS: Final = {
    "host": "CRAWLER_MAX_URLS_PER_HOST",
    "domain": "CRAWLER_MAX_URLS_PER_DOMAIN",
    "round": ROUND_SETTING,
}
"""The setting of a budget, by its unit."""


class CrawlStats:
    """Implements loop.LoopFigures."""

    def __init__(self, stats: StatsCollector) -> None:
        self._stats = stats
        self.counters: Counter[str] = Counter()
        self.seeds = SeedFates()
        self._handed_over: dict[str, int] = {}  # what Scrapy's stats have of them
        self.by_host: Counter[str] = Counter()
        self.changes_by_host: Counter[str] = Counter()  # that visits of known pages have found
        self.copies = CopySamples()
        # Links, by unit and name of a budget, and the latest of each.
        self.over_budget_links: Counter[tuple[str, str]] = Counter()
        self._budgets: dict[tuple[str, str], OverBudgetLinks] = {}  # 2 * _MAX_HOSTS at most
        self.dead: list[Outcome] = []  # the first few
        self.fetch_s = Histogram(FETCH_BOUNDS_S)
        self.gap_over_due_s = Histogram((0.0, *GAP_BOUNDS_S))  # 0 and below: too early
        self.verdict_s = Histogram(VERDICT_BOUNDS_S)  # from the end of a fetch to its verdict
        self.dns_s = Histogram(DNS_BOUNDS_S)
        self.loop_s = Histogram(LOOP_BOUNDS_S)  # by which the event loop is late
        # When a rest ends, the latest last. (A plain dict takes longer to find its first.)
        self._due: OrderedDict[HostKey, float] = OrderedDict()
        self._foreign_names: set[str] = set()  # counters that servers have named
        self._page_names: dict[tuple[str, str], tuple[str, ...]] = {}  # _NAMES_KEPT at most
        self._failing: dict[HostKey, FailingHost] = {}  # the latest last, _FAILING_KEPT at most
        self._failing_logged = 0
        self._faulty: set[tuple[HostKey, ConditionFault]] = set()  # _MAX_HOSTS at most
        self._refusals_logged = 0
        self.heard_at = 0.0  # epoch seconds: when a host answered last; 0: none has
        self.last_fetch_at = 0.0  # epoch seconds: its begin or its end, or the start of the crawl

    @property
    def figures(self) -> Figures:
        """What was counted up to now."""
        return Figures(dict(self.counters))

    def figures_with_names(self) -> Figures:
        """Return `figures`, and what is named at the end of a run."""
        over_budget = [
            OverBudget(_SETTINGS[name[0]], budget.most, budget.name, links, budget.rank)
            for name, links in self.over_budget_links.most_common(TOP_OVER_BUDGET)
            if (budget := self._budgets[name])
        ]
        return Figures(
            dict(self.counters),
            [HostPages(*each) for each in self.by_host.most_common(TOP_HOSTS)],
            over_budget,
            [DeadUrl(each.url, each.reason) for each in self.dead],
            self.top_changes,
        )

    @property
    def top_changes(self) -> list[HostChanges]:
        """The hosts on whose pages most changes were found."""
        return [HostChanges(*each) for each in self.changes_by_host.most_common(TOP_HOSTS)]

    def begin(self, now: float) -> None:
        """Count from *now* for how long nothing has been fetched."""
        self.last_fetch_at = now

    def count(self, key: str, by: int = 1) -> None:
        if by:
            self.counters[key] += by

    def hand_over(self) -> None:
        """Add to Scrapy's stats what was counted since the last call. One `inc_value` takes 3 us,
        and a page is counted in eight counters, so that is done once a second."""
        for key, counted in self.counters.items():
            since = counted - self._handed_over.get(key, 0)
            if since and not key.startswith(_NOT_HANDED_OVER):
                self._stats.inc_value(f"crawler/{key}", since)
                self._handed_over[key] = counted

    async def hand_over_regularly(self) -> None:
        while True:
            await asyncio.sleep(_HAND_OVER_S)
            self.hand_over()

    def count_added(self, added: Added) -> None:
        self.count("links/new", added.new)
        self.count("links/seen", added.seen)
        self.count("links/released", added.released)
        self.count_over_budget(added)

    def count_over_budget(self, added: Added) -> None:
        self.count("links/over_budget", added.over_budget)
        for each in added.kept_out:
            name = (each.unit, each.name)
            self._budgets[name] = each
            self._count_named(self.over_budget_links, name, each.links)
        if len(self._budgets) > 2 * _MAX_HOSTS:
            counted = self.over_budget_links
            self._budgets = {name: each for name, each in self._budgets.items() if name in counted}

    def count_begun(self, host: HostKey, now: float) -> None:
        """Count how long after the end of the rest of *host* its next fetch begins. Nothing is
        counted for a host that was not fetched from yet, or long ago."""
        self.last_fetch_at = now
        due = self._due.pop(host, None)
        if due is None:
            return
        over_s = now - due
        is_early = over_s < _TOO_EARLY_S
        self.gap_over_due_s.observe(over_s if is_early else max(over_s, 1e-9))
        bound = bisect_left(GAP_BOUNDS_S, over_s)
        name = f"{GAP_BOUNDS_S[bound]:g}" if bound < len(GAP_BOUNDS_S) else "more"
        self.counters[f"{GAP_OVER_DUE}/{'early' if is_early else name}"] += 1

    def count_page(self, media_type: str, language: str) -> None:
        """Count a page of status 2xx. *language*: as declared."""
        media_type, language = media_type[:_NAME_CHARS], language[:_NAME_CHARS]
        names = self._page_names.get((media_type, language))
        if names is None:
            if len(self._page_names) >= _NAMES_KEPT:
                self._page_names.clear()
            names = self._page_names[media_type, language] = self._names(media_type, language)
        for name in names:
            self.counters[name] += 1

    def _names(self, media_type: str, language: str) -> tuple[str, ...]:
        """Return the counters of a page. A server chose these words: they are others unless they
        look like what they should be, and when many different ones are counted."""
        named = [(TYPES, media_type if _TYPE.fullmatch(media_type) else _OTHER)]
        if language:
            found = _LANGUAGE.match(language.lower())
            named.append((LANGUAGES, found[0] if found else _OTHER))
        counted = self._foreign_names
        for prefix, word in named:
            if sum(name.startswith(prefix) for name in counted) < _NAMES_KEPT:
                counted.add(f"{prefix}/{word}")
        names = (f"{prefix}/{word}" for prefix, word in named)
        return tuple(
            name if name in counted else f"{name.partition('/')[0]}/{_OTHER}" for name in names
        )

    def count_completed(self, life: Life, outcome: Outcome) -> None:
        self.count(f"fate/{outcome.fate}")
        if life.is_of_check:
            if outcome.fate not in ("retry", "put_back"):
                self.count(f"external/{outcome.external}")
            self.count("bytes", outcome.size)
            return
        if not life.is_of_page:
            self._count_robots(life)
            return
        self.seeds.count(outcome, is_listing=life.candidate.is_sitemap)
        if outcome.status is not None:
            self.verdict_s.observe(outcome.at - life.began_at - life.paused_s - outcome.seconds)
            self.count(f"status/{outcome.status // 100}xx")
            self.count("bytes", outcome.size)
        elif outcome.fate == "done" and outcome.reason.startswith("robots.txt: "):
            self.count("robots/disallowed")
        elif outcome.fate == "done" and outcome.reason.startswith("pattern "):
            self.count("patterns/unfetched")
        if outcome.fate in ("retry", "dead"):
            self._count_error(outcome)
        elif outcome.fate != "put_back" and life.truncated:
            self.count(f"truncated/{life.truncated}")
        if is_page(outcome):
            self.count("pages")
            self._count_named(self.by_host, outcome.host)
        if outcome.reason == "duplicate":
            self.count("duplicates")

    def count_rest(self, host: HostKey, answers: Sequence[Answer], rest: Rest, now: float) -> None:
        """Count a rest after *answers*, and keep which hosts fail, so that a crawl whose hosts
        cannot be reached shows why. The first _FAILING_KEPT of them are logged one by one."""
        self.last_fetch_at = now
        answer = decisive(answers)
        if answer.status is not None or answer.error == "protocol":
            self.heard_at = now
        self.count(f"politeness/rest/{rest.reason}")
        self._due.pop(host, None)
        self._due[host] = now + rest.seconds
        if len(self._due) > _DUE_KEPT:
            self._due.popitem(last=False)
        self._failing.pop(host, None)
        for each in answers:
            if not is_cancelled(each):
                self.fetch_s.observe(each.duration_s)
        if not is_trouble(answer):
            return
        if answer.error == CHALLENGE:
            self._count_challenge(host, answer, rest, now)
        trouble = answer.error or f"status_{answer.status}"
        failing = self._failing[host] = FailingHost(host, now + rest.seconds, trouble)
        if len(self._failing) > _FAILING_KEPT:
            del self._failing[next(iter(self._failing))]
        if rest.pace.failures == 1 and self._failing_logged < _FAILING_KEPT:
            self._failing_logged += 1
            logger.info("Waiting for %s", failing)

    def _count_challenge(self, host: HostKey, answer: Answer, rest: Rest, now: float) -> None:
        """Count a challenge. That a host is paused or left for it is logged, as an operator may ask
        for permission meanwhile; of the first _FAILING_KEPT such times."""
        self.count(f"challenge/{answer.detail}")
        left = is_left(rest.pace)
        self.count("politeness/left", left)
        if (left or rest.reason == CHALLENGE) and self._refusals_logged < _FAILING_KEPT:
            self._refusals_logged += 1
            who = f"{host} does not welcome us ({answer.detail})"
            if left:
                logger.warning(
                    "%s: it is left until `%s frontier retry` puts it back", who, PROGRAM
                )
            else:
                clock = time.strftime("%H:%M", time.localtime(now + rest.seconds))
                logger.info("%s: it is paused until %s", who, clock)

    def count_condition_fault(self, host: HostKey, fault: ConditionFault) -> None:
        """Count that *host* answers falsely whether pages have changed, once in this run; the
        first _FAILING_KEPT are logged."""
        if (host, fault) in self._faulty:
            return
        if len(self._faulty) >= _MAX_HOSTS:
            self._faulty.clear()
        self._faulty.add((host, fault))
        self.count(f"revisits/{fault}")
        if self.counters[f"revisits/{fault}"] <= _FAILING_KEPT:
            logger.info("%s %s", host, fault.words)

    def count_later_visit(self, visit: LaterVisit) -> None:
        self.count(f"revisits/result/{visit.result}")
        if visit.result is VisitResult.CHANGED:
            self._count_named(self.changes_by_host, visit.host)
        if visit.interval_s:
            self.count("revisits/interval_s", round(visit.interval_s))
            self.count("revisits/stale_s", round(visit.stale_s))
            self.copies.add(visit.interval_s, visit.stale_s)

    def count_lookup(self, result: str, seconds: float) -> None:
        """Count a question to the name servers: found, absent or failed."""
        self.count(f"dns/{result}")
        self.dns_s.observe(seconds)

    def count_name(self, event: str) -> None:
        """Count a name that a connection needed (cached, stale, waited), that was prefetched, that
        another worker had (shared) or had of refused addresses (disbelieved), or for which there
        was no room (evicted)."""
        self.counters[f"names/{event}"] += 1

    def idle_s(self, now: float, fetching: int) -> float:
        """Return for how long nothing has been fetched, if that is IDLE_S or more; else 0. Between
        two fetches there is the rest of a host. *fetching*: how many fetches there are now."""
        since_s = now - self.last_fetch_at
        return 0.0 if fetching or since_s < IDLE_S else since_s

    def waits_for(self, now: float, fetching: int) -> str:
        """Return the failing host that is tried next, in words; empty while anything is fetched."""
        failing = self.next_failing(now) if self.idle_s(now, fetching) else None
        return str(failing) if failing else ""

    def next_failing(self, now: float) -> FailingHost | None:
        """Return the failing host whose rest ends first, or None."""
        ahead = (each for each in self._failing.values() if each.until > now)
        return min(ahead, key=lambda each: each.until, default=None)

    def _count_robots(self, life: Life) -> None:
        """Count a fetch of robots.txt. Without an answer it waited for another host, and does not
        count."""
        answer = life.answer
        if life.plan.purpose is not Purpose.ROBOTS or answer is None:
            return
        self.count("robots/fetched")
        if is_trouble(answer) and answer.error != "cancelled":
            self.count("robots/failed")
            self.count("error/robots_failed")

    def _count_error(self, outcome: Outcome) -> None:
        self.count(f"error/{outcome.failure}")
        if outcome.failure == "robots_unreachable":
            self.count("robots/unreachable")
        if outcome.fate == "dead" and len(self.dead) < FIRST_DEAD:
            self.dead.append(outcome)

    @staticmethod
    def _count_named(counted: Counter[_Name], name: _Name, by: int = 1) -> None:
        counted[name] += by
        if len(counted) > _MAX_HOSTS:
            kept = counted.most_common(_MAX_HOSTS // 2)
            counted.clear()
            counted.update(dict(kept))


def is_page(outcome: Outcome) -> bool:
    """Return whether the outcome has an answer that is no redirect, is not fetched again, and does
    not only say that the page is as it was."""
    is_answer = outcome.status is not None and outcome.fate in ("done", "dead")
    return is_answer and outcome.reason != UNMODIFIED

"""`plan`: which URLs a run would fetch next, in which order, and why not the others.

Rule: nothing is written. A frontier with the records of the crawl, whose changes are in memory,
leases as a run would, on a clock that passes over the rests: so the plan is what a round leases, by
the same code. Each fetch takes no time, its host then rests as it did last, and no link is found.
A plan is of one round.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from crawler.config.arguments import with_kept_arguments
from crawler.config.settings import Config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.frontier import records as keys
from crawler.frontier.open import open_frontier
from crawler.frontier.overlay import OverlayStore
from crawler.frontier.port import FrontierLimits, ReadableStore
from crawler.frontier.records import HostPlace, decode_figures, waiting_of
from crawler.frontier.staging import slices
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.choices import LaterVisits
from crawler.model.types import Candidate, ConfigError, Pace
from crawler.model.url import registered_domain
from crawler.policy.operator_rules import NO_RULES, OperatorRules, read_rules
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.rounds import RoundCaps
from crawler.view.budgets import limits_in_force
from crawler.view.port import CrawlView
from crawler.view.why import start_rules

_HIDDEN: Final = (keys.ARRIVED, keys.UNDECIDED, keys.ADMITTED_KEYS, keys.SEEN_RUNS)
"""Of URLs that are not admitted yet: they would be tested against files that are only a crawl's."""
_AT_ONCE: Final = 100  # URLs of a call, and of a commit
_SLICE: Final = 10_000  # hosts read at once
_LONGEST_S: Final = 400 * 86_400.0
"""How far the clock of a plan goes: hosts may rest until an operator resumes them."""

WHY_NOT: Final = MappingProxyType(
    {
        "later": "have a date: to be tried, or visited, again",
        "host_cap": "beyond the number of their host in the round",
        "domain_cap": "beyond the number of their domain in the round",
        "kind": "not of the kind that the round fetches",
        "order": "come later in the order",
        "rests": "come later in the order, and their host rests now",
        "refused": "refused by a rule",
        "paused": "paused by the operator",
        "spilled": "over the budget of their domain, for now",
        "capped": "over the budget of their host or domain in all",
        "undecided": "found, and it is not known yet whether they are new",
    }
)
"""Why a URL is not in a plan."""


class PlannedUrl(msgspec.Struct, frozen=True):
    """A URL that a run would fetch, as one line of a plan."""

    url: str
    host: str
    level: int  # 0 is best; the last one is of pages that are visited again
    cash: int  # its weight: 256 more is twice as much
    due: float  # epoch seconds: when its turn would come, as its host may rest before


class PlanFigures(msgspec.Struct, frozen=True):
    """What a plan has, and what it has not."""

    planned: int
    began_at: float  # epoch seconds
    round: int  # that they are the rest of, or all; 0: of a new one, by no arguments of a run
    under_way: int  # the round that is unfinished, and that this is no plan of; 0: there is none
    left: dict[str, int]  # URLs that are not planned, by why, one of WHY_NOT


class _PlanRules:
    """Implements frontier.port.LeaseRules by the last start."""

    are_complete = True

    def __init__(self, origins: AllowedOrigins, rules: OperatorRules, now: float) -> None:
        self._origins, self._rules, self._now = origins, rules, now
        self.paused = 0

    @property
    def later_visits(self) -> LaterVisits:
        return self._origins.later_visits

    @property
    def visits_per_day(self) -> float | None:
        return self._rules.revisits_per_day

    def refusal(self, candidate: Candidate) -> Refusal | None:
        is_paused = self._rules.of_url(candidate.url).paused_until(self._now) is not None
        if is_paused or self._rules.paused_until(self._now) is not None:
            return Refusal(Reason.OPERATOR, _PAUSED)
        origins = self._origins
        return origins.choice_refusal(candidate) or origins.admission.refusal(candidate)

    def on_refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        self.paused += sum(refusal.detail is _PAUSED for _, refusal in urls)

    def on_readmitted(self, urls: int) -> None:
        """Nothing to report."""


_PAUSED: Final = "it is paused"


def store_of_plan(records: ReadableStore) -> OverlayStore:
    """Return what a plan of the frontier with these *records* is made in."""
    return OverlayStore(records, _HIDDEN)


class RoundPlan:
    """A plan of the crawl of *view*: first its `urls`, then its `figures`."""

    def __init__(
        self,
        view: CrawlView,
        config: Config,
        given: Mapping[str, str],
        bounds: RoundCaps,
        folder: Path,
    ) -> None:
        """*given*: arguments in place of those of the last start. If they make a run one in rounds,
        the plan goes on in the round as that run would; else it is of a new one. *bounds*: `urls`
        of the plan, and most of a host and a domain in the round, in all. *folder*: an empty one,
        for what the plan needs on disk. Raises CrawlerError."""
        self._view, self._top, self._folder = view, bounds.urls, folder
        below, self._shards = view.records(folder)
        self._store = store_of_plan(below)
        self._began_at = self._now = view.now()
        last = view.last_start()
        started = with_kept_arguments(given, last.arguments or {})
        arguments = {name: str(value) for name, value in started.items()}
        rules = NO_RULES
        with suppress(ConfigError):  # `scrapy rules` says which error there is
            rules = read_rules(view.rules(), len(config.frontier.level_shares))
        self._rules = None
        if last.arguments is not None or given:
            opened = view.opened_hosts()
            start = start_rules(view, config, arguments, rules, self._store, opened, self._now)
            self._rules = _PlanRules(start.origins, rules, self._now)
        of_any = arguments if last.arguments is not None or given else None
        limits = limits_in_force(config, of_any, rules)
        self._is_of_run = limits.rounds is not None
        self._caps = _bounded(limits.rounds or RoundCaps(), bounds)
        self._limits = dataclasses.replace(limits, rounds=self._caps)
        self._planned = self._under_way = 0
        self._frontier: TwoTierFrontier | None = None

    def urls(self) -> Iterator[PlannedUrl]:
        """Yield the URLs in their order: once, to the end."""
        if not self._is_of_run:
            self._begin_round()
        self._frontier = open_frontier(
            *(self._folder, self._limits, self._now),
            lease_rules=self._rules,
            background=_PlanTurns(),
            store=self._store,
            shards=self._shards,
        )
        if self._shards is not None:
            for number in range(self._shards.count):
                for _ in self._frontier.take_in(number.to_bytes(keys.SHARD_BYTES), self._now):
                    self._frontier.commit()
        for found in leases_in_order(self._frontier, self._now, self._limits, self._top):
            self._planned += 1
            self._now = max(self._now, found.due)
            yield found
        self._frontier.commit()

    def _begin_round(self) -> None:
        """Let a new round begin, whether or not the last one is over."""
        packed = self._store.get(keys.TOTALS)
        totals = keys.decode_totals(packed) if packed else keys.FrontierTotals()
        self._under_way = totals.round.number if totals.round.first else 0
        totals.round.first = 0
        self._store.write({keys.TOTALS: keys.encode(totals)})

    def figures(self) -> PlanFigures:
        """Count what is not planned, by host: no URL is read for it."""
        assert self._frontier is not None, "the plan has been made"
        counts, paused = self._frontier.counts(), self._rules.paused if self._rules else 0
        left = Counter(
            later=counts.later,
            refused=counts.refused - paused,
            paused=paused,
            spilled=counts.spilled - counts.capped,
            capped=counts.capped,
            undecided=self._view.counts().undecided,
        )
        for found in slices(self._store, keys.HOST, _SLICE):
            waiting = waiting_of([packed for _, packed in found])
            for at in waiting.nonzero()[0].tolist():
                left[self._why_not(*found[at])] += int(waiting[at])
        return PlanFigures(
            planned=self._planned,
            began_at=self._began_at,
            round=self._frontier.round_number if self._is_of_run else 0,
            under_way=self._under_way,
            left={why: left[why] for why in WHY_NOT if left[why] > 0},
        )

    def _why_not(self, key: bytes, packed: bytes) -> str:
        """Return why the URLs of a host that wait are not planned."""
        record, caps = decode_figures(packed), self._caps
        frontier = self._frontier
        assert frontier is not None, "the plan has been made"
        number = frontier.round_number
        if record.place is not HostPlace.HELD:
            is_first = not _used(record.round, number)  # else it rests after what is planned
            return "rests" if is_first and record.rest_until > self._began_at else "order"
        if caps.per_host is not None and _used(record.round, number) >= caps.per_host:
            return "host_cap"
        if caps.per_domain is not None:
            domain = registered_domain(keys.name_in_shard(key))
            used = _used(frontier.budgets.peek(domain).round, number)
            return "domain_cap" if used >= caps.per_domain else "kind"
        return "kind"


def _bounded(caps: RoundCaps, bounds: RoundCaps) -> RoundCaps:
    """Return *caps* with those of *bounds* for a host and a domain, if these are tighter. Raises
    ConfigError if *caps* have what no plan can count."""
    if caps.seconds is not None or caps.floor is not None:
        raise ConfigError(
            "round_hours and round_floor cannot be planned, as it is not known how long fetches"
            " take: plan without them, by round, round_per_host or round_per_domain"
        )
    return dataclasses.replace(
        caps,
        per_host=_tighter(caps.per_host, bounds.per_host),
        per_domain=_tighter(caps.per_domain, bounds.per_domain),
    )


def _tighter(one: int | None, other: int | None) -> int | None:
    return min((cap for cap in (one, other) if cap is not None), default=None)


def leases_in_order(
    frontier: TwoTierFrontier, now: float, limits: FrontierLimits, top: int | None = None
) -> Iterator[PlannedUrl]:
    """Lease all that a round of *frontier* may have, one URL after another, and yield them, *top*
    at most. It is the round that *frontier* is in, or the next if that one may lease no more."""
    planned, began_at = 0, now

    def rest_s(pace: Pace) -> float:
        return max(pace.gap_s, pace.crawl_delay_s, limits.min_gap_s)

    while now < began_at + _LONGEST_S:
        at_once = _AT_ONCE if top is None else min(_AT_ONCE, top - planned)
        if at_once <= 0 or (planned and frontier.rounds.left <= 0):
            return
        urls = frontier.rehearse(now, at_once, rest_s)
        for due, each in urls:
            yield PlannedUrl(each.url, each.host, each.level, each.cash, round(due, 3))
        planned += len(urls)
        frontier.commit()
        now = urls[-1][0] if urls else now
        if len(urls) < at_once:
            wake_at = frontier.wake_at()
            if wake_at is None or (not urls and frontier.is_dry(now)):
                if planned or not frontier.end_dry_round(now) or frontier.rounds.is_over:
                    return
                wake_at = now
            now = max(now, wake_at)


class _PlanTurns:
    """Implements two_tier.Background: the plan commits, and there is no work beside it."""

    def commit_soon(self) -> None:
        """The plan commits after each URL."""

    def work_soon(self) -> None:
        """No URL is admitted."""


def _used(counted: int, number: int) -> int:
    return max(counted - keys.round_base(number), 0)

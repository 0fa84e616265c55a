"""The budgets of registered domains, and the URLs that wait for them, as they are shown.

Rule: ranks by links are those that are counted now; what a crawl goes by is up to 100,000 pages
old. A rank of CRAWLER_RANKS is the one by which URLs of the domain were admitted last: to read the
file takes seconds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from crawler.config.arguments import Arguments, read_arguments
from crawler.config.settings import Config
from crawler.frontier.budgets import CAPPED
from crawler.frontier.open import frontier_limits
from crawler.frontier.port import FrontierLimits
from crawler.frontier.records import DomainRecord
from crawler.policy.budgets import BudgetRules, RankTable, count_voters
from crawler.policy.operator_rules import OperatorRules, RuleBudgets


class DomainSort(StrEnum):
    """What orders domains: the greatest figure first, equal ones by name."""

    SPILLED = "spilled"  # URLs that wait for its budget
    ADMITTED = "admitted"  # URLs
    LINKED = "linked"  # domains that link to it


@dataclass(frozen=True, slots=True)
class DomainQuery:
    """*top* domains after the first *offset*, of those with *match* in their name."""

    top: int = 1
    sort: DomainSort = DomainSort.SPILLED
    match: str = ""
    offset: int = 0


_FIGURES: Final[Mapping[DomainSort, Callable[[DomainRecord], int]]] = {
    DomainSort.SPILLED: len,
    DomainSort.ADMITTED: lambda record: record.admitted,
    DomainSort.LINKED: lambda record: count_voters(record.voters),
}


def domain_figures(records: Sequence[DomainRecord], sort: DomainSort) -> NDArray[np.float64]:
    """Return what orders the domains with these *records*."""
    return np.array([_FIGURES[sort](each) for each in records], float)


class DomainRow(msgspec.Struct, frozen=True):
    """A registered domain, its budget, and what waits for it. Times are epoch seconds."""

    domain: str
    rank: int  # from 1, the best; domains to which equally many link have the worst of theirs
    rank_by: str  # links | CRAWLER_RANKS
    ranked: int  # domains that others link to
    linked_by: int  # other domains that link to it, about
    budget: int | None  # URLs a round, while others wait; None: any number
    budget_by: str  # the setting that says so, or rule; empty: it has none
    used: int  # of its budget, in this round
    next_round_at: float
    round_s: float
    admitted: int  # URLs, in all, of which its budgets know
    most: int | None  # URLs in all; None: any number
    spilled: int  # URLs that wait for its budget
    capped: bool  # they wait for a larger budget in all
    sampled_out: int  # URLs that were over its budget and not kept, ever
    kept_share: float  # of further URLs over its budget, that is kept


@dataclass(frozen=True, slots=True)
class DomainBudgetView:
    """By what the budget of a domain is shown."""

    limits: FrontierLimits
    degrees: Sequence[int]  # domains by classes of how many others link to them
    now: float

    def row(self, domain: str, record: DomainRecord) -> DomainRow:
        limits, rules = self.limits, self.limits.budgets
        rank = record.given_rank or RankTable.of(self.degrees).rank(record.degree)
        budget = None if limits.rule_budgets is None else limits.rule_budgets.per_round(domain)
        by = "" if budget is None else "rule"
        if budget is None and rules is not None:
            budget, is_top = rules.of_rank(rank), rank < rules.ranked
            by = "CRAWLER_TOP_DOMAIN_BUDGET" if is_top else "CRAWLER_DOMAIN_BUDGET"
        round_s = (rules or BudgetRules()).round_s
        ends_at = record.round_at + round_s
        return DomainRow(
            domain=domain,
            rank=rank,
            rank_by="CRAWLER_RANKS" if record.given_rank else "links",
            ranked=sum(self.degrees),
            linked_by=count_voters(record.voters),
            budget=budget,
            budget_by=by,
            used=record.used if ends_at > self.now else 0,
            next_round_at=max(ends_at, self.now),
            round_s=round_s,
            admitted=record.admitted,
            most=limits.budgets_of("", domain)[1],
            spilled=len(record),
            capped=record.filed == CAPPED,
            sampled_out=record.sampled_out,
            kept_share=0.5**record.halvings,
        )


def limits_in_force(
    config: Config, arguments: Mapping[str, str] | None, rules: OperatorRules
) -> FrontierLimits:
    """Return the limits of the frontier of a crawl whose last start had these *arguments*; None:
    its spider takes none of ours."""
    by_rule = RuleBudgets()
    by_rule.set_rules(rules)
    typed: Arguments | None = None
    if arguments is not None:
        typed = read_arguments({"seeds": "none", **arguments})
    return dataclasses.replace(frontier_limits(config, typed), rule_budgets=by_rule)

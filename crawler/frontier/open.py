"""Opens a frontier in a folder, without a crawl around it.

Rule: the caller says the time, and when the work beside the calls is done: by each call, at the end
of a turn (`FrontierTurns`), or on an event loop (`crawler/data/frontier_work.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from crawler.config.arguments import Arguments
from crawler.config.settings import Config, LimitSettings
from crawler.frontier.port import (
    FRONTIER,
    SEEN,
    AddressLeases,
    DurableStore,
    FrontierLimits,
    HostAddresses,
    LeaseRules,
)
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.shards import Shards
from crawler.frontier.two_tier import Background, TwoTierFrontier
from crawler.model.choices import ScopeChoice
from crawler.model.types import Added
from crawler.policy.budgets import BudgetRules
from crawler.policy.rounds import RoundCaps


def frontier_limits(config: Config, arguments: Arguments | None = None) -> FrontierLimits:
    """Return the limits of a frontier by *config*, for a spider with *arguments*, if it has any."""
    shares = config.frontier.level_shares
    scope = arguments.scope if arguments else ScopeChoice.ANY
    return FrontierLimits(
        level_shares=tuple(float(share) for share in shares),
        max_active_hosts=config.frontier.max_active_hosts,
        head_urls=config.frontier.head_urls,
        min_gap_s=config.politeness.min_delay_s,
        gap_factor=config.politeness.delay_factor,
        max_gap_s=config.politeness.max_delay_s,
        longest_fetch_s=config.longest_turn_s,
        most_requests=config.most_requests,
        max_retry_after_s=config.politeness.max_retry_after_s,
        max_rest_s=max(config.politeness.max_retry_after_s, config.politeness.max_crawl_delay_s)
        + config.politeness.pause_max_s,
        address_wait_s=config.politeness.address_wait_s,
        visit_share=config.revisits.revisit_share,
        visits_per_day=config.revisits.revisits_per_day,
        usual_change_days=config.revisits.revisit_usual_days,
        budgets=_budgets(config.limits, scope),
        max_urls_per_domain=config.limits.max_urls_per_domain,
        max_urls_per_host=config.limits.max_urls_per_host,
        rounds=round_caps(arguments) if arguments is not None else None,
    )


def round_caps(arguments: Arguments) -> RoundCaps | None:
    """Return the caps of the rounds of a run; None: it has none."""
    if not arguments.has_rounds:
        return None
    hours = arguments.round_hours
    return RoundCaps(
        urls=arguments.round,
        per_host=arguments.round_per_host,
        per_domain=arguments.round_per_domain,
        seconds=None if hours is None else hours * 3600.0,
        floor=arguments.round_floor,
        kind=arguments.round_kind,
        rounds=arguments.rounds,
    )


def _budgets(limits: LimitSettings, scope: ScopeChoice) -> BudgetRules | None:
    least = limits.budget_of(scope)
    if least is None:
        return None
    most = max(limits.top_domain_budget, least)
    return BudgetRules(
        least=least, most=most, ranked=limits.top_domains, round_s=limits.budget_round_s
    )


def open_frontier(
    folder: Path,
    limits: FrontierLimits,
    now: float,
    *,
    lease_rules: LeaseRules | None = None,
    on_decided: Callable[[Added], None] | None = None,
    background: Background | None = None,
    store: DurableStore | None = None,
    runs: RunFolder | None = None,
    shards: Shards | None = None,
    addresses: HostAddresses | None = None,
    address_leases: AddressLeases | None = None,
) -> TwoTierFrontier:
    """Open the frontier in *folder*, or begin one, and put back the leases that a dead process left
    open. Its `close` closes it; a frontier that is closed in the middle of its work is as one whose
    process was killed there.

    *lease_rules*, *on_decided*, *background*, *shards*, *addresses* and *address_leases* as of
    TwoTierFrontier. *store*: its records, if they are open already, or in memory. *runs*: the files
    of its seen URLs, if they are elsewhere. Raises DataDirError, with nothing changed, if a file is
    damaged or in use.
    """
    opened = RocksStore(folder / FRONTIER) if store is None else store
    try:
        return TwoTierFrontier(
            opened,
            RunFolder(folder / SEEN) if runs is None else runs,
            limits,
            now,
            lease_rules,
            on_decided=on_decided,
            background=background,
            shards=shards,
            addresses=addresses,
            address_leases=address_leases,
        )
    except BaseException:
        if store is None:
            opened.close()
        raise


class FrontierTurns:
    """Implements two_tier.Background for an owner without an event loop, which ends the turns
    itself."""

    def __init__(self) -> None:
        self.is_due = False  # whether the frontier has asked for a commit or for work

    def commit_soon(self) -> None:
        self.is_due = True

    def work_soon(self) -> None:
        self.is_due = True

    def steps(self, frontier: TwoTierFrontier, now: Callable[[], float]) -> Iterator[None]:
        """Commit the calls so far, and do the work beside them, step by step. Between two steps
        the frontier may be called, and its process may die; only one turn may be at work. Raises
        StoreUnavailable."""
        self._commit(frontier)
        yield
        while (work := frontier.next_work(now())) is not None:
            work.run()
            yield
            for _ in work.apply(now()):
                self._commit(frontier)
                yield

    def end(self, frontier: TwoTierFrontier, now: float) -> None:
        """Do all steps of a turn at once. Raises StoreUnavailable."""
        for _ in self.steps(frontier, lambda: now):
            pass

    def _commit(self, frontier: TwoTierFrontier) -> None:
        frontier.commit()
        self.is_due = False  # the work that the commit has asked for is this turn's

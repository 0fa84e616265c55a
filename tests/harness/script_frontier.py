"""The scripts of the shared frontier, called one after the other: a frontier without a worker.

Rule: it implements the frontier's port, and each call is acknowledged when it returns. Users run
worker.frontier.SharedFrontier instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from crawler.frontier.port import LeaseRules
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Lease,
    Moved,
    OverBudgetLinks,
    Rest,
    Standing,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import ShardTotals, claim_of, counts_of
from crawler.shared.connection import Argument
from crawler.shared.refused_leases import RefusedLeases, readmissions
from crawler.shared.shard import (
    BATCH,
    FinishedLease,
    ReleasedLease,
    ShardOperations,
    read_added,
    read_held,
    read_leases,
    shard_of_lease,
)
from crawler.shared.worker.status import ShardCheck


class ScriptRunner(Protocol):
    def run(self, calls: Sequence[Call]) -> list[Any]: ...

    def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]: ...

    def totals(self) -> list[ShardTotals]: ...


class ScriptFrontier:
    """Implements frontier.port.Frontier. One object is one session of a worker."""

    def __init__(
        self,
        link: ScriptRunner,
        ops: ShardOperations,
        dead_session: str | None = None,
        name: str = "",
        lease_rules: LeaseRules | None = None,
    ) -> None:
        """*dead_session* is this worker's last one; its leases are returned at once. *name* is that
        of the crawl; only *lease_rules* need it."""
        self._link = link
        self._ops = ops
        self._wake_at: dict[int, float] = dict.fromkeys(range(ops.shards), 0.0)
        self._standings: Sequence[Standing] = STANDINGS  # those that `_wake_at` is valid for
        self._next_shard = 0
        self._lease_rules = lease_rules
        self._refused_leases = (
            RefusedLeases(ops, name, lease_rules) if lease_rules is not None else None
        )
        if lease_rules is not None:
            self._readmit(name, lease_rules)
        self.put_back_at_open = self._return_leases(dead_session) if dead_session else 0

    @property
    def clock(self) -> float:
        """The latest clock of all shards."""
        return max(each.clock for each in self._link.totals())

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        calls = self._ops.add(found, now)
        new = seen = over_budget = 0
        kept_out: list[OverBudgetLinks] = []
        for reply in self._link.run(calls):
            added = read_added(reply)
            new, seen = new + added.new, seen + added.seen
            over_budget += added.over_budget
            kept_out += added.kept_out
        self._touched(calls)
        return Added(new, seen, over_budget, kept_out=tuple(kept_out))

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        if standings != self._standings:
            self._standings = standings
            self._wake_at = dict.fromkeys(self._wake_at, 0.0)
        leases: list[Lease] = []
        for _ in range(self._ops.shards):
            shard = self._next_shard
            self._next_shard = (shard + 1) % self._ops.shards
            if self._wake_at[shard] <= now:
                leases += self._lease_of(shard, now, limit - len(leases))
            if len(leases) >= limit:
                break
        return leases

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        call = self._ops.release(shard_of_lease(lease), [ReleasedLease(lease, rest)])
        (reply,) = self._link.run([call])
        self._touched([call])
        return read_held(reply)[0]

    def note_trouble(self, lease: Lease, rest: Rest, now: float) -> None:
        self._link.run([self._ops.rest(shard_of_lease(lease), [ReleasedLease(lease, rest)])])

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        shard = shard_of_lease(lease)
        before: list[Call] = []
        if (claim := claim_of(verdict)) is not None:
            before.append(self._ops.claim(claim.digest, lease.id, claim))
        if isinstance(verdict, Moved):
            before += self._ops.add_at_head(verdict.candidate, lease.candidate)
        call = self._ops.finish(shard, [FinishedLease(lease, verdict)], now)
        reply = self._link.run([*before, call])[-1]
        self._touched([*before, call])
        return read_held(reply)[0]

    def renew(self, leases: Iterable[Lease], now: float) -> None:
        shards = {shard_of_lease(lease) for lease in leases}
        self._link.run([self._ops.renew_leases(shard) for shard in shards])

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        if standings != self._standings:
            return 0.0
        first = min(self._wake_at.values())
        return None if first == float("inf") else first

    def counts(self) -> Counts:
        return counts_of(self._link.totals())

    def may_begin(self, lease: Lease) -> bool:
        """Return True: a synchronous caller keeps no deadlines."""
        return True

    def is_over(self) -> bool:
        replies = self._link.run([self._ops.check(shard) for shard in range(self._ops.shards)])
        return not any(ShardCheck.of_reply(reply).is_anything_left for reply in replies)

    def is_congested(self) -> bool:
        return False

    def _lease_of(self, shard: int, now: float, limit: int) -> list[Lease]:
        limits = dict.fromkeys(self._standings, limit)
        leased = read_leases(self._link.run([self._ops.lease(shard, limits, limit)])[0], shard)
        self._wake_at[shard] = float("inf") if leased.wake_s is None else now + leased.wake_s
        if self._refused_leases is None:
            return leased.leases
        budgets, asks = self._refused_leases.budget_commands(leased.leases)
        replies = self._link.commands(asks)
        admitted = self._refused_leases.admit(leased.leases, budgets, replies)
        if len(self._refused_leases):
            self._wake_at[shard] = now  # the hosts of refused leases may have other URLs
        while len(self._refused_leases):
            admitted += self._refused_leases.take_replies(
                self._link.run(self._refused_leases.calls())
            ).admitted
        return admitted

    def _readmit(self, name: str, rules: LeaseRules) -> None:
        for shard in range(self._ops.shards):
            (kept,) = self._link.commands([(shard, ("HGETALL", keys.refused_urls(name, shard)))])
            pairs = list(zip(kept[::2], kept[1::2], strict=True))
            for budgets, part in readmissions(pairs, rules, self._ops.budgets_of, BATCH):
                self._link.run([self._ops.readmit(shard, budgets, part)])

    def _touched(self, calls: Iterable[Call]) -> None:
        """Forget the wake times of the shards of *calls*."""
        for call in calls:
            self._wake_at[call.shard] = 0.0

    def _return_leases(self, session: str) -> int:
        total = 0
        shards = list(range(self._ops.shards))
        while shards:
            replies = self._link.run([self._ops.return_leases(shard, session) for shard in shards])
            back = [int(reply[1]) for reply in replies]
            total += sum(back)
            shards = [shard for shard, n in zip(shards, back, strict=True) if n]
        return total

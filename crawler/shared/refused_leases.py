"""Judges leases by the rules of this start before they are used, and the queue behind refused ones.

Rule: no connection here. A refused lease is held until its host's queue has an admitted URL at its
head, or is empty: so a refused URL costs its host neither a turn nor a rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from crawler.frontier.port import LeaseRules
from crawler.model.types import (
    Candidate,
    Lease,
    Purpose,
)
from crawler.policy.operator_rules import Budgets
from crawler.policy.scope import Reason, Refusal
from crawler.shared import keys
from crawler.shared.client import Call
from crawler.shared.codec import unpack_candidate
from crawler.shared.connection import Argument
from crawler.shared.faults import FAULTS, Fault
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.shard import ShardOperations, read_host, read_refused, shard_of_lease

LEASES_PER_ROUND: Final = 4  # held leases whose queues are judged in one round
_MAX_HOSTS_IN_BUDGET: Final = (
    100_000  # hosts and domains known to be within their budgets, 100 bytes each
)
_NO_BUDGETS: Final = (None, None)
Ask = tuple[int, tuple[Argument, ...]]
"""A plain command on a key of a shard."""


@dataclass(slots=True)
class _RefusedLease:
    """A refused lease, under which nothing is fetched."""

    lease: Lease
    refusal: Refusal | None  # of its own URL
    excess: int = 0  # URLs of its host that are over a budget
    budget: Reason = Reason.HOST_BUDGET  # the budget that is exceeded
    judged: list[tuple[bytes, Candidate | None, Refusal | None]] = field(default_factory=list)
    is_last: bool = False  # enough was judged: the next call ends the lease

    def judged_refusals(self, same: int) -> list[tuple[Candidate, Refusal]]:
        """Return the refusals among the first *same* URLs that were judged."""
        return [
            (candidate, refusal)
            for _, candidate, refusal in self.judged[:same]
            if candidate is not None and refusal is not None
        ]


class RefusedLeases:
    """The refused leases of this worker, and the judgement of the queues behind them. Bound: these
    leases, and _MAX_HOSTS_IN_BUDGET hosts."""

    def __init__(self, ops: ShardOperations, name: str, rules: LeaseRules) -> None:
        """*name* is that of the crawl."""
        self._ops = ops
        self._name = name
        self._rules = rules
        self._refused_leases: list[_RefusedLease] = []
        self._hosts_in_budget: set[str] = set()
        self._generation = 0  # of the budgets by rules

    def __len__(self) -> int:
        return len(self._refused_leases)

    @property
    def may_judge(self) -> bool:
        return self._rules.are_complete

    def leases(self) -> list[Lease]:
        return [each.lease for each in self._refused_leases]

    def take_all(self) -> list[Lease]:
        """Remove and return all held leases. Nothing was fetched under them."""
        leases, self._refused_leases = self.leases(), []
        return leases

    def budget_commands(self, leases: Sequence[Lease]) -> tuple[list[Budgets], list[Ask]]:
        """Return the budgets of *leases*, and the commands that ask how much of them is used;
        `admit` takes both, and the replies."""
        found: list[Ask] = []
        all_budgets: list[Budgets] = []
        for lease in leases:
            candidate, shard = lease.candidate, shard_of_lease(lease)
            of_host, of_domain = budgets = self._budgets_to_check(candidate)
            all_budgets.append(budgets)
            if of_host is not None:
                found.append((shard, ("HGET", keys.hosts(self._name, shard), candidate.host)))
            if of_domain is not None:
                found.append((shard, ("HGET", keys.domains(self._name, shard), candidate.domain)))
        return all_budgets, found

    def admit(
        self, leases: Sequence[Lease], all_budgets: Sequence[Budgets], replies: Sequence[Any]
    ) -> list[Lease]:
        """Return the admitted leases, and hold the others. *all_budgets* are what
        `budget_commands` returned, *replies* those to its commands."""
        admitted: list[Lease] = []
        budget_replies = iter(replies)
        for lease, budgets in zip(leases, all_budgets, strict=True):
            held = _RefusedLease(lease, self._rules.refusal(lease.candidate))
            if budgets != _NO_BUDGETS:
                held.excess, held.budget = self._excess(lease.candidate, budgets, budget_replies)
            if held.refusal is None and not held.excess:
                admitted.append(lease)
            else:
                self._refused_leases.append(held)
        return admitted

    def calls(self) -> list[Call]:
        """Return the next calls for the first held leases; `take_replies` takes the replies."""
        slice_ = max(1, self._ops.judged_slice // LEASES_PER_ROUND)
        calls = []
        for held in self._refused_leases[:LEASES_PER_ROUND]:
            if held.excess and not held.is_last:
                most = min(held.excess, slice_)
                calls.append(self._ops.trim(held.lease, most, held.budget))
                continue
            own = held.refusal.reason if held.is_last and held.refusal else ""
            judged = [
                (packed_url, refusal.reason if refusal else "")
                for packed_url, _, refusal in held.judged
            ]
            calls.append(self._ops.remove_refused(held.lease, own, slice_, judged))
        return calls

    def take_replies(self, replies: Sequence[Any]) -> RefusalReplies:
        """Take the replies to the last `calls`."""
        result = RefusalReplies()
        step, self._refused_leases = (
            self._refused_leases[:LEASES_PER_ROUND],
            self._refused_leases[LEASES_PER_ROUND:],
        )
        refused: list[tuple[Candidate, Refusal]] = []
        for held, reply in zip(step, replies, strict=True):
            if isinstance(reply, FAULTS):
                result.faults.append(reply)
                self._refused_leases.append(held)  # a repeated call does no harm
            elif not reply[1]:
                result.ended.append(held.lease)
            elif held.is_last:
                refused += held.judged_refusals(int(reply[2]))
                if held.refusal is not None:
                    refused.append((held.lease.candidate, held.refusal))
                result.ended.append(held.lease)
            elif held.excess:
                refused += self._trimmed(held, reply[2:])
                if held.excess or held.refusal is not None:
                    self._refused_leases.append(held)
                else:
                    result.admitted.append(held.lease)
            else:
                refused += held.judged_refusals(int(reply[2]))
                self._judge(held, reply[3:])
                self._refused_leases.append(held)
        if refused:
            self._rules.on_refused(refused)
        return result

    def _trimmed(
        self, held: _RefusedLease, reply: Sequence[Any]
    ) -> list[tuple[Candidate, Refusal]]:
        candidate = held.lease.candidate
        refusal = Refusal(held.budget, f"{held.excess} URLs too many")
        held.excess -= len(reply) // 2
        if not reply:  # nothing else is queued for its host
            held.excess, held.is_last = 0, True
            held.refusal = held.refusal or refusal
        packed_urls = zip(reply[1::2], reply[::2], strict=True)
        read = (
            _decode_or_none(packed_url, candidate.host, int(front) - 1)
            for packed_url, front in packed_urls
        )
        return [(each, refusal) for each in read if each is not None]

    def _judge(self, held: _RefusedLease, packed_urls: Sequence[bytes]) -> None:
        held.judged = []
        candidate = held.lease.candidate
        for packed_url in packed_urls:
            waiting = _decode_or_none(packed_url, candidate.host, candidate.level)
            refusal = self._rules.refusal(waiting) if waiting is not None else None
            held.judged.append((packed_url, waiting, refusal))
        held.is_last = not packed_urls or any(refusal is None for _, _, refusal in held.judged)

    def _budgets_to_check(self, candidate: Candidate) -> Budgets:
        """Return the budgets of *candidate*, or none if its host is known to be within them: no
        `add` can exceed them."""
        rule_budgets = self._ops.rule_budgets
        if rule_budgets is not None and rule_budgets.generation != self._generation:
            self._generation = rule_budgets.generation
            self._hosts_in_budget.clear()
        if (
            candidate.host in self._hosts_in_budget
            or candidate.purpose is not Purpose.PAGE
            or candidate.request
            or candidate.level == URGENT_LEVEL
        ):
            return _NO_BUDGETS
        return self._ops.budgets_of(candidate.host, candidate.domain)

    def _excess(
        self, candidate: Candidate, budgets: Budgets, replies: Iterator[Any]
    ) -> tuple[int, Reason]:
        """Return by how many URLs the most exceeded budget of *candidate* is exceeded, and which
        that is."""
        excess, budget = 0, Reason.HOST_BUDGET
        of_host, of_domain = budgets
        if of_host is not None:
            packed = next(replies)
            if isinstance(packed, bytes):
                excess = max(0, read_host(packed).admitted - of_host)
        if of_domain is not None:
            used = next(replies)
            if isinstance(used, bytes) and int(used) - of_domain > excess:
                excess = int(used) - of_domain
                budget = Reason.DOMAIN_BUDGET
        if not excess:
            if len(self._hosts_in_budget) >= _MAX_HOSTS_IN_BUDGET:
                self._hosts_in_budget.clear()
            self._hosts_in_budget.add(candidate.host)
        return excess, budget


@dataclass(slots=True)
class RefusalReplies:
    admitted: list[Lease] = field(default_factory=list)  # held ones that may be used after all
    ended: list[Lease] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def _decode_or_none(packed_url: bytes, host: str, level: int) -> Candidate | None:
    """Return None if *packed_url* cannot be decoded; it becomes a dead letter when it is leased."""
    try:
        return unpack_candidate(packed_url, host, level)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def readmissions(
    pairs: Sequence[tuple[bytes, bytes]],
    rules: LeaseRules,
    budgets_of: Callable[[str, str], Budgets],
    most: int,
) -> Iterator[tuple[Budgets, list[tuple[int, str]]]]:
    """Yield those of a shard's refused URLs that *rules* admit now, with their budgets, in parts of
    *most* for `ShardOperations.readmit`. *pairs* holds the fields and values of their hash."""
    admitted: dict[Budgets, list[tuple[int, str]]] = {}
    for number, packed in pairs:
        candidate, _, _ = read_refused(packed)
        if rules.refusal(candidate) is None:
            budgets = budgets_of(candidate.host, candidate.domain)
            admitted.setdefault(budgets, []).append((int(number), candidate.domain))
    for budgets, found in admitted.items():
        for begin in range(0, len(found), most):
            yield budgets, found[begin : begin + most]

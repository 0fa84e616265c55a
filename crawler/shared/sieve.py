"""Leases are judged by the rules of this start before anybody may begin them, and with one that is
refused what waits behind it.

Rule: no connection here: calls go out, replies come in. A lease that is refused is held until so
much of its host's queue was judged that the host has something to fetch, or nothing left: so a
refused URL costs its host neither a turn nor a rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from crawler.frontier.port import LeaseRules
from crawler.model.types import (
    Candidate,
    Lease,
    Purpose,
)
from crawler.policy.scope import Reason, Refusal
from crawler.shared import keys
from crawler.shared.client import Argument, Call
from crawler.shared.codec import unpack
from crawler.shared.faults import FAULTS, Fault
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.shard import Ops, read_host, read_refused, shard_of_lease

AT_ONCE: Final = 4  # leases whose queues are judged in one round
_REMEMBERED: Final = 100_000  # hosts and domains known to be within their budgets, 100 bytes each
Ask = tuple[int, tuple[Argument, ...]]
"""A plain command on a key of a shard."""


@dataclass(slots=True)
class _Held:
    """A lease that is not begun."""

    lease: Lease
    refusal: Refusal | None  # of its own URL
    excess: int = 0  # URLs of its host that are over a budget
    budget: Reason = Reason.HOST_BUDGET  # which
    judged: list[tuple[bytes, Candidate | None, Refusal | None]] = field(default_factory=list)
    is_last: bool = False  # enough was judged: its own URL goes with the next call

    def judged_refusals(self, same: int) -> list[tuple[Candidate, Refusal]]:
        """Of the first *same* that were judged."""
        return [
            (candidate, refusal)
            for _, candidate, refusal in self.judged[:same]
            if candidate is not None and refusal is not None
        ]


class StartSieve:
    def __init__(self, ops: Ops, name: str, rules: LeaseRules) -> None:
        """*name*: of the crawl."""
        self._ops = ops
        self._name = name
        self._rules = rules
        self._held: list[_Held] = []
        self._within: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def may_judge(self) -> bool:
        return self._rules.known

    def leases(self) -> list[Lease]:
        return [each.lease for each in self._held]

    def empty(self) -> list[Lease]:
        """Those that are held: nothing was fetched under them."""
        leases, self._held = self.leases(), []
        return leases

    def asks(self, leases: Sequence[Lease]) -> list[Ask]:
        """What must be known of the budgets of *leases*; their replies go to `sort`."""
        found: list[Ask] = []
        for lease in leases:
            it, shard = lease.candidate, shard_of_lease(lease)
            if self._is_within(it):
                continue
            if self._ops.max_urls_per_host is not None:
                found.append((shard, ("HGET", keys.hosts(self._name, shard), it.host)))
            if self._ops.max_urls_per_domain is not None:
                found.append((shard, ("HGET", keys.domains(self._name, shard), it.domain)))
        return found

    def sort(self, leases: Sequence[Lease], replies: Sequence[Any]) -> list[Lease]:
        """Those that may be begun; the others are held. *replies*: to `asks`."""
        admitted: list[Lease] = []
        told = iter(replies)
        for lease in leases:
            held = _Held(lease, self._rules.refusal(lease.candidate))
            if not self._is_within(lease.candidate):
                held.excess, held.budget = self._excess(lease.candidate, told)
            if held.refusal is None and not held.excess:
                admitted.append(lease)
            else:
                self._held.append(held)
        return admitted

    def calls(self) -> list[Call]:
        """The next step of a few; their replies go to `answered`."""
        slice_ = max(1, self._ops.judged_slice // AT_ONCE)
        calls = []
        for held in self._held[:AT_ONCE]:
            if held.excess and not held.is_last:
                most = min(held.excess, slice_)
                calls.append(self._ops.trim(held.lease, most, held.budget))
                continue
            own = held.refusal.reason if held.is_last and held.refusal else ""
            judged = [(body, refusal.reason if refusal else "") for body, _, refusal in held.judged]
            calls.append(self._ops.sift(held.lease, own, slice_, judged))
        return calls

    def answered(self, replies: Sequence[Any]) -> RefusalReplies:
        """Replies to the calls that were made last."""
        result = RefusalReplies()
        step, self._held = self._held[:AT_ONCE], self._held[AT_ONCE:]
        refused: list[tuple[Candidate, Refusal]] = []
        for held, reply in zip(step, replies, strict=True):
            if isinstance(reply, FAULTS):
                result.faults.append(reply)
                self._held.append(held)  # asked again; what was done is done
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
                    self._held.append(held)
                else:
                    result.admitted.append(held.lease)
            else:
                refused += held.judged_refusals(int(reply[2]))
                self._judge(held, reply[3:])
                self._held.append(held)
        if refused:
            self._rules.refused(refused)
        return result

    def _trimmed(self, held: _Held, reply: Sequence[Any]) -> list[tuple[Candidate, Refusal]]:
        it = held.lease.candidate
        refusal = Refusal(held.budget, f"{held.excess} URLs too many")
        held.excess -= len(reply) // 2
        if not reply:  # nothing is left behind it
            held.excess, held.is_last = 0, True
            held.refusal = held.refusal or refusal
        bodies = zip(reply[1::2], reply[::2], strict=True)
        read = (_read(body, it.host, int(front) - 1) for body, front in bodies)
        return [(each, refusal) for each in read if each is not None]

    def _judge(self, held: _Held, bodies: Sequence[bytes]) -> None:
        held.judged = []
        it = held.lease.candidate
        for body in bodies:
            candidate = _read(body, it.host, it.level)
            refusal = self._rules.refusal(candidate) if candidate is not None else None
            held.judged.append((body, candidate, refusal))
        held.is_last = not bodies or any(refusal is None for _, _, refusal in held.judged)

    def _is_within(self, it: Candidate) -> bool:
        """Whether its budgets are known to hold: while we are here, nothing is added over them."""
        ops = self._ops
        if ops.max_urls_per_host is None and ops.max_urls_per_domain is None:
            return True
        return it.host in self._within or it.purpose is not Purpose.PAGE or it.level == URGENT_LEVEL

    def _excess(self, it: Candidate, told: Iterator[Any]) -> tuple[int, Reason]:
        excess, budget = 0, Reason.HOST_BUDGET
        if self._ops.max_urls_per_host is not None:
            packed = next(told)
            if isinstance(packed, bytes):
                excess = max(0, read_host(packed).admitted - self._ops.max_urls_per_host)
        if self._ops.max_urls_per_domain is not None:
            used = next(told)
            if isinstance(used, bytes) and int(used) - self._ops.max_urls_per_domain > excess:
                excess = int(used) - self._ops.max_urls_per_domain
                budget = Reason.DOMAIN_BUDGET
        if not excess:
            if len(self._within) >= _REMEMBERED:
                self._within.clear()
            self._within.add(it.host)
        return excess, budget


@dataclass(slots=True)
class RefusalReplies:
    admitted: list[Lease] = field(default_factory=list)  # they may be begun after all
    ended: list[Lease] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def _read(body: bytes, host: str, level: int) -> Candidate | None:
    """None: it is nothing that we can judge; whoever leases it gives it up."""
    try:
        return unpack(body, host, level)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def readmissions(
    pairs: Sequence[tuple[bytes, bytes]], rules: LeaseRules, most: int
) -> Iterator[list[tuple[int, str]]]:
    """Of fields and values of a shard's refused URLs those that *rules* admit now, for
    `Ops.readmit`."""
    admitted: list[tuple[int, str]] = []
    for number, packed in pairs:
        it, _, _ = read_refused(packed)
        if rules.refusal(it) is None:
            admitted.append((int(number), it.domain))
    for begin in range(0, len(admitted), most):
        yield admitted[begin : begin + most]

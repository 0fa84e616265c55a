"""Admission of found URLs: the seen test and the budgets.

Rule: a URL refused for its budget is not marked seen, so it is admitted once the budget has grown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import compress, repeat
from operator import attrgetter
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import FrontierRules
from crawler.frontier.records import HostRecord
from crawler.frontier.staging import WriteBatch
from crawler.model.types import (
    Added,
    Candidate,
    HostKey,
    OverBudgetLinks,
    Purpose,
)
from crawler.policy.scope import Reason

# Eight of nine links were found before, most of them recently. Two generations of this many
# keys take about 5 MB and answer most lookups (a guess to be measured per crawl).
RECENT: Final = 30_000


class SeenKeys:
    """The exact set of admitted URL keys: on disk, behind a cache of the latest. A key in the cache
    is in the store too; any other key is looked up there."""

    def __init__(self, batch: WriteBatch, recent: int = RECENT) -> None:
        self._batch = batch
        self._limit = recent
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def unseen(self, candidate_keys: Sequence[int]) -> dict[int, bytes]:
        """Return those of *candidate_keys* that are not seen, each with its key in the store."""
        young, old = self._newer, self._older
        unsure = [key for key in candidate_keys if key not in young and key not in old]
        names = keys.all_numbered(keys.SEEN, unsure)
        known = self._batch.has(names)
        self._remember(compress(unsure, known))
        return {key: name for key, name, seen in zip(unsure, names, known, strict=True) if not seen}

    def mark_seen(self, fresh: Mapping[int, bytes]) -> None:
        """Mark *fresh*, a part of what `unseen` returned, as seen."""
        self._batch.put_all(zip(fresh.values(), repeat(b"")))
        self._batch.totals.seen += len(fresh)
        self._remember(fresh)

    def _remember(self, fresh: Iterable[int]) -> None:
        self._newer.update(fresh)
        if len(self._newer) > self._limit:
            self._older, self._newer = self._newer, set()


MAX_DOMAINS: Final = 20_000
"""Domains whose counts are kept in memory, 150 bytes each: the links of a page lead to ten domains,
and a read from the store takes 3 us."""


class Admitter:
    """Admits found URLs by the seen test and the budgets."""

    def __init__(self, batch: WriteBatch, rules: FrontierRules) -> None:
        self._batch = batch
        self._rules = rules
        self._seen = SeenKeys(batch)
        self._by_domain: dict[HostKey, int] = {}  # URLs admitted, of domains used recently

    def admit(self, found: Sequence[Candidate]) -> tuple[list[Candidate], Added]:
        """Return the new URLs of *found*, counted against their budgets and marked seen, and the
        counts."""
        unseen = self._seen.unseen([one.key for one in found if one.needs_seen_test])
        budgets = BudgetUse(self._batch, self._rules, self._by_domain)
        admitted: list[Candidate] = []
        fresh: dict[int, bytes] = {}
        over: Counter[tuple[str, HostKey]] = Counter()  # by unit and name of the budget
        for candidate in found:
            key = candidate.key
            if candidate.needs_seen_test and key not in unseen:
                continue
            used_up = budgets.charge(candidate)
            if used_up is not None:
                over[used_up] += 1
                continue
            if candidate.needs_seen_test:
                fresh[key] = unseen.pop(key)
            admitted.append(candidate)
        self._seen.mark_seen(fresh)
        budgets.stage_counts()
        self._count(admitted)
        new, over_budget = len(admitted), over.total()
        kept_out = tuple(OverBudgetLinks(*budget, links) for budget, links in over.items())
        seen = len(found) - new - over_budget
        return admitted, Added(new, seen, over_budget, kept_out=kept_out)

    def over_budget(self, record: HostRecord, candidate: Candidate) -> tuple[int, Reason]:
        """Return by how many URLs the host of *record*, or the domain of *candidate*, exceeds its
        budget, and which budget that is. Budgets may have shrunk since the URLs were admitted."""
        rules, over, reason = self._rules, 0, Reason.HOST_BUDGET
        if rules.max_urls_per_host is not None:
            over = max(0, record.admitted - rules.max_urls_per_host)
        if rules.max_urls_per_domain is not None:
            used = _domain_count(self._batch, self._by_domain, HostKey(candidate.domain))
            if used - rules.max_urls_per_domain > over:
                over, reason = used - rules.max_urls_per_domain, Reason.DOMAIN_BUDGET
        return over, reason

    def release(self, refused: Sequence[Candidate]) -> None:
        """Stop counting *refused* against any budget."""
        pages = [one for one in refused if one.purpose is Purpose.PAGE]
        for host, count in Counter(one.host for one in pages).items():
            record = self._batch.host(host)
            record.admitted = max(0, record.admitted - count)
        if self._rules.max_urls_per_domain is None:
            return
        for name, count in Counter(one.domain for one in pages).items():
            domain = HostKey(name)
            used = max(0, _domain_count(self._batch, self._by_domain, domain) - count)
            self._batch.put(keys.named(keys.DOMAIN, domain), used.to_bytes(8))
            self._by_domain[domain] = used

    def _count(self, admitted: Sequence[Candidate]) -> None:
        pages = Counter(one.host for one in admitted if one.purpose is Purpose.PAGE)
        for host, count in pages.items():
            self._batch.host(host).admitted += count

    def admit_one(self, candidate: Candidate) -> bool:
        return bool(self.admit([candidate])[0])


class BudgetUse:
    """Charges the URLs of one call to the budgets of their hosts and registered domains. Each
    budget is read once and written once."""

    def __init__(
        self, batch: WriteBatch, rules: FrontierRules, by_domain: dict[HostKey, int]
    ) -> None:
        """*by_domain*: the counts already in memory; `close` adds the new ones."""
        self._batch = batch
        self._known = by_domain
        # A bound method would make a reference cycle for each page: work for the collector.
        read = partial(_domain_count, batch, by_domain)
        self._domains = _budget("domain", rules.max_urls_per_domain, read)
        hosts = _budget("host", rules.max_urls_per_host, lambda host: batch.peek(host).admitted)
        self._limited = [each for each in (hosts, self._domains) if each is not None]

    def charge(self, candidate: Candidate) -> tuple[str, HostKey] | None:
        """Count *candidate* and return None, or return the unit and name of a budget that is used
        up. A robots.txt is not counted: without it its authority would wait for ever."""
        if candidate.purpose is Purpose.ROBOTS:
            return None
        for budget in self._limited:
            if not budget.has_room(candidate):
                return budget.unit, budget.name_of(candidate)
        for budget in self._limited:
            budget.take(candidate)
        return None

    def stage_counts(self) -> None:
        """Stage the new counts of domains; those of hosts are in their host records."""
        if len(self._known) > MAX_DOMAINS:
            self._known.clear()
        domains = self._domains.used if self._domains else {}
        for domain, used in domains.items():
            self._batch.put(keys.named(keys.DOMAIN, domain), used.to_bytes(8))
            self._known[domain] = used


def _domain_count(batch: WriteBatch, known: Mapping[HostKey, int], domain: HostKey) -> int:
    if domain in known:
        return known[domain]
    packed = batch.get(keys.named(keys.DOMAIN, domain))
    return int.from_bytes(packed) if packed else 0


class _Budget:
    """One kind of budget: how much of *limit* each name has used."""

    def __init__(self, unit: str, limit: int, read: Callable[[HostKey], int]) -> None:
        """*unit*: the field of a candidate with the name that it is counted under."""
        self.unit = unit
        self._limit = limit
        self.used: dict[HostKey, int] = {}
        self.name_of = attrgetter(unit)
        self._read = read

    def has_room(self, candidate: Candidate) -> bool:
        name, used = self.name_of(candidate), self.used
        if name not in used:
            used[name] = self._read(name)
        return used[name] < self._limit

    def take(self, candidate: Candidate) -> None:
        self.used[self.name_of(candidate)] += 1


def _budget(unit: str, limit: int | None, read: Callable[[HostKey], int]) -> _Budget | None:
    """Return None if there is no *limit*."""
    return None if limit is None else _Budget(unit, limit, read)

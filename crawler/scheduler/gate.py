"""Which found URLs become waiting URLs: the seen test and the budgets.

Rule: a URL refused for its budget is not marked seen: it may come in when the budget grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from crawler.core.types import Added, Candidate
from crawler.scheduler import keys
from crawler.scheduler.books import Books
from crawler.scheduler.rules import FrontierRules
from crawler.scheduler.seen import SeenKeys


class Gate:
    def __init__(self, books: Books, rules: FrontierRules) -> None:
        self._books = books
        self._rules = rules
        self._seen = SeenKeys(books)

    def admit(self, found: Sequence[Candidate]) -> tuple[list[Candidate], Added]:
        """The new ones among *found*, counted against their budgets and marked seen."""
        unseen = self._seen.unseen([one.key for one in found if one.filtered])
        budgets = Budgets(self._books, self._rules)
        admitted: list[Candidate] = []
        fresh: list[int] = []
        over_budget = 0
        for candidate in found:
            if candidate.filtered and candidate.key not in unseen:
                continue
            if not budgets.charge(candidate):
                over_budget += 1
                continue
            if candidate.filtered:
                unseen.discard(candidate.key)
                fresh.append(candidate.key)
            admitted.append(candidate)
        self._seen.admit(fresh)
        budgets.close()
        new = len(admitted)
        return admitted, Added(new, len(found) - new - over_budget, over_budget)

    def admit_one(self, candidate: Candidate) -> bool:
        return bool(self.admit([candidate])[0])


class Budgets:
    """What one call takes from the budgets of hosts and registered domains; each is read once
    and written once."""

    def __init__(self, books: Books, rules: FrontierRules) -> None:
        self._books = books
        self._per_host = rules.max_urls_per_host
        self._per_domain = rules.max_urls_per_domain
        self._of_hosts: dict[str, int] = {}
        self._of_domains: dict[str, int] = {}

    def charge(self, candidate: Candidate) -> bool:
        """Count it. False: one of its budgets is used up."""
        host, domain = candidate.host, candidate.domain
        if self._per_host is not None:
            used = self._of_hosts.get(host)
            if used is None:
                used = self._of_hosts[host] = self._books.peek(host).admitted
            if used >= self._per_host:
                return False
        if self._per_domain is not None:
            taken = self._of_domains.get(domain)
            if taken is None:
                taken = self._read(domain)
            if taken >= self._per_domain:
                return False
            self._of_domains[domain] = taken + 1
        if self._per_host is not None:
            self._of_hosts[host] += 1
        return True

    def close(self) -> None:
        """Stage what was taken of domains; hosts count for themselves when URLs arrive."""
        for domain, used in self._of_domains.items():
            self._books.put(keys.named(keys.DOMAIN, domain), used.to_bytes(8))

    def _read(self, domain: str) -> int:
        packed = self._books.get(keys.named(keys.DOMAIN, domain))
        return int.from_bytes(packed) if packed else 0

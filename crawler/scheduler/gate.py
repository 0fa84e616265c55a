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
        admitted: list[Candidate] = []
        over_budget = 0
        for candidate in found:
            if candidate.filtered and candidate.key not in unseen:
                continue
            if not self._charge(candidate):
                over_budget += 1
                continue
            if candidate.filtered:
                unseen.discard(candidate.key)
                self._seen.admit(candidate.key)
            admitted.append(candidate)
        new = len(admitted)
        return admitted, Added(new, len(found) - new - over_budget, over_budget)

    def admit_one(self, candidate: Candidate) -> bool:
        return bool(self.admit([candidate])[0])

    def _charge(self, candidate: Candidate) -> bool:
        """Count it against its host's and its domain's budget. False: one of them is used up."""
        limit = self._rules.max_urls_per_host
        if limit is not None and self._books.peek(candidate.host).admitted >= limit:
            return False
        if not self._charge_domain(candidate.domain):
            return False
        self._books.host(candidate.host).admitted += 1
        return True

    def _charge_domain(self, domain: str) -> bool:
        limit = self._rules.max_urls_per_domain
        if limit is None:
            return True
        key = keys.named(keys.DOMAIN, domain)
        packed = self._books.get(key)
        used = int.from_bytes(packed) if packed else 0
        if used >= limit:
            return False
        self._books.put(key, (used + 1).to_bytes(8))
        return True

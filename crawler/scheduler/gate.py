"""Which found URLs become waiting URLs: the seen test and the budgets.

Rule: a URL refused for its budget is not marked seen: it may come in when the budget grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from crawler.core.types import Added, Candidate, HostKey, Purpose
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
            self._books.host(candidate.host).admitted += candidate.purpose is Purpose.PAGE
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
        # Nothing that points back here: a cycle for each page is work for the collector.
        self._hosts = _Budget(rules.max_urls_per_host, lambda host: books.peek(host).admitted)
        self._domains = _Budget(rules.max_urls_per_domain, partial(_used_of_domain, books))

    def charge(self, candidate: Candidate) -> bool:
        """Count it. False: one of its budgets is used up. Not a robots.txt: it is no page, and
        without it its authority would wait for ever."""
        if candidate.purpose is Purpose.ROBOTS:
            return True
        host, domain = candidate.host, HostKey(candidate.domain)
        if not (self._hosts.has_room(host) and self._domains.has_room(domain)):
            return False
        self._hosts.take(host)
        self._domains.take(domain)
        return True

    def close(self) -> None:
        """Stage what was taken of domains; hosts count for themselves when URLs arrive."""
        for domain, used in self._domains.used.items():
            self._books.put(keys.named(keys.DOMAIN, domain), used.to_bytes(8))


def _used_of_domain(books: Books, domain: HostKey) -> int:
    packed = books.get(keys.named(keys.DOMAIN, domain))
    return int.from_bytes(packed) if packed else 0


class _Budget:
    """One kind of budget: what each name has used of *limit*. None: it has no end."""

    def __init__(self, limit: int | None, read: Callable[[HostKey], int]) -> None:
        self._limit = limit
        self._read = read
        self.used: dict[HostKey, int] = {}

    def has_room(self, name: HostKey) -> bool:
        if self._limit is None:
            return True
        if name not in self.used:
            self.used[name] = self._read(name)
        return self.used[name] < self._limit

    def take(self, name: HostKey) -> None:
        if self._limit is not None:
            self.used[name] += 1

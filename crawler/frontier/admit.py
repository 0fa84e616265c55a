"""Admission of found URLs: the seen test and the budgets.

Rule: a URL refused for its budget is not marked seen, so it is admitted once the budget has grown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.port import FrontierRules
from crawler.frontier.queues import QueueName
from crawler.frontier.records import (
    DomainRecord,
    HostRecord,
    decode_candidate,
    decode_domain,
    encode,
)
from crawler.frontier.seen import SeenSet
from crawler.frontier.staging import WriteBatch
from crawler.model.types import (
    Added,
    Candidate,
    HostKey,
    OverBudgetLinks,
    Purpose,
)
from crawler.policy.scope import Reason

# Bound once, because each look-up of a member of an enumeration takes 0.2 us.
_ROBOTS: Final = Purpose.ROBOTS
_STEP: Final = 500  # domains or undecided URLs of one step: 2 ms

KNOWN_DOMAINS: Final = 20_000
"""Domains whose counts are kept in memory, 150 bytes each, beside those not yet written: the links
of a page lead to ten domains, and a read from the store takes 3 us."""


class DomainCounts:
    """How many URLs of each registered domain were admitted. Changes are in memory, and in the
    entries of their commits, until `store` stages them."""

    def __init__(self, batch: WriteBatch) -> None:
        self._batch = batch
        self._known: dict[HostKey, int] = {}
        self._changed: set[HostKey] = set()

    def __getitem__(self, domain: HostKey) -> int:
        known = self._known.get(domain)
        if known is None:
            known = self._known[domain] = self._read(domain).admitted
        return known

    def charge(self, domain: HostKey, urls: int, most: int) -> int:
        """Count *urls* of *domain*, or as many as leave it at *most*, and return how many."""
        used = self[domain]
        fit = min(urls, max(0, most - used))
        self._known[domain] = used + fit
        self._changed.add(domain)
        return fit

    def subtract(self, domain: HostKey, urls: int) -> None:
        """Count fewer URLs, which no entry says: the count is staged."""
        self._known[domain] = max(0, self[domain] - urls)
        self._changed.discard(domain)
        self._stage(domain)

    def replay(self, domain: HostKey, entry: int) -> None:
        """Count a URL of an entry of an earlier run, unless it is counted on disk."""
        if domain in self._changed or self._read(domain).counted_to < entry:
            self._known[domain] = self[domain] + 1
            self._changed.add(domain)

    def store(self) -> Iterator[None]:
        """Stage all changed counts. Yields after each step."""
        changed, self._changed = list(self._changed), set()
        for at in range(0, len(changed), _STEP):
            for domain in changed[at : at + _STEP]:
                self._stage(domain)
            yield
        if len(self._known) > 2 * KNOWN_DOMAINS:
            self._known = {each: self._known[each] for each in self._changed}

    def _stage(self, domain: HostKey) -> None:
        record = DomainRecord(self[domain], self._batch.end_entry())
        self._batch.put(keys.named(keys.DOMAIN, domain), encode(record))

    def _read(self, domain: HostKey) -> DomainRecord:
        packed = self._batch.get(keys.named(keys.DOMAIN, domain))
        return decode_domain(packed) if packed else DomainRecord()


Admitted = list[tuple[QueueName, HostRecord, list[Candidate]]]
"""Admitted URLs by their queues, with the record of the host."""


class Search:
    """The search of the runs for undecided URLs; `run` may be called in a thread."""

    def __init__(self, seen: SeenSet, wanted: list[int]) -> None:
        self._seen = seen
        self.keys = wanted
        self.are_seen: list[bool] = []

    def run(self) -> None:
        """Raises StoreUnavailable."""
        self.are_seen = self._seen.search(self.keys)


class Admitter:
    """Admits found URLs by the seen test and the budgets."""

    def __init__(self, batch: WriteBatch, rules: FrontierRules, seen: SeenSet) -> None:
        self._batch = batch
        self._rules = rules
        self._seen = seen
        self.domains = DomainCounts(batch)
        # URLs for which the runs are to be searched: number of the entry, place in it.
        self._undecided: dict[int, tuple[int, int]] = {}  # by key, the oldest first
        self._search_began = 0.0
        self.undecided_since = 0.0  # at most as late as the oldest was found

    @property
    def undecided(self) -> int:
        """How many URLs wait for a search of the runs."""
        return len(self._undecided)

    def admit(self, found: Sequence[Candidate], now: float) -> tuple[Admitted, Added]:
        """Return the new URLs of *found*, counted against their budgets and marked seen, and the
        counts. The caller puts each into its queue or notes it as elsewhere."""
        new, perhaps = self._seen.sort_out([each.key for each in found if each.needs_seen_test])
        undecided = 0
        unseen: list[Candidate] = []
        for candidate in found:
            key = candidate.key
            if key in new:
                new.remove(key)
                unseen.append(candidate)
            elif not candidate.needs_seen_test:
                unseen.append(candidate)
            elif key in perhaps and key not in self._undecided:
                if not self._undecided:
                    self.undecided_since = now
                self._undecided[key] = self._batch.note_undecided(encode(candidate))
                undecided += 1
        admitted, kept_out = self._admit_unseen(unseen)
        over_budget = sum(each.links for each in kept_out)
        seen = len(found) - len(unseen) - undecided
        return admitted, Added(len(unseen) - over_budget, seen, over_budget, undecided, kept_out)

    def admit_one(self, candidate: Candidate, now: float) -> bool:
        """Return whether *candidate* is new. If it is undecided, it is admitted later."""
        return bool(self.admit([candidate], now)[0])

    def decided_to(self) -> int:
        """Return the last entry before that of the oldest undecided URL."""
        last_entry = self._batch.end_entry()
        return next((entry - 1 for entry, _ in self._undecided.values()), last_entry)

    def begin_search(self, most: int, now: float) -> Search:
        """Return the search of the runs for the oldest undecided URLs, *most* at once."""
        self._search_began = now
        return Search(self._seen, list(islice(self._undecided, most)))

    def decide(self, searched: Search) -> Iterator[tuple[Admitted, Added]]:
        """Yield, step by step, what of the URLs *searched* is admitted, as `admit` does."""
        for at in range(0, len(searched.keys), _STEP):
            step = searched.keys[at : at + _STEP]
            are_seen = searched.are_seen[at : at + _STEP]
            unseen = [
                self._undecided_candidate(key)
                for key, is_seen in zip(step, are_seen, strict=True)
                if not is_seen
            ]
            self._seen.remember(compress(step, are_seen))
            for key in step:
                del self._undecided[key]
            admitted, kept_out = self._admit_unseen(unseen)
            over_budget = sum(each.links for each in kept_out)
            seen = len(step) - len(unseen)
            yield admitted, Added(len(unseen) - over_budget, seen, over_budget, kept_out=kept_out)
        self.undecided_since = self._search_began

    def _undecided_candidate(self, key: int) -> Candidate:
        entry, place = self._undecided[key]
        return decode_candidate(self._batch.entry(entry).undecided[place])

    def replay(self, candidate: Candidate, entry: int) -> None:
        """Mark *candidate*, which *entry* of an earlier run admitted, as seen, and count it, if
        the disk does not."""
        if candidate.needs_seen_test:
            self._seen.mark([candidate.key])
        if candidate.purpose is not Purpose.PAGE:
            return
        record = self._batch.peek(candidate.host)
        if record.counted_to < entry:
            self._batch.counted_host(candidate.host).admitted += 1
        if self._rules.max_urls_per_domain is not None:
            self.domains.replay(HostKey(candidate.domain), entry)

    def replay_undecided(self, packed: Sequence[bytes], entry: int) -> None:
        """Search the runs again for the undecided URLs of *entry* of an earlier run."""
        for place, each in enumerate(packed):
            key = decode_candidate(each).key
            if self._seen.sort_out([key]) != (set(), set()):
                self._undecided[key] = (entry, place)

    def over_budget(self, record: HostRecord, candidate: Candidate) -> tuple[int, Reason]:
        """Return by how many URLs the host of *record*, or the domain of *candidate*, exceeds its
        budget, and which budget that is. Budgets may have shrunk since the URLs were admitted."""
        rules, over, reason = self._rules, 0, Reason.HOST_BUDGET
        if rules.max_urls_per_host is not None:
            over = max(0, record.admitted - rules.max_urls_per_host)
        if rules.max_urls_per_domain is not None:
            used = self.domains[HostKey(candidate.domain)]
            if used - rules.max_urls_per_domain > over:
                over, reason = used - rules.max_urls_per_domain, Reason.DOMAIN_BUDGET
        return over, reason

    def release(self, refused: Sequence[Candidate]) -> None:
        """Stop counting *refused* against any budget."""
        pages = [one for one in refused if one.purpose is Purpose.PAGE]
        for host, count in Counter(one.host for one in pages).items():
            record = self._batch.host(host)
            record.admitted = max(0, record.admitted - count)
        if self._rules.max_urls_per_domain is not None:
            for name, count in Counter(one.domain for one in pages).items():
                self.domains.subtract(HostKey(name), count)

    def _admit_unseen(
        self, unseen: Sequence[Candidate]
    ) -> tuple[Admitted, tuple[OverBudgetLinks, ...]]:
        queues: dict[QueueName, list[Candidate]] = defaultdict(list)
        for candidate in unseen:
            queues[candidate.host, candidate.level].append(candidate)
        admitted: Admitted = []
        kept_out: list[OverBudgetLinks] = []
        for queue, urls in queues.items():
            record = self._batch.counted_host(queue[0])
            kept_out += self._charge(record, queue[0], urls)
            admitted.append((queue, record, urls))
        if kept_out:
            admitted = [each for each in admitted if each[2]]
            unseen = [each for _, _, urls in admitted for each in urls]
        new = [each.key for each in unseen if each.needs_seen_test]
        self._seen.mark(new)
        self._batch.totals.seen += len(new)
        return admitted, tuple(kept_out)

    def _charge(
        self, record: HostRecord, host: HostKey, candidates: list[Candidate]
    ) -> Sequence[OverBudgetLinks]:
        """Count *candidates*, all of *host*. Removes those for which a budget has no room, and
        returns these budgets. A robots.txt is not counted: without it its authority would wait
        for ever."""
        by_host, by_domain = self._rules.max_urls_per_host, self._rules.max_urls_per_domain
        pages = [each for each in candidates if each.purpose is not _ROBOTS]
        kept_out: list[OverBudgetLinks] = []
        if by_host is not None and record.admitted + len(pages) > by_host:
            room = max(0, by_host - record.admitted)
            kept_out.append(OverBudgetLinks("host", host, len(pages) - room))
            _remove(candidates, pages[room:])
            del pages[room:]
        if by_domain is not None:
            for name in {each.domain for each in pages}:
                domain = HostKey(name)
                of_domain = [each for each in pages if each.domain == name]
                fit = self.domains.charge(domain, len(of_domain), by_domain)
                if fit < len(of_domain):
                    kept_out.append(OverBudgetLinks("domain", domain, len(of_domain) - fit))
                    _remove(candidates, of_domain[fit:])
                    _remove(pages, of_domain[fit:])
        record.admitted += len(pages)
        return kept_out


def _remove(candidates: list[Candidate], refused: Sequence[Candidate]) -> None:
    gone = set(map(id, refused))
    candidates[:] = [each for each in candidates if id(each) not in gone]

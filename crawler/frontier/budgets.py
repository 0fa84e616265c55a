"""The budgets of registered domains, and the URLs over them, which wait on disk: spilled.

Source: BEAST, in the paper that policy/budgets.py names, keeps what is over budget in queues that
are read again and again, so that a URL costs the same few reads and writes however long it waits.
Here each domain has a queue of its own in an ordered store, so only that of a domain with room is
read: a spilled URL is written once and read once, and some are thinned out.

Rule: budgets bind while others wait; a domain that nobody waits beside gets what is spilled. The
seen test is made when a URL leaves: what was sampled out does not count as seen.

A domain with spilled URLs is filed once, by the class of its budget and the end of its round, or as
capped, if it has its full number in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import ceil
from typing import Final, NamedTuple

import numpy as np

from crawler.frontier import records as keys
from crawler.frontier.port import FrontierLimits
from crawler.frontier.queues import TimedQueue
from crawler.frontier.records import (
    DomainRecord,
    decode_candidate,
    decode_domain,
    encode,
    join_urls,
    split_urls,
)
from crawler.frontier.seen import RecentKeys
from crawler.frontier.staging import WriteBatch, slices
from crawler.model.types import Candidate, HostKey, LinkSource
from crawler.policy.budgets import (
    BudgetRules,
    RankTable,
    count_voters,
    degree_class,
    network_of,
    voter,
    with_voter,
)

_NOT_FILED: Final = -1
CAPPED: Final = 0xF0
"""The class of domains that have their full number of URLs in all."""
_CAPPED_FROM: Final = keys.numbered(keys.FILED, keys.filed_offset(CAPPED))
_CLASSES: Final = 16  # of budgets, each half of the one before
_CHUNK: Final = 64  # URLs of a record
_STEP: Final = 256  # URLs released, or looked at, in one call: some 2 ms
_LOOKS: Final = 16  # domains looked at in one call
_WHOLE: Final = 4096  # URLs of a domain that are looked through at once for repeated ones: 10 ms
_FULL: Final = 0.75  # of the most, after which a sample is made smaller that has no repeated ones
_MOST_LENT: Final = 2
"""Hosts of a domain that are lent slots beyond its budget while others wait: where its servers are
slow, each slot is gone for long, and more would be missing when the others are due."""
_RECENT: Final = 1 << 20  # keys of URLs spilled lately, 8 bytes each: links are repeated
_MOST_VOTES: Final = 200_000  # that are remembered as counted, 120 bytes each
_READY: Final = 50_000  # domains that may be released if no others wait, 100 bytes each
_FIRST_TABLE: Final = 100  # pages, after which ranks are computed for the first time
_NEW_TABLE: Final = 100_000  # pages, after which they are computed again at the latest
_DEFAULT_RULES: Final = BudgetRules()
_GONE: Final = encode(None)  # in the place of a spilled URL that was forgotten


class Votes(NamedTuple):
    """That a domain links to others."""

    voter: bytes
    domains: Collection[str]


NO_VOTES: Final = Votes(b"", ())


class DomainBudgets:
    """What is known of each registered domain, and its spilled URLs."""

    def __init__(self, batch: WriteBatch, limits: FrontierLimits) -> None:
        self._batch = batch
        self._limits = limits
        self._rules = limits.budgets
        self._known: dict[str, DomainRecord] = {}
        self._changed: set[str] = set()  # not staged yet
        self._voted: dict[bytes, set[str]] = {}  # for which domains, lately, by voter
        self._votes = 0  # in all of these
        self._recent = RecentKeys(_RECENT)
        self._queues = {
            number: TimedQueue(
                *(batch, keys.FILED, keys.numbered(keys.FILED, keys.filed_offset(number + 1))),
                keys.filed_offset(number),
            )
            for number in (*range(_CLASSES), CAPPED)
        }
        self._rank()
        # Domains that may have URLs of hosts of which nothing else waits, by class.
        self._ready: list[dict[str, None]] = [{} for _ in range(_CLASSES)]
        self._pass_from: bytes | None = keys.FILED  # where they are looked for on disk
        # Where domains are looked for that may be capped no more: this start may have other limits.
        self._capped_from: bytes | None = None
        if self._queues[CAPPED].next_at is not None:
            self._capped_from = _CAPPED_FROM
        self._generation = self._rules_generation  # of the rules by which they were
        self._lent: Counter[str] = Counter()  # hosts of domains that have slots beyond their budget
        self.moved = 0  # spilled URLs that were read or written

    # Records

    def record(self, domain: str) -> DomainRecord:
        """Return the record of *domain*, to be changed; the next `stage` writes it."""
        self._changed.add(domain)
        return self.peek(domain)

    def peek(self, domain: str) -> DomainRecord:
        """Return the record of *domain*, or a new one; changes to it are not written."""
        known = self._known.get(domain)
        if known is None:
            packed = self._batch.get(self._batch.key(keys.DOMAIN, domain))
            known = self._known[domain] = decode_domain(packed) if packed else DomainRecord()
        return known

    @property
    def are_changed(self) -> bool:
        """Whether `stage` has something to stage."""
        return bool(self._changed)

    def stage(self) -> None:
        """Stage the changed records."""
        for domain in self._changed:
            self._batch.put(self._batch.key(keys.DOMAIN, domain), encode(self._known[domain]))
        self._changed.clear()
        most = self._limits.known_domains
        if len(self._known) > 2 * most:
            self._known = dict(islice(self._known.items(), most, None))

    def take_in(self, shard: bytes) -> Iterator[None]:
        """File the domains of *shard*, whose records are in the store, and count what is spilled.
        Yields after each step."""
        of_shard = self._batch.totals_of(shard)
        counted = {"capped": -of_shard.capped, "domains": -of_shard.spilled_domains}
        self._batch.count_spilled(shard, -of_shard.spilled, **counted)
        for found in slices(self._batch, keys.DOMAIN + shard, _STEP):
            for key, packed in found:
                if len(decode_domain(packed)):
                    domain = keys.name_in_shard(key)
                    self._known.pop(domain, None)
                    record = self.record(domain)
                    record.filed, record.fruitless = _NOT_FILED, 0  # limits may be others here
                    self._batch.count_spilled(shard, len(record), domains=1)
                    self._file(domain, record, self._batch.totals.clock)
            self.stage()
            yield
        self._rank()
        self.look_again()

    def drop(self, shard: bytes) -> None:
        """Forget what is known of *shard*."""
        of = self._batch.shards.of
        self._known = {name: each for name, each in self._known.items() if of(name) != shard}
        self._changed = {name for name in self._changed if of(name) != shard}
        self._voted.clear()
        self._votes = 0
        self._recent.clear()
        for ready in self._ready:
            for name in [name for name in ready if of(name) == shard]:
                del ready[name]

    def drop_filed(self, shard: bytes) -> Iterator[None]:
        """Delete what `drop` left in the store, but for the records of the shard."""
        for found in slices(self._batch, keys.FILED, _STEP):
            self._batch.delete_all([key for key, _ in found if keys.shard_in(key) == shard])
            yield
        for queue in self._queues.values():
            queue.read_again()

    # Who links to whom

    def votes(self, source: LinkSource, domains: Iterable[str]) -> Votes:
        """Return the votes of the domain of a page for the other *domains* that it links to, but
        for those that were returned lately."""
        others = set(domains)
        others.discard(source.domain)
        if not others:
            return NO_VOTES
        votes_as = self.peek(source.domain).votes_as
        if not votes_as:
            votes_as = voter(source.domain, network_of(source.address))
            if self._batch.has(self._batch.shards.of(source.domain)):
                self.record(source.domain).votes_as = votes_as
        known = self._voted.get(votes_as)
        if known is None:
            known = self._voted[votes_as] = set()
        others -= known
        known |= others
        self._votes += len(others)
        while self._votes > _MOST_VOTES:
            self._votes -= len(self._voted.pop(next(iter(self._voted))))
        return Votes(votes_as, others)

    def count(self, votes: Votes) -> None:
        """Count *votes* for domains that are here."""
        for domain in votes.domains:
            record = self.peek(domain)
            voters = with_voter(record.voters, votes.voter)
            if voters is record.voters:
                continue
            self._changed.add(domain)
            record.voters = voters
            degree = degree_class(count_voters(voters))
            if degree > record.degree:
                self._count_degree(self._batch.shards.of(domain), record.degree, degree)
                record.degree = degree

    def _count_degree(self, shard: bytes, before: int, after: int) -> None:
        totals = self._batch.totals
        counted = (totals, self._batch.totals_of(shard)) if self._are_several else (totals,)
        for each in counted:
            each.degrees += [0] * (after + 1 - len(each.degrees))
            each.degrees[after] += 1
            if before:
                each.degrees[before] -= 1

    @property
    def _are_several(self) -> bool:
        return self._batch.shards.are_several

    @property
    def _share(self) -> float:
        """The share of all domains that are here: shards have equally many."""
        here = self._batch.here
        return max(len(here), 1) / self._batch.shards.count if here is not None else 1.0

    def _rank(self) -> None:
        self._table = RankTable.of(self._batch.totals.degrees, self._share)
        done = self._batch.totals.done
        self._table_at = max(_FIRST_TABLE, min(2 * done, done + _NEW_TABLE))

    # Budgets

    def are_counted(self, domain: str) -> bool:
        """Return whether the URLs of *domain* are counted."""
        if self._rules is not None:
            return True
        rules = self._limits.rule_budgets
        is_ruled = rules is not None and rules.per_round(domain) is not None
        return is_ruled or self._limits.budgets_of("", domain)[1] is not None

    def rank(self, domain: str) -> int:
        """Return the rank of *domain*, from 1."""
        return self._given_rank(domain) or self._table.rank(self.peek(domain).degree)

    def _given_rank(self, domain: str) -> int:
        ranks = self._limits.ranks
        return (ranks.of_domain(domain) or 0) if ranks is not None else 0

    def per_round(self, domain: str) -> int | None:
        """Return how many URLs of *domain* may be admitted a round; None: any number."""
        by_rule = self._limits.rule_budgets
        of_rule = by_rule.per_round(domain) if by_rule is not None else None
        if of_rule is not None or self._rules is None:
            return of_rule
        return self._rules.of_rank(self.rank(domain))

    def room(self, domain: str, now: float, *, is_new_host: bool = False) -> int | None:
        """Return how many URLs of *domain* may be admitted now; None: any number."""
        budget = self.per_round(domain)
        if budget is None:
            return None
        record = self.peek(domain)
        if is_new_host and record.hosts >= self._most_hosts(budget):
            return 0
        if now >= record.round_at + self._round_s:
            return budget
        return max(0, budget - record.used)

    @property
    def _round_s(self) -> float:
        return (self._rules or _DEFAULT_RULES).round_s

    def _most_hosts(self, budget: int) -> int:
        return budget * self._rules.hosts_per_url if self._rules is not None else 1 << 62

    def charge(self, domain: str, urls: int, now: float, *, is_new_host: bool) -> None:
        """Count *urls* of *domain* as admitted."""
        record = self.record(domain)
        record.admitted += urls
        record.hosts += is_new_host
        if self._limits.ranks is not None:  # for those who look, and have no such file
            record.given_rank = self._given_rank(domain)
        if now >= record.round_at + self._round_s:
            record.round_at, record.used = int(now), 0
        record.used += urls

    def note_room(self, domain: str, now: float) -> None:
        """Note that there is room for URLs of *domain*: those that were spilled may leave now."""
        record = self.peek(domain)
        if len(record) and record.due_at > now and record.filed not in (CAPPED, _NOT_FILED):
            self._file(domain, self.record(domain), now)

    def subtract(self, domain: str, urls: int, hosts: int) -> None:
        """Count *urls* and *hosts* of *domain* no more."""
        record = self.record(domain)
        record.hosts = max(0, record.hosts - hosts)
        record.admitted = max(0, record.admitted - urls)
        if record.filed == CAPPED:
            record.fruitless = 0
            self._file(domain, record, self._batch.totals.clock)

    # Spilled URLs

    def spill(self, domain: str, urls: Sequence[Candidate], now: float, *, again: bool) -> None:
        """Keep *urls* of *domain* until it has room, or a sample of them. *again*: they were
        spilled before."""
        record = self.record(domain)
        most = self._most_spilled(domain)
        if record.halvings and len(record) < most // 4 and record.thin_until <= record.head:
            record.halvings -= 1
        found = {each.key: each for each in urls}
        if not again:
            wanted = np.fromiter(found, np.uint64, len(found))
            found = {key: found[key] for key in wanted[~self._recent.contain(wanted)].tolist()}
            self._recent.add(wanted)
        kept = [each for key, each in found.items() if is_kept(key, record)]
        while len(kept) > most:
            self._halve(record)
            kept = [each for each in kept if is_kept(each.key, record)]
        self._count_sampled_out(domain, record, len(found) - len(kept))
        self._append(domain, record, [encode(each) for each in kept])
        if len(record) > most and record.thin_until <= record.head:
            if len(record) <= _WHOLE:  # perhaps some were repeated
                self._thin(domain, record, len(record))
            if len(record) > most * _FULL:
                self._halve(record)
        if record.thin_until > record.head:
            some = min(2 * len(kept) + _CHUNK, record.thin_until - record.head)
            self._thin(domain, record, some)
        if len(record):
            has_room = record.filed == CAPPED and not again and self._may_be_admitted(urls, record)
            if has_room:
                record.fruitless = 0
            if record.filed == _NOT_FILED or has_room:
                self._file(domain, record, max(record.round_at + self._round_s, now))
            if not has_room or len(record) <= _STEP:  # else all were tried again for each link
                self._note_ready(domain, record)

    def _halve(self, record: DomainRecord) -> None:
        """Make the sample of a domain smaller; those that are spilled already are thinned later."""
        record.halvings += 1
        record.thin_until = record.tail

    def _may_be_admitted(self, urls: Sequence[Candidate], record: DomainRecord) -> bool:
        """Return whether budgets in all have room for any of *urls*, of one domain."""
        by_domain = self._cap_room(urls[0].domain, record)
        if by_domain == 0:
            return False
        for each in urls:
            by_host = self._limits.budgets_of(each.host, each.domain)[0]
            if by_host is None or self._batch.peek(each.host).admitted < by_host:
                return True
        return False

    def _most_spilled(self, domain: str) -> int:
        rules = self._rules or _DEFAULT_RULES
        budget = self.per_round(domain)
        return rules.kept_rounds * max(rules.most if budget is None else budget, rules.least)

    def _count_sampled_out(self, domain: str, record: DomainRecord, urls: int) -> None:
        if urls:
            record.sampled_out += urls
            self._batch.count_spilled(self._batch.shards.of(domain), 0, sampled_out=urls)

    def _append(self, domain: str, record: DomainRecord, urls: Sequence[bytes]) -> None:
        shard = self._batch.shards.of(domain)
        self._count_spilled(domain, record, len(urls))
        for at in range(0, len(urls), _CHUNK):
            some = urls[at : at + _CHUNK]
            record.tail += len(some)
            self._batch.put(keys.spilled(shard, domain, record.tail - 1), join_urls(some))
        self.moved += len(urls)

    def _take(self, domain: str, record: DomainRecord, urls: int) -> list[bytes]:
        """Remove the first *urls* spilled of *domain*, and return them packed, but for those that
        are sampled out by now."""
        shard = self._batch.shards.of(domain)
        stop = min(record.head + urls, record.tail)
        found: list[bytes] = []
        for key, chunk in self._chunks(shard, domain, record, stop):
            last = keys.number_of(key)
            first = last + 1 - len(chunk)
            found += chunk[max(0, record.head - first) : stop - first]
            if last < stop:
                self._batch.delete(key)
        self._count_spilled(domain, record, record.head - stop)
        record.head = stop
        self.moved += len(found)
        left = [each for each in found if each != _GONE]
        kept = left
        if record.halvings:
            kept = [each for each in left if is_kept(decode_candidate(each).key, record)]
        self._count_sampled_out(domain, record, len(left) - len(kept))
        return kept

    def _count_spilled(self, domain: str, record: DomainRecord, more: int) -> None:
        """Count so many *more* spilled URLs of *domain*, which the record does not have yet."""
        capped = more if record.filed == CAPPED else 0
        domains = bool(len(record) + more) - bool(len(record))
        shard = self._batch.shards.of(domain)
        self._batch.count_spilled(shard, more, capped=capped, domains=domains)

    def _chunks(
        self, shard: bytes, domain: str, record: DomainRecord, stop: int
    ) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the records, with their keys, that have the first URLs, up to number *stop*."""
        begin, end = (
            keys.spilled(shard, domain, record.head),
            keys.spilled(shard, domain, keys.LAST_NUMBER),
        )
        while True:
            found = self._batch.scan(begin, end, 4)
            for key, packed in found:
                yield key, split_urls(packed)
                if keys.number_of(key) + 1 >= stop:
                    return
            if len(found) < 4:
                return
            begin = found[-1][0] + b"\0"

    def _thin(self, domain: str, record: DomainRecord, urls: int) -> None:
        """Take the first *urls*, and put those behind the others that are in the sample, each
        once."""
        self._append(domain, record, list(dict.fromkeys(self._take(domain, record, urls))))

    def _file(self, domain: str, record: DomainRecord, due: float) -> None:
        """File *domain*, or file it no more if nothing of it is spilled."""
        shard = self._batch.shards.of(domain)
        if record.filed != _NOT_FILED:
            entry = keys.filed(record.filed, record.due_at, shard, domain)
            self._queues[record.filed].remove(entry)
            self._note_filed(domain, record, _NOT_FILED)
        if not len(record):
            # What was sampled out has another chance.
            record.epoch += record.halvings > 0
            record.halvings = record.thin_until = record.fruitless = 0
            return
        is_full = self._cap_room(domain, record) == 0 or record.fruitless >= len(record)
        self._note_filed(domain, record, CAPPED if is_full else self._class_of(domain))
        record.due_at = ceil(due)
        self._queues[record.filed].put(record.due_at, shard + domain.encode(), b"")

    def _note_filed(self, domain: str, record: DomainRecord, number: int) -> None:
        """Note the class under which *domain* is filed from now on."""
        capped = (number == CAPPED) - (record.filed == CAPPED)
        record.filed = number
        if capped:
            shard = self._batch.shards.of(domain)
            self._batch.count_spilled(shard, 0, capped=capped * len(record))

    def _cap_room(self, domain: str, record: DomainRecord) -> int | None:
        cap = self._limits.budgets_of("", domain)[1]
        return None if cap is None else max(0, cap - record.admitted)

    def _class_of(self, domain: str) -> int:
        rules, budget = self._rules or _DEFAULT_RULES, self.per_round(domain)
        if budget is None:
            return 0
        return min(max(rules.most // max(budget, 1), 1).bit_length(), _CLASSES) - 1

    # Release

    @property
    def next_at(self) -> float | None:
        """When spilled URLs may be released: the end of a round, or at once. None: there are none,
        or all are of capped domains."""
        if not self._batch.totals.spilled:
            return None  # entries that are left are stale
        if self._capped_from is not None or self._has_new_rules:
            return 0.0
        times = [self._queues[number].next_at for number in range(_CLASSES)]
        return min([time for time in times if time is not None], default=None)

    @property
    def may_be_idle(self) -> bool:
        """Whether spilled URLs may be released if nothing else is to be done."""
        totals = self._batch.totals
        if not totals.spilled:
            return False
        if self._pass_from is not None or any(self._ready):
            return True
        # A host may have run dry without a fetch, as its last URLs were refused.
        return not totals.waiting and self.next_at is not None

    @property
    def _rules_generation(self) -> int:
        return self._limits.rule_budgets.generation if self._limits.rule_budgets else 0

    @property
    def _has_new_rules(self) -> bool:
        is_new = self._rules_generation != self._generation
        return is_new and self._queues[CAPPED].next_at is not None

    def take_due(self, now: float) -> list[tuple[str, list[Candidate]]]:
        """Remove and return URLs of domains whose round is over, as far as their budgets allow. To
        be followed by `note_released` for each domain."""
        if self._batch.totals.done >= self._table_at:
            self._rank()
        if not self._batch.totals.spilled:
            return []
        if self._capped_from is not None or self._has_new_rules:
            self._look_at_capped(now)
        taken: list[tuple[str, list[Candidate]]] = []
        urls = 0
        for number in range(_CLASSES):
            queue = self._queues[number]
            while urls < _STEP and len(taken) < _LOOKS and (found := queue.take_due(now, 1)):
                key = found[0][0]
                domain = keys.domain_of_filed(key)
                if not self._batch.has(keys.shard_in(key)) or self.peek(domain).filed != number:
                    continue
                record = self.record(domain)
                record.filed = _NOT_FILED
                room = self.room(domain, now)
                most = min(_STEP, len(record) if room is None else room)
                taken.append((domain, _decoded(self._take(domain, record, most))))
                urls += most
        return taken

    def take_idle(
        self, hosts: int, is_idle: Callable[[HostKey], bool]
    ) -> list[tuple[str, list[Candidate]]]:
        """Remove and return URLs of the domain of the best rank that has any of a host that
        *is_idle*, whatever its budget: of up to so many *hosts*. As `take_due`."""
        others_wait = self._batch.totals.waiting > 0
        for _ in range(_LOOKS):
            domain = self._next_ready()
            if domain is None:
                return []
            if not self._batch.has(self._batch.shards.of(domain)):
                continue  # its shard is on its way to another owner
            record = self.peek(domain)
            most = min(hosts, _MOST_LENT - self._lent[domain]) if others_wait else hosts
            if most <= 0 or not len(record) or record.filed == CAPPED:
                continue  # if slots are lent to it: until a lease of it ends
            wanted: set[HostKey] = set()
            urls = 0  # up to the last of a host that is idle, or a record of them
            for at, packed in enumerate(self._upcoming(domain, record)):
                if packed == _GONE:
                    continue
                host = decode_candidate(packed).host
                if host not in wanted and is_idle(host):
                    if len(wanted) == most:
                        break
                    wanted.add(host)
                    urls = at + 1
                elif wanted and at < _CHUNK:
                    urls = at + 1
            if wanted:
                return [(domain, _decoded(self._take(domain, self.record(domain), urls)))]
        return []

    def _upcoming(self, domain: str, record: DomainRecord) -> list[bytes]:
        """Return the first spilled URLs of *domain*."""
        shard = self._batch.shards.of(domain)
        stop = min(record.head + _STEP, record.tail)
        found: list[bytes] = []
        for key, chunk in self._chunks(shard, domain, record, stop):
            begin = record.head - (keys.number_of(key) + 1 - len(chunk))
            found += chunk[max(0, begin) :]
        return found

    def note_released(
        self, domain: str, settled: int, over: Mapping[str, int], now: float, *, lent: int | None
    ) -> None:
        """Note that of URLs that were taken of *domain* so many are *settled*, as admitted or seen,
        and so many *over* the budget of each unit, and spilled again. *lent*: to how many hosts
        beyond its budget; None: it was within that."""
        record = self.record(domain)
        room = self.room(domain, now)
        capped = over["host"] + over["domain"]
        # All are capped when all have been tried, and none was spilled again for another reason.
        record.fruitless = 0 if over["round"] else record.fruitless + capped
        if lent is None:
            self._lent.pop(domain, None)
        elif lent:
            self._lent[domain] += lent
        is_more = room is None or (room > 0 and (settled or capped))
        ends_at = record.round_at + self._round_s
        if ends_at <= now:
            ends_at = now + self._round_s
        self._file(domain, record, now if is_more else ends_at)
        if len(record):
            self._note_ready(domain, record)

    def note_returned(self, domain: str) -> None:
        """Note that a lease of *domain* has ended."""
        if domain in self._lent:
            self._lent[domain] -= 1
            if self._lent[domain] <= 0:
                del self._lent[domain]
            self.note_dry(domain)

    def note_dry(self, domain: str) -> None:
        """Note that nothing waits at a host of *domain* any more."""
        record = self.peek(domain)
        if len(record):
            self._note_ready(domain, record)

    def look_again(self) -> None:
        """Look at all domains again, whether hosts of theirs have run dry."""
        self._pass_from = keys.FILED

    def _note_ready(self, domain: str, record: DomainRecord) -> None:
        if record.filed in (CAPPED, _NOT_FILED):
            return
        ready = self._ready[record.filed]
        if len(ready) < _READY:
            ready[domain] = None
        else:
            self._pass_from = self._pass_from or keys.FILED

    def _next_ready(self) -> str | None:
        if not any(self._ready):
            if self._pass_from is None:
                if self._batch.totals.waiting:
                    return None
                self.look_again()
            assert self._pass_from is not None
            found = self._batch.scan(self._pass_from, _CAPPED_FROM, _LOOKS)
            self._pass_from = found[-1][0] + b"\0" if len(found) == _LOOKS else None
            for key, _ in found:
                self._ready[keys.class_of_filed(key)][keys.domain_of_filed(key)] = None
        for ready in self._ready:
            if ready:
                domain = next(iter(ready))
                del ready[domain]
                return domain
        return None

    def _look_at_capped(self, now: float) -> None:
        """File some of the capped domains again, as budgets have changed."""
        if self._has_new_rules:
            self._generation, self._capped_from = self._rules_generation, _CAPPED_FROM
        assert self._capped_from is not None
        found = self._batch.scan(self._capped_from, keys.prefix_end(keys.FILED), _LOOKS)
        self._capped_from = found[-1][0] + b"\0" if len(found) == _LOOKS else None
        for key, _ in found:
            domain = keys.domain_of_filed(key)
            if (
                self._batch.has(keys.shard_in(key))
                and self._cap_room(domain, self.peek(domain)) != 0
            ):
                record = self.record(domain)
                record.fruitless = 0
                self._file(domain, record, now)

    def forget(self, is_meant: Callable[[Candidate], bool]) -> Iterator[int]:
        """Forget the spilled URLs that *is_meant* is true for. Yields after each step, of some
        milliseconds, how many it has forgotten."""
        for found in slices(self._batch, keys.SPILLED, _LOOKS):
            forgotten = 0
            for key, packed in found:
                if not self._batch.has(keys.shard_in(key)):
                    continue
                urls = split_urls(packed)
                left = [
                    _GONE if each == _GONE or is_meant(decode_candidate(each)) else each
                    for each in urls
                ]
                gone = sum(a != b for a, b in zip(urls, left, strict=True))
                if gone:
                    self._batch.put(key, join_urls(left))
                    forgotten += gone
            yield forgotten


def _decoded(packed: Iterable[bytes]) -> list[Candidate]:
    return [decode_candidate(each) for each in packed]


def is_kept(key: int, record: DomainRecord) -> bool:
    """Return whether a URL is in the sample of those of its domain. It is the same whenever it is
    found, so that a URL that many pages link to has no better chance, until all that was kept has
    left.

    Source: adaptive sampling (Wegman; Flajolet, "On adaptive sampling", 1990)."""
    mixed = (key + record.epoch * 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93 >> 40
    return not mixed & ((1 << record.halvings) - 1)


def spilled_urls(chunks: Iterable[tuple[bytes, bytes]], record: DomainRecord) -> list[Candidate]:
    """Return the spilled URLs of a domain, those that are released first in front. *chunks*: their
    names, and the chunks, in order."""
    found: list[Candidate] = []
    for name, packed in chunks:
        urls = split_urls(packed)
        released = max(0, record.head - (keys.number_of(name) + 1 - len(urls)))
        found += [decode_candidate(each) for each in urls[released:] if each != _GONE]
    return found

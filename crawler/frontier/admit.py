"""Admission of found URLs: the seen test and the budgets.

Rule: a URL over its budget is not marked seen, and waits (`DomainBudgets`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.budgets import DomainBudgets
from crawler.frontier.order import UrlOrder
from crawler.frontier.port import FrontierLimits
from crawler.frontier.queues import QueueName
from crawler.frontier.records import HostRecord, decode_urls, encode
from crawler.frontier.seen import SeenSet
from crawler.frontier.staging import WriteBatch, all_records
from crawler.model.types import (
    Added,
    Candidate,
    HostKey,
    OverBudgetLinks,
    Purpose,
)
from crawler.policy.refusal import Reason

# Bound once, because each look-up of a member of an enumeration takes 0.2 us.
_ROBOTS: Final = Purpose.ROBOTS
_STEP: Final = 500  # undecided URLs of one step, and of one record: 2 ms

_PART: Final = 4096  # arrived URLs that are admitted at once: 10 ms


Admitted = dict[QueueName, list[Candidate]]
"""Admitted URLs by their queues."""


class ArrivedUrls:
    """URLs that were added, and are neither admitted nor dropped yet: in memory and, from the next
    commit on, in records of the store.

    Many are taken by parts, each with all URLs of some hosts. Their records are removed with the
    last part: after a crash before it, those of the others are known for seen."""

    def __init__(
        self, batch: WriteBatch, limits: FrontierLimits, seen: SeenSet, order: UrlOrder
    ) -> None:
        self._batch = batch
        self._limits = limits
        self._seen = seen
        self._order = order
        # When some are to be taken, though others may be leased; None: there are none.
        self.due_at: float | None = None
        self._by_key: dict[int, Candidate] = {}
        self.unwritten: list[Candidate] = []  # in no record yet
        self._records: list[bytes] = []  # their names
        self._since = 0.0  # when the first one came
        self._parts: list[dict[int, Candidate]] = []  # of URLs that came before these
        self._records_of_parts: list[bytes] = []
        self.load(keys.ARRIVED)

    def load(self, prefix: bytes) -> None:
        """Add those of the records that begin with *prefix*."""
        for name, packed in all_records(self._batch, prefix):
            self._by_key.update((each.key, each) for each in decode_urls(packed))
            self._records.append(name)
        self._set_due()

    def drop(self, shard: bytes) -> None:
        """Drop those of *shard*, whose records were deleted."""
        of = self._batch.shards.of
        for part in (self._by_key, *self._parts):
            for key in [key for key, each in part.items() if of(each.host) == shard]:
                del part[key]
        self.unwritten = [each for each in self.unwritten if of(each.host) != shard]
        for names in (self._records, self._records_of_parts):
            names[:] = [name for name in names if keys.shard_in(name) != shard]
        self._set_due()

    def __len__(self) -> int:
        return len(self._by_key) + sum(map(len, self._parts))

    def of(self, wanted: Collection[int]) -> set[int]:
        """Return which of the keys *wanted* are here."""
        parts = [
            part for part in (self._by_key, *self._parts) if not part.keys().isdisjoint(wanted)
        ]
        return {key for part in parts for key in wanted if key in part}

    def _set_due(self) -> None:
        if self._parts or len(self._by_key) >= self._limits.max_arrived:
            self.due_at = 0.0
        else:
            self.due_at = self._since + self._limits.max_arrived_s if self._by_key else None

    def add(self, found: Sequence[Candidate], now: float) -> int:
        """Keep those of *found* that may be new, all of which need the seen test. Returns how many
        that are."""
        arrived = self._by_key
        found_by_key = first_by_key(found)
        unknown = self._seen.not_recent(found_by_key)
        if unknown is found_by_key and arrived.keys().isdisjoint(unknown):
            fresh = found_by_key  # the usual case of a crawl that grows, in half the time
        else:
            fresh = {key: found_by_key[key] for key in unknown if key not in arrived}
        for part in self._parts:
            fresh = {key: each for key, each in fresh.items() if key not in part}
        if len(fresh) < len(found_by_key):
            for key in fresh:
                del found_by_key[key]
            self._order.note(found_by_key.values())
        self.put(fresh, now)
        return len(fresh)

    def put(self, fresh: Mapping[int, Candidate], now: float) -> None:
        """Keep URLs that may be new, by their keys, none of which is here."""
        if not self._by_key:
            self._since = now
        self._by_key.update(fresh)
        self.unwritten += fresh.values()
        self._set_due()

    def stage(self) -> None:
        """Stage the record of those that came since the last commit."""
        if not self.unwritten:
            return
        for shard, urls in self._batch.shards.divide(self.unwritten).items():
            name = keys.numbered(keys.ARRIVED, self._batch.next_number(shard))
            self._batch.put(name, encode(urls))
            self._records.append(name)
        self.unwritten = []

    def take(self) -> dict[int, Candidate]:
        """Remove some of them, and return them by their keys, in the order in which they came.
        Returns nothing if there are none."""
        if not self._parts:
            self._divide()
        part = self._parts.pop() if self._parts else {}
        if not self._parts:
            self._batch.delete_all(self._records_of_parts)
            self._records_of_parts = []
        self._set_due()
        return part

    def _divide(self) -> None:
        """Make parts of all."""
        count = -(-len(self._by_key) // _PART)
        if count > 1:
            self.stage()
            self._parts = [{} for _ in range(count)]
            host, part = None, self._parts[0]
            for key, candidate in self._by_key.items():
                if candidate.host != host:  # most links of a page are for one host
                    host = candidate.host
                    part = self._parts[hash(host) % count]
                part[key] = candidate
            self._parts = [part for part in self._parts if part]
        elif count:
            self._parts = [self._by_key]
        self._records_of_parts, self._records = self._records, []
        self._by_key, self.unwritten = {}, []


def first_by_key(found: Sequence[Candidate]) -> dict[int, Candidate]:
    """Return *found* by their keys: of those with equal keys the first."""
    by_key = {each.key: each for each in found}
    if len(by_key) < len(found):
        by_key = {}
        for each in found:
            by_key.setdefault(each.key, each)
    return by_key


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

    def __init__(
        self,
        batch: WriteBatch,
        limits: FrontierLimits,
        seen: SeenSet,
        order: UrlOrder,
        budgets: DomainBudgets,
    ) -> None:
        self._batch = batch
        self._limits = limits
        self._seen = seen
        self._order = order
        self._budgets = budgets
        # URLs for which the runs are to be searched: the names of their records.
        self.undecided: dict[int, bytes] = {}  # by key, the oldest first
        self._search_began = 0.0
        self.undecided_since = 0.0  # at most as late as the oldest was found
        self.load(keys.UNDECIDED)

    def load(self, prefix: bytes) -> None:
        """Add the undecided URLs of the records that begin with *prefix*."""
        for name, packed in all_records(self._batch, prefix):
            self.undecided.update((each.key, name) for each in decode_urls(packed))

    def drop(self, shard: bytes) -> None:
        """Forget what is known of *shard*, whose records were deleted."""
        at = keys.SHARD_AT
        self.undecided = {key: name for key, name in self.undecided.items() if name[at] != shard}
        self._budgets.drop(shard)

    def admit(self, found: Sequence[Candidate], now: float) -> tuple[Admitted, Added]:
        """Return the new URLs of *found*, counted against their budgets and marked seen, and the
        counts. The caller puts each where it waits."""
        untested = [each for each in found if not each.needs_seen_test]
        tested = first_by_key([each for each in found if each.needs_seen_test])
        equal = len(found) - len(tested) - len(untested)
        admitted, added = self.admit_by_key(tested, now, untested)
        return admitted, replace(added, seen=added.seen + equal) if equal else added

    def admit_by_key(
        self, found: dict[int, Candidate], now: float, untested: Sequence[Candidate] = ()
    ) -> tuple[Admitted, Added]:
        """Admit as `admit` does *found*, which need the seen test, and *untested*, which do not.
        Leaves the new ones in *found*."""
        count = len(found)
        # The gate may say by now of one of these that it is new.
        for key in self.undecided.keys() & found.keys():
            del found[key]
        known, perhaps = self._seen.look_up(found)
        self._order.note([found.pop(key) for key in known])
        if perhaps:
            self._put_aside([found.pop(key) for key in perhaps], now)
        seen = count - len(found) - len(perhaps)
        unseen = [*found.values(), *untested]
        admitted, kept_out = self._admit_unseen(unseen, now)
        over_budget = sum(each.links for each in kept_out)
        return admitted, Added(len(unseen) - over_budget, seen, over_budget, len(perhaps), kept_out)

    def readmit(self, found: Sequence[Candidate]) -> tuple[Admitted, Added]:
        """Admit those of *found*, which were refused and are marked seen, that the budgets in all
        have room for. The others stay where they are kept."""
        admitted, kept_out = self._admit_unseen(found, 0.0, binds=False, spills=False)
        return admitted, Added(len(found) - sum(each.links for each in kept_out))

    def admit_spilled(
        self, found: Sequence[Candidate], now: float, *, binds: bool
    ) -> tuple[Admitted, Added]:
        """Admit as `admit` does *found*, which were over their budgets. *binds*: that of a round
        counts. It may read the disk."""
        by_key = first_by_key(found)
        count = len(by_key)
        known, perhaps = self._seen.look_up(by_key)
        if perhaps:
            are_seen = zip(perhaps, self._seen.search(perhaps), strict=True)
            known.update(key for key, is_seen in are_seen if is_seen)
        new = [
            each
            for key, each in by_key.items()
            if not each.needs_seen_test or not (key in known or key in self.undecided)
        ]
        admitted, kept_out = self._admit_unseen(new, now, binds=binds, again=True)
        over_budget = sum(each.links for each in kept_out)
        new_urls = len(new) - over_budget
        return admitted, Added(new_urls, count - len(new), over_budget, kept_out=kept_out)

    def note_seen(self, urls: Sequence[Candidate], shard: bytes) -> None:
        """Mark those of *urls*, all of *shard*, seen that certainly are not."""
        by_key = first_by_key(urls)
        known, perhaps = self._seen.look_up(by_key)
        new = by_key.keys() - self.undecided.keys() - {*known, *perhaps}
        if new:
            self._seen.mark(sorted(new), shard)

    def mark_seen(self, key: int, shard: bytes) -> None:
        """Mark a URL of *shard* as seen, if it is not. It may read the disk."""
        known, perhaps = self._seen.look_up([key])
        if not (known or (perhaps and self._seen.search(perhaps)[0])):
            self._seen.mark([key], shard)

    def admit_one(self, candidate: Candidate, now: float) -> bool:
        """Return whether *candidate* is new. If it is undecided, it is admitted later."""
        return bool(self.admit([candidate], now)[0])

    def begin_search(self, most: int, now: float) -> Search:
        """Return the search of the runs for the oldest undecided URLs, *most* at once."""
        self._search_began = now
        return Search(self._seen, list(islice(self.undecided, most)))

    def decide(self, searched: Search, now: float) -> Iterator[tuple[Admitted, Added]]:
        """Yield, step by step, what of the URLs *searched* is admitted, as `admit` does."""
        of_record: dict[bytes, dict[int, bool]] = {}
        for key, is_seen in zip(searched.keys, searched.are_seen, strict=True):
            if (name := self.undecided.get(key)) is not None:  # else its shard was dropped
                of_record.setdefault(name, {})[key] = is_seen
        for name, found in of_record.items():
            step = {
                key: is_seen or self._seen.is_new(key)  # it may have been marked meanwhile
                for key, is_seen in found.items()
                if key in self.undecided
            }
            if not step:
                continue
            packed = self._batch.get(name)
            assert packed is not None, f"{name!r} has undecided URLs, but is not in the store"
            by_key = {each.key: each for each in decode_urls(packed)}
            unseen = [by_key[key] for key, is_seen in step.items() if not is_seen]
            known = [key for key, is_seen in step.items() if is_seen]
            self._seen.remember(known)
            self._order.note(map(by_key.__getitem__, known))
            for key in step:
                del self.undecided[key]
            oldest = next(iter(self.undecided.values()), None)
            if oldest != name:
                self._batch.delete(name)
            else:  # only a part of it was searched for: after a crash that would count twice
                rest = [each for key, each in by_key.items() if key in self.undecided]
                self._batch.put(name, encode(rest))
            # They may have been spilled meanwhile, and been taken for these.
            admitted, kept_out = self._admit_unseen(unseen, now, again=True)
            over_budget = sum(each.links for each in kept_out)
            seen = len(step) - len(unseen)
            yield admitted, Added(len(unseen) - over_budget, seen, over_budget, kept_out=kept_out)
        self.undecided_since = self._search_began

    def _put_aside(self, undecided: Sequence[Candidate], now: float) -> None:
        if not self.undecided:
            self.undecided_since = now
        for shard, urls in self._batch.shards.divide(undecided).items():
            for at in range(0, len(urls), _STEP):
                some = urls[at : at + _STEP]
                name = keys.numbered(keys.UNDECIDED, self._batch.next_number(shard))
                self._batch.put(name, encode(some))
                self.undecided.update((each.key, name) for each in some)

    def over_budget(self, record: HostRecord, candidate: Candidate) -> tuple[int, Reason]:
        """Return by how many URLs the host of *record*, or the domain of *candidate*, exceeds its
        budget, and which budget that is. Budgets may have shrunk since the URLs were admitted."""
        over, reason = 0, Reason.HOST_BUDGET
        by_host, by_domain = self._limits.budgets_of(candidate.host, candidate.domain)
        if by_host is not None:
            over = max(0, record.admitted - by_host)
        if by_domain is not None:
            used = self._budgets.peek(candidate.domain).admitted
            if used - by_domain > over:
                over, reason = used - by_domain, Reason.DOMAIN_BUDGET
        return over, reason

    def release(self, refused: Sequence[Candidate]) -> None:
        """Stop counting *refused* against any budget."""
        pages = [one for one in refused if one.purpose is not _ROBOTS and not one.request]
        domains = Counter(one.domain for one in pages)
        left = Counter[str]()  # hosts
        for (host, domain), count in Counter((one.host, one.domain) for one in pages).items():
            record = self._batch.host(host)
            left[domain] += 0 < record.admitted <= count
            record.admitted = max(0, record.admitted - count)
        for domain, count in domains.items():
            if self._budgets.are_counted(domain):
                self._budgets.subtract(domain, count, left[domain])
            self._budgets.note_dry(domain)

    def _admit_unseen(
        self,
        unseen: Sequence[Candidate],
        now: float,
        *,
        binds: bool = True,
        spills: bool = True,
        again: bool = False,
    ) -> tuple[Admitted, tuple[OverBudgetLinks, ...]]:
        """*binds*: the budget of a round counts; *spills*: those over a budget are kept; *again*:
        they were before."""
        queues: Admitted = defaultdict(list)
        for candidate in unseen:
            queues[candidate.host, candidate.level].append(candidate)
        over: dict[str, list[Candidate]] = {}
        kept_out: list[OverBudgetLinks] = []
        for queue, urls in queues.items():
            kept, units = self._charge(queue[0], urls, now, binds)
            if units:
                kept_out += units
                domain, stays = urls[0].domain, set(map(id, kept))
                over.setdefault(domain, []).extend([each for each in urls if id(each) not in stays])
                queues[queue] = kept
        if kept_out:
            queues = {queue: urls for queue, urls in queues.items() if urls}
            unseen = [each for urls in queues.values() for each in urls]
            for domain, urls in over.items() if spills else ():
                self._budgets.spill(domain, urls, now, again=again)
        new = [each for each in unseen if each.needs_seen_test]
        if new:
            for shard, urls in self._batch.shards.divide(new).items():
                self._seen.mark([each.key for each in urls], shard)
        return queues, tuple(kept_out)

    def _charge(
        self, host: HostKey, urls: list[Candidate], now: float, binds: bool
    ) -> tuple[list[Candidate], list[OverBudgetLinks]]:
        """Count *urls*, all of *host*. Returns those for which there is room, and the budgets that
        have none for the others. A robots.txt is not counted: without it its authority would wait
        for ever. Nor is what a spider's code names: budgets are for found links; and those of a
        round not for seeds, nor for where a URL redirects first that had room."""
        record, domain = self._batch.host(host), urls[0].domain
        by_host, by_domain = self._limits.budgets_of(host, domain)
        is_new = not record.admitted
        room = self._budgets.room(domain, now, is_new_host=is_new) if binds else None
        of_host = None if by_host is None else by_host - record.admitted
        of_domain = None
        if by_domain is not None:
            of_domain = by_domain - self._budgets.peek(domain).admitted
        wanted = len(urls)
        if (
            (room is None or wanted <= room)
            and (of_host is None or wanted <= of_host)
            and (of_domain is None or wanted <= of_domain)
        ):  # no call for each URL: nearly all links come by here
            pages = [each for each in urls if each.purpose is not _ROBOTS and not each.request]
            self._count(record, domain, len(pages), now, is_new_host=is_new)
            if room:
                self._budgets.note_room(domain, now)
            return urls, []
        kept_out: list[OverBudgetLinks] = []
        over: set[int] = set()
        rooms = (("round", domain, room), ("host", host, of_host), ("domain", domain, of_domain))
        for unit, name, left in rooms:
            is_bound = _is_of_round if unit == "round" else _is_counted
            bound = [id(each) for each in urls if id(each) not in over and is_bound(each)]
            if left is not None and len(bound) > left:
                refused = bound[max(left, 0) :]
                over.update(refused)
                most, rank = by_host if unit == "host" else by_domain, 0
                if unit == "round":
                    most, rank = self._budgets.per_round(domain), self._budgets.rank(domain)
                kept_out.append(OverBudgetLinks(unit, name, len(refused), most or 0, rank))
        kept = [each for each in urls if id(each) not in over] if over else urls
        self._count(record, domain, sum(map(_is_counted, kept)), now, is_new_host=is_new)
        return kept, kept_out

    def _count(
        self, record: HostRecord, domain: str, pages: int, now: float, *, is_new_host: bool
    ) -> None:
        record.admitted += pages
        if pages and self._budgets.are_counted(domain):
            self._budgets.charge(domain, pages, now, is_new_host=is_new_host)


def _is_counted(url: Candidate) -> bool:
    """Return whether *url* counts against budgets."""
    return url.purpose is not _ROBOTS and not url.request


def _is_of_round(url: Candidate) -> bool:
    """Return whether *url* waits if the budget of a round is used."""
    return _is_counted(url) and url.depth > 0 and len(url.chain) != 1

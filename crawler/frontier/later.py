"""Later URLs: those that have a date, and pages that are visited again when that is worth it.

Rule: the latter are in classes of change rates, each in the order of last visits, and so of what a
visit would gain (policy/revisits.py). A class is due when that reaches a threshold, which follows
the budget of visits: with another budget no page is moved. At a host that may not be asked so often
a visit has to gain more, the more of its pages wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from msgspec.structs import replace

from crawler.frontier import records as keys
from crawler.frontier.port import FrontierLimits, LeaseRules
from crawler.frontier.queues import TimedQueue
from crawler.frontier.records import HostRecord, decode_candidate, encode
from crawler.frontier.staging import WriteBatch
from crawler.model.choices import LaterVisits
from crawler.model.types import Again, Candidate, PageHistory
from crawler.policy.revisits import (
    BRINGS,
    ChangeRate,
    GroupChanges,
    after_signals,
    after_visit,
    are_useless,
    class_of,
    crawl_value,
    due_after,
    is_new_order,
    longest_days,
    mean_rate,
    middle_of,
    next_multiplier,
    pack_rate,
    prior,
    signal_days,
    unpack_rate,
    unsignalled,
)

DAY_S: Final = 86_400.0
LEAST_S: Final = 600.0
"""Between two visits of a page, whatever the budget is. Guess: no index follows faster."""
CYCLE_DAYS: Final = 30.0
"""In which each page has a visit, in the mean, if the budget is not set."""
_SAVED_S: Final = 60.0  # visits that a crawl that was held up catches up with
_ONE: Final = 1.0 - 1e-6  # visit: sums of seconds are rounded
_HELD_S: Final = 1.0  # after which a host that has enough visits before it is looked at again
_READ: Final = 8  # pages of a class read at once
_WAITING: Final = 8.0
"""Pages of a host that wait for a visit, for which one has to gain twice as much as elsewhere. With
4 it is chance when a page finds room (.012 of the best freshness lost, not .003, where the largest
host may be asked half as often), with more they wait for long in the order in which they came."""
_MOST_WAITING: Final = 400  # beyond which more make no difference
_DOUBLINGS: Final = 8.0  # of that, after which a page that is never worth it comes half as often
_READ_OF_ROUND: Final = 500  # of all: 2 ms
_WEIGHT: Final = 1.0  # of each page: cash is no weight (decision 63)


@dataclass(slots=True)
class _VisitClass:
    """Pages that change about as often."""

    number: int
    begin: bytes  # reads go on here
    wait_s: float = 0.0  # after its last visit the first page is due
    due_at: float = 0.0  # when that is
    read: deque[tuple[bytes, bytes]] = field(default_factory=deque)

    @property
    def worth(self) -> tuple[ChangeRate, float]:
        """Its rate, and the weight of its pages."""
        return middle_of(self.number)


@dataclass(frozen=True, slots=True)
class VisitPlan:
    """What decides when pages without a date are visited again by a process."""

    visits_per_day: float
    worth: float  # what a visit must gain to be due, in days; 0: not known yet


def wait_s(number: int, worth: float, longest: float) -> float:
    """Return how long after its last visit a page of class *number* is due, in seconds. *worth*:
    what a visit must gain; *longest*: days, after which all are due but those that are put off."""
    return max(due_after(*middle_of(number), worth, longest) * DAY_S, LEAST_S)


def first_worth(usual: float, cycle_days: float) -> float:
    """Return what a visit must gain as long as none was made, in days. *usual*: changes a day of
    pages of any host; *cycle_days*: in which the budget allows a visit of each page."""
    return max(crawl_value(prior(usual), max(cycle_days, 1e-3), _WEIGHT), 1e-12)


def usual_rate(
    changes: int, watched_s: float, usual: float, alike: tuple[int, int] = (0, 0)
) -> ChangeRate:
    """Return what is known of a page that was not visited again yet, by what was seen of its host
    and of pages *alike*. *usual*: changes a day of pages of any host."""
    of_host = mean_rate(GroupChanges(changes, watched_s / DAY_S), usual)
    return prior(mean_rate(GroupChanges(alike[0], alike[1] / DAY_S), of_host))


class LaterUrls:
    """The later URLs of a frontier."""

    def __init__(
        self,
        batch: WriteBatch,
        limits: FrontierLimits,
        opened_at: float,
        rules: LeaseRules | None = None,
    ) -> None:
        self._batch = batch
        self._rules = rules
        self._usual = 1.0 / limits.usual_change_days
        self._budget = limits.visits_per_day
        self._dates = TimedQueue(batch, keys.LATER, keys.visit_class(0))
        self._visits = TimedQueue(batch, keys.LATER, offset=keys.VISIT_DATES)
        self._classes: dict[int, _VisitClass] = {}
        self._due: list[tuple[float, int]] = []  # heap; entries with another time are stale
        self._ordered_by = self._longest_days = 0.0
        self._visits_left = 1.0  # that may be made now
        self._counted_at: float | None = None
        self._held_until = 0.0
        self._opened_at = opened_at
        # Of what is filed in this run, by shard; and where it has no others.
        self._first_numbers: dict[bytes, int] = {}
        self._first_number = batch.totals.next_number
        # Where the pages of this run are looked for next; None: all were.
        self._round_from: bytes | None = keys.visit_class(0)
        self._find_classes()

    @property
    def next_at(self) -> float | None:
        """When to call `take_due` again, or None if there are none; may be early, never late."""
        times = [self._dates.next_at]
        match self._mode:
            case LaterVisits.AS_DUE:
                times += (self._visits.next_at, self._next_visit_at())
            case LaterVisits.LISTS | LaterVisits.EACH if self._round_from is not None:
                times.append(0.0)
        return min([time for time in times if time is not None], default=None)

    @property
    def _mode(self) -> LaterVisits:
        return LaterVisits.AS_DUE if self._rules is None else self._rules.later_visits

    def put(self, candidate: Candidate) -> bytes:
        """Keep *candidate* until its date. Returns the key that it has, behind the letter."""
        shard = self._batch.shards.of(candidate.host)
        number = keys.numbered(b"", self._batch.next_number(shard))
        # A visit that failed is tried again in a run that makes no others.
        is_visit = candidate.history is not None and not candidate.attempts
        queue = self._visits if is_visit else self._dates
        key = queue.put(candidate.not_before, number, encode(candidate))
        if candidate.history is not None:
            self._batch.count_again(shard, 1, 0)
        return key[1:]

    def put_again(self, candidate: Candidate) -> None:
        """Keep *candidate*, a page with a history, until a visit is worth it."""
        history = candidate.history
        assert history is not None, f"{candidate.url} is visited again, but never was"
        self._file(candidate, history.visited_at)
        self._batch.count_again(self._batch.shards.of(candidate.host), 1, 1)

    def learned(self, page: Candidate, again: Again, record: HostRecord) -> PageHistory:
        """Return the history of *page* after a visit, with what is known of its rate. *record*, of
        its host, is changed: it has the mean of its pages."""
        before = page.history
        if before is None or again.is_changed is None:
            return replace(again.history, rate=before.rate if before else 0)
        interval_s = max(0, again.history.visited_at - before.visited_at)
        known = self._known_rate(before, record, again.alike)
        rate = after_visit(known, interval_s / DAY_S, again.is_changed)
        of_host = record.visits
        signals = of_host.signals
        if page.modified and (_is_sampled(page) or not are_useless(signals)):
            signals = after_signals(signals, before.signals, interval_s, again.is_changed)
        record.visits = replace(
            of_host,
            changes=of_host.changes + again.is_changed,
            watched_s=of_host.watched_s + interval_s,
            signals=signals,
        )
        return replace(again.history, rate=pack_rate(rate), signals=0)

    def take_due(self, now: float, most: int) -> list[tuple[bytes, Candidate]]:
        """Remove and return up to *most* URLs, with their keys, whose date has come or that are
        worth a visit. Those of a host with enough visits before it are put off."""
        due = self._take_dated(self._dates, now, most)
        if self._mode is LaterVisits.NONE:
            return due
        if self._mode is not LaterVisits.AS_DUE:
            return due + list(self._take_of_round())
        visits = self._take_dated(self._visits, now, most)
        return due + visits + list(self._take_worth(now, most))

    def _take_of_round(self) -> Iterator[tuple[bytes, Candidate]]:
        """Take those of the next pages that are visited in this run, and were not yet."""
        if self._round_from is None:
            return
        stop = keys.prefix_end(keys.LATER)
        found = self._batch.scan(self._round_from, stop, _READ_OF_ROUND)
        self._round_from = found[-1][0] + b"\0" if len(found) == _READ_OF_ROUND else None
        is_each = self._mode is LaterVisits.EACH
        for key, packed in found:
            shard, page = keys.shard_in(key), decode_candidate(packed)
            history = page.history
            if history is None or history.visited_at >= self._opened_at:
                continue
            if keys.number_in_shard(key) >= self._first_numbers.get(shard, self._first_number):
                continue  # it was filed in this run: it was asked for, and not found
            is_list = page.is_sitemap or not page.depth or history.brought >= BRINGS
            if self._batch.has(shard) and (is_each or is_list):
                self.remove(key, page)
                yield key, page

    def _take_dated(
        self, queue: TimedQueue, now: float, most: int
    ) -> list[tuple[bytes, Candidate]]:
        due = []
        for key, packed in queue.take_due(now, most):
            shard = keys.shard_in(key)
            if self._batch.has(shard):
                candidate = decode_candidate(packed)
                self._batch.count_again(shard, -int(candidate.history is not None), 0)
                due.append((key, candidate))
            else:
                self._batch.put(key, packed)
        return due

    def drop_dated(self, key: bytes) -> None:
        """Remove what has this *key*, one with a date. `next_at` may be too early after it."""
        packed = self._batch.get(key) if self._batch.totals.again else None
        if packed is not None and decode_candidate(packed).history is not None:
            self._batch.count_again(keys.shard_in(key), -1, 0)
        self._dates.drop(key)

    def remove(self, key: bytes, candidate: Candidate) -> None:
        """Remove *candidate*, which has this key."""
        is_dated = not keys.visit_class(0) <= key < self._visits.begin
        if candidate.history is not None:
            self._batch.count_again(keys.shard_in(key), -1, int(is_dated) - 1)
        if is_dated:
            (self._dates if key < keys.visit_class(0) else self._visits).remove(key)
            return
        self._delete(key, candidate)
        self._forget_read(key)
        if (found := self._classes.get(keys.class_of_visited(key))) is not None:
            self._set_due(found)

    def note_dates(self, found: Iterable[Candidate], now: float) -> None:
        """Note the dates that a sitemap or a feed has for pages that wait: a new one is a signal of
        a change, which counts as some days more since the last visit."""
        touched: set[int] = set()
        for each in found:
            signals = self._batch.peek(each.host).visits.signals
            if not each.modified or (are_useless(signals) and not _is_sampled(each)):
                continue
            where = self._batch.get(keys.dated(self._batch.shards.of(each.host), each.key))
            packed = self._batch.get(keys.LATER + where) if where else None
            if where is None or packed is None:
                continue
            key, page = keys.LATER + where, decode_candidate(packed)
            history = page.history
            assert history is not None, f"{page.url} is visited again, but never was"
            if not max(page.modified, history.visited_at) < each.modified <= now + DAY_S:
                continue
            known = self._known_rate(history, self._batch.peek(each.host))
            earlier_s = int(signal_days(known, signals) * DAY_S)
            history = replace(history, signals=history.signals + 1)
            page = replace(page, modified=each.modified, history=history)
            self._forget_read(key)
            touched.add(keys.class_of_visited(key))
            if earlier_s:
                self._delete(key, page)
                touched.add(self._put_in_class(page, keys.visited_at(key) - earlier_s))
            else:
                self._batch.put(key, encode(page))
        for number in touched:
            if (of := self._classes.get(number)) is not None:
                self._set_due(of)

    def _delete(self, key: bytes, page: Candidate) -> None:
        self._batch.delete(key)
        if page.modified:
            self._batch.delete(keys.dated(keys.shard_in(key), page.key))

    def _forget_read(self, key: bytes) -> None:
        """Forget what was read of the class of a page, which has changed."""
        found = self._classes.get(keys.class_of_visited(key))
        if found is not None and found.read:
            found.begin = found.read[0][0]
            found.read.clear()

    def plan(self) -> VisitPlan:
        return VisitPlan(self._per_day(), self._batch.totals.worth)

    def take_in(self, shard: bytes) -> None:
        """Read what is due next: *shard* was written into the store."""
        self._first_numbers[shard] = self._batch.totals.next_number
        self.read_again()

    def read_again(self) -> None:
        """Read what is due next: records were written or deleted in the store."""
        self._dates.read_again()
        self._visits.read_again()
        self._round_from = keys.visit_class(0)
        self._find_classes()

    def _known_rate(
        self, history: PageHistory | None, record: HostRecord, alike: tuple[int, int] = (0, 0)
    ) -> ChangeRate:
        """Return how often a page with that *history* changes, as far as it is known, or else as
        pages of its host do, which has *record*, and pages *alike*."""
        visits = record.visits
        known = unpack_rate(history.rate) if history is not None else None
        return known or usual_rate(visits.changes, visits.watched_s, self._usual, alike)

    # Pages that are visited again when that is worth it.

    def _take_worth(self, now: float, most: int) -> Iterator[tuple[bytes, Candidate]]:
        self._count_visits(now)
        self._order()
        put_off = 0
        for _ in range(most):
            if self._visits_left < _ONE or now < self._held_until:
                return
            first = self._first()
            if first is None:
                return
            key, packed = first.read[0]
            candidate, since_days = decode_candidate(packed), (now - keys.visited_at(key)) / DAY_S
            soonest = _soonest(candidate)
            if soonest > now and not _is_signalled(candidate):
                return
            first.read.popleft()
            is_due, first.due_at = first.due_at <= now, 0.0
            self._delete(key, candidate)
            if soonest > now:  # a signal says that it has changed meanwhile
                self._batch.count_again(keys.shard_in(key), -1, -1)
                self.put(replace(candidate, not_before=soonest))
            elif self._put_off(first, candidate, now, is_due=is_due):
                put_off += 1
            else:
                self._visits_left -= 1.0
                if 0 < since_days < self._longest_days:
                    self._follow(self._gained(first, candidate, since_days))
                self._batch.count_again(keys.shard_in(key), -1, -1)
                yield key, candidate
            self._set_due(first)
        if put_off == most:
            self._held_until = now + _HELD_S

    def _put_off(self, of: _VisitClass, page: Candidate, now: float, *, is_due: bool) -> bool:
        """File *page*, of this class, for later if its visit gains less than what makes up for the
        pages of its host that wait for one. Returns whether it does."""
        record = self._batch.peek(page.host)
        waiting = min(len(record.queue_ends[-1]), _MOST_WAITING)
        if not waiting:
            return False
        rate, since_days = self._rate_of(page, record), self._since_days(page, record, now)
        doublings, worth = waiting / _WAITING, self._batch.totals.worth
        weight = _WEIGHT / 2.0**doublings
        longest_days = self._longest_days * 2.0 ** (doublings / _DOUBLINGS)
        gained = crawl_value(rate, since_days, weight)
        if since_days >= longest_days or gained >= worth:
            return False
        days = due_after(rate, weight, worth, longest_days)
        self._file(page, int(now + (days - since_days) * DAY_S - of.wait_s) + 1)
        if not is_due:  # nothing is: such hosts must not hold up the others
            self._follow(gained)
        return True

    def _gained(self, of: _VisitClass, page: Candidate, since_days: float) -> float:
        """Return what the visit of *page*, of this class, gains so long after its last one."""
        rate, weight = of.worth
        if page.history is not None and not page.modified:
            rate = unpack_rate(page.history.rate) or rate
        return crawl_value(rate, since_days, weight)

    def _follow(self, gained: float) -> None:
        """Let the threshold follow what a visit gains."""
        totals = self._batch.totals
        totals.worth = next_multiplier(totals.worth, gained)
        if is_new_order(totals.worth, self._ordered_by):
            self._order()

    def _rate_of(self, page: Candidate, record: HostRecord) -> ChangeRate:
        """Return how often *page* changes without a signal; *record*: of its host."""
        rate = self._known_rate(page.history, record)
        return unsignalled(rate, record.visits.signals) if page.modified else rate

    def _since_days(self, page: Candidate, record: HostRecord, now: float) -> float:
        """Return the days since the last visit of *page*, and more where signals have come."""
        history = page.history
        assert history is not None, f"{page.url} is visited again, but never was"
        since_days = (now - history.visited_at) / DAY_S
        if not history.signals:
            return since_days
        known = self._known_rate(history, record)
        return since_days + history.signals * signal_days(known, record.visits.signals)

    def _count_visits(self, now: float) -> None:
        per_s = self._per_day() / DAY_S
        passed_s = max(0.0, now - self._counted_at) if self._counted_at is not None else 0.0
        self._counted_at = now
        self._visits_left = min(self._visits_left + passed_s * per_s, max(1.0, _SAVED_S * per_s))

    def _per_day(self) -> float:
        """Return how many visits of these pages are made a day, by this process."""
        by_rules = self._rules.visits_per_day if self._rules is not None else None
        per_day = by_rules or self._budget
        if per_day is None:
            return self._batch.totals.by_worth / CYCLE_DAYS
        here = self._batch.here
        share = 1.0 if here is None else len(here) / self._batch.shards.count
        return per_day * share

    def _next_visit_at(self) -> float | None:
        first = self._first()
        if first is None:
            return None
        if self._counted_at is None:
            return 0.0
        per_s = max(self._per_day(), 1e-9) / DAY_S
        visit_at = self._counted_at + max(0.0, 1.0 - self._visits_left) / per_s
        page = decode_candidate(first.read[0][1])
        soonest = 0.0 if _is_signalled(page) else _soonest(page)
        return max(visit_at, soonest, self._held_until)

    def _first(self) -> _VisitClass | None:
        """Return the class whose first page is due first, or was put off last."""
        while self._due:
            due_at, number = self._due[0]
            first = self._classes[number]
            if first.due_at == due_at and self._has_page(first):
                return first
            heappop(self._due)
            if first.due_at == due_at:  # the shards of its pages have gone
                first.due_at = 0.0
        return None

    def _file(self, candidate: Candidate, at: int) -> None:
        """File *candidate* as one that was visited *at* a time."""
        found = self._classes[self._put_in_class(candidate, at)]
        if not (found.read and found.due_at):
            self._set_due(found)

    def _put_in_class(self, candidate: Candidate, at: int) -> int:
        """Put *candidate* into its class, and return that. When that is due is to be set then."""
        record, shard = self._batch.peek(candidate.host), self._batch.shards.of(candidate.host)
        number = class_of(self._rate_of(candidate, record), _WEIGHT)
        suffix = keys.numbered(b"", self._batch.next_number(shard))
        key = keys.visited(number, at, suffix)
        self._batch.put(key, encode(candidate))
        if candidate.modified:
            self._batch.put(keys.dated(shard, candidate.key), key[1:])
        found = self._classes.get(number)
        if found is None:
            found = self._classes[number] = _VisitClass(number, key)
            self._set_wait(found)
        elif key < found.begin:
            found.begin = min(key, found.read[0][0]) if found.read else key
            found.read.clear()
        return number

    def _has_page(self, of: _VisitClass) -> bool:
        """Return whether the class has a page, the first of which is read then."""
        while True:
            while of.read:
                if self._batch.has(keys.shard_in(of.read[0][0])):
                    return True
                of.read.popleft()
            found = self._batch.scan(of.begin, keys.visit_class(of.number + 1), _READ)
            if not found:
                return False
            of.read.extend(found)
            of.begin = found[-1][0] + b"\0"

    def _set_due(self, of: _VisitClass) -> None:
        """File the class by when its first page is due."""
        if not self._has_page(of):
            of.due_at = 0.0
            return
        due_at = keys.visited_at(of.read[0][0]) + of.wait_s
        if due_at != of.due_at:
            of.due_at = due_at
            heappush(self._due, (due_at, of.number))

    def _set_wait(self, of: _VisitClass) -> None:
        of.wait_s = wait_s(of.number, self._ordered_by, self._longest_days)

    def _order(self) -> None:
        """Order the classes by the threshold, if that has moved."""
        totals = self._batch.totals
        cycle_days = totals.by_worth / max(self._per_day(), 1e-9)
        if not totals.worth:
            if not self._classes:
                return
            totals.worth = first_worth(self._usual, cycle_days)
        longest = longest_days(cycle_days)
        is_ordered = self._ordered_by and not is_new_order(totals.worth, self._ordered_by)
        if is_ordered and not is_new_order(longest, max(self._longest_days, 1e-9)):
            return
        self._ordered_by, self._longest_days = totals.worth, longest
        self._due.clear()
        for each in self._classes.values():
            self._set_wait(each)
            if each.due_at:
                each.due_at = keys.visited_at(each.read[0][0]) + each.wait_s
                self._due.append((each.due_at, each.number))
        heapify(self._due)

    def _find_classes(self) -> None:
        """Find the classes that have pages, one read each."""
        self._classes, self._due = {}, []
        begin, stop = keys.visit_class(0), self._visits.begin
        while found := self._batch.scan(begin, stop, 1):
            number = keys.class_of_visited(found[0][0])
            each = self._classes[number] = _VisitClass(number, keys.visit_class(number))
            self._set_wait(each)
            self._set_due(each)
            begin = keys.visit_class(number + 1)


_SAMPLED: Final = 16  # pages, of which one is looked at where dates are useless


def _is_sampled(page: Candidate) -> bool:
    return page.key % _SAMPLED == 0


def _is_signalled(page: Candidate) -> bool:
    return page.history is not None and page.history.signals > 0


def _soonest(page: Candidate) -> float:
    """Return when *page* may be visited again at the soonest."""
    return (page.history.visited_at if page.history else 0) + LEAST_S

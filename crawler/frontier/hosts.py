"""Whose turn it is: hosts between the front queues, memory and their rests.

Rule: a turn covers the head of one level; then the host is filed again behind the others.
A host that is not due never keeps a place in memory that a due one needs. Every move of a
host is one of `places.MOVES`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from crawler.frontier import records as keys
from crawler.frontier.port import FrontierRules
from crawler.frontier.queues import FrontQueue, TimedQueue, UrlQueues
from crawler.frontier.records import (
    HostEvent,
    HostPlace,
    HostRecord,
    encode,
    move,
)
from crawler.frontier.refused import Refusals
from crawler.frontier.staging import WriteBatchView
from crawler.model.types import (
    Candidate,
    HostKey,
    Standing,
)

# The back tier: the active hosts, each with the head of one level in memory.
#
# Rule: no disk here. A host is leased, or due (its rest is over), or in the heap by the
# end of its rest; those due wait per standing and level. Memory is bounded by the number of active
# hosts.


@dataclass(slots=True, eq=False)
class ActiveHost:
    """A host whose turn it is: at most as many leases as its head is long."""

    host: HostKey
    record: HostRecord
    level: int
    head: deque[bytes]  # packed URLs, as they stand at the front of its queue
    leased: bool = False
    turn_over: bool = False  # a better URL came during its fetch: file it again
    gone: bool = False  # it has left; what still stands in a queue is stale


@dataclass(slots=True)
class ActiveSet:
    """All operations are O(log n) in the number of active hosts or better."""

    levels: int
    _hosts: dict[HostKey, ActiveHost] = field(default_factory=dict)
    _due: list[list[deque[ActiveHost]]] = field(default_factory=list)  # by standing, then level
    _heap: list[tuple[float, int, ActiveHost]] = field(default_factory=list)
    _tick: int = 0  # equals leave the heap in the order they came

    def __post_init__(self) -> None:
        self._due = [[deque() for _ in range(self.levels)] for _ in Standing]

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[ActiveHost]:
        return iter(self._hosts.values())

    def get(self, host: HostKey) -> ActiveHost | None:
        return self._hosts.get(host)

    def enter(self, active: ActiveHost) -> None:
        self._hosts[active.host] = active

    def leave(self, active: ActiveHost) -> None:
        active.gone = True
        del self._hosts[active.host]

    def wait(self, active: ActiveHost, now: float) -> None:
        """Until its rest is over, then among the due ones."""
        if active.record.rest_until <= now:
            self._add_due(active)
            return
        self._tick += 1
        heappush(self._heap, (active.record.rest_until, self._tick, active))

    def wake(self, now: float) -> None:
        """Move those whose rest is over to the due ones."""
        while self._heap and self._heap[0][0] <= now:
            _, _, active = heappop(self._heap)
            if not active.gone:
                self._add_due(active)

    def due(self, standing: Standing) -> list[int]:
        """The levels with due hosts of *standing*."""
        levels = self._due[standing]
        for hosts in levels:
            while hosts and hosts[0].gone:
                hosts.popleft()
        return [level for level, hosts in enumerate(levels) if hosts]

    def take(self, standing: Standing, level: int) -> ActiveHost | None:
        """The due host of *standing* and *level* that has waited longest."""
        hosts = self._due[standing][level]
        while hosts:
            active = hosts.popleft()
            if not active.gone:
                return active
        return None

    def next_at(self) -> float | None:
        """When the next host of the heap is due."""
        return self._heap[0][0] if self._heap else None

    def _add_due(self, active: ActiveHost) -> None:
        self._due[active.record.pace.standing][active.level].append(active)


# Which level has the next turn: stride scheduling (Waldspurger and Weihl, 1995).
#
# Rule: deterministic. With all levels busy, after n picks a level of share w has had
# n w / sum(w) of them, off by less than one pick a level; none starves.


class Stride:
    def __init__(self, shares: Sequence[float]) -> None:
        self._steps = [1.0 / share for share in shares]
        self._passes = list(self._steps)
        self._last = 0.0

    def order(self, busy: Iterable[int]) -> list[int]:
        """The *busy* levels, the one whose turn it is first."""
        # A level that was idle joins at the present, or it would catch up in one burst.
        return sorted(busy, key=lambda level: (max(self._passes[level], self._last), level))

    def charge(self, level: int) -> None:
        """*level* has had a turn."""
        self._last = max(self._passes[level], self._last)
        self._passes[level] = self._last + self._steps[level]


class Turns:
    def __init__(
        self, books: WriteBatchView, bodies: UrlQueues, rules: FrontierRules, refusals: Refusals
    ) -> None:
        self._books = books
        self._bodies = bodies
        self._rules = rules
        self._refusals = refusals
        self._front = FrontQueue(books)
        self._resting = TimedQueue(books, keys.RESTING)
        self._stride = Stride(rules.level_shares)
        self.active = ActiveSet(len(rules.level_shares))

    def next_due(self, now: float, standings: Iterable[Standing]) -> ActiveHost | None:
        """The host that may be leased next, of the first of *standings* that has one; taken out of
        the due ones."""
        for standing in standings:
            busy = {*self.active.due(standing), *self._front.busy(standing)}
            for level in self._stride.order(busy):
                active = self.active.take(standing, level) or self._activate(standing, level, now)
                if active is not None:
                    self._stride.charge(level)
                    return active
        return None

    def come_due(self, now: float) -> None:
        """Rests that are over: from the heap to the due ones, from disk to the front."""
        self.active.wake(now)
        for key, _ in self._resting.take_due(now, self._rules.slice):
            host = HostKey(key[9:].decode())
            record = self._books.host(host)
            self._front.file(host, record, _best(record), first=_is_begun(record))

    def wake_at(self, standings: Iterable[Standing]) -> float | None:
        if any(self.active.due(each) or self._front.busy(each) for each in standings):
            return 0.0
        times = (self.active.next_at(), self._resting.next_at)
        return min((time for time in times if time is not None), default=None)

    def has_hosts(self) -> bool:
        """Whether any host has URLs that wait, be it due or at rest; until the next leases also
        where an entry of the front is stale."""
        is_filed = any(self._front.busy(standing) for standing in Standing)
        return bool(len(self.active) or is_filed or self._resting.next_at is not None)

    def notice(self, host: HostKey, level: int, *, first: bool = False) -> None:
        """A URL of *host* has come to wait at *level*; *first*: its host before others there."""
        record = self._books.host(host)
        if record.place is HostPlace.EMPTY or (
            record.place is HostPlace.FRONT and level < record.level
        ):
            self._front.file(host, record, level, first=first)
        elif record.place is HostPlace.ACTIVE:
            active = self.active.get(host)
            assert active is not None, f"{host} is active, but not in memory"
            self._notice_active(active, level)

    def put_back(self, candidate: Candidate) -> None:
        """*candidate* waits again, before all others of its host and level."""
        self._bodies.put_back(candidate)
        active = self.active.get(candidate.host)
        if active is not None and active.level == candidate.level:
            active.head.appendleft(encode(candidate))
        is_begun = _is_begun(self._books.peek(candidate.host))
        self.notice(candidate.host, candidate.level, first=is_begun)

    def carry_on(self, active: ActiveHost, now: float) -> None:
        """Its fetch is over and its rest has begun: wait for it, or end the turn."""
        active.leased = False
        stays = active.head and not active.turn_over and self._has_room(active.record, now, 0)
        if stays:
            self.active.wait(active, now)
        else:
            self._end_turn(active, now)

    def refile(self, host: HostKey, now: float) -> None:
        """A host that was active when we died: to the front, to its rest, or to nothing."""
        record = self._books.host(host)
        self._books.delete(keys.named(keys.ACTIVE, host))
        if record.best_level() is None:
            record.place = move(record.place, HostEvent.RUN_DRY)
        elif self._rests_long(record, now):
            self._rest(host, record)
        else:
            self._front.file(host, record, _best(record))

    def _notice_active(self, active: ActiveHost, level: int) -> None:
        if level >= active.level:
            return
        if active.leased:
            active.turn_over = True
        else:
            self._leave(active)
            self._front.file(active.host, active.record, level)

    def _activate(self, standing: Standing, level: int, now: float) -> ActiveHost | None:
        """Bring in hosts of *standing* and *level* until one is due; those that rest wait in the
        heap."""
        for _ in range(self._rules.look):
            if level not in self._front.busy(standing) or self._refusals.is_spent:
                return None
            host = self._front.take(standing, level)
            active = self._begin_turn(host, now) if host is not None else None
            if active is not None:
                return active
        return None

    def _begin_turn(self, host: HostKey, now: float) -> ActiveHost | None:
        record = self._books.host(host)
        if not self._has_room(record, now, 1):
            self._rest(host, record)
            return None
        record.place = move(record.place, HostEvent.ACTIVATE)
        head = self._refusals.head(host, record, record.level, self._rules.head_urls, now)
        if not head:  # all that waited there was refused, or as many as one call may look at
            level = record.best_level()
            if level is None:
                record.place = move(record.place, HostEvent.RUN_DRY)
            else:
                self._front.file(host, record, level)
            return None
        self._books.hold(host)
        self._books.put(keys.named(keys.ACTIVE, host), b"")
        active = ActiveHost(host, record, record.level, head)
        self.active.enter(active)
        if record.rest_until <= now:
            return active
        self.active.wait(active, now)
        return None

    def _end_turn(self, active: ActiveHost, now: float) -> None:
        self._leave(active)
        record = active.record
        if record.best_level() is None:
            record.place = move(record.place, HostEvent.RUN_DRY)
        elif self._has_room(record, now, 0):
            self._front.file(active.host, record, _best(record))
        else:
            self._rest(active.host, record)

    def _leave(self, active: ActiveHost) -> None:
        self._books.host(active.host)  # from here on a change of it is written
        self.active.leave(active)
        self._books.let_go(active.host)
        self._books.delete(keys.named(keys.ACTIVE, active.host))

    def _rest(self, host: HostKey, record: HostRecord) -> None:
        record.place = move(record.place, HostEvent.REST)
        self._resting.put(record.rest_until, host.encode(), b"")

    def _has_room(self, record: HostRecord, now: float, entering: int) -> bool:
        """A due host always has room; one that rests, while memory has it."""
        if record.rest_until <= now:
            return True
        full = len(self.active) + entering > self._rules.max_active_hosts
        return not full and not self._rests_long(record, now)

    def _rests_long(self, record: HostRecord, now: float) -> bool:
        return record.rest_until > now + self._rules.evict_rest_s


def _is_begun(record: HostRecord) -> bool:
    """New, but asked: its robots.txt has come and its first page has not. It goes before hosts that
    were never asked, or it would wait for all of them twice."""
    return record.pace.standing is Standing.NEW and record.rest_until > 0


def _best(record: HostRecord) -> int:
    level = record.best_level()
    assert level is not None, "a host is filed only while URLs wait"
    return level

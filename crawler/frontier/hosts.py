"""Which host has the next turn: hosts move between the front queues, memory and their rests.

Rule: a turn covers the head of one level; then the host is filed again behind the others. A host
that is not due never keeps a place in memory that a due one needs, and every move of a host is one
of `records.TRANSITIONS`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, nlargest
from itertools import islice
from operator import attrgetter
from typing import Final

from crawler.frontier import records as keys
from crawler.frontier.groups import AddressGroup, AddressGroups
from crawler.frontier.order import UrlOrder
from crawler.frontier.port import FrontierLimits
from crawler.frontier.queues import (
    CASH_CLASSES,
    FrontQueue,
    QueueName,
    TimedQueue,
    UrlQueues,
    cash_class,
)
from crawler.frontier.records import (
    HostEvent,
    HostPlace,
    HostRecord,
    cash_of_packed,
    encode,
    next_place,
)
from crawler.frontier.refusals import Refusals
from crawler.frontier.rounds import Rounds
from crawler.frontier.staging import WriteBatch, slices
from crawler.model.types import (
    STANDINGS,
    Candidate,
    HostKey,
    HostWork,
    Pace,
    Standing,
)
from crawler.policy.priority import DOUBLING, NO_CASH

_MUCH_BETTER: Final = DOUBLING  # of a URL for which a turn ends
_HEAD_BYTES: Final = 64 << 10  # of a head in memory, unless its first URL has more with it
_MOMENT_S: Final = 1.0  # more than the time from a decision to the release that carries it out
# Hosts that are looked at ahead of their turn, of each standing and level: those that are due, and
# those of the front queues. A second of a crawl of new hosts only.
_DUE_AHEAD: Final = 64
_FRONT_AHEAD: Final = 512
_WAITS: Final = b"w"  # in the record of a host at rest: only because it waits for its address
_cash = attrgetter("cash")
# Bound once, because each look-up of a member of an enumeration takes 0.2 us.
_EMPTY, _FRONT, _ACTIVE = HostPlace.EMPTY, HostPlace.FRONT, HostPlace.ACTIVE
_HELD = HostPlace.HELD


@dataclass(slots=True, eq=False)
class ActiveHost:
    """A host that has a turn: its URLs are leased one after another, or some at once, until its
    head is used up."""

    host: HostKey
    record: HostRecord
    level: int
    head: deque[bytes]  # packed URLs, in the order of its queue
    generation: int = 0  # of the rules by which its head was judged
    unreleased: int = 0  # leases, all of one call
    turn_ended: bool = False  # a better URL came during its fetch: file it again
    is_removed: bool = False  # it has left the set; its entries in queues are stale
    due_tick: int = 0  # of its entry among the due ones; 0: it has none
    rest_until: float = 0.0  # it rests as long after its fetches at least

    @property
    def leased(self) -> bool:
        return self.unreleased > 0


@dataclass(slots=True)
class ActiveSet:
    """The back tier: the active hosts. Each is leased, or due (its rest is over) in a queue per
    standing and level, or in a heap by the end of its rest.

    No disk. All operations are O(log n) in the number of active hosts or better."""

    levels: int
    _hosts: dict[HostKey, ActiveHost] = field(default_factory=dict)
    # By standing, then level: heaps by the cash of the next URL, and the order of arrival.
    _due: list[list[list[tuple[int, int, ActiveHost]]]] = field(default_factory=list)
    _heap: list[tuple[float, int, ActiveHost]] = field(default_factory=list)
    _tick: int = 0  # equal times leave the heap in the order of arrival

    def __post_init__(self) -> None:
        self._due = [[[] for _ in range(self.levels)] for _ in Standing]

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[ActiveHost]:
        return iter(self._hosts.values())

    def get(self, host: HostKey) -> ActiveHost | None:
        return self._hosts.get(host)

    def add(self, active: ActiveHost) -> None:
        self._hosts[active.host] = active

    def remove(self, active: ActiveHost) -> None:
        active.is_removed, active.due_tick = True, 0
        del self._hosts[active.host]

    def wait(self, active: ActiveHost, now: float) -> None:
        """Put *active* into the heap until its rest is over, or among the due hosts if it is."""
        if active.record.rest_until <= now:
            self._add_due(active)
            return
        self._tick += 1
        heappush(self._heap, (active.record.rest_until, self._tick, active))

    def move_due(self, now: float) -> None:
        """Move the hosts whose rest is over to the due ones."""
        while self._heap and self._heap[0][0] <= now:
            _, _, active = heappop(self._heap)
            if not active.is_removed:
                self._add_due(active)

    def has_due(self, standing: Standing) -> bool:
        """Return whether a host of *standing* is due."""
        for hosts in self._due[standing]:
            while hosts and hosts[0][2].due_tick != hosts[0][1]:
                heappop(hosts)
            if hosts:
                return True
        return False

    def due_by_level(self, standing: Standing) -> Sequence[Sequence[object]]:
        """Return the due hosts of *standing* by level, perhaps some that have left."""
        return self._due[standing]

    def best_cash(self, standing: Standing, level: int) -> int:
        """Return the cash of the URL that `take` returns the host of, or 0 if it returns none. A
        host that has left may count."""
        hosts = self._due[standing][level]
        return -hosts[0][0] if hosts else 0

    def on_better(self, active: ActiveHost) -> None:
        """Note that the next URL of *active* is a better one."""
        if active.due_tick:
            self._add_due(active)

    def take(self, standing: Standing, level: int) -> ActiveHost | None:
        """Remove and return the due host of *standing* and *level* whose next URL has most cash; of
        equal ones, and at the level of pages that are visited again, the one that has waited
        longest."""
        hosts = self._due[standing][level]
        while hosts:
            _, tick, active = heappop(hosts)
            if active.due_tick == tick:
                active.due_tick = 0
                return active
        return None

    def next_at(self) -> float | None:
        """Return when the next host of the heap is due."""
        return self._heap[0][0] if self._heap else None

    def upcoming(self, until: float) -> Iterator[HostKey]:
        """Yield the first hosts that are due, then those whose rest ends by *until*, the next one
        first. The cost is that of the hosts that are yielded: the rest of the heap is not read."""
        for levels in self._due:
            for hosts in levels:
                for _, tick, active in islice(hosts, _DUE_AHEAD):
                    if active.due_tick == tick:
                        yield active.host
        heap = self._heap
        places = [(heap[0][0], 0)] if heap else []  # of the heap, whose parents were yielded
        while places and places[0][0] <= until:
            _, place = heappop(places)
            if not heap[place][2].is_removed:
                yield heap[place][2].host
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heappush(places, (heap[child][0], child))

    @property
    def resting(self) -> int:
        """How many hosts wait for the end of their rest."""
        return len(self._heap)

    @property
    def due(self) -> int:
        """How many hosts are due."""
        return sum(len(hosts) for levels in self._due for hosts in levels)

    def _add_due(self, active: ActiveHost) -> None:
        self._tick = active.due_tick = self._tick + 1
        is_again = active.level == self.levels - 1
        cash = NO_CASH if is_again or not active.head else cash_of_packed(active.head[0])
        heappush(self._due[active.record.pace.standing][active.level], (-cash, self._tick, active))


@dataclass(frozen=True, slots=True)
class HostCounts:
    """How many hosts are where. Hosts that have left a queue early count until their entry there is
    taken. Those whose rests are so long that they are on disk are not counted."""

    resting: int  # in memory, until their rest is over
    due: int  # in memory, and leased as soon as there is a slot
    front: tuple[int, ...]  # that wait for their turn, by level


class StrideScheduler:
    """Which level has the next turn: stride scheduling (Waldspurger and Weihl, 1995).

    Deterministic. With all levels busy, a level of share w has had n w / sum(w) of n picks, off by
    less than one pick a level; none starves."""

    def __init__(self, shares: Sequence[float]) -> None:
        self._steps = [1.0 / share for share in shares]
        self._passes = list(self._steps)
        self._levels = range(len(shares))
        self.order = self._sorted()
        """The levels. The first of them that has a due host has the next turn."""

    def charge(self, level: int) -> None:
        """Count a turn of *level*."""
        now = self._passes[level]
        # A level that was idle starts at the present pass, or it would catch up in one burst.
        self._passes = [max(now, each) for each in self._passes]
        self._passes[level] += self._steps[level]
        self.order = self._sorted()

    def _sorted(self) -> list[int]:
        return sorted(self._levels, key=self._passes.__getitem__)


class HostScheduler:
    """Chooses the host of the next lease, and moves hosts between the front queues, memory and
    their rests."""

    def __init__(
        self,
        batch: WriteBatch,
        queues: UrlQueues,
        order: UrlOrder,
        limits: FrontierLimits,
        refusals: Refusals,
        groups: AddressGroups,
        rounds: Rounds,
    ) -> None:
        self._batch = batch
        self._queues = queues
        self._order = order
        self._limits = limits
        self._refusals = refusals
        self._groups = groups
        self._rounds = rounds
        self._front = FrontQueue(batch, len(limits.shares))
        self._resting = TimedQueue(batch, keys.RESTING)
        self._stride = StrideScheduler(limits.shares)
        self.active = ActiveSet(len(limits.shares))
        self._again = len(limits.shares) - 1  # the level of pages that are visited again
        self._visit_share = limits.visit_share
        self._stopped: set[bytes] = set()  # shards whose hosts get no turn

    def next_due(self, now: float, standings: Iterable[Standing]) -> ActiveHost | None:
        """Remove from the due hosts, and return, the one to be leased next, of the first of
        *standings* that has one."""
        for standing in standings:
            due, front = self.active.due_by_level(standing), self._front.filled(standing)
            if not (any(due) or any(front)):
                continue  # most calls end here
            for level in self._stride.order:
                active = None
                if front[level] and self._is_front_better(standing, level):
                    active = self._activate(standing, level, now)
                if active is None and due[level]:
                    active = self._take(standing, level, now)
                if active is None and front[level]:
                    active = self._activate(standing, level, now)
                if active is not None:
                    self._stride.charge(level)
                    return active
        return None

    def _is_front_better(self, standing: Standing, level: int) -> bool:
        """Return whether a host that waits for its turn may have a better URL than all those that
        have one, and memory has room for it."""
        front = self._front.best_class(standing, level)
        if front == CASH_CLASSES or len(self.active) >= self._limits.max_active_hosts:
            return False
        return front < cash_class(self.active.best_cash(standing, level))

    def begin_turn(self, host: HostKey, now: float) -> ActiveHost | None:
        """Begin the turn of *host* though others wait before it, or go on with it. Returns None if
        it is not due, is leased, or has no URL."""
        record, active = self._batch.peek(host), self.active.get(host)
        if record.rest_until > now or self._batch.shards.of(host) in self._stopped:
            return None
        if active is not None:
            is_judged = active.generation == self._refusals.generation
            if active.leased or (
                is_judged and self._groups.are_any and not self._may_go(host, record, now)
            ):
                return None
            if is_judged:
                active.due_tick = 0
                return active
            self._end_turn(active, now)
        elif record.place is HostPlace.RESTING:
            self._resting.drop(keys.timed(keys.RESTING, record.rest_until, host.encode()))
            self._file(host, self._batch.host(host), first=False)
        return self._begin_turn(host, now) if record.place is _FRONT else None

    def move_due(self, now: float) -> None:
        """Move hosts whose rest is over: from the heap to the due ones, from disk to the front."""
        self.active.move_due(now)
        for key, _ in self._resting.take_due(now, self._limits.due_slice):
            host = HostKey(key[9:].decode())
            record = self._batch.host(host)
            self._file(host, record, first=_is_begun(record) or record.waits_for_address)
            if record.place in (_EMPTY, _HELD):
                self._leave_group(host, record, now)
        if self._rounds.is_looking:
            for host in self._rounds.take_held(self._limits.due_slice):
                self._file(host, self._batch.host(host), first=False)

    def wake_at(self, standings: Iterable[Standing]) -> float | None:
        for standing in standings:
            if self._has_candidates(standing):
                return 0.0
        times = (self.active.next_at(), self._resting.next_at)
        return min([time for time in times if time is not None], default=None)

    @property
    def next_on_disk(self) -> float | None:
        """When the first of the rests ends that are on disk."""
        return self._resting.next_at

    def next_in_memory(self) -> float | None:
        """Return when the next rest ends, or None if that is on disk, or a host may be due now."""
        if any(map(self._has_candidates, STANDINGS)):
            return None
        at, on_disk = self.active.next_at(), self._resting.next_at
        return None if at is None or (on_disk is not None and on_disk <= at) else at

    def _has_candidates(self, standing: Standing) -> bool:
        """Return whether hosts of *standing* are due or wait for a turn."""
        return self.active.has_due(standing) or self._front.has_entries(standing)

    def has_hosts(self) -> bool:
        """Return whether any host, due or at rest, has waiting URLs. A stale entry of the front
        counts until it is taken."""
        is_filed = any(self._front.has_entries(standing) for standing in Standing)
        return bool(len(self.active) or is_filed or self._resting.next_at is not None)

    def hosts_left(self) -> Iterator[tuple[HostKey, float] | None]:
        """Yield the hosts that have waiting URLs and are in memory or rest, each with the end of
        its rest, and None if others wait for their turn."""
        if any(self._front.has_entries(standing) for standing in Standing):
            yield None
        for active in list(self.active):
            yield active.host, active.record.rest_until
        begin, stop = keys.RESTING, keys.prefix_end(keys.RESTING)
        while found := self._batch.scan(begin, stop, self._limits.due_slice):
            begin = found[-1][0] + b"\0"
            for key, _ in found:
                yield HostKey(key[9:].decode()), keys.time_of(key)

    def upcoming(self, until: float, limit: int) -> list[HostKey]:
        """Return up to *limit* hosts that are leased next: active ones that are or will be due by
        *until*, then hosts of the front, each once for each time that it is filed."""
        found = list(islice(self.active.upcoming(until), limit))
        for standing in STANDINGS:
            for level in self._stride.order:
                room = min(_FRONT_AHEAD, limit - len(found))
                found += self._front.upcoming(standing, level, room)
        return found

    def host_counts(self) -> HostCounts:
        front = (
            sum(self._front.waiting(standing, level) for standing in Standing)
            for level in range(self.active.levels)
        )
        return HostCounts(self.active.resting, self.active.due, tuple(front))

    def on_url_added(
        self,
        host: HostKey,
        level: int,
        record: HostRecord,
        *,
        cash: int = NO_CASH,
        first: bool = False,
        may_wait: bool = True,
    ) -> None:
        """File *host*, which has *record*, for URLs that now wait at *level*, the best of them with
        *cash*; *first*: before other hosts there. If it *may_wait*, it does for a turn of pages
        that are visited again."""
        if record.place is _EMPTY:
            self._front.put(host, self._batch.host(host), level, cash=cash, first=first)
        elif self._rounds.are_any and not self._rounds.allows(host, level):
            return
        elif record.place is _HELD:
            if not self._rounds.holds(host, record):
                self._rounds.forget(host)
                self._front.put(host, self._batch.host(host), level, cash=cash, first=first)
        elif level > record.level or (may_wait and self._is_again_turn(record)):
            return
        elif level == record.level and not self._is_better(host, record, cash):
            record.cash = max(cash, record.cash)
        elif record.place is _FRONT:
            self._front.put(host, self._batch.host(host), level, cash=cash, first=first)
        elif record.place is _ACTIVE:
            active = self.active.get(host)
            assert active is not None, f"{host} is active, but not in memory"
            self._end_for_better(active, level, cash)

    def put_better(
        self, queue: QueueName, urls: Sequence[Candidate], most: int
    ) -> Sequence[Candidate]:
        """Put those of new *urls*, which have *most* cash or less, before the next URL of a host
        that has a turn, if they are much better than that, and return them."""
        host, level = queue
        active = self.active.get(host)
        if active is None or active.level != level or not active.head or level == self._again:
            return ()
        least = cash_of_packed(active.head[0]) + _MUCH_BETTER
        if most <= least or active.turn_ended or active.generation != self._refusals.generation:
            return ()
        better = [each for each in urls if each.cash > least and self._refusals.admits(each)]
        if len(better) + len(active.head) > 2 * self._limits.head_urls:
            return ()
        better.sort(key=_cash, reverse=True)
        self._queues.put_first(queue, better)
        active.head.extendleft(map(encode, reversed(better)))
        self._order.forget_run(host, level)  # where such a page links to, more may be better
        self.active.on_better(active)
        return better

    def _is_better(self, host: HostKey, record: HostRecord, cash: int) -> bool:
        """Return whether a URL with *cash* is so much better than those known of the level of
        *host* that it is filed anew."""
        if cash <= record.cash or record.level == self._again:
            return False
        if record.place is _FRONT:
            return cash_class(cash) < cash_class(record.cash)
        active = self.active.get(host)
        return bool(active and active.head and cash > cash_of_packed(active.head[0]) + _MUCH_BETTER)

    def put_back(self, candidate: Candidate) -> None:
        """Put *candidate* back before all other URLs of its host and level."""
        self.put_first(candidate)
        active = self.active.get(candidate.host)
        if active is not None and active.level == candidate.level:
            active.head.appendleft(encode(candidate))
        record = self._batch.peek(candidate.host)
        is_begun = _is_begun(record)
        self.on_url_added(
            *(candidate.host, candidate.level, record),
            cash=candidate.cash,
            first=is_begun,
            may_wait=False,
        )

    def put_first(self, candidate: Candidate) -> None:
        """Put *candidate* before all other URLs of its host and level. The host is empty, and filed
        later."""
        self._queues.put_first((candidate.host, candidate.level), [candidate])

    def on_fetch_ended(self, active: ActiveHost, now: float) -> None:
        """Keep *active*, whose fetches are over, in memory until its rest ends, or end its turn."""
        is_judged = active.generation == self._refusals.generation
        stays = (
            active.head
            and is_judged
            and not active.turn_ended
            and not (self._rounds.has_domains and self._is_held(active.host, active.record))
            and self._has_room(active.record, now, 0)
        )
        if stays:
            self.active.wait(active, now)
        else:
            self._end_turn(active, now)

    def end_rest(self, host: HostKey, until: float, now: float) -> None:
        """End now the rest of *host* that would end at *until*, a moment more or less, if it has no
        longer one and is not leased."""
        active = self.active.get(host)
        record = self._batch.host(host)
        if active is not None and active.leased:
            return
        if not now < record.rest_until <= until + _MOMENT_S:
            return
        if record.place is HostPlace.RESTING:
            self._resting.remove(keys.timed(keys.RESTING, record.rest_until, host.encode()))
        record.rest_until = now
        if active is not None:
            self._leave(active)
        if record.place in (_ACTIVE, HostPlace.RESTING):
            self._file(host, record, first=True)

    def set_rest(self, host: HostKey, until: float, now: float) -> None:
        """Let *host*, which is not leased, rest until that time, whatever its rest was."""
        record, active = self._batch.host(host), self.active.get(host)
        if (active is not None and active.leased) or record.rest_until == until:
            return
        if active is not None:
            self._leave(active)
        elif record.place is HostPlace.RESTING:
            self._resting.drop(keys.timed(keys.RESTING, record.rest_until, host.encode()))
        record.rest_until = until
        if record.place in (_EMPTY, _FRONT, _HELD):
            return  # its turn will tell
        if until <= now:
            self._file(host, record, first=False)
        elif record.place is HostPlace.RESTING:
            self._resting.put(until, host.encode(), b"")
        else:
            self._rest(host, record)

    def rest_longer(self, host: HostKey, until: float, now: float) -> None:
        """Let *host* rest until that time at least. If it is leased, the rest after its fetches is
        no shorter, as long as this process lives."""
        active = self.active.get(host)
        if active is not None and active.leased:
            active.rest_until = max(active.rest_until, until)
        else:
            self.set_rest(host, max(until, self._batch.peek(host).rest_until), now)

    def lends_turns(self, host: HostKey) -> bool:
        """Return whether *host* may have a turn here: its shard is, and stays."""
        shard = self._batch.shards.of(host)
        return self._batch.has(shard) and shard not in self._stopped

    def on_standing_changed(self, host: HostKey) -> None:
        """File *host* anew if it waits for its turn: among the hosts of its new standing."""
        record = self._batch.host(host)
        if record.place is _FRONT:
            self._file(host, record, first=False)

    def on_urls_removed(self, host: HostKey) -> None:
        """File *host*, which waits for its turn, anew if its best level has no URL any more."""
        record = self._batch.host(host)
        if record.place is _FRONT and not len(record.queue_ends[record.level]):
            self._file(host, record, first=False)

    def end_turn(self, host: HostKey, now: float) -> None:
        """End the turn of *host*, if it has one, so that no URL of its queues is in memory. If it
        is leased, its turn ends with the fetch."""
        active = self.active.get(host)
        if active is not None and active.leased:
            active.turn_ended = True
            active.head.clear()
            self._queues.end_head(host, active.level)
        elif active is not None:
            self._end_turn(active, now)

    def _file(self, host: HostKey, record: HostRecord, *, first: bool) -> None:
        """File *host*, leave it empty if no URL waits, or hold it until the next round."""
        if record.best_level() is None:
            record.place = next_place(record.place, HostEvent.RUN_DRY)
        elif (level := self._next_level(host, record)) is None or self._is_held(host, record):
            self._hold(host, record)
        else:
            self._front.put(host, record, level, first=first)

    def _is_held(self, host: HostKey, record: HostRecord) -> bool:
        """Return whether *host* may be leased no more in this round."""
        return self._rounds.are_any and self._rounds.holds(host, record)

    def _hold(self, host: HostKey, record: HostRecord) -> None:
        record.place = next_place(record.place, HostEvent.HOLD)
        self._rounds.hold(host)

    def stop(self, shard: bytes, now: float) -> None:
        """Give the hosts of *shard* no turn any more, until it is dropped."""
        self._stopped.add(shard)
        for active in list(self.active):
            if self._batch.shards.of(active.host) == shard:
                self.end_turn(active.host, now)

    def drop_host(self, host: HostKey, record: HostRecord) -> None:
        """Forget *host*, whose records are deleted. What is left of it in the front is stale."""
        active = self.active.get(host)
        if active is not None:
            self._leave(active)
        elif record.place is HostPlace.RESTING:
            self._batch.delete(keys.timed(keys.RESTING, record.rest_until, host.encode()))
        elif record.place is _HELD:
            self._rounds.forget(host)
        self._batch.forget_host(host)

    def end_drop(self, shard: bytes) -> None:
        """Note that all hosts of *shard* were dropped: they get turns if they come back."""
        self._stopped.discard(shard)
        self._resting.read_again()

    def file(self, host: HostKey) -> HostRecord:
        """File *host*, of a shard that is taken in. Returns its record."""
        record = self._batch.peek(host)
        level = record.best_level()
        if level is not None:
            self.on_url_added(host, level, record, first=_is_begun(record))
        return record

    def refile(self, host: HostKey, now: float) -> HostRecord:
        """File *host*, which was active when a process died: to the front, to its rest, or as empty
        if no URL waits. Returns its record."""
        record = self._batch.host(host)
        self._batch.delete(keys.named(keys.ACTIVE, host))
        level = record.best_level()
        if level is None:
            record.place = next_place(record.place, HostEvent.RUN_DRY)
        elif self._rests_long(record, now):
            self._rest(host, record)
        else:
            self._front.put(host, record, level)
        return record

    def _next_level(self, host: HostKey, record: HostRecord) -> int | None:
        """Return the level of the next turn of a host: the best one that has a URL, but in their
        share of the turns that of pages that are visited again."""
        is_again = self._is_theirs(record.generation) and len(record.queue_ends[self._again]) > 0
        if self._rounds.are_any:
            return self._next_level_of_round(host, record, is_again=is_again)
        return self._again if is_again else record.best_level()

    def _next_level_of_round(
        self, host: HostKey, record: HostRecord, *, is_again: bool
    ) -> int | None:
        """Return as `_next_level`, of what a round may lease."""
        if is_again and self._rounds.allows(host, self._again):
            return self._again
        for level, ends in enumerate(record.queue_ends):
            if ends.tail > ends.head and self._rounds.allows(host, level):
                return level
        return None

    def _is_again_turn(self, record: HostRecord) -> bool:
        """Return whether the turn for which a host was filed last is that of pages that are visited
        again, whatever else waits."""
        return record.level == self._again and self._is_theirs(record.generation - 1)

    def _is_theirs(self, turn: int) -> bool:
        """Return whether a turn of a host, by its number, is for pages that are visited again."""
        return int((turn + 1) * self._visit_share) > int(turn * self._visit_share)

    def _end_for_better(self, active: ActiveHost, level: int, cash: int) -> None:
        """End the turn of *active*, as a better URL has come: one of *level* with *cash*."""
        if level == active.level:
            self._order.forget_run(active.host, level)
        if active.leased:
            active.turn_ended = True
        else:
            self._leave(active)
            self._front.put(active.host, active.record, level, cash=cash)

    def _take(self, standing: Standing, level: int, now: float) -> ActiveHost | None:
        """Remove and return a due host. The turns of hosts whose heads were judged by earlier rules
        end, so many of them in one call."""
        for _ in range(self._limits.due_slice):
            active = self.active.take(standing, level)
            if active is None:
                return None
            # Its own number a host keeps to by the length of its head.
            is_full = self._rounds.has_domains and self._is_held(active.host, active.record)
            if is_full or active.generation != self._refusals.generation:
                self._end_turn(active, now)
            elif not self._groups.are_any or self._may_go(active.host, active.record, now):
                return active
            else:
                self._leave(active)
                self._wait_for_address(active.host, active.record, now)
        return None

    def _activate(self, standing: Standing, level: int, now: float) -> ActiveHost | None:
        """Take hosts of *standing* and *level* from the front until one is due; those at rest go
        to the heap."""
        for _ in range(self._limits.max_front_reads):
            is_empty = self._front.best_class(standing, level) == CASH_CLASSES
            if is_empty or self._refusals.is_exhausted:
                return None
            host = self._front.take(standing, level)
            if host is None or (self._stopped and self._batch.shards.of(host) in self._stopped):
                continue
            active = self._begin_turn(host, now)
            if active is not None:
                return active
        return None

    def _begin_turn(self, host: HostKey, now: float) -> ActiveHost | None:
        record = self._batch.host(host)
        if self._rounds.are_any and (
            not self._rounds.allows(host, record.level) or self._rounds.holds(host, record)
        ):
            self._file(host, record, first=False)
            return None
        if not self._has_room(record, now, 1):
            self._rest(host, record)
            return None
        if (
            self._groups.are_any
            and record.rest_until <= now
            and not self._may_go(host, record, now)
        ):
            self._wait_for_address(host, record, now)
            return None
        record.place = next_place(record.place, HostEvent.ACTIVATE)
        urls = self._limits.head_urls
        if record.level != self._again:
            urls = min(urls, self._order.arrange(host, record, record.level))
        if self._rounds.are_any:
            urls = min(urls, max(self._rounds.room(host, record), 1))
        head = self._refusals.head(host, record, record.level, urls, now)
        if not head:  # all URLs there were refused, or as many as one call may judge
            self._queues.end_head(host, record.level)
            self._file(host, record, first=False)
            if record.place in (_EMPTY, _HELD):
                self._leave_group(host, record, now)
            return None
        left = sum(map(len, head))
        while left > _HEAD_BYTES and len(head) > 1:
            left -= len(head.pop())
        self._batch.pin_record(host)
        self._batch.put(keys.named(keys.ACTIVE, host), b"")
        active = ActiveHost(host, record, record.level, head, self._refusals.generation)
        self.active.add(active)
        if record.rest_until <= now:
            return active
        self.active.wait(active, now)
        return None

    def _may_go(self, host: HostKey, record: HostRecord, now: float) -> bool:
        """Return whether *host* may be leased as far as its address is concerned. If that is not
        the one that it had, who waits for the former is called in its place."""
        former = record.address
        may_go = self._groups.may_go(host, record, now)
        if former and record.address != former and (group := self._groups.get(former)) is not None:
            self.call_next(group, now)
        return may_go

    def _wait_for_address(self, host: HostKey, record: HostRecord, now: float) -> None:
        """Let *host* rest on disk, wherever its rest would be, until its address is free: what
        waits must not fill the memory."""
        self._rest(host, record)
        if record.address:
            self.call_next(self._groups.of(record.address, host, now), now)

    def _leave_group(self, host: HostKey, record: HostRecord, now: float) -> None:
        """Let *host*, of which no URL is left, hold up no other host of its address."""
        group = self._groups.leave(host, record)
        if group is not None:
            self.call_next(group, now)

    def call_next(self, group: AddressGroup, now: float) -> None:
        """Call the first host that waits for *group*, if nothing is fetched from there."""
        for host, at in self._groups.to_call(group, now):
            if self.call(host, at, now):
                return

    def call(self, host: HostKey, at: float, now: float) -> bool:
        """Let *host*, which waits for its address, come to its turn at *at*. Returns whether it
        does: not if its URLs were dropped, or its shard is on its way to another owner."""
        record = self._batch.peek(host)
        is_stopped = self._batch.shards.of(host) in self._stopped
        if not record.waits_for_address or is_stopped or record.best_level() is None:
            return False
        if record.place is not HostPlace.RESTING:
            return record.place in (_FRONT, _ACTIVE)  # it comes anyway
        record = self._batch.host(host)
        self._resting.remove(keys.timed(keys.RESTING, record.rest_until, host.encode()))
        record.rest_until = at
        if at <= now:
            self._file(host, record, first=True)
        else:
            self._resting.put(at, host.encode(), _WAITS)
        return True

    def end_waits(self, now: float) -> Iterator[None]:
        """Let the hosts that waited for their addresses when a process died come to their turns:
        the order in which they waited was in its memory. Yields after each step."""
        for found in slices(self._batch, keys.RESTING, self._limits.recovered_slice):
            for key, value in found:
                if value == _WAITS:
                    host = HostKey(key[9:].decode())
                    record = self._batch.host(host)
                    record.rest_until = now
                    self._batch.delete(key)
                    self._file(host, record, first=False)
            yield
        self._resting.read_again()

    def _end_turn(self, active: ActiveHost, now: float) -> None:
        self._leave(active)
        record = active.record
        is_dry = record.best_level() is None
        if is_dry or self._is_held(active.host, record) or self._has_room(record, now, 0):
            self._file(active.host, record, first=False)
        else:
            self._rest(active.host, record)

    def _leave(self, active: ActiveHost) -> None:
        record = self._batch.host(active.host)  # so that changes to it are written
        if active.head:
            record.cash = max(record.cash, cash_of_packed(active.head[0]))
        self.active.remove(active)
        self._queues.end_head(active.host, active.level)
        self._batch.unpin_record(active.host)
        self._batch.delete(keys.named(keys.ACTIVE, active.host))

    def _rest(self, host: HostKey, record: HostRecord) -> None:
        record.place = next_place(record.place, HostEvent.REST)
        waits = _WAITS if record.waits_for_address else b""
        self._resting.put(record.rest_until, host.encode(), waits)

    def _has_room(self, record: HostRecord, now: float, entering: int) -> bool:
        """Return True for a due host, and for one at rest while memory has room for it."""
        if record.rest_until <= now:
            return True
        full = len(self.active) + entering > self._limits.max_active_hosts
        return not full and not self._rests_long(record, now)

    def _rests_long(self, record: HostRecord, now: float) -> bool:
        return record.rest_until > now + self._limits.evict_rest_s


def _is_begun(record: HostRecord) -> bool:
    """Return whether a new host was fetched from: its robots.txt, but no page yet. It goes before
    hosts that were never fetched from, or it would wait for all of them twice."""
    return record.pace.standing is Standing.NEW and record.rest_until > 0


_SAMPLED: Final = 100
_KEPT: Final = 500  # several times what a forecast asks for, as most of these get less to do


class LongestHosts:
    """What a forecast of the end asks for: the hosts whose waiting URLs take longest, by their last
    rests, in a bounded table that is brought up to date where a host changes; and how fast hosts
    are, by those that came first.

    The cost of a change and of a look does not grow with the hosts. A host that the table has no
    place for is looked at again at its next fetch, and each host has its turns."""

    def __init__(self, least_gap_s: float) -> None:
        self._least_gap_s = least_gap_s
        self._scores: dict[HostKey, float] = {}  # seconds, 2 * _KEPT at most
        self._least = 0.0  # no host with less is kept
        self._sample: dict[HostKey, Pace] = {}

    def note(self, host: HostKey, record: HostRecord) -> None:
        """Note that *record*, of *host*, has changed."""
        pace, waiting = record.pace, 0
        if host in self._sample or len(self._sample) < _SAMPLED:
            self._sample[host] = pace
        for ends in record.queue_ends:
            waiting += ends.tail - ends.head
        score = waiting * max(pace.gap_s, pace.crawl_delay_s, self._least_gap_s)
        if score > self._least:
            self._scores[host] = score
            if len(self._scores) > 2 * _KEPT:
                kept = nlargest(_KEPT, self._scores.items(), key=lambda item: item[1])
                self._scores, self._least = dict(kept), kept[-1][1]
        elif self._scores.pop(host, None) is not None and len(self._scores) < _KEPT:
            self._least = 0.0

    def forget(self, host: HostKey) -> None:
        """Forget *host*, whose shard is dropped."""
        self._scores.pop(host, None)
        self._sample.pop(host, None)

    def longest(
        self,
        limit: int,
        record_of: Callable[[HostKey], HostRecord],
        is_leased: Callable[[HostKey], bool],
    ) -> list[HostWork]:
        """Return up to *limit* hosts, those with most left to do first."""
        found = []
        for host in nlargest(limit, self._scores, key=self._scores.__getitem__):
            record = record_of(host)
            waiting = record.waiting()
            if not waiting:
                del self._scores[host]  # dropped by a rule, or by the operator
                continue
            work = HostWork(host, waiting, record.rest_until, record.pace, is_leased(host))
            found.append(work)
        return found

    def sampled_paces(self) -> list[Pace]:
        """Return the paces of the hosts that were noted first, whatever is left there."""
        return list(self._sample.values())

"""The plan which worker should own which shard.

Rule: no clock and no socket here. The same workers, shards and times give the same plan; a tie is
decided by a hash that never changes. A plan is advice: who owns a shard is decided by its claim,
and nothing is lost or fetched early, whatever the plan says.

A shard goes to another worker for one of two reasons. Its worker has left or died: then it gets one
at once. Or its worker has more to do than others: then shards are moved, as few as make the loads
equal, at most every BALANCED_EVERY_S, and none before it has stayed for STAY_S.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import msgspec
from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

BALANCED_EVERY_S: Final = 10.0
STAY_S: Final = 60.0
NEWCOMER_S: Final = 5.0
"""A worker gets no shard of another one before it has been there for so long: one that dies at each
start would move a part of all shards each time."""
MISSED_S: Final = 3.0
"""A worker that still has its shards counts as gone after it was not in the list of workers for so
long: a server that lost that list has all of them again when each has announced itself, in 1 s."""
UNCLAIMED_S: Final = 30.0
"""A shard without an owner that its worker does not claim for so long goes to another one. It may
be loading others first."""
# Loads are made equal when one is outside of the first range, and then until all are inside the
# second one: else each URL that is found would move a shard back and forth. Parts of the mean.
_BEGIN_ABOVE, _BEGIN_BELOW = 1.06, 0.9
_END_ABOVE, _END_BELOW = 1.02, 0.97
_LEAST_GAIN: Final = 0.004  # of the mean: a shard is not moved for less. Of 256, one has 0.04
_MOST_MOVED: Final = 1.5  # times a worker's part of all shards, in one plan
_LARGE: Final = 0.1  # of the mean: two such shards of one worker are hard to part
_SHARD_URLS: Final = 100
"""What a shard weighs beside its waiting URLs (guess, revisit): URLs that were just found, or will
be, move no shard of a small crawl."""
_SHARD_PART: Final = 0.03
"""The same as a part of the mean: a worker that has few URLs left is not given all small shards."""


class PlacedShard(msgspec.Struct, frozen=True, gc=False):
    """A shard with its weight, and whose it is: of no worker, if that one is gone."""

    weight: float
    worker: str | None
    moved_at_s: float  # when it became so
    avoided: str | None = None  # a worker that did not take it


class ShardPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A plan as it is stored. Its times are ages, in whole seconds, so no clock of one machine is
    compared with that of another: who goes on with a plan takes it to be just written."""

    workers: tuple[str, ...] = ()
    there_s: tuple[int, ...] = ()  # for how long each has been there
    places: tuple[int, ...] = ()  # by shard: which of the workers; -1: none
    stayed_s: tuple[int, ...] = ()  # by shard, STAY_S at most
    balanced_s: int = 0  # since loads were made equal

    def worker_of(self, shard: int) -> str | None:
        place = self.places[shard] if shard < len(self.places) else -1
        return self.workers[place] if 0 <= place < len(self.workers) else None

    def shards_of(self, worker: str) -> list[int]:
        return [shard for shard, each in enumerate(self.by_shard()) if each == worker]

    def by_shard(self) -> list[str | None]:
        return [self.worker_of(shard) for shard in range(len(self.places))]


@dataclass(frozen=True, slots=True)
class ShardUse:
    """What a planner reads of a shard."""

    owner: str | None  # the worker that has claimed it and not released it; it may be dead
    waiting: int  # URLs
    is_there: bool  # else nobody has begun it, or the server came back empty


class Planner:
    """Makes one plan after another, of what is read from time to time."""

    def __init__(self, shards: int, last: ShardPlan, now_s: float) -> None:
        """*last*: the plan that is stored; an empty one, if there is none."""
        self._since_s = {
            name: now_s - there_s for name, there_s in zip(last.workers, last.there_s, strict=False)
        }
        stayed_s = dict(enumerate(last.stayed_s))
        self._shards = [
            PlacedShard(0.0, last.worker_of(at), now_s - stayed_s.get(at, STAY_S))
            for at in range(shards)
        ]
        self._present: frozenset[str] = frozenset()  # workers in the list, as last read
        self._seen_s = dict.fromkeys(last.workers, now_s)
        self._waiting = [0] * shards
        self._free_since_s: dict[int, float] = {}
        self._balanced_at_s = now_s - last.balanced_s

    def plan(
        self, workers: Collection[str], uses: Sequence[ShardUse | None], now_s: float
    ) -> ShardPlan:
        """Return the next plan. *workers* are those that are alive and take shards; *uses* has None
        for a shard whose server does not answer."""
        self._note(workers, now_s)
        are_all_new = all(now_s - since_s < NEWCOMER_S for since_s in self._since_s.values())
        shards = [self._as_it_is(at, use, now_s) for at, use in enumerate(uses)]
        mean = _SHARD_PART * sum(self._waiting) / len(shards)
        shards = [
            replace(shard, weight=_SHARD_URLS + waiting + mean)
            for shard, waiting in zip(shards, self._waiting, strict=True)
        ]
        balances = now_s - self._balanced_at_s >= BALANCED_EVERY_S
        if balances:
            self._balanced_at_s = now_s
        planned = assign(self._since_s, shards, now_s, balances=balances)
        for at, (shard, worker) in enumerate(zip(shards, planned, strict=True)):
            if worker != shard.worker:
                # When a crawl starts, the first worker gets all shards, and has to give some away.
                is_first = shard.worker is None and are_all_new
                moved_at_s = now_s - STAY_S if is_first else now_s
                shards[at] = replace(shard, worker=worker, moved_at_s=moved_at_s)
                self._free_since_s.pop(at, None)
        self._shards = shards
        return self._stored(now_s)

    def _note(self, workers: Collection[str], now_s: float) -> None:
        """Note which workers there are. One that comes back is a newcomer."""
        self._seen_s |= dict.fromkeys(workers, now_s)
        self._seen_s = {
            name: seen_s for name, seen_s in self._seen_s.items() if now_s - seen_s < MISSED_S
        }
        self._present = frozenset(workers)
        self._since_s = {
            name: self._since_s.get(name, now_s) if name in self._present else now_s
            for name in sorted(self._seen_s)
        }

    def _as_it_is(self, at: int, use: ShardUse | None, now_s: float) -> PlacedShard:
        """Return shard number *at* with the worker that it is planned for. That one keeps it, if it
        is alive, unless it has not taken it for long."""
        shard = replace(self._shards[at], avoided=None)
        planned = shard.worker if shard.worker in self._since_s else None
        if use is None:
            return replace(shard, worker=planned)
        self._waiting[at] = use.waiting
        owner = use.owner if use.owner in self._since_s else None
        if use.is_there and owner is None and planned not in self._present:
            planned = None  # it has released the shard, or never had it
        if owner is not None or not use.is_there or planned is None:
            self._free_since_s.pop(at, None)
        elif now_s - self._free_since_s.setdefault(at, now_s) >= UNCLAIMED_S:
            return replace(shard, worker=None, avoided=planned)
        if owner not in (None, planned) and (planned is None or now_s - shard.moved_at_s >= STAY_S):
            return replace(shard, worker=owner, moved_at_s=now_s)
        return replace(shard, worker=planned)

    def _stored(self, now_s: float) -> ShardPlan:
        workers = tuple(self._since_s)
        places = {name: place for place, name in enumerate(workers)}
        return ShardPlan(
            workers,
            tuple(int(min(now_s - each, NEWCOMER_S)) for each in self._since_s.values()),
            tuple(-1 if each.worker is None else places[each.worker] for each in self._shards),
            tuple(int(min(now_s - each.moved_at_s, STAY_S)) for each in self._shards),
            int(now_s - self._balanced_at_s),
        )


def assign(
    workers: Mapping[str, float], shards: Sequence[PlacedShard], now_s: float, *, balances: bool
) -> list[str | None]:
    """Return for each of *shards* the worker that should have it. *workers*: since when each is
    there. *balances*: or else only shards without a worker get one."""
    if not workers:
        return [None] * len(shards)
    settled = [name for name, since_s in workers.items() if now_s - since_s >= NEWCOMER_S]
    loads = _Loads(settled or list(workers), workers, shards)
    for shard in sorted(loads.without_worker, key=lambda at: (-shards[at].weight, at)):
        loads.give(shard, loads.lightest(shard, shards[shard].avoided))
    if balances:
        movable = {at for at, each in enumerate(shards) if now_s - each.moved_at_s >= STAY_S}
        loads.make_equal(movable - set(loads.without_worker))
    return loads.workers


class _Loads:
    """Shards by worker, and how much each worker has to do."""

    def __init__(
        self, takers: Sequence[str], all_workers: Collection[str], shards: Sequence[PlacedShard]
    ) -> None:
        """*takers*: the workers that may get shards."""
        self._takers = takers
        self._mean = _fair_part([shard.weight for shard in shards], len(all_workers))
        # A shard that has more than a worker's part counts as that: it needs one of its own.
        self._weights = [min(shard.weight, self._mean) for shard in shards]
        self.workers = [each.worker if each.worker in all_workers else None for each in shards]
        self.without_worker = [at for at, worker in enumerate(self.workers) if worker is None]
        self._shards_of: dict[str, set[int]] = {worker: set() for worker in all_workers}
        self._loads = dict.fromkeys(all_workers, 0.0)
        self._loads_of_large = dict.fromkeys(all_workers, 0.0)
        self._large = _LARGE * self._mean
        for shard, worker in enumerate(self.workers):
            if worker is not None:
                self._put(shard, worker)
        most = ceil(_MOST_MOVED * len(shards) / len(self._loads))
        self._moves_left = most - len(self.without_worker)

    def lightest(self, shard: int, avoided: str | None = None) -> str:
        """Return the worker for a *shard* without one: that with least to do. For a large shard
        only large ones count: the small ones beside it can be moved."""
        others = [each for each in self._takers if each != avoided] or self._takers
        is_large = self._weights[shard] > self._large
        loads = self._loads_of_large if is_large else self._loads
        return min(others, key=lambda each: (loads[each], self._loads[each], rank(each, shard)))

    def give(self, shard: int, worker: str) -> None:
        last, self.workers[shard] = self.workers[shard], worker
        self._put(shard, worker)
        if last is not None:
            self._shards_of[last].remove(shard)
            self._count(shard, last, -1)

    def _put(self, shard: int, worker: str) -> None:
        self._shards_of[worker].add(shard)
        self._count(shard, worker, 1)

    def _count(self, shard: int, worker: str, sign: int) -> None:
        weight = self._weights[shard]
        self._loads[worker] += sign * weight
        if weight > self._large:
            self._loads_of_large[worker] += sign * weight

    def make_equal(self, movable: set[int]) -> None:
        """Move shards of those *movable* from the workers with most to do to those with least."""
        if not self._are_beyond(_BEGIN_ABOVE, _BEGIN_BELOW):
            return
        while (move := self._best_move(movable)) is not None and self._moves_left > 0:
            self._moves_left -= 1
            self.give(*move)
            movable.discard(move[0])  # it has to stay now

    def _are_beyond(self, above: float, below: float) -> bool:
        least = min(self._loads[each] for each in self._takers)
        return max(self._loads.values()) > above * self._mean or least < below * self._mean

    def _best_move(self, movable: set[int]) -> tuple[int, str] | None:
        """Return the next shard to be moved, and where to: from the worker with most to do, or the
        next one if that has only one large shard, or such that have moved lately."""
        if not self._are_beyond(_END_ABOVE, _END_BELOW):
            return None
        to = min(self._takers, key=lambda each: (self._loads[each], rank(each, 0)))
        heaviest = sorted(self._loads, key=lambda each: (-self._loads[each], rank(each, 0)))
        for worker in heaviest:
            shard = self._fitting(worker, to, movable)
            if shard is not None:
                return shard, to
        return None

    def _fitting(self, worker: str, to: str, movable: set[int]) -> int | None:
        """Return the shard of *worker* with which neither passes the mean, the largest of such, or
        else the smallest of the others; if that lowers the larger load of the two enough."""
        least_gain = _LEAST_GAIN * self._mean
        apart = self._loads[worker] - self._loads[to]
        fits = min(self._loads[worker] - self._mean, self._mean - self._loads[to])
        best: tuple[tuple[bool, float, int], int] | None = None
        for shard in self._shards_of[worker] & movable:
            weight = self._weights[shard]
            if min(weight, apart - weight) < least_gain:
                continue
            is_larger = weight > fits
            order = (is_larger, weight if is_larger else -weight, rank(to, shard))
            best = min(best or (order, shard), (order, shard))
        return best[1] if best else None


def _fair_part(weights: Sequence[float], workers: int) -> float:
    """Return what each worker has, if no shard could be too large for one: the mean without those
    that are, and without a worker for each."""
    left = sum(weights)
    for weight in sorted(weights, reverse=True):
        if weight * workers <= left or workers == 1:
            break
        left, workers = left - weight, workers - 1
    return left / workers or min(weights)


def rank(worker: str, shard: int) -> int:
    """Return a number that decides ties, the same on each machine."""
    return xxh3_64_intdigest(f"{worker}/{shard}".encode())

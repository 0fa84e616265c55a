"""Leases for the crawl: a small buffer, filled before it is empty.

Rule: no more than the slots use soon, because a host whose URL waits here waits with it. Preferred
shards first (warm robots and DNS caches, connections); the others when those have nothing due.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from crawler.core.types import STANDINGS, Lease, Standing
from crawler.storage.redis.calls import Argument, Call
from crawler.storage.redis.connection.faults import FAULTS
from crawler.storage.redis.ops import Ops, shard_of_lease
from crawler.storage.redis.replies import read_leases
from crawler.storage.redis.sieve import Sieve
from crawler.storage.redis.worker.holdings import Holdings
from crawler.storage.redis.worker.reckoning import RETRY_S, Reckoning
from crawler.storage.redis.worker.runs import Runs

POLL_S: Final = 0.25  # of a shard that has nothing due: another worker may have added to it
POLL_OTHERS_S: Final = 1.0  # of one that another worker prefers
AT_ONCE: Final = 8  # shards asked in one round
LEAST: Final = 2  # leases to have ready
UNBEGUN_S: Final = 5.0
"""A lease that nobody takes goes back after so long: what a dead worker's host rests is reckoned
from when its lease was given."""
MOST_JUDGED: Final = 64  # leases whose hosts' queues are judged; then no others are asked for
FOR_EVER: Final = float("inf")


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...

    async def commands(self, asks: Sequence[tuple[int, tuple[Argument, ...]]]) -> list[Any]: ...


class Incoming:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        reckoning: Reckoning,
        runs: Runs,
        most: int,
        now: Callable[[], float],
        sieve: Sieve | None = None,
    ) -> None:
        """*most*: leases that can be fetched at once; *sieve*: None, none is judged."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._reckoning = reckoning
        self._runs = runs
        self._most = most
        self._now = now
        self._sieve = sieve
        self._due: deque[Lease] = deque()
        self.is_asking = False  # leases may be on their way to us
        self._taken: Counter[Standing] = Counter()  # since the last round: what the slots use
        self._hungry = True
        self._ask_at = dict.fromkeys(range(ops.shards), 0.0)
        self._turn: deque[int] = deque(range(ops.shards))
        self._asked = asyncio.Event()
        self.preferred: frozenset[int] = frozenset()
        self.may_ask: Callable[[], bool] = lambda: True
        self.room: Callable[[Standing], int] = lambda _: most  # for fetches that begin now
        self.prepare: Callable[[Sequence[Lease]], Awaitable[None]] | None = None
        self.on_due: Callable[[], None] = lambda: None
        self.failed: Callable[[Any], None] = lambda _: None
        self.lost: Callable[[Sequence[Lease]], None] = lambda _: None
        self.give_back: Callable[[Lease], None] = lambda _: None
        self.tell: Callable[[Call], None] = lambda _: None

    def take(self, standings: Container[Standing] = STANDINGS) -> Lease | None:
        """One of a host of *standings* that may be begun. None: nothing is ready; `on_due` tells
        when something is."""
        steady = monotonic()
        for _ in range(len(self._due)):
            lease = self._due.popleft()
            if lease.pace.standing not in standings:
                self._due.append(lease)
            elif self._holdings.may_begin(lease, steady):
                self._taken[lease.pace.standing] += 1
                self._asked.set()
                return lease
            elif lease in self._holdings:
                self._due.append(lease)  # its time is short: the next heartbeat renews it
        self._hungry = True
        self._asked.set()
        return None

    def __len__(self) -> int:
        return len(self._due)

    def has_some(self, standings: Container[Standing] = STANDINGS) -> bool:
        """Whether `take` would give one."""
        steady = monotonic()
        return any(
            lease.pace.standing in standings and self._holdings.may_begin(lease, steady)
            for lease in self._due
        )

    def empty(self) -> list[Lease]:
        """All that is ready, to be given back."""
        leases = [lease for lease in self._due if lease in self._holdings]
        self._due.clear()
        if self._sieve is not None and not self.is_asking:
            leases += (lease for lease in self._sieve.empty() if lease in self._holdings)
        return leases

    def touched(self, shard: int, in_s: float) -> None:
        """Something of *shard* may be due *in_s* from now."""
        at = monotonic() + in_s
        if at < self._ask_at[shard]:
            self._ask_at[shard] = at
            self._asked.set()

    def suspect(self, shard: int) -> None:
        """The server may hold leases of ours that never reached us."""
        self._reckoning.suspect(shard)
        self._asked.set()

    async def work(self) -> None:
        """For ever: until cancelled."""
        while True:
            await self._reckon()
            self._give_back_old()
            wanted = self._wanted()
            shards = self._next_shards() if wanted else []
            if shards:
                await self._ask(shards, wanted)
            if self._sieve:
                await self._sift(self._sieve)
            elif not shards:
                await self._wait(bool(wanted))

    def _wanted(self) -> dict[Standing, int]:
        """Of each standing, the best first; none that is zero."""
        if not self.may_ask():
            return {}
        if self._sieve is not None and (
            not self._sieve.may_judge or len(self._sieve) >= MOST_JUDGED
        ):
            return {}
        steady = monotonic()
        # Those of a server that is down may not be begun, and are not to starve the others.
        usable = Counter(
            lease.pace.standing for lease in self._due if self._holdings.may_begin(lease, steady)
        )
        wanted = {}
        for standing in STANDINGS:
            # As many as were taken since the last round: for a round trip and a little more.
            target = max(LEAST, 2 * self._taken[standing])
            if self._hungry and not usable[standing]:
                target = max(target, 2 * LEAST)
            # Of hosts that answer a slot is free soon; the others may hold theirs for long.
            most = self._most
            if standing is not Standing.ANSWERS:
                most = min(most, self.room(standing))
            more = min(min(target, most) - usable[standing], 2 * self._most - len(self._due))
            if more > 0:
                wanted[standing] = more
        return wanted

    def _next_shards(self) -> list[int]:
        steady = monotonic()
        due = [shard for shard in self._turn if self._ask_at[shard] <= steady]
        own = [shard for shard in due if shard in self.preferred]
        chosen = (own or due)[:AT_ONCE]
        for shard in chosen:
            self._turn.remove(shard)
            self._turn.append(shard)
        return chosen

    async def _ask(self, shards: Sequence[int], wanted: Mapping[Standing, int]) -> None:
        each = {standing: -(-number // len(shards)) for standing, number in wanted.items()}
        asked_at = monotonic()
        self._taken, self._hungry = Counter(), False
        self.is_asking = True
        try:
            replies = await self._nodes.run([self._ops.lease(shard, each) for shard in shards])
            given: list[Lease] = []
            for shard, reply in zip(shards, replies, strict=True):
                given += self._given(shard, reply, asked_at)
            if given and self._sieve is not None:
                given = await self._judged(given, self._sieve)
            if given and self.prepare is not None:
                await self.prepare(given)
        finally:
            self.is_asking = False
        self._due += given
        if self._due:
            self.on_due()

    async def _judged(self, given: list[Lease], sieve: Sieve) -> list[Lease]:
        """Those of *given* that may be begun."""
        asks = sieve.asks(given)
        replies = await self._nodes.commands(asks) if asks else []
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if not faults:
            return sieve.sort(given, replies)
        self.failed(faults[0])
        for lease in given:
            self.give_back(lease)
        return []

    async def _sift(self, sieve: Sieve) -> None:
        """One round with what waits behind refused URLs."""
        self.is_asking = True
        try:
            answered = sieve.answered(await self._nodes.run(sieve.calls()))
        finally:
            self.is_asking = False
        for lease in answered.ended:
            self._holdings.drop(lease)
            self.touched(shard_of_lease(lease), 0.0)
        if answered.faults:
            self.failed(answered.faults[0])
            await asyncio.sleep(RETRY_S)
        if answered.admitted:
            if self.prepare is not None:
                await self.prepare(answered.admitted)
            self._due += answered.admitted
            self.on_due()

    def _given(self, shard: int, reply: Any, asked_at: float) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._ask_at[shard] = monotonic() + RETRY_S
            self._reckoning.suspect(shard)
            self.failed(reply)
            return []
        self._runs.heard(shard, reply[0], asked_at)
        leased = read_leases(reply, shard, self._now())
        if leased.lost:
            self.lose(shard, asked_at)
        poll_s = POLL_S if shard in self.preferred else POLL_OTHERS_S
        wake_s = poll_s if leased.wake_s is None else min(leased.wake_s, poll_s)
        self._ask_at[shard] = monotonic() + wake_s
        if leased.unreadable:
            self.tell(self._ops.give_up(shard, leased.unreadable, self._now()))
        if leased.leases:
            self._holdings.take(shard, leased.leases, asked_at)
        return leased.leases

    def lose(self, shard: int, asked_at: float) -> None:
        """All our leases of *shard* have ended, as a call of *asked_at* was told."""
        lost = self._holdings.lose(shard, asked_at)
        if lost:
            self.lost(lost)

    def _give_back_old(self) -> None:
        oldest = self._now() - UNBEGUN_S
        old = [lease for lease in self._due if lease.taken_at < oldest]
        for lease in old:
            self._due.remove(lease)
            if lease in self._holdings:
                self.give_back(lease)

    async def _reckon(self) -> None:
        """Only here, where no lease is on its way to us."""
        forgotten = await self._reckoning.settle()
        if forgotten:
            self.lost(forgotten)

    async def _wait(self, is_wanted: bool) -> None:
        first = min(self._ask_at.values())
        wait_s = max(0.005, min(first - monotonic(), POLL_OTHERS_S)) if is_wanted else POLL_S
        self._asked.clear()
        if self._reckoning.is_open:
            wait_s = min(wait_s, RETRY_S)
        try:
            await asyncio.wait_for(self._asked.wait(), wait_s)
        except TimeoutError:
            return

"""The leases a worker holds, and until when it may begin what they allow.

Rule: by the worker's monotonic clock, counted from before the call that was answered: so it is
never later than the server's own reckoning, whatever wall clocks say.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from crawler.model.types import (
    STANDINGS,
    Lease,
    Standing,
)
from crawler.shared.client import Call, Nodes
from crawler.shared.faults import FAULTS
from crawler.shared.shard import Ops, read_ids, read_leases, shard_of_lease
from crawler.shared.sieve import StartSieve

# Which run of its server each shard is in, and when it was last heard of.
#
# Rule: a server that dies may forget its last moments. So what one run acknowledged is sure only
# when
# that run was heard of long enough after it; and when another run is heard of, what was told last
# is
# told again.


class ServerEpochs:
    def __init__(self, changed: Callable[[int, float], None], gone: Callable[[int], None]) -> None:
        """*changed* is called with a shard that is in another run, and when the last one was still
        alive; *gone* with a shard whose keys are not there any more."""
        self._changed = changed
        self._gone = gone
        self._runs: dict[int, bytes] = {}
        self._asked_at: dict[int, float] = {}

    def heard(self, shard: int, run: bytes, asked_at: float) -> None:
        """*shard* answered, of *run*, what it was asked at *asked_at* (monotonic)."""
        if not run:
            self._gone(shard)
            return
        last, last_at = self._runs.get(shard), self._asked_at.get(shard, asked_at)
        self._runs[shard] = run
        self._asked_at[shard] = asked_at if last != run else max(asked_at, last_at)
        if last is not None and last != run:
            self._changed(shard, last_at)

    def asked_at(self, shard: int) -> float:
        """When it was asked what it answered last."""
        return self._asked_at.get(shard, float("-inf"))

    def lives(self, shard: int, run: bytes, at: float) -> bool | None:
        """Whether *run* was still alive *at* that time. None: nobody knows yet."""
        if self._runs.get(shard) != run:
            return False
        return True if self._asked_at[shard] >= at else None


FRESH_S: Final = 3.0
"""A shard that was not heard of for so long may have died and forgotten leases of ours; what was
begun before is over a total time-out later. Each is asked once a second."""


class Holdings:
    """Bound: the leases that are open."""

    def __init__(
        self, lease_s: float, fetch_s: float, runs: ServerEpochs, doubted: Callable[[int], None]
    ) -> None:
        """*fetch_s*: the longest a fetch can take; it must be over before its lease is. *doubted*
        is called with a shard that is to be asked which leases of ours it knows."""
        self._lease_s = lease_s
        self._fetch_s = fetch_s
        self._runs = runs
        self._doubted = doubted
        self._doubtful: set[int] = set()
        self._by_shard: dict[int, dict[int, Lease]] = {}
        self._ends: dict[int, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_shard.values()))

    def __contains__(self, lease: Lease) -> bool:
        return lease.id in self._by_shard.get(shard_of_lease(lease), ())

    def take(self, shard: int, leases: Iterable[Lease], asked_at: float) -> None:
        """Given in answer to a call of *asked_at*; the whole shard is renewed with them."""
        self.renew(shard, asked_at)
        held = self._by_shard.setdefault(shard, {})
        held.update((lease.id, lease) for lease in leases)

    def renew(self, shard: int, asked_at: float) -> None:
        """Those of *shard* live on, if they still lived when that was asked for. What is renewed
        later may be others, so the shard must name them: a word that they had ended can be lost."""
        if self.count(shard) and asked_at >= self._ends.get(shard, 0.0):
            self.doubt(shard)
            self._doubted(shard)
        self._ends[shard] = max(self._ends.get(shard, 0.0), asked_at + self._lease_s)

    def drop(self, lease: Lease) -> None:
        """It is finished, or was never given."""
        held = self._by_shard.get(shard_of_lease(lease), {})
        held.pop(lease.id, None)

    def lose(self, shard: int, asked_at: float) -> list[Lease]:
        """All leases of *shard* have ended, as a call of *asked_at* was told. What was given later
        is not meant."""
        if self._ends.get(shard, 0.0) > asked_at + self._lease_s:
            return []
        self._ends.pop(shard, None)
        return list(self._by_shard.pop(shard, {}).values())

    def forget(self, shard: int, ids: Iterable[int]) -> list[Lease]:
        """*shard* does not know them any more."""
        held = self._by_shard.get(shard, {})
        return [held.pop(each) for each in ids if each in held]

    def may_begin(self, lease: Lease, steady: float) -> bool:
        """Whether its server surely knows of it, and a fetch begun at *steady* is over before the
        lease is."""
        shard = shard_of_lease(lease)
        if shard in self._doubtful or steady - self._runs.asked_at(shard) > FRESH_S:
            return False
        return lease in self and steady + self._fetch_s < self._ends.get(shard, 0.0)

    def doubt(self, shard: int) -> None:
        """It may have forgotten leases of ours."""
        self._doubtful.add(shard)

    def trust(self, shard: int) -> None:
        """It has named those that it knows."""
        self._doubtful.discard(shard)

    def shards(self) -> list[int]:
        """Where our session may live, with leases or without: with it lives what it holds there
        and never reached us."""
        return list(self._ends)

    def ids(self, shard: int) -> set[int]:
        return set(self._by_shard.get(shard, ()))

    def count(self, shard: int) -> int:
        return len(self._by_shard.get(shard, ()))


# What was acknowledged lately, and may not yet be on the disk of the server that acknowledged it.
#
# Rule: with `everysec` a server loses what it acknowledged in its last second, two when its disk is
# slow (Redis waits so long for it). When another run of it answers, however long it was away, these
# calls are sent again. Sent twice they do no harm: what was seen is seen, and a lease ends once.

KEPT_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    at: float  # monotonic
    calls: Sequence[Call]


class Journal:
    """Bound: what is acknowledged in KEPT_S; 150 bytes a link, so 9 MB at 12,000 links a second."""

    def __init__(self, runs: ServerEpochs, is_needed: bool = True) -> None:
        """*is_needed*: False where all that is acknowledged is on a disk (appendfsync always)."""
        self._runs = runs
        self._is_needed = is_needed
        self._by_shard: dict[int, deque[_Acknowledged]] = {}

    def acknowledged(
        self, calls: Sequence[Call], run: bytes, asked_at: float, steady: float
    ) -> None:
        """*run* of the server answered at *steady* what it was asked at *asked_at*: the first of
        *calls*, all of one shard, which together bring about the same again.

        The run comes first: if it is another one, `recent` takes what the last may have forgotten.
        And the server was alive when it was asked; by the clock alone an outage would empty this.
        """
        shard = calls[0].shard
        self._runs.heard(shard, run, asked_at)
        if not self._is_needed:
            return
        kept = self._by_shard.setdefault(shard, deque())
        kept.append(_Acknowledged(steady, calls))
        while kept[0].at < asked_at - KEPT_S:
            kept.popleft()

    def recent(self, shard: int, alive_at: float) -> list[Call]:
        """Take out what *shard* may have forgotten, whose server was alive at *alive_at* and then
        died; oldest first."""
        kept = self._by_shard.pop(shard, ())
        return [call for each in kept if each.at >= alive_at - KEPT_S for call in each.calls]


# After trouble a shard and a worker may differ in what each knows of the other: they are made to
# agree.
#
# Rule: what the shard may have forgotten is told again first; then it names the leases that it
# knows
# to be ours. Those that never reached us go back; those that it has forgotten are not begun,
# because
# their hosts may be another's. Until that is known, no lease of the shard is begun.

RETRY_S: Final = 0.5


class LeaseResync:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        journal: Journal,
        runs: ServerEpochs,
        tell: Callable[[Call], None],
    ) -> None:
        """*tell* takes what the shard could not be told now."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._journal = journal
        self._runs = runs
        self._tell = tell
        self._suspects: set[int] = set()
        self._again: dict[int, list[Call]] = {}
        self._at = 0.0  # of the next, monotonic

    @property
    def is_open(self) -> bool:
        return bool(self._suspects)

    def suspect(self, shard: int) -> None:
        """It may hold leases of ours that never reached us."""
        self._suspects.add(shard)

    def changed(self, shard: int, alive_at: float) -> None:
        """Its server died after *alive_at* and came back: it may have forgotten much."""
        self._again.setdefault(shard, []).extend(self._journal.recent(shard, alive_at))
        self._holdings.doubt(shard)
        self._suspects.add(shard)
        self._at = 0.0

    async def settle(self) -> list[Lease]:
        """To be called only where no lease is on its way to us. Returns the leases that were
        forgotten, or have ended: they are ours no more."""
        asked_at = monotonic()
        if not self._suspects or asked_at < self._at:
            return []
        self._at = asked_at + RETRY_S
        # What is suspected from here on, while we wait, is asked once more.
        shards, self._suspects = sorted(self._suspects), set()
        again = {shard: self._again.pop(shard, []) for shard in shards}
        calls = [[*again[shard], self._ops.mine(shard)] for shard in shards]
        answers = iter(await self._nodes.run([call for part in calls for call in part]))
        forgotten: list[Lease] = []
        backs: list[Call] = []
        for shard in shards:
            self._told_again(again[shard], answers, asked_at)
            forgotten += self._compared(shard, next(answers), asked_at, backs)
        if backs:
            await self._nodes.run(backs)  # and looked at again: whether they went
        return forgotten

    def _told_again(self, calls: Sequence[Call], answers: Iterator[Any], asked_at: float) -> None:
        for call in calls:
            reply = next(answers)
            if isinstance(reply, FAULTS):
                self._tell(call)
            else:
                self._journal.acknowledged([call], reply[0], asked_at, monotonic())

    def _compared(self, shard: int, reply: Any, asked_at: float, backs: list[Call]) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._suspects.add(shard)
            return []
        self._runs.heard(shard, reply[0], asked_at)
        if shard in self._suspects:  # it died once more, or this answer is older than the suspicion
            return []
        known, held = read_ids(reply, shard), self._holdings.ids(shard)
        if orphans := known - held:
            backs.append(self._ops.hand_back(shard, orphans))
            self._suspects.add(shard)
        self._holdings.trust(shard)
        return self._holdings.forget(shard, held - known)


# Leases for the crawl: a small buffer, filled before it is empty.
#
# Rule: no more than the slots use soon, because a host whose URL waits here waits with it.
# Preferred
# shards first (warm robots and DNS caches, connections); the others when those have nothing due.

POLL_S: Final = 0.25  # of a shard that has nothing due: another worker may have added to it
POLL_OTHERS_S: Final = 1.0  # of one that another worker prefers
AT_ONCE: Final = 8  # shards asked in one round
LEAST: Final = 2  # leases to have ready
UNBEGUN_S: Final = 5.0
"""A lease that nobody takes goes back after so long: what a dead worker's host rests is reckoned
from when its lease was given."""
MOST_JUDGED: Final = 64  # leases whose hosts' queues are judged; then no others are asked for
FOR_EVER: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseUse:
    """What leases are asked for, and what becomes of those that came."""

    may_ask: Callable[[], bool]
    room: Callable[[Standing], int]  # fetches of such hosts that may begin now
    prepare: Callable[[Sequence[Lease]], Awaitable[None]]  # awaited before they are used
    due: Callable[[], None]  # some can be taken
    lost: Callable[[Sequence[Lease]], None]  # they ended before they were finished
    give_back: Callable[[Lease], None]  # nothing was fetched under it
    faulted: Callable[[Any], None]  # by a server
    tell: Callable[[Call], None]  # sends a call some time soon


class Incoming:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        reckoning: LeaseResync,
        runs: ServerEpochs,
        most: int,
        now: Callable[[], float],
        sieve: StartSieve | None,
        use: LeaseUse,
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
        self._use = use
        self._due: deque[Lease] = deque()
        self.is_asking = False  # leases may be on their way to us
        self._taken: Counter[Standing] = Counter()  # since the last round: what the slots use
        self._hungry = True
        self._ask_at = dict.fromkeys(range(ops.shards), 0.0)
        self._turn: deque[int] = deque(range(ops.shards))
        self._asked = asyncio.Event()
        self._preferred: frozenset[int] = frozenset()

    def prefer(self, shards: frozenset[int]) -> None:
        """They are asked first from now on."""
        self._preferred = shards

    def take(self, standings: Container[Standing] = STANDINGS) -> Lease | None:
        """One of a host of *standings* that may be begun. None: nothing is ready; `LeaseUse.due` is
        called when something is."""
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
        if not self._use.may_ask():
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
                most = min(most, self._use.room(standing))
            more = min(min(target, most) - usable[standing], 2 * self._most - len(self._due))
            if more > 0:
                wanted[standing] = more
        return wanted

    def _next_shards(self) -> list[int]:
        steady = monotonic()
        due = [shard for shard in self._turn if self._ask_at[shard] <= steady]
        own = [shard for shard in due if shard in self._preferred]
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
            if given:
                await self._use.prepare(given)
        finally:
            self.is_asking = False
        self._due += given
        if self._due:
            self._use.due()

    async def _judged(self, given: list[Lease], sieve: StartSieve) -> list[Lease]:
        """Those of *given* that may be begun."""
        asks = sieve.asks(given)
        replies = await self._nodes.commands(asks) if asks else []
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if not faults:
            return sieve.sort(given, replies)
        self._use.faulted(faults[0])
        for lease in given:
            self._use.give_back(lease)
        return []

    async def _sift(self, sieve: StartSieve) -> None:
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
            self._use.faulted(answered.faults[0])
            await asyncio.sleep(RETRY_S)
        if answered.admitted:
            await self._use.prepare(answered.admitted)
            self._due += answered.admitted
            self._use.due()

    def _given(self, shard: int, reply: Any, asked_at: float) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._ask_at[shard] = monotonic() + RETRY_S
            self._reckoning.suspect(shard)
            self._use.faulted(reply)
            return []
        self._runs.heard(shard, reply[0], asked_at)
        leased = read_leases(reply, shard, self._now())
        if leased.lost:
            self.lose(shard, asked_at)
        poll_s = POLL_S if shard in self._preferred else POLL_OTHERS_S
        wake_s = poll_s if leased.wake_s is None else min(leased.wake_s, poll_s)
        self._ask_at[shard] = monotonic() + wake_s
        if leased.unreadable:
            self._use.tell(self._ops.give_up(shard, leased.unreadable, self._now()))
        if leased.leases:
            self._holdings.take(shard, leased.leases, asked_at)
        return leased.leases

    def lose(self, shard: int, asked_at: float) -> None:
        """All our leases of *shard* have ended, as a call of *asked_at* was told."""
        lost = self._holdings.lose(shard, asked_at)
        if lost:
            self._use.lost(lost)

    def _give_back_old(self) -> None:
        oldest = self._now() - UNBEGUN_S
        old = [lease for lease in self._due if lease.taken_at < oldest]
        for lease in old:
            self._due.remove(lease)
            if lease in self._holdings:
                self._use.give_back(lease)

    async def _reckon(self) -> None:
        """Only here, where no lease is on its way to us."""
        forgotten = await self._reckoning.settle()
        if forgotten:
            self._use.lost(forgotten)

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


# The heartbeat: all leases that a worker holds are renewed, shard by shard.
#
# Rule: so slow storage expires nothing; only a worker that is not heard of loses its leases.

AGAIN_S: Final = 1.0  # after one that was not heard


class Heartbeat:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        incoming: Incoming,
        runs: ServerEpochs,
        every_s: float,
        due: Callable[[], None],
    ) -> None:
        """*due*: is called when leases can be taken."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._incoming = incoming
        self._runs = runs
        self._every_s = every_s
        self._due = due
        self._at = 0.0  # of the next, monotonic

    async def work(self) -> None:
        """For ever: until cancelled. On its own, so that no hanging server delays it more than a
        reply may take."""
        while True:
            await self.beat()
            await asyncio.sleep(max(0.0, self._at - monotonic()))

    async def beat(self) -> None:
        """If it is time for one."""
        asked_at = monotonic()
        if asked_at < self._at:
            return
        shards = self._holdings.shards()
        replies = await self._nodes.run([self._ops.beat(shard) for shard in shards])
        for shard, reply in zip(shards, replies, strict=True):
            if isinstance(reply, FAULTS):
                self._incoming.suspect(shard)  # it may have told us of an end
            else:
                self._runs.heard(shard, reply[0], asked_at)
                self._answered(shard, bool(reply[1]), int(reply[2]), asked_at)
        is_whole = not any(isinstance(reply, FAULTS) for reply in replies)
        self._at = asked_at + (self._every_s if is_whole else AGAIN_S)
        if len(self._incoming):
            self._due()  # what could not be begun in time may be now

    def _answered(self, shard: int, has_lost: bool, held: int, asked_at: float) -> None:
        """*held*: leases of ours that the shard knows."""
        if has_lost:
            self._incoming.lose(shard, asked_at)
            return
        self._holdings.renew(shard, asked_at)
        if held > self._holdings.count(shard):
            self._incoming.suspect(shard)

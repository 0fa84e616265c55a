"""The leases of a worker: taken, held, renewed, and compared with those its shards know.

Rule: the time a lease ends is counted by the worker's monotonic clock, from before the call that
gave or renewed it. So it is never later than by the server's clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from crawler.shared.refused_leases import RefusedLeases
from crawler.shared.shard import ShardOperations, read_ids, read_leases, shard_of_lease


class ServerEpochs:
    """The run of the server of each shard, and when it last answered. A server that crashes may
    lose its last writes: an acknowledgement is sure only if the same run answers long enough after
    it, and when another run answers, recent calls must be sent again."""

    def __init__(
        self, on_restart: Callable[[int, float], None], on_keys_missing: Callable[[int], None]
    ) -> None:
        """*on_restart* is called with a shard that is in another run, and the time (monotonic) when
        the last run was still alive; *on_keys_missing* with a shard whose keys no longer exist."""
        self._on_restart = on_restart
        self._on_keys_missing = on_keys_missing
        self._runs: dict[int, bytes] = {}
        self._asked_at: dict[int, float] = {}

    def observe(self, shard: int, run: bytes, asked_at: float) -> None:
        """Note that *shard* answered a call of *asked_at* (monotonic) in *run*."""
        if not run:
            self._on_keys_missing(shard)
            return
        last, last_at = self._runs.get(shard), self._asked_at.get(shard, asked_at)
        self._runs[shard] = run
        self._asked_at[shard] = asked_at if last != run else max(asked_at, last_at)
        if last is not None and last != run:
            self._on_restart(shard, last_at)

    def asked_at(self, shard: int) -> float:
        """Return the time (monotonic) of the last call that *shard* answered, or -inf."""
        return self._asked_at.get(shard, float("-inf"))

    def was_alive(self, shard: int, run: bytes, at: float) -> bool | None:
        """Return whether *run* was still alive *at* that time, or None if that is not known yet."""
        if self._runs.get(shard) != run:
            return False
        return True if self._asked_at[shard] >= at else None


MAX_SHARD_SILENCE_S: Final = 3.0
"""If a shard has not answered for so long, its server may have crashed and lost leases of ours: no
fetch begins under them, and older ones end within a total time-out. Each shard is called once a
second, so this is three calls without an answer."""


class HeldLeases:
    """The leases that this worker holds, with the time they end. Bound: the open leases."""

    def __init__(
        self,
        lease_s: float,
        fetch_s: float,
        server_epochs: ServerEpochs,
        on_doubtful: Callable[[int], None],
    ) -> None:
        """*fetch_s* is the longest time of a fetch, which must end before its lease does.
        *on_doubtful* is called with a shard that must be asked which leases of ours it knows."""
        self._lease_s = lease_s
        self._fetch_s = fetch_s
        self._server_epochs = server_epochs
        self._on_doubtful = on_doubtful
        self._doubtful: set[int] = set()
        self._by_shard: dict[int, dict[int, Lease]] = {}
        self._ends: dict[int, float] = {}
        self._released: set[int] = set()

    def __len__(self) -> int:
        return sum(map(len, self._by_shard.values()))

    def __contains__(self, lease: Lease) -> bool:
        return lease.id in self._by_shard.get(shard_of_lease(lease), ())

    def add(self, shard: int, leases: Iterable[Lease], asked_at: float) -> None:
        """Add *leases*, taken by a call of *asked_at*, which renewed all leases of the shard."""
        self.renew(shard, asked_at)
        held = self._by_shard.setdefault(shard, {})
        held.update((lease.id, lease) for lease in leases)

    def renew(self, shard: int, asked_at: float) -> None:
        """Renew the leases of *shard*. If they had ended before *asked_at*, others may have been
        renewed (the reply that reports the end can be lost), so the shard is asked for its list."""
        if self.count(shard) and asked_at >= self._ends.get(shard, 0.0):
            self.mark_doubtful(shard)
            self._on_doubtful(shard)
        self._ends[shard] = max(self._ends.get(shard, 0.0), asked_at + self._lease_s)

    def release(self, lease: Lease) -> bool:
        """Note that the fetch under *lease*, which is held, has ended. Returns False if that was
        noted before."""
        is_first = lease.id not in self._released
        self._released.add(lease.id)
        return is_first

    def drop(self, lease: Lease) -> None:
        """Remove *lease*: it is finished, or was not used."""
        held = self._by_shard.get(shard_of_lease(lease), {})
        held.pop(lease.id, None)
        self._released.discard(lease.id)

    def expire(self, shard: int, asked_at: float) -> list[Lease]:
        """Remove and return all leases of *shard*: the reply to a call of *asked_at* reported their
        end. Does nothing if a later call renewed the shard."""
        if self._ends.get(shard, 0.0) > asked_at + self._lease_s:
            return []
        self._ends.pop(shard, None)
        lost = self._by_shard.pop(shard, {})
        self._released.difference_update(lost)
        return list(lost.values())

    def drop_ids(self, shard: int, ids: Iterable[int]) -> list[Lease]:
        """Remove and return leases that *shard* no longer knows."""
        held = self._by_shard.get(shard, {})
        forgotten = [held.pop(each) for each in ids if each in held]
        self._released.difference_update(each.id for each in forgotten)
        return forgotten

    def may_begin(self, lease: Lease, steady: float) -> bool:
        """Return whether the server surely knows *lease*, and a fetch begun at *steady* (monotonic)
        ends before it."""
        shard = shard_of_lease(lease)
        if (
            shard in self._doubtful
            or steady - self._server_epochs.asked_at(shard) > MAX_SHARD_SILENCE_S
        ):
            return False
        return lease in self and steady + self._fetch_s < self._ends.get(shard, 0.0)

    def mark_doubtful(self, shard: int) -> None:
        """Note that *shard* may have lost leases of ours."""
        self._doubtful.add(shard)

    def mark_checked(self, shard: int) -> None:
        """Note that *shard* has listed the leases it knows."""
        self._doubtful.discard(shard)

    def shards(self) -> list[int]:
        """Return the shards where our session may exist, even if we hold no lease there: replies
        with leases can be lost."""
        return list(self._ends)

    def ids(self, shard: int) -> set[int]:
        return set(self._by_shard.get(shard, ()))

    def count(self, shard: int) -> int:
        return len(self._by_shard.get(shard, ()))


KEEP_CALLS_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class _AcknowledgedCalls:
    at: float  # monotonic
    calls: Sequence[Call]


class Journal:
    """Acknowledged calls that may not be on the server's disk yet. With appendfsync everysec, one
    that crashes loses what it acknowledged in its last second, or two if its disk is slow. When
    another run of it answers, these calls are sent again: a URL is added once, a lease ends once.

    Bound: what is acknowledged in KEEP_CALLS_S; 150 bytes a link, so 9 MB at 12,000 links a second.
    """

    def __init__(self, server_epochs: ServerEpochs, is_needed: bool = True) -> None:
        """*is_needed* is False if all that is acknowledged is on a disk (appendfsync always)."""
        self._server_epochs = server_epochs
        self._is_needed = is_needed
        self._by_shard: dict[int, deque[_AcknowledgedCalls]] = {}

    def record(self, calls: Sequence[Call], run: bytes, asked_at: float, steady: float) -> None:
        """Keep *calls*, all of one shard, to be sent again if the server loses the first of them,
        which it answered in *run* at *steady*, asked at *asked_at* (both monotonic)."""
        shard = calls[0].shard
        # This comes first: if the run has changed, `observe` calls `recent`, which must not find
        # the new calls.
        self._server_epochs.observe(shard, run, asked_at)
        if not self._is_needed:
            return
        kept = self._by_shard.setdefault(shard, deque())
        kept.append(_AcknowledgedCalls(steady, calls))
        while kept[0].at < asked_at - KEEP_CALLS_S:  # not by the time now: an outage would empty it
            kept.popleft()

    def recent(self, shard: int, alive_at: float) -> list[Call]:
        """Remove and return the calls that the server of *shard* may have lost, if it was alive at
        *alive_at* and crashed after that; oldest first."""
        kept = self._by_shard.pop(shard, ())
        return [call for each in kept if each.at >= alive_at - KEEP_CALLS_S for call in each.calls]


RETRY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """The servers, the clocks and the leases of one worker: what the parts of this module and of
    outgoing.py share."""

    nodes: Nodes
    ops: ShardOperations
    held_leases: HeldLeases
    journal: Journal
    server_epochs: ServerEpochs
    send_later: Callable[[Call], None]  # sends a call, or one that failed, some time soon
    now: Callable[[], float]  # epoch seconds
    steady: Callable[[], float] = monotonic  # seconds that pass, whatever is done to the clock


class LeaseResync:
    """Makes worker and shard agree on the worker's leases after a fault. Calls that the shard may
    have lost are sent again; then it lists our leases. Those whose reply was lost are put back;
    those that it has lost are dropped, because their hosts may be leased to another worker. Until
    then no fetch begins under a lease of the shard."""

    def __init__(self, context: WorkerContext) -> None:
        self._steady = context.steady
        self._nodes = context.nodes
        self._ops = context.ops
        self._held_leases = context.held_leases
        self._journal = context.journal
        self._server_epochs = context.server_epochs
        self._send_later = context.send_later
        self._dirty: set[int] = set()
        self._calls_to_resend: dict[int, list[Call]] = {}
        self._next_at = 0.0  # the earliest time of the next resync, monotonic

    @property
    def is_pending(self) -> bool:
        return bool(self._dirty)

    def mark_dirty(self, shard: int) -> None:
        """Note that *shard* may have leases of ours that we do not know."""
        self._dirty.add(shard)

    def on_server_restart(self, shard: int, alive_at: float) -> None:
        """Note that the server of *shard* restarted after *alive_at* (monotonic)."""
        self._calls_to_resend.setdefault(shard, []).extend(self._journal.recent(shard, alive_at))
        self._held_leases.mark_doubtful(shard)
        self._dirty.add(shard)
        self._next_at = 0.0

    async def run(self) -> list[Lease]:
        """Resync all dirty shards, and return the leases that are not ours any more. Must not
        be called while a `lease` call is under way."""
        asked_at = self._steady()
        if not self._dirty or asked_at < self._next_at:
            return []
        self._next_at = asked_at + RETRY_S
        # A shard that is marked dirty again while the calls are under way is resynced once more.
        shards, self._dirty = sorted(self._dirty), set()
        again = {shard: self._calls_to_resend.pop(shard, []) for shard in shards}
        calls = [[*again[shard], self._ops.list_leases(shard)] for shard in shards]
        answers = iter(await self._nodes.run([call for part in calls for call in part]))
        forgotten: list[Lease] = []
        backs: list[Call] = []
        for shard in shards:
            self._read_resent(again[shard], answers, asked_at)
            forgotten += self._compare(shard, next(answers), asked_at, backs)
        if backs:
            await self._nodes.run(backs)  # the shard stays dirty, so the result is checked
        return forgotten

    def _read_resent(self, calls: Sequence[Call], answers: Iterator[Any], asked_at: float) -> None:
        for call in calls:
            reply = next(answers)
            if isinstance(reply, FAULTS):
                self._send_later(call)
            else:
                self._journal.record([call], reply[0], asked_at, self._steady())

    def _compare(self, shard: int, reply: Any, asked_at: float, backs: list[Call]) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._dirty.add(shard)
            return []
        self._server_epochs.observe(shard, reply[0], asked_at)
        if shard in self._dirty:  # it restarted once more, or this reply is from before that
            return []
        known, held = read_ids(reply, shard), self._held_leases.ids(shard)
        if orphans := known - held:
            backs.append(self._ops.put_back_unused(shard, orphans))
            self._dirty.add(shard)
        self._held_leases.mark_checked(shard)
        return self._held_leases.drop_ids(shard, held - known)


POLL_S: Final = 0.25  # for a shard that has nothing due: another worker may have added to it
POLL_OTHERS_S: Final = 1.0  # for one that another worker prefers
SHARDS_PER_ROUND: Final = 8  # shards asked in one round
MIN_READY_LEASES: Final = 2  # leases to have ready
UNUSED_LEASE_S: Final = 5.0
"""A lease that is not used for so long is put back: if the worker dies, the rest of the host is
counted from the time the lease was taken."""
MAX_REFUSED_LEASES: Final = 64  # held leases whose queues are judged; with more, none are asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBufferHooks:
    """The hooks of `LeaseBuffer`: which leases to ask for, and what to do with them."""

    may_ask: Callable[[], bool]
    free_slots: Callable[[Standing], int]  # returns how many fetches of such hosts may begin now
    prepare: Callable[[Sequence[Lease]], Awaitable[None]]  # awaited before leases are used
    on_ready: Callable[[], None]  # called when some can be taken
    on_lost: Callable[[Sequence[Lease]], None]
    """Called when leases expired before they were finished."""
    give_back: Callable[[Lease], None]  # puts back a lease under which nothing was fetched
    on_server_error: Callable[[Any], None]  # called with the Fault of a server


class LeaseBuffer:
    """A small buffer of leases for the crawl, refilled before it is empty. It holds no more than
    the slots use soon, because the hosts of leases in it wait as well. Preferred shards are asked
    first (warm robots and DNS caches, connections), the others when those have nothing due."""

    def __init__(
        self,
        context: WorkerContext,
        lease_resync: LeaseResync,
        max_leases: int,
        refused_leases: RefusedLeases | None,
        hooks: LeaseBufferHooks,
    ) -> None:
        """At most *max_leases* are fetched at once. Without *refused_leases* no lease is judged."""
        self._steady = context.steady
        self._nodes = context.nodes
        self._ops = context.ops
        self._held_leases = context.held_leases
        self._lease_resync = lease_resync
        self._server_epochs = context.server_epochs
        self._most = max_leases
        self._now = context.now
        self._send_later = context.send_later
        self._refused_leases = refused_leases
        self._hooks = hooks
        self._ready: deque[Lease] = deque()
        self.is_calling = False  # a `lease` or `remove_refused` call is under way
        self._taken: Counter[Standing] = Counter()  # leases that `take` gave since the last round
        self._was_emptied = True
        self._ask_at = dict.fromkeys(range(context.ops.shards), 0.0)
        self._rotation: deque[int] = deque(range(context.ops.shards))
        self._wake = asyncio.Event()
        self._preferred: frozenset[int] = frozenset()

    def prefer(self, shards: frozenset[int]) -> None:
        """Ask *shards* first from now on."""
        self._preferred = shards

    def take(self, standings: Container[Standing] = STANDINGS) -> Lease | None:
        """Return a lease that may be used, of a host of *standings*. Returns None if none is ready;
        `LeaseBufferHooks.on_ready` is called when one is."""
        steady = self._steady()
        for _ in range(len(self._ready)):
            lease = self._ready.popleft()
            if lease.pace.standing not in standings:
                self._ready.append(lease)
            elif self._held_leases.may_begin(lease, steady):
                self._taken[lease.pace.standing] += 1
                self._wake.set()
                return lease
            elif lease in self._held_leases:
                self._ready.append(lease)  # it ends too soon: the next heartbeat renews it
        self._was_emptied = True
        self._wake.set()
        return None

    def __len__(self) -> int:
        return len(self._ready)

    def has_lease(self, standings: Container[Standing] = STANDINGS) -> bool:
        """Return whether `take` would return a lease."""
        steady = self._steady()
        return any(
            lease.pace.standing in standings and self._held_leases.may_begin(lease, steady)
            for lease in self._ready
        )

    def take_all(self) -> list[Lease]:
        """Remove and return all leases in the buffer, to be put back."""
        leases = [lease for lease in self._ready if lease in self._held_leases]
        self._ready.clear()
        if self._refused_leases is not None and not self.is_calling:
            leases += (
                lease for lease in self._refused_leases.take_all() if lease in self._held_leases
            )
        return leases

    def wake_shard(self, shard: int, in_s: float) -> None:
        """Note that something of *shard* may be due *in_s* from now."""
        at = self._steady() + in_s
        if at < self._ask_at[shard]:
            self._ask_at[shard] = at
            self._wake.set()

    def mark_dirty(self, shard: int) -> None:
        """Note that *shard* may have leases of ours that we do not know."""
        self._lease_resync.mark_dirty(shard)
        self._wake.set()

    async def work(self) -> None:
        """Refill the buffer until cancelled."""
        while True:
            await self._resync()
            self._give_back_unused()
            wanted = self._wanted()
            shards = self._next_shards() if wanted else []
            if shards:
                await self._ask(shards, wanted)
            if self._refused_leases:
                await self._apply_refusals(self._refused_leases)
            elif not shards:
                await self._wait(bool(wanted))

    def _wanted(self) -> dict[Standing, int]:
        """Return how many leases to ask for, by standing, the best first; zeros are left out."""
        if not self._hooks.may_ask():
            return {}
        if self._refused_leases is not None and (
            not self._refused_leases.may_judge or len(self._refused_leases) >= MAX_REFUSED_LEASES
        ):
            return {}
        steady = self._steady()
        # Leases of a server that is down cannot be used, and must not take the place of others.
        usable = Counter(
            lease.pace.standing
            for lease in self._ready
            if self._held_leases.may_begin(lease, steady)
        )
        wanted = {}
        for standing in STANDINGS:
            # Twice as many as were taken since the last round: enough for a round trip.
            target = max(MIN_READY_LEASES, 2 * self._taken[standing])
            if self._was_emptied and not usable[standing]:
                target = max(target, 2 * MIN_READY_LEASES)
            # Fetches of hosts that answer free their slots soon; others may hold them for long.
            most = self._most
            if standing is not Standing.ANSWERS:
                most = min(most, self._hooks.free_slots(standing))
            more = min(min(target, most) - usable[standing], 2 * self._most - len(self._ready))
            if more > 0:
                wanted[standing] = more
        return wanted

    def _next_shards(self) -> list[int]:
        steady = self._steady()
        due = [shard for shard in self._rotation if self._ask_at[shard] <= steady]
        own = [shard for shard in due if shard in self._preferred]
        chosen = (own or due)[:SHARDS_PER_ROUND]
        for shard in chosen:
            self._rotation.remove(shard)
            self._rotation.append(shard)
        return chosen

    async def _ask(self, shards: Sequence[int], wanted: Mapping[Standing, int]) -> None:
        each = {standing: -(-number // len(shards)) for standing, number in wanted.items()}
        asked_at = self._steady()
        self._taken, self._was_emptied = Counter(), False
        self.is_calling = True
        try:
            replies = await self._nodes.run([self._ops.lease(shard, each) for shard in shards])
            given: list[Lease] = []
            for shard, reply in zip(shards, replies, strict=True):
                given += self._read_leases(shard, reply, asked_at)
            if given and self._refused_leases is not None:
                given = await self._judge(given, self._refused_leases)
            if given:
                await self._hooks.prepare(given)
        finally:
            self.is_calling = False
        self._ready += given
        if self._ready:
            self._hooks.on_ready()

    async def _judge(self, given: list[Lease], refused_leases: RefusedLeases) -> list[Lease]:
        """Return the leases of *given* that the rules of this start admit."""
        budgets, asks = refused_leases.budget_commands(given)
        replies = await self._nodes.commands(asks) if asks else []
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if not faults:
            return refused_leases.admit(given, budgets, replies)
        self._hooks.on_server_error(faults[0])
        for lease in given:
            self._hooks.give_back(lease)
        return []

    async def _apply_refusals(self, refused_leases: RefusedLeases) -> None:
        """Judge some of the URLs that wait behind refused ones."""
        self.is_calling = True
        try:
            answered = refused_leases.take_replies(await self._nodes.run(refused_leases.calls()))
        finally:
            self.is_calling = False
        for lease in answered.ended:
            self._held_leases.drop(lease)
            self.wake_shard(shard_of_lease(lease), 0.0)
        if answered.faults:
            self._hooks.on_server_error(answered.faults[0])
            await asyncio.sleep(RETRY_S)
        if answered.admitted:
            await self._hooks.prepare(answered.admitted)
            self._ready += answered.admitted
            self._hooks.on_ready()

    def _read_leases(self, shard: int, reply: Any, asked_at: float) -> list[Lease]:
        if isinstance(reply, FAULTS):
            self._ask_at[shard] = self._steady() + RETRY_S
            self._lease_resync.mark_dirty(shard)
            self._hooks.on_server_error(reply)
            return []
        self._server_epochs.observe(shard, reply[0], asked_at)
        leased = read_leases(reply, shard, self._now())
        if leased.has_expired:
            self.expire_shard(shard, asked_at)
        poll_s = POLL_S if shard in self._preferred else POLL_OTHERS_S
        wake_s = poll_s if leased.wake_s is None else min(leased.wake_s, poll_s)
        self._ask_at[shard] = self._steady() + wake_s
        if leased.unreadable:
            self._send_later(self._ops.finish_unreadable(shard, leased.unreadable, self._now()))
        if leased.leases:
            self._held_leases.add(shard, leased.leases, asked_at)
        return leased.leases

    def expire_shard(self, shard: int, asked_at: float) -> None:
        """Drop all leases of *shard*: the reply to a call of *asked_at* reported their end."""
        lost = self._held_leases.expire(shard, asked_at)
        if lost:
            self._hooks.on_lost(lost)

    def _give_back_unused(self) -> None:
        oldest = self._now() - UNUSED_LEASE_S
        old = [lease for lease in self._ready if lease.taken_at < oldest]
        for lease in old:
            self._ready.remove(lease)
            if lease in self._held_leases:
                self._hooks.give_back(lease)

    async def _resync(self) -> None:
        """Resync here, in the one task that asks for leases, so that none is under way."""
        forgotten = await self._lease_resync.run()
        if forgotten:
            self._hooks.on_lost(forgotten)

    async def _wait(self, is_wanted: bool) -> None:
        first = min(self._ask_at.values())
        wait_s = max(0.005, min(first - self._steady(), POLL_OTHERS_S)) if is_wanted else POLL_S
        self._wake.clear()
        if self._lease_resync.is_pending:
            wait_s = min(wait_s, RETRY_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()


HEARTBEAT_RETRY_S: Final = 1.0  # the interval after a heartbeat that some server did not answer


class Heartbeat:
    """Renews all leases of a worker, shard by shard. So slow storage lets no lease expire; only a
    worker that does not reach its servers loses them."""

    def __init__(
        self,
        context: WorkerContext,
        lease_buffer: LeaseBuffer,
        every_s: float,
        on_ready: Callable[[], None],
    ) -> None:
        """*on_ready* is called when leases can be taken."""
        self._steady = context.steady
        self._nodes = context.nodes
        self._ops = context.ops
        self._held_leases = context.held_leases
        self._lease_buffer = lease_buffer
        self._server_epochs = context.server_epochs
        self._every_s = every_s
        self._on_ready = on_ready
        self._next_at = 0.0  # the time of the next one, monotonic

    async def work(self) -> None:
        """Send heartbeats until cancelled. It is a task of its own, so that other calls to a server
        that hangs do not delay it."""
        while True:
            await self.beat()
            await asyncio.sleep(max(0.0, self._next_at - self._steady()))

    async def beat(self) -> None:
        """Send a heartbeat if it is time for one."""
        asked_at = self._steady()
        if asked_at < self._next_at:
            return
        shards = self._held_leases.shards()
        replies = await self._nodes.run([self._ops.renew_leases(shard) for shard in shards])
        for shard, reply in zip(shards, replies, strict=True):
            if isinstance(reply, FAULTS):
                # The lost reply may have reported the end of leases.
                self._lease_buffer.mark_dirty(shard)
            else:
                self._server_epochs.observe(shard, reply[0], asked_at)
                self._take_reply(shard, bool(reply[1]), int(reply[2]), asked_at)
        is_whole = not any(isinstance(reply, FAULTS) for reply in replies)
        self._next_at = asked_at + (self._every_s if is_whole else HEARTBEAT_RETRY_S)
        if len(self._lease_buffer):
            self._on_ready()  # leases that would have ended too soon can be used now

    def _take_reply(self, shard: int, has_lost: bool, held: int, asked_at: float) -> None:
        """Take the reply of *shard*, which knows *held* leases of ours."""
        if has_lost:
            self._lease_buffer.expire_shard(shard, asked_at)
            return
        self._held_leases.renew(shard, asked_at)
        if held > self._held_leases.count(shard):
            self._lease_buffer.mark_dirty(shard)

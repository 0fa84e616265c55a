"""The frontier that workers share, as the crawl sees it: a port that never waits.

Rule: what the crawl calls only takes from memory and puts into memory. One task fills it with
leases, one empties it, one looks after the rest once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final

from msgspec.structs import replace

from crawler.frontier.port import LeaseRules
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Claim,
    Counts,
    CrawlerError,
    Lease,
    PutBack,
    Rest,
    Standing,
    StoreUnavailable,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerSaid, claim_of
from crawler.shared.faults import FAULTS, Unreachable
from crawler.shared.keys import Scripts
from crawler.shared.shard import BATCH, Ops
from crawler.shared.sieve import Sieve, readmissions
from crawler.shared.worker.leases import Heartbeat, Holdings, Incoming, Journal, Reckoning, Runs
from crawler.shared.worker.membership import Membership, bury
from crawler.shared.worker.outgoing import SURE_S, Drain, Events, Outbox, Outgoing
from crawler.shared.worker.status import (
    Fullness,
    Listener,
    OutboxNote,
    Overview,
    SharedRules,
    Tidings,
)

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
READMITTED_AT_ONCE: Final = 500  # judged in 4 ms
CLOSE_S: Final = 10.0  # then what is not told is left: its leases end, and its URLs come back


class SharedFrontier:
    """Implements scheduler.ports.Frontier for one worker."""

    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        outbox: Outbox,
        rules: SharedRules,
        listener: Listener,
        say: Callable[[], WorkerSaid],
        now: Callable[[], float],
        lease_rules: LeaseRules | None = None,
    ) -> None:
        self.nodes = nodes
        self._ops = ops
        self._outbox = outbox
        self._rules = rules
        self._say = say
        self._now = now
        self._runs = Runs()
        journal = Journal(self._runs, is_needed=not rules.is_sure)
        tidings = self._tidings = Tidings(listener, rules.name)
        self.paused = tidings.paused  # is to be told of our full disk
        self._holdings = Holdings(rules.lease_s, rules.fetch_s, self._runs)
        events = Events(
            listener.added, listener.refused, tidings.crowded, tidings.paused, tidings.failed
        )
        self.outgoing = Outgoing(
            *(nodes, ops, self._holdings, outbox, events, now, journal),
            *(rules.is_sure, rules.sync_outbox),
        )
        self._reckoning = Reckoning(nodes, ops, self._holdings, journal, self._runs)
        self._lease_rules = lease_rules
        sieve = Sieve(ops, rules.name, lease_rules) if lease_rules is not None else None
        self._unjudged = set(range(rules.shards)) if lease_rules is not None else set()
        self.incoming = Incoming(
            *(nodes, ops, self._holdings, self._reckoning, self._runs),
            *(rules.most_leases, now, sieve),
        )
        self.membership = Membership(nodes, Scripts(), rules.name, rules.shards, self._said)
        self._note = OutboxNote(nodes, ops, say().name, outbox)
        self._fullness = Fullness(nodes, rules.full_bytes)
        sure_s = 0.0 if rules.is_sure else SURE_S
        self._drain = Drain(nodes, ops, outbox, self._fullness.is_full, events, self._runs, sure_s)
        self._heartbeat = Heartbeat(
            nodes, ops, self._holdings, self.incoming, self._runs, rules.heartbeat_s
        )
        self._overview = Overview(nodes, ops, rules.name, self._runs)
        self._background: list[asyncio.Task[None]] = []
        self._state = "starting"
        self._disk_full_at = float("-inf")  # monotonic
        self.confirm: Callable[[], Awaitable[None]] | None = None
        """Asked after a server came back: is the crawl still the one that we joined?"""
        self._is_confirmed = True
        self.on_claimed: Callable[[int, Claim], None] = lambda *_: None  # of a lease: it is told
        self.on_tick: list[Callable[[], Awaitable[None]]] = []
        self.on_end: Callable[[], None] = lambda: None  # what is gathered elsewhere is to be told
        self.is_elsewhere: Callable[[], bool] = lambda: False
        self.doors: Callable[[], int] = lambda: 0  # hosts that seeds have opened, as known here
        self._connect()

    def _connect(self) -> None:
        self.outgoing.full = self._fullness.is_full
        self.outgoing.touched = self.incoming.touched
        self.outgoing.is_outbox_known = self._note.is_noted
        self.incoming.may_ask = self._may_ask
        self.incoming.give_back = self._give_back
        self.incoming.tell = self.outgoing.tell
        self._runs.on_change = self._changed
        self._runs.on_gone = self._tidings.gone
        self._holdings.on_doubt = self.incoming.suspect
        self._reckoning.tell = self.outgoing.tell
        self.incoming.failed = self._tidings.faulted
        self.incoming.lost = self._tidings.lost

    # The port

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        """What became of them is told to the listener."""
        links = list(found)
        self.outgoing.add(links)
        self._overview.begin_again()
        return Added(undecided=len(links))

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        leases: list[Lease] = []
        if self._is_disk_full():
            return leases
        while len(leases) < limit and (lease := self.incoming.take(standings)) is not None:
            leases.append(lease)
        return leases

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        held = lease in self._holdings
        if held:
            self.outgoing.release(lease, rest)
        else:
            self.outgoing.rest(lease, rest, monotonic())
        return held

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        held = lease in self._holdings
        if held:
            self.outgoing.finish(lease, verdict)
            if (claim := claim_of(verdict)) is not None:
                self.on_claimed(lease.id, claim)
        return held

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        return 0.0 if self.incoming.has_some(standings) and not self.is_congested() else None

    def counts(self) -> Counts:
        """Of the whole crawl, a second old."""
        return self._overview.counts()

    def may_begin(self, lease: Lease) -> bool:
        return self._holdings.may_begin(lease, monotonic())

    def is_over(self) -> bool:
        if self._state == "starting" and self.outgoing.is_idle():
            self._state = "working"  # what the crawl begins with is where everybody sees it
        return self._overview.is_over

    def is_anything_left(self) -> bool:
        """In the shards, as far as this worker has looked: while it has work it does not look."""
        return self._overview.is_anything_left

    def is_congested(self) -> bool:
        return self._is_disk_full() or self.outgoing.is_congested()

    def _is_disk_full(self) -> bool:
        return monotonic() - self._disk_full_at < 2 * TICK_S

    def disk_full(self, full: StoreUnavailable) -> bool:
        """Our disk has no room for what was fetched: nothing more is leased for a moment, and the
        leases that are held are renewed. Returns whether to try again: not at the end."""
        self._disk_full_at = monotonic()
        self._tidings.disk_full(full)
        return self._state != "stopping" and not self._tidings.is_hopeless

    def on_due(self, wake: Callable[[], None]) -> None:
        self.incoming.on_due = wake

    # The life of a worker

    def begin(self) -> None:
        """Call it when the loop runs, and the servers were opened."""
        self._background = [asyncio.ensure_future(self._kept(self._work))]

    def stopping(self) -> None:
        """Nothing more is leased; what is ready goes back."""
        self._state = "stopping"
        for lease in self.incoming.empty():
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        """Nothing was fetched under it."""
        self.outgoing.release(lease, Rest(0.0, lease.pace, "unused"))
        self.outgoing.finish(lease, PutBack())

    async def close(self) -> None:
        """All is told, or it comes back by itself when the leases end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._told(), CLOSE_S)
        for work in self._background:
            work.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.outgoing.keep()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._leave(), CLOSE_S)
        await self.nodes.close()

    async def _leave(self) -> None:
        rests = self.outgoing.untold_rests()
        told = zip(rests, await self.nodes.run(rests), strict=True)
        unrested = {call.shard for call, reply in told if isinstance(reply, FAULTS)}
        # What never reached us, mostly. Where a host's rest is not told, its lease ends with its
        # time, so that the host is left alone at least so long.
        await bury(self.nodes, self._ops, self._ops.session, unrested)
        if not len(self._outbox):
            await self._note.look_after()
            await self.membership.leave()

    async def _work(self) -> None:
        await self._reach()
        incoming, outgoing, heartbeat = self.incoming, self.outgoing, self._heartbeat
        async with asyncio.TaskGroup() as group:
            works = (outgoing.work, incoming.work, heartbeat.work, self._look_after, self._readmit)
            for work in works:
                group.create_task(self._kept(work))

    async def _reach(self) -> None:
        while True:
            try:
                return await self.nodes.open()
            except Unreachable as fault:
                self._tidings.faulted(fault)
                await asyncio.sleep(TICK_S)

    async def _told(self) -> None:
        self.on_end()
        self.stopping()
        while self.incoming.is_asking or not self.outgoing.is_idle():
            if self._tidings.is_hopeless:
                return
            await asyncio.sleep(0.01)
            self.stopping()  # what has come meanwhile goes back too

    async def _kept(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except CrawlerError as error:
            self._tidings.failed(error)
        except Exception as bug:
            logger.exception("The shared frontier has failed")
            self._tidings.failed(StoreUnavailable(f"the shared frontier has failed: {bug!r}"))

    async def _look_after(self) -> None:
        while True:
            heard = await self.membership.announce()
            if heard:
                self.incoming.preferred = self.membership.preferred
            await self._fullness.look()
            for server in self._fullness.full:
                self._tidings.crowded(server)
            await self._drain.some(self._now())
            await self._note.look_after()
            for tick in self.on_tick:
                await tick()
            await self._confirm()
            await self._look(heard)
            await asyncio.sleep(TICK_S)

    async def _readmit(self) -> None:
        """Once: what earlier starts refused and the rules of this one admit waits again."""
        rules = self._lease_rules
        while rules is not None and self._unjudged:
            await asyncio.sleep(0 if rules.known else TICK_S)
            if rules.known:
                shard = min(self._unjudged)
                try:
                    await self._readmit_shard(shard, rules)
                except StoreUnavailable as fault:
                    logger.debug("What was refused before cannot be read now: %s", fault)
                    await asyncio.sleep(TICK_S)
                else:
                    self._unjudged.discard(shard)

    async def _readmit_shard(self, shard: int, rules: LeaseRules) -> None:
        key = keys.refused_urls(self._rules.name, shard)
        cursor = b"0"
        while True:
            (reply,) = await self.nodes.commands(
                [(shard, ("HSCAN", key, cursor, "COUNT", READMITTED_AT_ONCE))]
            )
            if isinstance(reply, FAULTS):
                raise reply
            cursor, found = reply
            pairs = list(zip(found[::2], found[1::2], strict=True))
            for part in readmissions(pairs, rules, BATCH):
                (told,) = await self.nodes.run([self._ops.readmit(shard, part)])
                if isinstance(told, FAULTS):
                    raise told
                rules.readmitted(int(told[1]))
                self.incoming.touched(shard, 0.0)
            if cursor == b"0":
                return

    async def _confirm(self) -> None:
        if self._is_confirmed or self.confirm is None:
            return
        with suppress(StoreUnavailable):
            await self.confirm()
            self._is_confirmed = True

    async def _look(self, heard: bool) -> None:
        is_elsewhere = self._is_elsewhere
        fault = await self._overview.look(self._is_busy(), lambda: not heard or is_elsewhere())
        if fault is not None:
            self._tidings.faulted(fault)
        elif not self._overview.is_anything_left:
            self._tidings.awaits(await self._silent_outboxes())
        self._tidings.look()
        if self._overview.is_over or self._state == "starting" or len(self.incoming):
            self.incoming.on_due()  # the engine asks, and is told

    def _changed(self, shard: int, alive_at: float) -> None:
        self._is_confirmed = False
        self._reckoning.changed(shard, alive_at)
        self.incoming.suspect(shard)

    async def _silent_outboxes(self) -> dict[str, int]:
        """Links on the disks of workers that are not heard of, by their names, as last said."""
        noted = self._overview.outboxes - {self._say().name}
        with suppress(StoreUnavailable):
            return await self.membership.silent(noted)
        return {}

    def _is_busy(self) -> bool:
        return self._state != "working" or not self.outgoing.is_idle() or len(self._holdings) > 0

    def _is_elsewhere(self) -> bool:
        is_judging = bool(self._unjudged)
        return is_judging or self._is_busy() or self.membership.starting > 0 or self.is_elsewhere()

    def _may_ask(self) -> bool:
        return self._state != "stopping" and not self.is_congested() and not self._overview.is_over

    def _said(self) -> WorkerSaid:
        return replace(
            self._say(),
            state=self._state,
            leases=len(self._holdings),
            outbox=len(self._outbox),
            doors=self.doors(),
            preferred=len(self.membership.preferred),
        )

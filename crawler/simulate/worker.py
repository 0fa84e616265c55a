"""A worker of a simulated crawl over owned shards: a process with the tasks that claim shards, send
their batches and read their inboxes, over simulated servers.

Rule: as of a process alone, no decision is made here. It may be killed between any two steps, also
of its tasks; what only it knew is lost, but for its outbox, which is on its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import Frontier, LeaseRules
from crawler.frontier.shards import Shards, shard_of
from crawler.loop.loop import Durability
from crawler.loop.precheck import OtherWorkers
from crawler.loop.slots import Slots
from crawler.model.choices import HostUnit
from crawler.model.types import CrawlerError, Lease, Outcome, StoreUnavailable, Verdict
from crawler.shared import keys
from crawler.shared.codec import ALIVE_S
from crawler.shared.crawl_format import CrawlFormat
from crawler.shared.keys import root
from crawler.shared.owned.addresses import SLICE, LeasedAddresses
from crawler.shared.owned.frontier import OwnedFrontier, OwnedHooks
from crawler.shared.owned.handover import ShardHolder
from crawler.shared.owned.inbox import VERDICT_DELAY_S, LinkPushes
from crawler.shared.owned.leader import PlanLeader
from crawler.shared.owned.owner import OwnedShard
from crawler.shared.owned.readings import OUTBOXES, is_over, read_rests
from crawler.shared.owned.robots_results import host_of
from crawler.shared.owned.rounds import RoundFollower
from crawler.shared.owned.scripts import AddressCommands, ClaimedShard, InboxCommands, ShardCommands
from crawler.shared.worker.outbox import Outbox, Overflow
from crawler.simulate.disk import Disk
from crawler.simulate.event_loop import SimulatedEventLoop
from crawler.simulate.process import Machine, Policy, Process
from crawler.simulate.redis_servers import NAME, SCRIPTS, RedisServers, SimulatedNodes
from crawler.simulate.run_log import Loss, RunLog
from crawler.simulate.servers import Servers

_ANNOUNCED_EVERY_S: Final = 1.0
_ROUNDS_EVERY_S: Final = 1.0
_END_LOOK_S: Final = 2.0  # between two looks whether the crawl is over
_ALIVE: Final = keys.announced(NAME)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCrawl:
    """What a worker finds when it starts."""

    redis: RedisServers
    format: CrawlFormat
    lease_s: float  # of a shard
    sessions: Sequence[str]  # earlier ones of this worker


class _WatchedFrontier(OwnedFrontier):
    """Notes which shards it has, and which verdicts wait for links."""

    def __init__(self, on_closed: Callable[[], None], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.owners: dict[int, OwnedShard] = {}
        self._on_closed = on_closed
        self._moved: list[Lease] = []

    async def load(
        self,
        commands: ShardCommands,
        claimed: ClaimedShard,
        claimed_at_s: float,
        on_noted: Callable[[], None],
    ) -> OwnedShard:
        owner = await super().load(commands, claimed, claimed_at_s, on_noted)
        self.owners[commands.shard] = owner
        return owner

    def is_over(self) -> bool:
        return False  # that is for all workers to decide

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        is_held = super().finish(lease, verdict, now)
        self._moved.append(lease)
        return is_held

    def has_waiting_verdicts(self) -> bool:
        """Return whether a verdict that was given waits for a link of its page."""
        self._moved = [lease for lease in self._moved if self.frontier.holds(lease)]
        return bool(self._moved)

    def close(self, shard: int) -> None:
        super().close(shard)
        self._on_closed()

    async def drop(self, shard: int) -> None:
        await super().drop(shard)
        del self.owners[shard]


class SimulatedWorker(Process):
    """A worker from its start to its end or its death."""

    owned: _WatchedFrontier

    def __init__(
        self,
        name: str,
        crawl: SharedCrawl,
        disk: Disk,
        policy: Policy,
        machine: Machine,
        servers: Servers,
        log: RunLog,
        *,
        seeds: Sequence[str],
        now: float,
        random: Random,
        steps: int,
    ) -> None:
        """*steps*: after so many it is killed; 0: never."""
        self.name, self._crawl = name, crawl
        self.has_seen_end = False
        self.has_left = False  # in good order
        log.synced[len(log.starts)].append(now)
        self._shards = Shards(crawl.format.shards)
        self._are_seeds_durable = False
        self._is_woken = False  # leases may be acknowledged that were not
        self._is_leaving = False
        self._rounds: RoundFollower | None = None
        self._noted: bool | None = None  # whether Redis says that it has links on its disk
        super().__init__(
            *(disk, policy, machine, servers, log),
            seeds=seeds,
            now=now,
            random=random,
            steps=steps,
        )
        with self._loop.running():
            self.owned.begin(self._holder.sender)
            self._tasks = [
                self._begin(work)
                for work in (self._announce(), self._holder.run(), self._look_for_end())
            ]
            if self._leases is not None:
                self._begin(self._leases.run(self.local_frontier))
            if self._rounds is not None:
                self._begin(self._follow_rounds(self._rounds))

    def _open(self, policy: Policy, rules: LeaseRules, slots: Slots) -> Frontier:
        crawl, disk, shards = self._crawl, self._disk, self._crawl.format.shards
        self._loop = SimulatedEventLoop(self.clock, self._schedule)  # type: ignore[abstract]  # nothing else of it is called
        self._nodes = nodes = SimulatedNodes(
            *(crawl.redis, shards, self._loop, self._schedule), self._note_unsent
        )
        politeness, limits = policy.config.politeness, self._machine.frontier
        if limits.rounds is not None:
            limits = replace(limits, rounds=replace(limits.rounds, are_led=True))
        self._leases = None
        if politeness.host_unit is HostUnit.ADDRESS:
            self._leases = LeasedAddresses(
                nodes,
                AddressCommands(SCRIPTS, NAME, f"{self.name}/{self.number}"),
                steady=self.clock,
                now=self.clock,
                slice_s=SLICE * crawl.lease_s,
                after_s=limits.longest_address_rest_s,
            )
        self.owned = _WatchedFrontier(
            partial(self._note_loss, even_sent=True),
            disk.folder / str(self.number),
            MemoryStore(),
            nodes,
            replace(limits, address_wait_s=politeness.address_wait_s),
            shards=shards,
            now=self.clock,
            steady=self.clock,
            background=self._turns,
            hooks=OwnedHooks(
                free_slots=slots.free_slots,
                wake=self._wake,
                on_failed=self._fail,
                waits_for_room=lambda _: False,
                is_full=lambda _: False,
                on_taken_in=lambda: self.patterns.forget(),
                on_lost=lambda _: None,
                on_pushed=lambda _, __: None,
                on_robots=lambda authority, result: self.loop.precheck.take_robots_result(
                    authority, result, self.now
                ),
            ),
            rests={},
            settle_s=0.0 if nodes.single_server else VERDICT_DELAY_S,
            lease_rules=rules,
            addresses=self._servers if self._leases is not None else None,
            address_leases=self._leases,
        )
        self.local_frontier = self.owned.frontier
        if limits.rounds is not None:
            self._rounds = RoundFollower(
                *(nodes, SCRIPTS, f"{self.name}/{self.number}", limits.rounds),
                self.local_frontier.rounds,
                lease_s=crawl.lease_s + 2 * _ROUNDS_EVERY_S,
                run_began_at=0.0,
                wake=self._wake,
            )
        self._outbox = Outbox(disk.store, partial(shard_of, shards=shards))
        overflow = Overflow(
            outbox=self._outbox,
            is_full=lambda _: False,
            ensure_noted=self._note_outbox,
            sync=None,
        )
        self._pushes = LinkPushes(
            *(lambda shard: InboxCommands(SCRIPTS, NAME, shard), shards, b"%d." % self.number),
            overflow,
            on_fault=self._note_fault,
        )
        is_first = not crawl.format.begun
        self._leader = PlanLeader(
            *(nodes, SCRIPTS, crawl.format, self.name, self.clock),
            *([0.0] if is_first else []),
        )
        self._holder = ShardHolder(
            *(nodes, SCRIPTS, self._leader, self.owned, self._pushes),
            worker=self.name,
            session=f"{self.number}",
            dead_sessions=crawl.sessions,
            lease_s=crawl.lease_s,
            longest_fetch_s=self._machine.frontier.longest_fetch_s,
            settle_s=VERDICT_DELAY_S,
            now_s=self.clock,
            on_arrived=self.owned.on_arrived,
            on_failed=self._fail,
        )
        return self.owned

    def _other_workers(self) -> OtherWorkers:
        return OtherWorkers(
            lambda authority: not self.owned.owns(host_of(authority)), self.owned.send_robots
        )

    def _durability(self) -> Durability:
        return self._syncs  # a verdict waits for the links of its page in any case

    def append(self, outcome: Outcome) -> None:
        self.log.log([outcome])

    # Events

    def advance_to(self, now: float) -> None:
        """Do the next event at *now*, or later than it was planned if the process stood still."""
        self.now = max(self.now, now)
        with self._loop.running():
            self.advance()

    def put_in_force(self, text: str, at: float) -> None:
        with self._loop.running():
            super().put_in_force(text, at)

    def end_turn(self) -> None:
        super().end_turn()
        while self._loop.is_ready:
            self._loop.run_ready(self._step)
            super().end_turn()
        if self._nodes.take_answered() and self._is_synced():
            self.log.synced[self.number].append(self.now)

    def _wake(self) -> None:
        self._is_woken = True
        self._allow_lease()

    def _is_lease_due(self) -> bool:
        is_due = super()._is_lease_due()
        is_free = self.loop.slots.free_standings() and not self.loop.is_crowded()
        return is_due or (self._is_woken and bool(is_free))

    def _lease(self) -> bool:
        took = super()._lease()
        self._is_woken &= took
        return took

    @property
    def is_over(self) -> bool:
        return self.has_seen_end

    def stand_still(self, now: float) -> None:
        """Note that the process stands still: what is under way may be of no use to it."""
        self.now = max(self.now, now)
        self._note_loss()
        for hit in self.log.under_way(self.now, self.number):
            hit.is_doubtful = True

    def kill(self) -> None:
        self._note_loss()
        self._loop.abandon()

    def leave(self) -> None:
        """Begin to stop in good order."""
        self._is_leaving = True
        announcing, holding, _ = self._tasks
        announcing.cancel()
        holding.cancel()
        self._begin(self._leave())

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work)

    def _note_loss(self, *, even_sent: bool = False) -> None:
        synced_at = self.log.synced[self.number][-1]
        self.log.losses.append(Loss(synced_at, self.now, self.number, even_sent))

    def _note_unsent(self, sent_at: float, at: float) -> None:
        self.log.losses.append(Loss(sent_at, at, self.number, even_sent=True))

    def _is_synced(self) -> bool:
        """Return whether Redis has all that this worker has noted, in the present run of each
        server."""
        servers = self._crawl.redis
        return (
            not self.owned.has_waiting_verdicts()
            and all(
                shard.run == servers.run_of(number) and shard.acked >= shard.mirror.position
                for number, shard in self.owned.owners.items()
            )
            and all(
                not each.is_unsure and each.acked >= each.position and not each.unsent_links
                for each in self._pushes
            )
        )

    def _fail(self, error: CrawlerError) -> None:
        self.log.failure = self.log.failure or f"{self.name} has failed: {error}"

    def _note_fault(self, error: CrawlerError) -> None:
        if not isinstance(error, StoreUnavailable):
            self._fail(error)

    def _schedule_silence_check(self) -> None:
        """Hosts that never answered are given up by their pauses: other workers may have some."""

    # What it does beside the crawl

    def _add_seeds(self) -> None:
        super()._add_seeds()
        self._begin(self._wait_for_seeds())

    async def _wait_for_seeds(self) -> None:
        await self.owned.wait_until_durable()
        self._are_seeds_durable = True

    def _sync(self) -> None:
        self._disk.sync_records()
        self._begin(self._finish_pages(self._syncs.take()))

    async def _finish_pages(self, finishes: Sequence[Callable[[None], None]]) -> None:
        """Finish pages when Redis has their links."""
        await self.owned.wait_until_durable()
        for finish in finishes:
            finish(None)
            self._step()
        self._allow_lease()

    async def _announce(self) -> None:
        while True:
            await self._nodes.command(_ALIVE, "ZADD", _ALIVE, self.now, self.name)
            old = self.now - ALIVE_S
            await self._nodes.command(_ALIVE, "ZREMRANGEBYSCORE", _ALIVE, "-inf", old)
            await asyncio.sleep(_ANNOUNCED_EVERY_S)

    async def _leave(self) -> None:
        await self._nodes.command(_ALIVE, "ZREM", _ALIVE, self.name)
        await self._holder.release_all()
        if self._leases is not None:
            await self._leases.give_all(self.local_frontier)
        if self._rounds is not None:
            with suppress(StoreUnavailable):
                await self._rounds.leave()
        self.has_left = True

    async def _follow_rounds(self, rounds: RoundFollower) -> None:
        frontier = self.local_frontier
        while not self.has_left:
            is_coming = self.owned.is_taking_in or self._holder.is_moving
            is_coming = is_coming or not (self._are_seeds_durable and self._pushes.is_idle())
            with suppress(StoreUnavailable):
                await rounds.step(
                    may_lease_more=not self._is_leaving and frontier.waits(self.now),
                    is_busy=frontier.has_leases or is_coming,
                    has_dates=frontier.has_dates,
                    now=self.now,
                )
            await asyncio.sleep(_ROUNDS_EVERY_S)

    async def _look_for_end(self) -> None:
        shards = self._crawl.format.shards
        while True:
            await asyncio.sleep(_END_LOOK_S)
            await self._note_outbox()
            if not self._are_seeds_durable or len(self.loop.lives):
                continue
            first = await read_rests(self._nodes, NAME, shards)
            second = await read_rests(self._nodes, NAME, shards)
            if first and second and is_over(first, second):
                self.has_seen_end = True
                return

    async def _note_outbox(self) -> bool:
        """Note at a shard whether this worker has links on its disk."""
        has_links = len(self._outbox) > 0
        if self._noted is not has_links:
            key, word = f"{root(NAME, 0)}:{OUTBOXES}", "SADD" if has_links else "SREM"
            reply = await self._nodes.command(key, word, key, self.name)
            self._noted = None if isinstance(reply, StoreUnavailable) else has_links
        return self._noted is not None

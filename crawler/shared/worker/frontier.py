"""The frontier of one worker of a shared crawl: the non-blocking port, and its background tasks.

Rule: the methods that the crawl calls use only memory. Background tasks take leases, send results,
send heartbeats, and do the rest once a second.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol, Self

from msgspec.structs import replace

from crawler.data.disk_room import DiskRoom
from crawler.frontier.port import LeaseRules
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Claim,
    CrawlerError,
    HostKey,
    HostWork,
    Lease,
    Pace,
    PutBack,
    Rest,
    Standing,
    StoreUnavailable,
    Verdict,
)
from crawler.shared import keys
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord, claim_of
from crawler.shared.faults import FAULTS, Unreachable
from crawler.shared.keys import Scripts
from crawler.shared.longest import LongestReader
from crawler.shared.pushed import PushedContext, PushedUrls, WorkerHooks
from crawler.shared.refused_leases import RefusedLeases, readmissions
from crawler.shared.shard import BATCH, ReleasedLease, ShardOperations, shard_of_lease
from crawler.shared.worker.batcher import ShardClient
from crawler.shared.worker.feeds import CandidateSender, PushedFeeds
from crawler.shared.worker.kept_rests import KeptRests
from crawler.shared.worker.leases import (
    Heartbeat,
    HeldLeases,
    Journal,
    LeaseBuffer,
    LeaseBufferHooks,
    LeaseResync,
    ServerEpochs,
    WorkerContext,
)
from crawler.shared.worker.membership import Membership, return_leases
from crawler.shared.worker.outgoing import (
    VERDICT_DELAY_S,
    LinkOutbox,
    OutboxDrain,
    OutgoingEvents,
    Overflow,
    Sender,
    SideQueue,
)
from crawler.shared.worker.status import (
    FullServers,
    Listener,
    OutboxNote,
    Overview,
    StatusLog,
    WorkerSettings,
)

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
IDLE_POLL_S: Final = 0.01  # the interval of the checks whether all is acknowledged
READMITTED_AT_ONCE: Final = 500  # URLs judged together, in 4 ms
CLOSE_S: Final = 10.0  # after so long unsent results are dropped; their URLs are leased again later


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBase:
    """What all parts of one worker need. It is built before any of them."""

    nodes: Nodes
    ops: ShardOperations
    settings: WorkerSettings
    outbox: LinkOutbox
    kept_rests: KeptRests
    listener: Listener
    status_log: StatusLog
    disk: DiskRoom
    side_queue: SideQueue
    full_servers: FullServers
    make_record: Callable[[], WorkerRecord]
    now: Callable[[], float]
    confirm: Callable[[], Awaitable[None]]
    """Awaited after a server restarted; raises if the crawl is no longer the one that we joined."""
    steady: Callable[[], float]  # seconds that pass, whatever is done to the machine's clock

    @classmethod
    def of(
        cls,
        *,
        nodes: Nodes,
        ops: ShardOperations,
        settings: WorkerSettings,
        outbox: LinkOutbox,
        kept_rests: KeptRests,
        listener: Listener,
        make_record: Callable[[], WorkerRecord],
        now: Callable[[], float],
        confirm: Callable[[], Awaitable[None]],
        steady: Callable[[], float] = monotonic,
    ) -> Self:
        status_log = StatusLog(listener, settings.name, steady)
        return cls(
            nodes=nodes,
            ops=ops,
            settings=settings,
            outbox=outbox,
            kept_rests=kept_rests,
            listener=listener,
            status_log=status_log,
            disk=DiskRoom(
                status_log.wait_warnings,
                "this worker's disk",
                lambda: status_log.is_hopeless,
                steady,
            ),
            side_queue=SideQueue(listener.count),
            full_servers=FullServers(nodes, settings.full_bytes),
            make_record=make_record,
            now=now,
            confirm=confirm,
            steady=steady,
        )

    def shard_client(self) -> ShardClient:
        return ShardClient(
            ops=self.ops,
            run=self.nodes.run,
            send_later=self.side_queue.send_later,
            is_full=self.full_servers.is_full,
            count=self.listener.count,
        )


class Knowledge(Protocol):
    """The records that workers share beside URLs: duplicates, robots.txt, pattern statistics."""

    async def prepare(self, leases: Sequence[Lease]) -> None:
        """Read what other workers have stored about *leases* before these are used."""

    def note_claim(self, lease_id: int, claim: Claim) -> None:
        """Note that *claim*, of the page of that lease, is sent."""

    async def tick(self) -> None:
        """Called once a second."""

    def flush(self) -> None:
        """Send what is gathered, at the end of the crawl."""


class SharedFrontier:
    """Implements frontier.port.Frontier for one worker. It owns its parts; where two of them
    need each other, one is given a method of this class."""

    def __init__(
        self,
        base: WorkerBase,
        knowledge: Knowledge,
        *,
        lease_rules: LeaseRules | None,
        free_slots: Callable[[Standing], int],
        wake: Callable[[], None],
        pushing: PushedContext | None,
    ) -> None:
        """Without *lease_rules* no URL is judged again, without *pushing* none can be pushed.
        *free_slots* returns how many fetches of such hosts may begin; *wake* lets the engine ask.
        """
        nodes, ops, settings = base.nodes, base.ops, base.settings
        self.nodes = nodes
        self.worker = base.make_record().name
        self._base = base
        self._steady = steady = base.steady
        self.ops = self._ops = ops
        self._outbox = base.outbox
        self._settings = settings
        self._knowledge = knowledge
        self._lease_rules = lease_rules
        self._wake = wake
        self._status_log = base.status_log
        self._full_servers = base.full_servers
        self._shards_to_readmit = set(range(settings.shards)) if lease_rules is not None else set()
        self._is_readmission_due = asyncio.Event()
        self._background: list[asyncio.Task[None]] = []
        self._state = "starting"
        self._is_confirmed = True

        server_epochs = ServerEpochs(self._on_server_restart, self._status_log.on_keys_missing)
        journal = Journal(server_epochs, is_needed=not settings.is_ack_durable)
        self._held_leases = HeldLeases(
            settings.lease_s, settings.fetch_s, server_epochs, self._mark_dirty
        )
        self._outbox_note = OutboxNote(nodes, ops, base.make_record().name, base.outbox)
        events = self._events()
        context = WorkerContext(
            nodes=nodes,
            ops=ops,
            held_leases=self._held_leases,
            journal=journal,
            server_epochs=server_epochs,
            send_later=base.side_queue.send_later,
            now=base.now,
            steady=steady,
        )
        overflow = Overflow(
            outbox=base.outbox,
            is_full=self._full_servers.is_full,
            ensure_noted=self._outbox_note.ensure_noted,
            sync=settings.sync_outbox,
        )
        self.sender = Sender(context, base.side_queue, overflow, events, settings.is_ack_durable)
        self._lease_resync = LeaseResync(context)
        refused_leases = (
            RefusedLeases(ops, settings.name, lease_rules) if lease_rules is not None else None
        )
        hooks = self._lease_hooks(free_slots)
        self.lease_buffer = LeaseBuffer(
            context, self._lease_resync, settings.max_leases, refused_leases, hooks
        )
        self._heartbeat = Heartbeat(context, self.lease_buffer, settings.heartbeat_s, wake)
        self.membership = Membership(
            nodes, Scripts(), settings.name, settings.shards, self._record, steady
        )
        durable_after_s = 0.0 if settings.is_ack_durable else VERDICT_DELAY_S
        self._outbox_drain = OutboxDrain(
            context, base.outbox, self._full_servers.is_full, events, durable_after_s
        )
        self._longest = LongestReader(nodes, settings.shards)
        self._overview = Overview(nodes, ops, settings.name, server_epochs, steady)
        self._pushed_urls = self._build_pushed_urls(pushing) if pushing is not None else None

    def _events(self) -> OutgoingEvents:
        listener, status_log = self._base.listener, self._status_log
        return OutgoingEvents(
            on_added=listener.on_added,
            on_refused=listener.on_refused,
            on_server_full=status_log.on_server_full,
            on_disk_full=status_log.on_disk_full_for_links,
            on_failed=status_log.on_failed,
            on_shard_due=self._wake_shard,
        )

    def _lease_hooks(self, free_slots: Callable[[Standing], int]) -> LeaseBufferHooks:
        return LeaseBufferHooks(
            may_ask=self._may_ask,
            free_slots=free_slots,
            prepare=self._knowledge.prepare,
            on_ready=self._wake,
            on_lost=self._status_log.on_leases_lost,
            give_back=self._give_back,
            on_server_error=self._status_log.on_server_error,
        )

    def _build_pushed_urls(self, pushing: PushedContext) -> PushedUrls:
        settings, session = self._settings, self._ops.session
        delivery = CandidateSender(
            self.nodes, self._ops, settings.is_ack_durable, self.lease_buffer.wake_shard
        )
        key = pushing.settings.key
        feeds = PushedFeeds.of(self.nodes, delivery, settings.name, key, session, settings.lease_s)
        hooks = WorkerHooks(
            all_have_read=self.membership.all_have_read,
            may_take=lambda: not self.is_congested(),
            is_idle=lambda: not self.is_anything_left(),
            wake=self._wake,
        )
        return PushedUrls(
            feeds, pushing.reader, pushing.settings, hooks, pushing.stats, self._steady
        )

    # The port

    def add(self, found: Iterable[Candidate], now: float) -> Added:
        """Queue *found* to be sent. The listener gets the result later."""
        links = list(found)
        self.sender.add(links)
        self._overview.mark_unfinished()
        return Added(undecided=len(links))

    def lease(
        self, now: float, limit: int = 1, standings: Sequence[Standing] = STANDINGS
    ) -> list[Lease]:
        leases: list[Lease] = []
        if self._base.disk.is_full:
            return leases
        while len(leases) < limit and (lease := self.lease_buffer.take(standings)) is not None:
            leases.append(lease)
        return leases

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        if lease not in self._held_leases:
            self.sender.rest(lease, rest, self._steady())  # its host was contacted all the same
            return False
        is_first = self._held_leases.release(lease)
        if is_first:
            self.sender.release(lease, rest)
        return is_first

    def note_trouble(self, lease: Lease, rest: Rest, now: float) -> None:
        """Send the rest at once: of a worker that never comes back, Redis knows only what has left
        it. And keep it, for one that does, as Redis may be out of reach."""
        host, kept = lease.candidate.host, self._base.kept_rests
        call = self._ops.rest(shard_of_lease(lease), [ReleasedLease(lease, rest)])
        self.nodes.post(call, lambda: kept.drop(host))
        kept.put(call, now)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        held = lease in self._held_leases
        if held:
            self.sender.finish(lease, verdict)
            if (claim := claim_of(verdict)) is not None:
                self._knowledge.note_claim(lease.id, claim)
        return held

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        return 0.0 if self.lease_buffer.has_lease(standings) and not self.is_congested() else None

    def counts(self) -> Counts:
        """Return the counts of the whole crawl, a second old. From the disks of workers, only the
        links on this one's are in them."""
        return self._overview.counts() + Counts(undecided=self.unsent_links())

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return as port.Frontier.longest_hosts, of the whole crawl, as they were read last."""
        return self._longest.longest_hosts(limit)

    def sampled_paces(self) -> Sequence[Pace]:
        """Return as port.Frontier.sampled_paces, as they were read last."""
        return self._longest.sampled_paces()

    def lag_s(self) -> float:
        """Return the seconds since all servers last answered; they are asked once a second."""
        return self._overview.silent_s

    def unsent_links(self) -> int:
        """Return how many links wait on our disk."""
        return len(self._outbox)

    def judge_again(self) -> None:
        if self._lease_rules is not None:
            self._shards_to_readmit = set(range(self._settings.shards))
            self._is_readmission_due.set()

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        for call in self._ops.end_rests(rests, now):
            self._base.side_queue.send_later(call)
            self.lease_buffer.wake_shard(call.shard, 0.0)

    def may_begin(self, lease: Lease) -> bool:
        return self._held_leases.may_begin(lease, self._steady())

    def is_over(self) -> bool:
        if self._state == "starting" and self.sender.is_idle():
            self._state = "working"  # its seeds are in the shards now
        return self._overview.is_over

    def is_anything_left(self) -> bool:
        """Return whether anything is left in the shards. A busy worker does not look there."""
        return self._overview.is_anything_left

    def is_congested(self) -> bool:
        return self._base.disk.is_full or self.sender.is_congested()

    async def wait_until_durable(self) -> None:
        while not self.sender.is_idle():
            if self._status_log.is_hopeless:
                raise StoreUnavailable("what was found cannot be sent any more")
            await asyncio.sleep(IDLE_POLL_S)

    # Start, stop and background tasks

    def begin(self) -> None:
        """Start the background tasks. The event loop must be running, and the servers open."""
        self._background = [asyncio.ensure_future(self._guard(self._work))]

    def stop_leasing(self) -> None:
        """Take no more leases, and put back those that are not used."""
        self._state = "stopping"
        self._base.disk.stop_waiting()
        for lease in self.lease_buffer.take_all():
            self._give_back(lease)

    def _give_back(self, lease: Lease) -> None:
        """Put back *lease*, under which nothing was fetched."""
        self.sender.release(lease, Rest(0.0, lease.pace, "unused"))
        self.sender.finish(lease, PutBack())

    async def close(self) -> None:
        """Send all results, and leave the crawl. The URLs of results that cannot be sent are leased
        again when their leases expire."""
        if self._pushed_urls is not None:
            self._pushed_urls.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._send_all()
        for work in self._background:
            work.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self.sender.store_unsent_links()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._leave_crawl()
        await self.nodes.close()

    async def _leave_crawl(self) -> None:
        rests = self.sender.unsent_rests()
        replies = zip(rests, await self.nodes.run(rests), strict=True)
        unrested = {call.shard for call, reply in replies if isinstance(reply, FAULTS)}
        # These are mostly leases whose replies were lost. Where a rest could not be sent, leases
        # are left to expire, so that the host is not asked before.
        await return_leases(self.nodes, self._ops, self._ops.session, unrested)
        if not len(self._outbox):
            await self._outbox_note.update()
            await self.membership.leave()

    async def _work(self) -> None:
        await self._connect()
        incoming, outgoing, heartbeat = self.lease_buffer, self.sender, self._heartbeat
        async with asyncio.TaskGroup() as group:
            works = (outgoing.work, incoming.work, heartbeat.work, self._tick_loop, self._readmit)
            for work in works:
                group.create_task(self._guard(work))

    async def _connect(self) -> None:
        while True:
            try:
                return await self.nodes.open()
            except Unreachable as fault:
                self._status_log.on_server_error(fault)
                await asyncio.sleep(TICK_S)

    async def _send_all(self) -> None:
        self._knowledge.flush()
        self.stop_leasing()
        while self.lease_buffer.is_calling and not self._status_log.is_hopeless:
            await asyncio.sleep(IDLE_POLL_S)
            self.stop_leasing()  # puts back leases that have arrived meanwhile
        with suppress(StoreUnavailable):
            await self.wait_until_durable()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except CrawlerError as error:
            self._status_log.on_failed(error)
        except Exception as bug:
            logger.exception("The shared frontier has failed")
            self._status_log.on_failed(StoreUnavailable(f"the shared frontier has failed: {bug!r}"))

    async def _tick_loop(self) -> None:
        while True:
            is_announced = await self.membership.announce()
            if is_announced:
                self.lease_buffer.prefer(self.membership.preferred)
            await self._full_servers.refresh()
            for server in self._full_servers.full:
                self._status_log.on_server_full(server)
            await self._outbox_drain.send_some(self._base.now())
            await self._outbox_note.update()
            await self._knowledge.tick()
            if self._pushed_urls is not None:
                await self._pushed_urls.tick()
            await self._confirm()
            await self._refresh_overview(is_announced)
            await self._longest.refresh()
            await asyncio.sleep(TICK_S)

    async def _readmit(self) -> None:
        """Queue URLs again that earlier rules refused and the present ones admit."""
        rules = self._lease_rules
        while rules is not None:
            await asyncio.sleep(0 if rules.are_complete else TICK_S)
            if not self._shards_to_readmit:
                await self._is_readmission_due.wait()
                self._is_readmission_due.clear()
            elif rules.are_complete:
                shard = min(self._shards_to_readmit)
                self._shards_to_readmit.discard(shard)  # the rules may change meanwhile
                try:
                    await self._readmit_shard(shard, rules)
                except StoreUnavailable as fault:
                    logger.debug("URLs refused by earlier starts cannot be read now: %s", fault)
                    self._shards_to_readmit.add(shard)
                    await asyncio.sleep(TICK_S)

    async def _readmit_shard(self, shard: int, rules: LeaseRules) -> None:
        key = keys.refused_urls(self._settings.name, shard)
        cursor = b"0"
        while True:
            (reply,) = await self.nodes.commands(
                [(shard, ("HSCAN", key, cursor, "COUNT", READMITTED_AT_ONCE))]
            )
            if isinstance(reply, FAULTS):
                raise reply
            cursor, found = reply
            pairs = list(zip(found[::2], found[1::2], strict=True))
            for budgets, part in readmissions(pairs, rules, self._ops.budgets_of, BATCH):
                (result,) = await self.nodes.run([self._ops.readmit(shard, budgets, part)])
                if isinstance(result, FAULTS):
                    raise result
                rules.on_readmitted(int(result[1]))
                self.lease_buffer.wake_shard(shard, 0.0)
            if cursor == b"0":
                return

    async def _confirm(self) -> None:
        if self._is_confirmed:
            return
        with suppress(StoreUnavailable):
            await self._base.confirm()
            self._is_confirmed = True

    async def _refresh_overview(self, is_announced: bool) -> None:
        is_elsewhere = self._may_get_more
        fault = await self._overview.refresh(
            self._is_busy(), lambda: not is_announced or is_elsewhere()
        )
        if fault is not None:
            self._status_log.on_server_error(fault)
        elif not self._overview.is_anything_left:
            if self._base.make_record().name in self._overview.outboxes:
                self._outbox_note.recheck_all_shards()
            self._status_log.on_waiting_for_workers(await self._silent_outboxes())
        self._status_log.log_recovered()
        if self._overview.is_over or self._state == "starting" or len(self.lease_buffer):
            self._wake()  # the engine asks for a lease, or whether the crawl is over

    def _on_server_restart(self, shard: int, alive_at: float) -> None:
        self._is_confirmed = False
        self.sender.on_server_restart()
        self._lease_resync.on_server_restart(shard, alive_at)
        self.lease_buffer.mark_dirty(shard)

    def _mark_dirty(self, shard: int) -> None:
        self.lease_buffer.mark_dirty(shard)

    def _wake_shard(self, shard: int, in_s: float) -> None:
        self.lease_buffer.wake_shard(shard, in_s)

    async def _silent_outboxes(self) -> dict[str, int]:
        """Return the links on the disks of silent workers, by name, as last announced."""
        noted = self._overview.outboxes - {self._base.make_record().name}
        with suppress(StoreUnavailable):
            return await self.membership.silent(noted)
        return {}

    def _is_busy(self) -> bool:
        return self._state != "working" or not self.sender.is_idle() or len(self._held_leases) > 0

    def _may_get_more(self) -> bool:
        if self._shards_to_readmit or self._is_busy() or self.membership.starting > 0:
            return True
        return self._pushed_urls is not None and self._pushed_urls.may_have_more()

    def _may_ask(self) -> bool:
        return self._state != "stopping" and not self.is_congested() and not self._overview.is_over

    def _record(self) -> WorkerRecord:
        return replace(
            self._base.make_record(),
            state=self._state,
            leases=len(self._held_leases),
            outbox=len(self._outbox),
            opened_mark=self._pushed_urls.opened_mark if self._pushed_urls is not None else 0,
            preferred=len(self.membership.preferred),
        )

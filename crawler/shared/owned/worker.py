"""One worker of a shared crawl, as the crawl sees it: the frontier of its shards, what keeps them,
and what it knows of the whole crawl.

Rule: the methods that the crawl calls use only memory and this worker's disk. Background tasks
speak to Redis: they claim, send and hand over shards, and do the rest once a second.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from crawler.data.frontier_work import FrontierWork
from crawler.frontier.lending import Lending, LentUrl
from crawler.frontier.port import (
    DurableStore,
    FrontierLimits,
    HostAddresses,
    LeaseRules,
    PerHost,
    one,
)
from crawler.loop.life import OpenFetch
from crawler.model.choices import LaterVisits
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    BorrowedTurn,
    Candidate,
    CrawlerError,
    HostKey,
    HostWork,
    Lease,
    LinkSource,
    NotItsTurn,
    NoTurn,
    Pace,
    Rest,
    Standing,
    StoreFull,
    StoreUnavailable,
    Verdict,
)
from crawler.policy.robots_cache import RobotsFetchResult
from crawler.policy.rounds import RoundProgress
from crawler.shared.changes import ChangeSender, send_changes
from crawler.shared.codec import WorkerRecord, claim_of, long_fetches
from crawler.shared.crawl_format import CrawlFormat
from crawler.shared.faults import FAULTS, Unreachable
from crawler.shared.keys import Scripts
from crawler.shared.longest import MOST_READ, LongestReader, OwnHostsWriter
from crawler.shared.owned.addresses import SLICE, LeasedAddresses
from crawler.shared.owned.frontier import OwnedFrontier, OwnedHooks
from crawler.shared.owned.handover import ShardHolder
from crawler.shared.owned.inbox import VERDICT_DELAY_S, LinkPushes
from crawler.shared.owned.leader import PlanLeader
from crawler.shared.owned.overview import CrawlReading
from crawler.shared.owned.pushed_links import InboxDelivery
from crawler.shared.owned.rounds import RoundFollower
from crawler.shared.owned.scripts import AddressCommands, InboxCommands, OwnedScripts
from crawler.shared.owned.side_calls import SideSender
from crawler.shared.owned.takeover import NotedRest
from crawler.shared.pushed import PushedContext, PushedUrls, WorkerHooks
from crawler.shared.worker.base import WorkerBase
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.feeds import PushedFeeds
from crawler.shared.worker.membership import Membership
from crawler.shared.worker.near_duplicates import SharedNearDuplicates
from crawler.shared.worker.outbox import Overflow
from crawler.shared.worker.status import OutboxNote

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
IDLE_POLL_S: Final = 0.01  # between two looks whether all is acknowledged
CLOSE_S: Final = 10.0
"""For so long each step of a stop waits for servers that do not answer. What Redis lacks then is
done again by the next owners of the shards, when their leases are over."""


class OwnedWorker:
    """Implements frontier.port.Frontier, and lives from the start of the crawl to its end."""

    def __init__(
        self,
        base: WorkerBase,
        crawl: CrawlFormat,
        contents: tuple[SharedDuplicates, SharedNearDuplicates],
        work: FrontierWork,
        *,
        dead_sessions: Collection[str],
        rests: Mapping[HostKey, NotedRest],
        folder: Path,
        store: DurableStore,
        limits: FrontierLimits,
        lease_rules: LeaseRules | None,
        addresses: HostAddresses | None,
        free_slots: Callable[[Standing], int],
        wake: Callable[[], None],
        on_taken_in: Callable[[], None],
        on_robots: Callable[[str, RobotsFetchResult], None],
        pushing: PushedContext | None,
        changes: ChangeSender | None = None,
        open_fetches: Callable[[], list[OpenFetch]] = list,
        run_s: float = 0.0,
        fetches: bool = True,
    ) -> None:
        """*crawl*: its format, with which this worker has joined. *work* does the work of the
        frontier, whose *store*, in *folder*, is empty. Without *lease_rules* no URL is judged
        again, without *pushing* none can be pushed. *changes* sends what this worker writes to the
        change feed. *dead_sessions*: earlier ones of this worker,
        which had noted *rests*. *free_slots* returns how many fetches of such hosts may begin;
        *wake* lets the engine ask. *on_taken_in* is called when a shard has come, *on_robots*
        with an authority and what another worker has fetched for its robots.txt. *open_fetches*
        returns how far each fetch is, for what this worker announces. *run_s*: for how long its run
        has gone on, if it was started again. It *fetches*, or its URLs are
        for others (`lend`)."""
        me, settings, scripts = base.make_record(), base.settings, OwnedScripts()
        if limits.rounds is not None:
            limits = dataclasses.replace(
                limits, rounds=dataclasses.replace(limits.rounds, are_led=True)
            )
        self.nodes, self.worker, self.outbox = base.nodes, me.name, base.outbox
        self.changes = changes
        self._base, self._work, self._wake = base, work, wake
        self._open_fetches, self._fetches = open_fetches, fetches
        self._duplicates, self._near_duplicates = contents
        self._status_log = base.status_log
        settles = not (settings.is_ack_durable or base.nodes.single_server)
        settle_s = VERDICT_DELAY_S if settles else 0.0
        self._address_leases = None
        if addresses is not None:
            commands = AddressCommands(scripts, settings.name, f"{me.name}/{me.session}")
            self._address_leases = LeasedAddresses(
                base.nodes,
                commands,
                steady=base.steady,
                now=base.now,
                slice_s=SLICE * settings.lease_s,
                after_s=limits.longest_address_rest_s,
            )
        self.frontier = OwnedFrontier(
            *(folder, store, base.nodes, limits),
            shards=settings.shards,
            now=base.now,
            steady=base.steady,
            background=work,
            hooks=OwnedHooks(
                free_slots=free_slots,
                wake=wake,
                on_failed=self._status_log.on_server_error,
                waits_for_room=base.disk.wait_for_room,
                is_full=base.full_servers.is_full,
                on_taken_in=on_taken_in,
                on_robots=on_robots,
                on_lost=self._status_log.on_leases_lost,
                on_pushed=self._on_pushed,
            ),
            rests=rests,
            settle_s=settle_s,
            lease_rules=lease_rules,
            addresses=addresses,
            address_leases=self._address_leases,
            on_decided=base.listener.on_added,
        )
        self._rounds = None
        if limits.rounds is not None:
            self._rounds = RoundFollower(
                *(base.nodes, scripts, f"{me.name}/{me.session}", limits.rounds),
                self.frontier.frontier.rounds,
                # Its shards may be renewed after it has asked for its round last.
                lease_s=settings.lease_s + 2 * TICK_S,
                run_began_at=base.now() - run_s,
                wake=wake,
            )
        self._outbox_note = OutboxNote(base.nodes, base.contents, me.name, base.outbox)
        overflow = Overflow(
            outbox=base.outbox,
            is_full=base.full_servers.is_full,
            ensure_noted=self._outbox_note.ensure_noted,
            sync=settings.sync_outbox,
        )
        self._pushes = LinkPushes(
            lambda shard: InboxCommands(scripts, settings.name, shard),
            settings.shards,
            secrets.token_bytes(8),
            overflow,
            self._on_links_refused,
        )
        leader = PlanLeader(base.nodes, scripts, crawl, me.name, base.steady)
        self.holder = ShardHolder(
            *(base.nodes, scripts, leader, self.frontier, self._pushes),
            worker=me.name,
            session=me.session,
            dead_sessions=dead_sessions,
            lease_s=settings.lease_s,
            longest_fetch_s=settings.fetch_s,
            settle_s=settle_s,
            now_s=base.steady,
            on_arrived=self.frontier.on_arrived,
            on_failed=self._status_log.on_server_error,
        )
        self.membership = Membership(*(base.nodes, Scripts(), settings.name), self._record)
        self._side_sender = SideSender(
            base.nodes, base.side_queue, base.steady, self._status_log.on_failed
        )
        self._reading = CrawlReading(
            base.nodes,
            base.steady,
            lambda: LaterVisits.AS_DUE if lease_rules is None else lease_rules.later_visits,
        )
        self._longest = LongestReader(base.nodes)
        self._own_hosts = OwnHostsWriter(base.nodes, me.name, base.steady)
        self._pushed_urls = None if pushing is None else self._build_pushed_urls(pushing)
        self._left_at_end: Sequence[HostWork] | None = None
        self._state = "starting"
        self._is_connected = False
        self._are_acts_left = False
        self._background: list[asyncio.Task[None]] = []

    def _build_pushed_urls(self, pushing: PushedContext) -> PushedUrls:
        settings, key = self._base.settings, pushing.settings.key
        session = self._base.make_record().session
        delivery = InboxDelivery(self.nodes, is_ack_durable=settings.is_ack_durable)
        feeds = PushedFeeds.of(self.nodes, delivery, settings.name, key, session, settings.lease_s)
        hooks = WorkerHooks(
            all_have_read=self.membership.all_have_read,
            may_take=lambda: not self.is_congested(),
            is_idle=lambda: not self._reading.is_anything_left,
            wake=self._wake,
        )
        return PushedUrls(
            feeds, pushing.reader, pushing.settings, hooks, pushing.stats, self._base.steady
        )

    def _on_links_refused(self, refusal: CrawlerError) -> None:
        """Handle what keeps links from a server, or from our disk."""
        if isinstance(refusal, StoreFull):
            self._status_log.on_disk_full_for_links(refusal)
        elif isinstance(refusal, FAULTS):
            if self._is_connected:
                self._status_log.on_server_error(refusal)
        else:
            self._status_log.on_failed(refusal)

    def _on_pushed(self, seen: Sequence[str], added: Added) -> None:
        if self._pushed_urls is not None:
            self._pushed_urls.unfetched.note(seen, added)

    # The port

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        self._reading.mark_unfinished()
        return self.frontier.add(found, now, at_once=at_once, source=source)

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
        host: HostKey | None = None,
    ) -> list[Lease]:
        if not self._fetches or self._is_held_up():
            return []
        return self.frontier.lease(now, limit, standings, per_host, host)

    async def lend(
        self,
        now: float,
        limit: int,
        lending: Lending,
        standings: Sequence[Standing] = STANDINGS,
        host: HostKey | None = None,
    ) -> list[LentUrl]:
        """Lend URLs as OwnedFrontier.lend."""
        if self._is_held_up():
            return []
        return await self.frontier.lend(now, limit, lending, standings, host)

    def _is_held_up(self) -> bool:
        return self._base.disk.is_full or self._pushes.is_congested or self._state == "stopping"

    def update(self, found: Iterable[Candidate], now: float) -> int:
        self._reading.mark_unfinished()
        return self.frontier.update(found, now)

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        return self.frontier.release(lease, rest, now)

    def note_trouble(self, lease: Lease | BorrowedTurn, rest: Rest, now: float) -> None:
        self.frontier.note_trouble(lease, rest, now)

    async def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        if self._is_held_up():
            return NotItsTurn(host, NoTurn.STORE)
        return await self.frontier.borrow(host, now, until)

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        return self.frontier.give_back(turn, rest, now)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        claim = claim_of(verdict)
        if claim is None:
            return self.frontier.finish(lease, verdict, now)
        is_held = self.frontier.finish(lease, replace(verdict, claim=None), now)
        if is_held:
            call = self._base.contents.claim(claim.digest, lease.id, claim)
            self._base.side_queue.send_later(call)
            self._duplicates.note_claim(lease.id)
            self._near_duplicates.note_claim(lease.id, claim)
        return is_held

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        if not self._fetches or self.is_congested():
            return None
        return self.frontier.wake_at(standings)

    def counts(self) -> Counts:
        """Return the counts of the whole crawl, a second old. Of what workers have only in memory
        or on their disks, and of the levels, they have this one's."""
        own = self.frontier.counts()
        in_memory = Counts(
            hosts_active=own.hosts_active,
            undecided=own.undecided + self.unsent_links(),
            levels=own.levels,
        )
        return self._reading.counts() + in_memory

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return as port.Frontier.longest_hosts, of the whole crawl, as they were read last; when
        this worker has ended, of its own shards as it left them."""
        if self._left_at_end is not None:
            return self._left_at_end[:limit]
        return self._longest.longest_hosts(limit)

    def sampled_paces(self) -> Sequence[Pace]:
        """Return as port.Frontier.sampled_paces, as they were read last."""
        return self._longest.sampled_paces()

    def judge_again(self) -> None:
        self._pushes.forget_known()
        self.frontier.judge_again()

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        self.frontier.end_rests(rests, now)

    def may_begin(self, lease: Lease) -> bool:
        return self.frontier.may_begin(lease)

    def is_over(self) -> bool:
        if self._state == "starting" and self._pushes.is_idle():
            self._state = "working"  # its seeds are in the shards now
        return self._reading.is_over

    def end_dry_round(self, now: float) -> bool:
        return self.frontier.end_dry_round(now)

    def round_progress(self) -> RoundProgress | None:
        return self.frontier.round_progress()

    def is_congested(self) -> bool:
        return self._base.disk.is_full or self._pushes.is_congested or self.frontier.is_congested()

    async def wait_until_durable(self) -> None:
        await self.frontier.wait_until_durable()

    # What else the crawl asks for

    def lag_s(self) -> float:
        """Return the seconds since all servers last answered; they are asked once a second."""
        return self._reading.silent_s

    def unsent_links(self) -> int:
        """Return how many links wait on our disk."""
        return len(self._base.outbox)

    def note_acts_left(self, are_left: bool) -> None:
        """Note whether acts of operators are left to be carried out: they may bring URLs back."""
        self._are_acts_left = are_left

    # Start, stop and background tasks

    def begin(self) -> None:
        """Start the background tasks. The event loop must be running."""
        self.frontier.begin(self.holder.sender)
        self._work.begin(self.frontier.frontier, self._base.now)
        self._background = [asyncio.ensure_future(self._guard(self._run))]

    def stop_leasing(self) -> None:
        """Take no more leases, and put back those that are not used."""
        self._state = "stopping"
        self._base.disk.stop_waiting()
        self.frontier.give_back_unused()

    async def close(self) -> None:
        """Hand over all shards, and leave the crawl."""
        self.stop_leasing()
        self._left_at_end = self.frontier.longest_hosts(MOST_READ)
        self._near_duplicates.send_rows()
        with suppress(StoreUnavailable):
            await self._work.close()
        for step in (self._send_all, partial(self.holder.release_all, waits=False)):
            with suppress(TimeoutError, CrawlerError):
                async with asyncio.timeout(CLOSE_S):
                    await step()
        if self._address_leases is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._address_leases.give_all(self.frontier.frontier)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        if self._rounds is not None:
            with suppress(TimeoutError, CrawlerError):
                async with asyncio.timeout(CLOSE_S):
                    await self._rounds.leave()
        if self.changes is not None:
            self.changes.log_unsent()
        await self.holder.close()
        await self.frontier.close_all()
        if self._pushed_urls is not None:
            self._pushed_urls.close()
        with suppress(StoreUnavailable):
            self._pushes.store_all()
        if not len(self._base.outbox):
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._outbox_note.update()
                    await self._own_hosts.remove()
                    await self.membership.leave()
        await self.nodes.close()
        self.frontier.frontier.close()

    async def _send_all(self) -> None:
        """Wait until Redis has all."""
        await self.membership.announce()  # that it stops: the plan gives it no shards
        await self.frontier.finish_all()
        await self.frontier.wait_until_durable()
        while not self._is_all_sent() and not self._status_log.is_hopeless:
            await asyncio.sleep(IDLE_POLL_S)

    def _is_all_sent(self) -> bool:
        return self._side_sender.is_idle() and (self.changes is None or self.changes.is_idle)

    async def _run(self) -> None:
        await self._connect()
        await self.membership.announce()  # before a plan is made
        async with asyncio.TaskGroup() as group:
            for work in (
                *(self.holder.run, self._side_sender.run, self._tick_loop, self._ask),
                self._send_changes,
            ):
                group.create_task(self._guard(work))

    async def _connect(self) -> None:
        while True:
            try:
                await self.nodes.open()
                self._is_connected = True
                return
            except Unreachable as fault:
                self._status_log.on_server_error(fault)
                await asyncio.sleep(TICK_S)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except CrawlerError as error:
            self._status_log.on_failed(error)
        except Exception as bug:
            logger.exception("The shared frontier has failed")
            self._status_log.on_failed(StoreUnavailable(f"the shared frontier has failed: {bug!r}"))

    async def _ask(self) -> None:
        """Ask for addresses that hosts of other workers share."""
        if self._address_leases is not None:
            await self._address_leases.run(self.frontier.frontier)

    async def _send_changes(self) -> None:
        if self.changes is not None:
            await send_changes(self.changes, self.nodes, self._status_log)

    async def _tick_loop(self) -> None:
        while True:
            is_announced = await self.membership.announce()
            await self._base.full_servers.refresh()
            for server in self._base.full_servers.full:
                self._status_log.on_server_full(server)
            await self._outbox_note.update()
            self._near_duplicates.send_rows()
            if self._pushed_urls is not None:
                await self._pushed_urls.tick()
            await self._read_crawl(is_announced)
            await self._follow_round()
            longest = self.frontier.longest_hosts(MOST_READ)
            await self._own_hosts.write(longest, self.frontier.sampled_paces())
            await self._longest.refresh()
            self._status_log.log_recovered()
            await asyncio.sleep(TICK_S)

    async def _read_crawl(self, is_announced: bool) -> None:
        try:
            await self._reading.read(
                is_busy=self._is_busy(),
                is_elsewhere=lambda: not is_announced or self._may_get_more(),
            )
        except CrawlerError as fault:
            self._status_log.on_server_error(fault)
        else:
            if not self._reading.is_anything_left:
                if self.worker in self._reading.outboxes:
                    self._outbox_note.recheck_all_shards()
                self._status_log.on_waiting_for_workers(await self._silent_outboxes())
        if self._reading.is_over or self._state == "starting":
            self._wake()  # the engine asks for a lease, or whether the crawl is over

    async def _follow_round(self) -> None:
        if self._rounds is None:
            return
        now, frontier = self._base.now(), self.frontier.frontier
        is_coming = self._state == "starting" or self.frontier.is_taking_in
        is_coming = is_coming or self.holder.is_moving
        try:
            await self._rounds.step(
                may_lease_more=self._state != "stopping" and frontier.waits(now),
                is_busy=frontier.has_leases or is_coming or not self._pushes.is_idle(),
                has_dates=frontier.has_dates,
                now=now,
            )
        except StoreUnavailable as fault:
            self._status_log.on_server_error(fault)

    async def _silent_outboxes(self) -> dict[str, int]:
        """Return the links on the disks of silent workers, by name, as last announced."""
        with suppress(StoreUnavailable):
            return await self.membership.silent(self._reading.outboxes - {self.worker})
        return {}

    def _is_busy(self) -> bool:
        return (
            self._state != "working"
            or not self._pushes.is_idle()
            or not self.frontier.frontier.is_over()
            or not self._side_sender.is_idle()
        )

    def _may_get_more(self) -> bool:
        if self._is_busy() or self._are_acts_left or self.membership.starting > 0:
            return True
        return self._pushed_urls is not None and self._pushed_urls.may_have_more()

    def _record(self) -> WorkerRecord:
        return replace(
            self._base.make_record(),
            state=self._state,
            leases=self.frontier.counts().leased,
            outbox=len(self._base.outbox),
            opened_mark=self._pushed_urls.opened_mark if self._pushed_urls is not None else 0,
            shards=len(self.holder.held),
            fetches=long_fetches(self._open_fetches(), self._base.now()),
        )

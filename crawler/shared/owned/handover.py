"""The shards of one worker: it claims and loads what the plan gives it, hands over what the plan
takes from it, and releases all when it stops.

Rule: a shard is owned from its claim to its release, or until its lease is over, and the plan only
says what to try. One step a second; no step waits for a load or a fetch.

A hand-over, with what each part waits for:

    the owner reads the plan -> it leases no URL of the shard more, and links to it go to its inbox
    its fetches have ended, or the longest one would have; and no server loses any more what was
        noted before -> it notes nothing of the shard more
    its last batch, which releases it, is acknowledged -> the worker that the plan names, which
        tries once a second, claims it
    claimed -> loaded -> leased from

A fetch that has not ended by then is one under an open lease in the mirror: its result is refused,
and its host rests at the next owner as after a crash. The links of a page of another shard, which
this worker keeps, must not be lost behind its back: it would send the verdict again after a restart
of the server, and the links never. A dead owner's shard is claimed when its lease is over, by the
worker that the plan names; if no plan could be read for LATE_S, by any.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final, Protocol

from crawler.model.types import CrawlerError, StoreUnavailable
from crawler.shared.client import Nodes
from crawler.shared.owned.inbox import LinkPushes
from crawler.shared.owned.leader import STEP_S, PlanLeader
from crawler.shared.owned.owner import Arrived, OwnedShard, ShardSender, claim
from crawler.shared.owned.plan import rank
from crawler.shared.owned.readings import new_token, token_begin
from crawler.shared.owned.scripts import (
    ClaimedShard,
    ClaimReply,
    OwnedScripts,
    ShardCommands,
    ShardMissing,
)

logger = logging.getLogger(__name__)

_LOADED_AT_ONCE: Final = 16
_MOVED_S: Final = 3.0  # more than each worker takes to read a new plan, and to say what it has
_IDLE_AGAIN_S: Final = 0.1
_TRIED_LATE: Final = 8  # shards that a worker claims in one step without a plan


class ShardFrontier(Protocol):
    """The frontier of a worker, as far as its shards come and go. Of a shard it is asked in this
    order: `load`, `stop_leasing`, `close`, `drop`; of one that is lost, without the second."""

    async def load(
        self,
        commands: ShardCommands,
        claimed: ClaimedShard,
        claimed_at_s: float,
        on_noted: Callable[[], None],
    ) -> OwnedShard:
        """Take in a shard that was claimed just now: all that Redis has of it, step by step, while
        its lease is renewed (`takeover.load`, `takeover.take_in`). *on_noted* is for its mirror.
        From then on `lease` gives its URLs when its `may_lease` allows; links to it go to its inbox
        until its `takes_links` allows to add them. Raises a Fault, or StoreUnavailable if the disk
        is full or the shard is lost; then it has nothing of it."""

    def stop_leasing(self, shard: int) -> None:
        """Lease no URL of *shard* more, and send links to it to its inbox, those of pages of other
        shards. Open leases go on, and so do its writes."""

    def is_idle(self, shard: int) -> bool:
        """Return whether no lease of *shard* is open: the mirror has the verdict of each."""

    def close(self, shard: int) -> None:
        """Note nothing of *shard* more: what is said under its leases is refused, what arrives from
        its inbox is left there, and links to it go there, also those that were noted and are not
        acknowledged. Its records can be read, in case a server has to be sent them again."""

    async def drop(self, shard: int) -> None:
        """Remove its records, step by step. It may be loaded again when this returns. Raises
        nothing."""


@dataclass(slots=True)
class _Leaving:
    """A shard that is to be handed over."""

    since_s: float
    position: int  # of what its mirror had by then
    acked_at_s: float = inf  # when Redis had that


class ShardHolder:
    """Holds the shards of one worker."""

    def __init__(
        self,
        nodes: Nodes,
        scripts: OwnedScripts,
        leader: PlanLeader,
        frontier: ShardFrontier,
        pushes: LinkPushes,
        *,
        worker: str,
        session: str = "",
        dead_sessions: Iterable[str] = (),
        lease_s: float,
        longest_fetch_s: float,
        settle_s: float,
        now_s: Callable[[], float],
        on_arrived: Callable[[Arrived], None],
        on_failed: Callable[[CrawlerError], None],
    ) -> None:
        """*session*: of this process; *dead_sessions*: earlier ones of this worker, whose processes
        have certainly ended. *lease_s*: of a shard. *settle_s*: for how long a server may lose what
        it acknowledged (inbox.VERDICT_DELAY_S). *now_s*: the steady clock. *on_arrived* is
        called with what was read of an inbox, *on_failed* with an error that waiting does not
        repair."""
        self.held: dict[int, OwnedShard] = {}
        self.sender = ShardSender(
            nodes, now_s, pushes, on_lost=self._on_lost, on_arrived=on_arrived
        )
        self._nodes = nodes
        self._scripts = scripts
        self._leader = leader
        self._frontier = frontier
        self._worker = worker
        self._session = session
        self._dead = [token_begin(worker, each) for each in dead_sessions]
        self._lease_s = lease_s
        self._longest_fetch_s = longest_fetch_s
        self._settle_s = settle_s
        self._now_s = now_s
        self._on_failed = on_failed
        self._takes_shards = True
        self._has_released_all = False
        self._late_order = deque(sorted(range(nodes.shards), key=lambda shard: rank(worker, shard)))
        self._leaving: dict[int, _Leaving] = {}
        # A claim whose reply was lost is made again with the same token, or it would wait for the
        # end of its own lease.
        self._unanswered: dict[int, ShardCommands] = {}
        self._loading = asyncio.Semaphore(_LOADED_AT_ONCE)
        self._tasks: dict[int, asyncio.Task[None]] = {}  # that take, hand over or drop a shard
        self._changed = asyncio.Event()  # something that a step may wait for
        self._moved_at_s = now_s()  # when a shard came or went last

    @property
    def is_moving(self) -> bool:
        """Whether a shard comes, goes, or did so just now: for a moment it may be nowhere, or
        where its next owner does not know of it."""
        plan = self._leader.plan
        is_wanted = any(shard not in self.held for shard in plan.shards_of(self._worker))
        has_moved = self._now_s() - self._moved_at_s < _MOVED_S
        return bool(self._tasks or self._leaving) or is_wanted or has_moved

    async def run(self) -> None:
        """Make steps until this is cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(STEP_S)

    async def step(self) -> None:
        """Read the plan, and begin what it asks for. Do nothing after `release_all`: this worker
        would lead again."""
        if self._has_released_all:
            return
        try:
            await self._leader.step()
        except CrawlerError as error:
            self._on_failed(error)
            return
        if not self._takes_shards:
            return
        plan, is_late = self._leader.plan, self._leader.is_late()
        for shard in self._held_still():
            is_wanted = is_late or plan.worker_of(shard) in {None, self._worker}
            if (shard in self._leaving or not is_wanted) and self._leave(shard):
                self._begin(shard, partial(self._hand_over, shard, resends=True))
        for shard in self._next_without_plan() if is_late else plan.shards_of(self._worker):
            if shard not in self.held and shard not in self._tasks:
                self._begin(shard, partial(self._take, shard))

    async def release_all(self, *, waits: bool = True) -> None:
        """Hand over all shards, and take no others. *waits*: for fetches that have not ended.
        Before it the worker leaves the list of workers, or the plan would give it shards again.

        No shard waits until a server cannot lose what it acknowledged: if one restarts meanwhile,
        what it has lost is not sent again, of no shard, as if this worker had died."""
        self._takes_shards = False
        # What a server that does not answer has of them is free when their leases are over.
        end_s = self._now_s() + self._longest_fetch_s + self._lease_s
        while (self.held or self._tasks) and self._now_s() < end_s:
            still = self._held_still()
            busy = [shard for shard in still if not self._leave(shard, settles=False)]
            if not busy or not waits:
                for shard in still:
                    self._begin(shard, partial(self._hand_over, shard, resends=False))
            await self._wait(_IDLE_AGAIN_S)
        self._has_released_all = True
        await self._leader.leave()

    async def close(self) -> None:
        """Send nothing more."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.sender.close()

    def _held_still(self) -> list[int]:
        """Return the shards that it holds and does not hand over already."""
        return [shard for shard in self.held if shard not in self._tasks]

    def _leave(self, shard: int, *, settles: bool = True) -> bool:
        """Lease nothing of *shard* more. Return whether it may be handed over."""
        owned, now_s = self.held[shard], self._now_s()
        if shard not in self._leaving:
            self._leaving[shard] = _Leaving(now_s, owned.mirror.position)
            self._frontier.stop_leasing(shard)
        leaving = self._leaving[shard]
        if owned.acked >= leaving.position:
            leaving.acked_at_s = min(leaving.acked_at_s, now_s)
        is_settled = now_s - leaving.acked_at_s >= self._settle_s or not settles
        is_long = now_s - leaving.since_s >= self._longest_fetch_s
        return is_settled and (is_long or self._frontier.is_idle(shard))

    def _next_without_plan(self) -> Iterator[int]:
        """Yield the next shards to be tried, each worker in an order of its own."""
        for _ in range(min(_TRIED_LATE, len(self._late_order))):
            yield self._late_order[0]
            self._late_order.rotate(-1)

    def _begin(self, shard: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks[shard] = asyncio.get_running_loop().create_task(self._done(shard, work))

    async def _done(self, shard: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()  # made here: else a task that ends before it begins leaves it
        except CrawlerError as error:
            self._on_failed(error)
        except Exception as bug:
            logger.exception("Shard %d cannot be taken or handed over", shard)
            self._on_failed(CrawlerError(f"shard {shard} cannot be taken or handed over: {bug!r}"))
        finally:
            del self._tasks[shard]
            self._moved_at_s = self._now_s()
            self._changed.set()

    async def _take(self, shard: int) -> None:
        async with self._loading:
            if not self._takes_shards:
                return
            commands = self._unanswered.pop(shard, None) or self._new_claim(shard)
            try:
                claimed, claimed_at_s = await self._claim(commands)
            except StoreUnavailable:
                self._unanswered[shard] = commands
                return
            if not isinstance(claimed, ClaimedShard):
                return
            try:
                owned = await self._frontier.load(
                    commands, claimed, claimed_at_s, self.sender.send_soon
                )
            except StoreUnavailable:
                await self._nodes.commands([(shard, commands.release())])
                return
            self.held[shard] = owned
            self.sender.add(owned)

    def _new_claim(self, shard: int) -> ShardCommands:
        token, name = new_token(self._worker, self._session), self._nodes.name
        return ShardCommands(self._scripts, name, shard, token, self._lease_s, self._dead)

    async def _claim(self, commands: ShardCommands) -> tuple[ClaimReply, float]:
        """Return the reply to a claim, and when it was sent."""
        sent_at_s = self._now_s()
        reply = await claim(self._nodes, commands, begins=False)
        if isinstance(reply, ShardMissing) and self._leader.may_begin_shards():
            sent_at_s = self._now_s()
            reply = await claim(self._nodes, commands, begins=True)
        return reply, sent_at_s

    async def _hand_over(self, shard: int, *, resends: bool) -> None:
        owned = self.held.pop(shard)
        self._leaving.pop(shard, None)
        self._frontier.close(shard)
        with suppress(StoreUnavailable):  # if it is lost meanwhile, its lease has to end
            await self.sender.release(owned, resends=resends)
        if self._takes_shards:  # else the worker ends, and its records with it
            await self._frontier.drop(shard)

    def _on_lost(self, owned: OwnedShard) -> None:
        shard = owned.commands.shard
        if self.held.get(shard) is owned and shard not in self._tasks:
            del self.held[shard]
            self._leaving.pop(shard, None)
            self._frontier.close(shard)
            self._begin(shard, partial(self._frontier.drop, shard))

    async def _wait(self, most_s: float) -> None:
        """Wait until a task has ended, at most so long."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._changed.wait()

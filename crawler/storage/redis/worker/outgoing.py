"""What a worker tells the shards: links, releases, verdicts. Gathered, sent in pipelines, and kept
until it is acknowledged.

Rule: a page's verdict leaves only when all its links are acknowledged, or on our own disk. Nobody
waits here but our own task; what a server cannot take now waits in the outbox or in memory,
bounded by the leases that are open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import starmap
from time import monotonic
from typing import Any, Final

from msgspec.structs import replace

from crawler.core.errors import StoreFull, StoreUnavailable
from crawler.core.types import Candidate, Lease, Moved, Rest, Verdict
from crawler.storage.redis.calls import Call
from crawler.storage.redis.connection.faults import FAULTS, OutOfMemory, Unreachable
from crawler.storage.redis.fates import claim_of
from crawler.storage.redis.ops import BATCH, Finished, Ops, Released, shard_of_lease
from crawler.storage.redis.parts import parts_of
from crawler.storage.redis.replies import read_added, read_held
from crawler.storage.redis.worker.drain import Outbox
from crawler.storage.redis.worker.holdings import Holdings
from crawler.storage.redis.worker.journal import Journal
from crawler.storage.redis.worker.sending import (
    Batch,
    Ended,
    Events,
    Nodes,
    Sending,
    ended_by_shard,
    links_by_shard,
)
from crawler.storage.redis.worker.tells import Tells

GATHER_S: Final = 0.05
"""Time to gather: the more a call carries, the cheaper each; rests are counted from the fetch's
end, so no host waits longer for it."""
SURE_S: Final = 4.0
"""When several servers lose their last moments each, a verdict must not outlive the links before
it. Redis writes its file each second, and up to 2 s later while its disk is slow."""
RETRY_S: Final = 0.5
MOST_WAITING: Final = 20_000  # links not yet sent; then nothing more is leased (8 MB)
MOST_HELD: Final = 5_000  # verdicts held back; then nothing more is leased (5 MB)


class Outgoing:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        outbox: Outbox,
        events: Events,
        now: Callable[[], float],
        journal: Journal,
        is_sure: bool,
        sync_outbox: Callable[[], None] | None,
    ) -> None:
        """*is_sure*: what a server acknowledges is on its disk (appendfsync always).
        *sync_outbox*: makes the outbox survive a power cut; None if it need not."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._outbox = outbox
        self._events = events
        self._now = now
        self._is_sure = is_sure
        self._sync_outbox = sync_outbox
        self._is_synced = True  # the outbox
        self._waiting = Batch()
        self.tells = Tells()
        self._ripening: deque[tuple[float, Finished]] = deque()  # verdicts, by when they may go
        self._journal = journal
        self._asked = asyncio.Event()
        self._under_way = 0
        self._leaving: list[Ended] = []
        self._unsaved = False
        self.full: Callable[[int], bool] = lambda _: False
        self.is_outbox_known: Callable[[], Awaitable[bool]] = _yes
        """Is awaited while links wait on our disk, before any verdict: whether all workers hear
        that some do. If we died first, the crawl would end without them."""
        self.touched: Callable[[int, float], None] = lambda _, __: None

    def add(self, found: Iterable[Candidate]) -> None:
        self._waiting.links += found
        self._asked.set()

    def release(self, lease: Lease, rest: Rest) -> None:
        self._waiting.releases.append(Ended(lease, rest, monotonic()))
        self._asked.set()

    def rest(self, lease: Lease, rest: Rest, ended_at: float) -> None:
        """Of a lease that has ended, or was forgotten by its server: its host was asked all the
        same."""
        self.tell(self._told_rest(shard_of_lease(lease), [Ended(lease, rest, ended_at)]))

    def finish(self, lease: Lease, verdict: Verdict) -> None:
        if isinstance(verdict, Moved):
            self._waiting.targets.append((verdict.candidate, lease.candidate))
        if (claim := claim_of(verdict)) is not None:
            self.tells.put(self._ops.claim(claim.digest, lease.id, claim))
        self._waiting.finishes.append(Finished(lease, verdict))
        self._asked.set()

    def tell(self, call: Call) -> None:
        """Sent some time soon, and again until it is acknowledged."""
        self.tells.put(call)
        self._asked.set()

    def is_idle(self) -> bool:
        return not (self._waiting or self.tells or self._ripening or self._under_way)

    def untold_rests(self) -> list[Call]:
        """The end: what hosts asked for, of fetches that could not be told."""
        ended = ended_by_shard([*self._leaving, *self._waiting.releases])
        return [*starmap(self._told_rest, ended.items()), *self.tells.rests()]

    def _told_rest(self, shard: int, ended: Sequence[Ended]) -> Call:
        steady = monotonic()
        told = [Released(each.lease, each.rest, steady - each.at) for each in ended]
        return self._ops.rest(shard, told)

    def keep(self) -> None:
        """The end: links that nobody took are kept on our disk for the next run. If it has no room,
        their pages are not finished either, and are fetched again."""
        with suppress(StoreUnavailable):
            self._outbox.put(self._waiting.links)

    def is_congested(self) -> bool:
        links, held = len(self._waiting.links), len(self._waiting.finishes)
        return self._unsaved or links > MOST_WAITING or held > MOST_HELD

    async def work(self) -> None:
        """For ever: until cancelled."""
        while True:
            if not self._ripening:
                await self._asked.wait()
            self._asked.clear()
            await asyncio.sleep(GATHER_S)
            if not await self.flush():
                await asyncio.sleep(RETRY_S)
                self._asked.set()  # though nobody may have more to tell

    async def flush(self) -> bool:
        """All that waits, once. False: some of it must be sent again later."""
        batch, self._waiting = self._waiting, Batch()
        self._under_way = 1
        self._leaving = batch.releases
        try:
            self._unsaved = False
            whole = await self._send_first(batch)
            self._leaving = []
            is_known = not len(self._outbox) or await self.is_outbox_known()
            is_safe = not self._unsaved and await self._outbox_synced()
            if not is_safe or not is_known:  # their links are nowhere but here, for all we know
                self._waiting.finishes[:0] = batch.finishes
                whole = False
            else:
                sure_at = monotonic() + self._sure_s()
                self._ripening += ((sure_at, each) for each in batch.finishes)
            return await self._send_finishes() and whole
        finally:
            self._under_way = 0

    def _sure_s(self) -> float:
        return 0.0 if self._is_sure or self._nodes.single_server else SURE_S

    async def _send_first(self, batch: Batch) -> bool:
        sending = Sending(self._nodes, self._account)
        self._put_links(sending, batch.links)
        for target, origin in batch.targets:
            own = target.key in {origin.key, *origin.chain}
            found = [replace(target, filtered=target.filtered and not own)]
            for call in self._ops.at_head(target, origin):
                self._put_add(sending, call, found)
        for shard, ended in ended_by_shard(batch.releases).items():
            self._put_releases(sending, shard, ended)
        untold: list[Call] = []
        for call in self.tells.take(monotonic()):
            sending.put(call, partial(self._told, call, untold))
        is_whole = await sending.send()
        self.tells.put_back(untold, monotonic())
        return is_whole and not self.tells.is_held

    def _put_links(self, sending: Sending, found: Sequence[Candidate]) -> None:
        now = self._now()
        for shard, waiting in links_by_shard(found, self._ops.shards).items():
            if self.full(shard):
                sending.is_whole = self._put_aside(waiting) and sending.is_whole
                continue
            for part in parts_of(waiting, BATCH):
                (call,) = self._ops.add(part, now)
                self._put_add(sending, call, part)

    def _put_add(self, sending: Sending, call: Call, found: Sequence[Candidate]) -> None:
        self.touched(call.shard, 0.0)
        sending.put(call, partial(self._added, found))

    def _put_releases(self, sending: Sending, shard: int, ended: Sequence[Ended]) -> None:
        steady = monotonic()
        told = [Released(each.lease, each.rest, steady - each.at) for each in ended]
        self.touched(shard, max(0.0, min(each.rest.seconds - each.age_s for each in told)))
        rest = self._ops.rest(shard, told)
        sending.put(self._ops.release(shard, told), partial(self._released, ended), rest)

    async def _send_finishes(self) -> bool:
        sending = Sending(self._nodes, self._account)
        now = self._now()
        for shard, finishes in self._ripe().items():
            for begin in range(0, len(finishes), BATCH):
                part = finishes[begin : begin + BATCH]
                sending.put(self._ops.finish(shard, part, now), partial(self._finished, part))
        return await sending.send()

    def _ripe(self) -> dict[int, list[Finished]]:
        """Verdicts that may go, by shard. Not before its lease is released: a finish would release
        it with the last gap of its host, and what the host asked for would be forgotten."""
        ripe: dict[int, list[Finished]] = {}
        unreleased = {each.lease.id for each in self._waiting.releases}
        early: list[Finished] = []
        steady = monotonic()
        while self._ripening and self._ripening[0][0] <= steady:
            finished = self._ripening.popleft()[1]
            if finished.lease.id in unreleased:
                early.append(finished)
            else:
                ripe.setdefault(shard_of_lease(finished.lease), []).append(finished)
        self._ripening.extendleft((0.0, each) for each in reversed(early))
        return ripe

    # What became of a call. True: it needs no other try.

    def _added(self, found: Sequence[Candidate], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            return self._put_aside(found)
        self._events.added(read_added(reply))
        return True

    def _put_aside(self, found: Sequence[Candidate]) -> bool:
        """Into the outbox, on our disk."""
        try:
            self._outbox.put(found)
            self._is_synced = False
        except StoreUnavailable as refused:
            self._waiting.links[:0] = found
            self._unsaved = True
            waits = isinstance(refused, StoreFull)
            (self._events.paused if waits else self._events.failed)(refused)
            return False
        return True

    async def _outbox_synced(self) -> bool:
        """Make what was put there survive a power cut, or links of finished pages would be lost.
        False: it may not, for now."""
        if self._is_synced or self._sync_outbox is None:
            return True
        self._is_synced = True
        try:
            await asyncio.to_thread(self._sync_outbox)
        except StoreUnavailable as refused:
            self._is_synced = False
            waits = isinstance(refused, StoreFull)
            (self._events.paused if waits else self._events.failed)(refused)
            return False
        return True

    def _released(self, ended: Sequence[Ended], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._waiting.releases[:0] = ended
            return False
        for each, is_held in zip(ended, read_held(reply), strict=True):
            if not is_held:
                self.rest(each.lease, each.rest, each.at)
        return True

    def _finished(self, finishes: Sequence[Finished], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._ripening.extendleft((0.0, each) for each in reversed(finishes))
            return False
        for each, held in zip(finishes, read_held(reply), strict=True):
            self._holdings.drop(each.lease)
            if not held:
                self._events.refused(each.lease)
        return True

    def _told(self, call: Call, untold: list[Call], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            untold.append(call)
            return False
        return True

    def _account(self, calls: Sequence[Call], reply: Any, asked_at: float) -> None:
        """*reply* to the first of *calls*, which say it all again if it is forgotten."""
        if isinstance(reply, OutOfMemory):
            self._events.crowded(reply)
        if isinstance(reply, OutOfMemory | Unreachable):
            return
        if isinstance(reply, FAULTS):
            self._events.failed(reply)
            return
        self.tells.answers(calls[0].shard)
        self._journal.acknowledged(calls, reply[0], asked_at, monotonic())


async def _yes() -> bool:
    """Nobody is to be told."""
    return True

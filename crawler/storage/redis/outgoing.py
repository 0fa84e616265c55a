"""What a worker tells the shards: links, releases, verdicts. Gathered, sent in pipelines, and kept
until it is acknowledged.

Rule: a page's verdict leaves only when all its links are acknowledged, or on our own disk. Nobody
waits here but our own task; what a server cannot take now waits in the outbox or in memory,
bounded by the leases that are open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Protocol

from msgspec.structs import replace

from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.core.types import Added, Candidate, Done, Lease, Moved, Rest, Verdict
from crawler.storage.redis.calls import Call
from crawler.storage.redis.drain import Outbox
from crawler.storage.redis.faults import FAULTS, OutOfMemory, Unreachable
from crawler.storage.redis.holdings import Holdings
from crawler.storage.redis.journal import Journal
from crawler.storage.redis.ops import (
    BATCH,
    Finished,
    Ops,
    Released,
    read_added,
    read_held,
    shard_of,
    shard_of_lease,
)

GATHER_S: Final = 0.05
"""Time to gather: the more a call carries, the cheaper each; rests are counted from the fetch's
end, so no host waits longer for it."""
SURE_S: Final = 4.0
"""When several servers lose their last moments each, a verdict must not outlive the links before
it. Redis writes its file each second, and up to 2 s later while its disk is slow."""
RETRY_S: Final = 0.5
MOST_WAITING: Final = 20_000  # links not yet sent; then nothing more is leased (8 MB)


class Nodes(Protocol):
    async def run(self, calls: Sequence[Call]) -> list[Any]: ...

    @property
    def single_server(self) -> bool: ...


@dataclass(slots=True)
class Events:
    """What becomes known later than it was asked for."""

    added: Callable[[Added], None]
    refused: Callable[[Lease], None]  # its verdict came too late
    paused: Callable[[StoreUnavailable], None]  # our disk is full: it goes on when there is room
    failed: Callable[[CrawlerError], None]  # no waiting mends it


@dataclass(slots=True)
class _Batch:
    """All that waits to be told."""

    links: list[Candidate] = field(default_factory=list)
    targets: list[tuple[Candidate, Candidate]] = field(default_factory=list)  # of redirects
    releases: list[tuple[Lease, Rest, float]] = field(default_factory=list)  # when it ended
    tells: list[Call] = field(default_factory=list)
    finishes: list[Finished] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.links, self.targets, self.releases, self.tells, self.finishes))


class Outgoing:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        outbox: Outbox,
        events: Events,
        now: Callable[[], float],
        is_sure: bool,
    ) -> None:
        """*is_sure*: what a server acknowledges is on its disk (appendfsync always)."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._outbox = outbox
        self._events = events
        self._now = now
        self._is_sure = is_sure
        self._waiting = _Batch()
        self._ripening: deque[tuple[float, Finished]] = deque()  # verdicts, by when they may go
        self._journal = Journal()
        self._runs: dict[int, bytes] = {}
        self._asked = asyncio.Event()
        self._under_way = 0
        self._unsaved = False
        self.full: Callable[[int], bool] = lambda _: False
        self.touched: Callable[[int, float], None] = lambda _, __: None

    def add(self, found: Iterable[Candidate]) -> None:
        self._waiting.links += found
        self._asked.set()

    def release(self, lease: Lease, rest: Rest) -> None:
        self._waiting.releases.append((lease, rest, monotonic()))
        self._asked.set()

    def finish(self, lease: Lease, verdict: Verdict) -> None:
        if isinstance(verdict, Moved):
            self._waiting.targets.append((verdict.candidate, lease.candidate))
        elif isinstance(verdict, Done) and verdict.claim is not None:
            claim = verdict.claim
            self._waiting.tells.append(self._ops.claim(claim.digest, lease.id, claim))
        self._waiting.finishes.append(Finished(lease, verdict))
        self._asked.set()

    def tell(self, call: Call) -> None:
        """Sent some time soon, and again until it is acknowledged."""
        self._waiting.tells.append(call)
        self._asked.set()

    def is_idle(self) -> bool:
        return not (self._waiting or self._ripening or self._under_way)

    def keep(self) -> None:
        """The end: links that nobody took are kept on our disk for the next run."""
        if self._waiting.links:
            self._outbox.put(self._waiting.links)

    def is_congested(self) -> bool:
        return self._unsaved or len(self._waiting.links) > MOST_WAITING

    async def work(self) -> None:
        """For ever: until cancelled."""
        while True:
            if not self._ripening:
                await self._asked.wait()
            self._asked.clear()
            await asyncio.sleep(GATHER_S)
            if not await self.flush():
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """All that waits, once. False: some of it must be sent again later."""
        batch, self._waiting = self._waiting, _Batch()
        self._under_way = 1
        try:
            self._unsaved = False
            whole = await self._send_first(batch)
            if self._unsaved:  # our disk is full too: their links are nowhere but here
                self._waiting.finishes[:0] = batch.finishes
            else:
                sure_at = monotonic() + self._sure_s()
                self._ripening += ((sure_at, each) for each in batch.finishes)
            return await self._send_finishes() and whole
        finally:
            self._under_way = 0

    def heard(self, shard: int, run: bytes) -> None:
        """*shard* answered, of *run*: if that is another than before, it may have forgotten."""
        last = self._runs.get(shard)
        self._runs[shard] = run
        if last is not None and last != run:
            self._waiting.tells += self._journal.recent(shard, monotonic())
            self._asked.set()

    def _sure_s(self) -> float:
        return 0.0 if self._is_sure or self._nodes.single_server else SURE_S

    async def _send_first(self, batch: _Batch) -> bool:
        sending = _Sending(self)
        sending.links(batch.links)
        for target, origin in batch.targets:
            for call in self._ops.at_head(target, origin):
                own = target.key in {origin.key, *origin.chain}
                sending.add(call, [replace(target, filtered=target.filtered and not own)])
        by_shard: dict[int, list[tuple[Lease, Rest, float]]] = {}
        for release in batch.releases:
            by_shard.setdefault(shard_of_lease(release[0]), []).append(release)
        for shard, releases in by_shard.items():
            sending.releases(shard, releases)
        for call in batch.tells:
            sending.tell(call)
        return await sending.send()

    async def _send_finishes(self) -> bool:
        ripe: dict[int, list[Finished]] = {}
        steady = monotonic()
        while self._ripening and self._ripening[0][0] <= steady:
            finished = self._ripening.popleft()[1]
            ripe.setdefault(shard_of_lease(finished.lease), []).append(finished)
        sending = _Sending(self)
        for shard, finishes in ripe.items():
            for begin in range(0, len(finishes), BATCH):
                sending.finishes(shard, finishes[begin : begin + BATCH])
        return await sending.send()

    # What became of a call. True: it needs no other try.

    def added(self, found: Sequence[Candidate], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            return self.put_aside(found)
        self._events.added(read_added(reply))
        return True

    def put_aside(self, found: Sequence[Candidate]) -> bool:
        """Into the outbox, on our disk."""
        try:
            self._outbox.put(found)
        except StoreUnavailable as full:
            self._waiting.links[:0] = found
            self._unsaved = True
            self._events.paused(full)
            return False
        return True

    def released(self, releases: Sequence[tuple[Lease, Rest, float]], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._waiting.releases[:0] = releases
            return False
        return True

    def finished(self, finishes: Sequence[Finished], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._ripening.extendleft((0.0, each) for each in reversed(finishes))
            return False
        for each, held in zip(finishes, read_held(reply), strict=True):
            self._holdings.drop(each.lease)
            if not held:
                self._events.refused(each.lease)
        return True

    def told(self, call: Call, reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._waiting.tells.append(call)
            return False
        return True

    def account(self, shard: int, calls: Sequence[Call], reply: Any) -> None:
        """*reply* to the first of *calls*, which say it all again if it is forgotten."""
        if isinstance(reply, OutOfMemory | Unreachable):
            return
        if isinstance(reply, FAULTS):
            self._events.failed(reply)
            return
        if not self._is_sure:
            self._journal.note(calls, monotonic())
        self.heard(shard, reply[0])


class _Sending:
    """One pipeline of calls, and what each answer means."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._out = outgoing
        self._calls: list[Call] = []
        self._again: list[Sequence[Call]] = []
        self._meanings: list[Callable[[Any], bool]] = []
        self._whole = True

    def links(self, found: Sequence[Candidate]) -> None:
        ops = self._out._ops
        by_shard: dict[int, list[Candidate]] = {}
        shards: dict[str, int] = {}
        for candidate in found:
            shard = shards.get(candidate.domain)
            if shard is None:
                shard = shards[candidate.domain] = shard_of(candidate.domain, ops.shards)
            by_shard.setdefault(shard, []).append(candidate)
        now = self._out._now()
        for shard, waiting in by_shard.items():
            if self._out.full(shard):
                self._whole = self._out.put_aside(waiting) and self._whole
                continue
            for begin in range(0, len(waiting), BATCH):
                part = waiting[begin : begin + BATCH]
                (call,) = ops.add(part, now)
                self.add(call, part)

    def add(self, call: Call, found: Sequence[Candidate]) -> None:
        self._out.touched(call.shard, 0.0)
        self._put(call, lambda reply: self._out.added(found, reply))

    def releases(self, shard: int, releases: Sequence[tuple[Lease, Rest, float]]) -> None:
        steady = monotonic()
        told = [Released(lease, rest, steady - ended) for lease, rest, ended in releases]
        soonest_s = min(each.rest.seconds - each.age_s for each in told)
        self._out.touched(shard, max(0.0, soonest_s))
        ops = self._out._ops
        call = ops.release(shard, told)
        self._put(call, lambda reply: self._out.released(releases, reply), ops.rest(shard, told))

    def tell(self, call: Call) -> None:
        self._put(call, lambda reply: self._out.told(call, reply))

    def finishes(self, shard: int, finishes: Sequence[Finished]) -> None:
        call = self._out._ops.finish(shard, finishes, self._out._now())
        self._put(call, lambda reply: self._out.finished(finishes, reply))

    async def send(self) -> bool:
        whole = self._whole
        if not self._calls:
            return whole
        replies = await self._out._nodes.run(self._calls)
        for call, again, means, reply in zip(
            self._calls, self._again, self._meanings, replies, strict=True
        ):
            whole = means(reply) and whole
            self._out.account(call.shard, again, reply)
        return whole

    def _put(self, call: Call, means: Callable[[Any], bool], again: Call | None = None) -> None:
        """*again*: what to say beside it when it is forgotten."""
        self._calls.append(call)
        self._again.append([call] if again is None else [call, again])
        self._meanings.append(means)

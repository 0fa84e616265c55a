"""What a worker tells the shards: links, releases, verdicts. Gathered, sent in pipelines, and kept
until it is acknowledged.

Rule: a page's verdict leaves only when all its links are acknowledged, or on our own disk. Nobody
waits here but our own task; what a server cannot take now waits in the outbox or in memory,
bounded by the leases that are open.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from time import monotonic
from typing import Any, Final, Protocol

from msgspec.structs import replace

from crawler.model.types import (
    Added,
    Candidate,
    CrawlerError,
    Lease,
    Moved,
    Rest,
    StoreFull,
    StoreUnavailable,
    Verdict,
)
from crawler.shared.client import Call, Nodes
from crawler.shared.codec import claim_of, parts_of
from crawler.shared.faults import (
    FAULTS,
    OutOfMemory,
    Unreachable,
)
from crawler.shared.shard import (
    BATCH,
    Finished,
    Ops,
    Released,
    read_added,
    read_held,
    shard_of,
    shard_of_lease,
)
from crawler.shared.worker.leases import Holdings, Journal, ServerEpochs

# What waits to be told, and one pipeline of it.
#
# Rule: each call goes out with what its answer means; the meaning decides whether it goes out
# again.


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What becomes known later than it was asked for."""

    added: Callable[[Added], None]
    refused: Callable[[Lease], None]  # its verdict came too late
    crowded: Callable[[StoreUnavailable], None]  # a server has no memory for our links
    paused: Callable[[StoreUnavailable], None]  # our disk is full: it goes on when there is room
    failed: Callable[[CrawlerError], None]  # no waiting mends it
    touched: Callable[[int, float], None]  # something of a shard may be due so many seconds later


@dataclass(frozen=True, slots=True)
class FetchEnd:
    """A fetch is over."""

    lease: Lease
    rest: Rest
    at: float  # monotonic


@dataclass(slots=True)
class OutgoingBatch:
    """All that waits to be told."""

    links: list[Candidate] = field(default_factory=list)
    targets: list[tuple[Candidate, Candidate]] = field(default_factory=list)  # of redirects
    releases: list[FetchEnd] = field(default_factory=list)
    finishes: list[Finished] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.links, self.targets, self.releases, self.finishes))


class Sending:
    """One pipeline."""

    def __init__(self, nodes: Nodes, account: Callable[[Sequence[Call], Any, float], None]) -> None:
        """*account* hears every reply, with what is to be said again if it is forgotten, and when
        it was said (monotonic)."""
        self._nodes = nodes
        self._account = account
        self._calls: list[Call] = []
        self._again: list[Sequence[Call]] = []
        self._meanings: list[Callable[[Any], bool]] = []
        self.is_whole = True

    def put(self, call: Call, means: Callable[[Any], bool], again: Call | None = None) -> None:
        """*means* takes the reply; False: it must be sent again. *again*: what to say beside it
        when it is forgotten."""
        self._calls.append(call)
        self._again.append([call] if again is None else [call, again])
        self._meanings.append(means)

    async def send(self) -> bool:
        """False: something must be sent again."""
        if not self._calls:
            return self.is_whole
        asked_at = monotonic()
        replies = await self._nodes.run(self._calls)
        told = zip(self._again, self._meanings, replies, strict=True)
        for again, means, reply in told:
            self.is_whole = means(reply) and self.is_whole
            self._account(again, reply, asked_at)
        return self.is_whole


def links_by_shard(found: Sequence[Candidate], shards: int) -> dict[int, list[Candidate]]:
    by_shard: dict[int, list[Candidate]] = {}
    known: dict[str, int] = {}
    for candidate in found:
        shard = known.get(candidate.domain)
        if shard is None:
            shard = known[candidate.domain] = shard_of(candidate.domain, shards)
        by_shard.setdefault(shard, []).append(candidate)
    return by_shard


def ended_by_shard(ended: Sequence[FetchEnd]) -> dict[int, list[FetchEnd]]:
    by_shard: dict[int, list[FetchEnd]] = {}
    for each in ended:
        by_shard.setdefault(shard_of_lease(each.lease), []).append(each)
    return by_shard


# What a worker has to tell that is no link, release or verdict: claims, fingerprints, rests,
# robots.txt.
#
# Rule: bounded, though a server be away for days, and not tried all the time. A claim that is never
# told stores a page twice at worst, a fingerprint misses a near-duplicate, a robots.txt is fetched
# once more; a rest is never dropped, and has no more than one place a host.

AGAIN_S: Final = 2.0  # until a shard that did not answer is tried again
MOST: Final = {"claim": 500, "near": 50, "learn": 100, "note": 500}
"""Of a shard: 0.6 MB of claims, as much of fingerprints and 0.4 MB of robots.txt, mostly."""
UNTOLD: Final = "untold/"

_Key = tuple[str, object]


class _Queue:
    """Of one shard, in its order."""

    def __init__(self, dropped: Callable[[str], None]) -> None:
        self.calls: dict[_Key, Call] = {}
        self._counts: Counter[str] = Counter()
        self._dropped = dropped
        self._number = 0

    def put(self, call: Call) -> None:
        key = self._key(call)
        before = self.calls.pop(key, None)
        self.calls[key] = call if before is None else _latest(before, call)
        if before is None:
            self._counts[call.script] += 1
            if self._counts[call.script] > MOST.get(call.script, self._counts[call.script]):
                self._drop_oldest(call.script)

    def _drop_oldest(self, script: str) -> None:
        del self.calls[next(key for key in self.calls if key[0] == script)]
        self._counts[script] -= 1
        self._dropped(script)

    def _key(self, call: Call) -> _Key:
        if call.script == "learn":
            return call.script, call.args[0]
        if _is_of_one_host(call):
            return call.script, call.args[1]
        self._number += 1
        return call.script, self._number


class SideQueue:
    """Bound: MOST a shard, and a rest for each host that was leased."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """*count* counts one more of what is never sent, by its kind."""
        self._count = count
        self._queues: dict[int, _Queue] = {}
        self._try_at: dict[int, float] = {}  # monotonic, of shards that did not answer
        self.asked = asyncio.Event()  # there is something to send

    def __bool__(self) -> bool:
        return bool(self._queues)

    def tell(self, call: Call) -> None:
        """Sent some time soon, and again until it is acknowledged."""
        self.put(call)
        self.asked.set()

    @property
    def is_held(self) -> bool:
        """Whether something waits for a shard to answer again."""
        return any(shard in self._try_at for shard in self._queues)

    def put(self, call: Call) -> None:
        queue = self._queues.get(call.shard)
        if queue is None:
            queue = self._queues[call.shard] = _Queue(self._dropped)
        queue.put(call)

    def take(self, steady: float) -> list[Call]:
        """All that is to be tried now."""
        due = [shard for shard in self._queues if self._try_at.get(shard, 0.0) <= steady]
        for shard in due:
            self._try_at.pop(shard, None)
        return [call for shard in due for call in self._queues.pop(shard).calls.values()]

    def put_back(self, untold: Sequence[Call], steady: float) -> None:
        """They were not acknowledged: to be told again, before newer ones."""
        shards = {call.shard for call in untold}
        newer = [self._queues.pop(shard) for shard in shards if shard in self._queues]
        for call in [*untold, *(call for queue in newer for call in queue.calls.values())]:
            self.put(call)
        self._try_at.update(dict.fromkeys(shards, steady + AGAIN_S))

    def rests(self) -> list[Call]:
        queues = self._queues.values()
        return [call for queue in queues for call in queue.calls.values() if call.script == "rest"]

    def answers(self, shard: int) -> None:
        self._try_at.pop(shard, None)

    def _dropped(self, script: str) -> None:
        self._count(UNTOLD + script)


def _is_of_one_host(call: Call) -> bool:
    """A rest as a worker tells it: the longest possible, host, age, seconds, pace."""
    return call.script == "rest" and len(call.args) == 5


def _latest(before: Call, call: Call) -> Call:
    if call.script != "rest":
        return call
    most_s, host, age_s, _, pace = call.args
    left_s = max(float(one.args[3]) - float(one.args[2]) for one in (before, call))
    return Call(call.shard, "rest", (most_s, host, age_s, left_s + float(age_s), pace))


# From the outbox back into the shards, as their servers have room: better levels first.
#
# Rule: what a server acknowledged stays in the outbox until it is surely on the server's disk: the
# page it stands on is finished, so nobody else would bring it again.

AT_ONCE: Final = 1000
"""Links of a shard that are told and not yet dropped: 16,000 a second over 64 shards."""
ROUNDS: Final = 8  # of a look


class DrainBatch(Protocol):
    @property
    def queue(self) -> Any: ...

    @property
    def links(self) -> list[Candidate]: ...


class LinkOutbox(Protocol):
    def put(self, found: Sequence[Candidate]) -> None: ...

    def head(self, limit: int, resting: Container[int] = ()) -> Any: ...

    def drop(self, batch: Any) -> None: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _Sent:
    batch: DrainBatch
    run: bytes  # of the server that acknowledged it
    sure_at: float  # monotonic


class Drain:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        outbox: LinkOutbox,
        is_full: Callable[[int], bool],
        events: Events,
        runs: ServerEpochs,
        sure_s: float,
    ) -> None:
        """*sure_s*: after so long, what a server acknowledged is on its disk, if it still lives."""
        self._nodes = nodes
        self._ops = ops
        self._outbox = outbox
        self._is_full = is_full
        self._events = events
        self._runs = runs
        self._sure_s = sure_s
        self._told: dict[int, _Sent] = {}

    async def some(self, now: float) -> None:
        """What can go now, a bounded part of it."""
        self._drop_sure()
        if not len(self._outbox):
            return
        shards = range(self._ops.shards)
        resting = {shard for shard in shards if shard in self._told or self._is_full(shard)}
        for _ in range(ROUNDS):
            batch = self._outbox.head(AT_ONCE, resting)
            if batch is None:
                return
            resting.add(batch.queue.shard)
            await self._tell(batch, now)
        self._drop_sure()

    async def _tell(self, batch: DrainBatch, now: float) -> None:
        parts = parts_of(batch.links, BATCH)
        calls = [call for part in parts for call in self._ops.add(part, now)]
        asked_at = monotonic()
        replies = await self._nodes.run(calls)
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if faults:  # told again, all of it: what was seen is seen
            if isinstance(faults[0], OutOfMemory):
                self._events.crowded(faults[0])
            return
        for reply in replies:
            self._events.added(read_added(reply))
            self._runs.heard(batch.queue.shard, reply[0], asked_at)
        # Of two runs: the older, so that it shows as ended.
        sure_at = monotonic() + self._sure_s
        self._told[batch.queue.shard] = _Sent(batch, replies[0][0], sure_at)

    def _drop_sure(self) -> None:
        for shard, told in list(self._told.items()):
            is_sure = not self._sure_s or self._runs.lives(shard, told.run, told.sure_at)
            if is_sure is None:
                continue
            if is_sure and not self._is_dropped(told.batch):
                continue
            del self._told[shard]

    def _is_dropped(self, batch: DrainBatch) -> bool:
        """False: a full disk takes no deletions either. It stays told, and is tried again."""
        try:
            self._outbox.drop(batch)
        except StoreFull as full:
            self._events.paused(full)
            return False
        return True


GATHER_S: Final = 0.05
"""Time to gather: the more a call carries, the cheaper each; rests are counted from the fetch's
end, so no host waits longer for it."""
SURE_S: Final = 4.0
"""When several servers lose their last moments each, a verdict must not outlive the links before
it. Redis writes its file each second, and up to 2 s later while its disk is slow."""
RETRY_S: Final = 0.5
MOST_WAITING: Final = 20_000  # links not yet sent; then nothing more is leased (8 MB)
MOST_HELD: Final = 5_000  # verdicts held back; then nothing more is leased (5 MB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """Where links wait that no server takes now: in the outbox, on our disk."""

    outbox: LinkOutbox
    is_full: Callable[[int], bool]  # the server of a shard takes no links now
    is_noted: Callable[[], Awaitable[bool]]
    """Is awaited while links wait on our disk, before any verdict: whether all workers hear
    that some do. If we died first, the crawl would end without them."""
    sync: Callable[[], None] | None  # makes the outbox survive a power cut; None: it need not


class Outgoing:
    def __init__(
        self,
        nodes: Nodes,
        ops: Ops,
        holdings: Holdings,
        journal: Journal,
        tells: SideQueue,
        overflow: Overflow,
        events: Events,
        now: Callable[[], float],
        is_sure: bool,
    ) -> None:
        """*is_sure*: what a server acknowledges is on its disk (appendfsync always)."""
        self._nodes = nodes
        self._ops = ops
        self._holdings = holdings
        self._journal = journal
        self._tells = tells
        self._overflow = overflow
        self._outbox = overflow.outbox
        self._events = events
        self._now = now
        self._is_sure = is_sure
        self._is_synced = True  # the outbox
        self._waiting = OutgoingBatch()
        self._ripening: deque[tuple[float, Finished]] = deque()  # verdicts, by when they may go
        self._asked = tells.asked
        self._under_way = 0
        self._leaving: list[FetchEnd] = []
        self._unsaved = False

    def add(self, found: Iterable[Candidate]) -> None:
        self._waiting.links += found
        self._asked.set()

    def release(self, lease: Lease, rest: Rest) -> None:
        self._waiting.releases.append(FetchEnd(lease, rest, monotonic()))
        self._asked.set()

    def rest(self, lease: Lease, rest: Rest, ended_at: float) -> None:
        """Of a lease that has ended, or was forgotten by its server: its host was asked all the
        same."""
        self._tells.tell(self._told_rest(shard_of_lease(lease), [FetchEnd(lease, rest, ended_at)]))

    def finish(self, lease: Lease, verdict: Verdict) -> None:
        if isinstance(verdict, Moved):
            self._waiting.targets.append((verdict.candidate, lease.candidate))
        if (claim := claim_of(verdict)) is not None:
            self._tells.put(self._ops.claim(claim.digest, lease.id, claim))
        self._waiting.finishes.append(Finished(lease, verdict))
        self._asked.set()

    def is_idle(self) -> bool:
        return not (self._waiting or self._tells or self._ripening or self._under_way)

    def untold_rests(self) -> list[Call]:
        """The end: what hosts asked for, of fetches that could not be told."""
        ended = ended_by_shard([*self._leaving, *self._waiting.releases])
        return [*starmap(self._told_rest, ended.items()), *self._tells.rests()]

    def _told_rest(self, shard: int, ended: Sequence[FetchEnd]) -> Call:
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
        batch, self._waiting = self._waiting, OutgoingBatch()
        self._under_way = 1
        self._leaving = batch.releases
        try:
            self._unsaved = False
            whole = await self._send_first(batch)
            self._leaving = []
            is_known = not len(self._outbox) or await self._overflow.is_noted()
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

    async def _send_first(self, batch: OutgoingBatch) -> bool:
        sending = Sending(self._nodes, self._account)
        is_whole = self._put_links(sending, batch.links)
        for target, origin in batch.targets:
            own = target.key in {origin.key, *origin.chain}
            found = [replace(target, filtered=target.filtered and not own)]
            for call in self._ops.at_head(target, origin):
                self._put_add(sending, call, found)
        for shard, ended in ended_by_shard(batch.releases).items():
            self._put_releases(sending, shard, ended)
        untold: list[Call] = []
        for call in self._tells.take(monotonic()):
            sending.put(call, partial(self._told, call, untold))
        is_whole = await sending.send() and is_whole
        self._tells.put_back(untold, monotonic())
        return is_whole and not self._tells.is_held

    def _put_links(self, sending: Sending, found: Sequence[Candidate]) -> bool:
        """False: some find no room anywhere, and must be sent again."""
        now, is_whole = self._now(), True
        for shard, waiting in links_by_shard(found, self._ops.shards).items():
            if self._overflow.is_full(shard):
                is_whole = self._put_aside(waiting) and is_whole
                continue
            for part in parts_of(waiting, BATCH):
                (call,) = self._ops.add(part, now)
                self._put_add(sending, call, part)
        return is_whole

    def _put_add(self, sending: Sending, call: Call, found: Sequence[Candidate]) -> None:
        self._events.touched(call.shard, 0.0)
        sending.put(call, partial(self._added, found))

    def _put_releases(self, sending: Sending, shard: int, ended: Sequence[FetchEnd]) -> None:
        steady = monotonic()
        told = [Released(each.lease, each.rest, steady - each.at) for each in ended]
        self._events.touched(shard, max(0.0, min(each.rest.seconds - each.age_s for each in told)))
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
        if self._is_synced or self._overflow.sync is None:
            return True
        self._is_synced = True
        try:
            await asyncio.to_thread(self._overflow.sync)
        except StoreUnavailable as refused:
            self._is_synced = False
            waits = isinstance(refused, StoreFull)
            (self._events.paused if waits else self._events.failed)(refused)
            return False
        return True

    def _released(self, ended: Sequence[FetchEnd], reply: Any) -> bool:
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
        self._tells.answers(calls[0].shard)
        self._journal.acknowledged(calls, reply[0], asked_at, monotonic())

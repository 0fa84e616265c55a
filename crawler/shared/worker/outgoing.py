"""Sends links, releases and verdicts to the shards, and keeps them until they are acknowledged.

Rule: a page's verdict is sent only when all its links are acknowledged, or on our own disk. Links
that a server cannot take wait in the outbox; the rest waits in memory, bounded by the open leases.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import Any, Final, Protocol

import numpy as np
from msgspec.structs import replace

from crawler.frontier.seen import RecentKeys
from crawler.model.types import (
    Added,
    Candidate,
    CrawlerError,
    Lease,
    Moved,
    Purpose,
    Rest,
    StoreFull,
    StoreUnavailable,
    Verdict,
)
from crawler.shared.client import Call, Nodes
from crawler.shared.codec import claim_of, split_links
from crawler.shared.faults import (
    FAULTS,
    OutOfMemory,
    Unreachable,
)
from crawler.shared.keys import URGENT_LEVEL
from crawler.shared.shard import (
    BATCH,
    FinishedLease,
    ReleasedLease,
    read_added,
    read_held,
    shard_of,
    shard_of_lease,
    with_longest_asked,
)
from crawler.shared.worker.leases import WorkerContext


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingEvents:
    """Callbacks for results that arrive later."""

    on_added: Callable[[Added], None]
    on_refused: Callable[[Lease], None]  # its verdict was sent too late
    on_server_full: Callable[[StoreUnavailable], None]  # a server has no memory for our links
    on_disk_full: Callable[[StoreUnavailable], None]  # our disk is full, so sending waits
    on_failed: Callable[[CrawlerError], None]  # an error that waiting cannot repair
    on_shard_due: Callable[[int, float], None]
    """Something of a shard may be due so many seconds later."""


@dataclass(frozen=True, slots=True)
class FetchEnd:
    """The end of a fetch."""

    lease: Lease
    rest: Rest
    at: float  # monotonic


@dataclass(slots=True)
class OutgoingBatch:
    """All that waits to be sent."""

    links: list[Candidate] = field(default_factory=list)
    targets: list[tuple[Candidate, Candidate]] = field(default_factory=list)  # of redirects
    releases: list[FetchEnd] = field(default_factory=list)
    finishes: list[FinishedLease] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.links, self.targets, self.releases, self.finishes))


class CallBatch:
    """Calls that are sent together, each with the function that takes its reply."""

    def __init__(
        self,
        nodes: Nodes,
        record: Callable[[Sequence[Call], Any, float], None],
        steady: Callable[[], float],
    ) -> None:
        """*record* is called for every reply: with the calls to send again if the server loses it,
        the reply, and the time it was asked for (monotonic)."""
        self._nodes = nodes
        self._record_reply = record
        self._steady = steady
        self._calls: list[Call] = []
        self._resend: list[Sequence[Call]] = []
        self._accepts: list[Callable[[Any], bool]] = []
        self.is_whole = True

    def put(self, call: Call, accept: Callable[[Any], bool], resend: Call | None = None) -> None:
        """Add *call*. *accept* takes the reply and returns False if it must be sent again. *resend*
        is sent beside *call* if the server loses it."""
        self._calls.append(call)
        self._resend.append([call] if resend is None else [call, resend])
        self._accepts.append(accept)

    async def send(self) -> bool:
        """Send all calls. Returns False if something must be sent again."""
        if not self._calls:
            return self.is_whole
        asked_at = self._steady()
        replies = await self._nodes.run(self._calls)
        answered = zip(self._resend, self._accepts, replies, strict=True)
        for again, accept, reply in answered:
            self.is_whole = accept(reply) and self.is_whole
            self._record_reply(again, reply, asked_at)
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


SHARD_RETRY_S: Final = 2.0  # the interval of attempts at a shard that does not answer
MAX_KEPT_CALLS: Final = {"claim_content": 500, "near": 50, "put_robots": 100, "add_stats": 500}
"""Calls kept for a shard: mostly 0.6 MB of claims, as much of fingerprints, 0.4 of robots.txt."""
UNSENT_KEY: Final = "untold/"

_Key = tuple[str, object]


class _Queue:
    """The calls for one shard, in the order they were put."""

    def __init__(self, on_dropped: Callable[[str], None]) -> None:
        self.calls: dict[_Key, Call] = {}
        self._counts: Counter[str] = Counter()
        self._on_dropped = on_dropped
        self._number = 0

    def put(self, call: Call) -> None:
        key = self._key(call)
        before = self.calls.pop(key, None)
        self.calls[key] = call if before is None else _latest(before, call)
        if before is None:
            self._counts[call.script] += 1
            if self._counts[call.script] > MAX_KEPT_CALLS.get(
                call.script, self._counts[call.script]
            ):
                self._drop_oldest(call.script)

    def _drop_oldest(self, script: str) -> None:
        del self.calls[next(key for key in self.calls if key[0] == script)]
        self._counts[script] -= 1
        self._on_dropped(script)

    def _key(self, call: Call) -> _Key:
        if call.script == "put_robots":
            return call.script, call.args[0]
        if _is_of_one_host(call):
            return call.script, call.args[1]
        self._number += 1
        return call.script, self._number


class SideQueue:
    """Calls that are no link, release or verdict: claims, fingerprints, rests, robots.txt. If a
    server is down for long, the oldest are dropped: at worst a page is stored twice, a near
    duplicate is missed, or a robots.txt is fetched again. Rests are never dropped.

    Bound: MAX_KEPT_CALLS of each kind for a shard, and a rest for each host that was leased."""

    def __init__(self, count: Callable[[str], None]) -> None:
        """*count* adds one to the counter of a kind of dropped calls."""
        self._count = count
        self._queues: dict[int, _Queue] = {}
        self._try_at: dict[int, float] = {}  # monotonic, for shards that did not answer
        self.wake = asyncio.Event()  # set if there is something to send

    def __bool__(self) -> bool:
        return bool(self._queues)

    def send_later(self, call: Call) -> None:
        """Send *call* some time soon, and again until it is acknowledged."""
        self.put(call)
        self.wake.set()

    @property
    def is_waiting_for_retry(self) -> bool:
        """Whether calls wait for a shard that does not answer."""
        return any(shard in self._try_at for shard in self._queues)

    def put(self, call: Call) -> None:
        queue = self._queues.get(call.shard)
        if queue is None:
            queue = self._queues[call.shard] = _Queue(self._count_dropped)
        queue.put(call)

    def take(self, steady: float) -> list[Call]:
        """Remove and return the calls to be sent now."""
        due = [shard for shard in self._queues if self._try_at.get(shard, 0.0) <= steady]
        for shard in due:
            self._try_at.pop(shard, None)
        return [call for shard in due for call in self._queues.pop(shard).calls.values()]

    def put_back(self, unsent: Sequence[Call], steady: float) -> None:
        """Put back calls that were not acknowledged, before newer ones."""
        shards = {call.shard for call in unsent}
        newer = [self._queues.pop(shard) for shard in shards if shard in self._queues]
        for call in [*unsent, *(call for queue in newer for call in queue.calls.values())]:
            self.put(call)
        self._try_at.update(dict.fromkeys(shards, steady + SHARD_RETRY_S))

    def rests(self) -> list[Call]:
        queues = self._queues.values()
        return [call for queue in queues for call in queue.calls.values() if call.script == "rest"]

    def on_answer(self, shard: int) -> None:
        self._try_at.pop(shard, None)

    def _count_dropped(self, script: str) -> None:
        self._count(UNSENT_KEY + script)


def _is_of_one_host(call: Call) -> bool:
    """Return whether *call* is a rest of one host: longest rest, host, age, seconds, pace."""
    return call.script == "rest" and len(call.args) == 5


def _latest(before: Call, call: Call) -> Call:
    if call.script != "rest":
        return call
    most_s, host, age_s, _, pace = call.args
    pace = with_longest_asked(before.args[4], pace)
    left_s = max(float(one.args[3]) - float(one.args[2]) for one in (before, call))
    return Call(call.shard, "rest", (most_s, host, age_s, left_s + float(age_s), pace))


LINKS_PER_BATCH: Final = 1000
"""Links of a shard that are sent and not yet dropped: 16,000 a second over 64 shards."""
BATCHES_PER_TICK: Final = 8  # batches of one `OutboxDrain.send_some`


class DrainBatch(Protocol):
    @property
    def queue(self) -> Any: ...

    @property
    def links(self) -> list[Candidate]: ...


class LinkOutbox(Protocol):
    def put(self, found: Sequence[Candidate]) -> None: ...

    def head(self, limit: int, skip: Container[int] = ()) -> Any: ...

    def drop(self, batch: Any) -> None: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class _SentBatch:
    batch: DrainBatch
    run: bytes  # of the server that acknowledged it
    durable_at: float  # monotonic


class OutboxDrain:
    """Sends links from the outbox to shards whose servers have room, better levels first. They stay
    in the outbox until they are surely on the server's disk: their page is finished, so it would
    not be fetched again to find them."""

    def __init__(
        self,
        context: WorkerContext,
        outbox: LinkOutbox,
        is_full: Callable[[int], bool],
        events: OutgoingEvents,
        durable_after_s: float,
    ) -> None:
        """After *durable_after_s* what a server acknowledged is on its disk, if it has not
        restarted."""
        self._nodes = context.nodes
        self._ops = context.ops
        self._outbox = outbox
        self._is_full = is_full
        self._events = events
        self._server_epochs = context.server_epochs
        self._durable_after_s = durable_after_s
        self._steady = context.steady
        self._unsynced: dict[int, _SentBatch] = {}

    async def send_some(self, now: float) -> None:
        """Send a bounded part of the links that can be sent now."""
        self._drop_durable()
        if not len(self._outbox):
            return
        shards = range(self._ops.shards)
        skip = {shard for shard in shards if shard in self._unsynced or self._is_full(shard)}
        for _ in range(BATCHES_PER_TICK):
            batch = self._outbox.head(LINKS_PER_BATCH, skip)
            if batch is None:
                return
            skip.add(batch.queue.shard)
            await self._send(batch, now)
        self._drop_durable()

    async def _send(self, batch: DrainBatch, now: float) -> None:
        parts = split_links(batch.links, BATCH)
        calls = [call for part in parts for call in self._ops.add(part, now)]
        asked_at = self._steady()
        replies = await self._nodes.run(calls)
        faults = [reply for reply in replies if isinstance(reply, FAULTS)]
        if faults:  # the whole batch is sent again later: a URL is added once
            if isinstance(faults[0], OutOfMemory):
                self._events.on_server_full(faults[0])
            return
        for reply in replies:
            self._events.on_added(read_added(reply))
            self._server_epochs.observe(batch.queue.shard, reply[0], asked_at)
        # If the server has restarted between two calls, the first run is kept: it has ended.
        sure_at = self._steady() + self._durable_after_s
        self._unsynced[batch.queue.shard] = _SentBatch(batch, replies[0][0], sure_at)

    def _drop_durable(self) -> None:
        for shard, sent in list(self._unsynced.items()):
            is_sure = not self._durable_after_s or self._server_epochs.was_alive(
                shard, sent.run, sent.durable_at
            )
            if is_sure is None:
                continue
            if is_sure and not self._try_drop(sent.batch):
                continue
            del self._unsynced[shard]

    def _try_drop(self, batch: DrainBatch) -> bool:
        """Drop *batch* from the outbox. Returns False if the disk is full, which prevents deletions
        as well; then it is tried again."""
        try:
            self._outbox.drop(batch)
        except StoreFull as full:
            self._events.on_disk_full(full)
            return False
        return True


class AcknowledgedLinks:
    """The links that a server counted as seen lately: found once more, they are not sent again.

    A lost one would be missing for good, so nothing is kept that may be new to its server: links
    of a call with some over budget, and after a restart of any server, all of them. Acts of the
    operator make no URL new: one that was forgotten is still counted as seen.
    """

    def __init__(self) -> None:
        self._keys = RecentKeys(ACKNOWLEDGED_LINKS)

    def clear(self) -> None:
        self._keys.clear()

    def add(self, acknowledged: Iterable[Candidate]) -> None:
        keys = [link.key for link in acknowledged if _is_plain(link)]
        self._keys.add(np.array(keys, np.uint64))

    def without(self, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """Return the links of *found* that are to be sent."""
        tested = np.fromiter((link.key for link in found), np.uint64, len(found))
        are_known = self._keys.contain(tested).tolist()
        return [
            link
            for link, is_known in zip(found, are_known, strict=True)
            if not (is_known and _is_plain(link))
        ]


_PAGE: Final = Purpose.PAGE  # each look-up of a member of an enumeration takes 0.1 us


def _is_plain(link: Candidate) -> bool:
    """Return whether *link* was found on a page, to be fetched at its turn if it is new."""
    return (
        link.depth > 0
        and link.needs_seen_test
        and link.level != URGENT_LEVEL
        and link.purpose is _PAGE
        and not (link.not_before or link.request or link.seed or link.is_sitemap)
    )


ACKNOWLEDGED_LINKS: Final = 1 << 17
"""Links remembered as acknowledged, at most: 1 MB. Of eight links in nine that a crawl found before
most are among so many."""
GATHER_S: Final = 0.05
"""Time to gather: items cost less in larger calls. Rests are counted from the end of the fetch, so
no host waits longer for it."""
VERDICT_DELAY_S: Final = 4.0
"""The delay of verdicts. If several servers crash, a verdict must not survive links before it.
Redis writes its file each second, and up to 2 s later while its disk is slow."""
RETRY_S: Final = 0.5
MAX_UNSENT_LINKS: Final = 20_000  # unsent links; with more nothing is leased (8 MB)
MAX_UNSENT_VERDICTS: Final = 5_000  # unsent verdicts; with more nothing is leased (5 MB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The outbox on our disk, for links that no server takes now, and its conditions."""

    outbox: LinkOutbox
    is_full: Callable[[int], bool]  # whether the server of a shard takes no links now
    ensure_noted: Callable[[], Awaitable[bool]]
    """Awaited before any verdict while links wait on our disk: whether a shard has a note of that.
    Without it, if this process were killed, the crawl would end without them."""
    sync: Callable[[], None] | None  # makes the outbox survive a power cut; None: it need not


class Sender:
    """Gathers what the crawl sends, and sends it in pipelines from one task."""

    def __init__(
        self,
        context: WorkerContext,
        side_queue: SideQueue,
        overflow: Overflow,
        events: OutgoingEvents,
        is_ack_durable: bool,
    ) -> None:
        """*is_ack_durable* means that what a server acknowledges is on its disk (appendfsync
        always)."""
        self._nodes = context.nodes
        self._ops = context.ops
        self._held_leases = context.held_leases
        self._journal = context.journal
        self._side_queue = side_queue
        self._overflow = overflow
        self._outbox = overflow.outbox
        self._events = events
        self._now = context.now
        self._steady = context.steady
        self._is_ack_durable = is_ack_durable
        self._is_synced = True  # whether all of the outbox survives a power cut
        self._waiting = OutgoingBatch()
        # With the time they may be sent.
        self._delayed: deque[tuple[float, FinishedLease]] = deque()
        self._has_work = side_queue.wake
        self._under_way = 0
        self._releases_under_way: list[FetchEnd] = []
        self._has_unsaved_links = False
        self._acknowledged = AcknowledgedLinks()

    def add(self, found: Iterable[Candidate]) -> None:
        self._waiting.links += found
        self._has_work.set()

    def release(self, lease: Lease, rest: Rest) -> None:
        self._waiting.releases.append(FetchEnd(lease, rest, self._steady()))
        self._has_work.set()

    def rest(self, lease: Lease, rest: Rest, ended_at: float) -> None:
        """Send the rest of the host of a lease that has ended or was lost by its server: the host
        was contacted all the same."""
        self._side_queue.send_later(
            self._rest_call(shard_of_lease(lease), [FetchEnd(lease, rest, ended_at)])
        )

    def finish(self, lease: Lease, verdict: Verdict) -> None:
        if isinstance(verdict, Moved):
            self._waiting.targets.append((verdict.candidate, lease.candidate))
        if (claim := claim_of(verdict)) is not None:
            self._side_queue.put(self._ops.claim(claim.digest, lease.id, claim))
        self._waiting.finishes.append(FinishedLease(lease, verdict))
        self._has_work.set()

    def is_idle(self) -> bool:
        return not (self._waiting or self._side_queue or self._delayed or self._under_way)

    def on_server_restart(self) -> None:
        """Note that a server may have lost links that it acknowledged."""
        self._acknowledged.clear()

    def unsent_rests(self) -> list[Call]:
        """Return calls with the rests of all releases that were not sent, at the end."""
        ended = ended_by_shard([*self._releases_under_way, *self._waiting.releases])
        return [*starmap(self._rest_call, ended.items()), *self._side_queue.rests()]

    def _rest_call(self, shard: int, ended: Sequence[FetchEnd]) -> Call:
        steady = self._steady()
        released = [ReleasedLease(each.lease, each.rest, steady - each.at) for each in ended]
        return self._ops.rest(shard, released)

    def store_unsent_links(self) -> None:
        """Keep unsent links in the outbox for the next start, at the end. If our disk has no room,
        their pages were not finished either, and are fetched again."""
        with suppress(StoreUnavailable):
            self._outbox.put(self._waiting.links)

    def is_congested(self) -> bool:
        links, held = len(self._waiting.links), len(self._waiting.finishes)
        return self._has_unsaved_links or links > MAX_UNSENT_LINKS or held > MAX_UNSENT_VERDICTS

    async def work(self) -> None:
        """Send what is gathered until cancelled."""
        while True:
            if not self._delayed:
                await self._has_work.wait()
            self._has_work.clear()
            await asyncio.sleep(GATHER_S)
            if not await self.flush():
                await asyncio.sleep(RETRY_S)
                self._has_work.set()  # to try again even if nothing is added

    async def flush(self) -> bool:
        """Send all that waits, once. Returns False if some of it must be sent again later."""
        batch, self._waiting = self._waiting, OutgoingBatch()
        self._under_way = 1
        self._releases_under_way = batch.releases
        try:
            self._has_unsaved_links = False
            whole = await self._send_first(batch)
            self._releases_under_way = []
            is_known = not len(self._outbox) or await self._overflow.ensure_noted()
            is_safe = not self._has_unsaved_links and await self._sync_outbox()
            if not is_safe or not is_known:  # their links may be only in our memory
                self._waiting.finishes[:0] = batch.finishes
                whole = False
            else:
                sure_at = self._steady() + self._durable_after_s()
                self._delayed += ((sure_at, each) for each in batch.finishes)
            return await self._send_finishes() and whole
        finally:
            self._under_way = 0

    def _durable_after_s(self) -> float:
        return 0.0 if self._is_ack_durable or self._nodes.single_server else VERDICT_DELAY_S

    async def _send_first(self, batch: OutgoingBatch) -> bool:
        sending = CallBatch(self._nodes, self._record_reply, self._steady)
        is_whole = self._put_links(sending, batch.links)
        for target, origin in batch.targets:
            own = target.key in {origin.key, *origin.chain}
            found = [replace(target, needs_seen_test=target.needs_seen_test and not own)]
            for call in self._ops.add_at_head(target, origin):
                self._put_add(sending, call, found)
        for shard, ended in ended_by_shard(batch.releases).items():
            self._put_releases(sending, shard, ended)
        unsent: list[Call] = []
        for call in self._side_queue.take(self._steady()):
            sending.put(call, partial(self._take_side_reply, call, unsent))
        is_whole = await sending.send() and is_whole
        self._side_queue.put_back(unsent, self._steady())
        return is_whole and not self._side_queue.is_waiting_for_retry

    def _put_links(self, sending: CallBatch, found: Sequence[Candidate]) -> bool:
        """Add the calls of *found*, but for links acknowledged lately, or put it into the outbox
        where a server is full. Returns False if the outbox has no room either, so that links must
        be sent again."""
        now, is_whole = self._now(), True
        unknown = self._acknowledged.without(found)
        if len(unknown) < len(found):
            self._events.on_added(Added(seen=len(found) - len(unknown)))
        for shard, waiting in links_by_shard(unknown, self._ops.shards).items():
            if self._overflow.is_full(shard):
                is_whole = self._put_into_outbox(waiting) and is_whole
                continue
            for some in self._ops.by_budgets(waiting):
                for part in split_links(some, BATCH):
                    (call,) = self._ops.add(part, now)
                    self._put_add(sending, call, part)
        return is_whole

    def _put_add(self, sending: CallBatch, call: Call, found: Sequence[Candidate]) -> None:
        self._events.on_shard_due(call.shard, 0.0)
        sending.put(call, partial(self._take_add_reply, found))

    def _put_releases(self, sending: CallBatch, shard: int, ended: Sequence[FetchEnd]) -> None:
        steady = self._steady()
        ends = [ReleasedLease(each.lease, each.rest, steady - each.at) for each in ended]
        self._events.on_shard_due(
            shard, max(0.0, min(each.rest.seconds - each.age_s for each in ends))
        )
        rest = self._ops.rest(shard, ends)
        sending.put(self._ops.release(shard, ends), partial(self._take_release_reply, ended), rest)

    async def _send_finishes(self) -> bool:
        sending = CallBatch(self._nodes, self._record_reply, self._steady)
        now = self._now()
        for shard, finishes in self._due_verdicts().items():
            for begin in range(0, len(finishes), BATCH):
                part = finishes[begin : begin + BATCH]
                sending.put(
                    self._ops.finish(shard, part, now), partial(self._take_finish_reply, part)
                )
        return await sending.send()

    def _due_verdicts(self) -> dict[int, list[FinishedLease]]:
        """Remove and return the verdicts that may be sent, by shard. The release of a lease must be
        sent first: a finish would release it with the last gap of its host, and lose its rest."""
        due: dict[int, list[FinishedLease]] = {}
        unreleased = {each.lease.id for each in self._waiting.releases}
        early: list[FinishedLease] = []
        steady = self._steady()
        while self._delayed and self._delayed[0][0] <= steady:
            finished = self._delayed.popleft()[1]
            if finished.lease.id in unreleased:
                early.append(finished)
            else:
                due.setdefault(shard_of_lease(finished.lease), []).append(finished)
        self._delayed.extendleft((0.0, each) for each in reversed(early))
        return due

    # These take the reply to a call, and return whether it need not be sent again.

    def _take_add_reply(self, found: Sequence[Candidate], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            return self._put_into_outbox(found)
        added = read_added(reply)
        if not added.over_budget:
            self._acknowledged.add(found)
        self._events.on_added(added)
        return True

    def _put_into_outbox(self, found: Sequence[Candidate]) -> bool:
        """Put *found* into the outbox on our disk."""
        try:
            self._outbox.put(found)
            self._is_synced = False
        except StoreUnavailable as refused:
            self._waiting.links[:0] = found
            self._has_unsaved_links = True
            waits = isinstance(refused, StoreFull)
            (self._events.on_disk_full if waits else self._events.on_failed)(refused)
            return False
        return True

    async def _sync_outbox(self) -> bool:
        """Make the outbox survive a power cut; otherwise links of finished pages could be lost.
        Returns False if that fails for now."""
        if self._is_synced or self._overflow.sync is None:
            return True
        self._is_synced = True
        try:
            await asyncio.to_thread(self._overflow.sync)
        except StoreUnavailable as refused:
            self._is_synced = False
            waits = isinstance(refused, StoreFull)
            (self._events.on_disk_full if waits else self._events.on_failed)(refused)
            return False
        return True

    def _take_release_reply(self, ended: Sequence[FetchEnd], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._waiting.releases[:0] = ended
            return False
        for each, is_held in zip(ended, read_held(reply), strict=True):
            if not is_held:
                self.rest(each.lease, each.rest, each.at)
        return True

    def _take_finish_reply(self, finishes: Sequence[FinishedLease], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            self._delayed.extendleft((0.0, each) for each in reversed(finishes))
            return False
        for each, held in zip(finishes, read_held(reply), strict=True):
            self._held_leases.drop(each.lease)
            if not held:
                self._events.on_refused(each.lease)
        return True

    def _take_side_reply(self, call: Call, unsent: list[Call], reply: Any) -> bool:
        if isinstance(reply, FAULTS):
            unsent.append(call)
            return False
        return True

    def _record_reply(self, calls: Sequence[Call], reply: Any, asked_at: float) -> None:
        """Record *reply* to the first of *calls*, which are sent again if the server loses it."""
        if isinstance(reply, OutOfMemory):
            self._events.on_server_full(reply)
        if isinstance(reply, OutOfMemory | Unreachable):
            return
        if isinstance(reply, FAULTS):
            self._events.on_failed(reply)
            return
        self._side_queue.on_answer(calls[0].shard)
        self._journal.record(calls, reply[0], asked_at, self._steady())

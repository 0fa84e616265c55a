"""A crawl whose URLs are in a URL Frontier, which others may use at the same time.

Rule: the methods that the crawl calls use only memory and the store in the data directory. Two
background tasks speak to the server. What is sent goes in rounds: links and blocks first, and when
all of those are acknowledged, what has become of URLs. So a host is blocked before its next URL can
be served, and no page is done before the server has its links.

What is kept here is what hosts have asked for: each rest is in the store and at the server, and is
sent again after each time that the connection was lost, as the reference server forgets it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import chain, count
from math import ceil
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from crawler.data.disk_room import WaitWarnings
from crawler.frontier import records as keys
from crawler.frontier.port import FrontierLimits, LeaseRules, OrderedStore, PerHost, one
from crawler.frontier.records import NEVER, claim_changes, encode
from crawler.frontier.sweep import forget_kept_here
from crawler.model.counts import Counts
from crawler.model.types import (
    STANDINGS,
    Added,
    BorrowedTurn,
    Candidate,
    Claim,
    ConditionalVisits,
    CrawlerError,
    Dead,
    Done,
    HostKey,
    HostWork,
    Lease,
    LinkSource,
    Moved,
    NotItsTurn,
    NoTurn,
    Outcome,
    Pace,
    Purpose,
    PutBack,
    Rest,
    RetryAt,
    Standing,
    StoreUnavailable,
    Verdict,
    VisitCheck,
)
from crawler.policy.refusal import Refusal
from crawler.policy.rounds import RoundProgress
from crawler.policy.validators import noted
from crawler.urlfrontier.remote_urls import (
    DEAD,
    FIRST,
    REFUSED,
    Place,
    RemoteUrl,
    as_done,
    as_ended,
    candidate_of,
    remote_url,
    visited_again,
    with_candidate,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")

BATCH: Final = 200  # URLs of a batch; larger ones are hardly faster
BATCH_CHARS: Final = 1_000_000  # of its texts: gRPC takes 4 MiB of a message by default
AFTER_S: Final = 15.0
"""For how long a lease holds at least after the longest fetch: until the page is stored."""
SPARE_S: Final = 30.0  # of a lease, beyond the longest fetch
MOST_UNSENT: Final = 20_000  # links; more wait where they were found
STATS_S: Final = 10.0
"""Between two questions for the counts, for which a server may look at each of its queues."""
CLOSE_S: Final = 10.0  # for so long a stop waits for a server that does not answer
_AGAIN_S: Final = 0.5  # until what failed is tried again
_SOON_S: Final = 0.05  # between two questions for URLs, at least
_LATEST_S: Final = 1.0  # and at most, while slots are free
_AT_ONCE: Final = 64  # blocks that are under way
_NUMBERS: Final = 4096  # of leases, reserved in one write
_SLICE: Final = 1000  # rests read from the store at once


class Status(IntEnum):
    """What a URL Frontier says of a URL that it was given."""

    OK = 0
    SKIPPED = 1  # it is known, or cannot be kept
    FAIL = 2  # it may be sent again


class RemoteStats(NamedTuple):
    size: int  # URLs that are not done
    in_process: int  # of these, leased
    done: int


class RemoteServer(Protocol):
    """The calls of a URL Frontier, for one crawlID. Each raises StoreUnavailable while the server
    does not answer, and another CrawlerError if it never will."""

    @property
    def connections(self) -> int:
        """How often it was connected to: it may have restarted if that has changed."""

    async def put_discovered(self, urls: Sequence[RemoteUrl]) -> Sequence[int]: ...

    async def put_known(self, urls: Sequence[tuple[RemoteUrl, int]]) -> Sequence[int]:
        """Put URLs with their dates, epoch seconds; 0: they are done."""

    async def get_urls(self, queues: int, lease_s: int) -> Sequence[RemoteUrl]: ...

    async def block(self, key: str, until: int) -> None: ...

    async def stats(self) -> RemoteStats: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteHooks:
    """What a RemoteFrontier needs of its crawl."""

    now: Callable[[], float]
    free_slots: Callable[[Standing], int]
    wake: Callable[[], None]  # lets the engine ask for leases
    fail: Callable[[CrawlerError], None]
    log: Callable[[Sequence[Outcome]], None]  # writes outcomes whose verdicts the server has
    count: Callable[[str], None]  # adds to a counter of the run
    place_of: Callable[[str], Place | None]
    admit: Callable[[str], Candidate | Refusal]  # judges a URL that another crawler has put
    on_decided: Callable[[Added], None]
    """Called with what became of links that were added."""


class RemoteHost(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A host, as it is stored."""

    until: float = 0.0  # epoch seconds, the end of its rest
    pace: Pace = Pace()
    conditional: ConditionalVisits = ConditionalVisits()
    queue: str = ""  # its key in the URL Frontier; empty: the name of the host


_NEW_HOST: Final = RemoteHost()
_decode_host = msgspec.msgpack.Decoder(RemoteHost).decode


@dataclass(slots=True, eq=False)
class _Held:
    """A URL that the server has leased to us, until it knows what has become of it."""

    url: RemoteUrl
    until: float  # epoch seconds, when that lease ends
    is_released: bool = False
    is_decided: bool = False  # what has become of it is to be sent
    next: tuple[RemoteUrl, float] | None = None  # it came once more before that was acknowledged


class _Ready(NamedTuple):
    """A URL that may be given away."""

    held: _Held
    candidate: Candidate


class _Known(NamedTuple):
    """What has become of a URL, to be sent."""

    url: RemoteUrl
    date: int
    held: _Held | None = None  # None: it was not leased


@dataclass(slots=True)
class _Unsent:
    """What is to be sent in the next round."""

    links: list[tuple[RemoteUrl, bool]] = field(default_factory=list)  # counted as found or not
    blocks: dict[str, int] = field(default_factory=dict)
    knowns: list[_Known] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.links or self.blocks or self.knowns or self.outcomes)


class RemoteFrontier:
    """Implements port.Frontier but for its third guarantee: a lease ends by the clock, and the
    server takes a result of one that has ended. What is known here to be late is dropped. Levels,
    budgets and bundles are none of a URL Frontier. Implements loop.OutcomeSink, too."""

    def __init__(
        self,
        server: RemoteServer,
        store: OrderedStore,
        limits: FrontierLimits,
        rules: LeaseRules | None,
        hooks: RemoteHooks,
    ) -> None:
        self._server = server
        self._store = store
        self._limits = limits
        self._rules = rules
        self._hooks = hooks
        self._lease_s = ceil(limits.longest_fetch_s + SPARE_S)
        self._held: dict[str, _Held] = {}  # by URL
        self._open: dict[int, _Held] = {}  # of these, those that were given away, by lease
        self._busy: Counter[HostKey] = Counter()  # unreleased leases
        self._ready: dict[Standing, deque[_Ready]] = {each: deque() for each in STANDINGS}
        self._blocking = asyncio.Lock()  # else a block sent again may come after a newer one
        self._resting: list[tuple[float, int, _Ready]] = []  # a heap, by the ends of rests
        self._tie = count()
        self._unsent = _Unsent()
        self._under_way = 0  # links that are being sent
        self._is_sending = False
        self._is_dry = False  # the server had fewer than it was asked for
        self._changes = 0  # of what is left
        self._has_unsent = asyncio.Event()
        self._sent = asyncio.Condition()
        self._rounds = 0  # that are over
        self._look = asyncio.Event()
        self._blocked: list[float] = []  # a heap: ends of our blocks
        self._left = 0  # URLs not done at the server, as far as we know
        self._done = 0
        self._dead = self._refused = 0  # of this run; the server counts them as done
        self._asked_at = 0.0
        self._asked_left: int | None = None  # what was left, as we knew, when it was asked last
        self._is_over = False
        self._connections = -1
        self._is_stopping = False
        self._number, self._reserved = self._first_number(), 0
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting = WaitWarnings()

    # The port

    def add(
        self,
        found: Iterable[Candidate],
        now: float,
        *,
        at_once: bool = False,
        source: LinkSource | None = None,
    ) -> Added:
        del at_once, source  # the server says later which are new, and has no budgets
        links = [self._link(each, now) for each in found]
        self._note_change()
        self._has_unsent.set()
        return Added(undecided=sum(links))

    def _note_change(self) -> None:
        """Note that what is left at the server has changed, or will."""
        self._is_over = False
        self._changes += 1

    def _link(self, found: Candidate, now: float) -> bool:
        """Send *found*, and return whether it is not known yet if it is new."""
        url = remote_url(found, self._next_number)
        if found.needs_seen_test:
            self._unsent.links.append((url, True))
            return True
        # Nothing of its host is more urgent than a robots.txt that another one waits for.
        date = FIRST if found.purpose is Purpose.ROBOTS else ceil(max(found.not_before, now))
        self._unsent.knowns.append(_Known(url, date))
        self._left += 1
        return False

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
        host: HostKey | None = None,
    ) -> list[Lease]:
        del per_host  # the server's queue is held by one lease
        leases: list[Lease] = []
        if self._is_stopping or not self._may_judge():
            return leases
        while self._resting and self._resting[0][0] <= now:
            self._file(heapq.heappop(self._resting)[2], now)
        for standing in standings:
            waiting = self._ready[standing]
            for _ in range(len(waiting)):
                if len(leases) == limit:
                    break
                ready = waiting.popleft()
                if host is not None and ready.candidate.host != host:
                    waiting.append(ready)
                elif self._may_use(ready, standing, now):
                    leases.append(self._give(ready, now))
        if not self._is_dry:
            self._look.set()
        return leases

    def update(self, found: Iterable[Candidate], now: float) -> int:
        held = 0
        for each in found:
            url = remote_url(each, self._next_number)
            if url.url in self._held:
                held += 1
            elif each.not_before == NEVER:
                self._unsent.knowns.append(_Known(as_done(url), 0))
            else:
                self._unsent.knowns.append(_Known(url, max(ceil(each.not_before), FIRST)))
        self._note_change()
        self._has_unsent.set()
        return held

    def _may_judge(self) -> bool:
        return self._rules is None or self._rules.are_complete

    def _may_use(self, ready: _Ready, standing: Standing, now: float) -> bool:
        """Return whether *ready* may be leased now; if not, it is put where it waits, or back."""
        held, candidate = ready
        host = self._host(candidate.host)
        if not self._lasts(held, now):
            self._put_back(held)
        elif host.until > now or host.pace.standing is not standing:
            self._file(ready, now)
        elif self._busy[candidate.host]:
            self._ready[standing].append(ready)
        else:
            refusal = self._rules.refusal(candidate) if self._rules is not None else None
            if refusal is None:
                return True
            assert self._rules is not None
            self._rules.on_refused([(candidate, refusal)])
            self._refuse(held, refusal)
        return False

    def _lasts(self, held: _Held, from_: float) -> bool:
        """Return whether a fetch that begins then is over, and stored, before its lease is."""
        return from_ + self._limits.longest_fetch_s + AFTER_S <= held.until

    def _give(self, ready: _Ready, now: float) -> Lease:
        held, candidate = ready
        host, number = self._host(candidate.host), self._next_number()
        self._open[number] = held
        self._busy[candidate.host] += 1
        return Lease(number, candidate, host.pace, now, conditional=host.conditional)

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        held = self._open.get(lease.id)
        if held is None or held.is_released:
            return False
        held.is_released = True
        name = lease.candidate.host
        self._busy[name] -= 1
        if not self._busy[name]:
            del self._busy[name]
        self._note_rest(held, lease, now + rest.seconds, rest.pace)
        return True

    def _note_rest(self, held: _Held, lease: Lease, until: float, pace: Pace) -> None:
        name, queue, now = lease.candidate.host, held.url.key, self._hooks.now()
        before = self._host(name)
        host = RemoteHost(until, pace, before.conditional, "" if queue == name else queue)
        if until > now or before.until > now or pace != before.pace:
            self._store.write({keys.named(keys.REMOTE_HOST, name): encode(host)})
        if until > now:
            self._block(queue, until)

    def _block(self, queue: str, until: float) -> None:
        self._unsent.blocks[queue] = ceil(until)
        heapq.heappush(self._blocked, float(ceil(until)))
        self._has_unsent.set()

    async def borrow(self, host: HostKey, now: float, until: float) -> BorrowedTurn | NotItsTurn:
        """Lend no turn. The server gives them, with URLs: what this crawl knows of the rest of a
        host says nothing of other crawlers, which may be fetching from it now."""
        del now, until
        return NotItsTurn(host, NoTurn.NOT_LENT)

    def give_back(self, turn: BorrowedTurn, rest: Rest, now: float) -> bool:
        del turn, rest, now
        return False

    def note_trouble(self, lease: Lease | BorrowedTurn, rest: Rest, now: float) -> None:
        if isinstance(lease, BorrowedTurn):
            return
        held = self._open.get(lease.id)
        if held is not None and not held.is_released:
            self._note_rest(held, lease, now + rest.seconds, rest.pace)

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        held = self._open.get(lease.id)
        if held is None:
            return False
        if not held.is_released:
            gap_s = max(lease.pace.gap_s, self._limits.min_gap_s)
            self.release(lease, Rest(gap_s, lease.pace), now)
        del self._open[lease.id]
        self._look.set()
        if now > held.until:
            self._hooks.count("leases/late")
            del self._held[held.url.url]
            return False
        self._apply(held, lease, verdict, now)
        return True

    def _apply(self, held: _Held, lease: Lease, verdict: Verdict, now: float) -> None:
        candidate, url = lease.candidate, held.url
        match verdict:
            case Done(claim, again):
                self._write_claim(claim, lease)
                if again is None:
                    self._decide(held, as_done(url), 0)
                    return
                self._note_check(candidate.host, again.check)
                page, at = visited_again(candidate, again, self._limits.usual_change_days)
                self._decide(held, with_candidate(url, page), at)
            case Moved(target, claim):
                self._write_claim(claim, lease)
                self._move(held, lease, target)
            case RetryAt(when, is_counted, history):
                later = replace(
                    candidate,
                    not_before=when,
                    attempts=candidate.attempts + is_counted,
                    history=history or candidate.history,
                )
                self._decide(held, with_candidate(url, later), max(when, now))
            case PutBack(is_first):
                # Behind those that wait: their dates are the seconds in which they were found.
                at = FIRST if is_first else int(now) + 1
                self._decide(held, with_candidate(url, candidate), at)
            case Dead(reason):
                self._dead += 1
                self._decide(held, as_ended(url, DEAD, reason), 0)

    def _move(self, held: _Held, lease: Lease, target: Candidate) -> None:
        """Add *target*, to which a URL has moved. A key of the same redirect chain is not a new
        URL."""
        is_own = target.key in {lease.candidate.key, *lease.candidate.chain}
        moved = remote_url(target, self._next_number)
        if is_own and moved.url == held.url.url:
            self._decide(held, with_candidate(held.url, target), FIRST)
            return
        if is_own or not target.needs_seen_test:
            self._unsent.knowns.append(_Known(moved, FIRST))
            self._left += 1
        else:
            self._unsent.links.append((moved, False))
        self._decide(held, as_done(held.url), 0)

    def forget_kept(self, is_meant: Callable[[str], bool]) -> Iterator[int]:
        """Forget what is kept here of the URLs that *is_meant* is true for, step by step."""
        return forget_kept_here(self._store, is_meant)

    def _write_claim(self, claim: Claim | None, lease: Lease) -> None:
        if claim is not None:
            self._store.write(dict(claim_changes(self._store.get, claim, lease.id)))

    def _decide(self, held: _Held, url: RemoteUrl, at: float) -> None:
        """Send what has become of *held*."""
        held.is_decided = True
        self._unsent.knowns.append(_Known(url, ceil(at), held))
        self._note_change()
        self._has_unsent.set()

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        """Return when a host whose URL is here has rested. For all else the crawl is woken."""
        return self._resting[0][0] if self._resting and not self._is_stopping else None

    def counts(self) -> Counts:
        """Return the counters, of which those of the server are some seconds old, and are wrong
        by what other crawlers did since."""
        leased = len(self._open)
        return Counts(
            waiting=max(0, self._left - leased),
            leased=leased,
            seen=self._left + self._done,
            done=self._done,
            dead=self._dead,
            refused=self._refused,
            undecided=len(self._unsent.links) + self._under_way,
        )

    def longest_hosts(self, limit: int) -> Sequence[HostWork]:
        """Return none: the server does not say."""
        return ()

    def sampled_paces(self) -> Sequence[Pace]:
        """Return none, as `longest_hosts`."""
        return ()

    def judge_again(self) -> None:
        """Do nothing: each URL is judged when it is leased."""

    def end_rests(self, rests: Mapping[HostKey, float], now: float) -> None:
        for name, at in rests.items():
            host = self._host(name)
            if now < host.until <= at:
                host = replace(host, until=now)
                self._store.write({keys.named(keys.REMOTE_HOST, name): encode(host)})
                self._block(host.queue or name, now)

    def may_begin(self, lease: Lease) -> bool:
        held = self._open.get(lease.id)
        return held is not None and self._lasts(held, self._hooks.now())

    def is_over(self) -> bool:
        return self._is_over and self._is_idle()

    def _is_idle(self) -> bool:
        """Return whether nothing is leased here, and the server has all that was said to it."""
        return not (self._held or self._unsent or self._is_sending)

    def end_dry_round(self, now: float) -> bool:
        """Return False: there are no rounds."""
        return False

    def round_progress(self) -> RoundProgress | None:
        """Return None, as `end_dry_round`."""
        return None

    def is_congested(self) -> bool:
        return len(self._unsent.links) + self._under_way > MOST_UNSENT

    async def wait_until_durable(self) -> None:
        """Return when the server has acknowledged every call made before it."""
        if not self._unsent and not self._is_sending:
            return
        rounds = self._rounds + self._is_sending + bool(self._unsent)
        async with self._sent:
            await self._sent.wait_for(lambda: self._rounds >= rounds)

    def append(self, outcome: Outcome) -> None:
        """Log *outcome*, of the verdict that was given last, when the server has that."""
        self._unsent.outcomes.append(outcome)
        self._has_unsent.set()

    # What is stored here

    def _host(self, name: HostKey) -> RemoteHost:
        packed = self._store.get(keys.named(keys.REMOTE_HOST, name))
        if packed is None:
            return _NEW_HOST
        try:
            return _decode_host(packed)
        except msgspec.MsgspecError:
            return _NEW_HOST

    def _note_check(self, name: HostKey, check: VisitCheck) -> None:
        if check is not VisitCheck.NONE:
            host = self._host(name)
            host = replace(host, conditional=noted(host.conditional, check))
            self._store.write({keys.named(keys.REMOTE_HOST, name): encode(host)})

    def _first_number(self) -> int:
        packed = self._store.get(keys.REMOTE_LEASES)
        return int.from_bytes(packed) if packed else 0

    def _next_number(self) -> int:
        """Return a number that no run of this crawl has used."""
        if not self._reserved:
            upto = (self._number + _NUMBERS).to_bytes(8)
            self._store.write({keys.REMOTE_LEASES: upto})
            self._reserved = _NUMBERS
        self._reserved -= 1
        self._number += 1
        return self._number

    # Start and stop

    def begin(self) -> None:
        """Start the background tasks. The event loop must be running."""
        self._tasks = [
            asyncio.ensure_future(self._guard(each)) for each in (self._send, self._fill)
        ]

    def stop_leasing(self) -> None:
        """Take no more leases, and put back those that are not used."""
        self._is_stopping = True
        for ready in chain(*self._ready.values(), [ready for _, _, ready in self._resting]):
            self._put_back(ready.held)
        self._resting.clear()
        for waiting in self._ready.values():
            waiting.clear()

    async def close(self) -> None:
        """Send what is left, if the server answers, and disconnect. Without that the URLs that are
        leased are served again when their leases end."""
        self.stop_leasing()
        if self._tasks:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.wait_until_durable()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._unsent or self._is_sending:
            logger.warning(
                "The URL Frontier has not taken all that this crawl had for it: what was fetched"
                " last is fetched again when its leases are over"
            )
        await self._server.close()

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except CrawlerError as error:
            self._hooks.fail(error)
        except Exception as bug:  # without this task the crawl would wait for ever
            logger.exception("The exchange with the URL Frontier failed")
            self._hooks.fail(
                StoreUnavailable(f"the exchange with the URL Frontier failed: {bug!r}")
            )

    def _note_away(self, error: CrawlerError) -> None:
        self._connections = -1
        self._waiting.report("the URL Frontier answers", str(error))

    # What is sent

    async def _send(self) -> None:
        while True:
            await self._has_unsent.wait()
            self._has_unsent.clear()
            await self.send_round()
            self._look.set()
            self._hooks.wake()

    async def send_round(self) -> None:
        """Send what was said until now, and return when all of it is acknowledged."""
        if not self._unsent:
            return
        unsent, self._unsent, self._is_sending = self._unsent, _Unsent(), True
        self._under_way = len(unsent.links)
        for batch in _batches(unsent.links):
            await self._send_links(batch)
        await self._persist(partial(self._send_blocks, unsent.blocks))
        await self._send_knowns(unsent.knowns)
        self._hooks.log(unsent.outcomes)
        self._is_sending = False
        async with self._sent:
            self._rounds += 1
            self._sent.notify_all()

    async def _persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await *call*, again and again while the server does not answer."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                self._note_away(error)
            await asyncio.sleep(_AGAIN_S)

    async def _send_links(self, links: Sequence[tuple[RemoteUrl, bool]]) -> None:
        left = list(links)
        while left:
            urls = [url for url, _ in left]
            statuses = await self._persist(partial(self._server.put_discovered, urls))
            said = list(zip(left, statuses, strict=True))
            left = [link for link, status in said if status == Status.FAIL]
            self._under_way -= len(said) - len(left)
            self._left += sum(status == Status.OK for _, status in said)
            counted = [status for (_, is_counted), status in said if is_counted]
            new, seen = counted.count(Status.OK), counted.count(Status.SKIPPED)
            if new or seen:
                self._hooks.on_decided(Added(new=new, seen=seen))
            if left:
                await asyncio.sleep(_AGAIN_S)

    async def _send_blocks(self, blocks: Mapping[str, int]) -> None:
        wanted = list(blocks.items())
        async with self._blocking:
            for at in range(0, len(wanted), _AT_ONCE):
                some = wanted[at : at + _AT_ONCE]
                newest = self._unsent.blocks  # some may have come while these were sent again
                await asyncio.gather(
                    *[self._server.block(key, newest.get(key, until)) for key, until in some]
                )

    async def _send_knowns(self, knowns: Sequence[_Known]) -> None:
        left = list(knowns)
        while left := self._drop_late(left):
            sent = [(each.url, each.date) for each in left]
            try:
                statuses = await self._server.put_known(sent)
            except StoreUnavailable as error:
                self._note_away(error)
                await asyncio.sleep(_AGAIN_S)
                continue
            said = list(zip(left, statuses, strict=True))
            for known, status in said:
                if status != Status.FAIL:
                    self._acknowledge(known)
            left = [known for known, status in said if status == Status.FAIL]
            if left:
                await asyncio.sleep(_AGAIN_S)

    def _drop_late(self, knowns: Sequence[_Known]) -> list[_Known]:
        """Return *knowns* but for those whose leases have ended: another client may have them."""
        now = self._hooks.now()
        left = [each for each in knowns if each.held is None or now <= each.held.until]
        for each in knowns:
            if each.held is not None and now > each.held.until:
                self._hooks.count("leases/late")
                self._forget(each.held)
        return left

    def _acknowledge(self, known: _Known) -> None:
        if known.held is not None:
            if not known.date:
                self._left -= 1
                self._done += 1
                known.held.next = None
            self._forget(known.held)

    def _forget(self, held: _Held) -> None:
        del self._held[held.url.url]
        if held.next is not None:
            self._take(*held.next)

    # What is taken

    async def _fill(self) -> None:
        """Keep as many leases at hand as slots are free, and ask whether anything is left."""
        await self._persist(self._ask)
        pause_s = _SOON_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._look.wait()
            await asyncio.sleep(_SOON_S)
            self._look.clear()
            self._waiting.log_recovered()
            try:
                await self.fill_once()
            except StoreUnavailable as error:
                self._note_away(error)
                await asyncio.sleep(_AGAIN_S)
            pause_s = self._next_block_s(self._hooks.now())

    async def fill_once(self) -> None:
        """Take as many leases as slots are free. If there are none, ask what is left, when it is
        time for that."""
        now = self._hooks.now()
        self._put_back_old(now)
        if self._is_stopping or not self._may_judge():
            return
        if self._connections != self._server.connections:
            await self._send_rests_again()
        wanted, got = self._wanted(), 0
        if wanted > 0:
            for url in await self._server.get_urls(wanted, self._lease_s):
                self._take(url, now + self._lease_s - 1.0)  # a server may count whole seconds
                got += 1
        self._is_dry = got < wanted
        if got:
            self._hooks.wake()
        elif self._may_ask(now):
            await self._ask()

    def _next_block_s(self, now: float) -> float:
        """Return for how long it is not worth to ask for more, if nothing happens here."""
        while self._blocked and self._blocked[0] <= now:
            heapq.heappop(self._blocked)
        return min(_LATEST_S, self._blocked[0] - now + _SOON_S if self._blocked else _LATEST_S)

    def _wanted(self) -> int:
        """Return how many more leases are to be taken: hosts are not known before, so as many as
        any standing has slots; and no more than twice that, if those that came may not begin."""
        free = {standing: self._hooks.free_slots(standing) for standing in STANDINGS}
        usable = sum(min(free[each], len(self._ready[each])) for each in STANDINGS)
        here = sum(map(len, self._ready.values())) + len(self._resting)
        most = max(free.values())
        return min(most - usable, 2 * most - here)

    def _take(self, url: RemoteUrl, until: float) -> None:
        known = self._held.get(url.url)
        if known is not None and known.is_decided:
            known.next = url, until
            return
        if known is not None:  # the server had lost that lease, and now it is ours again
            known.until = max(known.until, until)
            return
        self._note_change()
        held = self._held[url.url] = _Held(url, until)
        found, now = candidate_of(url, self._hooks.place_of, self._hooks.admit), self._hooks.now()
        if isinstance(found, Refusal):
            self._hooks.count(f"refused/{found.reason}")
            logger.debug("Refused: %s, put by another crawler: %s", url.url, found.explain())
            self._refuse(held, found)
        elif found.not_before > now and url.is_ours:
            self._decide(held, url, found.not_before)  # it was found with a date
        else:
            self._file(_Ready(held, found), now)

    def _file(self, ready: _Ready, now: float) -> None:
        """Put *ready* where it waits for a slot, or for the rest of its host."""
        held, candidate = ready
        host = self._host(candidate.host)
        if host.until <= now:
            self._ready[host.pace.standing].append(ready)
        elif self._lasts(held, host.until):
            heapq.heappush(self._resting, (host.until, next(self._tie), ready))
        else:
            self._block(held.url.key, host.until)
            self._put_back(held)

    def _refuse(self, held: _Held, refusal: Refusal) -> None:
        """Let *held*, which our rules refuse, be done. If it waited, no crawl would end."""
        self._refused += 1
        reason = f"{refusal.reason}: {refusal.explain()}"
        self._decide(held, as_ended(held.url, REFUSED, reason), 0)

    def _put_back(self, held: _Held) -> None:
        self._decide(held, held.url, FIRST)

    def _put_back_old(self, now: float) -> None:
        """Put those back whose leases would end before a fetch is over."""
        for waiting in self._ready.values():
            for _ in range(len(waiting)):
                ready = waiting.popleft()
                if self._lasts(ready.held, now):
                    waiting.append(ready)
                else:
                    self._put_back(ready.held)

    async def _send_rests_again(self) -> None:
        """Block the hosts that still rest, before anything is asked for: the server may have been
        started again without what it was told."""
        connections = self._server.connections
        start, now = keys.REMOTE_HOST, self._hooks.now()
        while found := self._store.scan(start, keys.prefix_end(keys.REMOTE_HOST), _SLICE):
            blocks = {}
            for key, _ in found:
                name = keys.name_of(key)
                host = self._host(HostKey(name))
                if host.until > now:
                    blocks[host.queue or name] = ceil(host.until)
            await self._send_blocks(blocks)
            await asyncio.sleep(0)
            start = found[-1][0] + b"\0"
        self._connections = connections

    # Whether it is over

    def _may_ask(self, now: float) -> bool:
        """Return whether it is time to ask what is left: nothing is leased, and by what is known
        here there is nothing more, or it was not asked for a while."""
        if not self._is_idle():
            return False
        looks_over = self._left <= 0 and self._asked_left != self._left
        return looks_over or now - self._asked_at >= STATS_S

    async def _ask(self) -> None:
        changes = self._changes
        stats = await self._server.stats()
        self._asked_at = self._hooks.now()
        if changes != self._changes or not self._is_idle():
            return  # what it says may be of before
        self._left, self._done = stats.size, stats.done
        self._asked_left = self._left
        if not stats.size and not stats.in_process:
            self._is_over = True
            self._hooks.wake()


def _batches(links: Iterable[tuple[RemoteUrl, bool]]) -> Iterator[list[tuple[RemoteUrl, bool]]]:
    """Divide *links* into batches of a size that each server takes."""
    batch: list[tuple[RemoteUrl, bool]] = []
    chars = 0
    for link in links:
        size = link[0].size
        if batch and (len(batch) == BATCH or chars + size > BATCH_CHARS):
            yield batch
            batch, chars = [], 0
        batch.append(link)
        chars += size
    if batch:
        yield batch

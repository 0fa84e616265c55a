"""Feeding: what is pushed into Redis from outside goes into the frontier while the crawl runs.

Rule: it waits for whatever cannot be asked, and keeps the crawl from ending meanwhile. What in
Redis is not what it must be ends the crawl at its start; later it is told, and the crawl goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from time import monotonic
from typing import Final

import msgspec
from scrapy import FormRequest, Request, Spider
from scrapy.settings import BaseSettings

from crawler.config.kinds import number
from crawler.config.settings import Arguments
from crawler.crawl.allowed_origins import AllowedOrigins
from crawler.crawl.in_flight import LEASE
from crawler.crawl.stats import CrawlStats
from crawler.model.types import Added, Candidate, ConfigError, CrawlerError, StoreUnavailable
from crawler.policy.priority import Hints, Prioritizer
from crawler.policy.scope import Refusal
from crawler.policy.seeds import Pushed, read_pushed
from crawler.shared import keys
from crawler.shared.worker.feeds import (
    CandidateSender,
    Feed,
    Item,
    PushedFeeds,
)

# What is pushed from outside, as candidates; and what scrapy-redis' settings say of it.
#
# Rule: a setting of scrapy-redis means here what it means there, or it is not read.

KEY: Final = "REDIS_START_URLS_KEY"
IDLE: Final = "MAX_IDLE_TIME_BEFORE_CLOSE"
# Whoever pushes may say how a page is fetched, but not past whose turn.
_OURS: Final = frozenset({LEASE, "download_slot"})
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class PushRules:
    """What a crawl does with what is pushed."""

    key: str  # where seeds are pushed to
    max_idle_s: float = 0.0  # without anything to do; 0: it never ends for that
    only_pushed: bool = False  # no other seeds: the end is a pause until something is pushed


def push_rules(
    settings: BaseSettings, spider: Spider | None, arguments: Arguments | None
) -> PushRules:
    """*spider*, and the *arguments* of one that has ours. Raises ConfigError."""
    if spider is not None:
        _refuse_theirs(spider)
    return PushRules(
        key=_key(settings, spider),
        max_idle_s=_idle_s(settings, spider),
        only_pushed=_has_no_seeds(spider) if arguments is None else arguments.are_pushed,
    )


def _idle_s(settings: BaseSettings, spider: Spider | None) -> float:
    said = getattr(spider, "max_idle_time", None)
    given = settings.get(IDLE, 0) if said is None else said
    seconds = number("seconds")
    try:
        return seconds.read(given)
    except (ValueError, OverflowError) as wrong:
        raise ConfigError(f"{IDLE} is {given!r}; want {seconds.want}") from wrong


def _refuse_theirs(spider: Spider) -> None:
    """A spider of scrapy-redis takes from the same key, and what it has taken dies with it."""
    theirs = [base for base in type(spider).__mro__ if base.__module__.startswith("scrapy_redis.")]
    if theirs:
        raise ConfigError(
            f"{type(spider).__name__} is a {theirs[0].__name__} of scrapy-redis, which would take"
            " the URLs that are pushed. Make it a scrapy.Spider or a CrawlSpider: see"
            " docs/from-scrapy-redis.md"
        )


def _key(settings: BaseSettings, spider: Spider | None) -> str:
    name = spider.name if spider is not None else ""
    template = (
        getattr(spider, "redis_key", None) or settings.get(KEY) or keys.start_urls("%(name)s")
    )
    try:
        key = str(template) % {"name": name}
    except (KeyError, TypeError, ValueError) as wrong:
        raise ConfigError(f"{KEY} is {template!r}; only %(name)s can stand in it") from wrong
    if not key.strip():
        raise ConfigError(f"{KEY} is {template!r}, which names no key")
    if not keys.can_have_beside(key):
        raise ConfigError(f"{KEY} is {template!r}: braces are for the part that a cluster goes by")
    return key


def _has_no_seeds(spider: Spider | None) -> bool:
    """Of a spider of another's: neither URLs nor a method that says where to start."""
    if spider is None:
        return False
    return not spider.start_urls and type(spider).start is Spider.start


class PushedRequestReader:
    """From a request that was pushed to a candidate, or the reason why it is none."""

    def __init__(
        self,
        doors: AllowedOrigins,
        prioritizer: Prioritizer,
        fingerprint: Callable[[Request], bytes],
    ) -> None:
        """*fingerprint*: of a request that is more than its URL."""
        self.doors = doors
        self._prioritizer = prioritizer
        self._fingerprint = fingerprint

    def candidate(self, pushed: Pushed) -> Candidate | Refusal:
        """ValueError: it cannot be a request."""
        level = self._prioritizer.level(Hints(is_seed=True))
        admission = self.doors.admission
        if pushed.is_plain:
            return admission.candidate(pushed.url, level=level)
        request = _request(pushed)
        in_url = request.method == "GET" and not request.body
        return admission.candidate(
            request.url,
            level=level,
            request=_packed(request),
            key=None if in_url else int.from_bytes(self._fingerprint(request)[:8]),
        )


def _request(pushed: Pushed) -> Request:
    """As scrapy-redis makes it: without POST, form data are the URL's query."""
    meta = {name: value for name, value in pushed.meta.items() if name not in _OURS}
    form = pushed.form or None
    return FormRequest(pushed.url, method=pushed.method, meta=meta, formdata=form)


def _packed(request: Request) -> bytes:
    """As scheduler.requests reads it."""
    try:
        return _encode(request.to_dict())
    except (OverflowError, RecursionError, UnicodeError) as refused:
        raise ValueError(f"it cannot be stored: {refused}") from None


# The way of what is pushed: from its feed into the frontier, batch by batch.
#
# Rule: an item leaves Redis when the frontier has its URL for sure, or with a reason. No page of a
# new host is fetched before every live worker knows that the crawl begins there too: one that does
# not would refuse the links to it.

logger = logging.getLogger(__name__)

TAKE: Final = 200  # items of one batch: 10 ms of the loop
MOST_BATCHES: Final = 10  # held at once: some wait for a server, or for the other workers
ROUNDS: Final = 10  # of one tick: 2,000 items a second
HOLDS: Final = 3  # in a lease: one may be lost and one late
_TOLD: Final = 20  # items that are refused, named one by one
_SHOWN: Final = 200  # characters of each

Refused = tuple[Item, str]


class BatchStage(Enum):
    """How far a batch is."""

    READ = auto()  # its items are requests; their hosts are yet to be opened by all
    OPENED = auto()
    JUDGED = auto()  # candidates, not all of them in the frontier
    ADDED = auto()  # all of them, but a server may yet lose its last second


# The only moves. A batch ends, ADDED, when all its items have left Redis.
MOVES: Final = {
    BatchStage.READ: {BatchStage.OPENED},
    BatchStage.OPENED: {BatchStage.JUDGED},
    BatchStage.JUDGED: {BatchStage.ADDED},
    BatchStage.ADDED: {BatchStage.JUDGED},  # what a server forgot is added again
}


@dataclass(slots=True)
class PushedBatch:
    """Items taken together."""

    pushed: list[tuple[Item, Pushed]]
    held_at: float  # steady
    hosts: list[str] = field(default_factory=list)  # which it opens
    mark: int = 0  # of the last door that all must know
    stage: BatchStage = BatchStage.READ
    found: list[tuple[Item, Candidate]] = field(default_factory=list)
    runs: dict[int, bytes] = field(default_factory=dict)  # of the shards that have theirs
    sure_at: float = 0.0  # steady

    def move(self, stage: BatchStage) -> None:
        assert stage in MOVES[self.stage], f"{self.stage} to {stage}"
        self.stage = stage

    def items(self) -> list[Item]:
        """Those that have not left Redis."""
        return [item for item, _ in self.pushed] + [item for item, _ in self.found]

    def keep(self, items: Iterable[Item]) -> None:
        """The others were given to another worker."""
        ids = {item.id for item in items}
        self.pushed = [pair for pair in self.pushed if pair[0].id in ids]
        self.found = [pair for pair in self.found if pair[0].id in ids]


@dataclass(frozen=True, slots=True)
class OriginAgreement:
    """How far this worker has read in the doors, and whether all others have read so far."""

    known: Callable[[], int]
    all_know: Callable[[int], bool]

    def holds(self, mark: int) -> bool:
        return mark <= self.known() and self.all_know(mark)


class PushedQueue:
    """Of one feed. All raise CrawlerError; what was not done then is done the next time."""

    def __init__(
        self,
        feed: Feed,
        is_urgent: bool,
        judge: PushedRequestReader,
        delivery: CandidateSender,
        open_doors: Callable[[Sequence[str]], Awaitable[int]],
        agreement: OriginAgreement,
        tally: CrawlStats,
        steady: Callable[[], float],
    ) -> None:
        """*open_doors*: of hosts, for all workers; returns up to where these must read to know."""
        self.feed = feed
        self._is_urgent = is_urgent
        self._judge = judge
        self._delivery = delivery
        self._open_doors = open_doors
        self._agreement = agreement
        self._tally = tally
        self._steady = steady
        self._batches: list[PushedBatch] = []
        self._refused = 0
        self._acts = {
            BatchStage.READ: self._open,
            BatchStage.OPENED: self._judged,
            BatchStage.JUDGED: self._add,
            BatchStage.ADDED: self._let_go,
        }

    async def work(self, may_take: Callable[[], bool]) -> None:
        """Take what is pushed, until nothing is there or enough is held."""
        await self._hold()
        await self._forward()
        for _ in range(ROUNDS):
            if len(self._batches) >= MOST_BATCHES or not may_take():
                return
            if not await self._take():
                return
            await self._forward()

    async def _hold(self) -> None:
        steady = self._steady()
        for batch in self._batches:
            if steady - batch.held_at >= self.feed.lease_s / HOLDS:
                batch.keep(await self.feed.hold(batch.items()))
                batch.held_at = steady

    async def _forward(self) -> None:
        """Each batch as far as it can go now."""
        for batch in list(self._batches):
            stage = None
            while batch.items() and stage is not batch.stage:
                stage = batch.stage
                await self._acts[stage](batch)
            if not batch.items():
                self._batches.remove(batch)

    async def _take(self) -> bool:
        """False: nothing was there."""
        asked_at, too_long = self._steady(), self.feed.too_long
        items = await self.feed.take(TAKE)
        self._tally.count("pushed/taken", len(items))
        self._tell_refused([("an item", "too long")] * (self.feed.too_long - too_long))
        batch = PushedBatch([], asked_at)
        refused: list[Refused] = []
        for item in items:
            try:
                batch.pushed.append((item, read_pushed(item.text)))
            except ValueError as why:
                refused.append((item, str(why)))
        self._batches.append(batch)
        batch.hosts = sorted(self._judge.doors.unopened(each.url for _, each in batch.pushed))
        # What is open here may have been opened a moment ago, and not by all.
        batch.mark = self._agreement.known()
        await self._refuse(refused)
        return bool(items) or self.feed.too_long > too_long

    async def _open(self, batch: PushedBatch) -> None:
        """Told again each time: a server may have forgotten its last second."""
        if batch.hosts:
            batch.mark = max(batch.mark, await self._open_doors(batch.hosts))
        if self._agreement.holds(batch.mark):
            batch.move(BatchStage.OPENED)

    async def _judged(self, batch: PushedBatch) -> None:
        refused: list[Refused] = []
        for item, pushed in batch.pushed:
            try:
                found = self._judge.candidate(pushed)
            except ValueError as why:
                refused.append((item, str(why)))
                continue
            if isinstance(found, Refusal):
                self._tally.count(f"refused/{found.reason}")
                refused.append((item, found.explain()))
            else:
                batch.found.append((item, found))
        batch.pushed = []
        batch.move(BatchStage.JUDGED)
        await self._refuse(refused)

    async def _add(self, batch: PushedBatch) -> None:
        """Shards that cannot be asked now are asked again the next time."""
        waiting = [found for _, found in batch.found if self._shard(found) not in batch.runs]
        delivered = await self._delivery.add(waiting, self._is_urgent)
        self._count(delivered.added)
        batch.runs |= delivered.runs
        if not delivered.failed:
            batch.sure_at = self._steady() + self._delivery.sure_s
            batch.move(BatchStage.ADDED)

    async def _let_go(self, batch: PushedBatch) -> None:
        if self._steady() < batch.sure_at:
            return
        forgetful = await self._delivery.forgetful(batch.runs) if self._delivery.sure_s else set()
        if forgetful is None:
            return
        forgotten = [pair for pair in batch.found if self._shard(pair[1]) in forgetful]
        ids = {item.id for item, _ in forgotten}
        await self.feed.taken_in([item for item, _ in batch.found if item.id not in ids])
        batch.found = forgotten
        batch.runs = {shard: run for shard, run in batch.runs.items() if shard not in forgetful}
        if forgotten:
            batch.move(BatchStage.JUDGED)

    async def _refuse(self, refused: Sequence[Refused]) -> None:
        if refused:
            self._tell_refused([(_shown(item.text), why) for item, why in refused])
            await self.feed.refuse(refused)

    def _tell_refused(self, refused: Sequence[tuple[str, str]]) -> None:
        self._tally.count("pushed/refused", len(refused))
        for text, why in refused[: max(0, _TOLD - self._refused)]:
            logger.warning("Pushed to %s and refused: %s: %s", self.feed.key, text, why[:_SHOWN])
        if self._refused < _TOLD <= self._refused + len(refused):
            logger.warning("Others are counted, and kept in %s", self.feed.refused_key)
        self._refused += len(refused)

    def _count(self, added: Added) -> None:
        self._tally.count("pushed/new", added.new)
        self._tally.count("pushed/seen", added.seen)
        self._tally.count("pushed/over_budget", added.over_budget)

    def _shard(self, candidate: Candidate) -> int:
        return self._delivery.shard(candidate)


def _shown(text: bytes) -> str:
    """What was pushed, as far as a log line needs it: on one line, whatever it holds."""
    return ascii(text[:_SHOWN].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHooks:
    """What feeding must know of the rest of its worker."""

    all_know: Callable[[int], bool]  # every live worker has announced so many `doors_known`
    may_take: Callable[[], bool]  # the frontier can take more
    is_idle: Callable[[], bool]  # nothing waits in the frontier, and nothing is leased
    wake: Callable[[], None]  # what was barred until the doors are known may be leased now


class PushedUrls:
    """Of one worker. `tick` is called every second, `doors_known` announced after it."""

    def __init__(
        self,
        feeds: PushedFeeds,
        judge: PushedRequestReader,
        rules: PushRules,
        around: WorkerHooks,
        tally: CrawlStats,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self.doors_known = 0  # how far this worker has read in the doors
        self._doors = judge.doors
        self._opened = feeds.doors
        self._rules = rules
        self._around = around
        self._steady = steady
        agreement = OriginAgreement(lambda: self.doors_known, around.all_know)
        self._intakes = [
            PushedQueue(
                *(feed, is_urgent, judge, feeds.delivery, self._open_doors),
                *(agreement, tally, steady),
            )
            for feed, is_urgent in ((feeds.urgent, True), (feeds.start_urls, False))
        ]
        self._length = 0  # of all feeds that could be asked
        self._is_sure = False  # they all could
        self._idle_since: float | None = None
        self._has_begun = False
        self._trouble = ""
        self._doors.expect_more()

    async def tick(self) -> None:
        """Each feed for itself: they may be on different servers, one of which is down. Raises
        CrawlerError at the start only."""
        works: list[Callable[[], Awaitable[int]]] = [self._read_doors]
        works += (partial(self._fed, intake) for intake in self._intakes)
        answers = [await _or_fault(work) for work in works]
        faults = [answer for answer in answers if isinstance(answer, CrawlerError)]
        self._length = sum(answer for answer in answers if isinstance(answer, int))
        self._is_sure = not faults
        self._note(faults)

    def is_elsewhere(self) -> bool:
        """Whether something may yet come from here: then the crawl is not over. What is no longer
        counted here was added before that, so a look at the frontier after a tick finds it."""
        if self._length or not self._is_sure:
            self._idle_since = None
            return True
        if not self._rules.only_pushed:
            return False
        if not self._around.is_idle():
            self._idle_since = None
            return True
        if self._idle_since is None:
            self._idle_since = self._steady()
        idle_s = self._steady() - self._idle_since
        return not self._rules.max_idle_s or idle_s < self._rules.max_idle_s

    async def _fed(self, intake: PushedQueue) -> int:
        await intake.work(self._around.may_take)
        return await intake.feed.length()

    async def _open_doors(self, hosts: Sequence[str]) -> int:
        mark = await self._opened.open(hosts)
        await self._read_doors()
        return mark

    async def _read_doors(self) -> int:
        """Nothing that waits is counted here."""
        hosts: list[str] = []
        mark = self.doors_known
        while marks := await self._opened.since(mark):
            hosts += (each.host for each in marks)
            mark = marks[-1].mark
        was_known = self._doors.known
        self._doors.open_more(hosts)
        self.doors_known = mark
        if self._doors.known and not was_known:
            self._around.wake()
        return 0

    def _note(self, faults: Sequence[CrawlerError]) -> None:
        hopeless = [fault for fault in faults if not isinstance(fault, StoreUnavailable)]
        if hopeless and not self._has_begun:
            raise hopeless[0]
        self._has_begun = self._has_begun or not faults
        trouble = "; ".join(sorted({str(fault) for fault in faults}))
        if trouble and trouble != self._trouble:
            logger.warning("What is pushed waits: %s", trouble)
        self._trouble = trouble


async def _or_fault(work: Callable[[], Awaitable[int]]) -> int | CrawlerError:
    try:
        return await work()
    except CrawlerError as fault:
        return fault


@dataclass(frozen=True, slots=True)
class Pushing:
    """What a crawl takes, and does with, URLs that are pushed to it."""

    judge: PushedRequestReader
    rules: PushRules
    tally: CrawlStats

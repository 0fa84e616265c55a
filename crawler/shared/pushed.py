"""Moves URLs that others push into Redis into the frontier while the crawl runs.

Rule: while a feed cannot be read, the crawl does not end. Foreign data under a feed's key ends the
crawl at its start; later that is logged, and the crawl goes on.
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

from crawler.config.arguments import Arguments
from crawler.config.readers import number
from crawler.data.allowed_origins import AllowedOrigins
from crawler.engine.request_meta import LEASE
from crawler.engine.stats import CrawlStats
from crawler.model.program import PROGRAM
from crawler.model.types import Added, Candidate, ConfigError, CrawlerError, StoreUnavailable
from crawler.policy.priority import Hints
from crawler.policy.refusal import Refusal
from crawler.policy.seeds import PushedRequest, read_pushed
from crawler.shared import keys
from crawler.shared.worker.feeds import (
    Feed,
    PushedDelivery,
    PushedFeeds,
    PushedItem,
)

# A setting of scrapy-redis has the same meaning here, or it is not read.

KEY_SETTING: Final = "REDIS_START_URLS_KEY"
IDLE_SETTING: Final = "MAX_IDLE_TIME_BEFORE_CLOSE"
# Keys that a pushed request must not set: with them it could bypass the turn of its host.
_RESERVED_META: Final = frozenset({LEASE, "download_slot"})
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class PushSettings:
    """How a crawl handles pushed URLs."""

    key: str  # the key that seeds are pushed to
    max_idle_s: float = 0.0  # after so long without work the crawl ends; 0: it never does
    only_pushed: bool = False  # there are no other seeds: without work it waits for pushed URLs


def push_settings(
    settings: BaseSettings, spider: Spider | None, arguments: Arguments | None
) -> PushSettings:
    """Read them from *settings* and *spider*. *arguments* are those of a spider of this
    package, else None. Raises ConfigError."""
    if spider is not None:
        _refuse_scrapy_redis_spider(spider)
    return PushSettings(
        key=_key(settings, spider),
        max_idle_s=_idle_s(settings, spider),
        only_pushed=_has_no_seeds(spider) if arguments is None else arguments.has_pushed_seeds,
    )


def _idle_s(settings: BaseSettings, spider: Spider | None) -> float:
    of_spider = getattr(spider, "max_idle_time", None)
    given = settings.get(IDLE_SETTING, 0) if of_spider is None else of_spider
    seconds = number("seconds")
    try:
        return seconds.read(given)
    except (ValueError, OverflowError) as wrong:
        raise ConfigError(f"{IDLE_SETTING} is {given!r}; want {seconds.expected}") from wrong


def _refuse_scrapy_redis_spider(spider: Spider) -> None:
    """Raise ConfigError for a spider of scrapy-redis: it would take URLs from the same key, and
    lose them when it ends."""
    bases = [base for base in type(spider).__mro__ if base.__module__.startswith("scrapy_redis.")]
    if bases:
        raise ConfigError(
            f"{type(spider).__name__} is a {bases[0].__name__} of scrapy-redis, which would take"
            " the URLs that are pushed. Make it a scrapy.Spider or a CrawlSpider: see"
            " docs/from-scrapy-redis.md"
        )


def _key(settings: BaseSettings, spider: Spider | None) -> str:
    name = spider.name if spider is not None else ""
    template = (
        getattr(spider, "redis_key", None)
        or settings.get(KEY_SETTING)
        or keys.start_urls("%(name)s")
    )
    try:
        key = str(template) % {"name": name}
    except (KeyError, TypeError, ValueError) as wrong:
        raise ConfigError(
            f"{KEY_SETTING} is {template!r}; only %(name)s can stand in it"
        ) from wrong
    if not key.strip():
        raise ConfigError(f"{KEY_SETTING} is {template!r}, which names no key")
    if not keys.can_share_slot(key):
        raise ConfigError(
            f"{KEY_SETTING} is {template!r}: braces are for the part that a cluster goes by"
        )
    return key


def _has_no_seeds(spider: Spider | None) -> bool:
    """Return whether *spider*, which is none of this package, has no start URLs and no `start`."""
    if spider is None:
        return False
    return not spider.start_urls and type(spider).start is Spider.start


class PushedRequestReader:
    """Makes a candidate of a pushed request, or refuses it with a reason."""

    def __init__(
        self,
        origins: AllowedOrigins,
        fingerprint: Callable[[Request], bytes],
    ) -> None:
        """*fingerprint* gives the key of a request that has a body or another method than GET."""
        self.origins = origins
        self._fingerprint = fingerprint

    def candidate(self, pushed: PushedRequest) -> Candidate | Refusal:
        """Make a candidate of *pushed*, or refuse it. Raises ValueError if it is no request."""
        hints = Hints(is_seed=True)
        admission = self.origins.admission
        if pushed.is_plain:
            return admission.candidate(pushed.url, hints=hints)
        request = _request(pushed)
        in_url = request.method == "GET" and not request.body
        return admission.candidate(
            request.url,
            hints=hints,
            request=_packed(request),
            key=None if in_url else int.from_bytes(self._fingerprint(request)[:8]),
        )


def _request(pushed: PushedRequest) -> Request:
    """Make the request as scrapy-redis does: without POST, form data become the URL's query."""
    meta = {name: value for name, value in pushed.meta.items() if name not in _RESERVED_META}
    form = pushed.form or None
    return FormRequest(pushed.url, method=pushed.method, meta=meta, formdata=form)


def _packed(request: Request) -> bytes:
    """Encode *request* as scheduler.requests decodes it. Raises ValueError if it cannot be."""
    try:
        return _encode(request.to_dict())
    except (OverflowError, RecursionError, UnicodeError) as refused:
        raise ValueError(f"it cannot be stored: {refused}") from None


logger = logging.getLogger(__name__)

ITEMS_PER_BATCH: Final = 200  # items of one batch: 10 ms of the event loop
MAX_BATCHES: Final = 10  # held at once: some wait for a server, or for the other workers
BATCHES_PER_TICK: Final = 10  # batches taken in one tick: 2,000 items a second
RENEWALS_PER_LEASE: Final = 3  # renewals within a lease: one may be lost and one late
_MOST_LOGGED: Final = 20  # refused items that are logged one by one
_SHOWN: Final = 200  # characters of each in the log
_LOG_EVERY_S: Final = 10.0  # seconds between two lines: a program may push all its URLs every day

RefusedItem = tuple[PushedItem, str]


class BatchStage(Enum):
    """How far a batch is."""

    READ = auto()  # its items are parsed; not all workers have opened their hosts yet
    OPENED = auto()  # all workers have opened their hosts
    JUDGED = auto()  # its items are candidates, not all of them in the frontier
    ADDED = auto()  # all are in the frontier, but a server may still lose its last second


# All allowed transitions. A batch ends in ADDED, when all its items are removed from Redis.
STAGE_TRANSITIONS: Final = {
    BatchStage.READ: {BatchStage.OPENED},
    BatchStage.OPENED: {BatchStage.JUDGED},
    BatchStage.JUDGED: {BatchStage.ADDED},
    BatchStage.ADDED: {BatchStage.JUDGED},  # candidates that a server has lost are added again
}


@dataclass(slots=True)
class PushedBatch:
    """Items that were taken from a feed together."""

    pushed: list[tuple[PushedItem, PushedRequest]]
    held_at: float  # monotonic; when it was taken, or last renewed
    hosts: list[str] = field(default_factory=list)  # those that it opens
    mark: int = 0  # of the last opened host that all workers must have read
    stage: BatchStage = BatchStage.READ
    found: list[tuple[PushedItem, Candidate]] = field(default_factory=list)
    runs: dict[int, bytes] = field(default_factory=dict)  # by shard that acknowledged: server run
    durable_at: float = 0.0  # monotonic; from then on a server that still runs loses nothing of it

    def move(self, stage: BatchStage) -> None:
        assert stage in STAGE_TRANSITIONS[self.stage], f"{self.stage} to {stage}"
        self.stage = stage

    def items(self) -> list[PushedItem]:
        """Return the items that are not yet removed from Redis."""
        return [item for item, _ in self.pushed] + [item for item, _ in self.found]

    def keep(self, items: Iterable[PushedItem]) -> None:
        """Drop all other items: they were given to another worker."""
        ids = {item.id for item in items}
        self.pushed = [pair for pair in self.pushed if pair[0].id in ids]
        self.found = [pair for pair in self.found if pair[0].id in ids]


@dataclass(frozen=True, slots=True)
class OriginAgreement:
    """The mark up to which this worker has read the opened hosts, and whether all others have."""

    read_mark: Callable[[], int]
    all_have_read: Callable[[int], bool]

    def is_reached(self, mark: int) -> bool:
        return mark <= self.read_mark() and self.all_have_read(mark)


class UnfetchedLog:
    """Logs which pushed URLs are not fetched: at most one line in ten seconds, with the first few
    since the last."""

    def __init__(self, line: str) -> None:
        """*line* gets how many URLs there are, and the first few."""
        self._line = line
        self._number = 0
        self._shown: list[str] = []
        self._next_at = float("-inf")

    def note(self, words: str, number: int = 1) -> None:
        self._number += number
        if len(self._shown) < _MOST_LOGGED and words not in self._shown:
            self._shown.append(words)

    def write(self, now: float) -> None:
        """Log what was noted, unless a line was logged less than ten seconds before *now*."""
        if self._number and now >= self._next_at:
            more = ", ..." if len(self._shown) == _MOST_LOGGED else ""
            logger.warning(self._line, self._number, ", ".join(self._shown) + more)
            self._number, self._shown, self._next_at = 0, [], now + _LOG_EVERY_S


class UnfetchedPushes:
    """Counts and logs what became of pushed URLs in the shards of this worker, whoever took them
    from their feed."""

    def __init__(self, stats: CrawlStats, urgent_key: str) -> None:
        """*urgent_key* is that of the feed whose URLs are fetched in any case."""
        self._stats = stats
        self._seen = UnfetchedLog(
            f"Pushed and not fetched, as seen before: %d: %s. `{PROGRAM} frontier why URL` says"
            f" what became of one; pushed to {urgent_key} it is fetched again"
        )
        self._over_budget = UnfetchedLog(
            "Pushed and over a budget (CRAWLER_MAX_URLS_PER_HOST, CRAWLER_MAX_URLS_PER_DOMAIN), for"
            f" a larger one of which they wait: %d, of %s. Pushed to {urgent_key} they are fetched"
        )

    def note(self, seen: Sequence[str], added: Added) -> None:
        """Note that the URLs *seen* were seen before, and what became of others."""
        self._stats.count("pushed/new", added.new)
        self._stats.count("pushed/seen", len(seen) + added.seen)
        self._stats.count("pushed/over_budget", added.over_budget)
        for url in seen:
            self._seen.note(url[:_SHOWN])
        for over in added.kept_out:
            self._over_budget.note(over.name, over.links)

    def write(self, now: float) -> None:
        """Log which URLs are not fetched, unless that was logged a moment before *now*."""
        self._seen.write(now)
        self._over_budget.write(now)


class PushedQueue:
    """Moves the items of one feed into the frontier, batch by batch. An item is removed from Redis
    when the server of its URL cannot lose it any more, or when it is refused. No page of a new host
    is fetched before every live worker has opened the host: others would refuse links to it.
    Methods raise CrawlerError; what was not done is done by the next call."""

    def __init__(
        self,
        feed: Feed,
        is_urgent: bool,
        reader: PushedRequestReader,
        delivery: PushedDelivery,
        *,
        open_hosts: Callable[[Sequence[str]], Awaitable[int]],
        agreement: OriginAgreement,
        stats: CrawlStats,
        steady: Callable[[], float],
    ) -> None:
        """*open_hosts* opens hosts for all workers, and returns the mark that these must read."""
        self.feed = feed
        self._is_urgent = is_urgent
        self._reader = reader
        self._delivery = delivery
        self._open_hosts = open_hosts
        self._agreement = agreement
        self._stats = stats
        self._steady = steady
        self._batches: list[PushedBatch] = []
        self._refused = 0
        self._steps = {
            BatchStage.READ: self._open,
            BatchStage.OPENED: self._judge_items,
            BatchStage.JUDGED: self._add,
            BatchStage.ADDED: self._remove_from_feed,
        }

    async def move_items(self, may_take: Callable[[], bool]) -> None:
        """Take pushed items until the feed is empty or enough are held, and move them on."""
        await self._hold()
        await self._forward()
        await self._take_all(may_take)

    async def _take_all(self, may_take: Callable[[], bool]) -> None:
        for _ in range(BATCHES_PER_TICK):
            if len(self._batches) >= MAX_BATCHES or not may_take():
                return
            if not await self._take():
                return
            await self._forward()

    async def _hold(self) -> None:
        steady = self._steady()
        for batch in self._batches:
            if steady - batch.held_at >= self.feed.lease_s / RENEWALS_PER_LEASE:
                batch.keep(await self.feed.hold(batch.items()))
                batch.held_at = steady

    async def _forward(self) -> None:
        """Move each batch as far as possible now."""
        for batch in list(self._batches):
            stage = None
            while batch.items() and stage is not batch.stage:
                stage = batch.stage
                await self._steps[stage](batch)
            if not batch.items():
                self._batches.remove(batch)

    async def _take(self) -> bool:
        """Take a batch. Returns whether the feed had any item."""
        asked_at, too_long = self._steady(), self.feed.too_long
        items = await self.feed.take(ITEMS_PER_BATCH)
        self._stats.count("pushed/taken", len(items))
        self._log_refused([("an item", "too long")] * (self.feed.too_long - too_long))
        batch = PushedBatch([], asked_at)
        refused: list[RefusedItem] = []
        for item in items:
            try:
                batch.pushed.append((item, read_pushed(item.text)))
            except ValueError as why:
                refused.append((item, str(why)))
        self._batches.append(batch)
        batch.hosts = sorted(
            self._reader.origins.places_outside_scope(each.url for _, each in batch.pushed)
        )
        # A host that is open here may have been opened a moment ago, and not by all workers.
        batch.mark = self._agreement.read_mark()
        await self._refuse(refused)
        return bool(items) or self.feed.too_long > too_long

    async def _open(self, batch: PushedBatch) -> None:
        """Open its hosts; again at each call, because a server may have lost its last second."""
        if batch.hosts:
            batch.mark = max(batch.mark, await self._open_hosts(batch.hosts))
        if self._agreement.is_reached(batch.mark):
            batch.move(BatchStage.OPENED)

    async def _judge_items(self, batch: PushedBatch) -> None:
        refused: list[RefusedItem] = []
        for item, pushed in batch.pushed:
            try:
                found = self._reader.candidate(pushed)
            except ValueError as why:
                refused.append((item, str(why)))
                continue
            if isinstance(found, Refusal):
                self._stats.count(f"refused/{found.reason}")
                refused.append((item, found.explain()))
            else:
                batch.found.append((item, found))
        batch.pushed = []
        batch.move(BatchStage.JUDGED)
        await self._refuse(refused)

    async def _add(self, batch: PushedBatch) -> None:
        """Send candidates to the shards that have not acknowledged theirs yet."""
        waiting = [found for _, found in batch.found if self._shard(found) not in batch.runs]
        delivered = await self._delivery.add(waiting, self._is_urgent)
        batch.runs |= delivered.runs
        if not delivered.failed:
            batch.durable_at = self._steady() + self._delivery.durable_after_s
            batch.move(BatchStage.ADDED)

    async def _remove_from_feed(self, batch: PushedBatch) -> None:
        if self._steady() < batch.durable_at:
            return
        forgetful = (
            await self._delivery.restarted_shards(batch.runs)
            if self._delivery.durable_after_s
            else set()
        )
        if forgetful is None:
            return
        forgotten = [pair for pair in batch.found if self._shard(pair[1]) in forgetful]
        ids = {item.id for item, _ in forgotten}
        await self.feed.remove([item for item, _ in batch.found if item.id not in ids])
        batch.found = forgotten
        batch.runs = {shard: run for shard, run in batch.runs.items() if shard not in forgetful}
        if forgotten:
            batch.move(BatchStage.JUDGED)

    async def _refuse(self, refused: Sequence[RefusedItem]) -> None:
        if refused:
            self._log_refused([(_shown(item.text), why) for item, why in refused])
            await self.feed.refuse(refused)

    def _log_refused(self, refused: Sequence[tuple[str, str]]) -> None:
        self._stats.count("pushed/refused", len(refused))
        for text, why in refused[: max(0, _MOST_LOGGED - self._refused)]:
            logger.warning("Pushed to %s and refused: %s: %s", self.feed.key, text, why[:_SHOWN])
        if self._refused < _MOST_LOGGED <= self._refused + len(refused):
            logger.warning(
                "Further refused items are counted, not logged; they are in %s",
                self.feed.refused_key,
            )
        self._refused += len(refused)

    def _shard(self, candidate: Candidate) -> int:
        return self._delivery.shard(candidate)


def _shown(text: bytes) -> str:
    """Return the beginning of a pushed item for the log, in ASCII and on one line."""
    return ascii(text[:_SHOWN].decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHooks:
    """What `PushedUrls` needs of the rest of its worker."""

    all_have_read: Callable[[int], bool]
    """Whether every live worker has announced this `opened_mark`."""
    may_take: Callable[[], bool]  # whether the frontier can take more
    is_idle: Callable[[], bool]  # whether nothing waits in the frontier, and nothing is leased
    wake: Callable[[], None]  # called when the opened hosts were read, so that leases may begin


class PushedUrls:
    """The pushed URLs of one worker. `tick` must be called every second; the worker announces
    `opened_mark` after it."""

    def __init__(
        self,
        feeds: PushedFeeds,
        reader: PushedRequestReader,
        settings: PushSettings,
        hooks: WorkerHooks,
        stats: CrawlStats,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self.opened_mark = 0  # the mark up to which this worker has read the opened hosts
        self._origins = reader.origins
        self._opened = feeds.opened_hosts
        self._settings = settings
        self._hooks = hooks
        self._steady = steady
        agreement = OriginAgreement(lambda: self.opened_mark, hooks.all_have_read)
        self._queues = [
            PushedQueue(
                feed,
                is_urgent,
                reader,
                feeds.delivery,
                open_hosts=self._open_hosts,
                agreement=agreement,
                stats=stats,
                steady=steady,
            )
            for feed, is_urgent in ((feeds.urgent, True), (feeds.start_urls, False))
        ]
        self.unfetched = UnfetchedPushes(stats, feeds.urgent.key)
        self._length = 0  # items of all feeds that could be asked
        self._are_all_feeds_read = False  # whether all feeds could be asked
        self._idle_since: float | None = None
        self._has_begun = False
        self._trouble = ""
        self._origins.wait_for_other_seeds()

    async def tick(self) -> None:
        """Work on each feed by itself, because they may be on different servers, one of which is
        down. Raises CrawlerError at the start only."""
        works: list[Callable[[], Awaitable[int]]] = [self._read_opened_hosts]
        works += (partial(self._work_on, queue) for queue in self._queues)
        answers = [await _or_fault(work) for work in works]
        faults = [answer for answer in answers if isinstance(answer, CrawlerError)]
        self._length = sum(answer for answer in answers if isinstance(answer, int))
        self._are_all_feeds_read = not faults
        self.unfetched.write(self._steady())
        self._note(faults)

    def close(self) -> None:
        self.unfetched.write(float("inf"))

    def may_have_more(self) -> bool:
        """Return whether URLs may still come from here: then the crawl is not over. An item that is
        not counted here is in the frontier already, so a look there after a tick finds it."""
        if self._length or not self._are_all_feeds_read:
            self._idle_since = None
            return True
        if not self._settings.only_pushed:
            return False
        if not self._hooks.is_idle():
            self._idle_since = None
            return True
        if self._idle_since is None:
            self._idle_since = self._steady()
        idle_s = self._steady() - self._idle_since
        return not self._settings.max_idle_s or idle_s < self._settings.max_idle_s

    async def _work_on(self, queue: PushedQueue) -> int:
        await queue.move_items(self._hooks.may_take)
        return await queue.feed.length()

    async def _open_hosts(self, hosts: Sequence[str]) -> int:
        mark = await self._opened.open(hosts)
        await self._read_opened_hosts()
        return mark

    async def _read_opened_hosts(self) -> int:
        """Read newly opened hosts. Returns 0, the number of items that wait."""
        hosts: list[str] = []
        mark = self.opened_mark
        while marks := await self._opened.since(mark):
            hosts += (each.host for each in marks)
            mark = marks[-1].mark
        was_known = self._origins.is_complete
        self._origins.add_seed_hosts(hosts)
        self.opened_mark = mark
        if self._origins.is_complete and not was_known:
            self._hooks.wake()
        return 0

    def _note(self, faults: Sequence[CrawlerError]) -> None:
        hopeless = [fault for fault in faults if not isinstance(fault, StoreUnavailable)]
        if hopeless and not self._has_begun:
            raise hopeless[0]
        self._has_begun = self._has_begun or not faults
        trouble = "; ".join(sorted({str(fault) for fault in faults}))
        if trouble and trouble != self._trouble:
            logger.warning("Pushed URLs are not taken for now: %s", trouble)
        self._trouble = trouble


async def _or_fault(work: Callable[[], Awaitable[int]]) -> int | CrawlerError:
    try:
        return await work()
    except CrawlerError as fault:
        return fault


@dataclass(frozen=True, slots=True)
class PushedContext:
    """What `PushedUrls` needs of the crawl."""

    reader: PushedRequestReader
    settings: PushSettings
    stats: CrawlStats

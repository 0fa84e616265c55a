"""Feeding: what is pushed into Redis from outside goes into the frontier while the crawl runs.

Rule: it waits for whatever cannot be asked, and keeps the crawl from ending meanwhile. What in
Redis is not what it must be ends the crawl at its start; later it is told, and the crawl goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from crawler.core.choices import RedisFsync
from crawler.core.errors import CrawlerError, StoreUnavailable
from crawler.core.shared_settings import Shared
from crawler.intake import Agreement, Intake
from crawler.pushing import Judge, PushRules
from crawler.storage.redis.ops import Ops
from crawler.storage.redis.worker.feeds import Delivery, Feeds
from crawler.storage.redis.worker.shared_frontier import SharedFrontier
from crawler.tally import Tally

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What feeding must know of the rest of its worker."""

    all_know: Callable[[int], bool]  # every live worker has announced so many `doors_known`
    may_take: Callable[[], bool]  # the frontier can take more
    is_idle: Callable[[], bool]  # nothing waits in the frontier, and nothing is leased
    wake: Callable[[], None]  # what was barred until the doors are known may be leased now


class Feeding:
    """Of one worker. `tick` is called every second, `doors_known` announced after it."""

    def __init__(
        self,
        feeds: Feeds,
        judge: Judge,
        rules: PushRules,
        around: Around,
        tally: Tally,
        steady: Callable[[], float] = monotonic,
    ) -> None:
        self.doors_known = 0  # how far this worker has read in the doors
        self._doors = judge.doors
        self._opened = feeds.doors
        self._rules = rules
        self._around = around
        self._steady = steady
        agreement = Agreement(lambda: self.doors_known, around.all_know)
        self._intakes = [
            Intake(
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

    async def _fed(self, intake: Intake) -> int:
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


def feed(
    frontier: SharedFrontier,
    ops: Ops,
    judge: Judge,
    rules: PushRules,
    settings: Shared,
    tally: Tally,
) -> Feeding:
    """Let what is pushed into *frontier*, from its first tick on."""
    others = frontier.membership
    around = Around(
        all_know=others.all_know,
        may_take=lambda: not frontier.is_congested(),
        is_idle=lambda: not frontier.is_anything_left(),
        wake=lambda: frontier.incoming.on_due(),
    )
    is_sure = settings.redis_fsync is RedisFsync.ALWAYS
    delivery = Delivery(frontier.nodes, ops, is_sure, frontier.incoming.touched)
    name, lease_s = settings.frontier_name, settings.lease_s
    feeds = Feeds.of(frontier.nodes, delivery, name, rules.key, ops.session, lease_s)
    feeding = Feeding(feeds, judge, rules, around, tally)
    frontier.on_tick.append(feeding.tick)
    frontier.is_elsewhere = feeding.is_elsewhere
    frontier.doors = lambda: feeding.doors_known
    return feeding

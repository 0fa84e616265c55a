"""The way of what is pushed: from its feed into the frontier, batch by batch.

Rule: an item leaves Redis when the frontier has its URL for sure, or with a reason. No page of a
new host is fetched before every live worker knows that the crawl begins there too: one that does
not would refuse the links to it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from crawler.core.types import Added, Candidate
from crawler.policy.pushed import Pushed, read_pushed
from crawler.policy.refusal import Refusal
from crawler.pushing import Judge
from crawler.storage.redis.worker.feeds import Delivery, Feed, Item
from crawler.tally import Tally

logger = logging.getLogger(__name__)

TAKE: Final = 200  # items of one batch: 10 ms of the loop
MOST_BATCHES: Final = 10  # held at once: some wait for a server, or for the other workers
ROUNDS: Final = 10  # of one tick: 2,000 items a second
HOLDS: Final = 3  # in a lease: one may be lost and one late
_TOLD: Final = 20  # items that are refused, named one by one
_SHOWN: Final = 200  # characters of each

Refused = tuple[Item, str]


class Stage(Enum):
    """How far a batch is."""

    READ = auto()  # its items are requests; their hosts are yet to be opened by all
    OPENED = auto()
    JUDGED = auto()  # candidates, not all of them in the frontier
    ADDED = auto()  # all of them, but a server may yet lose its last second


# The only moves. A batch ends, ADDED, when all its items have left Redis.
MOVES: Final = {
    Stage.READ: {Stage.OPENED},
    Stage.OPENED: {Stage.JUDGED},
    Stage.JUDGED: {Stage.ADDED},
    Stage.ADDED: {Stage.JUDGED},  # what a server forgot is added again
}


@dataclass(slots=True)
class Batch:
    """Items taken together."""

    pushed: list[tuple[Item, Pushed]]
    held_at: float  # steady
    hosts: list[str] = field(default_factory=list)  # which it opens
    mark: int = 0  # of the last door that all must know
    stage: Stage = Stage.READ
    found: list[tuple[Item, Candidate]] = field(default_factory=list)
    runs: dict[int, bytes] = field(default_factory=dict)  # of the shards that have theirs
    sure_at: float = 0.0  # steady

    def move(self, stage: Stage) -> None:
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
class Agreement:
    """How far this worker has read in the doors, and whether all others have read so far."""

    known: Callable[[], int]
    all_know: Callable[[int], bool]

    def holds(self, mark: int) -> bool:
        return mark <= self.known() and self.all_know(mark)


class Intake:
    """Of one feed. All raise CrawlerError; what was not done then is done the next time."""

    def __init__(
        self,
        feed: Feed,
        is_urgent: bool,
        judge: Judge,
        delivery: Delivery,
        open_doors: Callable[[Sequence[str]], Awaitable[int]],
        agreement: Agreement,
        tally: Tally,
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
        self._batches: list[Batch] = []
        self._refused = 0
        self._acts = {
            Stage.READ: self._open,
            Stage.OPENED: self._judged,
            Stage.JUDGED: self._add,
            Stage.ADDED: self._let_go,
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
        batch = Batch([], asked_at)
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

    async def _open(self, batch: Batch) -> None:
        """Told again each time: a server may have forgotten its last second."""
        if batch.hosts:
            batch.mark = max(batch.mark, await self._open_doors(batch.hosts))
        if self._agreement.holds(batch.mark):
            batch.move(Stage.OPENED)

    async def _judged(self, batch: Batch) -> None:
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
        batch.move(Stage.JUDGED)
        await self._refuse(refused)

    async def _add(self, batch: Batch) -> None:
        """Shards that cannot be asked now are asked again the next time."""
        waiting = [found for _, found in batch.found if self._shard(found) not in batch.runs]
        delivered = await self._delivery.add(waiting, self._is_urgent)
        self._count(delivered.added)
        batch.runs |= delivered.runs
        if not delivered.failed:
            batch.sure_at = self._steady() + self._delivery.sure_s
            batch.move(Stage.ADDED)

    async def _let_go(self, batch: Batch) -> None:
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
            batch.move(Stage.JUDGED)

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

"""What the workers of this machine say of themselves, and how the whole crawl stands.

Rule: looking never harms the crawl: while Redis cannot be asked, what was seen last stands. A
worker that died is counted by what it said last, at most a second before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import msgspec

from crawler.core.errors import CrawlerError
from crawler.core.types import Counts
from crawler.ops.glance import RecentRate
from crawler.storage.redis import keys
from crawler.storage.redis.connection.faults import FAULTS, Unreachable
from crawler.storage.redis.connection.nodes import Nodes
from crawler.storage.redis.totals import Totals
from crawler.storage.redis.worker_record import WorkerSaid

AGAIN_S: Final = 1.0
NOTHING: Final = Counts(0, 0, 0, 0, 0, 0, 0)
_decode = msgspec.json.Decoder(WorkerSaid).decode


@dataclass(frozen=True, slots=True)
class SharedGlance:
    """The figures of one moment: of our workers but for what waits, which is everybody's."""

    workers: int
    pages: int
    pages_per_s: float
    leased: int  # URLs, until what came of them is told
    waiting: int  # URLs, those with a date among them
    errors: int
    size_bytes: int


class WorkforceLook:
    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._before: frozenset[str] = frozenset()  # sessions of earlier runs
        self._heard: dict[str, WorkerSaid] = {}  # ours, by session
        self._rate = RecentRate()
        self.counts = NOTHING
        self.fault = ""  # why Redis cannot be asked
        self.everybody: list[WorkerSaid] = []

    async def begin(self, wait_s: float, tell: Callable[[str], None]) -> None:
        """What is there now is of the past. For *wait_s* a server that is away, or loading its
        data, is waited for. Raises CrawlerError."""
        until, told = monotonic() + wait_s, ""
        while True:
            try:
                await self._nodes.open()
                await self._look()
                break
            except Unreachable as fault:
                if monotonic() > until:
                    raise
                if told != str(fault):
                    told = str(fault)
                    tell(f"Waiting up to {wait_s:g} s (CRAWLER_REDIS_WAIT_S): {fault}")
                await asyncio.sleep(AGAIN_S)
        self._before = frozenset(said.session for said in self.everybody)

    async def again(self, names: Collection[str]) -> None:
        """*names*: of our workers."""
        try:
            await self._look()
        except CrawlerError as fault:
            self.fault = str(fault)
            return
        self.fault = ""
        for said in self.everybody:
            if said.name in names and said.session not in self._before:
                self._heard[said.session] = said

    def glance(self, workers: int, now: float) -> SharedGlance:
        """*workers*: so many are at work."""
        pages = sum(said.pages for said in self.lives)
        return SharedGlance(
            workers=workers,
            pages=pages,
            pages_per_s=self._rate.at(pages, now),
            leased=self.counts.leased,
            waiting=self.counts.waiting + self.counts.later,
            errors=sum(said.errors for said in self.lives),
            size_bytes=sum(said.bytes for said in self.lives),
        )

    def pages_of(self, names: Collection[str]) -> int:
        """In this run."""
        return sum(said.pages for said in self.lives if said.name in names)

    @property
    def lives(self) -> list[WorkerSaid]:
        """Of our workers in this run: what was heard last of each."""
        return list(self._heard.values())

    async def close(self) -> None:
        await self._nodes.close()

    async def _look(self) -> None:
        key = keys.workers(self._nodes.name)
        heard, *totals = await self._asked(key)
        self.everybody = list(_read(heard[1::2]))
        self.counts = Totals.summed(map(Totals.of_reply, totals))

    async def _asked(self, key: str) -> Sequence[Any]:
        """By commands that open no shard: only workers do. Raises the first Fault."""
        name, shards = self._nodes.name, range(self._nodes.shards)
        asked = [key, *(keys.totals(name, shard) for shard in shards)]
        replies = await asyncio.gather(
            *(self._nodes.command(each, "HGETALL", each) for each in asked)
        )
        for reply in replies:
            if isinstance(reply, FAULTS):
                raise reply
        return replies


def _read(said: Iterable[bytes]) -> Iterator[WorkerSaid]:
    for each in said:
        with suppress(msgspec.MsgspecError):  # what is none of ours is left out
            yield _decode(each)

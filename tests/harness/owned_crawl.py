"""Whole workers of a crawl over owned shards, as coroutines of one process, over a real server; and
a web of polite servers, a tree of pages, each linked once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.data.frontier_work import FrontierWork
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FrontierLimits
from crawler.frontier.shards import shard_of
from crawler.model.types import (
    Candidate,
    CrawlerError,
    Done,
    Lease,
    Moved,
    PutBack,
    Standing,
    StoreUnavailable,
)
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.crawl_format import CrawlFormat, new_format
from crawler.shared.owned.frontier import OwnedFrontier, OwnedHooks
from crawler.shared.owned.handover import ShardHolder
from crawler.shared.owned.inbox import LinkPushes
from crawler.shared.owned.leader import PlanLeader
from crawler.shared.owned.scripts import InboxCommands, OwnedScripts
from crawler.shared.worker.outbox import Outbox, Overflow
from tests.harness.frontiers import candidate, rest
from tests.servers.redis import RedisServer
from tests.servers.redis_process import HOST

NAME: Final = "o"
SHARDS: Final = 6
HOSTS: Final = 12
PAGES: Final = 150
LEASE_S: Final = 1.0
GAP_S: Final = 0.05
FETCH_S: Final = 0.05
LONGEST_FETCH_S: Final = 0.5
SCRIPTS: Final = OwnedScripts()
LIMITS: Final = FrontierLimits(
    longest_fetch_s=LONGEST_FETCH_S,
    min_gap_s=GAP_S,
    gap_factor=0.0,
    max_arrived_s=0.1,
    max_undecided_s=0.2,
)
ALIVE: Final = keys.announced(NAME)[1]
_numbers = count()


def page(number: int) -> Candidate:
    return candidate(str(number), host=f"h{number * 7 % HOSTS}")


def links_of(found: Candidate) -> list[Candidate]:
    number = int(found.url.rpartition("/")[2])
    return [page(child) for child in (2 * number + 1, 2 * number + 2) if child < PAGES]


@dataclass
class Web:
    """Polite servers, and what they were asked for."""

    free_at_s: dict[str, float] = field(default_factory=dict)
    fetches: Counter[str] = field(default_factory=Counter)
    breaches: list[str] = field(default_factory=list)

    async def fetch(self, found: Candidate) -> None:
        now_s = time.monotonic()
        early_s = self.free_at_s.get(found.host, 0.0) - now_s
        if early_s > 0.001:
            self.breaches.append(f"{found.url}: {early_s:.3f} s too early")
        self.fetches[found.url] += 1
        self.free_at_s[found.host] = now_s + FETCH_S + GAP_S
        await asyncio.sleep(FETCH_S)


async def noted() -> bool:
    return True


class Worker:
    """A process of the crawl."""

    def __init__(self, server: RedisServer, folder: Path, web: Web, crawl: CrawlFormat) -> None:
        self.name = f"w{next(_numbers)}"
        self.web = web
        self.errors: list[CrawlerError] = []
        self.awake = asyncio.Event()
        self.nodes = Nodes(Address(host=HOST, port=server.port), SCRIPTS, NAME, SHARDS)
        room = DiskRoom(WaitWarnings(), "the disk", lambda: False)
        self.work = FrontierWork(lambda _: None, room, self.errors.append, self.awake.set)
        self.frontier = OwnedFrontier(
            folder / self.name,
            MemoryStore(),
            self.nodes,
            LIMITS,
            shards=SHARDS,
            now=time.time,
            steady=time.monotonic,
            background=self.work,
            rests={},
            hooks=OwnedHooks(
                free_slots=lambda standing: 4 if standing is Standing.ANSWERS else 2,
                wake=self.awake.set,
                on_failed=self.on_failed,
                waits_for_room=room.wait_for_room,
                is_full=lambda _: False,
                on_taken_in=lambda: None,
                on_robots=lambda authority, result: None,
                on_lost=lambda _: None,
                on_pushed=lambda _, __: None,
            ),
        )
        self.outbox = Outbox(MemoryStore(), partial(shard_of, shards=SHARDS))
        overflow = Overflow(
            outbox=self.outbox, is_full=lambda _: False, ensure_noted=noted, sync=None
        )
        self.leader = PlanLeader(self.nodes, SCRIPTS, crawl, self.name, time.monotonic, 0.0)
        self.holder = ShardHolder(
            self.nodes,
            SCRIPTS,
            self.leader,
            self.frontier,
            LinkPushes(
                *(lambda at: InboxCommands(SCRIPTS, NAME, at), SHARDS, self.name.encode()),
                overflow,
                on_fault=self.on_failed,
            ),
            worker=self.name,
            lease_s=LEASE_S,
            longest_fetch_s=LONGEST_FETCH_S,
            settle_s=0.0,
            now_s=time.monotonic,
            on_arrived=self.frontier.on_arrived,
            on_failed=self.on_failed,
        )
        self.tasks: list[asyncio.Task[Any]] = []

    def on_failed(self, error: CrawlerError) -> None:
        if not isinstance(error, StoreUnavailable):  # that one is waited for
            self.errors.append(error)

    async def start(self) -> None:
        await self.nodes.open()
        self.frontier.begin(self.holder.sender)
        self.work.begin(self.frontier.frontier, time.time)
        loop = asyncio.get_running_loop()
        self.tasks = [
            loop.create_task(each) for each in (self._announce(), self.holder.run(), self._crawl())
        ]

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.holder.close()
        await self.frontier.close_all()
        await self.nodes.close()

    async def _announce(self) -> None:
        while True:
            await self.nodes.command(ALIVE, "ZADD", ALIVE, time.time(), self.name)
            await asyncio.sleep(0.3)

    async def _crawl(self) -> None:
        async with asyncio.TaskGroup() as fetches:
            while True:
                for lease in self.frontier.lease(time.time(), 4):
                    fetches.create_task(self._fetch(lease))
                self.awake.clear()
                try:
                    async with asyncio.timeout(0.05):
                        await self.awake.wait()
                except TimeoutError:
                    pass

    async def _fetch(self, lease: Lease) -> None:
        if not self.frontier.may_begin(lease):
            self.frontier.release(lease, rest(0.0), time.time())
            self.frontier.finish(lease, PutBack(), time.time())
            return
        await self.web.fetch(lease.candidate)
        self.frontier.release(lease, rest(GAP_S), time.time())
        links = links_of(lease.candidate)
        # Of some the first link is a redirect, perhaps to another shard.
        moved = links.pop() if links and int(lease.candidate.url[-1]) == 3 else None
        self.frontier.add(links, time.time())
        await self.frontier.wait_until_durable()
        self.frontier.finish(lease, Moved(moved) if moved else Done(), time.time())


def new_crawl() -> CrawlFormat:
    return replace(new_format(SHARDS, 3, ()), begun=False)

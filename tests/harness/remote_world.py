"""A frontier whose URLs are in a URL Frontier, for the tests of all frontiers: what it does in the
background is done after each call, at the time of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bench.urlfrontier_dict import DictCrawl
from crawler.data.local_stores import LocalClaims
from crawler.frontier.port import FrontierLimits, LeaseRules, PerHost, one
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import (
    STANDINGS,
    Added,
    Candidate,
    Claim,
    Done,
    Lease,
    Outcome,
    Rest,
    RetryAt,
    Standing,
    StoreUnavailable,
    Verdict,
)
from crawler.model.url import registered_domain, split
from crawler.policy.refusal import Reason, Refusal
from crawler.urlfrontier.port import PutItem, ServedCrawl
from crawler.urlfrontier.remote_frontier import RemoteFrontier, RemoteHooks, RemoteStats
from crawler.urlfrontier.remote_urls import Place, RemoteUrl
from tests.harness.frontiers import TIGHT, HostKey, candidate

EPOCH: Final = 1_000_000.0
"""What is 0 s for a test: to a URL Frontier the dates 0 and 1 say something else."""
_TICK_S: Final = (
    1e-6  # between two calls: a queue is served after its block or delay, not at its end
)


class DirectServer:
    """Implements remote_frontier.RemoteServer over what a server serves, without a server."""

    def __init__(self, crawl: ServedCrawl, world: RemoteWorld) -> None:
        self.crawl = crawl
        self.connections = 1
        self.is_away = False
        self._world = world
        self.calls: list[str] = []
        self._calls = 0

    def _check(self, call: str) -> float:
        self.calls.append(call)
        if self.is_away:
            raise StoreUnavailable("the server is away")
        self._calls += 1
        return self._world.now + self._calls * _TICK_S

    async def put_discovered(self, urls: Sequence[RemoteUrl]) -> Sequence[int]:
        return self._put("discovered", [(url, None) for url in urls])

    async def put_known(self, urls: Sequence[tuple[RemoteUrl, int]]) -> Sequence[int]:
        return self._put("known", urls)

    def _put(self, call: str, urls: Iterable[tuple[RemoteUrl, int | None]]) -> Sequence[int]:
        packed = [
            PutItem(url.url, url.key, msgspec.msgpack.encode(url.metadata), date)
            for url, date in urls
        ]
        return [int(status) for status in self.crawl.put(packed, self._check(call))]

    async def get_urls(self, queues: int, lease_s: int) -> Sequence[RemoteUrl]:
        now = self._check("get")
        found = await self.crawl.lease(now, queues=queues, per_queue=1, lease_s=lease_s)
        return [
            RemoteUrl(each.url, each.key, msgspec.msgpack.decode(each.metadata)) for each in found
        ]

    async def block(self, key: str, until: int) -> None:
        self.crawl.block(key, until, self._check("block"))

    async def stats(self) -> RemoteStats:
        stats = self.crawl.stats("", self._check("stats"))
        return RemoteStats(stats.size, stats.in_process, stats.completed)

    async def close(self) -> None:
        """Nothing to close."""


class SteppedFrontier:
    """A RemoteFrontier whose background work is done within each call."""

    def __init__(self, frontier: RemoteFrontier, world: RemoteWorld) -> None:
        self.frontier = frontier
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self.frontier, name)

    def _sent(self) -> None:
        self._world.run(self.frontier.send_round())

    def add(self, found: Iterable[Candidate], now: float, **given: Any) -> Added:
        asked, self._world.decided = list(found), Added()
        undecided = self.frontier.add(asked, self._world.set(now), **given).undecided
        self._sent()
        new = self._world.decided.new + len(asked) - undecided
        return Added(new=new, seen=self._world.decided.seen)

    def lease(
        self,
        now: float,
        limit: int = 1,
        standings: Sequence[Standing] = STANDINGS,
        per_host: PerHost = one,
    ) -> list[Lease]:
        at = self._world.set(now)
        self._sent()
        self._world.run(self.frontier.fill_once())
        self._sent()
        return self.frontier.lease(at, limit, standings, per_host)

    def release(self, lease: Lease, rest: Rest, now: float) -> bool:
        is_held = self.frontier.release(lease, rest, self._world.set(now))
        self._sent()
        return is_held

    def note_trouble(self, lease: Lease, rest: Rest, now: float) -> None:
        self.frontier.note_trouble(lease, rest, self._world.set(now))

    def finish(self, lease: Lease, verdict: Verdict, now: float) -> bool:
        if isinstance(verdict, RetryAt):
            verdict = replace(verdict, when=verdict.when + EPOCH)
        elif isinstance(verdict, Done) and verdict.again is not None:
            at = verdict.again.at
            again = replace(verdict.again, at=None if at is None else at + EPOCH)
            verdict = replace(verdict, again=again)
        is_held = self.frontier.finish(lease, verdict, self._world.set(now))
        self._sent()
        return is_held

    def wake_at(self, standings: Sequence[Standing] = STANDINGS) -> float | None:
        at = self.frontier.wake_at(standings)
        return None if at is None else at - EPOCH


class RemoteWorld:
    """A URL Frontier and a store that outlive the frontiers over them."""

    def __init__(
        self, folder: Path, limits: FrontierLimits = TIGHT, crawl: DictCrawl | None = None
    ) -> None:
        """*crawl*: that of another world, if two share one."""
        self.store = RocksStore(folder)
        self.limits = limits
        self.crawl = crawl or DictCrawl()
        self.crawl.set_delay("", 0, 0.0)  # rests are what is tested
        self.server = DirectServer(self.crawl, self)
        self.now = EPOCH
        self.decided = Added()
        self.outcomes: list[Outcome] = []
        self.counted: list[str] = []
        self._loop = asyncio.new_event_loop()

    def set(self, now: float) -> float:
        """Let it be *now*, and return that in epoch seconds."""
        self.now = now + EPOCH
        return self.now

    def run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> SteppedFrontier:
        self.set(now)
        hooks = RemoteHooks(
            now=lambda: self.now,
            free_slots=lambda _: 10,
            wake=lambda: None,
            fail=_fail,
            log=self.outcomes.extend,
            count=self.counted.append,
            place_of=_place_of,
            admit=_admit,
            on_decided=self._note_decided,
        )
        frontier = RemoteFrontier(self.server, self.store, self.limits, lease_rules, hooks)
        return SteppedFrontier(frontier, self)

    def _note_decided(self, added: Added) -> None:
        self.decided = Added(new=self.decided.new + added.new, seen=self.decided.seen + added.seen)

    def claim(self, digest: bytes) -> Claim | None:
        return LocalClaims(self.store).claim(digest)

    def close(self) -> None:
        self._loop.close()
        self.store.close()


def _fail(error: Exception) -> None:
    raise error


def _place_of(url: str) -> Place:
    name = split(url).hostname
    return Place(HostKey(name), registered_domain(name))


def _admit(url: str) -> Candidate | Refusal:
    if not url.startswith("http://") or "//127." in url:
        return Refusal(Reason.DENIED, "by the test")
    host, _, path = url.removeprefix("http://").partition("/")
    return candidate(path, host=host)

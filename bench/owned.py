"""What an owned shard takes in Redis, and what its take-over into an empty disk costs.

    python -m bench.owned 100000 1000000      # waiting URLs of 90 characters, other seen URLs

Rule: the store is RocksDB, as in a crawl. CPU is that of the whole process, that of Redis apart.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from xxhash import xxh3_64_intdigest

from bench.frontier.links import URLS_A_HOST, Link, domain_of, url_of
from bench.redis_server import Server, redis_server
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FRONTIER, FrontierLimits
from crawler.frontier.records import ONE_SHARD
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.shards import Shards
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import Candidate, HostKey
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.owned.inbox import LinkPushes
from crawler.shared.owned.mirror import Mirror, MirroredStore, all_changes
from crawler.shared.owned.owner import OwnedShard, ShardSender, claim
from crawler.shared.owned.scripts import ClaimedShard, InboxCommands, OwnedScripts, ShardCommands
from crawler.shared.owned.takeover import ShardLoader, load
from crawler.shared.worker.outbox import Outbox, Overflow

NAME: Final = "owned"
AT_ONCE: Final = 20_000
LEASES: Final = 50
LEASE_S: Final = 60.0


@dataclass
class Owner:
    """An owner of the one shard, in a folder of its own."""

    sender: ShardSender
    shard: OwnedShard
    frontier: TwoTierFrontier
    turns: FrontierTurns
    longest_step_s: float

    async def end_turn(self) -> None:
        self.turns.end(self.frontier, time.time())
        await self.sender.wait_until_durable()


async def owner(server: Server, nodes: Nodes, folder: Path, token: str) -> Owner:
    commands = ShardCommands(OwnedScripts(), NAME, 0, token, LEASE_S)
    outbox = Outbox(MemoryStore(), lambda _: 0)
    overflow = Overflow(outbox=outbox, is_full=lambda _: False, ensure_noted=noted, sync=None)
    pushes = LinkPushes(
        lambda shard: InboxCommands(OwnedScripts(), NAME, shard), 1, b"", overflow, on_fault=failed
    )
    sender = ShardSender(nodes, time.monotonic, pushes, on_lost=failed, on_arrived=failed)
    claimed = await claim(nodes, commands, begins=True)
    assert isinstance(claimed, ClaimedShard)
    local, limits, turns = RocksStore(folder / FRONTIER), FrontierLimits(), FrontierTurns()
    store, now = MirroredStore(local), time.time()
    frontier = open_frontier(folder, limits, now, background=turns, store=store, shards=OneShard(2))
    mirror = Mirror(claimed.seq, sender.send_soon)
    shard = OwnedShard(
        *(commands, claimed, time.monotonic(), mirror), lambda: all_changes(local, loader.key)
    )
    loader = ShardLoader(shard, claimed, local, limits, now, {})
    longest = Longest()
    with longest:
        await load(nodes, shard, loader, time.monotonic)
    store.mirrors[loader.key] = mirror
    sender.add(shard)
    frontier.import_seen(loader.seen, lambda: None)
    await asyncio.to_thread(turns.end, frontier, time.time())
    with longest:
        for _ in frontier.take_in(loader.key, time.time()):
            frontier.commit()
            await asyncio.sleep(0)
    return Owner(sender, shard, frontier, turns, longest.step_s)


async def noted() -> bool:
    return True


def failed(what: object) -> None:
    """One owner has the only shard: it is not lost, and no other one pushes links to it."""
    sys.exit(f"unexpected: {what}")


class OneShard(Shards):
    """All hosts are in shard 0 of several."""

    def _find(self, host: str) -> bytes:
        return ONE_SHARD


class Longest:
    """Notes the longest turn of the event loop while it is entered."""

    step_s = 0.0

    def __enter__(self) -> None:
        self._run = asyncio.events.Handle._run
        longest = self

        def timed(handle: asyncio.Handle) -> None:
            begun_s = time.perf_counter()
            self._run(handle)
            longest.step_s = max(longest.step_s, time.perf_counter() - begun_s)

        asyncio.events.Handle._run = timed  # type: ignore[method-assign, assignment]  # to time it

    def __exit__(self, *_: object) -> None:
        asyncio.events.Handle._run = self._run  # type: ignore[method-assign]  # as it was


def candidate(number: int, hosts: int) -> Candidate:
    link = Link(number % hosts, number // hosts)
    url, domain = url_of(link), domain_of(link)
    return Candidate(
        url, xxh3_64_intdigest(url.encode()), HostKey(f"www.{domain}"), domain, depth=3, level=2
    )


async def measure(waiting: int, seen: int, folder: Path) -> None:
    hosts = max(1, waiting // URLS_A_HOST)
    with redis_server(append_only=False) as server:
        nodes = Nodes(Address.parse(server.url), OwnedScripts(), NAME, 1)
        await nodes.open()
        first = await owner(server, nodes, folder / "first", "first")
        empty_bytes = server.used_bytes()
        for at in range(0, waiting, AT_ONCE):
            found = (candidate(n, hosts) for n in range(at, min(at + AT_ONCE, waiting)))
            first.frontier.add(found, time.time())
            await first.end_turn()
        first.frontier.admit_arrived(time.time())
        await first.end_turn()
        waiting_bytes = server.used_bytes() - empty_bytes
        random = np.random.default_rng(1)
        for at in range(0, seen, 100_000):
            keys = random.integers(0, 1 << 63, min(100_000, seen - at), np.uint64)
            first.frontier.mark_seen(keys.tolist(), time.time())
            await first.end_turn()
        seen_bytes = server.used_bytes() - empty_bytes - waiting_bytes
        first.frontier.lease(time.time(), LEASES)
        await first.end_turn()
        counts = first.frontier.counts()
        await first.sender.release(first.shard)
        await first.sender.close()

        cpu_s, redis_s, begun_s = time.process_time(), server.cpu_s(), time.perf_counter()
        loop_s = time.thread_time()
        second = await owner(server, nodes, folder / "second", "second")
        took_s, cpu_s = time.perf_counter() - begun_s, time.process_time() - cpu_s
        loop_s = time.thread_time() - loop_s
        await second.end_turn()
        loaded = second.frontier.counts()
        left = counts.waiting + counts.leased + counts.undecided
        assert loaded.waiting == left, (counts, loaded)
        assert loaded.seen == counts.seen + counts.undecided
        await second.sender.close()
        await nodes.close()
        print(
            f"{waiting:,} waiting of {hosts:,} hosts, {counts.seen:,} seen: loaded in"
            f" {took_s:.2f} s, CPU {cpu_s:.2f} s ({loop_s:.2f} of the loop), Redis"
            f" {server.cpu_s() - redis_s:.2f} s, longest step"
            f" {second.longest_step_s * 1000:.0f} ms. In Redis {waiting_bytes / waiting:.1f} B"
            f" a waiting URL with its key, {seen_bytes / max(seen, 1):.2f} B a seen one"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("waiting", type=int)
    parser.add_argument("seen", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(given.waiting, given.seen, Path(folder)))


if __name__ == "__main__":
    main()

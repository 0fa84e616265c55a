"""A worker of our shared frontier, asked as a crawl asks it, but many URLs a call.

Rule: what is measured begins with Candidates and ends when Redis has all, and the owners of the
shards have decided what is new.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace
from xxhash import xxh3_64_intdigest

from bench.frontier import links
from crawler.data.frontier_work import FrontierWork
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import FRONTIER, FrontierLimits
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.shards import shard_of
from crawler.model.types import Added, Candidate, Claim, Done, HostKey, Lease, Pace, Rest, Standing
from crawler.shared import keys
from crawler.shared.address import Address
from crawler.shared.client import Nodes
from crawler.shared.codec import WorkerRecord
from crawler.shared.crawl_format import encode_format, new_format, read_format
from crawler.shared.owned.readings import read_totals
from crawler.shared.owned.scripts import OwnedScripts
from crawler.shared.owned.worker import OwnedWorker
from crawler.shared.worker.base import WorkerBase
from crawler.shared.worker.batcher import Batcher
from crawler.shared.worker.exact_duplicates import SharedDuplicates
from crawler.shared.worker.near_duplicates import NearSearch, SharedNearDuplicates
from crawler.shared.worker.outbox import Outbox
from crawler.shared.worker.status import WorkerSettings

NAME: Final = "gossamer"
SHARDS: Final = 64
LEASE_S: Final = 30.0  # a claim is sure when it was renewed, after a third of it
LIMITS: Final = FrontierLimits(min_gap_s=0.0, gap_factor=0.0)
AT_ONCE: Final = Rest(0.0, Pace())
ARRIVED: Final = "bench:arrived"  # how many clients
NO_TURN_S: Final = 1.0
LOOK_S: Final = 0.01
CLAIMS_AT_ONCE: Final = 100
T = TypeVar("T")


class Ours:
    def __init__(self, url: str, client: links.Client) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="frontier")
        self._nodes = Nodes(Address.parse(url), OwnedScripts(), NAME, SHARDS)
        self._session = f"bench-{client.number}.1"
        self._slots = 0
        self._loop = asyncio.new_event_loop()
        # It runs between the calls, too: others send links, and shards are held by renewals.
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._run(self._begin(client))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _begin(self, client: links.Client) -> None:
        await self._nodes.open()
        await self._wait_for_all(client)
        base, folder = self._base(client), Path(self._folder.name)
        self._contents = base.contents
        link, scripts = base.shard_client(), Batcher(self._nodes.run)
        search = NearSearch(base.contents, NAME, scripts, Batcher(self._nodes.commands), 3)
        key = keys.format_key(NAME)
        ours = replace(new_format(SHARDS, len(LIMITS.level_shares), ()), begun=False)
        await self._nodes.checked_command(key, "SET", key, encode_format(ours), "NX")
        self._worker = OwnedWorker(
            base,
            read_format(await self._nodes.checked_command(key, "GET", key), key),
            (SharedDuplicates(link, scripts), SharedNearDuplicates(link, search, 3)),
            FrontierWork(lambda _: None, base.disk, failed, lambda: None),
            dead_sessions=(),
            rests={},
            folder=folder,
            store=RocksStore(folder / FRONTIER),
            limits=LIMITS,
            lease_rules=None,
            addresses=None,
            free_slots=lambda standing: self._slots if standing is Standing.NEW else 0,
            wake=lambda: None,
            on_taken_in=lambda: None,
            on_robots=lambda authority, result: None,
            pushing=None,
        )
        self._worker.begin()
        await until(lambda: self._holds(SHARDS // client.of))
        self._admitting = asyncio.create_task(self._admit())

    async def _admit(self) -> None:
        """Decide what is new of what arrives, as a crawl does that asks for leases all the time."""
        while True:
            self._worker.frontier.frontier.admit_arrived(time.time())
            self._worker.frontier.commit()
            await asyncio.sleep(LOOK_S)

    async def _wait_for_all(self, client: links.Client) -> None:
        """A worker that comes after the first plan gets its part when shards may be moved again."""
        arrived = await self._nodes.checked_command(ARRIVED, "INCR", ARRIVED)
        while int(arrived) < client.of:
            await asyncio.sleep(LOOK_S)
            arrived = await self._nodes.checked_command(ARRIVED, "GET", ARRIVED)

    def _base(self, client: links.Client) -> WorkerBase:
        record = WorkerRecord(
            name=f"bench-{client.number}", session=self._session, host="here", pid=1
        )
        return WorkerBase.of(
            nodes=self._nodes,
            settings=WorkerSettings(
                name=NAME,
                shards=SHARDS,
                lease_s=LEASE_S,
                fetch_s=30.0,
                is_ack_durable=True,
                full_bytes=lambda _: None,
            ),
            outbox=Outbox(MemoryStore(), lambda domain: shard_of(domain, SHARDS)),
            listener=Failing(),
            make_record=lambda: record,
            now=time.time,
        )

    def _holds(self, shards: int) -> bool:
        """Return whether so many shards are here, and links for them are added at once."""
        held = self._worker.holder.held.values()
        return len(held) >= shards and all(each.takes_links for each in held)

    def prepare(self, found: Iterable[links.Link]) -> list[Any]:
        return [_candidate(link) for link in found]

    def add(self, prepared: Sequence[Any]) -> None:
        self._run(self._add(prepared))

    async def _add(self, prepared: Sequence[Candidate]) -> None:
        await until(lambda: not self._worker.is_congested())
        self._worker.add(prepared, time.time())
        await self._worker.wait_until_durable()

    def lease(self, limit: int) -> list[Any]:
        return self._run(self._lease(limit))

    async def _lease(self, limit: int) -> list[Lease]:
        """Return nothing if no host of this worker's shards has a turn for so long."""
        self._slots, end = limit, time.monotonic() + NO_TURN_S
        while not (leases := self._worker.lease(time.time(), limit)) and time.monotonic() < end:
            await asyncio.sleep(0.001)
        self._slots = 0
        return leases

    def release(self, leases: Sequence[Any]) -> None:
        self._run(self._release(leases))

    async def _release(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._worker.release(lease, AT_ONCE, time.time())

    def finish(self, leases: Sequence[Any]) -> None:
        self._run(self._finish(leases))

    async def _finish(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if not self._worker.finish(lease, Done(), time.time()):
                failed("a lease was lost that nobody let expire")

    def claim(self, count: int) -> None:
        self._run(self._claim(count))

    async def _claim(self, count: int) -> None:
        for at in range(0, count, CLAIMS_AT_ONCE):
            numbers = range(at, min(at + CLAIMS_AT_ONCE, count))
            calls = [self._claim_call(number) for number in numbers]
            for reply in await self._nodes.run(calls):
                if isinstance(reply, Exception):
                    raise reply

    def _claim_call(self, number: int) -> Any:
        digest, sent = secrets.token_bytes(20), secrets.token_bytes(20)  # SHA-1, both
        record = f"{self._session}-20260101000000-00001.warc.gz:{number * 9000}"
        claim = Claim(digest, links.url_of(links.Link(number, 0)), record, time.time(), sent)
        return self._contents.claim(digest, number, claim)

    def settle(self) -> None:
        self._run(self._settle())

    async def _settle(self) -> None:
        """Return when Redis has all, and the inboxes of all shards are empty."""
        await self._worker.wait_until_durable()
        while await self._undecided():
            await asyncio.sleep(LOOK_S)

    async def _undecided(self) -> bool:
        kinds = (b"u", b"v", b"inbox")
        asks = [
            (shard, ("HLEN", f"{keys.root(NAME, shard)}:{kind.decode()}"))
            for shard in range(SHARDS)
            for kind in kinds
        ]
        return any(await self._nodes.commands(asks))

    def known(self) -> int:
        return sum(each.seen for each in self._run(read_totals(self._nodes)))


class Failing:
    """Implements status.Listener: nothing is lost, and nothing fails."""

    def count(self, key: str) -> None:
        failed(key)

    def on_added(self, added: Added) -> None: ...

    def on_lost(self, leases: Sequence[Lease]) -> None:
        failed(leases)

    def on_failed(self, error: Exception) -> None:
        failed(error)


def failed(what: object) -> None:
    print(f"unexpected: {what}", file=sys.stderr, flush=True)
    os._exit(1)  # sys.exit would end the thread of the event loop only


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(LOOK_S)


def _candidate(link: links.Link) -> Candidate:
    url, domain = links.url_of(link), links.domain_of(link)
    key = xxh3_64_intdigest(url.encode())
    return Candidate(url, key, HostKey(f"www.{domain}"), domain, depth=3, level=2)

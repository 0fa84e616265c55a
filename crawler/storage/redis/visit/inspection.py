"""A shared crawl as it stands, read beside the workers that crawl.

Rule: as in visit.py. All times are the server's. Of what workers keep on their own disks (logs,
archives, links that wait) only what is in this data directory is known, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from heapq import nsmallest
from pathlib import Path
from typing import Self

from msgspec.structs import replace

from crawler.core.arguments import read_kept
from crawler.core.domains import registered_domain
from crawler.core.outcome import Outcome
from crawler.core.types import Candidate, Counts, HostKey
from crawler.core.url import split
from crawler.policy.robots_fetch import Known, RobotsRecord
from crawler.policy.yields import Yield
from crawler.scheduler.ports import OrderedStore
from crawler.scheduler.records import DeadLetter, RefusedRecord
from crawler.storage.inspection import HostState, Leased, Named, Owned, Unsearched, Waiting
from crawler.storage.local.datadir import WORKER
from crawler.storage.local.inspection import doors_of, opened
from crawler.storage.local.records import RobotsRecords
from crawler.storage.local.traces import Traces
from crawler.storage.memory import MemoryStore
from crawler.storage.redis import keys
from crawler.storage.redis.ops import shard_of
from crawler.storage.redis.robots_packed import read_robots
from crawler.storage.redis.totals import Totals
from crawler.storage.redis.visit.revival import dead_letters
from crawler.storage.redis.visit.visit import SLICE, Visit
from crawler.storage.redis.visit.visit_hosts import busiest, host_state
from crawler.storage.redis.visit.visit_urls import Search
from crawler.storage.redis.visit.visit_yields import brought
from crawler.storage.redis.visit.workers import everybody


class RedisInspection:
    """Implements storage.inspection.Inspection."""

    is_shared = True

    def __init__(self, visit: Visit, path: Path, most_bytes: int) -> None:
        """*path*: of a worker's data, which need not be there; *most_bytes*: of a robots.txt."""
        self.where = visit.where
        self.key_seed, self.identity = visit.format.key_seed, visit.format.identity
        self.now = visit.now
        self._visit = visit
        self._most_bytes = most_bytes
        self._folder = path / WORKER
        self._traces = Traces(path)
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    @property
    def arguments(self) -> dict[str, str]:
        key = keys.arguments(self._visit.name)
        return read_kept(self._visit.ask(key, "GET"), key)

    @property
    def robots(self) -> RobotsLook:
        return RobotsLook(self._visit, RobotsRecords(self._store), self._most_bytes)

    def counts(self) -> Counts:
        names = [keys.totals(self._visit.name, shard) for shard in self._visit.shards]
        replies = self._visit.ask_each([("HGETALL", name) for name in names])
        return Totals.summed(Totals.of_reply(reply) for reply in replies)

    def busiest(self, top: int) -> list[HostState]:
        return busiest(self._visit, top)

    def host(self, host: HostKey) -> HostState | None:
        return host_state(self._visit, host)

    def oldest_dead(self, limit: int) -> list[DeadLetter]:
        """Letters of a shard are in no order, so each is looked at."""
        found: dict[tuple[int, int], DeadLetter] = {}  # by number: a scan may tell some twice

        for shard in self._visit.shards:
            for number, letter in dead_letters(self._visit, shard):
                found[shard, number] = letter
                if len(found) >= limit + SLICE:
                    found = _oldest(found, limit)
        return list(_oldest(found, limit).values())

    def is_seen(self, it: Named) -> bool:
        return Search(self._visit, it).is_seen()

    def waiting(self, it: Named) -> Waiting | Unsearched | None:
        return Search(self._visit, it).waiting()

    def leased(self, it: Named) -> Leased | None:
        return Search(self._visit, it).leased()

    def later(self, it: Named) -> Candidate | None:
        return Search(self._visit, it).later()

    def dead(self, it: Named) -> DeadLetter | None:
        return Search(self._visit, it).dead()

    def refused(self, it: Named) -> RefusedRecord | None:
        return Search(self._visit, it).refused()

    def owned(self, it: Named, is_it: Callable[[str], bool]) -> Owned | None:
        return Search(self._visit, it).owned(is_it)

    def outcomes(self, it: Named, is_it: Callable[[str], bool]) -> list[Outcome]:
        return self._traces.outcomes(it.host, is_it)

    def original(self, record: str) -> str:
        return self._traces.original(record)

    def elsewhere(self) -> dict[str, int]:
        return {one.name: one.outbox for one in everybody(self._visit) if one.outbox}

    def remembered(self) -> MemoryStore:
        return doors_of(self._store)

    def brought(self, it: Named, pattern: str) -> tuple[str, Yield]:
        return brought(self._visit, it, pattern)

    def admitted_of_domain(self, it: Named) -> int:
        key = keys.domains(self._visit.name, shard_of(it.domain, len(self._visit.shards)))
        used = self._visit.ask(key, "HGET", it.domain)
        with self._visit.reading(key):
            return int(used or 0)

    def opened_hosts(self, it: Named) -> set[str]:
        """Those of its domain, which a scope may ask for."""
        key = keys.doors(self._visit.name)
        matter: set[str] = set()
        for found in self._visit.scored(key):
            with self._visit.reading(key):
                hosts = [host.decode() for host, _ in found]
            matter |= {host for host in hosts if registered_domain(host) == it.domain}
        return matter

    @cached_property
    def _store(self) -> OrderedStore:
        """Of the worker whose data directory this is."""
        if not self._folder.is_dir():
            return MemoryStore()
        store = opened(self._folder)
        self._closing.callback(store.close)
        return store


def _oldest(
    letters: dict[tuple[int, int], DeadLetter], limit: int
) -> dict[tuple[int, int], DeadLetter]:
    return dict(nsmallest(limit, letters.items(), key=lambda pair: pair[1].at))


class RobotsLook:
    """Implements policy.robots_cache.RobotsStore, to be read: what workers hand on, else what one
    has kept for itself."""

    def __init__(self, visit: Visit, own: RobotsRecords, most_bytes: int) -> None:
        self._visit = visit
        self._own = own
        self._most_bytes = most_bytes

    def get(self, authority: str) -> RobotsRecord | None:
        domain = registered_domain(split(f"{authority}/").hostname)
        shard = shard_of(domain, len(self._visit.shards))
        key = keys.robots(self._visit.name, shard, authority)
        packed, left_ms = self._visit.ask_each([("GET", key), ("PTTL", key)])
        shared = read_robots(authority, packed, left_ms, self._visit.now(), self._most_bytes)
        own = self._own.get(authority)
        if shared is None and own is not None and own.kind is Known.UNREACHABLE:
            return None  # it was taken back, as shared_robots.py has it
        # When it was fetched nobody hands on, so it holds from ever until it ends.
        return replace(shared, fetched_at=0.0) if shared else own

    def put(self, record: RobotsRecord) -> None:
        """Nothing: who only looks learns nothing."""

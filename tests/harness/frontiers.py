"""The worlds of the frontier tests: a store that outlives its frontiers, and what these tests
share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from xxhash import xxh3_64_intdigest

from crawler.data.local_stores import LocalClaims
from crawler.frontier import records as keys
from crawler.frontier.budgets import CAPPED
from crawler.frontier.dead_letters import dead_letters
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import (
    FRONTIER,
    SEEN,
    DurableStore,
    Frontier,
    FrontierLimits,
    LeaseRules,
    OrderedStore,
)
from crawler.frontier.reader import FrontierReader
from crawler.frontier.records import (
    DeadLetter,
    FrontEntry,
    HostPlace,
    HostRecord,
    decode_candidate,
    decode_entry,
)
from crawler.frontier.rocks_store import RocksStore
from crawler.frontier.run_files import RunFolder
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.choices import LaterVisits
from crawler.model.types import (
    STANDINGS,
    Candidate,
    Claim,
    HostKey,
    Lease,
    Pace,
    Rest,
    Standing,
)
from crawler.policy.refusal import Reason, Refusal

T = TypeVar("T")

# Small limits, so that ordinary tests cross every boundary.
TIGHT = FrontierLimits(
    max_active_hosts=2,
    known_hosts=1,
    known_domains=1,
    head_urls=2,
    min_gap_s=2.0,
    evict_rest_s=4.0,
    max_front_reads=2,
    due_slice=2,
    recovered_slice=2,
    judged_slice=2,
    max_arrived=5,
    max_new_keys=3,
    chunk_urls=2,
    max_undecided=3,
    max_undecided_s=5.0,
    gap_factor=0.5,
    longest_fetch_s=10.0,
)


class Addresses:
    """Implements port.HostAddresses. A host that it does not have is looked up."""

    def __init__(self, of: dict[str, list[str]]) -> None:
        self.of = of
        self.asked: set[str] = set()

    def addresses(self, host: HostKey) -> list[str] | None:
        if host not in self.of:
            self.asked.add(host)
        return self.of.get(host)


class EmbeddedWorld:
    """A store that outlives its frontiers: `reopen` is a restart after a crash."""

    def __init__(self, store: DurableStore, folder: Path, limits: FrontierLimits = TIGHT) -> None:
        self.store = store
        self.folder = folder
        self.runs = RunFolder(folder / SEEN)
        self.limits = limits
        self.turns: FrontierTurns | None = None  # None: each call ends its turn
        self.addresses: Addresses | None = None

    def reopen(self, now: float, lease_rules: LeaseRules | None = None) -> TwoTierFrontier:
        return open_frontier(
            *(self.folder, self.limits, now),
            lease_rules=lease_rules,
            background=self.turns,
            store=self.store,
            addresses=self.addresses,
        )

    def letters(self) -> list[DeadLetter]:
        return [letter for _, letter in dead_letters(self.store)]

    def claim(self, digest: bytes) -> Claim | None:
        return LocalClaims(self.store).claim(digest)

    def drift(self, frontier: TwoTierFrontier, by: int) -> None:
        """Make the counter of waiting URLs wrong by *by*."""
        frontier._batch.totals.waiting += by

    def check(self, frontier: TwoTierFrontier) -> None:
        check_invariants(frontier, self.store, self.runs)

    def wakes(
        self, frontier: TwoTierFrontier, now: float, standings: Sequence[Standing] = STANDINGS
    ) -> bool:
        """Return whether the frontier asks to be asked for *standings* by *now*."""
        wake_at = frontier.wake_at(standings)
        return wake_at is not None and wake_at <= now


class TurnWorld(EmbeddedWorld):
    """As a crawl uses it: calls are committed together, and the work beside them waits."""

    turns: FrontierTurns

    def __init__(self, store: DurableStore, folder: Path, limits: FrontierLimits = TIGHT) -> None:
        super().__init__(store, folder, limits)
        self.turns = FrontierTurns()

    def end_turn(self, frontier: TwoTierFrontier, now: float) -> None:
        self.turns.end(frontier, now)

    def wakes(
        self, frontier: TwoTierFrontier, now: float, standings: Sequence[Standing] = STANDINGS
    ) -> bool:
        """Or whether it asks for the end of the turn, before which it leases no more."""
        return self.turns.is_due or super().wakes(frontier, now, standings)


@contextmanager
def memory_store(_: Path) -> Iterator[DurableStore]:
    yield MemoryStore()


@contextmanager
def rocks_store(folder: Path) -> Iterator[DurableStore]:
    store = RocksStore(folder / FRONTIER)
    yield store
    store.close()


STORES = [memory_store, rocks_store]


def candidate(name: str, *, host: str = "a", **given: object) -> Candidate:
    """Return a link of a page; *name* is the path of its URL and identifies it on the host."""
    url = f"http://{host}/{name}"
    key = xxh3_64_intdigest(url.encode())
    given = {"depth": 1} | given
    return Candidate(url=url, key=key, host=HostKey(host), domain=host, **given)  # type: ignore[arg-type]  # field types are checked by msgspec's users, not here


def rest(seconds: float) -> Rest:
    return Rest(seconds, Pace(gap_s=seconds))


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """Return what *call* does, which waits for nothing."""
    with pytest.raises(StopIteration) as end:
        call.send(None)
    result: T = end.value.value
    return result


def drain(frontier: Frontier, now: float) -> list[Lease]:
    """Return all that may be leased at *now*; ask again as long as the frontier asks for it."""
    leases: list[Lease] = []
    while True:
        got = frontier.lease(now, 4)
        leases += got
        wake_at = frontier.wake_at()
        if not got and (wake_at is None or wake_at > now):
            return leases


class Refusing:
    """Lease rules that refuse the URLs for which *refuses* is true, and record what was refused."""

    are_complete = True
    later_visits = LaterVisits.AS_DUE
    visits_per_day: float | None = None

    def __init__(self, refuses: Callable[[str], bool]) -> None:
        self.refuses = refuses
        self.refused: list[tuple[str, str]] = []  # URL, rule

    def refusal(self, found: Candidate) -> Refusal | None:
        return Refusal(Reason.DENIED, "by the test") if self.refuses(found.url) else None

    def on_refused(self, urls: Sequence[tuple[Candidate, Refusal]]) -> None:
        self.refused += ((found.url, str(refusal.reason)) for found, refusal in urls)

    def on_readmitted(self, urls: int) -> None:
        """Nothing to keep."""


ADMIT_ALL = Refusing(lambda url: False)


@dataclass
class WebServer:
    """A polite web server: when each host was last visited, and until when it must rest."""

    quiet_until: dict[str, float] = field(default_factory=dict)
    busy: Counter[str] = field(default_factory=Counter)  # visitors by host

    def visited(self, host: str, now: float, visitors: int = 1) -> None:
        assert not self.busy[host], f"visitors of two calls at once on {host}"
        assert now >= self.quiet_until.get(host, 0.0), f"{host} contacted too early"
        self.busy[host] = visitors

    def left(self, host: str, until: float) -> None:
        self.busy[host] -= self.busy[host] > 0
        self.note_rest(host, until)

    def note_rest(self, host: str, until: float) -> None:
        self.quiet_until[host] = max(self.quiet_until.get(host, 0.0), until)


ALL_RECORDS: Final = 1_000_000


def check_invariants(frontier: TwoTierFrontier, store: OrderedStore, runs: RunFolder) -> None:
    """Check that the containers of the two-tier frontier agree. It reads everything."""
    reader = FrontierReader(store, runs, frontier._batch.shards)
    hosts = dict(reader.hosts())
    queued = [each for host in hosts for each in reader.waiting(host)]
    counts = frontier.counts()
    assert len(queued) == counts.waiting == sum(record.waiting() for record in hosts.values())
    by_level = Counter(each.level for each in queued)
    assert counts.levels == tuple(by_level[level] for level in range(len(counts.levels)))
    later = _records(store, keys.LATER)
    assert len(later) == counts.later
    again = [key for key, packed in later if decode_candidate(packed).history is not None]
    assert len(again) == counts.again
    dates = keys.timed(keys.LATER, 0.0, b"", keys.VISIT_DATES)
    by_worth = sum(keys.visit_class(0) <= key < dates for key in again)
    assert by_worth == frontier._batch.totals.by_worth
    assert len(_records(store, keys.OPEN)) == counts.leased
    assert len(_records(store, keys.REFUSED)) == counts.refused
    for key, _ in _records(store, keys.QUEUED):
        host, last = HostKey(key[3:-10].decode()), keys.number_of(key)
        assert last >= hosts[host].queue_ends[key[-9]].head, "a chunk has no URL that waits"
    _check_places(hosts, frontier, store)
    _check_spilled(frontier, reader, store)
    for active in frontier._scheduler.active:
        first = active.record.queue_ends[active.level].head
        on_disk = frontier._queues.read(active.host, active.level, first, first + len(active.head))
        assert list(active.head) == on_disk, "the head in memory is the head on disk"


def _check_spilled(frontier: TwoTierFrontier, reader: FrontierReader, store: OrderedStore) -> None:
    counts, records = frontier.counts(), dict(reader.domains())
    spilled = {name: record for name, record in records.items() if len(record)}
    assert counts.spilled == sum(map(len, records.values()))
    assert counts.spilled_domains == len(spilled)
    capped = (len(record) for record in spilled.values() if record.filed == CAPPED)
    assert counts.capped == sum(capped)
    filed = [(key[1], key[11:].decode()) for key, _ in _records(store, keys.FILED)]
    expected = sorted((record.filed, name) for name, record in spilled.items())
    assert sorted(filed) == expected, "a domain with spilled URLs is filed once, no other one is"
    for name, record in spilled.items():
        assert len(reader.spilled(name)) <= len(record), "a forgotten URL keeps its place"


def _check_places(
    hosts: dict[HostKey, HostRecord], frontier: TwoTierFrontier, store: OrderedStore
) -> None:
    entries = {
        (standing, decode_entry(packed))
        for standing in Standing
        for _, packed in _records(store, keys.FRONTS[standing])
    }
    resting = {key[9:].decode() for key, _ in _records(store, keys.RESTING)}
    markers = {keys.name_of(key) for key, _ in _records(store, keys.ACTIVE)}
    held = {keys.name_of(key) for key, _ in _records(store, keys.HELD)}
    active = {one.host for one in frontier._scheduler.active}
    assert markers == active, "the marker on disk says who is in memory"
    for host, record in hosts.items():
        filed = (record.pace.standing, FrontEntry(host, record.generation)) in entries
        assert (record.place is HostPlace.FRONT) <= filed, f"{host} waits in no queue"
        assert (record.place is HostPlace.RESTING) == (host in resting)
        assert (record.place is HostPlace.ACTIVE) == (host in active)
        assert (record.place is HostPlace.HELD) == (host in held)
        if record.place is HostPlace.EMPTY:
            assert record.best_level() is None, f"{host} has URLs and no turn"
        if record.place is HostPlace.FRONT:
            assert record.level == record.best_level(), f"{host} is filed below its best"


def _records(store: OrderedStore, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return store.scan(prefix, keys.prefix_end(prefix), ALL_RECORDS)

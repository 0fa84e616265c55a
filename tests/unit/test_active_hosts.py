"""The active set grows while slots are free and hosts rest, and shrinks; no call costs more where
one host has all URLs, or each host has one."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.slots import Crawl, Mercator, Ours
from crawler.frontier.memory_store import MemoryStore
from crawler.model.types import Done, Rest
from tests.harness.frontiers import candidate

SLOTS = 8
GAP_SLOTS = 11  # hosts that one slot needs: one is fetched from while ten times as long others rest
URLS = 6_000
LEASES = 320
MOST_READS = 5  # for a lease: records of a host, its URL and its entry of the front queue


class CountedStore(MemoryStore):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def scan(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found = super().scan(start, stop, limit)
        self.reads += 1 + len(found)
        return found


@pytest.fixture
def store() -> CountedStore:
    return CountedStore()


@pytest.fixture
def ours(store: CountedStore, tmp_path: Path) -> Ours:
    return Ours(tmp_path, store)


def crawl(exponent: float, hosts: int, frontier: Ours | Mercator) -> Crawl:
    crawl = Crawl(slots=SLOTS, hosts=hosts, exponent=exponent, sigma=0.5)
    crawl.find(frontier, URLS)
    return crawl


def test_no_slot_is_free_while_a_host_is_due(ours: Ours) -> None:
    by_zipf = crawl(1.2, 2_000, ours)
    by_zipf.run(ours, 60.0, SLOTS)
    assert by_zipf.possible_s > 0.9 * 60.0 * SLOTS, "enough hosts are due nearly always"
    assert by_zipf.busy > 0.999
    assert by_zipf.calls < 2 * by_zipf.fetches
    mercator = Mercator(SLOTS)
    textbook = crawl(1.2, 2_000, mercator)
    textbook.run(mercator, 60.0, SLOTS)
    assert textbook.busy < 0.9, "three back queues a slot are too few for this gap"


def test_the_active_hosts_are_as_many_as_the_slots_need(ours: Ours) -> None:
    even = crawl(0.0, 200, ours)
    even.run(ours, 30.0, SLOTS)
    at_rest = ours.hosts_in_memory()
    assert even.busy > 0.999
    assert 0.75 * GAP_SLOTS * SLOTS < at_rest <= even.peak < 2 * GAP_SLOTS * SLOTS
    even.run(ours, 200.0, 1)
    assert ours.hosts_in_memory() < at_rest / 2


@pytest.mark.parametrize("hosts", [1, URLS])
def test_a_lease_reads_as_much_however_many_urls_and_hosts_wait(
    ours: Ours, store: CountedStore, hosts: int
) -> None:
    found = [candidate(str(n), host=f"h{n % hosts}") for n in range(URLS)]
    reads = []
    for urls in (URLS // 10, URLS):
        ours.add(found[:urls], 0.0)
        ours.end_turn(0.0)
        ours.frontier.mark_seen([], 0.0)
        before = store.reads
        for turn in range(LEASES):
            now = float(urls + turn)
            (lease,) = ours.frontier.lease(now)
            ours.frontier.release(lease, Rest(0.5, lease.pace), now)
            ours.frontier.finish(lease, Done(), now)
            ours.end_turn(now)
            assert ours.hosts_in_memory() <= 1
        reads.append(store.reads - before)
    few, many = reads
    assert many < 1.2 * few
    assert many < MOST_READS * LEASES


def test_a_look_ahead_reads_what_is_new_in_the_front_and_nothing_twice(
    ours: Ours, store: CountedStore
) -> None:
    hosts, ahead = 2_000, 512
    ours.add([candidate(str(n), host=f"h{n}") for n in range(hosts)], 0.0)
    ours.end_turn(0.0)
    reads = []
    for leased in (0, 0, 10, 0, 100):
        for lease in ours.frontier.lease(0.0, leased):
            ours.frontier.release(lease, Rest(50.0, lease.pace), 0.0)
        ours.end_turn(0.0)
        before = store.reads
        shown = ours.frontier.upcoming_hosts(2.0, hosts)
        reads.append((len(shown), store.reads - before))
    assert reads == [(ahead, ahead + 1), (0, 0), (10, 11), (0, 0), (100, 101)]

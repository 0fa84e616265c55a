"""Of the embedded frontier on the event loop: one write a turn, work in a thread, a clean end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crawler.data.disk_room import DiskRoom, WaitWarnings
from crawler.data.frontier_work import FrontierWork
from crawler.frontier.gate import Gate
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import FrontierTurns, open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.run_files import OpenFd, RunFolder
from crawler.frontier.seen import RecentKeys
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import (
    Added,
    CrawlerError,
    Done,
    Outcome,
    Standing,
    StoreFull,
    StoreUnavailable,
)
from tests.harness.frontiers import candidate, rest

RULES = FrontierLimits(max_arrived=4, max_new_keys=3, chunk_urls=2, max_undecided=50)


class Counting(MemoryStore):
    """A store that counts its writes, and fails when it is broken or full."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_broken = self.is_full = False

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if self.is_broken:
            raise StoreUnavailable("the disk is gone")
        if self.is_full:
            raise StoreFull("no room")
        self.writes += 1
        super().write(changes)


class SmallFolder(RunFolder):
    """The folder of the runs, and of the same disk."""

    is_full = False
    refused = 0

    def write(self, file: OpenFd, data: memoryview, offset: int) -> None:
        if self.is_full:
            self.refused += 1
            raise StoreFull("no room")
        super().write(file, data, offset)


class Crawl:
    """A frontier with its background work, as a crawl has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.runs = Counting(), SmallFolder(folder / "seen")
        self.failures: list[CrawlerError] = []
        self.decided: list[Added] = []
        self.outcomes: list[Outcome] = []
        self.woken = asyncio.Event()
        self.open()

    def open(self) -> None:
        self.room = DiskRoom(WaitWarnings(), "the disk", lambda: bool(self.failures))
        self.work = FrontierWork(
            self.outcomes.extend, self.room, self.failures.append, self.woken.set
        )
        self.frontier = open_frontier(
            *(self.folder, RULES, 0.0),
            on_decided=self.decided.append,
            background=self.work,
            store=self.store,
            runs=self.runs,
        )
        self.work.begin(self.frontier, lambda: 1.0)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_the_calls_of_a_turn_are_one_write(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate("1"), candidate("1", host="b")], 1.0)
        (lease,) = crawl.frontier.lease(1.0)
        crawl.frontier.release(lease, rest(0.0), 1.0)
        crawl.frontier.finish(lease, Done(), 1.0)
        before = crawl.store.writes
        await asyncio.sleep(0)
        assert (before, crawl.store.writes) == (0, 1)
        await crawl.work.close()
        assert crawl.store.writes == 1, "nothing was left to write"

    asyncio.run(scenario())


def test_a_lease_is_written_before_its_fetch_begins(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate("1")], 1.0)
        (lease,) = crawl.frontier.lease(1.0)
        assert crawl.frontier.may_begin(lease) and crawl.store.writes == 1
        reopened = open_frontier(folder, RULES, 1.0, store=crawl.store)
        assert reopened.put_back_at_open == 1
        await crawl.work.close()

    asyncio.run(scenario())


def test_an_outcome_is_logged_when_its_verdict_is_written(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate("1"), candidate("2")], 1.0)
        for is_broken in (False, True):
            (lease,) = crawl.frontier.lease(1.0)
            crawl.frontier.release(lease, rest(0.0), 1.0)
            crawl.frontier.finish(lease, Done(), 1.0)
            crawl.store.is_broken = is_broken
            crawl.work.append(Outcome(1.0, lease.candidate.url, "a", "done"))
            before = len(crawl.outcomes)
            await asyncio.sleep(0)
            assert (before, len(crawl.outcomes)) == ((1, 1) if is_broken else (0, 1))
        await crawl.work.close()
        assert [each.url for each in crawl.outcomes] == ["http://a/1"]

    asyncio.run(scenario())


@pytest.mark.parametrize("of", ["the records", "the runs"])
def test_what_finds_no_room_is_written_when_there_is_some(folder: Path, of: str) -> None:
    """Links are added, a lease is finished and a run is due while the disk is full."""

    async def scenario() -> None:
        crawl = Crawl(folder)
        full = crawl.store if of == "the records" else crawl.runs
        crawl.frontier.add([candidate("first")], 1.0)
        (lease,) = crawl.frontier.lease(1.0)
        await asyncio.sleep(0)
        full.is_full = True
        links = [candidate(str(number), host=f"h{number}") for number in range(8)]
        crawl.frontier.add(links, 1.0)
        crawl.frontier.finish(lease, Done(), 1.0)
        crawl.work.append(Outcome(1.0, lease.candidate.url, "a", "done"))
        await crawl.until(lambda: crawl.room.is_full)
        assert not crawl.frontier.may_begin(lease)
        crawl.woken.clear()
        full.is_full = False
        await crawl.until(lambda: len(crawl.outcomes) == 1 and not crawl.room.is_full)
        await crawl.woken.wait()
        await crawl.until(lambda: crawl.frontier.next_work(1.0) is None)
        assert {each.candidate.url for each in crawl.frontier.lease(1.0, 20)} == {
            each.url for each in links
        }
        await crawl.work.close()
        assert not crawl.failures
        reopened = open_frontier(folder, RULES, 1.0, store=crawl.store)
        assert reopened.put_back_at_open == 8 and reopened.counts().done == 1

    asyncio.run(scenario())


def test_the_end_of_a_crawl_does_not_wait_for_room(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.store.is_full = crawl.runs.is_full = True
        crawl.frontier.add([candidate(str(number)) for number in range(8)], 1.0)
        await crawl.until(lambda: crawl.room.is_full)
        crawl.room.stop_waiting()
        await crawl.work.close()
        assert isinstance(crawl.failures[0], StoreFull)

    asyncio.run(scenario())


def test_a_fetch_whose_lease_cannot_be_written_does_not_begin(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate("1")], 1.0)
        (lease,) = crawl.frontier.lease(1.0)
        crawl.store.is_broken = True
        assert not crawl.frontier.may_begin(lease)
        await asyncio.sleep(0)
        assert [str(error) for error in crawl.failures] == ["the disk is gone"]
        await crawl.work.close()

    asyncio.run(scenario())


def test_added_urls_are_admitted_together(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        first = crawl.frontier.add([candidate("1"), candidate("2"), candidate("2")], 1.0)
        again = crawl.frontier.add([candidate("2"), candidate("3")], 1.0)
        assert (first, again) == (Added(seen=1, undecided=2), Added(seen=1, undecided=1))
        assert crawl.frontier.counts().undecided == 3 and not crawl.frontier.is_over()
        assert crawl.decided == [] and crawl.frontier.wake_at() == 0.0
        (lease,) = crawl.frontier.lease(1.0)  # nothing else is due
        assert lease.candidate == candidate("1") and crawl.decided == [Added(new=3)]
        crawl.frontier.add([candidate("4")], 1.0)
        assert crawl.frontier.lease(3.9, 0) == [] and crawl.frontier.counts().undecided == 1
        assert crawl.frontier.lease(4.0, 0) == [] and crawl.decided[1:] == [Added(new=1)]
        crawl.frontier.add([candidate(str(number)) for number in range(4, 9)], 4.0)
        assert crawl.decided[2:] == [Added(new=4)], "so many are not kept waiting"
        await crawl.work.close()

    asyncio.run(scenario())


def test_runs_are_written_beside_the_calls_and_the_crawl_is_woken(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate(str(n)) for n in range(7)], 1.0)
        assert crawl.decided == [Added(new=7)]
        assert crawl.frontier.is_congested() and crawl.frontier.lease(1.0) == []
        assert crawl.frontier.wake_at() is None, "it calls back"
        await crawl.woken.wait()
        assert not crawl.frontier.is_congested() and any(folder.joinpath("seen").iterdir())
        await crawl.work.close()
        assert len(crawl.store.scan(b"b", b"c", 100)) == 4, "seven URLs in chunks of two"

    asyncio.run(scenario())


def test_what_the_gate_does_not_know_for_new_is_searched_when_nothing_else_is_due(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gate, "may_contain", lambda _, keys: np.ones(len(keys), np.bool_))

    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate(str(n)) for n in range(4)], 1.0)
        await crawl.until(lambda: any(folder.joinpath("seen").iterdir()))
        known, new = candidate("1"), candidate("new", host="b")
        await crawl.work.close()
        crawl.open()
        added = crawl.frontier.add([known, new, new], 1.0)
        assert (added.new, added.undecided, added.seen) == (0, 2, 1)
        assert crawl.frontier.counts().undecided == 2 and not crawl.frontier.is_over()
        for host in ("a", "b"):  # the second lease finds nothing due, and asks for the search
            crawl.woken.clear()
            while not (leases := crawl.frontier.lease(1.0)):
                await crawl.woken.wait()
                crawl.woken.clear()
            assert leases[0].candidate.host == host
        assert crawl.decided == [Added(new=4), Added(), Added(new=1, seen=1)]
        assert crawl.frontier.counts().undecided == 0
        await crawl.work.close()

    asyncio.run(scenario())


def test_a_bug_beside_the_calls_stops_the_crawl_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: TwoTierFrontier, now: float) -> None:
        raise KeyError(now)

    async def scenario() -> None:
        crawl = Crawl(folder)
        monkeypatch.setattr(TwoTierFrontier, "next_work", broken)
        crawl.work.work_soon()
        await crawl.until(lambda: bool(crawl.failures))
        assert str(crawl.failures[0]) == "the work of the frontier failed: KeyError(1.0)"
        await crawl.work.close()

    asyncio.run(scenario())


def test_a_store_that_fails_beside_the_calls_stops_the_crawl(folder: Path) -> None:
    async def scenario() -> None:
        crawl = Crawl(folder)
        crawl.frontier.add([candidate(str(n)) for n in range(4)], 1.0)
        crawl.frontier.commit()
        crawl.store.is_broken = True
        await crawl.until(lambda: bool(crawl.failures))
        with pytest.raises(StoreUnavailable):
            crawl.frontier.commit()
        await crawl.work.close()

    asyncio.run(scenario())


def test_an_undecided_url_is_admitted_once_though_the_gate_knows_it_for_new_by_then(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontier = open_frontier(folder, RULES, 0.0, background=FrontierTurns(), store=MemoryStore())

    def do_work(meanwhile: Callable[[], object]) -> None:
        work = frontier.next_work(1.0)
        assert work is not None
        work.run()
        meanwhile()
        for _ in work.apply(1.0):
            frontier.commit()

    frontier.add([candidate(str(number)) for number in range(4)], 1.0)
    frontier.commit()
    do_work(lambda: None)  # a run has the four
    found = candidate("new", host="b")
    with monkeypatch.context() as patch:
        patch.setattr(Gate, "may_contain", lambda _, keys: np.ones(len(keys), np.bool_))
        frontier.add([found], 1.0)
        assert len(frontier.lease(1.0, 2)) == 1 and not frontier.lease(1.0)
    frontier.add([found], 1.0)
    do_work(lambda: frontier.admit_arrived(1.0))
    assert frontier.counts().waiting == 4 and frontier.counts().undecided == 0


def test_a_recent_key_is_known_until_another_takes_its_place() -> None:
    recent = RecentKeys(64)
    every_place = np.arange(64, dtype=np.uint64)
    for other in (0, 1, 64, 1 << 40):
        assert not recent.contain(every_place ^ np.uint64(other)).any(), "nothing was added"
    recent.add(np.array([0, 7, 9], np.uint64))
    assert recent.contain(np.array([0, 7, 8, 9], np.uint64)).tolist() == [True, True, False, True]
    recent.add(np.array([7 + 64], np.uint64))
    assert recent.contain(np.array([7, 7 + 64], np.uint64)).tolist() == [False, True]


def test_slots_of_new_hosts_alone_admit_no_url_before_its_time(folder: Path) -> None:
    frontier = open_frontier(
        *(folder, FrontierLimits(max_arrived_s=3.0), 0.0),
        background=FrontierTurns(),
        store=MemoryStore(),
    )
    frontier.add([candidate("1", host="a")], 10.0)
    new = (Standing.NEW, Standing.FAILS)
    assert frontier.lease(11.0, 1, new) == []
    assert frontier.wake_at(new) == 13.0
    assert len(frontier.lease(13.0, 1, new)) == 1
    frontier.add([candidate("2", host="b")], 14.0)
    assert frontier.wake_at() == 0.0
    assert len(frontier.lease(14.0)) == 1, "else nothing would be leased"

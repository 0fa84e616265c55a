"""A data directory of format 1 is crawled on: what it has seen, what waits and what its budgets
count."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from crawler.frontier import conversion, records
from crawler.frontier.conversion import convert_seen
from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierRules
from crawler.frontier.reader import FrontierReader
from crawler.frontier.records import MIDDLE, HostPlace, encode
from crawler.frontier.run_files import RunFolder
from crawler.model.types import Done, Pace, Standing, StoreUnavailable
from tests.harness.frontiers import candidate, drain

RULES = FrontierRules(max_urls_per_domain=6)
WAITING = [candidate(str(number)) for number in range(3)]
DONE = [candidate(f"done-{number}") for number in range(2)]


def store_of_format_1() -> MemoryStore:
    """Return what an earlier version wrote: host `a` with three waiting URLs and two done."""
    store = MemoryStore()
    pace = Pace(gap_s=1.0, standing=Standing.ANSWERS)
    ends = [[MIDDLE + 2, MIDDLE + 5], [MIDDLE, MIDDLE], [MIDDLE, MIDDLE]]
    host = [ends, HostPlace.FRONT, 0, 7, 10.0, pace, 5]
    empty = [[MIDDLE, MIDDLE]] * 3
    front = [[MIDDLE, MIDDLE + 1], *empty[1:]]
    totals = [empty, 1, 3, 0, 5, 2, 0, 9, 0, 20.0, 0, front, empty]
    changes: dict[bytes, bytes | None] = {
        b"ha": msgspec.msgpack.encode(host),
        b"m": msgspec.msgpack.encode(totals),
        records.front(Standing.ANSWERS, 0, MIDDLE): msgspec.msgpack.encode(["a", 7]),
        b"ca": (5).to_bytes(8),
    }
    for number, url in enumerate(WAITING, MIDDLE + 2):
        changes[records.numbered(b"ba\0\0", number)] = encode(url)
    for url in (*WAITING, *DONE):
        changes[records.numbered(b"s", url.key)] = b""
    store.write(changes)
    return store


def test_the_crawl_goes_on_where_it_was(tmp_path: Path) -> None:
    store, runs = store_of_format_1(), RunFolder(tmp_path)
    assert list(convert_seen(store, runs)) == [5]
    assert store.scan(b"s", b"t", 10) == []
    frontier = open_frontier(runs.path, RULES, 20.0, store=store, runs=runs)
    assert frontier.add([*WAITING, *DONE], 20.0).new == 0
    added = frontier.add([candidate("new"), candidate("too-many")], 20.0)
    assert (added.new, added.over_budget) == (1, 1), "the domain had five, and may have six"
    leased = []
    for now in (30.0, 40.0, 50.0, 60.0):
        for lease in drain(frontier, now):
            leased.append(lease.candidate.url)
            frontier.finish(lease, Done(), now)
    assert leased == [each.url for each in (*WAITING, candidate("new"))]
    counts = frontier.counts()
    assert (counts.seen, counts.done, counts.waiting) == (6, 6, 0)
    reader = FrontierReader(store, runs)
    assert reader.count_seen() == 6 and all(reader.is_seen(each.key) for each in (*WAITING, *DONE))


class Failing(MemoryStore):
    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left = writes

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if not self.left:
            raise StoreUnavailable("the disk is full")
        self.left -= 1
        super().write(changes)


@pytest.mark.parametrize("writes", range(1, 6))
def test_a_conversion_that_is_cut_off_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    monkeypatch.setattr(conversion, "_STEP", 2)
    store = Failing(writes)
    store.write(dict(store_of_format_1().scan(b"", b"\xff", 100)))
    runs = RunFolder(tmp_path)
    try:
        list(convert_seen(store, runs))
    except StoreUnavailable:
        store.left = 100
        list(convert_seen(store, RunFolder(tmp_path)))
    reader = FrontierReader(store, runs)
    assert reader.count_seen() == 5 and all(reader.is_seen(each.key) for each in (*WAITING, *DONE))

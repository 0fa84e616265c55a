"""A frontier on disk is read as it is, also with keys in no run yet, and its damage is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.open import open_frontier
from crawler.frontier.port import FrontierLimits
from crawler.frontier.reader import FrontierReader, correct_counters, count_again
from crawler.frontier.run_files import RunFolder
from crawler.frontier.two_tier import TwoTierFrontier
from crawler.model.types import DataDirError, Done
from tests.harness.frontiers import candidate, rest

RULES = FrontierLimits(max_new_keys=4, chunk_urls=2, max_urls_per_domain=6)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def runs(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def frontier(store: MemoryStore, runs: RunFolder) -> TwoTierFrontier:
    """Five URLs of host `a` and one of `b` wait, one is done; not all of their keys are in runs."""
    opened = open_frontier(runs.path, RULES, 0.0, store=store, runs=runs)
    opened.add([candidate(str(number)) for number in range(5)], 0.0)
    opened.add([candidate("new"), candidate("only", host="b")], 0.0)
    opened.add([candidate("over")], 0.0, at_once=True)
    (lease,) = opened.lease(0.0)
    opened.release(lease, rest(0.0), 0.0)
    opened.finish(lease, Done(), 0.0)
    return opened


def test_what_waits_is_read_in_the_order_of_its_turns(
    frontier: TwoTierFrontier, store: MemoryStore, runs: RunFolder
) -> None:
    reader = FrontierReader(store, runs)
    waiting = {host: [each.url for each in reader.waiting(host)] for host, _ in reader.hosts()}
    assert waiting == {
        "a": ["http://a/1", "http://a/2", "http://a/3", "http://a/4", "http://a/new"],
        "b": ["http://b/only"],
    }
    record = reader.host(candidate("").host)
    assert record is not None and (record.waiting(), record.admitted) == (5, 6)
    assert reader.domain("a").admitted == 6
    assert [each.url for each in reader.spilled("a")] == ["http://a/over"]
    assert reader.host(candidate("", host="c").host) is None


def test_what_is_seen_is_in_runs_and_in_records_of_keys(
    frontier: TwoTierFrontier, store: MemoryStore, runs: RunFolder
) -> None:
    reader = FrontierReader(store, runs)
    assert reader.count_seen() == 7
    assert all(reader.is_seen(candidate(name).key) for name in ("0", "4", "new"))
    assert not reader.is_seen(candidate("never").key)


def test_all_is_counted_again_and_corrected(
    frontier: TwoTierFrontier, store: MemoryStore, runs: RunFolder
) -> None:
    counted = count_again(store, runs)
    assert [each.name for each in counted if each.differs] == []
    assert {each.name: each.counted for each in counted if each.counted} == {
        "waiting": 6,
        "seen": 7,
        "spilled": 1,
        "capped": 1,
        "spilled_domains": 1,
    }
    frontier._batch.totals.waiting += 3
    frontier._batch.totals.spilled += 2
    frontier.add([candidate("one-more", host="b")], 0.0)
    wrong = count_again(store, runs)
    assert [(each.name, each.stored, each.counted) for each in wrong if each.differs] == [
        ("waiting", 10, 7),
        ("spilled", 3, 1),
    ]
    correct_counters(store, wrong)
    assert not any(each.differs for each in count_again(store, runs))


@pytest.mark.parametrize("damage", ["a byte", "shorter", "gone"])
def test_a_damaged_run_is_named(
    frontier: TwoTierFrontier, store: MemoryStore, runs: RunFolder, damage: str
) -> None:
    (file,) = runs.path.iterdir()
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(content if damage == "a byte" else content[:-8])
    with pytest.raises(DataDirError, match=str(file)):
        count_again(store, runs)

"""The outbox: links that are put stay in their order until they are dropped, also after crashes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crawler.frontier.memory_store import MemoryStore
from crawler.frontier.port import OrderedStore
from crawler.frontier.rocks_store import RocksStore
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
    StoreUnavailable,
)
from crawler.shared.worker.outbox import (
    Outbox,
    OutboxBatch,
    QueueKey,
)
from tests.harness.budget import examples

Reopen = Callable[[], Outbox]


def link(number: int, shard: int = 0, level: int = 0, **given: object) -> Candidate:
    """Of a domain that is named for its shard."""
    url = f"http://h.{shard}/{number}"
    return Candidate(url, number, HostKey(f"h.{shard}"), str(shard), level=level, **given)  # type: ignore[arg-type]  # field types are checked by msgspec's users, not here


@pytest.fixture(params=["memory", "rocks"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens an outbox over the same store again and again, as a restart does."""
    store = MemoryStore() if request.param == "memory" else RocksStore(tmp_path / "outbox")
    yield lambda: Outbox(store, int)
    if isinstance(store, RocksStore):
        store.close()


def drained(outbox: Outbox, limit: int = 2) -> list[Candidate]:
    """All of it, in the order it is sent."""
    sent: list[Candidate] = []
    while batch := outbox.head(limit):
        assert batch.links
        sent += batch.links
        outbox.drop(batch)
    return sent


def numbers(batch: OutboxBatch | None) -> list[int]:
    return [one.key for one in batch.links] if batch else []


def test_high_levels_go_first_and_in_the_order_they_came(reopen):
    outbox = reopen()
    outbox.put([link(1, level=2), link(2), link(3, level=2), link(4)])
    outbox.put([link(5), link(6, level=1), link(7, level=-1)])
    assert outbox.level_counts() == {-1: 1, 0: 3, 1: 1, 2: 2}, "what is urgent is below 0"
    assert [one.key for one in drained(reopen())] == [7, 2, 4, 5, 6, 1, 3]
    assert len(reopen()) == 0 and reopen().level_counts() == {}


def test_a_restart_changes_neither_order_nor_counts(reopen):
    outbox = reopen()
    outbox.put([link(n, level=n % 2) for n in range(1, 8)])
    outbox.drop(outbox.head(2))
    again = reopen()
    assert len(again) == len(outbox) == 5
    assert again.level_counts() == {0: 1, 1: 4}
    assert [one.key for one in drained(again)] == [6, 1, 3, 5, 7]
    assert len(reopen()) == 0


def test_links_come_back_as_they_were(reopen):
    robots = link(2, purpose=Purpose.ROBOTS, authority="http://h.0:80", needs_seen_test=False)
    later = link((1 << 64) - 1, not_before=1.7e9 + 0.25, depth=3, chain=(7, 8), request=b"\x80")
    reopen().put([later, robots])
    assert drained(reopen()) == [later, robots]


def test_the_head_stays_until_it_is_dropped(reopen):
    outbox = reopen()
    outbox.put([link(n) for n in range(5)])
    batch = outbox.head(3)
    assert outbox.head(3) == batch
    outbox.put([link(9)])
    outbox.drop(batch)
    assert numbers(outbox.head(10)) == [3, 4, 9]


def test_a_second_drop_changes_nothing(reopen):
    outbox = reopen()
    outbox.put([link(1), link(2)])
    batch = outbox.head(2)
    outbox.drop(batch)
    outbox.drop(batch)
    outbox.put([link(3)])
    outbox.drop(batch)
    assert len(outbox) == 1 and numbers(outbox.head(9)) == [3]


def test_a_batch_is_of_one_shard_and_shards_alternate(reopen):
    outbox = reopen()
    outbox.put([link(n, shard=n % 3) for n in range(9)])
    batches = [outbox.head(2) for _ in range(4)]
    assert [numbers(batch) for batch in batches] == [[0, 3], [1, 4], [2, 5], [0, 3]]
    assert [batch.queue for batch in batches[:3]] == [QueueKey(0, shard) for shard in range(3)]


def test_a_shard_at_rest_holds_up_no_other(reopen):
    outbox = reopen()
    outbox.put([link(1, shard=1), link(2, shard=2, level=1), link(3, shard=1, level=1)])
    assert numbers(outbox.head(9, skip={1})) == [2]
    assert outbox.head(9, skip={1, 2}) is None
    assert numbers(outbox.head(9)) == [1]


def test_a_link_that_waits_is_not_put_again(reopen):
    outbox = reopen()
    outbox.put([link(1), link(2)])
    outbox.put([link(2), link(3)])
    assert len(outbox) == 3
    assert [one.key for one in drained(outbox)] == [1, 2, 3]
    outbox.put([link(2)])
    assert len(outbox) == 1, "what has left may come again: who took it may have forgotten it"


def test_a_link_that_is_forgotten_may_come_again(reopen):
    outbox = reopen()
    outbox.put([link(n, shard=n % 2) for n in range(1200)])
    batch = outbox.head(5)
    forgotten = sum(outbox.forget(lambda link: not link.key % 4))
    assert (forgotten, len(outbox), len(reopen())) == (300, 900, 900)
    outbox.drop(batch)
    outbox.put([link(4), link(5)])
    assert sorted(one.key for one in drained(outbox)) == [n for n in range(1200) if n % 4 or n == 4]


def test_links_without_a_seen_test_are_put_although_equal_ones_wait(reopen):
    outbox = reopen()
    again = link(1, needs_seen_test=False)
    for one in (again, link(1), again):
        outbox.put([one])
    assert drained(outbox) == [again, link(1), again]


class FullDisk(MemoryStore):
    full = False
    writes = 0

    def write(self, changes):
        if self.full:
            raise StoreUnavailable("no space left on device")
        self.writes += 1
        super().write(changes)


def test_a_full_disk_raises_changes_nothing_and_passes():
    store = FullDisk()
    outbox = Outbox(store, int)
    outbox.put([link(1), link(2)])
    batch = outbox.head(1)
    store.full = True
    with pytest.raises(StoreUnavailable):
        outbox.put([link(3)])
    with pytest.raises(StoreUnavailable):
        outbox.drop(batch)
    assert len(outbox) == 2 and numbers(outbox.head(9)) == [1, 2]
    store.full = False
    outbox.put([link(3)])
    outbox.drop(batch)
    assert [one.key for one in drained(Outbox(store, int))] == [2, 3]


def test_each_call_is_one_write():
    store = FullDisk()
    outbox = Outbox(store, int)
    outbox.put([link(n, shard=n % 5, level=n % 3) for n in range(40)])
    outbox.drop(outbox.head(9))
    outbox.put([])
    assert store.writes == 2


class OutboxLives(RuleBasedStateMachine):
    """Against lists in memory. Shards 0-2, levels -1-1, batches of 1-4."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.opened()
        self.outbox = Outbox(self.store, int)
        self.model: dict[QueueKey, list[Candidate]] = {}
        self.gone: Counter[QueueKey] = Counter()  # links that have left the queue
        self.taken: list[tuple[OutboxBatch, int]] = []  # with how many had gone before it
        self.born = 0

    def opened(self) -> OrderedStore:
        return MemoryStore()

    @rule(places=st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 2)), max_size=5))
    def put(self, places):
        found = []
        for level, shard in places:
            self.born += 1
            found.append(link(self.born, shard, level))
            self.model.setdefault(QueueKey(level, shard), []).append(found[-1])
        self.outbox.put(found)

    @rule(limit=st.integers(1, 4), resting=st.frozensets(st.integers(0, 2), max_size=2))
    def head(self, limit, resting):
        batch = self.outbox.head(limit, resting)
        due = [queue for queue, links in self.model.items() if links and queue.shard not in resting]
        if batch is None:
            assert not due
            return
        assert batch.queue in due
        assert batch.queue.level == min(queue.level for queue in due)
        assert batch.links == self.model[batch.queue][:limit]
        self.taken.append((batch, self.gone[batch.queue]))

    @rule(which=st.integers(0))
    def drop(self, which):
        """Of any batch ever taken: late ones, and those dropped before, too."""
        if self.taken:
            batch, gone_before = self.taken[which % len(self.taken)]
            if self.gone[batch.queue] == gone_before:
                del self.model[batch.queue][: len(batch.links)]
                self.gone[batch.queue] += len(batch.links)
            self.outbox.drop(batch)

    @rule(third=st.integers(0, 2))
    def forget(self, third):
        """What was taken of a queue that is passed may be dropped without effect."""
        for _ in self.outbox.forget(lambda link: link.key % 3 == third):
            pass
        for queue, links in self.model.items():
            stay = [link for link in links if link.key % 3 != third]
            if len(stay) < len(links):
                self.model[queue] = stay
                self.gone[queue] += len(links)

    @rule(which=st.integers(0))
    def put_again(self, which):
        """Only what was put since the start is remembered."""
        waiting = [one for links in self.model.values() for one in links]
        if waiting:
            before = len(self.outbox)
            again = waiting[which % len(waiting)]
            self.outbox.put([again])
            if len(self.outbox) > before:
                self.model[QueueKey(again.level, int(again.domain))].append(again)

    @rule()
    def reopen(self):
        self.outbox = Outbox(self.store, int)

    @invariant()
    def it_counts_what_it_holds(self):
        assert len(self.outbox) == sum(map(len, self.model.values()))
        for level in (-1, 0, 1):
            waiting = sum(len(links) for queue, links in self.model.items() if queue.level == level)
            assert self.outbox.level_counts().get(level, 0) == waiting

    def teardown(self) -> None:
        left: dict[QueueKey, list[Candidate]] = {}
        while batch := self.outbox.head(3):
            assert batch.links
            left.setdefault(batch.queue, []).extend(batch.links)
            self.outbox.drop(batch)
        assert left == {queue: links for queue, links in self.model.items() if links}


class RocksLives(OutboxLives):
    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        super().__init__()

    def opened(self) -> RocksStore:
        return RocksStore(Path(self.folder.name) / "outbox")

    @rule()
    def reopen(self):
        self.store.close()
        self.store = self.opened()
        super().reopen()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.store.close()
            self.folder.cleanup()


TestMemory = OutboxLives.TestCase
TestMemory.settings = settings(
    max_examples=examples(200),
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)
TestRocks = RocksLives.TestCase
TestRocks.settings = settings(
    max_examples=examples(12), stateful_step_count=40, suppress_health_check=list(HealthCheck)
)

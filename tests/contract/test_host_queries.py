"""The hosts that `scrapy frontier hosts` lists of random frontiers on disk: the ones that a count
of all queues finds, in every order and page."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from itertools import product
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from crawler.data.data_dir import DataDir
from crawler.frontier.records import (
    MIDDLE,
    HostRecord,
    HostTally,
    QueueEnds,
    encode,
    waiting_of,
)
from crawler.model.types import (
    Dead,
    Done,
    HostFetch,
    HostKey,
    Pace,
    PutBack,
    Rest,
    RetryAt,
    Standing,
)
from crawler.operate import acts
from crawler.operate.verbs import ActRequest
from crawler.view.hosts import HostFilter, HostQuery, HostSort, TopHosts
from crawler.view.local import LocalView
from crawler.view.port import CrawlView, HostState
from tests.harness.frontiers import EmbeddedWorld, candidate, rocks_store

LETTERS = "abcdefgh"
HOSTS = [f"{first}{second}.example" for first, second in product(LETTERS, LETTERS)]
FIGURES: dict[HostSort, Callable[[HostState], float]] = {
    HostSort.WAITING: lambda state: state.waiting,
    HostSort.NEXT: lambda state: state.rest_until,
    HostSort.FAILURES: lambda state: state.pace.failures,
    HostSort.ADMITTED: lambda state: state.admitted,
    HostSort.REST: lambda state: state.pace.gap_s,
    HostSort.FETCH: lambda state: state.pace.fetches and exp(state.pace.log_fetch_s),
    HostSort.PAGES: lambda state: state.tally.pages,
    HostSort.BYTES: lambda state: state.tally.bytes,
    HostSort.SUCCESS: lambda state: (
        state.tally.failures / state.tally.fetches - 1 if state.tally.fetches else -2
    ),
    HostSort.FAILED: lambda state: state.tally.failed_at,
    HostSort.END: lambda state: state.waiting * max(state.pace.gap_s, 0.1),
    HostSort.NAME: lambda state: 0,
}
STATES: dict[HostFilter, Callable[[HostState], bool]] = {
    HostFilter.EMPTY: lambda state: state.place == "empty",
    HostFilter.FRONT: lambda state: state.place == "front",
    HostFilter.ACTIVE: lambda state: state.place == "active",
    HostFilter.RESTING: lambda state: state.place == "resting",
    HostFilter.NEW: lambda state: state.pace.standing is Standing.NEW,
    HostFilter.FAILING: lambda state: state.pace.failures > 0,
    HostFilter.PAUSED: lambda state: (
        state.pace.unwelcome < 8 and (state.pace.pauses > 0 or state.pace.unwelcome >= 3)
    ),
    HostFilter.LEFT: lambda state: state.pace.unwelcome >= 8,
}
QUERIES = (
    [
        HostQuery(top, sort, match, offset)
        for top, sort, match, offset in product((7, 100), HostSort, ("", "h", "b.ex", "*"), (0, 5))
    ]
    + [
        HostQuery(100, sort, match, address=f"192.0.2.{at}")
        for sort, match, at in product(HostSort, ("", "h"), range(4))
    ]
    + [
        HostQuery(100, HostSort.FAILED, match, state=state, failure=failure)
        for match, state, failure in product(
            ("", "h"), HostFilter, ("", "any", "timeout", "status_503", "status_5")
        )
    ]
)


def lived(world: EmbeddedWorld, seed: int) -> Any:
    """Return a frontier after a random life: some hosts have run dry, some rest, some have never
    been asked."""
    dice, now = Random(seed), 0.0
    frontier = world.reopen(now)
    for number in range(300):
        now += dice.random()
        found = [
            candidate(f"{number}/{at}", host=dice.choice(HOSTS), level=dice.randrange(3))
            for at in range(dice.randrange(4))
        ]
        frontier.add(found, now)
        for lease in frontier.lease(now, dice.randrange(4)):
            if dice.random() < 0.1:
                continue  # it stays open
            pace = Pace(
                gap_s=dice.uniform(0, 9),
                failures=dice.choice((0, 0, 1, 300)),
                pauses=dice.choice((0, 0, 1)),
                standing=dice.choice(list(Standing)),
                fetches=dice.randrange(3),
                log_fetch_s=dice.uniform(-3, 3),
                unwelcome=dice.choice((0, 0, 3, 8)),
            )
            failure = dice.choice(("", "", "timeout", "status_503"))
            fetch = HostFetch(failure, 503 if failure == "status_503" else 0, 9, not failure)
            at = f"192.0.2.{LETTERS.index(lease.candidate.host[0]) % 3}"
            rest = Rest(dice.uniform(0, 9), pace, address=at, fetches=(fetch,))
            frontier.release(lease, rest, now)
            verdicts = (Done(), PutBack(), Dead("no"), RetryAt(now + dice.uniform(-1, 9)))
            frontier.finish(lease, dice.choice(verdicts), now)
        if number == 200:
            frontier = world.reopen(now)
    return frontier


def first_of(states: Sequence[HostState], query: HostQuery) -> list[HostState]:
    fitting = [
        state
        for state in states
        if query.match in state.host
        and query.address in ("", state.address)
        and (not query.state or STATES[query.state](state))
        and (not query.failure or is_failure(state.tally, query.failure))
    ]
    fitting.sort(key=lambda state: (-FIGURES[query.sort](state), state.host))
    return fitting[query.offset : query.offset + query.top]


def is_failure(tally: HostTally, kind: str) -> bool:
    return tally.last_failure == kind or (kind == "any" and tally.failed_at > 0)


def known_states(view: CrawlView, waiting: dict[str, int]) -> list[HostState]:
    """Return what is known of each host, found by its name alone, and check what waits against
    *waiting*, which was counted in the queues."""
    states = [state for host in HOSTS for state in view.hosts(HostQuery(host=HostKey(host)))]
    assert {state.host: state.waiting for state in states if state.waiting} == waiting
    assert 20 < len(waiting) < len(states), "some hosts have run dry"
    assert len({state.address for state in states} - {""}) == 3, "each record names an address"
    return states


@pytest.mark.parametrize("seed", range(3))
def test_on_disk_beside_the_frontier_that_writes(tmp_path: Path, seed: int) -> None:
    DataDir(tmp_path).close()
    with rocks_store(tmp_path) as store:
        frontier = lived(EmbeddedWorld(store, tmp_path), seed)
        with LocalView(tmp_path) as view:
            reader = view.reader
            queued = {host: sum(1 for _ in reader.waiting(host)) for host, _ in reader.hosts()}
            states = known_states(view, {host: n for host, n in queued.items() if n})
            for query in QUERIES:
                assert view.hosts(query) == first_of(states, query), query
        assert frontier.counts().waiting == sum(queued.values())


def test_a_dry_run_says_that_its_time_was_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DataDir(tmp_path).close()
    everywhere = ActRequest("drop", ("*.example/*",))
    with rocks_store(tmp_path) as store:
        frontier = lived(EmbeddedWorld(store, tmp_path), 1)
        waiting = frontier.counts().waiting
        with LocalView(tmp_path) as view:
            counted = acts.count_urls(view.reader, everywhere)
            assert counted == (waiting, waiting, False)
            monkeypatch.setattr(acts, "COUNT_S", -1.0)
            counted = acts.count_urls(view.reader, everywhere)
    assert counted.is_part
    assert counted.waiting < waiting
    assert counted.answer().said.startswith("at least ")


SLICES, HOSTS_OF_A_SLICE, KINDS_OF_FIGURES = 40, 2_000, 50


def test_of_many_hosts_only_those_asked_for_are_kept() -> None:
    """Some are added twice, and many have equal figures; the memory is that of a few slices."""
    dice, query = Random(1), HostQuery(top=30, offset=100)
    names = [f"h{number}.example".encode() for number in range(SLICES * HOSTS_OF_A_SLICE)]
    dice.shuffle(names)
    figures = np.array([float(dice.randrange(KINDS_OF_FIGURES)) for _ in names])
    first = TopHosts(query.top, query.offset)
    tracemalloc.start()
    for at in range(0, len(names), HOSTS_OF_A_SLICE):
        begin = max(0, at - 10)
        first.add(names[begin : at + HOSTS_OF_A_SLICE], figures[begin : at + HOSTS_OF_A_SLICE])
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    ranked = sorted(zip(-figures, names, strict=True))[100:130]
    assert first.names() == [name.decode() for _, name in ranked]
    assert most_bytes < 5e6


@pytest.mark.parametrize("levels", [1, 3, 15])
def test_what_waits_is_read_from_records_of_any_form(levels: int) -> None:
    """With other numbers than usual, other levels than the first record, or shorter ones."""
    dice = Random(levels)
    records = []
    for number in range(1000):
        begins = dice.choice((MIDDLE, MIDDLE, MIDDLE, 0, 1 << 33))
        ends = [QueueEnds(begins, begins + dice.choice((0, 3, 1 << 34))) for _ in range(levels)]
        of_levels = levels if number < 500 else dice.randrange(levels + 1)
        records.append(HostRecord(ends[:of_levels], rest_until=dice.random()))
    packed = [encode(record) for record in records]
    assert waiting_of(packed).tolist() == [record.waiting() for record in records]
    assert waiting_of(packed[::-1]).tolist() == [record.waiting() for record in records[::-1]]

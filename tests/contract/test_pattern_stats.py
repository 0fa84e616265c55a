"""The counts of new pages by pattern, over every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.config.settings import PatternSettings
from crawler.data.local_stores import LocalPatternStats
from crawler.frontier.port import OrderedStore
from crawler.model.types import (
    Candidate,
)
from crawler.policy.patterns import (
    FetchAllowed,
    PatternStatsStore,
    PatternStopped,
)
from crawler.policy.refusal import Reason
from tests.harness.frontiers import STORES, candidate

RULES = PatternSettings(pattern_max_pages=9, pattern_barren_pages=4, pattern_probe_s=60.0)
ENDLESS = PatternSettings(pattern_max_pages=None, pattern_barren_pages=4, pattern_probe_s=60.0)
OFF = PatternSettings(pattern_max_pages=None, pattern_barren_pages=None)


class StatsWorld:
    def __init__(self, store: OrderedStore) -> None:
        self._store = store

    def reopen(
        self, settings: PatternSettings, most_patterns: int = 100, recent: int = 100
    ) -> PatternStatsStore:
        """Return the stats as the next run finds them."""
        return LocalPatternStats(self._store, settings, most_patterns, recent)


@pytest.fixture(params=STORES, ids=lambda kind: kind.__name__)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StatsWorld]:
    with request.param(tmp_path) as store:
        yield StatsWorld(store)


def found(name: str = "day/1", **given: object) -> Candidate:
    return candidate(name, **{"depth": 1, **given})  # type: ignore[arg-type]  # a name and fields, as there


def record_pages(
    stats: PatternStatsStore, *are_new: bool, at: float = 0.0, **given: object
) -> None:
    """Pages of one pattern, one after the other."""
    for number, is_new in enumerate(are_new):
        stats.record_page(found(f"day/{number}", **given), is_new, at)


def test_an_unknown_pattern_is_fetched(world):
    stats = world.reopen(RULES)
    assert stats.decide(found(), 0.0) is FetchAllowed.OPEN
    assert stats.refusal(found(), 0.0) is None
    assert not stats.have_stopped([found().host])


def test_pages_in_a_row_without_anything_new_stop_their_pattern(world):
    stats = world.reopen(RULES)
    record_pages(stats, True, False, False, False)
    assert stats.decide(found("day/77"), 1.0) is FetchAllowed.OPEN
    record_pages(stats, False, at=1.0)
    stopped = stats.decide(found("day/77"), 2.0)
    assert stopped == PatternStopped("pattern /day/#: nothing new in its last 4 pages")
    refusal = stats.refusal(found("day/78"), 2.0)
    assert refusal is not None and refusal.reason is Reason.PATTERN
    assert refusal.detail == stopped.reason
    assert stats.have_stopped([found().host])
    assert not stats.have_stopped([found(host="b").host])


def test_a_new_page_ends_the_row(world):
    stats = world.reopen(RULES)
    record_pages(stats, False, False, False, True, False, False)
    assert stats.decide(found(), 1.0) is FetchAllowed.OPEN


def test_other_patterns_and_other_hosts_are_not_concerned(world):
    stats = world.reopen(RULES)
    record_pages(stats, *[False] * 4)
    for other in (found("night/1"), found("day/1", host="b"), found("day")):
        assert stats.decide(other, 1.0) is FetchAllowed.OPEN
        assert stats.refusal(other, 1.0) is None


def test_a_stopped_pattern_is_probed_regularly(world):
    stats = world.reopen(RULES)
    record_pages(stats, *[False] * 4)
    assert isinstance(stats.decide(found(), 59.0), PatternStopped)
    assert stats.refusal(found(), 60.0) is None, "one must be waiting for the probe"
    assert stats.decide(found(), 60.0) is FetchAllowed.PROBE
    stats.record_try(found(), 60.0)
    assert isinstance(stats.decide(found("day/2"), 61.0), PatternStopped), "one probe at a time"
    stats.record_page(found(), False, 62.0)
    assert isinstance(stats.decide(found(), 121.0), PatternStopped)
    assert stats.decide(found(), 122.0) is FetchAllowed.PROBE


def test_a_try_that_brings_something_new_opens_the_pattern(world):
    stats = world.reopen(RULES)
    record_pages(stats, *[False] * 4)
    stats.record_try(found(), 60.0)
    stats.record_page(found(), True, 61.0)
    assert stats.decide(found("day/2"), 62.0) is FetchAllowed.OPEN
    assert stats.refusal(found("day/2"), 62.0) is None
    assert not stats.have_stopped([found().host])


def test_a_pattern_at_its_cap_stays_stopped(world):
    stats = world.reopen(RULES)
    record_pages(stats, *[True] * 8)
    assert stats.decide(found(), 1.0) is FetchAllowed.OPEN
    record_pages(stats, True, at=1.0)
    for now in (2.0, 1e6):
        stopped = stats.decide(found(), now)
        assert stopped == PatternStopped("pattern /day/#: 9 of its pages were fetched, no more are")
    assert stats.refusal(found(), 2.0) is not None


def test_stats_survive_a_restart(world):
    record_pages(world.reopen(RULES), False, False)
    record_pages(world.reopen(RULES), False, False)
    assert isinstance(world.reopen(RULES).decide(found(), 1.0), PatternStopped)


def test_seeds_and_requests_count_and_are_always_fetched(world):
    stats = world.reopen(RULES)
    record_pages(stats, *[False] * 4, depth=0)
    for named in (found(depth=0), found(request=b"of a spider")):
        assert stats.decide(named, 1.0) is FetchAllowed.OPEN
        assert stats.refusal(named, 1.0) is None
    assert isinstance(stats.decide(found(), 1.0), PatternStopped)


def test_patterns_beyond_the_first_count_as_one(world):
    stats = world.reopen(ENDLESS, most_patterns=2)
    for name in ("day/1", "night/1"):
        stats.record_page(found(name), False, 0.0)
    for name in "abcd":
        assert stats.decide(found(f"{name}/1"), 1.0) is FetchAllowed.OPEN
        stats.record_page(found(f"{name}/1"), False, 1.0)
    stats = world.reopen(ENDLESS, most_patterns=2)
    others = stats.decide(found("e/1"), 2.0)
    assert others == PatternStopped("pattern <other>: nothing new in its last 4 pages")
    assert stats.decide(found("day/2"), 2.0) is FetchAllowed.OPEN


def test_a_pattern_that_stops_repeatedly_counts_once(world):
    stats = world.reopen(ENDLESS, most_patterns=2)
    record_pages(stats, False, False, False, False, True, False, False, False, False)
    for number in range(4):
        stats.record_page(found(f"night/{number}"), False, 0.0)
    stats = world.reopen(ENDLESS, most_patterns=2)
    night = stats.decide(found("night/7"), 1.0)
    assert night == PatternStopped("pattern /night/#: nothing new in its last 4 pages")


def test_the_other_patterns_together_have_no_cap(world):
    rules = PatternSettings(pattern_max_pages=3, pattern_barren_pages=None)
    stats = world.reopen(rules, most_patterns=1)
    stats.record_page(found("day/1"), True, 0.0)
    for number in range(5):
        stats.record_page(found(f"night/{number}"), True, 0.0)
    stats = world.reopen(rules, most_patterns=1)
    assert stats.decide(found("night/7"), 1.0) is FetchAllowed.OPEN


def test_counts_are_correct_with_a_small_cache(world):
    stats = world.reopen(RULES, recent=1)
    for number in range(4):
        stats.record_page(found(f"day/{number}"), False, 0.0)
        stats.record_page(found(f"night/{number}"), number % 2 == 0, 0.0)
        stats.record_page(found(f"day/{number}", host="b"), True, 0.0)
    assert isinstance(stats.decide(found(), 1.0), PatternStopped)
    assert stats.decide(found("night/1"), 1.0) is FetchAllowed.OPEN
    assert stats.decide(found(host="b"), 1.0) is FetchAllowed.OPEN


def test_without_pattern_rules_everything_is_fetched(world):
    stats = world.reopen(OFF)
    record_pages(stats, *[False] * 50)
    assert stats.decide(found(), 1.0) is FetchAllowed.OPEN
    assert stats.refusal(found(), 1.0) is None


def test_it_is_counted_how_often_pages_of_a_pattern_change(world):
    stats = world.reopen(OFF)
    for number, is_changed in enumerate((True, False, True)):
        stats.record_visit(found(f"day/{number}"), is_changed, 86_400)
    stats = world.reopen(OFF)
    assert stats.changes_of(found("day/99")) == (2, 3 * 86_400)
    assert stats.changes_of(found("week/1")) == (0, 0)
    assert stats.changes_of(found("about")) == (0, 0), "the only page of its pattern"

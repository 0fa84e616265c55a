"""When a pattern has brought enough: the decision alone."""

from __future__ import annotations

import pytest

from crawler.config.settings import PatternSettings
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.policy.patterns import (
    OTHER,
    FetchAllowed,
    PatternStats,
    PatternStopped,
    can_stop,
    counted_pattern,
    deciding_pattern,
    stats_after,
    verdict,
)

RULES = PatternSettings(pattern_max_pages=1000, pattern_barren_pages=100, pattern_probe_s=60.0)
NONE = PatternSettings(pattern_max_pages=None, pattern_barren_pages=None)


@pytest.mark.parametrize(
    ("brought", "now", "want"),
    [
        pytest.param(PatternStats(), 0.0, FetchAllowed.OPEN, id="nothing is known"),
        pytest.param(PatternStats(99, 0, 99, 5.0), 6.0, FetchAllowed.OPEN, id="99 in a row"),
        pytest.param(PatternStats(500, 400, 100, 5.0), 6.0, PatternStopped, id="100 in a row"),
        pytest.param(
            PatternStats(500, 400, 100, 5.0), 65.0, FetchAllowed.PROBE, id="a while later"
        ),
        pytest.param(
            PatternStats(500, 400, 130, 66.0), 67.0, PatternStopped, id="the try brought nothing"
        ),
        pytest.param(
            PatternStats(500, 401, 0, 66.0), 67.0, FetchAllowed.OPEN, id="the try brought something"
        ),
        pytest.param(
            PatternStats(500, 400, 100, 5.0), 4.0, FetchAllowed.PROBE, id="the clock was set back"
        ),
        pytest.param(
            PatternStats(999, 999, 0, 5.0), 6.0, FetchAllowed.OPEN, id="one below the cap"
        ),
        pytest.param(PatternStats(1000, 1000, 0, 5.0), 6.0, PatternStopped, id="at the cap"),
        pytest.param(PatternStats(1000, 1000, 0, 5.0), 1e9, PatternStopped, id="a cap stays"),
    ],
)
def test_verdicts(
    brought: PatternStats, now: float, want: FetchAllowed | type[PatternStopped]
) -> None:
    found = verdict("/day/#", brought, RULES, now)
    assert isinstance(found, PatternStopped) if want is PatternStopped else found is want
    assert verdict("/day/#", brought, NONE, now) is FetchAllowed.OPEN


def test_a_stop_is_explained() -> None:
    full = verdict("/p?id", PatternStats(1000, 1000, 0, 5.0), RULES, 6.0)
    assert full == PatternStopped("pattern /p?id: 1000 of its pages were fetched, no more are")
    barren = verdict("/day/#", PatternStats(120, 20, 100, 5.0), RULES, 6.0)
    assert barren == PatternStopped("pattern /day/#: nothing new in its last 100 pages")


def test_pages_are_counted_and_a_new_one_ends_the_row() -> None:
    brought = PatternStats()
    for now, is_new in enumerate((True, False, False)):
        brought = stats_after("/day/#", brought, is_new, float(now))
    assert brought == PatternStats(pages=3, new=1, barren=2, at=2.0)
    assert stats_after("/day/#", brought, True, 9.0) == PatternStats(4, 2, 0, 9.0)


def test_what_stands_for_many_patterns_has_no_cap() -> None:
    assert stats_after(OTHER, PatternStats(), False, 9.0) == PatternStats(
        pages=0, new=0, barren=1, at=9.0
    )


@pytest.mark.parametrize(
    ("rules", "want"),
    [
        pytest.param(NONE, False, id="none"),
        pytest.param(PatternSettings(pattern_max_pages=None), True, id="only of barren ones"),
        pytest.param(PatternSettings(pattern_barren_pages=None), True, id="only a cap"),
    ],
)
def test_without_rules_nothing_is_counted(rules: PatternSettings, want: bool) -> None:
    assert can_stop(rules) is want


def found(**given: object) -> Candidate:
    url = "http://a.org/day/1"
    return Candidate(url, 1, HostKey("a.org"), "a.org", **given)  # type: ignore[arg-type]  # as written in each test


def test_what_a_person_named_counts_and_is_not_judged() -> None:
    assert deciding_pattern(found(depth=1)) == counted_pattern(found(depth=1)) == "/day/#"
    for named in (found(depth=0), found(depth=1, request=b"x")):
        assert (deciding_pattern(named), counted_pattern(named)) == ("", "/day/#")
    robots = found(depth=1, purpose=Purpose.ROBOTS)
    assert deciding_pattern(robots) == counted_pattern(robots) == ""

"""Which URLs fall into one pattern, and when a pattern has been fetched often enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import PatternSettings
from crawler.model.types import (
    Candidate,
    HostKey,
    Purpose,
)
from crawler.policy.patterns import (
    MAX_PATTERN_CHARS,
    OTHER_PATTERNS,
    FetchAllowed,
    PatternStats,
    PatternStopped,
    can_stop,
    counted_pattern,
    decide,
    deciding_pattern,
    pattern_of,
    stats_after,
)

HOST = "http://example.com"
UUIDS = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")


def of(path: str) -> str:
    return pattern_of(HOST + path)


@pytest.mark.parametrize(
    ("one", "other", "pattern"),
    [
        pytest.param("/2024/05/12/", "/2025/11/30/", "/#/#/#/", id="days"),
        pytest.param("/2024-05-12.html", "/1999-1-2.html", "/#-#-#.html", id="days in one word"),
        pytest.param("/page/2", "/page/31", "/page/#", id="page numbers"),
        pytest.param("/page-2.html", "/page-31.html", "/page-#.html", id="pages as files"),
        pytest.param("/a?id=1", "/a?id=xyz", "/a?id", id="values of a query"),
        pytest.param("/a?b=1&a=2", "/a?a=7&b=3", "/a?a&b", id="the order of a query"),
        pytest.param("/a?f[0]=x", "/a?f[0]=y&f[1]=z", "/a?f[#]", id="keys that count"),
        pytest.param("/a?f%5B0%5D=x", "/a?f%5B12%5D=y", "/a?f%5B#%5D", id="escaped ones"),
        pytest.param("/a?2024-05-12", "/a?2031-1-1", "/a?#-#-#", id="a query without keys"),
        pytest.param("/a?id=", "/a?id", "/a?id", id="a key without a value"),
        pytest.param(f"/o/{UUIDS[0]}", f"/o/{UUIDS[1]}", "/o/<id>", id="UUIDs"),
        pytest.param("/c/5217b2e9", "/c/deadbee7f00", "/c/<id>", id="hashes, long and short"),
        pytest.param("/r/x7Gk29a/", "/r/b3c4/", "/r/<id>/", id="words with numbers in two places"),
        pytest.param("/p;s=aVeryLong1TokenOfSession", "/p;s=7FGhijKlmNopQrsTuvWxyz",
                     "/p;s=<id>", id="tokens of 128 bits"),
        pytest.param("/caf%C3%A9/1", "/caf%C3%A9/22", "/caf%C3%A9/#", id="numbers beside escapes"),
        pytest.param("/%D0%B07", "/%D0%B012", "/%D0%B0#", id="a number after an escape"),
    ],
)  # fmt: skip
def test_urls_of_one_pattern(one: str, other: str, pattern: str) -> None:
    assert of(one) == of(other) == pattern


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("/page/2", "/pages/2", id="directories"),
        pytest.param("/2024/05/12/", "/2024/05/", id="days and months"),
        pytest.param("/2024/05/12/", "/2024/05/12", id="with and without a slash"),
        pytest.param("/a?id=1", "/b?id=1", id="paths with one query"),
        pytest.param("/a?id=1", "/a?id=1&sort=up", id="other keys"),
        pytest.param("/a", "/a?id=1", id="without a query and with one"),
        pytest.param("/post/12-spring", "/post/13-autumn", id="names beside numbers"),
        pytest.param("/wiki/%D0%B0/1", "/wiki/%D0%B1/1", id="letters that are written as escapes"),
        pytest.param("/12/a-b-c", "/12/x-y-z", id="slugs"),
        pytest.param("/1/deadbeef", "/1/facade", id="words of hexadecimal letters"),
        pytest.param("/v2/" + "donaudampf" * 3, "/v2/" + "schifffahr" * 3, id="long words"),
        pytest.param("/1/" + "x" * 300, "/1/" + "x" * 299, id="what is cut"),
    ],
)
def test_urls_of_different_patterns(one: str, other: str) -> None:
    assert of(one) != of(other)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/", id="a home page"),
        pytest.param("/?", id="with an empty query"),
        pytest.param("/wiki/Ada_Lovelace", id="a name"),
        pytest.param("/item/abc-def", id="a slug"),
        pytest.param("/wiki/%E2%82%AC", id="a name in escapes"),
    ],
)
def test_a_url_without_anything_that_counts_is_the_only_one_of_its_pattern(path: str) -> None:
    assert of(path) == ""


texts = st.text(st.sampled_from("aZf019-_.;=&?/%[]~"), max_size=60)


@given(texts)
def test_a_pattern_is_its_own(text: str) -> None:
    pattern = of("/" + text)
    assert of(pattern or "/") in (pattern, "")


@given(texts, st.integers(0, 10**9), st.integers(0, 10**9))
def test_numbers_make_no_difference(text: str, one: int, other: int) -> None:
    assert of(f"/{text}/{one}") == of(f"/{text}/{other}")


def test_a_pattern_is_bounded() -> None:
    assert len(of("/1" + "a/" * 900)) == MAX_PATTERN_CHARS


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
    found = decide("/day/#", brought, RULES, now)
    assert isinstance(found, PatternStopped) if want is PatternStopped else found is want
    assert decide("/day/#", brought, NONE, now) is FetchAllowed.OPEN


def test_a_stop_is_explained() -> None:
    full = decide("/p?id", PatternStats(1000, 1000, 0, 5.0), RULES, 6.0)
    assert full == PatternStopped("pattern /p?id: 1000 of its pages were fetched, no more are")
    barren = decide("/day/#", PatternStats(120, 20, 100, 5.0), RULES, 6.0)
    assert barren == PatternStopped("pattern /day/#: nothing new in its last 100 pages")


def test_pages_are_counted_and_a_new_one_ends_the_row() -> None:
    brought = PatternStats()
    for now, is_new in enumerate((True, False, False)):
        brought = stats_after("/day/#", brought, is_new, float(now))
    assert brought == PatternStats(pages=3, new=1, barren=2, at=2.0)
    assert stats_after("/day/#", brought, True, 9.0) == PatternStats(4, 2, 0, 9.0)


def test_what_stands_for_many_patterns_has_no_cap() -> None:
    assert stats_after(OTHER_PATTERNS, PatternStats(), False, 9.0) == PatternStats(
        pages=0, new=0, barren=1, at=9.0
    )


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        pytest.param(NONE, False, id="none"),
        pytest.param(PatternSettings(pattern_max_pages=None), True, id="only of barren ones"),
        pytest.param(PatternSettings(pattern_barren_pages=None), True, id="only a cap"),
    ],
)
def test_without_rules_nothing_is_counted(settings: PatternSettings, want: bool) -> None:
    assert can_stop(settings) is want


def found(**given: object) -> Candidate:
    url = "http://a.org/day/1"
    return Candidate(url, 1, HostKey("a.org"), "a.org", **given)  # type: ignore[arg-type]  # as written in each test


def test_seeds_and_requests_count_and_are_not_stopped() -> None:
    assert deciding_pattern(found(depth=1)) == counted_pattern(found(depth=1)) == "/day/#"
    for named in (found(depth=0), found(depth=1, request=b"x")):
        assert (deciding_pattern(named), counted_pattern(named)) == ("", "/day/#")
    robots = found(depth=1, purpose=Purpose.ROBOTS)
    assert deciding_pattern(robots) == counted_pattern(robots) == ""
    needed = found(depth=1, requisite=1)
    assert deciding_pattern(needed) == counted_pattern(needed) == ""

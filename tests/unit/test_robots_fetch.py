"""The decision table: what fetching a robots.txt brought, and what is known afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest

from crawler.config.settings import RobotsSettings
from crawler.policy.robots_cache import (
    FetchResult,
    RobotsFetch,
    RobotsRecord,
    RobotsState,
    fetch_result,
    record_after,
    unknown_record,
    unreachable_record,
)

SITE = "http://example.com"
FILE = SITE + "/robots.txt"
ELSEWHERE = "https://www.example.org/robots.txt"
RULES = RobotsSettings()
HOUR_S = 3600.0
DAY_S = 86_400.0


def got(status: int | None = None, *, url: str = FILE, error: str = "", to: str | None = None,
        body: bytes = b"") -> RobotsFetch:  # fmt: skip
    return RobotsFetch(url, status, error, to, body)


@pytest.mark.parametrize(
    ("fetch", "want"),
    [
        pytest.param(got(200), FetchResult.FILE, id="200: the file"),
        pytest.param(got(204), FetchResult.FILE, id="204: the file, and it is empty"),
        pytest.param(got(301, to=ELSEWHERE), FetchResult.MOVED, id="301: look there"),
        pytest.param(got(308, to=ELSEWHERE), FetchResult.MOVED, id="308: look there"),
        pytest.param(got(301), FetchResult.ABSENT, id="a redirect to nowhere"),
        pytest.param(got(302, to=FILE), FetchResult.ABSENT, id="a redirect to itself"),
        pytest.param(
            got(304), FetchResult.ABSENT, id="304, though nobody asked whether it changed"
        ),
        pytest.param(got(300, to=ELSEWHERE), FetchResult.ABSENT, id="300 leaves the choice to us"),
        pytest.param(got(401), FetchResult.ABSENT, id="401 is a 4xx: unavailable, not forbidden"),
        pytest.param(got(403), FetchResult.ABSENT, id="403 too"),
        pytest.param(got(404), FetchResult.ABSENT, id="404: there is none"),
        pytest.param(got(410), FetchResult.ABSENT, id="410: there is none"),
        pytest.param(got(429), FetchResult.TROUBLE, id="429: overloaded, whatever its first digit"),
        pytest.param(got(500), FetchResult.TROUBLE, id="500"),
        pytest.param(got(503), FetchResult.TROUBLE, id="503"),
        pytest.param(got(999), FetchResult.TROUBLE, id="a status that does not exist"),
        pytest.param(got(101), FetchResult.TROUBLE, id="a status that makes no sense here"),
        pytest.param(got(error="timeout"), FetchResult.TROUBLE, id="no answer in time"),
        pytest.param(got(error="connect"), FetchResult.TROUBLE, id="no connection"),
        pytest.param(got(error="dns"), FetchResult.TROUBLE, id="no address"),
        pytest.param(got(), FetchResult.TROUBLE, id="no answer"),
        pytest.param(
            got(200, error="protocol", body=b"User-agent"), FetchResult.TROUBLE, id="half a file"
        ),
        pytest.param(got(error="cancelled"), FetchResult.NOTHING, id="we stopped"),
    ],
)
def test_what_a_fetch_brought(fetch: RobotsFetch, want: FetchResult) -> None:
    assert fetch_result(fetch) is want


@dataclass
class Story:
    """One authority and what it is told, with the time going on by itself."""

    now: float = 1e9
    record: RobotsRecord = field(default_factory=lambda: unknown_record(SITE, 1e9))

    def learn(self, *fetches: RobotsFetch) -> RobotsRecord:
        for fetch in fetches:
            self.now += 60
            self.record = record_after(self.record, fetch, RULES, self.now, self.now + HOUR_S)
        return self.record


def test_a_file_is_kept_for_a_day() -> None:
    story = Story()
    want = RobotsRecord(SITE, RobotsState.RULES, 1e9 + 60, 1e9 + 60 + DAY_S, b"User-agent: *")
    assert story.learn(got(200, body=b"User-agent: *")) == want


def test_a_file_is_kept_up_to_the_limit() -> None:
    record = Story().learn(got(200, body=b"#" * 600_000))
    assert len(record.body or b"") == RULES.robots_max_bytes


def test_an_absent_file_allows_everything_for_a_day() -> None:
    record = Story().learn(got(404))
    assert (record.kind, record.reason) == (RobotsState.ALLOW_ALL, "status 404, after 0 redirects")
    assert record.expires_at == record.fetched_at + DAY_S


def test_trouble_is_tried_five_times_and_then_kept_for_an_hour() -> None:
    story = Story()
    for tries in range(1, 5):
        record = story.learn(got(503))
        assert (record.kind, record.tries, record.next_url) == (RobotsState.PENDING, tries, FILE)
    record = story.learn(got(error="timeout"))
    assert (record.kind, record.reason) == (RobotsState.UNREACHABLE, "timeout")
    assert record.expires_at == story.now + HOUR_S


def test_after_the_hour_one_more_failure_is_enough() -> None:
    story = Story()
    story.learn(*[got(503)] * 5)
    assert story.learn(got(503)).kind is RobotsState.UNREACHABLE


def test_an_answer_ends_the_row_of_failures() -> None:
    story = Story()
    assert story.learn(*[got(503)] * 4, got(404)).tries == 0
    assert story.learn(*[got(503)] * 4).kind is RobotsState.PENDING


def test_a_good_copy_is_used_while_the_file_is_unreachable() -> None:
    story = Story()
    good = story.learn(got(200, body=b"old"))
    record = story.learn(*[got(503)] * 9)
    assert (record.kind, record.body, record.fetched_at) == (
        RobotsState.RULES,
        b"old",
        good.fetched_at,
    )
    assert record.expires_at == story.now + HOUR_S  # when it is asked for again


def test_an_empty_file_is_a_good_copy() -> None:
    assert Story().learn(got(200), *[got(503)] * 9).kind is RobotsState.RULES


def test_a_good_copy_survives_redirects_into_trouble() -> None:
    story = Story()
    assert story.learn(got(200, body=b"old"), got(301, to=ELSEWHERE)).kind is RobotsState.PENDING
    record = story.learn(got(503, url=ELSEWHERE))
    assert (record.kind, record.body) == (RobotsState.RULES, b"old")


def test_an_absent_file_is_no_good_copy() -> None:
    story = Story()
    assert story.learn(got(404), *[got(503)] * 5).kind is RobotsState.UNREACHABLE


def test_a_redirect_is_followed_for_the_authority_that_was_asked() -> None:
    story = Story()
    record = story.learn(got(301, to=ELSEWHERE))
    assert (record.kind, record.next_url, record.hops) == (RobotsState.PENDING, ELSEWHERE, 1)
    record = story.learn(got(200, url=ELSEWHERE, body=b"theirs"))
    assert (record.authority, record.kind, record.body) == (SITE, RobotsState.RULES, b"theirs")


def test_trouble_at_a_hop_is_tried_again_at_that_hop() -> None:
    story = Story()
    record = story.learn(got(301, to=ELSEWHERE), got(503, url=ELSEWHERE))
    assert (record.kind, record.next_url, record.hops) == (RobotsState.PENDING, ELSEWHERE, 1)
    record = story.learn(*[got(503, url=ELSEWHERE)] * 4)
    assert record.kind is RobotsState.UNREACHABLE


def redirects(count: int) -> list[RobotsFetch]:
    urls = [FILE, *(f"http://h{hop}.example/robots.txt" for hop in range(count))]
    return [got(302, url=here, to=there) for here, there in pairwise(urls)]


def test_hops_are_counted_from_the_file_each_time() -> None:
    story = Story()
    assert story.learn(got(301, to=ELSEWHERE)).hops == 1
    assert story.learn(got(301, to=ELSEWHERE)).hops == 1  # the turn of the first never came
    story.learn(got(200, url=ELSEWHERE), got(301, to=ELSEWHERE), got(503, url=ELSEWHERE))
    assert story.record.kind is RobotsState.RULES
    assert story.learn(got(301, to=ELSEWHERE)).hops == 1


def test_five_redirects_are_followed() -> None:
    hops = redirects(5)
    record = Story().learn(*hops, got(200, url=hops[-1].target or "", body=b"at last"))
    assert (record.kind, record.body) == (RobotsState.RULES, b"at last")


def test_six_redirects_are_as_good_as_no_file() -> None:
    record = Story().learn(*redirects(6))
    assert (record.kind, record.reason) == (RobotsState.ALLOW_ALL, "status 302, after 5 redirects")


def test_a_loop_ends_as_six_redirects_do() -> None:
    there, back = got(302, to=ELSEWHERE), got(302, url=ELSEWHERE, to=FILE)
    assert Story().learn(*[there, back] * 3).kind is RobotsState.ALLOW_ALL


def test_a_fetch_that_we_stopped_changes_nothing() -> None:
    story = Story()
    before = story.learn(got(503))
    assert story.learn(got(error="cancelled")) is before


def test_an_authority_that_was_given_up_gets_one_try() -> None:
    story = Story(record=unreachable_record(SITE, "its host is lost", RULES, 1e9, 1e9 + HOUR_S))
    assert story.record.kind is RobotsState.UNREACHABLE
    assert story.learn(got(error="connect")).kind is RobotsState.UNREACHABLE
    assert story.learn(got(200)).kind is RobotsState.RULES


def test_a_record_comes_back_from_disk_as_it_was() -> None:
    story = Story()
    for fetch in (got(503), got(301, to=ELSEWHERE), got(200, body=b"\xff\x00"), got(503), got(404)):
        record = story.learn(fetch)
        packed = msgspec.msgpack.encode(record)
        assert msgspec.msgpack.decode(packed, type=RobotsRecord) == record
        assert msgspec.json.decode(msgspec.json.encode(record), type=RobotsRecord) == record

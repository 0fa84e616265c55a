"""What a lease is used for: its page, a robots.txt, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.config.settings import PatternSettings, RobotsSettings
from crawler.crawl.in_flight import Fetch
from crawler.crawl.precheck import (
    HOP_WAIT_S,
    Precheck,
    Proceed,
    Skip,
)
from crawler.data.local_stores import LocalPatternStats
from crawler.frontier.memory_store import MemoryStore
from crawler.model.types import (
    Candidate,
    Dead,
    Done,
    HostKey,
    Lease,
    Pace,
    Purpose,
    PutBack,
)
from crawler.model.url import split
from crawler.policy.robots_cache import (
    ADDRESS_REFUSED,
    RobotsCache,
    RobotsFetch,
    RobotsRecord,
)
from crawler.policy.scope import Reason, Refusal

RULES = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n"


class Records(dict[str, RobotsRecord]):
    def put(self, record: RobotsRecord) -> None:
        self[record.authority] = record


def hop(url: str, authority: str) -> Candidate | Refusal:
    host = split(url).hostname
    if host.startswith("10."):
        return Refusal(Reason.INSIDE_ADDRESS, host)
    return Candidate(
        url,
        1,
        HostKey(host),
        host,
        purpose=Purpose.ROBOTS,
        authority=authority,
        needs_seen_test=False,
    )


def flight(url: str = "http://a.org/page", **given: Any) -> Fetch:
    host = split(url).hostname
    return Fetch(Lease(1, Candidate(url, 1, HostKey(host), host, **given), Pace(), 0.0))


@pytest.fixture
def yields() -> LocalPatternStats:
    return LocalPatternStats(
        MemoryStore(), PatternSettings(pattern_barren_pages=2, pattern_probe_s=60.0)
    )


@pytest.fixture
def clearance(yields: LocalPatternStats) -> Precheck:
    return Precheck(RobotsCache(Records(), "Gossamer", RobotsSettings()), hop, yields)


def answer(status: int, body: bytes = b"", target: str | None = None) -> RobotsFetch:
    return RobotsFetch("http://a.org/robots.txt", status, target=target, body=body)


def test_robots_txt_comes_before_anything_else_of_a_host(clearance):
    first = flight()
    assert clearance.check(first, 0.0) == Proceed("http://a.org/robots.txt")
    assert (first.purpose, first.authority) == (Purpose.ROBOTS, "http://a.org")


def test_what_it_allows_is_fetched_at_its_pace(clearance):
    first, second = flight(), flight()
    clearance.check(first, 0.0)
    clearance.store_robots_result(first, answer(200, RULES), 0.0, 0.0)
    assert first.crawl_delay_s == 7.0, "the rest after robots.txt itself is its crawl-delay"
    assert clearance.check(second, 1.0) == Proceed("http://a.org/page")
    assert second.crawl_delay_s == 7.0


def test_what_it_forbids_ends_unfetched(clearance):
    first = flight()
    clearance.check(first, 0.0)
    clearance.store_robots_result(first, answer(200, RULES), 0.0, 0.0)
    refused = clearance.check(flight("http://a.org/private/x"), 1.0)
    assert isinstance(refused, Skip)
    assert refused.verdict == Done()
    assert "/private" in refused.reason


def test_an_unreachable_robots_txt_makes_dead_letters_in_the_end(clearance):
    for tries in range(RobotsSettings().robots_tries):
        one = flight()
        assert clearance.check(one, float(tries)) == Proceed("http://a.org/robots.txt")
        clearance.store_robots_result(one, answer(503), float(tries), 0.0)
    refused = clearance.check(flight(), 9.0)
    assert isinstance(refused, Skip)
    assert isinstance(refused.verdict, Dead)
    assert "503" in refused.verdict.reason


def test_a_redirect_on_the_same_host_is_fetched_under_the_next_lease(clearance):
    one = flight()
    clearance.check(one, 0.0)
    clearance.store_robots_result(one, answer(301, target="http://a.org/r.txt"), 0.0, 0.0)
    assert clearance.check(flight(), 1.0) == Proceed("http://a.org/r.txt")


def test_a_redirect_to_another_host_takes_that_hosts_turn(clearance):
    one = flight()
    clearance.check(one, 0.0)
    clearance.store_robots_result(one, answer(301, target="http://b.org/robots.txt"), 0.0, 0.0)
    waits = clearance.check(flight(), 1.0)
    assert isinstance(waits, Skip)
    assert (waits.verdict, waits.rest_s) == (PutBack(), HOP_WAIT_S)
    assert waits.robots_candidate is not None and waits.robots_candidate.host == "b.org"
    again = clearance.check(flight(), 7.0)
    assert isinstance(again, Skip) and again.robots_candidate is None, "it is asked for once"
    hopped = flight("http://b.org/robots.txt", purpose=Purpose.ROBOTS, authority="http://a.org")
    assert clearance.check(hopped, 8.0) == Proceed("http://b.org/robots.txt")
    clearance.store_robots_result(
        hopped, RobotsFetch("http://b.org/robots.txt", 200, body=RULES), 8.0, 0.0
    )
    assert clearance.check(flight(), 9.0) == Proceed("http://a.org/page")


def test_what_another_worker_has_learned_is_read_again_and_asked_for_again(clearance):
    one = flight()
    clearance.check(one, 0.0)
    clearance.store_robots_result(one, answer(301, target="http://b.org/robots.txt"), 0.0, 0.0)
    clearance.check(flight(), 1.0)
    clearance.drop_robots("http://a.org")
    again = clearance.check(flight(), 2.0)
    assert isinstance(again, Skip) and again.robots_candidate is not None


def test_a_redirect_to_where_we_may_not_go_forbids_everything(clearance):
    one = flight()
    clearance.check(one, 0.0)
    clearance.store_robots_result(one, answer(301, target="http://10.0.0.1/robots.txt"), 0.0, 0.0)
    nowhere = clearance.check(flight(), 1.0)
    assert isinstance(nowhere, Skip) and nowhere.verdict == PutBack()
    refused = clearance.check(flight(), 2.0)
    assert isinstance(refused, Skip) and isinstance(refused.verdict, Dead)
    assert "http://10.0.0.1/robots.txt" in refused.verdict.reason


def test_a_name_that_leads_inside_is_judged_like_an_inside_address(clearance):
    one = flight()
    clearance.check(one, 0.0)
    clearance.store_robots_result(one, answer(301, target="http://b.org/robots.txt"), 0.0, 0.0)
    clearance.check(flight(), 1.0)
    hopped = flight("http://b.org/robots.txt", purpose=Purpose.ROBOTS, authority="http://a.org")
    clearance.check(hopped, 2.0)
    clearance.store_robots_result(
        hopped, RobotsFetch("http://b.org/robots.txt", error=ADDRESS_REFUSED), 2.0, 0.0
    )
    refused = clearance.check(flight(), 3.0)
    assert isinstance(refused, Skip) and isinstance(refused.verdict, Dead)
    assert "http://b.org/robots.txt" in refused.verdict.reason


def left_pattern(clearance, yields) -> None:
    first = flight()
    clearance.check(first, 0.0)
    clearance.store_robots_result(first, answer(404), 0.0, 0.0)
    for number in range(2):
        found = flight(f"http://a.org/day/{number}", depth=1)
        assert clearance.check(found, 1.0) == Proceed(f"http://a.org/day/{number}")
        yields.record_page(found.lease.candidate, is_new=False, now=1.0)


def test_a_url_whose_pattern_brings_nothing_new_ends_unfetched(clearance, yields):
    left_pattern(clearance, yields)
    left = clearance.check(flight("http://a.org/day/7", depth=1), 2.0)
    assert left == Skip(Done(), "pattern /day/#: nothing new in its last 2 pages")
    assert clearance.check(flight("http://a.org/night/7", depth=1), 2.0) == Proceed(
        "http://a.org/night/7"
    )


def test_one_url_of_it_is_tried_now_and_then(clearance, yields):
    left_pattern(clearance, yields)
    assert isinstance(clearance.check(flight("http://a.org/day/8", depth=1), 61.0), Proceed)
    assert isinstance(clearance.check(flight("http://a.org/day/9", depth=1), 62.0), Skip)


def test_a_lease_that_must_fetch_robots_txt_is_no_try(clearance, yields):
    left_pattern(clearance, yields)
    over = 90_000.0  # what is known of robots.txt has ended
    one = flight("http://a.org/day/8", depth=1)
    assert clearance.check(one, over) == Proceed("http://a.org/robots.txt")
    clearance.store_robots_result(one, answer(404), over, 0.0)
    again = clearance.check(flight("http://a.org/day/8", depth=1), over + 1)
    assert again == Proceed("http://a.org/day/8")


def test_what_a_person_named_is_fetched_in_any_case(clearance, yields):
    left_pattern(clearance, yields)
    assert isinstance(clearance.check(flight("http://a.org/day/7", depth=0), 2.0), Proceed)
    own = flight("http://a.org/day/7", depth=3, request=b"of a spider")
    assert isinstance(clearance.check(own, 2.0), Proceed)

"""What a lease is used for: its page, a robots.txt, or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from crawler.config.settings import ContentSettings, PatternSettings, RobotsSettings
from crawler.data.local_stores import LocalPatternStats, LocalSeedLimits, Soft404Records
from crawler.frontier.memory_store import MemoryStore
from crawler.loop.life import Plan
from crawler.loop.precheck import HOP_WAIT_S, PAUSE_LOOK_S, OtherWorkers, Precheck, Probes, Skip
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
from crawler.policy.operator_rules import NO_RULES, read_rules
from crawler.policy.refusal import Reason, Refusal
from crawler.policy.robots_cache import (
    ADDRESS_REFUSED,
    RobotsCache,
    RobotsFetchResult,
    RobotsRecord,
)

RULES = b"User-agent: *\nDisallow: /private\nCrawl-delay: 7\n"


class Records(dict[str, RobotsRecord]):
    def put(self, record: RobotsRecord) -> None:
        self[record.authority] = record


NO_LIMITS = LocalSeedLimits(lambda _: None, 0)  # of seeds


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


def lease(url: str = "http://a.org/page", **given: Any) -> Lease:
    host = split(url).hostname
    return Lease(1, Candidate(url, 1, HostKey(host), host, **given), Pace(), 0.0)


def hop_lease() -> Lease:
    return lease("http://b.org/robots.txt", purpose=Purpose.ROBOTS, authority="http://a.org")


def url_of(decided: Plan | Skip) -> str:
    return decided.url if isinstance(decided, Plan) else decided.reason


@pytest.fixture
def stats() -> LocalPatternStats:
    return LocalPatternStats(
        MemoryStore(), PatternSettings(pattern_barren_pages=2, pattern_probe_s=60.0)
    )


def no_probes() -> Probes:
    return Probes(Soft404Records(MemoryStore()), lambda: "name", ContentSettings())


@pytest.fixture
def precheck(stats: LocalPatternStats) -> Precheck:
    robots = RobotsCache(Records(), "Gossamer", RobotsSettings())
    return Precheck(robots, hop, stats, NO_LIMITS, no_probes(), NO_RULES.of_url)


def answer(status: int, body: bytes = b"", target: str | None = None) -> RobotsFetchResult:
    return RobotsFetchResult("http://a.org/robots.txt", status, target=target, body=body)


def test_robots_txt_comes_before_anything_else_of_a_host(precheck):
    first = precheck.check(lease(), 0.0)
    assert url_of(first) == "http://a.org/robots.txt"
    assert (first.purpose, first.authority) == (Purpose.ROBOTS, "http://a.org")


def test_allowed_urls_are_fetched_with_the_crawl_delay(precheck):
    first = precheck.check(lease(), 0.0)
    learned_s = precheck.store_robots_result(first, answer(200, RULES), 0.0, 0.0)
    assert learned_s == 7.0, "the rest after robots.txt itself is its crawl-delay"
    second = precheck.check(lease(), 1.0)
    assert (second.url, second.crawl_delay_s) == ("http://a.org/page", 7.0)


def test_forbidden_urls_end_unfetched(precheck):
    first = precheck.check(lease(), 0.0)
    precheck.store_robots_result(first, answer(200, RULES), 0.0, 0.0)
    refused = precheck.check(lease("http://a.org/private/x"), 1.0)
    assert isinstance(refused, Skip)
    assert refused.verdict == Done()
    assert "/private" in refused.reason


def test_an_unreachable_robots_txt_makes_dead_letters_in_the_end(precheck):
    for tries in range(RobotsSettings().robots_tries):
        one = precheck.check(lease(), float(tries))
        assert url_of(one) == "http://a.org/robots.txt"
        precheck.store_robots_result(one, answer(503), float(tries), 0.0)
    refused = precheck.check(lease(), 9.0)
    assert isinstance(refused, Skip)
    assert isinstance(refused.verdict, Dead)
    assert "503" in refused.verdict.reason


def test_a_redirect_on_the_same_host_is_fetched_under_the_next_lease(precheck):
    one = precheck.check(lease(), 0.0)
    precheck.store_robots_result(one, answer(301, target="http://a.org/r.txt"), 0.0, 0.0)
    assert url_of(precheck.check(lease(), 1.0)) == "http://a.org/r.txt"


def test_a_robots_redirect_to_another_host_waits_for_that_host(precheck):
    one = precheck.check(lease(), 0.0)
    moved = answer(301, target="http://b.org/robots.txt")
    assert precheck.store_robots_result(one, moved, 0.0, 0.0) is None, "it is not known yet"
    waits = precheck.check(lease(), 1.0)
    assert isinstance(waits, Skip)
    behind_its_equals = PutBack(is_first=False)
    assert (waits.verdict, waits.rest_s) == (behind_its_equals, HOP_WAIT_S)
    assert waits.robots_candidate is not None and waits.robots_candidate.host == "b.org"
    again = precheck.check(lease(), 7.0)
    assert isinstance(again, Skip) and again.robots_candidate is None, "it is asked for once"
    assert again.rest_s == 2 * HOP_WAIT_S
    hopped = precheck.check(hop_lease(), 8.0)
    assert url_of(hopped) == "http://b.org/robots.txt"
    found = RobotsFetchResult("http://b.org/robots.txt", 200, body=RULES)
    learned_s = precheck.store_robots_result(hopped, found, 8.0, 0.0)
    assert learned_s is None, "b.org rests by its own crawl-delay, not by that of a.org"
    plan = precheck.check(lease(), 9.0)
    assert (plan.url, plan.crawl_delay_s) == ("http://a.org/page", 7.0)
    late = precheck.check(hop_lease(), 9.0)
    assert isinstance(late, Skip) and late.verdict == Done(), "what it is for is known"


def test_it_is_known_while_a_host_rests_for_a_pause(stats):
    rules = read_rules('[[rule]]\nfor = "a.org"\npaused = true\n', 1)
    robots = RobotsCache(Records(), "Gossamer", RobotsSettings())
    precheck = Precheck(robots, hop, stats, NO_LIMITS, no_probes(), rules.of_url)
    assert not precheck.rests_for_pause(1.0)
    paused = precheck.check(lease(), 1.0)
    assert isinstance(paused, Skip) and paused.verdict == PutBack()
    assert precheck.rests_for_pause(PAUSE_LOOK_S)
    assert not precheck.rests_for_pause(1.0 + PAUSE_LOOK_S), "its rule is looked at again"
    assert precheck.take_paused() == {"a.org": 1.0 + PAUSE_LOOK_S}
    assert not precheck.rests_for_pause(1.0), "other rules have come"


def test_a_robots_txt_on_the_host_of_another_worker_is_sent_to_the_one_that_asked(stats):
    """a.org is of the first worker, b.org of the second."""

    def worker(own: str) -> Precheck:
        robots = RobotsCache(Records(), "Gossamer", RobotsSettings())
        others = OtherWorkers(lambda each: each != own, lambda *each: sent.append(each))
        return Precheck(robots, hop, stats, NO_LIMITS, no_probes(), NO_RULES.of_url, others)

    sent: list[tuple[str, RobotsFetchResult]] = []
    first, second = worker("http://a.org"), worker("http://b.org")
    one = first.check(lease(), 0.0)
    first.store_robots_result(one, answer(301, target="http://b.org/robots.txt"), 0.0, 0.0)
    first.check(lease(), 1.0)
    assert sent == []
    for status in (503, 200):
        hopped = second.check(hop_lease(), 8.0)
        assert url_of(hopped) == "http://b.org/robots.txt", "asked for again, whatever it knows"
        found = RobotsFetchResult("http://b.org/robots.txt", status, body=RULES)
        second.store_robots_result(hopped, found, 8.0, 0.0)
        assert sent.pop() == ("http://a.org", found)
        first.take_robots_result("http://a.org", found, 9.0)
        if status == 503:
            again = first.check(lease(), 9.0)
            assert isinstance(again, Skip) and again.robots_candidate is not None
    plan = first.check(lease(), 10.0)
    assert (plan.url, plan.crawl_delay_s) == ("http://a.org/page", 7.0)
    second.give_up_robots("http://a.org", "it never answered", 11.0)
    ((authority, given_up),) = sent
    assert (authority, given_up.error) == ("http://a.org", "it never answered")


def test_a_redirect_to_where_we_may_not_go_forbids_everything(precheck):
    one = precheck.check(lease(), 0.0)
    precheck.store_robots_result(one, answer(301, target="http://10.0.0.1/robots.txt"), 0.0, 0.0)
    nowhere = precheck.check(lease(), 1.0)
    assert isinstance(nowhere, Skip) and nowhere.verdict == PutBack()
    refused = precheck.check(lease(), 2.0)
    assert isinstance(refused, Skip) and isinstance(refused.verdict, Dead)
    assert "http://10.0.0.1/robots.txt" in refused.verdict.reason


def test_a_name_with_an_inside_address_is_refused_like_the_address(precheck):
    one = precheck.check(lease(), 0.0)
    precheck.store_robots_result(one, answer(301, target="http://b.org/robots.txt"), 0.0, 0.0)
    precheck.check(lease(), 1.0)
    hopped = precheck.check(hop_lease(), 2.0)
    precheck.store_robots_result(
        hopped, RobotsFetchResult("http://b.org/robots.txt", error=ADDRESS_REFUSED), 2.0, 0.0
    )
    refused = precheck.check(lease(), 3.0)
    assert isinstance(refused, Skip) and isinstance(refused.verdict, Dead)
    assert "http://b.org/robots.txt" in refused.verdict.reason


def left_pattern(precheck, stats) -> None:
    first = precheck.check(lease(), 0.0)
    precheck.store_robots_result(first, answer(404), 0.0, 0.0)
    for number in range(2):
        found = precheck.check(lease(f"http://a.org/day/{number}", depth=1), 1.0)
        assert url_of(found) == f"http://a.org/day/{number}"
        stats.record_page(found.lease.candidate, is_new=False, now=1.0)


def test_a_url_of_a_stopped_pattern_ends_unfetched(precheck, stats):
    left_pattern(precheck, stats)
    left = precheck.check(lease("http://a.org/day/7", depth=1), 2.0)
    assert left == Skip(Done(), "pattern /day/#: nothing new in its last 2 pages")
    other = precheck.check(lease("http://a.org/night/7", depth=1), 2.0)
    assert url_of(other) == "http://a.org/night/7"


def test_a_stopped_pattern_is_probed_regularly(precheck, stats):
    left_pattern(precheck, stats)
    assert isinstance(precheck.check(lease("http://a.org/day/8", depth=1), 61.0), Plan)
    assert isinstance(precheck.check(lease("http://a.org/day/9", depth=1), 62.0), Skip)


def test_a_lease_that_must_fetch_robots_txt_is_no_try(precheck, stats):
    left_pattern(precheck, stats)
    over = 90_000.0  # what is known of robots.txt has ended
    one = precheck.check(lease("http://a.org/day/8", depth=1), over)
    assert url_of(one) == "http://a.org/robots.txt"
    precheck.store_robots_result(one, answer(404), over, 0.0)
    again = precheck.check(lease("http://a.org/day/8", depth=1), over + 1)
    assert url_of(again) == "http://a.org/day/8"


def test_seeds_and_requests_are_fetched_in_any_case(precheck, stats):
    left_pattern(precheck, stats)
    assert isinstance(precheck.check(lease("http://a.org/day/7", depth=0), 2.0), Plan)
    own = lease("http://a.org/day/7", depth=3, request=b"of a spider")
    assert isinstance(precheck.check(own, 2.0), Plan)

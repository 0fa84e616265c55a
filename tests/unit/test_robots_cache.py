"""The robots.txt verdict on a URL: verdicts, memory, the store behind it, and the decision table of
fetch results."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import RobotsSettings
from crawler.policy.robots import RobotsRules
from crawler.policy.robots_cache import (
    HOST_FAILED,
    RobotsAllowed,
    RobotsAnswer,
    RobotsCache,
    RobotsDisallowed,
    RobotsFetchResult,
    RobotsRecord,
    RobotsState,
    RobotsUnknown,
    RobotsUnreachable,
    record_after,
    robots_answer,
    unknown_record,
    unreachable_record,
)

NOW = 1e9
HOUR_S = 3600.0
DAY_S = 86_400.0
SITE = "http://example.com"
FILE = SITE + "/robots.txt"
BODY = b"User-agent: *\nDisallow: /no\nAllow: /no/yes\nCrawl-delay: 3\nSitemap: /s.xml\n"


class MemoryStore:
    """Records in a dictionary."""

    def __init__(self) -> None:
        self.records: dict[str, RobotsRecord] = {}
        self.reads = 0

    def get(self, authority: str) -> RobotsRecord | None:
        self.reads += 1
        return self.records.get(authority)

    def put(self, record: RobotsRecord) -> None:
        self.records[record.authority] = record


def fresh(store: MemoryStore | None = None, memory_bytes: int = 1 << 20) -> RobotsCache:
    return RobotsCache(
        store or MemoryStore(), "Gossamer", RobotsSettings(robots_tries=5), memory_bytes
    )


def taught(status: int | None, body: bytes = b"", error: str = "", times: int = 1) -> RobotsCache:
    cache = fresh()
    for _ in range(times):
        cache.store_result(SITE, RobotsFetchResult(FILE, status, error, None, body), NOW)
    return cache


def test_nothing_is_allowed_before_its_robots_txt_was_asked_for() -> None:
    assert fresh().verdict(SITE + "/a", NOW) == RobotsUnknown(FILE)
    assert fresh().verdict("https://example.com:8443/", NOW) == RobotsUnknown(
        "https://example.com:8443/robots.txt"
    )


def test_a_file_allows_and_forbids_with_its_reason() -> None:
    cache = taught(200, BODY)
    assert cache.verdict(SITE + "/a", NOW) == RobotsAllowed(3.0)
    assert cache.verdict(SITE + "/no/a", NOW) == RobotsDisallowed("line 2: Disallow: /no")
    assert cache.verdict(SITE + "/no/yes", NOW) == RobotsAllowed(3.0, "line 3: Allow: /no/yes")
    assert cache.rules(SITE).sitemaps == ("/s.xml",)


def test_a_file_holds_for_its_own_scheme_host_and_port_only() -> None:
    cache = taught(404)
    for other in ("https://example.com", "http://example.com:8080", "http://www.example.com"):
        assert isinstance(cache.verdict(other + "/a", NOW), RobotsUnknown)


def test_a_page_is_no_rule_book() -> None:
    cache = taught(200, b"<!doctype html>\n<pre>\nUser-agent: *\nDisallow: /\n</pre>")
    assert cache.verdict(SITE + "/no", NOW) == RobotsAllowed()


@pytest.mark.parametrize(("body", "kind"), [(b"", RobotsAnswer.TROUBLE), (BODY, RobotsAnswer.FILE)])
def test_an_accepted_request_is_no_answer_without_a_file(body: bytes, kind: RobotsAnswer) -> None:
    assert robots_answer(RobotsFetchResult(FILE, 202, body=body)) is kind


def test_a_challenge_forbids_everything_as_trouble_does() -> None:
    cache = fresh()
    challenged = RobotsFetchResult(FILE, 403, "challenge", detail="Cloudflare")
    for _ in range(5):
        cache.store_result(SITE, challenged, NOW)
    assert cache.verdict(SITE + "/a", NOW) == RobotsUnreachable(
        NOW + HOUR_S, "challenge: Cloudflare"
    )


def test_no_file_allows_everything() -> None:
    assert taught(404).verdict(SITE + "/no", NOW) == RobotsAllowed()


def test_trouble_forbids_everything_and_is_asked_again() -> None:
    assert taught(503, times=4).verdict(SITE + "/a", NOW) == RobotsUnknown(FILE)
    assert taught(503, times=5).verdict(SITE + "/a", NOW) == RobotsUnreachable(
        NOW + HOUR_S, "status 503"
    )
    assert taught(503, times=5).verdict(SITE + "/a", NOW + HOUR_S) == RobotsUnknown(FILE)


def test_unreachable_lasts_from_the_end_of_the_hosts_rest() -> None:
    cache = fresh()
    for _ in range(5):
        cache.store_result(SITE, RobotsFetchResult(FILE, error="connect"), NOW, rest_s=HOUR_S)
    assert isinstance(cache.verdict(SITE + "/a", NOW + 1.9 * HOUR_S), RobotsUnreachable)
    assert isinstance(cache.verdict(SITE + "/a", NOW + 2 * HOUR_S), RobotsUnknown)


def test_a_redirect_is_fetched_from_its_own_host_and_holds_for_ours() -> None:
    cache, there = fresh(), "https://example.org/robots.txt"
    record = cache.store_result(SITE, RobotsFetchResult(FILE, 301, target=there), NOW)
    assert (record.kind, record.next_url) == (RobotsState.PENDING, there)
    assert cache.verdict(SITE + "/no", NOW) == RobotsUnknown(there)
    cache.store_result(SITE, RobotsFetchResult(there, 200, body=BODY), NOW)
    assert isinstance(cache.verdict(SITE + "/no", NOW), RobotsDisallowed)
    assert cache.verdict("https://example.org/no", NOW) == RobotsUnknown(there)


def test_a_redirect_that_was_never_followed_is_begun_anew() -> None:
    cache = fresh()
    cache.store_result(
        SITE, RobotsFetchResult(FILE, 301, target="https://example.org/robots.txt"), NOW
    )
    assert cache.verdict(SITE + "/no", NOW + HOUR_S) == RobotsUnknown(FILE)


def test_a_verdict_holds_for_a_day_and_not_under_a_clock_set_back() -> None:
    cache = taught(200, BODY)
    assert isinstance(cache.verdict(SITE + "/a", NOW + DAY_S - 1), RobotsAllowed)
    assert cache.verdict(SITE + "/a", NOW + DAY_S) == RobotsUnknown(FILE)
    assert cache.verdict(SITE + "/a", NOW - 1) == RobotsUnknown(FILE)


def test_an_old_copy_is_used_while_there_is_trouble() -> None:
    cache = taught(200, BODY)
    later = NOW + DAY_S
    cache.store_result(SITE, RobotsFetchResult(FILE, 503), later)
    assert isinstance(cache.verdict(SITE + "/no", later), RobotsDisallowed)
    assert isinstance(cache.verdict(SITE + "/a", later), RobotsAllowed)
    assert isinstance(cache.verdict(SITE + "/a", later + HOUR_S), RobotsUnknown)


def test_a_lost_host_is_given_up_for_a_while_even_with_a_good_copy() -> None:
    cache = taught(200, BODY)
    cache.give_up(SITE, "lost", NOW, rest_s=10)
    assert cache.verdict(SITE + "/a", NOW) == RobotsUnreachable(NOW + 10 + HOUR_S, "lost")
    assert cache.verdict(SITE + "/a", NOW + 10 + HOUR_S) == RobotsUnknown(FILE)


def test_a_lost_host_that_answers_again_is_asked_for_its_file() -> None:
    cache = taught(200, BODY)
    cache.give_up(SITE, f"{HOST_FAILED}: connect", NOW)
    cache.end_giving_up(SITE, NOW + 60)
    assert cache.verdict(SITE + "/a", NOW + 60) == RobotsUnknown(FILE)
    cache.store_result(SITE, RobotsFetchResult(FILE, 503), NOW + 120)
    assert cache.verdict(SITE + "/a", NOW + 120) == RobotsUnknown(FILE), "it has all its tries"


def test_a_file_that_is_unreachable_by_itself_is_not_asked_for_when_its_host_answers() -> None:
    cache = taught(503, times=5)
    cache.end_giving_up(SITE, NOW)
    assert isinstance(cache.verdict(SITE + "/a", NOW), RobotsUnreachable)


def test_records_outlive_the_process() -> None:
    store = MemoryStore()
    fresh(store).store_result(SITE, RobotsFetchResult(FILE, 200, body=BODY), NOW)
    assert isinstance(fresh(store).verdict(SITE + "/no", NOW), RobotsDisallowed)


def test_the_store_is_read_once() -> None:
    store = MemoryStore()
    cache = fresh(store)
    cache.store_result(SITE, RobotsFetchResult(FILE, 200, body=BODY), NOW)
    before = store.reads
    for _ in range(10):
        cache.verdict(SITE + "/a", NOW)
    assert store.reads == before


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=60))
def test_memory_is_bounded_and_forgets_the_least_used_but_no_verdict(
    steps: list[tuple[int, int]],
) -> None:
    store = MemoryStore()
    cache = fresh(store, memory_bytes=5000)
    bodies = [b"User-agent: *\n" + b"Disallow: /%d\n" % size * size for size in range(4)]
    known: dict[str, bytes] = {}
    for number, size in steps:
        site = f"http://h{number}.example"
        if site not in known or size == 0:
            known[site] = bodies[size]
            cache.store_result(
                site, RobotsFetchResult(site + "/robots.txt", 200, body=bodies[size]), NOW
            )
        allowed = RobotsRules.parse(known[site], "Gossamer").allowed(site + "/3")
        assert isinstance(cache.verdict(site + "/3", NOW), RobotsAllowed) == allowed
        assert cache.size_bytes <= 5000 or len(cache) == 1
    assert set(store.records) == set(known)


def test_the_least_recently_asked_for_is_forgotten_first() -> None:
    store = MemoryStore()
    cache = fresh(store, memory_bytes=1200)
    for name in ("a", "b"):
        cache.store_result(
            f"http://{name}", RobotsFetchResult(f"http://{name}/robots.txt", 404), NOW
        )
    cache.verdict("http://a/", NOW)
    cache.store_result("http://c", RobotsFetchResult("http://c/robots.txt", 404), NOW)
    before = store.reads
    cache.verdict("http://a/", NOW)
    assert store.reads == before
    cache.verdict("http://b/", NOW)
    assert store.reads == before + 1


def test_a_new_record_replaces_the_old() -> None:
    once, often = taught(200, BODY), taught(200, BODY, times=5)
    assert (len(often), often.size_bytes) == (1, once.size_bytes)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="no rules"),
        pytest.param(BODY, id="a usual file"),
        pytest.param(
            b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % i for i in range(200)), id="plain"
        ),
        pytest.param(
            b"User-agent: *\n" + b"".join(b"Allow: /*a%d$\n" % i for i in range(200)), id="stars"
        ),
        pytest.param(
            b"".join(b"Sitemap: https://example.com/%d\n" % i for i in range(200)), id="sitemaps"
        ),
    ],
)
def test_the_size_it_counts_with_is_the_size_it_has(body: bytes) -> None:
    cache = fresh(memory_bytes=1 << 30)
    names = [f"http://host{number}.example" for number in range(20)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for name in names:
        cache.store_result(name, RobotsFetchResult(name + "/robots.txt", 200, body=body), NOW)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = after - before - 20 * len(body)  # the store keeps the bodies; here they are shared
    assert held < 1.5 * cache.size_bytes
    assert cache.size_bytes < 3 * (after - before)


ELSEWHERE = "https://www.example.org/robots.txt"
RULES = RobotsSettings(robots_tries=5)


def got(status: int | None = None, *, url: str = FILE, error: str = "", to: str | None = None,
        body: bytes = b"") -> RobotsFetchResult:  # fmt: skip
    return RobotsFetchResult(url, status, error, to, body)


@pytest.mark.parametrize(
    ("fetch", "want"),
    [
        pytest.param(got(200), RobotsAnswer.FILE, id="200: the file"),
        pytest.param(got(204), RobotsAnswer.FILE, id="204: the file, and it is empty"),
        pytest.param(got(301, to=ELSEWHERE), RobotsAnswer.MOVED, id="301: look there"),
        pytest.param(got(308, to=ELSEWHERE), RobotsAnswer.MOVED, id="308: look there"),
        pytest.param(got(301), RobotsAnswer.ABSENT, id="a redirect to nowhere"),
        pytest.param(got(302, to=FILE), RobotsAnswer.ABSENT, id="a redirect to itself"),
        pytest.param(
            got(304), RobotsAnswer.ABSENT, id="304, though the request was not conditional"
        ),
        pytest.param(got(300, to=ELSEWHERE), RobotsAnswer.ABSENT, id="300 leaves the choice to us"),
        pytest.param(got(401), RobotsAnswer.ABSENT, id="401 is a 4xx: unavailable, not forbidden"),
        pytest.param(got(403), RobotsAnswer.ABSENT, id="403 too"),
        pytest.param(got(404), RobotsAnswer.ABSENT, id="404: there is none"),
        pytest.param(got(410), RobotsAnswer.ABSENT, id="410: there is none"),
        pytest.param(
            got(429), RobotsAnswer.TROUBLE, id="429: overloaded, whatever its first digit"
        ),
        pytest.param(got(500), RobotsAnswer.TROUBLE, id="500"),
        pytest.param(got(503), RobotsAnswer.TROUBLE, id="503"),
        pytest.param(got(999), RobotsAnswer.TROUBLE, id="a status that does not exist"),
        pytest.param(got(101), RobotsAnswer.TROUBLE, id="a status that makes no sense here"),
        pytest.param(got(error="timeout"), RobotsAnswer.TROUBLE, id="no answer in time"),
        pytest.param(got(error="connect"), RobotsAnswer.TROUBLE, id="no connection"),
        pytest.param(got(error="dns"), RobotsAnswer.TROUBLE, id="no address"),
        pytest.param(got(), RobotsAnswer.TROUBLE, id="no answer"),
        pytest.param(
            got(200, error="protocol", body=b"User-agent"), RobotsAnswer.TROUBLE, id="half a file"
        ),
        pytest.param(got(error="cancelled"), RobotsAnswer.NOTHING, id="we stopped"),
    ],
)
def test_the_result_of_a_fetch(fetch: RobotsFetchResult, want: RobotsAnswer) -> None:
    assert robots_answer(fetch) is want


@dataclass
class Authority:
    """One authority and its record; each fetch is a minute after the last."""

    now: float = 1e9
    record: RobotsRecord = field(default_factory=lambda: unknown_record(SITE, 1e9))

    def learn(self, *fetches: RobotsFetchResult) -> RobotsRecord:
        for fetch in fetches:
            self.now += 60
            self.record = record_after(self.record, fetch, RULES, self.now, self.now + HOUR_S)
        return self.record


def test_a_file_is_kept_for_a_day() -> None:
    authority = Authority()
    want = RobotsRecord(SITE, RobotsState.RULES, 1e9 + 60, 1e9 + 60 + DAY_S, b"User-agent: *")
    assert authority.learn(got(200, body=b"User-agent: *")) == want


def test_a_file_is_kept_up_to_the_limit() -> None:
    record = Authority().learn(got(200, body=b"#" * 600_000))
    assert len(record.body or b"") == RULES.robots_max_bytes


def test_an_absent_file_allows_everything_for_a_day() -> None:
    record = Authority().learn(got(404))
    assert (record.kind, record.reason) == (RobotsState.ALLOW_ALL, "status 404, after 0 redirects")
    assert record.expires_at == record.fetched_at + DAY_S


def test_trouble_is_tried_five_times_and_then_kept_for_an_hour() -> None:
    authority = Authority()
    for tries in range(1, 5):
        record = authority.learn(got(503))
        assert (record.kind, record.tries, record.next_url) == (RobotsState.PENDING, tries, FILE)
    record = authority.learn(got(error="timeout"))
    assert (record.kind, record.reason) == (RobotsState.UNREACHABLE, "timeout")
    assert record.expires_at == authority.now + HOUR_S


def test_after_the_hour_one_more_failure_is_enough() -> None:
    authority = Authority()
    authority.learn(*[got(503)] * 5)
    assert authority.learn(got(503)).kind is RobotsState.UNREACHABLE


def test_an_answer_ends_the_row_of_failures() -> None:
    authority = Authority()
    assert authority.learn(*[got(503)] * 4, got(404)).tries == 0
    assert authority.learn(*[got(503)] * 4).kind is RobotsState.PENDING


def test_a_good_copy_is_used_while_the_file_is_unreachable() -> None:
    authority = Authority()
    good = authority.learn(got(200, body=b"old"))
    record = authority.learn(*[got(503)] * 9)
    assert (record.kind, record.body, record.fetched_at) == (
        RobotsState.RULES,
        b"old",
        good.fetched_at,
    )
    assert record.expires_at == authority.now + HOUR_S  # when it is asked for again


def test_an_empty_file_is_a_good_copy() -> None:
    assert Authority().learn(got(200), *[got(503)] * 9).kind is RobotsState.RULES


def test_a_good_copy_survives_redirects_into_trouble() -> None:
    authority = Authority()
    assert (
        authority.learn(got(200, body=b"old"), got(301, to=ELSEWHERE)).kind is RobotsState.PENDING
    )
    record = authority.learn(got(503, url=ELSEWHERE))
    assert (record.kind, record.body) == (RobotsState.RULES, b"old")


def test_an_absent_file_is_no_good_copy() -> None:
    authority = Authority()
    assert authority.learn(got(404), *[got(503)] * 5).kind is RobotsState.UNREACHABLE


def test_a_redirect_is_followed_for_the_authority_that_was_asked() -> None:
    authority = Authority()
    record = authority.learn(got(301, to=ELSEWHERE))
    assert (record.kind, record.next_url, record.hops) == (RobotsState.PENDING, ELSEWHERE, 1)
    record = authority.learn(got(200, url=ELSEWHERE, body=b"theirs"))
    assert (record.authority, record.kind, record.body) == (SITE, RobotsState.RULES, b"theirs")


def test_trouble_at_a_hop_is_tried_again_at_that_hop() -> None:
    authority = Authority()
    record = authority.learn(got(301, to=ELSEWHERE), got(503, url=ELSEWHERE))
    assert (record.kind, record.next_url, record.hops) == (RobotsState.PENDING, ELSEWHERE, 1)
    record = authority.learn(*[got(503, url=ELSEWHERE)] * 4)
    assert record.kind is RobotsState.UNREACHABLE


def redirects(count: int) -> list[RobotsFetchResult]:
    urls = [FILE, *(f"http://h{hop}.example/robots.txt" for hop in range(count))]
    return [got(302, url=here, to=there) for here, there in pairwise(urls)]


def test_hops_are_counted_from_the_file_each_time() -> None:
    authority = Authority()
    assert authority.learn(got(301, to=ELSEWHERE)).hops == 1
    assert authority.learn(got(301, to=ELSEWHERE)).hops == 1  # the turn of the first never came
    authority.learn(got(200, url=ELSEWHERE), got(301, to=ELSEWHERE), got(503, url=ELSEWHERE))
    assert authority.record.kind is RobotsState.RULES
    assert authority.learn(got(301, to=ELSEWHERE)).hops == 1


def test_five_redirects_are_followed() -> None:
    hops = redirects(5)
    record = Authority().learn(*hops, got(200, url=hops[-1].target or "", body=b"at last"))
    assert (record.kind, record.body) == (RobotsState.RULES, b"at last")


def test_six_redirects_are_as_good_as_no_file() -> None:
    record = Authority().learn(*redirects(6))
    assert (record.kind, record.reason) == (RobotsState.ALLOW_ALL, "status 302, after 5 redirects")


def test_a_loop_ends_as_six_redirects_do() -> None:
    there, back = got(302, to=ELSEWHERE), got(302, url=ELSEWHERE, to=FILE)
    assert Authority().learn(*[there, back] * 3).kind is RobotsState.ALLOW_ALL


def test_a_fetch_that_we_stopped_changes_nothing() -> None:
    authority = Authority()
    before = authority.learn(got(503))
    assert authority.learn(got(error="cancelled")) is before


def test_an_authority_that_was_given_up_gets_one_try() -> None:
    authority = Authority(
        record=unreachable_record(SITE, "its host is lost", RULES, 1e9, 1e9 + HOUR_S)
    )
    assert authority.record.kind is RobotsState.UNREACHABLE
    assert authority.learn(got(error="connect")).kind is RobotsState.UNREACHABLE
    assert authority.learn(got(200)).kind is RobotsState.RULES


def test_a_record_comes_back_from_disk_as_it_was() -> None:
    authority = Authority()
    for fetch in (got(503), got(301, to=ELSEWHERE), got(200, body=b"\xff\x00"), got(503), got(404)):
        record = authority.learn(fetch)
        packed = msgspec.msgpack.encode(record)
        assert msgspec.msgpack.decode(packed, type=RobotsRecord) == record
        assert msgspec.json.decode(msgspec.json.encode(record), type=RobotsRecord) == record

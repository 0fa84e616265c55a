"""What robots.txt says about a URL now: verdicts, memory, and a store behind it."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config.settings import RobotsSettings
from crawler.policy.robots import Rules
from crawler.policy.robots_cache import (
    Allowed,
    Disallowed,
    RobotsCache,
    RobotsFetch,
    RobotsRecord,
    RobotsState,
    RobotsUnreachable,
    Unknown,
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
    return RobotsCache(store or MemoryStore(), "Gossamer", RobotsSettings(), memory_bytes)


def taught(status: int | None, body: bytes = b"", error: str = "", times: int = 1) -> RobotsCache:
    cache = fresh()
    for _ in range(times):
        cache.store_result(SITE, RobotsFetch(FILE, status, error, None, body), NOW)
    return cache


def test_nothing_is_allowed_before_its_robots_txt_was_asked_for() -> None:
    assert fresh().verdict(SITE + "/a", NOW) == Unknown(FILE)
    assert fresh().verdict("https://example.com:8443/", NOW) == Unknown(
        "https://example.com:8443/robots.txt"
    )


def test_a_file_allows_and_forbids_and_says_why() -> None:
    cache = taught(200, BODY)
    assert cache.verdict(SITE + "/a", NOW) == Allowed(3.0)
    assert cache.verdict(SITE + "/no/a", NOW) == Disallowed("line 2: Disallow: /no")
    assert cache.verdict(SITE + "/no/yes", NOW) == Allowed(3.0, "line 3: Allow: /no/yes")
    assert cache.rules(SITE).sitemaps == ("/s.xml",)


def test_a_file_speaks_for_its_own_scheme_host_and_port_only() -> None:
    cache = taught(404)
    for other in ("https://example.com", "http://example.com:8080", "http://www.example.com"):
        assert isinstance(cache.verdict(other + "/a", NOW), Unknown)


def test_no_file_allows_everything() -> None:
    assert taught(404).verdict(SITE + "/no", NOW) == Allowed()


def test_trouble_forbids_everything_and_is_asked_again() -> None:
    assert taught(503, times=4).verdict(SITE + "/a", NOW) == Unknown(FILE)
    assert taught(503, times=5).verdict(SITE + "/a", NOW) == RobotsUnreachable(
        NOW + HOUR_S, "status 503"
    )
    assert taught(503, times=5).verdict(SITE + "/a", NOW + HOUR_S) == Unknown(FILE)


def test_unreachable_lasts_from_the_end_of_the_hosts_rest() -> None:
    cache = fresh()
    for _ in range(5):
        cache.store_result(SITE, RobotsFetch(FILE, error="connect"), NOW, rest_s=HOUR_S)
    assert isinstance(cache.verdict(SITE + "/a", NOW + 1.9 * HOUR_S), RobotsUnreachable)
    assert isinstance(cache.verdict(SITE + "/a", NOW + 2 * HOUR_S), Unknown)


def test_a_redirect_is_asked_for_at_its_own_host_and_then_speaks_for_ours() -> None:
    cache, there = fresh(), "https://example.org/robots.txt"
    record = cache.store_result(SITE, RobotsFetch(FILE, 301, target=there), NOW)
    assert (record.kind, record.next_url) == (RobotsState.PENDING, there)
    assert cache.verdict(SITE + "/no", NOW) == Unknown(there)
    cache.store_result(SITE, RobotsFetch(there, 200, body=BODY), NOW)
    assert isinstance(cache.verdict(SITE + "/no", NOW), Disallowed)
    assert cache.verdict("https://example.org/no", NOW) == Unknown(there)


def test_a_redirect_whose_turn_never_came_is_begun_anew() -> None:
    cache = fresh()
    cache.store_result(SITE, RobotsFetch(FILE, 301, target="https://example.org/robots.txt"), NOW)
    assert cache.verdict(SITE + "/no", NOW + HOUR_S) == Unknown(FILE)


def test_a_verdict_holds_for_a_day_and_not_under_a_clock_set_back() -> None:
    cache = taught(200, BODY)
    assert isinstance(cache.verdict(SITE + "/a", NOW + DAY_S - 1), Allowed)
    assert cache.verdict(SITE + "/a", NOW + DAY_S) == Unknown(FILE)
    assert cache.verdict(SITE + "/a", NOW - 1) == Unknown(FILE)


def test_an_old_copy_is_used_while_there_is_trouble() -> None:
    cache = taught(200, BODY)
    later = NOW + DAY_S
    cache.store_result(SITE, RobotsFetch(FILE, 503), later)
    assert isinstance(cache.verdict(SITE + "/no", later), Disallowed)
    assert isinstance(cache.verdict(SITE + "/a", later), Allowed)
    assert isinstance(cache.verdict(SITE + "/a", later + HOUR_S), Unknown)


def test_a_lost_host_is_given_up_for_a_while_even_with_a_good_copy() -> None:
    cache = taught(200, BODY)
    cache.give_up(SITE, "lost", NOW, rest_s=10)
    assert cache.verdict(SITE + "/a", NOW) == RobotsUnreachable(NOW + 10 + HOUR_S, "lost")
    assert cache.verdict(SITE + "/a", NOW + 10 + HOUR_S) == Unknown(FILE)


def test_what_was_learned_outlives_the_process() -> None:
    store = MemoryStore()
    fresh(store).store_result(SITE, RobotsFetch(FILE, 200, body=BODY), NOW)
    assert isinstance(fresh(store).verdict(SITE + "/no", NOW), Disallowed)


def test_the_store_is_read_once() -> None:
    store = MemoryStore()
    cache = fresh(store)
    cache.store_result(SITE, RobotsFetch(FILE, 200, body=BODY), NOW)
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
            cache.store_result(site, RobotsFetch(site + "/robots.txt", 200, body=bodies[size]), NOW)
        allowed = Rules.parse(known[site], "Gossamer").allowed(site + "/3")
        assert isinstance(cache.verdict(site + "/3", NOW), Allowed) == allowed
        assert cache.size_bytes <= 5000 or len(cache) == 1
    assert set(store.records) == set(known)


def test_the_least_recently_asked_for_is_forgotten_first() -> None:
    store = MemoryStore()
    cache = fresh(store, memory_bytes=1200)
    for name in ("a", "b"):
        cache.store_result(f"http://{name}", RobotsFetch(f"http://{name}/robots.txt", 404), NOW)
    cache.verdict("http://a/", NOW)
    cache.store_result("http://c", RobotsFetch("http://c/robots.txt", 404), NOW)
    before = store.reads
    cache.verdict("http://a/", NOW)
    assert store.reads == before
    cache.verdict("http://b/", NOW)
    assert store.reads == before + 1


def test_learning_again_replaces_what_was_known() -> None:
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
        cache.store_result(name, RobotsFetch(name + "/robots.txt", 200, body=body), NOW)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    held = after - before - 20 * len(body)  # the store keeps the bodies; here they are shared
    assert held < 1.5 * cache.size_bytes
    assert cache.size_bytes < 3 * (after - before)


def test_what_is_forgotten_is_read_again() -> None:
    store = MemoryStore()
    cache = fresh(store)
    cache.store_result(SITE, RobotsFetch(FILE, 404), NOW)
    store.put(RobotsRecord(SITE, RobotsState.RULES, NOW, NOW + DAY_S, BODY))
    assert cache.verdict(SITE + "/no", NOW) == Allowed()
    cache.forget(SITE)
    assert (len(cache), cache.size_bytes) == (0, 0)
    assert isinstance(cache.verdict(SITE + "/no", NOW), Disallowed)
    cache.forget("http://never.heard.of")

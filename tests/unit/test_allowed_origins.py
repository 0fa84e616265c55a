"""Where a crawl begins, as it becomes known: from its seeds, and from other workers."""

from __future__ import annotations

import tracemalloc

import pytest

from crawler.config.arguments import Arguments, SeedTerms
from crawler.config.settings import read_config
from crawler.data.allowed_origins import AllowedOrigins
from crawler.frontier import records as keys
from crawler.frontier.memory_store import MemoryStore
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate
from crawler.policy.addresses import MOST_ORIGINS
from crawler.policy.scope import SeedHosts
from crawler.policy.seed_terms import TermsOfSeeds


def origins(
    scope: ScopeChoice = ScopeChoice.HOST, store: MemoryStore | None = None
) -> AllowedOrigins:
    config = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
    return AllowedOrigins(
        config, Arguments(seeds="redis", scope=scope), store or MemoryStore(), 7, 1e9
    )


def hosts_of(urls: list[str], scope: ScopeChoice = ScopeChoice.HOST) -> SeedHosts:
    return SeedHosts(TermsOfSeeds(SeedTerms(scope=scope)), urls)


def admits(origins: AllowedOrigins, url: str) -> bool:
    return isinstance(origins.admission.candidate(url, depth=1), Candidate)


def test_origins_are_known_once_all_seeds_are():
    alone, one_of_many = origins(), origins()
    one_of_many.wait_for_other_seeds()
    for each in (alone, one_of_many):
        assert not each.is_complete
        each.set_seeds(hosts_of(["https://a.example/"]))
    assert alone.is_complete and not one_of_many.is_complete
    one_of_many.add_seed_hosts([])
    assert one_of_many.is_complete


def test_hosts_of_other_workers_alone_do_not_complete_the_origins():
    one = origins()
    one.wait_for_other_seeds()
    one.add_seed_hosts(["a.example"])
    assert not one.is_complete


def test_hosts_opened_later_are_allowed_like_the_first():
    one = origins()
    one.set_seeds(hosts_of(["https://a.example/"]))
    one.add_seed_hosts(["b.example"])
    one.add_seed_hosts(["www.c.example", "b.example"])
    assert [admits(one, f"https://{name}.example/x") for name in "abcd"] == [True] * 3 + [False]


def test_the_seeds_do_not_close_what_others_have_opened():
    one = origins()
    one.add_seed_hosts(["b.example"])
    one.set_seeds(hosts_of(["https://a.example/"]))
    assert admits(one, "https://b.example/x")


def test_a_domain_is_open_with_all_its_hosts():
    one = origins(ScopeChoice.DOMAIN)
    one.add_seed_hosts(["www.a.example"])
    assert admits(one, "https://other.a.example/") and not admits(one, "https://b.example/")


LOCAL, OTHER_PORT, OTHER_HOST = (
    f"http://{origin}/x" for origin in ("127.0.0.1:8000", "127.0.0.1:6379", "127.0.0.2:8000")
)


def test_a_seed_opens_its_own_host_and_port(caplog):
    one = origins(ScopeChoice.ANY)
    with caplog.at_level("INFO"):
        one.set_seeds(hosts_of(["http://127.0.0.1:8000/"]))
    assert [admits(one, url) for url in (LOCAL, OTHER_PORT, OTHER_HOST)] == [True, False, False]
    assert one.admits("127.0.0.1", "127.0.0.1", 8000)
    assert not one.admits("127.0.0.1", "127.0.0.1", 6379)
    assert "127.0.0.1:8000" in caplog.text


def test_a_fetched_list_opens_nothing():
    one = origins(ScopeChoice.ANY)
    one.set_seeds(hosts_of(["http://127.0.0.1:8000/", "https://a.example/"]), fetched=True)
    assert not admits(one, LOCAL)
    assert admits(one, "https://a.example/x")


def test_pushed_urls_do_not_allow_loopback():
    one = origins(ScopeChoice.HOST)
    one.set_seeds(hosts_of(["https://a.example/"]))
    one.add_seed_hosts(["127.0.0.1"])
    assert not admits(one, LOCAL)


def test_origins_of_a_spider_stay_allowed_at_its_next_start():
    def of_a_spider() -> AllowedOrigins:
        return AllowedOrigins(read_config({}), None, store, 7, 1e9)

    store = MemoryStore()
    of_a_spider().allow_start_url("http://localhost:8000/")
    again = of_a_spider()
    assert admits(again, "http://localhost:8000/x")
    assert not admits(again, "http://localhost/x")


@pytest.mark.parametrize(
    ("scope", "hosts"),
    [
        pytest.param(ScopeChoice.HOST, {"b.example", "127.0.0.1"}, id="by host: all that are new"),
        pytest.param(ScopeChoice.DOMAIN, {"b.example", "127.0.0.1"}, id="by domain: the same"),
        pytest.param(ScopeChoice.ANY, set(), id="anywhere: none"),
    ],
)
def test_hosts_that_are_still_to_be_opened(scope: ScopeChoice, hosts: set[str]) -> None:
    one = origins(scope)
    one.set_seeds(hosts_of(["https://a.example/"], scope))
    urls = [
        "https://a.example/1",
        "https://b.example/1",
        "https://b.example/2",
        "http://127.0.0.1/",
    ]
    assert one.places_outside_scope(urls) == hosts
    one.add_seed_hosts(hosts)
    assert one.places_outside_scope(urls) == set()


def test_a_seed_that_comes_later_brings_its_folder():
    one = origins(ScopeChoice.PREFIX)
    one.set_seeds(hosts_of(["https://a.example/docs/x"], ScopeChoice.PREFIX))
    places = one.places_outside_scope(["https://a.example/docs/y", "https://a.example/blog/"])
    assert len(places) == 1
    assert "blog" not in places.pop(), "they are kept where a purge does not look"
    one.add_seed_hosts(one.places_of(["https://a.example/blog/"]))
    links = ["/docs/1", "/blog/2", "/shop/3"]
    found = one.admission.select(links, "https://a.example/docs/", 1)
    assert [each.url for each in found.candidates] == [
        "https://a.example/docs/1",
        "https://a.example/blog/2",
    ]


def test_a_list_of_many_loopback_seeds_opens_each_in_a_few_bytes():
    """A million of them by name took 400 MB."""
    urls = [f"http://127.1.{number >> 8}.{number & 255}:8000/" for number in range(50_000)]
    store = MemoryStore()
    one = origins(ScopeChoice.ANY, store)
    tracemalloc.start()
    try:
        one.set_seeds(SeedHosts(TermsOfSeeds(SeedTerms(scope=ScopeChoice.ANY)), urls))
        used_bytes, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 2_000_000 and most_bytes < 3_000_000
    assert len(store.scan(keys.LOOPBACK, keys.prefix_end(keys.LOOPBACK), 10**6)) == MOST_ORIGINS
    for url in (urls[0], urls[MOST_ORIGINS - 1], urls[MOST_ORIGINS], urls[-1]):
        host = url.partition("//")[2].partition(":")[0]
        assert admits(one, url) and one.admits(host, host, 8000)
        assert not admits(one, url.replace("8000", "8001")) and not one.admits(host, host, 8001)
    assert not admits(one, "http://127.2.0.1:8000/")

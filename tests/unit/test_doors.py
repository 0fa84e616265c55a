"""Where a crawl begins, as it becomes known: from its seeds, and from other workers."""

from __future__ import annotations

import pytest

from crawler.core.arguments import Arguments
from crawler.core.choices import Scope
from crawler.core.config_reader import read_config
from crawler.core.types import Candidate
from crawler.doors import Doors
from crawler.storage.memory import MemoryStore


def doors(scope: Scope = Scope.HOST, store: MemoryStore | None = None) -> Doors:
    config = read_config({"CRAWLER_CONTACT": "ops@w3.org"})
    return Doors(config, Arguments(seeds="redis", scope=scope), store or MemoryStore(), 7, 1e9)


def admits(door: Doors, url: str) -> bool:
    return isinstance(door.admission.candidate(url, depth=1), Candidate)


def test_nothing_is_known_before_the_seeds_and_the_others_are():
    alone, one_of_many = doors(), doors()
    one_of_many.expect_more()
    for each in (alone, one_of_many):
        assert not each.known
        each.open_for(["https://a.example/"])
    assert alone.known and not one_of_many.known
    one_of_many.open_more([])
    assert one_of_many.known


def test_others_alone_are_not_enough():
    one = doors()
    one.expect_more()
    one.open_more(["a.example"])
    assert not one.known


def test_hosts_that_come_later_are_as_good_as_the_first():
    one = doors()
    one.open_for(["https://a.example/"])
    one.open_more(["b.example"])
    one.open_more(["www.c.example", "b.example"])
    assert [admits(one, f"https://{name}.example/x") for name in "abcd"] == [True] * 3 + [False]


def test_the_seeds_do_not_close_what_others_have_opened():
    one = doors()
    one.open_more(["b.example"])
    one.open_for(["https://a.example/"])
    assert admits(one, "https://b.example/x")


def test_a_domain_is_open_with_all_its_hosts():
    one = doors(Scope.DOMAIN)
    one.open_more(["www.a.example"])
    assert admits(one, "https://other.a.example/") and not admits(one, "https://b.example/")


def test_loopback_is_opened_for_this_crawl_and_its_restarts():
    store = MemoryStore()
    one = doors(Scope.ANY, store)
    assert not admits(one, "http://127.0.0.1/x")
    one.open_more(["127.0.0.1"])
    assert admits(one, "http://127.0.0.1/x")
    assert admits(doors(Scope.ANY, store), "http://127.0.0.1/x")


@pytest.mark.parametrize(
    ("scope", "hosts"),
    [
        pytest.param(Scope.HOST, {"b.example", "127.0.0.1"}, id="by host: all that are new"),
        pytest.param(Scope.DOMAIN, {"b.example", "127.0.0.1"}, id="by domain: the same"),
        pytest.param(Scope.ANY, {"127.0.0.1"}, id="anywhere: only what opens loopback"),
    ],
)
def test_what_is_yet_to_be_opened(scope: Scope, hosts: set[str]) -> None:
    one = doors(scope)
    one.open_for(["https://a.example/"])
    urls = [
        "https://a.example/1",
        "https://b.example/1",
        "https://b.example/2",
        "http://127.0.0.1/",
    ]
    assert one.unopened(urls) == hosts
    one.open_more(hosts)
    assert one.unopened(urls) == set()

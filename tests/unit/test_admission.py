"""Every URL text becomes a Candidate or a Refusal that explains itself."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from crawler.config.arguments import SeedTerms
from crawler.model.choices import ScopeChoice
from crawler.model.types import Candidate, Purpose
from crawler.model.url import CanonicalRules, HostUnit, UrlRule, canonical, key_of
from crawler.policy.addresses import AllowedAddresses
from crawler.policy.admission import Admission, AdmissionSettings
from crawler.policy.operator_rules import read_rules
from crawler.policy.priority import DOUBLING, NO_CASH, SEED_CASH, Hints, cash_of_weight
from crawler.policy.ranks import read_ranks
from crawler.policy.refusal import RULES, Reason, Refusal
from crawler.policy.scope import Scope
from crawler.policy.traps import CalendarLimits, TrapLimits

PAGE = "https://www.example.com/news/today.html"
PUBLIC = AllowedAddresses(allow_public=True)
OPEN = AdmissionSettings(addresses=PUBLIC, key_seed=7)
OF_BEST = cash_of_weight(1.0)
NARROW = AdmissionSettings(
    addresses=AllowedAddresses(allow_public=True, opened=frozenset({("127.0.0.1", 80)})),
    key_seed=7,
    scope=Scope(
        terms=(
            SeedTerms(
                scope=ScopeChoice.DOMAIN,
                allow=(re.compile("/news/"),),
                deny=(re.compile("/print/"),),
                max_depth=3,
            ),
        ),
        seeds=frozenset({"www.example.com", "127.0.0.1"}),
        denied_types=frozenset({"mp4"}),
    ),
    unit=HostUnit.DOMAIN,
)


def with_terms(**terms: Any) -> AdmissionSettings:
    return dataclasses.replace(OPEN, scope=Scope(terms=(SeedTerms(**terms),)))


def admitted(found: Candidate | Refusal) -> Candidate:
    assert isinstance(found, Candidate), found
    return found


def refused(found: Candidate | Refusal) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


def refused_again(found: Refusal | None) -> Refusal:
    assert found is not None
    return found


def test_a_candidate_carries_all_that_the_frontier_needs() -> None:
    url = "https://shop.example.co.uk:8443/b?y=2&x=1&utm_source=z"
    found = admitted(Admission(OPEN).candidate(url + "#top", depth=2, level=1))
    assert found == Candidate(
        url=url,
        key=key_of("https://shop.example.co.uk:8443/b?x=1&y=2", 7),
        host=found.host,
        domain="example.co.uk",
        depth=2,
        level=1,
    )
    assert found.host == "shop.example.co.uk"
    assert found.key == key_of(canonical(url, OPEN.canonical), 7)


def test_the_unit_of_politeness_is_a_setting() -> None:
    assert admitted(Admission(NARROW).candidate(PAGE)).host == "example.com"


def test_a_spiders_own_request_keeps_what_it_brings() -> None:
    found = Admission(OPEN).candidate(
        PAGE, depth=1, request=b"packed", key=5, needs_seen_test=False
    )
    assert admitted(found).request == b"packed"
    assert admitted(found).key == 5
    assert admitted(found).needs_seen_test is False


def test_a_date_out_of_range_is_refused_in_links_and_not_in_seeds() -> None:
    settings = AdmissionSettings(
        addresses=PUBLIC, key_seed=7, calendar=CalendarLimits(until=(2027, 6, 20))
    )
    admission, url = Admission(settings), "https://www.example.com/2031/05/"
    assert refused(admission.candidate(url, depth=1)).reason is Reason.CALENDAR
    assert admission.select([url], PAGE, depth=1).refused == {Reason.CALENDAR: 1}
    admitted(admission.candidate(url))
    admitted(admission.candidate(url, depth=1, request=b"of a spider"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v2/tenants/7/projects/9/datasets/3/tables/1/rows/5", id="deep"),
        pytest.param("/q?" + "&".join(f"f{n}={n}" for n in range(61)), id="61 parameters"),
        pytest.param("/q?id=1&id=1&id=1&id=1", id="a repeated parameter"),
        pytest.param("/a/x/a/y/a/z", id="repeated segments"),
        pytest.param("/q?" + "x" * 3000, id="long"),
        pytest.param("/j?a=1;jsessionid=1&u=/j;jsessionid=2", id="sessions"),
        pytest.param("/2028/01/01/", id="a calendar"),
    ],
)
def test_no_trap_is_seen_in_what_a_spiders_code_names(path: str) -> None:
    calendar = CalendarLimits(until=(2027, 6, 20))
    admission = Admission(dataclasses.replace(OPEN, calendar=calendar))
    url = "https://www.example.com" + path
    refused(admission.candidate(url, depth=1))
    named = admitted(admission.candidate(url, depth=1, request=b"packed"))
    assert admission.refusal(named) is None, "nor when it waits, and is judged at its lease"
    assert admission.refusal(replace(named, request=b"")) is not None


def test_a_spider_may_ask_for_what_links_may_not() -> None:
    admission = Admission(NARROW)
    picture = "https://www.example.com/logo.png"
    assert refused(admission.candidate(picture, depth=1)).reason is Reason.NOT_ALLOWED
    assert admitted(admission.candidate(picture, depth=1, request=b"packed"))


@pytest.mark.parametrize(
    ("text", "depth", "reason", "explanation"),
    [
        pytest.param(
            "http://[::1",
            1,
            Reason.NOT_A_URL,
            "it cannot be read as a URL: 'http://[::1'",
            id="an open bracket",
        ),
        pytest.param(
            "http://example.com:99999/",
            1,
            Reason.NOT_A_URL,
            "it cannot be read as a URL: 'http://example.com:99999/'",
            id="a port out of range",
        ),
        pytest.param(
            " JavaScript:void(0)",
            1,
            Reason.SCHEME,
            "only http and https are fetched: the scheme is JavaScript",
            id="a script",
        ),
        pytest.param(
            "data:," + "x" * 1_000_000,
            1,
            Reason.SCHEME,
            "only http and https are fetched: the scheme is data",
            id="a megabyte of data",
        ),
        pytest.param(
            "é" * 1_000_000,
            1,
            Reason.URL_TOO_LONG,
            "longer URLs are taken for a trap: 1000000 characters are over 4096",
            id="a megabyte that is not parsed",
        ),
        pytest.param(
            "/news/" + "x" * 3000,
            1,
            Reason.URL_TOO_LONG,
            "longer URLs are taken for a trap: 3029 characters are over 2048",
            id="a long URL",
        ),
        pytest.param(
            "http://a..example/",
            1,
            Reason.BAD_HOST,
            "no server can have this host name: 'a..example' has an empty label or one too long",
            id="an empty label",
        ),
        pytest.param(
            f"http://{'a' * 64}.example/",
            1,
            Reason.BAD_HOST,
            f"no server can have this host name: '{'a' * 64}.example'"
            " has an empty label or one too long",
            id="a label too long",
        ),
        pytest.param(
            "http://169.254.169.254/latest/",
            1,
            Reason.INSIDE_ADDRESS,
            "addresses that are not public need a setting:"
            " 169.254.169.254 is not public but inside",
            id="cloud metadata",
        ),
        pytest.param(
            "https://other.example/",
            1,
            Reason.OUT_OF_SCOPE,
            "the scope of this crawl is the seeds' own hosts, domains or folders:"
            " other.example is no domain of a seed",
            id="another site",
        ),
        pytest.param(
            "/news/x",
            4,
            Reason.MAX_DEPTH,
            "it is too many links away from the seeds: depth 4 is over 3",
            id="too far",
        ),
        pytest.param(
            "/news/print/",
            1,
            Reason.DENIED,
            "it matches a pattern of what is denied: the pattern is /print/",
            id="denied",
        ),
        pytest.param(
            "/shop/",
            1,
            Reason.NOT_ALLOWED,
            "it matches no pattern of what is allowed: /news/",
            id="not allowed",
        ),
        pytest.param(
            "/news/film.mp4",
            1,
            Reason.FILE_TYPE,
            "files of this type are not fetched: .mp4",
            id="a film",
        ),
        pytest.param(
            "/news/2/3/4/5/6/7/8/9/10/11",
            1,
            Reason.PATH_TOO_DEEP,
            "deeper paths are taken for a trap: 11 segments are over 10",
            id="a deep path",
        ),
        pytest.param(
            "/news/news/news/x",
            1,
            Reason.REPEATED_SEGMENTS,
            "a path that repeats itself is taken for a trap: 'news/' comes 3 times",
            id="a path that turns in a circle",
        ),
    ],
)
def test_a_refusal_explains_itself(text: str, depth: int, reason: Reason, explanation: str) -> None:
    refusal = refused(Admission(NARROW).candidate(text, PAGE, depth=depth))
    assert refusal.reason is reason
    assert refusal.explain() == explanation


def test_every_reason_has_its_sentence() -> None:
    assert set(RULES) == set(Reason)


def test_without_a_contact_public_links_are_refused_and_counted() -> None:
    local = AllowedAddresses(allow_public=False, opened=frozenset({("127.0.0.1", 8000)}))
    admission = Admission(AdmissionSettings(addresses=local, key_seed=7))
    links = ["/a", "https://example.com/", "https://example.org/x", "http://10.0.0.1/"]
    selected = admission.select(links, "http://127.0.0.1:8000/", depth=1)
    assert [candidate.url for candidate in selected.candidates] == ["http://127.0.0.1:8000/a"]
    assert selected.refused == {Reason.NO_CONTACT: 2, Reason.INSIDE_ADDRESS: 1}


def test_the_links_of_a_page_come_once_each_in_their_order() -> None:
    links = ["/b", "/a", "/b", "/b#top", "/b?utm_source=x", "mailto:a@b", "mailto:c@d", "/a?"]
    selected = Admission(OPEN).select(links, PAGE, depth=1)
    assert [found.url for found in selected.candidates] == [
        "https://www.example.com/b",
        "https://www.example.com/a",
    ]
    assert {(found.depth, found.level) for found in selected.candidates} == {(1, 1)}
    assert selected.refused == {Reason.SCHEME: 2}


def test_a_robots_txt_is_checked_by_its_address_alone() -> None:
    admission = Admission(NARROW)
    target = "https://other.example/print/robots.txt"
    found = admitted(admission.robots_candidate(target, None, "https://www.example.com"))
    assert found.purpose is Purpose.ROBOTS
    assert found.authority == "https://www.example.com"
    assert found.host == "other.example"
    assert found.needs_seen_test is False
    assert (
        refused(admission.robots_candidate("http://10.0.0.1/", target, "")).reason
        is Reason.INSIDE_ADDRESS
    )
    assert refused(admission.robots_candidate("http://[", target, "")).reason is Reason.NOT_A_URL


def test_what_a_page_needs_is_admitted_beyond_scope_depth_and_type() -> None:
    admission = Admission(NARROW)
    urls = [
        "https://cdn.example/a.mp4",
        "https://cdn.example/a.mp4",
        "https://cdn.example/2099/01/",
    ]
    selected = admission.select_requisites(urls, depth=9, level=1, hops=2)
    found = [(one.url, one.depth, one.level, one.requisite) for one in selected.candidates]
    assert found == [(url, 9, 1, 2) for url in dict.fromkeys(urls)]
    assert all(admission.refusal(found) is None for found in selected.candidates)
    moved = admission.candidate("/b.mp4", urls[0], depth=9, requisite=2)
    assert admitted(moved).requisite == 2


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://10.0.0.1/a.png", Reason.INSIDE_ADDRESS),
        ("https://cdn.example/print/a.png", Reason.DENIED),
        ("https://cdn.example/" + "a" * 3_000, Reason.URL_TOO_LONG),
    ],
)
def test_what_no_page_may_need(url: str, reason: Reason) -> None:
    admission = Admission(NARROW)
    assert admission.select_requisites([url], 1, 0, 1).refused == {reason: 1}
    found = replace(admitted(admission.candidate(PAGE)), url=url, requisite=1)
    assert refused_again(admission.refusal(found)).reason is reason


@given(st.lists(st.text(max_size=20), max_size=5))
def test_every_link_of_a_page_is_counted(hrefs: list[str]) -> None:
    selected = Admission(OPEN).select(hrefs, PAGE, depth=1)
    keys = [found.key for found in selected.candidates]
    assert len(keys) == len(set(keys))
    assert len(keys) + sum(selected.refused.values()) <= len(set(hrefs))


def test_many_hosts_do_not_fill_the_memory() -> None:
    admission = Admission(OPEN)
    links = [f"http://{number}.example/" for number in range(20_000)]
    assert len(admission.select(links, PAGE, depth=1).candidates) == 20_000
    assert admission.cached_authorities() <= 16_384


TIGHT = AdmissionSettings(
    addresses=PUBLIC,
    key_seed=7,
    scope=Scope(terms=(SeedTerms(max_depth=2),), denied_types=frozenset({"jpg"})),
    traps=TrapLimits(max_url_chars=60, max_path_segments=4, max_repeats=2),
    calendar=CalendarLimits(from_year=2000, until=(2030, 1, 1)),
)
PARTS = (
    "/",
    "a",
    "b",
    ".",
    "..",
    "jpg",
    "2099",
    "1066",
    "05",
    "-",
    "?",
    "=",
    "&",
    "%41",
    "a=1",
    "A:8",
    "~",
    ";",
)


LISTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=16).map("".join), max_size=8)
HOSTS = ("http://www.example.com/", "https://example.com:8443/", "http://10.0.0.1/", "")


@given(LISTS, st.lists(st.sampled_from(HOSTS), min_size=8), st.integers(1, 3))
def test_links_are_judged_together_as_each_by_itself(
    texts: list[str], hosts: list[str], depth: int
) -> None:
    hrefs = [host + text for host, text in zip(hosts, texts, strict=False)]
    admission = Admission(TIGHT)
    hints = Hints(depth=depth)
    verdicts = [
        admission.candidate(href, PAGE, depth=depth, hints=hints) for href in dict.fromkeys(hrefs)
    ]
    admitted_by_key: dict[int, Candidate] = {}
    for each in verdicts:
        if isinstance(each, Candidate):
            admitted_by_key.setdefault(each.key, each)
    selected = admission.select(hrefs, PAGE, depth)
    assert selected.candidates == list(admitted_by_key.values())
    assert selected.refused == Counter(
        each.reason for each in verdicts if isinstance(each, Refusal)
    )


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            dataclasses.replace(OPEN, scope=Scope(terms=(SeedTerms(deny=(re.compile("b"),)),))),
            id="deny",
        ),
        pytest.param(
            dataclasses.replace(OPEN, scope=Scope(terms=(SeedTerms(allow=(re.compile("b"),)),))),
            id="allow",
        ),
        pytest.param(with_terms(max_depth=1), id="max_depth"),
        pytest.param(
            dataclasses.replace(OPEN, canonical=CanonicalRules(frozenset({UrlRule.SLASH}))),
            id="slash",
        ),
        pytest.param(
            dataclasses.replace(
                OPEN, operator=read_rules('[[rule]]\nfor = "example.com/b"\nrefuse = true', 3)
            ),
            id="operator",
        ),
    ],
)
def test_no_rule_is_passed_over_for_links(settings: AdmissionSettings) -> None:
    hrefs = ["http://example.com/a/", "http://example.com/a", "http://example.com/b"]
    admission = Admission(settings)
    one_by_one = [admission.candidate(href, depth=2) for href in hrefs]
    found = {each.key for each in one_by_one if isinstance(each, Candidate)}
    assert {each.key for each in admission.select(hrefs, None, 2).candidates} == found
    assert len(found) < len(hrefs)


@pytest.mark.parametrize(
    ("url", "cash"),
    [
        pytest.param("https://example.com/a", OF_BEST, id="of the best"),
        pytest.param("https://www.example.com/", OF_BEST, id="a domain, of all its hosts"),
        pytest.param("http://shop.example.org:8080/", OF_BEST - DOUBLING, id="a host of its own"),
        pytest.param("http://example.org/", OF_BEST - 2 * DOUBLING, id="less than the best"),
        pytest.param("https://example.net/", NO_CASH, id="without a weight"),
        pytest.param("https://example.edu/", NO_CASH, id="not listed"),
        pytest.param("https://page.example/", NO_CASH, id="of the page's own host"),
    ],
)
def test_links_to_ranked_hosts_have_some_cash(url: str, cash: int) -> None:
    listed = b"example.com 64\nexample.org 16\nshop.example.org 32\nexample.net 0\npage.example 64"
    admission = Admission(dataclasses.replace(OPEN, ranks=read_ranks([listed], "ranks")))
    for of_link in (NO_CASH, OF_BEST - 1, SEED_CASH):
        selected = admission.select([url], None, 1, cash=of_link)
        (found,) = admission.with_start_cash(selected.candidates, "http://page.example/b")
        assert found.cash == max(cash, of_link)


def test_what_is_out_of_the_scope_is_checked_behind_pages_under_a_key_of_its_own() -> None:
    admission = Admission(dataclasses.replace(NARROW, levels=4))
    url = "https://elsewhere.example/a.mp4"  # whatever its type
    (found,) = admission.select_checks([PAGE, url, url], depth=9)
    assert (found.url, found.level, found.purpose) == (url, 3, Purpose.CHECK)
    assert found.key != key_of(url, NARROW.key_seed)
    assert admission.refusal(found) is None and admission.level_of(found) == 3
    assert refused(admission.check("/", PAGE, 1)).reason is Reason.IN_SCOPE
    assert refused_again(admission.refusal(replace(found, url=PAGE))).reason is Reason.IN_SCOPE


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://10.0.0.1/", Reason.INSIDE_ADDRESS),
        ("https://elsewhere.example/print/", Reason.DENIED),
        ("https://elsewhere.example/" + "a" * 3_000, Reason.URL_TOO_LONG),
    ],
)
def test_what_is_not_checked(url: str, reason: Reason) -> None:
    admission = Admission(NARROW)
    assert refused(admission.check(url, PAGE, 1)).reason is reason
    assert admission.select_checks([url], 1) == []

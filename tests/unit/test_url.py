"""URLs: the form that is fetched, checked against the web platform's own cases and ada; the form
that is compared; registered domains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ada_url
import pytest
import w3lib.url
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.url import (
    ALWAYS,
    DEFAULT_RULES,
    MAX_TEXT_CHARS,
    MERGES,
    TRACKING_NAMES,
    CanonicalRules,
    HostUnit,
    UrlParts,
    UrlRule,
    authority_of,
    canonical,
    digest_of_list,
    fetch_form,
    host_key,
    is_ip,
    key_of,
    registered_domain,
    split,
)

WEB_PLATFORM = json.loads(
    (Path(__file__).parents[1] / "data" / "urltestdata.json").read_text(encoding="utf-8")
)
CASES = [case for case in WEB_PLATFORM if isinstance(case, dict)]
BASES = [
    "https://example.com/a/b/c.html?x=/y",
    "http://example.com/",
    "http://example.com:8080/x//y/",
    "https://[::1]/q",
    "http://127.0.0.1:8000/a%2Eb/",
    "HTTP://user:word@EXAMPLE.com/%7e/../z#end",
    "ftp://example.com/",
    "about:blank",
]
# Pieces that meet every edge of the patterns that let a link skip ada.
_WORDS = r"""
/ // a b.html . .. %2e %2E %41 %zz ? # & = : @ ; http:// https:// HTTP:// example.com xn--a www.
1.2.3.4 256. 01. 0x1 \ é [ ] A - _ ~ ' | ../ ./ com host:80 :443 :8080 :65000 :08 x: ß.de
"""
PIECES = [*_WORDS.split(), *" \t\n"]


def expected(case: dict[str, Any]) -> str | None:
    """The result of the standard for a case, less what a fetch form leaves out."""
    if case.get("failure") or case["protocol"] not in {"http:", "https:"}:
        return None
    empty_query = "?" if case["href"].partition("#")[0].endswith("?") else ""
    query = case["search"] or empty_query
    return f"{case['protocol']}//{case['host']}{case['pathname']}{query}"


def by_ada_alone(text: str, base: str | None) -> str | None:
    try:
        href = ada_url.URL(text, base).href
    except ValueError:
        return None
    if not href.startswith(("http://", "https://")):
        return None
    url = ada_url.URL(href.partition("#")[0])
    url.username = url.password = ""
    return url.href


def test_every_case_of_the_web_platform() -> None:
    assert len(CASES) == 891
    assert sum(expected(case) is not None for case in CASES) == 247
    wrong = [
        (case["input"], case["base"], fetch_form(case["input"], case["base"]), expected(case))
        for case in CASES
        if fetch_form(case["input"], case["base"]) != expected(case)
    ]
    assert wrong == []


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from([*BASES, None]))
def test_a_plain_link_is_what_ada_makes_of_it(pieces: list[str], base: str | None) -> None:
    text = "".join(pieces)
    assert fetch_form(text, base) == by_ada_alone(text, base)


@given(st.text(), st.sampled_from([*BASES, None, "", "rubbish", "\ud800"]))
def test_no_text_raises(text: str, base: str | None) -> None:
    url = fetch_form(text, base)
    assert url is None or (url.isascii() and url.startswith(("http://", "https://")))


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(BASES))
def test_a_fetch_form_is_its_own(pieces: list[str], base: str) -> None:
    url = fetch_form("".join(pieces), base)
    if url is not None:
        assert fetch_form(url) == url


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("/x#top", "https://example.com/x", id="the fragment is dropped"),
        pytest.param("", "https://example.com/a/b", id="nothing is the page itself"),
        pytest.param("#top", "https://example.com/a/b", id="a fragment alone is too"),
        pytest.param("../../../x", "https://example.com/x", id="the root has no parent"),
        pytest.param("https://u:p@example.com/", "https://example.com/", id="no credentials"),
        pytest.param("//u@other.example/@a", "https://other.example/@a", id="a path keeps its @"),
        pytest.param("http://EXAMPLE.com:80", "http://example.com/", id="the default port goes"),
        pytest.param("http://bücher.example/", "http://xn--bcher-kva.example/", id="punycode"),
        pytest.param("/\ud800", "https://example.com/%EF%BF%BD", id="a lone surrogate is U+FFFD"),
        pytest.param("/\x00x", "https://example.com/%00x", id="a NUL is encoded"),
        pytest.param("/x\x00", "https://example.com/x", id="but not at the end"),
        pytest.param("http://a\x00b/", None, id="a NUL in a host"),
        pytest.param("http://[::1", None, id="an open bracket"),
        pytest.param("http://999.1.1.1", None, id="an IPv4 address out of range"),
        pytest.param("http://example.com:99999/", None, id="a port out of range"),
        pytest.param("javascript:void(0)", None, id="a script is no page"),
        pytest.param("mailto:a@example.com", None, id="nor is a mail address"),
        pytest.param("data:text/html,x", None, id="nor are data"),
        pytest.param("ftp://example.com/", None, id="nor is a file server"),
    ],
)
def test_link_on_a_page(text: str, want: str | None) -> None:
    assert fetch_form(text, "https://example.com/a/b") == want


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("é" * 1_000_000, id="a megabyte to encode"),
        pytest.param("http://" + "é" * 1_000_000 + "/", id="a megabyte of host name"),
        pytest.param("http://" + "é" * (MAX_TEXT_CHARS - 8), id="the longest host that is parsed"),
        pytest.param("../" * 333_333 + ".", id="a megabyte of dot segments"),
        pytest.param(" " * 1_000_000, id="a megabyte of blanks"),
    ],
)
def test_a_hostile_link_costs_nothing(text: str) -> None:
    url = fetch_form(text, "https://example.com/")
    assert url is None or len(url) < 10 * MAX_TEXT_CHARS


def test_a_long_plain_link_is_left_to_the_trap_rules() -> None:
    assert fetch_form("/" + "x" * 1_000_000, "http://example.com/") is not None


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param(
            "https://example.com/a/b?c=d?e",
            UrlParts("https", "example.com", 443, "https://example.com", "/a/b", "c=d?e"),
            id="the scheme gives the port",
        ),
        pytest.param(
            "http://example.com:8080/",
            UrlParts("http", "example.com", 8080, "http://example.com:8080", "/", ""),
            id="a port of its own",
        ),
        pytest.param(
            "http://[::1]/",
            UrlParts("http", "[::1]", 80, "http://[::1]", "/", ""),
            id="an IPv6 address has no port in its colons",
        ),
        pytest.param(
            "http://[2001:db8::1]:81/x",
            UrlParts("http", "[2001:db8::1]", 81, "http://[2001:db8::1]:81", "/x", ""),
            id="an IPv6 address with a port",
        ),
    ],
)
def test_parts(url: str, want: UrlParts) -> None:
    assert split(url) == want
    assert authority_of(url) == want.authority


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(BASES))
def test_parts_agree_with_ada(pieces: list[str], base: str) -> None:
    url = fetch_form("".join(pieces), base)
    if url is None:
        return
    parts, judge = split(url), ada_url.URL(url)
    assert parts.hostname == judge.hostname
    assert parts.authority == f"{judge.protocol}//{judge.host}"
    assert parts.path == judge.pathname
    assert parts.query == judge.search.removeprefix("?")


NO_RULES = CanonicalRules(frozenset())
USUAL_RULES = CanonicalRules()
ALL_RULES = CanonicalRules(frozenset(UrlRule))
ANY_RULES = st.sets(st.sampled_from(UrlRule)).map(lambda on: CanonicalRules(frozenset(on)))
# Pieces out of which every rule finds something to do, and something that it must not take.
_QUERY_WORDS = """
/ // a b ? & = + %20 %7e %7E %2f %25 % %% %34 | [ ] ( ) ; ' . utm_source= gclid=1 sid=
;jsessionid=12 ;jsess /(S(lit3py55t21z5v55vlm25s55))/ (S( 0123456789abcdef01234567
"""
QUERY_PIECES = _QUERY_WORDS.split()
HOSTS = ["http://example.com", "https://www.www.example.com.", "http://[::1]:80", "http://./"]


def form(url: str, *on: UrlRule) -> str:
    fetched = fetch_form(url)
    assert fetched is not None
    return canonical(fetched, CanonicalRules(frozenset(on)))


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        pytest.param(UrlRule.PERCENT, "/%7euser", "/~user", id="what needs no escape has none"),
        pytest.param(UrlRule.PERCENT, "/a%2fb", "/a%2Fb", id="escapes are in capitals"),
        pytest.param(UrlRule.PERCENT, "/?a[]=1", "/?a%5B%5D=1", id="what needs an escape has one"),
        pytest.param(UrlRule.PERCENT, "/a|b", "/a%7Cb", id="in the path too"),
        pytest.param(UrlRule.PERCENT, "/100%", "/100%25", id="a stray percent sign is escaped"),
        pytest.param(UrlRule.SPACE, "/?q=a%20b", "/?q=a+b", id="two ways to write a space"),
        pytest.param(UrlRule.EMPTY, "/page?", "/page", id="an empty query"),
        pytest.param(UrlRule.EMPTY, "/?a=1&", "/?a=1", id="an empty parameter"),
        pytest.param(UrlRule.TRACKING, "/page?utm_source=news", "/page", id="a campaign"),
        pytest.param(UrlRule.TRACKING, "/?a=1&gclid=x&b=2", "/?a=1&b=2", id="a click"),
        pytest.param(UrlRule.TRACKING, "/?UTM_Medium=x", "/", id="in capitals"),
        pytest.param(UrlRule.SORT, "/?b=2&a=1", "/?a=1&b=2", id="the order of parameters"),
        pytest.param(UrlRule.SESSION, "/p;jsessionid=1A2B.node1?x=1", "/p?x=1", id="a servlet's"),
        pytest.param(UrlRule.SESSION, "/(S(lit3py55t21z5v55vlm25s55))/p", "/p", id="ASP.NET's"),
        pytest.param(UrlRule.SESSION, "/?PHPSESSID=abc&x=1", "/?x=1", id="PHP's"),
        pytest.param(UrlRule.SESSION, f"/?sid={'0a' * 16}", "/", id="a random sid"),
        pytest.param(UrlRule.SLASH, "/news/", "/news", id="the last slash"),
    ],
)
def test_a_rule_merges(rule: UrlRule, first: str, second: str) -> None:
    first, second = f"http://example.com{first}", f"http://example.com{second}"
    assert form(first, rule) == form(second, rule)
    if rule not in ALWAYS:
        assert form(first) != form(second)


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        pytest.param(
            UrlRule.DOT, "http://example.com./", "http://example.com/", id="the root's dot"
        ),
        pytest.param(UrlRule.DOT, "http://a.com.:81/x", "http://a.com:81/x", id="before a port"),
        pytest.param(UrlRule.WWW, "http://www.example.com/", "http://example.com/", id="www"),
        pytest.param(UrlRule.HTTPS, "http://example.com/", "https://example.com/", id="the scheme"),
    ],
)
def test_a_rule_merges_hosts(rule: UrlRule, first: str, second: str) -> None:
    assert form(first, rule) == form(second, rule)
    if rule not in ALWAYS:
        assert form(first) != form(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param("/a", "/A", id="paths tell case"),
        pytest.param("/a%2Fb", "/a/b", id="an escaped slash is no slash"),
        pytest.param("/?a=1%26b=2", "/?a=1&b=2", id="an escaped ampersand is none"),
        pytest.param("/a+b", "/a%20b", id="a plus in a path is no space"),
        pytest.param("/?a=1&a=2", "/?a=2&a=1", id="values of one name keep their order"),
        pytest.param("/?a", "/?a=", id="no value and an empty one"),
        pytest.param("/a//b", "/a/b", id="an empty segment"),
        pytest.param("/?sid=12", "/?sid=13", id="a short sid may choose the page"),
        pytest.param("/?ref=a", "/?ref=b", id="a name that some use for content"),
    ],
)
def test_different_pages_stay_apart_under_all_rules(first: str, second: str) -> None:
    rules = tuple(UrlRule)
    assert form(f"http://example.com{first}", *rules) != form(f"http://example.com{second}", *rules)


def test_each_rule_states_what_it_merges_and_the_risky_ones_are_off() -> None:
    assert set(MERGES) == set(UrlRule)
    assert USUAL_RULES.on == ALWAYS | DEFAULT_RULES
    assert set(UrlRule) - USUAL_RULES.on == {
        UrlRule.SESSION,
        UrlRule.SLASH,
        UrlRule.WWW,
        UrlRule.HTTPS,
    }


def test_a_host_that_is_only_www_stays() -> None:
    assert form("http://www.com/", UrlRule.WWW) == "http://www.com/"


def test_tracking_names_are_few_and_lower_case() -> None:
    assert all(name == name.lower() for name in TRACKING_NAMES)
    assert 50 <= len(TRACKING_NAMES) <= 80


@given(st.sampled_from(HOSTS), st.lists(st.sampled_from(QUERY_PIECES), max_size=12), ANY_RULES)
def test_a_canonical_form_is_its_own(host: str, pieces: list[str], rules: CanonicalRules) -> None:
    fetched = fetch_form(host + "/" + "".join(pieces))
    if fetched is None:
        return
    once = canonical(fetched, rules)
    assert canonical(once, rules) == once


@given(st.sampled_from(HOSTS), st.lists(st.sampled_from(QUERY_PIECES), max_size=12))
def test_the_short_way_is_the_long_way(host: str, pieces: list[str]) -> None:
    fetched = fetch_form(host + "/" + "".join(pieces))
    if fetched is None:
        return
    # www finds nothing to do on these, but forbids the short way.
    fetched = fetched.replace("www.", "")
    assert canonical(fetched, NO_RULES) == canonical(
        fetched, CanonicalRules(frozenset({UrlRule.WWW}))
    )


WORDS = st.text(st.sampled_from("abcXYZ019-._~"), min_size=1, max_size=6)
PAIRS = st.dictionaries(WORDS, WORDS, max_size=4).map(
    lambda pairs: "&".join(f"{name}={value}" for name, value in pairs.items())
)
ESCAPED = st.lists(st.sampled_from(["%7e", "%41", "%2f", "%e4", "%C3%A9", "a", "/"]), max_size=6)


@given(ESCAPED, PAIRS)
def test_w3lib_agrees(path: list[str], query: str) -> None:
    """Where the rules are the same: percent signs in paths, sorted queries with values."""
    fetched = fetch_form(f"http://example.com/x{''.join(path)}?{query}")
    assert fetched is not None
    ours = canonical(fetched, CanonicalRules(frozenset({UrlRule.SORT})))
    assert ours == w3lib.url.canonicalize_url(fetched)


def test_keys_are_64_unsigned_bits_and_depend_on_the_seed() -> None:
    keys = {key_of(f"http://example.com/{number}", seed=7) for number in range(1000)}
    assert len(keys) == 1000
    assert max(keys) > 2**63  # the highest bit is in use: not signed by accident
    assert max(keys) < 2**64
    assert key_of("http://example.com/1", seed=8) not in keys


def test_keys_never_change_between_versions() -> None:
    # They are on disk: another value here makes every crawl fetch everything again.
    assert key_of("http://example.com/", seed=0) == 0xB97A010E03AF1E2B
    assert key_of("http://example.com/", seed=2**64 - 1) == 0x39F4964C47D4B446


@pytest.mark.parametrize(
    ("hostname", "want"),
    [
        pytest.param("www.example.com", "example.com", id="below a plain suffix"),
        pytest.param("a.b.example.co.uk", "example.co.uk", id="a suffix of two labels"),
        pytest.param("a.b.kobe.jp", "a.b.kobe.jp", id="a wildcard suffix"),
        pytest.param("www.city.kobe.jp", "city.kobe.jp", id="an exception to it"),
        pytest.param("a.b.github.io", "b.github.io", id="a private suffix: two owners"),
        pytest.param("www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn", id="punycode"),
        pytest.param("www.example.com.", "example.com", id="the root's dot"),
        pytest.param("a.b.unheard-of", "b.unheard-of", id="an unknown suffix is one label"),
        pytest.param("co.uk", "co.uk", id="a suffix is its own"),
        pytest.param("localhost", "localhost", id="one label is its own"),
        pytest.param("127.0.0.1", "127.0.0.1", id="so is an IPv4 address"),
        pytest.param("[2001:db8::1]", "[2001:db8::1]", id="so is an IPv6 address"),
        pytest.param("a..b", "a..b", id="so is what is no name"),
        pytest.param("", "", id="so is nothing"),
    ],
)
def test_registered_domain(hostname: str, want: str) -> None:
    assert registered_domain(hostname) == want


@given(st.text(st.sampled_from("ab.-1[]:"), max_size=12))
def test_a_domain_is_its_own_and_ends_its_names(hostname: str) -> None:
    domain = registered_domain(hostname)
    assert registered_domain(domain) == domain
    assert hostname.rstrip(".").endswith(domain)


@pytest.mark.parametrize(
    ("hostname", "unit", "want"),
    [
        pytest.param("www.example.com", HostUnit.HOST, "www.example.com", id="a name"),
        pytest.param("www.example.com.", HostUnit.HOST, "www.example.com", id="dot: same server"),
        pytest.param("www.example.com", HostUnit.DOMAIN, "example.com", id="a domain"),
        pytest.param("127.0.0.1", HostUnit.DOMAIN, "127.0.0.1", id="an address has no domain"),
    ],
)
def test_host_key(hostname: str, unit: HostUnit, want: str) -> None:
    assert host_key(hostname, unit) == want


@pytest.mark.parametrize(
    ("hostname", "want"),
    [
        pytest.param("127.0.0.1", True, id="IPv4"),
        pytest.param("[::1]", True, id="IPv6"),
        pytest.param("::1", True, id="IPv6 without brackets"),
        pytest.param("1.2.3.com", False, id="numbers below a name"),
        pytest.param("example.com1", False, id="a name that ends in a digit"),
    ],
)
def test_is_ip(hostname: str, want: bool) -> None:
    assert is_ip(hostname) is want


LIST = b"// VERSION: 1\n\ncom\nco.uk\n*.kobe.jp\n"


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        pytest.param(b"// VERSION: 2\n// later\ncom\nco.uk\n\n*.kobe.jp", True, id="words"),
        pytest.param(b"com\r\nco.uk  \r\n*.kobe.jp\r\n", True, id="another kind of lines"),
        pytest.param(LIST + b"github.io\n", False, id="one rule more"),
        pytest.param(b"com\n*.kobe.jp\n", False, id="one less"),
    ],
)
def test_a_list_is_identified_by_its_rules(other: bytes, is_same: bool) -> None:
    assert (digest_of_list(other) == digest_of_list(LIST)) is is_same

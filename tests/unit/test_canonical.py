"""The compared form: what each rule merges, and that nothing else is merged."""

from __future__ import annotations

import pytest
import w3lib.url
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.url import (
    ALWAYS,
    DEFAULT_RULES,
    MERGES,
    TRACKING_NAMES,
    CanonicalRules,
    Rule,
    canonical,
    fetch_form,
    key_of,
)

NO_RULES = CanonicalRules(frozenset())
USUAL_RULES = CanonicalRules()
ALL_RULES = CanonicalRules(frozenset(Rule))
ANY_RULES = st.sets(st.sampled_from(Rule)).map(lambda on: CanonicalRules(frozenset(on)))
# Pieces out of which every rule finds something to do, and something that it must not take.
_WORDS = """
/ // a b ? & = + %20 %7e %7E %2f %25 % %% %34 | [ ] ( ) ; ' . utm_source= gclid=1 sid=
;jsessionid=12 ;jsess /(S(lit3py55t21z5v55vlm25s55))/ (S( 0123456789abcdef01234567
"""
PIECES = _WORDS.split()
HOSTS = ["http://example.com", "https://www.www.example.com.", "http://[::1]:80", "http://./"]


def form(url: str, *on: Rule) -> str:
    fetched = fetch_form(url)
    assert fetched is not None
    return canonical(fetched, CanonicalRules(frozenset(on)))


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        pytest.param(Rule.PERCENT, "/%7euser", "/~user", id="what needs no escape has none"),
        pytest.param(Rule.PERCENT, "/a%2fb", "/a%2Fb", id="escapes are in capitals"),
        pytest.param(Rule.PERCENT, "/?a[]=1", "/?a%5B%5D=1", id="what needs an escape has one"),
        pytest.param(Rule.PERCENT, "/a|b", "/a%7Cb", id="in the path too"),
        pytest.param(Rule.PERCENT, "/100%", "/100%25", id="a stray percent sign is escaped"),
        pytest.param(Rule.SPACE, "/?q=a%20b", "/?q=a+b", id="two ways to write a space"),
        pytest.param(Rule.EMPTY, "/page?", "/page", id="an empty query"),
        pytest.param(Rule.EMPTY, "/?a=1&", "/?a=1", id="an empty parameter"),
        pytest.param(Rule.TRACKING, "/page?utm_source=news", "/page", id="a campaign"),
        pytest.param(Rule.TRACKING, "/?a=1&gclid=x&b=2", "/?a=1&b=2", id="a click"),
        pytest.param(Rule.TRACKING, "/?UTM_Medium=x", "/", id="in capitals"),
        pytest.param(Rule.SORT, "/?b=2&a=1", "/?a=1&b=2", id="the order of parameters"),
        pytest.param(Rule.SESSION, "/p;jsessionid=1A2B.node1?x=1", "/p?x=1", id="a servlet's"),
        pytest.param(Rule.SESSION, "/(S(lit3py55t21z5v55vlm25s55))/p", "/p", id="ASP.NET's"),
        pytest.param(Rule.SESSION, "/?PHPSESSID=abc&x=1", "/?x=1", id="PHP's"),
        pytest.param(Rule.SESSION, f"/?sid={'0a' * 16}", "/", id="a random sid"),
        pytest.param(Rule.SLASH, "/news/", "/news", id="the last slash"),
    ],
)
def test_a_rule_merges(rule: Rule, first: str, second: str) -> None:
    first, second = f"http://example.com{first}", f"http://example.com{second}"
    assert form(first, rule) == form(second, rule)
    if rule not in ALWAYS:
        assert form(first) != form(second)


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        pytest.param(Rule.DOT, "http://example.com./", "http://example.com/", id="the root's dot"),
        pytest.param(Rule.DOT, "http://a.com.:81/x", "http://a.com:81/x", id="before a port"),
        pytest.param(Rule.WWW, "http://www.example.com/", "http://example.com/", id="www"),
        pytest.param(Rule.HTTPS, "http://example.com/", "https://example.com/", id="the scheme"),
    ],
)
def test_a_rule_merges_hosts(rule: Rule, first: str, second: str) -> None:
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
    rules = tuple(Rule)
    assert form(f"http://example.com{first}", *rules) != form(f"http://example.com{second}", *rules)


def test_each_rule_says_what_it_merges_and_the_risky_ones_are_off() -> None:
    assert set(MERGES) == set(Rule)
    assert USUAL_RULES.on == ALWAYS | DEFAULT_RULES
    assert set(Rule) - USUAL_RULES.on == {Rule.SESSION, Rule.SLASH, Rule.WWW, Rule.HTTPS}


def test_a_host_that_is_only_www_stays() -> None:
    assert form("http://www.com/", Rule.WWW) == "http://www.com/"


def test_tracking_names_are_few_and_lower_case() -> None:
    assert all(name == name.lower() for name in TRACKING_NAMES)
    assert 50 <= len(TRACKING_NAMES) <= 80


@given(st.sampled_from(HOSTS), st.lists(st.sampled_from(PIECES), max_size=12), ANY_RULES)
def test_a_canonical_form_is_its_own(host: str, pieces: list[str], rules: CanonicalRules) -> None:
    fetched = fetch_form(host + "/" + "".join(pieces))
    if fetched is None:
        return
    once = canonical(fetched, rules)
    assert canonical(once, rules) == once


@given(st.sampled_from(HOSTS), st.lists(st.sampled_from(PIECES), max_size=12))
def test_the_short_way_is_the_long_way(host: str, pieces: list[str]) -> None:
    fetched = fetch_form(host + "/" + "".join(pieces))
    if fetched is None:
        return
    # www finds nothing to do on these, but forbids the short way.
    fetched = fetched.replace("www.", "")
    assert canonical(fetched, NO_RULES) == canonical(fetched, CanonicalRules(frozenset({Rule.WWW})))


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
    ours = canonical(fetched, CanonicalRules(frozenset({Rule.SORT})))
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

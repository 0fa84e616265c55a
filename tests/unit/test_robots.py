"""The rules of a robots.txt: other suites' cases and our own."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest

from crawler.model.url import authority_of, fetch_form
from crawler.policy.robots import Rules, Ruling

CASES: Final = json.loads(
    (Path(__file__).parents[1] / "data" / "robots_cases.json").read_text(encoding="utf-8")
)
HOST: Final = "http://example.com"

# What the RFC overrules, by a piece of the test's name and the URL. Nothing else may differ.
ROBOTS_TXT = "the /robots.txt URI is implicitly allowed (2.2.2)"
OVERRULED: Final = {
    ("test_google_stress", "http://example.com/robots.txt"): ROBOTS_TXT,
    ("test_google_stress", "http://m.example.com/robots.txt"): ROBOTS_TXT,
    ("test_no_leading_user_agent", "/path"): "a rule belongs to a group, a group has a User-agent",
    ("test_skip_malformed_line", "/no/colon/in/this/line"): (
        "Google's suite has this line obeyed; the RFC leaves it open, and obeying is the safe side"
    ),
    ("test_grouping_unknown_keys", "/foo"): (
        "unknown records must not interfere (2.2.4): Noindex does not end a run of User-agents"
    ),
}


def rules(text: str, agent: str = "FooBot") -> Rules:
    return Rules.parse(text.encode(), agent)


def our_answer(case: dict[str, Any]) -> object:
    """What we say, in the words of the case."""
    found = Rules.parse(base64.b64decode(case["body_b64"]), case["ua"])
    match case["kind"]:
        case "crawl_delay_ms":
            return round(found.crawl_delay_s * 1000) or None
        case "sitemaps":
            return list(found.sitemaps)
        case "host":
            return found.preferred_host or None
    url = fetch_form(case["url"], HOST)
    file = fetch_form(case.get("robots_url", ""), url)
    assert url
    assert file
    # A file says nothing about another authority, which the suite records as "not allowed".
    return authority_of(file) == authority_of(url) and found.allowed(url)


def overruled(case: dict[str, Any]) -> str | None:
    for (name, url), why in OVERRULED.items():
        if name in case["test"] and case["url"] == url:
            return why
    return None


def test_every_recorded_case_agrees_or_is_overruled_by_the_rfc() -> None:
    assert len(CASES) == 839
    differing = [case for case in CASES if our_answer(case) != case["expected"]]
    assert [case["test"] for case in differing if not overruled(case)] == []
    assert {overruled(case) for case in differing} == set(OVERRULED.values())
    assert len(differing) == 7


@pytest.mark.parametrize(
    ("text", "path", "want"),
    [
        pytest.param("", "/a", Ruling(True), id="an empty file allows everything"),
        pytest.param(
            "User-agent: *\nDisallow: /a", "/b", Ruling(True), id="no rule speaks: allowed"
        ),
        pytest.param(
            "User-agent: *\n\n# why\nDisallow: /a\n",
            "/a/b",
            Ruling(False, "line 4: Disallow: /a"),
            id="a prefix, and the line it stands in",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a\nAllow: /a/b",
            "/a/b/c",
            Ruling(True, "line 3: Allow: /a/b"),
            id="the longest match wins",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a\nAllow: /a",
            "/a",
            Ruling(True, "line 3: Allow: /a"),
            id="Allow wins a tie",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /*b\nAllow: /a/b",
            "/a/b",
            Ruling(True, "line 3: Allow: /a/b"),
            id="a star has no more weight than a letter",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a*c$",
            "/abc",
            Ruling(False, "line 2: Disallow: /a*c$"),
            id="star and end",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a*c$", "/abcd", Ruling(True), id="the end is the end"
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a$", "/a?x", Ruling(True), id="a query is not the end"
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a$b",
            "/a$bc",
            Ruling(False, "line 2: Disallow: /a%24b"),
            id="a dollar in the middle is a dollar",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a%2A",
            "/a*",
            Ruling(False, "line 2: Disallow: /a%2A"),
            id="an escaped star is a star",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a%2a",
            "/ab",
            Ruling(True),
            id="an escaped star is no wildcard",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /%7Ejoe/ü ",
            "/~joe/%C3%BC",
            Ruling(False, "line 2: Disallow: /~joe/%C3%BC"),
            id="one spelling for both sides",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /a%2Fb", "/a/b", Ruling(True), id="%2F is not a slash"
        ),
        pytest.param(
            "User-agent: *\nDisallow: /?q='x'",
            "/?q=%27x%27",
            Ruling(False, "line 2: Disallow: /?q=%27x%27"),
            id="what WHATWG escapes in queries only",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /",
            "/robots.txt",
            Ruling(True),
            id="robots.txt itself is always allowed",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /",
            "/robots.txt/a",
            Ruling(False, "line 2: Disallow: /"),
            id="but nothing below it",
        ),
        pytest.param(
            "User-agent: *\nDisallow: /\nUser-agent: foobot\nDisallow:",
            "/a",
            Ruling(True),
            id="a group of our own, though it says nothing, is all that counts",
        ),
        pytest.param(
            "User-agent: FooBot/2.1\nDisallow: /a\nUser-agent: x\nUser-agent: foobot\nDisallow: /b",
            "/a",
            Ruling(False, "line 2: Disallow: /a"),
            id="two groups of ours are one; versions do not matter",
        ),
        pytest.param(
            "User-agent: *\n\nUser-agent: FooBot\nDisallow: /a",
            "/a",
            Ruling(False, "line 4: Disallow: /a"),
            id="agents in a row share their rules, empty lines or not",
        ),
        pytest.param(
            "User-agent: FooBotImages\nDisallow: /",
            "/a",
            Ruling(True),
            id="a longer name is not us",
        ),
        pytest.param(
            "User-agent: *\nSitemap: /s\nUser-agent: x\nDisallow: /",
            "/a",
            Ruling(False, "line 4: Disallow: /"),
            id="a Sitemap does not end a run of agents",
        ),
        pytest.param("Disallow: /", "/a", Ruling(True), id="rules before any agent are nobody's"),
        pytest.param(
            "user agent *\ndissalow /a",
            "/a",
            Ruling(True),
            id="without a colon a name is one word",
        ),
        pytest.param(
            "useragent *\ndissalow /a",
            "/a",
            Ruling(False, "line 2: Disallow: /a"),
            id="forgotten colons and known misspellings",
        ),
        pytest.param(
            "<html><body>User-agent: *\nDisallow: /</body>",
            "/a",
            Ruling(True),
            id="not a robots.txt",
        ),
    ],
)
def test_ruling(text: str, path: str, want: Ruling) -> None:
    assert rules(text).ruling(HOST + path) == want


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\xef\xbb\xbfUser-agent: *\nDisallow: /a", id="a byte order mark"),
        pytest.param(b"User-agent: *\rDisallow: /a\r", id="CR"),
        pytest.param(b"User-agent: *\r\nDisallow: /a\r\n", id="CRLF"),
        pytest.param(b"\n\r\r\nUser-agent: *\n\r\nDisallow: /a", id="all of them"),
        pytest.param(b"User-agent:\t*\x0b\nDisallow\x0c:/a \t# \xff", id="odd white space"),
        pytest.param(b"\xff\xfe\x00\nUser-agent: *\n\xc3\x28: x\nDisallow: /a", id="bad bytes"),
        pytest.param(b"User-agent: *\nDisallow: /\x00\nDisallow: /a", id="NULs"),
    ],
)
def test_bytes_do_not_hide_a_rule(body: bytes) -> None:
    found = Rules.parse(body, "FooBot")
    assert not found.allowed(HOST + "/a")
    assert found.allowed(HOST + "/b")


@pytest.mark.parametrize(
    ("line", "want_s"),
    [
        pytest.param("Crawl-delay: 2.5", 2.5, id="seconds, with decimals"),
        pytest.param("crawl delay : .5", 0.5, id="spelt otherwise"),
        pytest.param("Crawl-delay: 0", 0.0, id="none"),
        pytest.param("Crawl-delay: -1", 0.0, id="negative"),
        pytest.param("Crawl-delay: 1e9", 0.0, id="no plain number"),
        pytest.param("Crawl-delay: nan", 0.0, id="not a number"),
        pytest.param("Crawl-delay: " + "9" * 5000, 0.0, id="absurd"),
        pytest.param("Crawl-delay: 10\nCrawl-delay: 5", 10.0, id="of two the longer"),
    ],
)
def test_crawl_delay(line: str, want_s: float) -> None:
    assert rules(f"User-agent: *\n{line}").crawl_delay_s == want_s


@pytest.mark.parametrize(
    ("text", "want", "want_delay_s"),
    [
        pytest.param(
            "User-agent: FooBot\nCrawl-delay: 9\nUser-agent: BadBot\nDisallow: /",
            Ruling(False, "line 4: Disallow: /"),
            9.0,
            id="a Crawl-delay between two agents: the rules are for both, the delay for the first",
        ),
        pytest.param(
            "User-agent: BadBot\nCrawl-delay: 9\nUser-agent: FooBot\nDisallow: /",
            Ruling(False, "line 4: Disallow: /"),
            0.0,
            id="the second agent has not the first one's delay",
        ),
        pytest.param(
            "User-agent: FooBot\nCrawl-delay: 1\nUser-agent: BadBot\nCrawl-delay: 99\nDisallow: /",
            Ruling(False, "line 5: Disallow: /"),
            1.0,
            id="each has its own delay",
        ),
        pytest.param(
            "User-agent: FooBot\nUser-agent: BadBot\nCrawl-delay: 9\nDisallow: /",
            Ruling(False, "line 4: Disallow: /"),
            9.0,
            id="a delay below two agents is for both",
        ),
        pytest.param(
            "User-agent: FooBot\nDisallow: /b\nCrawl-delay: 9\nUser-agent: BadBot\nDisallow: /",
            Ruling(True),
            9.0,
            id="behind a rule the next agent begins a group",
        ),
        pytest.param(
            "User-agent: FooBot\nDisallow:\nUser-agent: BadBot\nDisallow: /",
            Ruling(True),
            0.0,
            id="an empty rule is a rule",
        ),
        pytest.param(
            "User-agent: FooBot\nHost: x\nClean-param: a /\nRequest-rate: 1/5\nnonsense\n"
            "User-agent: BadBot\nDisallow: /",
            Ruling(False, "line 7: Disallow: /"),
            0.0,
            id="other records end nothing",
        ),
    ],
)
def test_only_rules_end_a_run_of_agents(text: str, want: Ruling, want_delay_s: float) -> None:
    assert rules(text).ruling(HOST + "/a") == want
    assert rules(text).crawl_delay_s == want_delay_s

"""The rules of a robots.txt: the cases of other suites and our own, what reading one may cost, and
three other parsers: a regular expression, the standard library, Protego."""

from __future__ import annotations

import base64
import json
import re
import urllib.robotparser
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from protego import Protego

from crawler.model.url import authority_of, fetch_form
from crawler.policy.robots import (
    BOM,
    MIN_BODY_BYTES,
    TOO_COSTLY,
    RobotsRules,
    Ruling,
    cut_body,
)
from tests.harness.measuring import cpu_seconds

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


def rules(text: str, agent: str = "FooBot") -> RobotsRules:
    return RobotsRules.parse(text.encode(), agent)


def our_answer(case: dict[str, Any]) -> object:
    """What we say, in the words of the case."""
    found = RobotsRules.parse(base64.b64decode(case["body_b64"]), case["ua"])
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


ABOUT_USES: Final = [
    *(b"Content-Usage: train-ai=n", b"content-usage: /a train-ai=y", b"Content-Usage:"),
    *(b"Content-Signal: search=yes, ai-train=no", b"License: https://x/l.xml", b"license /l.xml"),
]


def test_lines_about_uses_change_no_verdict_wherever_they_stand() -> None:
    random = Random(1)
    for case in CASES:
        lines = base64.b64decode(case["body_b64"]).splitlines()
        mark = lines[:1] if lines and lines[0].startswith(BOM) else []
        for _ in range(3):
            more = lines[len(mark) :]
            for line in random.choices(ABOUT_USES, k=random.randint(1, 8)):
                more.insert(random.randint(0, len(more)), line)
            changed = base64.b64encode(b"\n".join(mark + more)).decode()
            assert our_answer({**case, "body_b64": changed}) == our_answer(case), case["test"]


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
        pytest.param("Disallow: /", "/a", Ruling(True), id="rules before any agent are ignored"),
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
    found = RobotsRules.parse(body, "FooBot")
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


def foobot_rules(text: str) -> RobotsRules:
    return RobotsRules.parse(text.encode(), "FooBot")


def test_500_kib_are_read_and_no_line_that_was_cut() -> None:
    head = b"User-agent: *\nDisallow: /a\n"
    body = head + b"#" * (MIN_BODY_BYTES - len(head) - 14) + b"\nDisallow: /b\n"
    assert len(body) == MIN_BODY_BYTES
    assert not RobotsRules.parse(body, "x").allowed(HOST + "/b")
    longer = RobotsRules.parse(b"\n" + body, "x")
    assert not longer.allowed(HOST + "/a")
    assert longer.allowed(HOST + "/b")
    assert not RobotsRules.parse(b"\n" + body, "x", MIN_BODY_BYTES + 100).allowed(HOST + "/b")


@given(st.binary(max_size=60), st.integers(1, 60))
def test_a_cut_body_is_its_beginning_in_whole_lines(body: bytes, most: int) -> None:
    cut = cut_body(body, most)
    assert body.startswith(cut)
    assert len(cut) <= most
    assert cut == body or not cut or cut[-1:] in b"\r\n"


def starry(size: int) -> Callable[[], object]:
    found = foobot_rules(f"User-agent: *\nDisallow: /{'*a' * size}b\n")
    url = HOST + "/" + "a" * size
    return lambda: [found.ruling(url) for _ in range(20)]


def many_globs(size: int) -> Callable[[], object]:
    found = foobot_rules("User-agent: *\n" + "".join(f"Disallow: /*{i}x\n" for i in range(size)))
    return lambda: [found.ruling(HOST + "/" + "a" * 100) for _ in range(20)]


def parsed(size: int) -> Callable[[], object]:
    body = b"User-agent: *\n" + b"Disallow: /*a*b*$\nUser-agent: x\nAllow: /%zz%41\xff\n" * size
    return lambda: RobotsRules.parse(body, "x", len(body) + 1)


@pytest.mark.parametrize(
    ("work", "size"),
    [
        pytest.param(starry, 500, id="one pattern of n stars, a path of n letters"),
        pytest.param(many_globs, 1000, id="n patterns with stars"),
        pytest.param(parsed, 1000, id="a file of n lines"),
    ],
)
def test_four_times_the_input_takes_no_more_than_eight_times_as_long(
    work: Callable[[int], Callable[[], object]], size: int
) -> None:
    # Linear is 4, quadratic 16, and a backtracking regular expression would never end.
    assert cpu_seconds(work(size * 4), 5) < 8 * cpu_seconds(work(size), 5)


def test_a_file_that_takes_too_long_to_decide_forbids() -> None:
    body = "User-agent: *\n" + "".join(f"Disallow: /*a{i}\n" for i in range(40_000))
    found = foobot_rules(body)
    assert found.ruling(HOST + "/" + "a" * 2000) == Ruling(False, TOO_COSTLY)
    assert found.ruling(HOST + "/" + "a" * 50) == Ruling(True)


@given(st.binary(max_size=200), st.text(max_size=30))
@example(b"User-agent: *\nDisallow: /%", "/%")
def test_no_file_and_no_url_raises_an_error(body: bytes, path: str) -> None:
    url = fetch_form(HOST + "/" + path)
    if url is not None:
        found = RobotsRules.parse(b"User-agent: *\nDisallow: /" + body, "FooBot")
        assert found.ruling(url).allowed in (True, False)
        assert found.size_bytes() > 0


PATHS: Final = st.text("ab/", max_size=5).map(lambda text: "/" + text)
PATTERNS: Final = st.text("ab/*$", max_size=6).map(lambda text: "/" + text)


def spec_allows(lines: list[tuple[bool, str]], path: str) -> bool:
    """RFC 9309, 2.2.2 and 2.2.3, written down as a regular expression for each pattern."""
    best = (0, True)
    for allow, pattern in lines:
        collapsed = re.sub(r"\*+", "*", pattern)
        body = collapsed.removesuffix("$")
        parts = [re.escape(part.replace("$", "%24")) for part in body.split("*")]
        if re.match(".*".join(parts) + ("$" if body != collapsed else ""), path, re.DOTALL):
            octets = len("*".join(parts).replace("\\", "")) + (body != collapsed)
            best = max(best, (octets, allow))
    return best[1]


@given(st.lists(st.tuples(st.booleans(), PATTERNS), max_size=6), PATHS)
@example([(False, "/a*$"), (True, "/a*b$")], "/ab")
@example([(False, "/*ab*b")], "/ab")
@example([(False, "/a*a$")], "/a")
def test_patterns_match_as_the_regular_expression_of_the_rfc(
    lines: list[tuple[bool, str]], path: str
) -> None:
    text = "User-agent: *\n" + "".join(
        f"{'Allow' if allow else 'Disallow'}: {pattern}\n" for allow, pattern in lines
    )
    assert foobot_rules(text).allowed(HOST + path) == spec_allows(lines, path)


PLAIN: Final = st.text("ab", max_size=5).map(lambda text: "/" + text)  # it has "//" its own way


@given(st.lists(st.tuples(st.booleans(), PLAIN), max_size=6), PLAIN)
def test_the_standard_library_agrees_where_the_first_match_is_the_longest(
    lines: list[tuple[bool, str]], path: str
) -> None:
    lines.sort(key=lambda line: (len(line[1]), line[0]), reverse=True)
    text = ["User-agent: *"] + [f"{'Allow' if yes else 'Disallow'}: {rule}" for yes, rule in lines]
    judge = urllib.robotparser.RobotFileParser()
    judge.parse(text)
    assert foobot_rules("\n".join(text)).allowed(HOST + path) == judge.can_fetch(
        "FooBot", HOST + path
    )


PIECES: Final = st.sampled_from(["a", "b", "/", "*", "~", "%41", "%2f", "%2F"])
LINES: Final = st.one_of(
    st.sampled_from(["User-agent: *", "User-agent: FooBot", "user-agent: Other", "Sitemap: /s"]),
    st.sampled_from(["Crawl-delay: 7", "Disallow:", "", "# x", "Disallow: /*b", "Allow /"]),
    st.lists(PIECES, max_size=5).map(lambda pieces: "Allow: /" + "".join(pieces)),
    st.lists(PIECES, max_size=5).map(lambda pieces: "Disallow: /" + "".join(pieces)),
)


@given(st.lists(LINES, max_size=12), st.lists(PIECES, max_size=6))
@example(["User-agent: *", "User-agent: FooBot", "Disallow: /"], ["a"])
def test_protego_agrees_about_whole_files(lines: list[str], pieces: list[str]) -> None:
    url = fetch_form(HOST + "/" + "".join(pieces))
    assert url
    text = "\n".join(lines)
    judge = Protego.parse(text)
    # For Protego a Crawl-delay ends a run of User-agent lines; for RFC 9309, 2.2.4 it may not.
    undelayed = Protego.parse("\n".join(line for line in lines if line != "Crawl-delay: 7"))
    assert foobot_rules(text).allowed(url) == undelayed.can_fetch(url, "FooBot")
    assert foobot_rules(text).crawl_delay_s == (judge.crawl_delay("FooBot") or 0)
    assert list(foobot_rules(text).sitemaps) == list(judge.sitemaps)

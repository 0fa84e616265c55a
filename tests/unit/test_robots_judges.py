"""Other judges of the same files: a regular expression, the standard library, Protego."""

from __future__ import annotations

import re
import urllib.robotparser
from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st
from protego import Protego

from crawler.model.url import fetch_form
from crawler.policy.robots import Rules

HOST: Final = "http://example.com"


def rules(text: str) -> Rules:
    return Rules.parse(text.encode(), "FooBot")


PATHS: Final = st.text("ab/", max_size=5).map(lambda text: "/" + text)
PATTERNS: Final = st.text("ab/*$", max_size=6).map(lambda text: "/" + text)


def spec_says(lines: list[tuple[bool, str]], path: str) -> bool:
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
    assert rules(text).allowed(HOST + path) == spec_says(lines, path)


PLAIN: Final = st.text("ab", max_size=5).map(lambda text: "/" + text)  # it has "//" its own way


@given(st.lists(st.tuples(st.booleans(), PLAIN), max_size=6), PLAIN)
def test_the_standard_library_agrees_where_the_first_match_is_the_longest(
    lines: list[tuple[bool, str]], path: str
) -> None:
    lines.sort(key=lambda line: (len(line[1]), line[0]), reverse=True)
    text = ["User-agent: *"] + [f"{'Allow' if yes else 'Disallow'}: {rule}" for yes, rule in lines]
    judge = urllib.robotparser.RobotFileParser()
    judge.parse(text)
    assert rules("\n".join(text)).allowed(HOST + path) == judge.can_fetch("FooBot", HOST + path)


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
    assert rules(text).allowed(url) == undelayed.can_fetch(url, "FooBot")
    assert rules(text).crawl_delay_s == (judge.crawl_delay("FooBot") or 0)
    assert list(rules(text).sitemaps) == list(judge.sitemaps)

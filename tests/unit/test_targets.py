"""What the targets of an operator's rules and commands mean."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.policy.targets import read_target


@pytest.mark.parametrize(
    ("text", "meant", "not_meant"),
    [
        pytest.param(
            "www.example.org",
            ["https://www.example.org/", "http://www.example.org:8080/a?b=c"],
            ["https://example.org/", "https://a.www.example.org/"],
            id="a host means its URLs, of any scheme and port",
        ),
        pytest.param(
            "*.example.org",
            ["https://example.org/", "https://a.b.example.org/x"],
            ["https://badexample.org/", "https://example.org.evil.net/"],
            id="a domain means all hosts below it, and itself",
        ),
        pytest.param(
            "example.org/cart/*",
            ["https://example.org/cart/", "http://example.org/cart/1?x=/y"],
            ["https://example.org/cart", "https://www.example.org/cart/1"],
            id="a pattern without a scheme means both",
        ),
        pytest.param(
            "https://*.example.org/*/print",
            ["https://a.example.org/x/print", "https://a.b.example.org/x/y/print"],
            ["http://a.example.org/x/print", "https://example.org/x/print"],
            id="stars in host and path",
        ),
        pytest.param(
            "*shop.example/*",
            ["https://shop.example/a", "https://myshop.example/b"],
            ["https://evil.net/shop.example/a"],
            id="a star in the host does not go beyond it",
        ),
        pytest.param(
            "https://example.org/a?b=c",
            ["https://example.org/a?b=c"],
            ["https://example.org/a?b=cd", "https://example.org/a"],
            id="a URL means itself",
        ),
        pytest.param(
            "example.org:8080",
            ["https://example.org:8080/x"],
            ["https://example.org/x"],
            id="a port counts where it is written",
        ),
        pytest.param(
            "BÜCHER.example",
            ["https://xn--bcher-kva.example/"],
            [],
            id="a host is compared in its ASCII form",
        ),
        pytest.param(
            "https://example.org/größe",
            ["https://example.org/gr%C3%B6%C3%9Fe"],
            [],
            id="a path too",
        ),
        pytest.param("[::1]", ["http://[::1]:81/a"], ["http://[::2]/"], id="an IPv6 address"),
    ],
)
def test_meaning(text: str, meant: list[str], not_meant: list[str]) -> None:
    target = read_target(text)

    assert [url for url in meant if not target.matches(url)] == []
    assert [url for url in not_meant if target.matches(url)] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is no target"),
        ("two words", "is no target"),
        ("*", "means all URLs"),
        ("*/*", "means all URLs"),
        ("https://*/", "means all URLs"),
        ("ftp://example.org/", "the scheme ftp"),
        ("example.org/a#b", "fragment"),
        ("..", "is no target"),
        ("2026-12-01T08:00:00", "is no target"),
        ("*.bücher.example/x", "ASCII form"),
        ("x" * 5000, "is no target"),
    ],
)
def test_what_means_nothing_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_target(text)


@given(st.text("ab*/", min_size=1, max_size=12), st.text("ab/", max_size=12))
def test_stars_mean_what_they_mean_in_regular_expressions(rest: str, path: str) -> None:
    target = read_target(f"example.org/x{rest}")
    expected = re.compile(".*".join(map(re.escape, f"/x{rest}".split("*"))))

    assert target.matches(f"https://example.org/x{path}") == bool(expected.fullmatch(f"/x{path}"))


def test_a_hostile_pattern_takes_linear_time() -> None:
    target = read_target("example.org/" + "*a" * 1500)

    assert not target.matches("https://example.org/" + "a" * 1499)
    assert target.matches("https://example.org/" + "a" * 1500)

"""Reading a list of seeds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.core.url import fetch_form
from crawler.policy.seeds import BadLine, parse_seeds, seed_url


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("https://example.com/a", "https://example.com/a", id="a URL"),
        pytest.param("HTTP://Example.COM", "http://example.com/", id="in capitals"),
        pytest.param("https://example.com/#top", "https://example.com/", id="with a fragment"),
        pytest.param("example.com", "https://example.com/", id="a bare name is https"),
        pytest.param("example.com/x?y=1", "https://example.com/x?y=1", id="with a path"),
        pytest.param("//example.com/x", "https://example.com/x", id="without its scheme"),
        pytest.param("bücher.example", "https://xn--bcher-kva.example/", id="in German"),
        pytest.param("example.com:8080/x", "http://example.com:8080/x", id="a port is http"),
        pytest.param("example.com:443", "https://example.com/", id="but for that of https"),
        pytest.param("localhost:8000", "http://localhost:8000/", id="localhost is http"),
        pytest.param("a.localhost", "http://a.localhost/", id="and all below it"),
        pytest.param("127.0.0.1/x", "http://127.0.0.1/x", id="an address is http"),
        pytest.param("[::1]:8000/", "http://[::1]:8000/", id="an IPv6 address is http"),
        pytest.param("http://intranet/", "http://intranet/", id="any name with a scheme"),
    ],
)
def test_good_seed(text: str, want: str) -> None:
    assert seed_url(text) == want


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("ftp://example.com/", "the scheme is ftp", id="another scheme"),
        pytest.param("mailto:me@example.com", "the scheme is mailto", id="a mail link"),
        pytest.param("me@example.com", "neither a URL nor", id="a mail address"),
        pytest.param("hello", "neither a URL nor", id="a word"),
        pytest.param("/etc/passwd", "neither a URL nor", id="a path"),
        pytest.param("?x=1", "neither a URL nor", id="a query"),
        pytest.param("two words.example", "white space", id="two words"),
        pytest.param("http://[::1", "not a URL", id="an open bracket"),
        pytest.param("http://999.1.1.1", "not a URL", id="an address out of range"),
        pytest.param("example.com:99999", "not a URL", id="a port out of range"),
        pytest.param("https://", "not a URL", id="no host"),
        pytest.param("https://me:word@example.com/", "user name or password", id="credentials"),
    ],
)
def test_bad_seed(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        seed_url(text)


def test_a_list_keeps_its_order_and_names_its_bad_lines() -> None:
    text = (
        "\ufeff# my seeds\r\n"
        "https://example.com/b\r\n"
        "\r\n"
        "   https://example.com/a  # the older one\r\n"
        "not a seed\r"
        "\t#example.org\n"
        "https://example.com/#part\n"
        "ftp://example.com/\n"
    )
    seeds = parse_seeds(text)
    assert seeds.urls == (
        "https://example.com/b",
        "https://example.com/a",
        "https://example.com/",
    )
    assert seeds.bad == (
        BadLine(5, "not a seed", "white space in the URL"),
        BadLine(8, "ftp://example.com/", "the scheme is ftp, only http and https are fetched"),
    )


def test_a_bad_line_shows_only_its_beginning() -> None:
    (bad,) = parse_seeds("\x00" * 1_000_000).bad
    assert len(bad.text) <= 120


@given(st.text())
def test_no_text_raises_and_all_seeds_are_fetch_forms(text: str) -> None:
    seeds = parse_seeds(text)
    assert all(fetch_form(url) == url for url in seeds.urls)

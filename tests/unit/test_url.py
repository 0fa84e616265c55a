"""The fetch form, judged by the web platform's own cases and by ada itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ada_url
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.model.url import (
    MAX_TEXT_CHARS,
    UrlParts,
    authority_of,
    fetch_form,
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
    """What the standard says of a case, less what a fetch form leaves out."""
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

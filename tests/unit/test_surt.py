"""Keys of an index, checked against the package with which pywb and cdxj-indexer make theirs."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.archive.cdxj import surt
from crawler.model.url import fetch_form, split
from tests.harness.archive_judges import judged_key

URL_CASES: Final = Path(__file__).parents[1] / "data" / "urltestdata.json"


@pytest.mark.parametrize(
    ("url", "key"),
    [
        pytest.param("http://example.com/", "com,example)/", id="the host backwards"),
        pytest.param("https://www.example.com/", "com,example)/", id="without www or scheme"),
        pytest.param("http://www2.a.example/", "example,a)/", id="or www with a number"),
        pytest.param("http://www.www.example/", "example,www)/", id="but only once"),
        pytest.param("http://example.com:8080/", "com,example:8080)/", id="a port stays"),
        pytest.param("ftp://a.example:21/A", "example,a:21)/a", id="of another archive's FTP"),
        pytest.param("http://192.0.2.1/", "1,2,0,192)/", id="an address too is turned round"),
        pytest.param("http://[::1]:81/", "::1:81)/", id="one of IPv6 is not"),
        pytest.param("http://a.example/A/b/", "example,a)/a/b", id="small letters, no last slash"),
        pytest.param("http://a.example/a%2Fb%2525", "example,a)/a/b%25", id="unescaped to the end"),
        pytest.param("http://a.example//a//b", "example,a)/a/b", id="no empty segments"),
        pytest.param("http://a.example/?b=1&A=2", "example,a)/?a=2&b=1", id="the query sorted"),
        pytest.param("http://a.example/?", "example,a)/", id="an empty query is none"),
        pytest.param(
            f"http://a.example/?a=1&sid={'0' * 32}&b=2",
            "example,a)/?a=1&b=2",
            id="without a session",
        ),
    ],
)
def test_a_key(url: str, key: str) -> None:
    assert surt(url) == key
    assert judged_key(url) == key


def test_the_surt_package_agrees_on_the_urls_of_the_web_platform() -> None:
    counted = count()
    for case in json.loads(URL_CASES.read_text(encoding="utf-8")):
        url = fetch_form(case["input"], case.get("base")) if isinstance(case, dict) else None
        # A host of dots alone has no answers that could be archived.
        if url is not None and split(url).hostname.strip("."):
            assert surt(url) == judged_key(url), url
            next(counted)
    assert next(counted) > 200


ATOMS: Final = [
    *("%", "25", "%25", "%2f", "%2E", "%26", "%3d", "%23", "%e9", "%C3%A9", "%20", "%00", "%0a"),
    *(".", "..", "/", "//", "a", "B", "?", "&", "=", ";", "[", "|", "^", "{", '"', "\\", "+", "~"),
    *("jsessionid=", "PHPSESSID=", "sid=", "a" * 32, "aspsessionidabcdefgh=", "b" * 24),
    *("cfid=1&cftoken=2", ".aspx", f"({'a' * 24})", f"(s({'1' * 24}))", "(", ")", "www."),
]
HOSTS: Final = [
    *("example.com", "www12.example.com:8080", "www.example.com:443", "127.0.0.1", "[2001:db8::1]"),
    *("xn--mnchen-3ya.de", "a..b", "www..", "https"),
]


@given(
    scheme=st.sampled_from(["http", "https"]),
    host=st.sampled_from(HOSTS),
    rest=st.lists(st.sampled_from(ATOMS), max_size=10).map("".join),
)
def test_the_surt_package_agrees_on_hostile_urls(scheme: str, host: str, rest: str) -> None:
    url = fetch_form(f"{scheme}://{host}/{rest}")
    if url is not None:
        assert surt(url) == judged_key(url)


def test_escapes_within_escapes_take_no_time() -> None:
    url = "http://example.com/" + "%" + "25" * 100_000 + "41"
    assert surt(url) == "com,example)/a"

"""Which URLs fall together into a pattern, and which do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.policy.patterns import MAX_PATTERN_CHARS, pattern_of

HOST = "http://example.com"
UUIDS = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")


def of(path: str) -> str:
    return pattern_of(HOST + path)


@pytest.mark.parametrize(
    ("one", "other", "pattern"),
    [
        pytest.param("/2024/05/12/", "/2025/11/30/", "/#/#/#/", id="days"),
        pytest.param("/2024-05-12.html", "/1999-1-2.html", "/#-#-#.html", id="days in one word"),
        pytest.param("/page/2", "/page/31", "/page/#", id="page numbers"),
        pytest.param("/page-2.html", "/page-31.html", "/page-#.html", id="pages as files"),
        pytest.param("/a?id=1", "/a?id=xyz", "/a?id", id="values of a query"),
        pytest.param("/a?b=1&a=2", "/a?a=7&b=3", "/a?a&b", id="the order of a query"),
        pytest.param("/a?f[0]=x", "/a?f[0]=y&f[1]=z", "/a?f[#]", id="keys that count"),
        pytest.param("/a?f%5B0%5D=x", "/a?f%5B12%5D=y", "/a?f%5B#%5D", id="escaped ones"),
        pytest.param("/a?2024-05-12", "/a?2031-1-1", "/a?#-#-#", id="a query without keys"),
        pytest.param("/a?id=", "/a?id", "/a?id", id="a key without a value"),
        pytest.param(f"/o/{UUIDS[0]}", f"/o/{UUIDS[1]}", "/o/<id>", id="UUIDs"),
        pytest.param("/c/5217b2e9", "/c/deadbee7f00", "/c/<id>", id="hashes, long and short"),
        pytest.param("/r/x7Gk29a/", "/r/b3c4/", "/r/<id>/", id="words with numbers in two places"),
        pytest.param("/p;s=aVeryLong1TokenOfSession", "/p;s=7FGhijKlmNopQrsTuvWxyz",
                     "/p;s=<id>", id="tokens of 128 bits"),
        pytest.param("/caf%C3%A9/1", "/caf%C3%A9/22", "/caf%C3%A9/#", id="numbers beside escapes"),
        pytest.param("/%D0%B07", "/%D0%B012", "/%D0%B0#", id="a number after an escape"),
    ],
)  # fmt: skip
def test_what_falls_together(one: str, other: str, pattern: str) -> None:
    assert of(one) == of(other) == pattern


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("/page/2", "/pages/2", id="directories"),
        pytest.param("/2024/05/12/", "/2024/05/", id="days and months"),
        pytest.param("/2024/05/12/", "/2024/05/12", id="with and without a slash"),
        pytest.param("/a?id=1", "/b?id=1", id="paths with one query"),
        pytest.param("/a?id=1", "/a?id=1&sort=up", id="other keys"),
        pytest.param("/a", "/a?id=1", id="without a query and with one"),
        pytest.param("/post/12-spring", "/post/13-autumn", id="names beside numbers"),
        pytest.param("/wiki/%D0%B0/1", "/wiki/%D0%B1/1", id="letters that are written as escapes"),
        pytest.param("/12/a-b-c", "/12/x-y-z", id="slugs"),
        pytest.param("/1/deadbeef", "/1/facade", id="words of hexadecimal letters"),
        pytest.param("/v2/" + "donaudampf" * 3, "/v2/" + "schifffahr" * 3, id="long words"),
        pytest.param("/1/" + "x" * 300, "/1/" + "x" * 299, id="what is cut"),
    ],
)
def test_what_does_not(one: str, other: str) -> None:
    assert of(one) != of(other)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/", id="a home page"),
        pytest.param("/?", id="with an empty query"),
        pytest.param("/wiki/Ada_Lovelace", id="a name"),
        pytest.param("/item/abc-def", id="a slug"),
        pytest.param("/wiki/%E2%82%AC", id="a name in escapes"),
    ],
)
def test_a_url_without_anything_that_counts_is_the_only_one_of_its_pattern(path: str) -> None:
    assert of(path) == ""


texts = st.text(st.sampled_from("aZf019-_.;=&?/%[]~"), max_size=60)


@given(texts)
def test_a_pattern_is_its_own(text: str) -> None:
    pattern = of("/" + text)
    assert of(pattern or "/") in (pattern, "")


@given(texts, st.integers(0, 10**9), st.integers(0, 10**9))
def test_numbers_make_no_difference(text: str, one: int, other: int) -> None:
    assert of(f"/{text}/{one}") == of(f"/{text}/{other}")


def test_a_pattern_is_bounded() -> None:
    assert len(of("/1" + "a/" * 900)) == MAX_PATTERN_CHARS
